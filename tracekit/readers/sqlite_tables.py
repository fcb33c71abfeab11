"""What is in the tables of this SQLite file? Read in memory, without running anything that the file brings along.

A database may hold views, triggers, virtual tables and computed columns, which are programs. Only real tables are read here,
by name, and only their stored columns; an authorizer allows nothing but that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tracekit.errors import InputError
from tracekit.numbers import integer, numbers
from tracekit.reading import Deadline, Reading

MAGIC = b"SQLite format 3\0"
#: Rows fetched at a time, and virtual machine steps between two looks at the clock.
_ROWS, _STEPS = 100_000, 1_000_000
#: What a damaged file raises; SQLite's own messages quote it, and may be no text.
_DAMAGE = (sqlite3.Error, UnicodeDecodeError)
#: No database has fewer bytes than one page of this size.
_SMALLEST = 512
_READ_ONLY = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ})


class Tables:
    """The real tables of a database.

    Args:
        data: the whole file.
        path: for messages.
        reading: ``max_events`` caps the rows read of all tables together, ``max_seconds`` the time; ``salvage`` gives the rows before damage.

    Attributes:
        columns: table -> its stored columns.
        damaged: tables of which only a part could be read (``salvage``).

    Raises:
        InputError: the file is cut or no database.
    """

    def __init__(self, data: bytes, path: Path, reading: Reading) -> None:
        self.path, self.reading, self.rows_read = path, reading, 0
        self.damaged: tuple[str, ...] = ()
        self._clock = reading.started()
        page, size = _stated(data)
        if size > len(data) and (not reading.salvage or size > reading.max_bytes or len(data) < _SMALLEST):
            says = f"cut: the database should have {size} bytes and has {len(data)}; copy or export it again, or read what is whole with --salvage"
            raise InputError(says, path, len(data))
        if size > len(data):  # without its last pages it would not open at all; half a page would be read as rows of nothing
            whole = len(data) // page * page
            data = data[:whole] + bytes(size - whole)
        try:
            self._connection = _opened(data, self._clock)
            self.columns: Mapping[str, frozenset[str]] = self._real_tables()
        except (*_DAMAGE, MemoryError) as error:
            raise self._refusal(error) from error
        self._connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _READ_ONLY else sqlite3.SQLITE_DENY)

    def close(self) -> None:
        """Let the copy in memory go."""
        self._connection.close()

    def read(self, table: str, integers: Sequence[str] = (), texts: Sequence[str] = ()) -> pd.DataFrame:
        """Columns of a table: ``integers`` as Int64 (what is no integer is null), ``texts`` as objects; a column or table that is not there is null or empty.

        Raises:
            InputError: the table is damaged, or a cap is passed.
        """
        have = self.columns.get(table, frozenset())
        asked = [c for c in (*integers, *texts) if c in have]
        parts: dict[str, list[Any]] = {c: [] for c in asked}
        count = 0
        if asked:
            query = f"SELECT {', '.join(_quoted(c) for c in asked)} FROM {_quoted(table)}"
            for rows in self._rows(query, table):
                count += len(rows)
                self._count(len(rows), table)
                for name, values in zip(asked, zip(*rows, strict=True), strict=True):
                    parts[name].append(_integers(values) if name in integers else np.array([v if type(v) is str else None for v in values], object))
        frame = {c: pd.concat([pd.Series(p) for p in parts[c]], ignore_index=True) if parts.get(c) else None for c in (*integers, *texts)}
        nulls = {c: pd.array([None] * count, "Int64") if c in integers else np.full(count, None, object) for c, values in frame.items() if values is None}
        return pd.DataFrame({c: nulls.get(c, values) for c, values in frame.items()}, index=range(count))

    def _rows(self, query: str, table: str) -> Iterator[list[tuple[Any, ...]]]:
        """Rows of a query, many at a time; where a part of the table is damaged, those before it."""
        rows: list[tuple[Any, ...]] = []
        try:
            for row in self._connection.execute(query):
                rows.append(row)
                if len(rows) == _ROWS:
                    yield rows
                    rows = []
        except _DAMAGE as error:
            if not self.reading.salvage:
                raise self._refusal(error, table) from error
            self._clock.check(self.path)
            self.damaged = (*self.damaged, table)
        if rows:
            yield rows

    def _real_tables(self) -> dict[str, frozenset[str]]:
        found = self._connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0").fetchall()
        names = [n for (n,) in found if type(n) is str and not n.startswith("sqlite_")]
        # columns that are computed (hidden) are programs as well
        return {n: frozenset(str(c[1]) for c in self._connection.execute(f"PRAGMA table_xinfo({_quoted(n)})") if c[6] == 0) for n in names}

    def _count(self, rows: int, table: str) -> None:
        self._clock.check(self.path)
        self.rows_read += rows
        if self.rows_read > self.reading.max_events:
            raise InputError(f"holds more than {self.reading.max_events} records by table {table}; raise --max-events, or export a shorter range", self.path)

    def _refusal(self, error: Exception, table: str | None = None) -> InputError:
        self._clock.check(self.path)  # a query that was stopped by the clock says so
        where = "" if table is None else f" in table {table}"
        why = str(error) or "it cannot be laid open in memory"
        return InputError(f"damaged database{where} ({why}); copy or export it again, or read what is whole with --salvage", self.path)


def _stated(data: bytes) -> tuple[int, int]:
    """Bytes per page and in all, as the header states them."""
    if len(data) < _SMALLEST:
        return _SMALLEST, _SMALLEST
    page = int.from_bytes(data[16:18], "big")
    page = 65536 if page == 1 else max(page, 1)
    # the number of pages is valid only where the file was last written by a version that keeps it
    return page, page * int.from_bytes(data[28:32], "big") if data[24:28] == data[92:96] else 0


def _opened(data: bytes, clock: Deadline) -> sqlite3.Connection:
    """A connection to a copy in memory."""
    connection = sqlite3.connect(":memory:")
    if data[18:20] == b"\x02\x02":  # a write-ahead log lies in files of its own, which memory does not have
        data = data[:18] + b"\x01\x01" + data[20:]
    connection.deserialize(data)
    for pragma in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
        connection.execute(f"PRAGMA {pragma}")
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    connection.set_progress_handler(lambda: _late(clock), _STEPS)
    return connection


def _late(clock: Deadline) -> int:
    """1 stops the query."""
    try:
        clock.check(Path())
    except InputError:
        return 1
    return 0


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _integers(values: Sequence[Any]) -> pd.arrays.IntegerArray:
    try:
        known = np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return numbers([integer(v) if type(v) in (int, float) else None for v in values], "Int64")
    return pd.arrays.IntegerArray(known, np.zeros(len(values), bool))
