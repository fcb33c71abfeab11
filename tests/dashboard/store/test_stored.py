"""An analysis that was stored says what it said before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests import forged
from tests.analyses import analysis_of
from tracekit import Analysis, stored
from tracekit.analysis import document_of, records
from tracekit.errors import InputError
from tracekit.figures import FIGURES
from tracekit.figures.embed import to_json
from tracekit.metrics import METRICS, Result, unavailable

SAMPLES = ("pp-1f1b", "recompute-full")


class Written:
    """An analysis with one table, and nothing else to say."""

    metrics = METRICS
    steady_steps = frozenset({3})

    def __init__(self, table: pd.DataFrame) -> None:
        self.table = table

    def result(self, name: str) -> Result:
        return Result({"x_ns": 1}, {"devices": self.table}, notes=("measured",)) if name == "breakdown" else unavailable("not asked for")

    def health(self) -> dict[str, Any]:
        return {"verdict": "ok", "findings": []}

    def run(self) -> dict[str, Any]:
        return {"ranks": [0]}

    def to_dict(self) -> dict[str, Any]:
        return document_of(self)

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent)


def again(table: pd.DataFrame, folder: Path) -> pd.DataFrame:
    stored.save(Written(table), folder / "a")
    return stored.load(folder / "a").result("breakdown").tables["devices"]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_says_the_same_again(name: str, samples: Path, tmp_path: Path) -> None:
    same_again(analysis_of(samples / name), tmp_path)


def test_a_forged_job_says_the_same_again(shared: Path, tmp_path: Path) -> None:
    same_again(forged.analysis_of(shared / "forged" / "tp4_sp"), tmp_path)


def same_again(analysis: Analysis, folder: Path) -> None:
    opened = stored.load(stored.save(analysis, folder / "a"))
    assert opened.to_dict() == analysis.to_dict()
    assert opened.to_json() == analysis.to_json()
    assert (opened.steady_steps, opened.partial) == (analysis.steady_steps, False)
    for drawing in FIGURES:
        before, after = (drawing.draw(a.result, a.steady_steps) for a in (analysis, opened))
        assert (None if after is None else to_json(after)) == (None if before is None else to_json(before)), drawing.name


def test_every_type_of_column_comes_back(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {
            "rank": pd.Series([0, 2**62], dtype="int64"),
            "busy_ns": pd.Series([2**60 + 1, None], dtype="Int64"),
            "ratio": pd.Series([0.1, None], dtype="float64"),
            "gbps": pd.Series([None, 0.3], dtype="Float64"),
            "whole": pd.Series([True, False]),
            "late": pd.Series([None, True], dtype="boolean"),
            "part": pd.Series(["compute", "|=cmd"], dtype="str"),
            "layer": pd.Series([None, "layers.3"], dtype=object),
            "ranks": pd.Series([[0, 1], None], dtype=object),
            "mixed": pd.Series([1, True], dtype=object),
        }
    )
    back = again(table, tmp_path)
    assert list(back.dtypes) == list(table.dtypes)
    assert records(back) == records(table)
    assert [type(v) for v in back["mixed"]] == [int, bool]


@pytest.mark.parametrize("table", [pd.DataFrame(), pd.DataFrame({"rank": pd.Series(dtype="Int64"), "layer": pd.Series(dtype=object)})])
def test_a_table_without_rows_keeps_its_columns(table: pd.DataFrame, tmp_path: Path) -> None:
    back = again(table, tmp_path)
    assert (list(back.columns), len(back), list(back.dtypes)) == (list(table.columns), 0, list(table.dtypes))


def test_names_that_are_no_text_come_back_as_they_can_be_shown(tmp_path: Path) -> None:
    assert again(pd.DataFrame({"layer": ["\ud800", "\0ok"]}, dtype=object), tmp_path)["layer"].tolist() == ["?", "\0ok"]


def test_extras_and_partial_analyses_say_so(tmp_path: Path) -> None:
    extra = Result({"trusted": True}, {"alternatives": pd.DataFrame({"label": ["gpipe"]})})
    opened = stored.load(stored.save(Written(pd.DataFrame()), tmp_path / "a", partial=True, extras={"what_if": extra}))
    assert opened.partial
    assert opened.extra("nothing") is None
    found = opened.extra("what_if")
    assert found is not None and records(found.tables["alternatives"]) == [{"label": "gpipe"}]


def test_a_metric_that_came_later_is_unavailable(tmp_path: Path) -> None:
    folder = stored.save(Written(pd.DataFrame()), tmp_path / "a")
    opened = stored.load(folder)
    without = {k: v for k, v in opened.document["results"].items() if k != "metric.memory"}
    older = stored.StoredAnalysis(folder, {**opened.document, "results": without}, opened.files)
    assert "before tracekit had this metric" in str(older.result("memory").reason)
    with pytest.raises(KeyError, match="no metric 'nonsense'"):
        older.result("nonsense")


def test_damage_is_refused(tmp_path: Path) -> None:
    folder = stored.save(Written(pd.DataFrame({"rank": [0]})), tmp_path / "a")
    table = next(folder.glob("*.parquet"))
    bytes_ = bytearray(table.read_bytes())
    bytes_[len(bytes_) // 2] ^= 1
    table.write_bytes(bytes_)
    with pytest.raises(InputError, match=r"checksum of .* differs"):
        dict(stored.load(folder).result("breakdown").tables)
    table.unlink()
    with pytest.raises(InputError, match="is missing"):
        stored.load(folder)
    (folder / "document.json").write_text("{}")
    with pytest.raises(InputError, match=r"checksum of document\.json differs"):
        stored.load(folder)
    (folder / "manifest.json").write_text(json.dumps({"schema": "tracekit.analysis/9", "files": {}}))
    with pytest.raises(InputError, match="does not know"):
        stored.load(folder)
    with pytest.raises(InputError, match="holds no stored analysis"):
        stored.load(tmp_path / "nowhere")


def test_nothing_half_written_stays_behind(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="categorical"):
        stored.save(Written(pd.DataFrame({"kind": pd.Categorical(["a"])})), tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
    stored.save(Written(pd.DataFrame()), tmp_path / "a")
    with pytest.raises(FileExistsError):
        stored.save(Written(pd.DataFrame()), tmp_path / "a")
