"""Is every file that is no trace named for what it is, with what to give instead, in one line and whatever its bytes?"""

from __future__ import annotations

import json
import marshal
import pickle
import sqlite3
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import REPOSITORY
from tracekit import analyze, readers
from tracekit.errors import InputError
from tracekit.readers.archives import is_archive
from tracekit.readers.bytes import head
from tracekit.readers.strangers import describe


def database(*tables: str) -> bytes:
    connection = sqlite3.connect(":memory:")
    for table in tables:
        connection.execute(f"CREATE TABLE {table} (x)")
    return connection.serialize()


def message(number: int, content: bytes) -> bytes:
    """A protobuf field with bytes as its content."""
    return bytes([number << 3 | 2, len(content)]) + content


DRAWN = {
    "nothing: the file is empty": b"",
    "zero bytes": bytes(4096),
    "an HTML page": b"\n<!DOCTYPE html><html><body>404</body></html>",
    "HTML picture of torch.profiler's memory timeline": b"<html>\n<head><meta charset='utf-8' /><title>GPU Memory Timeline HTML</title></head>",
    "an XML file": b'<?xml version="1.0"?><Error><Code>NoSuchKey</Code></Error>',
    "an SVG image": b'<svg xmlns="http://www.w3.org/2000/svg"></svg>',
    "a Python pickle of something else": pickle.dumps({"losses": [1.0]}),
    "a cProfile dump": marshal.dumps({("f.py", 1, "f"): (1, 1, 0.1, 0.1, {})}),
    "a Chakra workload graph": b'{"workload_graph": [{"Id": 216}]}',
    "Chakra execution trace in protobuf (.et)": b"\x07\x0a\x050.0.4" + message(1, b"\x08\x01"),
    "raw memory timeline": b"[[-1, 1, 37888, 7], [1696966047194486198, 1, 512, 7]]",
    "memory timeline (times and sizes by category)": b"[[1, 2, 3], [[0, 0, 0], [1, 2, 3]]]",
    "nsys export --type sqlite": b"\x02\x00\x00\x00QuadDCommon\x00 Analysis \xfe",
    "an Nsight Systems (.qdstrm)": b"QDSTRM\x00\x01",
    "Nsight Compute": b"NVR\x00\x1a",
    "CSV table of Nsight Systems (columns Start (ns), Duration (ns), CorrId)": b"Start (ns),Duration (ns),CorrId\n1,2,3\n",
    "a CSV table (columns epoch, loss, time)": b"epoch,loss,time\n1,2.5,3\n",
    "XSpace of JAX or TensorFlow (.xplane.pb)": message(1, b"\x08\x01" + message(2, b"/host:CPU")),
    "Perfetto trace in protobuf": message(1, b"\x40\x05") + message(1, b"\x50\x01\x5a\x00"),
    "a pprof profile": message(1, b"\x08\x01\x10\x02") + message(1, b"\x08\x03\x10\x04"),
    "a TensorBoard event file": b'\x18\0\0\0\0\0\0\0\xa3\x7fK"\t\0\0\xc0\x91\x0b\x12\xd9A\x1a\rbrain.Event:2',
    "a rocpd database": database("rocpd_kernel_dispatch_0", "rocpd_string"),
    "an Ascend profiler database": database("STRING_IDS", "CANN_API", "COMMUNICATION_OP"),
    "an Nsight Systems export without GPU work": database("StringIds", "TARGET_INFO_SYSTEM_ENV", "NVTX_EVENTS"),
    "no Nsight Systems export (tables runs, metrics)": database("runs", "metrics"),
    "a SQLite database that is cut or damaged": database("runs", "metrics")[:5000],
    "a torch checkpoint (a zip with data.pkl)": b"PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\x12\0archive/data.pkl",
    "a zip archive without a trace": b"PK\x03\x04\x14\0\0\0notes.txt",
    "a safetensors checkpoint": struct.pack("<Q", 40) + b'{"w": {"dtype": "F32", "data_offsets": [0,4]}}',
    "a PNG image": b"\x89PNG\r\n\x1a\n",
    "an ELF program": b"\x7fELF\x02\x01\x01",
    "gzip within gzip": b"\x1f\x8b\x08\0",
    "compressed with xz": b"\xfd7zXZ\x00\x00",
    "a Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 7\n",
    "a Parquet file that tracekit did not write": b"PAR1\x15\x04",
    "text in UTF-16": "{}".encode("utf-16"),
    "a text file that begins 'Epoch 1: loss 2.5'": b"Epoch 1: loss 2.5\nEpoch 2: loss 2.4\n",
    "printed table of torch.profiler's key_averages()": b"-----  -----\nName   Self CPU %   Self CPU\n----- -----\naten::mm  1  2\n",
    "JSON that is no trace: an object (keys epoch, loss)": b'{"epoch": 1, "loss": 2.5}',
    "a JSON list of 2 entries that are no trace events (keys epoch)": b'[{"epoch": 1}, {"epoch": 2}]',
    "a JSON list of 0 entries": b"[]",
    "JSON that is no trace and is cut or malformed at byte 14 (keys epoch)": b' {"epoch": [1,',
    "JSON lines of no kind that is known (keys step, loss)": b'{"step": 1, "loss": 2}\n{"step": 2, "loss": 1}\n',
    "a report of tracekit, not a trace": b'{"schema": "tracekit.report/1", "health": {}}',
    "the run.json of a run directory": b'{\n  "schema": "tracekit.run/1"}',
    "the result.json of a reference run": b'{"schema": "tracekit.result/1"}',
    "a memory.json": b'{"schema": "tracekit.memory/1"}',
    "a file of tracekit (tracekit.later)": b'{"schema": "tracekit.later/1"}',
    "bytes c3 28 a0 a1 00 ff": b"\xc3\x28\xa0\xa1\x00\xff",
}
#: Said otherwise than by its name.
WORDS = {"an Nsight Systems (.qdstrm)": "a raw recording of Nsight Systems (.qdstrm)"}


