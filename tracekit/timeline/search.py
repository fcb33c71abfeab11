"""Which slices have a name, and what is all that is known of one? Search over every rank, in order of time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from tracekit.errors import UsageError
from tracekit.timeline.files import GROUP_ROWS
from tracekit.timeline.run import Member, Row, Run

LONGEST_TEXT = 8_000
MOST_MATCHES = 200
#: Letters of the name of a match.
_NAME_LENGTH = 200


@dataclass(frozen=True)
class Match:
    """One slice that was found.

    Attributes:
        rank, capture, event: which it is.
        name: its name.
        start, dur: ns of the run.
        lane, depth: the row that shows it, as in ``run.Row``.
    """

    rank: int
    capture: int
    event: int
    name: str
    start: int
    dur: int
    lane: int
    depth: int


@dataclass(frozen=True)
class Found:
    """The answer to a search.

    Attributes:
        total: slices of the ranks that match, all times counted.
        matches: the first of them after a time, or the last before it, in order of time.
    """

    total: int
    matches: tuple[Match, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {"total": self.total, "matches": [asdict(m) for m in self.matches]}


def search(run: Run, text: str, ranks: Collection[int] | None = None, *, at: int = 0, backwards: bool = False, most: int = 50) -> Found:
    """Slices whose name holds a text, upper and lower case alike; or whose name is the text, where it stands in double quotes.

    Args:
        run: the run.
        text: part of a name, or a "whole name".
        ranks: only these; None: all.
        at: only slices that begin at this time (ns of the run) or later; before it with ``backwards``.
        backwards: the last ones before the time instead of the first ones after it.
        most: how many matches to give.

    Raises:
        UsageError: the text is empty or too long.
    """
    text = text.replace("\0", "�")  # as names are stored
    wanted, whole = text.casefold(), len(text) > 2 and text[0] == text[-1] == '"'
    if not wanted.strip() or len(text) > LONGEST_TEXT:
        raise UsageError(f"name something to look for, of 1 to {LONGEST_TEXT} letters")
    most = min(max(most, 1), MOST_MATCHES)
    total, matches = 0, []
    for member in run.members:
        if ranks is not None and member.rank not in ranks:
            continue
        timeline = member.timeline
        named = (name == text[1:-1] for name in timeline.names) if whole else (wanted in name for name in timeline.folded)
        hit = np.array([*named, False], bool)
        count = int(timeline.arrays["name_count"][hit[:-1]].sum())
        total += count
        if count:
            matches += _matches(run, member, hit, at, backwards, most)
    matches.sort(key=lambda m: (m.start, m.rank, m.capture, m.event), reverse=backwards)
    return Found(total, tuple(sorted(matches[:most], key=lambda m: (m.start, m.rank, m.capture, m.event))))


def _matches(run: Run, member: Member, hit: np.ndarray[Any, np.dtype[np.bool_]], at: int, backwards: bool, most: int) -> list[Match]:
    """The matches of one rank nearest to a time."""
    timeline = member.timeline
    arrays, own = timeline.arrays, member.own(at)
    places = np.flatnonzero(hit[arrays["name"][: timeline.drawn]])
    start = arrays["start"][places].astype(np.int64)
    side = start < own if backwards else start >= own
    places, start = places[side], start[side]
    if len(places) > most:
        away = np.abs(start - own)
        # everything as near as the last that counts: among equals the order below decides
        near = away <= np.partition(away, most - 1)[most - 1]
        places, start = places[near], start[near]
    order = np.lexsort((arrays["row"][places], start))
    places = places[order][-most:] if backwards else places[order][:most]
    tracks = np.searchsorted(arrays["track_offset"], places, "right") - 1
    rows = {int(track): run.row_of(member, int(track)) for track in np.unique(tracks)}
    begins = arrays["start"][places].astype(np.int64)
    first, last = member.shown(begins), member.shown(begins + arrays["dur"][places].astype(np.int64))
    return [
        _match(member, int(arrays["row"][p]), timeline.name(int(arrays["name"][p])), int(a), int(b - a), rows[int(t)])
        for p, t, a, b in zip(places, tracks, first, last, strict=True)
    ]


def _match(member: Member, event: int, name: str, start: int, dur: int, row: Row) -> Match:
    return Match(member.rank, member.capture, event, name[:_NAME_LENGTH], start, dur, row.lane, row.depth)


def details(run: Run, rank: int, capture: int, event: int) -> dict[str, Any]:
    """All that is known of one event: every column that is not null, and the names of what encloses and what launched it.

    Times: ``start`` and ``dur`` in ns of the run; ``ts`` in ns on the rank's own clock, as recorded.

    Raises:
        UsageError: there is no such event.
    """
    member = run.member(rank, capture)
    count = int(member.timeline.index["events"])
    if not 0 <= event < count:
        raise UsageError(f"rank {rank} has events 0 to {count - 1}; there is no {event}")
    row = _event(member, event)
    columns = {name: _plain(value) for name, value in row.items() if not pd.isna(value)}
    begin = int(columns["ts"]) - member.timeline.origin_ns
    start, end = member.shown([begin, begin + int(columns["dur"])]).tolist()
    around: dict[str, Any] = {}
    for column in ("parent", "launch"):
        if column in columns:
            other = _event(member, int(columns[column]))
            at = int(other["ts"]) - member.timeline.origin_ns
            around[column] = {"event": columns.pop(column), "name": str(other["name"]), "start": int(member.shown([at])[0]), "dur": int(other["dur"])}
    track = columns.pop("track", None)
    shown = None if track is None else run.row_of(member, int(track))
    place = {} if shown is None else {"lane": shown.lane, "depth": shown.depth, "lane_name": run.lanes[rank][shown.lane][1]}
    return {"rank": rank, "capture": capture, "event": event, "start": start, "dur": end - start, **place, "columns": columns, **around}


def _event(member: Member, event: int) -> pd.Series[Any]:
    group = event // GROUP_ROWS
    frame = member.timeline.events([group])
    return frame.iloc[event - group * GROUP_ROWS].astype(object)


def _plain(value: Any) -> Any:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    return int(value) if isinstance(value, (int, np.integer)) else str(value)
