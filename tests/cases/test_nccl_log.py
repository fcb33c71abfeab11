"""Logs of NCCL as launchers leave them: prefixed, glued together, cut."""

from __future__ import annotations

from pathlib import Path

from tests.cases.case import case, codes, covers


@covers("n01-nccl-log-tangled")
def test_a_tangled_log_gives_every_record_that_is_whole(shared: Path) -> None:
    one = case(shared, "n01-nccl-log-tangled")
    report = one.report()
    metric = report["metrics"]["records"]
    held, calls = metric["tables"]["communicators"], metric["tables"]["instances"]
    assert {row["handle"]: row["group_rank"] for row in held} == one.values["communicator_ranks"]
    assert {row["handle"]: row["rank"] for row in held} == one.values["communicator_ranks"]
    assert {row["group_size"] for row in [*held, *calls]} == {one.values["nranks"]}
    seen = [{"op": c["name"], "opCount": c["seq"], "bytes": c["rank_bytes"], "ranks": c["seen_by"]} for c in calls]
    assert seen == one.values["records"]
    assert [c["nbytes"] for c in calls] == [16384, 4 * 2000]
    assert {c["algorithm"] for c in calls} - {None} == {one.values["algorithm"]}
    assert {c["protocol"] for c in calls} - {None} == {one.values["protocol"]}
    (cut,) = [f for f in report["health"]["findings"] if f["code"] == "nccl_log_incomplete"]
    assert cut["count"] == one.values["incomplete_lines"] and cut["offset"] == (one.path / "nccl_debug.log").read_bytes().rindex(b"NCCL INFO")
    # rank 3's line is the one that was cut: whether it made the call is not known, and nothing says that it did not
    assert not codes(report) & {"rank_missing", "collective_missing_rank"}
    assert "missing" not in " ".join(f["message"] for f in report["health"]["findings"])
