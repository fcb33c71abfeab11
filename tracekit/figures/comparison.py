"""How is a comparison drawn? Shifts with their intervals, the way from the base's step to the head's, layers, and the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from tracekit.figures import theme
from tracekit.wording import duration, plural, signed

_COLOUR = {"regressed": theme.RED, "improved": theme.GREEN, "unchanged": theme.SOFT}
_WORDS = {"regressed": "regressed", "improved": "improved", "unchanged": "unchanged", "other": "cannot tell"}
#: The axis reaches this far, so many times as far as the first row, or past three of four; what is beyond stands at the edge, its number beside it.
_NARROWEST, _AROUND_FIRST = 0.1, 2.5
#: Parts below this share of the largest change are drawn as one.
_SMALL = 0.03
_MOST_LAYERS = 64


@dataclass(frozen=True)
class Shift:
    """One row of the forest plot: shares of the base value (points, of ratios).

    Attributes:
        name: the metric.
        shift: of the head against the base.
        low: lower end of its 95 % interval, None where unknown.
        high: upper end.
        least: least shift that matters.
        verdict: what is said of it.
        text: the shift in words.
    """

    name: str
    shift: float
    low: float | None
    high: float | None
    least: float
    verdict: str
    text: str


@dataclass(frozen=True)
class Change:
    """One part of the step, or a layer, and by how many ns it changed."""

    name: str
    change_ns: float


def forest(rows: Sequence[Shift]) -> go.Figure | None:
    """Shift and interval of each metric, over the band of what does not matter; None where there is no shift.

    The first row, the step, sets the width of the axis.
    """
    if not rows:
        return None
    lanes = _unique([theme.label(r.name) for r in rows])
    reach = [max(abs(v) for v in (r.shift, r.low or 0.0, r.high or 0.0, r.least)) for r in rows]
    edge = min(1.15 * max(reach), max(_NARROWEST, _AROUND_FIRST * reach[0], 1.15 * sorted(reach)[3 * len(reach) // 4]))
    beyond = any(abs(r.shift) > edge for r in rows)
    note = f"shifts past {100 * edge:.0f} % stand at the edge" if beyond else ""
    fig = theme.figure("head against base, % (ratios: points); grey: too small to matter", height=theme.lane_height(len(rows)), rows=lanes, note=note)
    fig.add_bar(
        y=lanes, x=[200 * min(r.least, edge) for r in rows], base=[-100 * min(r.least, edge) for r in rows], orientation="h", width=0.62,
        marker={"color": theme.FAINT, "line": {"width": 0}}, hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    for kind, word in _WORDS.items():
        at = [i for i, r in enumerate(rows) if (r.verdict if r.verdict in _COLOUR else "other") == kind]
        if not at:
            continue
        colour = _COLOUR.get(kind, theme.YELLOW)
        for i in at:
            low, high = rows[i].low, rows[i].high
            if low is not None and high is not None:
                ends = [100 * max(-edge, min(edge, v)) for v in (low, high)]
                fig.add_scatter(x=ends, y=[lanes[i]] * 2, mode="lines", line={"color": colour, "width": 3}, hoverinfo="skip", showlegend=False)
        fig.add_scatter(
            x=[100 * max(-edge, min(edge, rows[i].shift)) for i in at], y=[lanes[i] for i in at], mode="markers", name=word,
            marker={
                "color": colour, "size": 12, "line": {"color": "white", "width": 1.5},
                "symbol": ["triangle-right" if rows[i].shift > edge else "triangle-left" if rows[i].shift < -edge else "circle" for i in at],
            },
            customdata=[theme.words(rows[i].text) for i in at], hovertemplate="%{y}<br>%{customdata}<extra></extra>",
        )  # fmt: skip
    for lane, r in zip(lanes, rows, strict=True):
        bold = r.verdict in ("regressed", "improved")
        told = theme.words(r.text, 60)
        fig.add_annotation(
            x=1.0, xref="paper", xanchor="left", xshift=10, y=lane, yref="y", showarrow=False, text=f"<b>{told}</b>" if bold else told,
            font={"size": 12, "color": theme.INK if bold else theme.SOFT},
        )  # fmt: skip
    fig.update_layout(margin={"r": 205}, barmode="overlay")
    fig.update_xaxes(range=[-108 * edge, 108 * edge], zeroline=True, zerolinecolor=theme.SOFT, zerolinewidth=1)
    return fig


def way(base_ns: float, head_ns: float, parts: Sequence[Change]) -> go.Figure | None:
    """From the base's step to the head's: each part that changed, and last what no part explains; None where no part changed.

    Args:
        base_ns: step time of the base.
        head_ns: of the head.
        parts: how each part changed, largest first.
    """
    largest = max((abs(p.change_ns) for p in parts), default=0.0)
    if not largest:
        return None
    shown = [p for p in parts if abs(p.change_ns) >= _SMALL * largest][:14]
    small = [p for p in parts if p not in shown]
    bars = [*shown, *([Change(plural(len(small), "smaller change"), sum(p.change_ns for p in small))] if small else [])]
    rest = (head_ns - base_ns) - sum(p.change_ns for p in parts)
    if abs(rest) >= _SMALL * largest:
        bars.append(Change("in no part", rest))
    lanes = _unique([theme.label(b.name) for b in bars])
    whole = f"step: {duration(base_ns)} → {duration(head_ns)}"
    starts = [sum(b.change_ns for b in bars[:i]) / 1e6 for i in range(len(bars))]
    total = (head_ns - base_ns) / 1e6
    fig = theme.figure("ms against the base", height=110 + 36 * (len(bars) + 1), rows=[*lanes, whole], legend=False)
    told = [*(signed("change_ns", b.change_ns) for b in bars), signed("change_ns", head_ns - base_ns)]
    colours = [theme.GREY if b.name == "in no part" else theme.RED if b.change_ns > 0 else theme.GREEN for b in bars]
    fig.add_bar(
        y=[*lanes, whole], x=[*(b.change_ns / 1e6 for b in bars), total], base=[*starts, 0.0], orientation="h", showlegend=False,
        marker={"color": [*colours, theme.BLUE], "line": {"width": 0}}, customdata=told, hovertemplate="%{y}: %{customdata}<extra></extra>",
    )  # fmt: skip
    for lane, start, change, words in zip([*lanes, whole], [*starts, 0.0], [*(b.change_ns for b in bars), head_ns - base_ns], told, strict=True):
        right = max(start, start + change / 1e6)
        fig.add_annotation(
            x=right, y=lane, text=f"<b>{words}</b>" if lane == whole else words, xanchor="left", xshift=4,
            showarrow=False, font={"size": 12, "color": theme.INK},
        )  # fmt: skip
    for at, (start, b) in enumerate(zip(starts, bars, strict=True)):
        edge = start + b.change_ns / 1e6
        fig.add_shape(type="line", x0=edge, x1=edge, y0=len(bars) - at, y1=len(bars) - at - 1, line={"color": theme.GREY, "width": 1, "dash": "dot"})
    ends = [*starts, *(s + b.change_ns / 1e6 for s, b in zip(starts, bars, strict=True)), total, 0.0]
    wide = max(ends) - min(ends)
    fig.update_xaxes(range=[min(ends) - 0.03 * wide, max(ends) + 0.14 * wide], zeroline=True, zerolinecolor=theme.SOFT, zerolinewidth=1)
    return fig


def layers(changes: Sequence[Change]) -> go.Figure | None:
    """By how much each layer's exposed communication changed per step; None for fewer than two layers."""
    if len(changes) < 2:
        return None
    kept = set(sorted(range(len(changes)), key=lambda i: -abs(changes[i].change_ns))[:_MOST_LAYERS])
    shown = [c for i, c in enumerate(changes) if i in kept]
    names = _unique([theme.label(c.name) for c in shown])
    note = f"{len(shown)} of {len(changes)} layers: those that changed most" if len(changes) > len(shown) else ""
    fig = theme.figure("layer", height=300, note=note, legend=False)
    fig.add_bar(
        x=names, y=[c.change_ns / 1e6 for c in shown], marker={"color": [theme.RED if c.change_ns > 0 else theme.GREEN for c in shown], "line": {"width": 0}},
        customdata=[signed("change_ns", c.change_ns) for c in shown], hovertemplate="%{x}: %{customdata}<extra></extra>",
    )  # fmt: skip
    fig.update_xaxes(type="category", categoryorder="array", categoryarray=names, showgrid=False)
    fig.update_yaxes(title={"text": "ms against the base"}, zeroline=True, zerolinecolor=theme.SOFT, zerolinewidth=1)
    return fig


