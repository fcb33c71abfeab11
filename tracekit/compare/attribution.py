"""Why did the step change? The parts of the step that moved, and the layers behind them, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracekit import wording as fmt
from tracekit.compare.catalog import Sort
from tracekit.compare.keys import layer_ranges, split_layer
from tracekit.compare.rows import Row
from tracekit.thresholds import Verdict

#: Parts of the budget that communication makes.
COMMUNICATION = ("comm_wait_ns", "comm_transfer_ns", "comm_unsplit_ns")
_TOTALS = frozenset({"compute_ns", "exposed_comm_ns", "pipeline_window_ns", "step_time_ns"})
#: A part or layer is a cause when it has at least this share of what its sign adds up to.
CAUSE_SHARE = 0.25
_CHANGED = (Verdict.REGRESSED, Verdict.IMPROVED)


def parts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """How each part of the step changed, largest first; ns of a rank's mean step."""
    found = [r for r in rows if r.entry.sort == Sort.PART and r.key.metric.endswith("_ns") and r.key.metric not in _TOTALS and r.change is not None]
    order = sorted(found, key=lambda r: (-abs(r.change or 0.0), r.key.id))
    return [
        {
            "part": r.key.metric.removesuffix("_ns"),
            "axis": r.key.place("axis"),
            "base_ns": r.base,
            "head_ns": r.head,
            "change_ns": r.change,
            "verdict": r.verdict.value,
        }
        for r in order
        if r.change
    ]


