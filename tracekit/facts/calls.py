"""Which collectives, sends and receives did this rank run, what were they for, and how much of each was exposed?

One row per execution: a NCCL kernel, or a ``gloo:*`` execution on a CPU run. *Exposed* is the part of the call in which
this rank's device computed nothing (communication minus overlap). The purpose (*direction*) is read from where the call
was issued: an FSDP range, the optimizer, an AccumulateGrad node, a repeated forward, else forward or backward.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit import schema
from tracekit.columns import integers
from tracekit.intervals import measure
from tracekit.trace import RankTrace
from tracekit.vocabulary import FSDP_SPAN, GPIPE_RANGE, OPTIMIZER_SPAN, P2P, PIPELINE_COMM, Axis, Collective, Direction, Kind, Phase, group_axis
from tracekit.work import compute_intervals, device_of

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

#: A reduction of so few bytes between backward and optimizer is the gradient norm, not a gradient.
SCALAR_BYTES = 16
#: The autograd node that adds to a parameter's gradient; data-parallel hooks run inside it.
_ACCUMULATE = re.compile(r"^autograd::engine::evaluate_function: .*AccumulateGrad")
_NAMED_FSDP = re.compile(r"^FSDP::\w+ \([^)]+\)$")
_GRADIENT_KINDS = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)


class _Above(NamedTuple):
    """For each call: row of the nearest enclosing event of a sort, -1 where there is none."""

    fsdp: Rows
    accumulate: Rows
    optimizer: Rows
    gpipe: Rows
    comm: Rows
    issuer: Rows


def calls(trace: RankTrace) -> dict[str, pd.DataFrame]:
    """Tables ``calls`` (``schema.CALLS``) and ``p2p_calls`` (``schema.P2P_CALLS``) of one rank and capture."""
    events = trace.events
    rows = np.flatnonzero(events["kind"].eq(Kind.COMMUNICATION).to_numpy())
    rows = rows[np.argsort(events["ts"].to_numpy()[rows], kind="stable")]
    above = _above(events, rows)
    kind = _kinds(events, rows, above.issuer)
    common = _common(trace, rows, kind)
    # fully_shard names no module in the ranges of its root group, which may run inside any layer's span
    root = (above.fsdp >= 0) & ~_matching(events, _NAMED_FSDP)[above.fsdp]
    common = common.assign(**{c: common[c].where(~root, None) for c in ("layer", "layer_source")})
    p2p = np.isin(kind, list(P2P))
    collective = common[~p2p].assign(
        direction=_objects(_directions(events, rows, kind, above)[~p2p], common.index[~p2p]),
        layer_last=_objects(_bucket_ends(events, rows, above.accumulate)[~p2p], common.index[~p2p]),
        in_action=events["action"].notna().to_numpy()[rows][~p2p],
    )
    return {
        "calls": schema.conform(collective.reset_index(drop=True), schema.CALLS),
        "p2p_calls": _p2p(trace, rows[p2p], common[p2p], _Above(*(column[p2p] for column in above))),
    }


def _common(trace: RankTrace, rows: Rows, kind: npt.NDArray[np.object_]) -> pd.DataFrame:
    """Columns that collectives and point-to-point share."""
    events = trace.events
    part = events.iloc[rows]
    end, ts = (part["ts"] + part["dur"]).to_numpy(), _starts(events, rows, kind)
    device = device_of(trace)[rows]
    exposed = end - ts
    for one in np.unique(device):
        here = device == one
        exposed[here] -= measure(compute_intervals(trace, int(one)), ts[here], end[here])
    columns = ["step", "group", "group_desc", "group_ranks", "group_size", "seq", "nbytes", "dtype", "layer", "layer_source"]
    columns += ["phase", "microbatch", "stage", "peer"]
    out = part[columns].reset_index(drop=True)
    texts = {c: _text(out[c]) for c in ("group", "group_desc", "group_ranks", "dtype", "layer", "layer_source", "phase")}
    stream = part["stream"].astype("Int64").fillna(part["thread"].astype("Int64")).reset_index(drop=True)
    return out.assign(**texts, start_ns=ts, end_ns=end, kind=kind, exposed_ns=exposed, device=np.maximum(device, 0), stream=stream)


def _starts(events: pd.DataFrame, rows: Rows, kind: npt.NDArray[np.object_]) -> Rows:
    """Start of each call. Gloo opens the range of a send only once the data is on its way: there the issuing call counts."""
    ts = events["ts"].to_numpy()
    launch = integers(events["launch"])[rows]
    gloo = events["device"].isna().to_numpy()[rows] & np.isin(kind, list(P2P)) & (launch >= 0)
    return np.where(gloo, np.minimum(ts[rows], ts[np.maximum(launch, 0)]), ts[rows])


def _text(column: pd.Series) -> pd.Series:
    values = column.astype(object)
    return values.where(values.notna(), None)


def _objects(values: npt.NDArray[np.object_], index: pd.Index) -> pd.Series:
    """Values as they are, None included: pandas would make text of them and NaN of None."""
    return pd.Series(values, index=index, dtype=object)


def _above(events: pd.DataFrame, rows: Rows) -> _Above:
    """Climb from every call's launch to the root, all calls at once, and note what is met on the way."""
    issues = events["kind"].eq(Kind.OPERATOR).to_numpy() & events["collective"].notna().to_numpy()
    sorts = [*(_matching(events, p) for p in (FSDP_SPAN, _ACCUMULATE, OPTIMIZER_SPAN, GPIPE_RANGE, PIPELINE_COMM)), issues]
    parent = integers(events["parent"])
    launch = integers(events["launch"])[rows]
    found = [np.full(len(rows), -1, np.int64) for _ in sorts]
    at = np.where(launch >= 0, launch, parent[rows])
    while (at >= 0).any():
        for mask, first in zip(sorts, found, strict=True):
            hit = (first < 0) & (at >= 0) & mask[at]
            first[hit] = at[hit]
        at = np.where(at >= 0, parent[at], -1)
    return _Above(*found)


