"""RankTrace -> RankFacts: which small tables is one rank boiled down to?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from tracekit.facts.actions import actions
from tracekit.facts.busy import busy
from tracekit.facts.calls import calls
from tracekit.facts.extent import extent
from tracekit.facts.findings import findings
from tracekit.facts.memory import memory
from tracekit.facts.parts import parts
from tracekit.facts.recompute import recompute
from tracekit.facts.stated import stated
from tracekit.facts.steps import steps
from tracekit.trace import RankFacts, RankTrace

#: Each gives one table or a few, by their names in ``schema.FACTS``; none reads another's.
FACTS: tuple[Callable[[RankTrace], dict[str, pd.DataFrame]], ...] = (findings, extent, steps, busy, calls, actions, memory, recompute, parts, stated)


def boil_down(trace: RankTrace) -> RankFacts:
    """All facts of one rank; its events stay behind."""
    tables: dict[str, pd.DataFrame] = {}
    for fact in FACTS:
        tables.update(fact(trace))
    return RankFacts(replace(trace.meta, flight_recorder=(), memory_baseline=None), tables)
