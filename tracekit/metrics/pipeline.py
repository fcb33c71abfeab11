"""How large is the pipeline bubble, where does each rank lose its time, and what should it be on paper?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from tracekit.job.base import Job
from tracekit.job.pipeline_window import GAP_PARTS, RankParts, by_rank, rank_parts
from tracekit.job.pipelines import Pipeline, pipelines
from tracekit.job.replay import CAUSES, Replay, causes, ideal, replays, waits
from tracekit.metrics.base import Metric, Result, unavailable
from tracekit.schedule.closed import window_bubble_ratio
from tracekit.schedule.recognise import UNKNOWN, Schedule

#: Columns of the table of pipelines that are counts or times.
_WHOLE = ("step", "window_start_ns", "window_end_ns", "window_ns", "work_ns")
_RATIOS = ["bubble_ratio", "bubble_over_ideal", "longest_stage_bubble_ratio", "closed_form_bubble_ratio", "simulated_bubble_ratio"]
_WINDOW_PARTS = ["bubble_ns", "fill_ns", *GAP_PARTS, "drain_ns"]
_ACTION_NAMES = {"F": "forward", "B": "backward", "I": "input_gradient", "W": "weight_gradient"}
_ACTIONS = ["capture", "step", "pipeline", "stage", "rank", "action", "microbatch", "start_ns", "end_ns", "compute_ns"]
_ACTIONS += ["exposed_collective_ns", "inner_gap_ns", "needs_receive", "transfer_start_ns", "transfer_end_ns", "source"]


def compute(job: Job) -> Result:
    """Bubble, its parts and the closed form, per step and pipeline, with means over steady steps."""
    found = pipelines(job)
    if not found and job.mesh.get("pp") == 1:
        return unavailable("the job has no pipeline: its mesh has no axis pp")
    if not found:
        return unavailable(
            "no pipeline actions: the job has no pipeline, or no ranges of its traces name forwards and backwards and their sends, receives and "
            "compute are not those of a schedule that is known; add the recorder or use a torch runtime schedule"
        )
    if max(len(p.ranks) for p in found) < 2:
        return unavailable("only one rank has pipeline actions and no group links it to others: give the traces of the whole pipeline")
    collectives, played = by_rank(job.table("gap_collectives")), replays(job)
    parts = [rank_parts(p, collectives) for p in found]
    each = [_pipeline_row(p, rows, r) for p, rows, r in zip(found, parts, played, strict=True)]
    # straight into nullable integers: beside a null, a frame would make floats of them first, and lose ns
    table = pd.DataFrame(each).assign(**{c: pd.array([row[c] for row in each], "Int64") for c in _WHOLE})
    steady = _steady(job, table)
    every, windows = _actions(found), _windows(parts)
    return Result(
        summary=_summary(table[steady], table, windows[steady.to_numpy()[windows["at"]]], job),
        tables={
            "stages": _stages(table, every, windows, played),
            "actions": every[_ACTIONS],
            "pipelines": table,
            "ideal_actions": _ideal(found, played, steady),
        },
        notes=tuple(_notes(job, found, windows, table[steady])),
    )


def _pipeline_row(pipeline: Pipeline, rows: Sequence[RankParts], played: Replay | None) -> dict[str, Any]:
    """One row of the table ``pipelines``."""
    bounds, p, schedule = pipeline.window, len(pipeline.ranks), pipeline.schedule
    length = None if bounds is None else bounds[1] - bounds[0]
    work = sum(one.work_ns for one in rows)
    computed = int(pipeline.actions["fresh_compute_ns"].sum())
    longest = max(rows, key=lambda one: one.last_end_ns - one.first_start_ns)
    mean = _mean_spans(pipeline.actions)
    return {
        "capture": pipeline.capture,
        "step": pipeline.step,
        "pipeline": pipeline.number,
        "ranks": ",".join(map(str, pipeline.ranks)),
        "complete": pipeline.complete,
        "schedule": schedule.name,
        "pipeline_ranks": p,
        "stages": pipeline.stages,
        "virtual_stages": schedule.virtual,
        "microbatches": schedule.microbatches,
        "window_start_ns": None if bounds is None else bounds[0],
        "window_end_ns": None if bounds is None else bounds[1],
        "window_ns": length,
        "work_ns": work if pipeline.complete else None,
        "bubble_ratio": None if not length else (p * length - work) / (p * length),
        "bubble_over_ideal": None if not length or not work else (p * length - work) / work,
        "longest_stage_bubble_ratio": None if not length else longest.gaps_ns / (longest.last_end_ns - longest.first_start_ns),
        "compute_only_bubble_ratio": None if not length else (p * length - computed) / (p * length),
        "closed_form_bubble_ratio": _closed_form(schedule, mean),
        **_simulated(played, work),
        **mean,
        "actions_source": ",".join(sorted(set(pipeline.actions["source"]))),
        "actions_confidence_ratio": None if pipeline.actions["explained_ratio"].isna().all() else float(pipeline.actions["explained_ratio"].min()),
    }


def _mean_spans(actions: pd.DataFrame) -> dict[str, float | None]:
    """Mean spans of F, B, I and W in ns; None where there are none."""
    span, action = (actions["end_ns"] - actions["start_ns"]).to_numpy(np.int64), actions["action"].to_numpy(object)
    # a W that is a whole backward (first stage) is no weight gradient alone
    alone = ~(actions["whole_backward"].to_numpy(bool) & (action == "W"))
    each = {name: span[alone & (action == a)] for a, name in _ACTION_NAMES.items()}
    return {f"{name}_mean_ns": float(spans.mean()) if len(spans) else None for name, spans in each.items()}


def _simulated(played: Replay | None, work: int) -> dict[str, float | None]:
    """The bubble of the same order and times on paper, and how far its window is from the measured one."""
    names = [f"bubble_from_{cause}_ratio" for cause in CAUSES]
    if played is None:
        return dict.fromkeys(["simulated_bubble_ratio", "simulation_error_ratio", *names])
    total = len(played.ranks) * played.simulation.window_ns
    shares = causes(played).values() if played.trusted else [None] * len(names)
    return {"simulated_bubble_ratio": (total - work) / total, "simulation_error_ratio": played.error_ratio, **dict(zip(names, shares, strict=True))}


def _ideal(found: Sequence[Pipeline], played: Sequence[Replay | None], steady: pd.Series[bool]) -> pd.DataFrame:
    """The first steady pipeline on paper, with even stages and nothing between actions; no rows where it cannot be simulated."""
    columns = ["capture", "step", "pipeline", "rank", "stage", "action", "microbatch", "start_ns", "end_ns"]
    for one, again, keep in zip(found, played, steady, strict=True):
        if keep and again is not None and again.trusted:
            rows = ideal(again).assign(capture=one.capture, step=pd.array([one.step] * len(one.actions), "Int64"), pipeline=one.number)
            return rows[columns]
    return pd.DataFrame({c: pd.Series(dtype="object" if c == "action" else "Int64") for c in columns})


def _closed_form(schedule: Schedule, mean: dict[str, float | None]) -> float | None:
    """The schedule's closed form, with the measured mean spans where it asks for them."""
    if schedule.virtual is None or schedule.microbatches is None:
        return None
    times = [mean[f"{_ACTION_NAMES[a]}_mean_ns"] for a in "FIW"]
    f, i, w = (t or 1.0 for t in times) if all(times) else (1.0, 1.0, 1.0)
    return window_bubble_ratio(schedule.name, p=schedule.ranks, m=schedule.microbatches, v=schedule.virtual, f=f, i=i, w=w)


