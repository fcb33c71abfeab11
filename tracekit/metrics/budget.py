"""Where did each rank's step go, as one account that adds up to the step?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tracekit.job.base import Job
from tracekit.metrics.base import Metric, Result, unavailable
from tracekit.vocabulary import P2P, group_axis

#: Parts in the order of an account; communication parts stand once per axis.
PARTS = ("forward", "backward", "recompute", "optimizer", "other_compute", "graph", "comm_wait", "comm_transfer", "comm_unsplit", "copies", "idle")
_KEY = ["rank", "capture", "device", "step"]
_CALL = ["rank", "capture", "call_start_ns", "call_end_ns"]


def compute(job: Job) -> Result:
    """The account per rank, device and step, and the mean share of each part over steady steps."""
    busy = job.table("busy")
    windows = busy[busy["step"].notna()] if busy["step"].notna().any() else busy
    if len(windows) and windows["busy_ns"].isna().any():
        return unavailable("communication left host records only: what of the step it took, and what was idle, is unknown")
    if not len(windows) or not windows["busy_ns"].sum():
        return unavailable("no device work was recorded: profile with CUDA activity, or with gloo on CPU")
    whole = windows["graph_ns"].gt(0)
    divided = windows[~whole]
    rows = pd.concat([_compute(job, divided), _communication(job, divided), _rest(divided), _undivided(windows[whole])], ignore_index=True)
    rows = rows[rows["duration_ns"].ne(0)].sort_values(_KEY, kind="stable").reset_index(drop=True)
    steady = rows[rows["step"].isin(job.steady_steps)]
    chosen = steady if len(steady) else rows
    span = windows[windows["step"].isin(job.steady_steps)] if len(steady) else windows
    total = float(span["span_ns"].sum())
    shares = chosen.groupby("part")["duration_ns"].sum()
    summary: dict[str, Any] = {"step_ns": round(total / len(span)), "accounts": len(span)}
    # where some busy time is not divided, the share of no other part of it is known
    told = PARTS if "graph" not in shares else ("graph", "idle")
    summary |= {f"{part}_ratio": float(shares.get(part, 0)) / total if total and part in told else None for part in PARTS}
    summary["emulated_ratio"] = float(chosen["emulated_ns"].sum()) / total if total else None
    exposed = chosen[chosen["axis"].notna() | chosen["part"].str.startswith("comm_")]
    axes = exposed.groupby([exposed["axis"].fillna("unknown"), "part"])["duration_ns"].sum().rename("duration_ns").reset_index()
    axes = axes.assign(of_step_ratio=axes["duration_ns"] / total if total else None)
    return Result(summary, {"ranks": rows, "axes": axes}, notes=_notes(job, chosen))


def _compute(job: Job, windows: pd.DataFrame) -> pd.DataFrame:
    parts = job.table("compute_parts")
    return parts.merge(windows[_KEY], on=_KEY, how="inner").assign(axis=None)


def _rest(windows: pd.DataFrame) -> pd.DataFrame:
    """Copies and idle time."""
    both = [windows[_KEY].assign(part=part, duration_ns=windows[column]) for part, column in (("copies", "exposed_memcpy_ns"), ("idle", "idle_ns"))]
    return pd.concat(both, ignore_index=True).assign(emulated_ns=0, axis=None)


def _undivided(windows: pd.DataFrame) -> pd.DataFrame:
    """Busy time that cannot be divided, because whole CUDA graphs are among the work, and idle time."""
    both = [windows[_KEY].assign(part=part, duration_ns=windows[column]) for part, column in (("graph", "busy_ns"), ("idle", "idle_ns"))]
    return pd.concat(both, ignore_index=True).assign(emulated_ns=0, axis=None)


def _communication(job: Job, windows: pd.DataFrame) -> pd.DataFrame:
    """Exposed communication per axis, split where the wait of the call is known."""
    pieces = job.table("exposed").merge(windows[_KEY], on=_KEY, how="inner")
    pieces = _with_waits(pieces, _waits(job))
    until = pieces["from_ns"] + pieces["wait_ns"]
    length = (pieces["end_ns"] - pieces["start_ns"]).astype("float64")
    inside = (until.clip(upper=pieces["end_ns"]) - pieces["start_ns"]).clip(lower=0)
    # a piece that is several put together has less exposed time than length: its wait is taken in proportion
    whole = pieces["exposed_ns"].eq(pieces["end_ns"] - pieces["start_ns"])
    scaled = (inside.astype("Float64") / length * pieces["exposed_ns"]).round().astype("Int64")
    wait = inside.where(whole, scaled)
    # what is not waiting is moving bytes only where the transfer is known: a gloo send is pending until somebody waits for it
    rest = pieces["exposed_ns"] - wait.fillna(0)
    moves = pieces["transfer_ns"].notna()
    axis = _axes(job, pieces)
    frames = []
    for part, duration in (("comm_wait", wait.fillna(0)), ("comm_transfer", rest.where(moves, 0)), ("comm_unsplit", rest.where(~moves, 0))):
        frames.append(pieces[_KEY].assign(axis=axis, part=part, duration_ns=duration.astype("int64")))
    rows = pd.concat(frames, ignore_index=True)
    return rows.groupby([*_KEY, "part", "axis"], dropna=False, sort=False)["duration_ns"].sum().reset_index().assign(emulated_ns=0)


def _with_waits(pieces: pd.DataFrame, waits: pd.DataFrame) -> pd.DataFrame:
    """Pieces with the wait of their call; a gloo send or receive counts from its posting, so there the end alone tells the call."""
    exact = pieces.merge(waits, on=_CALL, how="left")
    ends = ["rank", "capture", "call_end_ns"]
    alone = waits.drop_duplicates(ends, keep=False).drop(columns="call_start_ns")
    by_end = pieces.merge(alone, on=ends, how="left")
    found = {c: exact[c].where(exact["from_ns"].notna(), by_end[c]) for c in ("from_ns", "wait_ns", "transfer_ns", "call_axis")}
    return exact.assign(**found)


def _waits(job: Job) -> pd.DataFrame:
    """Wait, transfer and axis of every call by rank, capture, start and end; null where they are not known exactly."""
    names = [*_CALL, "from_ns", "wait_ns", "transfer_ns", "call_axis"]
    parts = []
    if len(job.by_rank):
        about = job.instances[["instance", "capture", "axis", "wait_is_lower_bound"]]
        calls = job.by_rank.merge(about, on="instance", how="left")
        calls = calls.assign(wait_ns=calls["wait_ns"].astype("Int64").mask(calls["wait_is_lower_bound"].astype(bool)))
        parts.append(_named(calls, "rank", ""))
    if len(job.p2p):
        for who, side in (("src", "send"), ("dst", "recv")):
            known = job.p2p[job.p2p[f"{side}_start_ns"].notna()]
            parts.append(_named(known, who, f"{side}_"))
    if not parts:
        return pd.DataFrame({name: pd.Series(dtype="Int64") for name in names}).astype({"call_axis": object, **dict.fromkeys(_CALL, "int64")})
    return pd.concat(parts, ignore_index=True).drop_duplicates(_CALL)


def _named(calls: pd.DataFrame, rank: str, side: str) -> pd.DataFrame:
    """One end of each call under the names of ``_waits``; ``side`` is the prefix of its columns."""
    names = {rank: "rank", f"{side}start_ns": "call_start_ns", f"{side}end_ns": "call_end_ns"}
    frame = calls.rename(columns=names)[_CALL].astype("int64")
    parts = {name: calls[column].astype("Int64") for name, column in (("wait_ns", f"{side}wait_ns"), ("transfer_ns", "transfer_ns"))}
    return frame.assign(from_ns=frame["call_start_ns"].astype("Int64"), **parts, call_axis=calls["axis"].astype(object))


def _axes(job: Job, pieces: pd.DataFrame) -> np.ndarray:
    """Mesh axis of each piece: of the matched call, of its group's ranks, of its group's description; sends without a group: pp."""
    axis = pieces["call_axis"].astype(object)
    by_ranks = pieces["group_ranks"].map(lambda r: job.axis_of.get(r) if isinstance(r, str) else None)
    by_name = pieces["group_desc"].map(lambda d: group_axis(d) if isinstance(d, str) else None)
    axis = axis.where(axis.notna(), by_ranks.astype(object))
    axis = axis.where(axis.notna(), by_name.astype(object))
    lone = axis.isna() & pieces["kind"].isin(list(P2P)) & (job.mesh.get("pp", 1) > 1)
    return np.asarray(axis.where(~lone, "pp").where(axis.notna() | lone, None).to_numpy(object))


def _notes(job: Job, rows: pd.DataFrame) -> tuple[str, ...]:
    notes = ["Each ns counts once: compute before exposed collectives before exposed sends and receives before copies before idle."]
    if rows["part"].eq("graph").any():
        notes.append("CUDA graphs were recorded as one piece: the busy time of their steps stands undivided (graph).")
    if rows["part"].eq("comm_unsplit").any():
        notes.append(
            "What stands as exposed communication only (comm_unsplit) is waiting and moving bytes that cannot be told apart: ranks are "
            "missing, calls could not be matched, or (gloo) an operation counts as over only when somebody waits for it."
        )
    if len(job.p2p):
        on_gpu = job.table("busy")["device_type"].eq("gpu").any()
        spins = "a receive that waits spins on the GPU" if on_gpu else "a receive that waits counts as communication, the rest of the bubble as idle"
        notes.append(f"The pipeline bubble is no part of its own here: {spins}. The pipeline metric measures it.")
    if job.emulated:
        notes.append("Compute was emulated: forward and backward were slept, not computed.")
    return tuple(notes)


METRIC = Metric(
    name="budget",
    title="Step budget",
    question="Where did each rank's step go, as one account that adds up to the step?",
    definition=(
        "Per rank, device and step, in device time: forward, backward, recompute, optimizer and other compute (unions; where phases run at "
        "once, recompute before backward before forward before optimizer), exposed communication per mesh axis, divided into waiting for "
        "the last rank and moving bytes, exposed copies, and idle. Every ns counts once: an exposed ns under two calls goes to a collective"
        " before a send or receive, else to the call that began first. The parts sum to the step's window exactly; idle is what nothing "
        "else covers (launch gaps, host work, a pipeline bubble that no receive fills)."
    ),
    compute=compute,
)
