"""Does a Flight Recorder dump of every version come back as the calls that its rank made?"""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.flight.dumps import dump, entry, group, read, status
from tracekit import schema
from tracekit.errors import InputError
from tracekit.job import flight
from tracekit.readers import READERS, flight_recorder, reader_for
from tracekit.reading import Reading

TP = group([4, 5, 6, 7], "11", "mesh_tp")


def rows(trace: Any, *columns: str) -> list[tuple[Any, ...]]:
    records = trace.stated["records"]
    schema.validate(records, schema.RECORDS)
    plain = records[list(columns)].astype(object).where(records[list(columns)].notna(), None)
    return list(plain.itertuples(index=False, name=None))


@pytest.mark.parametrize("as_json", [False, True])
def test_an_entry_is_a_call_with_group_number_size_and_state(as_json: bool) -> None:
    e = entry(7, "nccl:_all_gather_base", size=(8, 2), out=(32, 2), dtype="BFloat16", pg="11", state="started", duration_ms=0.25)
    trace = read(dump([e], groups=TP, pg_status={"11": status(9, 6)}), as_json=as_json)
    assert rows(trace, "source", "kind", "name", "group", "group_desc", "group_ranks", "group_size") == [
        ("flight_recorder", "all_gather", "nccl:_all_gather_base", "11", "group_11", "4,5,6,7", 4)
    ]
    assert rows(trace, "seq", "p2p", "peer", "nbytes", "dtype", "shape", "record", "state", "created_ns", "duration_ns") == [
        (7, False, None, 128, "BFloat16", "8x2", 6, "started", 1_750_000_000_000_007_000, 250_000)
    ]
    assert trace.stated["group_status"].astype(object).to_numpy().tolist() == [["11", "mesh_tp", "4,5,6,7", 9, pd.NA, 6]]
    assert (trace.meta.groups, trace.meta.backend, trace.meta.rank, trace.findings) == ({"11": {"desc": "mesh_tp", "ranks": (4, 5, 6, 7)}}, "nccl", None, ())


@pytest.mark.parametrize(
    ("name", "kind", "given", "taken", "nbytes"),
    [
        ("nccl:all_reduce", "all_reduce", [[6]], [[6]], 24),
        ("nccl:allreduce_coalesced", "all_reduce", [[6], [4]], [[6], [4]], 40),
        ("nccl:broadcast", "broadcast", [[6]], [[6]], 24),
        ("nccl:_broadcast_oop", "broadcast", [[6]], [[6]], 24),
        ("nccl:reduce", "reduce", [[6]], [[6]], 24),
        ("nccl:_all_gather_base", "all_gather", [[6]], [[24]], 96),
        ("nccl:all_gather", "all_gather", [[6]], [[6], [6], [6], [6]], 96),
        ("nccl:all_gather_into_tensor_coalesced", "all_gather", [[6], [1]], [[24], [4]], 112),
        ("nccl:_all_gather_base", "all_gather", [[6]], [], 96),
        ("nccl:_reduce_scatter_base", "reduce_scatter", [[24]], [[6]], 96),
        ("nccl:REDUCE_SCATTER_coalesced", "reduce_scatter", [[24], [4]], [[6], [1]], 112),
        ("nccl:_reduce_scatter_base", "reduce_scatter", [], [[6]], 96),
        ("nccl:all_to_all", "all_to_all", [[7]], [[5]], 28),
        ("nccl:gather", "gather", [[6]], [[6], [6], [6], [6]], 96),
        ("nccl:gather", "gather", [[6]], [], 96),
        ("nccl:scatter", "scatter", [[6], [6], [6], [6]], [[6]], 96),
        ("nccl:scatter", "scatter", [], [[6]], 96),
        ("nccl:all_reduce_barrier", "barrier", [[1]], [[1]], 4),
        ("gloo:barrier", "barrier", [], [], None),
        ("nccl:all_reduce", "all_reduce", [[]], [[]], 4),
        ("nccl:all_reduce", "all_reduce", [[0]], [[0]], 0),
        ("nccl:all_reduce", "all_reduce", [[-1]], [[-1]], None),
        ("nccl:all_reduce", "all_reduce", [[2] * 65], [[2] * 65], None),
        ("nccl:all_reduce", "all_reduce", [[2**40, 2**40]], [[2**40, 2**40]], None),
        ("nccl:split", None, [[6]], [[6]], 24),
    ],
)
def test_sizes_are_those_of_nccl_tests(name: str, kind: str | None, given: Any, taken: Any, nbytes: int | None) -> None:
    e = entry(1, name, pg="11", input_sizes=given, output_sizes=taken, input_dtypes=["Float"] * len(given), output_dtypes=["Float"] * len(taken))
    assert rows(read(dump([e], groups=TP)), "kind", "nbytes") == [(kind, nbytes)]


