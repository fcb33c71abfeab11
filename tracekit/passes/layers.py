"""Which layer, phase and microbatch does a CPU event belong to, and is it a repeated forward?

The ladder, best source first: ranges of fully_shard and of the recorder (or of anyone who names ranges
``layers.3.forward``), module frames, and, in backward, the forward operator with the same Sequence number. Every
event says which rung gave its layer. A gradient accumulation follows the node that produced the gradient.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from tracekit.columns import Mask, Objects, Rows, by_name, choose, integers, named, nullable, take
from tracekit.passes.link import inherit
from tracekit.trace import RankTrace
from tracekit.vocabulary import FSDP_SPAN, GRADIENT_SPAN, LAYER_INDEX, OPTIMIZER_SPAN, Direction, Kind, Phase, clean_module_path, parse_module_span

BACKWARD_NODE = "autograd::engine::evaluate_function"
#: The autograd function that holds a region compiled by torch.compile for training, and its backward.
COMPILED_FORWARD, COMPILED_BACKWARD = "CompiledFunction", "CompiledFunctionBackward"
#: Autograd functions that DTensor calls inside its own backward: they carry a forward's marks but repeat nothing.
_NOT_REPEATED = ("NestedRedistribute",)
_FRAME = re.compile(r"^nn\.Module: (?P<kind>\w+?)_(?P<number>\d+)$")
_BLOCK = re.compile(r"(?:Block|Layer)$")


def layers(trace: RankTrace) -> RankTrace:
    """Fill ``layer``, ``layer_source``, ``phase``, ``recompute`` and, without a pipeline, ``microbatch``."""
    events = trace.events
    names = events["name"].to_numpy(object)
    parent = integers(events["parent"])
    spans = _spans(events)
    span = inherit(parent, spans["layer"].notna().to_numpy())
    node = inherit(parent, named(events, lambda n: n.startswith(BACKWARD_NODE)) & events["kind"].eq(Kind.OPERATOR).to_numpy())
    frames = _frames(events, parent)

    layer, source = take(spans["layer"].to_numpy(object), span), take(spans["source"].to_numpy(object), span)
    framed = pd.isna(layer) & pd.notna(frames)
    layer, source = choose(framed, frames, layer), choose(framed, "module", source)
    repeated = _repeated(events, names, node, parent) | (take(spans["direction"].to_numpy(object), span) == Direction.RECOMPUTE)
    microbatch = _microbatches(events, spans, span, parent)

    forward = _forward_of(events, node)
    through = np.where(node >= 0, forward[np.maximum(node, 0)], -1)
    by_number = pd.isna(layer) & (through >= 0)
    layer, source = choose(by_number, take(layer, through), layer), choose(by_number, "sequence", source)
    layer, source = choose(pd.isna(layer), None, layer), choose(pd.isna(layer), None, source)
    microbatch = np.where((microbatch < 0) & (through >= 0), microbatch[np.maximum(through, 0)], microbatch)

    phase = _phases(events, spans, span, node, parent)
    columns: dict[str, object] = {
        "layer": pd.Categorical(layer),
        "layer_source": pd.Categorical(source),
        "recompute": repeated,
        "phase": pd.Categorical(phase, categories=list(Phase)),
    }
    if events["microbatch"].isna().all():
        columns["microbatch"] = nullable(microbatch)
    return trace.with_events(**columns)


def _spans(events: pd.DataFrame) -> pd.DataFrame:
    """Per event: layer, direction and source of the range that it is; null for everything else."""

    def meaning(name: str) -> tuple[str | None, Direction | None, str] | None:
        if span := parse_module_span(name):
            return clean_module_path(span.layer) or None, span.direction, "range"
        if gradient := GRADIENT_SPAN.match(name):
            return clean_module_path(gradient["layer"]) or None, None, "range"
        fsdp = FSDP_SPAN.match(name)
        return (clean_module_path(fsdp["layer"]) or None, None, "fsdp") if fsdp and fsdp["layer"] else None

    nothing = (None, None, None)
    found = choose(events["kind"].eq(Kind.RANGE).to_numpy(), by_name(events, meaning), None)
    unique, codes = pd.factorize(found)[::-1]
    table = [*unique, nothing]  # code -1, no such range, is the last row
    return pd.DataFrame({c: pd.Series([row[i] for row in table], dtype="object").take(codes).array for i, c in enumerate(("layer", "direction", "source"))})


def _frames(events: pd.DataFrame, parent: Rows) -> Objects:
    """Layer of each event by the ``nn.Module:`` frames around it: ``layers.N``, or null.

    The blocks are the class that ends in Block or Layer, else the outermost class with several instances that all
    hold other modules. Instances are numbered by the profiler in order of appearance.
    """
    out: Objects = np.full(len(events), None, object)
    if not events["kind"].eq(Kind.PYTHON).any():
        return out
    found = {c: m for c in events["name"].cat.categories if (m := _FRAME.match(str(c)))}
    frame = events["kind"].eq(Kind.PYTHON).to_numpy() & events["name"].isin(list(found)).to_numpy()
    kinds = pd.Series({c: m["kind"] for c, m in found.items()})
    around = inherit(parent, frame)
    outer = np.where(frame & (parent >= 0), around[np.maximum(parent, 0)], -1)
    holders = set(events["name"].to_numpy(object)[outer[outer >= 0]])
    counted = kinds[[c for c in kinds.index if c in holders]].value_counts()
    candidates = [k for k in counted.index if counted[k] >= 2 or _BLOCK.search(str(k))]
    if not candidates:
        return out
    block = min(candidates, key=lambda k: (not _BLOCK.search(str(k)), -int(counted[k])))
    label = {c: f"layers.{m['number']}" for c, m in found.items() if m["kind"] == block}
    is_block = frame & events["name"].isin(list(label)).to_numpy()
    holder = inherit(parent, is_block)
    names = events["name"].to_numpy(object)
    out[holder >= 0] = [label[n] for n in names[holder[holder >= 0]]]
    return out


def _repeated(events: pd.DataFrame, names: Objects, node: Rows, parent: Rows) -> Mask:
    """Events inside a forward that backward runs again: forward operators below a backward node.

    Autograd functions carry a Sequence number even where no gradient is recorded, so a node counts only if an
    ``aten::`` operator inside it does, which happens only while a graph is being built.
    """
    operator = events["kind"].eq(Kind.OPERATOR).to_numpy()
    marked = operator & events["sequence"].notna().to_numpy() & events["fwd_thread"].eq(0).fillna(False).to_numpy(bool) & (node >= 0)
    marked &= ~named(events, lambda n: n.startswith(_NOT_REPEATED))
    builds = np.zeros(len(events), bool)
    builds[node[marked & named(events, lambda n: n.startswith("aten::"))]] = True
    marked &= builds[np.maximum(node, 0)]
    return inherit(parent, marked) >= 0


def _forward_of(events: pd.DataFrame, node: Rows) -> Rows:
    """Forward operator of each backward node by Sequence number; a node without one follows the node before it."""
    sequence = integers(events["sequence"])
    operator = events["kind"].eq(Kind.OPERATOR).to_numpy()
    forward = np.flatnonzero(operator & (sequence >= 0) & events["fwd_thread"].eq(0).fillna(False).to_numpy(bool) & (node < 0))
    # the last operator that saw a number made the node with it: those before it made none
    forward = forward[np.argsort(events["ts"].to_numpy()[forward], kind="stable")]
    last = pd.Series(forward, index=sequence[forward]).groupby(level=0).last()
    nodes = np.flatnonzero(node == np.arange(len(events)))
    out = np.full(len(events), -1, np.int64)
    out[nodes] = last.reindex(sequence[nodes]).fillna(-1).to_numpy(np.int64)
    thread = events["thread"].to_numpy()[nodes]
    known = pd.Series(np.where(out[nodes] >= 0, out[nodes], np.nan)).groupby(thread).ffill()
    out[nodes] = np.where(sequence[nodes] < 0, known.fillna(-1), out[nodes]).astype(np.int64)
    return out


def _microbatches(events: pd.DataFrame, spans: pd.DataFrame, span: Rows, parent: Rows) -> Rows:
    """K in the k-th run of a module within its step and direction; -1 where unknown."""
    outermost = spans["direction"].notna().to_numpy() & (np.where(parent >= 0, span[np.maximum(parent, 0)], -1) < 0)
    rows = np.flatnonzero(outermost & events["step"].notna().to_numpy())
    out = np.full(len(events), -1, np.int64)
    if len(rows):
        rows = rows[np.argsort(events["ts"].to_numpy()[rows], kind="stable")]
        key = [integers(events["step"])[rows], spans["layer"].to_numpy(object)[rows], spans["direction"].to_numpy(object)[rows]]
        own = np.full(len(events), -1, np.int64)
        own[rows] = pd.Series(rows).groupby(key).cumcount().to_numpy()
        nearest = inherit(parent, own >= 0)
        out = np.where(nearest >= 0, own[np.maximum(nearest, 0)], -1)
    return out


def _phases(events: pd.DataFrame, spans: pd.DataFrame, span: Rows, node: Rows, parent: Rows) -> Objects:
    """Phase of each CPU event: optimizer over backward over forward; null where nothing tells."""
    direction = take(spans["direction"].to_numpy(object), span)
    action = events["action"].to_numpy(object)
    optimizer = inherit(parent, named(events, lambda n: bool(OPTIMIZER_SPAN.match(n)))) >= 0
    operator = events["kind"].eq(Kind.OPERATOR).to_numpy()
    compiled_backward = inherit(parent, operator & named(events, lambda n: n.startswith(COMPILED_BACKWARD))) >= 0
    backward = (node >= 0) | compiled_backward | np.isin(direction, [Direction.BACKWARD, Direction.RECOMPUTE])
    recorded = operator & events["sequence"].notna().to_numpy() & events["fwd_thread"].eq(0).fillna(False).to_numpy(bool)
    frame = events["kind"].eq(Kind.PYTHON).to_numpy() & named(events, lambda n: n.startswith("nn.Module: "))
    compiled = operator & named(events, lambda n: n == COMPILED_FORWARD)
    forward = (direction == Direction.FORWARD) | (inherit(parent, recorded | frame | compiled) >= 0)
    by_action = choose(np.isin(action, ["B", "I", "W"]), Phase.BACKWARD, choose(action == "F", Phase.FORWARD, choose(forward, Phase.FORWARD, None)))
    return choose(optimizer, Phase.OPTIMIZER, choose(backward, Phase.BACKWARD, by_action))


__all__ = ["BACKWARD_NODE", "LAYER_INDEX", "layers"]
