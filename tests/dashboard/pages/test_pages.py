"""What do pages say? Layouts as plain functions: no browser, no server."""

from __future__ import annotations

import csv as reader
import gzip
import io
import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import dash
import pandas as pd
import pytest

from dashboard import extras, tables
from dashboard.ahead import Ahead
from dashboard.app import pages, rows_of
from dashboard.components import csv, section, table
from dashboard.components.cache import OVERHEAD, ByteCache
from dashboard.components.guard import as_json, guarded
from dashboard.components.restyle import DARK_SURFACE, restyled
from dashboard.jobs.summary import summary_of
from dashboard.pages import collectives, compare, definitions, memory, not_found_404, overview, pipeline, recompute, runs
from dashboard.reading import EXTENSION, open_run
from dashboard.shell import RUN_PAGES, around, place
from dashboard.store.rows import State
from tests.dashboard.pages.library import MemoryLibrary, row
from tracekit.errors import InputError
from tracekit.figures import FIGURES, theme
from tracekit.figures.layers import HIDDEN
from tracekit.memory_what_if import limited
from tracekit.metrics import METRICS, Result
from tracekit.report.sections.common import sentence
from tracekit.wording import size as size_of

Open = Callable[..., Any]


def words(node: Any) -> str:
    """Every text of a page."""
    return " ".join(_texts(as_json(node)))


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, list):
        for one in node:
            yield from _texts(one)
    elif isinstance(node, dict):
        props = node.get("props") or {}
        yield from _texts(props.get("children"))
        yield from _texts([cell for g in json.loads(props.get("data-grids", "[]")) for row in (g["header"], *g["rows"]) for cell in row])


def named(node: Any, kind: str) -> list[dict[str, Any]]:
    """Every component of a kind, its props."""
    node = as_json(node)
    if isinstance(node, list):
        return [p for one in node for p in named(one, kind)]
    if not isinstance(node, dict):
        return []
    own = [node["props"]] if node.get("type") == kind else []
    return own + named((node.get("props") or {}).get("children"), kind)


def test_the_overview_says_what_the_report_says(opened: Open, analyses: dict[str, Any]) -> None:
    from tracekit.report.story import story

    said = words(opened(overview.layout, run_id="run1"))
    told = story(analyses["pp-1f1b"].to_dict())
    assert told.headline in said
    assert told.advice in said
    assert all(c.value in said and c.detail in said for c in told.cards)


@pytest.mark.parametrize("name", ["tp", "pp-1f1b", "recompute-full"])
def test_the_list_of_runs_says_what_the_report_says(analyses: dict[str, Any], name: str) -> None:
    from tracekit.report.headline import headline

    analysis = getattr(analyses[name], "analysis", analyses[name])
    assert summary_of(analysis).headline == headline(analysis.to_dict())[0]


def test_an_overview_that_is_drawn_ahead_is_not_drawn_again(app: dash.Dash, opened: Open) -> None:
    Ahead(app.server).ready("run1").result(60)
    held = app.server.extensions[EXTENSION].cache
    before = len(held)
    assert "pp-1f1b" in words(opened(overview.layout, run_id="run1"))
    assert len(held) == before > 0


def test_every_figure_of_a_metric_with_something_to_draw_has_a_card(opened: Open) -> None:
    cards = [s.get("id") for s in named(opened(pipeline.layout, run_id="run1"), "Section")]
    assert {"figure-schedule", "figure-bubble_causes", "figure-bubble_by_microbatches", "figure-what_if"} <= set(cards)


def test_every_metric_has_a_place_on_some_page() -> None:
    from dashboard.pages import OWN

    own = {"collectives", "straggler", "clock", "bandwidth", "flight_recorder", "records", "links", "operators", "pipeline", "memory", "recompute"}
    assert own == OWN
    assert {m.name for m in METRICS} >= OWN


def test_what_nobody_simulated_names_the_command_that_does(opened: Open, library: MemoryLibrary, analyses: dict[str, Any]) -> None:
    library.add(row("bare", "bare"), analyses["pp-1f1b"].analysis)
    assert "tracekit simulate RUN" in words(opened(pipeline.layout, run_id="bare"))


