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


def with_cells(document, metric_name, table, when=lambda row: True, **cells):
    """A copy of a report with other cells in the rows of one table."""
    out = copy.deepcopy(document)
    for row in out["metrics"][metric_name]["tables"][table]:
        if when(row):
            row.update(cells)
    return out


def peaks(*of_ranks):
    """A CPU job's memory, one peak per rank."""
    rows = [{"rank": n, "device_type": "cpu", "step": None, "allocated_peak_bytes": v, "reserved_peak_bytes": v} for n, v in enumerate(of_ranks)]
    return changed(report(), memory=metric({"peaks": rows}))


UNTOLD = "whether anything was computed again cannot be told"
NULL = "its report holds null for a step or rank"


@pytest.mark.parametrize(
    ("base", "head", "name", "why"),
    [
        (report(), with_cells(report(), "collectives", "by_layer", nbytes=None), "collective_bytes", NULL),
        (report(), with_cells(report(), "collectives", "by_layer", lambda r: r["step"] == 4, count=None), "collective_count", NULL),
        (report(), with_cells(report(), "breakdown", "devices", lambda r: r["rank"] == 1, kernels=None), "kernel_count", NULL),
        (recomputing(report()), changed(report(), recompute=absent("compiled")), "recompute_runs", "compiled"),
        (recomputing(report()), with_cells(recomputing(report()), "recompute", "layers", decidable=False), "recompute_runs", UNTOLD),
        (piped(report()), with_cells(piped(report()), "pipeline", "pipelines", lambda r: r["step"] == 4, schedule=None), "schedule", NULL),
        (report(), with_cells(report(), "budget", "ranks", lambda r: r["part"] == "comm_transfer", duration_ns=None), "comm_transfer_ns", NULL),
        (peaks(10, 12), peaks(10, None), "measured_peak_bytes", "the peak of a rank is unknown"),
        (peaks(10, 12), peaks(10, None), "reserved_peak_bytes", "the peak of a rank is unknown"),
    ],
)
def test_what_the_head_does_not_know_is_neither_gain_nor_loss(base, head, name, why):
    made = against(base, head)
    rows = [r for r in made.rows if r.key.metric == name and r.verdict != Verdict.UNCHANGED]
    assert rows and {(r.verdict, r.head, r.reason) for r in rows} == {(Verdict.INCOMPARABLE, None, f"unknown in the head: {why}")}
    # of memory reserved a regression only warns, so that it decides nothing
    assert made.verdict == Verdict.INCOMPARABLE
    assert from_dict(json.loads(snapshot(head).to_json())) == snapshot(head)


def test_what_nobody_knows_is_not_compared_and_none_is_not_the_same():
    """No all-gather in the base is known to be none; in the head nobody knows how many there were."""
    row = {"step": 3, "layer": "layers.0", "layer_last": None, "axis": "tp", "direction": "forward", "kind": "all_gather", "count": None, "nbytes": None}
    head = report()
    head["metrics"]["collectives"]["tables"]["by_layer"].append(row)
    assert [r.base for r in against(report(), head).rows if r.verdict == Verdict.INCOMPARABLE] == [0, 0]
    assert against(head, head).verdict == Verdict.UNCHANGED


def test_beyond_64_ranks_one_unknown_rank_leaves_the_extremes_unknown():
    def job(kernels):
        rows = [{"rank": n, "capture": 0, "device": 0, "step": 3, "kernels": k} for n, k in enumerate(kernels)]
        return snapshot(changed(report(), breakdown=metric({"devices": rows})))

    least, greatest = key("kernel_count", rank="least"), key("kernel_count", rank="greatest")
    assert {k: v for k, v in job([*range(10, 74), 99]).facts.items() if k.metric == "kernel_count"} == {least: 10, greatest: 99}
    assert set(job([*range(10, 74), None]).unknown) >= {least, greatest}


def history(*step_ms):
    """A commit per number, each with one run of that step."""
    return [(f"c{n}", [snapshot(report(step_ms=ms + n / 1000))]) for n, ms in enumerate(step_ms)]


@pytest.mark.parametrize(("head", "verdict"), [(100, "unchanged"), (90, "unchanged"), (110, "regressed")])
def test_the_commit_that_repairs_a_regression_is_not_blamed_for_it(head, verdict):
    past = history(*[100] * 10, *[110] * 10)
    made = compare([r for _, runs in past for r in runs], [snapshot(report(step_ms=head))], FACTS, history=past)
    step = next(d for d in made.drift if d["metric"] == "step_time_ns")
    assert step["shift"] == pytest.approx(0.1, abs=0.001) and step["head_shift"] == pytest.approx(head / 100 - 1, abs=0.001)
    assert step["verdict"] == verdict


def test_one_run_on_each_side_says_nothing_of_what_it_could_see():
    step = next(r for r in against(report(), report()).rows if r.key.metric == "step_time_ns")
    assert (step.shift, step.low, step.high, step.detectable) == (0.0, None, None, None)


