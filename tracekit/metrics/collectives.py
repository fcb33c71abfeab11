"""What did each collective cost, of what layer is it, and was it waiting or moving bytes?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from tracekit import theory
from tracekit.job.base import Job
from tracekit.link_speed import ANY, speed_of
from tracekit.metrics.base import Metric, Result, unavailable
from tracekit.vocabulary import Axis, Collective, Direction, layer_index, sublayer

_SUMS = ["nbytes", "wire_bytes", "duration_ns", "transfer_ns", "wait_ns", "exposed_ns"]
_IN_LAYERS = [Direction.FORWARD, Direction.BACKWARD, Direction.RECOMPUTE]

_INSTANCES = ["instance", "capture", "step", "kind", "group", "group_ranks", "group_size", "axis", "seq", "nbytes", "dtype"]
_INSTANCES += [
    "layer",
    "layer_index",
    "sublayer",
    "layer_last",
    "layer_source",
    "direction",
    "microbatch",
    "stage",
    "duration_ns",
    "transfer_ns",
    "transfer_upper_bound_ns",
    "wait_max_ns",
    "wait_ns",
    "exposed_max_ns",
    "exposed_ns",
]
_INSTANCES += ["algbw_gbps", "busbw_gbps", "wire_bytes", "matched_ranks", "wait_is_lower_bound", "wait_resolution_ns", "matched_by", "time_source"]


def compute(job: Job) -> Result:
    """Instances, calls by rank, sends with receives, and sums by layer and by kind."""
    sends = job.table("p2p_calls")
    if not len(job.instances) and not len(sends):
        if job.world_size == 1:
            return unavailable("no communication was recorded: the job is a single rank")
        return unavailable("no communication was recorded: a single rank, or a profile without CUDA activity or gloo ranges")
    instances = _with_rates(_with_sums(job.instances, job.by_rank))
    tables = {
        "instances": instances[_INSTANCES].assign(group_ranks=_lists(instances["group_ranks"])),
        "by_rank": job.by_rank,
        "p2p": job.p2p.assign(group_ranks=_lists(job.p2p["group_ranks"])) if len(job.p2p) else job.p2p,
        "by_layer": _add_up(instances, ["layer", "layer_last", "layer_index", "axis", "direction", "kind"]).sort_values(
            ["step", "layer_index", "layer", "direction", "kind"], kind="stable", na_position="first", ignore_index=True
        ),
        "by_sublayer": _by_sublayer(instances),
        "by_kind": _beside_links(_by_kind(instances), job.link_gbps),
        "layer_pattern": job.pattern.table,
        "host_waits": job.table("host_waits"),
    }
    return Result(
        summary={**_summary(job, instances), **_pattern(job, instances), **_beside(job, instances, sends)}, tables=tables, notes=_notes(job, instances)
    )


def _with_sums(instances: pd.DataFrame, by_rank: pd.DataFrame) -> pd.DataFrame:
    """Sums over the ranks of each instance; null where the share of one rank is unknown."""
    by_instance = by_rank.assign(duration_ns=by_rank["end_ns"] - by_rank["start_ns"]).groupby("instance", sort=False)
    sums = {c: by_instance[c].sum().mask(by_instance[c].count() < by_instance.size()) for c in ("wait_ns", "exposed_ns")}
    # an uneven all-to-all has no single size; the mean of its ranks' buffers stands in sums
    sums["duration_ns"] = by_instance["duration_ns"].sum()
    sums["mean_nbytes"] = by_instance["nbytes"].mean().round().astype("Int64")
    out = instances.join(pd.DataFrame(sums), on="instance")
    index = {name: layer_index(name) for name in out["layer"].dropna().unique()}
    part = out["layer"].map({name: sublayer(name) for name in index}).astype(object)
    return out.assign(
        layer_index=out["layer"].map(index).astype("Int64"),
        # a bucket over several layers is of no one sublayer
        sublayer=part.where(part.notna() & out["layer_last"].isna(), None),
        wait_ns=out["wait_ns"].astype("Int64"),
        exposed_ns=out["exposed_ns"].astype("Int64"),
    )


def _with_rates(instances: pd.DataFrame) -> pd.DataFrame:
    """algbw, busbw and the ring's bytes of each instance; the closed forms run once per kind and group size."""
    nbytes, sizes = instances["nbytes"].astype("Int64"), instances["group_size"].astype("Int64")
    shape = pd.DataFrame({"kind": instances["kind"].astype(object), "n": sizes, "size": nbytes})
    distinct = shape.dropna().drop_duplicates()
    forms = distinct.assign(
        factor=pd.array([theory.busbw_factor(k, int(n)) for k, n, _ in distinct.itertuples(index=False)], "Float64"),
        wire=pd.array([theory.wire_bytes(k, int(b), int(n)) for k, n, b in distinct.itertuples(index=False)], "Int64"),
    )
    found = shape.merge(forms, on=["kind", "n", "size"], how="left").set_index(instances.index)
    transfer = instances["transfer_ns"].astype("Float64").mask(instances["transfer_ns"].eq(0).fillna(False))
    algbw = nbytes.astype("Float64") / transfer
    # a copy has one sender and no group; a barrier moves nothing that a bandwidth could be told of
    copies, barriers = (instances["kind"].eq(kind) for kind in (Collective.PEER_COPY, Collective.BARRIER))
    return instances.assign(
        algbw_gbps=algbw.mask(barriers),
        busbw_gbps=(algbw * found["factor"].mask(copies, 1.0)).mask(barriers),
        wire_bytes=found["wire"].mask(copies, nbytes).mask(barriers),
    )


