"""How is memory drawn? The allocated curve with its peak, what the peak consists of, and the activations by layer."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from tracekit.figures import theme
from tracekit.metrics.base import Result
from tracekit.wording import sizes

#: Phase -> colour of its band; past so many bands or steps none are drawn: they would be noise.
_BANDS = {"forward": theme.BLUE, "backward": theme.GREEN, "optimizer": theme.PURPLE}
_MOST_BANDS, _MOST_STEPS = 80, 12
#: Letters of all names below layers side by side; where they are more their numbers stand there, at so many places at most.
_LETTERS, _MOST_TICKS, _SHORT = 110, 25, 8
#: Pieces into which the activations of a peak are divided at most.
_MOST_PIECES = 32
_PLACE = ("rank", "capture", "device_type", "device")


def curve(result: Result, *, steps: Collection[int] | None = None) -> go.Figure | None:
    """Allocated memory of the fullest device over time, in ms since the curve's start (records, where they have no times), its peak marked."""
    table = result.tables.get("curve")
    peak = _fullest(result)
    if table is None or not len(table) or peak is None:
        return None
    timed = bool(table.ts_ns.notna().all()) and bool(pd.notna(peak["allocated_peak_ts_ns"]))
    line = table[_same(table, peak, *_PLACE)].sort_values("ts_ns" if timed else "record", kind="stable")
    if not len(line):
        return None
    start = line.ts_ns.iloc[0] if timed else 0
    x = (line.ts_ns - start).to_numpy(np.int64) / 1e6 if timed else line.record.to_numpy(np.int64)
    unit = "ms" if timed else ""
    scale, size = theme.bytes_unit(float(peak["allocated_peak_bytes"]))
    both = "reserved_bytes" in line and bool(line.reserved_bytes.notna().any())
    fig = theme.figure("ms since the recording began" if timed else "record (they have no times)", height=340, legend=both)
    fig.add_scatter(
        x=x, y=(line.allocated_bytes / scale).to_numpy(), name="allocated", line={"color": theme.BLUE, "width": 2, "shape": "hv"}, fill="tozeroy",
        fillcolor="rgba(68,119,170,0.12)", customdata=line.phase.astype(object).where(line.phase.notna(), "").to_list() if "phase" in line else None,
        hovertemplate=f"%{{y:,.4r}} {size} at %{{x}} {unit} %{{customdata}}<extra></extra>",
    )  # fmt: skip
    if both:
        fig.add_scatter(
            x=x, y=(line.reserved_bytes.astype("float64") / scale).to_numpy(), name="reserved", line={"color": theme.GREY, "width": 1.5, "shape": "hv"}
        )
    _bands(fig, line, x)
    top = peak["allocated_peak_bytes"] / scale
    at = (peak["allocated_peak_ts_ns"] - start) / 1e6 if timed else int(x[int(line.allocated_bytes.to_numpy(np.int64).argmax())])
    right = at > 0.6 * x[-1]
    text = f"peak {sizes(peak['allocated_peak_bytes'])}, {_name(result, peak)}"
    fig.add_annotation(
        x=at, y=top, text=text, showarrow=True, arrowhead=2, arrowcolor=theme.RED, ax=-40 if right else 40, ay=-26,
        xanchor="right" if right else "left", font={"color": theme.INK, "size": 13},
    )  # fmt: skip
    fig.update_yaxes(title_text=size, range=[0, top * 1.2])
    return fig


