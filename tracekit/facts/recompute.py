"""How much compute did repeating forwards cost, by layer, beside forward and backward proper?

A repeated forward is a forward operator below an autograd node (the passes mark it: column ``recompute``). Times are sums of
compute durations: of kernels on a GPU, of operators (none counted inside another) and slept ranges on a CPU run. Collectives issued again are
counted apart, waits included. A compiled backward, or a trace without sequence numbers, module frames and recorder ranges, cannot
tell: then ``decidable`` is false.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit import schema
from tracekit.columns import Objects, Rows, integers
from tracekit.trace import RankTrace
from tracekit.vocabulary import LAYER_INDEX, Direction, Kind, Phase, layer_index, parse_module_span, sublayer
from tracekit.work import work_masks

_NODE = "autograd::engine::evaluate_function"
_COMPILED = "CompiledFunctionBackward"
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::_scaled_mm")
_MODE = "PythonDispatchMode"
_COUNTS = ("forward_products", "recompute_products")
_SUMS = ("forward_ns", "backward_ns", "recompute_ns", "reissued_collective_ns", "reissued_collectives")


def recompute(trace: RankTrace) -> dict[str, pd.DataFrame]:
    """Cost of repeated forwards; step null where the trace has no steps.

    Returns:
        ``recompute``: per step one row (layer null) and one per layer (``schema.RECOMPUTE``). ``recompute_sublayers``: per step,
        layer and sublayer one row (``schema.RECOMPUTE_SUBLAYERS``); the rows of a layer sum to the layer's.
    """
    events = trace.events
    layer = _whole_layers(events["layer"])
    sums = _sums(trace, layer)
    if not len(sums):
        return {"recompute": schema.empty(schema.RECOMPUTE), "recompute_sublayers": schema.empty(schema.RECOMPUTE_SUBLAYERS)}
    if events["step"].notna().any():
        sums = sums[sums["step"].notna()]
    runs = _runs(trace, layer)
    by_layer = sums[sums["layer"].notna()].groupby(["step", "layer"], dropna=False)[list(_SUMS)].sum().reset_index()
    by_layer = by_layer.merge(runs, on=["step", "layer"], how="left")
    by_layer = by_layer.merge(_products(trace, layer), on=["step", "layer"], how="left").assign(checkpoints=by_layer["recompute_runs"])
    whole = sums.groupby("step", dropna=False)[list(_SUMS)].sum().reset_index()
    counts = by_layer.groupby("step", dropna=False)[["forward_runs", "recompute_runs", *_COUNTS]].sum(min_count=1).reset_index()
    whole = whole.merge(counts, on="step", how="left").merge(_checkpoints(trace), on="step", how="left").assign(layer=None)
    frame = pd.concat([whole, by_layer.astype({"layer": object})], ignore_index=True)
    frame = frame.fillna(dict.fromkeys(("recompute_runs", "checkpoints", *_COUNTS), 0))
    parts = sums[sums["layer"].notna()].groupby(["step", "layer", "sublayer"], dropna=False)[list(_SUMS)].sum().reset_index()
    tables = {"recompute": (frame, schema.RECOMPUTE), "recompute_sublayers": (parts, schema.RECOMPUTE_SUBLAYERS)}
    decidable = _decidable(trace)
    return {name: schema.conform(_numbered(rows).assign(decidable=decidable), kind) for name, (rows, kind) in tables.items()}


def _numbered(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(layer_index=pd.array([layer_index(p) for p in frame["layer"]], "Int64"))


def _sublayers(layer: pd.Series) -> Objects:
    """Sublayer of each event: attention, mlp, ..., or None."""
    names = np.array([sublayer(str(c)) for c in layer.cat.categories] + [None], object)
    return names[layer.cat.codes.to_numpy()]


def _whole_layers(layer: pd.Series) -> Objects:
    """Path of the layer without its sublayer, per event."""
    paths = [str(c) for c in layer.cat.categories]
    whole = np.array([p[: m.end("index")] if (m := LAYER_INDEX.search(p)) else p for p in paths] + [None], object)
    return whole[layer.cat.codes.to_numpy()]


def _sums(trace: RankTrace, layer: Objects) -> pd.DataFrame:
    """Durations by what they are, one row per compute or repeated communication event."""
    events = trace.events
    masks = work_masks(trace)
    repeated = events["recompute"].to_numpy(bool)
    dur, phase = events["dur"].to_numpy(np.int64), events["phase"]
    compute = masks["compute"]
    again = masks["communication"] & repeated
    rows = compute | again
    frame = pd.DataFrame(
        {
            "step": events["step"],
            "layer": layer,
            "sublayer": _sublayers(events["layer"]),
            "forward_ns": np.where(compute & ~repeated & phase.eq(Phase.FORWARD).to_numpy(), dur, 0),
            "backward_ns": np.where(compute & ~repeated & phase.eq(Phase.BACKWARD).to_numpy(), dur, 0),
            "recompute_ns": np.where(compute & repeated, dur, 0),
            "reissued_collective_ns": np.where(again, dur, 0),
            "reissued_collectives": again.astype(np.int64),
        }
    )
    chosen: pd.DataFrame = frame[rows]
    return chosen


def _again(trace: RankTrace) -> pd.DataFrame:
    """Repeated operators: row, step, and the outermost node that holds them: a checkpoint repeats its forward inside one node."""
    events = trace.events
    node = _topmost(trace)
    operator = events["kind"].eq(Kind.OPERATOR).to_numpy() & events["recompute"].to_numpy(bool) & (node >= 0)
    found: pd.DataFrame = pd.DataFrame({"row": np.arange(len(events)), "step": events["step"], "node": node})[operator]
    return found


def _checkpoints(trace: RankTrace) -> pd.DataFrame:
    """Nodes in which anything was repeated, per step."""
    again = _again(trace)[["step", "node"]].drop_duplicates()
    return again.groupby("step", dropna=False).size().rename("checkpoints").reset_index()


def _products(trace: RankTrace, layer: Objects) -> pd.DataFrame:
    """Products with weights in forward and in repeated forwards, per step and layer."""
    events = trace.events
    operator = events["kind"].eq(Kind.OPERATOR).to_numpy()
    parent = integers(events["parent"])
    named = operator & events["name"].isin(_PRODUCTS).to_numpy()
    # a product handed to a dispatch mode runs inside it, or does not run: its result was kept
    handed = np.zeros(len(events), bool)
    handed[parent[(events["name"].eq(_MODE).to_numpy() | named) & (parent >= 0)]] = True
    handed &= named
    repeated = events["recompute"].to_numpy(bool)
    # where a mode takes every call, one that it did not take was only begun: what it saves was the last that the repeat was for
    node = _topmost(trace)
    modal = np.zeros(len(events) + 1, bool)
    modal[node[handed]] = True
    modal[-1] = False
    begun = repeated & modal[node] & events["sequence"].notna().to_numpy()
    product = named & ~handed & ~begun & pd.notna(layer)
    frame = pd.DataFrame(
        {
            "step": events["step"],
            "layer": layer,
            "forward_products": (~repeated & events["phase"].eq(Phase.FORWARD).to_numpy()).astype(np.int64),
            "recompute_products": repeated.astype(np.int64),
        }
    )
    return frame[product].groupby(["step", "layer"], dropna=False)[list(_COUNTS)].sum().reset_index()


def _runs(trace: RankTrace, layer: Objects) -> pd.DataFrame:
    """How often each layer's forward ran and was repeated, per step; forward_runs is null where no range or frame tells."""
    events = trace.events
    node = _topmost(trace)
    again = _again(trace)
    again = again.assign(layer=layer[again["row"]])[["step", "layer", "node"]].drop_duplicates()
    again = again[again["layer"].notna()].groupby(["step", "layer"], dropna=False).size().rename("recompute_runs").reset_index()
    marks = _forward_marks(events["name"].cat.categories)
    names = events["name"].to_numpy(object)
    rows = np.flatnonzero(events["name"].isin(list(marks)).to_numpy() & events["device"].isna().to_numpy() & (node < 0) & pd.notna(layer))
    first = pd.DataFrame({"step": events["step"].iloc[rows].array, "layer": layer[rows], "name": names[rows]})
    first["exact"] = [marks[n] == whole for n, whole in zip(first["name"], first["layer"], strict=True)]
    counted = first.groupby(["step", "layer", "name", "exact"], dropna=False).size().rename("forward_runs").reset_index()
    # the layer's own range, where there is one; else the part of it that ran most often
    best = counted.sort_values(["exact", "forward_runs"]).drop_duplicates(["step", "layer"], keep="last")
    return best[["step", "layer", "forward_runs"]].merge(again, on=["step", "layer"], how="outer")