def _actions(found: Sequence[Pipeline]) -> pd.DataFrame:
    """The actions of all pipelines, with ``pipeline`` and ``at``, the place in ``found``."""
    at = np.repeat(np.arange(len(found)), [len(p.actions) for p in found])
    return pd.concat([p.actions for p in found], ignore_index=True).assign(at=at, pipeline=np.array([p.number for p in found])[at])


def _windows(parts: Sequence[Sequence[RankParts]]) -> pd.DataFrame:
    """The windows of all ranks and pipelines: at, and the columns of ``RankParts``."""
    rows = [(at, *one) for at, ranks in enumerate(parts) for one in ranks]
    return pd.DataFrame(rows, columns=["at", *RankParts._fields], dtype="Int64").astype({"at": "int64", "rank": "int64"})


def _stages(table: pd.DataFrame, actions: pd.DataFrame, windows: pd.DataFrame, played: Sequence[Replay | None]) -> pd.DataFrame:
    """Work per stage (what overlapped actions share counts with the one that started first), window parts per rank."""
    fresh = actions["end_ns"] - actions["fresh_start_ns"]
    work = actions[["at", "rank", "stage"]].assign(
        work_ns=fresh,
        compute_ns=actions["fresh_compute_ns"],
        exposed_collective_ns=actions["fresh_exposed_collective_ns"],
        inner_gap_ns=fresh - actions["fresh_compute_ns"] - actions["fresh_exposed_collective_ns"],
    )
    work = work.groupby(["at", "rank", "stage"], as_index=False).sum()
    out = work.merge(windows[["at", "rank", "gaps_ns", *_WINDOW_PARTS, "receives_unknown"]], on=["at", "rank"])
    out = out.merge(_waits(played), on=["at", "rank"], how="left")
    where = table[["capture", "step", "pipeline"]].iloc[out["at"]].reset_index(drop=True)
    return pd.concat([where, out.drop(columns="at")], axis=1)


