"""What does a report say, and in which order? Every renderer draws this, so all of them say the same."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tracekit import wording as fmt
from tracekit.report.cards import cards
from tracekit.report.headline import headline
from tracekit.report.parts import Finding, Story
from tracekit.report.sections import SECTIONS, other
from tracekit.report.sections.common import emulated
from tracekit.report.waterfall import waterfall

_ORDER = {"error": 0, "warning": 1, "info": 2}


def story(document: Mapping[str, Any]) -> Story:
    """Word a report document (schema ``tracekit.report/1``) for reading.

    Health comes before any number, what could not be computed comes last with its reason. Metrics that tracekit
    gained later than this file appear as well, in a plain section.
    """
    metrics = document.get("metrics") or {}
    names = [n for n in SECTIONS if n in metrics] + [n for n in metrics if n not in SECTIONS]
    absent = {n: fmt.clean(metrics[n].get("reason") or "no reason was given", 400) for n in names if not metrics[n].get("available")}
    if "recompute" in metrics and (metrics["recompute"].get("summary") or {}).get("mode") == "none":
        absent["recompute"] = "nothing was recomputed in these steps"
    shown = [n for n in names if n not in absent]
    head, advice = headline(document)
    return Story(
        title=_title(document),
        version=fmt.clean(document.get("tracekit") or fmt.UNKNOWN),
        verdict=fmt.clean((document.get("health") or {}).get("verdict") or fmt.UNKNOWN),
        findings=findings_of(document),
        headline=head,
        advice=advice,
        run=run_of(document),
        cards=cards(document),
        sections=tuple(SECTIONS[n](document) if n in SECTIONS else other(document, n) for n in shown),
        unavailable=tuple((n, fmt.clean(metrics[n].get("title") or fmt.label(n).capitalize()), reason) for n, reason in absent.items()),
        emulated=emulated(document),
        waterfall=waterfall(document),
    )


def _title(document: Mapping[str, Any]) -> str:
    run = document.get("run") or {}
    paths = _paths(run.get("source"))
    folder = Path(_common(paths)).name if paths else ""
    config = run.get("config") or {}
    schedule = (config.get("pipeline") or {}).get("schedule")
    again = config.get("recompute")
    words = [config.get("recipe"), schedule, f"recompute {again}" if again not in (None, "none") else None]
    named = [str(w) for w in words if w]
    count = len(run.get("ranks") or ())
    return fmt.clean(", ".join([*named, fmt.plural(count, "rank")]) if named else f"{folder or 'training run'}, {fmt.plural(count, 'rank')}")


def findings_of(document: Mapping[str, Any]) -> tuple[Finding, ...]:
    """The health findings of a document, worded, worst first; what several ranks have in common is said once."""
    alike: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for r in (document.get("health") or {}).get("findings") or ():
        alike.setdefault(tuple(str(r.get(k) or "") for k in ("severity", "code", "message")), []).append(r)
    made = [
        Finding(
            severity=fmt.clean(severity or fmt.UNKNOWN),
            code=fmt.clean(code or fmt.UNKNOWN),
            message=fmt.clean(message, 400),
            where=_place(rows[0]) if len(rows) == 1 else _places(rows),
        )
        for (severity, code, message), rows in alike.items()
    ]
    return tuple(sorted(made, key=lambda f: _ORDER.get(f.severity, 3)))


def _place(r: Mapping[str, Any]) -> str:
    """File, rank, byte and count of one finding."""
    parts = (
        fmt.clean(r["file"], 200) if r.get("file") else "",
        f"rank {r['rank']}" if r.get("rank") is not None else "",
        f"byte {r['offset']:,}" if r.get("offset") is not None else "",
        fmt.plural(r["count"], "record") if r.get("count") is not None and r.get("file") else "",
    )
    return ", ".join(text for text in parts if text)


def _places(rows: Sequence[Mapping[str, Any]]) -> str:
    """The ranks, else the number of files, of one finding made several times."""
    ranks = sorted({int(r["rank"]) for r in rows if r.get("rank") is not None})
    return f"{'ranks' if len(ranks) > 1 else 'rank'} {fmt.ranks(ranks)}" if ranks else f"{len(rows)} times"


def run_of(document: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What ran, as (name, value) pairs."""
    run = document.get("run") or {}
    axes = run.get("mesh") or {}
    mesh = {k: v for k, v in axes.items() if v != 1}
    model, training = (run.get("config") or {}).get("model") or {}, (run.get("config") or {}).get("training") or {}
    pairs = {
        "rank" if len(run.get("ranks") or ()) == 1 else "ranks": fmt.ranks(run.get("ranks") or ())
        + ("" if run.get("world_size") is None else f" of {run['world_size']}"),
        "mesh": " × ".join(f"{fmt.clean(k)} {fmt.clean(v)}" for k, v in mesh.items()) or ("not split" if axes else "no axis known"),
        "step" if len(run.get("steps") or ()) == 1 else "steps": fmt.ranks(run.get("steps") or ()),
        "device": fmt.clean(run.get("device") or fmt.UNKNOWN),
        "backend": fmt.clean(run.get("backend") or fmt.UNKNOWN),
        **({"model": _sizes(model, ("layers", "hidden", "heads", "sequence"))} if model else {}),
        **({"batch": _sizes(training, ("microbatches", "microbatch_size"))} if training else {}),
        "read from": _sources(run.get("source")),
    }
    return tuple(pairs.items())


def _sources(source: Any) -> str:
    paths = _paths(source)
    if len(paths) > 1:
        return f"{fmt.clean(_common(paths), 200)} ({len(paths)} traces)"
    return fmt.clean(paths[0], 200) if paths else fmt.UNKNOWN


def _paths(source: Any) -> list[str]:
    return [source] if isinstance(source, str) else [str(s) for s in source or ()]


def _common(paths: Sequence[str]) -> str:
    try:
        return os.path.commonpath(paths)
    except ValueError:  # some absolute, some relative, or on several drives
        return paths[0]


def _sizes(of: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return ", ".join(f"{fmt.label(n)} {fmt.clean(of[n])}" for n in names if of.get(n) is not None) or fmt.UNKNOWN
