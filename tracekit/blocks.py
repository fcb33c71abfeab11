"""Which blocks of memory lived from when to when, and what was each for?

A block is one allocation: made by a positive memory event, ended by its free at the same address. What it was for
is told by where it was made, where it was freed and what came between; a block whose life fits no rule is
``unknown``, never forced into a category.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.columns import choose, integers, named
from tracekit.trace import RankTrace
from tracekit.vocabulary import GPIPE_RANGE, STEP, Direction, Kind, Phase, parse_actions, parse_module_span

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: What a block can be for, in the order of the report.
CATEGORIES = ("parameter", "gradient", "optimizer_state", "activation", "input", "temporary", "unknown")

_PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
_NONE, _FORWARD, _BACKWARD, _OPTIMIZER = range(4)
#: Ranges in which sharded parameters are gathered: what is allocated there holds whole parameters.
_GATHER = ("FSDP::all_gather",)
#: Ranges in which, outside every operator, the storage of whole parameters is given its memory.
_WHOLE = ("FSDP::pre_forward", "FSDP::pre_backward")


def pair(addr: npt.ArrayLike, nbytes: npt.ArrayLike) -> tuple[Rows, Rows, Rows]:
    """Pair allocations with frees by address, for the memory events of one device in order of time.

    At each address the first allocation goes with the first free after it began, the second with the second: an address that
    one thread frees and another takes at once may be written down in the other order. So what is alive always sums to what was
    allocated less what was freed. A free without an allocation before it ends a block that stood before the recording.

    Args:
        addr: address per event.
        nbytes: bytes per event, negative for frees; events of 0 bytes are passed over.

    Returns:
        Three arrays: the event that made each block, the event that ended it (the number of events: none did), and the
        frees of blocks from before the recording.

    >>> pair([16, 32, 16, 64], [8, 4, -8, -2])
    (array([0, 1]), array([2, 4]), array([3]))
    """
    a, b = np.asarray(addr, np.uint64), np.asarray(nbytes, np.int64)
    n = len(a)
    rows = np.flatnonzero(b != 0)
    frame = pd.DataFrame({"row": rows, "addr": a[rows], "made": b[rows] > 0})
    depth = frame["made"].map({True: 1, False: -1}).astype("int64").groupby(frame["addr"]).cumsum()
    lowest = depth.clip(upper=0).groupby(frame["addr"]).cummin()
    before = lowest < lowest.groupby(frame["addr"]).shift(fill_value=0)
    made, freed = frame[frame["made"]], frame[~frame["made"] & ~before]
    ends = made.assign(nth=made.groupby("addr").cumcount()).merge(freed.assign(nth=freed.groupby("addr").cumcount()), on=["addr", "nth"], how="left")
    return made["row"].to_numpy(np.int64), ends["row_y"].fillna(n).to_numpy(np.int64), frame.loc[before, "row"].to_numpy(np.int64)


def lives(samples: pd.DataFrame) -> pd.DataFrame:
    """Every block of one device: made and freed (positions in ``samples``; freed = their number where it never was), addr, nbytes."""
    made, freed, _ = pair(samples["addr"], samples["nbytes"])
    addr, nbytes = samples["addr"].to_numpy(np.uint64), samples["nbytes"].to_numpy(np.int64)
    return pd.DataFrame({"made": made, "freed": freed, "addr": addr[made], "nbytes": nbytes[made]})


def blocks(trace: RankTrace, samples: pd.DataFrame) -> pd.DataFrame:
    """Every block of one device with its owner.

    Rules, in this order (made -> freed):

    - under ``FSDP::all_gather``, or in no operator of ``FSDP::pre_forward``: parameter (gathered copies)
    - before the step's first module ran, outside every module, and alive when it ran: input (a batch), unless backward frees it
    - forward -> backward: activation of the layer that made it
    - repeated forward -> backward proper: activation; -> repeated forward: temporary
    - backward -> alive when the next optimizer step begins: gradient; earlier: temporary
    - optimizer -> never, or in a later step: optimizer_state; earlier: temporary
    - forward -> freed before any backward began, in the same step: temporary
    - between phases: alive when the next forward begins and that comes before a backward: input (a batch, a receive
      buffer of activations); before a backward and freed until the optimizer begins: temporary (a receive buffer of
      gradients); freed inside the call that made it: temporary; made on a thread that runs no phase and freed in the
      same step (the scratch memory of gloo's workers): temporary
    - anything else: unknown

    Args:
        trace: the rank's trace, after the passes.
        samples: its memory events of one device, in order of time, RangeIndex.

    Returns:
        As :func:`lives`, with category and layer (of activations: module path, or null).
    """
    out = lives(samples)
    life = _Life(trace, samples, out["made"].to_numpy(np.int64), out["freed"].to_numpy(np.int64))
    category = life.category()
    layer = pd.Series(trace.events["layer"].astype(object).to_numpy(), dtype=object).reindex(life.made_in).to_numpy()
    return out.assign(category=category, layer=choose((category == "activation") & (life.made_in >= 0), layer, None))


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
        self.starts = {code: self._outermost(code) for code in (_FORWARD, _BACKWARD, _OPTIMIZER)}
        self.step_starts = self._step_starts()

    def category(self) -> npt.NDArray[np.object_]:
        """Category of each block by the rules of :func:`blocks`."""
        made, freed = self._phase_at(self.made_in), self._phase_at(self.freed_in)
        freed = np.where((freed == _NONE) & self._between_nodes(), _BACKWARD, freed)
        again, freed_again = self._at(self.repeated, self.made_in), self._at(self.repeated, self.freed_in)
        optimizer = self._next(_OPTIMIZER)
        backward, forward = self._next(_BACKWARD), self._next(_FORWARD)
        same_step = np.searchsorted(self.step_starts, self.made_at, "right") == np.searchsorted(self.step_starts, self.freed_at, "right")
        same_step &= ~self.never
        # without any optimizer range, a gradient is what outlives the step
        kept = np.where(np.isin(optimizer, self.starts[_OPTIMIZER]), self.freed_at >= optimizer, ~same_step)
        in_call = self.freed_at <= self._call_end()
        between = made == _NONE
        rules = [
            (self._under(_GATHER) | self._at(named(self.events, lambda name: name.startswith(_WHOLE)), self.made_in), "parameter"),
            ((made == _FORWARD) & ~again & (freed == _BACKWARD), "activation"),
            ((made == _FORWARD) & ~again & self._before_model(), "input"),
            (again & freed_again, "temporary"),
            (again & (freed == _BACKWARD), "activation"),
            (again, "unknown"),
            ((made == _BACKWARD) & kept, "gradient"),
            ((made == _BACKWARD), "temporary"),
            ((made == _OPTIMIZER) & ~same_step, "optimizer_state"),
            ((made == _OPTIMIZER), "temporary"),
            ((made == _FORWARD) & same_step & (self.freed_at <= backward), "temporary"),
            ((made == _FORWARD) & same_step & (freed == _FORWARD), "temporary"),
            (between & (in_call | (self.on_helper & same_step)), "temporary"),
            (between & (forward < backward) & (forward < optimizer) & (self.freed_at > forward), "input"),
            (between & (backward < forward) & (backward < optimizer) & (self.freed_at <= optimizer) & ~self.never, "temporary"),
        ]
        return np.select([mask for mask, _ in rules], [name for _, name in rules], "unknown").astype(object)

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
