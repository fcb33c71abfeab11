"""The metric over what logs state: joined over ranks, of whoever states it, and never about anybody else."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.readers.test_nccl_inspector import ALL_REDUCE, REDUCE_SCATTER, line
from tests.records.logs import call, init, split
from tracekit import analyze, schema
from tracekit.job.base import Job
from tracekit.metrics.records import METRIC
from tracekit.readers import nccl_log
from tracekit.reading import DEFAULT
from tracekit.trace import RankFacts


def report(folder: Path, **files: list[str]) -> dict[str, Any]:
    """The metric of some logs."""
    for name, lines in files.items():
        (folder / f"{name}.log").write_text("\n".join(lines) + "\n")
    return dict(analyze(folder, workers=1).to_dict()["metrics"]["records"])


def job(*lines: str) -> Job:
    """The ranks of one log."""
    traces = nccl_log.read("\n".join(lines).encode(), Path("nccl.log"), DEFAULT)
    return Job({(t.meta.rank or 0, 0): RankFacts(t.meta, {n: schema.conform(t.stated[n], schema.STATED[n]) for n in t.stated}) for t in traces})


def test_calls_of_several_files_are_one_where_group_number_and_kind_agree(tmp_path: Path) -> None:
    files = {f"rank{p}": [init(p, p, 3), call(p, "AllReduce", 5, count=10, size=3), call(p, "AllGather", 6, count=10, size=3)] for p in (0, 2)}
    metric = report(tmp_path, **files, rank1=[init(1, 1, 3), call(1, "AllReduce", 5, count=10, size=3)])
    seen = [(i["kind"], i["seq"], i["group_ranks"], i["seen_by"], i["nbytes"], i["rank_bytes"]) for i in metric["tables"]["instances"]]
    assert seen == [("all_reduce", 5, [0, 1, 2], [0, 1, 2], 40, 40), ("all_gather", 6, [0, 1, 2], [0, 2], 120, 40)]
    assert metric["summary"]["collectives"] == 2 and metric["summary"]["collectives_seen_by_all"] == 1


def test_members_of_a_group_are_found_over_files(tmp_path: Path) -> None:
    files = {f"rank{p}": [init(p, p, 4), split(p, p // 2, 2, p % 2, handle="0x66"), call(p, "AllReduce", 1, size=2, handle="0x66")] for p in range(4)}
    metric = report(tmp_path, **files)
    assert [(i["group_ranks"], i["seen_by"]) for i in metric["tables"]["instances"]] == [([0, 2], [0, 2]), ([1, 3], [1, 3])]
    assert {(g["group"], tuple(g["group_ranks"])) for g in metric["tables"]["groups"]} == {
        ("0xabc1", (0, 1, 2, 3)),
        ("0xabc1/1:0", (0, 2)),
        ("0xabc1/1:1", (1, 3)),
    }


def test_of_ranks_without_a_log_only_that_is_said(tmp_path: Path) -> None:
    metric = report(tmp_path, rank2=[init(2, 2, 4), call(2, "AllReduce", 1)])
    (group,) = metric["tables"]["groups"]
    assert (group["ranks_here"], group["ranks_not_here"]) == ([2], [0, 1, 3])
    (instance,) = metric["tables"]["instances"]
    assert instance["seen_by"] == [2] and "missing" not in " ".join(metric["notes"])


def test_calls_of_one_group_of_calls_share_their_number_and_keep_their_order(tmp_path: Path) -> None:
    lines = {f"rank{p}": [init(p, p, 2), *[call(p, "AllReduce", 3, count=c, size=2) for c in (10, 20, 10)]] for p in range(2)}
    metric = report(tmp_path, **lines)
    assert [(i["seq"], i["nbytes"], i["seen_by"]) for i in metric["tables"]["instances"]] == [(3, 40, [0, 1]), (3, 80, [0, 1]), (3, 40, [0, 1])]


def test_sizes_on_which_ranks_disagree_are_unknown(tmp_path: Path) -> None:
    metric = report(tmp_path, **{f"rank{p}": [init(p, p, 2), call(p, "AllReduce", 3, count=10 + p, size=2)] for p in range(2)})
    (instance,) = metric["tables"]["instances"]
    assert instance["nbytes"] is None and instance["seen_by"] == [0, 1]


def test_where_sends_move_the_count_collectives_meet_in_their_order(tmp_path: Path) -> None:
    # rank 0 and 1 send to each other, rank 2 does not: its opCount stays behind
    busy = [
        [call(p, "Send" if p == 0 else "Recv", 1, root=1 - p, size=3), call(p, "AllReduce", 2, count=7, size=3), call(p, "AllReduce", 3, count=8, size=3)]
        for p in (0, 1)
    ]
    idle = [call(2, "AllReduce", 1, count=7, size=3), call(2, "AllReduce", 2, count=8, size=3)]
    metric = report(tmp_path, **{f"rank{p}": [init(p, p, 3), *lines] for p, lines in enumerate([*busy, idle])})
    assert [(i["nbytes"], i["seen_by"], i["seq"], i["matched_by"]) for i in metric["tables"]["instances"]] == [
        (28, [0, 1, 2], None, "order"),
        (32, [0, 1, 2], None, "order"),
    ]
    (pair,) = metric["tables"]["p2p"]
    assert (pair["src"], pair["dst"], pair["order"], pair["sent_bytes"], pair["received_bytes"], pair["seen_by"]) == (0, 1, 0, 4000, 4000, [0, 1])


def test_a_send_without_its_receive_stands_alone(tmp_path: Path) -> None:
    metric = report(tmp_path, rank0=[init(0, 0, 2), *[call(0, "Send", 1, root=1, size=2)] * 2], rank1=[init(1, 1, 2), call(1, "Recv", 1, root=0, size=2)])
    assert [(p["order"], p["sent_bytes"], p["received_bytes"], p["seen_by"]) for p in metric["tables"]["p2p"]] == [
        (0, 4000, 4000, [0, 1]),
        (1, 4000, None, [0]),
    ]
    assert metric["summary"]["p2p_seen_by_both"] == 1


def test_bandwidth_is_shown_as_stated_and_as_computed(tmp_path: Path) -> None:
    wrong = {**ALL_REDUCE, "coll_sn": 1408, "coll_busbw_gbs": 400.0}
    lines = [line(0, coll_perf=body) for body in (ALL_REDUCE, REDUCE_SCATTER, wrong)]
    (tmp_path / "node-a-pid100.log").write_text("\n".join(map(json.dumps, lines)))
    metric = analyze(tmp_path, workers=1).to_dict()["metrics"]["records"]
    first, second, third = metric["tables"]["instances"]
    assert first["busbw_stated_max_gbps"] == 485.119099 and first["busbw_computed_max_gbps"] == pytest.approx(485.119099, abs=5e-7)
    assert second["busbw_stated_max_gbps"] == 366.134533 and second["busbw_computed_max_gbps"] == pytest.approx(366.134533, abs=5e-7)
    assert metric["summary"]["busbw_difference_max_ratio"] == pytest.approx(485.119099 / 400 - 1, rel=1e-6)
    assert third["busbw_stated_max_gbps"] == 400.0
    by_kind = {row["kind"]: row for row in metric["tables"]["by_kind"]}
    assert by_kind["reduce_scatter"]["busbw_difference_max_ratio"] < 1e-8 < by_kind["all_reduce"]["busbw_difference_max_ratio"]
    assert by_kind["all_reduce"]["records"] == 2 and by_kind["all_reduce"]["algorithm"] == "Ring"


def test_nothing_to_say_is_said_so() -> None:
    result = METRIC.compute(Job({}))
    assert not result.available and "NCCL_DEBUG" in str(result.reason)


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["AllReduce", "AllGather", "Broadcast"]), st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=14
    )
)
def test_joining_is_that_of_a_plain_loop(calls: list[tuple[int, str, int, int]]) -> None:
    lines = [init(p, p, 3) for p in range(3)] + [call(p, op, seq, count=count, size=3) for p, op, seq, count in calls]
    wanted: dict[Any, dict[int, int]] = defaultdict(dict)
    nth: dict[Any, int] = defaultdict(int)
    for p, op, seq, count in calls:
        wanted[op, seq, nth[p, op, seq]][p] = count
        nth[p, op, seq] += 1
    table = METRIC.compute(job(*lines)).tables["instances"]
    got = sorted((row.name_, row.seq, row.seen_by) for row in table.rename(columns={"name": "name_"}).itertuples())
    assert got == sorted((op, seq, sorted(ranks)) for (op, seq, _), ranks in wanted.items())
    assert int(table["ranks_seen"].sum()) == len(calls)
