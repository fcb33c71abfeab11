"""Each part of the step's account is what the truth of a forged job implies, and on every trace the parts add up to the step."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests import analyses
from tests.forged import analysis_of, truth_of
from tests.golden import samples
from tests.test_reference import REFERENCES, SMALL, TRACES
from tracekit import Analysis

KEY = ["rank", "capture", "device", "step"]
JOBS = ("tp4", "tp4_sp", "pp4_1f1b", "pp4_zbh1", "p2p_batched", "recompute_full", "tp2pp4dp2_1f1b", "async_steps", "old_names", "clock_skew", "partial")


def adds_up(analysis: Analysis) -> int:
    """Checks that parts are positive and sum to each window exactly; how many accounts there are."""
    result = analysis.result("budget")
    if not result.available:
        assert result.reason
        return 0
    busy = analysis.job.table("busy")
    windows = busy[busy["step"].notna()] if busy["step"].notna().any() else busy
    rows = result.tables["ranks"]
    assert rows["duration_ns"].gt(0).all()
    assert rows["recoverable_ns"].dropna().between(0, rows.loc[rows["recoverable_ns"].notna(), "duration_ns"]).all()
    sums = rows.groupby(KEY, dropna=False)["duration_ns"].sum().rename("sum").reset_index()
    both = windows.merge(sums, on=KEY, how="left")
    assert both["sum"].tolist() == both["span_ns"].tolist()
    account = result.tables["account"]
    of_job = account[account["rank"].isna()]
    assert of_job["duration_ns"].sum() == pytest.approx(result.summary["step_ns"], abs=1)
    return len(both)


@pytest.mark.parametrize("name", JOBS)
def test_the_parts_of_forged_jobs_add_up_to_the_step(shared: Path, name: str) -> None:
    assert adds_up(analysis_of(shared / "forged" / name))


@pytest.mark.parametrize("name", SMALL)
def test_the_parts_of_public_traces_add_up_to_the_step(name: str) -> None:
    work = any(d["n_kernels"] + d["n_memcpy"] + d["n_memset"] for d in REFERENCES[name]["devices"].values())
    assert bool(adds_up(analyses.analysis_of(TRACES / name))) or not work


@pytest.mark.parametrize("name", samples())
def test_the_parts_of_the_samples_add_up_to_the_step(samples: Path, name: str) -> None:
    assert adds_up(analyses.analysis_of(samples / name))


def parts_of(analysis: Analysis) -> dict[tuple[int, int], dict[str, int]]:
    """(rank, step) -> part, with its axis where it has one -> ns."""
    out: dict[tuple[int, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for r in analysis.result("budget").tables["ranks"].to_dict("records"):
        name = r["part"] if pd.isna(r["axis"]) else f"{r['part']} {r['axis']}"
        out[r["rank"], int(r["step"])][name] += r["duration_ns"]
    return out


def number(step: dict[str, Any]) -> int:
    """N of the step's ``ProfilerStep#N``."""
    return int(step["name"].partition("#")[2])


def overlap(a: tuple[int, int], b: tuple[int, int]) -> int:
    return max(0, min(a[1], b[1]) - max(a[0], b[0]))


def pauses(pipeline: dict[str, Any], stage: dict[str, Any], arrivals: dict[tuple[Any, ...], int]) -> list[tuple[int, int]]:
    """When a rank of a pipeline waited, from the truth: before its first action, after its last, and before inputs that had not come."""
    actions = sorted(stage["actions"], key=lambda a: a[3])
    out = [(pipeline["window_start"], actions[0][3]), (actions[-1][4], pipeline["window_end"])]
    reach = actions[0][4]
    for kind, place, microbatch, start, end in actions[1:]:
        arrival = arrivals.get((kind == "F", place, microbatch), 0) if kind in "FBI" else 0
        out.append((reach, min(max(arrival, reach), start)))
        reach = max(reach, end)
    return out


@pytest.mark.parametrize("name", ["pp4_1f1b", "pp4_zbh1", "tp2pp4dp2_1f1b"])
def test_the_bubble_is_what_the_truth_leaves_between_actions(shared: Path, name: str) -> None:
    """Fill, waits and drain of the truth, less the bytes that collectives moved meanwhile."""
    folder = shared / "forged" / name
    truth, got = truth_of(folder), parts_of(analysis_of(folder))
    checked = 0
    for step in truth["steps"]:
        arrivals = {
            (p["dst"], p["direction"] == "fwd", p["src_stage"] + (1 if p["direction"] == "fwd" else -1), p["microbatch"]): p["transfer_start"]
            for p in truth["p2p"]
            if p["step"] == step["index"]
        }
        calls = [c for c in truth["collectives"] if c["step"] == step["index"]]
        for pipeline in step["pipeline"]:
            for stage in pipeline["stages"]:
                rank = stage["rank"]
                mine = {key[1:]: at for key, at in arrivals.items() if key[0] == rank}
                waits = pauses(pipeline, stage, mine)
                assert sum(b - a for a, b in waits) == stage["fill"] + stage["steady_wait"] + stage["drain"]
                moved = [(max(c["start"]), c["end"][c["ranks"].index(rank)]) for c in calls if rank in c["ranks"]]
                want = sum(b - a for a, b in waits) - sum(overlap(w, m) for w in waits for m in moved)
                # gradients are zeroed and data copied before the first action: as the fill of every stage but the first begins
                own, close = got[rank, number(step)], len(waits) + 4
                before = own["other_compute"] + own["copies"] if stage["fill"] else 0
                # a receive that is posted before the first stage begins waits for the pipeline as well
                posted = min((p["recv_start"] for p in truth["p2p"] if p["step"] == step["index"] and p["dst"] == rank), default=pipeline["window_start"])
                early = max(0, pipeline["window_start"] - posted) if stage["fill"] else 0
                assert want - before - close <= own["bubble"] <= want + early + close, (rank, step["name"])
                checked += 1
    assert checked >= 8


@pytest.mark.parametrize("name", ["tp4", "tp4_sp", "pp4_1f1b", "tp2pp4dp2_1f1b", "recompute_full"])
def test_compute_collectives_and_what_is_left_are_those_of_the_truth(shared: Path, name: str) -> None:
    folder = shared / "forged" / name
    truth, got = truth_of(folder), parts_of(analysis_of(folder))
    for step in truth["steps"]:
        for rank, want in step["ranks"].items():
            mine = got[int(rank), number(step)]
            compute = sum(ns for part, ns in mine.items() if part in ("forward", "backward", "recompute", "optimizer", "other_compute"))
            assert compute == want["compute_busy"]
            assert sum(mine.values()) == want["dur"]
            rest = sum(ns for part, ns in mine.items() if part.startswith(("comm", "bubble")) or part in ("launch_gap", "idle", "input_wait"))
            assert rest == want["idle"] + want["exposed_comm"]
            assert mine["copies"] == want["exposed_other"]
            assert mine["optimizer"] + mine["other_compute"] == want["kernel_ns"]["opt"]
            assert mine["recompute"] == want["kernel_ns"]["recompute"]
            for axis, told in {} if step["pipeline"] else want["by_class"].items():
                if told["exposed"] == told["busy"] == told["wait"] + told["transfer"]:
                    assert (mine[f"comm_wait {axis}"], mine[f"comm_transfer {axis}"]) == (told["wait"], told["transfer"])
