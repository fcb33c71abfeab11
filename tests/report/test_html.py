"""The HTML report needs no network, trusts no name, and puts health before numbers."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pandas as pd
import pytest

from tests.report.builder import FakeAnalysis, finding, pipeline, tp
from tracekit.metrics.base import Result
from tracekit.report import html, index
from tracekit.report.side_by_side import Compared, cards, tables

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


class Page(HTMLParser):
    """Elements, attributes and script texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.texts: list[str] = []
        self._inside: str | None = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else None
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        elif self._inside is None:
            self.texts.append(data)


@pytest.fixture(scope="module")
def page():
    return Page(html.render(pipeline()))


def test_nothing_in_the_page_is_fetched(page):
    own = html.render(tp())
    for element, attributes in page.elements:
        assert element not in ("link", "iframe", "object", "embed", "base", "img")
        for name in ("src", "href", "action", "srcset", "poster"):
            assert not re.match(r"(?i)\s*(https?:)?//", attributes.get(name) or "#"), (element, attributes)
    style = re.search(r"<style>(.*?)</style>", own, re.S)
    assert style and "@import" not in style[1] and "url(" not in style[1]


def test_the_page_forbids_itself_every_request_and_every_script_but_its_own(page):
    policy = next(a["content"] for e, a in page.elements if e == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy and "unsafe-inline'; img" in policy
    run = [text for attributes, text in page.scripts if "type" not in attributes]
    assert len(run) == 2
    for text in run:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_plotly_is_in_the_page_once(page):
    assert sum("plotly.js v" in text for _, text in page.scripts) == 1


def test_names_from_traces_stay_text():
    run = tp(layer=EVIL)
    found = (finding("bad", "error", EVIL, file=EVIL),)
    text = html.render(FakeAnalysis(run.results, {**run.run, "source": [EVIL], "config": {"recipe": EVIL}}, found, "unusable", {**run.names, "budget": EVIL}))
    hostile = Page(text)
    assert len([1 for a, _ in hostile.scripts if "type" not in a]) == 2
    assert not [e for e, _ in hostile.elements if e == "img"]
    assert "<script>alert" not in text
    assert any("</script><script>alert(1)</script>" in t for t in hostile.texts)


def test_every_figure_is_strict_json_and_its_element_exists(page):
    ids = {a.get("id") for _, a in page.elements}
    figures = [(a, t) for a, t in page.scripts if a.get("type") == "application/json"]
    assert len(figures) == 14
    for attributes, text in figures:
        json.loads(text, parse_constant=pytest.fail)
        assert str(attributes["id"]).removesuffix("-data") in ids


def test_health_then_the_answer_then_the_cards_then_the_sections(page):
    text = "".join(page.texts)
    places = [
        text.index(w)
        for w in ("health: ok", "A step takes", "Exposed communication", "Where each rank's step went", "The schedule as it ran", "Not available, and why")
    ]
    assert places == sorted(places)


def test_an_emulated_run_wears_a_badge_in_every_section(page):
    badges = [a for e, a in page.elements if e == "span" and a.get("class") == "badge emulated"]
    sections = [a for e, a in page.elements if e == "section" and a.get("id") != "unavailable"]
    assert len(badges) == 1 + len(sections)
    assert "emulated" not in "".join(Page(html.render(tp())).texts).lower()


def test_the_comparison_puts_measured_figures_beside_theory():
    runs = [Compared("tp", "tp/report.html", tp().to_dict()), Compared("pp", "pp/report.html", pipeline().to_dict())]
    time, _, memory = tables(runs)
    assert time.rows[1][5:7] == ("29.0 %", "27.3 %") and time.rows[0][5:7] == ("–", "–")
    assert time.rows[0][2] == "computed" and time.rows[1][2] == "emulated"
    assert memory.rows[0][1:4] == ("98.0 MiB", "40.0 MiB", "38.0 MiB") and memory.rows[0][5:7] == ("10.0 %", "33.3 %")


def test_each_run_of_a_comparison_is_one_number_beside_theory():
    runs = [Compared("tp", "", tp().to_dict()), Compared("pp", "", pipeline().to_dict())]
    made = [(c.label, c.value, c.detail) for c in cards(runs)]
    assert ("tp: collectives per layer", "4", "per microbatch: 2 all reduce forward, 2 all reduce backward") in made
    assert ("pp: pipeline bubble", "29.0 %", "closed form 27.3 %; window 676 ms (emulated compute)") in made
    assert ("tp: costs", "10.0 %", "of compute, 33.3 % in theory; saves unknown of activations") in made


def test_collectives_are_counted_per_layer_and_microbatch():
    run = tp()
    collectives = run.results["collectives"]
    of = collectives.tables["by_layer"].assign(step=1)
    both = Result(collectives.summary, {"by_layer": pd.concat([of, of.assign(step=2)], ignore_index=True)})
    grid = tables([Compared("tp", "", FakeAnalysis({**run.results, "collectives": both}, run.run).to_dict())])[1]
    assert grid.rows == (("tp", "all_reduce", "4", "2 forward + 2 backward", "32.0 MiB", "72.0 ms", "64.0 ms"),)


def test_the_page_over_several_runs_links_each_and_marks_the_emulated():
    runs = [Compared("tp", "tp/report.html", tp().to_dict()), Compared("pp", "pp/report.html", pipeline().to_dict())]
    made = Page(index.render("demo", "answer", "why", runs))
    assert {a.get("href") for e, a in made.elements if e == "a"} >= {"tp/report.html", "pp/report.html"}
    assert sum(a.get("class") == "badge emulated" for _, a in made.elements) == 1