@pytest.mark.parametrize("says", DRAWN)
def test_what_it_looks_like(says: str) -> None:
    data = DRAWN[says]
    told = describe(data[: 64 << 10], data)
    assert WORDS.get(says, says) in told
    assert "\n" not in told and len(told) < 300


def test_each_says_what_to_do_next() -> None:
    next_steps = ("give ", "export", "decompress", "fetch", "again", "save it", "are read")
    assert [says for says, data in DRAWN.items() if not any(step in describe(data, data) for step in next_steps)] == []


def test_a_name_speaks_only_where_the_bytes_do_not() -> None:
    assert "nsys export --type sqlite" in describe(b"\x9c\x01\x02", None, "run.nsys-rep")
    assert "an ELF program" in describe(b"\x7fELF", None, "run.nsys-rep")
    assert "a torch checkpoint" in describe(b"\x80\x02", None, "data.pkl")


def test_without_the_whole_nothing_is_called_cut() -> None:
    assert describe(b'{"epoch": [1, 2').startswith("JSON that is no trace (keys epoch)")
    assert describe(database("runs")[:4096]).startswith("a SQLite database;")


def test_foreign_text_is_shown_printable_and_short() -> None:
    told = describe("\x1b[31mred \u202eflip ".encode() + b"a" * 200)
    assert "\x1b" not in told and "\u202e" not in told and len(told) < 150


@given(st.sampled_from(sorted(DRAWN.values())), st.binary(max_size=40), st.integers(0, 200), st.booleans())
def test_whatever_the_bytes_there_is_one_line(start: bytes, noise: bytes, at: int, whole: bool) -> None:
    data = start[:at] + noise + start[at:]
    told = describe(data, data if whole else None)
    assert told and "\n" not in told and len(told) < 400


def test_reading_a_stranger_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "page.json"
    path.write_bytes(DRAWN["an HTML page"])
    with pytest.raises(InputError, match=r"page\.json: not a trace I know: an HTML page"):
        readers.read(path)


@pytest.mark.parametrize("name", ["run.json", "result.json", "rank00000/capture000/memory.json"])
def test_our_own_files_alone_are_named(name: str) -> None:
    with pytest.raises(InputError, match=name.rpartition("/")[2]):
        readers.read(REPOSITORY / "sample_traces" / "tp" / name)


STRANGERS = {
    "hta/memory_analysis__memory_timeline.raw.gz": "raw memory timeline",
    "pipit/cloverleaf-cuda_api_trace.csv.gz": "a CSV table of Nsight Systems",
    "pipit/cloverleaf_gpu_trace.csv.gz": "a CSV table of Nsight Systems",
    "nvrx/gpu_error_1st/fault_injection.log": "a text file that begins 'Fault ranks",
    "MANIFEST.md": "a text file that begins '# shared traces'",
}


@pytest.mark.parametrize("name", STRANGERS)
def test_public_strangers_are_named(name: str, shared: Path) -> None:
    with pytest.raises(InputError) as refused:
        readers.read(shared / "traces" / name)
    assert f"not a trace I know: {STRANGERS[name]}" in str(refused.value).replace("torch.profiler's ", "")


def test_every_public_file_is_of_a_known_format_or_named(shared: Path) -> None:
    silent = []
    for path in sorted(p for p in (shared / "traces").rglob("*") if p.is_file()):
        start = head(path)
        if not is_archive(start) and readers.reader_for(start) is None:
            with pytest.raises(InputError) as refused:
                readers.read(path)
            if "not a trace I know: " not in str(refused.value) or "I know: bytes " in str(refused.value):
                silent.append(str(refused.value))
    assert silent == []


def test_an_archive_of_strangers_says_what_the_first_is(shared: Path) -> None:
    with pytest.raises(InputError, match=r"only .*chakra\.0\.json \(a Chakra workload graph, [^;]*\), .*small_chakra"):
        analyze(shared / "traces" / "chakra" / "json_trace.tar.gz", workers=1)


def test_json_of_our_own_reports_is_named(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"schema": "tracekit.report/1", "metrics": {"x" * 10: list(range(1000))}}))
    with pytest.raises(InputError, match=r"run\.source"):
        readers.read(path)