def test_an_unknown_element_type_makes_the_size_unknown_and_nothing_else() -> None:
    assert rows(read(dump([entry(1, dtype="Float4")])), "kind", "nbytes", "dtype", "shape") == [("all_reduce", None, "Float4", "1024")]


def test_peers_are_ranks_within_the_group_and_name_the_rank_that_wrote_the_dump() -> None:
    send, recv = entry(3, "nccl:send 1->3", pg="11"), entry(4, "nccl:recv 1<-0", pg="11")
    trace = read(dump([send, recv], groups=TP))
    assert rows(trace, "kind", "seq", "p2p", "peer", "nbytes") == [("send", 3, True, 7, 4096), ("recv", 4, True, 4, 4096)]
    assert trace.meta.rank == 5
    contradicting = read(dump([send, entry(4, "nccl:recv 2<-0", pg="11")], groups=TP))
    assert contradicting.meta.rank is None
    unlisted = read(dump([entry(3, "nccl:send 1->9", pg="11"), entry(4, "nccl:send 0->1", pg="77")], groups=TP))
    assert rows(unlisted, "peer") == [(None,), (None,)]


def test_sends_batched_into_one_kernel_are_one_more_entry() -> None:
    batch = [
        entry(1, "nccl:send 0->1"),
        entry(1, "nccl:recv 0<-1", record_id=1),
        entry(1, "nccl:coalesced", record_id=2, is_p2p=True, input_sizes=[], output_sizes=[]),
    ]
    assert rows(read(dump(batch)), "kind", "p2p", "peer", "nbytes") == [("send", True, 1, 4096), ("recv", True, 1, 4096), ("send_recv", True, None, None)]


