"""Which runs are the tests' real noise? ``python -m tests.regression.record`` records them anew (20 minutes on two cores; quiet, please).

Each run is a training of its own: ``tracekit run`` with the settings below, analysed and reduced to its snapshot. What all runs
share (setup, facts, keys) is written once, the timed numbers per run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tracekit import analyze
from tracekit.compare import Snapshot, snapshot
from tracekit.compare.keys import from_where

DATA = Path(__file__).with_name("repeated_runs.json")
RUN = "tp --ranks 2 --steps 13 --active 10 --emulate-compute 2ms --hidden 128 --sequence 256 --microbatch-size 1 --microbatches 16 --layers 4"
RUNS = 20


def written(runs: Sequence[Snapshot], note: str) -> dict[str, Any]:
    """The data file of some runs.

    Raises:
        ValueError: their facts or setups differ: then they are no repeats of one another.
    """
    first = runs[0]
    if any(dict(s.facts) != dict(first.facts) or dict(s.fingerprint) != dict(first.fingerprint) or set(s.timed) != set(first.timed) for s in runs):
        raise ValueError("these runs are no repeats of one another: facts, setups or keys differ")
    keys = sorted(first.timed)
    return {
        "note": note,
        "command": f"tracekit run {RUN}",
        "fingerprint": dict(first.fingerprint),
        "facts": [[k.metric, dict(k.where), v] for k, v in sorted(first.facts.items())],
        "missing": dict(first.missing),
        "levels": sorted(first.levels),
        "timed": [[k.metric, dict(k.where)] for k in keys],
        "runs": [{"created": s.about.get("created"), "timed": [round(s.timed[k]) for k in keys]} for s in runs],
    }


def repeated() -> list[Snapshot]:
    """The recorded runs."""
    data = json.loads(DATA.read_text())
    keys = [from_where(metric, where) for metric, where in data["timed"]]
    facts = {from_where(metric, where): value for metric, where, value in data["facts"]}
    return [
        Snapshot(data["fingerprint"], facts, dict(zip(keys, map(float, run["timed"]), strict=True)), {}, data["missing"], {"source": f"run {n}"})
        for n, run in enumerate(data["runs"])
    ]


def main() -> None:
    """Record, or read runs that were recorded, and write the file."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", nargs="*", type=Path, help="run directories that were recorded with exactly these settings")
    options.add_argument("--note", default="recorded on a machine that did nothing else", help="what the machine did beside")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = asked.runs or [_recorded(Path(folder) / str(n)) for n in range(RUNS)]
        runs = [snapshot(analyze(path, workers=1).to_dict(), path.name) for path in paths]
    DATA.write_text(json.dumps(written(runs, f"{len(runs)} runs on {os.cpu_count()} cores, {asked.note}"), indent=None, separators=(",", ":")) + "\n")


def _recorded(out: Path) -> Path:
    subprocess.run([sys.executable, "-m", "tracekit", "run", *RUN.split(), "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
    return out


if __name__ == "__main__":
    main()