def _add_up(instances: pd.DataFrame, keys: list[str], columns: list[str] = _SUMS) -> pd.DataFrame:
    """Sums over instances by keys, of every step and of all steps together (step null).

    ``transfer_ns`` adds instances, ``duration_ns``, ``wait_ns`` and ``exposed_ns`` add instances and ranks. A sum with an unknown part is null.
    """
    part = instances.assign(nbytes=instances["nbytes"].fillna(instances["mean_nbytes"]))[["step", *keys, *columns]]
    every = pd.concat([part.assign(step=pd.array([None] * len(part), "Int64"), whole=True), part[part["step"].notna()].assign(whole=False)], ignore_index=True)
    grouped = every.groupby(["whole", "step", *keys], sort=False, dropna=False)
    count, known = grouped.size().to_numpy(), grouped[columns].count().reset_index(drop=True)
    sums = grouped[columns].sum().reset_index()
    out = sums.assign(count=count, **{c: sums[c].mask(known[c].lt(count)) for c in columns})
    return out[["step", *keys, "count", *columns]]


def _by_sublayer(instances: pd.DataFrame) -> pd.DataFrame:
    """Sums by sublayer, axis, direction and kind; no rows where no module path tells one."""
    out = _add_up(instances if instances["sublayer"].notna().any() else instances.iloc[:0], ["sublayer", "axis", "direction", "kind"])
    return out.sort_values(["step", "sublayer", "direction", "kind"], kind="stable", na_position="first", ignore_index=True)


def _by_kind(instances: pd.DataFrame) -> pd.DataFrame:
    """Sums by kind, axis and direction, with the bus bandwidth over all of their bytes."""
    keys = ["kind", "axis", "direction", "time_source"]
    moved = instances.assign(bus_bytes=instances["busbw_gbps"] * instances["transfer_ns"])
    out = _add_up(moved, keys, [*_SUMS, "bus_bytes"])
    busbw = out["bus_bytes"].astype("Float64") / out["transfer_ns"].astype("Float64").mask(out["transfer_ns"].eq(0).fillna(False))
    return out.drop(columns="bus_bytes").assign(busbw_gbps=busbw).sort_values(["step", "kind", "axis"], kind="stable", na_position="first", ignore_index=True)


def _beside_links(by_kind: pd.DataFrame, speeds: Mapping[str, float]) -> pd.DataFrame:
    """The same with the speed of the axis's links, where one was given, and the share of it that the bus bandwidth is."""
    link = pd.array([speed_of(speeds, axis) for axis in by_kind["axis"]], "Float64")
    return by_kind.assign(link_gbps=link, busbw_of_link_ratio=by_kind["busbw_gbps"] / link)


def _summary(job: Job, instances: pd.DataFrame) -> dict[str, Any]:
    by_rank, p2p, n = job.by_rank, job.p2p, len(instances)
    moving = instances["kind"].ne(Collective.BARRIER)
    out: dict[str, Any] = {
        "instances": n,
        "calls": len(by_rank),
        "p2p": len(p2p),
        "nbytes": _total(instances["nbytes"][moving]),
        "wire_bytes": _total(instances["wire_bytes"][moving]),
        "transfer_total_ns": _known(instances["transfer_ns"]),
        "wait_total_ns": _known(by_rank["wait_ns"]),
        "exposed_total_ns": _known(by_rank["exposed_ns"]),
        "unknown_transfers": int(instances["transfer_ns"].isna().sum()),
        "unknown_waits": int(by_rank["wait_ns"].isna().sum()),
        "wait_is_lower_bound": bool(instances["wait_is_lower_bound"].any()),
    }
    both = by_rank[by_rank["wait_ns"].notna() & by_rank["transfer_ns"].notna()]
    whole = int(both["wait_ns"].sum() + both["transfer_ns"].sum())
    out["wait_share_ratio"] = int(both["wait_ns"].sum()) / whole if whole else None
    for name in ("transfer", "transfer_upper_bound", "recv_wait"):
        out[f"p2p_{name}_total_ns"] = _known(p2p[f"{name}_ns"]) if len(p2p) else None
    inside = instances[instances["direction"].isin(_IN_LAYERS)]
    for source in ("fsdp", "range", "module", "sequence", "inferred"):
        out[f"layer_from_{source}_ratio"] = int(instances["layer_source"].eq(source).sum()) / n if n else None
    out["layer_unknown_ratio"] = int(instances["layer"].isna().sum()) / n if n else None
    out["compute_collectives_without_layer"] = int(inside["layer"].isna().sum())
    return out


