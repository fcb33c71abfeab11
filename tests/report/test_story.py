"""What a report says, and in which order."""

from __future__ import annotations

import io
import json
import math

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from tests.report.builder import FakeAnalysis, budget, finding, pipeline, tp
from tracekit.metrics.base import Result, unavailable
from tracekit.report import RENDERERS, json_report, markdown, plain, render, text
from tracekit.report.parts import Grid
from tracekit.report.rows import mean, steady_steps
from tracekit.report.sections.memory import _pairs
from tracekit.report.sections.pipeline import PARTS, per_rank
from tracekit.report.story import findings_of, story


def test_every_form_of_the_report_can_be_asked_for_by_name():
    for renderer in RENDERERS:
        assert render(renderer.name, tp()).strip()


@pytest.mark.parametrize("form", ["plain", "markdown"])
def test_health_stands_first_then_the_headline_then_the_sections_and_the_unknown_last(form):
    page = render(form, tp())
    words = ["Health", "A step takes", "Step budget", "Time breakdown", "Collectives", "Memory", "Recompute", "Not available, and why"]
    places = [page.index(w) for w in words]
    assert places == sorted(places)
    assert "no pipeline: no action" in page[places[-1] :]


def test_the_headline_names_the_largest_part_and_the_largest_loss_and_what_helps():
    s = story(tp().to_dict())
    assert (
        s.headline
        == "A step takes 400 ms on average, of which 240 ms (59.9 %) is compute. The largest loss is moving bytes in tp communication: 80.0 ms (20.0 %)."
    )
    assert "overlap" in s.advice


def test_the_first_lines_are_a_waterfall_that_ends_with_the_step():
    s = story(tp().to_dict())
    assert [b.label for b in s.waterfall] == ["compute", "moving bytes in tp communication", "waiting in tp communication", "idle", "step"]
    assert [(round(b.start, 2), round(b.length, 2)) for b in s.waterfall] == [(0, 0.6), (0.6, 0.2), (0.8, 0.15), (0.95, 0.05), (0, 1)]
    assert "   #### " not in plain.text(s) and "|                        ====----        |  up to 40.0 ms could come back" in plain.text(s)
    assert "▓▓▓▓░░░░" in markdown.text(s) and "░░░░" in text.render(tp())


def test_the_advice_says_what_could_come_back_and_where_most_could():
    rows = [
        {"rank": None, "part": "comm_transfer", "axis": "tp", "duration_ns": 80, "of_step_ratio": 0.2, "recoverable_ns": 20, "what": "if it were hidden"},
        {"rank": None, "part": "recompute", "axis": None, "duration_ns": 40, "of_step_ratio": 0.1, "recoverable_ns": 40, "what": "if the memory allows"},
    ]
    run = tp()
    tables = {**run.result("budget").tables, "account": pd.DataFrame(rows)}
    utilized = Result({"mfu_ratio": 0.415, "hfu_ratio": None, "device_flops_per_s": 130e12, "peak_flops_per_s": 312e12, "peak_source": "given"})
    s = story(FakeAnalysis({**run.results, "budget": Result(tables=tables), "utilization": utilized}, run.run).to_dict())
    assert "At best 20 ns (5.0 % of the step) could come back, if it were hidden." in s.advice
    assert s.advice.endswith("More could come back from recomputation: 40 ns (10.0 % of the step), if the memory allows.")
    assert "MFU is 41.5 %." in s.headline
    assert ("MFU", "41.5 %", "130 TFLOP/s per device of 312 TFLOP/s (given); HFU unknown") in [(c.label, c.value, c.detail) for c in s.cards]


def test_the_headline_of_a_pipeline_names_its_bubble():
    s = story(pipeline().to_dict())
    assert "The largest loss is the pipeline bubble: 196 ms (29.0 %)." in s.headline
    assert "microbatches" in s.advice


