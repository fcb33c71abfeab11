"""Dropping files in a real browser: refused ones are named, a reload in mid-upload loses nothing, the job leads to its results."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.server.processes import Running, running

pytestmark = pytest.mark.browser
WAIT_MS = 60_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("browsed") / "store", "--token", "auto") as made:
        yield made


class Seen:
    """A page, and everything about it that must not be."""

    def __init__(self, page: Any, origin: str) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: self.complaints.append(str(e)))
        page.on("request", lambda r: self.complaints.append(f"asks {r.url}") if not r.url.startswith((origin, "data:", "blob:")) else None)

    def speed(self, bytes_per_second: int) -> None:
        """How fast the browser may send; -1: as fast as it can."""
        line = self.page.context.new_cdp_session(self.page)
        line.send("Network.enable")
        line.send("Network.emulateNetworkConditions", {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": bytes_per_second})

    def choose(self, *paths: Path) -> None:
        """Choose files, as a person does in the dialog."""
        self.page.set_input_files("#tk-upload input[multiple]", [str(p) for p in paths])


@pytest.fixture
def seen(browser: Any, served: Running) -> Iterator[Seen]:
    address, _, token = served.url.partition("/?")
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    made = Seen(page, address)
    page.goto(f"{address}/upload?{token}")
    page.wait_for_selector(".tk-upload-zone", timeout=WAIT_MS)
    assert "token" not in page.url
    yield made
    page.close()


def trace(path: Path, events: int) -> Path:
    event = json.dumps({"ph": "X", "cat": "kernel", "name": "<img src=x onerror=alert(1)>", "pid": 0, "tid": 7, "ts": 1000, "dur": 10, "args": {"stream": 7}})
    path.write_text('{"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [\n' + ",\n".join([event] * events) + "]}")
    return path


def test_an_upload_survives_a_reload_and_leads_to_its_results(seen: Seen, tmp_path: Path) -> None:
    page, big = seen.page, trace(tmp_path / "<b>rank0.json", 200_000)
    seen.speed(6_000_000)
    seen.choose(big)
    page.wait_for_function("() => parseInt(document.querySelector('#tk-upload .tk-upload-files .tk-upload-note')?.textContent) > 50", timeout=WAIT_MS)
    assert page.text_content("#tk-upload .tk-upload-name") == "<b>rank0.json"
    page.reload()
    page.wait_for_selector("#tk-upload .tk-upload-status:has-text('interrupted')", timeout=WAIT_MS)

    seen.speed(-1)
    offsets: list[int] = []
    page.on("request", lambda r: offsets.append(int(r.headers["upload-offset"])) if r.method == "PATCH" else None)
    seen.choose(big)
    page.wait_for_url("**/runs/*/overview", timeout=WAIT_MS)
    assert offsets and offsets[0] >= 8 << 20  # what had arrived was not sent again
    assert seen.complaints == []


def test_a_server_that_is_killed_is_waited_for_in_mid_upload_and_in_mid_job(browser: Any, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    page = browser.new_page()
    with running(tmp_path / "store", "--port", port) as first:
        page.goto(f"{first.url}/upload")
        page.wait_for_selector(".tk-upload-zone", timeout=WAIT_MS)
        seen = Seen(page, first.url)
        seen.speed(8_000_000)
        seen.choose(trace(tmp_path / "rank0.json", 200_000))
        page.wait_for_function("() => parseInt(document.querySelector('#tk-upload .tk-upload-note')?.textContent) > 50", timeout=WAIT_MS)
        first.kill()
    page.wait_for_selector("#tk-upload .tk-upload-note:has-text('No connection')", timeout=WAIT_MS)
    with running(tmp_path / "store", "--port", port) as second:
        page.wait_for_selector("#tk-job[data-state]", timeout=WAIT_MS)
        second.kill()
    page.wait_for_selector("#tk-job .tk-job-lost:has-text('cannot be reached')", timeout=WAIT_MS)
    with running(tmp_path / "store", "--port", port):
        page.wait_for_url("**/runs/*/overview", timeout=WAIT_MS)
    page.close()


def test_the_same_file_chosen_again_is_answered_and_what_is_ready_is_read_again_where_asked(seen: Seen, tmp_path: Path) -> None:
    path = trace(tmp_path / "rank0.json", 50)
    seen.choose(path)
    seen.page.wait_for_url("**/runs/*/overview", timeout=WAIT_MS)
    first = seen.page.url
    seen.page.goto(first.split("/runs/")[0] + "/upload")
    seen.page.wait_for_selector(".tk-upload-zone", timeout=WAIT_MS)
    seen.choose(path)
    seen.page.wait_for_selector("#tk-upload .tk-upload-status:has-text('here already')", timeout=WAIT_MS)
    assert first.startswith(seen.page.locator(".tk-upload-open").evaluate("e => e.href").split("?")[0])
    seen.page.goto(first.replace("/runs/", "/job/").replace("/overview", "?again=yes"))  # what is ready is read again where that is asked for
    seen.page.click("#tk-job[data-state=ready] .tk-job-retry", timeout=WAIT_MS)
    seen.page.wait_for_url("**/runs/*/overview", timeout=WAIT_MS)
    assert seen.complaints == []


def test_nothing_is_lost_between_the_last_byte_and_the_run(seen: Seen, tmp_path: Path) -> None:
    page = seen.page
    first, second, third, late = (trace(tmp_path / f"{name}.json", 60 + n) for n, name in enumerate(("first", "second", "third", "late")))
    asked: list[list[str]] = []

    def answered(route: Any) -> None:
        asked.append(json.loads(route.request.post_data)["uploads"])
        if len(asked) == 1:  # another tab has made a run of the first file, or it was cleared away; meanwhile one more is chosen, and one again
            page.set_input_files("#tk-upload input[multiple]", [str(second), str(third)])
            page.wait_for_selector("#tk-upload .tk-upload-status:has-text('sent next')", timeout=WAIT_MS)
            page.request.delete(f"{page.url.partition('/upload')[0]}/api/uploads/{asked[0][0]}", headers={"X-Tracekit": "1", "Tus-Resumable": "1.0.0"})
            route.continue_()
        elif len(asked) == 2:
            route.fulfill(status=413, json={"error": "there is no room"})
        elif len(asked) == 3:
            page.set_input_files("#tk-upload input[multiple]", str(late))
            page.wait_for_selector("#tk-upload .tk-upload-status:has-text('sent next')", timeout=WAIT_MS)
            route.continue_()
        else:
            route.continue_()

    def unanswered(route: Any) -> None:
        if route.request.method == "POST" and not announced:
            announced.append(route.fetch().headers["location"])
            route.abort()
        else:
            route.continue_()

    announced: list[str] = []
    page.route("**/api/uploads", unanswered)
    page.route("**/api/runs", answered)
    seen.choose(first, second)
    page.wait_for_selector("#tk-upload .tk-upload-panel[data-state=paused]", timeout=WAIT_MS)
    assert page.text_content("#tk-upload .tk-upload-status").startswith("There is no room. No run was made yet.")
    assert len(asked[1]) == 3 and asked[1][0] != asked[0][0] and asked[1][1] == asked[0][1], "only what was lost is sent again, and what came meanwhile"
    page.click("#tk-upload .tk-upload-go")
    page.wait_for_url("**/runs/*/overview", timeout=WAIT_MS)
    assert asked[2] == asked[1] and len(asked[3]) == 1
    assert announced[0].rsplit("/", 1)[1] in asked[0], "an announcement whose answer was lost is not made twice"


def test_what_another_tab_sends_is_not_called_interrupted(seen: Seen, tmp_path: Path) -> None:
    seen.speed(1_000_000)
    seen.choose(trace(tmp_path / "rank0.json", 100_000))
    seen.page.wait_for_function("() => parseInt(document.querySelector('#tk-upload .tk-upload-note')?.textContent) > 0", timeout=WAIT_MS)
    with seen.page.expect_popup() as opened:
        seen.page.evaluate("() => void window.open('/upload')")
    other = opened.value
    other.wait_for_selector("#tk-upload .tk-upload-status:has-text('Another tab of this browser is sending a file')", timeout=WAIT_MS)
    assert not other.query_selector("#tk-upload .tk-upload-progress button")
    other.close()
    seen.page.click("#tk-upload .tk-upload-cancel")


def test_what_is_no_trace_is_named_with_the_reason(seen: Seen, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    seen.choose(tmp_path / "notes.txt")
    seen.page.wait_for_selector("#tk-upload .tk-upload-panel[data-state=failed]", timeout=WAIT_MS)
    assert "a text file that begins 'hello'" in seen.page.text_content("#tk-upload .tk-upload-status")


def test_no_run_is_made_without_a_file_there_was_no_room_for_and_what_was_cancelled_is_read_again(browser: Any, tmp_path: Path) -> None:
    with running(tmp_path / "store", "--max-upload", "100K") as small:
        page = browser.new_page()
        page.goto(f"{small.url}/upload")
        page.wait_for_selector(".tk-upload-zone", timeout=WAIT_MS)
        seen = Seen(page, small.url)
        (tmp_path / "notes.txt").write_text("hello\n")
        seen.choose(trace(tmp_path / "rank0.json", 50), trace(tmp_path / "rank1.json", 2_000), tmp_path / "notes.txt")
        page.wait_for_selector("#tk-upload .tk-upload-panel[data-state=paused]", timeout=WAIT_MS)
        assert "rank1.json: the file has" in page.text_content("#tk-upload .tk-upload-status")
        assert "No run was made." in page.text_content("#tk-upload .tk-upload-status")
        answer = page.request.get(f"{small.url}/api/uploads").json()["uploads"]
        assert [u["label"] for u in answer if u["offset_bytes"] == u["size_bytes"]] == ["rank0.json"], "what has arrived is kept"
    with running(tmp_path / "store", "--workers", "0") as idle:
        ours = {"X-Tracekit": "1"}
        body = {"uploads": [u["id"] for u in answer if u["label"] == "rank0.json"]}
        run = page.request.post(f"{idle.url}/api/runs", data=body, headers=ours).json()["run"]
        page.request.post(f"{idle.url}/api/runs/{run}/cancel", headers=ours)
        page.goto(f"{idle.url}/job/{run}")
        page.click("#tk-job .tk-job-retry", timeout=WAIT_MS)
        page.wait_for_selector("#tk-job[data-state=queued]", timeout=WAIT_MS)
        assert not page.is_visible("#tk-job .tk-job-retry")
        page.close()


def test_a_folder_is_dropped_with_its_ranks(seen: Seen, tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"job/rank0000{rank}").mkdir(parents=True)
        text = trace(tmp_path / f"job/rank0000{rank}/trace.json", 50 + rank).read_text()
        (tmp_path / f"job/rank0000{rank}/trace.json").write_text(text.replace('"rank": 0, "world_size": 1', f'"rank": {rank}, "world_size": 2'))
    seen.page.set_input_files("#tk-upload input[webkitdirectory]", str(tmp_path / "job"))
    seen.page.wait_for_url("**/runs/*/overview", timeout=WAIT_MS)
    assert seen.complaints == []
