"""Where did each rank's step go, as one account that adds up to the step, and how much of each part could come back?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tracekit.job.base import Job
from tracekit.job.bubble import Bubble, bubble
from tracekit.job.flops import Flops, flops
from tracekit.metrics.base import Metric, Result, unavailable
from tracekit.vocabulary import P2P, Axis, group_axis

#: Parts in the order of an account; communication parts stand once per axis.
PARTS = (
    *("forward", "backward", "recompute", "optimizer", "other_compute", "graph", "bubble", "comm_wait", "comm_transfer", "comm_unsplit"),
    *("copies", "input_wait", "launch_gap", "idle"),
)
#: How a part was told; ``unknown``: its length is exact, its cause is not known. What is not here was measured.
_SOURCES = {"comm_wait": "derived", "comm_transfer": "derived", "bubble": "derived", "ideal_compute": "derived", "kernel_inefficiency": "derived"}
_SOURCES |= {"idle": "unknown", "graph": "unknown"}
#: By what a part could at best be made smaller; of parts that are not here that is not known.
RECOVERABLE_BY = {
    "recompute": "memory", "comm_wait": "late_rank", "comm_transfer": "overlap", "copies": "overlap", "bubble": "balance",
    "input_wait": "fetch_ahead", "launch_gap": "launch_ahead",
}  # fmt: skip
#: What each of these means: the most that could come back, and if what.
WHAT = {
    "memory": "if the memory allows to keep the activations",
    "late_rank": "if the last rank to arrive came when the one before it did",
    "overlap": "if it ran under compute that is not repeated and hides no communication yet",
    "balance": "if stages and microbatches took equally long and nothing lay between actions; the rest is the schedule's own",
    "fetch_ahead": "if data were fetched ahead (more workers, prefetching)",
    "launch_ahead": "if the host launched ahead of the device (fewer, larger kernels; compilation; CUDA graphs)",
}
_COMPUTE = ("forward", "backward", "other_compute")
_KEY = ["rank", "capture", "device", "step"]
_CALL = ["rank", "capture", "call_start_ns", "call_end_ns"]
#: What an account says of a sum: the least certain of its members.
_WORST = ("unknown", "emulated", "inferred", "derived", "measured")
#: In place of a rank: the mean over all of them.
_JOB = -1


def compute(job: Job) -> Result:
    """The account per rank, device and step, and the mean one of the job and of each rank over steady steps."""
    busy = job.table("busy")
    windows = busy[busy["step"].notna()] if busy["step"].notna().any() else busy
    if len(windows) and windows["busy_ns"].isna().any():
        return unavailable("communication left host records only: what of the step it took, and what was idle, is unknown")
    if not len(windows) or not windows["busy_ns"].sum():
        return unavailable("no device work was recorded: profile with CUDA activity, or with gloo on CPU")
    whole = windows["graph_ns"].gt(0)
    waits = bubble(job)
    parts = [_compute(job, windows[~whole]), _communication(job, windows[~whole], waits), _copies(windows[~whole]), _graphs(windows[whole])]
    rows = pd.concat([*parts, _idle(job, windows, waits)], ignore_index=True)
    rows = rows.groupby([*_KEY, "part", "axis"], dropna=False, sort=False).sum(min_count=1).reset_index()
    rows = rows[rows["duration_ns"].ne(0)].astype({"duration_ns": "int64", "emulated_ns": "int64"})
    rows = rows.assign(axis=rows["axis"].astype(object).where(rows["axis"].notna(), None))
    rows = _recoverable(rows, windows, waits).sort_values(_KEY, kind="stable").reset_index(drop=True)
    steady = rows[rows["step"].isin(job.steady_steps)]
    chosen = steady if len(steady) else rows
    span = windows[windows["step"].isin(job.steady_steps)] if len(steady) else windows
    total = float(span["span_ns"].sum())
    model = flops(job)
    account = _account(chosen, span, model)
    summary = {"step_ns": round(total / len(span)), "accounts": len(span), **_shares(chosen, total)}
    of_job = account[account["rank"].isna()]
    ideal = of_job[of_job["part"].eq("ideal_compute")]
    summary["ideal_compute_ns"] = float(ideal["duration_ns"].iloc[0]) if len(ideal) else None
    exposed = chosen[chosen["axis"].notna() | chosen["part"].str.startswith("comm_")]
    axes = exposed.groupby([exposed["axis"].fillna("unknown"), "part"])["duration_ns"].sum().rename("duration_ns").reset_index()
    axes = axes.assign(of_step_ratio=axes["duration_ns"] / total if total else None)
    return Result(summary, {"ranks": rows, "account": account, "axes": axes}, notes=_notes(job, chosen, waits, model, account))


def _shares(chosen: pd.DataFrame, total: float) -> dict[str, Any]:
    shares = chosen.groupby("part")["duration_ns"].sum()
    # where some busy time is not divided, the share of no other part of it is known
    told = PARTS if "graph" not in shares else ("graph", "input_wait", "launch_gap", "idle")
    found = {f"{part}_ratio": float(shares.get(part, 0)) / total if total and part in told else None for part in PARTS}
    return {**found, "emulated_ratio": float(chosen["emulated_ns"].sum()) / total if total else None}


def _compute(job: Job, windows: pd.DataFrame) -> pd.DataFrame:
    parts = job.table("compute_parts")
    return parts.merge(windows[_KEY], on=_KEY, how="inner").assign(axis=None)


def _copies(windows: pd.DataFrame) -> pd.DataFrame:
    return windows[_KEY].assign(part="copies", duration_ns=windows["exposed_memcpy_ns"], emulated_ns=0, axis=None)


def _graphs(windows: pd.DataFrame) -> pd.DataFrame:
    """Busy time that cannot be divided, because whole CUDA graphs are among the work."""
    return windows[_KEY].assign(part="graph", duration_ns=windows["busy_ns"], emulated_ns=0, axis=None)


def _idle(job: Job, windows: pd.DataFrame, waits: Bubble) -> pd.DataFrame:
    """Idle time: in a bubble, for input, for a late launch; what is left has no known cause."""
    pieces = job.table("idle_pieces").merge(windows[_KEY], on=_KEY, how="inner")
    inside = np.where(pieces["in_action"], 0, waits.inside(pieces, "start_ns", "end_ns"))
    length = (pieces["end_ns"] - pieces["start_ns"]).to_numpy(np.int64)
    own = pieces["idle_ns"].to_numpy(np.int64)
    # a piece that is several put together is idle for less than its length: its bubble is taken in proportion
    part = np.where(own == length, inside, np.rint(inside * (own / np.maximum(length, 1))).astype(np.int64))
    pieces = pieces.assign(bubble=np.minimum(part, own), rest=own - np.minimum(part, own))
    names = pieces["cause"].map({"input": "input_wait", "launch": "launch_gap"})
    known = [
        pieces[_KEY].assign(part="bubble", duration_ns=pieces["bubble"]),
        pieces[_KEY].assign(part=names, duration_ns=pieces["rest"])[names.notna()],
    ]
    told = pd.concat(known, ignore_index=True)
    known_idle = windows[windows["idle_ns"].notna()]
    left = known_idle[[*_KEY, "idle_ns"]].merge(told.groupby(_KEY, dropna=False)["duration_ns"].sum().reset_index(), on=_KEY, how="left")
    rest = left[_KEY].assign(part="idle", duration_ns=left["idle_ns"].astype("int64") - left["duration_ns"].fillna(0).astype("int64"))
    return pd.concat([told, rest], ignore_index=True).assign(emulated_ns=0, axis=None)


def _communication(job: Job, windows: pd.DataFrame, waits: Bubble) -> pd.DataFrame:
    """Exposed communication per axis, split where the wait of the call is known; what waits in a bubble is that."""
    pieces = job.table("exposed").merge(windows[_KEY], on=_KEY, how="inner")
    pieces = _with_waits(pieces, _waits(job))
    start, end, exposed = (pieces[c].to_numpy(np.int64) for c in ("start_ns", "end_ns", "exposed_ns"))
    until = (pieces["from_ns"] + pieces["wait_ns"]).to_numpy(np.int64, na_value=np.iinfo(np.int64).min)
    edge = np.clip(until, start, end)
    late = np.clip(np.maximum(until - pieces["late_ns"].to_numpy(np.int64, na_value=0), start), start, edge)
    axis = _axes(job, pieces)
    spins = (pieces["kind"].isin(list(P2P)) | pieces["kind"].isna()).to_numpy() & (pd.isna(axis) | (axis == Axis.PP))
    cut = pieces.assign(edge_ns=edge, late_start_ns=late)
    # whoever has no action to run waits for the pipeline, whichever call it waits in
    bubble_wait = waits.inside(cut, "start_ns", "edge_ns") + np.where(spins, waits.inside(cut, "start_ns", "edge_ns", "early"), 0)
    bubble_rest = np.where(spins, waits.inside(cut, "edge_ns", "end_ns"), 0)
    # a rank that receives its input does not wait, though another call that it has posted may
    came_wait = np.where(spins, waits.inside(cut, "start_ns", "edge_ns", "arriving"), 0)
    came_rest = np.where(spins, waits.inside(cut, "edge_ns", "end_ns", "arriving"), 0)
    # a piece that is several put together has less exposed time than length: its parts are taken in proportion
    share = exposed / np.maximum(end - start, 1)
    whole = exposed == end - start

    def scaled(ns: Any) -> Any:
        return np.where(whole, ns, np.rint(ns * share).astype(np.int64))

    wait = scaled(edge - start - bubble_wait - came_wait)
    spun = np.minimum(scaled(bubble_wait + bubble_rest), exposed - wait)
    came = np.minimum(scaled(came_wait + came_rest), exposed - wait - spun)
    # what is not waiting is moving bytes only where the transfer is known: a gloo send is pending until somebody waits for it
    rest = exposed - wait - spun - came
    moves = pieces["transfer_ns"].notna().to_numpy()
    back = np.minimum(scaled(edge - late - waits.inside(cut, "late_start_ns", "edge_ns")), wait)
    untold = (pieces["late_ns"].isna().to_numpy() & (wait > 0)).astype(np.int64)
    busy = job.table("busy")
    on_host = pieces["rank"].isin(busy.loc[busy["device_type"].eq("cpu"), "rank"]).to_numpy()
    frames = [
        pieces[_KEY].assign(axis=axis, part="comm_wait", duration_ns=wait, back_ns=back, untold=untold),
        pieces[_KEY].assign(axis=None, part="bubble", duration_ns=spun),
        pieces[_KEY].assign(axis=axis, part=np.where(on_host, "comm_unsplit", "comm_transfer"), duration_ns=came),
        pieces[_KEY].assign(axis=axis, part="comm_transfer", duration_ns=np.where(moves, rest, 0)),
        pieces[_KEY].assign(axis=axis, part="comm_unsplit", duration_ns=np.where(moves, 0, rest)),
    ]
    return pd.concat([f[f["duration_ns"].ne(0)] for f in frames], ignore_index=True).assign(emulated_ns=0)


def _recoverable(rows: pd.DataFrame, windows: pd.DataFrame, waits: Bubble) -> pd.DataFrame:
    """How much of each part could at best come back, and by what: columns source, recoverable_ns, recoverable_by."""
    rows = rows.reset_index(drop=True)
    own, part = rows["duration_ns"], rows["part"]
    free = (windows["compute_ns"].fillna(0) - windows["overlap_ns"].fillna(0)).astype("int64")
    account = rows.groupby(_KEY, dropna=False).ngroup()
    again = own.where(part.eq("recompute"), 0).groupby(account).transform("sum")
    # repeated compute may itself come back: nothing is counted as running under it
    room = (rows[_KEY].merge(windows[_KEY].assign(free=free), on=_KEY, how="left")["free"].fillna(0) - again).clip(lower=0).to_numpy(float)
    wanted = own.where(part.isin(["comm_transfer", "copies"]), 0).groupby(account).transform("sum").to_numpy(float)
    fits = np.minimum(1.0, room / np.maximum(wanted, 1.0))
    keys = rows[["rank", "capture", "step"]].astype(object).itertuples(index=False, name=None)
    share = [waits.avoidable.get((rank, capture, None if pd.isna(step) else int(step))) for rank, capture, step in keys]
    back = pd.array([pd.NA] * len(rows), "Int64")
    choices = {
        **dict.fromkeys(("recompute", "launch_gap", "input_wait"), own.astype("Int64")),
        **dict.fromkeys(("comm_transfer", "copies"), pd.Series(np.floor(own * fits), index=rows.index).astype("Int64")),
        "comm_wait": rows["back_ns"].astype("Int64").mask(rows["untold"].gt(0)),
        "bubble": (own * pd.Series(share, index=rows.index, dtype="Float64")).round().astype("Int64"),
    }
    found = pd.Series(back, index=rows.index)
    for name, values in choices.items():
        found = found.where(part.ne(name), values)
    source = part.map(_SOURCES).fillna("measured").mask(rows["emulated_ns"].gt(0), "emulated")
    source = source.mask(part.eq("bubble"), "inferred") if waits.inferred else source
    by = part.map(RECOVERABLE_BY).astype(object)
    return rows.drop(columns=["back_ns", "untold"]).assign(source=source, recoverable_ns=found, recoverable_by=by.where(found.notna(), None))


def _account(chosen: pd.DataFrame, span: pd.DataFrame, model: Flops) -> pd.DataFrame:
    """The mean account of the job (rank null) and of each rank: ideal compute where the model's FLOPs and the peak are known, then the losses."""
    merged = chosen.assign(part=chosen["part"].where(~chosen["part"].isin(_COMPUTE), "compute"))
    known = merged["part"].isin(list(RECOVERABLE_BY))
    worst = merged["source"].map({source: i for i, source in enumerate(_WORST)})
    merged = merged.assign(unknown=known & merged["recoverable_ns"].isna(), worst=worst)
    both = pd.concat([merged.assign(rank=_JOB), merged], ignore_index=True)
    by = both.groupby(["rank", "part", "axis"], dropna=False, sort=False)
    sums = {"duration_ns": by["duration_ns"].sum(), "back": by["recoverable_ns"].sum(), "unknown": by["unknown"].any(), "worst": by["worst"].min()}
    found = pd.DataFrame(sums).reset_index()
    windows = pd.concat([span.assign(rank=_JOB), span], ignore_index=True).groupby("rank")["span_ns"].agg(["size", "sum"])
    count, total = (found["rank"].map(windows[c]).astype("float64") for c in ("size", "sum"))
    code = found["part"].map(RECOVERABLE_BY).astype(object)
    tells = code.notna() & ~found["unknown"]
    found = found.assign(
        axis=found["axis"].astype(object).where(found["axis"].notna(), None),
        duration_ns=found["duration_ns"] / count,
        source=np.array(_WORST, object)[found["worst"].to_numpy(np.int64)],
        recoverable_ns=(found["back"].astype("Float64") / count).where(tells),
        recoverable_by=code.where(tells, None),
        window_ns=total / count,
    )
    found = _with_ideal(found, _ideal(span, model))
    return _in_order(found.assign(of_step_ratio=found["duration_ns"] / found["window_ns"].mask(found["window_ns"].eq(0))))


