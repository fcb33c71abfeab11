"""``tracekit memory``: what was alive at the peak, and every allocation as a table."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.builders import memory, op, span, write
from tracekit.cells import safe
from tracekit.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int | None, str, str]:
    code = main(["memory", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_groups_add_up_to_the_peak_of_the_chosen_rank_and_step(samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, str(samples / "pp-1f1b"), "--rank", "2", "--step", "2", "--json")
    document = json.loads(out)
    assert (code, document["peak"]["rank"], document["peak"]["step"]) == (0, 2, 2)
    assert sum(group["nbytes"] for group in document["owners"]) == document["peak"]["allocated_peak_bytes"]


def test_what_is_not_there_is_named_with_what_there_is(samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, str(samples / "tp"), "--rank", "9")
    *progress, said = err.splitlines()
    assert (code, out) == (2, "")
    assert "there are ranks [0, 1]" in said and not any("tracekit:" in line for line in progress)


def test_every_allocation_leaves_with_what_made_and_freed_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    #   step   |----------------------|
    #   =evil()    |--------|              allocates 64 at 16, frees it
    #   op                     |---|       allocates 32 at 80, never freed
    events = [span("ProfilerStep#1", 0, 100), span("=evil()", 10, 50), memory(20, 64, 64, 16), memory(40, -64, 0, 16)]
    events += [op("op", 60, 80), memory(70, 32, 32, 80)]
    write(tmp_path / "rank0.json", events)
    file = tmp_path / "blocks.csv"
    code, _, err = run(capsys, str(tmp_path / "rank0.json"), "--blocks", str(file))
    table = pd.read_csv(file)
    assert (code, "2 allocations written" in err) == (0, True)
    assert table[["addr", "nbytes", "made_step"]].to_numpy().tolist() == [[16, 64, 1], [80, 32, 1]]
    assert table["freed_ts_ns"].notna().tolist() == [True, False]
    assert not table["made_by"].str.startswith("=").any()


def test_a_file_of_another_kind_is_refused_before_anything_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "nowhere", "--blocks", str(tmp_path / "blocks.xlsx"))
    assert code == 2 and "writes .csv or .parquet" in err


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\tx", "＝1+1"])
def test_no_name_runs_as_a_formula(text: str) -> None:
    assert safe(text) == "'" + text


def test_no_name_becomes_one_where_a_semicolon_or_a_tab_ends_a_cell() -> None:
    assert [safe(t) for t in ("a;=1+1", 'a;"-1', "a\t@x", "f<a, -1>(b; c)")] == ["a;'=1+1", "a;\"'-1", "a\t'@x", "f<a, -1>(b; c)"]