def history(title: str, commits: Sequence[str], values: Sequence[float], points: Sequence[str], *, unit: str, scale: float) -> go.Figure | None:
    """A metric by commit, oldest first, the head last and marked; lines where a new level begins.

    Args:
        title: of the metric.
        commits: their names.
        values: one per commit, in the metric's own unit.
        points: commits at which a new level begins.
        unit: that the axis shows.
        scale: values are divided by it.
    """
    if len(values) < 2:
        return None
    x, y = list(range(len(values))), [v / scale for v in values]
    fig = theme.figure("commit", height=300, legend=False)
    names = [theme.label(c[:10]) for c in commits]
    others = len(x) - 1
    marker = {"size": [7] * others + [13], "color": [theme.BLUE] * others + [theme.RED]}
    fig.add_scatter(
        x=x, y=y, mode="lines+markers", line={"color": theme.BLUE, "width": 2}, marker=marker,
        customdata=names, hovertemplate="%{customdata}: %{y:.4~g} " + unit + "<extra></extra>",
    )  # fmt: skip
    for at in (i for i, c in enumerate(commits) if c in set(points)):
        fig.add_vline(
            x=at - 0.5, line={"color": theme.RED, "width": 1, "dash": "dash"}, annotation_text="new level", annotation_font={"size": 11, "color": theme.SOFT}
        )
    step = max(1, len(x) // 12)
    ticks = sorted({*x[::step], x[-1]} - ({x[-2]} if len(x) > 12 else set()))
    fig.update_xaxes(tickvals=ticks, ticktext=[names[i] for i in ticks], showgrid=False, range=[-0.4, len(x) - 0.6])
    fig.update_yaxes(title={"text": f"{theme.label(title)} ({unit})"})
    return fig


def _unique(names: Sequence[str]) -> list[str]:
    """Names as lanes: of equal ones, the later ones numbered, for lanes of one name would lie on each other."""
    out: list[str] = []
    for name in names:
        n, made = 2, name
        while made in out:
            made, n = f"{name} ({n})", n + 1
        out.append(made)
    return out