def _matching(events: pd.DataFrame, pattern: re.Pattern[str]) -> Mask:
    """Events whose name matches; each distinct name is tried once."""
    flags = [*(bool(pattern.match(str(n))) for n in events["name"].cat.categories), False]
    return np.asarray(flags, np.bool_).take(events["name"].cat.codes.to_numpy(np.int64), mode="wrap")


def _kinds(events: pd.DataFrame, rows: Rows, issuer: Rows) -> npt.NDArray[np.object_]:
    """Kind of each call. NCCL runs all-to-all, gather and scatter as SendRecv kernels: there the issuing operator knows."""
    stated = events["collective"].astype(object).to_numpy()
    own = stated[rows]
    vague = (pd.isna(own) | (own == Collective.SEND_RECV)) & (issuer >= 0)
    kind = np.where(vague, stated[issuer], own)
    return np.where(pd.isna(kind), str(Collective.SEND_RECV), [str(k) for k in kind]).astype(object)


def _directions(events: pd.DataFrame, rows: Rows, kind: npt.NDArray[np.object_], above: _Above) -> npt.NDArray[np.object_]:
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


def _bucket_ends(events: pd.DataFrame, rows: Rows, accumulate: Rows) -> npt.NDArray[np.object_]:
    """Last layer of a gradient bucket: the one of the first gradient that was ready since the bucket before.

    DDP sends a bucket off in the AccumulateGrad node of its last gradient, so the nodes since the previous bucket are
    this bucket's. None where all lie in the call's own layer, or layers are unknown.
    """
    out = np.full(len(rows), None, object)
    buckets = np.flatnonzero(accumulate >= 0)
    if not len(buckets):
        return out
    nodes = np.flatnonzero(_matching(events, _ACCUMULATE))
    ts, layer = events["ts"].to_numpy(), _text(events["layer"]).to_numpy()
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


def _p2p(trace: RankTrace, rows: Rows, common: pd.DataFrame, above: _Above) -> pd.DataFrame:
    """Sends and receives; a coalesced kernel becomes one row per operation, with the number of the kernel as ``batch``."""
    events = trace.events
    common = common.reset_index(drop=True)
    peer = common["peer"].isna().to_numpy()
    coalesced = peer & (common["kind"] == Collective.SEND_RECV).to_numpy() & events["device"].notna().to_numpy()[rows]
    kernels, ops = _batched_operations(events, rows, np.flatnonzero(coalesced))
    whole = common[~np.isin(np.arange(len(common)), kernels)]
    single = whole.index.to_numpy()
    whole = whole.assign(op=above.issuer[single], comm=above.comm[single], gpipe=above.gpipe[single], batch=pd.array([None] * len(whole), "Int64"))
    parts = common.iloc[kernels].assign(op=ops, comm=above.comm[kernels], gpipe=above.gpipe[kernels], batch=pd.array(kernels, "Int64"))
    source = events.iloc[ops]
    for column in ("group", "group_desc", "group_ranks", "dtype", "phase"):
        parts[column] = _text(source[column]).to_numpy()
    for column in ("seq", "nbytes", "peer"):
        parts[column] = source[column].array
    parts["kind"] = source["collective"].astype(object).map(str).to_numpy()
    out = pd.concat([whole, parts]) if len(parts) else whole
    out = out.sort_values(["start_ns", "op"], kind="stable").reset_index(drop=True)
    direction, microbatch = _p2p_context(events, out, trace.meta.rank)
    return schema.conform(out.assign(direction=_objects(direction, out.index), microbatch=microbatch), schema.P2P_CALLS)


