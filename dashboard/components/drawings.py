"""How does a figure of a run become JSON for a page? Drawn once per run, generation and steps, then coloured for the page."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import plotly.graph_objects as go

from dashboard.components.query import matching
from dashboard.components.restyle import restyled
from dashboard.reading import View
from tracekit.figures import FIGURES, Drawing
from tracekit.metrics import Result

SCHEMES = ("light", "dark")


@dataclass(frozen=True)
class Drawn:
    """A figure in the colours of the house.

    Attributes:
        height: pixels.
        json: the figure as plotly's JSON.
    """

    height: int
    json: str


def drawing(name: str) -> Drawing | None:
    """A figure by name."""
    return next((d for d in FIGURES if d.name == name), None)


def of_metric(metric: str) -> tuple[Drawing, ...]:
    """The figures of a metric, in the order of the report; figures that are added later appear by themselves."""
    return tuple(d for d in FIGURES if d.metric == metric)


def house(view: View, of: Drawing, steps: Collection[int] | None, only: tuple[tuple[str, str], ...] = ()) -> Drawn | None:
    """A figure, drawn; None where its metric is not available or has nothing to draw.

    Args:
        view: the run.
        of: which figure.
        steps: steps to average over.
        only: (column, value) pairs: rows of the metric's tables that have such a column are drawn where they hold the value.
    """
    chosen = None if steps is None else tuple(sorted(steps))

    def make() -> Drawn | None:
        if not view.analysis.result(of.metric).available:
            return None
        return serialised(of.draw(lambda name: _only(view.analysis.result(name), only), chosen))

    return view.cached(("figure", of.name, chosen, only), make, lambda d: 0 if d is None else len(d.json))


def serialised(fig: go.Figure | None) -> Drawn | None:
    """A plotly figure as JSON, and how high it is."""
    return None if fig is None else Drawn(int(fig.layout.height or 360), str(fig.to_json()))


def coloured(drawn: Drawn, scheme: str) -> bytes:
    """A drawn figure in the colours of a ``light`` or ``dark`` page, gzipped JSON."""
    if scheme not in SCHEMES or scheme == "light":
        return gzip.compress(drawn.json.encode(), 1)
    return gzip.compress(json.dumps(restyled(json.loads(drawn.json), scheme), separators=(",", ":")).encode(), 1)


def themed(view: View, key: tuple[Any, ...], scheme: str, draw: Callable[[], Drawn | None]) -> bytes | None:
    """What a page fetches: a figure in its colours, made once; None where there is nothing to draw."""
    return view.cached(("themed", scheme, *key), lambda: None if (d := draw()) is None else coloured(d, scheme), lambda b: len(b or b""))


def _only(result: Result, only: tuple[tuple[str, str], ...]) -> Result:
    return replace(result, tables={name: matching(frame, only) for name, frame in result.tables.items()}) if only else result
