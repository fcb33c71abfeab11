"""Who is missing from which collective, and is nobody blamed for what a dump cannot tell?"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.flight.dumps import analysed, compared, dump, entry, group, status
from tracekit import analyze
from tracekit.analysis import Analysis

THREE = group([0, 1, 2], "0", "default_pg")


def codes(analysis: Analysis) -> list[tuple[str, str]]:
    return [(f["severity"], f["code"]) for f in analysis.health()["findings"]]


def column(analysis: Analysis, table: str, *columns: str) -> list[tuple[Any, ...]]:
    rows = analysis.to_dict()["metrics"]["flight_recorder"]["tables"][table]
    return [tuple(row[c] for c in columns) for row in rows]


def test_the_same_calls_everywhere_match(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, *[dump([entry(1), entry(2)], pg_status={"0": status(2, 2)})] * 2)
    assert column(analysis, "collectives", "group", "group_ranks", "seq", "kind", "nbytes", "present", "matched", "state") == [
        ("0", [0, 1], 1, "all_reduce", 4096, [0, 1], True, "completed"),
        ("0", [0, 1], 2, "all_reduce", 4096, [0, 1], True, "completed"),
    ]
    assert analysis.health()["verdict"] == "ok"
    assert analysis.result("flight_recorder").summary == {
        "dumps": 2,
        "entries": 4,
        "groups": 1,
        "collectives": 2,
        "collectives_matched": 2,
        "p2p_matched": 0,
        "mismatches": 0,
        "ranks_not_enqueued": [],
        "ranks_behind": [],
        "suspects": [],
        "ranks_without_entries": [],
        "ranks_without_dump": [],
    }


def test_a_rank_that_stopped_is_named_with_the_first_call_it_lacks(tmp_path: Path) -> None:
    ahead = dump([entry(1), entry(2, state="started"), entry(3, state="scheduled")], groups=THREE, pg_status={"0": status(3, 1)})
    analysis = analysed(tmp_path, ahead, dump([entry(1)], groups=THREE, pg_status={"0": status(1, 1)}), ahead)
    assert column(analysis, "missing", "seq", "rank", "why") == [(2, 1, "not_enqueued"), (3, 1, "not_enqueued")]
    assert column(analysis, "faults", "fault", "seq", "kind", "ranks", "others", "collectives") == [("not_enqueued", 2, "all_reduce", [1], [0, 2], 2)]
    assert column(analysis, "groups", "collectives", "matched", "mismatches", "suspects") == [(3, 1, 0, [1])]
    assert codes(analysis) == [("warning", "flight_recorder_not_enqueued")]
    (finding,) = analysis.health()["findings"]
    assert finding["rank"] == 1 and "rank 1 never enqueued all_reduce 2 of group 0 (default_pg, ranks 0-2), which ranks 0,2 did" in finding["message"]


def test_without_progress_the_newest_entry_of_the_ring_tells_who_stopped(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, dump([entry(k) for k in (1, 2, 3)]), dump([entry(1), entry(2)]))
    assert column(analysis, "missing", "seq", "rank", "why") == [(3, 1, "not_enqueued")]


@pytest.mark.parametrize("progress", [{}, {"0": status(9, 3)}])
def test_calls_dropped_from_a_full_ring_are_not_missing(tmp_path: Path, progress: dict[str, Any]) -> None:
    long, short = ([entry(k, record_id=k + 5) for k in range(first, 10)] for first in (4, 7))
    analysis = analysed(tmp_path, dump(long, pg_status=progress), dump(short, pg_status=progress))
    assert column(analysis, "missing", "seq", "rank", "why") == [(4, 1, "dropped"), (5, 1, "dropped"), (6, 1, "dropped")]
    assert analysis.health()["verdict"] == "ok"
    assert analysis.result("flight_recorder").summary["suspects"] == []


def test_completed_calls_that_a_dump_leaves_out_are_completed(tmp_path: Path) -> None:
    held = dump([entry(5, state="scheduled", record_id=50)], pg_status={"0": status(5, 4)})
    analysis = analysed(tmp_path, held, dump([], pg_status={"0": status(5, 5)}))
    assert column(analysis, "missing", "seq", "rank", "why") == [(5, 1, "completed")]
    assert column(analysis, "collectives", "seq", "behind", "completed_elsewhere", "state") == [(5, [0], [1], "scheduled")]
    assert [f["message"] for f in analysis.health()["findings"] if f["code"] == "flight_recorder_behind"] == [
        "rank 0 still holds all_reduce 5 of group 0 (default_pg, ranks 0-1), which rank 1 completed; the only one of the group"
    ]
    assert analysis.result("flight_recorder").summary["ranks_without_entries"] == [1]


def test_a_rank_without_a_dump_is_unknown_and_not_guilty(tmp_path: Path) -> None:
    here = dump([entry(1), entry(2, state="started")], groups=THREE, pg_status={"0": status(2, 1)})
    analysis = analysed(tmp_path, here, None, here)
    assert column(analysis, "missing", "seq", "rank", "why") == [(1, 1, "no_dump"), (2, 1, "no_dump")]
    assert analysis.result("flight_recorder").summary["suspects"] == []
    assert analysis.result("flight_recorder").summary["ranks_without_dump"] == [1]
    assert column(analysis, "ranks", "rank", "dump", "entries", "pending") == [(0, True, 2, 1), (1, False, None, None), (2, True, 2, 1)]
    assert ("warning", "flight_recorder_no_dump") in codes(analysis)


def test_one_dump_alone_blames_nobody(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, dump([entry(1, state="started")]))
    summary = analysis.result("flight_recorder").summary
    assert (summary["dumps"], summary["collectives_matched"], summary["suspects"]) == (1, None, None)
    assert ("info", "flight_recorder_no_dump") in codes(analysis)


def test_no_dump_at_all_is_said(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text(json.dumps({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}))
    result = analyze(tmp_path, workers=1).result("flight_recorder")
    assert not result.available and "TORCH_FR_BUFFER_SIZE" in str(result.reason)


@pytest.mark.parametrize(
    ("other", "what", "says"),
    [
        (entry(2, "nccl:broadcast"), "operation", "all_reduce on ranks 0,2, broadcast on rank 1"),
        (entry(2, size=(1025,)), "size", "4096 bytes (1024 Float) on ranks 0,2, 4100 bytes (1025 Float) on rank 1"),
        (entry(2, size=(2048,), dtype="Half"), "dtype", "Float on ranks 0,2, Half on rank 1"),
        (entry(2, "nccl:all_reduce_barrier"), "operation", "all_reduce on ranks 0,2, barrier on rank 1"),
    ],
)
def test_ranks_that_disagree_are_a_mismatch(tmp_path: Path, other: dict[str, Any], what: str, says: str) -> None:
    good = dump([entry(1), entry(2)], groups=THREE)
    analysis = analysed(tmp_path, good, dump([entry(1), other], groups=THREE), good)
    assert column(analysis, "collectives", "seq", "mismatch", "matched") == [(1, "none", True), (2, what, False)]
    assert [row[:3] for row in column(analysis, "mismatches", "seq", "what", "rank")] == [(2, what, r) for r in (0, 1, 2)]
    assert codes(analysis) == [("warning", "flight_recorder_mismatch")]
    (finding,) = analysis.health()["findings"]
    assert finding["rank"] == 1 and says in finding["message"] and "collective 2 of group 0" in finding["message"]


def test_an_all_to_all_may_differ_by_rank_and_shapes_may_be_written_otherwise(tmp_path: Path) -> None:
    def rank(k: int) -> dict[str, Any]:
        return dump([entry(1, "nccl:all_to_all", size=(1000 + k,), out=(900 - k,)), entry(2, size=[(64, 16), (1024,)][k])])

    analysis = analysed(tmp_path, rank(0), rank(1))
    assert column(analysis, "collectives", "nbytes", "mismatch", "matched") == [(None, "none", True), (4096, "none", True)]
    assert analysis.health()["verdict"] == "ok"


def test_gathers_look_different_on_their_root(tmp_path: Path) -> None:
    root, other = (
        entry(1, "nccl:gather", output_sizes=[[1024], [1024]], output_dtypes=["Float"] * 2),
        entry(1, "nccl:gather", output_sizes=[], output_dtypes=[]),
    )
    analysis = analysed(tmp_path, dump([root]), dump([other]))
    assert column(analysis, "collectives", "nbytes", "mismatch", "matched") == [(8192, "none", True)]


def test_groups_of_one_name_and_other_ranks_are_other_groups(tmp_path: Path) -> None:
    """What split_group makes: each half calls its part by the same name."""
    low, high = group([0, 1], "half"), group([2, 3], "half")
    analysis = analysed(
        tmp_path,
        *[dump([entry(1, pg="half"), entry(2, pg="half")], groups=low)] * 2,
        *[dump([entry(1, "nccl:broadcast", pg="half")], groups=high)] * 2,
    )
    assert column(analysis, "collectives", "group", "group_ranks", "seq", "kind", "matched") == [
        ("half", [0, 1], 1, "all_reduce", True),
        ("half", [0, 1], 2, "all_reduce", True),
        ("half", [2, 3], 1, "broadcast", True),
    ]
    assert analysis.health()["verdict"] == "ok"


def test_a_group_whose_ranks_no_file_lists_is_neither_complete_nor_wrong(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, dump([entry(1, pg="9")], groups={}), dump([entry(1, "nccl:broadcast", pg="9"), entry(2, pg="9")], groups={}))
    assert column(analysis, "collectives", "seq", "present", "matched", "mismatch") == [(1, [0, 1], None, None), (2, [1], None, None)]
    assert any("stand in no file" in note for note in analysis.result("flight_recorder").notes)


def test_entries_coalesced_under_one_number_are_compared_by_their_first(tmp_path: Path) -> None:
    calls = [
        entry(1, "nccl:_all_gather_base", out=(2048,)),
        entry(1, "nccl:_all_gather_base", out=(2048,), record_id=1),
        entry(1, "nccl:coalesced", record_id=2),
    ]
    assert column(analysed(tmp_path, dump(calls), dump(calls)), "collectives", "seq", "kind", "matched") == [(1, "all_gather", True)]


def test_progress_of_a_group_that_also_sends_is_not_trusted(tmp_path: Path) -> None:
    """The last number enqueued may be that of a send: rank 1, 90 sends further, did not enqueue collective 2."""
    here = dump([entry(1), entry(90, "nccl:send 0->1", record_id=7), entry(2, record_id=8, state="scheduled")], pg_status={"0": status(2, 1)})
    there = dump([entry(1), entry(90, "nccl:recv 1<-0", record_id=7)], pg_status={"0": status(90, 90)})
    assert column(analysed(tmp_path, here, there), "missing", "seq", "rank", "why") == [(2, 1, "not_enqueued")]


def test_sends_pair_with_receives_by_order_between_two_ranks(tmp_path: Path) -> None:
    """Each rank counts its own sends and receives: numbers of a middle stage meet no one else's."""
    first = dump([entry(1, "nccl:send 0->1"), entry(2, "nccl:send 0->1", size=(8,))], groups=THREE)
    middle = dump(
        [entry(1, "nccl:recv 1<-0"), entry(2, "nccl:send 1->2"), entry(3, "nccl:recv 1<-0", size=(8,)), entry(4, "nccl:send 1->2", size=(8,))], groups=THREE
    )
    last = dump([entry(1, "nccl:recv 2<-1"), entry(2, "nccl:recv 2<-1", size=(8,))], groups=THREE)
    analysis = analysed(tmp_path, first, middle, last)
    assert column(analysis, "p2p", "src", "dst", "sends", "recvs", "paired", "size_mismatches", "unpaired", "matched_by") == [
        (0, 1, 2, 2, 2, 0, 0, "order"),
        (1, 2, 2, 2, 2, 0, 0, "order"),
    ]
    assert analysis.result("flight_recorder").summary["p2p_matched"] == 4
    assert analysis.health()["verdict"] == "ok"


