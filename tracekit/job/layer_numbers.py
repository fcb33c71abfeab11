"""What is the number of a layer in the whole model, where each rank counted only its own?

In a pipeline every rank's first layer would be layer 0. A stage's layers follow those of the stages before it; how many these hold, other
ranks tell. Where a stage before it is missing and the others differ, or no stage is known, the numbers are unknown and no layer is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from tracekit.findings import finding
from tracekit.trace import RankFacts
from tracekit.vocabulary import LAYER_INDEX, Severity, layer_index

_LABELS = ("layer", "layer_last")


def number_layers(ranks: Mapping[tuple[int, int], RankFacts]) -> tuple[dict[tuple[int, int], RankFacts], list[dict[str, Any]]]:
    """The facts with the layers' numbers in the whole model, and what is to be said of them.

    Args:
        ranks: facts per (rank, capture).

    Returns:
        The facts, the very same objects where nothing changes; findings.
    """
    places = {key: facts["layer_places"] for key, facts in ranks.items()}
    piped = {key for key, table in places.items() if len(table) and _is_piped(table)}
    if not piped:
        return dict(ranks), []
    stages = {key: _stages(places[key]) for key in piped}
    counts, findings = _layers_per_stage(stages, places)
    out = dict(ranks)
    lost = []
    for key in sorted(piped):
        numbers = _numbers(places[key], stages[key], counts)
        if numbers is None:
            lost.append(key[0])
        out[key] = _renamed(ranks[key], numbers or {})
    if lost:
        which = ", ".join(map(str, sorted(set(lost))[:8]))
        says = (
            f"ranks {which} count their layers from 0 and run in a pipeline, but their stages, or how many layers the stages before theirs hold, are "
            "not known: their layers have no name; give ranges (PP: actions, or layers by name) or the traces of every stage"
        )
        findings.append(finding("layer_numbers_unknown", Severity.WARNING, says, count=len(set(lost))))
    return out, findings


def _is_piped(table: pd.DataFrame) -> bool:
    size = table["pipeline_size"].iloc[0]
    several = bool(table["exchanges"].iloc[0]) if pd.isna(size) else int(size) > 1
    return several or bool(table["stage"].gt(0).any())


def _stages(table: pd.DataFrame) -> pd.Series[Any] | None:
    """Stage of each of a rank's layers, or None where one is unknown."""
    return None if table["stage"].isna().any() else table["stage"].astype("int64")


def _layers_per_stage(
    stages: Mapping[tuple[int, int], pd.Series[Any] | None], places: Mapping[tuple[int, int], pd.DataFrame]
) -> tuple[dict[int, int], list[dict[str, Any]]]:
    """Layers of each stage, those of missing stages as many as all others hold; and a finding where that was needed."""
    seen: dict[int, set[int]] = {}
    for mine in stages.values():
        for stage, n in (mine if mine is not None else pd.Series(dtype="int64")).value_counts().items():
            seen.setdefault(int(str(stage)), set()).add(int(n))
    counts = {stage: numbers.pop() for stage, numbers in seen.items() if len(numbers) == 1}
    sizes = [int(table["pipeline_size"].iloc[0]) for key, table in places.items() if key in stages and pd.notna(table["pipeline_size"].iloc[0])]
    whole = max([1 + max(seen, default=-1), *sizes])
    missing = [stage for stage in range(whole) if stage not in seen]
    if not missing or not counts or len(set(counts.values())) > 1 or len(counts) < len(seen):
        return counts, []
    each = next(iter(counts.values()))
    counts |= dict.fromkeys(missing, each)
    which = ", ".join(map(str, missing))
    says = f"no trace of pipeline stages {which} is here: the numbers of layers assume that these hold {each} layers, as the others do"
    return counts, [finding("layer_numbers_assumed", Severity.INFO, says, count=len(missing))]


def _numbers(table: pd.DataFrame, stages: pd.Series[Any] | None, counts: Mapping[int, int]) -> dict[int, int] | None:
    """Number in the whole model by the rank's own number; None where it is unknown."""
    if stages is None or any(stage not in counts for stage in range(int(stages.max()) + 1)):
        return None
    within = table.assign(stage=stages).sort_values("number").groupby("stage").cumcount()
    before = {stage: sum(counts[s] for s in range(stage)) for stage in stages.unique().tolist()}
    return {int(n): before[s] + int(within[i]) for i, n, s in zip(table.index, table["number"], stages, strict=True)}


def _renamed(facts: RankFacts, numbers: Mapping[int, int]) -> RankFacts:
    """The facts with layers by their number in the whole model; without a name where that is unknown."""
    tables = {name: _table(frame, numbers) if "layer" in frame.columns and name != "layer_places" else frame for name, frame in facts.tables.items()}
    return RankFacts(facts.meta, tables)


def _table(frame: pd.DataFrame, numbers: Mapping[int, int]) -> pd.DataFrame:
    if not len(frame):
        return frame
    # a range that names its layer is not counted
    own = frame["layer_source"].isin(["fsdp", "range"]) if "layer_source" in frame else pd.Series(False, index=frame.index)
    columns: dict[str, Any] = {}
    for column in (c for c in _LABELS if c in frame):
        names = {name: _name(str(name), numbers) for name in frame[column].dropna().unique()}
        renamed = frame[column].map(names).astype(object)
        columns[column] = frame[column].where(own, renamed.where(renamed.notna(), None))
    if "layer_source" in frame:
        known = columns["layer"].notna()
        columns["layer_source"] = frame["layer_source"].astype(object).where(known, None)
    if "layer_index" in frame:
        columns["layer_index"] = columns["layer"].map(lambda name: layer_index(name) if isinstance(name, str) else None).astype("Int64")
    out = frame.assign(**columns)
    # per-layer tables without a layer would add to those of the whole: what has lost its name is left out
    if "layer_source" not in frame:
        out = out[out["layer"].notna() | frame["layer"].isna()]
    return out.reset_index(drop=True)


def _name(path: str, numbers: Mapping[int, int]) -> str | None:
    m = LAYER_INDEX.search(path)
    if m is None:
        return path
    number = numbers.get(int(m["index"]))
    return None if number is None else f"{path[: m.start('index')]}{number}{path[m.end('index') :]}"
