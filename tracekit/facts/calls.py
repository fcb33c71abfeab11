"""Which collectives did this rank run, what were they for, and how much of each was exposed?

One row per execution: a NCCL kernel, a copy to another GPU, a ``gloo:*`` execution on a CPU run; where nothing was executed that the
trace shows, the host's records. *Exposed* is the part of the call in which this rank's device computed nothing (communication minus
overlap). The purpose (*direction*) is read from where the call was issued: an FSDP range, the optimizer, an AccumulateGrad node, a
repeated forward, else forward or backward.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit import schema
from tracekit.columns import Mask, Objects, Rows, integers
from tracekit.executions import ACCUMULATE, Above, executions, matching, objects, text
from tracekit.trace import RankTrace
from tracekit.vocabulary import FSDP_SPAN, LAYER_INDEX, Collective, Direction, Kind, Phase, group_axis

#: A reduction of so few bytes between backward and optimizer is the gradient norm, not a gradient.
SCALAR_BYTES = 16
_GRADIENT_KINDS = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)


def calls(trace: RankTrace) -> dict[str, pd.DataFrame]:
    """``calls``: the collectives of one rank and capture (``schema.CALLS``)."""
    events = trace.events
    rows, above, table = executions(trace, p2p=False)
    out = table.assign(
        direction=objects(_directions(events, rows, table["kind"].to_numpy(object), above), table.index),
        layer_last=objects(_bucket_ends(events, rows, above.accumulate), table.index),
        in_action=events["action"].notna().to_numpy()[rows],
    )
    return {"calls": schema.conform(_of_whole_stage(events, rows, above.fsdp, out), schema.CALLS)}


def _of_whole_stage(events: pd.DataFrame, rows: Rows, fsdp: Rows, table: pd.DataFrame) -> pd.DataFrame:
    """The calls with a range of layers for those of a root group that holds every layer of its stage, as ``replicate`` makes one bucket of all.

    Where fully_shard named groups of single layers, the root holds what is left, and has no layer.
    """
    whole = np.flatnonzero((fsdp >= 0) & table["layer"].isna().to_numpy())
    named = any((m := FSDP_SPAN.match(str(name))) and m["layer"] for name in events["name"].cat.categories)
    paths = {str(c): m for c in events["layer"].cat.categories if (m := LAYER_INDEX.search(str(c)))}
    if not len(whole) or named or not paths:
        return table
    known = events[events["layer"].isin(list(paths))]
    seen = pd.DataFrame({"layer": known["layer"].astype(object), "source": known["layer_source"].astype(object), "stage": integers(known["stage"])})
    seen = seen.drop_duplicates()
    stages = seen["stage"][seen["stage"] >= 0].unique()
    mine = integers(events["stage"])[rows[whole]]
    columns = {name: table[name].astype(object).copy() for name in ("layer", "layer_last", "layer_source")}
    for stage in np.unique(mine):
        if stage < 0 and len(stages) > 1:
            continue
        part = seen[seen["stage"].eq(stage)] if stage >= 0 and len(stages) > 1 else seen
        ordered = sorted(part["layer"], key=lambda path: int(paths[path]["index"]))
        if not ordered:
            continue
        first, last = (path[: paths[path].end("index")] for path in (ordered[0], ordered[-1]))
        at = whole[mine == stage]
        columns["layer"].iloc[at] = first
        columns["layer_last"].iloc[at] = last if last != first else None
        columns["layer_source"].iloc[at] = "inferred" if part["source"].eq("inferred").any() else part["source"].iloc[0]
    return table.assign(**columns)


def _directions(events: pd.DataFrame, rows: Rows, kind: Objects, above: Above) -> Objects:
    """What each collective is for; None where nothing tells."""
    part = events.iloc[rows]
    phase = part["phase"].astype(object).to_numpy()
    reduces, gathers = np.isin(kind, list(_GRADIENT_KINDS)), kind == Collective.ALL_GATHER
    data = _data_parallel(part["group_desc"]) | (above.fsdp >= 0)
    optimizer = (phase == Phase.OPTIMIZER) | (above.optimizer >= 0)
    backward = phase == Phase.BACKWARD
    after = _between_backward_and_optimizer(events, rows)
    nbytes = integers(part["nbytes"])
    scalar = (nbytes >= 0) & (nbytes <= SCALAR_BYTES)
    rules = [
        ((above.fsdp >= 0) & gathers, Direction.PARAMETER),
        ((above.fsdp >= 0) & reduces, Direction.GRADIENT),
        (part["recompute"].to_numpy(bool), Direction.RECOMPUTE),
        (optimizer, Direction.OPTIMIZER),
        (reduces & (above.accumulate >= 0), Direction.GRADIENT),
        (data & gathers, Direction.PARAMETER),
        (data & reduces & backward, Direction.GRADIENT),
        (after & scalar & reduces, Direction.OPTIMIZER),
        (after & reduces & (nbytes > SCALAR_BYTES), Direction.GRADIENT),
        (backward, Direction.BACKWARD),
        (phase == Phase.FORWARD, Direction.FORWARD),
    ]
    out = np.full(len(rows), None, object)
    for mask, direction in reversed(rules):
        out[mask] = str(direction)
    return out


def _data_parallel(descriptions: pd.Series) -> Mask:
    """Whether a group's description names a data-parallel axis."""
    categories = list(descriptions.cat.categories)
    flags = np.array([*((group_axis(str(c)) or "").startswith("dp") for c in categories), False], bool)
    return flags[descriptions.cat.codes.to_numpy()]


