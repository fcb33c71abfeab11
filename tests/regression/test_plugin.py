"""pytest with tracekit: how a test ends, what it says, and what stays in the store; each run is a project of its own, in this process."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import sys
from importlib.metadata import entry_points

import pytest

from tests.conftest import REPOSITORY
from tests.regression.documents import report
from tracekit.baselines import open_store

PAGE = (REPOSITORY / "docs" / "pytest.md").read_text()
CHECKED = """
import pytest
def test_step(tracekit):
    tracekit.assert_no_regression(tracekit.analyze("head.json"))
"""


def limited(*limits, body="tracekit.analyze('head.json')"):
    return f"import pytest\n@pytest.mark.tracekit_budget({', '.join(map(repr, limits))})\ndef test_step(tracekit):\n    {body}\n"


#: tracekit is here already when these runs begin, which is what the second one is about.
WARNINGS = ("-W", "error", "-W", "ignore::pytest.PytestAssertRewriteWarning")
#: What a run imports it forgets at its end, and libraries in C cannot be imported twice.
BEFORE = ("scipy.special", "tracekit.analysis", "tracekit.baselines.rolling", "tracekit.report.regression", "tracekit.settings")


class Project:
    """A user's project: one file of tests, one baseline, and what the step is now."""

    def __init__(self, pytester):
        self.pytester, self.path = pytester, pytester.path
        (self.path / ".git").mkdir()

    def tests(self, text):
        (self.path / "test_it.py").write_text(text)

    def step(self, **options):
        self.document(report(**options))

    def document(self, document):
        (self.path / "head.json").write_text(json.dumps(document))

    def run(self, *arguments):
        return self.pytester.runpytest_inprocess("-p", "no:dash", "-p", "no:cacheprovider", *WARNINGS, "--tracekit-baseline", "kept", *arguments)

    def says(self, *arguments, **outcomes):
        """The output of a run that must end with these outcomes."""
        done = self.run(*arguments)
        done.assert_outcomes(**outcomes)
        return done.stdout.str()


@pytest.fixture(scope="module", autouse=True)
def _imported():
    for name in BEFORE:
        importlib.import_module(name)


@pytest.fixture(scope="module")
def _torch():
    for name in ("torch", "torch._inductor", "tracekit.recorder"):
        pytest.importorskip(name)


@pytest.fixture
def project(pytester, monkeypatch):
    for name in ("XDG_CONFIG_HOME", "TRACEKIT_BASELINE", "TRACEKIT_INCONCLUSIVE", "TRACEKIT_MISSING_BASELINE"):
        monkeypatch.delenv(name, raising=False)
    made = Project(pytester)
    made.tests(CHECKED)
    made.step()
    return made


def test_pytest_finds_the_plugin_by_itself():
    assert [e.value for e in entry_points(group="pytest11") if e.name == "tracekit"] == ["tracekit.pytest_plugin"]


def test_kept_then_checked(project):
    assert "tracekit: 1 recording, 1 kept as baseline" in project.says("--tracekit-update", passed=1)
    project.step(step_ms=103.0)
    out = project.says(passed=1)
    assert "tracekit: 1 recording, 1 unchanged in its facts" in out and "REGRESSED" not in out


def test_an_extra_collective_fails_the_test_with_the_comparison(project):
    project.says("--tracekit-update", passed=1)
    project.step(count={2: 2})
    out = project.says("--tracekit-report", "out", failed=1)
    assert "AssertionError: REGRESSED: all-reduce of layer 2 (tp, forward): calls per step 1 → 2; step unchanged" in out
    assert "Facts that changed" in out and "layers.2" in out and "--tracekit-reason" in out
    assert "tracekit: 1 recording, 1 regressed" in out
    (folder,) = (project.path / "out").iterdir()
    written = {p.name: json.loads(p.read_text())["schema"] for p in folder.iterdir()}
    assert written == {"report.json": "tracekit.report/1", "comparison.json": "tracekit.comparison/1"}
    assert json.loads((folder / "comparison.json").read_text())["exit_code"] == 1


@pytest.mark.parametrize(("setting", "outcome"), [(None, "skipped"), ("pass", "passed"), ("fail", "failed")])
def test_without_a_baseline(project, setting, outcome, monkeypatch):
    if setting:
        monkeypatch.setenv("TRACEKIT_MISSING_BASELINE", setting)
    out = project.says("-rs", **{outcome: 1})
    assert "1 without baseline" in out and "keep this run with --tracekit-update" in out


def test_the_projects_limits_need_no_baseline(project, monkeypatch):
    monkeypatch.setenv("TRACEKIT_LIMITS", "step_time_ns <= 50 ms")
    assert "AssertionError: REGRESSED: limit step_time_ns <= 50 ms is broken; no baseline yet" in project.says(failed=1)


def test_without_a_store_it_says_how_to_name_one(project):
    out = project.says("-rs", "--tracekit-baseline", "", skipped=1)
    assert "--tracekit-baseline FOLDER" in out
    assert "none is named: --tracekit-baseline FOLDER" in project.says("--tracekit-update", "--tracekit-baseline", "", failed=1)


