"""Facts of a source come back from the disk as they were, or not at all."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.analyses import analysis_of
from tracekit import facts_file, schema
from tracekit.errors import InputError
from tracekit.trace import RankFacts


@pytest.fixture(scope="module")
def facts(samples: Path) -> list[RankFacts]:
    return list(analysis_of(samples / "pp-1f1b").job.ranks.values())[:2]


def test_every_table_comes_back_in_its_own_types(facts: list[RankFacts], tmp_path: Path) -> None:
    back = facts_file.load(facts_file.save(facts, tmp_path / "s.facts", "this"), "this")
    assert back is not None and [b.meta for b in back] == [f.meta for f in facts]
    for had, got in zip(facts, back, strict=True):
        assert list(got.tables) == list(had.tables)
        for name, frame in had.tables.items():
            pd.testing.assert_frame_equal(got[name], schema.conform(frame, schema.FACTS[name]), check_exact=True)
    assert [p.name for p in tmp_path.iterdir()] == ["s.facts"]


def test_facts_of_something_else_are_none(facts: list[RankFacts], tmp_path: Path) -> None:
    assert facts_file.load(facts_file.save(facts, tmp_path / "s.facts", "this"), "that") is None
    assert facts_file.load(tmp_path / "nothing.facts", "this") is None


@pytest.mark.parametrize("at", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("cut", [False, True])
def test_damaged_facts_are_refused(facts: list[RankFacts], tmp_path: Path, at: float, cut: bool) -> None:
    path = facts_file.save(facts[:1], tmp_path / "s.facts", "this")
    whole = path.read_bytes()
    place = int(at * len(whole))
    path.write_bytes(whole[:place] if cut else whole[:place] + bytes([whole[place] ^ 0xFF]) * 40 + whole[place + 40 :])
    with pytest.raises(InputError, match=r"damaged facts .*read the trace again"):
        facts_file.load(path, "this")
