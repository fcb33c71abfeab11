"""How much memory was allocated, when was it most, and what was alive then?

Definitions: the *level* after a memory event is the allocator's Total Allocated. The *peak* of a step is the highest level
after an event inside the step's ProfilerStep range (CPU time of the event), or the level with which the step began;
its time is the first at which it was reached. What was alive then is divided over categories (``blocks.blocks``) that
sum to the peak exactly; what no rule and no baseline explains is ``unknown``.

What stood before the recording: on a GPU, Total Allocated is absolute, so its amount is known, its kind only from the
recorder's baseline. On a CPU, Total Allocated counts from the profiler's start: the baseline's bytes are added; without a
baseline the level is relative to the start (``baseline_source`` none). CPU frees of blocks older than the recording are not
recorded by torch: such a block is taken as gone once its address is used again, and an old gradient once ``zero_grad`` ran
and backward allocated gradients anew. Blocks of the recording that were freed unseen are ended by the pass
``unseen_frees``. Every device stands for itself, host memory beside the GPUs'; nothing is summed over devices. A memory
snapshot gives absolute levels, and owners as far as its records have stacks (``stack_owners``); else all it holds is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tracekit import held as holding
from tracekit import schema, stack_owners
from tracekit.blocks import blocks, lives
from tracekit.columns import Objects, Rows, choose, integers, take
from tracekit.owners import CATEGORIES
from tracekit.snapshot_blocks import stood_before, told_by_stacks, untold
from tracekit.trace import RankTrace
from tracekit.windows import step_windows

#: What this fact gives.
TABLES = ("memory_peaks", "memory_layers", "memory_curve", "memory_owners", "memory_microbatches", "memory_in_flight", "memory_accounts")

_CURVE_POINTS = 2000
_NO_BYTES = np.iinfo(np.int64).min
#: Categories whose amount is only known when what stood before the recording is.
_NEED_BASELINE = ("parameter", "optimizer_state")
#: Categories that only forward, backward and optimizer, as parts of the trace, can tell.
_NEED_PHASES = ("gradient", "optimizer_state", "activation", "input")


@dataclass(frozen=True)
class _Place:
    """One device, and what tells of its memory.

    Attributes:
        device: its index (0 of the CPU).
        gpu: whether it is a GPU.
        own: whether the rank's work ran on this kind of device: blocks of a baseline that name none are its.
        whole: its events give addresses and totals; in old traces they give sizes alone.
        snapshot: the row of ``memory_snapshots`` where its events come from a snapshot, or None.
        stacks: where the snapshot's records stand in training, or None.
    """

    device: int
    gpu: bool
    own: bool
    whole: bool
    snapshot: pd.Series | None
    stacks: stack_owners.Places | None = None

    @property
    def timed(self) -> bool:
        """Whether its events have times."""
        return self.snapshot is None or bool(self.snapshot["timed"])

    def holds(self, block: Mapping[str, Any]) -> bool:
        """Whether a block of the recorder's baseline is of this device."""
        kind = block.get("device_type")
        return (self.own if kind is None else (kind != 0) == self.gpu) and (not self.gpu or block.get("device") in (None, self.device))

    def source(self, trace: RankTrace) -> str:
        """What tells of the level before the recording."""
        if self.snapshot is not None:
            return "none" if pd.isna(self.snapshot["allocated_before_bytes"]) else "snapshot"
        if not self.whole:
            return "none"
        told = trace.meta.memory_baseline
        if told is not None and (self.own or any(self.holds(b) for b in told)):
            return "recorder"
        return "totals" if self.gpu else "none"


def memory(trace: RankTrace) -> dict[str, pd.DataFrame]:
    """The tables ``memory_*`` of one rank (``TABLES``, see ``schema``); empty without memory events."""
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in TABLES}
    for samples, place in _places(trace):
        for name, part in _device(trace, samples, place).items():
            parts[name].append(part)
    return {name: pd.concat(found, ignore_index=True) if found else schema.empty(schema.FACTS[name]) for name, found in parts.items()}


