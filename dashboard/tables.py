"""Which tables are too large for a document, and what is lost without them? One list, with the reason for each; nothing else is ever cut.

A job of a thousand ranks has millions of rows in some tables. What a document is made for adds up or picks rows of tables, so a
table that somebody adds up is never cut: half of it would be another number under the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pandas as pd

from tracekit.analysis import plain, records
from tracekit.metrics import Result
from tracekit.report.sections import SECTIONS
from tracekit.report.sections.memory import fullest
from tracekit.wording import label

Key = tuple[str, str]

#: Rows that a document holds of a table that is only listed, its first rows at that (the plain section shows twelve).
MOST_ROWS = 20_000
_LONGEST = 64
#: Tables that no sentence and no section reads: figures, the timeline and grids of their own do, straight from the analysis.
LEFT_OUT: Mapping[Key, str] = {
    ("collectives", "by_rank"): "each collective on each rank; the figure of late arrivals and the timeline read it",
    ("collectives", "p2p"): "each send and receive; it has a grid of its own, and comparisons count it",
    ("memory", "microbatches"): "each layer and microbatch at each peak; the figure of the activations reads it",
    ("memory", "curve"): "every change of memory; the figure of the curve reads it",
    ("pipeline", "actions"): "each action; the figure of the schedule reads it, and it has a grid of its own",
    ("pipeline", "ideal_actions"): "each action on paper; the figure of the schedule reads it",
}


def _of_fullest(table: pd.DataFrame, result: Result) -> pd.DataFrame:
    """Rows of the device with the highest peak, of which a section tells what was alive, and one of each rule, which its words depend on."""
    peaks = result.tables.get("peaks")
    most = None if peaks is None else fullest({"metrics": {"memory": {"available": True, "tables": {"peaks": records(peaks)}}}})
    if most is None or not len(table):
        return table
    same = pd.Series(True, index=table.index)
    for column in ("rank", "device_type", "device", "step"):
        if column in table and column in most:
            same &= table[column].isna() if most[column] is None else table[column].eq(most[column]).fillna(False).astype(bool)
    told = ~table["rule"].duplicated() if "rule" in table else False
    return table[same | told]


#: Tables of which a page's sections need a little: that little.
BRIEF: Mapping[Key, Callable[[pd.DataFrame, Result], pd.DataFrame]] = {
    # where layers come from, for the tags of the section; the grid has every row
    ("collectives", "instances"): lambda t, _: t[["layer_source"]].drop_duplicates() if "layer_source" in t else t.iloc[:0],
    # the section shows the ten longest waits
    ("straggler", "instances"): lambda t, _: t.nlargest(_LONGEST, "caused_wait_ns"),
    ("memory", "owners"): _of_fullest,
}
#: Tables that comparisons do not read either; they count sends, and take the cost of layers from single collectives.
NOT_COMPARED: Collection[Key] = frozenset(LEFT_OUT) - {("collectives", "p2p")}
#: Tables that the sentence and the key numbers of a run read; of all others they need no more than the summary beside them.
SAID: Collection[Key] = frozenset({("budget", "ranks"), ("budget", "account"), ("breakdown", "devices"), ("step_time", "steps"), ("memory", "peaks")})


def on_page(metric: str, result: Result) -> dict[str, pd.DataFrame]:
    """What a page's document holds of each table of a metric; all of it where a section of the metric's own adds it up."""
    return {name: _some(metric, name, result) for name in result.tables}


def _some(metric: str, name: str, result: Result) -> pd.DataFrame:
    if (metric, name) in LEFT_OUT:
        return pd.DataFrame()  # it is not even read
    frame, brief = result.tables[name], BRIEF.get((metric, name))
    if brief is not None and len(frame):
        return brief(frame, result)
    return frame if metric in SECTIONS else frame.head(MOST_ROWS)


def cut(metric: str, result: Result) -> list[str]:
    """Sentences on the tables of which a page's document holds the first rows only."""
    if metric == "straggler":
        limits = {"instances": _LONGEST}
    else:
        limits = {} if metric in SECTIONS else {name: MOST_ROWS for name in result.tables if (metric, name) not in LEFT_OUT}
    found = {name: (len(result.tables[name]), most) for name, most in limits.items() if name in result.tables and len(result.tables[name]) > most}
    return [f"Of the {rows:,} rows of {label(name)} {most:,} are counted here; the report of tracekit analyze has all." for name, (rows, most) in found.items()]


def entry(result: Result, tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """A metric as the report document has it, with these tables."""
    return {
        "available": result.available,
        "reason": result.reason,
        "notes": list(result.notes),
        "summary": plain(dict(result.summary)),
        "tables": {name: records(frame) for name, frame in tables.items()},
    }


def said(metric: str, result: Result) -> dict[str, Any]:
    """A metric as the sentence and the key numbers of a run need it."""
    return entry(result, {name: result.tables[name] for name in result.tables if (metric, name) in SAID})


def without(metric: str, result: Result, left_out: Collection[Key]) -> dict[str, Any]:
    """A metric as the report document has it, without some tables."""
    return entry(result, {name: result.tables[name] for name in result.tables if (metric, name) not in left_out})
