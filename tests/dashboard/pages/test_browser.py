"""Every page in a real browser: light and dark, narrow and wide; no error, no request to elsewhere, no blank screen."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.pages.conftest import Serving
from tests.dashboard.pages.library import MemoryLibrary, row
from tests.forged import analysis_of

pytestmark = pytest.mark.browser
RUN = ("overview", "collectives", "pipeline", "memory", "recompute")


@pytest.fixture(scope="session")
def serving(analyses: dict[str, Any]) -> Iterator[Serving]:
    library = MemoryLibrary()
    for number, (name, analysis) in enumerate(analyses.items()):
        library.add(row(f"run{number}", name, tags=("sample",)), analysis)
    made = Serving(library)
    yield made
    made.close()


class Tab:
    """A page of the browser that notes what went wrong and refuses what is not ours."""

    def __init__(self, browser: Any, address: str, **context: Any) -> None:
        self.context = browser.new_context(**context)
        self.address, self.page = address, self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda e: self.complaints.append(str(e)))
        self.context.route(re.compile(r"^https?://(?!127\.0\.0\.1)"), self._refuse)

    def _refuse(self, route: Any) -> None:
        self.complaints.append(f"asked for {route.request.url}")
        route.abort()

    def open(self, path: str) -> None:
        self.page.goto(self.address + path)
        self.drawn()

    def go(self, path: str) -> None:
        """Open a page as a link does: within the app, which is loaded once. Loading it takes far longer than a page."""
        if not self.page.url.startswith(self.address):
            return self.open(path)
        self.page.evaluate(
            "path => { document.querySelector('#_pages_content').firstElementChild.id = 'left'; history.pushState({}, '', path);"
            "window.dispatchEvent(new CustomEvent('_dashprivate_pushstate')); }",
            path,
        )
        self.until("document.querySelector('#left') === null")
        return self.drawn()

    def drawn(self) -> None:
        """Wait until the page and all its figures are there."""
        self.page.wait_for_selector("#_pages_content h1", timeout=30_000)
        self.until("[...document.querySelectorAll('.plot')].every(p => !p.classList.contains('loading') && p.querySelector('.main-svg'))")

    def until(self, condition: str) -> None:
        """Wait until an expression holds. The policy of the page forbids ``eval``, by which playwright itself would wait."""
        end = time.monotonic() + 120
        while not self.page.evaluate(condition):
            assert time.monotonic() < end, f"never: {condition}"
            self.page.wait_for_timeout(50)

    def close(self) -> None:
        self.context.close()


@pytest.fixture(scope="module")
def window(browser: Any, serving: Serving) -> Iterator[Tab]:
    """A tab for all tests that leave nothing behind in it: the app is loaded once."""
    made = Tab(browser, serving.address, viewport={"width": 1280, "height": 900})
    yield made
    made.close()


@pytest.fixture
def tab(window: Tab) -> Tab:
    window.complaints.clear()
    return window


@pytest.fixture
def fresh(browser: Any, serving: Serving) -> Iterator[Tab]:
    """A tab that has nothing stored and was nowhere."""
    made = Tab(browser, serving.address, viewport={"width": 1280, "height": 900})
    yield made
    made.close()


def walk(tab: Tab, run: str) -> None:
    for path in RUN:
        tab.go(f"/runs/{run}/{path}")
        said = tab.page.inner_text("#content")
        assert len(said) > 60
        assert "could not be drawn" not in said
        figures = tab.page.locator(".plot")
        for i in range(figures.count()):
            assert figures.nth(i).locator(".main-svg").count() > 0
        assert tab.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert tab.complaints == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (2560, "dark")])
def test_every_page_of_a_run_is_drawn_without_a_complaint(browser: Any, serving: Serving, width: int, scheme: str) -> None:
    tab = Tab(browser, serving.address, viewport={"width": width, "height": 1000}, color_scheme=scheme)
    walk(tab, "run0")
    for path in ("/", "/compare?a=run0&b=run2", "/definitions", "/nothing/here", "/runs/nobody/overview"):
        tab.go(path)
        assert len(tab.page.inner_text("#content")) > 40
    dark = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(18, 22, 28)") is (scheme == "dark")
    assert tab.complaints == []
    tab.close()


def test_a_forged_job_of_16_ranks_is_walked(browser: Any, serving: Serving, shared: Path) -> None:
    job = analysis_of(shared / "forged" / "tp2pp4dp2_1f1b")
    job.to_dict()  # what is computed here keeps no page waiting
    library = serving.app.server.extensions["tracekit"].library
    library.add(row("forged", "16 ranks"), job)
    tab = Tab(browser, serving.address, viewport={"width": 1280, "height": 1000}, color_scheme="dark")
    try:
        walk(tab, "forged")
        tab.go("/runs/forged/collectives")
        tab.page.wait_for_selector("#table-collectives-instances .ag-row")
        assert tab.complaints == []
    finally:
        tab.close()
        library.delete("forged")


def test_figures_below_the_window_come_last_and_by_themselves(fresh: Tab) -> None:
    asked: list[str] = []
    fresh.page.on("request", lambda r: asked.extend(re.findall(r"/figures/(\w+)\.json", r.url)))
    fresh.open("/runs/run2/overview")
    figures = fresh.page.evaluate("[...document.querySelectorAll('[data-figure]')].map(p => p.dataset.figure)")
    below = fresh.page.evaluate("[...document.querySelectorAll('[data-figure]')].filter(p => p.getBoundingClientRect().top > 1300).map(p => p.dataset.figure)")
    assert len(below) >= 2
    assert asked[-len(below) :] == below
    assert sorted(asked) == sorted(figures)


def test_numbers_are_there_when_they_are_opened_and_follow_the_choice_of_steps(tab: Tab) -> None:
    tab.go("/runs/run2/overview")
    fold = tab.page.locator("#metric-step_time .fold")
    assert fold.locator("td").count() == 0
    fold.locator("summary").click()
    cells = "[...document.querySelectorAll('#metric-step_time .fold td')].map(c => c.textContent)"
    tab.until(f"{cells}.length > 0")
    every = tab.page.evaluate(cells)
    stated = tab.page.evaluate("JSON.parse(document.querySelector('#metric-step_time .fold > .later').dataset.grids)")
    assert every == [c for g in stated for row in g["rows"] for c in row]
    tab.page.evaluate(
        "() => { const at = document.querySelector('#metric-step_time .fold > .later');"
        "at.dataset.grids = JSON.stringify([{title: 't', header: ['<b>'], rows: [['<i>'], ['unknown']], numeric: [false], note: ''}]) }"
    )
    tab.until(f"JSON.stringify({cells}) === JSON.stringify(['<i>', 'unknown'])")
    assert tab.page.locator("#metric-step_time .fold td.unknown").count() == 1
    assert tab.complaints == []


def test_a_choice_goes_to_the_address_and_an_address_makes_the_choice(tab: Tab) -> None:
    tab.go("/runs/run2/collectives")
    tab.page.get_by_role("textbox", name="Direction").click()
    tab.page.get_by_role("option", name="backward").click()
    tab.page.wait_for_url(re.compile(r"direction=backward"))
    tab.until("/ of [0-9]+ rows/.test(document.querySelector('#table-collectives-instances').innerText)")
    tab.go("/runs/run2/collectives?direction=forward")
    assert tab.page.get_by_role("textbox", name="Direction").input_value() == "forward"
    tab.page.go_back()
    tab.until("document.querySelector('input[value=backward]') !== null")
    assert tab.complaints == []


def test_a_table_that_is_sorted_and_filtered_is_so_again_from_its_address(tab: Tab) -> None:
    tab.go("/runs/run2/collectives")
    tab.page.wait_for_selector("#table-collectives-instances .ag-row")
    tab.page.click("#table-collectives-instances .ag-header-cell[col-id=nbytes] .ag-header-cell-label")
    tab.page.wait_for_url(re.compile(r"sort\.instances=-nbytes"))
    tab.go("/runs/run2/collectives?sort.instances=-nbytes&where.instances.kind=all_r")
    tab.until("/ of [0-9]+ rows/.test(document.querySelector('#table-collectives-instances header .where').innerText)")
    tab.page.wait_for_selector("#table-collectives-instances .ag-row [col-id=kind]")
    kinds = tab.page.locator("#table-collectives-instances .ag-row [col-id=kind]").all_inner_texts()
    assert kinds and set(kinds) == {"all_reduce"}
    assert tab.page.locator("#table-collectives-instances .ag-header-cell[col-id=nbytes]").get_attribute("aria-sort") == "ascending"
    assert "where.instances.kind=all_r" in tab.page.url
    assert tab.complaints == []


def test_light_and_dark_are_switched_remembered_and_followed_by_figures(fresh: Tab) -> None:
    fresh.open("/runs/run2/overview")
    paper = "document.querySelector('.plot .main-svg').style.background"
    assert fresh.page.evaluate(paper) in ("white", "rgb(255, 255, 255)")
    fresh.page.click("#scheme-toggle")
    fresh.until(f"{paper} === 'rgb(28, 34, 43)'")
    fresh.page.reload()
    fresh.drawn()
    fresh.until(f"{paper} === 'rgb(28, 34, 43)'")
    assert fresh.complaints == []


def test_two_runs_are_ticked_and_compared_and_a_link_leads_without_a_reload(tab: Tab) -> None:
    tab.go("/")
    tab.page.evaluate("window.stays = true")
    tab.page.get_by_role("checkbox", name="Compare pp-1f1b").check()
    tab.page.wait_for_url(re.compile("pick="))
    tab.page.get_by_role("textbox", name="Search").fill("tp")
    tab.page.wait_for_url(re.compile("q=tp"))
    tab.page.get_by_role("checkbox", name="Compare tp").check()
    tab.page.wait_for_url(re.compile("pick=.*run0"))
    tab.page.click("#compare-picked:not(.off)")
    tab.page.wait_for_selector("#figure-budgets")
    assert "not comparable" in tab.page.inner_text("#content")
    assert tab.page.evaluate("window.stays") is True
    assert tab.complaints == []


def test_the_keyboard_stays_where_it_is_when_the_list_changes(tab: Tab, serving: Serving, analyses: dict[str, Any]) -> None:
    library = serving.app.server.extensions["tracekit"].library
    tab.go("/")
    box = tab.page.get_by_role("checkbox", name="Compare tp")
    box.focus()
    library.add(row("newer", "the newest"), analyses["tp"])
    tab.page.wait_for_selector("text=the newest")
    tab.until("document.activeElement.getAttribute('aria-label') === 'Compare tp'")
    library.delete("newer")
    tab.page.wait_for_selector("text=the newest", state="detached")
    tab.until("document.activeElement.getAttribute('aria-label') === 'Compare tp'")
    assert tab.complaints == []


def test_the_keyboard_reaches_content_navigation_and_actions(fresh: Tab) -> None:
    fresh.open("/runs/run2/overview")
    fresh.page.keyboard.press("Tab")
    assert fresh.page.evaluate("document.activeElement.className") == "skip"
    seen = set()
    for _ in range(40):
        fresh.page.keyboard.press("Tab")
        seen.add(fresh.page.evaluate("document.activeElement.getAttribute('aria-label') || document.activeElement.innerText"))
    assert {"Collectives", "Definitions", "Switch between light and dark"} <= seen
    assert any(str(s).startswith("Save ") and str(s).endswith(" as PNG") for s in seen)
    fresh.page.focus(".skip")
    fresh.page.keyboard.press("Enter")
    assert fresh.page.evaluate("document.activeElement.id") == "content"


def test_a_figure_is_saved_as_an_image_and_as_numbers(tab: Tab) -> None:
    tab.go("/runs/run2/memory")
    with tab.page.expect_download() as image:
        tab.page.click("#figure-memory_peak [data-png]")
    assert image.value.suggested_filename == "tracekit-memory_peak.png"
    with tab.page.expect_download() as numbers:
        tab.page.click("#figure-memory_peak a[download]")
    assert numbers.value.suggested_filename == "run2-memory_peak.csv"


def test_a_server_that_is_gone_is_said_and_the_page_stays(browser: Any, analyses: dict[str, Any]) -> None:
    library = MemoryLibrary()
    library.add(row("one", "one"), analyses["tp"])
    serving = Serving(library)
    tab = Tab(browser, serving.address, viewport={"width": 1280, "height": 900})
    tab.open("/runs/one/overview")
    serving.close()
    tab.page.click("text=Definitions >> nth=0")
    tab.page.wait_for_selector("#offline:not([hidden])")
    assert "does not answer" in tab.page.inner_text("#offline")
    assert len(tab.page.inner_text("#content")) > 60
    tab.close()
