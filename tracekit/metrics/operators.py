"""Which operators ran, how often, on how many bytes? From execution traces, which state every call but no time."""

from __future__ import annotations

import pandas as pd

from tracekit.job.base import Job
from tracekit.metrics.base import Metric, Result, unavailable

_BYTES = ["input_bytes", "output_bytes"]
#: Nodes with which the observer marks processes, threads and groups: no call of the program.
_MARKS = ("[pytorch|profiler|execution_trace|", "## process_group:init ##")


def compute(job: Job) -> Result:
    """Counts and bytes by operator over all ranks, and the number of nodes of each rank."""
    every = job.table("operators")
    if not len(every):
        return unavailable("no execution trace: torch.profiler.ExecutionTraceObserver writes one, register it beside the profiler")
    mark = every["name"].astype(str).str.startswith(_MARKS)
    calls = every[~mark]
    groups = calls.groupby("name", sort=False)
    table = pd.DataFrame({"ranks": groups["rank"].nunique(), "count": groups["count"].sum(), **{c: _sums(calls, c) for c in _BYTES}})
    table = table.reset_index().sort_values(["count", "name"], ascending=[False, True], kind="stable", ignore_index=True)
    per_rank = every.assign(calls=every["count"].where(~mark, 0)).groupby(["rank", "capture"], as_index=False)[["count", "calls"]].sum()
    per_rank = per_rank.rename(columns={"count": "nodes"})
    summary = {
        "nodes": int(every["count"].sum()),
        "calls": int(calls["count"].sum()),
        "operators": len(table),
        "ranks": int(every["rank"].nunique()),
    }
    unknown = int(table[_BYTES].isna().any(axis=1).sum())
    notes = ["An operator's bytes are those of its own arguments: what it calls in turn counts as well, under its own name."]
    if unknown:
        notes.append(f"Bytes of {unknown} operators are null: some of their tensors are written without a size.")
    return Result(summary=summary, tables={"operators": table, "ranks": per_rank}, notes=tuple(notes))


def _sums(calls: pd.DataFrame, column: str) -> pd.Series:
    """Sum by name; null where any part is."""
    groups = calls.groupby("name", sort=False)[column]
    whole = groups.size() == groups.count()
    return groups.sum().where(whole)


METRIC = Metric(
    name="operators",
    title="Operators",
    question="Which operators ran, how often, on how many bytes?",
    definition=(
        "count is the number of nodes of that name in the execution traces of all ranks; input_bytes and output_bytes are elements x bytes per "
        "element of the tensors among their arguments and results, all calls together, views counted like any tensor. nodes counts every node "
        "of the files, calls leaves out those that mark processes, threads and process groups. Source: torch.profiler.ExecutionTraceObserver "
        "(PARAM, arXiv 2011.08455; Chakra, arXiv 2305.14516)."
    ),
    compute=compute,
)