def _ideal(span: pd.DataFrame, model: Flops) -> dict[int, float]:
    """Ideal compute of a step in ns, of each rank and of the job (``_JOB``); {} where it is not known of every rank."""
    alone = not span.duplicated(["rank", "capture", "step"]).any()
    if not model.peak or not alone or not set(span["rank"]) <= set(model.by_rank):
        return {}
    ideal = {rank: ns / model.peak * 1e9 for rank, ns in model.by_rank.items()}
    return {**ideal, _JOB: sum(ideal[r] for r in span["rank"]) / len(span)}


def _with_ideal(found: pd.DataFrame, ideal: dict[int, float]) -> pd.DataFrame:
    """The account with compute divided where its ideal part is known and not longer than all of it."""
    wanted = found["rank"].map(ideal).astype("float64").where(found["part"].eq("compute"))
    fits = wanted.gt(0) & wanted.le(found["duration_ns"])
    if not fits.any():
        return found
    own = found[fits].assign(source="derived", recoverable_ns=pd.array([pd.NA] * int(fits.sum()), "Float64"), recoverable_by=None)
    better = own.assign(part="ideal_compute", duration_ns=wanted[fits])
    worse = own.assign(part="kernel_inefficiency", duration_ns=own["duration_ns"] - wanted[fits])
    return pd.concat([better, worse, found[~fits]], ignore_index=True)


