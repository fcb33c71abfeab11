"""Bus bandwidth by size: nothing unknown is drawn, a ceiling only where one was given, and points are bounded."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tracekit.figures import bus_bandwidth
from tracekit.figures.embed import to_json
from tracekit.metrics.base import Result

COLUMNS = {"step": "Int64", "nbytes": "Int64", "busbw_gbps": "Float64"}


def instance(nbytes: int | None, busbw: float | None, axis: str | None = "tp", kind: str | None = "all_reduce", step: int = 1) -> dict[str, Any]:
    return {"step": step, "kind": kind, "axis": axis, "nbytes": nbytes, "busbw_gbps": busbw}


def result(*rows: dict[str, Any], links: dict[str | None, float | None] | None = None) -> Result:
    by_kind = pd.DataFrame({"axis": list(links or {}), "link_gbps": pd.array(list((links or {}).values()), "Float64")})
    return Result(tables={"instances": pd.DataFrame(rows).astype(COLUMNS), "by_kind": by_kind})


def test_a_series_per_axis_and_kind_its_medians_joined_by_a_line() -> None:
    fig = bus_bandwidth(result(instance(1024, 1.0), instance(1024, 3.0), instance(1024, 8.0), instance(4096, 9.0), instance(64, 2.0, None, "all_gather")))
    lines = {t.name: (list(t.x), list(t.y)) for t in fig.data if "lines" in t.mode}
    assert lines == {"tp all reduce": ([1024, 4096], [3, 9]), "all gather": ([64], [2])}
    assert sum(len(t.x) for t in fig.data if t.mode == "markers") == 5


def test_what_is_unknown_is_counted_and_not_drawn() -> None:
    rows = [instance(1024, 1.0), instance(None, 1.0), instance(1024, None), instance(0, 0.0), instance(None, None, kind="barrier"), instance(8, 2.0, kind=None)]
    fig = bus_bandwidth(result(*rows))
    assert [t.name for t in fig.data if "lines" in t.mode] == ["tp all reduce", "tp unknown kind"]
    assert "3 more whose size or transfer is unknown" in fig.layout.annotations[0].text
    assert bus_bandwidth(result(instance(1024, None))) is None


def test_only_steady_steps_are_drawn_where_there_are_any() -> None:
    rows = result(instance(8, 1.0, step=0), instance(8, 2.0, step=1))
    assert [t.y.tolist() for t in bus_bandwidth(rows, steps={1}).data] == [[2], [2]]
    others = bus_bandwidth(rows, steps={7})
    assert len(others.data[0].x) == 2
    assert "of other steps: there are none in those asked for" in others.layout.annotations[0].text
    assert "of other steps" not in bus_bandwidth(rows, steps={1}).layout.annotations[0].text


def test_a_ceiling_is_drawn_where_a_link_speed_was_given_and_nowhere_else() -> None:
    rows = [instance(1024, 1.0), instance(1024, 1.0, "dp"), instance(1024, 1.0, "ep")]
    without = bus_bandwidth(result(*rows, links={"tp": None}))
    assert not without.layout.shapes
    fig = bus_bandwidth(result(*rows, links={"tp": 450.0, "dp": 50.0, "ep": 50.0, "cp": None}))
    assert [shape.y0 for shape in fig.layout.shapes] == [450, 50]
    assert [a.text for a in fig.layout.annotations[1:]] == ["tp links: 450 GB/s, as given", "dp, ep links: 50 GB/s, as given"]
    assert fig.layout.yaxis.range[1] > 450


def test_slow_links_are_in_megabytes() -> None:
    fig = bus_bandwidth(result(instance(1024, 0.003), links={"tp": 0.01}))
    assert fig.data[0].y.tolist() == [pytest.approx(3)] and "MB/s" in fig.layout.yaxis.title.text
    assert fig.layout.shapes[0].y0 == pytest.approx(10)


def test_of_very_many_collectives_some_are_drawn_and_the_figure_says_so() -> None:
    random, n = np.random.default_rng(0), 100_000
    sizes = (2 ** random.uniform(10, 28, n)).astype("int64")
    table = pd.DataFrame({"step": 1, "kind": "all_reduce", "axis": "tp", "nbytes": sizes, "busbw_gbps": random.uniform(1, 9, n)}).astype(COLUMNS)
    fig = bus_bandwidth(Result(tables={"instances": table}))
    text = to_json(fig)
    json.loads(text, parse_constant=pytest.fail)
    assert len(text) < 100_000 and sum(len(t.x) for t in fig.data) < 2_100
    assert "100,000 collectives; 2,000 of them drawn" in fig.layout.annotations[0].text
    assert len(fig.layout.xaxis.tickvals) <= 10