def _bands(fig: go.Figure, line: pd.DataFrame, x: npt.NDArray[Any]) -> None:
    """Shade forward, backward and optimizer behind the curve, and mark where steps begin."""
    phase = line.phase.astype(object).where(line.phase.notna(), "").to_numpy(str) if "phase" in line else np.full(len(line), "")
    first = np.flatnonzero(np.append(True, phase[1:] != phase[:-1]))
    last = np.append(first[1:], len(phase) - 1)
    spans = [(phase[a], float(x[a]), float(x[b])) for a, b in zip(first, last, strict=True) if phase[a] in _BANDS and x[b] > x[a]]
    if len(spans) <= _MOST_BANDS:
        for name, start, end in spans:
            fig.add_shape(type="rect", x0=start, x1=end, y0=0, y1=1, yref="paper", fillcolor=_BANDS[name], opacity=0.14, line_width=0, layer="below")
        for name in dict.fromkeys(name for name, *_ in spans):
            marker = {"color": _BANDS[name], "opacity": 0.35, "symbol": "square", "size": 10}
            fig.add_scatter(x=[None], y=[None], mode="markers", name=name, marker=marker)
        fig.update_layout(showlegend=bool(spans) or fig.layout.showlegend)
    step = line.step.to_numpy(np.int64, na_value=-1) if "step" in line else np.full(len(line), -1)
    begins = np.flatnonzero(np.append(False, (step[1:] != step[:-1]) & (step[1:] >= 0)))
    for at in begins if len(begins) <= _MOST_STEPS else []:
        fig.add_vline(x=float(x[at]), line={"color": theme.SOFT, "width": 1, "dash": "dot"})


def in_flight(result: Result, *, steps: Collection[int] | None = None) -> go.Figure | None:
    """Microbatches that each pipeline stage held at its peak (bars, the most of the steps) beside the closed form (marks)."""
    table = result.tables.get("in_flight")
    if table is None or not len(table):
        return None
    rows = table[table["stage"].notna() & table["in_flight_microbatches"].notna()]
    rows, note = theme.of_steps(rows, steps)
    if rows["stage"].nunique() < 2:
        return None
    columns = ["in_flight_microbatches", "in_flight_theory_microbatches", "in_flight_order_microbatches"]
    most = rows.groupby("stage")[columns].max().reset_index().sort_values("stage")
    paper = most["in_flight_theory_microbatches"]
    beside, name = (paper, "closed form") if paper.notna().any() else (most["in_flight_order_microbatches"], "by the order that ran")
    fig = theme.figure("pipeline stage", height=300, note=note)
    stages = [str(s) for s in most["stage"]]
    fig.add_bar(x=stages, y=most["in_flight_microbatches"].astype("float64").to_numpy(), name="measured", marker={"color": theme.YELLOW})
    if beside.notna().any():
        marker = {"symbol": "line-ew-open", "size": 26, "color": theme.INK, "line": {"width": 3}}
        fig.add_scatter(x=stages, y=beside.astype("float64").to_numpy(), mode="markers", name=name, marker=marker)
    fig.update_xaxes(showgrid=False, type="category")
    fig.update_yaxes(title_text="microbatches in flight", rangemode="tozero")
    return fig


def peak_parts(result: Result, *, steps: Collection[int] | None = None) -> go.Figure | None:
    """The peak of each rank, stacked by category, activations layer by layer within it; the categories add up to the peak."""
    table = _whole(result)
    if table is None or not len(table):
        return None
    note = ""
    if len(table) > theme.RANK_LIMIT:
        note = f"{theme.RANK_LIMIT} of {len(table)} ranks: the fullest"
        table = table.nlargest(theme.RANK_LIMIT, "allocated_peak_bytes").sort_values("rank")
    rows = [_name(result, row) for _, row in table.iterrows()]
    unit = theme.bytes_unit(float(table["allocated_peak_bytes"].max()))
    scale, size = unit
    fig = theme.figure(size, height=theme.lane_height(len(rows)), rows=rows, note=note)
    for name, colour in theme.MEMORY.items():
        values = table.get(f"{name}_bytes")
        if name == "temporary" and values is not None and "communication_bytes" in table:
            values = values - table["communication_bytes"].fillna(0)  # drawn apart
        if name == "activation" and values is not None and values.fillna(0).any() and _by_layer(fig, result, table, rows, unit):
            continue
        if values is not None and values.fillna(0).any():
            fig.add_bar(
                y=rows, x=(values.astype("float64") / scale).to_numpy(), name=name.replace("_", " "), orientation="h",
                marker={"color": colour, "line": {"width": 0.5, "color": "white"}},
                hovertemplate=f"%{{y}}: %{{fullData.name}}<br>%{{x:,.4r}} {size}<extra></extra>",
            )  # fmt: skip
    fig.update_layout(barmode="stack")
    return theme.fit_legend(fig)


