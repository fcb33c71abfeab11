"""Which figures do the sample traces give? ``python -m tests.golden`` writes them anew; the diff is reviewed like code.

A golden file holds health, run and every summary in full, tables of up to ``WHOLE`` rows in full, and of longer ones the
number of rows and a digest, so that a change anywhere shows while the file stays readable.
"""

from __future__ import annotations

import copy
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from tests.analyses import analysis_of, unchanging
from tests.conftest import REPOSITORY

SAMPLES = REPOSITORY / "sample_traces"
GOLDEN = REPOSITORY / "tests" / "golden"
WHOLE = 40


def samples() -> list[str]:
    """Names of the sample runs."""
    return sorted(p.parent.name for p in SAMPLES.glob("*/run.json"))


@cache
def report_of(name: str) -> dict[str, Any]:
    """A sample's report, read once however many tests look at it; it cannot be changed."""
    report: dict[str, Any] = unchanging(analysis_of(SAMPLES / name).to_dict())
    return report


def digest(name: str) -> dict[str, Any]:
    """The golden view of one sample's report."""
    report = copy.deepcopy(report_of(name))
    for metric in report["metrics"].values():
        for key in ("title", "question", "definition"):
            del metric[key]
        metric["tables"] = {table: _shortened(rows) for table, rows in metric["tables"].items()}
    del report["tracekit"]
    report["run"].pop("config")
    report["run"]["source"] = [str(Path(p).relative_to(SAMPLES)) for p in report["run"]["source"]]
    for finding in report["health"]["findings"]:
        finding["file"] = finding["file"] and str(Path(finding["file"]).relative_to(SAMPLES))
    return _rounded(report)


def _shortened(rows: list[dict[str, Any]]) -> Any:
    if len(rows) <= WHOLE:
        return rows
    text = json.dumps(_rounded(rows), sort_keys=True)
    return {"rows": len(rows), "columns": list(rows[0]), "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _rounded(value: Any) -> Any:
    """Floats to nine digits: the last bits of a mean may differ between machines."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    return [_rounded(v) for v in value] if isinstance(value, list) else value


def main() -> None:
    """Write every golden file."""
    GOLDEN.mkdir(exist_ok=True)
    for name in samples():
        (GOLDEN / f"{name}.json").write_text(json.dumps(digest(name), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