def _in_order(found: pd.DataFrame) -> pd.DataFrame:
    """The job's account first: work, then the losses from the largest to the smallest; then each rank's in the same order of parts."""
    work = {"ideal_compute": 0, "kernel_inefficiency": 1, "compute": 2, "graph": 3, "optimizer": 4}
    found = found.assign(_work=found["part"].map(work).fillna(9)).sort_values(["rank", "_work", "duration_ns"], ascending=[True, True, False], kind="stable")
    keys = list(zip(found["part"], found["axis"], strict=True))
    order = {key: i for i, (key, rank) in enumerate(zip(keys, found["rank"], strict=True)) if rank == _JOB}
    found = found.assign(_place=[order.get(key, len(keys)) for key in keys]).sort_values(["rank", "_place"], kind="stable", ignore_index=True)
    found = found.assign(rank=found["rank"].astype("Int64").mask(found["rank"].eq(_JOB)), what=found["recoverable_by"].map(WHAT).astype(object))
    columns = ["rank", "part", "axis", "duration_ns", "of_step_ratio", "source", "recoverable_ns", "recoverable_by", "what"]
    return found[columns].astype({"recoverable_ns": "Float64"})


def _with_waits(pieces: pd.DataFrame, waits: pd.DataFrame) -> pd.DataFrame:
    """Pieces with the wait of their call; a gloo send or receive counts from its posting, so there the end alone tells the call."""
    exact = pieces.merge(waits, on=_CALL, how="left")
    ends = ["rank", "capture", "call_end_ns"]
    alone = waits.drop_duplicates(ends, keep=False).drop(columns="call_start_ns")
    by_end = pieces.merge(alone, on=ends, how="left")
    found = {c: exact[c].where(exact["from_ns"].notna(), by_end[c]) for c in ("from_ns", "wait_ns", "transfer_ns", "late_ns", "call_axis")}
    return exact.assign(**found)


