"""How much of a step did each rank's device compute, communicate, copy and idle?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit.report.parts import Section, grid
from tracekit.report.rows import mean_rows, of_steps, span_word, steady_steps, table
from tracekit.report.sections.common import section

COLUMNS = ["span_ns", "compute_ns", "comm_ns", "overlap_ns", "exposed_comm_ns", "memcpy_ns", "idle_ns"]


def breakdown(document: Mapping[str, Any]) -> Section:
    """The section of the metric ``breakdown``: one row per rank and device, means over the steady steps."""
    rows = mean_rows(of_steps(table(document, "breakdown", "devices"), steady_steps(document)), ["rank", "device"], COLUMNS)
    if len(rows) > 16:
        rows.sort(key=lambda r: -(r["exposed_comm_ns"] or 0))
    devices = ["device"] if len({r["device"] for r in rows}) > 1 else []
    table_of = grid(f"Per rank, mean {span_word(document)}", rows, ["rank", *devices, *COLUMNS], limit=16, left_out=", the most exposed communication first")
    return section(
        document,
        "breakdown",
        "measured: unions of intervals of each rank's device work; span = compute + exposed communication + exposed copies + idle",
        ("measured",),
        grids=(table_of,),
    )