@pytest.mark.parametrize("ranks", ["[0, 1]", "[0,1]", "0,1", "(0, 1)", [0, 1], ["0", "1"]])
def test_ranks_are_a_list_however_they_are_written(ranks: Any) -> None:
    trace = read(dump([entry(1)], groups={"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}))
    assert rows(trace, "group_ranks", "group_size") == [("0,1", 2)]
    assert trace.meta.world_size == 2


@pytest.mark.parametrize("ranks", ["[0, 1, ..., 63]", "[]", "", "[0, 0]", "[-1, 0]", None, 5, [0, "x"], [0, 1 << 40], "[0, 99999999]", {"0": 1}])
def test_ranks_that_are_cut_doubled_or_none_are_unknown(ranks: Any) -> None:
    trace = read(dump([entry(1)], groups={"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}))
    assert rows(trace, "group", "group_ranks", "group_size") == [("0", None, None)]
    assert trace.meta.world_size is None


def test_groups_may_be_keyed_by_id_and_entries_may_name_only_the_id() -> None:
    old = {k: v for k, v in entry(5).items() if k not in ("process_group", "collective_seq_id", "p2p_seq_id", "op_id", "is_p2p", "record_id")}
    content = dump([{**old, "pg_id": 3, "seq_id": 5}], groups={"3": {"name": "tp_group", "desc": "undefined", "ranks": "[0, 1]"}}, version="2.0")
    del content["pg_status"], content["comm_lib_version"]
    trace = read(content)
    assert rows(trace, "group", "group_desc", "group_ranks", "seq", "p2p", "record") == [("tp_group", "undefined", "0,1", 5, False, None)]
    assert not len(trace.stated["group_status"])
    assert trace.findings == ()


def test_an_old_send_is_told_by_its_name() -> None:
    old = {k: v for k, v in entry(5, "nccl:send 0->1").items() if k not in ("is_p2p", "p2p_seq_id")}
    assert rows(read(dump([{**old, "collective_seq_id": 5}])), "kind", "seq", "p2p", "peer") == [("send", 5, True, 1)]


def test_a_group_that_no_list_has_keeps_its_name_and_description() -> None:
    assert rows(read(dump([entry(1, pg="99")])), "group", "group_desc", "group_ranks") == [("99", "group_99", None)]


def test_progress_by_id_is_led_to_names_by_entries_and_by_order() -> None:
    groups = {**group([0, 1], "0", "default_pg"), **group([0], "7"), **group([1], "33")}
    told = read(dump([entry(1, pg="33", pg_id=5)], groups=groups, pg_status={"0": status(9, 9), "10": status(2, 1), "5": status(3, -1)}))
    table = told.stated["group_status"]
    # ids 0, 5, 10 and names 0, 7, 33 do not count up alike: the entry says 5 is 33
    assert table[["group", "last_enqueued", "last_completed"]].to_numpy().tolist() == [["33", 3, 0]]
    assert [f["code"] for f in told.findings] == ["group_status_nameless"]
    ordered = read(dump([entry(1, pg="7", pg_id=5)], groups=groups, pg_status={"0": status(9, 9), "10": status(2, 1), "5": status(3, -1)}))
    assert dict(zip(ordered.stated["group_status"]["group"], ordered.stated["group_status"]["last_enqueued"], strict=True)) == {"0": 9, "33": 2, "7": 3}
    assert ordered.findings == ()


def test_gloo_counts_sends_in_its_progress_and_lists_no_ranks() -> None:
    calls = [entry(1, "gloo:all_reduce"), entry(2, "gloo:all_reduce", op_id=5)]
    written = {"last_enqueued_collective": "6", "last_started_collective": "-1", "last_completed_collective": "4"}
    trace = read(dump(calls, groups={"": {"name": "", "desc": "", "ranks": "[]"}}, pg_status={"0": written}), as_json=True)
    assert trace.stated["group_status"][["group", "group_desc", "last_enqueued", "last_completed"]].to_numpy().tolist() == [["0", "default_pg", 2, 1]]
    assert rows(trace, "group", "group_ranks") == [("0", None), ("0", None)]
    assert (trace.meta.groups, trace.meta.backend, trace.findings) == ({}, "gloo", ())


@pytest.mark.parametrize("version", ["2.0", "2.4", "2.9", "2.10"])
def test_known_versions_pass_without_a_word(version: str) -> None:
    assert read(dump([entry(1)], version=version)).findings == ()


@pytest.mark.parametrize("version", ["2.11", "3.0", "1.5", "", "two", None, 2.1e300])
def test_other_versions_are_read_with_a_warning_that_names_them(version: Any) -> None:
    trace = read(dump([entry(1)], version=version))
    assert [(f["code"], f["severity"]) for f in trace.findings] == [("flight_recorder_version", "warning")]
    assert str(version)[:20] in trace.findings[0]["message"]
    assert len(trace.stated["records"]) == 1


def test_a_dump_without_entries_is_a_dump() -> None:
    trace = read(dump([], pg_status={"0": status(4, 4)}))
    assert (len(trace.stated["records"]), len(trace.stated["group_status"]), trace.meta.world_size) == (0, 1, 2)


def test_times_of_zero_are_unknown() -> None:
    e = entry(1, time_created_ns=0, state="scheduled", time_discovered_completed_ns=0)
    assert rows(read(dump([e])), "created_ns", "state") == [(None, "scheduled")]
    assert rows(read(dump([{**e, "time_discovered_completed_ns": 5}])), "state") == [("completed",)]
    assert rows(read(dump([{**e, "state": "confused"}])), "state") == [(None,)]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"entries": 5, "pg_config": {}}, r"\$\.entries"),
        ({"entries": [None], "pg_config": {}}, r"\$\.entries\[0\]"),
        (dump([entry(1, time_created_ns="x")]), "time_created_ns"),
        (dump([entry(1, time_created_ns=2**70)]), "time_created_ns"),
        (dump([entry(1, process_group=5)]), "process_group"),
        (dump([entry(1, input_sizes=[["x"]])]), "input_sizes"),
        (dump([entry(1)], pg_config=[1]), "pg_config"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_what_is_wrong_is_refused_in_one_line_with_its_place(content: Any, says: str, as_json: bool) -> None:
    data = json.dumps(content).encode() if as_json else pickle.dumps(content, 2)
    with pytest.raises(InputError, match=says) as refusal:
        flight_recorder.read(data, Path("dump_3"), Reading())
    assert "dump_3" in str(refusal.value) and "\n" not in str(refusal.value)


def test_more_entries_than_the_cap_are_refused() -> None:
    with pytest.raises(InputError, match="3 entries, more than 2"):
        read(dump([entry(k) for k in (1, 2, 3)]), as_json=True, max_events=2)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_cut_dump_is_refused_with_its_byte_and_salvaged_up_to_its_last_whole_entry(as_json: bool) -> None:
    content = {**dump([entry(k) for k in range(1, 6)])}
    whole = json.dumps(content).encode() if as_json else pickle.dumps(content, 2)
    full = rows(read(content), "seq", "nbytes")
    counts = set()
    for end in range(len(whole) // 3, len(whole) - 1, 37):
        with pytest.raises(InputError, match="cut") as refusal:
            flight_recorder.read(whole[:end], Path("dump"), Reading())
        assert refusal.value.offset is not None and refusal.value.offset <= end
        (trace,) = flight_recorder.read(whole[:end], Path("dump"), Reading(salvage=True))
        got = rows(trace, "seq", "nbytes")
        assert got == full[: len(got)]
        assert [(f["code"], f["severity"], f["count"]) for f in trace.findings] == [("partial", "warning", len(got))]
        counts.add(len(got))
    assert counts >= {1, 2, 3, 4}


def test_bytes_after_the_end_are_said() -> None:
    data = pickle.dumps(dump([entry(1)]), 2)
    (trace,) = flight_recorder.read(data + b"again", Path("dump"), Reading())
    assert [(f["code"], f["offset"]) for f in trace.findings] == [("bytes_after_end", len(data))]


@pytest.mark.parametrize("order", [("version", "pg_config", "entries"), ("entries", "pg_config", "version"), ("version", "entries")])
def test_a_dump_is_told_by_its_content(order: tuple[str, ...]) -> None:
    content = dump([entry(1)])
    for data in (pickle.dumps({k: content[k] for k in order}, 2), json.dumps({k: content[k] for k in order}, indent=1).encode()):
        assert reader_for(data) == next(r for r in READERS if r.name == flight.FORMAT)


@pytest.mark.parametrize(
    "data",
    [
        b'{"traceEvents": [], "distributedInfo": {"pg_config": [], "version": "2.4"}}',
        b'{"schemaVersion": 1, "distributedInfo": {"pg_config": [], "entries": []}, "traceEvents": []}',
        b'{"entries": []}',
        b"[]",
        b"",
        pickle.dumps({"segments": [], "device_traces": [], "version": 1, "entries": 2}),
        pickle.dumps([1, 2]),
    ],
)
def test_other_files_are_no_dump(data: bytes) -> None:
    assert not flight_recorder.sniff(data)


def test_no_other_file_of_the_reference_traces_is_taken_for_one(shared: Path) -> None:
    for path in (shared / "traces").rglob("*"):
        if path.is_file() and "nvrx" not in path.parts and path.suffix in (".gz", ".json", ".pickle", ".jsonl", ".log"):
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
                assert not flight_recorder.sniff(file.read(65536)), path


@given(st.data())
@settings(max_examples=150)
def test_changed_bytes_give_a_dump_or_one_line(data: st.DataObject) -> None:
    content = dump([entry(1), entry(2, "nccl:send 0->1"), entry(3, "nccl:_all_gather_base", out=(2048,))], pg_status={"0": status(3, 2)})
    whole = bytearray(data.draw(st.sampled_from([pickle.dumps(content, 2), json.dumps(content).encode()])))
    for _ in range(data.draw(st.integers(1, 5))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        (trace,) = flight_recorder.read(bytes(whole), Path("dump"), Reading(salvage=data.draw(st.booleans())))
    except InputError as error:
        assert "\n" not in str(error)
    else:
        schema.validate(trace.stated["records"], schema.RECORDS)
        schema.validate(trace.stated["group_status"], schema.GROUP_STATUS)