@pytest.mark.parametrize(("setting", "outcome"), [(None, "skipped"), ("pass", "passed"), ("fail", "failed")])
def test_another_setup_is_incomparable(project, setting, outcome, monkeypatch):
    project.says("--tracekit-update", passed=1)
    if setting:
        monkeypatch.setenv("TRACEKIT_INCONCLUSIVE", setting)
    project.step(mesh={"tp": 4})
    assert "not the same setup: mesh.tp 2 → 4" in project.says("-rs", **{outcome: 1})


def test_what_regressed_is_kept_only_with_a_reason(project):
    project.says("--tracekit-update", passed=1)
    project.step(count={2: 2})
    assert "not kept as baseline, for it regressed" in project.says("--tracekit-update", failed=1)
    assert "on purpose" in project.says("--tracekit-update", "--tracekit-reason", "on purpose", passed=1)
    project.says(passed=1)
    entries, wrong = open_store(str(project.path / "kept")).entries("test_it.py::test_step")
    assert [e.reason for e in entries] == [None, "on purpose"] and wrong == []


@pytest.mark.parametrize("arguments", [("--tracekit-reason", "why"), ("--tracekit-update", "--tracekit-reason", " ")])
def test_options_that_make_no_sense(project, arguments):
    done = project.run(*arguments)
    assert done.ret == pytest.ExitCode.USAGE_ERROR and "--tracekit-reason" in done.stderr.str()


@pytest.mark.parametrize(
    ("limits", "setting", "outcome", "line"),
    [
        (("exposed_comm_ratio <= 10 %", "step_time_ns <= 101 ms"), None, "passed", "tracekit: 1 recording"),
        (("exposed_comm_ratio <= 0.01",), None, "failed", "limit exposed_comm_ratio <= 0.01 is broken: it is 8.0 %"),
        (("bubble_ratio <= 0.15",), None, "failed", "limit bubble_ratio <= 0.15 cannot be held: the job has no pipeline"),
        (("bubble_ratio <= 0.15",), "pass", "passed", "1 unknown against its limit"),
        (("bubble_ratio less 0.15",), None, "errors", "tracekit_budget: 'bubble_ratio less 0.15' is no limit"),
        ((3,), None, "errors", "tracekit_budget: '3' is no limit"),
        ((), None, "errors", "tracekit_budget names no limit"),
    ],
)
def test_limits(project, limits, setting, outcome, line, monkeypatch):
    if setting:
        monkeypatch.setenv("TRACEKIT_INCONCLUSIVE", setting)
    project.tests(limited(*limits))
    out = project.says(**{outcome: 1})
    assert line in out and "Traceback" not in out and "INTERNALERROR" not in out


@pytest.mark.parametrize(
    ("body", "outcome", "line"),
    [
        ("pass", "failed", "the test recorded nothing to hold to it"),
        ("tracekit.assert_no_regression(tracekit.analyze('head.json'))", "failed", "limit peak_memory_bytes <= 1 MiB is broken"),
        ("pytest.skip('no GPU here')", "skipped", "no GPU here"),
        ("assert 1 == 2", "failed", "assert 1 == 2"),
    ],
)
def test_limits_need_a_recording_and_no_baseline(project, body, outcome, line):
    project.tests(limited("peak_memory_bytes <= 1 MiB", body=body))
    assert line in project.says("-rs", **{outcome: 1})


def test_two_recordings_of_one_test_need_names(project):
    both = "def test_step(tracekit):\n    for name in {}:\n        tracekit.assert_no_regression(tracekit.analyze('head.json'), scenario=name)\n"
    project.tests(both.format("(None, None)"))
    assert "give each its own, scenario=" in project.says("--tracekit-update", failed=1)
    project.tests(both.format("('a', 'b')"))
    assert "KEPT AS BASELINE test_it.py::test_step: as b in " in project.says("--tracekit-update", passed=1)


def test_several_runs_are_one_side(project):
    for side, step_ms in (("base", 100.0), ("head", 110.0)):
        (project.path / side).mkdir()
        for n in range(8):
            (project.path / side / f"{n}.json").write_text(json.dumps(report(step_ms=step_ms * (1 + n / 1000))))
    several = "def test_step(tracekit):\n    runs = tracekit.analyze('{}')\n    assert len(runs.snapshots) == len(runs.reports) == 8\n"
    several += "    tracekit.assert_no_regression(runs)\n"
    project.tests(several.format("base"))
    project.says("--tracekit-update", passed=1)
    project.tests(several.format("head"))
    assert "REGRESSED: step +10.0 % [" in project.says(failed=1)


