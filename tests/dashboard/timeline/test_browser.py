"""Somebody zooms a job of 16 ranks from everything to one kernel, asks what it is, finds others, shares the address, and takes the window elsewhere."""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from flask import Flask, Response
from werkzeug.serving import make_server

from dashboard.app import create_app
from dashboard.security.headers import FIXED, content_policy
from dashboard.timeline.routes import blueprint
from tests.analyses import analysis_of
from tests.dashboard.pages.library import MemoryLibrary, row
from tracekit import pyramid, readers
from tracekit.passes.classify import classify

pytestmark = pytest.mark.browser
#: Stands for Perfetto's page: answers PONG, and keeps what it is given.
PERFETTO = """<script>addEventListener("message", (e) => { if (e.data === "PING") return e.source.postMessage("PONG", e.origin);
document.title = `${e.data.perfetto.fileName} ${e.data.perfetto.buffer.byteLength} ${e.data.perfetto.title}`; });</script>"""

#: How many colours a strip across the first rank has: one where nothing is drawn.
COLOURS = """(() => { const canvas = document.querySelector(".tl-canvas"), data = canvas.getContext("2d").getImageData(220, 40, canvas.width - 240, 2).data;
return new Set(new Uint32Array(data.buffer)).size; })()"""


class Job(MemoryLibrary):
    """A library with the timelines of one forged job."""

    folders: dict[tuple[int, int], Path]

    def timelines(self, run_id: str) -> dict[tuple[int, int], Path]:
        return self.folders