def _pattern(job: Job, instances: pd.DataFrame) -> dict[str, Any]:
    """Which scheme tensor-parallel layers follow, what they issue per microbatch, and what recomputation issues again."""
    table = job.pattern.table
    inside = instances[instances["direction"].isin(_IN_LAYERS) & instances["axis"].eq(Axis.TP) & instances["layer_index"].notna()]
    again = instances[instances["direction"].eq(Direction.RECOMPUTE)]
    repeated = table[table["direction"].eq(Direction.RECOMPUTE)]
    out: dict[str, Any] = {
        "tp_layers": int(table["layer"].nunique()),
        "tp_variant": job.pattern.variant,
        "tp_layers_that_differ": int(table["layer"][table["differs"].eq(True)].nunique()) if table["differs"].notna().any() else None,
        "tp_layer_wire_bytes": _total(inside["wire_bytes"]) if len(inside) else None,
    }
    for kind in (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER):
        for direction in (Direction.FORWARD, Direction.BACKWARD):
            out[f"tp_{kind}_{direction}_per_layer_microbatch"] = _uniform(table, kind, direction)
    by_layer = repeated.groupby("layer")
    out["tp_recompute_per_layer_microbatch"] = _same(by_layer["count_min"].sum(min_count=1), by_layer["count_max"].sum(min_count=1)) if len(table) else None
    out["tp_recompute_duration_per_layer_microbatch_ns"] = _mean(by_layer["duration_mean_ns"].sum(min_count=1)) if len(repeated) else None
    out["recompute_instances"] = len(again)
    out["recompute_total_ns"] = _total(again["duration_ns"]) if len(again) else None
    holds = table["holds"][table["expected"].notna()]
    out["tp_pattern_holds"] = bool(holds.astype(bool).all()) if len(holds) else None
    return out


def _beside(job: Job, instances: pd.DataFrame, sends: pd.DataFrame) -> dict[str, Any]:
    """What is no collective on a device: kernels of sends and receives, barriers, peer copies, host time."""
    kind, host = instances["kind"], instances["time_source"].eq("host")
    # the operations of a coalesced kernel are one kernel
    kernels = pd.concat([sends[sends["batch"].isna()], sends[sends["batch"].notna()].drop_duplicates(["rank", "capture", "batch"])])
    waits = job.table("host_waits")
    return {
        "p2p_kernels": len(kernels),
        "p2p_kernel_total_ns": int((kernels["end_ns"] - kernels["start_ns"]).sum()) if len(kernels) else None,
        "barriers": int(kind.eq(Collective.BARRIER).sum()),
        "peer_copies": int(kind.eq(Collective.PEER_COPY).sum()),
        "unknown_kinds": int(kind.isna().sum()),
        "unknown_sizes": int((instances["nbytes"].isna() & instances["mean_nbytes"].isna() & kind.ne(Collective.BARRIER)).sum()),
        "host_time_instances": int(host.sum()),
        "host_time_total_ns": int(instances["duration_ns"][host].sum()) if host.any() else None,
        "host_wait_total_ns": int(waits["host_wait_ns"].sum()) if len(waits) else None,
    }


def _uniform(table: pd.DataFrame, kind: str, direction: str) -> int | float | None:
    """The one count that every layer has; 0 where the job has layers but none of these; null where they differ."""
    rows = table[table["kind"].eq(kind) & table["direction"].eq(direction)]
    return _same(rows["count_min"], rows["count_max"]) if len(table) else None


def _same(low: pd.Series, high: pd.Series) -> int | float | None:
    """The one number that all of these are, 0 for none of them, null where they differ or one is unknown."""
    values = {0.0} if not len(low) else {None if pd.isna(v) else float(v) for v in (*low, *high)}
    value = values.pop() if len(values) == 1 else None
    return int(value) if value is not None and value.is_integer() else value


def _mean(column: pd.Series) -> float | None:
    """Mean; null where a part is unknown."""
    return None if column.isna().any() else float(column.mean())


