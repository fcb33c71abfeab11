"""Figures: what is stacked adds up, what is left out is said, and names from traces are no markup."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from tests.report.builder import MS, budget, pipeline, tp
from tracekit.figures import FIGURES, activations, curve, layer_cost, peak_parts, schedule, step_budget, step_waterfall, time_breakdown
from tracekit.figures.embed import to_json
from tracekit.figures.pipeline import gaps
from tracekit.metrics.base import Result
from tracekit.wording import duration


def stacked(fig, row):
    """Sum of the bars of one row (or x) of a stacked figure."""
    return sum(x for trace in fig.data for x, y in zip(trace.x, trace.y, strict=True) if y == row and x == x)


def test_the_bars_of_the_step_budget_add_up_to_the_step():
    fig = step_budget(tp().result("budget"), steps={1, 2})
    assert stacked(fig, "rank 0") == pytest.approx(400)
    assert stacked(fig, "rank 1") == pytest.approx(401)


def test_the_step_budget_averages_over_the_steps_it_is_given():
    parts = budget({0: [("forward", None, 10 * MS)]}, [1]).tables["ranks"]
    later = budget({0: [("forward", None, 30 * MS), ("comm_wait", "pp", 4 * MS)]}, [2]).tables["ranks"]
    result = Result(tables={"ranks": pd.concat([parts, later], ignore_index=True)})
    assert stacked(step_budget(result, steps={2}), "rank 0") == pytest.approx(34)
    assert stacked(step_budget(result, steps={1, 2}), "rank 0") == pytest.approx((10 + 34) / 2)


def test_compute_stands_at_the_left_and_the_losses_after_it_by_size():
    names = [t.name for t in step_budget(tp().result("budget")).data]
    assert names == ["forward", "backward", "moving bytes in tp communication", "waiting in tp communication", "idle"]


def test_the_waterfall_leads_from_the_work_to_the_whole_step_and_hatches_what_could_come_back():
    fig = step_waterfall(tp().result("budget"))
    bars = [t for t in fig.data if t.type == "bar" and t.x[0] is not None]
    lanes = list(fig.layout.yaxis.categoryarray)[::-1]
    assert lanes == ["compute", "moving bytes in tp communication", "waiting in tp communication", "idle", "step"]
    assert list(bars[0].base) == pytest.approx([0, 240, 320, 380, 0])
    assert bars[0].x[-1] == pytest.approx(400.5) == sum(x for t in bars for x, y in zip(t.x, t.y, strict=True) if y != "step")
    assert dict(zip(bars[1].y, bars[1].x, strict=True))["moving bytes in tp communication"] == pytest.approx(40)


def test_the_bars_of_the_breakdown_add_up_to_the_span():
    fig = time_breakdown(tp().result("breakdown"), steps={1, 2})
    assert stacked(fig, "rank 0") == pytest.approx(400)


def test_the_categories_of_the_peak_add_up_to_it():
    fig = peak_parts(tp().result("memory"))
    assert stacked(fig, "rank 0") == pytest.approx(98)


def test_actions_and_bubble_tile_the_window_of_every_rank():
    actions = pipeline().result("pipeline").tables["actions"]
    start, end = int(actions.start_ns.min()), int(actions.end_ns.max())
    found = gaps(actions, start, end)
    work = (actions.end_ns - actions.start_ns).groupby(actions["rank"]).sum()
    lost = (found.end_ns - found.start_ns).groupby(found["rank"]).sum()
    assert (work + lost).to_dict() == dict.fromkeys(range(4), end - start)


def test_a_gap_is_waiting_until_the_transfer_then_transfer_then_the_rest():
    actions = pd.DataFrame(
        {
            "rank": [0, 0],
            "start_ns": [0, 100],
            "end_ns": [10, 110],
            "needs_receive": [False, True],
            "transfer_start_ns": [None, 60],
            "transfer_end_ns": [None, 80],
        }
    )
    found = gaps(actions, 0, 120)
    assert found.values.tolist() == [[0, "wait", 10, 60], [0, "transfer", 60, 80], [0, "gap", 80, 100], [0, "edge", 110, 120]]


def test_a_gap_without_a_receive_is_no_waiting():
    actions = pd.DataFrame(
        {
            "rank": [0, 0],
            "start_ns": [0, 100],
            "end_ns": [10, 110],
            "needs_receive": [False, False],
            "transfer_start_ns": [None, None],
            "transfer_end_ns": [None, None],
        }
    )
    assert gaps(actions, 0, 110).values.tolist() == [[0, "gap", 10, 100]]


def test_the_schedule_is_drawn_with_one_trace_per_kind():
    fig = schedule(pipeline().result("pipeline"))
    # what a bar says where it is pointed at is its own length: the x of a bar that begins at 10 and is 5 long is 15
    for bar in (t for t in fig.data if t.name in ("forward", "backward")):
        said = [f"{duration(x * 1e6)}, from {duration(at * 1e6)}" for x, at in zip(bar.x, bar.base, strict=True)]
        assert [text.split("<br>")[1] for text in bar.customdata] == said
        assert "%{x" not in bar.hovertemplate
    assert [t.name for t in fig.data] == ["forward", "backward", "bubble: waits to receive", "bubble: fill and drain"]
    assert list(fig.data[0].text[:3]) == ["0", "1", "2"]


def test_of_many_replicas_one_pipeline_is_drawn_and_the_figure_says_so():
    base = pipeline().result("pipeline").tables["actions"]
    both = pd.concat([base, base.assign(rank=base["rank"] + 4)], ignore_index=True)
    fig = schedule(Result(tables={"actions": both}))
    assert len(fig.layout.yaxis.categoryarray) == 4
    assert "1 of 2 pipelines" in fig.layout.annotations[0].text


def test_of_very_many_actions_the_beginning_is_drawn_and_the_figure_says_so():
    fig = schedule(pipeline(p=8, m=200).result("pipeline"))
    assert sum(len(t.y) for t in fig.data if t.name in ("forward", "backward")) == 2400
    assert "first 2,400 actions" in fig.layout.annotations[0].text


@pytest.mark.parametrize("drawing", FIGURES, ids=lambda d: d.name)
def test_every_figure_copes_with_1024_ranks_and_says_what_it_leaves_out(drawing):
    fig = drawing.draw(tp(ranks=1024).result, {1, 2}) or drawing.draw(pipeline(p=64, m=64).result, {1, 2})
    assert fig.layout.height < 1200
    assert sum(len(t.x) for t in fig.data) < 10_000
    if drawing.name in ("step_budget", "time_breakdown", "memory_peak", "recompute_cost", "schedule"):
        assert " of " in fig.layout.annotations[0].text


@pytest.mark.parametrize("drawing", FIGURES, ids=lambda d: d.name)
def test_a_figure_of_an_empty_result_is_no_figure(drawing):
    assert drawing.draw(lambda name: Result(), None) is None


def test_a_figure_is_strict_json_that_cannot_close_its_script_element():
    fig = layer_cost(tp(layer="</script><script>alert(1)</script>").result("collectives"))
    text = to_json(fig)
    assert "<" not in text
    json.loads(text, parse_constant=pytest.fail)


def test_letters_on_paler_later_stages_are_dark_and_the_figure_says_what_paler_means():
    rows = [{"step": 1, "stage": s, "rank": s % 2, "action": "F", "microbatch": 0, "start_ns": s * MS, "end_ns": (s + 1) * MS} for s in range(4)]
    fig = schedule(Result(tables={"actions": pd.DataFrame(rows)}))
    forward = next(t for t in fig.data if t.name == "forward")
    assert list(forward.insidetextfont.color) == ["white", "white", "black", "black"]
    assert "later stages are paler" in fig.layout.annotations[0].text


def test_activations_of_no_layer_are_called_that_and_a_small_peak_is_not_rounded_to_nothing():
    memory = tp().result("memory")
    layers = memory.tables["by_layer"].assign(layer=None)
    small = memory.tables["peaks"].assign(allocated_peak_bytes=3000)
    drawn = activations(Result(tables={**memory.tables, "by_layer": layers}))
    assert set(drawn.data[0].x) == {"no layer"}
    assert "peak 2.93 KiB" in curve(Result(tables={**memory.tables, "peaks": small})).layout.annotations[0].text
