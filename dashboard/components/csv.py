"""How does a table leave as CSV? In pieces, numbers as they are, and no text that a spreadsheet would take for a formula."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Iterable, Iterator
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
    """What a figure draws as CSV: one row per mark, with the trace it belongs to.

    Args:
        figure: plotly's JSON.
    """
    traces = json.loads(figure).get("data", [])
    used = [a for a in _AXES if any(t.get(a) is not None for t in traces)]
    return rows(["series", *(_AXES[a] for a in used)], (row for t in traces for row in _marks(t, used)))


def _marks(trace: dict[str, Any], used: list[str]) -> Iterator[list[Any]]:
    name = str(trace.get("name") or trace.get("type") or "")
    values = {a: array(trace.get(a)) for a in used}
    z = values.get("z")
    if z is not None and z.ndim == 2:
        x, y = values.get("x"), values.get("y")
        for i in range(z.shape[0]):
            for j in range(z.shape[1]):
                place = {"x": j if x is None else x[j], "y": i if y is None else y[i], "z": z[i, j]}
                yield [name, *(place.get(a) for a in used)]
        return
    length = max((len(v) for v in values.values() if v is not None and v.ndim), default=0)
    for i in range(length):
        yield [name, *(None if (v := values[a]) is None or i >= len(v) else v[i] for a in used)]


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
