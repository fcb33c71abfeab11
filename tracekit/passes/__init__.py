"""RankTrace -> RankTrace: what is added to the events of one rank, in which order?"""

from __future__ import annotations

from collections.abc import Callable

from tracekit.passes.actions import actions
from tracekit.passes.classify import classify
from tracekit.passes.coalesced import coalesced
from tracekit.passes.count_layers import count_layers
from tracekit.passes.coverage import coverage
from tracekit.passes.device_times import device_times
from tracekit.passes.flight_recorder import flight_recorder
from tracekit.passes.groups import groups
from tracekit.passes.infer_actions import infer_actions
from tracekit.passes.kinds import kinds
from tracekit.passes.layers import layers
from tracekit.passes.link import link
from tracekit.passes.phases import phases
from tracekit.passes.project import project
from tracekit.passes.samples import samples
from tracekit.passes.steps import steps
from tracekit.passes.unseen_frees import unseen_frees
from tracekit.trace import RankTrace

#: In order: each may read what those before it have filled in.
PASSES: tuple[Callable[[RankTrace], RankTrace], ...] = (
    classify,
    device_times,
    link,
    flight_recorder,
    kinds,
    coalesced,
    groups,
    steps,
    actions,
    phases,
    layers,
    project,
    infer_actions,
    count_layers,
    unseen_frees,
    samples,
    coverage,
)


def run_passes(trace: RankTrace, after: Callable[[float], None] | None = None) -> RankTrace:
    """Apply every pass in order; without slices and memory events there is nothing to add to. ``after`` is told the share of them that is done."""
    todo = PASSES if len(trace.events) or len(trace.samples) else ()
    for number, one in enumerate(todo, start=1):
        trace = one(trace)
        if after is not None:
            after(number / len(todo))
    return trace
