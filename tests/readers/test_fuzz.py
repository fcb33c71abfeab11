"""Whatever the bytes, the outcome is a trace or a TracekitError: no crash, no hang, in every format and for salvage too."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import document, forward, kernel, launch, memory, op, span
from tracekit import readers
from tracekit.errors import TracekitError
from tracekit.facts import boil_down
from tracekit.passes import run_passes
from tracekit.reading import Reading
from tracekit.trace import RankTrace

#: Small public files, one or two of each format, and how many mutations of each are tried.
PUBLIC = {
    "hta/call_stack__backward_thread.json": 60,
    "hta/triton_example__c88eab30__triton_example.json.gz": 60,
    "hta/trace_file_list__inference_rank_1.json.gz": 40,
    "ibmaiu/sample_flex_3062_job_4.json": 40,
    "pippy/pipe_visualized.json": 40,
    "hta/execution_trace__benchmark_simple_add_et.json.gz": 40,
    "hta/memory_analysis__memory_timeline.raw.gz": 10,
    "nvrx/gpu_error_1st/_dump_0": 60,
    "nvrx/lock_gil_1st/_dump_3": 40,
    "memsnap_silmont/mem_snapshot.pickle": 25,
    "superbench/nccl_allreduce.log": 40,
    "superbench/nccl_alltoall.log": 20,
    "awsome/slurm-104.out.gz": 8,
    "phaznccl/trace_-_2762285_collectives_all_reduces_single_node_-_Copy.jsonl": 25,
    "nsysai/mfu_2gpu_before.sqlite.gz": 6,
}

#: What is done to the bytes: kind, place and length as parts of the whole, and bytes to put in.
MUTATIONS = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "put in", "twice", "end"]),
        st.floats(0, 1),
        st.floats(0, 1),
        st.binary(min_size=1, max_size=8)
        | st.sampled_from([b'"', b"{", b"}", b"[", b"]", b",", b"\\", b"\x00", b"-", b"1e999", b"NaN", b"9" * 25, b'"ts":', b"null", b"\n"]),
    ),
    min_size=1,
    max_size=4,
)


def mutated(data: bytes, mutations: list[tuple[str, float, float, bytes]]) -> bytes:
    for kind, place, share, some in mutations:
        at = int(place * len(data))
        to = at + int(share**4 * 200) + 1  # mostly short
        if kind == "flip":
            data = data[:at] + bytes(b ^ some[0] for b in data[at : at + 1]) + data[at + 1 :]
        elif kind == "cut":
            data = data[:at] + data[to:]
        elif kind == "put in":
            data = data[:at] + some + data[at:]
        elif kind == "twice":
            data = data[:to] + data[at:]
        else:
            data = data[: max(at, 1)]
    return data


def outcome(path: Path, salvage: bool) -> tuple[RankTrace, ...]:
    """The traces that a file gives; none where it is refused."""
    try:
        traces = readers.read(path, Reading(salvage=salvage, max_seconds=60))
    except TracekitError as error:
        assert "\n" not in str(error)
        return ()
    assert isinstance(traces, tuple) and all(isinstance(t, RankTrace) for t in traces)
    return traces


@pytest.mark.parametrize("name", PUBLIC)
def test_mutated_public_files_give_a_trace_or_a_refusal(shared: Path, tmp_path: Path, name: str) -> None:
    original = (shared / "traces" / name).read_bytes()
    data = gzip.decompress(original) if name.endswith(".gz") else original
    path = tmp_path / "file"

    @settings(max_examples=PUBLIC[name], derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(MUTATIONS, st.booleans())
    def check(mutations: list[tuple[str, float, float, bytes]], salvage: bool) -> None:
        path.write_bytes(mutated(data, mutations))
        outcome(path, salvage)

    check()


DRAWN: list[dict[str, Any]] = [
    span("ProfilerStep#1", 0, 100),
    forward("aten::linear", 1, 20, 1),
    launch(2, 4, 1),
    kernel("gemm", 10, 30, 1),
    kernel(
        "ncclDevKernel_AllReduce",
        30,
        40,
        2,
        **{"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 8, "Process Group Ranks": "[0, 1]", "Seq": 1},
    ),
    op("c10d::allreduce_", 5, 6, **{"Input Dims": [[8]], "Input type": ["float"]}),
    memory(3, 64, 64, 1),
    {"ph": "B", "name": "range", "pid": 1, "tid": 100, "ts": 40},
    {"ph": "E", "pid": 1, "tid": 100, "ts": 50},
]


@settings(max_examples=35, derandomize=True, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MUTATIONS, st.booleans())
def test_what_is_read_of_a_mutated_trace_can_be_boiled_down(tmp_path: Path, mutations: list[tuple[str, float, float, bytes]], salvage: bool) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(mutated(json.dumps(document(DRAWN)).encode(), mutations))
    for trace in outcome(path, salvage):
        facts = boil_down(run_passes(trace))
        assert facts["extent"]["events"].iloc[0] <= len(trace.events)


@settings(max_examples=60, derandomize=True, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MUTATIONS, st.booleans())
def test_a_mutated_gzip_gives_a_trace_or_a_refusal(tmp_path: Path, mutations: list[tuple[str, float, float, bytes]], salvage: bool) -> None:
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(mutated(gzip.compress(json.dumps(document(DRAWN)).encode(), mtime=0), mutations))
    outcome(path, salvage)


@settings(max_examples=200, derandomize=True, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"{", b"[{", b'{"traceEvents": [', b'[{"ph": "X", ', b"\x80\x02", b"SQLite format 3\x00", b"PAR1"]),
    st.booleans(),
)
def test_bytes_of_any_kind_give_a_trace_or_a_refusal(tmp_path: Path, data: bytes, start: bytes, salvage: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(start + data)
    outcome(path, salvage)
