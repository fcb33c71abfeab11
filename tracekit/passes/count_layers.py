"""Which layer does work belong to where nothing names one? Counted off the repetition of the work itself; marked ``inferred``.

The layers of a model run the same matrix products, attention, norms and collectives in the same order. So the forward of one microbatch
shows one unit that repeats: its k-th copy is layer k. What stands before the first copy is the embedding where it looks one up, what stands
after the last is the head where it multiplies. A backward that no Sequence number leads to its forward (a compiled one, a CUDA graph)
repeats a unit as often, last layer first. Only where the forwards of a stage tell of the same number of layers is anything said, and a unit
must hold an attention: without one, half a layer may well look like a whole one.

The numbers count this rank's own layers, in the order of its stages: what they are in the whole model only the job knows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.columns import Mask, Objects, Rows, choose, integers, nullable
from tracekit.passes.layers import follow_sequence
from tracekit.passes.link import on_cpu_thread
from tracekit.repeats import Repeat, repeat
from tracekit.trace import RankTrace
from tracekit.vocabulary import Kind, Phase
from tracekit.work_order import BACKWARD, FORWARD, UNKNOWN, WorkOrder, work_order

Ints = npt.NDArray[np.int64]
#: So many of a stage's forwards must tell of the same number of layers; so much of the backward must be led to its forward to need no counting.
_AGREE = 0.9


class _Segment(NamedTuple):
    """A part of a layer in one pass of the model, by places in the work order.

    Attributes:
        first, end: places of its pieces, half-open.
        layer: number of the layer within its stage; -1 for embedding and head.
        part: attention, mlp, embedding, head, or None for a whole layer.
        backward: it is of backward.
    """

    first: int
    end: int
    layer: int
    part: str | None
    backward: bool


def count_layers(trace: RankTrace) -> RankTrace:
    """Fill ``layer``, ``layer_source`` and, without a pipeline, ``microbatch``; the trace itself where layers are named or nothing repeats."""
    if not trace.events["kind"].isin([Kind.COMPUTE, Kind.OPERATOR]).any():
        return trace
    order = work_order(trace)
    if _named(trace, order):
        return trace
    forward = _of_phase(order, FORWARD, {})
    both = forward or _of_unknown(order)
    if not both:
        return trace
    per_stage: dict[int, int] = {}
    for one in both:
        stage = int(order.stage[order.block[one.first]])
        per_stage[stage] = max(per_stage.get(stage, 0), one.layer + 1)
    numbered = bool(trace.events["microbatch"].isna().all())
    trace = _labelled(trace, order, both, per_stage, numbered)
    if forward:
        trace = follow_sequence(trace, with_microbatch=numbered)
        if not _led(trace, order):
            trace = _labelled(trace, order, _of_phase(order, BACKWARD, per_stage), per_stage, numbered)
    trace = _handed_down(trace, order, numbered)
    says = (
        f"nothing names the layers: {sum(per_stage.values())} of them were counted off work that repeats itself; their numbers and what belongs to them "
        "are inferred"
    )
    return trace.with_finding("layers_inferred", "info", says, count=sum(per_stage.values()))


def _handed_down(trace: RankTrace, order: WorkOrder, numbered: bool) -> RankTrace:
    """The trace with the layer of each call on the work that it launched, where that has none of its own."""
    events = trace.events
    rows, call = (column[events["layer"].isna().to_numpy()[order.rows]] for column in (order.rows, order.call))
    columns: dict[str, object] = {}
    for name in ("layer", "layer_source", "microbatch") if numbered else ("layer", "layer_source"):
        column = events[name].copy()
        column.iloc[rows] = events[name].iloc[call].array
        columns[name] = column
    return trace.with_events(**columns)


def _named(trace: RankTrace, order: WorkOrder) -> bool:
    """Whether ranges or frames name the layers of the model's work."""
    named = trace.events["layer_source"].isin(["range", "module"]).to_numpy()[order.rows]
    forward = order.phase[order.block] == FORWARD if len(order.rows) else named
    return bool((named & forward).any() or (named.any() and not forward.any()))


def _of_phase(order: WorkOrder, phase: int, expected: dict[int, int]) -> list[_Segment]:
    """Layers in every block of forward or backward; of backward only where a stage has the expected number of them."""
    found: dict[int, tuple[Ints, list[Repeat]]] = {}
    tried: dict[bytes, list[Repeat]] = {}
    for block, marks in _blocks(order, phase):
        code = order.code[marks][::-1] if phase == BACKWARD else order.code[marks]
        key = code.tobytes()
        if key not in tried:
            tried[key] = _passes(code, order.names)
        if tried[key]:
            found[block] = (marks, tried[key])
        elif order.stage[block] >= 0 and phase == FORWARD and (one := _single(code, order.names)):
            found[block] = (marks, [one])
    usable = _agreeing(order, {block: passes for block, (_, passes) in found.items()}, expected)
    return [
        segment
        for block in sorted(usable)
        for one in found[block][1]
        for segment in _segments(order, found[block][0], one, backward=phase == BACKWARD, alone=len(found[block][1]) == 1)
    ]


