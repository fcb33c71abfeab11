"""Which collectives does a tensor-parallel layer issue per microbatch, and by which scheme?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.job.layer_siblings import compared, told
from tracekit.vocabulary import LAYER_INDEX, Axis, Collective, Direction

_COMPUTE = (Direction.FORWARD, Direction.BACKWARD)
_IN_LAYERS = (*_COMPUTE, Direction.RECOMPUTE)
_SCHEME_KINDS = (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
_F, _B = Direction.FORWARD, Direction.BACKWARD
_GATHERED: dict[tuple[str, str], int] = {(_F, Collective.ALL_GATHER): 2, (_F, Collective.REDUCE_SCATTER): 2, (_B, Collective.REDUCE_SCATTER): 2}
#: Collectives per layer and microbatch of each scheme, by direction and kind. Tensor parallelism: two all-reduces forward
#: and two backward (Megatron-LM, arXiv 1909.08053 section 3). With sequence parallelism an all-gather and a
#: reduce-scatter instead of each; what forward gathered is not kept, so Megatron gathers the input of each
#: column-parallel linear again in backward (arXiv 2205.05198 section 4.2.2), where DTensor keeps it.
VARIANTS: Mapping[str, Mapping[tuple[str, str], int]] = {
    "tensor_parallel": {(_F, Collective.ALL_REDUCE): 2, (_B, Collective.ALL_REDUCE): 2},
    "sequence_parallel": {**_GATHERED, (_B, Collective.ALL_GATHER): 2},
    "sequence_parallel_regather_1": {**_GATHERED, (_B, Collective.ALL_GATHER): 3},
    "sequence_parallel_regather_2": {**_GATHERED, (_B, Collective.ALL_GATHER): 4},
}
_ROW = ["layer", "direction", "kind"]
#: Columns of the table, in order; see :class:`LayerPattern`.
COLUMNS: Mapping[str, str] = {
    "layer": "object",
    "layer_index": "Int64",
    "direction": "object",
    "kind": "object",
    "cells": "Int64",
    "count_min": "Float64",
    "count_max": "Float64",
    "expected": "Int64",
    "holds": "object",
    "siblings_min": "Float64",
    "siblings_max": "Float64",
    "nbytes_min": "Int64",
    "nbytes_max": "Int64",
    "siblings_nbytes_min": "Int64",
    "siblings_nbytes_max": "Int64",
    "differs": "object",
    "variant": "object",
    "inferred": "bool",
    "duration_mean_ns": "Float64",
}


@dataclass(frozen=True)
class LayerPattern:
    """What the layers of a job issue inside tensor-parallel groups, in steady steps.

    Attributes:
        table: one row per layer, direction (forward, backward, recompute) and kind that any layer has. ``cells``: steps x
            groups x microbatches counted; ``count_min``, ``count_max``: fewest and most collectives in a cell, per
            microbatch (null where microbatches are neither numbered nor counted); ``expected``, ``holds``: what the
            scheme asks for and whether every cell has it; ``siblings_*``: what the layers beside it have, null where they
            have nothing in common (and for recomputation, which need not repeat every layer); ``nbytes_*``: of one
            collective; ``differs``: other than its siblings, null without any; ``variant``: the layer's scheme, a
            key of VARIANTS; ``inferred``: its collectives were given to the layer by repetition; ``duration_mean_ns``:
            per microbatch, mean over cells and ranks, waits included.
        variant: scheme of all layers that do not differ, or None.
        reason: why it is None, where there is tensor parallelism at all.
        nameless: collectives in forward or backward that name no layer.
    """

    table: pd.DataFrame
    variant: str | None = None
    reason: str | None = None
    nameless: int = 0


def no_layers(reason: str | None = None, nameless: int = 0) -> LayerPattern:
    """The pattern of a job without tensor-parallel layers, or in which they cannot be told."""
    return LayerPattern(pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in COLUMNS.items()}), reason=reason, nameless=nameless)


def layer_pattern(instances: pd.DataFrame, by_rank: pd.DataFrame, steps: frozenset[int], microbatches: int | None) -> LayerPattern:
    """Count the collectives of tensor-parallel layers.

    Args:
        instances: collectives matched over ranks (``Job.instances``).
        by_rank: their calls (``Job.by_rank``).
        steps: steps to count in; empty: every step.
        microbatches: per step, for steps whose collectives carry no microbatch number; None: unknown.
    """
    split = instances[instances["axis"].eq(Axis.TP) & instances["direction"].isin(_IN_LAYERS)]
    if not len(split):
        return no_layers()
    counted = split[split["step"].isin(list(steps)) if steps else split["step"].notna()]
    nameless = int(counted["layer"].isna().sum())
    paths = {name: block for name in counted["layer"].dropna().unique() if (block := block_of(name))}
    inside = counted.assign(layer=counted["layer"].map(paths).astype(object))
    inside = inside[inside["layer"].notna()]
    if not len(inside):
        return no_layers("they lie in no step" if not len(counted) else "they name no layer", nameless)
    cells = _cells(inside, microbatches)
    inside = inside.assign(cell=cells["cell"].reindex(inside.index))
    units = cells.drop_duplicates("cell").set_index("cell")[["team", "share"]]
    known = bool(units["share"].notna().all())
    counts = _counts(inside, units)
    table = _with_costs(_limits(counts), inside, by_rank, counts, units)
    experts = set(instances["layer"][instances["kind"].eq(Collective.ALL_TO_ALL) | instances["axis"].eq(Axis.EP)].dropna().map(block_of).dropna())
    table = compared(table.assign(experts=table["layer"].isin(list(experts))))
    table = _named(table, known)
    variant, reason = _variant_of_all(table, known)
    return LayerPattern(table[list(COLUMNS)].astype({**COLUMNS}), variant, reason, nameless)


def block_of(path: str) -> str | None:
    """Path of the numbered layer that a module is or lies in, or None.

    >>> block_of("model.layers.3.attention"), block_of("embedding.token")
    ('model.layers.3', None)
    """
    m = LAYER_INDEX.search(path)
    return path[: m.end("index")] if m else None


def _cells(inside: pd.DataFrame, microbatches: int | None) -> pd.DataFrame:
    """Per collective: cell (step, group and microbatch; the whole step where not all are numbered), team (group), share.

    ``share`` is what one collective of the cell counts per microbatch: 1, or 1 / microbatches for a whole step.
    """
    place = [inside["capture"], inside["step"], inside["group_ranks"]]
    numbered = inside["microbatch"].notna().groupby(place, dropna=False).transform("all")
    if microbatches is None and not numbered.all():
        numbered = numbered & False  # whole steps can be compared with whole steps only
    microbatch = inside["microbatch"].where(numbered).astype("Int64")
    return pd.DataFrame(
        {
            "cell": inside.groupby([*place, microbatch], dropna=False, sort=False).ngroup(),
            "team": inside.groupby("group_ranks", dropna=False, sort=False).ngroup(),
            "share": np.where(numbered, 1.0, 1.0 / microbatches if microbatches else np.nan),
        },
        index=inside.index,
    )


def _counts(inside: pd.DataFrame, units: pd.DataFrame) -> pd.DataFrame:
    """Collectives by (cell, layer) in rows and (direction, kind) in columns; 0 where a layer of the group issued none."""
    found = inside.groupby(["cell", *_ROW], sort=False).size().unstack(["direction", "kind"], fill_value=0)
    layers = inside[["cell", "layer"]].assign(team=units["team"].reindex(inside["cell"]).to_numpy())[["team", "layer"]].drop_duplicates()
    whole = units.reset_index().merge(layers, on="team")[["cell", "layer"]]
    columns: list[tuple[str, str]] = [(str(column[0]), str(column[1])) for column in found.columns]
    directions = [str(d) for d in _COMPUTE if any(column[0] == d for column in columns)]
    kinds = [str(k) for k in _SCHEME_KINDS if any(column[1] == k and column[0] in _COMPUTE for column in columns)]
    columns += [(d, k) for d in directions for k in kinds if (d, k) not in columns]
    full = found.reindex(index=pd.MultiIndex.from_frame(whole), columns=pd.MultiIndex.from_tuples(columns, names=["direction", "kind"]), fill_value=0)
    return full.mul(units["share"].fillna(1.0).reindex(full.index.get_level_values("cell")).to_numpy(), axis=0)


def _limits(counts: pd.DataFrame) -> pd.DataFrame:
    """Fewest and most collectives of a cell, by layer, direction and kind."""
    by_layer = counts.groupby(level="layer")
    table = pd.DataFrame({"count_min": by_layer.min().unstack(), "count_max": by_layer.max().unstack()}).reset_index()
    index = {path: int(m["index"]) for path in table["layer"].unique() if (m := LAYER_INDEX.search(path))}
    table = table.assign(layer_index=table["layer"].map(index), cells=table["layer"].map(by_layer.size()))
    return table.sort_values(["layer_index", "layer", "direction", "kind"], kind="stable", ignore_index=True)


def _with_costs(table: pd.DataFrame, inside: pd.DataFrame, by_rank: pd.DataFrame, counts: pd.DataFrame, units: pd.DataFrame) -> pd.DataFrame:
    """The table with bytes of a collective, mean duration per microbatch, and whether the layer was inferred."""
    mean = (by_rank["end_ns"] - by_rank["start_ns"]).groupby(by_rank["instance"], sort=False).mean()
    duration = inside["instance"].map(mean).astype("Float64").mask(inside["time_source"].eq("host"))
    grouped = inside.assign(duration=duration).groupby(_ROW, sort=False)
    known = grouped["nbytes"].count().eq(grouped.size())
    layer, cell = (counts.index.get_level_values(name) for name in ("layer", "cell"))
    held = (1.0 / units["share"]).reindex(cell)  # microbatches in each cell; null: unknown
    microbatches = held.groupby(layer).sum().mask(held.isna().groupby(layer).any())
    costs = pd.DataFrame(
        {
            "nbytes_min": grouped["nbytes"].min().where(known),
            "nbytes_max": grouped["nbytes"].max().where(known),
            "total_ns": grouped["duration"].sum().mask(grouped["duration"].count() < grouped.size()),
        }
    ).reset_index()
    out = table.merge(costs, on=_ROW, how="left")
    total = out["total_ns"].astype("Float64").mask(out["count_max"].eq(0), 0.0)
    inferred = inside["layer_source"].eq("inferred").groupby(inside["layer"]).any()
    return out.assign(duration_mean_ns=total / out["layer"].map(microbatches).astype("Float64"), inferred=out["layer"].map(inferred))


def _named(table: pd.DataFrame, known: bool) -> pd.DataFrame:
    """The table with each layer's scheme, and what the scheme of its siblings asks for."""
    compute = table[table["direction"].isin(_COMPUTE)]
    own = {layer: _scheme(rows, "count") if known else None for layer, rows in compute.groupby("layer")}
    around = {layer: _scheme(rows, "siblings") if known else None for layer, rows in compute.groupby("layer")}
    variant = table["layer"].map(own).astype(object).where(table["layer"].map(own).notna(), None)
    asked = [
        _expected(d, k, low, high, around.get(layer) or own.get(layer))
        for layer, d, k, low, high in table[[*_ROW, "count_min", "count_max"]].itertuples(index=False)
    ]
    expected = pd.Series(asked if known else [None] * len(table), dtype="Int64", index=table.index)
    holds = table["count_min"].eq(expected) & table["count_max"].eq(expected)
    limits = {} if known else {name: pd.array([pd.NA] * len(table), "Float64") for name in ("count_min", "count_max", "siblings_min", "siblings_max")}
    # over whole steps the numbers only compare layers: they stand in `differs`
    return table.assign(variant=variant, expected=expected, holds=holds.astype(object).mask(pd.isna(expected), None), **limits)