def test_a_bubble_that_is_spread_over_several_parts_is_named_as_a_whole():
    run = pipeline()
    spread = budget({r: [("forward", None, 400), ("comm_wait", "pp", 40), ("idle", None, 60)] for r in range(4)}, [1])
    piped = run.result("pipeline")
    results = {**run.results, "budget": spread, "pipeline": Result({**piped.summary, "bubble_ns": 90}, piped.tables)}
    assert "the pipeline bubble: 90 ns per rank (29.0 % of the pipeline's window)" in story(FakeAnalysis(results, run.run).to_dict()).headline
    less = budget({r: [("forward", None, 400), ("bubble", None, 60), ("comm_transfer", "dp", 40)] for r in range(4)}, [1])
    said = story(FakeAnalysis({**results, "budget": less}, run.run).to_dict()).headline
    assert "90 ns per rank (29.0 % of the pipeline's window; the step's account counts 60 ns of it, the rest as what runs meanwhile)." in said


def test_a_run_without_recomputation_has_no_section_and_no_card_of_it():
    run = tp()
    s = story(FakeAnalysis({**run.results, "recompute": Result({"mode": "none", "recompute_ns": 0})}, run.run).to_dict())
    assert "recompute" not in [x.name for x in s.sections] and "Recomputation" not in [c.label for c in s.cards]
    assert ("recompute", "Recompute", "nothing was recomputed in these steps") in s.unavailable


def test_without_a_budget_the_headline_says_unknown_and_why():
    results = {**tp().results, "budget": unavailable("no ProfilerStep range"), "breakdown": unavailable("no device work")}
    s = story(FakeAnalysis(results, tp().run).to_dict())
    assert s.headline == "Where the time of a step went is unknown: no ProfilerStep range."


def test_without_a_budget_the_breakdown_gives_the_headline():
    results = {**tp().results, "budget": unavailable("ranks are missing")}
    s = story(FakeAnalysis(results, tp().run).to_dict())
    assert s.headline == "A step takes 400 ms on average, of which 240 ms (60.0 %) is compute. The largest loss is exposed communication: 140 ms (35.0 %)."


def test_a_recording_without_steps_is_called_that_and_no_step():
    run = tp()
    whole = run.result("budget").tables["ranks"].query("step == 1").assign(step=None)
    results = {**run.results, "step_time": unavailable("no ProfilerStep range"), "budget": Result(tables={"ranks": whole})}
    page = plain.render(FakeAnalysis(results, run.run))
    assert "The recording, in which no step is marked, spans 400 ms per rank, of which 240 ms (59.9 %) is compute." in " ".join(page.split())
    assert "of the recording;" in page and "A step takes" not in page


def test_warm_up_steps_do_not_count():
    document = tp().to_dict()
    assert steady_steps(document) == {1, 2}


def test_a_mean_with_an_unknown_member_is_unknown():
    assert mean([1, None]) is None
    assert mean([]) is None


def test_a_part_of_which_one_duration_is_unknown_is_unknown_and_no_smaller_number():
    parts = budget({0: [("forward", None, 10)], 1: [("forward", None, 10)]}, [1, 2])
    rows = parts.tables["ranks"].astype({"duration_ns": "Int64"})
    rows.loc[0, "duration_ns"] = None
    results = {**tp().results, "budget": Result(tables={"ranks": rows}), "breakdown": unavailable("no device work")}
    assert "unknown" in story(FakeAnalysis(results, tp().run).to_dict()).headline


def test_findings_are_sorted_by_severity_and_name_their_place():
    run = tp()
    found = (finding("b", "info", "fine"), finding("cut", "error", "file is cut", file="r1.json", rank=1, offset=123456, count=2))
    s = story(FakeAnalysis(run.results, run.run, found, "unusable").to_dict())
    assert [f.code for f in s.findings] == ["cut", "b"]
    assert s.findings[0].where == "r1.json, rank 1, byte 123,456, 2 records"
    assert "unusable" in plain.text(s) and "r1.json" in markdown.text(s).replace("\\", "")


