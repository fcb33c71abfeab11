"""How do the ranks hang together? Mesh axes of the process groups, degrees, and ranks that are missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from tracekit.findings import finding
from tracekit.group_ranks import canonical, compact, ranks_in
from tracekit.trace import RankFacts
from tracekit.vocabulary import Axis, Collective, Direction, Severity, group_axis, sublayer

#: Axes along which the same model is fed different data. ``dp`` and ``dp_cp`` are torchtitan's names of merged axes.
DATA_AXES = frozenset({Axis.DP_REPLICATE, Axis.DP_SHARD, "dp", "dp_cp"})
#: Name of the axis of a group that holds every rank and lies on no single mesh axis.
WORLD = "world"
#: Groups over two data axes or more, by the axes they merge: parameters are sharded over dp_shard and cp together.
_MERGED = {
    ("dp_replicate", "dp_shard"): "dp",
    ("dp_shard", "cp"): Axis.DP_SHARD,
    ("dp_replicate", "cp"): "dp_cp",
    ("dp_replicate", "dp_shard", "cp"): "dp_cp",
}
#: Descriptions that torch gives to the group of all ranks, whatever it is used for.
_DEFAULT_GROUPS = frozenset({"default_pg", "undefined", ""})


@dataclass(frozen=True)
class Topology:
    """What holds the ranks together.

    Attributes:
        world_size: ranks of the whole job, or None.
        run: the run directory's ``run.json``, or {}.
        mesh: axis -> degree.
        axis_of: canonical rank list ('0,1') -> mesh axis.
        described: rank lists of groups whose own description names their axis.
        missing: ranks of the job whose traces are not here.
        findings: health findings (rows of ``schema.FINDINGS`` as dicts).
    """

    world_size: int | None = None
    run: Mapping[str, Any] = field(default_factory=dict)
    mesh: Mapping[str, int] = field(default_factory=dict)
    axis_of: Mapping[str, str] = field(default_factory=dict)
    described: frozenset[str] = frozenset()
    missing: tuple[int, ...] = ()
    findings: tuple[Mapping[str, Any], ...] = ()


def topology(ranks: Mapping[tuple[int, int], RankFacts], calls: pd.DataFrame, p2p: pd.DataFrame) -> Topology:
    """Read world size, mesh and groups from what the ranks' files say, best source first.

    An axis comes from run.json's mesh, else from a group's description (``mesh_tp``), else from what the group is used
    for: gradients or sharded parameters make it ``dp``, sends and receives ``pp``, forward all-reduces, or gathers and scatters, ``tp``
    (Megatron's signatures, arXiv 1909.08053 and 2205.05198), gathers that are scattered again in backward alone ``cp`` (keys and values),
    an all-to-all in the MLP ``ep`` (arXiv 2006.16668), one in attention ``cp`` (arXiv 2309.14509). What no source tells stays without an axis.

    Args:
        ranks: facts per (rank, capture).
        calls: the ``calls`` fact of all ranks, with ``rank``.
        p2p: the ``p2p_calls`` fact of all ranks, with ``rank``.
    """
    metas = [facts.meta for facts in ranks.values()]
    run: Mapping[str, Any] = next((m.run for m in metas if m.run), {})
    world = world_size(ranks)
    present = {rank for rank, _ in ranks}
    missing = tuple(r for r in range(world) if r not in present) if world else ()
    stated = {k: int(v) for k, v in (run.get("mesh") or {}).items()}
    inferred, described = _axes_by_use(calls, p2p), _axes_by_description(metas, calls, p2p)
    axis_of = {**inferred, **described, **(mesh_groups(stated, world) if world else {})}
    if world and (every := canonical(range(world))) not in axis_of:
        axis_of[every] = WORLD
    mesh = stated or {axis: ranks_in(group) for group, axis in axis_of.items() if axis != WORLD}
    findings = _missing_finding(missing, world, present)
    guessed = sorted({axis for group, axis in inferred.items() if axis_of.get(group) == axis and group not in described and not stated})
    if guessed:
        text = f"mesh axes were inferred from what the groups are used for ({', '.join(guessed)}): neither run.json nor group descriptions name them"
        findings.append(finding("axes_inferred", Severity.INFO, text))
    return Topology(world, run, mesh, axis_of, frozenset(described), missing, tuple(findings))


def world_size(ranks: Mapping[tuple[int, int], RankFacts]) -> int | None:
    """Ranks of the whole job, by what the traces or run.json say; None where neither does."""
    metas = [facts.meta for facts in ranks.values()]
    stated = next((int(m.world_size) for m in metas if m.world_size), None)
    return stated or _number(next((m.run for m in metas if m.run), {}).get("world_size"))


def mesh_groups(mesh: Mapping[str, int], world: int) -> dict[str, str]:
    """Rank lists of every group along one mesh axis, and of the merged data axes, in torch's row-major rank order.

    >>> mesh_groups({"pp": 2, "tp": 2}, 4)
    {'0,2': 'pp', '1,3': 'pp', '0,1': 'tp', '2,3': 'tp'}
    """
    names, sizes = list(mesh), [int(v) for v in mesh.values()]
    if not names or int(np.prod(sizes)) != world:
        return {}
    grid = np.arange(world).reshape(sizes)
    wide = [a for a, n in zip(names, sizes, strict=True) if n > 1]
    out: dict[str, str] = {}
    choices = [((a,), a) for a in wide] + [(tuple(axes), name) for axes, name in _MERGED.items() if set(axes) <= set(wide)]
    for axes, label in choices:
        at = [names.index(a) for a in axes]
        rows = np.moveaxis(grid, at, range(-len(at), 0)).reshape(-1, int(np.prod([sizes[i] for i in at])))
        for row in rows.tolist():
            out.setdefault(canonical(row), str(label))
    return out


def axis_column(frame: pd.DataFrame, axis_of: Mapping[str, str], described: frozenset[str]) -> pd.Series:
    """Mesh axis of each row with ``group_desc`` and ``group_ranks``; None where unknown.

    The description speaks first. torch's default group gets the axis of its rank list, unless another group of the same
    ranks is described: then the default group is the ``world``.
    """
    pairs = frame[["group_desc", "group_ranks"]].astype(object)
    distinct = pairs.drop_duplicates()

    def one(desc: object, ranks: object) -> str | None:
        axis = group_axis(desc) if isinstance(desc, str) else None
        if axis is None and isinstance(ranks, str):
            axis = WORLD if desc in _DEFAULT_GROUPS and ranks in described else axis_of.get(ranks)
        return axis

    axes = pd.Series([one(d, r) for d, r in distinct.itertuples(index=False)], index=distinct.index, dtype=object)
    table = distinct.assign(axis=axes)
    joined = pairs.merge(table, on=["group_desc", "group_ranks"], how="left")["axis"].astype(object)
    return pd.Series(joined.where(joined.notna(), None).to_numpy(object), index=frame.index, dtype=object)


def _axes_by_description(metas: list[Any], calls: pd.DataFrame, p2p: pd.DataFrame) -> dict[str, str]:
    out: dict[str, str] = {}
    for meta in metas:
        for group in meta.groups.values():
            axis, ranks = group_axis(group.get("desc")), group.get("ranks") or ()
            if axis and len(ranks) > 1:
                out[canonical(ranks)] = axis
    for frame in (calls, p2p):
        for desc, ranks in frame[["group_desc", "group_ranks"]].drop_duplicates().itertuples(index=False):
            axis = group_axis(desc) if isinstance(desc, str) else None
            if axis and isinstance(ranks, str):
                out[ranks] = axis
    return out


def _axes_by_use(calls: pd.DataFrame, p2p: pd.DataFrame) -> dict[str, str]:
    """Axes that only the use of a group tells; a group with two uses has none."""
    uses: dict[str, set[str]] = {}
    known = calls[calls["group_ranks"].notna() & calls["direction"].notna()]
    for ranks, mine in known[["group_ranks", "direction", "kind", "layer"]].drop_duplicates().groupby("group_ranks", sort=False):
        if ranks_in(str(ranks)) > 1:
            uses[str(ranks)] = _uses(mine)
    for ranks in p2p["group_ranks"].dropna().unique():
        uses.setdefault(ranks, set()).add(str(Axis.PP))
    return {ranks: next(iter(found)) for ranks, found in uses.items() if len(found) == 1}


def _uses(calls: pd.DataFrame) -> set[str]:
    """Axes that the calls of one group speak for, by direction, kind and the part of the layer that issued them."""
    kinds: dict[str, set[str]] = {}
    for direction, kind in zip(calls["direction"], calls["kind"], strict=True):
        kinds.setdefault(direction, set()).add(kind)
    forward, backward = kinds.get(Direction.FORWARD, set()), kinds.get(Direction.BACKWARD, set())
    found = {"dp"} if kinds.keys() & {Direction.GRADIENT, Direction.PARAMETER} else set()
    gathers, scatters = Collective.ALL_GATHER in forward, Collective.REDUCE_SCATTER in forward
    if Collective.ALL_REDUCE in forward or (gathers and scatters):
        found.add(str(Axis.TP))
    elif gathers and Collective.REDUCE_SCATTER in backward:
        found.add(str(Axis.CP))
    if Collective.ALL_TO_ALL in forward:
        parts = {sublayer(layer) for layer in calls["layer"][calls["kind"].eq(Collective.ALL_TO_ALL)]}
        found |= {str(Axis.EP)} if parts == {"mlp"} else {str(Axis.CP)} if parts == {"attention"} else set()
    return found


def _missing_finding(missing: tuple[int, ...], world: int | None, present: set[int]) -> list[dict[str, Any]]:
    """A single rank of a job is a choice, and its own figures stand; several but not all leave bounds where figures were expected."""
    if not missing:
        return []
    if len(present) == 1:
        text = f"only rank {compact(present)} of {world} is here: what its collectives waited for and how fast they were needs the other ranks"
        return [finding("rank_missing", Severity.INFO, text, count=len(missing))]
    noun = "rank" if len(missing) == 1 else "ranks"
    text = f"{noun} {compact(missing)} of {world} missing: waits of their groups are lower bounds and transfers unknown; add their traces"
    return [finding("rank_missing", Severity.WARNING, text, count=len(missing))]


def _number(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
