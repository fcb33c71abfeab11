"""What of a run is kept to compare it with another? Its fingerprint, its facts and one number per timed metric."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tracekit.compare.document import Document, number
from tracekit.compare.facts import Value, facts
from tracekit.compare.fingerprint import fingerprint
from tracekit.compare.keys import Key, from_where
from tracekit.compare.timed import levels, timed
from tracekit.errors import InputError

SNAPSHOT_SCHEMA = "tracekit.snapshot/1"
REPORT_SCHEMA_PREFIX = "tracekit.report/"


@dataclass(frozen=True)
class Snapshot:
    """One run, reduced to what is compared.

    Attributes:
        fingerprint: what must be the same on both sides; None is unknown.
        facts: values that the program decides, by key.
        timed: one number per run, by key.
        levels: numbers that budgets are held against, by name.
        missing: metrics that the run has no number of -> why.
        about: where it came from: source, tracekit (version), created, git_commit, steps, health.
        unknown: single facts and timed numbers that the run has but nobody knows -> why; they are never 0.
    """

    fingerprint: Mapping[str, Any]
    facts: Mapping[Key, Value]
    timed: Mapping[Key, float]
    levels: Mapping[str, float] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    unknown: Mapping[Key, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The document ``tracekit.snapshot/1``."""
        return {
            "schema": SNAPSHOT_SCHEMA,
            "about": dict(self.about),
            "fingerprint": dict(self.fingerprint),
            "facts": [{"metric": k.metric, "where": dict(k.where), "value": v} for k, v in sorted(self.facts.items())],
            "timed": [{"metric": k.metric, "where": dict(k.where), "value": v} for k, v in sorted(self.timed.items())],
            "levels": dict(self.levels),
            "missing": dict(self.missing),
            "unknown": [{"metric": k.metric, "where": dict(k.where), "reason": why} for k, why in sorted(self.unknown.items())],
        }

    def to_json(self) -> str:
        """The document as JSON, the same text for the same snapshot."""
        return json.dumps(self.to_dict(), sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    @property
    def scope(self) -> str:
        """A short name of the fingerprint: snapshots of one scope can be compared."""
        text = json.dumps({k: v for k, v in self.fingerprint.items() if v is not None}, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def snapshot(document: Document, source: str | None = None) -> Snapshot:
    """The snapshot of a report.

    Args:
        document: a report (``tracekit.report/1``).
        source: where it came from, as people would name it.

    Raises:
        InputError: the document is no report.
    """
    schema = document.get("schema")
    if not isinstance(schema, str) or not schema.startswith(REPORT_SCHEMA_PREFIX) or not isinstance(document.get("metrics"), Mapping):
        raise InputError("this is no report of tracekit: write one with tracekit analyze RUN --json > report.json", source)
    found, times = facts(document), timed(document)
    run = document["run"] if isinstance(document.get("run"), Mapping) else {}
    config = run["config"] if isinstance(run.get("config"), Mapping) else {}
    health = document["health"] if isinstance(document.get("health"), Mapping) else {}
    about = {
        "source": source,
        "tracekit": document.get("tracekit"),
        "created": config.get("created"),
        "git_commit": config.get("git_commit"),
        "steps": run.get("steps"),
        "health": health.get("verdict"),
    }
    made = Snapshot(
        fingerprint(document), found.known, times.known, levels(document), {**found.missing, **times.missing}, about, {**found.unknown, **times.unknown}
    )
    return _sound(made, source)


def _sound(made: Snapshot, source: str | None) -> Snapshot:
    """The snapshot as it can be written: halves of surrogate pairs, which no file can hold, become ``�``.

    Raises:
        InputError: a number of the setup is infinite.
    """
    try:
        text = made.to_json()
    except ValueError as e:
        raise InputError("it holds a number that no JSON holds; unknown is null", source) from e
    try:
        text.encode()
    except UnicodeEncodeError:
        return from_dict(json.loads(text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")), source)
    return made


def from_dict(document: Mapping[str, Any], source: str | None = None) -> Snapshot:
    """A snapshot read back.

    Raises:
        InputError: it is none, or was written by a version that this one does not understand.
    """
    if document.get("schema") != SNAPSHOT_SCHEMA:
        raise InputError(f"this is no {SNAPSHOT_SCHEMA} document but {str(document.get('schema'))[:60]!r}", source)
    parts = {name: document.get(name) for name in ("fingerprint", "levels", "missing", "about")}
    # snapshots of before there was an "unknown" have none
    lists = {"facts": document.get("facts"), "timed": document.get("timed"), "unknown": document.get("unknown", [])}
    if not all(isinstance(p, Mapping) for p in parts.values()) or not all(isinstance(v, list) for v in lists.values()):
        raise InputError("this snapshot is damaged: a part of it is missing or of the wrong type", source)
    read: dict[str, dict[Key, Any]] = {}
    for name, items in lists.items():
        read[name] = {}
        for item in items or ():
            if not isinstance(item, Mapping) or not isinstance(item.get("metric"), str) or not isinstance(item.get("where"), Mapping):
                raise InputError(f"this snapshot is damaged: {name} holds something that is no metric", source)
            if name == "unknown":
                read[name][from_where(item["metric"], item["where"])] = str(item.get("reason"))
                continue
            value = item.get("value")
            parts_of = value if isinstance(value, list) and name == "facts" else [value]
            plain = all((isinstance(v, str) and name == "facts") or number(v) is not None for v in parts_of)
            if not parts_of or not plain:
                raise InputError(f"this snapshot is damaged: {item['metric'][:60]} has no value", source)
            read[name][from_where(item["metric"], item["where"])] = value
    about = dict(parts["about"] or {})
    if source is not None:
        about["source"] = about.get("source") or source
    numbers = {str(k): v for k, v in (parts["levels"] or {}).items() if number(v) is not None}
    reasons = {str(k): str(v) for k, v in (parts["missing"] or {}).items()}
    return _sound(Snapshot(dict(parts["fingerprint"] or {}), read["facts"], read["timed"], numbers, reasons, about, read["unknown"]), source)
