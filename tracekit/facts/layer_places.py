"""Which layers did this rank count for itself, in which stage of the pipeline?

Module frames are numbered by the profiler of each rank from 0, and so are layers that were counted off repeating work. Layers that a
range names carry their number in the whole model and are not listed here.
"""

from __future__ import annotations

import pandas as pd

from tracekit import schema
from tracekit.pipeline_place import exchanges, place_in_pipeline
from tracekit.trace import RankTrace
from tracekit.vocabulary import LAYER_INDEX

#: Sources that count the rank's own layers.
_COUNTED = ("module", "inferred")


def layer_places(trace: RankTrace) -> dict[str, pd.DataFrame]:
    """``layer_places``: one row per counted layer (``schema.LAYER_PLACES``)."""
    events = trace.events
    mine = events["layer_source"].isin(_COUNTED)
    paths = {str(c): m for c in events["layer"].cat.categories if (m := LAYER_INDEX.search(str(c)))}
    rows = events[mine & events["layer"].isin(list(paths))]
    if not len(rows):
        return {"layer_places": schema.empty(schema.LAYER_PLACES)}
    text = rows["layer"].astype(str)
    found = pd.DataFrame(
        {
            "layer": text.map({path: path[: m.end("index")] for path, m in paths.items()}),
            "number": text.map({path: int(m["index"]) for path, m in paths.items()}).astype("int64"),
            "stage": rows["stage"].astype("Int64"),
        }
    )
    sent = exchanges(trace)
    place, size = place_in_pipeline(trace, sent) or (None, None)
    # work between the actions of two stages may be led to the wrong one: the stage of most of a layer's work is its own
    stages = found[found["stage"].notna()].groupby("layer")["stage"].agg(lambda column: column.mode().iloc[0])
    table = found[["layer", "number"]].drop_duplicates().sort_values("number")
    table = table.assign(stage=table["layer"].map(stages).astype("Int64"), place=place, pipeline_size=size, exchanges=bool(len(sent)))
    return {"layer_places": schema.conform(table.reset_index(drop=True), schema.LAYER_PLACES)}
