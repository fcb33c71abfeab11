"""How are columns of events read and written all at once? Small helpers that numpy and pandas have no name for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]
Objects = npt.NDArray[np.object_]


def named(events: pd.DataFrame, test: Callable[[str], bool]) -> Mask:
    """Mask of the events whose name passes a test; the test runs once per distinct name.

    >>> events = pd.DataFrame({"name": pd.Categorical(["aten::mm", "gemm", "aten::mm"])})
    >>> named(events, lambda name: name.startswith("aten::")).tolist()
    [True, False, True]
    """
    return np.asarray(by_name(events, test), bool)


def by_name(events: pd.DataFrame, meaning: Callable[[str], Any]) -> Objects:
    """What each event's name means; the meaning is found once per distinct name, null where an event has no name."""
    categories = events["name"].cat.categories
    values = np.empty(len(categories) + 1, object)
    values[:-1] = [meaning(str(c)) for c in categories]
    values[-1] = None
    out: Objects = values[events["name"].cat.codes.to_numpy()]
    return out


def choose(condition: npt.ArrayLike, then: Any, otherwise: Any) -> Objects:
    """``numpy.where`` over objects, so that None stays None.

    >>> choose([True, False], "forward", None).tolist()
    ['forward', None]
    """
    out: Objects = np.where(condition, np.asarray(then, object), np.asarray(otherwise, object))
    return out


def take(values: Objects, rows: Rows) -> Objects:
    """Values at rows; None where the row is -1.

    >>> take(np.array(["a", "b"], object), np.array([1, -1])).tolist()
    ['b', None]
    """
    return choose(rows >= 0, values[np.maximum(rows, 0)], None) if len(values) else np.full(len(rows), None, object)


def integers(column: pd.Series[Any]) -> Rows:
    """A nullable column as int64, -1 for null; for work inside one function, never to be stored."""
    return np.asarray(column.to_numpy(np.int64, na_value=-1), np.int64)


def nullable(values: Rows) -> pd.arrays.IntegerArray:
    """The way back: -1 becomes null.

    >>> nullable(np.array([3, -1])).isna().tolist()
    [False, True]
    """
    return pd.arrays.IntegerArray(np.asarray(values, np.int64), np.asarray(values) < 0)
