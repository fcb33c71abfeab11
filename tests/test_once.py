"""Is what many ask of one object made once, and never taken for a part of it?"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace

import pandas as pd

from tests.builders import passed, span
from tracekit.job.assemble import build
from tracekit.once import Once
from tracekit.windows import step_windows


@dataclass(frozen=True)
class Basket(Once):
    """Something of which something is made."""

    apples: int = 1

    def pie(self) -> list[int]:
        """A pie of its apples."""
        return self.once("pie", lambda: [self.apples])


def test_the_same_is_given_again() -> None:
    basket = Basket()
    assert basket.pie() is basket.pie()


def test_a_changed_copy_makes_its_own() -> None:
    basket = Basket()
    basket.pie()
    assert replace(basket, apples=2).pie() == [2]


def test_what_was_made_is_neither_compared_nor_pickled() -> None:
    eaten, new = Basket(), Basket()
    eaten.pie()
    assert eaten == new
    assert pickle.dumps(eaten) == pickle.dumps(new)


def test_a_change_in_a_table_stays_with_who_made_it() -> None:
    trace = passed([span("ProfilerStep#1", 0, 100)])
    changed = step_windows(trace)
    changed["step"] = 7
    changed.loc[0, "end_ns"] = 0
    assert step_windows(trace)[["step", "end_ns"]].to_numpy().tolist() == [[1, 100_000]]
    job = build({})
    changed = job.table("steps")
    changed["more"] = pd.Series(dtype="int64")
    assert "more" not in job.table("steps")
