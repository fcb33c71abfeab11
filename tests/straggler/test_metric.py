"""A rank stands out only if it does, and then the first cause of the chain is named."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests import analyses
from tests.collectives.rows import facts as hand_written
from tests.forged import analysis_of, truth_of
from tests.straggler.drawings import Do, compute, idle, meet, recv, send, simulate
from tracekit import intervals, schema
from tracekit.job.assemble import build
from tracekit.job.base import Job
from tracekit.metrics import straggler
from tracekit.metrics.base import Result
from tracekit.trace import RankFacts

US = 1000


def jittered(ranks: int, rounds: int, seed: int, slow: dict[int, float] | None = None, late: dict[int, int] | None = None, noise: float = 0.01) -> Job:
    """Ranks of one group that compute 100 µs, give or take, between collectives; some slower or launched later."""
    random = np.random.default_rng(seed)
    group = ",".join(map(str, range(ranks)))
    programs: list[list[Do]] = []
    for rank in range(ranks):
        each = 100 * US * (slow or {}).get(rank, 1.0) * random.normal(1, noise, rounds)
        programs.append([meet(group)] + [do for ns in each for do in (compute(int(ns)), idle((late or {}).get(rank, 0)), meet(group))])
    return simulate(programs, transfer=20 * US)


def found(job: Job) -> tuple[int | None, str | None]:
    summary = straggler.compute(job).summary
    return summary["rank"], summary["cause"]


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_no_rank_stands_out_where_all_are_alike(ranks: int) -> None:
    assert {found(jittered(ranks, 60, seed)) for seed in range(6)} == {(None, None)}


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_rank_that_computes_five_percent_longer_is_found(ranks: int) -> None:
    assert {found(jittered(ranks, 60, seed, slow={1: 1.05})) for seed in range(5)} == {(1, "slow_compute")}


def test_a_rank_whose_host_launches_late_is_found() -> None:
    assert found(jittered(4, 60, 0, late={2: 5 * US})) == (2, "late_launch")


def test_a_rank_that_is_always_last_by_next_to_nothing_does_not_matter() -> None:
    job = jittered(4, 60, 0, late={2: 100}, noise=0)
    row = straggler.compute(job).tables["ranks"].set_index("rank").loc[2]
    assert (row["last_arrivals"], row["told"]) == (60, 60)
    assert found(job) == (None, None)


def test_two_collectives_are_too_few_to_blame_anyone() -> None:
    assert found(jittered(2, 2, 0, slow={1: 1.5})) == (None, None)


def chained(rounds: int) -> list[list[Do]]:
    """Ranks 0 and 1 are one group, 2 and 3 another; each round 1 receives from 3, and 3 computes longer than 2."""
    low = [meet("0,1", desc="mesh_tp")]
    one, two, three = list(low), [meet("2,3", desc="mesh_tp")], [meet("2,3", desc="mesh_tp")]
    zero = list(low)
    for _ in range(rounds):
        zero += [recv(2), compute(100 * US), meet("0,1", desc="mesh_tp")]
        one += [recv(3), compute(100 * US), meet("0,1", desc="mesh_tp")]
        two += [compute(100 * US), send(0), meet("2,3", desc="mesh_tp")]
        three += [compute(140 * US), send(1), meet("2,3", desc="mesh_tp")]
    return [zero, one, two, three]


def test_the_chain_is_followed_across_groups_to_the_first_cause() -> None:
    got = straggler.compute(simulate(chained(40), transfer=10 * US))
    ranks = got.tables["ranks"].set_index("rank")
    assert ranks.loc[1, ["cause", "waits_for", "root_rank"]].tolist() == ["waits_elsewhere", 3, 3]
    assert (got.summary["rank"], got.summary["cause"]) == (3, "slow_compute")
    # what rank 1 passed on counts with what rank 3 caused itself
    assert ranks.loc[3, "root_caused_wait_ns"] == ranks.loc[3, "caused_wait_ns"] + ranks.loc[1, "caused_wait_ns"]


def test_uneven_tokens_are_blamed_on_the_rank_that_is_most_often_late_by_them() -> None:
    random = np.random.default_rng(3)
    group, programs = "0,1,2,3", [[meet("0,1,2,3")] for _ in range(4)]
    for hot in [2, 2, 0, 2, 2, 1, 2, 2, 3, 2] * 3:
        rows = {r: 400 if r == hot else int(random.integers(150, 250)) for r in range(4)}
        for r in range(4):
            programs[r] += [compute(50 * US), meet(group, kind="all_to_all", nbytes=1000)]
            programs[r] += [compute(rows[r] * US), meet(group, kind="all_to_all", nbytes=rows[r] * 100)]
    assert found(simulate(programs, transfer=20 * US)) == (2, "token_imbalance")


def test_steps_that_are_no_warm_up_count() -> None:
    got = straggler.compute(simulate([[meet("0,1"), compute(9), meet("0,1")], [meet("0,1"), compute(30), meet("0,1")]]))
    assert (got.summary["collectives"], got.summary["undecided_collectives"], got.summary["caused_wait_total_ns"]) == (2, 1, 21)


def test_without_whole_groups_there_is_no_answer() -> None:
    one = straggler.compute(build({(0, 0): hand_written(0, {"seq": 1, "at": (0, 9)}, world_size=2)}))
    none = straggler.compute(build({(0, 0): hand_written(0)}))
    assert (one.available, none.available) == (False, False)
    assert "all ranks" in str(one.reason) and "no collective" in str(none.reason)


# Forged jobs

PLAIN = ["tp4", "tp4_sp", "tp2pp4dp2_1f1b", "recompute_full", "async_steps", "old_names", "clock_skew"]


@pytest.mark.parametrize("job", PLAIN)
def test_nobody_is_blamed_in_a_job_without_a_slow_rank(shared: Path, job: str) -> None:
    summary = analysis_of(shared / "forged" / job).result("straggler").summary
    assert (summary["rank"], summary["cause"]) == (None, None)


@pytest.mark.parametrize("job", ["tp2pp4dp2_1f1b", "tp4"])
def test_every_rank_is_late_as_often_and_as_much_as_the_truth_says(shared: Path, job: str) -> None:
    folder = shared / "forged" / job
    got = analysis_of(folder).result("straggler").tables["ranks"].set_index("rank")
    assert_as_in_truth(got, truth_of(folder), pipeline=job != "tp4")


def assert_as_in_truth(got: pd.DataFrame, truth: dict[str, Any], pipeline: bool) -> None:
    """The truth's own arithmetic, over the classes that the metric compares."""
    steady = {i for i, step in enumerate(truth["steps"]) if not step["warmup"]}
    want: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for c in truth["collectives"]:
        if c["step"] not in steady or len(c["ranks"]) < 2 or (pipeline and c["class"] == "world"):
            continue
        order = sorted(c["start"])
        for rank, start in zip(c["ranks"], c["start"], strict=True):
            want[rank]["late"].append(start - float(np.median(c["start"])))
            if start == order[-1] > order[-2]:
                want[rank]["caused"].append((order[-1] - order[-2]) * (len(order) - 1))
    assert set(got.index) == set(want)
    for rank, row in got.iterrows():
        late, caused = want[int(str(rank))]["late"], want[int(str(rank))]["caused"]
        assert row["collectives"] == len(late)
        assert row["lateness_mean_ns"] == pytest.approx(np.mean(late), abs=1.5)
        # a lead of a ns or two may be rounded away
        assert abs(row["last_arrivals"] - len(caused)) <= 2
        assert row["caused_wait_ns"] == pytest.approx(sum(caused), abs=3 * len(caused) + 10)


