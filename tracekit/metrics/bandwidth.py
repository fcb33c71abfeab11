"""Which bandwidth did nccl-tests measure, and do its rows hold together?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tracekit import theory
from tracekit.job.base import Job
from tracekit.metrics.base import Metric, Result, unavailable
from tracekit.printed import algbw_spread, busbw_fits
from tracekit.vocabulary import Collective

#: The kinds that nccl-tests has a test for.
_KINDS = (
    Collective.ALL_REDUCE,
    Collective.ALL_GATHER,
    Collective.REDUCE_SCATTER,
    Collective.ALL_TO_ALL,
    Collective.GATHER,
    Collective.SCATTER,
    Collective.BROADCAST,
    Collective.REDUCE,
    Collective.SEND_RECV,
)


def compute(job: Job) -> Result:
    """Rows with whether they hold together, and per table its peak, its mean, and which collective's factor its rows fit."""
    rows = job.table("benchmarks")
    if not len(rows):
        return unavailable("no output of nccl-tests: give what all_reduce_perf or a sibling printed")
    rows = rows.drop(columns=["rank", "capture"]).reset_index(drop=True)
    runs, factors, judged = [], [], []
    for run, mine in rows.groupby("run", sort=False):
        used = mine["nbytes"].gt(0).to_numpy()
        spread = algbw_spread(mine["nbytes"], mine["duration_ns"], mine["algbw_gbps"].astype("float64"))
        ranks, test = _one(mine["ranks"]), _one(mine["test"])
        fits = {kind: _fits(kind, ranks, spread, mine, used) for kind in _KINDS}
        algbw = pd.array(spread.fits, "boolean")
        algbw[~used] = pd.NA
        ratio = fits.get(test)
        busbw = pd.array(np.zeros(len(mine), bool) if ratio is None else ratio, "boolean")
        busbw[~used | (ratio is None)] = pd.NA
        judged.append(mine.assign(algbw_fits=algbw, busbw_fits=busbw))
        factors += [_factor(str(run), kind, ranks, fit, used) for kind, fit in fits.items() if fit is not None]
        runs.append(_run(str(run), mine, test, ranks, algbw, busbw))
    tables = {"runs": pd.DataFrame(runs), "rows": pd.concat(judged, ignore_index=True), "factors": pd.DataFrame(factors, columns=_FACTORS)}
    return Result(summary=_summary(tables["runs"], tables["rows"]), tables=tables, notes=_notes(tables["runs"]))


_FACTORS = ["run", "test", "factor", "cells", "cells_that_fit"]


def _fits(kind: str, ranks: int | None, spread: Any, mine: pd.DataFrame, used: Any) -> Any:
    """Which rows have the ratio of a kind; None where it has none."""
    factor = None if ranks is None else theory.busbw_factor(kind, ranks)
    return None if factor is None else busbw_fits(spread, mine["busbw_gbps"].astype("float64"), factor) & used


def _factor(run: str, kind: str, ranks: int | None, fit: Any, used: Any) -> dict[str, Any]:
    factor = None if ranks is None else theory.busbw_factor(kind, ranks)
    return {"run": run, "test": str(kind), "factor": factor, "cells": int(used.sum()), "cells_that_fit": int(fit.sum())}


def _run(run: str, mine: pd.DataFrame, test: str | None, ranks: int | None, algbw: Any, busbw: Any) -> dict[str, Any]:
    """One table in a line."""
    best = mine.iloc[int(np.argmax(mine["busbw_gbps"].astype("float64")))]
    return {
        "run": run,
        "test": test,
        "ranks": ranks,
        "cells": len(mine),
        "peak_busbw_gbps": float(best["busbw_gbps"]),
        "peak_algbw_gbps": float(mine["algbw_gbps"].max()),
        "peak_at_bytes": int(best["nbytes"]),
        "mean_busbw_gbps": float(mine["busbw_gbps"].mean()),
        "printed_mean_busbw_gbps": _one(mine["run_busbw_gbps"]),
        "cells_checked": int((~algbw.isna()).sum()),
        "algbw_misfits": int((~algbw).sum()),
        "busbw_misfits": int((~busbw).sum()) if not busbw.isna().all() else None,
        "errors": None if mine["errors"].isna().all() else int(mine["errors"].sum()),
    }


def _summary(runs: pd.DataFrame, rows: pd.DataFrame) -> dict[str, Any]:
    best = runs.iloc[int(np.argmax(runs["peak_busbw_gbps"]))]
    unchecked = runs["busbw_misfits"].isna().all()
    return {
        "runs": len(runs),
        "rows": len(rows),
        "peak_busbw_gbps": float(best["peak_busbw_gbps"]),
        "peak_run": best["run"],
        "mean_busbw_gbps": float(rows["busbw_gbps"].mean()),
        "algbw_misfits": int(runs["algbw_misfits"].sum()),
        "busbw_misfits": None if unchecked else int(runs["busbw_misfits"].sum()),
        "errors": None if rows["errors"].isna().all() else int(rows["errors"].sum()),
    }


def _notes(runs: pd.DataFrame) -> tuple[str, ...]:
    notes = ["Misfits are rows in which algbw is not size over time, or busbw not algbw times the collective's factor, by more than the printed digits allow."]
    if runs["test"].isna().any():
        notes.append("Some tables do not tell which collective they measured: their busbw was not checked; table factors shows what would fit.")
    if runs["errors"].isna().any():
        notes.append("Results were not checked for errors in every table (N/A).")
    return tuple(notes)


def _one(column: pd.Series[Any]) -> Any:
    """The one value of a column; None where there is none, or several."""
    values = column.dropna().unique()
    return values[0].item() if len(values) == 1 and isinstance(values[0], np.generic) else values[0] if len(values) == 1 else None


METRIC = Metric(
    name="bandwidth",
    title="nccl-tests",
    question="Which bandwidth did nccl-tests measure, and do its rows hold together?",
    definition=(
        "Rows as nccl-tests printed them, both halves (out of place, in place). algbw = size / time; busbw = algbw x factor: all-reduce 2(n-1)/n; "
        "all-gather, reduce-scatter, all-to-all, gather and scatter (n-1)/n; broadcast, reduce and send-receive 1 (NVIDIA/nccl-tests, doc/PERFORMANCE.md). "
        "A row fits where some true values round to the printed ones. mean_busbw_gbps is the mean over all cells, as the line Avg bus bandwidth has it."
    ),
    compute=compute,
)
