"""What does an address ask for? Names and values of its query, checked; and addresses made from them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import pandas as pd

from dashboard.reading import View

#: Columns that a page can be narrowed by; each is a name in the query.
ONLY = ("step", "axis", "kind", "direction", "layer")
_LONGEST = 200


def text(value: Any) -> str:
    """A value of the query as text; of a name that stands twice, the first.

    >>> text(["a", "b"]), text(None)
    ('a', '')
    """
    if isinstance(value, (list, tuple)):
        value = value[0] if value else ""
    return str(value or "")[:_LONGEST]


def number(value: Any, otherwise: int | None = None) -> int | None:
    """A whole number of the query; something else where it is none.

    >>> number("3"), number("x"), number(None, 1)
    (3, None, 1)
    """
    given = text(value)
    return int(given) if given.isascii() and given.isdigit() and len(given) < 12 else otherwise


def chosen_steps(view: View, given: Any) -> frozenset[int]:
    """The step that is asked for, where it was recorded; else the steady ones."""
    step = number(given)
    return frozenset({step}) if step is not None and step in view.steps() else view.steady()


def address(path: str, **query: Any) -> str:
    """An address on this server; what is empty is left out.

    >>> address("/runs/a b", step=3, kind=None)
    '/runs/a%20b?step=3'
    """
    kept = {k: str(v) for k, v in query.items() if v not in (None, "")}
    return quote(path) + ("?" + urlencode(kept) if kept else "")


def run_page(run_id: str, page: str = "", **query: Any) -> str:
    """The address of a page of a run."""
    return address(f"/runs/{run_id}" + (f"/{page}" if page else ""), **query)


def narrowed(query: Mapping[str, Any], steps: Collection[int]) -> dict[str, str]:
    """The names of ``ONLY`` that the query gives, in their order; a step that is none of those recorded narrows nothing.

    >>> narrowed({"step": "07", "axis": "tp", "limit": "1GB"}, [6, 7]), narrowed({"step": "8"}, [6, 7])
    ({'step': '7', 'axis': 'tp'}, {})
    """
    step = number(query.get("step"))
    given = {name: text(query.get(name)) for name in ONLY} | {"step": str(step) if step in steps else ""}
    return {name: value for name, value in given.items() if value}


def matching(frame: pd.DataFrame, only: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """Rows that have these values in these columns; a column that the table has not narrows nothing."""
    for column, value in only:
        if column in frame:
            frame = frame[frame[column].astype(object).astype(str) == value]
    return frame
