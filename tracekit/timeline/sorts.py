"""As what is a slice drawn? The sorts that have a colour of their own: work by phase, communication by operation, host events by kind."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.columns import Mask
from tracekit.vocabulary import Collective, Kind, Phase

#: Name of each sort; its number is its place. Stored files hold numbers, so new ones go to the end.
SORTS = (
    "compute",
    "forward",
    "backward",
    "recompute",
    "optimizer",
    "memcpy",
    "memset",
    "graph",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "send_recv",
    "other_communication",
    "operator",
    "range",
    "python",
    "launch",
    "async_range",
    "device_range",
    "other",
)
#: Words for each, where its name is no word.
WORDS = {
    "compute": "compute",
    "recompute": "recomputation",
    "memcpy": "copy",
    "memset": "memory set",
    "graph": "whole CUDA graph",
    "send_recv": "send, receive",
    "other_communication": "other communication",
    "range": "range",
    "python": "Python function",
    "async_range": "asynchronous range",
    "device_range": "range on the device",
}
Codes = npt.NDArray[np.uint8]

_CODE = {name: code for code, name in enumerate(SORTS)}
_KINDS = {
    Kind.COMPUTE: "compute",
    Kind.COMMUNICATION: "other_communication",
    **{k: str(k) for k in (Kind.MEMCPY, Kind.MEMSET, Kind.GRAPH, Kind.OPERATOR, Kind.RANGE, Kind.PYTHON, Kind.LAUNCH, Kind.ASYNC_RANGE, Kind.DEVICE_RANGE)},
}
_COLLECTIVES = {
    **{c: str(c) for c in (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL, Collective.BROADCAST)},
    **dict.fromkeys((Collective.SEND, Collective.RECV, Collective.SEND_RECV), "send_recv"),
}
_PHASES = {Phase.FORWARD: "forward", Phase.BACKWARD: "backward", Phase.OPTIMIZER: "optimizer"}


def sort_of(events: pd.DataFrame) -> Codes:
    """The sort of each event, as its number in ``SORTS``.

    >>> events = pd.DataFrame({"kind": pd.Categorical(["operator", "communication"]), "collective": pd.Categorical([None, "all_reduce"]),
    ...     "phase": pd.Categorical([None, None], ["forward"]), "recompute": [False, False]})
    >>> [SORTS[c] for c in sort_of(events)]
    ['operator', 'all_reduce']
    """
    by_kind = _mapped(events["kind"], _KINDS, _CODE["other"])
    by_collective = _mapped(events["collective"], _COLLECTIVES, _CODE["other_communication"])
    by_phase = _mapped(events["phase"], _PHASES, _CODE["compute"])
    by_phase = np.where(events["recompute"].to_numpy(bool), np.uint8(_CODE["recompute"]), by_phase)
    communication: Mask = by_kind == _CODE["other_communication"]
    compute: Mask = by_kind == _CODE["compute"]
    out: Codes = np.where(communication, by_collective, np.where(compute, by_phase, by_kind)).astype(np.uint8)
    return out


def code(name: str) -> int:
    """The number of a sort."""
    return _CODE[name]


def _mapped(column: pd.Series, names: dict[object, str] | dict[Kind, str] | dict[Collective, str] | dict[Phase, str], otherwise: int) -> Codes:
    table = {str(key): _CODE[name] for key, name in names.items()}
    codes = np.asarray([*(table.get(str(c), otherwise) for c in column.cat.categories), otherwise], np.uint8)
    return codes[column.cat.codes.to_numpy(np.int64)]
