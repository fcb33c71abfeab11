"""The cost of layers: the same time divided twice, what is unknown in grey, and room for 80 layers."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from tests.report.builder import MS
from tracekit.figures import layer_cost
from tracekit.figures.layers import layer_costs
from tracekit.metrics.base import Result


def row(layer: str | None, direction: str = "forward", **more: Any) -> dict[str, Any]:
    index = int(layer.split(".")[1]) if layer and "." in layer else None
    times = {"duration_ns": 10 * MS, "wait_ns": 3 * MS, "transfer_ns": 4 * MS, "exposed_ns": 8 * MS}
    return {"step": None, "layer": layer, "layer_last": None, "layer_index": index, "direction": direction, "count": 1, **times, **more}


def table(*rows: dict[str, Any]) -> pd.DataFrame:
    numbers = dict.fromkeys(("step", "layer_index", "wait_ns", "transfer_ns", "exposed_ns"), "Int64")
    return pd.DataFrame(rows).astype(numbers)


def bars(fig: Any) -> dict[str, list[float | None]]:
    """Name of a part -> ms of each bar, over all columns of the figure; None where nothing is drawn."""
    out: dict[str, list[float | None]] = {}
    for trace in fig.data:
        out.setdefault(trace.name, []).extend(None if y != y else y for y in trace.y)
    return out


def note(fig: Any) -> str:
    return " ".join(a.text for a in fig.layout.annotations)


def test_waiting_and_transfer_add_up_to_the_calls_and_so_do_exposed_and_hidden() -> None:
    fig = layer_cost(Result(tables={"by_layer": table(row("layers.0.attention"), row("layers.0.mlp"), row("layers.1.mlp"))}))
    assert bars(fig) == {"waiting for the last rank": [6, 3], "transfer": [14, 7], "exposed": [16, 8], "hidden behind compute": [4, 2]}


def test_times_of_steady_steps_are_per_step() -> None:
    rows = table(row("layers.0", step=1), row("layers.0", step=2, duration_ns=20 * MS), row("layers.0", step=3), row("layers.0"))
    costs, per_step = layer_costs(rows, {1, 2})
    assert per_step and costs["duration_ns"].tolist() == [15 * MS]
    assert layer_costs(rows, None)[0]["duration_ns"].tolist() == [10 * MS]


def test_what_cannot_be_divided_is_grey_and_said_and_never_nothing() -> None:
    rows = table(row("layers.0.attention", wait_ns=None), row("layers.0.mlp"), row("layers.1", transfer_ns=None, exposed_ns=None), row("layers.2"))
    fig = layer_cost(Result(tables={"by_layer": rows}))
    upper, lower = ([t for t in fig.data if t.legend == legend] for legend in ("legend", "legend2"))
    drawn = [bars(type("Part", (), {"data": part})) for part in (upper, lower)]
    assert drawn[0] == {"waiting for the last rank": [3, None, 3], "transfer": [7, None, 7], "unknown": [10, 10, None]}
    assert drawn[1] == {"exposed": [16, None, 8], "hidden behind compute": [4, None, 2], "unknown": [None, 10, None]}
    assert "the split is unknown, in 2 of 3 bars" in note(fig)


def test_a_wait_longer_than_its_call_is_no_negative_transfer() -> None:
    costs, _ = layer_costs(table(row("layers.0", wait_ns=11 * MS)))
    assert costs[["wait_ns", "moving_ns"]].isna().to_numpy().all() and costs["unsplit_ns"].tolist() == [10 * MS]


def test_collectives_of_no_layer_are_in_the_note_or_else_drawn() -> None:
    fig = layer_cost(Result(tables={"by_layer": table(row("layers.0"), row(None, "optimizer"))}))
    assert bars(fig)["exposed"] == [8] and "of no layer: optimizer 10.0 ms" in note(fig)
    alone = layer_cost(Result(tables={"by_layer": table(row(None, "optimizer"))}))
    assert list(alone.layout.xaxis.ticktext) == ["no layer"]


def test_buckets_of_gradients_have_a_scale_of_their_own() -> None:
    rows = table(row("layers.0"), row("layers.0", "backward"), row("layers.0", "gradient", layer_last="layers.9", duration_ns=999 * MS))
    fig = layer_cost(Result(tables={"by_layer": rows}))
    assert {t.yaxis for t in fig.data} == {"y", "y2", "y3", "y4"}
    assert list(fig.layout.xaxis2.ticktext) == ["0…9"]
    assert [a.text for a in fig.layout.annotations] == ["<b>forward</b>", "<b>backward</b>", "<b>gradient</b>"]


def test_eighty_layers_forward_backward_and_recomputed_are_all_drawn_and_their_numbers_have_room() -> None:
    rows = [row(f"layers.{n}", d) for n in range(80) for d in ("forward", "backward", "recompute")] + [row("embedding")]
    fig = layer_cost(Result(tables={"by_layer": table(*rows)}))
    assert {len(t.x) for t in fig.data} == {241}
    assert fig.layout.height < 600 and 9 <= len(fig.layout.xaxis.tickvals) < 40
    assert "embedding" in fig.layout.xaxis.ticktext


def test_of_very_many_layers_neighbours_are_added_and_no_direction_is_lost() -> None:
    rows = [row(f"layers.{n}", d, duration_ns=10 * MS) for d in ("forward", "backward") for n in range(1000)]
    fig = layer_cost(Result(tables={"by_layer": table(*rows)}))
    assert {len(t.x) for t in fig.data} == {286} and "a bar adds 7 neighbouring layers: there are 2,000" in note(fig)
    assert {d.split(", ")[1] for d in fig.data[0].customdata} == {"forward", "backward"}
    assert fig.data[0].customdata[0] == "layers.0 … layers.6, forward" and fig.layout.xaxis.ticktext[0] == "0"
    assert sum(map(sum, ([y for y in t.y if y == y] for t in fig.data if t.yaxis == "y"))) == pytest.approx(2000 * 10)