def _between_backward_and_optimizer(events: pd.DataFrame, rows: Rows) -> Mask:
    """Calls issued after the step's last backward operator and before its optimizer.

    DTensor marks its redistributions as forward wherever they run: their phase says nothing here.
    """
    phase = events["phase"].astype(object).to_numpy()
    step = integers(events["step"])
    ts = events["ts"].to_numpy()
    launch = integers(events["launch"])[rows]
    at = np.where(launch >= 0, ts[launch], ts[rows])
    host = events["kind"].isin([Kind.OPERATOR, Kind.RANGE]).to_numpy()
    backward = host & (phase == Phase.BACKWARD)
    last = pd.Series(ts[backward], dtype="Int64").groupby(step[backward]).max()
    optimizer = host & (phase == Phase.OPTIMIZER)
    first = pd.Series(ts[optimizer], dtype="Int64").groupby(step[optimizer]).min()
    mine = step[rows]
    begun = last.reindex(mine).to_numpy(np.int64, na_value=np.iinfo(np.int64).max)
    until = first.reindex(mine).to_numpy(np.int64, na_value=np.iinfo(np.int64).min)
    outside: Mask = (phase[rows] != Phase.BACKWARD) & (phase[rows] != Phase.OPTIMIZER)
    return (at > begun) & (at < until) & outside & (mine >= 0)


def _bucket_ends(events: pd.DataFrame, rows: Rows, accumulate: Rows) -> Objects:
    """Last layer of a gradient bucket: the one of the first gradient that was ready since the bucket before.

    DDP sends a bucket off in the AccumulateGrad node of its last gradient, so the nodes since the previous bucket are
    this bucket's. None where all lie in the call's own layer, or layers are unknown.
    """
    out = np.full(len(rows), None, object)
    buckets = np.flatnonzero(accumulate >= 0)
    if not len(buckets):
        return out
    nodes = np.flatnonzero(matching(events, ACCUMULATE))
    ts, layer = events["ts"].to_numpy(), text(events["layer"]).to_numpy()
    nodes = nodes[np.argsort(ts[nodes], kind="stable")]
    sent = ts[accumulate[buckets]]
    order = np.argsort(sent, kind="stable")
    previous = np.r_[np.int64(np.iinfo(np.int64).min), sent[order][:-1]]
    first: Rows = np.asarray(np.searchsorted(ts[nodes], previous, "right"))
    usable = first < len(nodes)
    calls_of = buckets[order][usable]
    earliest = layer[nodes[first[usable]]]
    own = layer[rows[calls_of]]
    step = integers(events["step"])
    same_step = step[nodes[first[usable]]] == step[rows[calls_of]]
    differs = same_step & pd.notna(earliest) & pd.notna(own) & (earliest != own)
    out[calls_of[differs]] = earliest[differs]
    return out
