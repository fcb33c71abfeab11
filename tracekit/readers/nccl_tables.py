"""Which rows did nccl-tests print, and of which test? All tables of a log, whatever stands around and between their lines.

Old and new headers (an ``error`` column, or ``#wrong``; NVIDIA/nccl-tests, print_header in src/*.cu, writeResultHeader in
src/util.cu), both halves, job-step prefixes, NCCL's own lines between the rows and inside them. Where the log does not name
the test, it is inferred from the ratio of busbw to algbw and from what the columns redop and root hold, if only one fits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from tracekit import theory
from tracekit.printed import algbw_spread, busbw_fits
from tracekit.readers.nccl_text import lines_of
from tracekit.reading import Reading
from tracekit.vocabulary import Collective

_TYPES = "int8|uint8|int32|uint32|int64|uint64|half|float|double|bfloat16|f8e4m3|f8e5m2|fp8_e4m3|fp8_e5m2|char|int"
_ROW = re.compile(rf"(?:^|[\s>\]:])(?P<size>\d{{1,18}})\s+(?P<count>\d{{1,18}})\s+(?P<type>{_TYPES})(?=\s|$)(?P<rest>.*)$")
_HEADER = re.compile(r"#\s+(?P<columns>size\s+count(?:\s+[#%\w]+)*\s+algbw\s+busbw(?:\s+[#%\w]+)*)\s*$")
_UNITS = re.compile(r"#\s+\(B\)\s+\(elements\)\s+\((?P<unit>\w+)\)")
_RANK = re.compile(r"#\s+Rank\s+(?P<rank>\d{1,7})(?:\s+Group\s+(?P<group>\d{1,7}))?\s+Pid\s+\d+ on\b")
_STARTING = re.compile(r"Collective test starting: (?P<test>\w+)")
_MENTION = re.compile(r"\b(?P<test>[a-z]\w*)_perf\b")
_AVERAGE = re.compile(r"# Avg bus bandwidth\s*: (?P<busbw>[\d.eE+-]+)")
_RUN = re.compile(r"# nThread \d+ nGpus \d+ ")
#: A line of NCCL's own, from its host on; a number of the table that it is glued to stays.
_FOREIGN = re.compile(r"(?P<kept>(?<=\S\s)\s*(?:-?\d+(?:\.\d+)?|N/A)(?=[A-Za-z]))?(?:(?<=\s)|(?<=[\dA])|^)[^\s:]{0,255}:\d+:\d+ \[-?\d+\] .*$")
_NUMBER = re.compile(r"\d{1,18}(?:\.\d+)?(?:[eE][+-]?\d{1,2})?$")
_EVERY = 1 << 12
#: No row is longer.
_LONGEST = 1024
_NONE = frozenset({"N/A", "-", "n/a"})

#: What nccl-tests calls its tests. None: a test that is no collective of ours (hypercube).
TESTS: dict[str, Collective | None] = {
    "all_reduce": Collective.ALL_REDUCE,
    "all_gather": Collective.ALL_GATHER,
    "reduce_scatter": Collective.REDUCE_SCATTER,
    "alltoall": Collective.ALL_TO_ALL,
    "alltoallv": Collective.ALL_TO_ALL,
    "broadcast": Collective.BROADCAST,
    "reduce": Collective.REDUCE,
    "gather": Collective.GATHER,
    "scatter": Collective.SCATTER,
    "sendrecv": Collective.SEND_RECV,
    "hypercube": None,
}
#: Tests whose rows show a reduction, and those whose rows show a root (-1 or no column: none), by their TimeTest calls in src/*.cu.
_REDUCING = frozenset({Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE, Collective.SEND_RECV})
_ROOTED = frozenset({Collective.BROADCAST, Collective.REDUCE, Collective.GATHER, Collective.SCATTER})
#: Old tables (an ``error`` column) have a column redop only where the test's own print_header has one; all-to-all leaves it blank.
_OLD_REDOP = _REDUCING | {Collective.ALL_TO_ALL}


class Cell(NamedTuple):
    """One half of a row; times in ns, bandwidths in GB/s."""

    nbytes: int
    elements: int
    dtype: str
    redop: str | None
    root: int | None
    in_place: bool
    duration_ns: int
    algbw: float
    busbw: float
    errors: int | None


@dataclass
class Table:
    """One table.

    Attributes:
        columns: its header, and where each column ends.
        named: the test as the log names it.
        ranks: how many took part, where the list of ranks is whole.
        average: the bus bandwidth printed below it.
        cut: rows that ended too early.
        joined: rows that other lines had torn apart.
        cpu: the time column holds the time of the calling thread, not of the operation.
    """

    columns: list[tuple[str, int]]
    named: str | None
    ranks: int | None
    cells: list[Cell] = field(default_factory=list)
    average: float | None = None
    unit_ns: int = 1000
    cut: int = 0
    joined: int = 0

    @property
    def cpu(self) -> bool:
        """Whether the time column is the calling thread's."""
        return any(name == "cputime" for name, _ in self.columns)


