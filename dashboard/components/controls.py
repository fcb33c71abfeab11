"""How is a page narrowed? Choices whose values stand in the address: what is chosen is shared with the link, and a link chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import html

from dashboard.components.attributes import aria

#: Choices that a list offers at most.
MOST = 400


def choice(name: str, label: str, values: Sequence[Any], chosen: str, everything: str) -> dmc.Select:
    """One choice of several values; empty means all of them.

    Args:
        name: its name in the address.
        label: what people call it.
        values: what can be chosen; names from traces, shown as plain text.
        chosen: the value in the address, or ""; one that cannot be chosen stands there with a complaint.
        everything: words for no choice.
    """
    known = [str(v) for v in values[:MOST]]
    data = [{"value": v, "label": v[:80]} for v in dict.fromkeys([*known, *([chosen] if chosen else [])])]
    return dmc.Select(
        id={"type": "control", "name": name},
        label=label,
        data=data,
        value=chosen or None,
        error=f"there is no such {label.lower()} here" if chosen and chosen not in map(str, values) else None,
        placeholder=everything,
        clearable=True,
        searchable=len(data) > 8,
        size="sm",
        className="choice",
        nothingFoundMessage="nothing of that name",
        comboboxProps={"withinPortal": True},
    )


def words(name: str, label: str, given: str, hint: str) -> dmc.TextInput:
    """A search in words."""
    return dmc.TextInput(id={"type": "control", "name": name}, label=label, value=given, placeholder=hint, debounce=350, size="sm", className="search")


def bar(controls: Sequence[Any], more: Sequence[Any] = ()) -> html.Div:
    """Controls side by side."""
    return html.Div([*controls, *more], className="controls", role="group", **aria(label="What this page shows")) if controls or more else html.Div()


def step_choice(steps: Sequence[int], steady: frozenset[int], chosen: str) -> list[Any]:
    """The choice of a step; none where there is only one, and no other was asked for."""
    if len(steps) < 2 and chosen in ("", *map(str, steps)):
        return []
    return [choice("step", "Step", steps, chosen, f"mean of {len(steady)} steady" if len(steady) > 1 else f"step {min(steady)}" if steady else "all")]
