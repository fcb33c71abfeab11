"""Does a CPU event run in forward, in backward or in the optimizer, and does it repeat a forward? Sets ``phase`` and ``recompute``.

Ranges that name a direction speak first, then autograd's own marks: backward runs inside ``evaluate_function`` nodes, forward
operators carry a Sequence number while a graph is being recorded.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from tracekit.ancestry import inherit
from tracekit.columns import Mask, Objects, Rows, by_name, choose, integers, named, take
from tracekit.trace import RankTrace
from tracekit.vocabulary import FSDP_SPAN, GRADIENT_SPAN, OPTIMIZER_SPAN, Direction, Kind, Phase, clean_module_path, parse_layer_span, parse_module_span

BACKWARD_NODE = "autograd::engine::evaluate_function"
#: The autograd function that holds a region compiled by torch.compile for training, and its backward.
COMPILED_FORWARD, COMPILED_BACKWARD = "CompiledFunction", "CompiledFunctionBackward"
#: A node that torch generates from a formula; those of Python functions end in no number.
_GENERATED = re.compile(re.escape(BACKWARD_NODE) + r".*Backward\d+$")
#: Autograd functions that DTensor calls inside its own backward: they carry a forward's marks but repeat nothing.
_NOT_REPEATED = ("NestedRedistribute",)


def phases(trace: RankTrace) -> RankTrace:
    """Fill ``phase`` and ``recompute``."""
    events = trace.events
    parent = integers(events["parent"])
    spans = named_spans(events)
    span = inherit(parent, spans["layer"].notna().to_numpy())
    node = backward_nodes(events)
    repeated = _repeated(events, node, parent) | (take(spans["direction"].to_numpy(object), span) == Direction.RECOMPUTE)
    phase = _phases(events, spans, span, node, parent)
    return trace.with_events(recompute=repeated, phase=pd.Categorical(phase, categories=list(Phase)))


def backward_nodes(events: pd.DataFrame) -> Rows:
    """Row of the autograd node that each event runs in, itself included; -1 outside backward."""
    return inherit(integers(events["parent"]), named(events, lambda n: n.startswith(BACKWARD_NODE)) & events["kind"].eq(Kind.OPERATOR).to_numpy())


def recorded_forward(events: pd.DataFrame) -> Mask:
    """Operators whose Sequence number says that they ran while a graph was being recorded."""
    operator = events["kind"].eq(Kind.OPERATOR).to_numpy()
    mask: Mask = operator & events["sequence"].notna().to_numpy() & events["fwd_thread"].eq(0).fillna(False).to_numpy(bool)
    return mask


def named_spans(events: pd.DataFrame) -> pd.DataFrame:
    """Per event: layer, direction and source of the range that it is; null for everything else."""

    def meaning(name: str) -> tuple[str | None, Direction | None, str] | None:
        if span := parse_module_span(name):
            return clean_module_path(span.layer) or None, span.direction, "range"
        if gradient := GRADIENT_SPAN.match(name):
            return clean_module_path(gradient["layer"]) or None, None, "range"
        if fsdp := FSDP_SPAN.match(name):
            return (clean_module_path(fsdp["layer"]) or None, None, "fsdp") if fsdp["layer"] else None
        other = parse_layer_span(name)
        return (clean_module_path(other[0]) or None, other[1], "range") if other else None

    nothing = (None, None, None)
    found = choose(events["kind"].eq(Kind.RANGE).to_numpy(), by_name(events, meaning), None)
    unique, codes = pd.factorize(found)[::-1]
    table = [*unique, nothing]  # code -1, no such range, is the last row
    return pd.DataFrame({c: pd.Series([row[i] for row in table], dtype="object").take(codes).array for i, c in enumerate(("layer", "direction", "source"))})


def _repeated(events: pd.DataFrame, node: Rows, parent: Rows) -> Mask:
    """Events inside a forward that backward runs again: forward operators below a backward node.

    Autograd functions carry a Sequence number even where no gradient is recorded, so a node counts only if an
    ``aten::`` operator inside it does, which happens only while a graph is being built.
    """
    marked = recorded_forward(events) & (node >= 0) & ~named(events, lambda n: n.startswith(_NOT_REPEATED))
    builds = np.zeros(len(events), bool)
    operator = named(events, lambda n: n.startswith("aten::"))
    builds[node[marked & operator]] = True
    marked &= builds[np.maximum(node, 0)]
    marked &= ~_differentiated(events, node, parent, marked, operator)
    return inherit(parent, marked) >= 0


def _differentiated(events: pd.DataFrame, node: Rows, parent: Rows, marked: Mask, operator: Mask) -> Mask:
    """Operators of a backward that builds a graph of its own (``create_graph=True``): they carry a forward's marks and repeat nothing.

    What a generated node (``MmBackward0``) does itself comes last in it: only where a graph is built is that marked. A checkpoint that
    runs again inside such a node keeps each tensor that it restores with ``detach``, the last of them right before it stops. Nodes that are
    not generated go with the generated one before them, unless they start a backward themselves, as reentrant checkpoints do.
    """
    if not marked.any():
        return marked
    n = len(events)
    above = np.append(inherit(parent, operator), -1)[parent]
    inside = (node >= 0) & operator & ((above < 0) | (np.append(node, -1)[above] != node))
    last, kept = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    rows = np.flatnonzero(inside)
    np.maximum.at(last, node[rows], rows)
    detached = np.flatnonzero((node >= 0) & named(events, lambda name: name == "aten::detach"))
    np.maximum.at(kept, node[detached], detached)
    generated = named(events, lambda name: bool(_GENERATED.match(name)))
    builds = generated & (last >= 0) & marked[last]
    nodes = np.flatnonzero(named(events, lambda name: name.startswith(BACKWARD_NODE)) & events["kind"].eq(Kind.OPERATOR).to_numpy())
    nested = np.zeros(n + 1, bool)
    nested[np.append(node, -1)[parent[nodes]]] = True
    told = np.maximum.accumulate(np.where(generated & (last >= 0), np.arange(n), -1))
    thread = events["thread"].to_numpy()
    before = told[nodes]
    like = ~generated[nodes] & ~nested[nodes] & (before >= 0) & builds[before] & (thread[before] == thread[nodes])
    builds[nodes[like]] = True
    out: Mask = marked & builds[node] & (np.arange(n) > kept[node])
    return out


def _phases(events: pd.DataFrame, spans: pd.DataFrame, span: Rows, node: Rows, parent: Rows) -> Objects:
    """Phase of each CPU event: optimizer over backward over forward; null where nothing tells."""
    direction = take(spans["direction"].to_numpy(object), span)
    action = events["action"].to_numpy(object)
    optimizer = inherit(parent, named(events, lambda n: bool(OPTIMIZER_SPAN.match(n)))) >= 0
    operator = events["kind"].eq(Kind.OPERATOR).to_numpy()
    compiled_backward = inherit(parent, operator & named(events, lambda n: n.startswith(COMPILED_BACKWARD))) >= 0
    backward = (node >= 0) | compiled_backward | np.isin(direction, [Direction.BACKWARD, Direction.RECOMPUTE])
    frame = events["kind"].eq(Kind.PYTHON).to_numpy() & named(events, lambda n: n.startswith("nn.Module: "))
    compiled = operator & named(events, lambda n: n == COMPILED_FORWARD)
    forward = (direction == Direction.FORWARD) | (inherit(parent, recorded_forward(events) | frame | compiled) >= 0)
    by_action = choose(np.isin(action, ["B", "I", "W"]), Phase.BACKWARD, choose(action == "F", Phase.FORWARD, choose(forward, Phase.FORWARD, None)))
    return choose(optimizer, Phase.OPTIMIZER, choose(backward, Phase.BACKWARD, by_action))