def test_an_emulated_run_says_so_everywhere():
    run = pipeline()
    assert "EMULATED COMPUTE" in plain.render(run)
    assert "EMULATED COMPUTE" in text.render(run)
    assert "Emulated compute" in markdown.render(run)
    assert all("emulated" in s.tags for s in story(run.to_dict()).sections)
    assert "emulated" not in plain.render(tp()).lower()


def test_null_is_shown_as_unknown():
    document = pipeline().to_dict()
    document["metrics"]["pipeline"]["summary"]["simulated_bubble_ratio"] = None
    facts = dict(next(s for s in story(document).sections if s.name == "pipeline").facts)
    assert facts["simulated bubble"] == "unknown"
    assert facts["closed form bubble"] == "27.3 %"


def test_a_metric_that_the_report_has_never_heard_of_is_shown_all_the_same():
    run = tp()
    names = {**run.names, "clock": "Clock"}
    results = {**run.results, "clock": Result(summary={"residual_ns": 5_000}, tables={"ranks": run.results["budget"].tables["ranks"].head(2)})}
    page = plain.render(FakeAnalysis(results, run.run, names=names))
    assert "Clock [measured]" in page and "5.00 µs" in page


def test_more_than_a_screenful_of_ranks_is_cut_and_counted():
    page = plain.render(tp(ranks=64))
    assert "16 of 64 rows shown" in page


def test_plain_text_has_no_escape_codes_and_no_boxes():
    page = plain.render(pipeline())
    assert "\x1b" not in page and not set(page) & set("│─╭╮╰╯━┃")


def test_markup_in_a_name_is_not_obeyed_by_the_terminal():
    page = text.render(tp(layer="[bold red]x[/]\x1b[2J"))
    assert "[bold red]x[/]" in page and "\x1b[2J" not in page


def test_markdown_escapes_tables_mentions_and_html():
    page = markdown.render(tp(layer="a|b @all <script>alert(1)</script> [x](http://e.vil)"))
    assert "<script" not in page and "@all" not in page and "](http:" not in page and "a\\|b" in page


def test_json_is_the_document_and_strict():
    document = json.loads(json_report.render(tp()), parse_constant=pytest.fail)
    assert document["schema"] == "tracekit.report/1"
    row = document["metrics"]["step_time"]["tables"]["steps"][0]
    assert row["duration_ns"] == 900_000_000 and isinstance(row["duration_ns"], int) and row["complete"] is True


def test_json_turns_numpy_scalars_into_plain_ones_and_refuses_nan():
    assert json.loads(json_report.dumps({"a": np.int64(2**60 + 1), "b": np.float64(0.5)})) == {"a": 2**60 + 1, "b": 0.5}
    with pytest.raises(ValueError, match=r"report\.a\.b is nan"):
        json_report.dumps({"a": {"b": math.nan}})


def test_recomputation_is_compute_and_named_in_the_headline_as_a_part_of_it():
    parts = budget({0: [("forward", None, 30), ("backward", None, 40), ("recompute", None, 20), ("idle", None, 10)]}, [1])
    s = story(FakeAnalysis({**tp().results, "budget": parts}, tp().run).to_dict())
    assert s.headline.startswith("A step takes 100 ns on average, of which 90 ns (90.0 %) is compute, 20 ns of it recomputation.")


def test_exposed_sends_of_a_pipeline_are_its_bubble_and_no_call_for_faster_links():
    run = pipeline()
    parts = budget({r: [("forward", None, 400), ("comm_unsplit", "pp", 100)] for r in range(4)}, [1])
    summary = {**run.result("pipeline").summary, "schedule": "interleaved_zb", "bubble_ns": 90}
    s = story(FakeAnalysis({**run.results, "budget": parts, "pipeline": Result(summary, run.result("pipeline").tables)}, run.run).to_dict())
    assert "the pipeline bubble: 90 ns per rank" in s.headline
    assert "link" not in s.advice and "zero-bubble" not in s.advice


