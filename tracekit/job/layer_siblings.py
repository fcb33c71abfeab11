"""Does a tensor-parallel layer issue the same collectives as the layers beside it?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

import pandas as pd

from tracekit.findings import finding
from tracekit.vocabulary import Direction, Severity

K = TypeVar("K", bound=Hashable)
Row = tuple[str, str, str]  #: layer, direction, kind
_COMPUTE = (Direction.FORWARD, Direction.BACKWARD)
#: A pattern that this share of the layers (and at least two) have is a kind of layer, not a fault: every fourth one may hold experts.
_KIND_OF_LAYER = 1 / 4
_MOST_NAMED = 5


def compared(table: pd.DataFrame) -> pd.DataFrame:
    """The table of ``job.layer_pattern`` with ``siblings_min``, ``siblings_max``, ``siblings_nbytes_*`` and ``differs``.

    Siblings are layers of one stack (``encoder.layers`` and ``decoder.layers`` are two), all with or all without
    communication of experts (column ``experts``), whose counts by direction and kind are the most common. Bytes are
    compared among layers of the same counts and number of cells. Recomputation is not compared: it need not repeat
    every layer.
    """
    compute = table[table["direction"].isin(_COMPUTE)]
    families: dict[Hashable, dict[str, tuple[Any, ...]]] = {}
    for layer, rows in compute.groupby("layer", sort=False):
        pattern = tuple(sorted(zip(rows["direction"], rows["kind"], rows["count_min"], rows["count_max"], strict=True)))
        families.setdefault((stack_of(str(layer)), bool(rows["experts"].iloc[0])), {})[str(layer)] = pattern
    siblings = {layer: pattern for family in families.values() for layer, pattern in usual(family).items()}
    counts: dict[Row, tuple[float, float]] = {
        (layer, direction, kind): (low, high) for layer, pattern in siblings.items() if pattern is not None for direction, kind, low, high in pattern
    }
    sizes = _usual_sizes(compute, {layer: pattern for family in families.values() for layer, pattern in family.items()})
    keys: list[Row] = [(str(layer), str(direction), str(kind)) for layer, direction, kind in table[["layer", "direction", "kind"]].itertuples(index=False)]
    beside = pd.DataFrame(
        {
            "siblings_min": pd.Series([counts.get(key, (None, None))[0] for key in keys], dtype="Float64"),
            "siblings_max": pd.Series([counts.get(key, (None, None))[1] for key in keys], dtype="Float64"),
            "siblings_nbytes_min": pd.Series([sizes.get(key, (None, None))[0] for key in keys], dtype="Int64"),
            "siblings_nbytes_max": pd.Series([sizes.get(key, (None, None))[1] for key in keys], dtype="Int64"),
        }
    ).set_index(table.index)
    out = pd.concat([table, beside], axis=1)
    other = _unlike(out, "count", "siblings") | _unlike(out, "nbytes", "siblings_nbytes")
    return out.assign(differs=other.astype(object).where(out["siblings_min"].notna(), None))


def usual(patterns: Mapping[str, K]) -> dict[str, K | None]:
    """For each layer the pattern of its siblings: its own where enough share it, else the most common; None where there is none.

    >>> usual({"a": 2, "b": 2, "c": 2, "d": 3})
    {'a': 2, 'b': 2, 'c': 2, 'd': 2}
    >>> usual({"a": 2, "b": 3, "c": 2, "d": 3})
    {'a': 2, 'b': 3, 'c': 2, 'd': 3}
    >>> usual({"a": 2, "b": 3})
    {'a': None, 'b': None}
    """
    number = Counter(patterns.values())
    kinds = [p for p, n in number.items() if n >= max(2, _KIND_OF_LAYER * len(patterns))]
    if 2 * sum(number[p] for p in kinds) < len(patterns) or not kinds:
        return dict.fromkeys(patterns)
    most = max(kinds, key=lambda p: (number[p], repr(p)))
    return {layer: pattern if pattern in kinds else most for layer, pattern in patterns.items()}


def stack_of(layer: str) -> str:
    """Path of the list that holds a layer.

    >>> stack_of("decoder.layers.3")
    'decoder.layers'
    """
    return layer.rpartition(".")[0]


def layer_findings(table: pd.DataFrame, nameless: int = 0) -> list[dict[str, Any]]:
    """One finding (``layer_differs``) for all layers that differ from their siblings in the same way.

    A warning, unless the layer may be the wrong one: it was inferred, it stands at an end of its stack (where the
    embedding begins, or nothing below needs a gradient), or it has too few while other collectives name no layer.

    Args:
        table: of ``job.layer_pattern``.
        nameless: collectives of the same groups, in forward or backward, that name no layer.
    """
    odd = table[table["differs"].eq(True)]
    if not len(odd):
        return []
    stack = table["layer"].map(stack_of)
    ends = table["layer_index"].eq(table.groupby(stack)["layer_index"].transform("min")) | table["layer_index"].eq(
        table.groupby(stack)["layer_index"].transform("max")
    )
    fewer = odd["count_max"].lt(odd["siblings_min"]).fillna(True).astype(bool)
    unsure = odd["inferred"] | ends[odd.index] | (fewer & (nameless > 0))
    odd = odd.assign(stack=stack[odd.index], unsure=unsure)
    same = [c for c in odd.columns if c.startswith(("count_", "siblings_", "nbytes_"))]
    found = []
    for _, rows in odd.groupby(["stack", "direction", "kind", "unsure", *same], dropna=False, sort=False):
        number = table["layer"][stack.eq(rows["stack"].iloc[0])].nunique()
        found.append(_finding(rows, nameless, number))
    return found


def _finding(rows: pd.DataFrame, nameless: int, number: int) -> dict[str, Any]:
    one = rows.iloc[0]
    names = ", ".join(rows["layer"].iloc[:_MOST_NAMED]) + (f" and {len(rows) - _MOST_NAMED} more" if len(rows) > _MOST_NAMED else "")
    if pd.isna(one["count_min"]):
        what = f"more or fewer {one['kind']} collectives in {one['direction']} than their siblings"
    elif (one["count_min"], one["count_max"]) != (one["siblings_min"], one["siblings_max"]):
        has, others = (told(one[f"{c}_min"], one[f"{c}_max"]) for c in ("count", "siblings"))
        what = f"{has} {one['kind']} per microbatch in {one['direction']}, their siblings {others}"
    else:
        has, others = (told(one[f"{c}_min"], one[f"{c}_max"]) for c in ("nbytes", "siblings_nbytes"))
        what = f"{one['kind']} of {has} bytes in {one['direction']}, their siblings {others}"
    why = "the model is not the same there, or a collective was given to the wrong layer"
    if one["inferred"]:
        why = "their layer was inferred from repetition and may be the next one"
    elif one["unsure"] and nameless:
        why = f"{nameless} collectives of their groups name no layer and may be theirs"
    elif one["unsure"]:
        why = "at the ends of a stack the embedding begins, and the first layer may need no gradient of its input"
    severity = Severity.INFO if one["unsure"] else Severity.WARNING
    return finding("layer_differs", severity, f"{names} ({len(rows)} of {number} layers): {what}; {why}", count=len(rows))


def told(low: float, high: float) -> str:
    """A number, or the range that it lies in.

    >>> told(2, 2), told(2, 3), told(0.5, 0.5), told(12582912, 12582912)
    ('2', '2 to 3', '0.5', '12582912')
    """
    return f"{low:.12g}" if low == high else f"{low:.12g} to {high:.12g}"


def _unlike(table: pd.DataFrame, own: str, siblings: str) -> pd.Series:
    """Rows whose smallest or largest number is another than the siblings'; False where either is unknown."""
    pairs = ((table[f"{own}_{end}"], table[f"{siblings}_{end}"]) for end in ("min", "max"))
    low, high = (one.ne(other).fillna(False).astype(bool) for one, other in pairs)
    return low | high


def _usual_sizes(compute: pd.DataFrame, patterns: Mapping[str, tuple[Any, ...]]) -> dict[Row, tuple[int, int]]:
    """Smallest and largest bytes of one collective among the siblings, by (layer, direction, kind)."""
    sized = compute[compute["nbytes_min"].notna()]
    sized = sized.assign(pattern=[repr(patterns[layer]) for layer in sized["layer"]], stack=sized["layer"].map(stack_of))
    out: dict[Row, tuple[int, int]] = {}
    for (_, _, _, _, direction, kind), rows in sized.groupby(["stack", "experts", "pattern", "cells", "direction", "kind"], sort=False):
        limits = {str(layer): (int(low), int(high)) for layer, low, high in zip(rows["layer"], rows["nbytes_min"], rows["nbytes_max"], strict=True)}
        out |= {(layer, str(direction), str(kind)): pair for layer, pair in usual(limits).items() if pair is not None}
    return out
