"""What does the JSON report of nccl-tests hold? The same tables as its output (``-J``; NVIDIA/nccl-tests, src/util.cu).

The environment that it lists is not looked at.
"""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from tracekit.errors import InputError
from tracekit.readers.nccl_lines import microseconds, number, part, text, whole
from tracekit.readers.nccl_tables import TESTS, Cell, Table

_MARKS = (b'"args":', b'"start_time":', b'"nccl_version":')


def is_report(head: bytes) -> bool:
    """Whether it begins as a report does."""
    return head.lstrip().startswith(b"{") and all(mark in head for mark in _MARKS)


def report_table(data: bytes, path: Path) -> Table:
    """The table of a report.

    Raises:
        InputError: it is no whole JSON document.
    """
    try:
        decoded = msgspec.json.Decoder(float_hook=Decimal).decode(data)
    except (msgspec.DecodeError, ArithmeticError, RecursionError, UnicodeDecodeError) as error:
        raise InputError("a report of nccl-tests that is cut off or damaged; let the test run to its end", path) from error
    report = decoded if isinstance(decoded, dict) else {}
    words = [word for arg in _list(report, "args")[:1] if (word := text(arg)) is not None]
    named = next((m[1] for word in words if (m := re.search(r"(\w+)_perf$", word)) is not None and m[1] in TESTS), None)
    ranks = [whole(device.get("rank")) for device in _list(part(report, "config"), "devices") if isinstance(device, dict)]
    results = [r for r in _list(report, "results") if isinstance(r, dict)]
    cpu = any("cpu_time" in part(r, half) for r in results for half in ("out_of_place", "in_place"))
    columns = [(name, 0) for name in ("size", "count", "type", "redop", "root", "cputime" if cpu else "time", "algbw", "busbw", "#wrong")]
    table = Table(columns, named, len(ranks) if sorted(r for r in ranks if r is not None) == list(range(len(ranks))) and ranks else None)
    table.average = number(part(report, "average_bus_bandwidth").get("bandwidth"))
    for result in results:
        for half in ("out_of_place", "in_place"):
            cell = _cell(result, part(result, half), half == "in_place")
            if cell is not None:
                table.cells.append(cell)
    return table


def _cell(result: dict[str, Any], half: dict[str, Any], in_place: bool) -> Cell | None:
    """One half of a result; None where it was not measured."""
    time, algbw, busbw = microseconds(half.get("time", half.get("cpu_time"))), number(half.get("alg_bw")), number(half.get("bus_bw"))
    nbytes, elements = whole(result.get("size")), whole(result.get("count"))
    if time is None or algbw is None or busbw is None or nbytes is None or elements is None:
        return None
    root = (text(result.get("root")) or "").strip()
    return Cell(
        nbytes=nbytes,
        elements=elements,
        dtype=text(result.get("type")) or "unknown",
        redop=text(result.get("redop")),
        root=int(root) if re.fullmatch(r"-?\d{1,9}", root) else None,
        in_place=in_place,
        duration_ns=time,
        algbw=algbw,
        busbw=busbw,
        errors=whole(half.get("nwrong")),
    )


def _list(record: dict[str, Any], name: str) -> list[Any]:
    inner = record.get(name)
    return inner if isinstance(inner, list) else []