def test_a_run_that_communicates_nothing_has_no_card_of_exposed_communication():
    run = tp()
    devices = run.result("breakdown").tables["devices"].assign(comm_ns=0, exposed_comm_ns=0)
    s = story(FakeAnalysis({**run.results, "breakdown": Result(tables={"devices": devices})}, run.run).to_dict())
    assert "Compute" in [c.label for c in s.cards] and "Exposed communication" not in [c.label for c in s.cards]


def test_a_count_of_ranks_is_not_called_records():
    run = tp()
    s = story(FakeAnalysis(run.results, run.run, (finding("rank_missing", "warning", "rank 1 of 2 missing", count=1),), "warnings").to_dict())
    assert s.findings[0].where == ""


def test_markdown_keeps_the_headline_apart_from_no_findings():
    assert "No findings.\n\n**A step takes" in markdown.render(tp())


def test_a_rank_of_several_stages_has_one_row_its_work_added_and_its_bubble_once():
    shared = {"bubble_ns": 7, "fill_ns": 7, **dict.fromkeys(PARTS[3:], 0)}
    assert per_rank([{"rank": 0, "stage": 4, "work_ns": 30, **shared}, {"rank": 0, "stage": 0, "work_ns": 20, **shared}]) == [
        {"rank": 0, "stage": 0, "stages": "0, 4", "work_ns": 50.0, **shared}
    ]


def test_only_closed_forms_that_are_known_stand_beside_the_measured():
    row = {"rank": 0, "in_flight_microbatches": 1, "activation_bytes": 5, "activation_theory_bytes": 4, "activation_without_recompute_theory_bytes": 4}
    unknown = {"gradient_bytes": 3, "gradient_theory_bytes": None}
    assert _pairs([{**row, **unknown}]) == ["rank", "in_flight_microbatches", "activation_bytes", "activation_theory_bytes"]
    assert _pairs([unknown]) == []


def test_a_narrow_terminal_gets_more_tables_and_no_broken_numbers():
    made = Grid("Mean step", ("rank", "forward (ms)", "backward (ms)", "idle (ms)"), (("0", "1,234.5", "2,345.6", "3,456.7"),), (False, True, True, True))
    console = Console(file=io.StringIO(), width=24)
    console.print(text.Fitted(made))
    page = console.file.getvalue()
    assert all(number in page for number in ("1,234.5", "2,345.6", "3,456.7"))
    assert page.count("rank") == 3 and max(map(len, page.splitlines())) <= 24


def test_what_several_ranks_have_in_common_is_said_once():
    rows = [{"code": "step_warmup", "severity": "info", "message": "step 4 is warm-up", "rank": r} for r in range(4)]
    (one,) = findings_of({"health": {"findings": rows}})
    assert (one.code, one.where) == ("step_warmup", "ranks 0-3")


@pytest.mark.parametrize(("slowest", "named"), [(100_900_000, False), (102_000_000, True)])
def test_a_rank_is_called_the_slowest_only_where_it_is_slower(slowest, named):
    run = tp()
    times = Result(
        {**run.results["step_time"].summary, "median_ns": 100_000_000, "slowest_rank": 1, "slowest_rank_median_ns": slowest}, run.results["step_time"].tables
    )
    (card,) = [c for c in story(FakeAnalysis({**run.results, "step_time": times}, run.run).to_dict()).cards if c.label == "Step time"]
    assert ("102 ms on the slowest, rank 1" in card.detail) is named


def test_the_number_of_one_rank_is_not_read_as_a_count():
    run = tp()
    said = dict(story(FakeAnalysis(run.results, {**run.run, "ranks": [0], "world_size": None, "steps": [6]}).to_dict()).run)
    assert (said["rank"], said["step"], "ranks" in said) == ("0", "6", False)