def lifetimes(trace: RankTrace) -> pd.DataFrame:
    """Every block of memory of one rank, in the order of its allocation.

    Returns:
        device, device_type, addr, nbytes, made_ts_ns (null: before the recording), freed_ts_ns (null: never), category and rule
        (``owners.RULES``), and what made and freed it: ``made_by``, ``made_layer``, ``made_direction``, ``made_stage``,
        ``made_microbatch``, ``made_step``, the same with ``freed_``. Times are the rank's own.
    """
    parts = []
    for samples, place in _places(trace):
        alive = _named(trace, samples, place)
        old = _baseline(trace, samples, alive, place)
        alive = pd.concat([_like(old, alive), alive], ignore_index=True) if len(old) else alive
        ts = samples["ts"].to_numpy(np.int64)
        made, freed = alive["made"].to_numpy(np.int64), alive["freed"].to_numpy(np.int64)
        times = {
            "made_ts_ns": pd.arrays.IntegerArray(ts[np.maximum(made, 0)], (made < 0) | (not place.timed)),
            "freed_ts_ns": pd.arrays.IntegerArray(np.append(ts, 0)[freed], (freed >= len(ts)) | (not place.timed)),
        }
        callers = [c for c in alive.columns if c.startswith(("made_", "freed_"))]
        shown = alive[["addr", "nbytes", "category", "rule", *callers]].assign(device=place.device, device_type="gpu" if place.gpu else "cpu", **times)
        parts.append(shown[["device", "device_type", "addr", "nbytes", "made_ts_ns", "freed_ts_ns", "category", "rule", *callers]])
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _places(trace: RankTrace) -> Iterator[tuple[pd.DataFrame, _Place]]:
    """The memory events of each device in order of time, and what tells of it."""
    samples = trace.samples
    is_gpu = samples["device_type"].ne(0).fillna(True).to_numpy(bool)
    for gpu in (False, True):
        here = samples[is_gpu == gpu]
        for device, own in here.groupby(here["device"].fillna(0)):
            own = own.sort_values("ts", kind="stable").reset_index(drop=True)
            whole, snapshot = bool(own[["addr", "allocated"]].notna().all(axis=None)), _snapshot(trace, own, int(device)) if gpu else None
            table = trace.stated.get("memory_stacks")
            stacks = None if snapshot is None or table is None or not whole else stack_owners.places(own, table)
            yield own, _Place(int(device), gpu, (trace.meta.device_type == "gpu") == gpu, whole, snapshot, stacks)


def _snapshot(trace: RankTrace, samples: pd.DataFrame, device: int) -> pd.Series | None:
    """The snapshot that a device's memory events come from: they name no thread."""
    table = trace.stated.get("memory_snapshots", schema.empty(schema.MEMORY_SNAPSHOTS))
    rows = table[table["device"].eq(device)]
    return rows.iloc[0] if len(rows) and samples["thread"].isna().all() else None


def _device(trace: RankTrace, samples: pd.DataFrame, place: _Place) -> dict[str, pd.DataFrame]:
    source = place.source(trace)
    alive = _named(trace, samples, place)
    old = _baseline(trace, samples, alive, place)
    level = _levels(samples, old, source, place)
    account = holding.account(samples, alive, old, level, source=source, whole=place.whole)
    alive = pd.concat([_like(old, alive), alive], ignore_index=True) if len(old) else alive
    steps = step_windows(trace)[["step", "start_ns", "end_ns"]]
    ts = samples["ts"].to_numpy(np.int64)
    reserved = samples["reserved"].astype("Int64").where(samples["device_type"].ne(0))
    backed = reserved.to_numpy(np.int64, na_value=_NO_BYTES)
    before = int(level[0] - samples["nbytes"].iloc[0])
    peaks, owners, told, marked = [], [], [], [0, len(samples) - 1]
    unknown = _untold(trace, source, place)
    activations, stood = holding.activation_levels(alive, len(samples)), holding.Blocks.of(alive)
    where = {"device": place.device, "device_type": "gpu" if place.gpu else "cpu"}
    for step, start, end in [(None, int(ts[0]), int(ts[-1]) + 1), *_covered(steps, ts, place).itertuples(index=False)]:
        first, last = (int(i) for i in np.searchsorted(ts, [start, end], "left"))
        at, when, peak = _peak(level, ts, first, last, before, start)
        marked.append(max(at, 0))
        held = stood.alive(at)
        inside = int(backed[max(first - 1, 0) : last].max(initial=_NO_BYTES))
        carried = int(level[first - 1]) if first else before
        lowest = min(carried, int(level[first:last].min())) if last > first else carried
        divided = _categories(stood.by_category(held), peak, source, unknown if place.stacks is None else untold(alive.iloc[held], peak))
        peaks.append(
            {
                **where,
                "step": step,
                "allocated_before_bytes": None if source == "none" else carried,
                "allocated_lowest_bytes": None if source == "none" else lowest,
                "allocated_peak_bytes": peak,
                "allocated_peak_ts_ns": when if place.timed else None,
                "reserved_peak_bytes": None if inside == _NO_BYTES else inside,
                "reserved_at_peak_bytes": None if at < 0 or backed[at] == _NO_BYTES else int(backed[at]),
                **divided,
                "activation_peak_bytes": None if divided["activation_bytes"] is None else int(activations[first : last + 1].max()),
            }
        )
        owners.append((at, peak, _step_of(steps, when) if step is None else step))
        # what is not believed of the peak is not told of its layers either
        told.append(at if divided["activation_bytes"] is not None else None)
    numbers = pd.array([p["step"] for p in peaks], "Int64")
    of_peaks = {
        "memory_owners": (holding.groups(stood, owners), schema.MEMORY_OWNERS),
        "memory_layers": (holding.by_layer(stood, told), schema.MEMORY_LAYERS),
        "memory_microbatches": (holding.by_microbatch(stood, told), schema.MEMORY_MICROBATCHES),
    }
    flight = holding.in_flight(alive, ts)
    flight = flight[~flight["step"].isin([p["step"] for p in peaks if p["activation_bytes"] is None])]
    curve = _curve(_phases(trace, samples, place), samples, level, reserved, steps if place.timed else steps.iloc[:0], marked)
    curve = curve.assign(**where) if place.timed else curve.assign(**where, ts_ns=pd.array([None] * len(curve), "Int64"))
    return {
        "memory_peaks": schema.conform(pd.DataFrame(peaks), schema.MEMORY_PEAKS),
        "memory_curve": schema.conform(curve, schema.MEMORY_CURVE),
        **{name: schema.conform(rows.assign(**where, step=numbers[rows["moment"].to_numpy(np.int64)]), table) for name, (rows, table) in of_peaks.items()},
        "memory_in_flight": schema.conform(flight.assign(**where), schema.MEMORY_IN_FLIGHT),
        "memory_accounts": schema.conform(pd.DataFrame([account | where]), schema.MEMORY_ACCOUNTS),
    }


