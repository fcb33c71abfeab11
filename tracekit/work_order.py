"""In what order did a rank launch its work, and where does one pass through the model end and the next begin?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.ancestry import inherit
from tracekit.columns import Mask, Objects, Rows, by_name, choose, integers, named
from tracekit.landmarks import is_gradient, landmark_of
from tracekit.pipeline_place import exchanges
from tracekit.trace import RankTrace
from tracekit.vocabulary import FSDP_SPAN, P2P, Kind, Phase, group_axis
from tracekit.work import work_masks

Ints = npt.NDArray[np.int64]
#: Phases of blocks: those of training, everything else (the optimizer), and work that nothing gives a phase.
FORWARD, BACKWARD, OTHER, UNKNOWN = 0, 1, 2, 3
#: Ranges and nodes inside which collectives carry gradients or sharded parameters: these come where buckets are full, not where layers repeat.
_ACCUMULATE = "AccumulateGrad"


class WorkOrder(NamedTuple):
    """Compute and collectives of a rank in order of launch; what is said per piece has the length of ``rows``, per block that of ``phase``.

    Attributes:
        rows: row of each piece in the events.
        call: row of the call that launched it; its own row where it is one.
        at: when it was launched, in ns.
        code: number of its landmark (a part of a layer, or a kind of collective), -1 for none.
        gradient: its kernel's name says that it is of backward.
        block: number of its block: a run of one phase in one step, action and stage, between two exchanges along the pipeline.
        phase: FORWARD, BACKWARD, OTHER or UNKNOWN.
        stage: pipeline stage, -1 where unknown.
        step: step, -1 where unknown.
        names: what each code stands for.
    """

    rows: Rows
    call: Rows
    at: Ints
    code: Ints
    gradient: Mask
    block: Ints
    phase: Ints
    stage: Ints
    step: Ints
    names: tuple[str, ...]


def work_order(trace: RankTrace) -> WorkOrder:
    """A rank's compute and collectives, data-parallel ones without a landmark, sends and receives left out."""
    events, masks = trace.events, work_masks(trace)
    p2p = events["collective"].isin(list(P2P)).to_numpy()
    rows = np.flatnonzero(masks["compute"] | (masks["communication"] & ~p2p))
    launch, ts = integers(events["launch"]), events["ts"].to_numpy(np.int64)
    caller = np.where(launch >= 0, launch, np.arange(len(events)))
    at = ts[caller]
    # the kernels of one graph were launched at once: they follow each other on the device
    rows = rows[np.lexsort((ts[rows], at[rows]))]
    call = caller[rows]
    names = choose(masks["compute"][rows], by_name(events, landmark_of)[rows], events["collective"].astype(object).to_numpy()[rows])
    phase = _phases(events, rows, names)
    between = np.searchsorted(np.sort(at[exchanges(trace)]), at[rows], "right")
    step, stage, microbatch = (integers(events[c])[rows] for c in ("step", "stage", "microbatch"))
    new = np.zeros(len(rows), bool)
    for key in (step, stage, microbatch, events["action"].cat.codes.to_numpy()[rows], phase, between):
        new[1:] |= key[1:] != key[:-1]
    first = np.flatnonzero(np.append(True, new[1:])) if len(rows) else np.array([], np.int64)
    code, distinct = pd.factorize(choose(_data_parallel(events)[rows], None, names))
    return WorkOrder(
        rows,
        call,
        at[rows],
        code.astype(np.int64),
        named(events, is_gradient)[rows],
        np.cumsum(new),
        phase[first],
        stage[first],
        step[first],
        tuple(str(n) for n in distinct),
    )


def _phases(events: pd.DataFrame, rows: Rows, names: Objects) -> Ints:
    """Phase of each piece; what has none (collectives outside autograd, bookkeeping) goes with the work before it, unless it holds an attention."""
    column = events["phase"].astype(object).to_numpy()[rows]
    phase = np.full(len(rows), UNKNOWN, np.int64)
    for name, number in ((Phase.FORWARD, FORWARD), (Phase.BACKWARD, BACKWARD), (Phase.OPTIMIZER, OTHER)):
        phase[column == name] = number
    if not len(phase):
        return phase
    run = np.cumsum(np.append(True, phase[1:] != phase[:-1]))
    own = (phase != UNKNOWN) | np.isin(run, run[names == "attention"])
    last = np.maximum.accumulate(np.where(own, np.arange(len(phase)), -1))
    return np.where(own | (last < 0), phase, phase[np.maximum(last, 0)])


def _data_parallel(events: pd.DataFrame) -> Mask:
    """Communication that carries gradients or sharded parameters, by where it was issued or its group's description."""
    launch = integers(events["launch"])
    inside = inherit(integers(events["parent"]), named(events, lambda n: bool(FSDP_SPAN.match(n)) or _ACCUMULATE in n)) >= 0
    described = events["group_desc"].isin([c for c in events["group_desc"].cat.categories if (group_axis(str(c)) or "").startswith("dp")])
    mask: Mask = events["kind"].eq(Kind.COMMUNICATION).to_numpy() & (np.where(launch >= 0, inside[launch], inside) | described.to_numpy())
    return mask