def from_truth(truth: dict[str, Any]) -> Job:
    """All ranks of a forged pipeline, as far as its truth tells: calls, messages, and actions, which compute where no collective is exposed."""
    calls: dict[int, list[dict[str, Any]]] = defaultdict(list)
    sent: dict[int, list[dict[str, Any]]] = defaultdict(list)
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for c in truth["collectives"]:
        about = {"step": c["step"], "kind": c["kind"], "group": c["pg"], "group_desc": f"mesh_{c['class']}", "seq": c["seq"], "nbytes": c["bytes"]}
        for i, rank in enumerate(c["ranks"]):
            row = {"at": (c["start"][i], c["end"][i]), "exposed_ns": c["exposed"][i], "group_ranks": ",".join(map(str, sorted(c["ranks"])))}
            calls[rank].append({**about, **row})
    for x in truth["p2p"]:
        about = {"step": x["step"], "group": "pp", "group_desc": "mesh_pp", "group_ranks": ",".join(map(str, sorted((x["src"], x["dst"]))))}
        for rank, peer, kind in ((x["src"], x["dst"], "send"), (x["dst"], x["src"], "recv")):
            sent[rank].append({**about, "kind": kind, "peer": peer, "at": (x[f"{kind}_start"], x["end"]), "exposed_ns": x[f"{kind}_exposed"]})
    for stage in (stage for step in truth["steps"] for pipe in step["pipeline"] for stage in pipe["stages"]):
        spans[stage["rank"]] += [(start, end) for _, _, _, start, end in stage["actions"]]
    made = {}
    for rank in map(int, truth["ranks"]):
        # what is hidden of a call is taken to lie at its beginning
        waiting = [(row["at"][1] - row["exposed_ns"], row["at"][1]) for row in calls[rank]]
        computed = intervals.subtract(intervals.union(*zip(*spans[rank], strict=True)), intervals.union(*zip(*waiting, strict=True)))
        rows = sorted(row["at"] for row in [*calls[rank], *sent[rank]])
        start, end = np.array(rows, np.int64).T
        busy, zero = intervals.merge(computed, intervals.union(start, end)), np.zeros(len(start), np.int64)
        marks = {"computed_before_ns": intervals.measure(computed, zero, start), "busy_before_ns": intervals.measure(busy, zero, start)}
        progress = pd.DataFrame({"device": 0, "start_ns": start, "end_ns": end, **marks})
        facts = hand_written(rank, *calls[rank], p2p=tuple(sent[rank]), world_size=len(truth["ranks"]))
        made[rank, 0] = RankFacts(facts.meta, {**facts.tables, "progress": schema.conform(progress, schema.PROGRESS)})
    return build(made)


