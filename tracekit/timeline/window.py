"""What is drawn of a window? Named bars where a row holds few slices, else how busy it is column by column, and mostly with what."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tracekit.errors import UsageError
from tracekit.timeline.coverage import Level, coarser, covered
from tracekit.timeline.files import RankTimeline
from tracekit.timeline.run import Member, Row, Run
from tracekit.timeline.sorts import SORTS

AnyArray = npt.NDArray[Any]

#: Hard bounds of an answer: bars and rows in all, and columns x rows of heat maps.
MOST_BARS, MOST_ROWS, MOST_CELLS = 3_000, 1_500, 400_000
#: Slices that are looked at one by one for the columns of one answer; past it columns become as wide as the pyramid's finest.
MOST_DIRECT = 2_000_000
#: A row's bars are at least so many pixels wide on average, gaps included.
PIXELS_PER_BAR = 3
MOST_PIXELS = 8_192
#: Letters of a name that are sent.
NAME_LENGTH = 200


@dataclass(frozen=True)
class Heat:
    """How busy a row is in columns of equal width.

    Attributes:
        start, end: ns of the run, from the first column's left edge to the last one's right edge.
        cover: share of each column that is busy, 0 to 255, rounded up so that nothing busy is 0.
        sort: what fills most of it (number in ``SORTS``).
    """

    start: int
    end: int
    cover: npt.NDArray[np.uint8]
    sort: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Bars:
    """The slices of a row one by one, in order of time; all arrays are equally long.

    Attributes:
        capture: of which capture of the rank.
        start: ns of the run.
        dur: ns.
        name: number in the answer's names.
        sort: number in ``SORTS``.
        event: id in the rank's stored events.
    """

    capture: int
    start: npt.NDArray[np.int64]
    dur: npt.NDArray[np.int64]
    name: npt.NDArray[np.int64]
    sort: npt.NDArray[np.uint8]
    event: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Drawn:
    """A window, ready to be drawn.

    Attributes:
        start, end: ns of the run.
        column_ns: width of a column of the heat maps; 0 where there is none.
        rows: what each row holds; rows with nothing in the window are absent.
        names: the names that bars refer to.
        left_out: rows that were asked for beyond ``MOST_ROWS``.
    """

    start: int
    end: int
    column_ns: int
    rows: tuple[tuple[Row, tuple[Heat | Bars, ...]], ...]
    names: tuple[str, ...]
    left_out: int

    def to_dict(self) -> dict[str, Any]:
        """As plain values; the columns of heat maps as base64 of one byte each, times of bars relative to ``start``."""
        rows = [{"rank": row.rank, "lane": row.lane, "depth": row.depth, "pieces": [_plain(p, self.start) for p in pieces]} for row, pieces in self.rows]
        return {"start": self.start, "end": self.end, "column_ns": self.column_ns, "rows": rows, "names": list(self.names), "left_out": self.left_out}


class _Part(NamedTuple):
    """A stored track inside the window: positions of its slices, and the window on the rank's own clock."""

    row: Row
    member: Member
    track: int
    first: int
    last: int
    start: int
    end: int


def window(run: Run, start: int, end: int, pixels: int, view: str, ranks: Collection[int] | None = None) -> Drawn:
    """What to draw between two times.

    Args:
        run: the run.
        start: ns since the run's origin.
        end: likewise, exclusive.
        pixels: width of the drawing.
        view: one of ``run.VIEWS``.
        ranks: only these; None: all.

    Raises:
        UsageError: the window is empty or the view unknown.
    """
    if end <= start:
        raise UsageError("the window ends before it begins")
    pixels = min(max(int(pixels), 16), MOST_PIXELS)
    rows = run.rows(view, ranks)
    parts = [part for row in rows[:MOST_ROWS] for part in _parts(run, row, start, end)]
    barred = _barred(parts, pixels)
    heated = [part for part, bars in zip(parts, barred, strict=True) if not bars]
    shift = _shift(heated, start, end, pixels)
    names: dict[str, int] = {}
    drawn: dict[Row, list[Heat | Bars]] = {}
    for part, bars in zip(parts, barred, strict=True):
        piece = _bars(part, names) if bars else _heat(part, shift)
        if piece is not None:
            drawn.setdefault(part.row, []).append(piece)
    return Drawn(start, end, 1 << shift if heated else 0, tuple((row, tuple(p)) for row, p in drawn.items()), tuple(names), max(len(rows) - MOST_ROWS, 0))


def _parts(run: Run, row: Row, start: int, end: int) -> Iterable[_Part]:
    for member, track in run.tracks(row):
        timeline = member.timeline
        # what has no length may stand at the very end, which an exclusive end leaves out
        low, high = max(member.own(start), 0), min(max(member.own(end), member.own(start) + 1), timeline.extent_ns + 1)
        if high <= low:
            continue
        first, last = inside(timeline, track, low, high)
        if last > first:
            yield _Part(row, member, track, first, last, low, high)


def inside(timeline: RankTimeline, track: int, start: int, end: int) -> tuple[int, int]:
    """Positions of the slices of a track that reach into ``[start, end)``, on the rank's own clock; a slice without length is where it starts."""
    a, b = (int(o) for o in timeline.arrays["track_offset"][track : track + 2])
    starts, dur = timeline.arrays["start"][a:b], timeline.arrays["dur"][a:b]
    last, first = _position(starts, end), _position(starts, start)
    # slices of a track do not overlap: of those that begin before, only the last can reach in
    if first and int(starts[first - 1]) + int(dur[first - 1]) > start:
        first -= 1
    return a + first, a + last