@pytest.mark.parametrize(
    ("run_id", "line"),
    [("nobody", "There is no such run"), ("reading", "This run is being read."), ("failed", "rank0.json: no trace (byte 0)")],
)
def test_a_run_without_an_analysis_has_a_page_that_says_so(opened: Open, run_id: str, line: str) -> None:
    assert line in words(opened(overview.layout, run_id=run_id))


def test_a_metric_without_an_answer_gives_its_reason(opened: Open, analyses: dict[str, Any]) -> None:
    page = opened(pipeline.layout, run_id="run3")
    assert sentence(str(analyses["tp"].result("pipeline").reason)) in words(page)
    assert "no pipeline in" not in words(page).lower()
    assert "/runs/run3/overview" in [a["href"] for a in named(page, "A")]
    assert "Nothing was recomputed" in words(opened(recompute.layout, run_id="run1"))


@pytest.mark.parametrize(("source", "tags"), [("measured", ("measured",)), ("closed_form", ("measured", "theory"))])
def test_what_is_saved_is_tagged_by_how_it_came_about(source: str, tags: tuple[str, ...]) -> None:
    layers = pd.DataFrame({"recompute_runs": [1, 0], "saved_source": [source, "closed_form"]})
    view = SimpleNamespace(table=lambda *_: layers)
    assert section._how(view, "recompute_saving", ("measured", "emulated")) == (*tags, "emulated")
    assert section._how(view, "recompute_cost", ("measured",)) == ("measured",)


