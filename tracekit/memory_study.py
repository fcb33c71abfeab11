"""Does the activation peak of a run meet its closed form, and how does it grow with depth?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from tracekit import theory
from tracekit.analysis import Analysis

#: Modes of recomputation that have a closed form of memory.
MODES = ("none", "full", "selective:core_attention", "sqrt")
COLUMNS = ["recipe", "ranks", "layers", "recompute", "activation_peak_bytes", "activation_theory_bytes", "difference_ratio", "activation_per_layer_bytes"]
COLUMNS += ["activation_per_layer_theory_bytes", "overhead_of_step_compute_ratio", "theory_overhead_of_step_compute_ratio", "paper_overhead_ratio"]
FIT_COLUMNS = ["recompute", "runs", "measured_exponent", "theory_exponent"]

#: Forward and backward of a layer of the 22B model in ms, and both with recomputation: arXiv 2205.05198 Table 4.
_PAPER_MS = {"none": 7.7 + 11.9, "full": 27.2, "selective:core_attention": 20.9}


def measured(analysis: Analysis) -> dict[str, Any]:
    """What the analysis says of one run: columns ``COLUMNS``; null where it is unknown."""
    run, memory, again = analysis.job.run, analysis.result("memory"), analysis.result("recompute")
    mode = str(run.get("recompute"))
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {"recipe": run.get("recipe"), "ranks": run.get("world_size"), "layers": (run.get("model") or {}).get("layers"), "recompute": mode}
    row |= {k: again.summary.get(k) for k in COLUMNS if k.endswith("step_compute_ratio")}
    paper = _PAPER_MS.get(mode)
    row["paper_overhead_ratio"] = None if paper is None else theory.step_overhead(_PAPER_MS["none"], paper - _PAPER_MS["none"])
    if memory.available:
        peaks = memory.tables["peaks"]
        whole = peaks[peaks["step"].isna() & peaks["rank"].eq(memory.summary["rank"])]["activation_peak_bytes"].max()
        on_paper = memory.summary["activation_theory_bytes"]
        row |= {k: memory.summary[k] for k in ("activation_theory_bytes", "activation_per_layer_bytes", "activation_per_layer_theory_bytes")}
        if not pd.isna(whole):
            row["activation_peak_bytes"] = int(whole)
            row["difference_ratio"] = int(whole) / on_paper - 1 if on_paper else None
    return row


def fits(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Exponents of peak ~ layers ^ exponent per mode over the runs that split nothing, measured and by closed form (least squares of the logarithms)."""
    found = []
    for mode in MODES:
        own = [r for r in rows if r["recipe"] == "dense" and r["recompute"] == mode and r["activation_peak_bytes"] and r["activation_theory_bytes"]]
        row = {"recompute": mode, "runs": len(own), "measured_exponent": None, "theory_exponent": None}
        if len({r["layers"] for r in own}) > 1:
            row |= {
                name: exponent([r["layers"] for r in own], [r[key] for r in own])
                for name, key in (("measured_exponent", "activation_peak_bytes"), ("theory_exponent", "activation_theory_bytes"))
            }
        found.append(row)
    return found


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """Exponent k of y ~ x^k by least squares of the logarithms.

    >>> round(exponent([4, 9, 16], [20, 30, 40]), 6)
    0.5
    """
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
