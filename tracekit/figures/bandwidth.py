"""How is the bus bandwidth of the collectives drawn? Against the size of the message, one colour per axis and kind, under the links' speed."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tracekit.figures import theme
from tracekit.metrics.base import Result
from tracekit.wording import size

POINTS = 2_000
SIZES = 60
_COLOURS = (theme.BLUE, theme.RED, theme.GREEN, theme.PURPLE, "#B5651D", theme.CYAN, theme.YELLOW, "#555555")
_SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "triangle-down", "star", "x")
_LIGHT, _DARK = 0.35, 0.9


def bus_bandwidth(result: Result, *, steps: Collection[int] | None = None) -> go.Figure | None:
    """Points of the metric ``collectives``, table ``instances``: bytes and GB/s, the median of each size joined by a line.

    A ceiling stands only where a link speed was given (``by_kind``, column ``link_gbps``).
    """
    table = result.tables.get("instances")
    if table is None or not len(table):
        return None
    chosen, other = theme.of_steps(table, steps)
    known = chosen.busbw_gbps.notna() & chosen.nbytes.gt(0).fillna(False)
    if not known.any():
        return None
    points = pd.DataFrame(
        {
            "series": [_series(axis, kind) for axis, kind in zip(chosen.axis[known], chosen.kind[known], strict=True)],
            "nbytes": chosen.nbytes[known].astype("int64").to_numpy(),
            "busbw": chosen.busbw_gbps[known].astype("float64").to_numpy(),
        }
    )
    notes = [f"{len(points):,} collectives", *([other] if other else [])]
    unknown = int((~known & chosen.kind.ne("barrier")).sum())
    if unknown:
        notes.append(f"{unknown:,} more whose size or transfer is unknown are not drawn")
    drawn = points.sort_values(["series", "nbytes", "busbw"], kind="stable", ignore_index=True)
    if len(drawn) > POINTS:
        notes.append(f"{POINTS:,} of them drawn, evenly chosen by size and bandwidth; lines are medians of all")
        drawn = drawn.iloc[np.linspace(0, len(drawn) - 1, POINTS).round().astype(int)]
    links = _links(result.tables.get("by_kind"))
    whole = max([float(points.busbw.max()), *links])
    scale, unit = (1.0, "GB/s") if whole >= 1 else (1e3, "MB/s")
    fig = theme.figure("message size (nccl-tests)", height=400, note="; ".join(notes))
    for i, (name, part) in enumerate(points.groupby("series")):
        _add(fig, str(name), drawn[drawn.series == name], part, scale, unit, i)
    for speed, axes in links.items():
        fig.add_hline(y=speed * scale, line={"color": theme.INK, "width": 1.2, "dash": "dash"})
        fig.add_annotation(
            x=1,
            xref="paper",
            xanchor="right",
            y=speed * scale,
            yanchor="bottom",
            showarrow=False,
            font={"size": 11},
            text=f"{theme.label(', '.join(axes))} links: {speed * scale:,.6g} {unit}, as given",
        )
    ticks = _powers(int(points.nbytes.min()), int(points.nbytes.max()))
    low, high = np.log10(points.nbytes.min()), np.log10(points.nbytes.max())
    pad = max(0.15, 0.04 * (high - low))
    fig.update_xaxes(type="log", tickvals=ticks, ticktext=[size(t) for t in ticks], range=[low - pad, high + pad])
    fig.update_yaxes(title_text=f"bus bandwidth, {unit}", range=[-0.03 * scale * whole, 1.08 * scale * whole])
    return theme.fit_legend(fig)


def _series(axis: object, kind: object) -> str:
    what = str(kind).replace("_", " ") if isinstance(kind, str) else "unknown kind"
    return f"{axis} {what}" if isinstance(axis, str) else what


def _add(fig: go.Figure, name: str, drawn: pd.DataFrame, every: pd.DataFrame, scale: float, unit: str, number: int) -> None:
    colour, symbol = _COLOURS[number % len(_COLOURS)], _SYMBOLS[number % len(_SYMBOLS)]
    hover = f"%{{fullData.name}}<br>%{{x:,}} bytes: %{{y:.4g}} {unit}"
    fig.add_scatter(
        x=drawn.nbytes.to_numpy(),
        y=(drawn.busbw * scale).to_numpy("float32"),
        mode="markers",
        showlegend=False,
        legendgroup=name,
        name=theme.label(name),
        marker={"color": colour, "size": 5, "symbol": symbol, "opacity": _LIGHT},
        hovertemplate=f"{hover}<extra></extra>",
    )
    # of very many sizes those within a quarter of a doubling are one
    size_of = every.nbytes if every.nbytes.nunique() <= SIZES else (2.0 ** ((np.log2(every.nbytes) * 4).round() / 4)).round()
    medians = (every.busbw * scale).groupby(size_of).median()
    fig.add_scatter(
        x=medians.index.to_numpy("int64"),
        y=medians.to_numpy("float32"),
        mode="lines+markers",
        name=theme.label(name),
        legendgroup=name,
        line={"color": colour, "width": 1.5},
        marker={"color": colour, "size": max(6, 11 - 2 * number), "symbol": symbol, "opacity": _DARK, "line": {"width": 1, "color": "white"}},
        hovertemplate=f"{hover}, median<extra></extra>",
    )


def _links(by_kind: pd.DataFrame | None) -> dict[float, list[str]]:
    """Given speed -> the axes that have it."""
    out: dict[float, list[str]] = {}
    if by_kind is None or "link_gbps" not in by_kind:
        return out
    given = by_kind[["axis", "link_gbps"]].dropna(subset=["link_gbps"]).drop_duplicates()
    for axis, speed in zip(given["axis"], given["link_gbps"], strict=True):
        out.setdefault(float(speed), []).append(axis if isinstance(axis, str) else "other")
    return out


def _powers(low: int, high: int) -> list[int]:
    """Powers of two around the sizes, at most ten.

    >>> _powers(1000, 5000)
    [512, 1024, 2048, 4096, 8192]
    """
    first, last = int(np.floor(np.log2(low))), int(np.ceil(np.log2(high)))
    each = max(1, -(-(last - first + 1) // 10))
    return [2**k for k in range(first, last + 1, each)]
