"""Which ranks and collectives stand in the heat map of lateness, in which order, and how late was each? Bounded, whatever the size of the job."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

#: Columns of a panel; past it neighbours share one.
COLUMNS = 120
#: Rows of a panel, by the number of panels.
ROWS = {1: 64, 2: 44, 3: 30}

Floats = npt.NDArray[np.float64]


class Panel(NamedTuple):
    """The collectives of one mesh axis; a row is a rank of one group, the rows of a group stand together.

    Attributes:
        axis: the axis, or ``other``.
        late: [row, column] mean lateness in ns: start minus the median start of the group; NaN where the group had no such collective.
        unresolved: [row, column] whether that is less than the clocks can tell.
        ranks: [row] rank.
        groups: [row] number of its group.
        means: [row] mean lateness over all of its collectives.
        vague: [row] whether that is less than the clocks can tell.
        collectives: the most that a group has.
        all_ranks: rows before neighbours were left out.
        all_groups: groups.
        steps: (column at which a step begins, its name); empty where groups differ.
    """

    axis: str
    late: Floats
    unresolved: npt.NDArray[np.bool_]
    ranks: npt.NDArray[np.int64]
    groups: npt.NDArray[np.int64]
    means: Floats
    vague: npt.NDArray[np.bool_]
    collectives: int
    all_ranks: int
    all_groups: int
    steps: list[tuple[float, str]]


def panels_of(seen: pd.DataFrame, instances: pd.DataFrame, rows: pd.DataFrame, named: int | None = None) -> tuple[list[Panel], list[str]]:
    """A panel per mesh axis, the axis with the most waiting caused first, and what is to be said of them.

    Args:
        seen: table ``instances`` of the metric ``straggler``: the collectives that are compared.
        instances: table ``instances`` of the metric ``collectives``.
        rows: its table ``by_rank``.
        named: the rank that stands out; it is never left out.
    """
    about = seen.merge(instances[["instance", "axis", "wait_resolution_ns"]], on="instance", how="left").reset_index(drop=True)
    code, names = pd.factorize(rows["instance"])
    at = pd.Index(about["instance"]).get_indexer(pd.Index(names))[code]
    kept = at >= 0
    at, rank, start = at[kept], rows["rank"].to_numpy("int64")[kept], rows["start_ns"].to_numpy("int64")[kept]
    first = np.full(len(about), np.iinfo(np.int64).max)
    np.minimum.at(first, at, start)
    gone = (start - first[at]).astype("float64")
    late = gone - pd.Series(gone).groupby(at).transform("median").to_numpy()
    about = about.assign(first=first, axis=about["axis"].astype(object).where(about["axis"].notna(), "other").astype(str))
    caused = about.groupby("axis")["caused_wait_ns"].sum().sort_values(ascending=False, kind="stable")
    chosen = list(caused.index[: max(ROWS)])
    notes = [] if len(caused) <= len(chosen) else [f"{len(chosen)} of {len(caused)} axes: those with the most waiting caused"]
    made = []
    for axis in chosen:
        mine = (about["axis"] == axis).to_numpy()[at]
        if mine.any():
            made.append(_panel(axis, about, at[mine], rank[mine], late[mine], ROWS[len(chosen)], named))
    if any(p.collectives > COLUMNS for p in made):
        notes.append("a column is the mean of neighbouring collectives")
    if any(len(p.ranks) < p.all_ranks for p in made):
        notes.append("of neighbouring ranks the one that is latest on average is drawn")
    return made, notes


def _panel(axis: str, about: pd.DataFrame, at: npt.NDArray[np.int64], rank: npt.NDArray[np.int64], late: Floats, limit: int, named: int | None) -> Panel:
    of = about[about["axis"] == axis].sort_values("first", kind="stable")
    number = pd.Series(of.groupby("group_ranks", sort=False).cumcount().to_numpy(), index=of.index).reindex(about.index, fill_value=0).to_numpy()
    names = sorted(of["group_ranks"].unique(), key=lambda text: [int(r) for r in str(text).split(",")])
    group = about["group_ranks"].map({name: i for i, name in enumerate(names)}).fillna(-1).to_numpy("int64")[at]
    wide = int(rank.max()) + 1
    key = group * wide + rank
    present = np.flatnonzero(np.bincount(key))
    row = np.zeros(int(present[-1]) + 1, np.int64)
    row[present] = np.arange(len(present))
    total = int(number[at].max()) + 1
    columns = min(total, COLUMNS)
    cell = row[key] * columns + number[at] * columns // total
    size = len(present) * columns
    count, sums = np.bincount(cell, minlength=size), np.bincount(cell, late, minlength=size)
    worst = np.zeros(size)
    np.maximum.at(worst, cell, about["wait_resolution_ns"].astype("Float64").fillna(0).to_numpy("float64")[at])
    mean = np.divide(sums, count, out=np.full(size, np.nan), where=count > 0)
    means = sums.reshape(-1, columns).sum(axis=1) / count.reshape(-1, columns).sum(axis=1)
    picked = _latest_of_neighbours(np.where(present % wide == (-1 if named is None else named), np.inf, means), limit)
    unresolved = (np.abs(mean) <= worst) & (worst > 0)
    shape = (-1, columns)
    vague = (np.abs(means) <= worst.reshape(shape).max(axis=1)) & (worst.reshape(shape).max(axis=1) > 0)
    return Panel(
        axis,
        mean.reshape(shape)[picked],
        unresolved.reshape(shape)[picked],
        (present % wide)[picked],
        (present // wide)[picked],
        means[picked],
        vague[picked],
        total,
        len(present),
        len(names),
        _steps(of, number, total, columns),
    )


def _latest_of_neighbours(means: Floats, limit: int) -> npt.NDArray[np.int64]:
    """Rows to draw: all, or of each so many neighbours the one with the largest mean."""
    each = -(-len(means) // limit)
    starts = np.arange(0, len(means), each)
    return np.array([start + int(np.argmax(means[start : start + each])) for start in starts], np.int64)


def _steps(of: pd.DataFrame, number: npt.NDArray[np.int64], total: int, columns: int) -> list[tuple[float, str]]:
    """(column at which a step begins, its name), where every group has the same collectives in each step."""
    if of["step"].isna().any():
        return []
    begins = pd.DataFrame({"group": of["group_ranks"], "capture": of["capture"], "step": of["step"], "number": number[of.index]})
    first = begins.groupby(["capture", "step", "group"])["number"].min().unstack("group")
    if first.isna().to_numpy().any() or first.nunique(axis=1).gt(1).any():
        return []
    steps = first.index.get_level_values("step").tolist()
    return [(n * columns / total - 0.5, f"step {step}") for step, n in zip(steps, first.iloc[:, 0].astype("float64").tolist(), strict=True)]
