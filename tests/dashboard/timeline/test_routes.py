"""What the page asks over HTTP: each answer as the library gives it, each mistake one line with a 4xx, nothing of one run in another's answer."""

from __future__ import annotations

import gzip
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from dashboard.store.rows import State
from dashboard.timeline.routes import blueprint
from tests.dashboard.timeline.drawn import BASE as BASE_NS
from tests.dashboard.timeline.drawn import rank
from tracekit import pyramid
from tracekit.timeline.run import open_run
from tracekit.timeline.search import search


class Shelf:
    """Two runs: one of two ranks, one of which nothing is stored yet."""

    def __init__(self, folders: dict[tuple[int, int], Path]) -> None:
        self.stored = {"r1": folders, "r2": {}}
        self.generation = 1
        self.asked = 0

    def run(self, run_id: str) -> Any:
        return SimpleNamespace(id=run_id, generation=self.generation) if run_id in self.stored else None

    def timelines(self, run_id: str) -> dict[tuple[int, int], Path]:
        return self.stored[run_id]

    def analysis(self, run_id: str) -> Any:
        self.asked += 1


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, int], Path]:
    """The timelines of two ranks."""
    folder = tmp_path_factory.mktemp("timelines")
    slices = [(f"gemm{i}", 100 * i, 100 * i + 50, 7) for i in range(2_000)]
    return {(r, 0): pyramid.build(rank([*slices, ("ProfilerStep#4", 0, 9_000, "cpu")], r), folder / str(r)) for r in (0, 1)}


@pytest.fixture
def shelf(folders: dict[tuple[int, int], Path]) -> Shelf:
    return Shelf(dict(folders))


@pytest.fixture
def client(shelf: Shelf) -> FlaskClient:
    app = Flask("timeline")
    app.register_blueprint(blueprint(shelf))
    return app.test_client()


BASE = "/api/runs/r1/timeline"


def test_the_layout_says_what_there_is(client: FlaskClient) -> None:
    layout = client.get(f"{BASE}/layout").get_json()
    assert [r["rank"] for r in layout["ranks"]] == [0, 1]
    assert [lane["name"] for lane in layout["ranks"][0]["lanes"]] == ["GPU 0 · stream 7", "main", "work, and communication below"]
    assert layout["steps"] == [{"step": 4, "start": 0, "end": 9_000}] and layout["extent_ns"] == 199_950
    assert layout["notes"] == ["The ranks' clocks were not compared: each rank is drawn on its own clock."]


def test_windows_are_drawn_near_and_far(client: FlaskClient) -> None:
    far = client.get(f"{BASE}?t0=0&t1=200000&px=640&view=devices").get_json()
    assert [set(p) for row in far["rows"] for p in row["pieces"]] == [{"start", "end", "cover", "sort"}] * 2
    near = client.get(f"{BASE}?t0=1000&t1=1300&px=640&view=devices&ranks=1").get_json()
    assert [row["rank"] for row in near["rows"]] == [1]
    assert {"gemm10", "gemm11", "gemm12"} <= set(near["names"])


def test_neighbouring_windows_share_one_answer(client: FlaskClient, shelf: Shelf) -> None:
    first = client.get(f"{BASE}?t0=100000&t1=199001&px=600&view=ranks")
    assert first.data == client.get(f"{BASE}?t0=100003&t1=198999&px=610&view=ranks").data
    assert first.get_json()["start"] <= 100_000 and first.get_json()["end"] >= 199_001


def test_a_run_is_opened_once_per_generation(client: FlaskClient, shelf: Shelf) -> None:
    before = shelf.asked
    for _ in range(3):
        client.get(f"{BASE}/layout")
    assert shelf.asked == before + 1
    shelf.generation += 1
    client.get(f"{BASE}/layout")
    assert shelf.asked == before + 2


def test_a_run_of_very_many_ranks_is_opened_once(shelf: Shelf, tmp_path: Path) -> None:
    folder = shelf.stored["r1"][0, 0]
    shelf.stored["wide"] = {(r, 0): folder for r in range(800)}
    app = Flask("wide")
    app.register_blueprint(blueprint(shelf))
    client, before = app.test_client(), shelf.asked
    assert [client.get(f"/api/runs/wide/timeline?t0=0&t1=9&view=ranks&ranks=0-{most}").status_code for most in (1, 2)] == [200, 200]
    assert shelf.asked == before + 1


