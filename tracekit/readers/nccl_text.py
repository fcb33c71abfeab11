"""Which lines of a log are NCCL's, and what do they say? One pass over the bytes, whatever stands around them.

Lines are found anywhere in a line, behind what a launcher put in front of them (``3: ``, ``[1,3]<stdout>:``, time stamps,
``(Worker pid=…)``) and behind another record that was glued to them. Wordings, all of NVIDIA/nccl:

- ``AllReduce: opCount 1f sendbuff … [nranks=4] stream …``: ncclEnqueueCheck in src/enqueue.cc (2.4 to 2.28); opCount is
  hexadecimal; of a Send or Recv, ``root`` is the peer (src/collectives.cc). RCCL adds ``task 0 globalrank 2``.
- ``16384 Bytes -> Algo 1 proto 2 time 34.5`` (2.5 on), ``AllReduce: 4096 Bytes -> Algo RING proto LL channel…`` (2.24 on)
- ``comm 0x… rank 2 nranks 4 cudaDev 0 … - Init COMPLETE``: src/init.cc, with ``commId`` since 2.17, ``parent … color`` of a
  split since 2.18, the calling function's name in front since 2.19
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tracekit.errors import InputError
from tracekit.numbers import below
from tracekit.reading import Reading

_POINTER = rb"(?:0x[0-9a-fA-F]+|\(nil\))"
#: Where a record may begin; everything else that NCCL says is passed over in C.
_RECORD = re.compile(rb"NCCL INFO (?=(?:\[Rank \d+\] )?(?:nccl\w+ )?comm 0x|\w+: o|(?:\w+: )?\d+ Bytes)")
_CALL = re.compile(
    rb"(?P<op>\w+): opCount (?P<seq>[0-9a-fA-F]{1,16}) sendbuff " + _POINTER + rb" recvbuff " + _POINTER + rb" count (?P<count>\d{1,20}) "
    rb"datatype (?P<dtype>\d{1,9}) op \d+ root (?P<root>-?\d{1,9}) comm (?P<handle>" + _POINTER + rb") \[nranks=(?P<size>\d{1,9})\] stream "
    rb"(?:0x[0-9a-fA-F]+|\(nil\))(?: task \d+ globalrank (?P<rank>\d{1,9}))?"
)
_TUNING = re.compile(
    rb"(?:(?P<op>\w+): )?(?P<bytes>\d{1,20}) Bytes -> Algo (?P<algo>\w+) proto (?P<proto>\w+) (?:time|channel)"
    rb"(?:\{Lo\.\.Hi\}=\{\d+\.\.\d+\}(?: comm (?P<handle>0x[0-9a-fA-F]+))?)?"
)
_COMM = re.compile(
    rb"(?:\[Rank \d+\] )?(?:nccl\w+ )?comm (?P<handle>0x[0-9a-fA-F]+) rank (?P<rank>\d{1,9}) n[rR]anks (?P<size>\d{1,9}) "
    rb"(?P<details>(?:cudaDev (?P<device>\d{1,9})(?: nvmlDev \d+)?(?: busId [0-9a-fA-F]+)?)?"
    rb"(?: parent (?P<parent>0x[0-9a-fA-F]+)(?: splitCount (?P<split>\d+))? color (?P<color>-?\d+) key -?\d+)?(?: commId (?P<id>0x[0-9a-fA-F]+))?)"
    rb"(?: ?- (?P<what>Init START|Init COMPLETE|COMPLETE|\w+ COMPLETE))?"
)
_HEADER = re.compile(rb"(?:(?P<host>[^\s:]{1,255}):(?P<pid>\d{1,10}):\d+ )?\[-?\d+\] (?:\d+ )?\Z")
_TAIL = re.compile(rb"(?:[^\s:]{1,255}:\d+:\d+ )?\[-?\d+\] (?:\d+ )?\Z")
#: What a launcher writes in front: srun --label, mpirun --tag-output (Open MPI 4 and 5), torch's own logging.
_LABEL = re.compile(rb"\s*(?:(?P<srun>\d{1,7}): |\[[^\]\s]*,(?P<mpi>\d{1,7})\]<std(?:out|err)>:|\[rank(?P<torch>\d{1,7})\]:)")
_VERSION = re.compile(rb"CCL version ?:? ?(?P<version>\d[\w.]*)(?:\+(?P<toolkit>cuda|hip)(?P<toolkit_version>[\d.]+))?")
_ANSI = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
#: The words of a call's line, values left open: a line that ends among them was cut.
_WORDS = (b"opCount", b"", b"sendbuff", b"", b"recvbuff", b"", b"count", b"", b"datatype", b"", b"op", b"", b"root", b"", b"comm", b"", b"[nranks=", b"stream")
_CUT_TUNING = re.compile(rb"(?:\w+: )?\d+ Bytes(?: -?>?(?: A?l?g?o?(?: \w*(?: p?r?o?t?o?(?: \w*)?)?)?)?)?")
_CUT_COMM = re.compile(rb"(?:\[Rank \d+\] )?(?:nccl\w+ )?comm 0x[0-9a-fA-F]*(?: r?a?n?k?(?: \d*(?: n[rR]?a?n?k?s?(?: \d*(?: c?u?d?a?D?e?v?)?)?)?)?)?")
_CUT_HEADER = re.compile(rb"[^\s:]{1,255}:\d+:\d+ \[-?\d+\]?(?: N?C?C?L?(?: I?N?F?O?)?)?\s*\Z")
#: The words of a setup's line.
_SETUP = (b"cudaDev", b"nvmlDev", b"busId", b"parent", b"splitCount", b"color", b"key", b"commId", b"-")
_EVERY = 1 << 14
#: What stands in front of a record, and a record, are shorter.
_LONGEST = 1024


class Comm(NamedTuple):
    """What a line says of a communicator; ``what`` is Init START, Init COMPLETE, Destroy COMPLETE, …, or None."""

    at: int
    process: int
    handle: str
    rank: int
    size: int
    device: int | None
    id: str | None
    parent: str | None
    split: str | None
    what: str | None


class Tuning(NamedTuple):
    """Which algorithm and protocol NCCL chose for so many bytes."""

    at: int
    process: int
    op: str | None
    nbytes: int
    algorithm: str
    protocol: str
    handle: str | None


@dataclass
class Process:
    """A process that wrote lines; ``labels`` are the numbers its launcher put in front of them."""

    host: str | None
    pid: int | None
    labels: set[int] = field(default_factory=set)
    glued: bool = True


@dataclass
class Calls:
    """The columns of the calls, in the order of their lines; ``op`` and ``handle`` are numbers into the two lists of names."""

    at: array[int] = field(default_factory=lambda: array("q"))
    process: array[int] = field(default_factory=lambda: array("q"))
    op: array[int] = field(default_factory=lambda: array("q"))
    seq: array[int] = field(default_factory=lambda: array("Q"))
    count: array[int] = field(default_factory=lambda: array("q"))
    dtype: array[int] = field(default_factory=lambda: array("q"))
    root: array[int] = field(default_factory=lambda: array("q"))
    handle: array[int] = field(default_factory=lambda: array("q"))
    size: array[int] = field(default_factory=lambda: array("q"))
    rank: array[int] = field(default_factory=lambda: array("q"))
    ops: dict[bytes, int] = field(default_factory=dict)
    handles: dict[bytes, int] = field(default_factory=dict)


@dataclass
class Scan:
    """All that a log says.

    Attributes:
        cut: bytes at which records begin that end too early.
        unread: bytes at which calls begin whose wording is not known.
        warned: bytes at which NCCL's own warnings stand.
        foreign: lines that are not NCCL's.
    """

    processes: list[Process] = field(default_factory=list)
    calls: Calls = field(default_factory=Calls)
    comms: list[Comm] = field(default_factory=list)
    tunings: list[Tuning] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    warned: list[int] = field(default_factory=list)
    foreign: int = 0


def plain(data: bytes) -> bytes:
    """The log without the colours of a terminal."""
    return _ANSI.sub(b"", data) if b"\x1b[" in data else data


def scan(data: bytes, path: Path, reading: Reading) -> Scan:
    """Read every record of a log.

    Raises:
        InputError: it holds more calls than ``reading.max_events``, or takes longer than ``reading.max_seconds``.
    """
    out, clock = Scan(), reading.started()
    writers = _Writers(data, out.processes)
    for number, found in enumerate(_RECORD.finditer(data)):
        if number % _EVERY == 0:
            clock.check(path)
        at, process = found.end(), writers.of(found.start())
        if (call := _CALL.match(data, at)) is not None:
            if len(out.calls.at) >= reading.max_events:
                raise InputError(f"more than {reading.max_events} records; raise --max-events, or cut the log into parts", path, found.start())
            _add(out.calls, call, found.start(), process)
        elif (tuned := _TUNING.match(data, at)) is not None:
            op, nbytes, algorithm, protocol, handle = (None if v is None else v.decode() for v in tuned.group("op", "bytes", "algo", "proto", "handle"))
            out.tunings.append(Tuning(found.start(), process, op, int(nbytes or 0), algorithm or "", protocol or "", handle))
        elif (comm := _COMM.match(data, at)) is not None:
            _add_comm(out, comm, data, found.start(), process)
        else:
            _left_over(out, _line(data, at), found.start())
    _last_line(out, data)
    out.versions = _versions(data)
    out.warned = [m.start() for m in re.finditer(rb"NCCL WARN ", data)]
    out.foreign = sum(1 for line in lines_of(data) if b"NCCL" not in line and not line.isspace() and line)
    return out


def _add(calls: Calls, call: re.Match[bytes], at: int, process: int) -> None:
    op, seq, count, dtype, root, handle, size, rank = call.groups()
    calls.at.append(at)
    calls.process.append(process)
    calls.op.append(calls.ops.setdefault(op, len(calls.ops)))
    calls.seq.append(int(seq, 16))
    number = below(int(count), 1 << 62)
    calls.count.append(-1 if number is None else number)
    calls.dtype.append(int(dtype))
    calls.root.append(int(root))
    calls.handle.append(calls.handles.setdefault(handle, len(calls.handles)))
    calls.size.append(int(size))
    calls.rank.append(-1 if rank is None else int(rank))


def _add_comm(out: Scan, comm: re.Match[bytes], data: bytes, at: int, process: int) -> None:
    what = None if comm["what"] is None else comm["what"].decode()
    if what is None:
        behind = _TAIL.sub(b"", _line(data, comm.end())).split()
        if not behind or any(word.startswith(behind[0]) for word in _SETUP):
            out.cut.append(at)
            return
    split = None if comm["color"] is None else f"{(comm['split'] or b'').decode()}:{comm['color'].decode()}"
    named = comm["id"] is not None and int(comm["id"], 16) != 0
    out.comms.append(
        Comm(
            at=at,
            process=process,
            handle=comm["handle"].decode(),
            rank=int(comm["rank"]),
            size=int(comm["size"]),
            device=None if comm["device"] is None else int(comm["device"]),
            id=comm["id"].decode() if named else None,
            parent=None if comm["parent"] is None else comm["parent"].decode(),
            split=split,
            what=what,
        )
    )


def _left_over(out: Scan, text: bytes, at: int) -> None:
    """A record that is none of the known ones: cut, of another wording, or not a record at all."""
    text = _TAIL.sub(b"", text).rstrip()
    _, _, rest = text.partition(b": ")
    if rest and b"opCount".startswith(rest):
        out.cut.append(at)
    elif rest.startswith(b"opCount "):
        (out.cut if _is_cut(rest.split(b" ")) else out.unread).append(at)
    elif _CUT_TUNING.fullmatch(text) or _CUT_COMM.fullmatch(text):
        out.cut.append(at)


def _is_cut(words: list[bytes]) -> bool:
    """Whether the words of a call's line are right as far as they go, and too few."""
    *whole, last = words
    right = all(not wanted or got == wanted or (wanted == b"[nranks=" and got.startswith(wanted)) for got, wanted in zip(whole, _WORDS, strict=False))
    wanted = _WORDS[len(whole)] if len(whole) < len(_WORDS) else None
    return right and wanted is not None and (not wanted or wanted.startswith(last) or (wanted == b"[nranks=" and last.startswith(wanted)))


