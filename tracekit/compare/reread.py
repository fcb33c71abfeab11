"""How is a stored comparison read back? Every field that a renderer uses is checked first: a file may hold anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from tracekit.compare.comparison import COMPARISON_SCHEMA
from tracekit.compare.document import LARGEST
from tracekit.compare.inputs import parsed
from tracekit.errors import InputError
from tracekit.thresholds import Severity, Verdict

#: A comparison larger than this is refused; ten thousand rows take about 8 MB.
MAX_BYTES = 256 << 20
_DEEPEST = 32

_Number = int | float | None
_Value = int | float | str | list[int | float | str | None] | None
_Where = dict[str, str]


class _Metric(msgspec.Struct):
    metric: str
    where: _Where
    id: str
    title: str
    sort: str
    severity: Severity
    min_effect: int | float
    verdict: Verdict
    change: _Number
    base: _Value
    head: _Value
    scale: str | None
    shift: _Number
    low: _Number
    high: _Number
    detectable: _Number
    runs_needed: int | None
    against: str | None
    decisive: bool
    reason: str | None


class _Budget(msgspec.Struct):
    budget: str
    name: str
    value: _Number
    verdict: Verdict
    reason: str | None


class _Drift(msgspec.Struct):
    metric: str
    where: _Where
    id: str
    title: str
    severity: Severity
    verdict: Verdict
    shift: int | float
    head_shift: int | float
    points: list[str]
    commits: list[str]
    values: list[int | float]
    sentence: str


class _Levels(msgspec.Struct):
    metric: str
    title: str
    commits: list[str]
    values: list[int | float]


class _Difference(msgspec.Struct):
    name: str
    text: str
    base: Any
    head: Any


class _Fingerprint(msgspec.Struct):
    base: dict[str, Any]
    head: dict[str, Any]
    differs: list[_Difference]
    unknown: list[_Difference]
    mixed: list[_Difference]
    forced: bool


class _Part(msgspec.Struct):
    part: str
    axis: str | None
    base_ns: int | float
    head_ns: int | float
    change_ns: int | float
    verdict: Verdict


class _Attribution(msgspec.Struct):
    parts: list[_Part]
    layers: list[dict[str, Any]]


class _Comparison(msgspec.Struct):
    tracekit: str
    verdict: Verdict | None
    sentence: str
    exit_code: int
    scenario: str | None
    counts: dict[str, int]
    base: list[dict[str, Any]]
    head: list[dict[str, Any]]
    fingerprint: _Fingerprint
    rules: dict[str, Any]
    metrics: list[_Metric]
    budgets: list[_Budget]
    drift: list[_Drift]
    history: list[_Levels]
    attribution: _Attribution
    notes: list[str]


def read_comparison(path: Path, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """A comparison from a file that ``tracekit compare`` or ``check`` wrote.

    Raises:
        InputError: the file is missing, too large, no JSON, or no comparison that this version understands.
    """
    try:
        size = path.stat().st_size
        if size > max_bytes:
            raise InputError(f"this file has {size:,} bytes; a comparison has {max_bytes:,} at most", path)
        text = path.read_bytes()
    except OSError as e:
        raise InputError(f"{(e.strerror or str(e)).lower()}; name a file that tracekit compare --save wrote", path) from e
    return checked(parsed(text, path), path)


def checked(document: dict[str, Any], path: Path | str | None = None) -> dict[str, Any]:
    """The same document, where every field is of the type that a renderer counts on; halves of surrogate pairs become ``�``.

    Raises:
        InputError: one is not.
    """
    schema = document.get("schema")
    if schema != COMPARISON_SCHEMA:
        raise InputError(f"this is no {COMPARISON_SCHEMA} document but {str(schema)[:60]!r}; write one with tracekit compare --save", path)
    if wrong := _beyond(document):
        raise InputError(f"this comparison is damaged: it {wrong}", path)
    text = json.dumps({**document, "history": document.get("history", [])}, ensure_ascii=False)
    whole: dict[str, Any] = json.loads(text.encode("utf-8", "surrogatepass").decode("utf-8", "replace"))
    try:
        msgspec.convert(whole, _Comparison)
    except msgspec.ValidationError as e:
        raise InputError(f"this comparison is damaged: {str(e)[:200]}", path) from e
    crept, levels = whole["drift"], whole["history"]
    if any(len(h["values"]) != len(h["commits"]) for h in (*crept, *levels)) or not all(d["points"] for d in crept):
        raise InputError("this comparison is damaged: a history has not one value per commit", path)
    return whole


def _beyond(document: object) -> str:
    """What of a document no comparison has, or "": a number that is infinite or that ratios and sums cannot be made of, or endless nesting."""
    waiting = [(document, 0)]
    while waiting:
        value, depth = waiting.pop()
        if depth > _DEEPEST:
            return f"is nested more than {_DEEPEST} deep"
        if isinstance(value, (dict, list)):
            waiting += [(v, depth + 1) for v in (value.values() if isinstance(value, dict) else value)]
        elif isinstance(value, (int, float)) and not abs(value) <= LARGEST:
            return "holds a number that no measurement has"
    return ""
