"""What does a file look like that is no trace we read, and what should be given instead? One phrase, found by content alone."""

from __future__ import annotations

import re
import sqlite3
import struct
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import msgspec

_WANTED = "give a torch.profiler trace (.json, .json.gz)"
_EXPORT = "export it: nsys export --type sqlite --output report.sqlite report.nsys-rep"
_SHOWN = 6
#: SQLite holds a page of 64 KiB at most: the list of tables is read off the file as a whole, but never off a larger one.
_MOST_SQLITE = 2 << 30


#: Fields that a Perfetto TracePacket begins with: timestamp, sequence, clocks, track event, track descriptor, configuration, ...
_PACKET = frozenset({3, 6, 8, 9, 10, 11, 12, 13, 33, 35, 36, 42, 45, 50, 59, 60, 69})


class _Mark(NamedTuple):
    """A file that its first bytes give away."""

    start: bytes
    says: str


_MARKS = (
    _Mark(b"\x7fELF", f"an ELF program or library; {_WANTED}"),
    _Mark(b"MZ", f"a Windows program; {_WANTED}"),
    _Mark(b"\x89PNG", f"a PNG image; {_WANTED}"),
    _Mark(b"\xff\xd8\xff", f"a JPEG image; {_WANTED}"),
    _Mark(b"GIF8", f"a GIF image; {_WANTED}"),
    _Mark(b"RIFF", f"a RIFF file (image, sound or video); {_WANTED}"),
    _Mark(b"%PDF", f"a PDF document; {_WANTED}"),
    _Mark(b"\x89HDF", f"an HDF5 file; {_WANTED}"),
    _Mark(b"\x93NUMPY", f"a NumPy array; {_WANTED}"),
    _Mark(b"ARROW1", f"an Arrow file; {_WANTED}"),
    _Mark(b"PAR1", f"a Parquet file that tracekit did not write; {_WANTED}"),
    _Mark(b"\x1f\x8b", "gzip within gzip; decompress it once (gunzip) and give the result"),
    _Mark(b"\x28\xb5\x2f\xfd", "zstd within another compression; decompress it once (zstd -d) and give the result"),
    _Mark(b"\xfd7zXZ\x00", "compressed with xz, which is not read; decompress it (xz -d) and give the result"),
    _Mark(b"BZh", "compressed with bzip2, which is not read; decompress it (bzip2 -d) and give the result"),
    _Mark(b"\x04\x22\x4d\x18", "compressed with LZ4, which is not read; decompress it (lz4 -d) and give the result"),
    _Mark(b"7z\xbc\xaf\x27\x1c", "a 7z archive, which is not read; unpack it and give the files"),
    _Mark(b"Rar!", "a RAR archive, which is not read; unpack it and give the files"),
    _Mark(b"version https://git-lfs", "a Git LFS pointer, not the file itself; fetch it (git lfs pull)"),
    _Mark(b"/annex/objects/", "a git-annex pointer, not the file itself; fetch it (git annex get)"),
    _Mark(b"QDSTRM", "a raw recording of Nsight Systems (.qdstrm); import it (QdstrmImporter), then " + _EXPORT),
    _Mark(b"NVR\x00", f"a report of Nsight Compute, which has no timeline of the run; {_WANTED}, or an Nsight Systems export"),
    _Mark(b"#!", f"a script; {_WANTED}"),
)

#: Databases by tables that only they have.
_DATABASES = (
    (("rocpd_",), f"a rocpd database of rocprofv3, which is not read; give its JSON (rocprofv3 --output-format json), or {_WANTED.removeprefix('give ')}"),
    (("CANN_API", "COMMUNICATION_OP", "COMPUTE_TASK_INFO"), "an Ascend profiler database, which is not read; give its trace_view.json"),
    (("CUPTI_ACTIVITY_KIND_", "TARGET_INFO_", "NVTX_EVENTS"), "an Nsight Systems export without GPU work; record with nsys profile --trace=cuda,nvtx"),
)