def _scheme(rows: pd.DataFrame, what: str) -> str | None:
    """The variant whose numbers a layer (``what`` is count) or its siblings have in every cell, or None."""
    low, high = rows[f"{what}_min"], rows[f"{what}_max"]
    if low.isna().any() or not low.eq(high).all():
        return None
    has = {(d, k): float(n) for d, k, n in zip(rows["direction"], rows["kind"], low, strict=True) if n}
    return next((name for name, asks in VARIANTS.items() if has == dict(asks)), None)


def _expected(direction: str, kind: str, low: float, high: float, variant: str | None) -> int | None:
    """Collectives per layer and microbatch: the variant's, or else those of the scheme that has such collectives."""
    if direction not in _COMPUTE or kind not in _SCHEME_KINDS:
        return None
    if variant is not None:
        return VARIANTS[variant].get((direction, kind), 0)
    if not high:
        return None
    gathered_again = direction == Direction.BACKWARD and kind == Collective.ALL_GATHER and low in (3, 4)
    return int(low) if gathered_again else 2


def _variant_of_all(table: pd.DataFrame, known: bool) -> tuple[str | None, str | None]:
    """The scheme that all layers which do not differ have, or None and why."""
    if not known:
        return None, "their microbatches are neither numbered nor stated in run.json"
    odd = set(table["layer"][table["differs"].eq(True)])
    rest = table[~table["layer"].isin(odd) & table["direction"].isin(_COMPUTE)]
    if not rest["count_max"].gt(0).any():
        return None, "they are recomputation only"
    schemes = rest.drop_duplicates("layer")["variant"]
    distinct = {None if pd.isna(v) else str(v) for v in schemes}
    if len(distinct) == 1 and (only := next(iter(distinct))) is not None:
        return only, None
    if len(distinct) > 1:
        several = (f"{v or 'none that is known'} in {int((schemes.isna() if v is None else schemes.eq(v)).sum())} layers" for v in sorted(distinct, key=str))
        return None, f"the layers follow several schemes: {', '.join(several)}"
    has = rest[rest["count_max"] > 0].drop_duplicates(["direction", "kind", "count_min", "count_max"])
    counts = ", ".join(f"{told(low, high)} {k} {d}" for d, k, low, high in has[["direction", "kind", "count_min", "count_max"]].itertuples(index=False))
    return None, f"no scheme that is known has per layer and microbatch {counts}"
