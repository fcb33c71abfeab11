"""What was alive at a moment, by owner and maker, how many microbatches did each stage hold, and what was left standing?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tracekit import schema
from tracekit.columns import Objects, Rows
from tracekit.owners import CATEGORIES, NO_RULE
from tracekit.vocabulary import LAYER_INDEX, layer_index

#: Most groups of one peak; the smaller ones are taken together, one row per category.
GROUPS = 120
_KEYS = ["category", "rule", "layer", "layer_source", "sublayer", "direction", "stage", "microbatch", "maker", "since"]


def groups(held: pd.DataFrame, peak: int, step: int | None, limit: int = GROUPS) -> pd.DataFrame:
    """Blocks alive at a peak, grouped by owner, place and maker; bounded, and summing to the peak exactly.

    Args:
        held: blocks alive then (columns of ``blocks.blocks``; made is -1 where they stood before the recording).
        peak: bytes allocated then.
        step: step in which the peak lies, or None.
        limit: most groups.

    Returns:
        Rows of ``memory_tables.MEMORY_OWNERS`` without device and step, largest first; what no block explains is
        ``unknown`` by the rule ``before_recording``, and blocks that exceed the peak are one row by the rule ``inconsistent``.
    """
    rest = peak - int(held["nbytes"].sum())
    if rest < 0:
        return _rows([{"category": "unknown", "rule": "inconsistent", "nbytes": peak}])
    layer, sublayer = _split(held["made_layer"])
    in_step = held["made_step"].eq(step).fillna(False).to_numpy(bool) if step is not None else np.zeros(len(held), bool)
    since = np.where(held["made"].lt(0), "before_recording", np.where(in_step, "this_step", "earlier"))
    keyed = pd.DataFrame(
        {
            "category": held["category"].to_numpy(object),
            "rule": held["rule"].to_numpy(object),
            "layer": layer,
            "layer_source": held["made_layer_source"].to_numpy(object),
            "sublayer": sublayer,
            "direction": held["made_direction"].to_numpy(object),
            "stage": held["made_stage"].to_numpy(object),
            "microbatch": held["made_microbatch"].to_numpy(object),
            "maker": held["made_by"].to_numpy(object),
            "since": since.astype(object),
            "nbytes": held["nbytes"].to_numpy(np.int64),
        }
    )
    found = keyed.groupby(_KEYS, dropna=False, sort=False)["nbytes"].agg(blocks="size", nbytes="sum").reset_index()
    found = found.sort_values("nbytes", ascending=False, kind="stable")
    few, many = found.iloc[:limit], found.iloc[limit:]
    more = many.groupby("category", sort=False)[["blocks", "nbytes"]].sum().reset_index().assign(rule="others")
    parts = [few, more] if len(more) else [few]
    if rest:
        parts.append(pd.DataFrame([{"category": "unknown", "rule": "before_recording", "since": "before_recording", "blocks": None, "nbytes": rest}]))
    return _rows([{str(k): v for k, v in row.items()} for part in parts for row in part.to_dict("records")])


def _rows(rows: list[dict[str, Any]]) -> pd.DataFrame:
    names = [n for n in schema.MEMORY_OWNERS if n not in ("device", "device_type", "step")]
    out = pd.DataFrame([{n: None if pd.isna(row.get(n)) else row[n] for n in names} for row in rows], columns=names, dtype=object)
    return out.assign(layer_index=pd.array([layer_index(name) for name in out["layer"]], "Int64"))


def split_layer(path: Any) -> tuple[str | None, str | None]:
    """A module path as its whole layer and the rest; a path without a number is a layer.

    >>> split_layer("layers.3.attention.qkv"), split_layer("head"), split_layer(None)
    (('layers.3', 'attention.qkv'), ('head', None), (None, None))
    """
    if not isinstance(path, str):
        return None, None
    m = LAYER_INDEX.search(path)
    return (path, None) if m is None else (path[: m.end("index")], path[m.end("index") :].lstrip(".") or None)


def _split(paths: pd.Series) -> tuple[Objects, Objects]:
    """Layers and their rests of many paths; each distinct one is looked at once."""
    codes, found = pd.factorize(paths.astype(object))
    parts = [*(split_layer(path) for path in found), (None, None)]
    layer, rest = (np.array([part[i] for part in parts], object)[codes] for i in (0, 1))
    return layer, rest


def activation_levels(alive: pd.DataFrame, records: int) -> Rows:
    """Bytes of activations alive before the first memory event, and after each."""
    own = alive[alive["category"].eq("activation")]
    change = np.zeros(records + 2, np.int64)
    np.add.at(change, own["made"].to_numpy(np.int64) + 1, own["nbytes"].to_numpy(np.int64))
    np.add.at(change, own["freed"].to_numpy(np.int64) + 1, -own["nbytes"].to_numpy(np.int64))
    level: Rows = np.cumsum(change)[:-1]
    return level


def by_layer(held: pd.DataFrame) -> pd.DataFrame:
    """Activations alive, by whole layer; one row without a layer for those whose layer is not known."""
    own = held[held["category"].eq("activation")]
    paths = own["layer"].map(lambda path: split_layer(path)[0], na_action="ignore").astype(object)
    sums = own["nbytes"].groupby(paths.where(paths.notna(), None), dropna=False).sum()
    names = [None if pd.isna(n) else str(n) for n in sums.index]
    return pd.DataFrame(
        {
            "layer": pd.Series(names, dtype=object),
            "layer_index": pd.array([layer_index(n) for n in names], "Int64"),
            "activation_bytes": sums.to_numpy(np.int64),
        }
    )


def by_microbatch(held: pd.DataFrame) -> pd.DataFrame:
    """Activations alive by whole layer, stage and microbatch."""
    own = held[held["category"].eq("activation")]
    layer, _ = _split(own["layer"])
    keyed = pd.DataFrame(
        {
            "layer": layer,
            "stage": own["made_stage"].to_numpy(object),
            "microbatch": own["made_microbatch"].to_numpy(object),
            "activation_bytes": own["nbytes"].to_numpy(np.int64),
        }
    )
    sums = keyed.groupby(["layer", "stage", "microbatch"], dropna=False, sort=False)["activation_bytes"].sum().reset_index()
    sums = sums.astype(object).where(sums.notna(), None)
    return sums.assign(layer_index=pd.array([layer_index(name) for name in sums["layer"]], "Int64"))


def in_flight(alive: pd.DataFrame, ts: Rows) -> pd.DataFrame:
    """Microbatches with live activations per step and stage.

    Args:
        alive: blocks of one device (columns of ``blocks.blocks``).
        ts: time of each memory event.

    Returns:
        Rows of ``memory_tables.MEMORY_IN_FLIGHT`` without device; activations of which neither stage nor microbatch is
        known give none.
    """
    own = alive[alive["category"].eq("activation") & alive["made"].ge(0) & alive["made_step"].notna()]
    told = own["made_stage"].notna() | own["made_microbatch"].notna()
    out = []
    key: Any
    for key, mine in own[told].groupby(["made_step", "made_stage"], dropna=False, sort=True):
        step, stage = key
        made, freed = mine["made"].to_numpy(np.int64), mine["freed"].to_numpy(np.int64)
        size, microbatch = mine["nbytes"].to_numpy(np.int64), mine["made_microbatch"].to_numpy(np.int64, na_value=-1)
        at = _fullest(made, freed, size)
        here = (made <= at) & (freed > at)
        named, nameless = np.unique(microbatch[here & (microbatch >= 0)]), int(size[here & (microbatch < 0)].sum())
        known = microbatch >= 0
        out.append(
            {
                "step": step,
                "stage": None if pd.isna(stage) else stage,
                "microbatches": len(np.unique(microbatch[known])),
                "in_flight_microbatches": None if nameless else len(named),
                "most_microbatches": None if not known.all() else _most_kinds(made, freed, microbatch),
                "activation_peak_bytes": int(size[here].sum()),
                "activation_peak_ts_ns": int(ts[at]),
                "without_microbatch_bytes": nameless,
            }
        )
    names = [n for n in schema.MEMORY_IN_FLIGHT if n not in ("device", "device_type")]
    return pd.DataFrame(out, columns=names)


def _fullest(made: Rows, freed: Rows, size: Rows) -> int:
    """The event after which most bytes of some blocks were alive, the first of several."""
    at, where = np.unique(np.concatenate((made, freed)), return_inverse=True)
    change = np.zeros(len(at), np.int64)
    np.add.at(change, where, np.concatenate((size, -size)))
    return int(at[int(np.argmax(np.cumsum(change)))])


def _most_kinds(made: Rows, freed: Rows, kind: Rows) -> int:
    """Most distinct kinds of block alive at once."""
    at = np.concatenate((made, freed))
    change = np.concatenate((np.ones(len(made), np.int64), -np.ones(len(freed), np.int64)))
    frame = pd.DataFrame({"at": at, "kind": np.concatenate((kind, kind)), "change": change}).groupby(["kind", "at"])["change"].sum().reset_index()
    count = frame.groupby("kind")["change"].cumsum()
    before = count - frame["change"]
    turned = frame.assign(turn=(count > 0).astype(int) - (before > 0).astype(int)).groupby("at")["turn"].sum().cumsum()
    return int(turned.max()) if len(turned) else 0


def unowned(blocks: pd.DataFrame) -> pd.DataFrame:
    """Blocks (``blocks.lives``) of which nothing but their lives is known, with the columns of ``blocks.blocks``."""
    nothing = dict.fromkeys(("layer", *(f"{end}_{name}" for end in ("made", "freed") for name in ("by", "layer", "layer_source", "direction"))))
    numbers = {f"{end}_{name}": pd.array([None] * len(blocks), "Int64") for end in ("made", "freed") for name in ("stage", "microbatch", "step")}
    return blocks.assign(category=CATEGORIES[-1], rule=NO_RULE, **nothing, **numbers)


def frees_from_before(nbytes: Rows, freed: Rows) -> Rows:
    """Memory events that freed what stood before the first: frees that end no block.

    Args:
        nbytes: bytes per event, negative for frees.
        freed: the event that ended each block; the number of events where none did.

    >>> frees_from_before(np.array([-8, 4, -4]), np.array([2])).tolist()
    [0]
    """
    ends = np.zeros(len(nbytes) + 1, bool)
    ends[freed] = True
    return np.flatnonzero((nbytes < 0) & ~ends[:-1])


def account(samples: pd.DataFrame, alive: pd.DataFrame, old: pd.DataFrame, level: Rows, *, source: str, whole: bool) -> dict[str, Any]:
    """What was made, freed and left standing on one device: a row of ``memory_tables.MEMORY_ACCOUNTS`` without the device.

    Args:
        samples: its memory events, in order of time.
        alive: the blocks that they made, as ``blocks.pair`` pairs them: a free that ends none is of a block that stood before.
        old: the blocks of the recorder's baseline.
        level: bytes allocated after each event.
        source: what tells of the level before the recording (recorder, totals, snapshot, none).
        whole: whether the events give addresses.
    """
    nbytes = samples["nbytes"].to_numpy(np.int64)
    row: dict[str, Any] = {"events": len(samples), "empty_events": int((nbytes == 0).sum())}
    row |= {"named_before_bytes": int(old.loc[old["category"].ne("unknown"), "nbytes"].sum()) if source == "recorder" else None}
    told = source != "none"
    row |= {"allocated_before_bytes": int(level[0] - nbytes[0]) if told else None, "allocated_end_bytes": int(level[-1]) if told else None}
    if not whole:
        return row
    before = frees_from_before(nbytes, alive["freed"].to_numpy(np.int64))
    standing = alive["freed"].ge(len(samples))
    order = np.lexsort((np.arange(len(samples)), samples["addr"].to_numpy(np.uint64)))
    order = order[nbytes[order] != 0]
    addr, made = samples["addr"].to_numpy(np.uint64)[order], nbytes[order] > 0
    return row | {
        "allocations": len(alive),
        "allocations_bytes": int(alive["nbytes"].sum()),
        "frees": int((nbytes < 0).sum()),
        "frees_bytes": -int(nbytes[nbytes < 0].sum()),
        "frees_without_alloc": len(before),
        "frees_without_alloc_bytes": -int(nbytes[before].sum()),
        "never_freed": int(standing.sum()),
        "never_freed_bytes": int(alive.loc[standing, "nbytes"].sum()),
        "ended_by_reuse": int((made[1:] & made[:-1] & (addr[1:] == addr[:-1])).sum()),
    }
