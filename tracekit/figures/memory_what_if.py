"""How is a memory what-if drawn? Per alternative the peak beside the memory there is, and the step with what of it is repeated."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tracekit.figures import theme
from tracekit.metrics.base import Result
from tracekit.wording import sizes

#: A limit of more than so many times the highest peak is only written: its line would flatten every bar.
_FAR = 2


def alternatives(result: Result) -> go.Figure | None:
    """Two bars per alternative of a memory what-if: its peak and its step in ms; the limit is a line, what does not fit is pale."""
    table = result.tables.get("alternatives")
    if table is None or not len(table):
        return None
    limit = result.summary.get("memory_limit_bytes")
    shown = table.head(theme.RANK_LIMIT)
    rows = [theme.label(n) for n in shown["label"]]
    fits = shown["memory_peak_bytes"].le(limit) if limit is not None else pd.Series(True, index=shown.index)
    panels = make_subplots(rows=1, cols=2, shared_yaxes=True, horizontal_spacing=0.04, column_widths=[0.5, 0.5])
    fig = theme.figure("", height=theme.lane_height(len(rows)) + 20, rows=rows, note=_note(table, shown, fits, limit), panels=panels)
    unit, size = theme.bytes_unit(float(shown["memory_peak_bytes"].max()))
    fig.update_xaxes(title_text=f"peak, {size}", rangemode="tozero", col=1)
    fig.update_xaxes(title_text="step, ms", rangemode="tozero", col=2)
    fig.update_yaxes(showticklabels=True, col=1)
    pale = [1.0 if ok else 0.35 for ok in fits]
    kept = shown["memory_peak_bytes"] - shown["activation_peak_bytes"]
    # the most activations may be at another moment than the peak: what stands beside them is what is left of the peak
    for name, values, colour in (
        ("beside activations", kept.clip(lower=0), theme.GREY),
        ("activations", shown["memory_peak_bytes"] - kept.clip(lower=0), theme.MEMORY["activation"]),
    ):
        _bars(fig, rows, values.astype("float64") / unit, name, colour, pale, size, 1)
    again = shown["recompute_ns"].astype("Float64")
    work = (shown["step_ns"].astype("Float64") - again) / 1e6
    for name, values, colour in (("step", work, theme.BLUE), ("repeated forward", again / 1e6, theme.lighter(theme.RED, 0.3))):
        _bars(fig, rows, values, name, colour, pale, "ms", 2)
    fig.update_layout(barmode="stack")
    for row, (_, one) in zip(rows, shown.iterrows(), strict=True):
        if pd.isna(one["step_ns"]):
            _say(fig, row, 0.0, "unknown", 2)
        if pd.notna(one["largest_microbatch"]):
            _say(fig, row, float(one["memory_peak_bytes"]) / unit, f"b ≤ {one['largest_microbatch']}", 1)
    if limit is not None and limit <= _FAR * shown["memory_peak_bytes"].max():
        fig.add_vline(x=limit / unit, line={"color": theme.RED, "width": 1.5, "dash": "dash"}, row=1, col=1)
    return theme.fit_legend(fig)


def _bars(fig: go.Figure, rows: list[str], values: pd.Series, name: str, colour: str, pale: list[float], unit: str, column: int) -> None:
    fig.add_bar(
        y=rows, x=[None if pd.isna(v) else float(v) for v in values], name=name, orientation="h",
        marker={"color": colour, "opacity": pale, "line": {"width": 0.5, "color": "white"}},
        hovertemplate=f"%{{y}}: {name}<br>%{{x:,.4r}} {unit}<extra></extra>", row=1, col=column,
    )  # fmt: skip


def _say(fig: go.Figure, row: str, at: float, text: str, column: int) -> None:
    fig.add_annotation(
        x=at, y=row, text=text, showarrow=False, xanchor="left", xshift=4, font={"size": 11, "color": theme.SOFT}, bgcolor="white",
        borderpad=1, row=1, col=column,
    )  # fmt: skip


def _note(table: pd.DataFrame, shown: pd.DataFrame, fits: pd.Series, limit: int | None) -> str:
    more = f"{len(shown)} of {len(table)} alternatives" if len(shown) < len(table) else ""
    over = int((~fits).sum())
    room = "" if limit is None else f"{sizes(limit)} of memory (dashed): {f'{over} of {len(shown)} need more (pale)' if over else 'enough for all'}"
    return "; ".join(part for part in (more, room) if part)
