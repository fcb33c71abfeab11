"""What is a table made of? Typed columns with a meaning; frames are made to conform to them."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import pandas as pd


class Column(NamedTuple):
    """One column: pandas dtype, and what it holds (with its unit)."""

    dtype: str
    meaning: str


Table = dict[str, Column]


def empty(table: Table) -> pd.DataFrame:
    """A table without rows, its columns typed."""
    return _empty(tuple((name, column.dtype) for name, column in table.items())).copy(deep=False)


@cache
def _empty(columns: tuple[tuple[str, str], ...]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in columns})


def conform(frame: pd.DataFrame, table: Table) -> pd.DataFrame:
    """The same rows with exactly the table's columns, in its order and types; missing nullable columns become null.

    Raises:
        ValueError: a column that may not be null is missing, or a value does not fit its type.
    """
    have = dict(zip(frame.columns, frame.dtypes, strict=True))
    want = {name: _dtype(column.dtype) for name, column in table.items()}
    if list(have) == list(want) and have == want:
        return frame.copy(deep=False)
    columns = {}
    for name, dtype in want.items():
        if name in have:
            columns[name] = frame[name] if have[name] == dtype else frame[name].astype(dtype)
        elif table[name].dtype in ("int64", "int32", "bool"):
            raise ValueError(f"column {name} is missing")
        else:
            columns[name] = pd.Series(None, index=frame.index, dtype=dtype)
    return pd.DataFrame(columns, index=frame.index)


@cache
def _dtype(name: str) -> Any:
    """A dtype by its name; parsing the name costs more than many a column."""
    return pd.api.types.pandas_dtype(name)


def validate(frame: pd.DataFrame, table: Table) -> None:
    """Check columns and dtypes of a table.

    Raises:
        ValueError: naming the first column that differs.
    """
    if list(frame.columns) != list(table):
        raise ValueError(f"columns are {list(frame.columns)}, want {list(table)}")
    for name, column in table.items():
        if str(frame[name].dtype) not in (column.dtype, "str" if column.dtype == "object" else column.dtype):
            raise ValueError(f"column {name} is {frame[name].dtype}, want {column.dtype}")
