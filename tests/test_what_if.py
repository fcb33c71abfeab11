"""Alternatives to what ran: the same run under another schedule takes what that schedule took when it ran."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.forged import analysis_of
from tracekit.analysis import Analysis
from tracekit.cli import main
from tracekit.figures.what_if import alternatives
from tracekit.report.what_if import worded
from tracekit.what_if import Alternative, _carried, to_dict, what_if


@pytest.fixture
def zero_bubble(shared: Path) -> Analysis:
    """Four stages under ZB-H1, eight microbatches."""
    return analysis_of(shared / "forged" / "pp4_zbh1")


def test_another_schedule_takes_what_it_took_where_it_ran(zero_bubble: Analysis, shared: Path) -> None:
    table = what_if(zero_bubble, [Alternative("1f1b")]).tables["alternatives"].set_index("label")
    ran = analysis_of(shared / "forged" / "pp4_1f1b").result("pipeline").summary
    assert table.loc["1f1b", "bubble_ratio"] == pytest.approx(ran["bubble_ratio"], abs=0.001)
    assert table.loc["1f1b", "window_ns"] == pytest.approx(ran["window_ns"], rel=0.002)


def test_what_ran_stands_among_them_and_its_simulation_is_held_against_it(zero_bubble: Analysis) -> None:
    result = what_if(zero_bubble)
    (own,) = result.tables["alternatives"].query("as_it_ran").to_dict("records")
    assert (own["schedule"], own["time_change_ratio"], result.summary["trusted"]) == ("zb_h1", 0.0, True)
    assert own["window_ns"] == pytest.approx(result.summary["window_ns"], rel=0.002)
    memory = zero_bubble.result("memory").tables["peaks"]
    steady = memory[memory["step"].isin(zero_bubble.job.steady_steps)]
    assert own["memory_peak_bytes"] == pytest.approx(steady["allocated_peak_bytes"].max(), rel=0.001)


def test_how_far_the_simulation_is_off_is_said_in_words_that_hold(zero_bubble: Analysis) -> None:
    asked = what_if(zero_bubble)

    def said(error: float) -> str:
        return worded(replace(asked, summary={**asked.summary, "simulation_error_ratio": error}), slept=False)[0]

    assert "its simulation is as long as what was measured." in said(0.0)
    assert "its simulation is < 0.1 % shorter than what was measured." in said(-0.0001)
    assert "its simulation is 2.0 % longer than what was measured." in said(0.02)


def test_what_needs_more_memory_than_there_is_comes_last(zero_bubble: Analysis) -> None:
    peaks = what_if(zero_bubble).tables["alternatives"]["memory_peak_bytes"]
    limit = int((peaks.min() + peaks.max()) // 2)
    table = what_if(zero_bubble, memory_limit_bytes=limit).tables["alternatives"]
    fits = table["fits"].tolist()
    assert fits == sorted(fits, reverse=True) and {True, False} == set(fits)
    within = table[table["fits"].astype(bool)]["step_per_microbatch_ns"]
    assert within.is_monotonic_increasing


def test_more_microbatches_make_the_bubble_smaller(zero_bubble: Analysis) -> None:
    asked = [Alternative("1f1b", microbatches=m) for m in (4, 8, 16, 64)]
    table = what_if(zero_bubble, asked).tables["alternatives"]
    ratios = table[table["schedule"].eq("1f1b")].set_index("microbatches")["bubble_ratio"]
    assert ratios.sort_index().is_monotonic_decreasing


def test_what_cannot_be_says_why(zero_bubble: Analysis) -> None:
    table = what_if(zero_bubble, [Alternative("dualpipev", microbatches=4), Alternative(without_straggler=True)]).tables["alternatives"]
    refused = table[~table["possible"].astype(bool)].set_index("label")["reason"]
    assert "at least 8" in refused["dualpipev, m=4"]
    assert "no rank stands out" in refused["zb_h1, without the straggler"]


def test_without_a_pipeline_there_is_nothing_to_simulate(shared: Path) -> None:
    result = what_if(analysis_of(shared / "forged" / "tp4"))
    assert not result.available and "no pipeline" in str(result.reason)
    assert to_dict(result)["alternatives"] == []


@given(st.lists(st.floats(1, 100), min_size=1, max_size=8), st.integers(1, 32))
def test_times_carried_over_keep_their_sum(times: list[float], stages: int) -> None:
    depth = np.array(times)[:, None]
    for balance in ("measured", "even"):
        assert _carried(depth, stages, balance).sum() == pytest.approx(sum(times))


def test_the_command_writes_text_json_and_a_page(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(shared / "forged" / "pp4_1f1b")
    page = tmp_path / "what-if.html"
    assert main(["simulate", run, "--schedule", "zb-h1", "--microbatches", "16", "--memory-limit", "80GiB", "--html", str(page)]) == 0
    text = capsys.readouterr().out
    assert "zb_h1, m=16" in text and "less time per microbatch" in text
    assert "figure-what_if" in page.read_text()
    assert main(["simulate", run, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "tracekit.what_if/1" and len(document["alternatives"]) >= 9


@pytest.mark.parametrize(
    ("arguments", "says"), [(["--schedule", "nonsense"], "no schedule"), (["--balance", "odd"], "measured or even"), (["--memory-limit", "lots"], "no size")]
)
def test_what_is_asked_wrongly_is_refused_in_one_line(shared: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(shared / "forged" / "pp4_1f1b"), *arguments]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") <= 2


def test_a_run_without_a_pipeline_cannot_be_told(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(shared / "forged" / "tp4" / "rank0.json.gz")]) == 3
    assert "no pipeline" in capsys.readouterr().out


def test_the_picture_has_a_bar_for_each(zero_bubble: Analysis) -> None:
    result = what_if(zero_bubble)
    fig = alternatives(result)
    assert fig is not None
    assert len(fig.data[0].y) == int(result.tables["alternatives"]["possible"].sum())


def test_a_run_without_a_pipeline_is_asked_about_memory_instead(samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "what-if.html"
    assert main(["simulate", str(samples / "recompute-none"), "--memory-limit", "1GiB", "--html", str(page)]) == 0
    assert "full, b=4" in capsys.readouterr().out
    assert "figure-what_if" in page.read_text()
    assert main(["simulate", str(samples / "recompute-none"), "--schedule", "zb-h1"]) == 3
    assert "no pipeline" in capsys.readouterr().out
