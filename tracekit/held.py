"""What was alive at a moment, by owner and maker, how many microbatches did each stage hold, and what was left standing?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tracekit import schema
from tracekit.columns import Mask, Objects, Rows, integers
from tracekit.owners import CATEGORIES, NO_RULE
from tracekit.vocabulary import LAYER_INDEX, layer_index

#: Most groups of one peak; the smaller ones are taken together, one row per category.
GROUPS = 120
#: Words of ``since``, by number.
_SINCE = ("before_recording", "this_step", "earlier")


@dataclass(frozen=True)
class Kinds:
    """What is told of many blocks, each distinct answer once.

    Attributes:
        of: number of each block's kind.
        what: one row per kind, None where nothing is told.
    """

    of: Rows
    what: pd.DataFrame


@dataclass(frozen=True)
class Blocks:
    """Blocks of one device, made ready to be asked at many moments which of them are alive, and what they are.

    Attributes:
        made: memory event that made each; -1 where it stood before the recording.
        freed: memory event that freed it.
        nbytes: its bytes.
        step: step in which it was made; -1 where none is known.
        activation: whether it is an activation.
        category: kinds by category.
        owner: kinds by owner, place and maker.
        place: kinds by whole layer, stage and microbatch.
        layer: kinds by whole layer, in the order of its name, none last.
    """

    made: Rows
    freed: Rows
    nbytes: Rows
    step: Rows
    activation: Mask
    category: Kinds
    owner: Kinds
    place: Kinds
    layer: Kinds

    @classmethod
    def of(cls, blocks: pd.DataFrame) -> Blocks:
        """From columns of ``blocks.blocks``."""
        layer, sublayer = _split(blocks["made_layer"])
        owner = pd.DataFrame(
            {
                "category": blocks["category"].to_numpy(object),
                "rule": blocks["rule"].to_numpy(object),
                "layer": layer,
                "layer_source": blocks["made_layer_source"].to_numpy(object),
                "sublayer": sublayer,
                "direction": blocks["made_direction"].to_numpy(object),
                "stage": blocks["made_stage"].to_numpy(object),
                "microbatch": blocks["made_microbatch"].to_numpy(object),
                "maker": blocks["made_by"].to_numpy(object),
            }
        )
        layer, _ = _split(blocks["layer"])
        return cls(
            made=blocks["made"].to_numpy(np.int64),
            freed=blocks["freed"].to_numpy(np.int64),
            nbytes=blocks["nbytes"].to_numpy(np.int64),
            step=integers(blocks["made_step"]),
            activation=blocks["category"].eq("activation").to_numpy(bool),
            category=_kinds(owner[["category"]]),
            owner=_kinds(owner),
            place=_kinds(pd.DataFrame({"layer": layer, "stage": owner["stage"], "microbatch": owner["microbatch"]})),
            layer=_by_name(layer),
        )

    def alive(self, at: int) -> Rows:
        """Those that are alive after a memory event."""
        return np.flatnonzero((self.made <= at) & (self.freed > at))

    def by_category(self, rows: Rows) -> dict[str, int]:
        """Bytes of some of them, by category."""
        kind, _, nbytes = _added_up(self.category.of[rows], self.nbytes[rows])
        return dict(zip(self.category.what["category"].iloc[kind], nbytes.tolist(), strict=True))


def _kinds(told: pd.DataFrame) -> Kinds:
    """Kinds by all columns, in the order in which they first come."""
    of = integers(told.groupby(list(told), dropna=False, sort=False).ngroup())
    what = told.iloc[np.unique(of, return_index=True)[1]].astype(object)
    return Kinds(of, what.where(what.notna(), None).reset_index(drop=True))


def _by_name(layer: Objects) -> Kinds:
    codes, names = pd.factorize(layer, sort=True)
    of = np.full(len(codes), len(names), np.int64)
    of[codes >= 0] = codes[codes >= 0]
    return Kinds(of, pd.DataFrame({"layer": [*names, None]}, dtype=object))


def _added_up(kind: Rows, nbytes: Rows) -> tuple[Rows, Rows, Rows]:
    """Kinds in the order in which they first come, how many blocks each has, and their bytes."""
    found, first, at, count = np.unique(kind, return_index=True, return_inverse=True, return_counts=True)
    sums = np.zeros(len(found), np.int64)
    np.add.at(sums, at, nbytes)
    order = np.argsort(first)
    return found[order], count[order], sums[order]


def groups(blocks: Blocks, moments: Sequence[tuple[int, int, int | None]], limit: int = GROUPS) -> pd.DataFrame:
    """Blocks alive at each of several peaks, grouped by owner, place and maker; bounded, and summing to the peak exactly.

    Args:
        blocks: the blocks of a device.
        moments: of each peak the memory event after which it stood, its bytes, and the step in which it lies, or None.
        limit: most groups of a peak.

    Returns:
        Rows of ``memory_tables.MEMORY_OWNERS`` without device and step, with the number of the moment; of each the largest first. What no
        block explains is ``unknown`` by the rule ``before_recording``, and blocks that exceed the peak are one row by the rule ``inconsistent``.
    """
    names = ["moment", *(n for n in schema.MEMORY_OWNERS if n not in ("device", "device_type", "step"))]
    owners = [{**{str(k): v for k, v in row.items()}, "layer_index": layer_index(row["layer"])} for row in blocks.owner.what.to_dict("records")]
    rows = [{"moment": i, **row} for i, (at, peak, step) in enumerate(moments) for row in _groups(blocks, owners, blocks.alive(at), peak, step, limit)]
    nothing = dict.fromkeys(names)
    return pd.DataFrame([nothing | row for row in rows], columns=names, dtype=object)


def _groups(blocks: Blocks, owners: list[dict[str, Any]], alive: Rows, peak: int, step: int | None, limit: int) -> list[dict[str, Any]]:
    """Groups at one peak."""
    rest = peak - int(blocks.nbytes[alive].sum())
    if rest < 0:
        return [{"category": "unknown", "rule": "inconsistent", "nbytes": peak}]
    in_step = blocks.step[alive] == step if step is not None else np.zeros(len(alive), bool)
    since = np.where(blocks.made[alive] < 0, 0, np.where(in_step, 1, 2))
    kind, count, nbytes = _added_up(blocks.owner.of[alive] * len(_SINCE) + since, blocks.nbytes[alive])
    order = np.argsort(-nbytes, kind="stable")
    few, many = order[:limit], order[limit:]
    owner, since = np.divmod(kind, len(_SINCE))
    rows = [{**owners[owner[i]], "since": _SINCE[since[i]], "blocks": int(count[i]), "nbytes": int(nbytes[i])} for i in few]
    more = pd.DataFrame({"category": blocks.owner.what["category"].iloc[owner[many]], "blocks": count[many], "nbytes": nbytes[many]})
    if len(more):
        rows += more.groupby("category", sort=False).sum().reset_index().assign(rule="others").to_dict("records")
    if rest:
        rows.append({"category": "unknown", "rule": "before_recording", "since": "before_recording", "nbytes": rest})
    return rows


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


def by_layer(blocks: Blocks, moments: Sequence[int | None]) -> pd.DataFrame:
    """Activations alive at each of several moments, by whole layer; one row without a layer for those whose layer is not known.

    Args:
        blocks: the blocks of a device.
        moments: the memory event after which each is; None where nothing is told of it.

    Returns:
        moment (its number), layer, layer_index, activation_bytes.
    """
    return _activations(blocks, blocks.layer, moments, by_kind=True)


def by_microbatch(blocks: Blocks, moments: Sequence[int | None]) -> pd.DataFrame:
    """Activations alive at each of several moments by whole layer, stage and microbatch; as :func:`by_layer`."""
    return _activations(blocks, blocks.place, moments)


def _activations(blocks: Blocks, kinds: Kinds, moments: Sequence[int | None], *, by_kind: bool = False) -> pd.DataFrame:
    # one after another: the blocks of all moments together may be more than memory holds
    alive = (blocks.alive(at) if at is not None else np.empty(0, np.int64) for at in moments)
    activations = (rows[blocks.activation[rows]] for rows in alive)
    found = [_added_up(kinds.of[rows], blocks.nbytes[rows]) for rows in activations]
    kind, _, nbytes = (np.concatenate(column) for column in zip(*found, strict=True))
    moment = np.repeat(np.arange(len(found)), [len(own_kinds) for own_kinds, *_ in found])
    order = np.lexsort((kind, moment)) if by_kind else np.arange(len(kind))
    numbers = pd.array([layer_index(name) for name in kinds.what["layer"]], "Int64")
    what = kinds.what.assign(layer_index=numbers).iloc[kind[order]].reset_index(drop=True)
    return what.assign(moment=moment[order], activation_bytes=nbytes[order])


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