def _waits(played: Sequence[Replay | None]) -> pd.DataFrame:
    """What each rank waits in the simulations that are trusted, by cause: at, rank, ``wait_from_*_ns``."""
    names = [f"wait_from_{cause}_ns" for cause in CAUSES]
    found = [waits(r).assign(at=at) for at, r in enumerate(played) if r is not None and r.trusted]
    every = pd.concat(found, ignore_index=True) if found else pd.DataFrame({name: [] for name in ("rank", *CAUSES, "at")})
    kinds = dict.fromkeys(("at", "rank"), "int64") | dict.fromkeys(names, "Int64")
    return every.rename(columns=dict(zip(CAUSES, names, strict=True))).astype(kinds)


def _steady(job: Job, table: pd.DataFrame) -> pd.Series[bool]:
    """Rows that count in means: complete pipelines of steady steps; every complete one where no step is steady."""
    steady = table["step"].isin(job.steady_steps) & table["complete"]
    if not steady.any():
        steady = table["complete"] & ~table["step"].isin(_unsteady(job))
    return steady if steady.any() else pd.Series(True, index=table.index)


def _unsteady(job: Job) -> frozenset[int]:
    """Steps that were cut."""
    steps = job.table("steps")
    return frozenset(int(s) for s in steps.loc[~steps["complete"], "step"])


def _summary(steady: pd.DataFrame, every: pd.DataFrame, parts: pd.DataFrame, job: Job) -> dict[str, Any]:
    def one(column: str) -> Any:
        values = steady[column].dropna().unique()
        return values[0].item() if len(values) == 1 and hasattr(values[0], "item") else values[0] if len(values) == 1 else None

    def mean(frame: pd.DataFrame, column: str) -> float | None:
        # a mean over a part of the pipelines would pass for one over all
        return None if not len(frame) or frame[column].isna().any() else float(frame[column].mean())

    def least(column: str) -> float | None:
        values = steady[column].dropna()
        return float(values.min()) if len(values) else None

    window_ns = mean(steady, "window_ns")
    return {
        "schedule": one("schedule") or UNKNOWN,
        "pipelines": int(every["ranks"].nunique()),
        "pipeline_ranks": one("pipeline_ranks"),
        "stages": one("stages"),
        "virtual_stages": one("virtual_stages"),
        "microbatches": one("microbatches"),
        "window_ns": None if window_ns is None else round(window_ns),
        **{name: mean(steady, name) for name in _RATIOS},
        "simulation_error_ratio": mean(steady, "simulation_error_ratio"),
        **{name: mean(steady, name) for name in (f"bubble_from_{cause}_ratio" for cause in CAUSES)},
        "compute_only_bubble_ratio": mean(steady, "compute_only_bubble_ratio"),
        **{f"{name}_mean_ns": mean(steady, f"{name}_mean_ns") for name in _ACTION_NAMES.values()},
        "actions_source": one("actions_source"),
        "actions_confidence_ratio": least("actions_confidence_ratio"),
        **{name: mean(parts, name) for name in ("work_ns", *_WINDOW_PARTS)},
        "steps": int(steady["step"].nunique()),
        "emulated": job.emulated,
    }