def test_hostile_ids_stay_in_their_folders(project):
    ids = ["../../../x", "a" * 3000, "a" * 3001, "\x1b[31m::error::", "\u202egnp", "日本", "日_本", "%0A", "con.", " "]
    project.tests(
        f"import pytest\n@pytest.mark.parametrize('n', range({len(ids)}), ids={ids!a})\ndef test_step(tracekit, n):\n"
        "    tracekit.assert_no_regression(tracekit.analyze('head.json'))\n"
    )
    before = {p.name for p in project.path.iterdir()} | {"kept", "out"}
    unescaped = "disable_test_id_escaping_and_forfeit_all_rights_to_community_support=true"
    project.says("-o", unescaped, "--tracekit-update", "--tracekit-report", "out", passed=len(ids))
    assert {p.name for p in project.path.iterdir()} - {"__pycache__"} == before
    assert len(list((project.path / "out").iterdir())) == len(ids)
    entries, wrong = open_store(str(project.path / "kept")).entries()
    assert len({e.scenario for e in entries}) == len(ids) and wrong == []
    assert all(e.scenario.isprintable() and len(e.scenario) < 400 for e in entries)


def test_a_damaged_trace_is_one_line(project):
    (project.path / "head.json").write_text('{"schema": "tracekit.report/1", "metrics": ')
    out = project.says(failed=1)
    assert "tracekit.errors.InputError: head.json: this is damaged JSON" in out and "inputs.py" not in out


def test_the_projects_own_store_and_what_is_over_it(project, monkeypatch):
    (project.path / "pyproject.toml").write_text("[tool.tracekit]\nbaseline = 'of-project'\n[tool.pytest.ini_options]\ntracekit_baseline = 'of-ini'\n")
    run = lambda *more: project.pytester.runpytest_inprocess("-p", "no:dash", "--tracekit-update", *more).assert_outcomes(passed=1)  # noqa: E731
    run()
    monkeypatch.setenv("TRACEKIT_BASELINE", "of-environment")
    run()
    run("--tracekit-baseline", "of-command")
    project.tests(CHECKED.replace("'head.json'", "'head.json'").replace('"head.json")', '"head.json"), baseline="of-test"'))
    run("--tracekit-baseline", "of-command")
    assert {p.name for p in project.path.iterdir() if p.name.startswith("of-")} == {"of-ini", "of-environment", "of-command", "of-test"}


def test_an_account_survives_the_way_from_another_process(project, request):
    """As pytest-xdist sends reports: as JSON."""
    sent = []

    class Wire:
        @staticmethod
        def pytest_runtest_logreport(report):
            sent.append(json.loads(json.dumps(request.config.hook.pytest_report_to_serializable(config=request.config, report=report))))

    project.pytester.inline_run("-p", "no:dash", "--tracekit-baseline", "kept", "--tracekit-update", plugins=[Wire()])
    told = [vars(request.config.hook.pytest_report_from_serializable(config=request.config, data=d)).get("tracekit") for d in sent]
    assert told[:2] == [None, None] and told[2]["recordings"] == 1 and told[2]["findings"][0][0] == "kept as baseline"


def test_without_torch_a_recording_is_skipped(project, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    project.tests("def test_step(tracekit):\n    tracekit.record(lambda: None)\n")
    assert "pip install 'tracekit-train[recorder]'" in project.says("-rs", skipped=1)


LOOP = """

def test_loop(tracekit):
    layer = nn.Linear(4, 4)
    with tracekit.record(steps=1, warmup=0, model=layer) as recording:
        layer(torch.ones(4)).sum().backward()
        recording.step()
    assert (recording.paths[0] / "run.json").is_file()
    with pytest.raises(Exception, match="no whole step was recorded: 1 ended, 1 of them for warm-up"):
        with tracekit.record(model=layer) as recording:
            recording.step()
    assert len(tracekit.record(lambda: layer(torch.ones(4)), steps=1, warmup=0, runs=2).paths) == 2
    with torch.profiler.profile(), pytest.raises(Exception, match="the recording failed: .*another profiler is running already"):
        tracekit.record(lambda: None)
"""


def test_the_page_trains_a_model_and_holds_it_to_its_baseline(_torch, project):
    test, settings = (re.search(rf"```{language}\n(.*?)```", PAGE, re.S)[1] for language in ("python", "toml"))
    (project.path / "pyproject.toml").write_text(settings)
    keep, check, accept = (shlex.split(line)[1:] for line in re.findall(r"^pytest.*$", PAGE, re.M))

    def says(arguments, **outcomes):
        done = project.pytester.runpytest_inprocess("-p", "no:dash", *WARNINGS, *arguments)
        done.assert_outcomes(**outcomes)
        return done.stdout.str()

    looked = test.replace("    tracekit.assert", "    assert recording.analysis.to_dict() == recording.report\n    tracekit.assert")
    project.tests(looked + LOOP)
    assert "3 recordings, 1 kept as baseline" in says(keep, passed=2)
    project.tests(test)
    says(check, passed=1)
    longer = test.replace("model(torch.randn(8, 16))", "model(torch.randn(8, 16)).sigmoid()")
    assert longer != test
    project.tests(longer)
    assert "REGRESSED: kernels per step on rank 0 35 → 37" in says(check, failed=1)
    assert "sigmoid on the output" in says(accept, passed=1)
