"""When did each pipeline action of this rank run, and what filled its span?

An action is F, B (whole backward), I (input gradient) or W (weight gradient) of one stage and microbatch. Its span is
not that of the range that names it (those contain waits for receives) but runs from the first start to the last end of
the action's compute and of its tensor-, context- and expert-parallel collectives. Sends, receives, data-parallel,
sharded-data and world collectives are no part of it; recomputation is part of B or I.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit import schema
from tracekit.action_ranges import action_ranges
from tracekit.columns import integers
from tracekit.intervals import Union, clip, measure, subtract, total, union
from tracekit.pipeline_place import exchanges, place_in_pipeline
from tracekit.stage_order import transfers
from tracekit.trace import RankTrace
from tracekit.vocabulary import GPIPE_RANGE, P2P, Action, Axis, Phase, group_axis, parse_actions
from tracekit.work import intervals_of, work_masks

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_KEY = ["step", "stage", "action", "microbatch"]
_INSIDE = frozenset({Axis.TP, Axis.CP, Axis.EP})


def actions(trace: RankTrace) -> dict[str, pd.DataFrame]:
    """The rank's pipeline actions, and the collectives exposed between them.

    Args:
        trace: a rank after the passes.

    Returns:
        ``actions`` (``schema.ACTIONS``, in order of step and start) and ``gap_collectives``
        (``schema.GAP_COLLECTIVES``); both without rows where no work belongs to an action.
        ``compute_ns + exposed_collective_ns + inner_gap_ns == end_ns - start_ns`` in every row, and the ``fresh``
        columns add up to the union of the spans however actions overlap.
    """
    events, masks = trace.events, work_masks(trace)
    located = (events["action"].notna() & events["stage"].notna() & events["microbatch"].notna()).to_numpy()
    inside = masks["communication"] & located & _in_action_axes(trace, masks["communication"] & located)
    work = (masks["compute"] & located) | inside
    if not work.any():
        return {"actions": schema.empty(schema.ACTIONS), "gap_collectives": schema.empty(schema.GAP_COLLECTIVES)}
    computed = intervals_of(events, masks["compute"])
    own = np.flatnonzero(work)
    rows = [_action(events, masks["compute"], part, computed) for part in _groups(events.iloc[own][_KEY], own)]
    table = pd.DataFrame(rows).sort_values(["step", "start_ns", "end_ns"], kind="stable", ignore_index=True)
    in_actions = intervals_of(events, masks["compute"] & located)
    exposed = subtract(intervals_of(events, inside), in_actions)
    source = _source(trace)
    explained = _explained(trace, table, masks["compute"], located) if source == "inferred" else None
    table = _fresh(table.assign(source=source, explained_ratio=explained), in_actions, exposed)
    others = masks["communication"] & ~inside & ~events["collective"].isin(list(P2P)).to_numpy()
    gaps = _gap_collectives(table, subtract(intervals_of(events, others), computed))
    return {"actions": schema.conform(table, schema.ACTIONS), "gap_collectives": gaps}


def _groups(keys: pd.DataFrame, rows: Ints) -> Iterator[Ints]:
    """Rows of the events of each action: those that share step, stage, action and microbatch."""
    code = keys.groupby(_KEY, dropna=False, observed=True, sort=False).ngroup().to_numpy()
    order = np.argsort(code, kind="stable")
    yield from np.split(rows[order], np.flatnonzero(np.diff(code[order])) + 1)


def _action(events: pd.DataFrame, compute: Mask, rows: Ints, computed: Union) -> dict[str, object]:
    """One action from the rows of its work; ``computed`` is all compute of the rank."""
    start = events["ts"].to_numpy()[rows]
    end = start + events["dur"].to_numpy()[rows]
    is_compute = compute[rows]
    first, last = int(start.min()), int(end.max())
    compute_ns = total(union(start[is_compute], end[is_compute]))
    collectives = union(start[~is_compute], end[~is_compute])
    exposed_ns = total(subtract(collectives, _around(computed, first, last)))
    key = events.iloc[rows[0]][_KEY].to_dict()
    return {
        **key,
        "start_ns": first,
        "end_ns": last,
        "compute_ns": compute_ns,
        "exposed_collective_ns": exposed_ns,
        "inner_gap_ns": last - first - compute_ns - exposed_ns,
    }


def _around(a: Union, start: int, end: int) -> Union:
    """The part of a long union inside one window, found by bisection."""
    lo, hi = np.searchsorted(a[1], start, "right"), np.searchsorted(a[0], end, "left")
    return clip((a[0][lo:hi], a[1][lo:hi]), start, end)


def _in_action_axes(trace: RankTrace, which: Mask) -> Mask:
    """Which of some collectives run over tensor, context or expert parallel groups.

    Where the group's description names no axis the mesh of the run does; where there is neither, a group that works
    in forwards outside sharded-data ranges is one of them: data parallelism reduces in backward alone.
    """
    events = trace.events
    collective = events["collective"].notna().to_numpy() & ~events["collective"].isin(list(P2P)).to_numpy()
    which = which & collective & ~events["layer_source"].eq("fsdp").to_numpy()
    out = np.zeros(len(events), bool)
    groups = events.loc[which, ["group_desc", "group_ranks"]].astype(object)
    forward = events["phase"].eq(Phase.FORWARD).to_numpy()
    for (desc, ranks), part in groups.groupby(["group_desc", "group_ranks"], dropna=False):
        rows = part.index.to_numpy()
        axis = group_axis(desc) if isinstance(desc, str) else None
        axes = {axis} if axis else _mesh_axes(trace, ranks if isinstance(ranks, str) else None)
        if axes is None:
            whole = isinstance(ranks, str) and len(ranks.split(",")) == trace.meta.world_size
            out[rows] = bool(forward[rows].any()) and not whole
        else:
            out[rows] = axes <= _INSIDE
    return out


def _mesh_axes(trace: RankTrace, ranks: str | None) -> set[str] | None:
    """Mesh axes along which the ranks of a group differ, by the run's mesh; None where that is not known."""
    mesh = {name: int(size or 1) for name, size in (trace.meta.run.get("mesh") or {}).items()}
    if ranks is None or not mesh:
        return None
    members = np.array([int(r) for r in ranks.split(",")])
    if members.max() >= int(np.prod(list(mesh.values()))):
        return None
    coordinates = np.unravel_index(members, tuple(mesh.values()))
    return {name for name, where in zip(mesh, coordinates, strict=True) if len(set(where.tolist())) > 1}