def _by_layer(fig: go.Figure, result: Result, peaks: pd.DataFrame, names: list[str], unit: tuple[float, str]) -> bool:
    """Draw the activations of each peak as one piece per layer (past ``_MOST_PIECES`` per run of layers); False where no layer is known."""
    layers = result.tables.get("by_layer")
    if layers is None or not len(layers) or layers["layer_index"].notna().sum() == 0:
        return False
    parts = []
    for name, (_, peak) in zip(names, peaks.iterrows(), strict=True):
        same = layers.step.isna() if pd.isna(peak["step"]) else layers.step == peak["step"]
        own = layers[same & _same(layers, peak, *_PLACE)].sort_values("layer_index", na_position="last", kind="stable").reset_index(drop=True)
        if own["activation_bytes"].sum() != peak["activation_bytes"]:
            return False  # the bars must add up to the peak
        known = own["layer_index"].notna()
        run = -(-max(1, int(known.sum())) // _MOST_PIECES)
        piece = np.where(known, np.arange(len(own)) // run, len(own) + np.arange(len(own)))
        sums = own.groupby(piece).agg(first=("layer", "first"), last=("layer", "last"), nbytes=("activation_bytes", "sum"))
        parts.append(sums.assign(row=name, shade=np.arange(len(sums)) % 2))
    drawn = pd.concat(parts)
    words = [_run_of_layers(a, b) for a, b in zip(drawn["first"], drawn["last"], strict=True)]
    colours = np.array([theme.MEMORY["activation"], theme.lighter(theme.MEMORY["activation"], 0.35)])
    fig.add_bar(
        y=drawn["row"].tolist(), x=(drawn["nbytes"].astype("float64") / unit[0]).to_numpy(), name="activation", orientation="h", customdata=words,
        marker={"color": colours[drawn["shade"]].tolist(), "line": {"width": 0.5, "color": "white"}},
        hovertemplate=f"%{{y}}: activation, %{{customdata}}<br>%{{x:,.4r}} {unit[1]}<extra></extra>",
    )  # fmt: skip
    return True


def _run_of_layers(first: Any, last: Any) -> str:
    if not isinstance(first, str):
        return "no layer"
    return theme.label(first) if first == last or not isinstance(last, str) else f"{theme.label(first)} to {theme.label(last)}"


def activations(result: Result, *, steps: Collection[int] | None = None) -> go.Figure | None:
    """Activations alive at the peak of the fullest rank, per layer."""
    table, peak = result.tables.get("by_layer"), _fullest(result)
    if table is None or not len(table) or peak is None:
        return None
    same = table.step.isna() if pd.isna(peak["step"]) else table.step == peak["step"]
    rows = table[same & _same(table, peak, *_PLACE)].sort_values("layer_index")
    if not len(rows):
        return None
    raw = [n if isinstance(n, str) else "no layer" for n in rows.layer]
    names = theme.labels(raw)
    scale, size = theme.bytes_unit(float(rows.activation_bytes.astype("float64").max()))
    stacked = _by_microbatch(result, peak, rows.layer)
    if stacked is not None:
        fig = theme.figure(f"layer ({_name(result, peak)}, at its peak)", height=320)
        for number, microbatch in enumerate(int(str(c)) for c in stacked.columns):
            values = stacked[microbatch]
            word = "no microbatch" if microbatch < 0 else f"microbatch {microbatch}"
            colour = theme.GREY if microbatch < 0 else theme.lighter("#997700", 0.75 * number / max(1, stacked.shape[1] - 1))
            fig.add_bar(
                x=names, y=(values / scale).to_numpy(), name=word, marker={"color": colour, "line": {"width": 0.5, "color": "white"}}, customdata=names,
                hovertemplate=f"%{{customdata}}: %{{fullData.name}}<br>%{{y:,.4r}} {size}<extra></extra>",
            )  # fmt: skip
        fig.update_layout(barmode="stack")
        fig.update_xaxes(showgrid=False, type="category", **_places(names, raw, rows.layer_index))
        fig.update_yaxes(title_text=size)
        return theme.fit_legend(fig)
    fig = theme.figure(f"layer ({_name(result, peak)}, at its peak)", height=300, legend=False)
    fig.add_bar(
        x=names, y=(rows.activation_bytes.astype("float64") / scale).to_numpy(), marker={"color": theme.YELLOW},
        customdata=names, hovertemplate=f"%{{customdata}}: %{{y:,.4r}} {size}<extra></extra>",
    )  # fmt: skip
    fig.update_xaxes(showgrid=False, type="category", **_places(names, raw, rows.layer_index))
    fig.update_yaxes(title_text=size)
    return fig


def _places(names: list[str], raw: list[str], numbers: pd.Series) -> dict[str, Any]:
    """Ticks of layers side by side: their names where there is room, else the numbers of some. Who points at one is told its name by the bar."""
    if sum(map(len, names)) <= _LETTERS:
        return {}
    words = [theme.label(name, _SHORT) if pd.isna(n) else str(int(n)) for name, n in zip(raw, numbers, strict=True)]
    each = -(-len(words) // _MOST_TICKS)
    shown = range(0, len(words), each)
    return {"tickvals": [names[i] for i in shown], "ticktext": [words[i] for i in shown], "tickangle": 0}


def _by_microbatch(result: Result, peak: pd.Series, layers: pd.Series) -> pd.DataFrame | None:
    """Activations at a peak [layer, microbatch], in the order of the layers; None with fewer than 2 microbatches or more than 16."""
    table = result.tables.get("microbatches")
    if table is None or not len(table):
        return None
    same = table.step.isna() if pd.isna(peak["step"]) else table.step == peak["step"]
    rows = table[same & _same(table, peak, *_PLACE)]
    if not 2 <= rows.microbatch.nunique() <= 16:
        return None
    key = rows.layer.astype(object).where(rows.layer.notna(), "")
    wide = rows.assign(layer=key, microbatch=rows.microbatch.fillna(-1).astype("int64")).pivot_table(
        index="layer", columns="microbatch", values="activation_bytes", aggfunc="sum", fill_value=0
    )
    return wide.reindex([n if isinstance(n, str) else "" for n in layers], fill_value=0).astype("float64")


def _whole(result: Result) -> pd.DataFrame | None:
    """One row per rank and device: the peak of the whole trace, or the highest step where no row spans it. Of GPUs, where there are any."""
    table = result.tables.get("peaks")
    if table is None or not len(table):
        return None
    rows = table[table.step.isna()] if table.step.isna().any() else table
    gpu = rows.device_type.eq("gpu") if "device_type" in rows else pd.Series(False, index=rows.index)
    rows = rows[gpu] if gpu.any() else rows
    return rows.sort_values("allocated_peak_bytes", ascending=False).drop_duplicates(["rank", "device"]).sort_values(["rank", "device"])


def _fullest(result: Result) -> pd.Series | None:
    table = _whole(result)
    return None if table is None else table.iloc[int(table.allocated_peak_bytes.astype("float64").to_numpy().argmax())]


def _name(result: Result, row: pd.Series) -> str:
    """``rank 3``, and the GPU where a rank has several."""
    table = _whole(result)
    several = table is not None and table.groupby("rank")["device"].nunique().max() > 1
    return f"rank {row['rank']}, GPU {row['device']}" if several else f"rank {row['rank']}"


def _same(table: pd.DataFrame, row: pd.Series, *columns: str) -> pd.Series:
    """Rows that agree with one row in these columns, as far as both have them."""
    agree = pd.Series(True, index=table.index)
    for column in columns:
        if column in table and column in row:
            agree &= table[column] == row[column]
    return agree