def _forward_marks(names: pd.Index) -> dict[str, str | None]:
    """Names of forward ranges and module frames, with the module path that a range gives."""
    spans = {str(c): parse_module_span(str(c)) for c in names}
    ranges: dict[str, str | None] = {n: span.layer for n, span in spans.items() if span and span.direction == Direction.FORWARD}
    return ranges | {n: None for n in spans if n.startswith("nn.Module: ")}


def _topmost(trace: RankTrace) -> Rows:
    """Row of the outermost autograd node that holds each event; -1 outside."""
    return trace.once("topmost_nodes", lambda: _find_topmost(trace.events))


def _find_topmost(events: pd.DataFrame) -> Rows:
    parent, names = integers(events["parent"]), events["name"].cat.categories
    is_node = np.isin(events["name"].cat.codes, np.flatnonzero([str(c).startswith(_NODE) for c in names]))
    found, rows = np.full(len(events), -1, np.int64), np.arange(len(events))
    at = rows
    while len(rows):
        node = is_node[at]
        found[rows[node]] = at[node]
        at = parent[at]
        rows, at = rows[at >= 0], at[at >= 0]
    return found


def _decidable(trace: RankTrace) -> bool:
    """Whether a repeated forward would show."""
    names = [str(c) for c in trace.events["name"].cat.categories]
    if any(_COMPILED in n for n in names):
        return False
    if trace.events["sequence"].notna().any() or any(parse_module_span(n) for n in names):
        return True
    frames = trace.events["kind"].eq(Kind.PYTHON).any()
    return bool(frames) and not any("torch/utils/checkpoint.py" in n for n in names)