def _named(trace: RankTrace, samples: pd.DataFrame, place: _Place) -> pd.DataFrame:
    """The blocks of the recording with their owners; a snapshot's by their stacks, where it has any."""
    if place.snapshot is None and place.whole:
        return _named_by_recorder(blocks(trace, samples), trace, samples, place)
    if place.stacks is not None:
        return told_by_stacks(trace, samples, place.stacks, timed=place.timed)
    return holding.unowned(lives(samples if place.whole else samples.iloc[:0]))


def _like(old: pd.DataFrame, alive: pd.DataFrame) -> pd.DataFrame:
    """Blocks of the baseline as rows beside those of the recording."""
    named = old["category"].ne("unknown")
    rule = old["rule"] if "rule" in old else np.where(named, "recorder_baseline", "before_recording").astype(object)
    source = choose(old["layer"].notna().to_numpy(bool), "recorder", None)
    some = old[["made", "freed", "addr", "nbytes", "category", "layer"]].assign(rule=rule, made_layer=old["layer"], made_layer_source=source)
    return pd.DataFrame({c: some[c].astype(alive[c].dtype) if c in some else pd.Series(None, index=some.index, dtype=alive[c].dtype) for c in alive})


def _step_of(steps: pd.DataFrame, when: int) -> int | None:
    """The step within which a time lies, or None."""
    inside = steps[steps["start_ns"].le(when) & steps["end_ns"].gt(when)]
    return int(inside["step"].iloc[0]) if len(inside) else None


def _untold(trace: RankTrace, source: str, place: _Place) -> frozenset[str]:
    """Categories of which nothing can be told."""
    if place.stacks is not None:
        return frozenset()
    if place.snapshot is not None or not place.whole:
        return frozenset(CATEGORIES)
    without = frozenset(_NEED_BASELINE) if source != "recorder" else frozenset()
    return without if source == "recorder" or trace.events["phase"].notna().any() else without | frozenset(_NEED_PHASES)


def _covered(steps: pd.DataFrame, ts: Rows, place: _Place) -> pd.DataFrame:
    """The steps that the events tell of: of a snapshot only those that lie wholly within its records."""
    if place.snapshot is None:
        return steps
    inside = steps["start_ns"].ge(ts[0]) & steps["end_ns"].le(ts[-1] + 1)
    return steps[inside] if place.timed else steps.iloc[:0]


def _peak(level: Rows, ts: Rows, first: int, last: int, before: int, start: int) -> tuple[int, int, int]:
    """(event after which it stood, time, bytes) of the highest level in events first..last, the level at the start included."""
    carried = int(level[first - 1]) if first else before
    if last > first:
        at = first + int(np.argmax(level[first:last]))
        if level[at] >= carried:
            return at, int(ts[at]), int(level[at])
    return first - 1, start, carried