def test_a_receive_that_was_never_enqueued_is_said_where_both_dumps_are_whole(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, dump([entry(1, "nccl:send 0->1"), entry(2, "nccl:send 0->1")]), dump([entry(1, "nccl:recv 1<-0")]))
    assert column(analysis, "p2p", "sends", "recvs", "paired", "unpaired") == [(2, 1, 1, 1)]
    assert codes(analysis) == [("warning", "flight_recorder_p2p")]
    assert "receives of rank 1 are missing" in analysis.health()["findings"][0]["message"]


def test_a_send_of_another_size_than_its_receive_is_a_mismatch(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, dump([entry(1, "nccl:send 0->1")]), dump([entry(1, "nccl:recv 1<-0", size=(8,))]))
    assert column(analysis, "p2p", "paired", "size_mismatches") == [(1, 1)]
    assert codes(analysis) == [("warning", "flight_recorder_mismatch")]
    assert analysis.result("flight_recorder").summary["mismatches"] == 1


def test_in_a_group_of_two_numbers_pair_what_a_full_ring_left(tmp_path: Path) -> None:
    sends = [entry(k, "nccl:send 0->1", record_id=k + 100) for k in (5, 6, 7)]
    recvs = [entry(k, "nccl:recv 1<-0", record_id=k + 100) for k in (4, 5, 6)]
    analysis = analysed(tmp_path, dump(sends), dump(recvs))
    assert column(analysis, "p2p", "sends", "recvs", "paired", "unpaired", "matched_by") == [(3, 3, 2, None, "number")]
    assert analysis.health()["verdict"] == "ok"