def _notes(job: Job, instances: pd.DataFrame) -> tuple[str, ...]:
    notes = []
    devices = {facts.meta.device_type for facts in job.ranks.values()}
    if "cpu" in devices and instances["time_source"].eq("device").any():
        notes.append("On gloo a collective ends when gloo's thread has finished, which may be later than the last byte when the processors are shared.")
    if "cpu" in devices and len(job.p2p):
        notes.append(
            "On gloo a send or receive ends when somebody waits for it: its transfer is unknown, transfer_upper_bound_ns is the longest it can have been."
        )
    if job.emulated:
        notes.append("Compute was emulated: the ranks slept; the communication is real.")
    if instances["matched_by"].eq("ends").any():
        notes.append("The trace names no process groups: groups were inferred from calls that end together, in order, on one stream per rank.")
    if instances["matched_by"].eq("order").any():
        notes.append("Some collectives carry no sequence number: they were matched by their order within group and step.")
    if instances["wait_is_lower_bound"].any():
        notes.append("Ranks are missing: where a group is incomplete its waits are lower bounds and its transfers unknown.")
    if len(job.p2p) and (job.p2p["coalesced"] & job.p2p["transfer_ns"].isna()).any():
        notes.append("One kernel carried several sends and receives: it cannot be divided, so their transfers are unknown.")
    if len(job.p2p) and job.p2p["coalesced"].any():
        notes.append("Such kernels carry no metadata: sizes and peers of their sends and receives are inferred from the calls before the launch.")
    if instances["time_source"].eq("host").any():
        notes.append(
            "Only host records stand for some calls (time_source host): their times are host time, not device time, and tell neither waits nor overlap."
        )
    sizeless = instances["nbytes"].isna() & instances["mean_nbytes"].isna() & instances["kind"].ne(Collective.BARRIER)
    if sizeless.any():
        notes.append(f"{int(sizeless.sum())} collectives state no size, or an element type of unknown width: their bytes and bandwidths are unknown, not 0.")
    axes = set(instances["axis"].dropna())
    unused = [axis for axis in job.link_gbps if axis not in (ANY, *axes) and not (axis == "dp" and any(a.startswith("dp_") for a in axes))]
    if unused:
        notes.append(f"A link speed was given for {', '.join(unused)}, of which there is no collective here; there are {', '.join(sorted(axes)) or 'none'}.")
    if instances["kind"].isna().any():
        notes.append("Some communication kernels name no kind (RCCL runs one kernel for every kind) and no record beside them does.")
    if job.pattern.reason is not None:
        notes.append(f"Which scheme of tensor parallelism the layers follow is unknown: {job.pattern.reason}.")
    return tuple(notes)


def _lists(ranks: pd.Series) -> pd.Series:
    """'0,1' -> [0, 1]."""
    table = {text: [int(r) for r in text.split(",")] for text in ranks.dropna().unique()}
    return pd.Series([table.get(text) if isinstance(text, str) else None for text in ranks], index=ranks.index, dtype=object)


def _total(column: pd.Series) -> int | None:
    """Sum; null where a part is unknown."""
    return None if column.isna().any() else int(column.sum())


def _known(column: pd.Series) -> int | None:
    """Sum of what is known; null where nothing is."""
    return int(column.sum()) if column.notna().any() else None


METRIC = Metric(
    name="collectives",
    title="Collectives",
    question="What did each collective cost, of what layer is it, and was it waiting or moving bytes?",
    definition=(
        "Calls of several ranks are one instance by (set of ranks, group, sequence number). wait_r = latest start - start_r; "
        "transfer_r = end_r - latest start, so duration = wait + transfer exactly; an instance's transfer is the (lower) median over its ranks. Missing ranks: "
        "the wait is a lower bound, the transfer unknown. algbw = nbytes / transfer, busbw = algbw x 2(n-1)/n for all-reduce, (n-1)/n for all-gather and "
        "reduce-scatter (total size) and all-to-all (one send buffer); 1 GB = 1e9 bytes (NVIDIA nccl-tests, PERFORMANCE.md). wire_bytes = what each "
        "member sends in a ring; over several collectives it adds one member of each. busbw_of_link_ratio = busbw / link_gbps, "
        "the links' speed where it was given. "
        "A barrier has no bandwidth; a peer_copy (copy engine, one-sided) waits for nobody. time_source host: only the host's call was recorded. "
        "exposed = part not under this rank's compute. Layer: FSDP range, recorder range, nn.Module frame, Sequence number of the forward "
        "operator, else inferred; layer_source says which; sublayer by the names in its path. tp_variant: the scheme whose collectives every layer has per "
        "microbatch in steady steps: tensor_parallel = 2 all-reduces forward, 2 backward (Megatron-LM, arXiv 1909.08053); sequence_parallel = 2 all-gathers "
        "and 2 reduce-scatters each way, _regather_1 or _2 with as many more all-gathers backward (arXiv 2205.05198); what recomputation repeats is apart. "
        "Sends pair with receives by order between two ranks."
    ),
    compute=compute,
)