#: JSON objects by a key that only they have.
_OBJECTS: tuple[tuple[str, str], ...] = (
    ("workload_graph", "a Chakra workload graph, the input of a simulator and no recording; give the PyTorch execution trace that it was made from"),
    ("device_traces", "a CUDA memory snapshot turned into JSON; give the pickle of torch.cuda.memory._dump_snapshot()"),
    ("pg_config", "a Flight Recorder dump without its entries; dump it with includeCollectives=True"),
    ("$schema", f"a speedscope or other profile by its $schema; {_WANTED}"),
    ("nodes", f"a graph without the schema of a PyTorch execution trace; {_WANTED}"),
    ("traceEvents", "a Chrome trace whose traceEvents is not at its beginning; write it with torch.profiler's export_chrome_trace"),
)

#: Our own files that say nothing alone.
_OWN = {
    "tracekit.report": "a report of tracekit, not a trace: any JSON tool opens it; to analyse again, give the traces it names under run.source",
    "tracekit.doctor": "a verdict of tracekit doctor, not a trace; give the traces it is about",
    "tracekit.run": "the run.json of a run directory, which describes a run; give the directory that holds it and the ranks' folders",
    "tracekit.result": "the result.json of a reference run, which holds losses and step times; give the directory that holds it",
    "tracekit.memory": "a memory.json, which lists blocks that stood before a recording; give the trace it lies beside, or their directory",
}


def describe(head: bytes, data: bytes | None = None, name: str = "") -> str:
    """What the file looks like, and what to do instead.

    Args:
        head: its first decompressed bytes.
        data: all of them, where they are at hand: the keys of a JSON file and the tables of a database are then named.
        name: what the file is called; only asked where the bytes alone do not tell.

    >>> describe(b"<!DOCTYPE html><html>")
    'an HTML page (a viewer, or an error page saved instead of the file); give the trace itself (.json, .json.gz)'
    >>> describe(b'{"workload_graph": []}').partition(",")[0]
    'a Chakra workload graph'
    """
    if not head:
        return "nothing: the file is empty; was the job killed before it wrote the trace? Copy or record it again"
    if name == "data.pkl" and head.startswith(b"\x80"):
        return f"the data.pkl of a torch checkpoint, which holds weights and no times; {_WANTED}"
    for test in _TESTS:
        if (says := test(head, data)) is not None:
            return says
    if name.endswith((".nsys-rep", ".qdrep")):
        return f"an Nsight Systems report, whose format is NVIDIA's own; {_EXPORT}"
    return f"bytes {head[:8].hex(' ')}; {_WANTED}"


