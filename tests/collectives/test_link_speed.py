"""Link speeds: given by the user or unknown, never invented."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from tests.collectives.rows import facts
from tracekit.cli import main
from tracekit.errors import UsageError
from tracekit.job.assemble import build
from tracekit.job.base import Job
from tracekit.link_speed import link_speeds, speed_of
from tracekit.metrics.collectives import METRIC


@pytest.mark.parametrize(
    ("given", "speeds"),
    [
        (None, {}),
        (450, {"any": 450.0}),
        ("450", {"any": 450.0}),
        (" 12.5 ", {"any": 12.5}),
        ("tp=450,dp=50", {"tp": 450.0, "dp": 50.0}),
        ("100, tp = 450", {"any": 100.0, "tp": 450.0}),
        ({"dp_shard": 50}, {"dp_shard": 50.0}),
        ({}, {}),
    ],
)
def test_speeds_are_one_number_or_one_per_axis(given: Any, speeds: dict[str, float]) -> None:
    assert link_speeds(given) == speeds


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("fast", "'fast' is no speed"),
        ("", "'' is no speed"),
        ("tp=", "'' is no speed"),
        ("0", "'0' is no speed"),
        ("-3", "'-3' is no speed"),
        ("nan", "'nan' is no speed"),
        ("inf", "'inf' is no speed"),
        ("tpp=450", "no mesh axis 'tpp'"),
        ("tp=450,tp=400", "tp is given twice"),
        ("450,50", "a speed for all axes is given twice"),
        ({"tp": None}, "None is no speed"),
        ({"tp": True}, "True is no speed"),
        ({7: 450.0}, "no mesh axis 7"),
    ],
)
def test_what_is_no_speed_is_refused(given: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        link_speeds(given)


def test_a_malformed_speed_is_told_in_one_line_before_any_file_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "nowhere", "--link-gbps", "tp=fast"]) == 2
    assert capsys.readouterr().err.splitlines() == ["tracekit: link speed: 'fast' is no speed; give GB/s per GPU above 0, as in 450 or tp=450,dp=50"]


def test_the_nearest_name_counts() -> None:
    speeds = {"any": 1.0, "dp": 2.0, "dp_shard": 3.0}
    assert [speed_of(speeds, axis) for axis in ("tp", "dp", "dp_shard", "dp_replicate", None, pd.NA)] == [1, 2, 3, 2, 1, 1]
    assert speed_of({"tp": 1.0}, "world") is None


def two_axes(**links: float) -> Job:
    """An all-reduce of 999 bytes over two ranks in 100 ns on tp, in 200 ns on dp: 9.99 and 4.995 GB/s."""
    rows = [{"seq": 1, "at": (0, 100), "group_desc": "mesh_tp"}, {"seq": 2, "at": (200, 400), "group": "dp", "group_desc": "mesh_dp"}]
    return replace(build({(r, 0): facts(r, *({**row, "nbytes": 999} for row in rows), world_size=2) for r in range(2)}), link_gbps=links)


def ratios(job: Job) -> dict[str, tuple[float | None, float | None]]:
    table = METRIC.compute(job).tables["by_kind"]
    rows = table[table["step"].isna()][["axis", "link_gbps", "busbw_of_link_ratio"]].astype(object)
    return {axis: (link, ratio) for axis, link, ratio in rows.where(rows.notna(), None).itertuples(index=False)}


def test_bus_bandwidth_stands_beside_the_speed_that_was_given() -> None:
    assert ratios(two_axes(tp=20.0)) == {"tp": (20.0, pytest.approx(9.99 / 20)), "dp": (None, None)}
    assert ratios(two_axes(any=10.0)) == {"tp": (10.0, pytest.approx(0.999)), "dp": (10.0, pytest.approx(0.4995))}
    assert ratios(two_axes()) == {"tp": (None, None), "dp": (None, None)}


def test_a_speed_of_an_axis_without_collectives_is_said() -> None:
    assert any("given for cp, of which there is no collective here; there are dp, tp" in note for note in METRIC.compute(two_axes(cp=5.0)).notes)
    assert not any("link speed" in note for note in METRIC.compute(two_axes(tp=5.0)).notes)
