"""How are alternatives to a pipeline drawn? One bar each, time per microbatch, divided into work and bubble; the best first."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from tracekit.figures import theme
from tracekit.metrics.base import Result


def alternatives(result: Result) -> go.Figure | None:
    """Bars of a what-if, table ``alternatives``: step time per microbatch in ms; what does not fit in memory is pale."""
    table = result.tables.get("alternatives")
    possible = None if table is None else table[table["possible"].astype(bool)]
    if possible is None or not len(possible):
        return None
    rows = [_name(row) for _, row in possible.iterrows()]
    per = possible["step_per_microbatch_ns"].astype("float64") / 1e6
    window = possible["window_ns"].astype("float64") / possible["microbatches"].astype("float64") / 1e6
    bubble = window * possible["bubble_ratio"].astype("float64")
    fig = theme.figure("ms per microbatch", height=theme.lane_height(len(rows)) + 20, rows=rows, note=_note(possible))
    pale = [0.35 if fits is False or (fits is not None and not pd.isna(fits) and not fits) else 1.0 for fits in possible["fits"]]
    for name, values, colour in (
        ("work", window - bubble, theme.BLUE),
        ("bubble", bubble, theme.RED),
        ("outside the pipeline's window", (per - window).clip(lower=0), theme.GREY),
    ):
        fig.add_bar(
            y=rows,
            x=values.to_numpy(),
            name=name,
            orientation="h",
            marker={"color": colour, "opacity": pale, "line": {"width": 0.5, "color": "white"}},
            hovertemplate="%{y}: %{fullData.name}<br>%{x:,.4r} ms per microbatch<extra></extra>",
        )
    fig.update_layout(barmode="stack")
    return theme.fit_legend(fig)


def _name(row: pd.Series) -> str:
    return theme.label(f"{row['label']} (as it ran)" if row["as_it_ran"] else str(row["label"]))


def _note(possible: pd.DataFrame) -> str:
    over = int(possible["fits"].eq(False).sum())
    return f"pale: {over} that need more memory than the limit" if over else ""
