"""Groups become mesh axes, missing ranks are named, and groups without a name are inferred from common ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.collectives.rows import calls, facts
from tracekit.group_ranks import compact
from tracekit.job.assemble import build
from tracekit.job.inference import infer_groups
from tracekit.job.topology import mesh_groups


def test_the_mesh_of_run_json_names_every_group() -> None:
    assert mesh_groups({"pp": 2, "dp_replicate": 1, "tp": 2}, 4) == {"0,2": "pp", "1,3": "pp", "0,1": "tp", "2,3": "tp"}


def test_merged_data_axes_have_a_name_too() -> None:
    got = mesh_groups({"dp_replicate": 2, "dp_shard": 2, "tp": 2}, 8)
    assert got["0,2,4,6"] == got["1,3,5,7"] == "dp"
    assert (got["0,4"], got["0,2"], got["0,1"]) == ("dp_replicate", "dp_shard", "tp")


def test_a_mesh_that_does_not_fit_the_world_names_nothing() -> None:
    assert mesh_groups({"tp": 4}, 6) == {}


def test_missing_ranks_are_named() -> None:
    job = build({(r, 0): facts(r, world_size=16) for r in (0, 1, 4, 8)})
    (finding,) = job.findings
    assert (finding["code"], finding["severity"], finding["count"]) == ("rank_missing", "warning", 12)
    assert "ranks 2-3,5-7,9-15 of 16" in finding["message"]


def test_hosts_that_no_call_links_are_warned_about() -> None:
    apart = [{"seq": 1, "at": (0, 9), "group_ranks": ranks} for ranks in ("0,2", "1,3")]
    job = build({(r, 0): facts(r, apart[r], host=host) for r, host in enumerate("ab")})
    assert "clocks_not_aligned" in [f["code"] for f in job.findings]
    together = {"seq": 1, "at": (0, 9)}
    job = build({(r, 0): facts(r, together, host=host) for r, host in enumerate("ab")})
    assert "clocks_not_aligned" not in [f["code"] for f in job.findings]


def test_a_group_described_as_tp_is_tp_and_the_default_group_beside_it_the_world() -> None:
    rows = [{"seq": 1, "at": (0, 9), "group_desc": "mesh_tp"}, {"seq": 1, "at": (10, 12), "group": "0", "group_desc": "default_pg"}]
    job = build({(r, 0): facts(r, *rows, world_size=2) for r in (0, 1)})
    assert job.instances[["group", "axis"]].values.tolist() == [["tp", "tp"], ["0", "world"]]
    assert job.mesh == {"tp": 2}


def test_the_default_group_of_a_one_dimensional_mesh_lies_on_its_axis() -> None:
    run = {"world_size": 2, "mesh": {"dp_shard": 2}}
    row = {"seq": 1, "at": (0, 9), "group_desc": "default_pg", "direction": "forward", "kind": "all_gather"}
    job = build({(r, 0): facts(r, row, run=run) for r in (0, 1)})
    assert job.instances[["axis", "direction"]].values.tolist() == [["dp_shard", "parameter"]]


def test_use_tells_the_axis_where_nothing_else_does() -> None:
    rows = [{"seq": 1, "at": (0, 9), "direction": "gradient"}]
    job = build({(r, 0): facts(r, *rows, world_size=4) for r in range(2)})
    assert job.axis_of["0,1"] == "dp"
    assert "axes_inferred" in [f["code"] for f in job.findings]


@pytest.mark.parametrize(
    ("used", "axis"),
    [
        ([("forward", "all_reduce", None), ("backward", "all_reduce", None)], "tp"),
        ([("forward", "all_gather", None), ("forward", "reduce_scatter", None)], "tp"),
        ([("forward", "all_gather", None), ("backward", "reduce_scatter", None)], "cp"),
        ([("forward", "all_to_all", "layers.0.mlp"), ("backward", "all_to_all", "layers.0.mlp")], "ep"),
        ([("forward", "all_to_all", "layers.0.attention")], "cp"),
        ([("forward", "all_to_all", None)], None),
        ([("parameter", "all_gather", None), ("gradient", "reduce_scatter", None)], "dp"),
        ([("forward", "all_reduce", None), ("gradient", "all_reduce", None)], None),
    ],
)
def test_each_way_of_splitting_a_model_has_its_signature(used: list[tuple[str, str, str | None]], axis: str | None) -> None:
    rows = [{"seq": i, "at": (10 * i, 10 * i + 9), "direction": d, "kind": k, "layer": layer} for i, (d, k, layer) in enumerate(used)]
    job = build({(r, 0): facts(r, *rows, world_size=4) for r in range(2)})
    assert job.axis_of.get("0,1") == axis


def test_compact_names_runs_of_ranks() -> None:
    assert compact([7, 0, 1, 2, 5]) == "0-2,5,7"


def test_streams_that_end_together_are_a_group() -> None:
    none = {"group": None, "group_ranks": None}
    ends = {0: (100, 300), 1: (100, 300), 2: (150, 420), 3: (150, 420)}  # in µs; ranks 0 and 1, 2 and 3 end together
    rows = [{"rank": r, "at": (1000 * e - 40_000 - r, 1000 * e), **none} for r, pair in ends.items() for e in pair]
    got = infer_groups(calls(*rows))
    assert got.drop_duplicates("rank")[["rank", "group_ranks", "inferred"]].values.tolist() == [
        [0, "0,1", True],
        [1, "0,1", True],
        [2, "2,3", True],
        [3, "2,3", True],
    ]


def test_one_common_end_is_no_proof() -> None:
    none = {"group": None, "group_ranks": None}
    got = infer_groups(calls({"rank": 0, "at": (0, 9), **none}, {"rank": 1, "at": (2, 9), **none}))
    assert got["group_ranks"].isna().all() and not got["inferred"].any()


def test_calls_that_never_overlap_in_time_are_no_group() -> None:
    none = {"group": None, "group_ranks": None}
    rows = [{"rank": r, "at": (t + 5_000 * r, t + 5_000 * r + 2_000), **none} for r in (0, 1) for t in (0, 10**6)]
    assert infer_groups(calls(*rows))["group_ranks"].isna().all()


NONE = {"group": None, "group_ranks": None}


def streams(*offsets_and_ends: tuple[int, list[int]]) -> list[dict[str, Any]]:
    """Calls of ranks 0, 1, … that end at these times in µs, on clocks that are ahead by so much."""
    return [{"rank": r, "at": (1000 * (e + o) - 40_000, 1000 * (e + o)), **NONE} for r, (o, ends) in enumerate(offsets_and_ends) for e in ends]


def test_on_clocks_that_are_apart_ends_that_keep_one_distance_are_a_group() -> None:
    one, other = [100, 250, 470, 520, 800, 910, 1200, 1330], [110, 230, 440, 530, 760, 950, 1170, 1390]
    got = infer_groups(calls(*streams((0, one), (7_000, one), (0, other), (7_000, other))))
    assert got.groupby("rank")["group_ranks"].first().tolist() == ["0,1", "0,1", "2,3", "2,3"]


def test_a_few_ends_that_keep_one_distance_are_no_proof() -> None:
    got = infer_groups(calls(*streams((0, [100, 250, 470]), (7_000, [100, 250, 470]))))
    assert got["group_ranks"].isna().all()


def test_on_clocks_that_nothing_links_a_part_is_not_taken_for_the_group() -> None:
    ends = [100, 250, 470]
    frame = calls(*streams((0, ends), (0, ends), (7_000, ends)))
    assert infer_groups(frame).groupby("rank")["group_ranks"].first().tolist() == ["0,1", "0,1", None]
    assert infer_groups(frame, {(0, 0): 0, (0, 1): 0, (0, 2): 2})["group_ranks"].isna().all()


def test_calls_of_no_known_group_are_a_warning_where_there_are_several_ranks() -> None:
    ends = [100, 250, 470]
    rows = {r: [{"at": (1000 * (e + 7_000 * r) - 40_000, 1000 * (e + 7_000 * r)), **NONE} for e in ends] for r in (0, 1, 2)}
    job = build({(r, 0): facts(r, *mine) for r, mine in rows.items()})
    assert [(f["severity"], f["count"]) for f in job.findings if f["code"] == "groups_unknown"] == [("warning", 9)]
    assert "groups_unknown" not in [f["code"] for f in build({(0, 0): facts(0, *rows[0])}).findings]


def test_a_group_as_large_as_the_job_holds_every_rank() -> None:
    row = {"seq": 3, "at": (0, 9), "group_ranks": None, "group_size": 2}
    job = build({(r, 0): facts(r, row, world_size=2) for r in (0, 1)})
    assert job.instances[["group_ranks", "matched_ranks", "axis"]].values.tolist() == [["0,1", 2, "world"]]
