"""The heat map of lateness: against the median of the group, by axis and group, and small however large the job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyses import analysis_of
from tests.straggler.drawings import compute, meet, simulate
from tracekit.figures import late_arrivals
from tracekit.figures.embed import to_json
from tracekit.figures.lateness import ABSENT, UNRESOLVED
from tracekit.figures.panels import COLUMNS, Panel, panels_of
from tracekit.job.base import Job
from tracekit.metrics import collectives, straggler
from tracekit.metrics.base import Result


def call(instance: str, starts: dict[int, int], axis: str | None = "tp", step: int | None = 1, resolution: int | None = 0, caused: int = 1) -> dict[str, Any]:
    return {"instance": instance, "starts": starts, "axis": axis, "step": step, "wait_resolution_ns": resolution, "caused_wait_ns": caused}


def results(*calls: dict[str, Any], rank: int | None = None) -> tuple[Result, Result]:
    """Results of the metrics straggler and collectives, as far as the figure reads them."""
    frame = pd.DataFrame(calls).assign(capture=0, group_ranks=[",".join(map(str, c["starts"])) for c in calls])
    frame = frame.astype({"step": "Int64", "wait_resolution_ns": "Int64"})
    rows = pd.DataFrame([{"instance": c["instance"], "rank": r, "start_ns": 10**18 + at} for c in calls for r, at in c["starts"].items()])
    seen = frame[["instance", "capture", "step", "group_ranks", "caused_wait_ns"]]
    about = frame[["instance", "axis", "wait_resolution_ns"]]
    return Result(summary={"rank": rank}, tables={"instances": seen}), Result(tables={"instances": about, "by_rank": rows})


def panels(*calls: dict[str, Any]) -> list[Panel]:
    stragglers, of = results(*calls)
    return panels_of(stragglers.tables["instances"], of.tables["instances"], of.tables["by_rank"])[0]


def words(fig: Any) -> str:
    return " ".join(a.text for a in fig.layout.annotations)


def test_lateness_is_against_the_median_start_of_the_group_and_columns_are_in_the_order_of_time() -> None:
    (panel,) = panels(call("b", {0: 100, 1: 100, 2: 107}), call("a", {0: 0, 1: 4, 2: 5}))
    assert panel.late.tolist() == [[-4, 0], [0, 0], [1, 7]]
    assert panel.ranks.tolist() == [0, 1, 2] and panel.means.tolist() == [-2, 0, 4]


def test_axes_are_panels_and_the_ranks_of_a_group_stand_together() -> None:
    tp = call("t0", {0: 0, 1: 2}), call("t1", {2: 0, 3: 4})
    dp = call("d0", {0: 0, 2: 6}, "dp", caused=9), call("d1", {1: 0, 3: 8}, "dp")
    made = panels(*tp, *dp, call("o", {0: 0, 3: 2}, None))
    assert [(p.axis, p.ranks.tolist(), p.groups.tolist()) for p in made] == [
        ("dp", [0, 2, 1, 3], [0, 0, 1, 1]),
        ("tp", [0, 1, 2, 3], [0, 0, 1, 1]),
        ("other", [0, 3], [0, 0]),
    ]


def test_a_group_with_fewer_collectives_has_nothing_in_the_others_columns() -> None:
    (panel,) = panels(call("a", {0: 0, 1: 2}), call("b", {0: 9, 1: 9}), call("c", {2: 0, 3: 2}))
    assert np.isnan(panel.late).tolist() == [[False, False], [False, False], [False, True], [False, True]]
    fig = late_arrivals(*results(call("a", {0: 0, 1: 2}), call("b", {0: 9, 1: 9}), call("c", {2: 0, 3: 2})))
    assert [t.marker.color for t in fig.data if t.type == "scatter"] == [ABSENT]
    assert "up to 2 collectives each" in words(fig)


def test_what_the_clocks_cannot_tell_is_grey() -> None:
    calls = call("a", {0: 0, 1: 30, 2: 15}, resolution=20), call("b", {0: 100, 1: 200, 2: 100}, resolution=20), call("c", {0: 0, 1: 9, 2: 0}, resolution=None)
    (panel,) = panels(*calls)
    assert panel.unresolved.tolist() == [[True, False, True], [True, False, False], [True, False, True]]
    fig = late_arrivals(*results(*calls))
    assert UNRESOLVED in [t.marker.color for t in fig.data if t.type == "scatter"]


def test_the_rank_that_stands_out_is_named_and_steps_are_marked() -> None:
    fig = late_arrivals(*results(*(call(f"c{i}", {0: 10 * i, 1: 10 * i + 3, 2: 10 * i}, step=i // 2) for i in range(4)), rank=1))
    assert [("▸" in text) for text in fig.layout.yaxis.ticktext] == [False, True, False]
    assert list(fig.layout.xaxis.ticktext) == ["step 0", "step 1"] and list(fig.layout.xaxis.tickvals) == [-0.5, 1.5]


def test_colours_are_symmetric_and_the_ticks_say_times() -> None:
    fig = late_arrivals(*results(call("a", {0: 0, 1: 500_000, 2: 2_000}), call("b", {0: 10**7, 1: 10**7, 2: 10**7 + 1_000})))
    scale = fig.layout.coloraxis
    assert scale.cmin == -scale.cmax
    assert scale.colorbar.ticktext[0].endswith(" early") and scale.colorbar.ticktext[-1] == "100 µs late"
    assert fig.data[0].z.max() <= scale.cmax * 1.000001


def wide(groups: int, size: int, number: int, late: int) -> tuple[Result, Result]:
    """Groups of so many ranks and collectives; one rank comes 50 µs after the others, which come as they please."""
    random = np.random.default_rng(0)
    ids = [f"g{g}#{i}" for g in range(groups) for i in range(number)]
    of = {g: list(range(g * size, (g + 1) * size)) for g in range(groups)}
    starts = random.integers(0, 5_000, (groups, number, size)) + 1_000_000 * np.arange(number)[:, None]
    starts[late // size, :, late % size] += 50_000
    ranks = np.stack([np.tile(of[g], (number, 1)) for g in range(groups)])
    rows = pd.DataFrame({"instance": np.repeat(ids, size), "rank": ranks.reshape(-1), "start_ns": starts.reshape(-1)})
    seen = pd.DataFrame({"instance": ids, "capture": 0, "step": pd.array([1] * len(ids), "Int64"), "caused_wait_ns": 1})
    seen["group_ranks"] = np.repeat([",".join(map(str, of[g])) for g in range(groups)], number)
    about = pd.DataFrame({"instance": ids, "axis": "tp", "wait_resolution_ns": pd.array([100] * len(ids), "Int64")})
    return Result(summary={"rank": late}, tables={"instances": seen}), Result(tables={"instances": about, "by_rank": rows})


@pytest.mark.parametrize(("groups", "size", "number"), [(128, 8, 1000), (1, 1024, 1000), (1024, 2, 300)])
def test_a_large_job_gives_a_small_figure_in_which_the_late_rank_stays(groups: int, size: int, number: int) -> None:
    fig = late_arrivals(*wide(groups, size, number, late=701))
    text = to_json(fig)
    json.loads(text, parse_constant=pytest.fail)
    assert len(text) < 300_000 and fig.layout.height < 1200
    z = fig.data[0].z
    assert z.shape[1] == COLUMNS and z.shape[0] <= 64
    latest = int(np.nanmean(z, axis=1).argmax())
    bar = next(t for t in fig.data if t.type == "bar")
    assert int(np.argmax(bar.x)) == latest and bar.x[latest] == pytest.approx(50 if size > 2 else 25, rel=0.1)  # of a pair the median lies between
    assert any("▸ rank 701" in text for text in fig.layout.yaxis.ticktext)
    assert "mean of neighbouring collectives" in words(fig) and "of neighbouring ranks" in words(fig)
    # lanes without a tick are pointed at as well: each says its rank
    assert fig.layout.yaxis.labelalias[str(latest)] == fig.layout.yaxis2.labelalias[str(latest)] == "rank 701"
    assert len(fig.layout.yaxis.labelalias) == z.shape[0]


def test_means_far_below_the_scale_of_the_panels_have_an_axis_of_their_own() -> None:
    far = call("o", {2: 0, 3: 90_000}, "dp")
    fig = late_arrivals(*results(call("a", {0: 0, 1: 400}), far))
    axes = {fig.layout[f"xaxis{n}"].ticktext for n in (2, 4)}
    assert axes == {("−200", "0", "200 ns"), ("−20", "0", "20 µs")}


@given(st.lists(st.lists(st.integers(0, 99), min_size=3, max_size=3), min_size=1, max_size=300))
def test_a_column_is_the_mean_of_its_neighbours(starts: list[list[int]]) -> None:
    calls = [call(f"c{i}", {r: 1000 * i + at for r, at in enumerate(of)}) for i, of in enumerate(starts)]
    (panel,) = panels(*calls)
    columns = min(len(starts), COLUMNS)
    sums, counts = np.zeros((3, columns)), np.zeros(columns)
    for i, of in enumerate(starts):
        counts[i * columns // len(starts)] += 1
        for r, at in enumerate(of):
            sums[r, i * columns // len(starts)] += at - sorted(of)[1]
    assert panel.late == pytest.approx(sums / counts)


def drawn(job: Job) -> Any:
    return late_arrivals(straggler.compute(job), collectives.compute(job))


def test_a_slow_rank_of_a_simulated_job_is_the_red_row() -> None:
    group = "0,1,2,3"
    programs = [[meet(group)] + [do for _ in range(40) for do in (compute(90_000 if r == 2 else 60_000 + 999 * r), meet(group))] for r in range(4)]
    fig = drawn(simulate(programs, transfer=20_000, step=1))
    assert np.nanmean(fig.data[0].z, axis=1).argmax() == 2 and "▸ rank 2" in fig.layout.yaxis.ticktext[2]


def test_ranks_of_a_public_job(shared: Path) -> None:
    report = analysis_of(shared / "traces" / "param" / "inputs__dlrm_kineto.tar.gz")
    fig = late_arrivals(report.result("straggler"), report.result("collectives"))
    assert [i for i, text in enumerate(fig.layout.yaxis.ticktext) if "▸" in text] == [7]
    bar = next(t for t in fig.data if t.type == "bar")
    assert int(np.argmax(bar.x)) == 7


def test_without_collectives_to_compare_there_is_no_figure() -> None:
    assert late_arrivals(Result(), Result()) is None
