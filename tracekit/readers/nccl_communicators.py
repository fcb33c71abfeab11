"""Which communicators does a log of NCCL name, which process holds which rank of them, and when did an address mean which?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tracekit.readers.nccl_ranks import Member, Ranks, global_ranks
from tracekit.readers.nccl_text import Comm, Process, Scan


@dataclass(frozen=True)
class Communicator:
    """One communicator of one process, from its first line to its last.

    Attributes:
        start: byte from which its address means it.
        group: its name, the same on all of its ranks; None where the log has none.
        complete: whether its setup was over.
    """

    start: int
    process: int
    handle: str
    rank: int
    size: int
    device: int | None = None
    group: str | None = None
    complete: bool = False


@dataclass(frozen=True)
class Known:
    """Communicators and ranks of a log.

    Attributes:
        lived: communicators by (process, address), in order of time.
        alias: processes whose host was glued to another record -> the process that they are.
        entities: (process, device), each one rank -> its number.
        ranks: by that number.
    """

    lived: Mapping[tuple[int, str], list[Communicator]]
    alias: Mapping[int, int]
    entities: Mapping[tuple[int, int | None], int]
    ranks: Ranks

    def entity(self, process: int, c: Communicator | None) -> int:
        """The rank (as a number into ``entities``) of a call: its communicator's, else the only one of its process."""
        if c is not None:
            return self.entities[c.process, c.device]
        mine = [number for (p, device), number in self.entities.items() if p == process and device is not None]
        return mine[0] if len(mine) == 1 else self.entities[process, None]

    def everyone(self) -> list[Communicator]:
        """All communicators."""
        return [c for several in self.lived.values() for c in several]


def communicators(said: Scan) -> Known:
    """Communicators from their lines: each lives until it is destroyed, or its address is given to another."""
    alias = _aliases(said.processes)
    lived: dict[tuple[int, str], list[Communicator]] = {}
    ended: set[tuple[int, str]] = set()
    names: Counter[tuple[int, int | None, str]] = Counter()
    for line in said.comms:
        process = alias.get(line.process, line.process)
        key = (process, line.handle)
        mine = lived.setdefault(key, [])
        if not mine or key in ended or _another(mine[-1], line):
            mine.append(Communicator(line.at if mine else 0, process, line.handle, line.rank, line.size))
            ended.discard(key)
        mine[-1] = _with(mine[-1], line, lived, names)
        if line.what is not None and line.what.endswith(" COMPLETE") and line.what != "Init COMPLETE":
            ended.add(key)
    one_of_size = _only_of_their_size([c for several in lived.values() for c in several])
    lived = {k: [replace(c, group=f"nranks={c.size}") if c.group is None and c.size in one_of_size else c for c in v] for k, v in lived.items()}
    everyone = [c for several in lived.values() for c in several]
    writers = {alias.get(p, p) for p in range(len(said.processes))}
    entities = {e: i for i, e in enumerate(dict.fromkeys([*((c.process, c.device) for c in everyone), *((p, None) for p in sorted(writers))]))}
    members = [Member(entities[c.process, c.device], c.group, c.rank, c.size) for c in everyone]
    labels = _labels(said.processes, entities, writers)
    return Known(lived, alias, entities, global_ranks(members, labels, labels))


def _another(known: Communicator, line: Comm) -> bool:
    """Whether a line is of another communicator at the same address."""
    return (known.rank, known.size) != (line.rank, line.size) or (known.complete and line.what == "Init START")


def _with(c: Communicator, line: Comm, lived: Mapping[tuple[int, str], list[Communicator]], names: Counter[tuple[int, int | None, str]]) -> Communicator:
    """The communicator with what one more of its lines tells: its name on all ranks, its device."""
    device = c.device if c.device is not None else line.device
    group = c.group
    if group is None:
        parents = lived.get((c.process, line.parent), []) if line.parent is not None else []
        split = f"{parents[-1].group}/{line.split}" if parents and parents[-1].group is not None else None
        group = line.id or split
        if group is not None:  # NCCL 2.18 gives all splits of one colour one commId: their order tells them apart
            names[c.process, device, group] += 1
            number = names[c.process, device, group]
            group = group if number == 1 else f"{group}#{number}"
    return replace(c, group=group, device=device, complete=c.complete or line.what in ("Init COMPLETE", "COMPLETE"))


def _only_of_their_size(everyone: list[Communicator]) -> set[int]:
    """NCCL before 2.17 names no communicators: sizes of which every process has one, all ranks seen, so that they are one."""
    unnamed: dict[int, list[Communicator]] = {}
    for c in everyone:
        if c.group is None:
            unnamed.setdefault(c.size, []).append(c)
    return {n for n, all_ in unnamed.items() if len({(c.process, c.device) for c in all_}) == len(all_) == n and {c.rank for c in all_} == set(range(n))}


def _labels(processes: list[Process], entities: Mapping[tuple[int, int | None], int], writers: set[int]) -> dict[int, int]:
    """What the launcher wrote in front, of the processes that have one GPU and one label."""
    out = {}
    for process in writers:
        mine = [number for (p, device), number in entities.items() if p == process and device is not None] or [entities[process, None]]
        if len(mine) == 1 and len(processes[process].labels) == 1:
            out[mine[0]] = next(iter(processes[process].labels))
    return out if len(out) == len(writers) else {}


def _aliases(processes: list[Process]) -> dict[int, int]:
    """Processes whose host was glued to the end of another record, as the process that they are."""
    whole = {i: p for i, p in enumerate(processes) if not p.glued and p.host is not None}
    out = {}
    for i, p in enumerate(processes):
        if p.glued and p.host is not None:
            same = [j for j, q in whole.items() if q.pid == p.pid and q.host is not None and p.host.endswith(q.host)]
            if same:
                out[i] = max(same, key=lambda j: len(whole[j].host or ""))
    return out