def _of_unknown(order: WorkOrder) -> list[_Segment]:
    """Layers in work that nothing gives a phase, as in a CUDA graph: a forward alone, or a forward and the backward that its kernels' names tell of."""
    found: dict[int, tuple[Ints, list[Repeat], Repeat | None]] = {}
    tried: dict[bytes, tuple[list[Repeat], Repeat | None]] = {}
    for block, marks in _blocks(order, UNKNOWN):
        code, gradient = order.code[marks], order.gradient[marks]
        key = code.tobytes() + gradient.tobytes()
        if key not in tried:
            cut = int(np.argmax(gradient)) if gradient.any() else len(code)
            passes, behind = _passes(code[:cut], order.names), _passes(code[cut:][::-1], order.names) if cut < len(code) else []
            # the first gradient may be of the loss or the head: what counts is that both halves tell of the same layers
            fits = len(passes) == len(behind) == 1 and passes[0].copies == behind[0].copies
            tried[key] = (passes, behind[0] if fits else None) if fits or cut == len(code) else ([], None)
        if tried[key][0]:
            found[block] = (marks, *tried[key])
    out = []
    for block in sorted(_agreeing(order, {block: passes for block, (_, passes, _) in found.items()}, {})):
        marks, passes, behind_it = found[block]
        out += [s for one in passes for s in _segments(order, marks, one, backward=False, alone=len(passes) == 1)]
        if behind_it is not None:
            out += _segments(order, marks, behind_it, backward=True, alone=False)
    return sorted(out)


def _blocks(order: WorkOrder, phase: int) -> list[tuple[int, Ints]]:
    """Blocks of a phase, and the places of their landmarks in the work order."""
    marks = np.flatnonzero((order.code >= 0) & (order.phase[order.block] == phase)) if len(order.rows) else np.array([], np.int64)
    blocks, starts = np.unique(order.block[marks], return_index=True)
    return list(zip(blocks.tolist(), np.split(marks, starts[1:]), strict=False))


def _passes(code: Ints, names: tuple[str, ...]) -> list[Repeat]:
    """The layers of every pass through the model in a sequence of landmarks; usually one pass, none where what repeats is no layer or not all of it."""
    found = repeat(code, opens=[i for i, name in enumerate(names) if name == "norm"])
    attention = [i for i, name in enumerate(names) if name == "attention"]
    if found is None or not np.isin(code[found.start : found.start + found.period], attention).any():
        return []
    # several passes in one: what repeats is the whole model, and its layers repeat inside
    inner = _passes(code[found.start : found.start + found.period], names)
    if inner and 2 * inner[0].copies * inner[0].period >= found.period:
        return [one._replace(start=found.start + k * found.period + one.start) for k in range(found.copies) for one in inner]
    outside = np.append(code[: found.start], code[found.end :])
    return [] if np.isin(outside, attention).any() and not _router_only(code, found, attention, outside) else [found]


def _single(code: Ints, names: tuple[str, ...]) -> Repeat | None:
    """The only layer of a pipeline stage: from its first norm to the second one behind its one attention; None where there are several.

    Only where ranges tell a stage's forward from the next: what stands between two sends may as well be half of a stage.
    """
    kinds = [names[c] for c in code]
    cores = [i for i, kind in enumerate(kinds) if kind == "attention" and (i == 0 or kinds[i - 1] != "attention")]
    if len(cores) != 1 or "matrix" not in kinds[cores[0] :]:
        return None
    norms = [i for i, kind in enumerate(kinds) if kind == "norm"]
    start = min((i for i in norms if i < cores[0]), default=0)
    behind = [i for i in norms if i > cores[0]]
    return Repeat(start, (behind[1] if len(behind) > 1 else len(code)) - start, 1)


def _router_only(code: Ints, found: Repeat, attention: list[int], outside: Ints) -> bool:
    """Whether an attention outside the layers is a part of one only: fewer of them than one layer has, as a sampler's softmax after the head."""
    unit = code[found.start : found.start + found.period]
    return int(np.isin(outside, attention).sum()) < int(np.isin(unit, attention).sum())