class Test(NamedTuple):
    """Which collective a table measured.

    Attributes:
        kind: None where the log does not tell.
        inferred: it was inferred, not named.
        candidates: the kinds that fit, where several do.
    """

    kind: Collective | None
    inferred: bool = False
    candidates: tuple[Collective, ...] = ()


def tables(data: bytes, path: Path, reading: Reading) -> list[Table]:
    """Every table of a log, in order.

    Raises:
        InputError: it takes longer than ``reading.max_seconds``.
    """
    state, clock = _State(), reading.started()
    for number, raw in enumerate(lines_of(data)):
        if number % _EVERY == 0:
            clock.check(path)
        line = raw[:_LONGEST].decode("utf-8", "replace").rstrip("\r")
        state.take(_FOREIGN.sub(lambda m: m["kept"] or "", line) if "[" in line else line)
    state.flush()
    return state.found


def test_of(table: Table) -> Test:
    """Which collective a table measured: named by the log, else the only one that its numbers and columns allow."""
    if table.named is not None:
        return Test(TESTS[table.named])
    used = [c for c in table.cells if c.nbytes > 0]
    if not used or not table.ranks or table.ranks < 2 or table.cpu:
        return Test(None)
    spread = algbw_spread([c.nbytes for c in used], [c.duration_ns for c in used], [c.algbw for c in used])
    factors = {kind: theory.busbw_factor(kind, table.ranks) for kind in TESTS.values() if kind is not None}
    by_ratio = [k for k, f in factors.items() if f is not None and busbw_fits(spread, [c.busbw for c in used], f).all()]
    shows, names = _shows(used), [name for name, _ in table.columns]
    fit = tuple(k for k in by_ratio if shows in (None, (k in _REDUCING, k in _ROOTED)))
    if "error" in names:
        fit = tuple(k for k in fit if (k in _OLD_REDOP) == ("redop" in names))
    return Test(fit[0], inferred=True) if len(fit) == 1 else Test(None, candidates=fit)


def _shows(cells: Sequence[Cell]) -> tuple[bool, bool] | None:
    """Whether the rows show a reduction and a root; None where they differ."""
    seen = {(c.redop not in (None, "none"), c.root is not None and c.root >= 0) for c in cells}
    return seen.pop() if len(seen) == 1 else None


