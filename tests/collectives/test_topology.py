"""Groups become mesh axes, missing ranks are named, and groups without a name are inferred from common ends."""

from __future__ import annotations

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


def test_a_group_as_large_as_the_job_holds_every_rank() -> None:
    row = {"seq": 3, "at": (0, 9), "group_ranks": None, "group_size": 2}
    job = build({(r, 0): facts(r, row, world_size=2) for r in (0, 1)})
    assert job.instances[["group_ranks", "matched_ranks", "axis"]].values.tolist() == [["0,1", 2, "world"]]
