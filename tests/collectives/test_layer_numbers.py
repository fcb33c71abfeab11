"""Layers that each rank counted from 0 get their numbers in the whole model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from tests.collectives.rows import facts
from tracekit import schema
from tracekit.job.layer_numbers import number_layers
from tracekit.trace import RankFacts


def ranks(*stages: Mapping[str, Any]) -> dict[tuple[int, int], RankFacts]:
    """Ranks 0, 1, … of a pipeline that each ran one collective per layer: ``layers`` (of each stage), ``stage``, ``size``."""
    out = {}
    for rank, given in enumerate(stages):
        of = given["stage"] if isinstance(given["stage"], list) else [given["stage"]] * given["layers"]
        paths = [f"layers.{n}" for n in range(given["layers"])]
        one = facts(rank, *({"at": (10 * n, 10 * n + 9), "layer": f"{path}.mlp", "layer_source": "inferred"} for n, path in enumerate(paths)))
        table = pd.DataFrame({"layer": paths, "number": range(len(paths)), "stage": of, "place": rank, "pipeline_size": given.get("size", len(stages))})
        places = schema.conform(table.assign(exchanges=True).astype({"stage": "Int64"}), schema.LAYER_PLACES)
        out[rank, 0] = RankFacts(one.meta, {**one.tables, "layer_places": places})
    return out


def told(given: dict[tuple[int, int], RankFacts]) -> tuple[list[list[str | None]], list[str]]:
    """Layers of each rank's calls, and the codes of the findings."""
    numbered, findings = number_layers(given)
    return [[x if isinstance(x, str) else None for x in one["calls"]["layer"]] for one in numbered.values()], [f["code"] for f in findings]


def test_a_stage_goes_on_where_the_one_before_it_ended() -> None:
    layers, codes = told(ranks({"layers": 1, "stage": 0}, {"layers": 3, "stage": 1}, {"layers": 2, "stage": 2}))
    assert layers == [["layers.0.mlp"], ["layers.1.mlp", "layers.2.mlp", "layers.3.mlp"], ["layers.4.mlp", "layers.5.mlp"]]
    assert codes == []


def test_virtual_stages_of_a_rank_lie_apart() -> None:
    layers, _ = told(ranks({"layers": 4, "stage": [0, 0, 2, 2]}, {"layers": 4, "stage": [1, 1, 3, 3]}))
    assert layers == [[f"layers.{n}.mlp" for n in (0, 1, 4, 5)], [f"layers.{n}.mlp" for n in (2, 3, 6, 7)]]


def test_a_missing_stage_is_like_the_others_if_these_are_alike() -> None:
    job = ranks({"layers": 2, "stage": 0, "size": 3}, {"layers": 2, "stage": 2, "size": 3})
    assert told(job) == ([["layers.0.mlp", "layers.1.mlp"], ["layers.4.mlp", "layers.5.mlp"]], ["layer_numbers_assumed"])


def test_behind_a_missing_stage_of_unknown_size_layers_have_no_name() -> None:
    job = ranks({"layers": 2, "stage": 0, "size": 3}, {"layers": 1, "stage": 2, "size": 3})
    assert told(job) == ([["layers.0.mlp", "layers.1.mlp"], [None]], ["layer_numbers_unknown"])


def test_without_a_stage_layers_have_no_name() -> None:
    job = ranks({"layers": 2, "stage": None}, {"layers": 2, "stage": None})
    assert told(job) == ([[None, None], [None, None]], ["layer_numbers_unknown"])


def test_without_a_pipeline_the_counts_stand() -> None:
    job = ranks({"layers": 2, "stage": None, "size": 1})
    places = job[0, 0]["layer_places"].assign(exchanges=False)
    job = {key: RankFacts(one.meta, {**one.tables, "layer_places": places}) for key, one in job.items()}
    numbered, findings = number_layers(job)
    assert numbered[0, 0] is job[0, 0] and findings == []
