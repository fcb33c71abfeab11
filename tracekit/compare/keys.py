"""What is one compared number about? A metric, and the layer, axis, rank or part that it is of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: In this order a key's places are written and sorted.
PLACES = ("rank", "stage", "axis", "kind", "direction", "layer", "operator")

_INDEXED = re.compile(r"^(?P<head>.*?(?:^|\.)(?:layers?|blocks?|h)\.)(?P<index>\d{1,9})(?P<tail>\..*)?$")


@dataclass(frozen=True, order=True)
class Key:
    """One number's name: the metric and where it was measured.

    Attributes:
        metric: name in the catalogue.
        where: (place, value) pairs in the order of ``PLACES``; a place that is unknown or does not apply is left out.
    """

    metric: str
    where: tuple[tuple[str, str], ...] = ()

    def place(self, name: str) -> str | None:
        """The value of one place, or None."""
        return next((value for place, value in self.where if place == name), None)

    @property
    def id(self) -> str:
        """The key as one text.

        >>> key("collective_count", axis="tp", layer="layers.3").id
        'collective_count[axis=tp layer=layers.3]'
        """
        return self.metric + (f"[{' '.join(f'{p}={v}' for p, v in self.where)}]" if self.where else "")


def key(metric: str, **places: Any) -> Key:
    """A key; places that are None are left out."""
    return Key(metric, tuple((p, str(places[p])) for p in PLACES if places.get(p) is not None))


def from_where(metric: str, where: Mapping[str, Any]) -> Key:
    """A key read back from a document; places that nobody knows are kept after the known ones."""
    known = [(p, str(where[p])) for p in PLACES if where.get(p) is not None]
    return Key(metric, (*known, *sorted((str(p), str(v)) for p, v in where.items() if p not in PLACES and v is not None)))


def split_layer(layer: str) -> tuple[str, int | None, str]:
    """A module path around its layer number.

    >>> split_layer("model.layers.12.mlp"), split_layer("head")
    (('model.layers.', 12, '.mlp'), ('head', None, ''))
    """
    found = _INDEXED.match(layer)
    return (found["head"], int(found["index"]), found["tail"] or "") if found else (layer, None, "")


def whole_layer(layer: str) -> str:
    """The layer that a module path lies in, without its sublayer.

    >>> whole_layer("layers.3.attention"), whole_layer("head.norm")
    ('layers.3', 'head')
    """
    head, index, _ = split_layer(layer)
    return f"{head}{index}" if index is not None else layer.split(".")[0]


def layer_ranges(layers: Mapping[str, Any] | list[str] | set[str]) -> str:
    """Layers in few words: runs of numbers joined, everything else by name.

    >>> layer_ranges(["layers.3", "layers.1", "layers.2", "head", "layers.7"])
    'layers 1–3, 7, head'
    """
    numbers: dict[str, list[int]] = {}
    names = []
    for layer in layers:
        _, index, tail = split_layer(layer)
        if index is None:
            names.append(layer)
        else:
            numbers.setdefault(tail, []).append(index)
    parts = [_runs(sorted(set(found))) + (f" ({tail[1:]})" if tail else "") for tail, found in sorted(numbers.items())]
    count = sum(len(set(found)) for found in numbers.values())
    word = "layers " if count > 1 else "layer "
    return ", ".join([*((word + parts[0], *parts[1:]) if parts else ()), *sorted(names)])


def _runs(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)
