"""Every page of the dashboard as a picture, from the samples alone: no name of a machine, a user or a folder is in any of them.

    python docs/screenshots.py [--to docs] [--width 1280] [--scheme light] [--only overview,memory]

A dashboard is started in a folder of its own, the samples are read into it as anyone's runs would be, and a headless Chromium visits each
page. The picture of a run that is being read is taken of one: a sample, repeated until it takes long enough.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
SAMPLES = REPOSITORY / "sample_traces"
RUNS = {"pipeline of four stages": "pp-1f1b", "full recomputation": "recompute-full", "tensor parallel": "tp", "with sequence parallel": "tp-sp"}
#: Page -> (run, what follows the address of the run, how high the picture is); a run of None: not of a run.
PAGES: dict[str, tuple[str | None, str, int]] = {
    "upload": (None, "/upload", 620),
    "runs": (None, "/", 760),
    "overview": ("pipeline of four stages", "/overview", 1500),
    "collectives": ("tensor parallel", "/collectives", 1500),
    "pipeline": ("pipeline of four stages", "/pipeline", 1700),
    "memory": ("full recomputation", "/memory", 1600),
    "recompute": ("full recomputation", "/recompute", 1400),
    "timeline": ("pipeline of four stages", "/timeline", 760),
    "what-if": ("pipeline of four stages", "/pipeline?microbatches=16&limit=240KiB#metric-what_if", 900),
    "definitions": (None, "/definitions", 1200),
}
_PATIENCE_S = 300.0


def main() -> None:
    """Take them."""
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--to", type=Path, default=REPOSITORY / "docs")
    given.add_argument("--width", type=int, default=1280)
    given.add_argument("--scheme", choices=("light", "dark"), default="light")
    given.add_argument("--only", default="", help="pages, with commas between them; all where none is named")
    given.add_argument("--root", type=Path, help="keep the dashboard's folder here, and what was read into it, for the next time")
    asked = given.parse_args()
    only = set(filter(None, asked.only.split(",")))
    with tempfile.TemporaryDirectory() as folder:
        root = asked.root or Path(folder) / "store"
        runs = _stored(root)
        command = (sys.executable, "-m", "tracekit", "serve", "--root", str(root), "--port", "0", "--keep-free", "1K", "--json")
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["url"].rstrip("/")
            _take(address, runs, asked.to, asked.width, asked.scheme, lambda page: not only or page in only)
        finally:
            server.terminate()
            server.wait(30)


def _stored(root: Path) -> dict[str, str]:
    """The samples as runs that are ready: name -> id."""
    from dashboard.jobs.supervisor import Supervisor
    from dashboard.library import Library, UploadedFile
    from dashboard.settings import Settings

    library = Library(Settings(root=root, min_free_bytes=0))
    known = {r.name: r.id for r in library.runs()}
    supervisor = Supervisor(library)
    supervisor.start()
    for name, sample in RUNS.items():
        files = [p for p in sorted((SAMPLES / sample).rglob("*")) if p.is_file()]
        if name not in known:
            known[name] = library.create_run(name, "", [UploadedFile(p, str(p.relative_to(SAMPLES))) for p in files])
            library.set_tags(known[name], ["sample", sample.partition("-")[0]])
    _until(lambda: all((run := library.run(id)) is not None and run.state.ended for id in known.values()))
    supervisor.stop()
    library.close()
    return known


def _take(address: str, runs: dict[str, str], to: Path, width: int, scheme: str, wanted: Callable[[str], bool]) -> None:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        page.route("**/timeline/layout*", _nameless)
        end = "" if scheme == "light" else f"-{scheme}"

        def shot(name: str, path: str, height: int) -> None:
            page.set_viewport_size({"width": width, "height": height})
            page.goto(address + path)
            _drawn(page)
            page.screenshot(path=to / f"dashboard-{name}{end}.png")

        for name, (run, path, height) in PAGES.items():
            if wanted(name):
                shot(name, path if run is None else f"/runs/{runs[run]}{path}", height)
        if wanted("compare"):
            shot("compare", f"/compare?a={runs['tensor parallel']}&b={runs['with sequence parallel']}", 1300)
        if wanted("job"):
            page.set_viewport_size({"width": width, "height": 480})
            _being_read(page, address, to / f"dashboard-job{end}.png")
        browser.close()


def _nameless(route: Any) -> None:
    """The layout of a timeline without the names of the machines on which the samples were recorded."""
    answer = route.fetch()
    route.fulfill(response=answer, body=re.sub(r'"host":\s*"[^"]*"', '"host": null', answer.text()))


def _drawn(page: Any) -> None:
    """Wait until the page, its figures, tables and timeline are there."""
    page.wait_for_selector("#_pages_content h1, #timeline-root", timeout=60_000)
    there = "[...document.querySelectorAll('.plot')].every(p => !p.classList.contains('loading') && p.querySelector('.main-svg'))"
    tables = "[...document.querySelectorAll('.card.table .ag-root')].every(t => t.querySelector('.ag-row [col-id]'))"
    lanes = "[...document.querySelectorAll('#timeline-root')].every(t => t.dataset.bars)"
    _until(lambda: bool(page.evaluate(f"{there} && {tables} && {lanes}")))
    page.wait_for_timeout(800)


def _being_read(page: Any, address: str, path: Path) -> None:
    """The page of a run while its only file is read."""
    from benchmarks.read_speed import SAMPLE, replicated

    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "rank0.json"
        large.write_bytes(replicated(SAMPLE, 12) + b" " * (int(time.time()) % 10_000))  # the same content again would not be read again
        page.goto(f"{address}/upload")
        page.wait_for_selector(".tk-upload-zone", timeout=60_000)
        page.set_input_files("#tk-upload input[multiple]", [str(large)])
        page.wait_for_selector("#tk-job .tk-job-numbers:has-text('events/s')", timeout=120_000)
        page.screenshot(path=path)


def _until(there: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not there():
        if time.monotonic() > end:
            raise TimeoutError(f"a page or a run was not ready within {_PATIENCE_S:g} s")
        time.sleep(0.1)


if __name__ == "__main__":
    sys.path.insert(0, str(REPOSITORY))
    main()
