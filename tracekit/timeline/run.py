"""How do the timelines of several ranks become one picture? Each on the reference rank's clock, times counted from the run's first event."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.errors import InputError, UsageError
from tracekit.job.retime import Clock
from tracekit.timeline import files
from tracekit.timeline.files import RankTimeline
from tracekit.timeline.lanes import CLASSES, COMMUNICATION, DEVICE, SUMMARY, THREAD, Lane
from tracekit.timeline.sorts import SORTS, WORDS
from tracekit.wording import ranks as rank_list

Ints = npt.NDArray[np.int64]

#: What can be looked at: one line per rank, the streams of its devices (the threads, where work ran on the host), or every lane.
RANKS, DEVICES, ALL = "ranks", "devices", "all"
VIEWS = (RANKS, DEVICES, ALL)
#: Tracks of a lane that are drawn: what is nested deeper is reached by search, and counted beside the lane.
MOST_DEPTH = 24
#: Names that a run keeps in memory between two questions, all ranks together.
MOST_NAMES_BYTES = 32 * 2**20
#: No machine runs for so long: later times count from 1970.
_DECADES_NS = 20 * 365 * 86_400 * 10**9
_KNOWS_NONE = Clock(0, 0, 0.0)


class Row(NamedTuple):
    """One track of one lane on the page.

    Attributes:
        rank: of which rank.
        lane: number of the lane among the rank's (``Run.lanes``).
        depth: track of the lane, 0 the outermost.
    """

    rank: int
    lane: int
    depth: int


@dataclass(frozen=True)
class Member:
    """One rank and capture of a run.

    Attributes:
        rank: global rank.
        capture: profiler cycle.
        timeline: what is stored of it.
        clock: its clock against the reference's.
        origin_ns: the run's origin, on the reference clock.
    """

    rank: int
    capture: int
    timeline: RankTimeline
    clock: Clock
    origin_ns: int

    def shown(self, at: npt.ArrayLike) -> Ints:
        """Times of this rank (ns since its origin) as the run shows them (ns since the run's)."""
        out: Ints = self.clock.true(np.asarray(at, np.int64) + self.timeline.origin_ns) - self.origin_ns
        return out

    def own(self, at: int) -> int:
        """A time that the run shows, on this rank's clock since its origin."""
        true = at + self.origin_ns
        return true + self.clock.offset_ns + round((true - self.clock.origin_ns) * self.clock.drift) - self.timeline.origin_ns


@dataclass(frozen=True)
class Run:
    """The timelines of a job; times are ns since ``origin_ns`` on the reference rank's clock.

    Attributes:
        members: every rank and capture, in this order.
        origin_ns: first event of all, Unix ns where the traces have a base.
        notes: what limits the picture, in sentences.
    """

    members: tuple[Member, ...]
    origin_ns: int
    notes: tuple[str, ...] = ()

    @cached_property
    def extent_ns(self) -> int:
        """From the first start to the last end."""
        return max((int(m.shown([m.timeline.extent_ns])[0]) for m in self.members), default=0)

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Every rank, ascending."""
        return tuple(sorted({m.rank for m in self.members}))

    def of(self, rank: int) -> tuple[Member, ...]:
        """The captures of a rank."""
        return self._by_rank.get(rank, ())

    def member(self, rank: int, capture: int) -> Member:
        """One rank and capture.

        Raises:
            UsageError: there is none.
        """
        found = next((m for m in self.of(rank) if m.capture == capture), None)
        if found is None:
            raise UsageError(f"there is no rank {rank} with capture {capture}; there are ranks {rank_list(self.ranks)}")
        return found

    def release(self) -> None:
        """Let the system take back the memory of what was read of the stored files."""
        named = sum(member.timeline.names_bytes for member in self.members)
        for member in self.members:
            member.timeline.release()
            if named > MOST_NAMES_BYTES:
                member.timeline.forget_names()

    @cached_property
    def _by_rank(self) -> dict[int, tuple[Member, ...]]:
        by: defaultdict[int, list[Member]] = defaultdict(list)
        for member in self.members:
            by[member.rank].append(member)
        return {rank: tuple(found) for rank, found in by.items()}

    @cached_property
    def lanes(self) -> Mapping[int, tuple[tuple[str, str, int], ...]]:
        """Of each rank the (class, name, tracks) of its lanes: a lane that several captures have is one."""
        out = {}
        for rank, members in self._by_rank.items():
            tracks: dict[tuple[str, str], int] = {}
            for lane in (lane for m in members for lane in m.timeline.lanes):
                tracks[lane.what, lane.name] = max(tracks.get((lane.what, lane.name), 0), lane.tracks)
            ordered = sorted(tracks.items(), key=lambda item: CLASSES.index(item[0][0]))
            out[rank] = tuple((what, name, count) for (what, name), count in ordered)
        return out

    def rows(self, view: str, ranks: Collection[int] | None = None) -> list[Row]:
        """The tracks that a view shows, top to bottom.

        Raises:
            UsageError: there is no such view.
        """
        if view not in VIEWS:
            raise UsageError(f"there is no view {view[:40]!r}; there are {', '.join(VIEWS)}")
        out = []
        for rank in self.ranks if ranks is None else sorted(set(ranks) & set(self.ranks)):
            lanes = self.lanes[rank]
            on_device = any(what == DEVICE for what, _, _ in lanes)
            wanted = {RANKS: (SUMMARY,), DEVICES: (DEVICE, COMMUNICATION) if on_device else (COMMUNICATION, THREAD), ALL: CLASSES[:-1]}[view]
            out += [Row(rank, i, d) for i, (what, _, tracks) in enumerate(lanes) if what in wanted for d in range(min(tracks, MOST_DEPTH))]
        return out

    def tracks(self, row: Row) -> Iterator[tuple[Member, int]]:
        """Where a row is stored: (member, number of the track) for each capture that has it."""
        what, name, _ = self.lanes[row.rank][row.lane]
        for member in self.of(row.rank):
            lane = member.timeline.lane_of.get((what, name))
            if lane is not None and row.depth < lane.tracks:
                yield member, lane.first + row.depth

    def row_of(self, member: Member, track: int) -> Row:
        """The row on which a stored track is shown."""
        lane: Lane = next(lane for lane in reversed(member.timeline.lanes) if lane.first <= track)
        number = next(i for i, (what, name, _) in enumerate(self.lanes[member.rank]) if (what, name) == (lane.what, lane.name))
        return Row(member.rank, number, track - lane.first)

    def layout(self) -> dict[str, Any]:
        """All that a page needs to know before it asks for a window, as plain values."""
        return {
            "origin_ns": str(self.origin_ns),
            "extent_ns": self.extent_ns,
            "events": sum(int(m.timeline.index["events"]) for m in self.members),
            "ranks": [
                {"rank": rank, "host": next((m.timeline.index["host"] for m in self.of(rank)), None), "lanes": [_lane(*lane) for lane in self.lanes[rank]]}
                for rank in self.ranks
            ],
            "sorts": [{"name": name, "words": WORDS.get(name, name.replace("_", "-"))} for name in SORTS],
            "steps": [{"step": s, "start": a, "end": b} for s, a, b in self._steps()],
            "notes": list(self.notes),
        }

    def _steps(self) -> list[tuple[int, int, int]]:
        """(step, start, end) as the first rank that names steps has them."""
        rank = next((rank for rank in self.ranks if any(m.timeline.index["steps"] for m in self.of(rank))), None)
        return [] if rank is None else [(s, *m.shown([a, b]).tolist()) for m in self.of(rank) for s, a, b in m.timeline.index["steps"]]


def run_of(timelines: Mapping[tuple[int, int], RankTimeline], clocks: pd.DataFrame | None = None) -> Run:
    """A run of opened timelines.

    Args:
        timelines: by (rank, capture).
        clocks: the table ``ranks`` of the metric ``clock``; None, or a rank that it lacks: clocks as recorded.

    Raises:
        InputError: there is no timeline.
    """
    if not timelines:
        raise InputError("no timeline is stored of this run; read its traces again")
    known = {} if clocks is None or not len(clocks) else _clocks(clocks)
    firsts = {key: int(known.get(key, _KNOWS_NONE).true(np.array([t.origin_ns]))[0]) for key, t in timelines.items() if t.index["events"]}
    adrift = _adrift(firsts, known)
    origin = min((first for key, first in firsts.items() if key not in adrift), default=0)
    known |= {key: Clock(0, firsts[key] - origin, 0.0) for key in adrift}
    members = tuple(Member(*key, t, known.get(key, _KNOWS_NONE), origin) for key, t in sorted(timelines.items()))
    return Run(members, origin, _notes(members, clocks, {rank for rank, _ in adrift}))


def _adrift(firsts: Mapping[tuple[int, int], int], known: Collection[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Ranks that nothing links with the others and that count from 1970 where these count from a start, or the other way round."""
    since_1970 = {key: first > _DECADES_NS for key, first in firsts.items()}
    kept = {since_1970[key] for key in known if key in since_1970} or {any(since_1970.values())}
    return frozenset(key for key, since in since_1970.items() if key not in known and since not in kept)


def open_run(folders: Sequence[Path] | Mapping[tuple[int, int], Path], clocks: pd.DataFrame | None = None) -> Run:
    """A run of stored timelines; folders without a key say themselves of which rank and capture they are.

    Raises:
        InputError: one holds no timeline, or two are of the same rank and capture.
    """
    if isinstance(folders, Mapping):
        return run_of({key: files.opened(path) for key, path in folders.items()}, clocks)
    out: dict[tuple[int, int], RankTimeline] = {}
    for number, path in enumerate(folders):
        timeline = files.opened(path)
        rank = timeline.index["rank"]
        key = (number if rank is None else int(rank), int(timeline.index["capture"]))
        if key in out:
            raise InputError(f"rank {key[0]} with capture {key[1]} is stored twice", path)
        out[key] = timeline
    return run_of(out, clocks)


def _lane(what: str, name: str, tracks: int) -> dict[str, Any]:
    return {"what": what, "name": name, "tracks": min(tracks, MOST_DEPTH), "deeper": max(tracks - MOST_DEPTH, 0)}


def _clocks(table: pd.DataFrame) -> dict[tuple[int, int], Clock]:
    columns = table[["rank", "capture", "origin_ns", "offset_ns", "drift_ppm"]].astype(object).itertuples(index=False)
    return {
        (int(rank), int(capture)): Clock(int(origin), int(offset), 0.0 if pd.isna(drift) else float(drift) * 1e-6)
        for rank, capture, origin, offset, drift in columns
        if not pd.isna(offset) and not pd.isna(origin)
    }


def _notes(members: Sequence[Member], clocks: pd.DataFrame | None, adrift: Collection[int] = ()) -> tuple[str, ...]:
    notes = []
    if adrift:
        who, count, are = ("Rank", "counts", "it is") if len(adrift) == 1 else ("Ranks", "count", "they are")
        notes.append(f"{who} {rank_list(adrift)} {count} time from another beginning than the others: {are} drawn as if all had begun together.")
    if len({m.rank for m in members}) > 1:
        if clocks is None or not len(clocks):
            notes.append(f"The ranks' clocks were not compared: {'every other' if adrift else 'each'} rank is drawn on its own clock.")
        else:
            lone = sorted(set(clocks.loc[clocks["offset_ns"].isna(), "rank"].astype(int)) & {m.rank for m in members} - set(adrift))
            if lone:
                notes.append(
                    f"Nothing links the clocks of ranks {rank_list(lone)} with the others': they are drawn as recorded, and cannot be compared in time."
                )
    left_out = sum(int(m.timeline.index["left_out"]) for m in members)
    if left_out:
        notes.append(f"{left_out:,} slices overlap or nest too deeply to be drawn; exports and analyses have them.")
    return tuple(notes)
