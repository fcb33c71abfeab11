"""Ranks that compute, stand idle and meet, simulated to the ns: every call begins when its rank gets there and ends together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pandas as pd

from tests.collectives.rows import facts
from tracekit import schema
from tracekit.job.assemble import build
from tracekit.job.base import Job
from tracekit.trace import RankFacts


class Do(NamedTuple):
    """One thing that a rank does: ``compute`` or ``idle`` for so many ns, ``meet`` a group, ``send`` to or ``recv`` from a rank."""

    what: str
    ns: int = 0
    group: str = ""
    peer: int = -1
    kind: str = "all_reduce"
    nbytes: int = 1000
    under: int = 0  #: compute that may run under the call while it lasts
    desc: str | None = None  #: description of the group


def compute(ns: int) -> Do:
    return Do("compute", ns)


def idle(ns: int) -> Do:
    return Do("idle", ns)


def meet(group: str, **more: Any) -> Do:
    return Do("meet", group=group, **more)


def send(peer: int) -> Do:
    return Do("send", peer=peer)


def recv(peer: int) -> Do:
    return Do("recv", peer=peer)


@dataclass
class _Rank:
    now: int = 0
    computed: int = 0
    busy: int = 0
    done: int = 0
    left: int = 0  #: compute that did not fit under a call: it comes after
    calls: list[dict[str, Any]] = field(default_factory=list)
    p2p: list[dict[str, Any]] = field(default_factory=list)
    progress: list[dict[str, Any]] = field(default_factory=list)


def simulate(programs: Sequence[Sequence[Do]], transfer: int = 100, step: int | None = None, **meta: Any) -> Job:
    """The job of ranks 0, 1, … that each run their program; everything blocks until its partners are there."""
    ranks = [_Rank() for _ in programs]
    seq: dict[tuple[int, str], int] = {}
    while any(rank.done < len(program) for rank, program in zip(ranks, programs, strict=True)):
        for rank, program in zip(ranks, programs, strict=True):
            while rank.done < len(program) and program[rank.done].what in ("compute", "idle"):
                do = program[rank.done]
                rank.now += do.ns
                if do.what == "compute":
                    rank.computed, rank.busy = rank.computed + do.ns, rank.busy + do.ns
                rank.done += 1
        moved = False
        for number, (rank, program) in enumerate(zip(ranks, programs, strict=True)):
            if rank.done == len(program):
                continue
            do = program[rank.done]
            with_whom = _partners(number, do)
            if any(ranks[r].done == len(programs[r]) or not _meets(programs[r][ranks[r].done], do, number) for r in with_whom):
                continue
            _together(ranks, programs, with_whom, transfer, seq, step)
            moved = True
            break
        assert moved or all(r.done == len(p) for r, p in zip(ranks, programs, strict=True)), "the ranks wait for each other"
    return build({(number, 0): _facts(number, rank, meta) for number, rank in enumerate(ranks)})


def _partners(number: int, do: Do) -> list[int]:
    return [int(r) for r in do.group.split(",")] if do.what == "meet" else sorted((number, do.peer))


def _meets(other: Do, do: Do, number: int) -> bool:
    if do.what == "meet":
        return other.what == "meet" and other.group == do.group
    return other == do or (other.what in ("send", "recv") and other.what != do.what and other.peer == number)


def _together(ranks: list[_Rank], programs: Sequence[Sequence[Do]], who: list[int], transfer: int, seq: dict[tuple[int, str], int], step: int | None) -> None:
    end = max(ranks[r].now for r in who) + transfer
    for r in who:
        rank, do = ranks[r], programs[r][ranks[r].done]
        start = rank.now
        rank.progress.append({"device": 0, "start_ns": start, "end_ns": end, "computed_before_ns": rank.computed, "busy_before_ns": rank.busy})
        hidden = min(do.under, end - start)
        row = {"step": step, "at": (start, end), "nbytes": do.nbytes, "exposed_ns": end - start - hidden}
        if do.what == "meet":
            number = seq[r, do.group] = seq.get((r, do.group), -1) + 1
            rank.calls.append({**row, "kind": do.kind, "group": f"g{do.group}", "group_ranks": do.group, "group_desc": do.desc, "seq": number})
        else:
            rank.p2p.append({**row, "kind": do.what, "peer": do.peer, "group_ranks": ",".join(map(str, who))})
        rest = do.under - hidden
        rank.now, rank.busy, rank.computed = end + rest, rank.busy + end - start + rest, rank.computed + do.under
        rank.done += 1


def _facts(number: int, rank: _Rank, meta: Mapping[str, Any]) -> RankFacts:
    made = facts(number, *rank.calls, p2p=tuple(rank.p2p), **meta)
    progress = schema.conform(pd.DataFrame(rank.progress), schema.PROGRESS) if rank.progress else schema.empty(schema.PROGRESS)
    return RankFacts(made.meta, {**made.tables, "progress": progress})
