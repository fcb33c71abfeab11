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
from tracekit.facts.host_waits import host_waits
from tracekit.facts.idle import idle
from tracekit.facts.layer_places import layer_places
from tracekit.facts.links import links
from tracekit.facts.memory import memory
from tracekit.facts.p2p_calls import p2p_calls
from tracekit.facts.parts import parts
from tracekit.facts.progress import progress
from tracekit.facts.recompute import recompute
from tracekit.facts.signals import signals
from tracekit.facts.stated import stated
from tracekit.facts.steps import steps
from tracekit.trace import RankFacts, RankTrace

#: Each gives one table or a few, by their names in ``schema.FACTS``; none reads another's.
FACTS: tuple[Callable[[RankTrace], dict[str, pd.DataFrame]], ...] = (
    findings,
    extent,
    signals,
    steps,
    busy,
    links,
    calls,
    layer_places,
    p2p_calls,
    host_waits,
    progress,
    actions,
    memory,
    recompute,
    parts,
    idle,
    stated,
)

#: Those that a file without slices and memory events has: a thousand dumps of a thousand ranks are no work.
OF_RECORDS = (findings, extent, signals, stated)


def boil_down(trace: RankTrace, after: Callable[[float], None] | None = None) -> RankFacts:
    """All facts of one rank; its events stay behind. ``after`` is told the share of them that is done."""
    tables: dict[str, pd.DataFrame] = {}
    todo = FACTS if len(trace.events) or len(trace.samples) else OF_RECORDS
    for number, fact in enumerate(todo, start=1):
        tables.update(fact(trace))
        if after is not None:
            after(number / len(todo))
    return RankFacts(replace(trace.meta, memory_baseline=None), tables)
