"""Facts caught by one run per side, causes in the first line, and what cannot be compared."""

from __future__ import annotations

import copy
import json

import pytest

from tests.golden import report_of
from tests.regression.documents import absent, changed, metric, piped, recomputing, report
from tracekit import analyze
from tracekit.compare import Override, Rules, compare, snapshot
from tracekit.compare.budgets import budget
from tracekit.compare.catalog import BY_NAME
from tracekit.compare.keys import key
from tracekit.compare.snapshot import from_dict
from tracekit.errors import InputError, UsageError
from tracekit.metrics.budget import PARTS
from tracekit.thresholds import Direction, Severity, Verdict

#: What decides where times have one run only.
FACTS = Rules(overrides=(Override("step_time_ns", severity=Severity.WARN),))


def against(base, head, rules=FACTS):
    """One document against one, or several against several."""
    sides = [[snapshot(d, "run") for d in (side if isinstance(side, list) else [side])] for side in (base, head)]
    return compare(*sides, rules)


def verdict_of(made, metric_name, **places):
    return {r.key: r.verdict for r in made.rows}[key(metric_name, **places)]


def test_a_run_against_itself_is_unchanged():
    made = against(report(), report())
    assert made.verdict == Verdict.UNCHANGED
    assert made.sentence == "step unchanged"


def test_an_extra_all_reduce_is_caught_by_one_run():
    made = against(report(), report(count={2: 2}))
    assert made.verdict == Verdict.REGRESSED
    assert verdict_of(made, "collective_count", axis="tp", kind="all_reduce", direction="forward", layer="layers.2") == Verdict.REGRESSED
    assert made.sentence.startswith("all-reduce of layer 2 (tp, forward): calls per step 1 → 2")


def test_neighbouring_layers_are_told_as_one_range():
    made = against(report(), report(count={1: 2, 2: 2, 3: 2}))
    assert made.sentence.startswith("all-reduce of layers 1–3 (tp, forward): calls per step 1 → 2")


def test_another_schedule_is_caught_by_one_run():
    made = against(piped(report()), piped(report(), "gpipe"))
    assert made.verdict == Verdict.REGRESSED and made.sentence.startswith("pipeline schedule 1f1b → gpipe")


def test_a_dropped_recomputation_is_caught_by_one_run():
    made = against(recomputing(report()), report())
    assert made.verdict == Verdict.REGRESSED and made.sentence.startswith("recomputation full → none")


def test_recomputation_dropped_from_a_real_run_is_caught_exactly():
    base, head = report_of("recompute-full"), report_of("recompute-none")
    assert against(base, head).verdict == Verdict.INCOMPARABLE
    made = against(base, head, Rules(ignore=("recompute",), overrides=FACTS.overrides))
    assert made.verdict == Verdict.REGRESSED and made.sentence.startswith("recomputation full → none")
    assert verdict_of(made, "recompute_runs", layer="layers.1") == Verdict.REGRESSED


def test_more_peak_memory_is_a_regression_and_less_a_gain():
    more = metric({"peaks": [{"rank": 0, "device_type": "gpu", "step": None, "allocated_peak_bytes": (1 << 30) + 512}]})
    assert against(report(), changed(report(), memory=more)).verdict == Verdict.REGRESSED
    assert against(changed(report(), memory=more), report()).verdict == Verdict.IMPROVED
    tolerant = Rules(overrides=(*FACTS.overrides, Override("peak_allocated_bytes", (("rank", "0"),), min_effect=0.01)))
    assert against(report(), changed(report(), memory=more), tolerant).verdict == Verdict.UNCHANGED


def test_a_kernel_renamed_by_an_upgrade_is_no_regression(shared):
    folder = shared / "cases" / "inputs" / "c22-ci-false-gain"
    base, head = (analyze(folder / f"{side}.json").to_dict() for side in ("baseline", "candidate"))
    made = against(base, head, Rules())
    shift = {r.key.metric: r.shift for r in made.rows}
    assert shift["exposed_comm_ns"] == pytest.approx(0.10) and shift["step_time_ns"] == pytest.approx(0.05) and shift["compute_ns"] == 0
    assert made.verdict == Verdict.INCONCLUSIVE
    assert {r.verdict for r in made.rows if r.entry.sort == "fact"} == {Verdict.UNCHANGED}
    assert "+5.0 %" in made.sentence and "exposed communication" in made.sentence


def test_a_metric_that_vanishes_is_no_gain():
    made = against(report(), changed(report(), collectives=absent("no communication was recorded")))
    assert made.verdict == Verdict.INCOMPARABLE
    row = next(r for r in made.rows if r.key.metric == "collective_count")
    assert row.reason == "unknown in the head: no communication was recorded"


def test_a_kind_that_is_gone_without_its_kernels_is_doubted():
    head = report()
    head["metrics"]["collectives"]["tables"].update(by_layer=[], instances=[])
    for row in head["metrics"]["breakdown"]["tables"]["devices"]:
        row["kernels"] = 504
    made = against(report(), head)
    assert made.verdict == Verdict.INCONCLUSIVE
    assert any("it may only go by a name that is not known" in (r.reason or "") for r in made.rows)
    for row in head["metrics"]["breakdown"]["tables"]["devices"]:
        row["kernels"] = 500
    assert against(report(), head).verdict == Verdict.IMPROVED


def test_a_fact_that_differs_among_the_bases_own_runs_is_no_fact():
    bases = [report(count={0: 1}), report(count={0: 3})]
    assert against(bases, report(count={0: 2})).verdict == Verdict.UNCHANGED
    assert against(bases, report(count={0: 4})).verdict == Verdict.INCONCLUSIVE


