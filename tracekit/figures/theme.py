"""Which colours, fonts and margins do all figures share?

The palette is Paul Tol's *bright* scheme (SRON/EPS/TN/09-002), made for colour-blind readers and for print: time that
is work is blue or green, time that is lost is warm, time in which nothing happened is grey.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable

import pandas as pd
import plotly.graph_objects as go

from tracekit.wording import clean

BLUE, CYAN, GREEN, YELLOW, RED, PURPLE, GREY = "#4477AA", "#66CCEE", "#228833", "#CCBB44", "#EE6677", "#AA3377", "#BBBBBB"
INK, SOFT, FAINT = "#1F2933", "#52606D", "#E4E7EB"

#: Word in the name of a part of the step -> colour; the first that matches counts.
PARTS: tuple[tuple[str, str], ...] = (
    ("recomput", PURPLE),
    ("bubble", "#D9A0A6"),
    ("input data", "#997700"),
    ("launch gaps", "#999933"),
    ("inefficiency", "#9DB8D2"),
    ("waiting in", RED),
    ("moving bytes", YELLOW),
    ("exposed copies", CYAN),
    ("exposed", "#DDAA77"),
    ("forward", BLUE),
    ("backward", GREEN),
    ("optimizer", "#88CCAA"),
    ("compute", "#88AACC"),
    ("graphs", "#77AADD"),
    ("idle", GREY),
)
#: Mesh axis -> how much white is mixed into the colour of its communication.
_LIGHTER = {"tp": 0.0, "cp": 0.15, "ep": 0.25, "pp": 0.3, "dp": 0.45}
ACTIONS = {"F": BLUE, "B": GREEN, "I": "#77B36B", "W": YELLOW}
ACTION_WORDS = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
MEMORY = {
    "parameter": BLUE, "gradient": CYAN, "optimizer_state": GREEN, "activation": YELLOW, "input": "#DDAA77", "communication": PURPLE,
    "temporary": RED, "unknown": GREY,
}  # fmt: skip
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

#: Figures show at most so many ranks; past it the ones that matter are chosen, and the figure says so.
RANK_LIMIT = 24


def part_colour(name: str) -> str:
    """Colour of a part of the step, by the words in its name; communication is lighter from axis to axis."""
    colour = next((colour for word, colour in PARTS if word in name), "#777777")
    axis = re.search(r" in (\w+) communication$|^exposed (\w+) communication$", name)
    return colour if axis is None else lighter(colour, _LIGHTER.get((axis[1] or axis[2]).removesuffix("_replicate").removesuffix("_shard"), 0.6))


def lighter(colour: str, share: float) -> str:
    """A colour mixed with white.

    >>> lighter("#000000", 0.5)
    '#808080'
    """
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(c + (255 - c) * share):02X}" for c in parts)


def part_marker(name: str) -> dict[str, object]:
    """Marker of a part's bar: its colour, and hatching where nothing was done (bubble), for print and the colour-blind."""
    hatch = {"shape": "/" if "bubble" in name else "", "fillmode": "overlay", "fgcolor": "white", "size": 6, "solidity": 0.25}
    return {"color": part_colour(name), "line": {"width": 0.5, "color": "white"}, "pattern": hatch}


def label(text: object, limit: int = 60) -> str:
    """A name from a trace for use in a figure: plotly reads a little HTML, so it is escaped; a long one is cut in its middle."""
    return html.escape(_cut(str(text), limit), quote=False)


def words(text: object, limit: int = 160) -> str:
    """A sentence for use in a figure, escaped as names are; a long one is cut at its end."""
    return html.escape(clean(text, limit), quote=False)


def of_steps(table: pd.DataFrame, steps: Collection[int] | None) -> tuple[pd.DataFrame, str]:
    """The rows of the chosen steps; all of them where none is chosen or no row is of a step, and with a note where the chosen ones have none."""
    if not steps or table["step"].isna().all():
        return table, ""
    mine = table["step"].isin(list(steps))
    return (table[mine], "") if mine.any() else (table, "of other steps: there are none in those asked for")


def _cut(text: str, limit: int) -> str:
    line = clean(text, len(text) + 1)
    return line if len(line) <= limit else f"{line[: limit // 4]}…{line[-(limit - limit // 4 - 1) :]}"