def test_in_a_larger_group_a_full_ring_leaves_pairs_unknown(tmp_path: Path) -> None:
    sends = [entry(k, "nccl:send 0->1", record_id=k + 100) for k in (5, 6, 7)]
    analysis = analysed(tmp_path, dump(sends, groups=THREE), dump([entry(2, "nccl:recv 1<-0", record_id=90)], groups=THREE), dump([], groups=THREE))
    assert column(analysis, "p2p", "sends", "recvs", "paired", "unpaired", "matched_by") == [(3, 1, None, None, None)]
    assert analysis.health()["verdict"] == "ok"


def test_two_dumps_of_a_rank_count_an_entry_once_as_the_later_has_it(tmp_path: Path) -> None:
    """A run directory with two captures: the ring of the second holds what the first did, further on."""
    slices = [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "dur": 5}]
    for rank in (0, 1):
        for capture, entries in enumerate(([entry(1, state="started")], [entry(1), entry(2)])):
            folder = tmp_path / f"rank0000{rank}" / f"capture00{capture}"
            folder.mkdir(parents=True)
            info = {"rank": rank, "world_size": 2, "backend": "nccl"}
            trace = {"distributedInfo": info, "traceEvents": [{**s, "ts": 1000 * (capture + 1)} for s in slices]}
            (folder / "trace.json").write_text(json.dumps(trace))
            (folder / "flight_recorder.json").write_text(json.dumps(dump(entries)))
    analysis = analyze(tmp_path, workers=1)
    assert column(analysis, "collectives", "seq", "present", "state", "matched") == [(1, [0, 1], "completed", True), (2, [0, 1], "completed", True)]
    assert analysis.result("flight_recorder").summary["entries"] == 4