def test_a_page_that_fails_shows_a_line_and_a_way_on(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise ZeroDivisionError("secret")

    said = words(guarded(fails, "page"))
    assert "ZeroDivisionError" in said
    assert "secret" not in said
    assert "All runs" in said
    assert "secret" in caplog.text


def test_ranks_that_are_still_being_read_are_said_on_every_page(opened: Open, library: MemoryLibrary, analyses: dict[str, Any]) -> None:
    library.add(row("some", "some", partial=True), analyses["tp"])
    assert "Some ranks only." in words(opened(overview.layout, run_id="some"))


@pytest.mark.parametrize(
    ("state", "line"),
    [
        (State.READING, "The others are still being read; numbers will change."),
        (State.CANCELLED, "Reading this run was cancelled before the others were in"),
        (State.FAILED, "Reading this run failed before the others were in"),
    ],
)
def test_whether_more_ranks_will_come_is_said_as_it_is_now(opened: Open, library: MemoryLibrary, analyses: dict[str, Any], state: State, line: str) -> None:
    library.add(row("some", "some", partial=True, state=State.ANALYSING), analyses["tp"])
    opened(overview.layout, run_id="some")
    library.add(row("some", "some", partial=True, state=state))
    said = words(opened(overview.layout, run_id="some"))
    assert (line in said, "still being read" in said) == (True, state is State.READING)
    assert line in words(opened(compare.layout, a="some", b="run3"))
    assert "some ranks only" in words(opened(runs.layout))


def test_a_new_name_stands_on_pages_that_were_drawn_before(opened: Open, library: MemoryLibrary) -> None:
    for layout, query in ((overview.layout, {"run_id": "run3"}), (compare.layout, {"a": "run1", "b": "run3"})):
        library.rename("run3", "name before")
        opened(layout, **query)
        library.rename("run3", "renamed")
        said = words(opened(layout, **query))
        assert ("renamed" in said, "name before" in said) == (True, False)


def test_a_choice_comes_from_the_address_and_narrows_table_csv_and_figure(app: dash.Dash, opened: Open, analyses: dict[str, Any]) -> None:
    page = opened(collectives.layout, run_id="run3", direction="backward", kind="all_reduce")
    selects = {s["id"]["name"]: s["value"] for s in named(page, "Select")}
    assert selects["direction"] == "backward"
    assert selects["axis"] is None
    every = analyses["tp"].result("collectives").tables["instances"]
    wanted = every[every.direction.eq("backward") & every.kind.eq("all_reduce")]
    assert f"{len(wanted):,} of {len(every):,} rows" in words(page)
    got = app.server.test_client().get("/api/runs/run3/tables/collectives/instances.csv?direction=backward&kind=all_reduce").text
    assert len(list(reader.DictReader(io.StringIO(got)))) == len(wanted)
    figure = app.server.test_client().get("/api/runs/run3/figures/layer_cost.json?direction=backward&theme=dark")
    assert json.loads(gzip.decompress(figure.data))["layout"]["paper_bgcolor"] == DARK_SURFACE


def test_what_a_choice_does_not_change_says_so(opened: Open, analyses: dict[str, Any]) -> None:
    whole = "Of the whole run, whatever is chosen."
    step = str(analyses["pp-1f1b"].run()["steps"][0])
    for layout in (pipeline.layout, memory.layout, overview.layout):
        assert whole not in words(opened(layout, run_id="run1"))
        said = words(opened(layout, run_id="run1", step=step))
        assert whole in said and "stay those of the whole run" in said
    assert "stay those of the whole run" in words(opened(collectives.layout, run_id="run3", direction="forward"))
    unchanged = {d.name for d in FIGURES if not d.follows}
    assert unchanged == {"step_waterfall", "late_arrivals", "bubble_causes", "bubble_by_microbatches", "memory_peak", "memory_curve", "activations"}


def test_a_step_that_was_not_recorded_is_complained_of_and_narrows_nothing(opened: Open, analyses: dict[str, Any]) -> None:
    page = opened(collectives.layout, run_id="run3", step="999", direction="forward")
    (step,) = [s for s in named(page, "Select") if s["id"]["name"] == "step"]
    assert (step["value"], step["error"]) == ("999", "there is no such step here")
    every = analyses["tp"].result("collectives").tables["instances"]
    assert f"{int(every.direction.eq('forward').sum()):,} of {len(every):,} rows" in words(page)
    (axis,) = [s for s in named(opened(collectives.layout, run_id="run3", axis="nope"), "Select") if s["id"]["name"] == "axis"]
    assert axis["error"] == "there is no such axis here"


def test_a_page_has_a_heading_where_its_metric_has_no_answer(opened: Open, analyses: dict[str, Any]) -> None:
    assert not analyses["recompute-full"].result("collectives").available
    assert [h["children"] for h in named(opened(collectives.layout, run_id="run2"), "H1")] == ["Collectives"]


def test_a_what_if_is_narrowed_by_the_address_and_judged_against_a_memory(app: dash.Dash, opened: Open, analyses: dict[str, Any]) -> None:
    every = analyses["pp-1f1b"].extra("what_if").tables["alternatives"]
    assert sorted(set(every["microbatches"])) == [8, 16, 32]
    page = opened(pipeline.layout, run_id="run1", microbatches="16", limit="1KB")
    controls = {c["id"]["name"]: c["value"] for kind in ("Select", "TextInput") for c in named(page, kind)}
    assert {name: controls[name] for name in ("microbatches", "limit")} == {"microbatches": "16", "limit": "1KB"}
    assert "gpipe, m=16" in words(page) and "gpipe, m=32" not in words(page)
    assert "is no size" in words(opened(pipeline.layout, run_id="run1", limit="much"))
    as_ran, more = (app.server.test_client().get(f"/api/runs/run1/figures/what_if.csv?microbatches={m}").text for m in (8, 16))
    assert "m=16" in more and "m=16" not in as_ran
    shown = extras.of_pipeline(opened(open_run, "run1"), extras.Asked(limit_bytes=1024))
    assert shown is not None and set(shown.tables["alternatives"]["fits"].dropna()) <= {False} and set(shown.tables["alternatives"]["microbatches"]) == {8}


def test_other_recomputations_stand_on_the_page_of_memory(opened: Open, analyses: dict[str, Any]) -> None:
    told = analyses["recompute-full"].extra("memory_what_if")
    assert told.available, told.reason
    size = 2 * told.summary["microbatch_size"]
    said = words(opened(memory.layout, run_id="run2", size=str(size), limit="1KB"))
    assert f"none, b={size}" in said and f"none, b={size // 2}" not in said
    assert f"Within {size_of(1000)}: none of 5 alternatives." in said
    most = limited(told, 2**30).tables["alternatives"].set_index("label").loc[f"none, b={size}", "largest_microbatch"]
    said = words(opened(memory.layout, run_id="run2", size=str(size), limit="1GiB"))
    assert most > size and f"none, b={size} (up to b={most})" in said
    assert "figure-memory_what_if" in [s.get("id") for s in named(opened(memory.layout, run_id="run2"), "Section")]
    assert "Compute was emulated: no activations of a model are there" in words(opened(memory.layout, run_id="run1"))
    assert "Read it again" in words(opened(memory.layout, run_id="run3"))


def test_words_in_a_what_if_stand_on_the_dark_of_the_page(app: dash.Dash) -> None:
    drawn = app.server.test_client().get("/api/runs/run2/figures/memory_what_if.json?theme=dark&limit=6MiB")
    figure = json.loads(gzip.decompress(drawn.data))
    grounds = {a["bgcolor"] for a in figure["layout"]["annotations"] if "bgcolor" in a}
    assert grounds == {DARK_SURFACE}


def test_rows_of_a_grid_come_sorted_narrowed_and_bounded(opened: Open, analyses: dict[str, Any]) -> None:
    of = {"run": "run3", "metric": "collectives", "table": "instances", "only": {"direction": "forward"}, "columns": ["kind", "wait_max_ns", "nothing"]}
    asked = {"startRow": 0, "endRow": 10**9, "sortModel": [{"colId": "wait_max_ns", "sort": "desc"}, {"colId": "nothing", "sort": "asc"}]}
    got = opened(rows_of, asked, of)
    every = analyses["tp"].result("collectives").tables["instances"]
    assert got["rowCount"] == int(every.direction.eq("forward").sum())
    assert len(got["rowData"]) <= table.BLOCK
    waits = [float(r["wait_max_ns"].replace(",", "")) for r in got["rowData"] if r["wait_max_ns"] != "unknown"]
    assert waits == sorted(waits, reverse=True)
    assert opened(rows_of, asked, {**of, "run": "nobody"}) == {"rowData": [], "rowCount": 0}


def test_how_a_table_is_sorted_and_filtered_stands_in_the_address(app: dash.Dash, opened: Open, analyses: dict[str, Any]) -> None:
    query = {"sort.instances": "kind,-wait_max_ns", "where.instances.kind": "LL_r", "where.instances.nothing": "x"}
    (grid, *_) = named(opened(collectives.layout, run_id="run3", **query), "AgGrid")
    assert {d["field"]: (d["sort"], d["sortIndex"]) for d in grid["columnDefs"] if "sort" in d} == {"kind": ("desc", 0), "wait_max_ns": ("asc", 1)}
    assert grid["filterModel"] == {"kind": {"filterType": "text", "type": "contains", "filter": "LL_r"}}
    every = analyses["tp"].result("collectives").tables["instances"]
    wanted = int(every["kind"].eq("all_reduce").sum())
    assert 0 < wanted < len(every)
    of = {"run": "run3", "metric": "collectives", "table": "instances", "only": {}, "columns": ["kind"]}
    got = opened(rows_of, {"startRow": 0, "endRow": 10, "filterModel": grid["filterModel"]}, of)
    assert (got["rowCount"], {r["kind"] for r in got["rowData"]}) == (wanted, {"all_reduce"})
    saved = app.server.test_client().get("/api/runs/run3/tables/collectives/instances.csv?where.instances.kind=ll_R").text
    assert len(list(reader.DictReader(io.StringIO(saved)))) == wanted
    (plain, *_) = named(opened(collectives.layout, run_id="run3"), "AgGrid")
    assert ([d["field"] for d in plain["columnDefs"] if "sort" in d], plain["filterModel"]) == (["wait_max_ns"], {})


def test_a_page_holds_of_owners_what_stood_on_the_fullest_device() -> None:
    place = {"device_type": ["gpu"] * 3, "device": [0] * 3, "step": pd.array([None] * 3, dtype="Int64")}
    peaks = pd.DataFrame({"rank": [0, 1, 2], **place, "allocated_peak_bytes": [5, 9, 7]})
    owners = pd.DataFrame({"rank": [0, 1, 2], **place, "nbytes": [1, 2, 3], "rule": ["a", "a", "stack_b"]})
    kept = tables.on_page("memory", Result({}, {"peaks": peaks, "owners": owners}))["owners"]
    assert kept["nbytes"].tolist() == [1, 2, 3]  # the first of each rule stays beside them
    kept = tables.on_page("memory", Result({}, {"peaks": peaks, "owners": owners.assign(rule="a")}))["owners"]
    assert kept["nbytes"].tolist() == [1, 2]


def test_long_names_of_a_table_have_room_and_can_be_read(opened: Open, analyses: dict[str, Any]) -> None:
    (grid, *_) = named(opened(collectives.layout, run_id="run3"), "AgGrid")
    told = {d["field"]: (d.get("tooltipField"), d.get("minWidth")) for d in grid["columnDefs"]}
    longest = max(map(len, analyses["tp"].result("collectives").tables["instances"]["layer"].dropna()))
    assert told["layer"] == ("layer", max(108, min(340, 36 + 7 * longest))) and told["nbytes"] == (None, None)


def test_null_reads_unknown_and_a_column_keeps_one_unit() -> None:
    frame = pd.DataFrame({"wait_ns": pd.array([1_500_000, None, 20], dtype="Int64"), "name": ["=a", "b", "c"]})
    assert table.headers(frame, ["wait_ns"]) == {"wait_ns": "wait (ms)"}
    assert table.block(frame, ["wait_ns", "name"], 1, 3) == [{"wait_ns": "unknown", "name": "b"}, {"wait_ns": "20 ns", "name": "c"}]


def test_a_null_that_is_no_gap_in_what_is_known_says_what_it_is() -> None:
    peaks = pd.DataFrame({"step": pd.array([None, 4], dtype="Int64"), "input_bytes": pd.array([None, 1], dtype="Int64")})
    assert table.block(peaks, ["step", "input_bytes"], 0, 2, of="memory.peaks")[0] == {"step": "whole trace", "input_bytes": "unknown"}
    sent = pd.DataFrame({"needs_receive": [False, True], "transfer_start_ns": pd.array([None, None], dtype="Int64")})
    assert [r["transfer_start_ns"] for r in table.block(sent, ["transfer_start_ns"], 0, 2, of="pipeline.actions")] == ["none", "unknown"]
    layers = pd.DataFrame({"layer": ["head", None], "layer_index": pd.array([None, None], dtype="Int64")})
    assert [r["layer_index"] for r in table.block(layers, ["layer_index"], 0, 2, of="collectives.instances")] == ["none", "unknown"]


def test_a_narrowed_table_has_the_unit_and_the_zero_of_its_own_rows() -> None:
    frame = pd.DataFrame({"step": [0, 1, 1], "wait_ns": [2_000_000_000, 300_000, 100_000], "start_ns": [5, 7_000, 9_000]})
    rows = table.shown(frame, {"step": "1"})
    columns = ["wait_ns", "start_ns"]
    heads = table.headers(rows, columns)
    assert list(heads.values()) == ["wait (µs)", "start (µs), since the first"]
    assert table.block(rows, columns, 0, 9, heads=heads) == [{"wait_ns": "300.0", "start_ns": "0"}, {"wait_ns": "100.0", "start_ns": "2.000"}]
    stale = {"wait_ns": "wait (s)", "start_ns": heads["start_ns"]}
    assert [r["wait_ns"] for r in table.block(rows, columns, 0, 9, heads=stale)] == ["300 µs", "100 µs"]


def test_a_narrowed_grid_is_headed_by_the_unit_of_its_own_rows() -> None:
    frame = pd.DataFrame({"step": [0, 1], "wait_ns": [2_000_000_000, 300_000]})
    drawn = table.table(SimpleNamespace(id="r", table=lambda *_: frame), "m", "t", "Waits", ["wait_ns"], {"step": "1"})
    assert [d["headerName"] for d in named(drawn, "AgGrid")[0]["columnDefs"]] == ["wait (µs)", "step"]


def test_csv_holds_numbers_as_they_are_and_no_formula() -> None:
    frame = pd.DataFrame({"name": ["=1+1", "+x", "-x", "@x", "\tx", "plain"], "wait_ns": pd.array([-1, None, 2, 3, 4, 5], dtype="Int64")})
    rows = list(reader.reader(io.StringIO("".join(csv.frame(frame)))))
    assert [r[0] for r in rows[1:]] == ["'=1+1", "'+x", "'-x", "'@x", "'\tx", "plain"]
    assert [r[1] for r in rows[1:]] == ["-1", "", "2", "3", "4", "5"]


def test_a_figure_leaves_as_the_numbers_that_it_draws(app: dash.Dash) -> None:
    got = app.server.test_client().get("/api/runs/run1/figures/memory_peak.csv")
    rows = list(reader.DictReader(io.StringIO(got.text)))
    assert got.headers["Content-Disposition"] == 'attachment; filename="run1-memory_peak.csv"'
    assert {r["y"] for r in rows} == {"rank 0", "rank 1", "rank 2", "rank 3"}


def test_what_compute_hides_does_not_shine_in_the_dark(app: dash.Dash) -> None:
    ask = app.server.test_client()
    light, dark = (gzip.decompress(ask.get(f"/api/runs/run3/figures/layer_cost.json?theme={s}").data).decode() for s in ("light", "dark"))
    assert HIDDEN in light and HIDDEN not in dark


def test_what_a_figure_shows_leaves_with_units_and_names_and_not_as_places_on_a_scale(app: dash.Dash) -> None:
    late = app.server.test_client().get("/api/runs/run3/figures/late_arrivals.csv").text
    rows = list(reader.DictReader(io.StringIO(late)))
    axis, unit = next(r["series"].split(": after the median, ")[0] for r in rows), rows[0]["series"].split("after the median, ")[1].split(",")[0]
    means = {r["y"]: float(r["x"]) for r in rows if r["series"] == f"{axis}: mean, {unit}"}
    cells = [float(r["z"]) for r in rows if r["series"].startswith(f"{axis}: after the median, {unit}") and r["y"] == "rank 0"]
    assert set(means) == {"rank 0", "rank 1"}
    assert means["rank 0"] == pytest.approx(sum(cells) / len(cells), rel=0.05)
    waterfall = app.server.test_client().get("/api/runs/run1/figures/step_waterfall.csv").text.splitlines()
    assert waterfall[0] == "series,x (ms),y,from,of"
    assert {line.split(",")[0] for line in waterfall[1:]} <= {"stays", "could come back at best"}


@pytest.mark.parametrize(
    "path", ["runs/nobody/figures/schedule.json", "runs/run1/figures/nothing.json", "runs/run1/tables/x/y.csv", "compare/run1/nobody/budgets.json"]
)
def test_what_is_not_there_is_404(app: dash.Dash, path: str) -> None:
    assert app.server.test_client().get(f"/api/{path}").status_code == 404


def test_dark_figures_change_paper_and_ink_and_leave_data_and_the_letters_on_bars() -> None:
    figure = {
        "data": [{"name": "white", "x": ["#FFFFFF"], "marker": {"color": "#4477AA", "line": {"color": "white"}}, "insidetextfont": {"color": ["white"]}}],
        "layout": {"paper_bgcolor": "white", "font": {"color": "#1F2933"}},
    }
    dark = restyled(figure, "dark")
    assert dark["data"][0] == {
        "name": "white",
        "x": ["#FFFFFF"],
        "marker": {"color": "#4477AA", "line": {"color": DARK_SURFACE}},
        "insidetextfont": {"color": ["white"]},
    }
    assert dark["layout"]["paper_bgcolor"] == DARK_SURFACE
    assert restyled(figure, "light") is figure
    soft = [restyled({"data": [{"type": kind, "marker": {"color": theme.SOFT}}]}, "dark")["data"][0]["marker"]["color"] for kind in ("bar", "scatter")]
    assert soft == ["#5F6E80", "#A4B0BF"]  # white letters stand on bars


def test_names_from_traces_are_plain_text_and_never_markdown(opened: Open, library: MemoryLibrary, analyses: dict[str, Any]) -> None:
    library.add(row("evil", "<img src=x onerror=alert(1)>", tags=("[a](javascript:b)",)), analyses["tp"])
    page = opened(overview.layout, run_id="evil")
    assert "<img src=x onerror=alert(1)>" in words(page)
    assert named(page, "Markdown") == []
    assert named(opened(runs.layout), "Markdown") == []


def test_the_list_is_searched_narrowed_and_kept_until_it_changes(opened: Open, library: MemoryLibrary) -> None:
    assert "pp-1f1b" in words(opened(runs.layout, q="1f1b"))
    assert "recompute-full" not in words(opened(runs.layout, q="1f1b"))
    assert "recompute-full" in words(opened(runs.layout, tag="recompute"))
    assert "No run matches." in words(opened(runs.layout, q="nothing of that name"))
    _, digest = runs.refreshed(None, {})
    assert runs.refreshed(digest, {}) == (dash.no_update, dash.no_update)
    assert runs.refreshed(digest, {"pick": "run1"}) == (dash.no_update, dash.no_update)
    library.rename("run1", "another")
    assert "another" in words(runs.refreshed(digest, {})[0])


def test_what_is_ticked_stays_through_a_search_and_a_change_of_the_list(opened: Open, library: MemoryLibrary) -> None:
    def ticked(node: Any) -> list[tuple[str, bool]]:
        return [(c["id"]["run"], c["checked"]) for c in named(node, "Checkbox")]

    assert ticked(opened(runs.layout, q="1f1b", pick="run2,nobody,reading")) == [("run2", True), ("run1", False)]
    assert ticked(opened(runs.layout, q="nothing of that name", pick="run3")) == [("run3", True)]
    library.rename("run1", "another")
    assert ("run2", True) in ticked(opened(runs.refreshed, "old", {"pick": "run2"})[0])


def test_runs_are_renamed_tagged_and_deleted(opened: Open, library: MemoryLibrary) -> None:
    opened(runs.done, "edit-save", "run1", " new name ", ["a", " "])
    assert (library.held["run1"].name, library.held["run1"].tags) == ("new name", ("a",))
    assert "cannot be undone" in opened(runs.opened, "delete", "run1")[3]
    opened(runs.done, "delete-no", "run1", None, None)
    assert "run1" in library.held
    opened(runs.done, "delete-yes", "run1", None, None)
    assert "run1" not in library.held
    opened(runs.done, "edit-save", "run1", "too late", [])
    assert "run1" not in library.held and opened(runs.opened, "edit", "run1")[:2] == (False, False)


def test_of_several_tabs_each_names_its_run(opened: Open, library: MemoryLibrary) -> None:
    library.rename("run1", "7 B, <b>")
    titles = {page["path_template"] or page["path"]: page["title"] for page in dash.page_registry.values()}
    of_run = titles["/runs/<run_id>/memory"]
    assert [opened(of_run, "run1"), opened(of_run, "gone"), titles["/compare"]] == ["Memory · 7 B, <b> · tracekit", "Memory · tracekit", "Compare · tracekit"]


def test_no_runs_at_all_is_a_page_too(opened: Open, library: MemoryLibrary) -> None:
    library.held.clear()
    assert "No runs yet" in words(opened(runs.layout))


def test_runs_that_differ_are_shown_without_a_claim_unless_asked(opened: Open) -> None:
    said = words(opened(compare.layout, a="run1", b="run3"))
    assert "These runs are not comparable" in said
    assert "no difference is claimed" in said
    assert "the largest difference first" not in said
    assert "the largest difference first" in words(opened(compare.layout, a="run1", b="run3", anyway="1"))


def test_runs_that_are_alike_say_that_there_are_no_statistics(opened: Open, library: MemoryLibrary, analyses: dict[str, Any]) -> None:
    library.add(row("again", "again"), analyses["tp"])
    said = words(opened(compare.layout, a="run3", b="again"))
    assert "no statistics: one run each" in said
    assert "not comparable" not in said


def test_definitions_hold_every_metric_and_are_searched(opened: Open) -> None:
    anchors = {a.get("id") for a in named(opened(definitions.layout), "Article")}
    assert anchors >= {f"metric-{m.name}" for m in METRICS}
    assert len(named(opened(definitions.layout, q="bubble"), "Article")) < len(anchors)
    assert "Nothing is defined" in words(opened(definitions.layout, q="zzz"))


def test_an_unknown_address_has_a_page(opened: Open) -> None:
    assert "There is no such page" in words(opened(not_found_404.layout))


def test_navigation_knows_the_run_and_where_it_is(opened: Open) -> None:
    head, links = opened(around, "/runs/run1/memory", "2")
    here = [a["children"] for a in named(links, "A") if a.get("aria-current") == "page"]
    assert here == ["Memory"]
    assert "/runs/run1/pipeline?step=2" in [a["href"] for a in named(links, "A")]
    assert "pp-1f1b" in words(head)
    assert place("/runs/run1") == ("run1", "overview")
    assert set(RUN_PAGES) >= {"overview", "collectives", "pipeline", "memory", "recompute", "timeline"}


def test_pages_are_registered_from_their_modules() -> None:
    assert all(hasattr(module, "layout") for module, _, _ in pages())
    assert len({path for _, path, _ in pages()}) == len(pages())


def test_a_page_is_made_once_per_generation(opened: Open, library: MemoryLibrary) -> None:
    first = opened(overview.layout, run_id="run3")
    assert opened(overview.layout, run_id="run3") is first
    from dataclasses import replace

    library.held["run3"] = replace(library.held["run3"], generation=2)
    assert opened(overview.layout, run_id="run3") is not first


def test_documents_of_pages_leave_out_only_what_no_section_reads(opened: Open, analyses: dict[str, Any]) -> None:
    view = opened(open_run, "run3")
    whole = analyses["tp"].to_dict()
    assert view.metric("budget")["tables"] == whole["metrics"]["budget"]["tables"]
    assert view.metric("collectives")["tables"]["by_layer"] == whole["metrics"]["collectives"]["tables"]["by_layer"]


def test_a_table_that_a_section_adds_up_is_never_cut(opened: Open, analyses: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.tables.MOST_ROWS", 1)
    view, whole = opened(open_run, "run3"), analyses["tp"].to_dict()["metrics"]
    for metric, name in (("step_time", "steps"), ("breakdown", "devices"), ("budget", "ranks"), ("memory", "peaks"), ("collectives", "by_layer")):
        assert len(whole[metric]["tables"][name]) > 1
        assert view.metric(metric)["tables"][name] == whole[metric]["tables"][name]
    assert view.steady() == analyses["tp"].steady_steps
    listed = view.metric("clock")
    assert (len(listed["tables"]["ranks"]), listed["notes"][-1]) == (1, "Of the 2 rows of ranks 1 are counted here; the report of tracekit analyze has all.")
    waits = {"instances": pd.DataFrame({"caused_wait_ns": range(65)})}
    assert tables.cut("straggler", Result({}, waits)) == ["Of the 65 rows of instances 64 are counted here; the report of tracekit analyze has all."]


def test_the_cache_is_bounded_by_bytes_and_forgets_the_oldest() -> None:
    cache = ByteCache(3 * (100 + OVERHEAD))
    made: list[str] = []

    def get(key: str, size: int = 100) -> str:
        return cache.get(key, lambda: made.append(key) or key, lambda _: size)

    for key in ("a", "b", "c", "a", "d", "a", "b"):
        assert get(key) == key
    assert made == ["a", "b", "c", "d", "b"]
    get("huge", 10_000)
    assert cache.nbytes <= 3 * (100 + OVERHEAD)
    assert "".join(made).count("huge") == 1


def test_figures_that_are_added_later_appear(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    from dashboard.components import drawings

    more = dataclasses.replace(next(f for f in FIGURES if f.metric == "budget"), name="new_one")
    monkeypatch.setattr(drawings, "FIGURES", (*FIGURES, more))
    assert "figure-new_one" in [s.get("id") for s in named(opened(overview.layout, run_id="run2"), "Section")]
    assert isinstance(opened(open_run, "run2").analysis.result("budget"), Result)


def test_results_that_are_damaged_lead_to_reading_the_run_again(opened: Open, library: MemoryLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(_: str) -> None:
        raise InputError("a damaged stored analysis (the checksum of x differs); analyse the traces again", "/a/path/of/the/server")

    monkeypatch.setattr(library, "analysis", damaged)
    page = opened(overview.layout, run_id="run2")
    assert "A damaged stored analysis (the checksum of x differs). The files that were uploaded are kept apart" in words(page)
    assert "/a/path" not in words(page)
    assert [a["href"] for a in named(page, "A")] == ["/job/run2?again=yes", "/"]
    _, links = opened(around, "/runs/run2/overview")
    assert [link.href for link in links if getattr(link, "href", "").startswith("/runs/")]


def test_a_figure_that_fails_leaves_the_numbers_of_its_page(opened: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    import dataclasses

    from dashboard.components import drawings

    def fails(*_: Any) -> None:
        raise KeyError("column")

    broken = dataclasses.replace(next(f for f in FIGURES if f.name == "step_budget"), draw=fails)
    monkeypatch.setattr(drawings, "FIGURES", (broken,))
    page = opened(overview.layout, run_id="run2")
    assert "Step budget this figure could not be drawn" in words(page)
    assert "A step takes" in words(page)
    assert "KeyError" in caplog.text
