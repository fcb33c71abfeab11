"""How is a memory what-if worded? How well the run's own peak is met, then every alternative."""

from __future__ import annotations

from tracekit import wording as fmt
from tracekit.analysis import Analysis
from tracekit.memory_what_if import to_dict
from tracekit.metrics.base import Result
from tracekit.report.html import page
from tracekit.report.parts import Section, Story, facts, grid
from tracekit.report.sections.common import emulated
from tracekit.report.story import findings_of, run_of

_COLUMNS = ["label", "basis", "time_basis", "activation_peak_bytes", "memory_peak_bytes", "step_ns", "recompute_ns", "fits", "largest_microbatch"]


def story(analysis: Analysis, result: Result) -> Story:
    """A memory what-if, worded."""
    from tracekit import __version__

    document = analysis.to_dict()
    head, advice = "There is nothing to foretell.", ""
    if result.available:
        head = f"The run's own activation peak is met within {fmt.percent(abs(result.summary['activation_error_ratio']))}."
        advice = "" if result.summary["trusted"] else "That is too far: what follows cannot be trusted."
    return Story(
        title="what other recomputation would take",
        version=__version__,
        verdict=fmt.clean(analysis.health()["verdict"]),
        findings=findings_of(document),
        headline=head,
        advice=advice,
        run=run_of(document),
        cards=(),
        sections=(_section(result),) if result.available else (),
        unavailable=() if result.available else (("what_if", "What-if", fmt.clean(result.reason or "", 400)),),
        emulated=emulated(document),
    )


def html(analysis: Analysis, result: Result) -> str:
    """The memory what-if as one self-contained page."""
    return page("report.html.j2", story=story(analysis, result), figures={})


def _section(result: Result) -> Section:
    limited = result.summary["memory_limit_bytes"] is not None
    columns = _COLUMNS if limited else _COLUMNS[:-2]
    return Section(
        name="what_if",
        title="What if",
        question="What would memory and the step take under another recomputation or microbatch size?",
        definition="",
        full_definition="Peak = what stood beside activations + the larger of the end of forward and the backward of a checkpoint.",
        tags=("simulated",),
        obtained="From the run's measured peak, and closed forms where the basis says so",
        facts=facts({k: v for k, v in result.summary.items() if k != "trusted"}, ("activation_error_ratio",)),
        grids=(grid("Alternatives", list(to_dict(result)["alternatives"]), columns),),
        notes=tuple(fmt.clean(n, 400) for n in result.notes),
    )