def _waits(job: Job) -> pd.DataFrame:
    """Wait, transfer and axis of every call by rank, capture, start and end; null where they are not known exactly."""
    names = [*_CALL, "from_ns", "wait_ns", "transfer_ns", "late_ns", "call_axis"]
    parts = []
    if len(job.by_rank):
        about = job.instances[["instance", "capture", "axis", "wait_is_lower_bound"]]
        calls = job.by_rank.merge(about, on="instance", how="left")
        calls = calls.assign(wait_ns=calls["wait_ns"].astype("Int64").mask(calls["wait_is_lower_bound"].astype(bool)))
        parts.append(_named(calls, "rank", "").assign(late_ns=_lateness(job.by_rank).reindex(calls["instance"]).array))
    if len(job.p2p):
        for who, side in (("src", "send"), ("dst", "recv")):
            known = job.p2p[job.p2p[f"{side}_start_ns"].notna()]
            parts.append(_named(known, who, f"{side}_").assign(late_ns=pd.array([pd.NA] * len(known), "Int64")))
    if not parts:
        return pd.DataFrame({name: pd.Series(dtype="Int64") for name in names}).astype({"call_axis": object, **dict.fromkeys(_CALL, "int64")})
    return pd.concat(parts, ignore_index=True).drop_duplicates(_CALL)


