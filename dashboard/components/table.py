"""How is a large table shown? A grid that asks the server for the rows in sight; sorting and narrowing happen here, not in the browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dash_ag_grid as dag
import pandas as pd
from dash import dcc, html

from dashboard.components.attributes import data
from dashboard.components.nulls import words
from dashboard.components.query import address, matching, text
from dashboard.reading import View
from tracekit import wording as fmt
from tracekit.analysis import plain

#: Rows that one answer holds at most, whatever the browser asks for.
BLOCK = 200
#: How a column of names is filtered in its header: by words that it holds, one filter a column.
_FILTER = {"filterOptions": ["contains"], "maxNumConditions": 1, "debounceMs": 400, "buttons": ["clear"]}
#: Ends of the names of columns that hold moments, not lengths.
_MOMENTS = ("start_ns", "end_ns", "ts_ns")
_LEFT = frozenset({"rank", "layer", "step", "axis", "kind", "direction", "cause", "group_ranks", "group", "instance", "sublayer", "dtype"})
#: Pixels of a row, and of what stands around the rows: their heads, and the bar of a grid that is wider than its place.
_ROW, _AROUND = 42, 70


def table(
    view: View,
    metric: str,
    name: str,
    title: str,
    columns: Sequence[str],
    only: Mapping[str, str],
    *,
    sort: str = "",
    query: Mapping[str, str] | None = None,
    note: str = "",
    height: int = 430,
) -> html.Div:
    """A table of a metric whose rows are fetched as they come into sight.

    Args:
        view: the run.
        metric: whose table.
        name: which table.
        title: what its rows are.
        columns: first columns, in order; the table's others follow.
        only: (column, value) pairs that rows must have.
        sort: column to sort by where the address says nothing, the largest on top; ``-`` in front: the smallest.
        query: the page's state: ``sort.<table>`` (several columns with commas between them) and ``where.<table>.<column>`` are of this table.
        note: a line under it.
        height: pixels at most.
    """
    frame = view.table(metric, name)
    if frame is None or not len(frame):
        return html.Div()
    kept = [c for c in columns if c in frame] + [str(c) for c in frame if c not in columns]
    kept = [c for c in kept if frame[c].notna().any()]
    chosen = shown(frame, only)
    heads, rows = headers(chosen, kept), len(chosen)
    order, held = sorting((query or {}).get(f"sort.{name}", sort)), {c: w for c, w in holding(query or {}, name).items() if c in kept}
    defs = [
        {
            "field": c,
            "headerName": heads[c],
            "headerTooltip": c,
            **({} if c in _LEFT or is_text(frame[c]) else {"type": "rightAligned"}),
            **({"filter": "agTextColumnFilter", "filterParams": _FILTER, "tooltipField": c, "minWidth": _wide(chosen[c])} if is_text(frame[c]) else {}),
            **({"sort": order[c], "sortIndex": list(order).index(c)} if c in order else {}),
        }
        for c in kept
    ]
    csv = address(f"/api/runs/{view.id}/tables/{metric}/{name}.csv", **only, **{f"where.{name}.{c}": w for c, w in held.items()})
    key = f"{metric}.{name}"
    head = html.Header(
        [
            html.Div([html.H3(title), html.Span(counted(rows, len(frame)), className="where", id={"type": "rows-count", "of": key})], className="title"),
            html.Div([html.A("CSV", href=csv, className="action", download="", **data(rows=key))], className="actions"),
        ]
    )
    if not rows:
        body: list[Any] = [html.P("No row has all of these values. Clear a choice above.", className="nothing")]
    else:
        of = {"run": view.id, "metric": metric, "table": name, "only": dict(only), "columns": kept, "heads": heads, "sort": sort, "every": len(frame)}
        body = [_grid(key, defs, held, rows, height), dcc.Store(id={"type": "rows-of", "of": key}, data=of)]
    return html.Div([head, *body, *([html.P(note, className="note")] if note else [])], className="card table wide", id=f"table-{metric}-{name}")


def _grid(key: str, columns: list[dict[str, Any]], held: Mapping[str, str], rows: int, height: int) -> dag.AgGrid:
    """The grid itself: it asks for rows as they come into sight."""
    return dag.AgGrid(
        id={"type": "rows", "of": key},
        columnDefs=columns,
        filterModel={c: {"filterType": "text", "type": "contains", "filter": w} for c, w in held.items()},
        rowModelType="infinite",
        defaultColDef={"sortable": True, "resizable": True, "minWidth": 108, "cellClassRules": {"unknown": "params.value === 'unknown'"}},
        dashGridOptions={
            "cacheBlockSize": 100,
            "maxBlocksInCache": 20,
            "infiniteInitialRowCount": min(rows, 100),
            "suppressMovableColumns": False,
            "enableCellTextSelection": True,
            "ensureDomOrder": True,
            "tooltipShowDelay": 400,
            "suppressFieldDotNotation": True,
        },
        columnSize="autoSize",
        style={"height": f"{min(height, _AROUND + _ROW * max(rows, 2))}px"},
        dangerously_allow_code=False,
    )


def _wide(column: pd.Series[Any]) -> int:
    """Pixels that the longest name of a column needs, within reason: the grid is as wide as its header before any row is there."""
    names = column.dropna().astype(object).map(str).unique()
    return min(340, max(108, 36 + 7 * max(map(len, names), default=0)))


def counted(rows: int, every: int) -> str:
    """How many rows are shown of how many there are.

    >>> counted(40, 1044)
    '40 of 1,044 rows'
    """
    return fmt.plural(rows, "row") if rows == every else f"{rows:,} of {fmt.plural(every, 'row')}"


def sorting(given: str) -> dict[str, str]:
    """Column -> ``desc`` or ``asc``, the first to sort by first, of how a page writes it.

    >>> sorting("wait_ns,-rank")
    {'wait_ns': 'desc', 'rank': 'asc'}
    """
    return {c.removeprefix("-"): "asc" if c.startswith("-") else "desc" for c in given.split(",") if c.removeprefix("-")}


def holding(query: Mapping[str, Any], table: str) -> dict[str, str]:
    """Column -> words that its rows must hold, as an address writes them.

    >>> holding({"where.instances.kind": "reduce", "step": "3"}, "instances")
    {'kind': 'reduce'}
    """
    start = f"where.{table}."
    return {name.removeprefix(start): text(words) for name, words in query.items() if name.startswith(start) and text(words)}


def with_words(frame: pd.DataFrame, held: Mapping[str, str]) -> pd.DataFrame:
    """Rows whose texts hold these words, capitals or not; a column that is not there, or holds no text, narrows nothing."""
    for column, wanted in held.items():
        if column in frame and is_text(frame[column]):
            frame = frame[frame[column].astype(object).astype(str).str.contains(wanted, case=False, regex=False) & frame[column].notna()]
    return frame


def is_text(column: pd.Series[Any]) -> bool:
    """Whether a column holds names."""
    return column.dtype == object or str(column.dtype) in ("str", "string", "category")


def shown(frame: pd.DataFrame, only: Mapping[str, str]) -> pd.DataFrame:
    """The rows that have these values, as the grid shows them: header and cells are made of this, so they have one unit and one zero.

    Moments are counted from the first of these rows: nobody reads nanoseconds since 1970. The CSV has them as they are.
    """
    frame = matching(frame, only.items())
    moments = [c for c in map(str, frame.columns) if c.endswith(_MOMENTS)]
    known = [frame[c].min() for c in moments if frame[c].notna().any()]
    return frame.assign(**{c: frame[c] - min(known) for c in moments if frame[c].notna().any()}) if known else frame


def headers(frame: pd.DataFrame, columns: Sequence[str]) -> dict[str, str]:
    """Column -> its name with the unit in which ``block`` writes its cells, of the same table."""
    names = {c: fmt.column(c, [_largest(frame[c])])[0] for c in columns}
    return {c: f"{n}, since the first" if c.endswith(_MOMENTS) else n for c, n in names.items()}


def block(
    frame: pd.DataFrame,
    columns: Sequence[str],
    start: int,
    end: int,
    sort: Sequence[Mapping[str, Any]] = (),
    heads: Mapping[str, str] | None = None,
    of: str = "",
) -> list[dict[str, str]]:
    """Rows ``start`` to ``end`` of a table as the grid shows them: cells as text, one unit per column, null reads ``unknown`` or what it is.

    Args:
        frame: all rows that can be scrolled to, as ``shown`` gives them.
        columns: which, in order.
        start: first row.
        end: row after the last; ``BLOCK`` rows at most are given.
        sort: as ag-grid writes it: ``[{"colId": "wait_ns", "sort": "desc"}]``; columns that the table has not are left out.
        heads: the headers that stand over the grid. Where the run has got a newer analysis since, and the header of a column would be
            another by now, its cells say their units themselves.
        of: ``metric.table``, which says what its nulls mean (``dashboard.components.nulls``).
    """
    by = [s for s in sort if s.get("colId") in frame.columns]
    if by:
        frame = frame.sort_values([s["colId"] for s in by], ascending=[s.get("sort") != "desc" for s in by], kind="stable", na_position="last")
    start = max(0, start)
    part = frame.iloc[start : min(end, start + BLOCK)]
    columns = [c for c in columns if c in part]
    now = headers(frame, columns)
    cells = {c: _cells(c, frame[c], part[c], alone=heads is not None and heads.get(c) != now[c]) for c in columns}
    cells = {c: [own if v == fmt.UNKNOWN else v for v, own in zip(vs, words(of, c, part), strict=True)] if fmt.UNKNOWN in vs else vs for c, vs in cells.items()}
    return [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)] if cells else []


def _cells(name: str, column: pd.Series, part: pd.Series, alone: bool) -> list[str]:
    """Some cells of a column: in its unit, or each with a unit of its own."""
    values = [plain(v) for v in part.astype(object)]
    return [fmt.scalar(name, v) for v in values] if alone else fmt.column(name, [_largest(column), *values])[1][1:]


def _largest(values: pd.Series) -> Any:
    """What the unit of a column is chosen by."""
    if values.dtype.kind not in "iufIUF" and not str(values.dtype).lower().startswith(("int", "uint", "float")):
        return None
    known = values.dropna()
    return plain(known.abs().max()) if len(known) else None
