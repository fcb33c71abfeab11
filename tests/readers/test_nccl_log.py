"""NCCL's debug log: every wording, whatever stands in front, between and behind; ranks by communicators; nothing invented where it is cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.records.logs import call, codes, front, init, read, records, split
from tracekit.errors import InputError
from tracekit.readers import nccl_log, reader_for
from tracekit.reading import DEFAULT

WORLD = [init(p, p, 4) for p in range(4)]


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "3: ",
        "[1,3]<stdout>:",
        "[prterun-node-77@1,3]<stderr>:",
        "[rank3]:",
        "2026-01-05T10:00:01Z (Worker pid=7101, ip=10.0.0.6) ",
        "(RayWorkerWrapper pid=12, ip=10.0.0.6) ",
        "[2026-05-13 18:01:41] ",
        "[default3]:",
        "\x1b[36m(Worker pid=7101)\x1b[0m ",
    ],
)
def test_whatever_a_launcher_puts_in_front_the_call_is_the_same(prefix: str) -> None:
    traces = read(*[prefix + line for line in (init(3, 3, 4), call(3, "AllReduce", 31))])
    assert [t.meta.rank for t in traces] == [3]
    assert records(traces[0], "kind", "seq", "nbytes", "group", "group_ranks") == [("all_reduce", 31, 4000, "0xabc1", "0,1,2,3")]


@pytest.mark.parametrize(
    ("words", "group"),
    [
        ("comm 0x5503 rank 3 nranks 4 - COMPLETE", None),
        ("comm 0x5503 rank 3 nranks 4 cudaDev 3 nvmlDev 3 - Init COMPLETE", None),
        ("comm 0x5503 rank 3 nranks 4 cudaDev 3 busId 1a000 - Init COMPLETE", None),
        ("comm 0x5503 rank 3 nranks 4 cudaDev 3 nvmlDev 3 busId 1a000 commId 0x9a - Init START", "0x9a"),
        ("ncclCommInitRankConfig comm 0x5503 rank 3 nranks 4 cudaDev 3 nvmlDev 3 busId 1a000 commId 0x9a - Init START", "0x9a"),
        ("[Rank 3] ncclCommInitRank comm 0x5503 rank 3 nranks 4 cudaDev 3 nvmlDev 3 busId 1a000 commId 0x9a - Init START", "0x9a"),
        ("comm 0x5503 rank 3 nRanks 4 nNodes 1 localRanks 4 localRank 3 MNNVL 0", None),
    ],
)
def test_every_wording_of_a_setup_tells_the_rank(words: str, group: str | None) -> None:
    (trace,) = read(front(3) + words, call(3))
    (row,) = trace.stated["communicators"].to_dict("records")
    assert (trace.meta.rank, row["group_rank"], row["group_size"], row["handle"]) == (3, 3, 4, "0x5503")
    assert row["group"] == (group or "0x5503@node-a:103")
    assert records(trace, "group", "group_ranks") == [(row["group"], "0,1,2,3" if group else None)]


def test_sizes_are_the_whole_where_a_call_names_one_ranks_part() -> None:
    ops = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AlltoAll", "Gather", "Scatter")
    (trace,) = read(WORLD[0], *[call(0, op, i, count=1000, dtype=9) for i, op in enumerate(ops)])
    assert records(trace, "kind", "nbytes") == [
        ("all_reduce", 2000),
        ("all_gather", 8000),
        ("reduce_scatter", 8000),
        ("broadcast", 2000),
        ("reduce", 2000),
        ("all_to_all", 8000),
        ("gather", 8000),
        ("scatter", 8000),
    ]
    assert set(trace.stated["records"]["dtype"]) == {"bfloat16"}


def test_sends_and_receives_have_peers_and_their_own_numbers() -> None:
    traces = read(
        *WORLD,
        *[split(p, p % 2, 2, p // 2, handle=f"0x66{p:02x}") for p in range(4)],
        *[call(2, "Send", 7, root=1, size=2, handle="0x6602"), call(2, "Send", 7, root=1, size=2, handle="0x6602")],
        call(3, "Recv", 9, root=0, size=2, handle="0x6603"),
    )
    assert records(traces[2], "kind", "seq", "peer", "group_ranks", "group_size") == [("send", 0, 3, "2,3", 2), ("send", 1, 3, "2,3", 2)]
    assert records(traces[3], "kind", "seq", "peer") == [("recv", 0, 2)]


def test_groups_that_were_split_off_have_the_ranks_of_their_members() -> None:
    traces = read(
        *WORLD,
        *[split(p, p // 2, 2, p % 2, handle=f"0x66{p:02x}") for p in range(4)],
        *[call(p, "AllReduce", 1, size=2, handle=f"0x66{p:02x}") for p in range(4)],
    )
    assert [records(t, "group", "group_ranks") for t in traces] == [
        [("0xabc1/1:0", "0,2")],
        [("0xabc1/1:1", "1,3")],
        [("0xabc1/1:0", "0,2")],
        [("0xabc1/1:1", "1,3")],
    ]


def test_members_that_are_not_in_the_log_leave_a_groups_ranks_unknown() -> None:
    (trace,) = read(WORLD[2], split(2, 0, 2, 1, handle="0x6602"), call(2, size=2, handle="0x6602"))
    assert trace.meta.rank == 2
    assert records(trace, "group", "group_ranks", "group_size") == [("0xabc1/1:1", None, 2)]


def test_one_process_with_several_gpus_is_several_ranks() -> None:
    lines = [f"node-a:100:{200 + d} [{d}] NCCL INFO comm 0x55{d:02x} rank {d} nranks 2 cudaDev {d} busId {d}a000 commId 0x9a - Init COMPLETE" for d in range(2)]
    calls = [call(0, count=1 + d, size=2, handle=f"0x55{d:02x}").replace("node-a:100:200 [0]", "node-a:100:100 [0]") for d in range(2)]
    traces = read(*lines, *calls)
    assert [(t.meta.rank, records(t, "nbytes")) for t in traces] == [(0, [(4,)]), (1, [(8,)])]


def test_an_address_that_is_used_again_means_the_new_communicator() -> None:
    destroyed = front(0) + "comm 0x5500 rank 0 nranks 4 cudaDev 0 busId 1a000 - Destroy COMPLETE"
    (trace,) = read(WORLD[0], call(0, seq=1), destroyed, init(0, 1, 2, comm_id="0xdd"), call(0, seq=0, size=2))
    assert records(trace, "group", "seq", "group_size") == [("0xabc1", 1, 4), ("0xdd", 0, 2)]
    (trace,) = read(WORLD[0], call(0, seq=1), init(0, 0, 4, comm_id="0xee", what="Init START"), call(0, seq=0))
    assert records(trace, "group", "seq") == [("0xabc1", 1), ("0xee", 0)]


def test_splits_that_share_one_id_are_told_apart_by_their_order() -> None:
    def child(handle: str) -> str:
        where = "cudaDev 0 nvmlDev 0 busId 1a000 parent 0x5500 color 5 key 0 commId 0x77"
        return front(0) + f"ncclCommSplit comm {handle} rank 0 nranks 2 {where} - Init START"

    (trace,) = read(WORLD[0], child("0x6600"), child("0x7700"), call(0, size=2, handle="0x6600"), call(0, size=2, handle="0x7700"))
    assert records(trace, "group") == [("0x77",), ("0x77#2",)]


@pytest.mark.parametrize("host", ["node-b", "compute-1", "abc", "10-0-0-7.local"])
def test_a_record_glued_to_another_is_its_own(host: str) -> None:
    first, second = init(0, 0, 2), init(1, 1, 2, host=host)
    traces = read(first, second, call(0, seq=31, size=2) + call(1, seq=31, size=2, host=host), call(0, seq=32, size=2))
    assert [(t.meta.rank, records(t, "seq")) for t in traces] == [(0, [(31,), (32,)]), (1, [(31,)])]
    assert codes(*traces) == {"nccl_rank_inferred": "info"}


def test_algorithm_and_protocol_go_to_the_call_of_their_size() -> None:
    (trace,) = read(
        WORLD[0],
        call(0, "AllReduce", 1, count=4096),
        call(0, "AllGather", 2, count=4096),
        front(0) + "65536 Bytes -> Algo 1 proto 2 time 34.5",  # all four ranks' parts of the all-gather
        front(0) + "16384 Bytes -> Algo 0 proto 0 time 9.1",
        call(0, "ReduceScatter", 3, count=10),
        front(0) + "ReduceScatter: 40 Bytes -> Algo NVLS_TREE proto SIMPLE channel{Lo..Hi}={0..0}",
    )
    assert records(trace, "kind", "algorithm", "protocol") == [
        ("all_reduce", "Tree", "LL"),
        ("all_gather", "Ring", "Simple"),
        ("reduce_scatter", "NVLSTree", "Simple"),
    ]


def test_an_algorithm_that_may_be_of_two_communicators_is_not_told() -> None:
    (trace,) = read(
        WORLD[0],
        init(0, 0, 2, handle="0x6600", comm_id="0xdd"),
        call(0, seq=1, count=4),
        call(0, seq=0, count=4, size=2, handle="0x6600"),
        front(0) + "16 Bytes -> Algo 1 proto 2 time 34.5",
    )
    assert records(trace, "algorithm") == [(None,), (None,)]


def test_ranks_that_no_line_tells_are_unknown() -> None:
    (trace,) = read(call(0), call(1))
    assert trace.meta.rank is None
    assert records(trace, "kind", "seq") == [("all_reduce", None)] * 2  # equal numbers of two processes are not two calls of one
    assert codes(trace)["nccl_rank_unknown"] == "warning"
    # two groups of two: neither is the world
    (trace,) = read(*[init(p, p % 2, 2, comm_id=f"0x{p // 2 + 1}") for p in range(4)], call(0, size=2))
    assert trace.meta.rank is None
    assert records(trace, "group_ranks") == [(None,)]


def test_calls_of_a_process_without_a_rank_are_not_given_to_another() -> None:
    traces = read(*WORLD[:2], call(0), call(1), call(3), call(3))
    assert [(t.meta.rank, len(t.stated["records"])) for t in traces] == [(0, 1), (1, 1)]
    (lost,) = [f for f in traces[0].findings if f["code"] == "nccl_rank_unknown"]
    assert (lost["count"], lost["severity"]) == (2, "warning")


def test_the_launchers_numbers_stand_where_no_communicator_spans_the_job() -> None:
    lines = [f"{p}: " + line for p in range(4) for line in (init(p, p % 2, 2, comm_id=f"0x{p // 2 + 1}"), call(p, size=2))]
    traces = read(*lines)
    assert [(t.meta.rank, records(t, "group_ranks")) for t in traces] == [(0, [("0,1",)]), (1, [("0,1",)]), (2, [("2,3",)]), (3, [("2,3",)])]
    assert codes(*traces) == {"nccl_rank_inferred": "info"}


@pytest.mark.parametrize(
    "line",
    [
        front(0) + "AllGather: opCo",
        front(0) + "AllGather: o",
        front(0) + "AllGather: opCount 20 sendbuff 0x7f03 recv",
        front(0) + "AllGather: opCount 20 sendbuff 0x7f03 recvbuff 0x7f04 count 1000 datatype 9 op 0 root 0 comm 0x5500 [nra",
        front(0) + "16384 Bytes -> Al",
        front(0) + "AllReduce: 16384 Bytes -> Algo RING pro",
        front(0) + "comm 0x5500 rank 0 nran",
        front(0) + "comm 0x5500 rank 0 nranks 4 cudaDev 0 nvmlDev 0",
        front(0)[:-5],
    ],
)
def test_a_line_cut_short_is_counted_and_says_nothing(line: str) -> None:
    traces = read(WORLD[0], WORLD[1], call(1), line)
    (cut,) = [f for f in traces[0].findings if f["code"] == "nccl_log_incomplete"]
    assert cut["count"] == 1 and cut["severity"] == "warning" and "1 line" in cut["message"]
    assert cut["offset"] is not None
    assert [len(t.stated["records"]) for t in traces] == [0, 1]


@pytest.mark.parametrize(
    "line",
    [
        front(0) + "Channel 00/02 : 0 1 2 3",
        front(0) + "NET/OFI: ok",
        front(0) + "Connected all rings",
        front(0) + "comm 0x5500, 16 coll channels, 16 collnet channels, 0 nvls channels",
        front(0) + "Using network Socket",
        front(0) + "comm 0x5500 rank 0 nranks 4 cudaDev 0 setBuffSizes",
    ],
)
def test_other_lines_of_nccl_are_no_damage(line: str) -> None:
    assert codes(*read(WORLD[0], line, call(0))) == {"nccl_rank_inferred": "info"}


def test_a_wording_that_is_not_known_is_said_so() -> None:
    strange = front(0) + "AllReduce: opCount 3 sendbuff 0x1 recvbuff 0x2 count 7 datatype 7 peer 1 comm 99 [nranks=4, localRanks=4] stream=0x9"
    traces = read(WORLD[0], call(0), strange)
    assert codes(*traces)["nccl_log_unread"] == "warning"
    assert len(traces[0].stated["records"]) == 1


def test_lines_of_others_are_counted_and_nccls_own_warnings_too() -> None:
    warn = "node-a:100:200 [0] ofi_process_cq:196 NCCL WARN NET/OFI Request completed with error"
    (trace,) = read(WORLD[0], "step 10 loss 2.31", "", warn, call(0))
    found = {f["code"]: f for f in trace.findings}
    assert found["nccl_log_foreign_lines"]["count"] == 1
    assert found["nccl_warned"]["count"] == 1 and "NET/OFI" not in found["nccl_warned"]["message"]
    assert {f["severity"] for f in trace.findings} == {"info"}


def test_an_element_type_that_is_not_known_leaves_the_bytes_unknown() -> None:
    (trace,) = read(WORLD[0], call(0, dtype=42))
    assert records(trace, "nbytes", "dtype") == [(None, "datatype 42")]
    assert codes(trace)["nccl_datatype_unknown"] == "warning"


def test_numbers_that_no_buffer_has_are_unknown() -> None:
    (trace,) = read(WORLD[0], call(0, count=2**63), call(0, count=2**61), call(0, seq=2**64 - 1))
    assert records(trace, "nbytes") == [(None,), (None,), (4000,)]
    assert records(trace, "seq")[2] == (None,)


def test_damaged_text_and_other_line_ends_are_no_hindrance() -> None:
    data = ("\r\n".join([WORLD[0], "caf\xe9", call(0)])).encode("latin-1")
    (trace,) = nccl_log.read(data, Path("x"), DEFAULT)
    assert records(trace, "seq") == [(0,)]


def test_versions_and_host_are_kept() -> None:
    (trace,) = read("NCCL version 2.18.3+cuda12.2", WORLD[0], call(0))
    assert trace.meta.versions == {"nccl": "2.18.3", "cuda": "12.2"} and trace.meta.host == "node-a"
    (trace,) = read("RCCL version : 2.26.6-heads/drop", WORLD[0], call(0))
    assert trace.meta.versions == {"rccl": "2.26.6"}


def test_rccls_additions_are_no_hindrance() -> None:
    line = call(0) + " task 0 globalrank 0"
    assert records(read(WORLD[0], line.replace("[0] NCCL", "[0] 1558545003174220 NCCL"))[0], "seq") == [(0,)]


def test_caps_end_the_reading() -> None:
    with pytest.raises(InputError, match="max-events"):
        read(WORLD[0], *[call(0, seq=i) for i in range(40)], reading=replace(DEFAULT, max_events=10))


def test_a_log_without_anything_to_say_is_refused() -> None:
    with pytest.raises(InputError, match="NCCL_DEBUG_SUBSYS"):
        read(front(0) + "Using network Socket")


def test_it_is_found_behind_noise() -> None:
    head = b"PMIX ERROR\n" * 4000 + WORLD[0].encode()
    reader = reader_for(head[: 64 << 10])
    assert reader is not None and reader.name == "NCCL log"
    assert reader_for(b"step 10 loss 2.31\n" * 10) is None


@settings(max_examples=60)
@given(st.integers(min_value=1), st.booleans())
def test_wherever_a_log_is_cut_no_call_is_invented(at: int, newline: bool) -> None:
    whole = [WORLD[0], WORLD[1], call(0, "AllReduce", 31, count=4096), call(1, "AllGather", 32, count=1234, dtype=9), call(0, "Send", 33, root=1)]
    text = "\n".join(whole)
    at = len(WORLD[0]) + 1 + at % (len(text) - len(WORLD[0]))
    columns = ("kind", "seq", "nbytes", "dtype", "peer")
    full = {t.meta.rank: records(t, *columns) for t in read(text)}
    for trace in read(text[:at], end="\n" if newline else ""):
        mine = records(trace, *columns)
        assert mine == full[trace.meta.rank][: len(mine)]


@settings(max_examples=25)
@given(st.permutations([0] * 4 + [1] * 4 + [2] * 4))
def test_however_ranks_interleave_each_keeps_its_own(order: list[int]) -> None:
    queue = {p: [init(p, p, 3), *[call(p, "AllReduce", i, count=10 * p + i, size=3) for i in range(3)]] for p in range(3)}
    traces = read(*[queue[p].pop(0) for p in order])
    assert {t.meta.rank: records(t, "seq", "nbytes") for t in traces} == {p: [(i, 4 * (10 * p + i)) for i in range(3)] for p in range(3)}