def _lateness(by_rank: pd.DataFrame) -> pd.Series[Any]:
    """By how much the last rank of each instance came after the one before it; null where a start is not known, or one rank is there."""
    starts = by_rank[["instance", "start_ns"]].astype({"start_ns": "Int64"}).sort_values(["instance", "start_ns"], kind="stable")
    before = starts["start_ns"].groupby(starts["instance"]).shift()
    last = ~starts.duplicated("instance", keep="last")
    return pd.Series((starts["start_ns"] - before)[last].array, index=starts.loc[last, "instance"].to_numpy())


def _named(calls: pd.DataFrame, rank: str, side: str) -> pd.DataFrame:
    """One end of each call under the names of ``_waits``; ``side`` is the prefix of its columns."""
    names = {rank: "rank", f"{side}start_ns": "call_start_ns", f"{side}end_ns": "call_end_ns"}
    frame = calls.rename(columns=names)[_CALL].astype("int64")
    parts = {name: calls[column].astype("Int64") for name, column in (("wait_ns", f"{side}wait_ns"), ("transfer_ns", "transfer_ns"))}
    return frame.assign(from_ns=frame["call_start_ns"].astype("Int64"), **parts, call_axis=calls["axis"].astype(object))


def _axes(job: Job, pieces: pd.DataFrame) -> np.ndarray:
    """Mesh axis of each piece: of the matched call, of its group's ranks, of its group's description; sends without a group: pp."""
    axis = pieces["call_axis"].astype(object)
    names = {description: group_axis(description) for description in pieces["group_desc"].dropna().unique()}
    for known in (pieces["group_ranks"].map(dict(job.axis_of)), pieces["group_desc"].map(names)):
        axis = axis.where(axis.notna(), known.astype(object))
    lone = axis.isna() & pieces["kind"].isin(list(P2P)) & (job.mesh.get("pp", 1) > 1)
    return np.asarray(axis.where(~lone, "pp").where(axis.notna() | lone, None).to_numpy(object))