@pytest.fixture(scope="module")
def address(shared: Path, samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a run of 16 ranks, whose analysis is that of a small one: what is drawn comes from the timelines."""
    folder, library = tmp_path_factory.mktemp("timelines"), Job()
    folders: dict[tuple[int, int], Path] = {}
    for stage in range(0, 16, 4):  # the four ranks of a stage look alike: one of each is read
        trace = classify(readers.read(shared / "forged" / "tp2pp4dp2_1f1b" / f"rank{stage}.json.gz")[0])
        folders |= {(r, 0): pyramid.build(trace, folder / str(r)) for r in range(stage, stage + 4)}
    library.folders = folders
    library.add(row("job", "forged job", ranks=16), analysis_of(samples / "tp"))
    server = Flask("timeline under test", static_folder=None)
    server.register_blueprint(blueprint(library))
    server.add_url_rule("/perfetto", view_func=lambda: Response(PERFETTO, mimetype="text/html"))
    listening = make_server("127.0.0.1", 0, server, threaded=True)
    here = f"http://127.0.0.1:{listening.server_port}"
    app = create_app(SimpleNamespace(perfetto_url=f"{here}/perfetto"), library, server)

    @server.after_request
    def guarded(answer: Any) -> Any:
        if "script>addEventListener" not in (answer.get_data(as_text=True) if answer.mimetype == "text/html" else ""):
            answer.headers.update({**FIXED, "Content-Security-Policy": content_policy(app.csp_hashes())})
        return answer

    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    yield here
    listening.shutdown()
    thread.join(10)
    listening.server_close()


def state(page: Any) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def settled(page: Any) -> None:
    """Wait until the window that is shown has been answered and stands in the address."""
    page.wait_for_timeout(600)
    page.wait_for_selector(".tl-loading", state="hidden")


def test_from_everything_to_one_kernel(browser: Any, address: str) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    page, complaints = context.new_page(), []
    page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: complaints.append(str(e)))
    page.on("request", lambda r: complaints.append(f"asks {r.url}") if not r.url.startswith((address, "data:", "blob:")) else None)

    page.goto(f"{address}/runs/job/timeline")
    page.wait_for_selector("#timeline-root[data-bars]", timeout=120_000)
    says = page.locator(".tl-says")
    assert "busy share per" in says.inner_text() and "measured" in says.inner_text()
    assert page.locator(".tl-legend").inner_text().split("\n")[:1] == ["compute"]

    # the wheel, held over the first kernel of rank 0
    canvas = page.locator(".tl-canvas").bounding_box()
    x, y = canvas["x"] + 216 + (canvas["width"] - 216) * 0.05, canvas["y"] + 34 + 12
    page.mouse.move(x, y)
    for _ in range(14):
        page.mouse.wheel(0, -400)
        page.wait_for_timeout(30)
    settled(page)
    shown = state(page)
    assert int(shown["t1"]) - int(shown["t0"]) < 1_000_000
    assert "where slices overlap, the earlier is shown" in says.inner_text()

    # there and back at once: what was there is asked for again
    page.evaluate("for (const view of ['devices', 'ranks']) document.querySelector(`[data-view=${view}]`).click()")
    settled(page)
    assert page.evaluate(COLOURS) > 5

    # search leads to a slice, and the panel tells all of it
    page.keyboard.press("/")
    page.keyboard.type("flash_fwd")
    page.keyboard.press("Enter")
    page.wait_for_selector(".tl-panel h3")
    settled(page)
    assert "flash_fwd" in page.locator(".tl-panel h3").inner_text()
    first = state(page)
    assert first["search"] == "flash_fwd" and re.fullmatch(r"\d+\.0\.\d+", first["selected"])
    page.locator(".tl-canvas").press("n")
    settled(page)
    assert state(page)["selected"] != first["selected"]

    # a reload, or a colleague with the link, sees the same
    before = page.url
    page.goto(before)
    page.wait_for_selector(".tl-panel h3", timeout=120_000)
    settled(page)
    assert state(page) == {name: values[0] for name, values in parse_qs(urlsplit(before).query).items()}

    # keys, views, ranks
    page.locator(".tl-canvas").press("Escape")
    settled(page)
    assert page.locator(".tl-panel").is_hidden() and "selected" not in state(page)
    page.get_by_role("radio", name="Everything").click()
    page.get_by_label("Ranks to show").fill("2-3")
    page.get_by_label("Ranks to show").press("Enter")
    page.locator(".tl-canvas").press("0")
    settled(page)
    assert state(page)["view"] == "all" and state(page)["ranks"] == "2-3" and "t0" not in state(page)

    # a link leads to the rows that were looked at
    page.locator(".tl-canvas").press("PageDown")
    settled(page)
    before = page.url
    assert re.fullmatch(r"[23]\.\d+\.\d+\.\d+", state(page)["top"])
    page.goto(before)
    page.wait_for_selector("#timeline-root[data-bars]", timeout=120_000)
    settled(page)
    assert page.url == before
    page.get_by_label("Ranks to show").fill("<b>")
    page.get_by_label("Ranks to show").press("Enter")
    assert "such as 0-3,8" in page.locator(".tl-banner").inner_text()

    # the same window as a file, and in Perfetto
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download JSON").click()
    document = json.loads(gzip.decompress(Path(saved.value.path()).read_bytes()))
    assert {e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"} == {"rank 2", "rank 3"}
    with context.expect_page() as other:
        page.get_by_role("button", name="Open this window in Perfetto").click()
    for _ in range(100):
        if other.value.title():
            break
        page.wait_for_timeout(100)
    name, size, title = other.value.title().split(" ", 2)
    assert name.endswith(".pftrace") and int(size) > 100_000 and title.startswith("tracekit: job, ")
    assert complaints == []
    context.close()


def test_states_in_which_nothing_can_be_drawn(browser: Any, address: str) -> None:
    page = browser.new_page()
    page.route("**/timeline/layout", lambda route: route.fulfill(status=409, json={"error": "no timeline is stored of this run; read its traces again"}))
    page.goto(f"{address}/runs/job/timeline")
    page.wait_for_selector("#timeline-root [role=alert]", timeout=120_000)
    assert "no timeline is stored" in page.locator("#timeline-root").inner_text()
    page.unroute("**/timeline/layout")
    page.get_by_role("button", name="Try again").click()
    page.wait_for_selector("#timeline-root[data-bars]", timeout=120_000)
    page.route("**/timeline?**", lambda route: route.abort())
    page.locator(".tl-canvas").press("+")
    page.wait_for_selector(".tl-banner:not([hidden])")
    assert "cannot be reached" in page.locator(".tl-banner").inner_text()
    page.unroute("**/timeline?**")
    page.locator(".tl-canvas").press("+")
    page.wait_for_selector(".tl-banner", state="hidden")
    page.close()
