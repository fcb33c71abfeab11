"""What does a null of a table say? ``unknown``, unless its row tells that there is nothing to be known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from tracekit.wording import UNKNOWN

WHOLE, NONE = "whole trace", "none"


@dataclass(frozen=True)
class Rule:
    """Nulls of some columns that have a meaning of their own.

    Attributes:
        tables: ``metric.table`` of each.
        columns: which.
        word: what they say.
        where: frame -> one bool per row: whether a null of that row means this.
    """

    tables: frozenset[str]
    columns: frozenset[str]
    word: str
    where: Callable[[pd.DataFrame], pd.Series[bool]]


RULES = (
    # peaks of steps stand beside those of the recording as a whole
    Rule(frozenset({"memory.peaks", "memory.by_layer"}), frozenset({"step"}), WHOLE, lambda f: f["step"].isna()),
    # an action whose input is made on its own rank receives nothing
    Rule(frozenset({"pipeline.actions"}), frozenset({"transfer_start_ns", "transfer_end_ns"}), NONE, lambda f: ~f["needs_receive"]),
    # the embedding and the head are layers that have no number
    Rule(frozenset({"collectives.instances", "memory.by_layer", "recompute.layers"}), frozenset({"layer_index"}), NONE, lambda f: f["layer"].notna()),
)


def words(table: str, column: str, rows: pd.DataFrame) -> list[str]:
    """What a null of a column says in each of some rows.

    >>> words("memory.peaks", "step", pd.DataFrame({"step": [None, None]}))
    ['whole trace', 'whole trace']
    >>> words("memory.peaks", "input_bytes", pd.DataFrame({"input_bytes": [None]}))
    ['unknown']
    """
    said = pd.Series(UNKNOWN, index=rows.index, dtype=object)
    for rule in RULES:
        if table in rule.tables and column in rule.columns:
            said = said.mask(rule.where(rows), rule.word)
    return list(said)
