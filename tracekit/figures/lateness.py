"""How is drawn who came late? A heat map of ranks and collectives: red came after the median rank of its group, blue before it."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tracekit.figures import theme
from tracekit.figures.panels import Panel, panels_of
from tracekit.metrics.base import Result
from tracekit.wording import duration, plural

EARLY, ON_TIME, LATE, UNRESOLVED, ABSENT = "#2166AC", "#FFFFFF", "#C2182B", "#C3C9D0", "#EEF1F4"
_NAMED = 13  # pixels that a rank's name needs


def late_arrivals(stragglers: Result, collectives: Result) -> go.Figure | None:
    """Mean lateness (start minus the median start of the group) of each rank in each collective, a panel per mesh axis.

    Args:
        stragglers: of the metric ``straggler``: table ``instances``, the collectives that are compared; summary ``rank``.
        collectives: of the metric ``collectives``: tables ``instances`` and ``by_rank``.
    """
    seen, rows = stragglers.tables.get("instances"), collectives.tables.get("by_rank")
    if seen is None or rows is None or not len(seen) or not len(rows):
        return None
    found, notes = panels_of(seen, collectives.tables["instances"], rows, stragglers.summary.get("rank"))
    if not found:
        return None
    notes += ["lines part the groups"] if any(map(_divided, found)) else []
    pixels = [26 if len(p.ranks) <= 12 else 16 if len(p.ranks) <= 30 else 9 for p in found]
    heights = [max(70, px * len(p.ranks)) for px, p in zip(pixels, found, strict=True)]
    between, top = 70, 62
    axes = make_subplots(
        rows=len(found),
        cols=2,
        shared_yaxes=True,
        column_widths=[0.82, 0.18],
        horizontal_spacing=0.02,
        row_heights=heights,
        vertical_spacing=between / (sum(heights) + between * (len(found) - 1)) if len(found) > 1 else 0,
    )
    height = sum(heights) + between * (len(found) - 1) + top + 50
    fig = theme.figure("", height=height, note="; ".join(notes), panels=axes)
    fig.update_layout(margin={"t": top, "b": 50 + (22 if notes else 0)}, bargap=0.25)
    scale = _unit(max(float(np.abs(p.means).max()) for p in found))
    for row, (panel, px) in enumerate(zip(found, pixels, strict=True), start=1):
        _draw(fig, panel, row, px, stragglers.summary.get("rank"), scale)
    _colours(fig, found, 1 + 30 / (height - top - 50))
    return fig


def _title(panel: Panel) -> str:
    shown = "" if len(panel.ranks) == panel.all_ranks else f"{len(panel.ranks)} of "
    most = "up to " if np.isnan(panel.late).any() else ""
    return (
        f"<b>{theme.label(panel.axis)}</b>: {shown}{plural(panel.all_ranks, 'rank')} in {plural(panel.all_groups, 'group')}, "
        f"{most}{plural(panel.collectives, 'collective')} each"
    )


def _divided(panel: Panel) -> bool:
    """Whether the rows of a group stand together between lines."""
    return 1 < len(set(panel.groups.tolist())) < len(panel.ranks)


def _draw(fig: go.Figure, panel: Panel, row: int, pixels: int, named: Any, scale: tuple[float, str]) -> None:
    factor, unit = scale
    lanes, columns = np.arange(len(panel.ranks)), np.arange(panel.late.shape[1])
    known = np.where(panel.unresolved, np.nan, panel.late)
    words = [f"rank {r}" for r in panel.ranks]
    fig.add_heatmap(
        z=known.astype("float32"),
        x=columns,
        y=lanes,
        name=f"{theme.label(panel.axis)}: after the median, {unit}",
        coloraxis="coloraxis",
        ygap=1 if pixels > 9 else 0,
        row=row,
        col=1,
        hovertemplate=f"%{{y}}, column %{{x}}<br>%{{customdata:.3f}} {unit} after the median<extra></extra>",
        customdata=(known / factor).astype("float32"),
    )
    if panel.unresolved.any():
        fig.add_heatmap(
            z=np.where(panel.unresolved, 1.0, np.nan).astype("float32"),
            customdata=np.where(panel.unresolved, panel.late / factor, np.nan).astype("float32"),
            x=columns,
            y=lanes,
            name=f"{theme.label(panel.axis)}: less than the clocks can tell, {unit}",
            colorscale=[[0, UNRESOLVED], [1, UNRESOLVED]],
            showscale=False,
            ygap=1 if pixels > 9 else 0,
            row=row,
            col=1,
            hovertemplate="%{y}: less than the clocks can tell<extra></extra>",
        )
    fig.add_bar(
        y=lanes,
        x=panel.means / factor,
        orientation="h",
        name=f"{theme.label(panel.axis)}: mean, {unit}",
        showlegend=False,
        row=row,
        col=2,
        hovertemplate=f"%{{y}}: %{{x:.3f}} {unit} on average<extra></extra>",
        marker={
            "color": [UNRESOLVED if vague else LATE if mean > 0 else EARLY for mean, vague in zip(panel.means, panel.vague, strict=True)],
            "line": {"width": 0},
        },
    )
    each = max(1, -(-_NAMED // pixels))
    shown = [i for i in lanes if i % each == 0 or panel.ranks[i] == named]
    shown = [i for i in shown if panel.ranks[i] == named or not any(panel.ranks[j] == named and abs(i - j) < each for j in shown)]
    stands_out = f'<span style="color:{LATE}"><b>▸ %s</b></span>'
    text = [stands_out % words[i] if panel.ranks[i] == named else words[i] for i in shown]
    fig.update_yaxes(tickvals=shown, ticktext=text, range=[len(lanes) - 0.5, -0.5], showgrid=False, tickfont={"size": 12 if pixels > 9 else 10}, row=row, col=1)
    fig.update_yaxes(showgrid=False, row=row, col=2)
    # a lane that has no tick is told by its rank all the same, where it is pointed at and in what is saved
    fig.update_yaxes(labelalias={str(i): word for i, word in enumerate(words)}, row=row)
    marks = _marks(float(np.abs(panel.means).max()))
    means = {"tickvals": [ns / factor for ns, _ in marks], "ticktext": [word for _, word in marks]}
    fig.update_xaxes(**means, zeroline=True, zerolinecolor=theme.GREY, showgrid=True, row=row, col=2)
    step = {"tickvals": [x for x, _ in panel.steps], "ticktext": [w for _, w in panel.steps]} if 0 < len(panel.steps) <= 12 else {"showticklabels": False}
    # where no tick label stands on the axis, plotly.js cannot place a title with a standoff: it logs an error
    below = {"text": "collectives of a group, first to last", "standoff": None}
    fig.update_xaxes(title=below, showgrid=False, range=[-0.5, len(columns) - 0.5], row=row, col=1, **step)
    x, y = f"x{2 * row - 1 if row > 1 else ''}", f"y{2 * row - 1 if row > 1 else ''}"
    for title, x_of in ((_title(panel), x), ("<b>mean</b>", f"x{2 * row}")):
        font = {"size": 12, "color": theme.SOFT}
        fig.add_annotation(text=title, x=0, xref=f"{x_of} domain", xanchor="left", y=1, yref=f"{y} domain", yanchor="bottom", showarrow=False, font=font)
    fig.add_shape(type="rect", xref=f"{x} domain", yref=f"{y} domain", x0=0, x1=1, y0=0, y1=1, fillcolor=ABSENT, line={"width": 0}, layer="below")
    for i in np.flatnonzero(np.diff(panel.groups)) if _divided(panel) else ():
        fig.add_shape(type="line", xref="paper", yref=y, x0=0, x1=1, y0=i + 0.5, y1=i + 0.5, line={"color": theme.INK, "width": 0.8})
    for at, _ in panel.steps[1:] if len(panel.steps) <= 12 else ():
        fig.add_shape(type="line", xref=x, yref=f"{y} domain", x0=at, x1=at, y0=0, y1=1, line={"color": theme.INK, "width": 1, "dash": "dot"})


def _unit(top: float) -> tuple[float, str]:
    """How many ns a unit has, and its name, in which a time reads well.

    >>> _unit(4_000_000.0)
    (1000000.0, 'ms')
    """
    return next(((size, name) for size, name in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")) if top >= size), (1.0, "ns"))


def _marks(top: float) -> list[tuple[float, str]]:
    """Places and words on an axis of times to both sides of 0: a round time that the longest bar reaches, in a unit of its own.

    >>> _marks(270.0)
    [(-200.0, '−200'), (0.0, '0'), (200.0, '200 ns')]
    """
    if top <= 0:
        return [(0.0, "0")]
    power = 10.0 ** np.floor(np.log10(top))
    mark = float(power * max((m for m in (1, 2, 5) if m * power <= top), default=0.5))
    size, unit = _unit(mark)
    return [(-mark, f"−{mark / size:g}"), (0.0, "0"), (mark, f"{mark / size:g} {unit}")]


def _short(ns: float) -> str:
    """A power of ten of ns, without digits that say nothing."""
    return duration(ns).replace(".00 ", " ").replace(".0 ", " ")


def _colours(fig: go.Figure, panels: list[Panel], above: float) -> None:
    """One scale for all panels, compressed towards its ends: z becomes asinh(z / the median), and the ticks say the times."""
    values = np.abs(np.concatenate([p.late[~p.unresolved & ~np.isnan(p.late)] for p in panels]))
    top = float(values.max(initial=0.0)) or 1.0
    unit = max(float(np.median(values[values > 0])) if (values > 0).any() else 1.0, top / 1000)
    for trace in fig.data:
        if trace.type == "heatmap" and trace.coloraxis:
            trace.z = np.arcsinh(trace.z / unit).astype("float32")
    end = float(np.arcsinh(top / unit))
    size = 10 ** np.floor(np.log10(top))
    marks = [float(m) for m in (size, size / 10, size / 100) if np.arcsinh(m / unit) > 0.16 * end]
    marks = [m for i, m in enumerate(marks) if i == 0 or np.arcsinh(marks[i - 1] / unit) - np.arcsinh(m / unit) > 0.2 * end]
    ticks = [*(-m for m in marks), 0.0, *reversed(marks)]
    words = [*(_short(m) + (" early" if i == 0 else "") for i, m in enumerate(marks)), "0", *(_short(m) for m in reversed(marks))]
    words[-1] += " late"
    fig.update_layout(
        coloraxis={
            "colorscale": [[0, EARLY], [0.5, ON_TIME], [1, LATE]],
            "cmin": -end,
            "cmax": end,
            "colorbar": {
                "orientation": "h",
                "x": 1,
                "xanchor": "right",
                "y": above,
                "yanchor": "bottom",
                "len": 0.52,
                "thickness": 10,
                "ypad": 0,
                "outlinewidth": 0,
                "ticklen": 3,
                "tickvals": [float(np.arcsinh(t / unit)) for t in ticks],
                "ticktext": words,
                "tickfont": {"size": 11},
            },
        },
        legend={"y": above, "yanchor": "bottom"},
    )
    keys = [("too little for the clocks to tell", UNRESOLVED, any(p.unresolved.any() for p in panels))]
    keys += [("no such collective", ABSENT, any(np.isnan(p.late).any() for p in panels))]
    for name, colour, there in keys:
        if there:
            fig.add_scatter(x=[None], y=[None], mode="markers", name=name, marker={"symbol": "square", "size": 11, "color": colour}, row=1, col=1)