def _position(values: AnyArray, at: int) -> int:
    """How many sorted values are below a number."""
    limits = np.iinfo(values.dtype)
    if at > limits.max:
        return len(values)
    return int(np.searchsorted(values, values.dtype.type(max(at, limits.min)), "left"))


def _barred(parts: list[_Part], pixels: int) -> list[bool]:
    """Which parts are drawn bar by bar: the emptiest first, as far as the bars go."""
    counts = np.array([part.last - part.first for part in parts], np.int64)
    order = np.argsort(counts, kind="stable")
    few = (np.cumsum(counts[order]) <= MOST_BARS) & (counts[order] <= max(pixels // PIXELS_PER_BAR, 1))
    out = np.zeros(len(parts), bool)
    out[order] = few
    return [bool(flag) for flag in out]


def _shift(parts: list[_Part], start: int, end: int, pixels: int) -> int:
    """Columns are 2^shift ns wide: about a pixel, and no more of them than the bounds allow."""
    columns = max(min(pixels, MOST_CELLS // max(len(parts), 1)), 1)
    shift = max((-(-(end - start) // columns) - 1).bit_length(), 0)
    direct = [part for part in parts if not part.member.timeline.levels or shift < part.member.timeline.levels[0]]
    if sum(part.last - part.first for part in direct) > MOST_DIRECT:
        shift = max(part.member.timeline.levels[0] for part in direct if part.member.timeline.levels)
    return shift


def _bars(part: _Part, names: dict[str, int]) -> Bars:
    arrays, here = part.member.timeline.arrays, slice(part.first, part.last)
    start = arrays["start"][here].astype(np.int64)
    begins, ends = part.member.shown(start), part.member.shown(start + arrays["dur"][here].astype(np.int64))
    codes = arrays["name"][here]
    distinct, place = np.unique(codes, return_inverse=True)
    numbers = np.array([names.setdefault(part.member.timeline.name(int(c))[:NAME_LENGTH], len(names)) for c in distinct], np.int64)
    return Bars(part.member.capture, begins, ends - begins, numbers[place], arrays["sort"][here], arrays["row"][here].astype(np.int64))


def _heat(part: _Part, shift: int) -> Heat | None:
    first, last = part.start >> shift, ((part.end - 1) >> shift) + 1
    total, most, sort = np.zeros(last - first, np.int64), np.zeros(last - first, np.int64), np.zeros(last - first, np.uint8)
    for code, bucket, busy in busy_buckets(part.member.timeline, part.track, shift, first, last, (part.first, part.last)):
        here = np.zeros(last - first, np.int64)
        here[bucket - first] = busy
        total += here
        sort[here > most] = code
        most = np.maximum(most, here)
    if not total.any():
        return None
    cover = np.ceil(total.astype(np.float64) * (255.0 / (1 << shift)))
    start, end = part.member.shown([first << shift, last << shift]).tolist()
    return Heat(start, end, np.minimum(cover, 255).astype(np.uint8), sort)


def busy_buckets(
    timeline: RankTimeline, track: int, shift: int, first: int, last: int, slices: tuple[int, int]
) -> Iterable[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """(sort, buckets, exact busy ns in each) of a track, for the buckets from ``first`` to before ``last``; every bucket once per sort.

    Args:
        timeline: the rank.
        track: the track.
        shift: buckets are 2^shift ns of the rank's own time.
        first: first bucket.
        last: the bucket after the last.
        slices: positions of the slices that reach into these buckets; used where the buckets are finer than any level.
    """
    stored = [level for level in timeline.levels if level <= shift]
    if not stored:
        arrays, here = timeline.arrays, slice(*_widened(timeline, track, first << shift, last << shift, slices))
        start, sort = arrays["start"][here].astype(np.int64), arrays["sort"][here]
        end = np.minimum(start + arrays["dur"][here].astype(np.int64), last << shift)
        start = np.maximum(start, first << shift)
        for code in np.unique(sort):
            chosen = (sort == code) & (end > start)
            _, bucket, busy = covered(np.zeros(int(chosen.sum()), np.int64), start[chosen], end[chosen], shift)
            yield int(code), bucket, busy
        return
    finer = stored[-1]
    offset, bucket, busy = timeline.level(finer)
    offsets = offset[track * len(SORTS) : (track + 1) * len(SORTS) + 1]
    for code in np.flatnonzero(np.diff(offsets)):
        a, b = int(offsets[code]), int(offsets[code + 1])
        low, high = a + _position(bucket[a:b], first << (shift - finer)), a + _position(bucket[a:b], last << (shift - finer))
        found = Level(finer, np.zeros(high - low, np.int64), bucket[low:high].astype(np.int64), busy[low:high].astype(np.int64))
        found = coarser(found, shift - finer) if shift > finer else found
        yield int(code), found.bucket, found.busy


def _widened(timeline: RankTimeline, track: int, start: int, end: int, slices: tuple[int, int]) -> tuple[int, int]:
    """The slices of whole buckets: those at the edges reach beyond the window."""
    first, last = inside(timeline, track, start, end)
    return min(first, slices[0]), max(last, slices[1])


def _plain(piece: Heat | Bars, start: int) -> dict[str, Any]:
    if isinstance(piece, Heat):
        return {"start": piece.start - start, "end": piece.end - start, "cover": _text(piece.cover), "sort": _text(piece.sort)}
    return {
        "capture": piece.capture,
        "bars": [(piece.start - start).tolist(), piece.dur.tolist(), piece.name.tolist(), piece.sort.tolist(), piece.event.tolist()],
    }


def _text(values: npt.NDArray[np.uint8]) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")
