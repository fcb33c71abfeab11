"""Which layer and microbatch does a CPU event belong to, by what the trace names?

The ladder, best source first: ranges of fully_shard and of the recorder (or of anyone who names ranges after modules:
``layers.3.forward``, ``model.layers.3``), module frames, and, in backward, the forward operator with the same Sequence number. Every
event says which rung gave its layer. A gradient accumulation follows the node that produced the gradient.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from tracekit.ancestry import inherit
from tracekit.columns import Objects, Rows, choose, integers, nullable, take
from tracekit.passes.phases import backward_nodes, named_spans, recorded_forward
from tracekit.trace import RankTrace
from tracekit.vocabulary import Kind, sublayer

_FRAME = re.compile(r"^nn\.Module: (?P<kind>\w+?)_(?P<number>\d+)$")
_BLOCK = re.compile(r"(?:Block|Layer)$")


def layers(trace: RankTrace) -> RankTrace:
    """Fill ``layer``, ``layer_source`` and, without a pipeline, ``microbatch``."""
    events = trace.events
    parent = integers(events["parent"])
    spans = named_spans(events)
    span = inherit(parent, spans["layer"].notna().to_numpy())
    frames = _frames(events, parent)
    layer, source = take(spans["layer"].to_numpy(object), span), take(spans["source"].to_numpy(object), span)
    framed = pd.isna(layer) & pd.notna(frames)
    layer, source = choose(framed, frames, layer), choose(framed, "module", source)
    columns: dict[str, object] = {"layer": pd.Categorical(layer), "layer_source": pd.Categorical(source)}
    numbered = events["microbatch"].isna().all()
    if numbered:
        columns["microbatch"] = nullable(_microbatches(events, spans, span, parent))
    return follow_sequence(trace.with_events(**columns), with_microbatch=bool(numbered))


def follow_sequence(trace: RankTrace, with_microbatch: bool) -> RankTrace:
    """Give backward nodes the layer (and microbatch) of the forward operator with their Sequence number, where they have none."""
    events = trace.events
    node = backward_nodes(events)
    forward = _forward_of(events, node)
    through = np.where(node >= 0, forward[np.maximum(node, 0)], -1)
    layer, source = (events[c].to_numpy(object) for c in ("layer", "layer_source"))
    known = pd.isna(layer) & (through >= 0) & pd.notna(take(layer, through))
    # what follows from a guess is one
    of = choose(take(source, through) == "inferred", "inferred", "sequence")
    layer, source = choose(known, take(layer, through), layer), choose(known, of, source)
    columns: dict[str, object] = {
        "layer": pd.Categorical(choose(pd.isna(layer), None, layer)),
        "layer_source": pd.Categorical(choose(pd.isna(layer), None, source)),
    }
    if with_microbatch:
        microbatch = integers(events["microbatch"])
        columns["microbatch"] = nullable(np.where((microbatch < 0) & (through >= 0), microbatch[np.maximum(through, 0)], microbatch))
    return trace.with_events(**columns)


def _frames(events: pd.DataFrame, parent: Rows) -> Objects:
    """Layer of each event by the ``nn.Module:`` frames around it: ``layers.N``, ``layers.N.attention`` where its class tells the part, or null.

    The blocks are the class that ends in Block or Layer, else the outermost class with several instances that all
    hold other modules. Instances are numbered by the profiler in order of appearance. A part is a module right below a block.
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
    names = events["name"].to_numpy(object)
    parts = {c: word for c, m in found.items() if (word := sublayer(m["kind"]))}
    is_part = frame & ~is_block & (outer >= 0) & is_block[np.maximum(outer, 0)] & events["name"].isin(list(parts)).to_numpy()
    part = inherit(parent, is_block | is_part)
    holder = np.where(part >= 0, np.where(is_part[np.maximum(part, 0)], outer[np.maximum(part, 0)], part), -1)
    layers, halves = choose(holder >= 0, names[holder], None), choose((part >= 0) & is_part[np.maximum(part, 0)], names[part], None)
    told = {(n, h): f"{label[n]}.{parts[h]}" if h is not None else label[n] for n, h in set(zip(layers, halves, strict=True)) if n is not None}
    out[holder >= 0] = [told[n, h] for n, h in zip(layers[holder >= 0], halves[holder >= 0], strict=True)]
    return out


def _forward_of(events: pd.DataFrame, node: Rows) -> Rows:
    """Forward operator of each backward node by Sequence number; a node without one follows the node before it."""
    sequence = integers(events["sequence"])
    forward = np.flatnonzero(recorded_forward(events) & (node < 0))
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