def layers(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Layers whose collectives changed, neighbours of one kind together, largest first.

    Exposed time where it is known: it is what the step pays. ``metric`` says which it is; judged layers come first.
    """
    judged = [r for r in rows if r.entry.sort == Sort.DETAIL and r.verdict in _CHANGED]
    shown = [r for r in rows if r.key.metric == "layer_exposed_ns" and r.change]
    exposed = {r.key.where: r.change for r in shown}
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for r in judged:
        groups.setdefault(("judged", r.verdict.value, r.key.place("kind"), r.key.place("axis")), []).append(r)
    for r in _largest(shown):
        groups.setdefault(("shown", "", r.key.place("kind"), r.key.place("axis"), (r.change or 0) > 0), []).append(r)
    out = []
    for group, members in groups.items():
        names = [r.key.place("layer") or "" for r in members]
        own = [r.shift for r in members if r.shift is not None and r.entry.sort == Sort.DETAIL]
        out.append(
            {
                "metric": members[0].key.metric,
                "verdict": members[0].verdict.value if group[0] == "judged" else None,
                "kind": group[2],
                "axis": group[3],
                "layers": sorted(names, key=lambda n: (split_layer(n)[0], split_layer(n)[1] or 0, n)),
                "text": layer_ranges(names),
                "change_ns": sum(r.change or 0.0 for r in members),
                "exposed_change_ns": sum(exposed.get(r.key.where, 0.0) or 0.0 for r in members) if all(r.key.where in exposed for r in members) else None,
                "shift": sum(own) / len(own) if own else None,
                "against": members[0].against,
            }
        )
    return sorted(out, key=lambda g: (g["verdict"] is None, -abs(g["change_ns"]), g["text"]))


def _largest(rows: list[Row]) -> list[Row]:
    """Of the layers that changed in one direction: those with most of the change, until they have what is typical of all."""
    out: list[Row] = []
    for sign in (1, -1):
        same = sorted((r for r in rows if sign * (r.change or 0) > 0), key=lambda r: -abs(r.change or 0))
        if same:
            least = abs(same[0].change or 0.0) / 2
            out += [r for r in same if abs(r.change or 0.0) >= least]
    return out


def sentence(rows: Sequence[Row]) -> str:
    """The first line: what changed, by how much, and why.

    Facts first, for they are certain; then layers that changed while the step cannot tell it; then the step with the parts and
    layers behind it; last the bubble.
    """
    said = _facts(rows)
    step = next((r for r in rows if r.key.metric == "step_time_ns"), None)
    judged = [g for g in layers(rows) if g["verdict"] is not None]
    if step is None or step.verdict not in _CHANGED:
        said += [_layer_words(g) for g in judged[:2]]
    said.append("step time unknown" if step is None else _step(step, rows, told=bool(said)))
    bubble = next((r for r in rows if r.key.metric == "bubble_ratio"), None)
    if bubble is not None:
        said.append(f"bubble {_shifted(bubble)}")
    return "; ".join(said)


def _step(step: Row, rows: Sequence[Row], *, told: bool) -> str:
    """The step and what is behind it; of one that cannot be told, only where nothing else is said yet."""
    moved = step.shift is not None and abs(step.shift) >= step.entry.min_effect and step.verdict == Verdict.INCONCLUSIVE and not told
    causes = _causes(step, rows) if step.verdict in _CHANGED or moved else []
    return f"step {_shifted(step)}" + (f": {', '.join(causes)}" if causes else "")


def _causes(step: Row, rows: Sequence[Row]) -> list[str]:
    """The parts that moved with the step, communication as the layers that did."""
    sign = 1 if (step.shift or 0) > 0 else -1
    with_it = [p for p in parts(rows) if sign * p["change_ns"] > 0]
    total = sum(abs(p["change_ns"]) for p in with_it) or 1.0
    out: list[str] = []
    by_axis: dict[str | None, float] = {}
    for p in with_it:
        if f"{p['part']}_ns" in COMMUNICATION:
            by_axis[p["axis"]] = by_axis.get(p["axis"], 0.0) + p["change_ns"]
    weighed = [(abs(change), "comm", axis, change) for axis, change in by_axis.items()]
    weighed += [(abs(p["change_ns"]), p["part"], p["axis"], p["change_ns"]) for p in with_it if f"{p['part']}_ns" not in COMMUNICATION]
    for size, part, axis, change in sorted(weighed, key=lambda w: (-w[0], str(w[1]))):
        if size < CAUSE_SHARE * total or len(out) == 3:
            break
        out.append(_communication(axis, change, rows, sign) if part == "comm" else f"{fmt.part(part, axis)} {fmt.signed('change_ns', change)}")
    return out


def _communication(axis: str | None, change: float, rows: Sequence[Row], sign: int) -> str:
    """Exposed communication of an axis, as the layers that have most of it."""
    exposed = [r for r in rows if r.key.metric == "layer_exposed_ns" and r.key.place("axis") == axis and sign * (r.change or 0) > 0]
    judged = {r.key.where for r in rows if r.entry.sort == Sort.DETAIL and r.verdict in _CHANGED}
    kinds: dict[str | None, list[Row]] = {}
    for r in exposed:
        kinds.setdefault(r.key.place("kind"), []).append(r)
    if kinds:
        kind, members = max(kinds.items(), key=lambda kv: abs(sum(r.change or 0.0 for r in kv[1])))
        members = [r for r in members if r.key.where in judged] or _largest(members)
        told = sum(r.change or 0.0 for r in members)
        if abs(told) >= CAUSE_SHARE * abs(change):
            return f"{_kind(kind)} of {layer_ranges([r.key.place('layer') or '' for r in members])} exposed {fmt.signed('change_ns', told)}"
    return f"{fmt.part('exposed_comm', axis)} {fmt.signed('change_ns', change)}"


def _layer_words(group: dict[str, Any]) -> str:
    what = {"layer_transfer_ns": "transfer", "layer_duration_ns": "duration"}.get(group["metric"], "exposed")
    by = fmt.signed_percent(group["shift"]) if group["shift"] is not None else fmt.signed("change_ns", group["change_ns"])
    against = " against the other layers" if group["against"] else ""
    return f"{_kind(group['kind'])} of {group['text']} {what} {by}{against}"


def _facts(rows: Sequence[Row]) -> list[str]:
    """Facts that changed, those of one kind together, three at most."""
    changed = [r for r in rows if r.entry.sort == Sort.FACT and r.verdict in _CHANGED]
    names = {r.key.metric for r in changed}
    # bytes go with the count, kernels with what they do
    implied = {m for m, by in (("collective_bytes", "collective_count"), ("p2p_bytes", "p2p_count"), ("kernel_count", "collective_count")) if by in names}
    implied |= {"recompute_runs", "kernel_count"} if "recompute_mode" in names else set()
    implied |= {"closed_form_bubble_ratio"} if "schedule" in names else set()
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for r in changed:
        if r.key.metric not in implied:
            groups.setdefault((r.key.metric, *(r.key.place(p) for p in ("kind", "axis", "direction")), str(r.base), str(r.head)), []).append(r)
    order = sorted(
        groups.values(), key=lambda rs: (rs[0].verdict != Verdict.REGRESSED, rs[0].key.metric not in ("schedule", "recompute_mode", "collective_count"))
    )
    out = [_fact(rs) for rs in order[:3]]
    return [*out, *([f"{len(order) - 3} more facts changed"] if len(order) > 3 else [])]


def _fact(members: Sequence[Row]) -> str:
    r, where = members[0], members[0].key
    values = f"{_value(r, r.base)} → {_value(r, r.head)}"
    if where.metric in ("collective_count", "collective_bytes"):
        what = "calls" if where.metric == "collective_count" else "bytes"
        of = f" of {layer_ranges([m.key.place('layer') or '' for m in members])}" if where.place("layer") else ""
        place = ", ".join(fmt.clean(p) for p in (where.place("axis"), where.place("direction")) if p)
        return f"{_kind(where.place('kind'))}{of}{f' ({place})' if place else ''}: {what} per step {values}"
    ranks = [m.key.place("rank") for m in members if m.key.place("rank")]
    on = f" on {fmt.plural(len(ranks), 'rank')}" if len(ranks) > 1 else f" on rank {fmt.clean(ranks[0])}" if ranks else ""
    layer = f" of {layer_ranges([m.key.place('layer') or '' for m in members])}" if where.place("layer") else ""
    return f"{r.entry.title}{layer}{on} {values}"


def _value(row: Row, value: Any) -> str:
    if isinstance(value, list):
        return " or ".join(_value(row, v) for v in value[:4])
    return fmt.clean(value) if isinstance(value, str) else fmt.scalar(row.key.metric, value)


def _shifted(row: Row) -> str:
    """A row's shift in words, with its interval; unchanged where it is."""
    if row.verdict == Verdict.INCOMPARABLE or row.shift is None:
        return "unknown" if row.base is None or row.head is None else row.verdict.value
    points = row.scale == "difference"
    low_high = f" [{100 * row.low:.1f}, {100 * row.high:.1f}]" if row.low is not None and row.high is not None else ""
    shift = fmt.signed_percent(row.shift)
    text = f"{shift.removesuffix(' %')}{low_high} points" if points else f"{shift}{low_high}"
    if row.verdict in _CHANGED:
        return text
    return f"{row.verdict.value} ({text})" if row.shift else row.verdict.value


def _kind(kind: str | None) -> str:
    return fmt.clean(kind).replace("_", "-") if kind else "communication"