def test_names_are_let_go_of_past_a_limit(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_run(shelf.stored["r1"])
    held = []
    for limit in (10**9, 1_000):
        monkeypatch.setattr("tracekit.timeline.run.MOST_NAMES_BYTES", limit)
        assert search(run, "gemm1999").total == 2
        run.release()
        held.append(sum(m.timeline.names_bytes for m in run.members))
    assert (held[0] > 2 * 2 * 2_000 * 57, held[1]) == (True, 0)


def test_ranks_that_a_run_has_not_make_no_other_answer(client: FlaskClient) -> None:
    address = f"{BASE}?t0=0&t1=200000&px=640&view=devices"
    assert client.get(f"{address}&ranks=1,7-9").data == client.get(f"{address}&ranks=1").data
    assert client.get(f"{address}&ranks=7").get_json()["rows"] == []


def test_large_answers_are_packed_for_those_who_unpack(client: FlaskClient) -> None:
    address = f"{BASE}?t0=0&t1=200000&px=2000&view=devices"
    packed = client.get(address, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert json.loads(gzip.decompress(packed.data)) == client.get(address).get_json()


def test_search_and_details(client: FlaskClient) -> None:
    found = client.get(f"{BASE}/search?q=GEMM1999").get_json()
    assert found["total"] == 2 and [m["rank"] for m in found["matches"]] == [0, 1]
    match = found["matches"][1]
    about = client.get(f"{BASE}/event?rank=1&event={match['event']}").get_json()
    assert about["columns"]["name"] == "gemm1999" and about["start"] == 199_900 and about["instance"] is None
    assert about["columns"]["ts"] == str(BASE_NS + 199_900)  # JavaScript would round the number


@pytest.mark.parametrize("form", ["json.gz", "pftrace"])
def test_a_window_is_saved_under_a_harmless_name(client: FlaskClient, form: str) -> None:
    answer = client.get(f"{BASE}/slice?t0=0&t1=500&ranks=0-1&form={form}")
    assert answer.status_code == 200 and len(answer.data) > 200
    assert answer.headers["Content-Disposition"] == f'attachment; filename="r1-ranks-0-1-0-500.{form}"'


def test_many_who_want_files_wait_for_each_other(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    app, at_once, most, count = Flask("timeline"), 0, 0, threading.Lock()
    app.register_blueprint(blueprint(shelf))

    def slow(*_: Any) -> bytes:
        nonlocal at_once, most
        with count:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.03)
        with count:
            at_once -= 1
        return b"file"

    monkeypatch.setattr("dashboard.timeline.routes.export", slow)
    with ThreadPoolExecutor(6) as readers:
        answers = list(readers.map(lambda _: app.test_client().get(f"{BASE}/slice?t0=0&t1=500").data, range(6)))
    assert answers == [b"file"] * 6 and most <= 2


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("", 400, "t0 must be a whole number"),
        ("?t0=5&t1=5", 400, "ends before it begins"),
        ("?t0=0&t1=NaN", 400, "t1 must be a whole number"),
        ("?t0=0&t1=1e9", 400, "t1 must be a whole number"),
        ("?t0=0&t1=99999999999999999999", 400, "t1 must be a whole number"),
        ("?t0=0&t1=9&px=0", 400, "px must lie between"),
        ("?t0=0&t1=9&px=100000000", 400, "px must lie between"),
        ("?t0=0&t1=9&view=%3Cscript%3E", 400, "there is no view"),
        ("?t0=0&t1=9&ranks=0;drop", 400, "such as 0-3,8"),
        ("?t0=0&t1=9&ranks=0-99999999", 400, "such as 0-3,8"),
        ("/search?q=", 400, "name something to look for"),
        ("/search?q=a&most=100000", 400, "most must lie between"),
        ("/event?rank=0&event=999999", 400, "there is no 999999"),
        ("/event?rank=7&event=1", 400, "there is no rank 7"),
        ("/event?rank=-1&event=1", 400, "rank must lie between"),
        ("/event?rank=0", 400, "event must be a whole number"),
        ("/slice?t0=0&t1=9&form=../../etc", 400, "cannot be written"),
        ("/slice?t0=900000&t1=900001", 400, "no slice reaches"),
    ],
)
def test_mistakes_are_answered_in_one_line(client: FlaskClient, path: str, status: int, says: str) -> None:
    answer = client.get(BASE + path)
    reason = answer.get_json()["error"]
    assert answer.status_code == status and says in reason and "\n" not in reason and "Traceback" not in reason


@pytest.mark.parametrize(("run_id", "status", "says"), [("r2", 409, "no timeline is stored"), ("..", 404, ""), ("nobody", 404, "there is no such run")])
def test_runs_without_a_timeline_say_so(client: FlaskClient, run_id: str, status: int, says: str) -> None:
    for path in ("/layout", "?t0=0&t1=9", "/search?q=a", "/event?rank=0&event=0", "/slice?t0=0&t1=9"):
        answer = client.get(f"/api/runs/{run_id}/timeline{path}")
        assert answer.status_code == status and says in answer.get_data(as_text=True)


@pytest.mark.parametrize(("state", "says"), [(State.READING, "still being read"), (State.CANCELLED, "no timeline is stored")])
def test_a_run_that_is_being_read_is_not_asked_to_be_read_again(shelf: Shelf, monkeypatch: pytest.MonkeyPatch, state: State, says: str) -> None:
    app = Flask("timeline")
    app.register_blueprint(blueprint(shelf))
    monkeypatch.setattr(shelf, "run", lambda _: SimpleNamespace(generation=1, state=state))
    answer = app.test_client().get("/api/runs/r2/timeline/layout")
    assert answer.status_code == 409 and says in answer.get_json()["error"]
