"""In which part of training does a memory snapshot say that memory was handed out or given back? By the frames of each record.

torch notes the stack of every record: Python frames, and with ``stacks="all"`` those of C++. The innermost frame that stands in one part
of training only decides; a stack without such a frame has no place. Nothing else of a stack is kept but what made the block, in one line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit import schema
from tracekit.numbers import natural
from tracekit.stated import StackPlace

Ints = npt.NDArray[np.int64]

#: Python frames by the end of their file and their function; of a stack the innermost decides.
_PYTHON: tuple[tuple[str, frozenset[str], StackPlace], ...] = (
    ("torch/optim/optimizer.py", frozenset({"wrapper"}), StackPlace.OPTIMIZER),
    ("torch/optim/optimizer.py", frozenset({"zero_grad"}), StackPlace.ZERO_GRAD),
    ("torch/nn/modules/module.py", frozenset({"zero_grad"}), StackPlace.ZERO_GRAD),
    ("torch/nn/modules/module.py", frozenset({"_apply"}), StackPlace.MODULE_STATE),
    ("torch/nn/modules/module.py", frozenset({"_call_impl", "_wrapped_call_impl"}), StackPlace.FORWARD),
    ("torch/autograd/__init__.py", frozenset({"backward", "grad", "_make_grads"}), StackPlace.BACKWARD),
    ("torch/autograd/graph.py", frozenset({"_engine_run_backward"}), StackPlace.BACKWARD),
    ("torch/_functorch/_aot_autograd/runtime_wrappers.py", frozenset({"_backward_impl"}), StackPlace.BACKWARD),
    ("torch/utils/checkpoint.py", frozenset({"backward", "unpack_hook"}), StackPlace.RECOMPUTE),
    ("torch/distributed/distributed_c10d.py", frozenset(), StackPlace.COMMUNICATION),
    ("torch/distributed/_functional_collectives.py", frozenset(), StackPlace.COMMUNICATION),
    ("torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", frozenset({"foreach_all_gather", "foreach_all_gather_copy_out"}), StackPlace.GATHER),
    ("torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", frozenset({"foreach_reduce"}), StackPlace.COMMUNICATION),
    ("torch/distributed/fsdp/_flat_param.py", frozenset({"_alloc_padded_unsharded_flat_param", "_all_gather_flat_param"}), StackPlace.GATHER),
)
#: Layers of torch itself make their parameters in the constructor.
_LAYERS = re.compile(r"torch/nn/modules/(?!module\.py)\w+\.py$")
_OPTIMIZERS = re.compile(r"torch/optim/\w+\.py$")
_ENGINE = "torch::autograd::Engine::evaluate_function"
_PROCESS_GROUP = "c10d::"
#: Buckets of DistributedDataParallel may be the gradients themselves.
_REDUCER = "c10d::Reducer"
_TO_DEVICE = ("torch::autograd::THPVariable_to(", "torch::autograd::THPVariable_cuda(")
_OPERATOR = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)\(")
_NODE = re.compile(r"torch::autograd::(?:generated::)?(\w+)::apply\(")
#: Operators that only hand out memory: what called them is the maker.
_ALLOCATING = re.compile(r"(?:new_)?empty(?:_\w+)?$|resize_$")
_LIBRARIES = ("site-packages/", "dist-packages/", "torchinductor", "torch/")
#: No stack is deeper; what lies beyond is not looked at.
_DEEPEST = 1024
_LONGEST = 160


class _Frame(NamedTuple):
    """What one frame tells."""

    file: str
    name: str
    line: int | None
    place: StackPlace | None
    python: bool


class Stacks:
    """The distinct stacks of a snapshot, each looked at once.

    Records share the dictionaries of their frames as far as the snapshot does, so a stack is first told by which dictionaries it has.
    """

    def __init__(self) -> None:
        self._frames: dict[int, _Frame] = {}
        self._seen: dict[tuple[int, ...], int] = {}
        self._rows: dict[int, dict[str, Any]] = {}
        self._held: list[Any] = []  # as long as these live, no other frame has their id

    def codes(self, records: Sequence[Any]) -> Ints:
        """The code of the stack of each record (a dictionary with ``frames``); -1 where it has none."""
        return np.fromiter((self._code(r.get("frames") if type(r) is dict else None) for r in records), np.int64, len(records))

    def table(self) -> pd.DataFrame:
        """Rows of ``schema.MEMORY_STACKS``, by code."""
        return schema.conform(pd.DataFrame(list(self._rows.values()), columns=list(schema.MEMORY_STACKS)), schema.MEMORY_STACKS)

    def _code(self, frames: Any) -> int:
        if type(frames) is not list or not frames:
            return -1
        key = tuple(map(id, frames[:_DEEPEST]))
        code = self._seen.get(key)
        if code is None:
            self._held.append(frames)
            found = [self._frame(f) for f in frames[:_DEEPEST] if type(f) is dict]
            text = "\n".join(f"{f.file}:{f.name}:{f.line}" for f in found)
            code = int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big") >> 1
            self._seen[key] = code
            self._rows.setdefault(code, {"stack": code, **_told(found)})
        return code

    def _frame(self, frame: dict[str, Any]) -> _Frame:
        known = self._frames.get(id(frame))
        if known is None:
            file, name = frame.get("filename"), frame.get("name")
            known = _meaning(file if type(file) is str else "", name if type(name) is str else "", natural(frame.get("line")))
            self._frames[id(frame)] = known
        return known


def _meaning(file: str, name: str, line: int | None) -> _Frame:
    path = file.replace("\\", "/")
    if not path.endswith(".py"):
        engine = name.startswith(_ENGINE)
        moves = name.startswith(_PROCESS_GROUP) and not name.startswith(_REDUCER)
        return _Frame(path, name, line, StackPlace.BACKWARD if engine else StackPlace.COMMUNICATION if moves else None, False)
    place = next((p for end, names, p in _PYTHON if path.endswith(end) and (not names or name in names)), None)
    if place is None and name == "step" and _OPTIMIZERS.search(path):
        place = StackPlace.OPTIMIZER
    return _Frame(path, name, line, place, True)


def _told(frames: list[_Frame]) -> dict[str, Any]:
    """place, repeated, to_device and maker of a stack, its frames from the innermost outwards."""
    own = [f for f in frames if f.python]
    decided = [f.place for f in frames if f.place is not None]
    place = decided[0] if decided else None
    if own and own[0].name == "__init__" and _LAYERS.search(own[0].file):
        place = StackPlace.MODULE_STATE
    elif place is None and own and own[-1].name == "apply" and own[-1].file.endswith("torch/autograd/function.py"):
        place = StackPlace.BACKWARD  # a thread that begins there is autograd's
    repeated = place is StackPlace.RECOMPUTE or (place is StackPlace.FORWARD and bool({StackPlace.BACKWARD, StackPlace.RECOMPUTE} & set(decided)))
    return {
        "place": (StackPlace.FORWARD if place is StackPlace.RECOMPUTE else place),
        "repeated": repeated,
        "to_device": place is None and any(f.name.startswith(_TO_DEVICE) for f in frames),
        "maker": _maker(frames, own),
    }


def _maker(frames: list[_Frame], own: list[_Frame]) -> str | None:
    """``bmm in model.py:432 attention``: the innermost operator that computes, and where the user's code, or autograd, called it."""
    operators = (m[1] for f in frames if not f.python and (m := _OPERATOR.search(f.name)))
    operator = next((name for name in operators if not _ALLOCATING.match(name)), None)
    mine = next((f for f in own if not any(part in f.file for part in _LIBRARIES)), own[0] if own else None)
    node = next((m[1] for f in frames if not f.python and (m := _NODE.match(f.name))), None)
    where = f"{mine.file.rsplit('/', 1)[-1]}:{mine.line} {mine.name}" if mine else node
    said = " in ".join(part for part in (operator, where) if part)
    return said[:_LONGEST] or None
