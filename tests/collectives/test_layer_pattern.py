"""Which scheme do tensor-parallel layers follow, and is a layer that differs from its siblings told?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collectives.rows import facts
from tracekit.analysis import Analysis
from tracekit.job.assemble import build
from tracekit.job.base import Job
from tracekit.job.layer_pattern import layer_pattern
from tracekit.job.layer_siblings import usual
from tracekit.metrics.collectives import METRIC

Issued = Mapping[str, Sequence[str]]
AR, AG, RS = "all_reduce", "all_gather", "reduce_scatter"
TENSOR: Issued = {"forward": [AR, AR], "backward": [AR, AR]}
ONE_MORE: Issued = {"forward": [AR, AR, AR], "backward": [AR, AR]}
ONE_LESS: Issued = {"forward": [AR, AR], "backward": [AR]}


def sequence(gathered_again: int = 0) -> Issued:
    return {"forward": [AG, RS, AG, RS], "backward": [AG, RS, AG, RS] + [AG] * gathered_again}


def job(
    layers: Sequence[tuple[str, Issued]] | Mapping[str, Issued],
    *others: Mapping[str, Any],
    microbatches: Sequence[int | None] = (0, 1),
    steps: Sequence[int] = (1,),
    source: str = "range",
    run: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Job:
    """Two ranks, on which every layer issues its collectives in every step and microbatch; ``others`` follow, as they are."""
    listed = list(layers.items()) if isinstance(layers, Mapping) else list(layers)
    rows: list[dict[str, Any]] = [
        {"step": s, "microbatch": m, "layer": layer, "layer_source": source, "direction": d, "kind": k, "nbytes": (sizes or {}).get(layer, 900)}
        for s in steps
        for m in microbatches
        for layer, issued in listed
        for d, kinds in issued.items()
        for k in kinds
    ]
    rows += [dict(row) for row in others]
    rows = [{"group_desc": "mesh_tp", **row, "seq": i, "at": (1000 * i, 1000 * i + 100)} for i, row in enumerate(rows)]
    return build({(r, 0): facts(r, *rows, world_size=2, run=dict(run or {})) for r in (0, 1)})


@pytest.fixture(scope="module")
def several() -> Job:
    """Layers of many patterns, in two stacks."""
    issued = (TENSOR, ONE_MORE, sequence(1), TENSOR, {**TENSOR, "recompute": [AR]})
    return job({**layers(*issued), "deep.layers.0": ONE_LESS})


def findings(of: Job) -> list[tuple[str, str]]:
    return [(f["severity"], f["message"].split(";")[0]) for f in Analysis(of).health()["findings"] if f["code"] == "layer_differs"]


def layers(*issued: Issued) -> dict[str, Issued]:
    return {f"layers.{i}": one for i, one in enumerate(issued)}


@pytest.mark.parametrize(
    ("issued", "variant"),
    [
        (TENSOR, "tensor_parallel"),
        (sequence(), "sequence_parallel"),
        (sequence(1), "sequence_parallel_regather_1"),
        (sequence(2), "sequence_parallel_regather_2"),
    ],
)
def test_the_scheme_has_a_name(issued: Issued, variant: str) -> None:
    result = METRIC.compute(job(layers(issued, issued, issued)))
    assert result.summary["tp_variant"] == variant
    assert result.summary["tp_pattern_holds"] is True
    assert (result.summary["tp_layers"], result.summary["tp_layers_that_differ"]) == (3, 0)
    assert set(result.tables["layer_pattern"]["variant"]) == {variant}


@pytest.mark.parametrize(
    ("issued", "says"),
    [
        (ONE_MORE, "no scheme that is known has per layer and microbatch 2 all_reduce backward, 3 all_reduce forward"),
        (sequence(3), "5 all_gather backward, 2 reduce_scatter backward, 2 all_gather forward, 2 reduce_scatter forward"),
        ({"forward": [AR, AR]}, "no scheme that is known has per layer and microbatch 2 all_reduce forward"),
        ({"recompute": [AR]}, "they are recomputation only"),
    ],
)
def test_any_other_scheme_has_none_and_says_what_there_is(issued: Issued, says: str) -> None:
    result = METRIC.compute(job(layers(issued, issued)))
    assert result.summary["tp_variant"] is None
    assert any(says in note for note in result.notes)


def test_the_table_has_a_row_per_layer_direction_and_kind() -> None:
    table = job({"layers.0.attention": {"forward": [AR], "backward": [AR]}, "layers.0.mlp": {"forward": [AR], "backward": [AR]}}, steps=(1, 2)).pattern.table
    columns = ["layer", "layer_index", "direction", "kind", "cells", "count_min", "count_max", "expected", "holds", "nbytes_min", "duration_mean_ns"]
    assert table[columns].values.tolist() == [
        ["layers.0", 0, "backward", AR, 4, 2, 2, 2, True, 900, 200],
        ["layers.0", 0, "forward", AR, 4, 2, 2, 2, True, 900, 200],
    ]


def test_one_more_all_reduce_in_one_layer_is_a_finding() -> None:
    odd = job(layers(TENSOR, TENSOR, ONE_MORE, TENSOR))
    assert findings(odd) == [("warning", "layers.2 (1 of 4 layers): 3 all_reduce per microbatch in forward, their siblings 2")]
    assert odd.pattern.variant == "tensor_parallel"
    row = odd.pattern.table[odd.pattern.table["differs"].eq(True)]
    assert row[["layer", "direction", "kind", "count_max", "siblings_min", "siblings_max", "expected", "holds"]].values.tolist() == [
        ["layers.2", "forward", AR, 3, 2, 2, 2, False]
    ]
    assert Analysis(odd).health()["verdict"] == "warnings"


def test_a_kind_that_no_other_layer_issues_is_a_finding() -> None:
    odd = job(layers(TENSOR, {"forward": [AR, AR, "broadcast"], "backward": [AR, AR]}, TENSOR, TENSOR))
    assert findings(odd) == [("warning", "layers.1 (1 of 4 layers): 1 broadcast per microbatch in forward, their siblings 0")]


def test_a_collective_on_the_wrong_layer_is_two_findings() -> None:
    odd = job(layers(TENSOR, ONE_MORE, {"forward": [AR], "backward": [AR, AR]}, TENSOR, TENSOR))
    assert [says for _, says in findings(odd)] == [
        "layers.1 (1 of 5 layers): 3 all_reduce per microbatch in forward, their siblings 2",
        "layers.2 (1 of 5 layers): 1 all_reduce per microbatch in forward, their siblings 2",
    ]


def test_layers_that_differ_alike_are_one_finding() -> None:
    odd = job(layers(*[ONE_MORE if i in (3, 7) else TENSOR for i in range(10)]))
    assert findings(odd) == [("warning", "layers.3, layers.7 (2 of 10 layers): 3 all_reduce per microbatch in forward, their siblings 2")]


def test_another_size_is_a_finding() -> None:
    odd = job(layers(TENSOR, TENSOR, TENSOR, TENSOR), sizes={"layers.1": 450})
    assert findings(odd) == [
        ("warning", "layers.1 (1 of 4 layers): all_reduce of 450 bytes in backward, their siblings 900"),
        ("warning", "layers.1 (1 of 4 layers): all_reduce of 450 bytes in forward, their siblings 900"),
    ]


def test_a_difference_in_one_microbatch_is_found() -> None:
    more = {"step": 1, "microbatch": 1, "layer": "layers.1", "layer_source": "range", "direction": "forward", "kind": AR, "nbytes": 900}
    assert findings(job(layers(TENSOR, TENSOR, TENSOR), more)) == [
        ("warning", "layers.1 (1 of 3 layers): 2 to 3 all_reduce per microbatch in forward, their siblings 2")
    ]


@pytest.mark.parametrize("issued", [ONE_MORE, ONE_LESS])
@pytest.mark.parametrize("at", [0, 3])
def test_at_the_ends_of_a_stack_it_is_only_remarked(at: int, issued: Issued) -> None:
    odd = job(layers(*[issued if i == at else TENSOR for i in range(4)]))
    assert [severity for severity, _ in findings(odd)] == ["info"]
    assert Analysis(odd).health()["verdict"] == "ok"


def test_with_inferred_layers_it_is_only_remarked() -> None:
    odd = job(layers(TENSOR, TENSOR, ONE_MORE, TENSOR), source="inferred")
    assert [severity for severity, _ in findings(odd)] == ["info"]
    assert odd.pattern.table["inferred"].all()


@pytest.mark.parametrize(("issued", "severity"), [(ONE_LESS, "info"), (ONE_MORE, "warning")])
def test_too_few_are_only_remarked_while_others_name_no_layer(issued: Issued, severity: str) -> None:
    nameless = {"step": 1, "microbatch": 0, "direction": "backward", "kind": AR}
    assert [s for s, _ in findings(job(layers(TENSOR, TENSOR, issued, TENSOR), nameless))] == [severity]


@pytest.mark.parametrize(
    "issued",
    [
        (TENSOR,),
        (TENSOR, ONE_MORE),
        (TENSOR, ONE_MORE, ONE_LESS),
        (TENSOR, ONE_MORE) * 4,
        (TENSOR, TENSOR, TENSOR, ONE_MORE) * 4,
        (TENSOR, ONE_MORE, ONE_LESS) * 3,
    ],
    ids=["one layer", "two unlike", "three unlike", "every second", "every fourth", "three kinds"],
)
def test_where_no_layer_is_the_odd_one_there_is_no_finding(issued: tuple[Issued, ...]) -> None:
    assert findings(job(layers(*issued))) == []


def test_layers_of_several_kinds_have_no_one_scheme() -> None:
    result = METRIC.compute(job(layers(*(TENSOR, ONE_MORE) * 4)))
    assert result.summary["tp_variant"] is None and result.summary["tp_layers_that_differ"] == 0
    assert any("the layers follow several schemes: none that is known in 4 layers, tensor_parallel in 4 layers" in note for note in result.notes)


def test_layers_with_experts_are_compared_with_each_other() -> None:
    """A first layer without experts has no sibling: it is not odd, it is another kind of layer."""
    experts: Issued = {"forward": [AR], "backward": [AR]}
    exchange = [
        {"step": 1, "microbatch": 0, "layer": f"layers.{i}.moe", "direction": "forward", "kind": "all_to_all", "group": "ep", "group_desc": "mesh_ep"}
        for i in (1, 2, 3, 4)
    ]
    moe = job(layers(TENSOR, experts, experts, experts, experts), *exchange)
    assert findings(moe) == []
    assert moe.pattern.table.set_index("layer")["differs"].groupby("layer").first().isna().to_dict() == {f"layers.{i}": i == 0 for i in range(5)}


def test_stacks_of_several_models_are_compared_apart() -> None:
    both = {**{f"vision.layers.{i}": ONE_MORE for i in range(2)}, **{f"text.layers.{i}": TENSOR for i in range(9)}}
    assert findings(job(both)) == []


def test_what_recomputation_issues_again_is_counted_apart() -> None:
    again = {**TENSOR, "recompute": [AR]}
    result = METRIC.compute(job(layers(again, again, again, TENSOR), steps=(1, 2)))
    assert result.summary["tp_variant"] == "tensor_parallel" and result.summary["tp_pattern_holds"] is True
    assert (result.summary["recompute_instances"], result.summary["recompute_total_ns"]) == (3 * 2 * 2, 3 * 2 * 2 * 2 * 100)
    assert result.summary["tp_recompute_per_layer_microbatch"] is None, "the last layer repeats nothing"
    assert result.summary["tp_recompute_duration_per_layer_microbatch_ns"] == 75
    table = result.tables["layer_pattern"]
    repeated = table[table["direction"].eq("recompute")]
    assert repeated[["layer", "count_max", "duration_mean_ns"]].values.tolist() == [
        ["layers.0", 1, 100],
        ["layers.1", 1, 100],
        ["layers.2", 1, 100],
        ["layers.3", 0, 0],
    ]
    assert repeated["expected"].isna().all() and repeated["differs"].isna().all()
    assert findings(job(layers(again, TENSOR, TENSOR, TENSOR))) == []


def test_recomputation_that_every_layer_does_has_one_number() -> None:
    again = {**TENSOR, "recompute": [AR, AR]}
    assert METRIC.compute(job(layers(again, again))).summary["tp_recompute_per_layer_microbatch"] == 2
    assert METRIC.compute(job(layers(TENSOR, TENSOR))).summary["tp_recompute_per_layer_microbatch"] == 0
    assert METRIC.compute(job({})).summary.get("tp_recompute_per_layer_microbatch") is None


def test_without_microbatch_numbers_a_step_is_divided_by_their_stated_number() -> None:
    stated = job(layers(TENSOR, TENSOR, ONE_MORE, TENSOR), microbatches=(None,) * 4, run={"training": {"microbatches": 4}})
    assert stated.pattern.variant == "tensor_parallel"
    assert stated.pattern.table["cells"].tolist() == [1] * 8
    assert findings(stated) == [("warning", "layers.2 (1 of 4 layers): 3 all_reduce per microbatch in forward, their siblings 2")]


@pytest.mark.parametrize("microbatches", [(None, None), (0, None)])
def test_without_any_number_of_microbatches_layers_are_still_compared(microbatches: tuple[int | None, ...]) -> None:
    unstated = job(layers(TENSOR, TENSOR, ONE_MORE, TENSOR), microbatches=microbatches)
    assert findings(unstated) == [("warning", "layers.2 (1 of 4 layers): more or fewer all_reduce collectives in forward than their siblings")]
    result = METRIC.compute(unstated)
    assert result.summary["tp_variant"] is None and result.summary["tp_all_reduce_forward_per_layer_microbatch"] is None
    assert result.tables["layer_pattern"][["count_min", "expected", "variant", "duration_mean_ns"]].isna().all(axis=None)
    assert any("their microbatches are neither numbered nor stated in run.json" in note for note in result.notes)


def test_embedding_and_head_are_no_layer() -> None:
    around = [{"step": 1, "microbatch": m, "layer": name, "direction": "forward", "kind": AR} for m in (0, 1) for name in ("embedding.token", "head")]
    result = METRIC.compute(job(layers(TENSOR, TENSOR), *around))
    assert result.summary["tp_variant"] == "tensor_parallel" and result.summary["tp_layers"] == 2
    assert findings(job(layers(TENSOR, TENSOR), *around)) == []


def test_other_axes_are_no_part_of_it() -> None:
    gradients = [{"step": 1, "layer": "layers.1", "direction": "backward", "kind": AR, "group": "dp", "group_desc": "mesh_dp_replicate"}]
    assert job(layers(TENSOR, TENSOR), *gradients).pattern.variant == "tensor_parallel"
    alone = job({}, *gradients)
    assert (len(alone.pattern.table), alone.pattern.variant, alone.pattern.reason) == (0, None, None)


def test_collectives_without_a_layer_follow_no_scheme_and_say_why() -> None:
    nameless = job({}, {"step": 1, "microbatch": 0, "direction": "forward", "kind": AR})
    assert (nameless.pattern.variant, nameless.pattern.reason, nameless.pattern.nameless) == (None, "they name no layer", 1)
    assert any("unknown: they name no layer" in note for note in METRIC.compute(nameless).notes)


def test_collectives_outside_steps_are_not_counted() -> None:
    outside = job({}, {"step": None, "microbatch": 0, "direction": "forward", "kind": AR, "layer": "layers.0"})
    assert (len(outside.pattern.table), outside.pattern.reason) == (0, "they lie in no step")


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_the_records_changes_nothing(several: Job, random: Random) -> None:
    instances, by_rank = several.instances, several.by_rank
    order = random.sample(range(len(instances)), len(instances))
    again = layer_pattern(instances.iloc[order].reset_index(drop=True), by_rank.iloc[::-1].reset_index(drop=True), frozenset(), None)
    pd.testing.assert_frame_equal(again.table, several.pattern.table)
    assert (again.variant, again.reason) == (several.pattern.variant, several.pattern.reason)


@given(st.lists(st.integers(0, 3), max_size=12), st.randoms(use_true_random=False))
def test_siblings_do_not_depend_on_the_order_of_the_layers(patterns: list[int], random: Random) -> None:
    named = {f"layers.{i}": pattern for i, pattern in enumerate(patterns)}
    shuffled = dict(random.sample(list(named.items()), len(named)))
    assert usual(shuffled) == usual(named)


@given(st.integers(3, 40), st.integers(0, 39))
def test_a_single_odd_one_has_all_others_as_siblings(number: int, odd: int) -> None:
    named = {str(i): "odd" if i == odd % number else "even" for i in range(number)}
    assert usual(named) == dict.fromkeys(named, "even")


@given(st.lists(st.integers(0, 3), max_size=12))
def test_siblings_are_a_pattern_that_a_quarter_and_at_least_two_share(patterns: list[int]) -> None:
    found = usual({str(i): p for i, p in enumerate(patterns)})
    kinds = {p for p in patterns if 4 * patterns.count(p) >= len(patterns) and patterns.count(p) >= 2}
    agree = bool(kinds) and 2 * sum(p in kinds for p in patterns) >= len(patterns)
    for i, pattern in enumerate(patterns):
        sibling = found[str(i)]
        assert (sibling in kinds) if agree else (sibling is None)
        assert pattern not in kinds or not agree or sibling == pattern
