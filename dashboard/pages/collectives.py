"""What do the collectives cost, which rank do they wait for, and which ones were they?"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from dash import html

from dashboard.components.controls import bar, choice, step_choice
from dashboard.components.guard import Query, run_page
from dashboard.components.query import narrowed, text
from dashboard.components.section import section
from dashboard.components.table import table
from dashboard.reading import View

_COLUMNS = [
    "step", "kind", "axis", "layer", "direction", "microbatch", "nbytes", "wait_max_ns", "transfer_ns", "exposed_max_ns", "busbw_gbps", "group_ranks", "seq",
]  # fmt: skip
_SENDS = ["step", "src", "dst", "order", "nbytes", "direction", "microbatch", "transfer_ns", "send_wait_ns", "recv_wait_ns"]
_CHOICES = {"axis": ("Axis", "every axis"), "kind": ("Kind", "every kind"), "layer": ("Layer", "every layer"), "direction": ("Direction", "every direction")}


def draw(view: View, query: Query) -> html.Div:
    """The collectives of a run."""
    only = narrowed(query, view.steps())
    found = view.table("collectives", "instances")
    controls = step_choice(view.steps(), view.steady(), text(query.get("step")))
    if found is not None and len(found):
        controls += [choice(c, *_words(c, values(found, c), only.get(c, ""))) for c in _CHOICES if values(found, c)]
    tables = [
        table(view, "collectives", "instances", "Every collective", _COLUMNS, only, sort="wait_max_ns", query=query),
        table(view, "collectives", "p2p", "Every send and receive", _SENDS, {k: v for k, v in only.items() if k in ("step", "direction", "axis")}, query=query),
    ]
    step = {k: v for k, v in only.items() if k == "step"}
    parts = [section(view, "collectives", "collectives", only, tables=tables, level=1, controls=bar(controls)), section(view, "straggler", "collectives", step)]
    available = view.available()
    parts += [
        section(view, m, "collectives", step, brief=True) for m in ("clock", "bandwidth", "flight_recorder", "records", "links", "operators") if m in available
    ]
    return html.Div(parts, className="page")


def values(frame: pd.DataFrame, column: str) -> list[str]:
    """What a column can be narrowed to, in the order of a model's layers where it names them."""
    if column not in frame:
        return []
    by = [c for c in ("layer_index", column) if c in frame] if column == "layer" else [column]
    seen = frame[by].dropna(subset=[column]).drop_duplicates(column)
    return [str(v) for v in seen.sort_values(by, na_position="last")[column]]


def _words(column: str, known: Sequence[str], chosen: str) -> tuple[str, Sequence[str], str, str]:
    label, everything = _CHOICES[column]
    return label, known, chosen, everything


layout = run_page(draw)