class _State:
    """What the lines so far have said."""

    def __init__(self) -> None:
        self.found: list[Table] = []
        self.open: Table | None = None
        self.named: str | None = None
        self.members: dict[int, list[int]] = {}
        self.torn: tuple[re.Match[str], int] | None = None
        self.words: list[str] = []

    def take(self, line: str) -> None:
        """One line, without what is NCCL's."""
        if (row := _ROW.search(line)) is not None and self.open is not None:
            self.flush()
            self._row(row)
        elif self.torn is not None and (words := line.split()) and all(_NUMBER.match(w) or w in _NONE for w in words):
            self.words += words
            self._row(self.torn[0], joined=True)
        elif "#" in line or "_perf" in line:
            self._comment(line)

    def flush(self) -> None:
        """A row that no line completed."""
        if self.torn is not None and self.open is not None:
            self.open.cut += 1
        self.torn, self.words = None, []

    def _comment(self, line: str) -> None:
        if (rank := _RANK.search(line)) is not None:
            self.members.setdefault(int(rank["group"] or 0), []).append(int(rank["rank"]))
        elif (header := _HEADER.search(line)) is not None:
            self.flush()
            start = header.start("columns")
            columns = [(m[0].lower(), m.end()) for m in re.finditer(r"\S+", line[start:])]
            size_end = columns[0][1]
            self.open = Table([(name, end - size_end) for name, end in columns], self.named, self._ranks())
            self.found.append(self.open)
        elif self.open is not None and (units := _UNITS.search(line)) is not None:
            self.open.unit_ns = {"us": 1000, "ms": 1_000_000, "ns": 1, "s": 1_000_000_000}.get(units["unit"], 1000)
        elif self.open is not None and (average := _AVERAGE.search(line)) is not None:
            self.flush()
            self.open.average = float(average["busbw"]) if _NUMBER.match(average["busbw"]) else None
            self.open, self.named, self.members = None, None, {}
        elif (named := _STARTING.search(line) or _MENTION.search(line)) is not None:
            test = named["test"].removesuffix("_perf")
            self.named = test if test in TESTS else self.named
        elif _RUN.search(line) is not None:
            self.members = {}

    def _ranks(self) -> int | None:
        """Ranks of each group, where the list is whole and all groups are alike."""
        sizes = {len(of) for of in self.members.values() if sorted(of) == list(range(len(of)))}
        alone = len(self.members) == 1 and len(sizes) == 1
        alike = len(sizes) == 1 and len({len(of) for of in self.members.values()}) == 1
        return sizes.pop() if alone or alike else None

    def _row(self, row: re.Match[str], joined: bool = False) -> None:
        """A row, if it is whole; else it waits for the rest."""
        assert self.open is not None
        if not joined:
            self.words = row["rest"].split()
        cells = _cells(self.open, row, self.words)
        if cells is None:
            self.torn = (row, 0)
            return
        self.open.cells += cells
        self.open.joined += joined
        self.torn, self.words = None, []


def _cells(table: Table, row: re.Match[str], words: list[str]) -> list[Cell] | None:
    """The halves of a row; None where words are missing."""
    names = [name for name, _ in table.columns]
    words = list(words)
    redop = words.pop(0) if "redop" in names and words and re.match(r"[a-z]", words[0]) else None
    root = int(words.pop(0)) if "root" in names and words and re.match(r"-?\d{1,9}$", words[0]) else None
    starts = [i for i, name in enumerate(names) if name in ("time", "cputime")]
    halves = list(zip(starts, [*starts[1:], len(names)], strict=True))
    stamp = "timestamp" in names
    halves = [(a, b - 1 if stamp and b == len(names) else b) for a, b in halves]
    wanted = sum(b - a for a, b in halves)
    if len(words) < wanted:
        one = halves[0][1] - halves[0][0]
        lone = len(halves) == 2 and len(words) in (one, one + 2 * stamp) and _second_half(table, row, words[0], starts)
        if not lone:
            return None
        halves = halves[1:]
    out = []
    for number, (a, b) in enumerate(halves):
        mine = dict(zip(names[a:b], words[: b - a], strict=False))
        words = words[b - a :]
        cell = _cell(table, row, mine, redop, root, in_place=number == 1 or (len(halves) == 1 and len(starts) == 2))
        if cell is not None:
            out.append(cell)
    return out


def _second_half(table: Table, row: re.Match[str], first: str, starts: list[int]) -> bool:
    """Whether the only half of a row stands below the second half of the header."""
    at = row["rest"].find(first)
    if at < 0:
        return False
    end = row.start("rest") + at + len(first) - row.end("size")
    left, right = (abs(end - table.columns[i][1]) for i in starts[:2])
    return right < left


def _cell(table: Table, row: re.Match[str], words: dict[str, str], redop: str | None, root: int | None, in_place: bool) -> Cell | None:
    """One half; None where it was not measured (N/A)."""
    time, algbw, busbw = words.get("time", words.get("cputime", "")), words.get("algbw", ""), words.get("busbw", "")
    if not all(_NUMBER.match(w) for w in (time, algbw, busbw)):
        return None
    errors = words.get("#wrong", words.get("error", "N/A"))
    return Cell(
        nbytes=int(row["size"]),
        elements=int(row["count"]),
        dtype=row["type"],
        redop=redop,
        root=root,
        in_place=in_place,
        duration_ns=int((Decimal(time) * table.unit_ns).to_integral_value()),
        algbw=float(algbw),
        busbw=float(busbw),
        errors=int(float(errors)) if _NUMBER.match(errors) else None,
    )