def test_the_slow_rank_of_a_forged_pipeline_is_found_and_not_those_that_wait_for_it(shared: Path) -> None:
    truth = truth_of(shared / "forged" / "partial")
    got: Result = straggler.compute(from_truth(truth))
    assert (got.summary["rank"], got.summary["cause"]) == (truth["straggler"]["rank"], "slow_compute")
    ranks = got.tables["ranks"].set_index("rank")
    assert ranks.loc[1, ["cause", "waits_for", "root_rank"]].tolist() == ["waits_elsewhere", 5, 5]


def test_rank_7_of_a_public_job_causes_the_others_wait(shared: Path) -> None:
    #   it comes last to five of eight calls, by up to half a ms, and its device stood idle before: its host was late
    got = analyses.analysis_of(shared / "traces" / "param" / "inputs__dlrm_kineto.tar.gz").result("straggler")
    assert (got.summary["rank"], got.summary["cause"], got.summary["last_arrivals"]) == (7, "late_launch", 5)
    assert got.summary["caused_wait_ns"] == 7 * (505 + 509 + 162 + 124 + 9) * US


def test_a_slow_rank_whose_trace_is_missing_is_named_by_the_one_that_waits_for_it(shared: Path) -> None:
    got = analysis_of(shared / "forged" / "partial").result("straggler")
    assert (got.summary["rank"], got.summary["cause"]) == (1, "waits_elsewhere")
    assert any("waits for rank 5" in note for note in got.notes)
