"""Do the reference runs still do what they did? Records them, and holds their facts against ``.ci/baseline``.

``make gate`` checks; ``.venv/bin/python .ci/gate.py accept "REASON"`` makes what they do now the new normal. Compute is emulated and
one short run of each is enough: counts, bytes, schedule and recomputation follow from the program alone. A fact that has
become unknown fails as well (exit code 3), for then the reading of it broke.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CONFIG = HERE / "gate.toml"
#: Scenario -> recipe, ranks and settings.
RUNS: dict[str, tuple[str, int, dict[str, object]]] = {
    "tp2-recompute": ("tp", 2, {"recompute": "full", "layers": 2, "microbatches": 2}),
    "pp2-1f1b": ("pp", 2, {"schedule": "1f1b", "layers": 4, "microbatches": 4}),
}
_SHORT = {"steps": 4, "wait": 1, "warmup": 1, "active": 2, "emulate_compute_ns": 2_000_000}


def record(folder: Path) -> list[Path]:
    """Record every run into a folder, torch being loaded once; the run directories, named after their scenarios."""
    from instrumentation.config import configure
    from instrumentation.launch import launch

    configs = [
        configure(recipe, ranks, out=str(folder / name), command="make gate", **{**_SHORT, **settings}) for name, (recipe, ranks, settings) in RUNS.items()
    ]
    launch(configs)
    return [Path(c.out) for c in configs]


def arguments(scenario: str, run: Path, reason: str | None) -> list[str]:
    """The command that checks a run, or accepts it."""
    common = [str(run), "--scenario", scenario, "--config", str(CONFIG)]
    if reason is None:
        return ["check", *common, "--workers", "1"]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=HERE, capture_output=True, text=True, check=True).stdout.strip()
    return ["baseline", "accept", *common, "--reason", reason, "--commit", commit]


def main(asked: list[str]) -> int:
    """Check or accept; the worst exit code."""
    from tracekit.cli import main as tracekit

    if asked and (asked[0] != "accept" or len(asked) != 2):
        print('usage: gate.py [accept "REASON"]', file=sys.stderr)
        return 2
    # neither a person's own settings nor those of other jobs have a say here
    for name in [n for n in os.environ if n.startswith("TRACEKIT_")]:
        del os.environ[name]
    codes = []
    with tempfile.TemporaryDirectory(prefix="tracekit-gate-") as folder:
        os.environ["XDG_CONFIG_HOME"] = folder
        runs = record(Path(folder))
        os.chdir(folder)
        codes = [tracekit(arguments(run.name, Path(run.name), asked[1] if asked else None)) for run in runs]
        os.chdir(HERE)
    if not asked and any(codes):
        print('If this is meant: .venv/bin/python .ci/gate.py accept "REASON", and commit .ci/baseline with the change.', file=sys.stderr)
    return next((code for code in (1, *sorted(codes, reverse=True)) if code in codes), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
