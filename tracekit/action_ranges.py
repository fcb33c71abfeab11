"""Which ranges say "forward" or "backward" in the words of other frameworks, and what stage and microbatch are they?

torch's own ranges (``PP:1F0``, ``Forward 0``) are read elsewhere; where a trace has them, these are not asked.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd

from tracekit.columns import integers
from tracekit.intervals import parents
from tracekit.vocabulary import GPIPE_RANGE, Action, Kind, NamedAction, parse_actions, parse_named_action

_COLUMNS = ["start_ns", "end_ns", "step", "action", "microbatch"]


def action_ranges(events: pd.DataFrame) -> pd.DataFrame:
    """Forwards and backwards that ranges or Python frames name, the outermost of each, in order of start.

    Returns:
        ``start_ns``, ``end_ns``, ``step``, ``action`` and ``microbatch`` (null where not named; where some forwards and
        backwards name it, only those count). Without rows where torch's own ranges stand, or where forwards or backwards are missing.
    """
    own = events["kind"].isin([Kind.RANGE, Kind.PYTHON]).to_numpy()
    meaning: dict[str, NamedAction] = {}
    for name in map(str, events["name"].cat.categories):
        if parse_actions(name) or GPIPE_RANGE.match(name):
            return pd.DataFrame(columns=_COLUMNS)
        found = parse_named_action(name)
        if found is not None:
            meaning[name] = found
    rows = events[own & events["name"].isin(list(meaning)).to_numpy()]
    frame = pd.DataFrame(
        {
            "start_ns": rows["ts"].to_numpy(np.int64),
            "end_ns": (rows["ts"] + rows["dur"]).to_numpy(np.int64),
            "step": rows["step"].array,
            "action": [meaning[str(n)].action for n in rows["name"]],
            "microbatch": pd.array([meaning[str(n)].microbatch for n in rows["name"]], "Int64"),
        }
    ).sort_values(["start_ns", "end_ns"], ascending=[True, False], kind="stable", ignore_index=True)
    numbered = frame["microbatch"].notna()
    if _has_both(frame[numbered]):
        frame = frame[numbered].reset_index(drop=True)
    outer = parents(np.zeros(len(frame)), frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy())
    frame = frame[outer < 0].reset_index(drop=True)
    return frame if _has_both(frame) else frame[:0]


def stages_of_ranges(ranges: pd.DataFrame, position: int, size: int) -> list[Action] | None:
    """The actions of one step's ranges that name their microbatches, in their order.

    A rank that runs a microbatch forward several times holds several stages, stage ``position + k * size`` in the k-th
    run: activations reach them in that order, gradients in the opposite one. None where a microbatch is not named, or its
    forwards and backwards are not equally many. Where a microbatch has a W, its B is the input gradient alone, I.
    """
    microbatches = integers(ranges["microbatch"])
    if (microbatches < 0).any():
        return None
    letters = ranges["action"].tolist()
    split = {mb for letter, mb in zip(letters, microbatches.tolist(), strict=True) if letter == "W"}
    keys = [("I" if letter == "B" and mb in split else letter, mb) for letter, mb in zip(letters, microbatches.tolist(), strict=True)]
    count = Counter(keys)
    virtual = set(count.values())
    asked = {("F", mb) for mb in microbatches.tolist()} | {("I" if mb in split else "B", mb) for mb in microbatches.tolist()} | {("W", mb) for mb in split}
    if len(virtual) != 1 or set(count) != asked:
        return None
    v, seen, out = virtual.pop(), Counter[tuple[str, int]](), []
    for letter, mb in keys:
        run = seen[letter, mb] if letter == "F" else v - 1 - seen[letter, mb]
        seen[letter, mb] += 1
        out.append(Action(position + run * size, letter, mb))
    return out


def _has_both(ranges: pd.DataFrame) -> bool:
    letters = set(ranges["action"])
    return "F" in letters and bool(letters & {"B", "I"})
