"""How long did each step take, on which rank, and is any rank out of line?"""

from __future__ import annotations

from tracekit.job.base import Job
from tracekit.metrics.base import Metric, Result, unavailable


def compute(job: Job) -> Result:
    """Host duration of every step and rank, and the medians over steady steps."""
    steps = job.table("steps")
    if not len(steps):
        return unavailable("no ProfilerStep range in the trace: call prof.step() once per training step")
    table = steps.assign(duration_ns=steps["end_ns"] - steps["start_ns"], window_ns=steps["window_end_ns"] - steps["window_start_ns"])
    table = table[["rank", "capture", "step", "duration_ns", "window_ns", "window_source", "complete", "warmup", "start_ns", "end_ns"]]
    steady = table[table["step"].isin(job.steady_steps)]
    per_rank = steady.groupby("rank")["window_ns"].median()
    known = len(per_rank) > 0
    summary = {
        "steps": int(table["step"].nunique()),
        "steady_steps": len(job.steady_steps),
        "mean_ns": float(steady["window_ns"].mean()) if known else None,
        "median_ns": float(steady["window_ns"].median()) if known else None,
        "fastest_rank": int(str(per_rank.idxmin())) if known else None,
        "fastest_rank_median_ns": float(per_rank.min()) if known else None,
        "slowest_rank": int(str(per_rank.idxmax())) if known else None,
        "slowest_rank_median_ns": float(per_rank.max()) if known else None,
    }
    notes = ["Compute was emulated (slept): durations follow from the times that were asked for."] if job.emulated else []
    if not table["complete"].any():
        notes.append("No step was recorded whole: figures are of what was recorded of these.")
    if len(job.steady_steps) <= 1:
        notes.append("Only one steady step was recorded: there is no spread to judge by.")
    return Result(summary=summary, tables={"steps": table.reset_index(drop=True)}, notes=tuple(notes))


METRIC = Metric(
    name="step_time",
    title="Step time",
    question="How long did each step take, on which rank?",
    definition=(
        "A step's duration on the host is the CPU range ProfilerStep#N. window_ns is the step's window: that range where it holds all of "
        "the step's device work and none from before it, else from the end of the device work before it to the end of its own last "
        "(window_source says which). The first recorded step is warm-up if it is longer than 1.1 x the median of the others. A step is complete "
        "unless it has no device work, more than 1 % of its launches have none, or it is the first or last and less than half of every other in "
        "time and in work. Means and medians are over complete steps that are no warm-up. Source: torch.profiler's schedule."
    ),
    compute=compute,
)
