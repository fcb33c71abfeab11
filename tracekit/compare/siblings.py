"""How does a layer stand among its siblings of the same run? What a whole run shares (placement, clocks, neighbours) cancels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tracekit.compare.keys import Key, split_layer

Runs = tuple[float, ...]

#: Other layers that a layer needs to be told against them.
FEWEST = 3


def relative(numbers: Mapping[Key, Sequence[float]]) -> dict[Key, tuple[Runs, Runs]]:
    """Each layer's numbers over the median of its siblings' in the same run.

    Stands as long as fewer than half of the layers change; what all of them share shows in the parts of the step.

    Args:
        numbers: one number per run and key; all keys in the same order of runs.

    Returns:
        By key: the ratios, and the siblings' medians that they are to. Keys with fewer than ``FEWEST`` siblings, or with a sibling's median of 0, are left out.
    """
    groups: dict[tuple[object, ...], list[Key]] = {}
    for key in numbers:
        head, index, tail = split_layer(key.place("layer") or "")
        if index is not None:
            rest = tuple((p, v) for p, v in key.where if p != "layer")
            groups.setdefault((key.metric, rest, head, tail), []).append(key)
    out: dict[Key, tuple[Runs, Runs]] = {}
    for keys in groups.values():
        if len(keys) <= FEWEST:
            continue
        table = np.asarray([numbers[k] for k in keys], float)
        for place, key in enumerate(keys):
            others = np.median(np.delete(table, place, axis=0), axis=0)
            if np.all(others > 0):
                out[key] = (tuple((table[place] / others).tolist()), tuple(others.tolist()))
    return out