def labels(names: Iterable[object], limit: int = 60) -> list[str]:
    """Names from a trace as the places of an axis: each in so many letters, and as different as they were.

    Long ones are cut in their middle, for it is the ends that tell layers apart; marks at one place would be added up.

    >>> labels(["layers.0", "a.b.c.d.layers.0", "a.b.c.d.layers.1", "layers.0"], 12)
    ['layers.0', 'a.b…layers.0', 'a.b…layers.1', 'layers.0']
    """
    made: dict[str, str] = {}
    taken: set[str] = set()
    words = [str(name) for name in names]
    for name in words:
        if name not in made:
            cut, number = _cut(name, limit), 1
            while (one := cut if number == 1 else f"{cut} ({number})") in taken:
                number += 1
            taken.add(one)
            made[name] = html.escape(one, quote=False)
    return [made[name] for name in words]


def figure(x_title: str, *, height: int, rows: list[str] | None = None, note: str = "", legend: bool = True, panels: go.Figure | None = None) -> go.Figure:
    """An empty figure in the house style.

    Args:
        x_title: name of the x axis with its unit.
        height: pixels of the drawing, legend and axis included.
        rows: names of horizontal lanes, first on top; None for a numeric y axis.
        note: a line under the axis, for what was left out.
        legend: whether to show one, above the drawing.
        panels: the axes of several panels (``make_subplots``), which are dressed; None for one panel.
    """
    title = {"font": {"size": 12, "color": SOFT}}
    axis = {"gridcolor": FAINT, "zeroline": False, "automargin": True}
    x_axis = {**axis, "title": {**title, "text": x_title, "standoff": 8}}
    y_axis = {**axis, "title": {**title, "standoff": 8}, "ticklabelstandoff": 6}
    if rows is not None:
        y_axis |= {"type": "category", "categoryorder": "array", "categoryarray": list(reversed(rows)), "showgrid": False}
    below = {"x": 0, "y": 0, "xref": "paper", "yref": "paper", "yshift": -48, "xanchor": "left", "yanchor": "top", "showarrow": False}
    layout = {
        "template": "none",
        "height": height + (22 if note else 0),
        "margin": {"l": 8, "r": 16, "t": 44 if legend else 14, "b": 48 + (22 if note else 0)},
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "hoverlabel": {"bgcolor": "white", "font": {"color": INK}, "bordercolor": GREY},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0, "xanchor": "left", "traceorder": "normal", "font": {"size": 12}, "maxheight": 1},
        "showlegend": legend,
        "bargap": 0.28,
    }
    notes = [{**below, "text": note, "font": {"size": 11, "color": SOFT}}] if note else []
    if panels is None:  # stated at once: to update a figure takes ten times as long
        return go.Figure(layout={**layout, "xaxis": x_axis, "yaxis": y_axis, **({"annotations": notes} if notes else {})})
    panels.update_layout(layout).update_xaxes(x_axis).update_yaxes(y_axis)
    for one in notes:
        panels.add_annotation(one)
    return panels


def bytes_unit(largest: float) -> tuple[float, str]:
    """Bytes of a unit and its name, in which the largest of some sizes reads well; MiB at least where nothing is known.

    >>> bytes_unit(8.7 * 2**30), bytes_unit(3 * 2**20), bytes_unit(0)
    ((1073741824.0, 'GiB'), (1048576.0, 'MiB'), (1048576.0, 'MiB'))
    """
    units = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))
    return next((unit for unit in units if largest >= unit[0]), units[2] if not largest > 0 else (1.0, "B"))


def lane_height(lanes: int) -> int:
    """Pixels for a figure of that many horizontal lanes."""
    return 120 + (34 if lanes <= 12 else 22) * lanes


def fit_legend(fig: go.Figure, width: int = 900) -> go.Figure:
    """The same figure, higher by the lines its legend needs at that width: plotly sets entries in columns of equal width, beside the names of rows."""
    entries = [len(trace.name or "") for trace in fig.data if trace.showlegend is not False]
    if entries:
        beside = 7 * max((len(str(row)) for row in fig.layout.yaxis.categoryarray or ()), default=0)
        columns = max(1, int((width - beside) // int(6.6 * max(entries) + 46)))
        fig.update_layout(height=fig.layout.height + 19 * (-(-len(entries) // columns) - 1))
    return fig
