"""What must be said of the Flight Recorder dumps before any number? The first place in each group where its ranks part."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import pandas as pd

from tracekit.findings import finding
from tracekit.group_ranks import compact
from tracekit.vocabulary import Severity

#: Most groups that are spelled out for one sort of finding.
_MOST = 8
_LATER = " (recorded while the run went on: they may have come there later)"


def findings_of(ranks: pd.DataFrame, faults: pd.DataFrame, mismatches: pd.DataFrame, p2p: pd.DataFrame, timed: set[int]) -> tuple[Mapping[str, Any], ...]:
    """Rows of ``schema.FINDINGS`` as dicts, in order of time within each sort.

    Args:
        ranks: as in ``job.flight.Flight``.
        faults: likewise, with the number ``gid`` of their group.
        mismatches: likewise.
        p2p: likewise.
        timed: ranks with a timeline of their own: their dump was taken in passing, and to be a call behind is no fault.
    """
    return (
        *_mismatches(faults[faults["fault"].eq("mismatch")], mismatches),
        *_late(faults[faults["fault"].eq("not_enqueued")], timed),
        *_late(faults[faults["fault"].eq("behind")], timed),
        *_p2p(p2p, timed),
        *_dumps(ranks),
    )


def _mismatches(faults: pd.DataFrame, mismatches: pd.DataFrame) -> list[dict[str, Any]]:
    """The first mismatch of each group: what follows it in the group is out of step with it."""
    out = []
    for row in faults.head(_MOST).to_dict("records"):
        has = _values(mismatches[mismatches["gid"].eq(row["gid"]) & mismatches["seq"].eq(row["seq"])], str(row["mismatch"]))
        alone = [who[0] for who in has.values() if len(who) == 1]
        seen = ", ".join(f"{value} on {_ranks(who)}" for value, who in list(has.items())[:4])
        says = f"ranks disagree on the {row['mismatch']} of collective {row['seq']} of group {_group(row)}: {seen}; {_count(row['collectives'])}"
        out.append(
            finding("flight_recorder_mismatch", Severity.WARNING, says, rank=alone[0] if len(alone) == 1 and len(has) == 2 else None, count=row["collectives"])
        )
    return [*out, *_more("flight_recorder_mismatch", Severity.WARNING, len(faults))]


def _values(rows: pd.DataFrame, what: str) -> dict[str, list[int]]:
    """Ranks by what they have, in words."""
    columns = {"operation": ("kind", "name"), "size": ("nbytes",), "dtype": ("dtype",)}[what]
    out: dict[str, list[int]] = {}
    for row in rows.to_dict("records"):
        value = next((row[c] for c in columns if not pd.isna(row[c])), None)
        if value is not None:
            shape = f" ({row['shape']} {row['dtype']})" if what == "size" and isinstance(row["shape"], str) else ""
            out.setdefault(f"{value} bytes{shape}" if what == "size" else str(value), []).append(int(row["rank"]))
    return out


def _late(faults: pd.DataFrame, timed: set[int]) -> list[dict[str, Any]]:
    """The first collective of each group that ranks did not enqueue, or in which they are behind."""
    code, worst = "", Severity.INFO
    out: list[dict[str, Any]] = []
    for row in faults.to_dict("records"):
        who: tuple[int, ...] = row["ranks"]
        passing, code = set(who) <= timed, f"flight_recorder_{row['fault']}"
        worst = worst if passing else Severity.WARNING
        if row["fault"] == "not_enqueued":
            says = f"{_ranks(who)} never enqueued {_call(row)}, which {_ranks(row['others'])} did"
        else:
            says = f"{_ranks(who)} still hold{'s' if len(who) == 1 else ''} {_call(row)}, which {_ranks(row['others'])} completed"
        if len(out) < _MOST:
            severity = Severity.INFO if passing else Severity.WARNING
            says = f"{says}; {_count(row['collectives'])}{_LATER if passing else ''}"
            out.append(finding(code, severity, says, rank=who[0] if len(who) == 1 else None, count=row["collectives"]))
    return [*out, *_more(code, worst, len(faults))]


def _p2p(p2p: pd.DataFrame, timed: set[int]) -> list[dict[str, Any]]:
    """Directions in which sizes disagree, and, where both dumps are whole, those in which sends and receives are not equally many."""
    wrong, loose = p2p[p2p["size_mismatches"].gt(0).fillna(False)], p2p[p2p["matched_by"].eq("order") & p2p["sends"].ne(p2p["recvs"])]
    out = []
    for row in wrong.head(_MOST).to_dict("records"):
        says = f"{row['size_mismatches']} sends from rank {row['src']} to rank {row['dst']} in group {_group(row)} have another size than their receives"
        out.append(finding("flight_recorder_mismatch", Severity.WARNING, says, count=int(row["size_mismatches"])))
    out += _more("flight_recorder_mismatch", Severity.WARNING, len(wrong))
    worst = Severity.INFO
    for row in loose.to_dict("records"):
        passing = {row["src"], row["dst"]} <= timed
        worst = worst if passing else Severity.WARNING
        who, lacks = (row["dst"], "receives") if row["sends"] > row["recvs"] else (row["src"], "sends")
        says = f"rank {row['src']} enqueued {row['sends']} sends to rank {row['dst']}, which enqueued {row['recvs']} receives, in group {_group(row)}"
        if len(out) < 2 * _MOST:
            severity = Severity.INFO if passing else Severity.WARNING
            out.append(
                finding("flight_recorder_p2p", severity, f"{says}: {lacks} of rank {who} are missing{_LATER if passing else ''}", rank=int(who), count=1)
            )
    return [*out, *_more("flight_recorder_p2p", worst, len(loose))]


def _dumps(ranks: pd.DataFrame) -> list[dict[str, Any]]:
    """Ranks without a dump, and dumps without an entry."""
    out = []
    absent, empty = ranks.loc[~ranks["dump"], "rank"].tolist(), ranks.loc[ranks["dump"] & ranks["entries"].eq(0).fillna(False), "rank"].tolist()
    if absent:
        # a single dump is no set that lacks some
        severity = Severity.WARNING if ranks["dump"].sum() > 1 else Severity.INFO
        says = f"no Flight Recorder dump of {_ranks(absent)}: what they enqueued is unknown; add their dumps"
        out.append(finding("flight_recorder_no_dump", severity, says, rank=absent[0] if len(absent) == 1 else None, count=len(absent)))
    if empty:
        says = f"the Flight Recorder dump of {_ranks(empty)} holds no entry"
        out.append(finding("flight_recorder_empty", Severity.INFO, says, rank=empty[0] if len(empty) == 1 else None, count=len(empty)))
    return out


def _call(row: Mapping[Hashable, Any]) -> str:
    name = next((row[c] for c in ("kind", "name") if isinstance(row[c], str)), "collective")
    return f"{name} {row['seq']} of group {_group(row)}"


def _group(row: Mapping[Hashable, Any]) -> str:
    desc = [row["group_desc"]] if isinstance(row["group_desc"], str) else []
    members = [_ranks(map(int, row["group_ranks"].split(",")))] if row["group_ranks"] else []
    return f"{row['group']} ({', '.join([*desc, *members])})" if desc or members else str(row["group"])


def _ranks(ranks: Iterable[int]) -> str:
    listed = list(ranks)
    return f"rank{'' if len(listed) == 1 else 's'} {compact(listed)}"


def _count(n: int) -> str:
    return "the only one of the group" if n == 1 else f"the first of {n} in the group"


def _more(code: str, severity: str, groups: int) -> list[dict[str, Any]]:
    if groups <= _MOST:
        return []
    says = f"the same in {groups - _MOST} more groups: see the table of the metric flight_recorder"
    return [finding(code, severity, says, count=groups - _MOST)]
