"""How is a memory what-if worded? How well the run's own peak is met, then every alternative."""

from __future__ import annotations

from markupsafe import Markup

from tracekit import wording as fmt
from tracekit.analysis import Analysis
from tracekit.memory_what_if import to_dict
from tracekit.metrics.base import Result
from tracekit.report.html import Drawn, page
from tracekit.report.parts import Section, Story, facts, grid
from tracekit.report.what_if import answer

CAPTION = "Peak of the fullest rank and time of a step under each alternative; unknown: the run does not tell."
_COLUMNS = ["label", "basis", "time_basis", "activation_peak_bytes", "memory_peak_bytes", "step_ns", "recompute_ns", "fits", "largest_microbatch"]

_DEFINITION = (
    "Peak = what stood beside activations, of it input and temporary memory in proportion to the microbatch size, + the larger of the end of forward "
    "and the backward of a checkpoint. What ran stands as measured; layer error: a measured layer over its closed form, less 1."
)


def story(analysis: Analysis, result: Result) -> Story:
    """A memory what-if, worded."""
    head, advice = _headline(result)
    return answer(analysis, result, "what other recomputation would take", head, advice, lambda slept: _section(result))


def worded(result: Result) -> tuple[str, str, Section]:
    """(how well the run's own peaks are met, what follows, the section) of a memory what-if that is available."""
    return (*_headline(result), _section(result))


def _headline(result: Result) -> tuple[str, str]:
    head, advice = "There is nothing to foretell.", ""
    if result.available:
        activations, memory = (fmt.percent(abs(result.summary[f"{n}_error_ratio"])) for n in ("activation", "memory"))
        layers = result.summary["layer_error_ratio"]
        head = f"By the same account the run's own activation peak is met within {activations}, its memory peak within {memory}"
        head += "." if layers is None else f"; its layers meet their closed form within {fmt.percent(abs(layers))}."
        advice = "" if result.summary["trusted"] else "That is too far: what follows cannot be trusted."
    return head, advice


def html(analysis: Analysis, result: Result) -> str:
    """The memory what-if as one self-contained page."""
    from tracekit.figures import embed
    from tracekit.figures.memory_what_if import alternatives

    fig = alternatives(result) if result.available else None
    drawn = {} if fig is None else {"what_if": [Drawn("figure-what_if", CAPTION, int(fig.layout.height), Markup(embed.to_json(fig)))]}
    return page("report.html.j2", story=story(analysis, result), figures=drawn)


def _section(result: Result) -> Section:
    limited = result.summary["memory_limit_bytes"] is not None
    columns = _COLUMNS if limited else _COLUMNS[:-2]
    return Section(
        name="what_if",
        title="What if",
        question="What would memory and the step take under another recomputation or microbatch size?",
        definition="",
        full_definition=_DEFINITION,
        tags=("simulated",),
        obtained="From the run's measured peak, and closed forms where the basis says so",
        facts=facts({k: v for k, v in result.summary.items() if k != "trusted"}, ("activation_error_ratio", "memory_error_ratio", "layer_error_ratio")),
        grids=(grid("Alternatives", list(to_dict(result)["alternatives"]), columns),),
        notes=tuple(fmt.clean(n, 400) for n in result.notes),
    )
