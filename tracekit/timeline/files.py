"""How does a rank's timeline get into a folder, and how is it opened again? Arrays that are mapped into memory, and a Parquet of all columns.

``timeline.json`` says what there is and is written last: a folder without it holds no timeline. ``timeline.bin`` holds the arrays one
after the other: start, duration, sort, name and row of every slice that is drawn, sorted by (track, start), and the levels of
the coverage pyramid. ``events.parquet`` holds every column of every event, sorted by start, in row groups with their times in
``timeline.json``, so that one event or one window is read without the rest; an event's id is its row there.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tracekit import schema
from tracekit.columns import Rows, integers, nullable
from tracekit.durable import sync
from tracekit.errors import InputError
from tracekit.timeline.coverage import Level, pyramid
from tracekit.timeline.lanes import Lane, place
from tracekit.timeline.sorts import SORTS, sort_of
from tracekit.timeline.summary import summary
from tracekit.trace import RankTrace
from tracekit.vocabulary import STEP, Kind

SCHEMA = "tracekit.timeline/1"
INDEX, ARRAYS, EVENTS = "timeline.json", "timeline.bin", "events.parquet"
#: Events per row group: what one click decodes.
GROUP_ROWS = 1 << 14
_ALIGN = 64
_MOST_STEPS = 10_000
#: Bytes that a text takes beside its letters.
_PER_TEXT = 57
_TEXTS = [name for name, column in schema.EVENTS.items() if column.dtype == "category"]

AnyArray = npt.NDArray[Any]


@dataclass(frozen=True)
class RankTimeline:
    """The stored timeline of one rank and capture; times are ns since ``origin_ns``, on the rank's own clock.

    Attributes:
        folder: where it lies.
        index: what ``timeline.json`` says.
        arrays: the arrays, mapped from the file.
        mapped: the mapping itself, None where the file is empty.
    """

    folder: Path
    index: Mapping[str, Any]
    arrays: Mapping[str, AnyArray] = field(repr=False)
    mapped: mmap.mmap | None = field(default=None, repr=False)

    @property
    def origin_ns(self) -> int:
        """Start of the first event, ns on the rank's clock."""
        return int(self.index["origin_ns"])

    @property
    def extent_ns(self) -> int:
        """From the first start to the last end."""
        return int(self.index["extent_ns"])

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        """Every lane, in order of their tracks, each under a name that no other of its class has: threads may share one."""
        out: dict[tuple[str, str], Lane] = {}
        for lane in (Lane(**lane) for lane in self.index["lanes"]):
            names = itertools.chain((lane.name,), (f"{lane.name} · {number}" for number in itertools.count(2)))
            name = next(name for name in names if (lane.what, name) not in out)
            out[lane.what, name] = lane._replace(name=name)
        return tuple(out.values())

    @cached_property
    def lane_of(self) -> Mapping[tuple[str, str], Lane]:
        """The lanes by (class, name)."""
        return {(lane.what, lane.name): lane for lane in self.lanes}

    @property
    def drawn(self) -> int:
        """How many slices are drawn on lanes of their own; the pieces of the summary stand behind them."""
        return int(self.arrays["track_offset"][self.lanes[-1].first])

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """Shifts of the levels of the pyramid that are stored, finest first."""
        return tuple(int(s) for s in self.index["levels"])

    def level(self, shift: int) -> tuple[AnyArray, AnyArray, AnyArray]:
        """(first entry of each row and the end of the last, bucket, busy ns) of a stored level; rows are track x sort."""
        return self.arrays[f"offset{shift}"], self.arrays[f"bucket{shift}"], self.arrays[f"busy{shift}"]

    @cached_property
    def names(self) -> list[str]:
        """Every distinct name."""
        text = self.arrays["names"].tobytes().decode("utf-8", "surrogatepass")
        return text.split("\0") if len(self.arrays["name_count"]) else []

    @cached_property
    def folded(self) -> list[str]:
        """The names without regard to case, for search."""
        return [name.casefold() for name in self.names]

    def name(self, code: int) -> str:
        """The name of a code."""
        return self.names[code] if 0 <= code < len(self.names) else ""

    @property
    def names_bytes(self) -> int:
        """About the memory of the names that were read so far."""
        texts = sum(name in self.__dict__ for name in ("names", "folded"))
        return texts * (len(self.arrays["names"]) + _PER_TEXT * len(self.arrays["name_count"])) if texts else 0

    def forget_names(self) -> None:
        """Let go of the names; they are read again when they are asked for."""
        for name in ("names", "folded"):
            self.__dict__.pop(name, None)

    def release(self) -> None:
        """Let the system take back the memory of what was read; it is read again when it is asked for."""
        if self.mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            self.mapped.madvise(mmap.MADV_DONTNEED)

    def events(self, groups: Sequence[int], columns: Sequence[str] | None = None) -> pd.DataFrame:
        """All columns (or some) of the events in row groups, the index being their ids.

        Raises:
            InputError: the file is damaged or gone.
        """
        path = self.folder / EVENTS
        try:
            with pq.ParquetFile(path, read_dictionary=list(self.index["texts"])) as file:
                table = file.read_row_groups(list(groups), columns=None if columns is None else list(columns))
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise InputError(f"a damaged or missing part of a stored timeline ({' '.join(str(error).split())[:120]}); read the trace again", path) from error
        ids = np.concatenate([np.arange(g * GROUP_ROWS, min((g + 1) * GROUP_ROWS, int(self.index["events"]))) for g in groups] or [np.empty(0, np.int64)])
        frame: pd.DataFrame = table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype()}.get)
        return frame.set_axis(pd.Index(ids), axis=0)


