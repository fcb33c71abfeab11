"""Which pipeline schedules are there, what does each ask for, and which rank holds which stage?

A schedule here is a fixed order of actions per rank (:mod:`tracekit.schedule.orders`); schedules that are searched for
(ZB-1p, ZB-2p of arXiv:2401.10241) are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tracekit.errors import UsageError


@dataclass(frozen=True)
class Kind:
    """What a schedule is.

    Attributes:
        title: its name in words.
        layout: ``line`` (one stage per rank), ``loop`` (stage s on rank s mod p, two or more stages per rank), ``v``
            (stages r and 2p-1-r on rank r) or ``two_ways`` (two copies of the model, run through from both ends).
        split: whether it splits backwards into input gradient (I) and weight gradient (W).
        source: the paper or code that defines it.
    """

    title: str
    layout: str
    split: bool
    source: str


#: Every schedule that :func:`tracekit.schedule.orders.order` can write down, under the names that recognise uses.
SCHEDULES: Mapping[str, Kind] = MappingProxyType(
    {
        "gpipe": Kind("GPipe", "line", False, "arXiv:1811.06965"),
        "1f1b": Kind("1F1B (PipeDream-Flush)", "line", False, "arXiv:2104.04473 section 2.2.1"),
        "interleaved_1f1b": Kind("interleaved 1F1B", "loop", False, "arXiv:2104.04473 section 2.2.2"),
        "looped_bfs": Kind("looped breadth-first", "loop", False, "arXiv:2211.05953"),
        "zb_h1": Kind("zero bubble ZB-H1", "line", True, "arXiv:2401.10241 section 2.2"),
        "zb_h2": Kind("zero bubble ZB-H2", "line", True, "arXiv:2401.10241 section 2.3"),
        "interleaved_zb": Kind("interleaved zero bubble", "loop", True, "torch.distributed.pipelining.ScheduleInterleavedZeroBubble, after arXiv:2401.10241"),
        "zbv": Kind("zero bubble ZB-V", "v", True, "arXiv:2401.10241 section 6; torch.distributed.pipelining.ScheduleZBVZeroBubble"),
        "dualpipev": Kind("DualPipeV", "v", True, "github.com/deepseek-ai/DualPipe; torch.distributed.pipelining.ScheduleDualPipeV"),
        "dualpipe": Kind("DualPipe (two copies of the model)", "two_ways", True, "arXiv:2412.19437 section 3.2.1; github.com/deepseek-ai/DualPipe"),
    }
)


@dataclass(frozen=True)
class Placement:
    """Which rank holds which stage.

    Attributes:
        ranks: ranks of the pipeline, p.
        rank_of: per stage the rank that holds it, 0 ... p-1.
        pipelines: into how many chains of equal length the stages fall: activations run through each chain on its own.
            Two for DualPipe, whose second copy of the model is stages p ... 2p-1; else one.

    >>> placement("zbv", 2).rank_of, placement("interleaved_1f1b", 2, 2).rank_of
    ((0, 1, 1, 0), (0, 1, 0, 1))
    """

    ranks: int
    rank_of: tuple[int, ...]
    pipelines: int = 1

    def before(self, stage: int) -> int | None:
        """The stage that hands this one its activations; None for the first of a chain."""
        return stage - 1 if stage % (len(self.rank_of) // self.pipelines) else None

    def after(self, stage: int) -> int | None:
        """The stage that hands this one its gradients; None for the last of a chain."""
        return stage + 1 if (stage + 1) % (len(self.rank_of) // self.pipelines) else None


def kind(name: str) -> Kind:
    """The schedule of that name.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in SCHEDULES:
        raise UsageError(f"there is no schedule {name!r}: choose one of {', '.join(SCHEDULES)}")
    return SCHEDULES[name]


def stages_per_rank(name: str, virtual: int | None = None) -> int:
    """The stages that each rank holds: ``virtual`` where the schedule allows it, and the fewest it allows where None.

    Raises:
        UsageError: the schedule is unknown or cannot have so many.
    """
    layout = kind(name).layout
    fewest = 1 if layout == "line" else 2
    if virtual is None:
        return fewest
    if layout == "loop" and virtual < fewest:
        raise UsageError(f"{name} needs at least 2 stages per rank, not {virtual}")
    if layout != "loop" and virtual != fewest:
        raise UsageError(f"{name} has {fewest} stage{'s' * (fewest > 1)} per rank, not {virtual}")
    return virtual


def placement(name: str, ranks: int, virtual: int | None = None) -> Placement:
    """Which rank holds which stage under a schedule.

    Args:
        name: a key of ``SCHEDULES``.
        ranks: ranks of the pipeline, p.
        virtual: stages per rank, v; None takes the fewest that the schedule allows.

    Raises:
        UsageError: the schedule is unknown or cannot have so many ranks or stages.
    """
    v = stages_per_rank(name, virtual)
    layout = kind(name).layout
    if ranks < 1:
        raise UsageError(f"a pipeline has at least 1 rank, not {ranks}")
    if layout == "two_ways" and ranks % 2:
        raise UsageError(f"{name} needs an even number of ranks, not {ranks}")
    if layout in ("line", "loop"):
        return Placement(ranks, tuple(range(ranks)) * v)
    return Placement(ranks, (*range(ranks), *reversed(range(ranks))), pipelines=2 if layout == "two_ways" else 1)


def rounds(ranks: int, microbatches: int) -> int:
    """How often an interleaved schedule goes through its stages with a group of microbatches: m // p times, at least once."""
    return max(1, microbatches // ranks)


def check_microbatches(name: str, ranks: int, microbatches: int) -> None:
    """Refuse numbers of microbatches that a schedule cannot run.

    Raises:
        UsageError: with what the schedule allows.
    """
    asked = f"{name} on {ranks} ranks cannot run {microbatches} microbatches"
    if microbatches < 1:
        raise UsageError(f"{asked}: a step has at least 1")
    if name in ("interleaved_1f1b", "interleaved_zb") and microbatches % rounds(ranks, microbatches):
        raise UsageError(f"{asked}: they must fall into {rounds(ranks, microbatches)} equal rounds, best a multiple of {ranks}")
    if name in ("dualpipev", "dualpipe") and microbatches < 2 * ranks:
        raise UsageError(f"{asked}: it needs at least {2 * ranks}")
    if name == "dualpipe" and microbatches % 2:
        raise UsageError(f"{asked}: it needs an even number, half of them from each end")
