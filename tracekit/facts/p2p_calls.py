"""Which sends and receives did this rank run: to or from whom, in which direction of the pipeline, and were they one kernel?

One row per operation. A kernel that does several at once (``batch_isend_irecv``) becomes one row for each, all with the number of the
kernel as ``batch``: sizes and peers are then those of the host's records before the launch. Where no record tells what a kernel did,
it stays one row, its size and peer unknown.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit import schema
from tracekit.columns import Objects, Rows, integers
from tracekit.executions import executions, objects, text
from tracekit.trace import RankTrace
from tracekit.vocabulary import GPIPE_RANGE, PIPELINE_COMM, Axis, Collective, Direction, Kind, group_axis


def p2p_calls(trace: RankTrace) -> dict[str, pd.DataFrame]:
    """``p2p_calls``: the sends and receives of one rank and capture (``schema.P2P_CALLS``)."""
    events = trace.events
    rows, above, table = executions(trace, p2p=True)
    coalesced = (table["peer"].isna() & table["kind"].eq(Collective.SEND_RECV)).to_numpy() & events["device"].notna().to_numpy()[rows]
    kernels, ops = _batched_operations(events, rows, np.flatnonzero(coalesced))
    whole = table[~np.isin(np.arange(len(table)), kernels)]
    single = whole.index.to_numpy()
    whole = whole.assign(op=above.issuer[single], comm=above.comm[single], gpipe=above.gpipe[single], batch=pd.array([None] * len(whole), "Int64"))
    parts = table.iloc[kernels].assign(op=ops, comm=above.comm[kernels], gpipe=above.gpipe[kernels], batch=pd.array(kernels, "Int64"))
    source = events.iloc[ops]
    for column in ("group", "group_desc", "group_ranks", "dtype", "phase"):
        parts[column] = text(source[column]).to_numpy()
    for column in ("seq", "nbytes", "peer"):
        parts[column] = source[column].array
    parts["kind"] = source["collective"].astype(object).map(str).to_numpy()
    out = pd.concat([whole, parts]) if len(parts) else whole
    out = out.sort_values(["start_ns", "op"], kind="stable").reset_index(drop=True)
    direction, microbatch = _p2p_context(events, out, trace.meta.rank)
    return {"p2p_calls": schema.conform(out.assign(direction=objects(direction, out.index), microbatch=microbatch), schema.P2P_CALLS)}


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


def _p2p_context(events: pd.DataFrame, out: pd.DataFrame, rank: int | None) -> tuple[Objects, pd.Series]:
    """Direction and microbatch of each send and receive.

    Best source first: the runtime's ``PP:1RECV_F3`` range; GPipe's ``Forward i`` range; a group of one direction
    (``mesh_pp_fwd``); in a pipeline group the peer's place (activations go to the next rank, gradients to the one before);
    else, as in ring attention, the phase of the call itself. The microbatch is else the running number of its direction,
    where the rank is known to have one stage.
    """
    names = events["name"].astype(object).to_numpy()
    direction = text(out["phase"]).to_numpy(object, copy=True)
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


def _place(groups: pd.Series, peers: pd.Series, rank: int | None, wraps: bool) -> Rows:
    """+1 where the peer is the next rank of the group, -1 the one before, 0 where it is neither, or could be both.

    With ``wraps`` the last rank is followed by the first, as virtual stages are.
    """
    out = np.zeros(len(groups), np.int64)
    peer = integers(peers)
    for listed in groups.dropna().unique():
        ranks = [int(r) for r in str(listed).split(",")]
        if rank not in ranks:
            continue
        i, n = ranks.index(rank), len(ranks)
        ahead = [ranks[(i + 1) % n]] if wraps or i + 1 < n else []
        behind = [ranks[i - 1]] if wraps or i > 0 else []
        if ahead == behind:
            continue
        here = groups.eq(listed).to_numpy()
        out[here & np.isin(peer, ahead)] = 1
        out[here & np.isin(peer, behind)] = -1
    return out
