"""How is a what-if worded? The schedule that ran and how well its simulation meets it, then every alternative, the best first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from markupsafe import Markup

from tracekit import wording as fmt
from tracekit.analysis import Analysis
from tracekit.metrics.base import Result
from tracekit.report.html import Drawn, page
from tracekit.report.parts import Section, Story, facts, grid
from tracekit.report.sections.common import emulated
from tracekit.report.story import findings_of, run_of
from tracekit.what_if import to_dict

_COLUMNS = ["label", "as_it_ran", "step_per_microbatch_ns", "time_change_ratio", "bubble_ratio", "window_ns", "in_flight_peak", "memory_peak_bytes", "fits"]
_DEFINITION = (
    "The schedule that ran is simulated with the measured span of every action, the median hand-over between ranks and the median overhead between "
    "actions; its window is held against the measured one. Alternatives are simulated with the mean F, I and W of every stage, carried over to their own "
    "stages by depth. Step = simulated window + what of the measured step lies outside its window. Memory = what each rank held beside activations + the "
    "activations of a microbatch x those that the alternative holds at once. time change = step per "
    "microbatch of the alternative / of what ran - 1, both simulated."
)


def what_ifs_story(analysis: Analysis, result: Result) -> Story:
    """A what-if, worded: health first, then one sentence, then the table."""
    head, advice = _headline(result)
    return answer(analysis, result, "what another schedule would take", head, advice, lambda slept: _section(result, slept))


def answer(analysis: Analysis, result: Result, title: str, headline: str, advice: str, section: Callable[[bool], Section]) -> Story:
    """The story of any what-if: health, one sentence, and its section where there is one.

    Args:
        analysis: of the run that was asked about.
        result: the what-if.
        title: what was asked.
        headline: how far it can be believed.
        advice: what follows.
        section: words the result, told whether the run's compute was emulated; asked only of a result that is available.
    """
    from tracekit import __version__

    document = analysis.to_dict()
    return Story(
        title=title,
        version=__version__,
        verdict=fmt.clean(analysis.health()["verdict"]),
        findings=findings_of(document),
        headline=headline,
        advice=advice,
        run=run_of(document),
        cards=(),
        sections=(section(emulated(document)),) if result.available else (),
        unavailable=() if result.available else (("what_if", "What-if", fmt.clean(result.reason or "", 400)),),
        emulated=emulated(document),
    )


def worded(result: Result, slept: bool) -> tuple[str, str, Section]:
    """(how well what ran is simulated, what would be faster, the section) of a what-if that is available.

    Args:
        result: of ``what_if``.
        slept: whether the run's compute was emulated.
    """
    return (*_headline(result), _section(result, slept))


def html(analysis: Analysis, result: Result) -> str:
    """The what-if as one self-contained page."""
    from tracekit.figures import embed
    from tracekit.figures.what_if import alternatives

    fig = alternatives(result) if result.available else None
    caption = "Time of a step per microbatch under each alternative: work, and bubble."
    drawn = {} if fig is None else {"what_if": [Drawn("figure-what_if", caption, int(fig.layout.height), Markup(embed.to_json(fig)))]}
    return page("report.html.j2", story=what_ifs_story(analysis, result), figures=drawn)


def _headline(result: Result) -> tuple[str, str]:
    if not result.available:
        return "There is nothing to simulate.", ""
    s = result.summary
    ran = f"{s['schedule']} ran with {s['microbatches']} microbatches on {s['pipeline_ranks']} ranks; its simulation is "
    error = s["simulation_error_ratio"]
    ran += f"{fmt.percent(abs(error))} {'longer' if error > 0 else 'shorter'} than what was measured." if error else "as long as what was measured."
    if not s["trusted"]:
        return ran, "That is too far: what follows cannot be trusted."
    if s["best"] is None:
        return ran, "No alternative can run within the memory limit."
    change = s["best_time_change_ratio"]
    own = next(r for r in to_dict(result)["alternatives"] if r["as_it_ran"])
    if own["label"] == s["best"] or change >= 0:
        return ran, "None of the alternatives would be faster."
    return ran, f"The fastest alternative is {s['best']}: {fmt.percent(-change)} less time per microbatch."


def _section(result: Result, slept: bool) -> Section:
    document: Mapping[str, Any] = to_dict(result)
    columns = _COLUMNS if result.summary["memory_limit_bytes"] is not None else [c for c in _COLUMNS if c != "fits"]
    rows = [{**r, "as_it_ran": "yes" if r["as_it_ran"] else ""} for r in document["alternatives"] if r["possible"]]
    refused = [{"label": r["label"], "reason": r["reason"]} for r in document["alternatives"] if not r["possible"]]
    tags = ("simulated", "emulated") if slept else ("simulated",)
    grids = tuple(g for g in (grid("Alternatives, the best first", rows, columns), grid("Not possible", refused, ["label", "reason"])) if g.rows)
    obtained = "Simulated: measured times of the run, in the order of each schedule"
    shown = facts({k: v for k, v in result.summary.items() if k not in ("best", "best_time_change_ratio", "trusted")}, ("simulation_error_ratio",))
    return Section(
        name="what_if",
        title="What if",
        question="What would another schedule or split take?",
        definition="",
        full_definition=_DEFINITION,
        tags=tags,
        obtained=obtained,
        facts=shown,
        grids=grids,
        notes=tuple(fmt.clean(n, 400) for n in result.notes),
    )
