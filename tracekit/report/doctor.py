"""How is a diagnosis worded? As a report of its own: verdict, findings, what is there, what each figure lacks, what to record next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit import wording as fmt
from tracekit.report.parts import Grid, Section, Story
from tracekit.report.story import findings_of, run_of


def doctors_story(document: Mapping[str, Any]) -> Story:
    """A diagnosis (schema ``tracekit.doctor/1``), worded.

    Health comes first, then one sentence on how many figures stand, then what is missing, and last the next capture.
    """
    from tracekit import __version__

    figures: Mapping[str, Mapping[str, Any]] = document["figures"]
    whole = sum(1 for f in figures.values() if f["available"] and not f["lacks"])
    partly = sum(1 for f in figures.values() if f["available"] and f["lacks"])
    none = len(figures) - whole - partly
    formats = ", ".join(f"{fmt.plural(n, 'file')} of {fmt.clean(name)}" for name, n in (document["run"].get("formats") or {}).items())
    return Story(
        title="what these files are good for",
        version=__version__,
        verdict=fmt.clean(document["health"]["verdict"]),
        findings=findings_of(document),
        headline=f"Of {len(figures)} answers, {whole} stand whole, {partly} in part, {none} cannot be given." if figures else "Nothing could be read.",
        advice=_advice(document["next_capture"]),
        run=(("files", formats or "none"), *run_of(document)) if document["run"] else (),
        cards=(),
        sections=tuple(s for s in (_needs(document), _figures(document), _next(document)) if s.grids or s.facts),
        unavailable=tuple((n, fmt.clean(f["title"]), fmt.clean(f["reason"] or "", 400)) for n, f in figures.items() if not f["available"]),
        emulated=bool(document["run"] and document["run"].get("emulated")),
    )


def _advice(capture: Mapping[str, Any]) -> str:
    if not capture or not (capture["ranks"] or capture["lines"]):
        return "Nothing is missing that another capture would supply." if capture else ""
    ranks = f"ranks {' '.join(map(str, capture['ranks']))} ({fmt.clean(capture['why'])})" if capture["ranks"] else "the same ranks, with the lines below"
    return f"Smallest next capture: {ranks}."


def _needs(document: Mapping[str, Any]) -> Section:
    rows = tuple((fmt.clean(n["title"]), fmt.clean(n["presence"]), fmt.clean(n["counted"], 100)) for n in document["needs"])
    grid = Grid("Signals", ("needed", "here", "counted"), rows, (False, False, False))
    return _section("needs", "What is here", "What was recorded, and what was not?", (grid,) if rows else ())


def _figures(document: Mapping[str, Any]) -> Section:
    titles = {n["need"]: n["title"] for n in document["needs"]}
    rows = tuple(
        (fmt.clean(f["title"]), fmt.clean(lack["loses"], 200), fmt.clean(titles[lack["need"]]))
        for f in document["figures"].values()
        if f["available"]
        for lack in f["lacks"]
    )
    grid = Grid("Figures that are unknown or marked", ("metric", "what of it", "for want of"), rows, (False, False, False))
    return _section("figures", "What it costs", "Which figures are unknown or marked, and for want of what?", (grid,) if rows else ())


def _next(document: Mapping[str, Any]) -> Section:
    lines = tuple((fmt.clean(line, 300),) for line in (document["next_capture"] or {}).get("lines", ()))
    grid = Grid("Lines to change", ("in the training script or its environment",), lines, (False,))
    return _section("next", "What to record next", "Which lines would supply what is missing?", (grid,) if lines else ())


def _section(name: str, title: str, question: str, grids: tuple[Grid, ...]) -> Section:
    return Section(name, title, question, "", "", (), "", (), grids, ())
