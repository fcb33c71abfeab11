"""Which global rank is each process of a communicator? Its number inside the communicator that spans the world.

NCCL's own records number ranks within communicators. The communicator with most ranks is taken for the world, if it is the
only one of its size or all of that size number the processes alike; else what the launcher wrote in front of the lines
tells; else the rank stays unknown. Members of smaller communicators are known where all of them were seen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tracekit.group_ranks import MOST_RANKS, canonical
from tracekit.trace import RankTrace

#: More ranks than any job has: such a number is damage.


class Member(NamedTuple):
    """One process (with one GPU) in one communicator.

    Attributes:
        process: a number that tells processes apart.
        group: the communicator's name, the same on all of its ranks; None where the source has none.
        rank: number within the communicator.
        size: ranks of the communicator; None where the source does not say.
    """

    process: int
    group: str | None
    rank: int
    size: int | None


@dataclass(frozen=True)
class Ranks:
    """Who is who.

    Attributes:
        of: process -> global rank, for those that are known.
        members: communicator -> global ranks in order of their numbers within it, where all are known.
        source: communicator, launcher, or None where no rank is known.
    """

    of: Mapping[int, int]
    members: Mapping[str, tuple[int, ...]]
    source: str | None = None

    def text(self, group: str | None) -> str | None:
        """Ranks of a communicator as a group is written, sorted; None where they are not all known."""
        known = self.members.get(group) if group is not None else None
        return None if known is None else canonical(known)

    def peer(self, group: str | None, number: int) -> int | None:
        """Global rank of a number within a communicator."""
        known = self.members.get(group) if group is not None else None
        return known[number] if known is not None and 0 <= number < len(known) else None


def global_ranks(members: Collection[Member], labels: Mapping[int, int] | None = None, processes: Collection[int] = ()) -> Ranks:
    """Global ranks by the largest communicator, else by the launcher's labels.

    Args:
        members: every membership that was seen.
        labels: process -> number that the launcher wrote in front of its lines.
        processes: processes that may be in no communicator.

    >>> global_ranks([Member(0, "world", 2, 4), Member(1, "world", 3, 4), Member(0, "pair", 0, 2), Member(1, "pair", 1, 2)]).members["pair"]
    (2, 3)
    """
    size = max((m.size for m in members if m.size is not None), default=0)
    world = _world(members, size)
    named = _telling(labels or {}, {*processes, *(m.process for m in members)})
    source = "communicator"
    if named and (not world or max(named.values()) >= size):  # the largest communicator is but a part of the job
        world, source = named, "launcher"
    elif world and all(named.get(p) == rank for p, rank in world.items()):
        world = named
    whole = _whole(members, world)
    if source == "communicator" and world and size:
        whole |= dict.fromkeys({m.group for m in members if m.size == size and m.group is not None}, tuple(range(size)))
    return Ranks(world, whole, source if world else None)


def places(of: Mapping[int, int], entities: Collection[int]) -> tuple[dict[int | None, list[int]], list[int]]:
    """Processes by global rank, in order, and those that were left out.

    Where some ranks are known, records of the others would be taken for one of theirs, so they are left out; where none is,
    all stand together under None.
    """
    by_rank: dict[int | None, list[int]] = {}
    for entity in sorted(entities):
        by_rank.setdefault(of.get(entity), []).append(entity)
    unknown = by_rank.pop(None, [])
    return (dict(sorted(by_rank.items(), key=lambda item: item[0] or 0)), unknown) if by_rank else ({None: unknown}, [])


def with_rank_source(first: RankTrace, lost: int, path: Path) -> RankTrace:
    """The first trace of a file, with where its ranks come from, or that they are not known; ``lost`` calls were left out."""
    if lost or first.meta.rank is None:
        what = f"{lost} calls were left out: " if lost else ""
        says = f"{what}no communicator that spans all processes tells whose they are"
        return first.with_finding("nccl_rank_unknown", "warning", says, file=str(path), count=lost or None, rank=None)
    says = "ranks are those of the largest communicator in the file"
    return first.with_finding("nccl_rank_inferred", "info", says, file=str(path), rank=None)


def _world(members: Collection[Member], size: int) -> dict[int, int]:
    """Numbers in the communicators of the largest size (0: the source tells no size), none where they do not agree."""
    groups: dict[str | None, dict[int, int]] = {}
    for m in members:
        if (m.size or 0) == size and groups.setdefault(m.group, {}).setdefault(m.process, m.rank) != m.rank:
            return {}
    first, *others = groups.values() or [{}]
    agreed = all(other == first for other in others) and not (others and size == 0)
    distinct = len(set(first.values())) == len(first)
    sound = size <= MOST_RANKS and all(0 <= rank < (size or MOST_RANKS) for rank in first.values())
    return first if agreed and distinct and sound else {}


def _whole(members: Collection[Member], world: Mapping[int, int]) -> dict[str, tuple[int, ...]]:
    """Communicators of which every member's global rank is known."""
    known: dict[str, dict[int, int]] = {}
    sizes = {m.group: m.size for m in members if m.group is not None}
    for m in members:
        if m.group is not None and m.process in world:
            known.setdefault(m.group, {})[m.rank] = world[m.process]
    return {g: tuple(of[i] for i in range(len(of))) for g, of in known.items() if len(of) == sizes[g] and set(of) == set(range(len(of)))}


def _telling(labels: Mapping[int, int], processes: Collection[int]) -> dict[int, int]:
    """The launcher's labels, if they tell every process from the others."""
    named = {p: labels[p] for p in processes if p in labels}
    return named if len(named) == len(processes) and len(set(named.values())) == len(named) else {}