def _batched_operations(events: pd.DataFrame, rows: Rows, kernels: Rows) -> tuple[Rows, Rows]:
    """Pairs (position of the coalesced kernel in ``rows``, row of one of its operations).

    The operations stand on the launching thread before the launch and have launched nothing of their own: each belongs
    to the next coalesced launch.
    """
    nothing = np.empty(0, np.int64)
    launch = integers(events["launch"])
    kernels = kernels[launch[rows[kernels]] >= 0]
    if not len(kernels):
        return nothing, nothing
    parent = integers(events["parent"])
    ops = np.flatnonzero(events["kind"].eq(Kind.OPERATOR).to_numpy() & events["collective"].isin([Collective.SEND, Collective.RECV]).to_numpy())
    inner = np.zeros(len(events), bool)
    inner[ops] = True
    has_inner = np.zeros(len(events), bool)
    has_inner[parent[ops][parent[ops] >= 0]] = True
    launched = np.zeros(len(events), bool)
    at = launch[np.flatnonzero(events["kind"].eq(Kind.COMMUNICATION).to_numpy() & (launch >= 0))]
    while len(at):
        launched[at] = True
        at = parent[at]
        at = at[at >= 0]
    ops = ops[~(has_inner & inner)[ops] & ~launched[ops]]
    thread, ts = events["thread"].to_numpy(), events["ts"].to_numpy()
    begun = launch[rows[kernels]]
    found: list[tuple[Rows, Rows]] = []
    for one in np.unique(thread[begun]):
        mine = kernels[thread[begun] == one]
        mine = mine[np.argsort(ts[launch[rows[mine]]], kind="stable")]
        of_thread = ops[thread[ops] == one]
        owner = np.searchsorted(ts[launch[rows[mine]]], ts[of_thread], "right")
        ok = owner < len(mine)
        found.append((mine[owner[ok]], of_thread[ok]))
    return np.concatenate([k for k, _ in found]), np.concatenate([o for _, o in found])


def _p2p_context(events: pd.DataFrame, out: pd.DataFrame, rank: int | None) -> tuple[npt.NDArray[np.object_], pd.Series]:
    """Direction and microbatch of each send and receive.

    Best source first: the runtime's ``PP:1RECV_F3`` range; GPipe's ``Forward i`` range; a group of one direction
    (``mesh_pp_fwd``); in a pipeline group the peer's place (activations go to the next rank, gradients to the one before);
    else, as in ring attention, the phase of the call itself. The microbatch is else the running number of its direction,
    where the rank is known to have one stage.
    """
    names = events["name"].astype(object).to_numpy()
    direction = _text(out["phase"]).to_numpy(object, copy=True)
    microbatch = out["microbatch"].astype("Int64").reset_index(drop=True)
    one_stage = events["stage"].dropna().nunique() == 1
    axis = out["group_desc"].map(lambda d: group_axis(d) if isinstance(d, str) else None)
    pipeline = axis.eq(Axis.PP).to_numpy() | (axis.isna().to_numpy() & bool(events["stage"].notna().any()))
    place = np.where(pipeline, _place(out["group_ranks"], out["peer"], rank, wraps=not one_stage), 0)
    up = np.where((out["kind"] == Collective.SEND).to_numpy(), place == 1, place == -1)
    direction[place != 0] = np.where(up, str(Direction.FORWARD), str(Direction.BACKWARD))[place != 0]
    description = out["group_desc"].map(lambda d: d if isinstance(d, str) else "")
    direction[description.str.endswith("_fwd").to_numpy(bool)] = str(Direction.FORWARD)
    direction[description.str.endswith("_bwd").to_numpy(bool)] = str(Direction.BACKWARD)
    for column, pattern in (("gpipe", GPIPE_RANGE), ("comm", PIPELINE_COMM)):
        at = out[column].to_numpy(np.int64)
        for name in {str(names[r]) for r in at[at >= 0]}:
            found = pattern.match(name)
            if found is not None:
                here = (at >= 0) & (names[at] == name)
                direction[here] = str(Direction.FORWARD if found["what"].endswith(("Forward", "_F")) else Direction.BACKWARD)
                microbatch[here] = int(found["microbatch"])
    if one_stage:
        keys = [out["step"].astype("Int64"), pd.Series(direction, index=out.index), out["kind"], out["peer"].astype("Int64")]
        running = out.groupby(keys, dropna=False, sort=False).cumcount().astype("Int64")
        fits = pipeline & microbatch.isna().to_numpy() & pd.notna(direction) & out["step"].notna().to_numpy()
        microbatch = microbatch.where(~fits, running)
    return direction, microbatch


def _place(groups: pd.Series, peers: pd.Series, rank: int | None, wraps: bool) -> npt.NDArray[np.int64]:
    """+1 where the peer is the next rank of the group, -1 the one before, 0 where it is neither, or could be both.

    With ``wraps`` the last rank is followed by the first, as virtual stages are.
    """
    out = np.zeros(len(groups), np.int64)
    peer = integers(peers)
    for text in groups.dropna().unique():
        ranks = [int(r) for r in str(text).split(",")]
        if rank not in ranks:
            continue
        i, n = ranks.index(rank), len(ranks)
        ahead = [ranks[(i + 1) % n]] if wraps or i + 1 < n else []
        behind = [ranks[i - 1]] if wraps or i > 0 else []
        if ahead == behind:
            continue
        here = groups.eq(text).to_numpy()
        out[here & np.isin(peer, ahead)] = 1
        out[here & np.isin(peer, behind)] = -1
    return out