def test_the_cause_stands_in_the_first_line():
    base = [report(step_ms=100 + 0.1 * n) for n in range(10)]
    head = [report(step_ms=107 + 0.1 * n, transfer_ms={2: 4.5, 3: 4.5}) for n in range(10)]
    made = against(base, head, Rules())
    assert made.verdict == Verdict.REGRESSED
    assert made.sentence.startswith("step +7.0 % [") and "all-reduce of layers 2–3 exposed +5.00 ms" in made.sentence
    assert made.to_dict()["attribution"]["parts"][0]["part"] == "comm_transfer"


def test_a_faster_head_is_an_improvement_and_says_so():
    base, head = ([report(step_ms=ms + 0.1 * n) for n in range(8)] for ms in (100, 90))
    assert against(base, head, Rules()).verdict == Verdict.IMPROVED


def test_what_is_not_the_same_is_named():
    head = report()
    head["run"]["config"]["versions"] = {"torch": "2.14.0", "nccl": None}
    made = against(report(), head)
    assert made.verdict == Verdict.INCOMPARABLE
    assert made.sentence == "not the same setup: torch 2.13.0 → 2.14.0"
    assert "Known on one side only: nccl 2.28 → unknown." in made.notes
    assert against(report(), head, Rules(ignore=("torch",), overrides=FACTS.overrides)).verdict == Verdict.UNCHANGED
    forced = against(report(), head, Rules(allow_incomparable=True, overrides=FACTS.overrides))
    assert forced.verdict == Verdict.UNCHANGED and forced.to_dict()["fingerprint"]["forced"]


def test_runs_of_one_side_that_are_not_of_one_setup_are_named():
    other = report(device_names=["A100"])
    made = against([report(), other], report())
    assert made.verdict == Verdict.INCOMPARABLE and "device_names H200 → A100" in made.sentence


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("exposed_comm_ratio <= 10 %", Verdict.UNCHANGED),
        ("exposed_comm_ratio < 0.08", Verdict.REGRESSED),
        ("peak_memory_bytes <= 70 GiB", Verdict.UNCHANGED),
        ("step_time_ns <= 99 ms", Verdict.REGRESSED),
        ("comm_transfer_ns[axis=tp] >= 8ms", Verdict.UNCHANGED),
        ("bubble_ratio <= 0.15", Verdict.INCONCLUSIVE),
        ("memory.allocated_peak_bytes <= 1 KiB", Verdict.REGRESSED),
    ],
)
def test_limits(text, verdict):
    made = against(report(), report(), Rules(overrides=FACTS.overrides, budgets=(budget(text),)))
    assert made.verdict == verdict and made.budgets[0]["verdict"] == verdict


@pytest.mark.parametrize(
    "text", ["", "bubble_ratio", "bubble_ratio <= ", "x <= 1; import os", "bubble_ratio <= 3 GiB", "__import__('os') <= 1", "a_ns[tp] <= 1 ms"]
)
def test_what_is_no_limit_is_refused(text):
    with pytest.raises(UsageError):
        budget(text)


def test_overrides_are_per_metric_rank_and_layer_and_the_last_wins():
    rules = Rules(
        overrides=(
            Override("collective_*", (("layer", "layers.2"),), severity=Severity.IGNORE),
            Override("kernel_count", better=Direction.NONE),
            *FACTS.overrides,
        )
    )
    assert against(report(), report(count={2: 2}), rules).verdict == Verdict.UNCHANGED
    assert against(report(), report(count={1: 2}), rules).verdict == Verdict.REGRESSED


def test_a_snapshot_says_the_same_as_its_report():
    one = snapshot(piped(recomputing(report())), "run")
    again = from_dict(json.loads(one.to_json()))
    assert again == one and again.scope == one.scope


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.pop("facts"),
        lambda d: d.update(schema="tracekit.snapshot/9"),
        lambda d: d["timed"].append({"metric": "step_time_ns", "where": {}, "value": "1e9"}),
        lambda d: d["facts"].append({"metric": "schedule", "where": {}, "value": [["deep"]]}),
        lambda d: d["facts"].append({"metric": "schedule", "where": [], "value": 1}),
        lambda d: d["facts"].append(7),
        lambda d: d.update(fingerprint=[]),
    ],
)
def test_a_damaged_snapshot_is_refused(damage):
    document = copy.deepcopy(snapshot(report(), "run").to_dict())
    damage(document)
    with pytest.raises(InputError):
        from_dict(document, "store/x.json")


@pytest.mark.parametrize(
    "rows", [None, 7, "x", [None], [{"step": "3"}], [{"step": 3, "count": "many", "nbytes": True, "layer": {"a": 1}}], [{"step": 3, "layer": "x" * 10_000}]]
)
def test_a_report_that_holds_nonsense_is_read_as_unknown(rows):
    document = report()
    for part in document["metrics"].values():
        part["tables"] = dict.fromkeys(part["tables"], rows)
    assert against(report(), document, Rules()).verdict in (Verdict.INCOMPARABLE, Verdict.REGRESSED, Verdict.INCONCLUSIVE)


def test_every_part_of_the_step_has_an_entry():
    assert {f"{part}_ns" for part in PARTS} <= set(BY_NAME)


def test_a_real_run_is_unchanged_against_itself():
    made = against(report_of("pp-1f1b"), report_of("pp-1f1b"))
    assert made.verdict == Verdict.UNCHANGED
    assert {"schedule", "p2p_count", "closed_form_bubble_ratio", "collective_count"} - {r.key.metric for r in made.rows} <= {"collective_count"}
    json.dumps(made.to_dict(), allow_nan=False)
