"""What does each figure need, is it there, and which line would supply it next time?

A need is judged from the counts in the ``signals`` facts and from the job: everything there, there in part, or absent. What is absent takes only
the figures that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pandas as pd

from tracekit.job.base import Job
from tracekit.vocabulary import Axis

#: Embedding, loss and the like belong to no layer, the first kernels of a window to no launch: this share counts as all.
_NEARLY = 0.9


class Presence(StrEnum):
    """How much of what is needed is there."""

    ALL = "all"
    SOME = "some"
    NONE = "none"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Need:
    """Something that figures need.

    Attributes:
        name: its key.
        title: what it is, in a few words.
        judge: Job -> (how much is there, counts in words).
        loses: metric -> what of it is unknown without this.
        supply: what to do next time, one line or a few.
    """

    name: str
    title: str
    judge: Callable[[Job], tuple[Presence, str]]
    loses: Mapping[str, str]
    supply: str


def _signals(job: Job) -> pd.DataFrame:
    """Counts over all ranks, by signal: count, of, ranks (with any), judged (ranks with a timeline)."""
    table = job.table("signals")
    slices = table[table["signal"].eq("slices") & table["count"].gt(0)][["rank", "capture"]]
    timeline = table.merge(slices, on=["rank", "capture"])
    by = timeline.groupby("signal")
    return pd.DataFrame(
        {
            "count": by["count"].sum(),
            "of": by["of"].sum(min_count=1),
            "ranks": timeline[timeline["count"].gt(0)].groupby("signal")["rank"].nunique(),
            "judged": by["rank"].nunique(),
        }
    ).fillna({"ranks": 0})


def _counted(signal: str, unit: str, only_with: str | None = None) -> Callable[[Job], tuple[Presence, str]]:
    """A need that is met by records of one signal; not asked for where no record of ``only_with`` exists."""

    def judge(job: Job) -> tuple[Presence, str]:
        table = _signals(job)
        if signal not in table.index or (only_with is not None and not table.loc[only_with, "count"]):
            return Presence.NOT_APPLICABLE, f"no {unit.removesuffix('s')} to tell of" if only_with else "no timeline"
        row = table.loc[signal].to_dict()
        count, ranks, judged = int(row["count"]), int(row["ranks"]), int(row["judged"])
        if pd.notna(row["of"]):
            of = int(row["of"])
            how = Presence.NONE if not count else Presence.ALL if count >= _NEARLY * of else Presence.SOME
            return (how if of else Presence.NOT_APPLICABLE), f"{count:,} of {of:,} {unit}"
        how = Presence.NONE if not count else Presence.ALL if ranks == judged else Presence.SOME
        return how, f"{count:,} {unit}" + (f" on {ranks} of {judged} ranks" if 0 < ranks < judged else "")

    return judge


def _layers(job: Job) -> tuple[Presence, str]:
    """Work whose layer something names; layers that were counted off repeating work stand for a part."""
    how, says = _counted("layers", "records of forward and backward", "phases")(job)
    table = _signals(job)
    guessed = int(table["count"].get("layers_inferred", 0))
    if not guessed or how is Presence.ALL:
        return how, says
    return Presence.SOME, f"{says}; of {guessed:,} more it is inferred"


def _ranks(job: Job) -> tuple[Presence, str]:
    here = len({rank for (rank, _), facts in job.ranks.items() if int(facts["extent"]["events"].iloc[0])})
    if job.world_size is None:
        return (Presence.SOME if here else Presence.NONE), f"{here} ranks; the files do not say how many there are"
    how = Presence.ALL if here >= job.world_size else Presence.SOME if here else Presence.NONE
    return how, f"{here} of {job.world_size} ranks"


def _links(job: Job) -> tuple[Presence, str]:
    """Groups whose ranks are all recorded."""
    if not len(job.instances):
        return Presence.NOT_APPLICABLE, "no collective"
    sizes = job.instances["group_size"].fillna(job.instances["matched_ranks"])
    whole = int(job.instances["matched_ranks"].ge(sizes).sum() - (sizes.le(1)).sum())
    several = int(sizes.gt(1).sum())
    if not several:
        return Presence.NOT_APPLICABLE, "no collective of several ranks"
    how = Presence.NONE if whole <= 0 else Presence.ALL if whole == several else Presence.SOME
    return how, f"{max(whole, 0):,} of {several:,} collectives on all their ranks"


def _model(job: Job) -> tuple[Presence, str]:
    model = job.run.get("model") or {}
    known = [k for k in ("layers", "hidden", "heads", "sequence") if model.get(k)]
    return (Presence.ALL if len(known) == 4 else Presence.SOME if known else Presence.NONE), ", ".join(known) or "no run.json with model sizes"


def _pipelines(job: Job) -> tuple[Presence, str]:
    if int(job.mesh.get(Axis.PP, 1)) < 2 and not len(job.p2p):
        return Presence.NOT_APPLICABLE, "no pipeline was seen"
    return _counted("actions", "pipeline action ranges")(job)


_PROFILE = "torch.profiler.profile("
#: In the order in which they matter.
NEEDS: tuple[Need, ...] = (
    Need(
        "ranks",
        "every rank of the job",
        _ranks,
        {
            "collectives": "waits are lower bounds and transfers unknown where a member is missing",
            "pipeline": "bubble_ratio of a pipeline with a missing stage",
            "straggler": "who of the missing ranks is late",
        },
        "start the profiler on every rank, or on all ranks of one group (see the smallest next capture)",
    ),
    Need(
        "device_work",
        "kernels and copies",
        _counted("device_work", "records"),
        {"breakdown": "everything", "collectives": "everything", "budget": "everything", "recompute": "everything"},
        _PROFILE + "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])",
    ),
    Need(
        "steps",
        "step marks",
        _counted("steps", "ProfilerStep ranges"),
        {"step_time": "everything", "budget": "everything", "breakdown": "figures per step", "pipeline": "figures per step"},
        _PROFILE + "schedule=schedule(wait=1, warmup=1, active=3)) and prof.step() once per training step",
    ),
    Need(
        "launches",
        "launch of each kernel",
        _counted("launches", "device records"),
        {"collectives": "layer, direction and microbatch", "breakdown": "the step of kernels without a launch"},
        _PROFILE + "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]); begin two steps before the steps of interest (warmup)",
    ),
    Need(
        "links",
        "collectives seen from all their ranks",
        _links,
        {"collectives": "transfer and full wait", "clock": "offsets between the ranks", "straggler": "who is late"},
        "profile all ranks of one group in the same steps",
    ),
    Need(
        "groups",
        "ranks of each collective's group",
        _counted("groups", "collectives", "collectives"),
        {"collectives": "matching over ranks by group; mesh axis", "straggler": "chains across groups"},
        "torch >= 2.4 writes them on NCCL kernels; else keep a Flight Recorder dump beside: TORCH_FR_BUFFER_SIZE=2000",
    ),
    Need(
        "sequence_numbers",
        "sequence number of each collective",
        _counted("sequence_numbers", "collectives", "collectives"),
        {"collectives": "matching by number instead of by order (then marked)"},
        "keep a Flight Recorder dump beside the trace: TORCH_FR_BUFFER_SIZE=2000 (TORCH_NCCL_TRACE_BUFFER_SIZE before torch 2.9)",
    ),
    Need(
        "sizes",
        "bytes of each collective",
        _counted("sizes", "communication records", "collectives"),
        {"collectives": "nbytes, algbw and busbw"},
        _PROFILE + "record_shapes=True); torch >= 2.4 writes them on NCCL kernels",
    ),
    Need(
        "layers",
        "names of layers",
        _layers,
        {"collectives": "by_layer", "memory": "activations by layer", "recompute": "figures by layer"},
        "tracekit.recorder marks layers; or torch.profiler.profile(with_stack=True) for nn.Module frames",
    ),
    Need(
        "autograd_numbers",
        "autograd sequence numbers in backward",
        _counted("autograd_numbers", "backward nodes"),
        {"recompute": "everything", "collectives": "layer of backward collectives"},
        "profile eager code, or mark ranges in compiled code: compiled regions hide them",
    ),
    Need(
        "actions",
        "pipeline actions",
        _pipelines,
        {"pipeline": "actions are inferred from the order of sends and receives, and marked"},
        "torch.distributed.pipelining writes PP: ranges; tracekit.recorder adds them to other schedules",
    ),
    Need(
        "memory_events",
        "memory events",
        _counted("memory_events", "events"),
        {"memory": "everything"},
        _PROFILE + "profile_memory=True), or torch.cuda.memory._record_memory_history() and _dump_snapshot() beside the trace",
    ),
    Need(
        "memory_baseline",
        "what stood in memory before the recording",
        _counted("memory_baseline", "blocks", "memory_events"),
        {"memory": "parameters, gradients and optimizer state apart from unknown"},
        "tracekit.recorder writes memory.json; or keep a CUDA memory snapshot beside the trace",
    ),
    Need(
        "model",
        "sizes of the model",
        _model,
        {"memory": "closed forms", "budget": "ideal compute", "utilization": "everything"},
        "record with tracekit.recorder, which writes run.json; or give --hidden, --layers, --heads, --sequence, --vocabulary and --global-batch",
    ),
)


def missing(job: Job) -> list[dict[str, Any]]:
    """Every need as a row: need, title, presence, counted, loses (metric -> what), supply."""
    rows: list[dict[str, Any]] = []
    for need in NEEDS:
        presence, counted = need.judge(job)
        rows.append({"need": need.name, "title": need.title, "presence": str(presence), "counted": counted, "loses": dict(need.loses), "supply": need.supply})
    return rows
