"""Rows as dicts -> a table of the schema, exactly: a list of whole numbers with None in it would pass through float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from tracekit import schema
from tracekit.numbers import numbers


def table_of(rows: Sequence[Mapping[str, Any]], table: schema.Table) -> pd.DataFrame:
    """A table with exactly the schema's columns; what a row leaves out is null.

    >>> table_of([{"start_ns": 1752867229235059001}, {}], schema.RECORDS)["start_ns"].tolist()
    [1752867229235059001, <NA>]
    """
    columns = {}
    for name, column in table.items():
        values = [row.get(name) for row in rows]
        whole = column.dtype in ("Int64", "int64")
        columns[name] = pd.Series(numbers(values, "Int64") if whole else values, dtype="Int64" if whole else column.dtype)
    return schema.conform(pd.DataFrame(columns), table)
