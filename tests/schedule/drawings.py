"""Schedules drawn as text: '0F1' is the forward of stage 0, microbatch 1; in lanes every nanosecond is a cell of two characters."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hypothesis import assume
from hypothesis import strategies as st

from tracekit.errors import UsageError
from tracekit.schedule.catalog import SCHEDULES, Placement, placement
from tracekit.schedule.orders import order
from tracekit.schedule.simulate import Simulation
from tracekit.vocabulary import Action


def actions(lane: str) -> list[Action]:
    """'0F0 0F1 0B0' -> that rank's actions."""
    return [Action(int(s), a, int(m)) for s, a, m in re.findall(r"(\d+)([FBIW])(\d+)", lane)]


def written(lane: Sequence[Action], stages: bool = True) -> str:
    """The other way round; without stages where each rank has one."""
    return " ".join(f"{a.stage if stages else ''}{a.action}{a.microbatch}" for a in lane)


def lanes(found: Simulation) -> list[str]:
    """Per rank what runs in each ns: 'F0' in its first, '--' in its others, '..' where the rank idles."""
    out = []
    for rank in found.ranks["rank"]:
        cells = [".."] * found.window_ns
        for a in found.actions[found.actions["rank"] == rank].itertuples():
            cells[a.start_ns : a.end_ns] = [f"{a.action}{a.microbatch}"] + ["--"] * (a.end_ns - a.start_ns - 1)
        out.append("".join(cells))
    return out


@st.composite
def runnable(draw: st.DrawFn, names: Sequence[str] = tuple(SCHEDULES), ranks: int = 5, microbatches: int = 14) -> tuple[str, int, int, int]:
    """A schedule's name, ranks p, microbatches m and stages per rank v that it can run with."""
    name = draw(st.sampled_from(names))
    p, m = draw(st.integers(1, ranks)), draw(st.integers(1, microbatches))
    v = draw(st.integers(2, 4)) if SCHEDULES[name].layout == "loop" else 1 if SCHEDULES[name].layout == "line" else 2
    try:
        order(name, p, m, v)
    except UsageError:
        assume(False)
    return name, p, m, v


def built(name: str, p: int, m: int, v: int) -> tuple[tuple[tuple[Action, ...], ...], Placement]:
    """Order and placement."""
    return order(name, p, m, v), placement(name, p, v)
