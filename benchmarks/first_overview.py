"""How long after the last file is read does its reader see the overview? A dashboard in a process of its own, a headless Chromium on the job's page.

    python benchmarks/first_overview.py [--job FOLDER] [--megabytes 300]

Two runs: the ranks of a job (a sample, or a folder that is named), and one large trace (a sample, repeated). Printed of each, in seconds:
how long reading took; from its end until the results are stored; until the overview stands in the window (1280 x 900) with every figure there
drawn; until the figures further down are drawn as well; and the second of these next to the reading.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
SAMPLES = REPOSITORY / "sample_traces"
#: Whether every figure (of the window, or of the page) is drawn with its own data, under a page that says something.
PAINTED = """whole => {
  const plots = [...document.querySelectorAll('.plot')].filter(p => whole || p.getBoundingClientRect().top < innerHeight);
  return document.querySelector('.answer') !== null && plots.length > 0
    && plots.every(p => !p.classList.contains('loading') && ((p.querySelector('.js-plotly-plot') || {}).data || []).length > 0);
}"""


class Stages(threading.Thread):
    """Notes when a run reaches each stage."""

    def __init__(self, library: Any, run: str) -> None:
        super().__init__(daemon=True)
        self.library, self.run_id = library, run
        self.at: dict[str, float] = {}

    def run(self) -> None:
        """Look until it has ended."""
        while "ready" not in self.at:
            told = self.library.progress(self.run_id)
            self.at.setdefault(str(told.state), time.monotonic())
            if str(told.state) in ("failed", "cancelled"):
                return
            time.sleep(0.01)


def measure(page: Any, library: Any, address: str, name: str, files: Sequence[tuple[Path, str]]) -> dict[str, Any]:
    """Seconds between the stages of one run, as its reader sees them."""
    from dashboard.library import UploadedFile

    run = library.create_run(name, "benchmark", [UploadedFile(path, label) for path, label in files])
    stages = Stages(library, run)
    stages.start()
    page.goto(f"{address}/job/{run}")
    page.wait_for_url("**/overview", timeout=900_000)
    painted = [_when(page, whole) for whole in (False, True)]
    stages.join(10)
    at = stages.at
    reading, stored = at["analysing"] - at["reading"], at["ready"] - at["analysing"]
    window, whole = (p - at["analysing"] for p in painted)
    return {
        "run": name,
        "reading_s": round(reading, 2),
        "stored_after_s": round(stored, 2),
        "painted_after_s": round(window, 2),
        "whole_page_after_s": round(whole, 2),
        "painted_over_reading_ratio": round(window / reading, 3),
    }


def _when(page: Any, whole: bool) -> float:
    """When it is drawn."""
    while not page.evaluate(PAINTED, whole):
        page.wait_for_timeout(10)
    return time.monotonic()


def main() -> None:
    """Measure and print, one JSON object per run."""
    from playwright.sync_api import sync_playwright

    from benchmarks.read_speed import SAMPLE, replicated
    from dashboard.library import Library
    from dashboard.settings import Settings

    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--job", type=Path, default=SAMPLES / "3d")
    given.add_argument("--megabytes", type=int, default=300)
    asked = given.parse_args()
    if not any(p.is_file() for p in asked.job.rglob("*")):
        given.error(f"{asked.job} holds no file; name the folder of a job's traces")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        root = Path(folder) / "store"
        library = Library(Settings(root=root, min_free_bytes=0))
        server = subprocess.Popen(
            [sys.executable, "-m", "tracekit", "serve", "--root", str(root), "--port", "0", "--keep-free", "1K", "--json"], stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["url"].rstrip("/")
            browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            ranks = [(p, str(p.relative_to(asked.job))) for p in sorted(asked.job.rglob("*")) if p.is_file()]
            print(json.dumps(measure(page, library, address, f"{asked.job.name}: {len(ranks)} files", ranks)), flush=True)
            if asked.megabytes:
                one, two = (len(replicated(SAMPLE, n)) for n in (1, 2))  # what a copy adds is less than the whole file
                large = root / "large.json"
                large.write_bytes(replicated(SAMPLE, max(1, 1 + round((asked.megabytes * 1e6 - one) / (two - one)))))
                print(json.dumps(measure(page, library, address, f"one trace of {large.stat().st_size / 1e6:.0f} MB", [(large, "rank0.json")])), flush=True)
            browser.close()
        finally:
            server.terminate()
            server.wait(30)
            library.close()


if __name__ == "__main__":
    sys.path.insert(0, str(REPOSITORY))
    main()
