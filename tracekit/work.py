"""Which events are compute, communication and copies, on which device?

On a GPU run a device is a GPU and its work are kernels and copies. On a CPU run (gloo) the device is the rank's process,
number 0: compute is every ``aten::`` operator that holds nothing but such operators (and every other operator that holds
none), and every slept ``emulated_compute`` range; communication is every ``gloo:*`` execution.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.columns import Mask, Rows, integers, named
from tracekit.intervals import Union, union
from tracekit.trace import RankTrace
from tracekit.vocabulary import EMULATED_COMPUTE, Kind

#: Operators that issue or wait for communication: they are no compute, however long they block.
_NO_COMPUTE = ("c10d::", "_c10d_functional::", "gloo:", "nccl:", "record_param_comms", "c10d_functional::")
_BEGIN, _END = "StreamBeginCapture", "StreamEndCapture"

#: Kinds of events that are work where they ran on a device.
WORK = (Kind.COMPUTE, Kind.COMMUNICATION, Kind.MEMCPY, Kind.MEMSET, Kind.GRAPH)


def work_masks(trace: RankTrace) -> dict[str, Mask]:
    """Masks over the events: ``compute``, ``communication``, ``copy``, ``graph`` (none of these, and nobody knows what), their sum ``work``.

    And ``emulated``, a part of compute.
    """
    return trace.once("work_masks", lambda: _work_masks(trace))


def _work_masks(trace: RankTrace) -> dict[str, Mask]:
    events = trace.events
    kind = events["kind"]
    communication = kind.eq(Kind.COMMUNICATION).to_numpy()
    copy = kind.isin([Kind.MEMCPY, Kind.MEMSET]).to_numpy()
    compute = kind.eq(Kind.COMPUTE).to_numpy()
    emulated = compute & named(events, lambda name: name == EMULATED_COMPUTE)
    if trace.meta.device_type == "cpu":
        compute = compute | _computing_operators(events)
    graph = kind.eq(Kind.GRAPH).to_numpy()
    work = compute | communication | copy | graph
    return {"compute": compute, "communication": communication, "copy": copy, "graph": graph, "work": work, "emulated": emulated}


def work_rows(trace: RankTrace) -> Mapping[tuple[int, int | None], Rows]:
    """Rows of the work of each device and step, ascending, and of each device in all (step None); without work there is no entry."""
    return trace.once("work_rows", lambda: _work_rows(trace))


def _work_rows(trace: RankTrace) -> dict[tuple[int, int | None], Rows]:
    rows = np.flatnonzero(work_masks(trace)["work"])
    device, step = device_of(trace)[rows], integers(trace.events["step"])[rows]
    order = np.lexsort((step, device))
    rows, device, step = rows[order], device[order], step[order]
    first = np.flatnonzero((np.diff(device, prepend=-2) != 0) | (np.diff(step, prepend=-2) != 0))
    own = [(int(d), int(s)) for d, s in zip(device[first], step[first], strict=True)]
    found: dict[tuple[int, int | None], Rows] = dict(zip(own, np.split(rows, first[1:]), strict=True)) if own else {}
    return found | {(int(d), None): np.sort(rows[device == d]) for d in np.unique(device)}


def devices(trace: RankTrace) -> list[int]:
    """Numbers of the devices that did any work; [0] for a CPU run."""
    if trace.meta.device_type == "cpu":
        return [0]
    return sorted(int(d) for d in trace.events.loc[work_masks(trace)["work"], "device"].dropna().unique())


def device_of(trace: RankTrace) -> npt.NDArray[np.int64]:
    """Device number of each event; -1 off every device. On CPU runs every event belongs to device 0."""
    if trace.meta.device_type == "cpu":
        return np.zeros(len(trace.events), np.int64)
    return integers(trace.events["device"])


def compute_intervals(trace: RankTrace, device: int) -> Union:
    """Union of compute on one device, over the whole trace."""
    return intervals_of(trace.events, work_masks(trace)["compute"] & (device_of(trace) == device))


def intervals_of(events: pd.DataFrame, chosen: Mask | Rows) -> Union:
    """Union of the events that a mask or row numbers choose."""
    ts, dur = events["ts"].to_numpy()[chosen], events["dur"].to_numpy()[chosen]
    return union(ts, ts + dur)


def kernel_launches(events: pd.DataFrame) -> Mask:
    """Calls that launch kernels or whole graphs (CUDA runtime and driver, HIP, SYCL), those recorded into a graph left out.

    Between the beginning and the end of a graph's capture, calls are written down and not run.
    """
    calls: Mask = events["kind"].eq(Kind.LAUNCH).to_numpy() & named(events, _launches)
    if not calls.any():
        return calls
    ts = events["ts"].to_numpy()
    begun, ended = np.sort(ts[named(events, lambda name: _BEGIN in name)]), np.sort(ts[named(events, lambda name: _END in name)])
    if not len(begun):
        return calls
    ends = np.append(ended, np.iinfo(np.int64).max)[np.searchsorted(ended, begun)]
    captured = union(begun, ends)
    at = np.searchsorted(captured[0], ts, "right") - 1
    return calls & ~((at >= 0) & (ts < captured[1][np.maximum(at, 0)]))


def lost_launches(trace: RankTrace) -> Mask:
    """Calls of ``kernel_launches`` with a correlation id that no device work has: what they launched was not recorded, or failed."""
    events = trace.events
    done = events.loc[events["device"].notna() & events["kind"].isin(WORK), "correlation"].dropna()
    calls = kernel_launches(events) & events["correlation"].notna().to_numpy()
    return calls & ~events["correlation"].isin(done).to_numpy()


def _launches(name: str) -> bool:
    flat = name.lower()
    return "launch" in flat and "hostfunc" not in flat


def _computing_operators(events: pd.DataFrame) -> Mask:
    """Operators that compute, none inside another: the outermost ``aten::`` operators around ``aten::`` operators alone, and other leaves.

    A leaf alone would not do: ``aten::addmm`` calls ``aten::expand`` and spends its time in itself. Nothing wider would
    either: autograd nodes, DTensor's dispatch and Python functions hold waiting and host work.
    """
    operator = events["kind"].eq(Kind.OPERATOR).to_numpy()
    inner = operator | events["kind"].eq(Kind.COMPUTE).to_numpy()
    parent = integers(events["parent"])
    # the saving of tensors for backward shows as ``detach`` inside ``aten::detach``: the same operator once more
    known = frozenset(str(c) for c in events["name"].cat.categories)
    aten = operator & named(events, lambda name: name.startswith("aten::") or f"aten::{name}" in known)
    nested = events["device"].isna().to_numpy() & ~events["kind"].isin([Kind.COMMUNICATION, Kind.ASYNC_RANGE]).to_numpy()
    # whatever is no aten operator spoils every operator around it
    mixed = np.zeros(len(events), bool)
    at = parent[nested & ~aten & (events["kind"].ne(Kind.LAUNCH).to_numpy())]
    while len(at := np.unique(at[at >= 0])):
        at = at[~mixed[at]]
        mixed[at] = True
        at = parent[at]
    pure = aten & ~mixed
    below = (parent >= 0) & pure[np.maximum(parent, 0)]
    has_child = np.zeros(len(events), bool)
    has_child[parent[inner & (parent >= 0)]] = True
    other = operator & ~aten & ~has_child & ~named(events, lambda name: name.startswith(_NO_COMPUTE))
    out: Mask = (pure & ~below) | other
    return out
