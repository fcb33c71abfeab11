"""What was recorded of this rank, and what was not? Counts of everything that some figure needs."""

from __future__ import annotations

import pandas as pd

from tracekit import schema
from tracekit.columns import Mask, named
from tracekit.trace import RankTrace
from tracekit.vocabulary import P2P, STEP, Kind, Phase

#: Operators that autograd's engine runs, one per node of the graph.
_NODE = "autograd::engine::evaluate_function"


def signals(trace: RankTrace) -> dict[str, pd.DataFrame]:
    """``signals``: one row per signal (``schema.SIGNALS``); a signal that no record has counts 0."""
    events, meta = trace.events, trace.meta
    kind = events["kind"]
    device = kind.isin([Kind.COMPUTE, Kind.COMMUNICATION, Kind.MEMCPY, Kind.MEMSET]).to_numpy()
    communication = kind.eq(Kind.COMMUNICATION).to_numpy()
    collective = communication & ~events["collective"].isin(list(P2P)).to_numpy()
    # the nodes that collect a parameter's gradient answer to no forward operator
    nodes = kind.eq(Kind.OPERATOR).to_numpy() & named(events, lambda name: name.startswith(_NODE) and not name.endswith("AccumulateGrad"))
    launched = device & (events["device"].notna().to_numpy() | communication)
    work = device & events["phase"].isin([Phase.FORWARD, Phase.BACKWARD]).to_numpy()
    guessed = events["layer_source"].eq("inferred")
    records = trace.stated.get("records")
    rows: list[tuple[str, int, int | None]] = [
        ("slices", len(events), None),
        ("operators", _count(kind.eq(Kind.OPERATOR)), None),
        ("device_work", _count(device), None),
        ("launches", _count(launched & events["launch"].notna()), _count(launched)),
        ("steps", _count(kind.eq(Kind.RANGE) & named(events, lambda name: bool(STEP.match(name)))), None),
        ("collectives", _count(collective), None),
        ("groups", _count(collective & events["group_ranks"].notna()), _count(collective)),
        ("sequence_numbers", _count(collective & events["seq"].notna()), _count(collective)),
        ("sizes", _count(communication & events["nbytes"].notna()), _count(communication)),
        ("send_recv", _count(communication & ~collective), None),
        ("peers", _count(communication & ~collective & events["peer"].notna()), _count(communication & ~collective)),
        ("layers", _count(work & events["layer"].notna() & ~guessed), _count(work)),
        ("layers_inferred", _count(work & events["layer"].notna() & guessed), None),
        ("phases", _count(work), _count(device)),
        ("autograd_numbers", _count(nodes & events["sequence"].notna()), _count(nodes)),
        ("actions", _count(kind.eq(Kind.RANGE) & events["action"].notna()), None),
        ("memory_events", len(trace.samples), None),
        ("memory_baseline", 0 if meta.memory_baseline is None else len(meta.memory_baseline), None),
        ("modules", _count(kind.eq(Kind.PYTHON) & named(events, lambda name: name.startswith("nn.Module"))), None),
        ("records", 0 if records is None else len(records), None),
    ]
    frame = pd.DataFrame(rows, columns=["signal", "count", "of"])
    return {"signals": schema.conform(frame.astype({"of": "Int64"}), schema.SIGNALS)}


def _count(mask: pd.Series | Mask) -> int:
    return int(mask.sum())
