"""Communication under odd names, without kernels, without metadata, and what only looks like it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cases.case import case, codes, covers, devices


def rows(report: dict[str, Any], table: str) -> list[dict[str, Any]]:
    """A table of the collectives."""
    return list(report["metrics"]["collectives"]["tables"].get(table, []))


def summary(report: dict[str, Any]) -> dict[str, Any]:
    return dict(report["metrics"]["collectives"]["summary"])


def durations(report: dict[str, Any]) -> dict[str, list[float]]:
    """Kind -> durations of its calls in µs."""
    kind = {r["instance"]: r["kind"] for r in rows(report, "instances")}
    out: dict[str, list[float]] = {}
    for r in rows(report, "by_rank"):
        out.setdefault(kind[r["instance"]], []).append((r["end_ns"] - r["start_ns"]) / 1000)
    return out


def overlap_pct(report: dict[str, Any]) -> float | None:
    ratio = report["metrics"]["breakdown"]["summary"].get("overlap_of_comm_ratio")
    return None if ratio is None else ratio * 100


@covers("c02-sync-is-not-compute")
def test_waiting_for_a_stream_is_no_compute(shared: Path) -> None:
    one = case(shared, "c02-sync-is-not-compute")
    report = one.report()
    (row,) = devices(report)
    assert row["comm_ns"] == one.values["comm_us"] * 1000
    assert row["exposed_comm_ns"] == one.values["exposed_comm_us"] * 1000
    assert row["compute_ns"] == one.values["compute_us"] * 1000
    assert overlap_pct(report) == one.values["overlap_pct"]


@covers("c04-rocm-stream-zero")
def test_stream_zero_is_a_stream(shared: Path) -> None:
    one = case(shared, "c04-rocm-stream-zero")
    report = one.report()
    (row,) = devices(report)
    for column, key in (("compute_ns", "compute_us"), ("comm_ns", "comm_us"), ("exposed_comm_ns", "exposed_comm_us"), ("busy_ns", "busy_us")):
        assert row[column] == one.values[key] * 1000
    assert overlap_pct(report) == one.values["overlap_pct"]
    assert report["metrics"]["links"]["summary"]["launches_matched"] == one.values["launches_matched"]
    assert [(r["kind"], r["nbytes"]) for r in rows(report, "instances")] == [(None, None)]  # RCCL's one kernel does not tell


@covers("c06-barrier-as-allreduce")
def test_a_barrier_is_no_all_reduce_though_it_runs_as_one(shared: Path) -> None:
    one = case(shared, "c06-barrier-as-allreduce")
    report = one.report()
    assert durations(report) == {"barrier": [one.values["barrier_us"]], "all_reduce": [one.values["allreduce_us"]]}
    assert {r["kind"]: r["count"] for r in rows(report, "by_kind")}["all_reduce"] == one.values["allreduce_calls"]
    assert [r["busbw_gbps"] for r in rows(report, "by_kind") if r["kind"] == "barrier"] == [None]
    assert summary(report)["barriers"] == 1


@covers("c08-pair-by-sequence")
def test_calls_meet_by_their_number_and_not_by_their_length(shared: Path) -> None:
    one = case(shared, "c08-pair-by-sequence")
    report = one.report()
    assert summary(report)["transfer_total_ns"] == one.values["transfer_us"] * 1000
    for rank, wait in one.values["wait_us_by_rank"].items():
        assert sum(r["wait_ns"] for r in rows(report, "by_rank") if r["rank"] == int(rank)) == wait * 1000


@covers("c10-coalesced-p2p")
def test_a_batched_send_and_receive_are_one_kernel_and_no_collective(shared: Path) -> None:
    one = case(shared, "c10-coalesced-p2p")
    report = one.report()
    assert summary(report)["p2p_kernels"] == one.values["p2p_kernels"]
    assert summary(report)["p2p_kernel_total_ns"] == one.values["p2p_us"] * 1000
    assert summary(report)["instances"] == one.values["collectives"]
    assert [(r["src"], r["dst"], r["nbytes"], r["transfer_ns"]) for r in rows(report, "p2p")] == [(0, 4, 2048, None), (4, 0, 2048, None)]
    assert any("inferred" in note for note in report["metrics"]["collectives"]["notes"])


@covers("c12-overlapping-groups")
def test_groups_that_cross_and_share_names_stay_apart(shared: Path) -> None:
    one = case(shared, "c12-overlapping-groups")
    report = one.report()
    name = {r["instance"]: f"{r['axis']}{r['group_ranks']}".replace(" ", "") for r in rows(report, "instances")}
    transfer = {name[r["instance"]]: r["transfer_ns"] / 1000 for r in rows(report, "instances")}
    waits: dict[str, dict[str, float]] = {}
    for r in rows(report, "by_rank"):
        waits.setdefault(name[r["instance"]], {})[str(r["rank"])] = r["wait_ns"] / 1000
    assert (len(name), transfer, waits) == (one.values["collectives"], one.values["transfer_us"], one.values["wait_us"])


@covers("c14-ucc-backend")
def test_a_backend_without_kernels_leaves_host_time(shared: Path) -> None:
    one = case(shared, "c14-ucc-backend")
    report = one.report()
    counts = {r["kind"]: r["count"] for r in rows(report, "by_kind")}
    assert counts == {"all_reduce": one.values["collectives"]["allreduce"], "all_to_all": one.values["collectives"]["all_to_allv"]}
    assert {r["time_source"] for r in rows(report, "instances")} == {"host"}
    assert summary(report)["host_time_total_ns"] == one.values["host_us"] * 1000
    assert overlap_pct(report) == one.values["overlap_pct"]
    assert {r["exposed_ns"] for r in rows(report, "by_rank")} == {None}
    assert "host_time_only" in codes(report)


@covers("c16-async-tp-copies")
def test_copies_between_gpus_are_communication(shared: Path) -> None:
    one = case(shared, "c16-async-tp-copies")
    report = one.report()
    (row,) = devices(report)
    for column, key in (("compute_ns", "compute_us"), ("comm_ns", "comm_us"), ("exposed_comm_ns", "exposed_comm_us")):
        assert row[column] == one.values[key] * 1000
    assert row["memcpy_ns"] == 0
    assert overlap_pct(report) == one.values["overlap_pct"]
    assert summary(report)["nbytes"] == one.values["comm_bytes"]


@covers("c18-two-compute-streams")
def test_streams_side_by_side_do_not_add_up(shared: Path) -> None:
    one = case(shared, "c18-two-compute-streams")
    report = one.report()
    (row,) = devices(report, step=1)
    assert row["busy_ns"] == one.values["busy_us"] * 1000
    assert row["kernel_sum_ns"] == one.values["sum_us"] * 1000
    assert report["metrics"]["breakdown"]["summary"]["busy_ratio"] * 100 == one.values["busy_pct"]


@covers("c20-functional-collective")
def test_the_wait_of_a_functional_collective_is_no_collective(shared: Path) -> None:
    one = case(shared, "c20-functional-collective")
    report = one.report()
    assert durations(report) == {"all_gather": [one.values["comm_us"]]}
    assert summary(report)["instances"] == one.values["collectives"]
    assert summary(report)["host_wait_total_ns"] == one.values["host_wait_us"] * 1000
