"""Real repeated runs against each other: who cries wolf, and who sleeps?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.regression.record import repeated
from tracekit.compare import Rules, Snapshot, compare
from tracekit.thresholds import Verdict

COMPARISONS = 200
RULES = Rules(resamples=100)


@pytest.fixture(scope="module")
def runs() -> list[Snapshot]:
    return repeated()


def dealt(runs: list[Snapshot], seed: int) -> Iterator[tuple[int, list[Snapshot], list[Snapshot]]]:
    """Ten runs per side, dealt anew each time."""
    draw = np.random.default_rng(seed)
    for n in range(COMPARISONS):
        order = draw.permutation(len(runs))
        yield n, [runs[i] for i in order[:10]], [runs[i] for i in order[10:20]]


def slower(run: Snapshot, layer: str, factor: float) -> Snapshot:
    """The run with one layer's all-reduces taking longer."""
    own = {k for k in run.timed if k.metric == "layer_transfer_ns" and k.place("layer") == layer and k.place("kind") == "all_reduce"}
    return replace(run, timed={k: v * factor if k in own else v for k, v in run.timed.items()})


def test_there_are_runs_enough_and_they_are_real(runs):
    assert len(runs) == 20
    assert len({r.timed[k] for r in runs for k in r.timed if k.metric == "step_time_ns"}) == 20


def test_equal_programs_raise_an_alarm_in_two_percent_at_most(runs):
    verdicts = [compare(base, head, RULES).verdict for _, base, head in dealt(runs, 1)]
    assert verdicts.count(Verdict.REGRESSED) <= 0.02 * COMPARISONS
    assert Verdict.INCOMPARABLE not in verdicts


def test_ten_percent_on_one_layers_collective_is_caught_and_laid_at_its_door(runs):
    caught = 0
    for n, base, head in dealt(runs, 2):
        layer = f"layers.{n % 4}"
        made = compare(base, [slower(s, layer, 1.1) for s in head], RULES)
        blamed = {r.key.place("layer") for r in made.rows if r.verdict == Verdict.REGRESSED}
        caught += made.verdict == Verdict.REGRESSED and blamed == {layer} and f"all-reduce of layer {n % 4} transfer +" in made.sentence
    assert caught >= 0.95 * COMPARISONS


def test_one_run_per_side_never_judges_a_time(runs):
    made = compare(runs[:1], runs[1:2], RULES)
    assert made.verdict == Verdict.INCONCLUSIVE
    assert {r.verdict for r in made.rows if r.entry.sort in ("step", "part", "detail")} <= {Verdict.INCONCLUSIVE, Verdict.UNCHANGED}
    step = next(r for r in made.rows if r.key.metric == "step_time_ns")
    assert step.runs_needed == 5 and "1 and 1 runs are too few to tell anything; 5 on each side would do" in (step.reason or "")


def test_the_same_runs_give_the_same_document(runs):
    assert compare(runs[:5], runs[5:10], RULES).to_dict() == compare(runs[:5], runs[5:10], RULES).to_dict()
