"""The page of a comparison opens in a real browser, light and dark, draws every figure, asks no network, and runs no name."""

from __future__ import annotations

import pytest

from tests.regression.test_outputs_formats import NASTY, document, named
from tracekit.report.html import Drawn
from tracekit.report.regression import html

__all__ = ["document"]


def drawn(found):
    return {
        name: [f.id for f in (figures if isinstance(figures, list) else [figures] if isinstance(figures, Drawn) else [])] for name, figures in found.items()
    }


def test_the_pictures_are_those_that_there_is_something_to_see_in(document):
    assert drawn(html.draw(document)) == {"way": ["figure-way"], "shifts": ["figure-shifts"], "layers": ["figure-layers"], "history": ["figure-history-0"]}
    quiet = {**document, "metrics": [{**r, "verdict": "unchanged", "shift": r["shift"] and 0.001} for r in document["metrics"]], "drift": [], "history": []}
    assert drawn(html.draw(quiet)) == {"way": [], "shifts": ["figure-shifts"], "layers": [], "history": []}


def test_the_way_ends_at_the_change_of_the_step(document):
    from tracekit.figures.comparison import Change, way

    fig = way(100e6, 110e6, [Change("a", 8e6), Change("b", -1e6), Change("c", 0.01e6)])
    (bar,) = fig.data
    assert list(bar.y) == ["a", "b", "1 smaller change", "in no part", "step: 100 ms → 110 ms"]
    assert list(bar.x) == pytest.approx([8, -1, 0.01, 2.99, 10]) and list(bar.base) == pytest.approx([0, 8, 7, 7.01, 0])
    assert way(100e6, 110e6, []) is None


@pytest.mark.browser
def test_the_page_in_a_browser(document, tmp_path, browser):
    names = {"plain": document, "nasty": named(document, NASTY)}
    for name, made in names.items():
        (tmp_path / f"{name}.html").write_text(html.render(made), encoding="utf-8")
    for name, scheme in (("plain", "light"), ("nasty", "dark")):
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
        said, asked = [], []
        page.on("console", lambda m, said=said: said.append(m.text))
        page.on("pageerror", lambda e, said=said: said.append(str(e)))
        page.on("request", lambda r, asked=asked: asked.append(r.url))
        page.goto((tmp_path / f"{name}.html").as_uri())
        page.wait_for_function("document.querySelectorAll('.plot-container.plotly').length === document.querySelectorAll('figure').length")
        assert page.locator("figure").count() >= 3 and page.locator("main img, main a").count() == 0
        assert page.locator(".verdict").inner_text().lower() == "regressed"
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        paper = page.evaluate("document.getElementById('figure-way').layout.paper_bgcolor")
        assert (ground, paper.lower()) == (("rgb(17, 22, 28)", "#1a2129") if scheme == "dark" else ("rgb(245, 247, 250)", "white"))
        assert said == [] and len(asked) == 1
        page.close()