def write(trace: RankTrace, folder: Path) -> Path:
    """Store the timeline of a trace in a folder, which is made if need be; a timeline that is there is replaced.

    Args:
        trace: one rank and capture, after the passes (``run_passes``).
        folder: a folder of its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INDEX).unlink(missing_ok=True)
    events = trace.events
    ts, dur = events["ts"].to_numpy(np.int64), events["dur"].to_numpy(np.int64)
    origin = int(ts.min()) if len(ts) else 0
    placed = place(trace)
    by_time = np.lexsort((-dur, ts))
    ids = np.empty(len(events), np.int64)
    ids[by_time] = np.arange(len(events))
    track = np.full(len(events), -1, np.int64)
    track[placed.rows] = placed.track
    groups = _write_events(events.iloc[by_time], track[by_time], ids, origin, folder / EVENTS)
    sort, code = sort_of(events), events["name"].cat.codes.to_numpy(np.int32)
    work = summary(trace, sum(lane.tracks for lane in placed.lanes))
    lanes = (*placed.lanes, work.lane)
    rows, tracks = np.concatenate((placed.rows, work.rows)), np.concatenate((placed.track, work.track))
    start = np.concatenate((ts[placed.rows], work.start)) - origin
    length = np.concatenate((dur[placed.rows], work.end - work.start))
    levels = _levels(tracks, sort[rows], start, start + length)
    names = [str(c).replace("\0", "�") for c in events["name"].cat.categories]
    arrays: dict[str, AnyArray] = {
        "start": _narrow(start),
        "dur": _narrow(length),
        "sort": sort[rows],
        "name": code[rows].astype(np.int16 if len(names) < 1 << 15 else np.int32),
        "row": _narrow(ids[rows]),
        "track_offset": np.searchsorted(tracks, np.arange(lanes[-1].first + lanes[-1].tracks + 1)).astype(np.int64),
        "name_count": np.bincount(code[placed.rows] + 1, minlength=len(names) + 1)[1:].astype(np.int64),
        "names": np.frombuffer("\0".join(names).encode("utf-8", "surrogatepass"), np.uint8),
    }
    for level in levels:
        arrays[f"offset{level.shift}"] = np.searchsorted(level.row, np.arange((len(arrays["track_offset"]) - 1) * len(SORTS) + 1)).astype(np.int64)
        arrays[f"bucket{level.shift}"], arrays[f"busy{level.shift}"] = _narrow(level.bucket), _narrow(level.busy)
    index = {
        "schema": SCHEMA,
        "rank": trace.meta.rank,
        "capture": trace.meta.capture,
        "file": next(iter(trace.meta.files), None),
        "host": trace.meta.host,
        "device_type": trace.meta.device_type,
        "has_base": trace.meta.base_ns is not None,
        "origin_ns": origin,
        "extent_ns": int((ts + dur).max()) - origin if len(ts) else 0,
        "events": len(events),
        "left_out": placed.left_out,
        "sorts": list(SORTS),
        "lanes": [lane._asdict() for lane in lanes],
        "levels": [level.shift for level in levels],
        "texts": _TEXTS,
        "groups": groups,
        "steps": _steps(events, origin),
        "arrays": _write_arrays(arrays, folder / ARRAYS),
    }
    beside = folder / f".{INDEX}.{os.getpid()}"
    beside.write_text(json.dumps(index), encoding="utf-8")
    for path in (folder / ARRAYS, folder / EVENTS, beside):
        sync(path)
    beside.replace(folder / INDEX)
    sync(folder)
    return folder


def opened(folder: Path) -> RankTimeline:
    """Open a stored timeline; nothing but the index is read.

    Raises:
        InputError: there is none, or it is damaged or of another version.
    """
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        if index["schema"] != SCHEMA or index["sorts"] != list(SORTS)[: len(index["sorts"])]:
            raise InputError(
                f"was stored in the form {str(index['schema'])[:40]!r}, which this tracekit does not know ({SCHEMA}); read the trace again", folder
            )
        size = (folder / ARRAYS).stat().st_size
        if size != index["arrays"]["size"]:
            raise ValueError(f"{size} bytes of arrays, want {index['arrays']['size']}")
        with (folder / ARRAYS).open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else None
        parts = index["arrays"]["parts"].items()
        arrays = {name: np.frombuffer(mapped, kind, count, at) if mapped and count else np.empty(0, kind) for name, (at, kind, count) in parts}
    except FileNotFoundError as error:
        raise InputError("holds no stored timeline; read the trace again", folder) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"a damaged timeline ({' '.join(str(error).split())[:120]}); read the trace again", folder) from error
    return RankTimeline(folder, index, arrays, mapped)


def _levels(track: Rows, sort: npt.NDArray[np.uint8], start: Rows, end: Rows) -> tuple[Level, ...]:
    row = track * len(SORTS) + sort
    order = np.argsort(row, kind="stable")
    return pyramid(row[order], start[order], end[order])


def _narrow(values: npt.NDArray[np.int64]) -> AnyArray:
    """The values in the narrowest unsigned type that holds them; int64 where there are none."""
    return values.astype(np.min_scalar_type(int(values.max()))) if len(values) else values


def _write_arrays(arrays: Mapping[str, AnyArray], path: Path) -> dict[str, Any]:
    """Where each array begins, its type and its length."""
    parts: dict[str, tuple[int, str, int]] = {}
    with path.open("wb") as out:
        for name, array in arrays.items():
            out.write(b"\0" * (-out.tell() % _ALIGN))
            parts[name] = (out.tell(), array.dtype.str, len(array))
            out.write(np.ascontiguousarray(array).data)
        return {"size": out.tell(), "parts": parts}


def _write_events(events: pd.DataFrame, track: Rows, ids: Rows, origin: int, path: Path) -> list[list[int]]:
    """Write all columns; (first start, last start, last end) of each row group, ns from the origin."""
    columns: dict[str, pa.Array] = {}
    for name, column in schema.EVENTS.items():
        values = events[name]
        if name in ("parent", "launch"):
            rows = integers(values)
            values = pd.Series(nullable(np.where(rows >= 0, ids[np.maximum(rows, 0)] if len(ids) else rows, -1)))
        if column.dtype == "category":
            codes = values.cat.codes.to_numpy(np.int32)
            columns[name] = pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array([str(c) for c in values.cat.categories], pa.string()))
        else:
            columns[name] = pa.array(values)
    columns["track"] = pa.array(track.astype(np.int32), mask=track < 0)
    kept = {name: array for name, array in columns.items() if array.null_count < len(array) or name in (*_TEXTS, "track")}
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    pq.write_table(pa.table(kept), beside, row_group_size=GROUP_ROWS, compression="zstd", write_statistics=False, write_page_checksum=True, store_schema=False)
    beside.replace(path)
    ts = events["ts"].to_numpy(np.int64) - origin
    end = ts + events["dur"].to_numpy(np.int64)
    firsts = np.arange(0, len(ts), GROUP_ROWS)
    if not len(firsts):
        return []
    lasts = np.append(firsts[1:], len(ts)) - 1
    return np.stack((ts[firsts], ts[lasts], np.maximum.reduceat(end, firsts)), axis=1).tolist()  # type: ignore[no-any-return]


def _steps(events: pd.DataFrame, origin: int) -> list[list[int]]:
    """(step, start, end) of the ProfilerStep ranges, in order of time."""
    steps = [m if m is None else int(m["step"]) for m in (re.match(STEP, str(c)) for c in events["name"].cat.categories)]
    named = np.array([*(-1 if s is None else s for s in steps), -1], np.int64)[events["name"].cat.codes.to_numpy(np.int64)]
    mask = (named >= 0) & events["kind"].eq(Kind.RANGE).to_numpy()
    ts, dur = events["ts"].to_numpy(np.int64)[mask] - origin, events["dur"].to_numpy(np.int64)[mask]
    order = np.argsort(ts, kind="stable")[:_MOST_STEPS]
    return np.stack((named[mask], ts, ts + dur), axis=1)[order].tolist()  # type: ignore[no-any-return]