def _agreeing(order: WorkOrder, passes: dict[int, list[Repeat]], expected: dict[int, int]) -> set[int]:
    """Blocks whose number of layers is that of their stage, where a stage has one."""
    copies = {block: {one.copies for one in found} for block, found in passes.items()}
    by_stage: dict[int, list[int]] = {}
    for block, counts in copies.items():
        if len(counts) == 1:
            by_stage.setdefault(int(order.stage[block]), []).append(block)
    out: set[int] = set()
    for stage, blocks in by_stage.items():
        numbers, times = np.unique([next(iter(copies[b])) for b in blocks], return_counts=True)
        usual = int(numbers[times.argmax()])
        if times.max() >= _AGREE * len(blocks) and expected.get(stage, usual) == usual:
            out |= {b for b in blocks if copies[b] == {usual}}
    return out


def _segments(order: WorkOrder, marks: Ints, found: Repeat, backward: bool, alone: bool) -> list[_Segment]:
    """The parts of a pass from landmark to landmark; ``alone``: the block holds no other pass, so what stands around the layers is its own."""
    block = order.block[marks[0]]
    begin, end = np.searchsorted(order.block, [block, block + 1])
    names = [order.names[c] for c in (order.code[marks][::-1] if backward else order.code[marks])]
    cut = _second_half(names[found.start : found.start + found.period])
    edges: list[tuple[int, int, str | None]] = []  # place among the landmarks, layer, part
    for layer in range(found.copies):
        at = found.start + layer * found.period
        edges += [(at, layer, "attention"), (at + cut, layer, "mlp")] if cut else [(at, layer, None)]
    if backward:
        # counted from the end: what begins at place k of the reversed block ends after landmark len - 1 - k
        stops = [int(marks[len(marks) - 1 - k]) + 1 for k, _, _ in edges]
        first = len(marks) - found.end
        start = int(marks[first - 1]) + 1 if first > 0 else int(begin)
        return [_Segment(q, p, layer, part, True) for (_, layer, part), p, q in zip(edges, stops, [*stops[1:], start], strict=True)][::-1]
    places = [int(marks[k]) for k, _, _ in edges]
    last = int(marks[found.end]) if found.end < len(marks) else int(end)
    out = [_Segment(p, q, layer, part, False) for (_, layer, part), p, q in zip(edges, places, [*places[1:], last], strict=True)]
    if alone and "embedding" in names[: found.start]:
        out.insert(0, _Segment(int(begin), places[0], -1, "embedding", False))
    if alone and "matrix" in names[found.end :]:
        out.append(_Segment(last, int(end), -1, "head", False))
    return out


def _second_half(unit: list[str]) -> int | None:
    """Where in a layer's landmarks the MLP begins: at the norm after attention, else after the collective that closes it."""
    core = unit.index("attention")
    norm = next((i for i in range(core + 1, len(unit)) if unit[i] == "norm"), None)
    closing = next((i + 1 for i in range(core + 1, len(unit)) if unit[i] in ("all_reduce", "reduce_scatter")), None)
    cut = norm if norm is not None else closing
    return cut if cut is not None and "matrix" in unit[cut:] else None


def _labelled(trace: RankTrace, order: WorkOrder, segments: list[_Segment], per_stage: dict[int, int], numbered: bool) -> RankTrace:
    """The trace with the layers of the segments: on device work by its place, on CPU events by their time."""
    if not segments:
        return trace
    events = trace.events
    before = dict(zip(sorted(per_stage), np.cumsum([0, *(per_stage[s] for s in sorted(per_stage))]).tolist(), strict=False))
    whole = np.array([_path(one, before[int(order.stage[order.block[one.first]])]) for one in segments], object)
    label = np.array([f"{path}.{one.part}" if one.part and one.layer >= 0 else path for path, one in zip(whole, segments, strict=True)], object)
    microbatch = _microbatches(order, segments)
    first, end = np.array([one.first for one in segments]), np.array([one.end for one in segments])

    places = np.arange(len(order.rows))
    at = np.searchsorted(first, places, "right") - 1
    inside = (at >= 0) & (places < end[np.maximum(at, 0)])
    found, last = _during(events, order, first, end, whole)
    # a call that launched more than one segment, such as a graph, is of none
    several = pd.Series(np.where(inside, at, -1)).groupby(order.call).nunique()
    found[several.index[several > 1]] = -1
    layer = choose(found >= 0, choose(found == last, label[found], whole[found]), None)
    number = np.where(found >= 0, microbatch[found], -1)
    held = inside & (events["device"].notna() | events["kind"].eq(Kind.COMMUNICATION)).to_numpy()[order.rows]
    layer[order.rows[held]], number[order.rows[held]] = label[at[held]], microbatch[at[held]]

    own = events["layer"].to_numpy(object)
    fresh = pd.isna(own) & pd.notna(layer)
    columns: dict[str, object] = {
        "layer": pd.Categorical(choose(fresh, layer, choose(pd.isna(own), None, own))),
        "layer_source": pd.Categorical(choose(fresh, "inferred", choose(pd.isna(own), None, events["layer_source"].to_numpy(object)))),
    }
    if numbered:
        columns["microbatch"] = nullable(np.where(fresh, number, integers(events["microbatch"])))
    if any(one.backward for one in segments):
        phase = events["phase"].astype(object).to_numpy(copy=True)
        backward = np.array([one.backward for one in segments])
        mine = held & (order.phase[order.block] == UNKNOWN)
        phase[order.rows[mine]] = choose(backward[at[mine]], Phase.BACKWARD, Phase.FORWARD)
        columns["phase"] = pd.Categorical(choose(pd.isna(phase), None, phase), categories=list(Phase))
    return trace.with_events(**columns)