def _source(trace: RankTrace) -> str:
    """What named the actions."""
    names = [str(c) for c in trace.events["name"].cat.categories]
    if any(f["code"] == "actions_inferred" for f in trace.findings):
        return "inferred"
    if any(parse_actions(name) for name in names):
        return "range"
    if any(GPIPE_RANGE.match(name) for name in names):
        return "gpipe_range"
    return "named_range" if len(action_ranges(trace.events)) else "label"


def _explained(trace: RankTrace, table: pd.DataFrame, compute: Mask, located: Mask) -> list[float]:
    """Per action the share of its step's forward and backward compute, or of its sends and receives, that the actions explain: the lesser one."""
    events, dur = trace.events, trace.events["dur"].to_numpy(np.int64)
    step, training = integers(events["step"]), compute & (located | events["phase"].isin([Phase.FORWARD, Phase.BACKWARD]).to_numpy())
    calls = exchanges(trace)
    place = place_in_pipeline(trace, calls)
    out = {}
    for number in np.unique(integers(table["step"])):
        here = training & (step == number)
        share = int(dur[here & located].sum()) / max(1, int(dur[here].sum()))
        seen = int((step[calls] == number).sum())
        if seen and place is not None:
            rows = table[integers(table["step"]) == number]
            asked = sum(map(sum, transfers([Action(*row) for row in rows[_KEY[1:]].itertuples(index=False, name=None)], *place)))
            share = min(share, min(asked, seen) / max(asked, seen))
        out[number] = share
    return [out[number] for number in integers(table["step"])]


def _fresh(table: pd.DataFrame, computed: Union, exposed: Union) -> pd.DataFrame:
    """Add the columns that count what overlapped actions share once, with the action that started first."""
    start, end = table["start_ns"].to_numpy(np.int64), table["end_ns"].to_numpy(np.int64)
    step = integers(table["step"])
    reach = np.empty(len(table), np.int64)
    for number in np.unique(step):
        here = step == number
        reach[here] = np.concatenate(([start[here][0]], np.maximum.accumulate(end[here])[:-1]))
    fresh = np.clip(reach, start, end)
    return table.assign(
        fresh_start_ns=fresh,
        fresh_compute_ns=measure(computed, fresh, end),
        fresh_exposed_collective_ns=measure(exposed, fresh, end),
    )


def _gap_collectives(table: pd.DataFrame, exposed: Union) -> pd.DataFrame:
    """The exposed collectives that lie between the first and the last action of a step and inside none."""
    parts = []
    for step, rows in table.groupby("step", dropna=False):
        spans = union(rows["start_ns"], rows["end_ns"])
        start, end = subtract(clip(exposed, int(spans[0][0]), int(spans[1][-1])), spans)
        parts.append(pd.DataFrame({"step": pd.Series(step, index=range(len(start)), dtype="Int64"), "start_ns": start, "end_ns": end}))
    return schema.conform(pd.concat(parts, ignore_index=True), schema.GAP_COLLECTIVES)
