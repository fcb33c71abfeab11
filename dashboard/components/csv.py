"""How does a table leave as CSV? In pieces, numbers as they are, and no text that a spreadsheet would take for a formula."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from html import unescape
from typing import Any

import numpy as np
import pandas as pd

from tracekit.cells import safe

#: Rows that are written at once.
CHUNK = 4_000
_AXES = {"x": "x", "y": "y", "base": "from", "z": "z"}


def cell(value: Any) -> Any:
    """A cell; text that could be a formula gets an apostrophe in front, numbers stay, unknown is empty.

    >>> cell("=cmd|' /C calc'!A0"), cell(-3), cell(None), cell("layers.0")
    ("'=cmd|' /C calc'!A0", -3, '', 'layers.0')
    """
    if value is None or value is pd.NA or value is pd.NaT:
        return ""
    if isinstance(value, float) and value != value:
        return ""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, float, np.integer, np.floating)):
        return value.item() if isinstance(value, np.generic) else value
    return safe(str(value))


def rows(header: Iterable[str], body: Iterable[Iterable[Any]]) -> Iterator[str]:
    """CSV text, some thousand rows a piece."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([cell(h) for h in header])
    for number, row in enumerate(body, start=1):
        writer.writerow([cell(v) for v in row])
        if number % CHUNK == 0:
            yield out.getvalue()
            out.seek(0)
            out.truncate()
    yield out.getvalue()


def frame(table: pd.DataFrame) -> Iterator[str]:
    """A whole table as CSV, column names with their units as in the report document."""
    parts = (table.iloc[i : i + CHUNK].astype(object).itertuples(index=False, name=None) for i in range(0, len(table), CHUNK))
    return rows([str(c) for c in table.columns], (row for part in parts for row in part))


def drawn(figure: str) -> Iterator[str]:
    """What a figure draws as CSV: one row per mark, with the series it belongs to, the units of the axes, and what the mark is of.

    Marks of a legend alone and words beside marks are left out; a cell of a heat map is the number that it shows, not its place on the scale.

    Args:
        figure: plotly's JSON.
    """
    loaded = json.loads(figure)
    layout = loaded.get("layout") or {}
    traces = [t for t in loaded.get("data", []) if t.get("mode") != "text" and not _empty(t)]
    used = [a for a in _AXES if any(t.get(a) is not None for t in traces)]
    titles = {a: [_title(layout, t, a, traces) for t in traces] for a in ("x", "y")}
    one = {a: found[0] for a, found in titles.items() if len(set(found)) == 1 and found[0]}
    heads = [_AXES[a] + (f" ({one[a]})" if a in one else "") for a in used]
    own = [[titles[a][i] for a in ("x", "y") if a not in one and titles[a][i]] for i in range(len(traces))]
    return rows(["series", *heads, "of"], (row for t, units in zip(traces, own, strict=True) for row in _marks(t, used, layout, units)))


def _empty(trace: dict[str, Any]) -> bool:
    return trace.get("x") == [None] or trace.get("y") == [None]


def _axis(layout: dict[str, Any], trace: dict[str, Any], axis: str) -> dict[str, Any]:
    """The axis that a trace is drawn on."""
    found: dict[str, Any] = layout.get(f"{axis}axis" + str(trace.get(f"{axis}axis") or axis)[1:]) or {}
    return found


def _title(layout: dict[str, Any], trace: dict[str, Any], axis: str, traces: list[dict[str, Any]]) -> str:
    """What the axis of a trace says; panels side by side say it once, for all that is drawn alike."""
    alike = [trace, *(t for t in traces if t.get("type") == trace.get("type"))]
    found = (_plain((_axis(layout, t, axis).get("title") or {}).get("text") or "") for t in alike)
    return next((str(title) for title in found if title), "")


def _plain(value: Any) -> Any:
    """A name as it was before it was dressed for a figure, which reads a little HTML.

    >>> _plain("<b>a &lt; b</b><br>2")
    'a < b; 2'
    """
    return unescape(re.sub(r"<[^<>]*>", "", value.replace(",<br>", ", ").replace("<br>", "; "))) if isinstance(value, str) else value


def _marks(trace: dict[str, Any], used: list[str], layout: dict[str, Any], units: list[str]) -> Iterator[list[Any]]:
    name = ", ".join([_plain(str(trace.get("name") or trace.get("type") or "")), *units])
    values = {a: array(trace.get(a)) for a in used}
    aliases = {a: _axis(layout, trace, a).get("labelalias") or {} for a in ("x", "y")}

    def cell_of(axis: str, value: Any) -> Any:
        return _plain(aliases.get(axis, {}).get(str(value), value))

    z, held = values.get("z"), array(trace.get("customdata"))
    if z is not None and z.ndim == 2:
        shown = held if held is not None and held.shape == z.shape else z
        x, y = values.get("x"), values.get("y")
        for i in range(z.shape[0]):
            for j in range(z.shape[1]):
                if shown[i, j] != shown[i, j]:
                    continue
                place = {"x": cell_of("x", j if x is None else x[j]), "y": cell_of("y", i if y is None else y[i]), "z": shown[i, j]}
                yield [name, *(place.get(a) for a in used), ""]
        return
    length = max((len(v) for v in values.values() if v is not None and v.ndim), default=0)
    of = held if held is not None and held.ndim == 1 and len(held) == length > 0 and isinstance(held[0], str) else None
    for i in range(length):
        yield [name, *(None if (v := values[a]) is None or i >= len(v) else cell_of(a, v[i]) for a in used), "" if of is None else _plain(of[i])]


def array(value: Any) -> Any:
    """An array as plotly writes it, a list or base64 of typed numbers; None where there is none.

    >>> array([1, 2]).tolist(), array({"dtype": "i1", "bdata": "AQI="}).tolist()
    ([1, 2], [1, 2])
    """
    if value is None:
        return None
    if isinstance(value, dict) and "bdata" in value:
        flat = np.frombuffer(base64.b64decode(value["bdata"]), dtype=np.dtype(value["dtype"]))
        shape = value.get("shape")
        return flat if shape is None else flat.reshape([int(n) for n in str(shape).split(",")])
    if isinstance(value, list):
        return np.array(value, dtype=object) if not (value and isinstance(value[0], list)) else np.array(value)
    return np.array([value], dtype=object)