def test_a_rank_a_call_behind_is_no_fault_while_the_run_goes_on(tmp_path: Path) -> None:
    """Dumps that a recorder takes in passing are not of one moment."""
    for rank, last in ((0, 3), (1, 2)):
        folder = tmp_path / f"rank0000{rank}" / "capture000"
        folder.mkdir(parents=True)
        trace = {
            "distributedInfo": {"rank": rank, "world_size": 2},
            "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 5}],
        }
        (folder / "trace.json").write_text(json.dumps(trace))
        (folder / "flight_recorder.json").write_text(json.dumps(dump([entry(k) for k in range(1, last + 1)])))
    analysis = analyze(tmp_path, workers=1)
    assert [(s, c) for s, c in codes(analysis) if c.startswith("flight")] == [("info", "flight_recorder_not_enqueued")]
    assert analysis.health()["verdict"] == "ok"


@given(st.data())
@settings(max_examples=30)
def test_every_absence_gets_its_true_reason(data: st.DataObject) -> None:
    """Ranks stop anywhere, rings hold few calls, some dumps leave completed calls out or are not there: against plain counting."""
    n = data.draw(st.integers(2, 4))
    enqueued = [data.draw(st.integers(0, 8)) for _ in range(n)]
    completed = [data.draw(st.integers(0, min(enqueued))) for _ in range(n)]
    ring, active, here = ([data.draw(one) for _ in range(n)] for one in (st.integers(1, 9), st.booleans(), st.booleans()))
    held = [
        {k for k in range(max(1, enqueued[r] - ring[r] + 1), enqueued[r] + 1) if not (active[r] and k <= completed[r])} if here[r] else set() for r in range(n)
    ]
    everyone = group(list(range(n)), "0", "default_pg")
    dumps = [
        dump(
            [entry(k, state="completed" if k <= completed[r] else "scheduled") for k in sorted(held[r])],
            groups=everyone,
            pg_status={"0": status(enqueued[r], completed[r])},
        )
        if here[r]
        else None
        for r in range(n)
    ]
    flight = compared(*dumps)
    if not any(here):
        assert flight is None
        return
    assert flight is not None
    want = []
    for seq in sorted(set().union(*held)):
        for rank in range(n):
            if seq not in held[rank]:
                why = "no_dump" if not here[rank] else "completed" if seq <= completed[rank] else "dropped" if seq <= enqueued[rank] else "not_enqueued"
                want.append((seq, rank, why))
    assert sorted(flight.missing[["seq", "rank", "why"]].itertuples(index=False, name=None)) == want
    behind = {r for r in range(n) for k in held[r] if k > completed[r] and any(here[o] and completed[o] >= k for o in range(n))}
    late = {rank for _, rank, why in want if why == "not_enqueued"}
    assert {r for ranks in flight.groups["suspects"] for r in ranks} == behind | late
    for name, ranks in (("not_enqueued", late), ("behind", behind)):
        assert {r for listed in flight.collectives[name] for r in listed} == ranks


def test_pickled_and_json_dumps_of_one_job_compare(tmp_path: Path) -> None:
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(dump([entry(1)]), 2))
    (tmp_path / "rank1").mkdir()
    (tmp_path / "rank1" / "flight_recorder.json").write_text(json.dumps(dump([entry(1)])))
    assert column(analyze(tmp_path, workers=1), "collectives", "present", "matched") == [([0, 1], True)]