def _path(one: _Segment, before: int) -> str:
    return f"layers.{one.layer + before}" if one.layer >= 0 else str(one.part)


def _microbatches(order: WorkOrder, segments: list[_Segment]) -> Ints:
    """K for the k-th pass of a stage in a step and direction: microbatches follow each other where no pipeline mixes them."""
    table = pd.DataFrame(
        {
            "step": order.step[order.block[[one.first for one in segments]]],
            "stage": order.stage[order.block[[one.first for one in segments]]],
            "layer": [one.layer for one in segments],
            "part": [one.part for one in segments],
            "backward": [one.backward for one in segments],
        }
    )
    passes = table.groupby(list(table), dropna=False).cumcount().to_numpy(np.int64)
    out: Ints = np.where(table["step"] >= 0, passes, -1)
    return out


def _during(events: pd.DataFrame, order: WorkOrder, first: Ints, end: Ints, whole: Objects) -> tuple[Rows, Rows]:
    """For each CPU event the first and the last segment that it lies in, both of one layer; -1 where it lies in none, or in several layers.

    Ranges and frames are left out: they are drawn around work, not part of it.
    """
    start, stop = _times(events, order, first, end)
    thread = events["thread"].to_numpy()
    ts, until = events["ts"].to_numpy(np.int64), (events["ts"] + events["dur"]).to_numpy(np.int64)
    cpu: Mask = on_cpu_thread(events) & ~events["kind"].isin([Kind.RANGE, Kind.PYTHON]).to_numpy()
    found, last = np.full(len(events), -1, np.int64), np.full(len(events), -1, np.int64)
    on = thread[order.call[first]]
    for one in pd.unique(on):
        mine = np.flatnonzero(on == one)
        mine = mine[np.argsort(start[mine], kind="stable")]
        rows = np.flatnonzero(cpu & (thread == one))
        begun = np.searchsorted(start[mine], ts[rows], "right") - 1
        ended = np.maximum(np.searchsorted(start[mine], until[rows], "left") - 1, begun)
        here, there = mine[np.maximum(begun, 0)], mine[np.maximum(ended, 0)]
        inside = (begun >= 0) & (ts[rows] < stop[here]) & (until[rows] <= stop[there]) & (ended - begun <= 1) & (whole[here] == whole[there])
        found[rows[inside]], last[rows[inside]] = here[inside], there[inside]
    return found, last


def _times(events: pd.DataFrame, order: WorkOrder, first: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Start and end of each segment on the CPU, in ns.

    It starts with the outermost operator that had issued nothing before the segment's first piece, and ends where what follows it in its
    block starts so, else with the operator that issued its last piece.
    """
    parent, thread = integers(events["parent"]), events["thread"].to_numpy()
    ts, until = events["ts"].to_numpy(np.int64), (events["ts"] + events["dur"]).to_numpy(np.int64)
    around = events["kind"].isin([Kind.RANGE, Kind.PYTHON]).to_numpy()

    def outermost(place: Ints) -> Ints:
        at, previous = order.call[place].copy(), np.maximum(place - 1, 0)
        same = (place > 0) & (thread[order.call[previous]] == thread[at])
        since = np.where(same, order.at[previous], np.iinfo(np.int64).min)
        while True:
            up = parent[at]
            climb = (up >= 0) & (ts[np.maximum(up, 0)] > since) & ~around[np.maximum(up, 0)]
            if not climb.any():
                return at
            at[climb] = up[climb]

    start = ts[outermost(first)]
    following = np.minimum(end, len(order.rows) - 1)
    goes_on = (end < len(order.rows)) & (order.block[following] == order.block[first])
    return start, np.maximum(start, np.where(goes_on, ts[outermost(following)], until[outermost(end - 1)]))


def _led(trace: RankTrace, order: WorkOrder) -> bool:
    """Whether Sequence numbers led most of the backward to layers; true where there is no backward."""
    calls = order.call[(order.phase[order.block] == BACKWARD) & (order.code >= 0)]
    return not len(calls) or bool(trace.events["layer"].notna().to_numpy()[calls].mean() >= _AGREE)
