"""Does the analysis of fresh runs say what was asked for? Equal runs give equal counts; √N checkpoints are √N."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from instrumentation.config import RunConfig, configure
from instrumentation.launch import launch
from tracekit import analyze


def report(config: RunConfig) -> dict[str, Any]:
    return analyze(config.out, workers=1).to_dict()


def test_two_runs_of_one_seed_issue_the_same_collectives(trained: Mapping[str, RunConfig]) -> None:
    columns = ("step", "kind", "group", "group_ranks", "axis", "seq", "nbytes", "wire_bytes", "dtype", "layer", "direction", "microbatch")
    first, second = (
        [tuple(str(row[c]) for c in columns) for row in report(trained[name])["metrics"]["collectives"]["tables"]["instances"]] for name in ("tp", "tp again")
    )
    config = trained["tp"]
    assert sum("layers." in row[9] for row in first) == 4 * config.layers * config.microbatches
    assert first == second


def test_sqrt_keeps_the_inputs_of_about_sqrt_segments(tmp_path: Path) -> None:
    sizes = {"layers": 9, "hidden": 16, "heads": 2, "sequence": 8, "vocabulary": 32, "microbatch_size": 1, "microbatches": 2}
    config = configure("dense", 1, out=str(tmp_path / "run"), **sizes, steps=3, active=1, recompute="sqrt")
    launch([config])
    found = report(config)["metrics"]["recompute"]
    (whole,) = found["tables"]["ranks"]
    assert found["summary"]["mode"] == "sqrt"
    assert whole["checkpoints"] == 3 * config.microbatches
    layers = [r for r in found["tables"]["layers"] if r["layer_index"] is not None]
    assert [(r["layer"], r["recompute_runs"]) for r in layers] == [(f"layers.{n}", config.microbatches) for n in range(9)]
