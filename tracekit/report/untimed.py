"""What do files without a timeline say, in one sentence? Dumps, logs, benchmarks, snapshots and execution traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit import wording as fmt
from tracekit.report.rows import metric


def untimed(document: Mapping[str, Any]) -> tuple[str, str] | None:
    """(what they say, what to do) where no device work was recorded; None where no such file says anything either."""
    for name, sentence in _SENTENCES:
        found = metric(document, name)
        if found.get("available"):
            return sentence(found.get("summary") or {})
    return None


def _dumps(s: Mapping[str, Any]) -> tuple[str, str]:
    seen = f"{fmt.plural(s.get('collectives') or 0, 'collective')} in the dumps of {fmt.plural(s.get('dumps') or 0, 'rank')}"
    suspects, mismatches = s.get("suspects") or [], s.get("mismatches") or 0
    if not suspects and not mismatches:
        return f"No rank is missing or behind in {seen}.", ""
    late = f"{'Ranks' if len(suspects) > 1 else 'Rank'} {fmt.ranks(suspects)} did not reach what others did" if suspects else ""
    differ = f"{fmt.plural(mismatches, 'collective')} differ in operation, size or type between ranks" if mismatches else ""
    return (
        f"{'; '.join(t for t in (late, differ) if t)}: {seen}.",
        "Look at what these ranks did before the first collective that they never enqueued or completed.",
    )


def _snapshot(s: Mapping[str, Any]) -> tuple[str, str]:
    peak = s.get("allocated_peak_bytes")
    return f"At the peak {fmt.sizes(peak)} were allocated; no time of a step was recorded.", ""


def _benchmark(s: Mapping[str, Any]) -> tuple[str, str]:
    peak, bad = s.get("peak_busbw_gbps"), (s.get("algbw_misfits") or 0) + (s.get("busbw_misfits") or 0)
    top = "unknown" if peak is None else f"{peak:.4g} GB/s"
    odd = f"; {fmt.plural(bad, 'cell')} {'does' if bad == 1 else 'do'} not fit size and time" if bad else ""
    return f"The highest bus bandwidth that nccl-tests measured is {top}{odd}.", ""


def _records(s: Mapping[str, Any]) -> tuple[str, str]:
    ranks = fmt.ranks(s.get("ranks") or ())
    calls = f"{fmt.plural(s.get('collectives') or 0, 'collective')} and {fmt.plural(s.get('p2p') or 0, 'send')}"
    return f"The records of {'ranks' if len(s.get('ranks') or ()) > 1 else 'rank'} {ranks} state {calls}; no time of a step was recorded.", ""


def _operators(s: Mapping[str, Any]) -> tuple[str, str]:
    return f"{s.get('calls') or 0:,} calls of {fmt.plural(s.get('operators') or 0, 'operator')} were recorded, without times.", ""


_SENTENCES = (("flight_recorder", _dumps), ("memory", _snapshot), ("bandwidth", _benchmark), ("records", _records), ("operators", _operators))