def _named_by_recorder(alive: pd.DataFrame, trace: RankTrace, samples: pd.DataFrame, place: _Place) -> pd.DataFrame:
    """Let the recorder name the blocks that it saw during the capture (at ``time_ns``) or at its end.

    Where it looked at all gradients (``seen``) while a block lived and the block was none of them, the block is no gradient:
    temporary where it was freed, else unknown, for a CPU block may have been freed unseen.
    """
    end = np.iinfo(np.int64).max
    told = [b for b in trace.meta.memory_baseline or () if b.get("when", "blocks") != "blocks" and place.holds(b)]
    saw = [b for b in told if b.get("category") in CATEGORIES[:-1]]
    if not saw:
        return alive
    ts = np.append(samples["ts"].to_numpy(np.int64), end)
    seen = pd.DataFrame(
        {
            "addr": np.array([int(b["addr"]) for b in saw], np.uint64),
            "at": np.array([int(end - 1 if b.get("time_ns") is None else b["time_ns"]) for b in saw], np.int64),
            "named": [b["category"] for b in saw],
        }
    )
    both = alive.reset_index(names="row").merge(seen, on="addr")
    both = both[(ts[both["made"]] <= both["at"].to_numpy()) & (ts[both["freed"]] > both["at"].to_numpy())].drop_duplicates("row")
    category, rule = alive["category"].copy(), alive["rule"].copy()
    category.loc[both["row"]] = both["named"].to_numpy()
    rule.loc[both["row"]] = "recorder_named"
    looks = np.append(np.unique([int(b["time_ns"]) for b in saw if b["when"] == "seen" and b.get("time_ns") is not None]), end)
    looked = looks[np.searchsorted(looks[:-1], ts[alive["made"]], "left")] < ts[alive["freed"]]
    denied = category.eq("gradient").to_numpy() & looked & ~alive.index.isin(both["row"])
    gone = alive["freed"].lt(len(samples))
    category = category.mask(denied, np.where(gone, "temporary", "unknown"))
    return alive.assign(category=category, rule=rule.mask(denied, np.where(gone, "recorder_denied", "recorder_unseen")))


def _baseline(trace: RankTrace, samples: pd.DataFrame, alive: pd.DataFrame, place: _Place) -> pd.DataFrame:
    """Blocks of the recorder's baseline on this device, with made = -1 and the event that ended them (``seen``: recorded)."""
    if place.stacks is not None:
        return stood_before(trace, samples, alive, place.stacks, place.device)
    told = () if place.snapshot is not None or not place.whole else trace.meta.memory_baseline or ()
    rows = [b for b in told if b.get("when", "blocks") == "blocks" and place.holds(b)]
    old = pd.DataFrame(
        {
            "addr": np.array([int(b["addr"]) for b in rows], np.uint64),
            "nbytes": np.array([int(b["bytes"]) for b in rows], np.int64),
            "category": [b.get("category") if b.get("category") in CATEGORIES else "unknown" for b in rows],
            "layer": [b.get("layer") for b in rows],
        }
    )
    n = len(samples)
    freed, seen = np.full(len(old), n, np.int64), np.zeros(len(old), bool)
    if not len(old) or not n:
        return old.assign(made=-1, freed=freed, seen=seen)
    event_addr, size = samples["addr"].to_numpy(np.uint64), samples["nbytes"].to_numpy(np.int64)
    # the first event at the address, or the first allocation that overlaps the block, ends it
    order = np.argsort(old["addr"].to_numpy(), kind="stable")
    start = old["addr"].to_numpy()[order]
    stop = start + old["nbytes"].to_numpy(np.uint64)[order]
    which = np.searchsorted(start, event_addr, "right") - 1
    inside = (which >= 0) & ((event_addr < stop[np.maximum(which, 0)]) | (event_addr == start[np.maximum(which, 0)]))
    reach = event_addr + np.abs(size).astype(np.uint64)
    after = which + 1 < len(start)
    over_next = (size > 0) & after & (reach > start[np.minimum(which + 1, len(start) - 1)])
    for hit, target in ((inside, which), (over_next, which + 1)):
        events_ = np.flatnonzero(hit)
        np.minimum.at(freed, order[target[events_]], events_)
    ended = freed < n
    seen[ended] = size[freed[ended]] < 0
    old = old.assign(made=-1, freed=freed, seen=seen)
    return old if place.gpu else _zeroed(trace, samples, alive, old)