def database(data: bytes) -> str:
    """What a SQLite database holds that is no Nsight Systems export, by its tables."""
    if len(data) > _MOST_SQLITE:
        return f"a SQLite database of {len(data)} bytes; {_WANTED}"
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(data)
        tables = [str(name) for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') LIMIT 1000")]
    except (sqlite3.Error, OverflowError):
        return "a SQLite database that is cut or damaged; copy or export it again"
    finally:
        connection.close()
    if any(t.startswith("CUPTI_ACTIVITY_KIND_KERNEL") for t in tables):
        return f"an Nsight Systems export that cannot be read; {_EXPORT}"
    for marks, says in _DATABASES:
        if any(t.startswith(marks) for t in tables):
            return says
    return f"a SQLite database that is no Nsight Systems export ({f'tables {_join(tables)}' if tables else 'no tables'}); {_WANTED}"


def _known_mark(head: bytes, _: bytes | None) -> str | None:
    return next((m.says for m in _MARKS if head.startswith(m.start)), None)


def _zeros(head: bytes, _: bytes | None) -> str | None:
    return "zero bytes: space was set aside but nothing was written; copy or record it again" if not head.strip(b"\0") else None


def _sqlite(head: bytes, data: bytes | None) -> str | None:
    if not head.startswith(b"SQLite format 3\0"):
        return None
    return f"a SQLite database; {_WANTED}, or an Nsight Systems export" if data is None else database(data)


def _nsys(head: bytes, _: bytes | None) -> str | None:
    seen = any(word in head for word in (b"QuadD", b"NsightSystems", b"Nsight Systems")) and b"\0" in head
    return f"an Nsight Systems report (.nsys-rep), whose format is NVIDIA's own; {_EXPORT}" if seen else None


def _archive(head: bytes, _: bytes | None) -> str | None:
    if head.startswith(b"PK\x03\x04"):
        if b"data.pkl" in head[:256] or b".data/serialization_id" in head:
            return f"a torch checkpoint (a zip with data.pkl), which holds weights and no times; {_WANTED}"
        return "a zip archive without a trace in it; give the traces themselves or an archive of them"
    return "a tar archive without a trace in it; give the traces themselves or an archive of them" if head[257:262] == b"ustar" else None


def _safetensors(head: bytes, _: bytes | None) -> str | None:
    if len(head) > 8 and head[8:9] == b"{" and 2 <= struct.unpack("<Q", head[:8])[0] < 1 << 30:
        return f"a safetensors checkpoint, which holds weights and no times; {_WANTED}"
    return None


def _pickle(head: bytes, _: bytes | None) -> str | None:
    if len(head) > 1 and head[0] == 0x80 and 2 <= head[1] <= 5:
        return "a Python pickle of something else (it was not unpickled); of pickles, Flight Recorder dumps and torch.cuda.memory._dump_snapshot() are read"
    return None


def _marshal(head: bytes, _: bytes | None) -> str | None:
    return f"a cProfile dump of Python functions; {_WANTED}" if head[:1] in (b"{", b"\xfb") and head[1:2] in (b"\xa9", b")", b"\xa8") else None


def _protobuf(head: bytes, _: bytes | None) -> str | None:
    if b"brain.Event:" in head[:64]:
        return "a TensorBoard event file, which holds scalars; give the .pt.trace.json that stands beside it"
    if re.match(rb"[\x00-\x7f]\x0a[\x01-\x10]\d+\.\d+\.\d+", head):
        return "a Chakra execution trace in protobuf (.et), the input of a simulator; give the PyTorch execution trace (.json) that it was made from"
    fields = list(_fields(head))
    if not fields or fields[0][:2] != (1, 2):
        return None
    first = fields[0][2]
    if re.search(rb"/(host|device):|/host|Task Environment", first[:200]):
        return f"an XSpace of JAX or TensorFlow (.xplane.pb), which is not read; {_WANTED}"
    if re.match(rb"\x08[\x01-\x7f]\x10[\x01-\x7f]$", first):
        return f"a pprof profile; {_WANTED}"
    inner = next(_fields(first), None)
    if len(fields) > 1 and all(f[:2] == (1, 2) for f in fields) and inner is not None and inner[0] in _PACKET:
        return f"a Perfetto trace in protobuf (.pftrace), which is not read; {_WANTED}: Chrome's JSON form is read"
    return None


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Number, wire type and content of the protobuf fields that the bytes begin with."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 1 << 29 or wire not in (0, 1, 2, 5):
            return
        if wire == 2:
            size, at = _varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(wire, 0)
            if wire == 0:
                _, at = _varint(data, at)
        yield number, wire, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            return 0, at
        byte, at = data[at], at + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    return 0, at


def _markup(head: bytes, _: bytes | None) -> str | None:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:512].lower()
    if start.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<script")):
        if b"memory timeline" in head[:4096].lower():
            return "the HTML picture of torch.profiler's memory timeline; profile with profile_memory=True and give the trace"
        return "an HTML page (a viewer, or an error page saved instead of the file); give the trace itself (.json, .json.gz)"
    if start.startswith((b"<svg", b"<?xml", b"<")):
        return f"{'an SVG image' if b'<svg' in start else 'an XML file'}; {_WANTED}"
    return None


