"""Are pipelines read off kernels that name their own action, and only where the job's ranks can be one?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import builders as b
from tracekit import analyze
from tracekit.facts.actions import actions
from tracekit.trace import RankTrace
from tracekit.vocabulary import parse_label


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("F1", (None, "F", 1)),
        ("stage_W12", (None, "W", 12)),
        ("B_c2_1", (2, "B", 1)),
        ("stage_F_c0_3", (0, "F", 3)),
        ("F_7", (None, "F", 7)),
        ("3I0", (3, "I", 0)),
        ("PP:3I0", (3, "I", 0)),
        ("F", None),
        ("G1", None),
        ("F1x", None),
        ("Forward 1", None),
        ("gemm", None),
    ],
)
def test_what_a_label_says(text: str, meaning: tuple[int | None, str, int] | None) -> None:
    assert parse_label(text) == meaning


def found(trace: RankTrace) -> list[tuple[Any, ...]]:
    table = actions(trace)["actions"]
    return list(table[["stage", "action", "microbatch", "start_ns", "end_ns", "source"]].itertuples(index=False, name=None))


def test_a_kernel_names_its_action_in_its_arguments_or_its_name() -> None:
    by_argument = b.passed(
        [b.kernel("gemm", 100, 110, action="F_c1_1"), b.kernel("gemm", 112, 120, action="F_c1_1"), b.kernel("relu", 130, 140, action="B_c1_1")]
    )
    assert found(by_argument) == [(1, "F", 1, 100_000, 120_000, "label"), (1, "B", 1, 130_000, 140_000, "label")]
    by_name = b.passed([b.kernel("stage_F_c1_1", 100, 120), b.kernel("stage_B_c1_1", 130, 140)])
    assert found(by_name) == found(by_argument)


def test_a_launch_that_says_nothing_takes_no_label_away() -> None:
    events = [b.launch(0, 1, 1), b.launch(2, 3, 2), b.kernel("gemm", 5, 10, 1, action="F_c0_0"), b.kernel("gemm", 12, 20, 2, action="B_c0_0")]
    assert [row[1] for row in found(b.passed(events))] == ["F", "B"]


def test_with_weight_gradients_a_backward_is_the_input_gradient() -> None:
    lane = ["F_c0_0", "F_c0_1", "B_c0_0", "W_c0_0", "B_c0_1"]
    trace = b.passed([b.kernel("k", 10 * i, 10 * i + 10, action=label) for i, label in enumerate(lane)])
    # the last microbatch has no W: its backward is whole
    assert [row[1] for row in found(trace)] == ["F", "F", "I", "W", "B"]


def test_a_receive_is_no_work_whatever_it_is_labelled() -> None:
    waiting = b.kernel("ncclDevKernel_SendRecv", 0, 90, action="F_c0_0")
    trace = b.passed([waiting, b.kernel("gemm", 90, 100, action="F_c0_0"), b.kernel("gemm", 100, 120, action="B_c0_0")])
    assert [row[3:5] for row in found(trace)] == [(90_000, 100_000), (100_000, 120_000)]


def test_names_that_only_look_like_labels_are_no_actions() -> None:
    trace = b.passed([b.kernel("B2", 0, 10), b.kernel("W1", 10, 20), b.kernel("gemm", 20, 30, action="warm-up")])
    assert found(trace) == [] and trace.events["action"].isna().all()


def write(folder: Path, lanes: dict[int, list[tuple[str, float, float]]], world: int | None) -> Path:
    for rank, lane in lanes.items():
        events = [b.kernel(f"stage_{label}", 1000 + start, 1000 + end, action=label) for label, start, end in lane]
        content = b.document(events, rank=rank, world=world or 1)
        if world is None:
            del content["distributedInfo"]["world_size"]
        folder.mkdir(exist_ok=True)
        (folder / f"stage{rank}.json").write_text(json.dumps(content))
    return folder


def metric(folder: Path) -> dict[str, Any]:
    result = analyze(folder, workers=1).result("pipeline")
    tables = {name: frame.to_dict("records") for name, frame in result.tables.items()}
    return {"available": result.available, "summary": result.summary, "tables": tables, "notes": result.notes}


#: F = 10, B = 20, two microbatches, three stages in 1F1B order.
LANES: dict[int, list[tuple[str, float, float]]] = {
    0: [("F1", 0, 10), ("F2", 10, 20), ("B1", 70, 90), ("B2", 100, 120)],
    1: [("F1", 10, 20), ("F2", 20, 30), ("B1", 50, 70), ("B2", 80, 100)],
    2: [("F1", 20, 30), ("B1", 30, 50), ("F2", 50, 60), ("B2", 60, 80)],
}


@pytest.mark.parametrize("world", [3, None])
def test_the_ranks_of_a_job_without_groups_are_the_pipeline(tmp_path: Path, world: int | None) -> None:
    result = metric(write(tmp_path, LANES, world))
    summary = result["summary"]
    assert (summary["window_ns"], summary["bubble_ratio"], summary["pipeline_ranks"], summary["microbatches"]) == (120_000, 0.5, 3, 2)
    assert {row["rank"]: row["bubble_ns"] for row in result["tables"]["stages"]} == dict.fromkeys(range(3), 60_000)
    assert any("(inferred)" in note for note in result["notes"])


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_with_a_stage_missing_the_ratio_is_unknown_and_own_gaps_stand(tmp_path: Path, missing: int) -> None:
    result = metric(write(tmp_path, {rank: lane for rank, lane in LANES.items() if rank != missing}, 3))
    assert result["available"]
    summary = result["summary"]
    assert [summary[name] for name in ("window_ns", "bubble_ratio", "bubble_over_ideal", "longest_stage_bubble_ratio", "bubble_ns")] == [None] * 5
    assert summary["pipeline_ranks"] == 3
    gaps = {0: 60_000, 1: 30_000, 2: 0}
    assert {row["rank"]: row["gaps_ns"] for row in result["tables"]["stages"]} == {r: gaps[r] for r in LANES if r != missing}
    assert any(f"Ranks {missing} are missing" in note for note in result["notes"])


def test_copies_of_one_stage_are_no_pipeline(tmp_path: Path) -> None:
    """Data parallel ranks run the same actions at the same time: no window, no ratio."""
    result = metric(write(tmp_path, {rank: [("F1", 0, 10), ("B1", 10, 30)] for rank in range(2)}, 2))
    assert result["summary"].get("bubble_ratio") is None
    assert any("no pipeline" in note for note in result["notes"])


def test_chunks_on_ranks_that_do_not_fit_their_order_are_no_pipeline(tmp_path: Path) -> None:
    lanes = {0: [("F_c1_1", 10, 20), ("B_c1_1", 20, 40)], 1: [("F_c0_1", 0, 10), ("B_c0_1", 40, 60)]}
    result = metric(write(tmp_path, lanes, 2))
    assert not result["available"] or result["summary"]["bubble_ratio"] is None


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(p=st.integers(2, 4), m=st.integers(1, 4), f=st.integers(1, 9), b_=st.integers(1, 9), gpipe=st.booleans(), first=st.integers(0, 1))
def test_any_plain_schedule_has_the_bubble_of_its_drawing(tmp_path: Path, p: int, m: int, f: int, b_: int, gpipe: bool, first: int) -> None:
    """Drawn by playing the schedule: every action starts when its rank is free and its input is there."""
    lanes = played(p, m, f, b_, gpipe, first)
    result = metric(write(tmp_path / f"{p}-{m}-{f}-{b_}-{gpipe}-{first}", lanes, p))
    end, start = (pick(t for lane in lanes.values() for _, *times in lane for t in times) for pick in (max, min))
    work = m * (f + b_)
    assert result["summary"]["window_ns"] == 1000 * (end - start)
    assert {row["rank"]: row["bubble_ns"] for row in result["tables"]["stages"]} == dict.fromkeys(range(p), 1000 * (end - start - work))
    assert result["summary"]["bubble_ratio"] == pytest.approx((p - 1) / (m + p - 1))
    assert result["summary"]["closed_form_bubble_ratio"] == pytest.approx((p - 1) / (m + p - 1))


def played(p: int, m: int, f: int, back: int, gpipe: bool, first: int) -> dict[int, list[tuple[str, float, float]]]:
    """Lanes of GPipe or 1F1B with times of its actions."""
    orders = {}
    for rank in range(p):
        warm = m if gpipe else min(p - rank, m)
        order = [("F", i) for i in range(warm)]
        for i in range(m):
            order += [("B", i)] + ([("F", warm + i)] if warm + i < m else [])
        orders[rank] = order
    done: dict[tuple[int, str, int], float] = {}
    free = dict.fromkeys(range(p), 0.0)
    lanes: dict[int, list[tuple[str, float, float]]] = {rank: [] for rank in range(p)}
    while any(orders.values()):
        for rank, order in orders.items():
            if not order:
                continue
            action, i = order[0]
            source = (rank - 1, "F", i) if action == "F" else (rank + 1, "B", i)
            own = (rank, "F", i)
            if (0 <= source[0] < p and source not in done) or (action == "B" and own not in done):
                continue
            start = max(free[rank], done.get(source, 0.0), done[own] if action == "B" else 0.0)
            free[rank] = done[rank, action, i] = start + (f if action == "F" else back)
            lanes[rank].append((f"{action}{i + first}", start, free[rank]))
            order.pop(0)
    return lanes
