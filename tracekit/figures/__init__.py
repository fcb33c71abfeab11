"""Which figures are there, of which metric, and what does each show? Result in, plotly Figure out; the only plotly code."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import plotly.graph_objects as go

from tracekit.figures.bandwidth import bus_bandwidth
from tracekit.figures.breakdown import time_breakdown
from tracekit.figures.bubble import bubble_by_microbatches, bubble_causes
from tracekit.figures.budget import step_budget
from tracekit.figures.lateness import late_arrivals
from tracekit.figures.layers import layer_cost
from tracekit.figures.memory import activations, curve, in_flight, peak_parts
from tracekit.figures.pipeline import schedule
from tracekit.figures.recompute import recompute_cost, recompute_saving
from tracekit.figures.step_time import step_times
from tracekit.figures.waterfall import step_waterfall
from tracekit.metrics.base import Result


@dataclass(frozen=True)
class Drawing:
    """One figure of a report.

    Attributes:
        name: short name, unique.
        metric: the metric whose Result it draws.
        caption: what it shows, one line.
        draw: (results by metric name, steady steps) -> Figure, or None where there is nothing to draw.
        follows: whether it is of the steps it is given; else of the whole run, whichever they are.
    """

    name: str
    metric: str
    caption: str
    draw: Callable[[Callable[[str], Result], Collection[int] | None], go.Figure | None]
    follows: bool = True


#: Every figure, in the order of the report.
FIGURES: tuple[Drawing, ...] = (
    Drawing(
        "step_waterfall",
        "budget",
        "Where the step goes, the job's mean: from its work to its whole length, the largest loss first.",
        lambda r, s: step_waterfall(r("budget")),
        follows=False,
    ),
    Drawing("step_budget", "budget", "Where each rank's step went; the parts add up to the step.", lambda r, s: step_budget(r("budget"), steps=s)),
    Drawing("step_times", "step_time", "How long a step takes on each rank; a dot is a step.", lambda r, s: step_times(r("step_time"), steps=s)),
    Drawing("time_breakdown", "breakdown", "What each rank's device did during a step.", lambda r, s: time_breakdown(r("breakdown"), steps=s)),
    Drawing(
        "layer_cost",
        "collectives",
        "Cost of each layer's collectives: waiting or moving bytes (above), and whether compute hides it (below).",
        lambda r, s: layer_cost(r("collectives"), steps=s),
    ),
    Drawing(
        "bus_bandwidth",
        "collectives",
        "Bus bandwidth by message size: small dots are single collectives, large ones the median of a size.",
        lambda r, s: bus_bandwidth(r("collectives"), steps=s),
    ),
    Drawing(
        "late_arrivals",
        "straggler",
        "Who comes late: red is after the median rank of the group, blue before it. A straggler is a red row.",
        lambda r, s: late_arrivals(r("straggler"), r("collectives")),
        follows=False,
    ),
    Drawing(
        "schedule",
        "pipeline",
        "The schedule as it ran: one lane per rank, numbers are microbatches; the thin strip below is the same order on paper.",
        lambda r, s: schedule(r("pipeline"), steps=s),
    ),
    Drawing(
        "bubble_causes", "pipeline", "What causes the bubble; the closed form is the schedule alone.", lambda r, s: bubble_causes(r("pipeline")), follows=False
    ),
    Drawing(
        "bubble_by_microbatches",
        "pipeline",
        "More microbatches, smaller bubble: the closed form, and this run.",
        lambda r, s: bubble_by_microbatches(r("pipeline")),
        follows=False,
    ),
    Drawing("memory_peak", "memory", "What the peak consists of; the categories add up to it.", lambda r, s: peak_parts(r("memory"), steps=s), follows=False),
    Drawing(
        "memory_curve", "memory", "Allocated memory of the fullest rank over time, its phases shaded.", lambda r, s: curve(r("memory"), steps=s), follows=False
    ),
    Drawing("activations", "memory", "Activations alive at the peak, by layer and microbatch.", lambda r, s: activations(r("memory"), steps=s), follows=False),
    Drawing(
        "in_flight", "memory", "Microbatches that each pipeline stage held at its peak, beside the closed form.", lambda r, s: in_flight(r("memory"), steps=s)
    ),
    Drawing("recompute_cost", "recompute", "Forward, the forward that was repeated, and backward.", lambda r, s: recompute_cost(r("recompute"), steps=s)),
    Drawing("recompute_saving", "recompute", "What each layer repeats, and the memory it saves.", lambda r, s: recompute_saving(r("recompute"), steps=s)),
)

__all__ = [
    "FIGURES",
    "Drawing",
    "activations",
    "bubble_by_microbatches",
    "bubble_causes",
    "bus_bandwidth",
    "curve",
    "in_flight",
    "late_arrivals",
    "layer_cost",
    "peak_parts",
    "recompute_cost",
    "recompute_saving",
    "schedule",
    "step_budget",
    "step_times",
    "step_waterfall",
    "time_breakdown",
]