def _last_line(out: Scan, data: bytes) -> None:
    """A last line that ends inside the words in front of every record."""
    start = data.rfind(b"\n", 0, len(data) - 1) + 1
    if len(data) - start < _LONGEST and _CUT_HEADER.search(data, start) is not None:
        out.cut.append(start)


def _line(data: bytes, at: int) -> bytes:
    """The rest of the line (as much as a record may have), up to the next record that is glued to it."""
    end = data.find(b"\n", at, at + _LONGEST)
    text = data[at : end if end >= 0 else at + _LONGEST]
    return text.partition(b"NCCL INFO")[0]


def _versions(data: bytes) -> dict[str, str]:
    found = _VERSION.search(data)
    if found is None:
        return {}
    out = {"rccl" if data[: found.start()].endswith(b"R") else "nccl": found["version"].decode()}
    return {**out, found["toolkit"].decode(): found["toolkit_version"].decode()} if found["toolkit"] else out


def lines_of(data: bytes) -> Iterator[bytes]:
    """Lines, in parts, so that a long log is not held twice."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", min(start + (8 << 20), len(data)))
        end = len(data) if end < 0 else end
        yield from data[start:end].split(b"\n")
        start = end + 1


class _Writers:
    """Which process wrote the record at a byte? Headers that were met before are known at once."""

    def __init__(self, data: bytes, processes: list[Process]) -> None:
        self.data, self.processes = data, processes
        self.known: dict[bytes, int] = {}
        self.number: dict[tuple[str | None, int | None], int] = {}

    def of(self, at: int) -> int:
        start = max(self.data.rfind(b"\n", max(at - _LONGEST, 0), at) + 1, at - _LONGEST, 0)
        front = self.data[start:at]
        process = self.known.get(front)
        if process is None:
            process = self._parsed(front)
            if len(self.known) < 1 << 16:
                self.known[front] = process
        return process

    def _parsed(self, front: bytes) -> int:
        header, label = _HEADER.search(front), _LABEL.match(front)
        said = next((int(v) for v in label.groups() if v is not None), None) if label is not None else None
        host = header["host"].decode("utf-8", "replace") if header is not None and header["host"] is not None else None
        pid = int(header["pid"]) if header is not None and header["pid"] is not None else None
        glued = b"NCCL " in front
        key = (host, pid) if host is not None or said is None or glued else (f"task {said}", None)
        number = self.number.setdefault(key, len(self.processes))
        if number == len(self.processes):
            self.processes.append(Process(*key))
        process = self.processes[number]
        process.glued &= glued
        if said is not None and not glued:
            process.labels.add(said)
        return number
