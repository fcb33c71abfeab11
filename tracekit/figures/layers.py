"""How is the cost of each layer's collectives drawn? The same time divided twice: waiting and transfer above, exposed and hidden below."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tracekit.figures import theme
from tracekit.metrics.base import Result
from tracekit.vocabulary import LAYER_INDEX, Direction
from tracekit.wording import duration, span_of_layers

#: Bars that can be told apart at the width of a report: 80 layers forward, backward and recomputed.
LIMIT = 320
#: Pixels of all bars side by side, and those that a digit of a name needs.
_WIDE, _DIGIT = 880, 7
#: Bars that there is always room for: fewer are no wider.
_FEWEST = 12
_DIRECTIONS = [Direction.FORWARD, Direction.BACKWARD, Direction.RECOMPUTE, Direction.PARAMETER, Direction.GRADIENT, Direction.OPTIMIZER]
_UNKNOWN = "unknown"
#: Colour of what compute hides: the less it is seen the better.
HIDDEN = theme.lighter("#B5651D", 0.65)
#: Column -> name, colour; by panel. Each panel adds up to the time of the calls.
_PANELS = (
    (("wait_ns", "waiting for the last rank", theme.RED), ("moving_ns", "transfer", theme.YELLOW), ("unsplit_ns", _UNKNOWN, theme.GREY)),
    (("exposed_ns", "exposed", "#B5651D"), ("hidden_ns", "hidden behind compute", HIDDEN), ("unseen_ns", _UNKNOWN, theme.GREY)),
)
_PARTS = [column for panel in _PANELS for column, _, _ in panel]
#: Directions of the data axes: their buckets are far larger, so they have a scale of their own.
_DATA = frozenset({Direction.PARAMETER, Direction.GRADIENT, Direction.OPTIMIZER})
NO_LAYER = "no layer"


class Block(NamedTuple):
    """The bars of one direction: its name, x of its first and last edge."""

    direction: str
    first: float
    last: float


class Column(NamedTuple):
    """Bars that share a scale: ``costs`` with their place ``x``, their blocks, and the width of all."""

    costs: pd.DataFrame
    blocks: list[Block]
    width: float


def layer_cost(result: Result, *, steps: Collection[int] | None = None) -> go.Figure | None:
    """Bars of the metric ``collectives``, table ``by_layer``: ms of all ranks added, per step where the table tells.

    Sublayers (``layers.3.attention``) are summed into their layer. Collectives of no layer are named in the note, and drawn where
    there are no others. Both panels add up to the time of the calls.
    """
    table = result.tables.get("by_layer")
    if table is None or not len(table):
        return None
    costs, per_step = layer_costs(table, steps)
    costs, notes = _drawn(costs)
    data = costs["direction"].isin(list(_DATA))
    columns = [_column(part) for part in (costs[~data], costs[data]) if len(part)]
    widths = [max(column.width, 0.16 * sum(c.width for c in columns)) for column in columns]
    axes = make_subplots(rows=2, cols=len(columns), shared_xaxes=True, vertical_spacing=0.17, horizontal_spacing=0.06, column_widths=widths)
    fig = theme.figure("", height=480, note="; ".join(notes), panels=axes)
    for at, column in enumerate(columns, start=1):
        for row, panel in enumerate(_PANELS, start=1):
            _bars(fig, column.costs, row, at, [part for part in panel if costs[part[0]].notna().any() or part[1] != _UNKNOWN])
    _dress(fig, columns, widths, "ms per step" if per_step else "ms, all steps", bool(notes))
    return fig


def layer_costs(table: pd.DataFrame, steps: Collection[int] | None = None) -> tuple[pd.DataFrame, bool]:
    """Frame of one row per (direction, layer): name, short, count, duration_ns and its parts; and whether they are per step.

    Every time adds all ranks. duration = wait + moving + unsplit = exposed + hidden + unseen, where unsplit and unseen are the calls
    of which the split is unknown; a part of which nothing is known is null.
    """
    chosen = table[table.step.isin(list(steps))] if steps is not None and "step" in table else table.iloc[:0]
    per_step = len(chosen) > 0
    if not per_step:
        chosen = table[table.step.isna()] if table.step.isna().any() else table
    index = chosen.layer_index.astype("Int64") if "layer_index" in chosen else pd.Series(pd.NA, index=chosen.index, dtype="Int64")
    own = chosen.layer.astype(object).where(chosen.layer.notna(), NO_LAYER).astype(str)
    name = own.where(index.isna(), own.str.extract(r"^(.*?\d+)(?:\.|$)", expand=False).fillna(own))
    if "layer_last" in chosen:
        spans = pd.Series([span_of_layers(one, to) for one, to in zip(own, chosen.layer_last, strict=True)], index=chosen.index)
        name = name.where(chosen.layer_last.isna(), spans)
    whole = chosen.duration_ns.astype("Float64")
    wait, exposed = (chosen[c].astype("Float64") for c in ("wait_ns", "exposed_ns"))
    split, seen = (wait.le(whole) & chosen.transfer_ns.notna()).fillna(False).astype(bool), exposed.le(whole).fillna(False).astype(bool)
    direction = chosen.direction.astype(object).where(chosen.direction.notna(), "unknown").astype(str)
    order = {str(d): i for i, d in enumerate(_DIRECTIONS)}
    parts = pd.DataFrame(
        {
            "wait_ns": wait.where(split), "moving_ns": (whole - wait).where(split), "unsplit_ns": whole.where(~split),
            "exposed_ns": exposed.where(seen), "hidden_ns": (whole - exposed).where(seen), "unseen_ns": whole.where(~seen),
            "duration_ns": whole, "count": chosen["count"].astype("Float64"), "name": name, "direction": direction,
            "_d": direction.map(order).fillna(len(order)), "_i": index.astype("Float64").fillna(np.inf),
        }
    )  # fmt: skip
    sums = parts.groupby(["_d", "_i", "name", "direction"])[["count", "duration_ns", *_PARTS]].sum(min_count=1)
    divided = sums / (len(set(chosen.step)) if per_step else 1)
    return divided.reset_index().rename(columns={"_i": "number"}).drop(columns="_d"), per_step


def _drawn(costs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The bars, and what is to be said of them."""
    notes = []
    outside = costs["name"].eq(NO_LAYER)
    if outside.any() and not outside.all():
        rest = costs[outside]
        notes.append("of no layer: " + ", ".join(f"{d} {duration(float(ns))}" for d, ns in zip(rest["direction"], rest["duration_ns"], strict=True)))
        costs = costs[~outside]
    costs = costs.assign(tick=[_short(name, number) for name, number in zip(costs["name"], costs["number"], strict=True)])
    if len(costs) > LIMIT:
        each = -(-len(costs) // LIMIT)
        notes.append(f"a bar adds {each} neighbouring layers: there are {len(costs):,} layers and directions")
        costs = _joined(costs, each)
    unknown = int((costs["unsplit_ns"].notna() | costs["unseen_ns"].notna()).sum())
    if unknown:
        notes.append(f"grey: the split is unknown, in {unknown} of {len(costs)} bars")
    return costs, notes


def _joined(costs: pd.DataFrame, each: int) -> pd.DataFrame:
    """Bars of so many neighbours of one direction added, in their order; what is unknown of all of them stays so."""
    place = costs.groupby("direction", sort=False).cumcount() // each
    by = costs.assign(_p=place, _d=pd.factorize(costs["direction"])[0]).groupby(["_d", "_p"], sort=True)
    sums = by[["count", "duration_ns", *_PARTS]].sum(min_count=1)
    ends = by.agg(direction=("direction", "first"), number=("number", "first"), name=("name", "first"), last=("name", "last"), tick=("tick", "first"))
    # a bucket's own name is a span already
    first, last = ends["name"].str.split(" … ").str[0], ends["last"].str.split(" … ").str[-1]
    names = [str(span_of_layers(one, to)) for one, to in zip(first, last, strict=True)]
    return pd.concat([ends.assign(name=names).drop(columns="last"), sums], axis=1).reset_index(drop=True)


def _column(costs: pd.DataFrame) -> Column:
    """The bars side by side, by direction; a block is wide enough for its name."""
    costs = costs.reset_index(drop=True)
    place, blocks, at = np.zeros(len(costs)), [], 0.0
    for direction, rows in costs.groupby("direction", sort=False).indices.items():
        width = max(float(len(rows)), 0.1 * len(costs))
        place[rows] = at + (width - len(rows)) / 2 + np.arange(len(rows)) + 0.5
        blocks.append(Block(str(direction), at, at + width))
        at += width + max(0.6, 0.02 * len(costs))
    return Column(costs.assign(x=place), blocks, blocks[-1].last)


def _bars(fig: go.Figure, costs: pd.DataFrame, row: int, column: int, panel: list[tuple[str, str, str]]) -> None:
    names = [f"{theme.label(name)}, {direction}" for name, direction in zip(costs["name"], costs["direction"], strict=True)]
    for part, words, colour in panel:
        fig.add_bar(
            x=costs["x"].to_numpy(),
            y=(costs[part] / 1e6).to_numpy("float64", na_value=np.nan),
            name=words,
            legend="legend" if row == 1 else "legend2",
            showlegend=column == 1,
            marker={"color": colour, "line": {"width": 0}},
            customdata=names,
            hovertemplate="%{customdata}<br>%{fullData.name}: %{y:,.4r} ms<extra></extra>",
            row=row,
            col=column,
        )


def _dress(fig: go.Figure, columns: list[Column], widths: list[float], unit: str, note: bool) -> None:
    """Axes, names of the directions, legends."""
    pixels = [_WIDE * width / sum(widths) for width in widths]
    ranges = [max(_FEWEST * width / sum(widths), column.width + 0.4) for column, width in zip(columns, widths, strict=True)]
    ticks = [_ticks(column.costs, size / span) for column, size, span in zip(columns, pixels, ranges, strict=True)]
    slant = any(angled for _, _, angled in ticks)
    bottom = (74 if slant else 40) + (24 if note else 0)
    few = sum(len(column.costs) for column in columns) < 100
    fig.update_layout(barmode="stack", bargap=0.18 if few else 0.06, margin={"t": 66, "b": bottom})
    inside = fig.layout.height - 66 - bottom
    for row, name in ((1, "legend"), (2, "legend2")):
        top = fig.layout["yaxis" if row == 1 else f"yaxis{len(columns) + 1}"].domain[1]
        fig.update_layout({name: {**fig.layout.legend.to_plotly_json(), "y": top + (22 if row == 1 else 2) / inside}})
        fig.update_yaxes(rangemode="tozero", row=row)
        fig.update_yaxes(title_text=f"{unit},<br>all ranks added", row=row, col=1)
    for at, (column, span, (places, words, angled)) in enumerate(zip(columns, ranges, ticks, strict=True), start=1):
        spare = (span - column.width) / 2
        fig.update_xaxes(showgrid=False, tickvals=places, ticktext=words, tickangle=-60 if angled else 0, range=[-spare, column.width + spare], col=at)
        for block in column.blocks:
            _frame(fig, block, at, len(columns))
    if note:
        fig.layout.annotations[0].yshift = -(bottom - 24)


def _frame(fig: go.Figure, block: Block, at: int, columns: int) -> None:
    """Name of a direction above its bars, and a line beneath them in both panels."""
    for number in (at, at + columns):
        x, y = f"x{number if number > 1 else ''}", f"y{number if number > 1 else ''}"
        fig.add_shape(type="line", x0=block.first, x1=block.last, xref=x, y0=0, y1=0, yref=f"{y} domain", line={"color": theme.GREY, "width": 1})
        if number == at:
            middle = (block.first + block.last) / 2
            fig.add_annotation(text=f"<b>{block.direction}</b>", x=middle, xref=x, y=1, yref=f"{y} domain", yanchor="bottom", showarrow=False, font_size=12)


def _ticks(costs: pd.DataFrame, pixels: float) -> tuple[list[float], list[str], bool]:
    """Places and words on the x axis, as many as have room at so many pixels per bar, and whether they are slanted; names go before numbers."""
    words = costs["tick"].tolist()
    slant = max(map(len, words)) * _DIGIT > pixels and max(map(len, words)) > 4
    each = next((step for step in (1, 2, 5, 10, 20, 50) if 30 / pixels <= step), 100)
    taken: list[tuple[float, float, str]] = []
    for first in (False, True):
        for x, word in zip(costs["x"], words, strict=True):
            if word.isdigit() != first or (first and int(word) % each):
                continue
            half = (7 if slant else len(word) * _DIGIT / 2 + 3) / pixels
            if all(abs(x - other) >= half + width for other, width, _ in taken):
                taken.append((float(x), half, word))
    taken.sort()
    return [x for x, _, _ in taken], [word for _, _, word in taken], slant


def _short(name: str, number: float) -> str:
    """A layer as it is written on the axis: its number where it has one, first and last number of a bucket, else its name.

    >>> _short("layers.3", 3.0), _short("layers.0 … layers.9", 0.0), _short("head", float("inf"))
    ('3', '0…9', 'head')
    """
    if np.isfinite(number) and "…" not in name:
        return str(int(number))
    ends = [LAYER_INDEX.search(end.strip()) for end in name.split("…")]
    return "…".join(end["index"] for end in ends if end) if len(ends) > 1 and all(ends) else theme.label(name)