def _json(head: bytes, data: bytes | None) -> str | None:
    given = head if data is None else data
    text = given.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text.startswith((b"{", b"[")):
        return None
    if (timeline := _memory_timeline(text[:4096])) is not None:
        return timeline
    try:
        whole = msgspec.json.decode(text, type=dict[str, msgspec.Raw] if text.startswith(b"{") else list[msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        return _damaged_json(text, None if data is None else str(error), len(given) - len(text))
    if isinstance(whole, list):
        return f"a JSON list of {len(whole)} entries that are no trace events{_having(_keys(whole[0]) if whole else [])}; {_WANTED}"
    return _object(whole, head) or f"JSON that is no trace: an object{_having(whole)}; {_WANTED}"


def _memory_timeline(start: bytes) -> str | None:
    if re.match(rb"\[\s*\[\s*-?\d+\s*,\s*[0-4]\s*,\s*-?\d+\s*,\s*\d\s*\]", start):
        what = "raw memory timeline (time, action, bytes and category, no addresses)"
    elif re.match(rb"\[\s*\[\s*\d+\s*(,\s*\d+\s*)*\]\s*,\s*\[\s*\[|\[\s*\[\s*\d+(,\s*\d+){100}", start):
        what = "memory timeline (times and sizes by category)"
    else:
        return None
    return f"torch.profiler's {what}; give the trace of the same run, profiled with profile_memory=True"


def _damaged_json(text: bytes, error: str | None, skipped: int) -> str | None:
    """What JSON is that ends early or is malformed; None where it is no JSON at all."""
    keys = _keys(text)
    if not keys and not re.match(rb"[\[{]\s*[\[{\]}\"\d-]", text):
        return None
    if own := _object(keys, text[:4096]):
        return own
    lines = text.split(b"\n", 2)
    if len(lines) > 1 and lines[0].rstrip().endswith(b"}") and lines[1].lstrip().startswith(b"{"):
        return f"JSON lines of no kind that is known{_having(keys)}; {_WANTED}"
    at = None if error is None else skipped + int(next(iter(re.findall(r"byte (\d+)", error)), len(text)))
    return f"JSON that is no trace{'' if at is None else f' and is cut or malformed at byte {at}'}{_having(keys)}; {_WANTED}"


def _keys(text: bytes | msgspec.Raw) -> list[str]:
    """Keys that the beginning of a JSON text shows."""
    return [m.decode("utf-8", "replace") for m in re.findall(rb'"([^"\\]{1,80})"\s*:', bytes(text)[:4096])]


def _object(keys: Collection[str], head: bytes) -> str | None:
    """One of our own files, or an object with a key that gives it away."""
    if "schema" in keys and (own := re.search(rb'"schema"\s*:\s*"(tracekit\.[a-z]{1,20})/', head)):
        return _OWN.get(own[1].decode(), f"a file of tracekit ({own[1].decode()}), not a trace; {_WANTED}")
    return next((says for key, says in _OBJECTS if key in keys), None)


def _text(head: bytes, _: bytes | None) -> str | None:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "text in UTF-16; save it as UTF-8 and give the result"
    try:
        text = head[: _whole_characters(head)].decode()
    except UnicodeDecodeError:
        return None
    if any(c < " " and c not in "\t\n\r\f\x1b" for c in text[:4096]):
        return None
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return f"text without a word in it; {_WANTED}"
    columns = lines[0].split(",")
    if len(columns) > 2 and (len(lines) == 1 or lines[1].count(",") >= len(columns) - 1):
        if any(re.search(r"\(ns\)|\(%\)|CorrId", c) for c in columns):
            return f"a CSV table of Nsight Systems (columns {_join(columns)}), which is a digest of its report; {_EXPORT}"
        return f"a CSV table (columns {_join(columns)}); {_WANTED}"
    if "Self CPU" in text and "----" in text:
        return f"the printed table of torch.profiler's key_averages(), which has no timeline; {_WANTED}"
    return f"a text file that begins {_line(lines[0])!r}; {_WANTED}"


def _whole_characters(head: bytes) -> int:
    """Length without a character that the end of the head cuts in two."""
    tail = next((i for i in range(1, 4) if len(head) >= i and head[-i] >= 0xC0), 0)
    return len(head) - tail if len(head) >= 64 << 10 else len(head)


def _having(keys: Collection[str]) -> str:
    return f" (keys {_join(keys)})" if keys else ""


def _join(names: Collection[str]) -> str:
    shown = [_line(n) for n in dict.fromkeys(names)]
    return ", ".join(shown[:_SHOWN]) + (", …" if len(shown) > _SHOWN else "")


def _line(text: str) -> str:
    """Foreign text within one line of ours: printable and short."""
    line = "".join(c if c.isprintable() else "�" for c in " ".join(text.split()))
    return line if len(line) <= 40 else line[:39] + "…"


#: In the order in which they are asked; each takes the head and, where it is at hand, the whole.
_TESTS: tuple[Callable[[bytes, bytes | None], str | None], ...] = (
    _zeros,
    _known_mark,
    _sqlite,
    _archive,
    _safetensors,
    _pickle,
    _nsys,
    _marshal,
    _markup,
    _json,
    _text,
    _protobuf,
)