def _zeroed(trace: RankTrace, samples: pd.DataFrame, alive: pd.DataFrame, old: pd.DataFrame) -> pd.DataFrame:
    """On a CPU, end old gradients at the first zero_grad after which gradients were allocated anew in the same step."""
    events = trace.events
    zero = events[events["name"].isin([c for c in events["name"].cat.categories if str(c).startswith("Optimizer.zero_grad")])]
    anew = samples["ts"].to_numpy(np.int64)[alive.loc[alive["category"].eq("gradient"), "made"].to_numpy(np.int64)]
    if not len(zero) or not len(anew):
        return old
    ends = np.sort((zero["ts"] + zero["dur"]).to_numpy(np.int64))
    ends = ends[ends <= anew.max()]
    if not len(ends):
        return old
    at = int(np.searchsorted(samples["ts"].to_numpy(np.int64), ends[0], "left"))
    gone = old["category"].eq("gradient") & ~old["seen"] & old["freed"].gt(at)
    return old.assign(freed=old["freed"].mask(gone, at))


def _levels(samples: pd.DataFrame, old: pd.DataFrame, source: str, place: _Place) -> Rows:
    """Bytes allocated after each memory event; without totals from the least that can have stood before."""
    nbytes = samples["nbytes"].to_numpy(np.int64)
    if not place.whole:
        summed: Rows = np.cumsum(nbytes)
        return summed - min(int(summed.min()), 0)
    allocated: Rows = samples["allocated"].to_numpy(np.int64)
    if place.gpu or source != "recorder":
        return allocated
    unseen = np.zeros(len(samples) + 1, np.int64)
    lost = old[~old["seen"]]
    np.add.at(unseen, lost["freed"].to_numpy(np.int64), lost["nbytes"].to_numpy(np.int64))
    unseen[-1] = 0
    level: Rows = allocated - (allocated[0] - nbytes[0]) + int(old["nbytes"].sum()) - np.cumsum(unseen)[:-1]
    return level


def _categories(sums: Mapping[str, int], peak: int, source: str, unknown: frozenset[str]) -> dict[str, Any]:
    """Bytes of each category, null of those that cannot be told; unknown is what the others leave of the peak."""
    known: dict[str, int | None] = {c: None if c in unknown else sums.get(c, 0) for c in CATEGORIES[:-1]}
    rest = peak - sum(v or 0 for v in known.values())
    if rest < 0:  # events are missing: what seems alive is more than there was, so no part can be trusted
        known, rest = dict.fromkeys(CATEGORIES[:-1]), peak
    if known["temporary"] is not None and known["communication"] is not None:
        known["temporary"] += known["communication"]
    return {**{f"{c}_bytes": v for c, v in known.items()}, "unknown_bytes": rest, "baseline_source": source}


def _phases(trace: RankTrace, samples: pd.DataFrame, place: _Place) -> Objects:
    """forward, backward or optimizer of each memory event, or None."""
    return place.stacks.phase() if place.stacks is not None else take(trace.events["phase"].astype(object).to_numpy(), integers(samples["event"]))


def _curve(phases: Objects, samples: pd.DataFrame, level: Rows, reserved: pd.Series, steps: pd.DataFrame, marked: list[int]) -> pd.DataFrame:
    """The level over time, thinned to the extremes of equal runs of events, with the marked events kept."""
    n = len(samples)
    keep = np.arange(n)
    room = (_CURVE_POINTS - len(marked)) // 2
    if n > _CURVE_POINTS and room > 0:
        bucket = np.arange(n) * room // n
        by_level = np.lexsort((level, bucket))
        first = np.flatnonzero(np.diff(bucket[by_level], prepend=-1))
        last = np.append(first[1:], n) - 1
        keep = np.unique(np.concatenate((by_level[first], by_level[last], np.array(marked, np.int64))))
    ts = samples["ts"].to_numpy(np.int64)[keep]
    row = np.searchsorted(steps["start_ns"].to_numpy(), ts, "right") - 1
    inside = (row >= 0) & (ts < steps["end_ns"].to_numpy()[np.maximum(row, 0)]) if len(steps) else np.zeros(len(ts), bool)
    number = np.where(inside, steps["step"].to_numpy()[np.maximum(row, 0)], 0) if len(steps) else np.zeros(len(ts), np.int64)
    phase = phases[keep]
    return pd.DataFrame(
        {
            "step": pd.arrays.IntegerArray(number.astype(np.int64), ~inside),
            "ts_ns": ts,
            "record": keep,
            "allocated_bytes": level[keep],
            "reserved_bytes": reserved.iloc[keep].to_numpy(),
            "phase": pd.Series(phase, dtype=object).where(pd.notna(phase), None),
        }
    )
