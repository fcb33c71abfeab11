"""What was each block of memory for, and which rule decided it?

A rule looks at where a block was made, where it was freed and what came between. The first that fits decides; a block
that fits none is ``unknown``, never forced into a category.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.columns import integers, named
from tracekit.trace import RankTrace
from tracekit.vocabulary import GPIPE_RANGE, STEP, Direction, Kind, Phase, parse_actions, parse_module_span

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Objects = npt.NDArray[np.object_]

#: What a block can be for, in the order of the report. Communication buffers are a kind of temporary memory.
CATEGORIES = ("parameter", "gradient", "optimizer_state", "activation", "input", "communication", "temporary", "unknown")

NO_RULE = "none"


class Rule(NamedTuple):
    """One way to tell an owner: a short code, the category it gives, and what it looks at."""

    code: str
    category: str
    says: str


#: Rules of memory snapshots (``stack_owners``): they know stacks and the order of records, and no thread, layer or step.
STACK_PREFIX = "stack_"

#: Every rule, in the order in which they are tried; the first that fits decides. Those of the recorder overrule all others.
RULES: tuple[Rule, ...] = (
    Rule("recorder_baseline", "", "stood before the recording, and the recorder's baseline names it"),
    Rule("recorder_named", "", "the recorder saw it during or after the capture, and names it"),
    Rule("recorder_denied", "temporary", "kept like a gradient, but not among those that the recorder saw, and freed later"),
    Rule("recorder_unseen", "unknown", "kept like a gradient, but not among those that the recorder saw, and its free was not recorded"),
    Rule("gathered_shards", "parameter", "made under FSDP::all_gather, or in no operator of FSDP::pre_forward or pre_backward: gathered shards"),
    Rule("collective_scratch", "communication", "made inside a c10d:: call, or by a thread that runs collectives alone (gloo's workers)"),
    Rule("forward_to_backward", "activation", "made in forward, freed in backward: saved for it by the layer that made it"),
    Rule("before_model", "input", "made in a step before its first module ran, and alive then: a batch"),
    Rule("collective_output", "communication", "result of a functional collective of a forward, gone before any backward began"),
    Rule("repeated_only", "temporary", "made and freed in a repeated forward"),
    Rule("repeated_to_backward", "activation", "made in a repeated forward, freed in the backward that asked for it"),
    Rule("repeated_kept", "unknown", "made in a repeated forward and kept beyond its backward"),
    Rule("backward_to_optimizer", "gradient", "made in backward, alive when the next optimizer step begins (without one: beyond the step)"),
    Rule("reduce_buffer", "communication", "made to reduce gradients (FSDP::post_backward_reduce, functional collectives), gone before the optimizer"),
    Rule("backward_only", "temporary", "made in backward, gone before the optimizer step"),
    Rule("optimizer_kept", "optimizer_state", "made in an optimizer step and outliving the step"),
    Rule("optimizer_only", "temporary", "made and freed in an optimizer step"),
    Rule("forward_only", "temporary", "made in forward, gone before any backward began or freed in a forward"),
    Rule("within_call", "temporary", "made outside of forward, backward and optimizer, freed inside the call that made it"),
    Rule("helper_thread", "temporary", "made by a thread that runs no phase, freed in the same step"),
    Rule("before_forward", "input", "made between phases, alive when the next forward begins: a batch, or a receive buffer of activations"),
    Rule("before_backward", "temporary", "made between phases before a backward, gone before the optimizer: a receive buffer of gradients"),
    Rule("stack_gathered", "parameter", "its stack stands in FSDP's gathering of shards"),
    Rule("stack_communication", "communication", "its stack stands in torch.distributed, or a process group"),
    Rule("stack_module_state", "parameter", "made by a layer's constructor or by Module.to before any backward: parameters and buffers"),
    Rule("stack_input", "input", "made by Tensor.to in the loop itself, alive when the next forward begins, and freed later: a batch"),
    Rule("stack_forward_to_backward", "activation", "made outside of backward and optimizer, freed by autograd in backward: saved for it"),
    Rule("stack_repeated_only", "temporary", "made and freed in a forward that a backward repeats"),
    Rule("stack_repeated_to_backward", "activation", "made in a forward that a backward repeats, freed by autograd in that backward"),
    Rule("stack_zeroed", "gradient", "freed in zero_grad"),
    Rule("stack_backward_to_optimizer", "gradient", "made in backward, alive when the next optimizer step begins"),
    Rule("stack_backward_kept", "gradient", "made in backward and standing after it, with no optimizer step in the records since"),
    Rule("stack_backward_only", "temporary", "made in backward, gone before it was over"),
    Rule("stack_replaced", "optimizer_state", "stood before the records, freed in an optimizer step that made as many kept blocks of the size"),
    Rule("stack_optimizer_kept", "optimizer_state", "made in an optimizer step and standing after it"),
    Rule("stack_optimizer_only", "temporary", "made in an optimizer step, gone before it was over"),
    Rule("stack_forward_only", "temporary", "made in a module's forward, freed in a forward or before any backward began"),
    Rule("stack_same_site_activation", "activation", "stands when the records end; all others of its stack and size were activations"),
    Rule("stack_same_site_temporary", "temporary", "stands when the records end; all others of its stack and size were temporary"),
    Rule("stack_forward_standing", "unknown", "made in a module's forward and standing when the records end, with no backward since: saved or kept"),
    Rule("before_recording", "unknown", "stood before the recording: how much is known, not what"),
    Rule("inconsistent", "unknown", "what seems alive is more than was allocated: events are missing, and no part is believed"),
    Rule("others", "", "smaller groups of the category, taken together"),
    Rule(NO_RULE, "unknown", "no rule fits"),
)
CATEGORY = {rule.code: rule.category for rule in RULES}

_PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
_NONE, _FORWARD, _BACKWARD, _OPTIMIZER = range(4)
#: Ranges in which sharded parameters are gathered: what is allocated there holds whole parameters.
_GATHER = ("FSDP::all_gather",)
#: Ranges in which, outside every operator, the storage of whole parameters is given its memory.
_WHOLE = ("FSDP::pre_forward", "FSDP::pre_backward")
#: Ranges in which gradients are reduced; after the last layer's backward they stand outside every autograd node.
_REDUCE = ("FSDP::post_backward_reduce", "torch.distributed.ddp.reducer::")
#: Calls of a process group: their callers hand them the results' memory, so what they allocate is scratch.
_INSIDE = ("c10d::",)
#: Collectives that return a new tensor.
_FUNCTIONAL = ("_c10d_functional::",)


def owners(trace: RankTrace, samples: pd.DataFrame, made: Rows, freed: Rows) -> tuple[Objects, Objects]:
    """Category and rule of every block of one device.

    Args:
        trace: the rank's trace, after the passes.
        samples: its memory events of one device, in order of time, RangeIndex.
        made: the event that made each block.
        freed: the event that ended it; the number of events where none did.

    Returns:
        Two object arrays: a word of ``CATEGORIES`` and a code of ``RULES`` per block.
    """
    return _Life(trace, samples, made, freed).owners()


class _Life:
    """Where blocks were made and freed, and what happened in between."""

    def __init__(self, trace: RankTrace, samples: pd.DataFrame, made: Rows, freed: Rows) -> None:
        self.events = trace.events
        self.phase = _phase_codes(self.events["phase"])
        self.repeated = self.events["recompute"].to_numpy(bool)
        self.parent = integers(self.events["parent"])
        # gloo executions inherit a phase from their launch but are no part of the thread's calls
        self.on_cpu = (self.events["device"].isna() & ~self.events["kind"].isin([Kind.COMMUNICATION, Kind.ASYNC_RANGE])).to_numpy()
        self.ends = self.events["ts"].to_numpy() + self.events["dur"].to_numpy()
        ts = samples["ts"].to_numpy(np.int64)
        event = integers(samples["event"])
        later = np.iinfo(np.int64).max
        self.made_at, self.made_in = ts[made], event[made]
        self.never = freed == len(samples)
        self.freed_at = np.where(self.never, later, np.append(ts, later)[freed])
        self.freed_in = np.where(self.never, -1, np.append(event, -1)[freed])
        thread = integers(samples["thread"])
        self.thread = np.append(thread, -1)[freed]
        busy = self.events["thread"].to_numpy()[(self.phase != _NONE) & self.on_cpu]
        self.on_helper = ~np.isin(thread[made], busy) & bool(len(busy))
        self.made_on = thread[made]
        self.starts = {code: self._outermost(code) for code in (_FORWARD, _BACKWARD, _OPTIMIZER)}
        self.step_starts = self._step_starts()

    def owners(self) -> tuple[Objects, Objects]:
        """Category of each block, and the code of the rule in ``RULES`` that decided it."""
        made, freed = self._phase_at(self.made_in), self._phase_at(self.freed_in)
        freed = np.where((freed == _NONE) & self._between_nodes(), _BACKWARD, freed)
        reduced = self._under(_REDUCE)
        made = np.where((made == _NONE) & reduced, _BACKWARD, made)
        again, freed_again = self._at(self.repeated, self.made_in), self._at(self.repeated, self.freed_in)
        optimizer = self._next(_OPTIMIZER)
        backward, forward = self._next(_BACKWARD), self._next(_FORWARD)
        same_step = np.searchsorted(self.step_starts, self.made_at, "right") == np.searchsorted(self.step_starts, self.freed_at, "right")
        same_step &= ~self.never
        # without any optimizer range, a gradient is what outlives the step
        kept = np.where(np.isin(optimizer, self.starts[_OPTIMIZER]), self.freed_at >= optimizer, ~same_step)
        in_call = self.freed_at <= self._call_end()
        between = made == _NONE
        gathered = self._under(_GATHER) | self._at(named(self.events, lambda name: name.startswith(_WHOLE)), self.made_in)
        passed_on = self._under(_FUNCTIONAL)
        decided: dict[str, Mask] = {
            "gathered_shards": gathered,
            "collective_scratch": self._under(_INSIDE) | self._by_communication_thread(),
            "forward_to_backward": (made == _FORWARD) & ~again & (freed == _BACKWARD),
            "before_model": (made == _FORWARD) & ~again & self._before_model(),
            "collective_output": passed_on & same_step & (again | (made == _FORWARD)) & (freed != _BACKWARD) & (self.freed_at <= backward),
            "repeated_only": again & freed_again,
            "repeated_to_backward": again & (freed == _BACKWARD),
            "repeated_kept": again,
            "backward_to_optimizer": (made == _BACKWARD) & kept,
            "reduce_buffer": (made == _BACKWARD) & (reduced | passed_on),
            "backward_only": made == _BACKWARD,
            "optimizer_kept": (made == _OPTIMIZER) & ~same_step,
            "optimizer_only": made == _OPTIMIZER,
            "forward_only": (made == _FORWARD) & same_step & ((self.freed_at <= backward) | (freed == _FORWARD)),
            "within_call": between & in_call,
            "helper_thread": between & self.on_helper & same_step,
            "before_forward": between & (forward < backward) & (forward < optimizer) & (self.freed_at > forward),
            "before_backward": between & (backward < forward) & (backward < optimizer) & (self.freed_at <= optimizer) & ~self.never,
        }
        rule = np.select(list(decided.values()), list(decided), NO_RULE).astype(object)
        return np.array([CATEGORY[r] for r in rule], object), rule

    def _phase_at(self, rows: Rows) -> Rows:
        return np.where(rows >= 0, self.phase[rows] if len(self.phase) else _NONE, _NONE)

    def _at(self, flags: Mask, rows: Rows) -> Mask:
        return (rows >= 0) & (flags[rows] if len(flags) else False)

    def _between_nodes(self) -> Mask:
        """Whether each block was freed between two backward calls of one thread: autograd drops it after the node."""
        rows = np.flatnonzero((self.phase != _NONE) & self.on_cpu)
        parent = self.parent[rows]
        rows = rows[(parent < 0) | (self.phase[parent] == _NONE)]
        ts, thread, out = self.events["ts"].to_numpy()[rows], self.events["thread"].to_numpy()[rows], np.zeros(len(self.thread), bool)
        for one in np.unique(self.thread[self.thread >= 0]):
            mine, calls = np.flatnonzero(self.thread == one), np.flatnonzero(thread == one)
            codes = np.concatenate(([_NONE], self.phase[rows[calls]], [_NONE]))
            at = np.searchsorted(ts[calls], self.freed_at[mine], "right")
            out[mine] = (codes[at] == _BACKWARD) & (codes[at + 1] == _BACKWARD)
        return out

    def _outermost(self, code: int) -> Rows:
        """Starts of the events of a phase that lie in no other event of it, sorted."""
        rows = np.flatnonzero((self.phase == code) & self.on_cpu)
        parent = self.parent[rows]
        outer = (parent < 0) | (self.phase[parent] != code)
        return np.sort(self.events["ts"].to_numpy()[rows[outer]])

    def _next(self, code: int) -> Rows:
        """When a phase next begins after each block was made; the end of time where it does not."""
        starts = np.append(self.starts[code], np.iinfo(np.int64).max)
        return starts[np.searchsorted(starts[:-1], self.made_at, "left")]

    def _before_model(self) -> Mask:
        """Whether each block was made in a step before its first module ran, and was alive then."""
        kind, device = self.events["kind"], self.events["device"].isna()
        ranges = (kind.eq(Kind.RANGE) & device).to_numpy() & named(self.events, _is_module)
        frames = kind.eq(Kind.PYTHON).to_numpy() & named(self.events, lambda name: name.startswith("nn.Module: "))
        starts = np.sort(self.events["ts"].to_numpy()[ranges | frames])
        first = np.append(starts, np.iinfo(np.int64).max)[np.searchsorted(starts, self.step_starts, "left")]
        step = np.searchsorted(self.step_starts, self.made_at, "right") - 1
        at = first[np.maximum(step, 0)] if len(first) else np.zeros(len(step), np.int64)
        until = np.append(self.step_starts, np.iinfo(np.int64).max)[step + 1]
        return (step >= 0) & (self.made_at < at) & (at < until) & (self.freed_at > at)

    def _step_starts(self) -> Rows:
        rows = named(self.events, _is_step) & self.events["device"].isna().to_numpy()
        return np.sort(self.events["ts"].to_numpy()[rows])

    def _call_end(self) -> Rows:
        """End of the innermost call in which each block was made; before it was made where only a step holds it."""
        rows = self.made_in
        return np.where(self._at(~named(self.events, _is_step), rows), self.ends[rows] if len(self.ends) else 0, self.made_at - 1)

    def _by_communication_thread(self) -> Mask:
        """Whether each block was made in no call of a thread that runs collectives (a worker of gloo) and nothing else."""
        runs = self.events["kind"].eq(Kind.COMMUNICATION).to_numpy(bool) & self.events["device"].isna().to_numpy()
        return self.on_helper & np.isin(self.made_on, np.unique(self.events["thread"].to_numpy()[runs]))

    def _under(self, prefixes: tuple[str, ...]) -> Mask:
        """Whether each block was made inside a range whose name begins with one of the prefixes."""
        wanted = named(self.events, lambda name: name.startswith(prefixes))
        found, at = np.zeros(len(self.made_in), bool), self.made_in.copy()
        while (at >= 0).any():
            found |= self._at(wanted, at)
            at = np.where(at >= 0, self.parent[at], -1)
        return found


def _is_step(name: str) -> bool:
    return bool(STEP.match(name))


def _is_module(name: str) -> bool:
    """Whether a range is a module's forward or a pipeline action."""
    span = parse_module_span(name)
    return (span is not None and span.direction == Direction.FORWARD) or bool(parse_actions(name)) or bool(GPIPE_RANGE.match(name))


def _phase_codes(phase: pd.Series) -> Rows:
    """0 none, 1 forward, 2 backward, 3 optimizer, per event."""
    of = {str(p): i + 1 for i, p in enumerate(_PHASES)}
    table = np.array([of.get(str(c), _NONE) for c in phase.cat.categories] + [_NONE], np.int64)
    return table[phase.cat.codes.to_numpy()]