def _notes(job: Job, rows: pd.DataFrame, waits: Bubble, model: Flops, account: pd.DataFrame) -> tuple[str, ...]:
    notes = ["Each ns counts once: compute before exposed collectives before exposed sends and receives before copies before idle."]
    notes.append("What could come back of each part is the most of that part alone: the parts are not additive.")
    present = set(rows["part"])
    if "graph" in present:
        notes.append("CUDA graphs were recorded as one piece: the busy time of their steps stands undivided (graph).")
    if "comm_unsplit" in present:
        notes.append(
            "What stands as exposed communication only (comm_unsplit) is waiting and moving bytes that cannot be told apart: ranks are "
            "missing, calls could not be matched, or (gloo) an operation counts as over only when somebody waits for it."
        )
    if "bubble" in present:
        notes.append(
            "bubble is the time in the pipeline's fill, waits and drain in which a rank idles, waits in a call, or its sends and receives spin; what it "
            "computes, moves or copies meanwhile stands as what it is. A rank that drains early begins its next step early: its bubble lies there."
        )
    if waits.unknown:
        notes.append("The window of some pipelines is unknown: their bubble stands where it shows, in idle time and in waiting to receive.")
    if "idle" in present:
        notes.append("idle has no known cause: its length is exact, what the device waited for is not in the recording.")
    if model.model is None:
        notes.append(f"Ideal compute is unknown: {model.why_not}.")
    elif model.peak is None:
        notes.append(f"Ideal compute is unknown: {model.peak_source}.")
    elif not model.by_rank:
        notes.append(f"Ideal compute is unknown: {model.why_not_by_rank}.")
    elif not account["part"].eq("ideal_compute").any():
        notes.append("Ideal compute is unknown: the model's FLOPs take longer at the peak than compute took; the sizes or the peak are not those of this run.")
    if job.emulated:
        notes.append("Compute was emulated: forward and backward were slept, not computed.")
    return tuple(notes)


METRIC = Metric(
    name="budget",
    title="Step budget",
    question="Where did each rank's step go, as one account that adds up to the step, and how much could come back?",
    definition=(
        "The step of each rank and device, in device time, divided so that every ns counts once and the parts sum to it exactly. Parts: "
        "forward, backward, recompute, optimizer and other compute (unions; where phases run at "
        "once, recompute before backward before forward before optimizer), exposed communication per mesh axis, divided into waiting for "
        "the last rank and moving bytes, the pipeline bubble (fill, waits between actions and drain, where the rank idles, waits in a call, or its sends "
        "and receives spin), exposed copies, and idle time: while the host fetched data (input_wait), before work that the host launched only when "
        "the device was idle (launch_gap), and the rest, of which no cause is known (idle). An exposed ns under two calls goes to a "
        "collective before a send or receive, else to the call that began first. The account "
        "joins forward, backward and other compute, and divides them where sizes and peak are known: ideal_compute = model FLOPs of the rank / peak, "
        "kernel_inefficiency = compute - ideal_compute. source: measured, derived (from several ranks or a closed form), inferred, emulated, or "
        "unknown (of exact length, without a known cause). recoverable_ns is the most that could come back by recoverable_by: memory (not "
        "recomputing), late_rank (the last rank of each collective coming when the one before it did), overlap (running under compute that is not "
        "repeated and hides no communication), balance (the share of the bubble that uneven stages and times and hand-overs cause, by simulation), "
        "fetch_ahead, "
        "launch_ahead; null: not known. Each is the most of its part alone: they are not additive."
    ),
    compute=compute,
)