def test_two_runs_against_one_end_without_a_bug():
    noisy = [report(step_ms=ms) for ms in (100, 150)]
    step = next(r for r in against(noisy, report(step_ms=101), Rules(false_alarm=0.0001)).rows if r.key.metric == "step_time_ns")
    assert step.verdict == Verdict.INCONCLUSIVE and step.detectable is None


def test_layers_that_did_not_change_need_no_interval():
    base, head = ([report(step_ms=107 + 0.1 * n, transfer_ms={2: slow + 0.01 * n, 3: 2 + 0.01 * n}) for n in range(10)] for slow in (2.0, 4.5))
    rows = {r.key.place("layer"): r for r in against(base, head, Rules()).rows if r.key.metric == "layer_transfer_ns"}
    assert rows["layers.2"].verdict == Verdict.REGRESSED and rows["layers.2"].low is not None
    assert rows["layers.3"].verdict == Verdict.UNCHANGED and rows["layers.3"].low is None and rows["layers.3"].detectable is not None


def test_a_kind_is_doubted_in_words_that_are_known_to_be_true():
    base, head = (with_cells(report(), "breakdown", "devices", kernels=None) for _ in range(2))
    head["metrics"]["collectives"]["tables"].update(by_layer=[], instances=[])
    reasons = {r.reason for r in against(base, head).rows if r.key.metric == "collective_count"}
    assert reasons == {"no all_reduce is left, and how many kernels ran is unknown: it may only go by a name that is not known"}


def test_a_kind_of_which_some_steps_have_one_is_not_gone():
    head = with_cells(report(), "collectives", "by_layer", lambda r: r["layer"] != "layers.0", count=0, nbytes=0)
    head = with_cells(head, "collectives", "by_layer", lambda r: r["layer"] == "layers.0" and r["step"] == 5, count=2)
    rows = [r for r in against(report(), head).rows if r.key.metric == "collective_count"]
    assert {r.key.place("layer"): r.verdict.value for r in rows} == {"layers.0": "regressed", **{f"layers.{n}": "improved" for n in (1, 2, 3)}}


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
    ("text", "head", "value", "verdict"),
    [
        ("collective_count <= 3", with_cells(report(), "collectives", "by_layer", lambda r: r["step"] == 4, count=900), 900, Verdict.REGRESSED),
        ("kernel_count >= 400", with_cells(report(), "breakdown", "devices", lambda r: r["rank"] == 1, kernels=1), 1, Verdict.REGRESSED),
        ("kernel_count > 400", report(), 504, Verdict.UNCHANGED),
        ("collective_bytes <= 3 KiB", with_cells(report(), "collectives", "by_layer", lambda r: r["step"] == 4, nbytes=None), None, Verdict.INCONCLUSIVE),
        ("idle_ns <= 1 s", with_cells(report(), "budget", "ranks", lambda r: r["part"] == "idle", duration_ns=None), None, Verdict.INCONCLUSIVE),
    ],
)
def test_of_several_places_and_steps_the_one_nearest_to_the_limit_decides(text, head, value, verdict):
    (row,) = against(report(), head, Rules(overrides=FACTS.overrides, budgets=(budget(text),))).budgets
    assert (row["value"], row["verdict"]) == (value, verdict)
    assert (row["reason"] is None) == (value is not None)


@pytest.mark.parametrize(
    "text",
    [
        "step_time_ns <= 1e999",
        "",
        "bubble_ratio",
        "bubble_ratio <= ",
        "x <= 1; import os",
        "bubble_ratio <= 3 GiB",
        "__import__('os') <= 1",
        "a_ns[tp] <= 1 ms",
    ],
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
        lambda d: d["timed"].append({"metric": "step_time_ns", "where": {}, "value": 10**400}),
        lambda d: d["unknown"].append({"metric": 7}),
        lambda d: d["fingerprint"].update(world_size=float("inf")),
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


def test_what_looks_like_the_whole_recording_but_is_damaged_is_not_summed():
    """Steps that cannot be read are not rows of the whole recording, whose kernels would add up."""
    made = against(report(), with_cells(report(), "breakdown", "devices", step=[]))
    assert {r.verdict for r in made.rows if r.key.metric == "kernel_count"} == {Verdict.INCOMPARABLE}


def test_every_part_of_the_step_has_an_entry():
    assert {f"{part}_ns" for part in PARTS} <= set(BY_NAME)


def test_a_real_run_is_unchanged_against_itself():
    made = against(report_of("pp-1f1b"), report_of("pp-1f1b"))
    assert made.verdict == Verdict.UNCHANGED
    assert {"schedule", "p2p_count", "closed_form_bubble_ratio", "collective_count"} - {r.key.metric for r in made.rows} <= {"collective_count"}
    json.dumps(made.to_dict(), allow_nan=False)
