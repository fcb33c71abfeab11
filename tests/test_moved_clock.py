"""No number depends on where the clocks stand: all of them moved by some ns, durations are the same and moments are moved along.

Times since 1970 are larger than 2^53 ns: whoever takes them for floats on the way rounds them to 256 ns, and fails here.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pytest

from tests.analyses import analysis_of
from tests.forged import report_of
from tracekit import analyze

MOVED_NS = 77


def moved(folder: Path, to: Path) -> Path:
    """The job's traces with the base of every rank's clock moved; what stands beside them as it is."""
    count = 0
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "truth.json"):
        target = to / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        raw = path.read_bytes()
        if path.name.endswith(".json.gz"):
            text, found = re.subn(rb'"baseTimeNanoseconds": *(\d+)', lambda m: b'"baseTimeNanoseconds": %d' % (int(m[1]) + MOVED_NS), gzip.decompress(raw))
            raw, count = gzip.compress(text, 1), count + found
        target.write_bytes(raw)
    assert count, "no trace of this job states its base"
    return to


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """Where two documents differ by something else than moments that are moved along."""
    if isinstance(before, dict):
        assert before.keys() == after.keys(), path
        return [d for key in before for d in differences(before[key], after[key], f"{path}.{key}")]
    if isinstance(before, list):
        assert len(before) == len(after), path
        return [d for i, (a, b) in enumerate(zip(before, after, strict=True)) for d in differences(a, b, f"{path}[{i}]")]
    along = path.endswith("_ns") and isinstance(before, int) and isinstance(after, int) and before > 2**53 and after - before == MOVED_NS
    return [] if before == after or along else [f"{path}: {before} -> {after}"]


@pytest.mark.parametrize("name", ["pp-1f1b", "tp"])
def test_a_sample(samples: Path, tmp_path: Path, name: str) -> None:
    assert differences(analysis_of(samples / name).to_dict()["metrics"], analyze(moved(samples / name, tmp_path), workers=1).to_dict()["metrics"]) == []


@pytest.mark.parametrize("name", ["partial", "captures"])
def test_a_forged_job(shared: Path, tmp_path: Path, name: str) -> None:
    folder = shared / "forged" / name
    if not sorted(folder.glob("rank*.json*")):
        folder = next(p for p in sorted(folder.iterdir()) if p.is_dir() and sorted(p.glob("rank*.json*")))
    again = analyze(sorted(moved(folder, tmp_path).glob("rank*.json*")), workers=1).to_dict()
    assert differences(report_of(folder)["metrics"], again["metrics"]) == []