def _notes(job: Job, found: Sequence[Pipeline], windows: pd.DataFrame, steady: pd.DataFrame) -> list[str]:
    out = []
    if job.emulated:
        out.append("Compute was emulated: the ranks slept inside real schedules and real communication.")
    sources = {str(s) for p in found for s in p.actions["source"].unique()}
    if "inferred" in sources:
        out.append(
            "No range names the microbatches: the actions were inferred from the order of sends, receives and compute. actions_confidence_ratio is "
            "the least share, over ranks and steps, of those that the actions explain."
        )
    if any(p.by_order for p in found):
        out.append("No process group and no send links the ranks: those of the job, in order, are taken for one pipeline (inferred).")
    missing = sorted({r for p in found if not p.complete for r in set(p.ranks) - set(p.actions["rank"])})
    if missing:
        text = ", ".join(map(str, missing))
        out.append(
            f"Ranks {text} are missing: windows and ratios of their pipelines are unknown and left out of the means; "
            "gaps_ns is what each rank lost between its own actions."
        )
    if not all(p.causal for p in found):
        why = "the ranks' clocks disagree" if not any(p.by_order for p in found) else "the ranks' clocks disagree, or they are no pipeline"
        out.append(f"Actions start before their inputs were computed: {why}, so the window and waits of those pipelines are unknown.")
    unknown = int(windows["receives_unknown"].sum())
    if unknown:
        out.append(
            f"{unknown} receives are not matched with their sends: what their actions waited counts as steady wait, "
            "transfers included, and p2p_transfer_ns is null."
        )
    if len(job.p2p) and any(facts.meta.device_type == "cpu" for facts in job.ranks.values()):
        out.append("On gloo a receive ends when it is waited for: p2p_transfer_ns is an upper bound, with launch_gap_ns it is exact.")
    stated = str((job.run.get("pipeline") or {}).get("schedule") or "")
    named = {str(s) for s in steady["schedule"]}
    if stated and named != {stated}:
        out.append(f"run.json states the schedule {stated}; the order of actions is that of {', '.join(sorted(named))}.")
    if steady["closed_form_bubble_ratio"].isna().any():
        out.append("closed_form_bubble_ratio is null: there is no closed form for this schedule.")
    return out


METRIC = Metric(
    name="pipeline",
    title="Pipeline",
    question="How large is the pipeline bubble, and where does each rank lose its time?",
    definition=(
        "An action is F, B (whole backward), I (input gradient) or W (weight gradient) of one stage and microbatch; its span runs from the "
        "first start to the last end of its compute and its TP, CP and EP collectives. window = first action start to last action end over "
        "the pipeline's ranks. work of a rank = union of its spans = compute + exposed collective + inner gap. bubble = window - work = fill "
        "+ steady wait + p2p transfer + exposed other collective + launch gap + drain, exactly. bubble_ratio = 1 - sum(work) / (p x window), "
        "p = pipeline ranks (GPipe, arXiv 1811.06965: (p-1)/(m+p-1)); bubble_over_ideal = p x window / sum(work) - 1 (Megatron-LM, arXiv "
        "2104.04473: (p-1)/m); longest_stage_bubble_ratio = 1 - work / span of the rank with the longest span from its own first to its own "
        "last action (Zero Bubble, arXiv 2401.10241 section 5.3). A receive that waits is bubble, not work. simulated_bubble_ratio = the same order "
        "of actions with their measured spans, the median hand-over between ranks and the median overhead between actions, simulated; "
        "simulation_error_ratio = its window / the measured one - 1. bubble_from_*: the simulated bubble divided: even stages and nothing between actions "
        "(schedule), what hand-overs and overheads add (handover), the stages' own mean times (imbalance), the single times (variation); null where "
        "the simulation misses the window by more than 5 %. wait_from_* of a rank: what it waits between its own actions in the simulation, divided likewise."
    ),
    compute=compute,
)
