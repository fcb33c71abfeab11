"""How is a comparison one page? The answer in one line, then what moved the step, then every shift with its interval; no network, no trust in names."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from tracekit import wording as fmt
from tracekit.report.html import Drawn, page
from tracekit.report.parts import Card
from tracekit.report.regression.words import Document, cell, context, grids, interval, is_news, judged, name, notes, sentence, share, verdict

_MOST_ROWS = 300
_MOST_SHIFTS = 40
_MOST_HISTORIES = 4
_CHANGED = ("regressed", "improved")


def render(document: Document) -> str:
    """The comparison as one self-contained HTML document (about 5 MB, of which plotly.js is 4.8)."""
    return page(
        "comparison.html.j2",
        title=fmt.clean(document["scenario"] or "Comparison"),
        verdict=verdict(document),
        answer=sentence(document),
        context=context(document),
        news=is_news(document),
        cards=cards(document),
        figures=draw(document),
        grids=grids(document, _MOST_ROWS),
        runs=[(side, [_run(r) for r in document[side][:20]], max(0, len(document[side]) - 20)) for side in ("base", "head")],
        setup=[(fmt.clean(k), fmt.scalar("", v)) for k, v in document["fingerprint"]["head"].items() if v is not None],
        notes=notes(document),
        rules=[(fmt.label(str(k)), fmt.scalar("", v)) for k, v in document["rules"].items()],
        emulated=bool(document["fingerprint"]["head"].get("emulated")),
        version=fmt.clean(document["tracekit"]),
    )


def cards(document: Document) -> list[Card]:
    """The key numbers: the step, exposed communication, the bubble, peak memory, and what was judged."""
    out = []
    for metric, label in (("step_time_ns", "Step time"), ("exposed_comm_ns", "Exposed communication"), ("bubble_ratio", "Pipeline bubble")):
        row = next((r for r in document["metrics"] if r["metric"] == metric and not r["where"]), None)
        if row is not None:
            moved = f"{share(row, row['shift'], ' %')}{interval(row)}; " if row["shift"] is not None else ""
            out.append(Card(label, cell(row, "head"), f"{moved}base {cell(row, 'base')}: {row['verdict']}"))
    peaks = [r for r in document["metrics"] if r["metric"] in ("peak_allocated_bytes", "measured_peak_bytes")]
    fullest = max((r for r in peaks if isinstance(r["head"], (int, float))), key=lambda r: r["head"], default=None)
    if fullest is not None:
        place = f" on rank {fmt.clean(rank)}" if (rank := fullest["where"].get("rank")) is not None else ""
        out.append(Card("Peak memory", fmt.size(fullest["head"]), f"base {fmt.size(_number(fullest['base']))}{place}: {fullest['verdict']}"))
    found = judged(document)
    changed = sum(1 for j in found if j.sort == "facts" and j.verdict in ("regressed", "improved"))
    facts = sum(1 for j in found if j.sort == "facts")
    unknown_facts = sum(1 for j in found if j.sort == "facts" and j.verdict in ("inconclusive", "incomparable"))
    if facts:
        said = f"{changed:,} changed" if changed else "all equal" if not unknown_facts else "cannot tell"
        rest = f"; {unknown_facts:,} cannot be told" if unknown_facts else ""
        out.append(Card("Facts of the program", said, f"of {facts:,} compared exactly{rest}"))
    if document["budgets"]:
        broken = [b for b in document["budgets"] if b["verdict"] == "regressed"]
        unknown = [b for b in document["budgets"] if b["verdict"] not in ("regressed", "unchanged")]
        said = f"{len(broken)} broken" if broken else "unknown" if unknown else "all kept"
        out.append(Card("Limits", said, ", ".join(fmt.clean(b["budget"], 60) for b in (broken or unknown or document["budgets"])[:3])))
    return out


def draw(document: Document) -> dict[str, Drawn | list[Drawn] | None]:
    """The pictures, each None (or empty) where there is nothing to draw."""
    from tracekit.figures import comparison as figures

    rows = [r for r in document["metrics"] if r["shift"] is not None and (r["scale"] == "ratio" or r["metric"].endswith("_ratio"))]
    shown = [r for r in rows if r["sort"] in ("step", "part") or (r["sort"] == "detail" and r["verdict"] in _CHANGED)]
    shifts = [
        figures.Shift(name(r), r["shift"], r["low"], r["high"], r["min_effect"], r["verdict"], share(r, r["shift"], " %") + interval(r))
        for r in _step_first(shown)[:_MOST_SHIFTS]
    ]
    step = next((r for r in document["metrics"] if r["metric"] == "step_time_ns" and not r["where"]), None)
    parts = [figures.Change(fmt.part(p["part"], p["axis"]), p["change_ns"]) for p in document["attribution"]["parts"]]
    matters = any(r["verdict"] in _CHANGED for r in shown) or (step is not None and abs(step["shift"] or 0.0) >= step["min_effect"])
    known = step is not None and _number(step["base"]) is not None and _number(step["head"]) is not None
    moved = figures.way(step["base"], step["head"], parts) if step is not None and known and matters else None
    return {
        "way": _drawn("way", "From the base's step to the head's: what took longer (red) or less (green); medians over runs.", moved),
        "shifts": _drawn("shifts", "Shift of the head against the base: a dot with its 95 % interval; left is less.", figures.forest(shifts)),
        "layers": _drawn("layers", "Exposed communication per step, by layer: head minus base.", figures.layers(_by_layer(document)) if matters else None),
        "history": _histories(document),
    }


def _step_first(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda r: r["sort"] != "step")


def _by_layer(document: Document) -> list[Any]:
    from tracekit.compare.keys import split_layer
    from tracekit.figures.comparison import Change

    sums: dict[str, float] = {}
    for r in document["metrics"]:
        if r["metric"] == "layer_exposed_ns" and r["change"] is not None and r["where"].get("layer"):
            sums[r["where"]["layer"]] = sums.get(r["where"]["layer"], 0.0) + r["change"]
    if not any(sums.values()):
        return []
    names = sorted(sums, key=lambda n: (split_layer(n)[0], split_layer(n)[1] or 0, n))
    split = [split_layer(n) for n in names]
    alike = all(index is not None for _, index, _ in split) and len({(start, end) for start, _, end in split}) == 1
    return [Change(str(index) if alike else layer, sums[layer]) for layer, (_, index, _) in zip(names, split, strict=True)]


def _histories(document: Document) -> list[Drawn]:
    """The step over the baseline's commits, and every metric that crept, what is worse first."""
    from tracekit.figures import comparison as figures

    crept = sorted(document["drift"], key=lambda d: d["verdict"] != "regressed")
    steps = [{**h, "points": []} for h in document["history"] if h["metric"] not in {d["metric"] for d in crept}]
    out = []
    for n, found in enumerate([*crept, *steps][:_MOST_HISTORIES]):
        unit, scale = ("ms", 1e6) if found["metric"].endswith("_ns") else ("GiB", 2.0**30) if found["metric"].endswith("_bytes") else ("%", 0.01)
        fig = figures.history(found["title"], found["commits"], found["values"], found["points"], unit=unit, scale=scale)
        drawn = _drawn(f"history-{n}", fmt.clean(found.get("sentence") or f"{found['title']} by commit; the last dot is the head.", 200), fig)
        out += [drawn] if drawn is not None else []
    return out


def _drawn(id: str, caption: str, fig: Any) -> Drawn | None:
    from tracekit.figures import embed

    return None if fig is None else Drawn(f"figure-{id}", caption, int(fig.layout.height), Markup(embed.to_json(fig)))


def _run(about: Any) -> str:
    """One run of a side: where it came from, its commit and its health."""
    commit = about.get("git_commit")
    health = about.get("health")
    more = [f"commit {fmt.clean(commit, 10)}" if commit else "", f"health: {fmt.clean(health, 20)}" if health not in (None, "ok") else ""]
    return ", ".join([fmt.clean(about.get("source") or "unnamed", 160), *filter(None, more)])


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
