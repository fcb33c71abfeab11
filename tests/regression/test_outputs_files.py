"""tracekit compare, check and render write what they are asked for, whole, beside one document on stdout."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from tests.regression.documents import report
from tests.regression.test_outputs_formats import read_outputs
from tracekit.cli import main


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A folder without any configuration, whatever the machine has, and no runner of GitHub's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.json").write_text(json.dumps(report()))
    (tmp_path / "b.json").write_text(json.dumps(report(count={1: 2})))


EVERY = ["--save", "c.json", "--markdown", "c.md", "--junit", "c.xml", "--gitlab", "q.json", "--gitlab", "m.txt", "--github"]
FILES = ("c.json", "c.md", "c.xml", "q.json", "m.txt")


@pytest.fixture
def runner(tmp_path, monkeypatch):
    """The files that a step of GitHub Actions gets."""
    for name, start in (("GITHUB_STEP_SUMMARY", "before\n"), ("GITHUB_OUTPUT", "earlier=1\n")):
        (tmp_path / name).write_text(start)
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path


def test_everything_at_once_and_one_document_on_stdout(runner, capsys):
    assert main(["compare", "a.json", "b.json", *EVERY, "--json"]) == 1
    said = capsys.readouterr()
    made = json.loads(said.out)
    assert json.loads((runner / "c.json").read_text()) == made and made["verdict"] == "regressed"
    assert (runner / "c.md").read_text().startswith("❌ **Regressed**: all-reduce of layer 1 (tp, forward): calls per step 1 → 2")
    assert ElementTree.parse(runner / "c.xml").getroot().get("failures") not in (None, "0")
    assert json.loads((runner / "q.json").read_text())[0]["check_name"] == "tracekit.facts"
    assert (runner / "m.txt").read_text().endswith("# EOF\n")
    summary, outputs = (runner / "GITHUB_STEP_SUMMARY").read_text(), (runner / "GITHUB_OUTPUT").read_text()
    assert summary.startswith("before\n### tracekit\n\n❌ **Regressed**")
    assert read_outputs(outputs.removeprefix("earlier=1\n")) == {"verdict": "regressed", "sentence": made["sentence"], "exit_code": "1"}
    commands = [line for line in said.err.splitlines() if line.startswith("::")]
    assert 2 <= len(commands) <= 5 and commands[0].startswith("::error title=tracekit%3A regressed::all-reduce")
    assert not [p.name for p in runner.iterdir() if p.name.endswith(".partial")]


def test_a_kept_comparison_renders_to_the_same_files(runner, capsys):
    main(["compare", "a.json", "b.json", *EVERY])
    first = {name: (runner / name).read_bytes() for name in FILES}
    text = capsys.readouterr().out
    kept = (runner / "c.json").rename(runner / "kept.json")
    for name in FILES[1:]:
        (runner / name).unlink()
    assert main(["render", str(kept), *EVERY]) == 0
    assert {name: (runner / name).read_bytes() for name in FILES} == first
    assert capsys.readouterr().out == text


def test_no_baseline_is_said_everywhere(runner, capsys):
    assert main(["check", "a.json", "--baseline", "store", *EVERY, "--json"]) == 5
    said = capsys.readouterr()
    assert json.loads(said.out)["verdict"] is None and json.loads(said.out)["exit_code"] == 5
    assert "tracekit baseline add" in said.err and "::" not in said.err
    for name in ("c.json", "c.md", "c.xml", "q.json", "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
        assert "no baseline yet" in (runner / name).read_text(), name
    assert "no_baseline" in (runner / "GITHUB_OUTPUT").read_text()
    assert main(["check", "a.json", "--baseline", "store", "--missing-baseline", "pass", "--save", "c.json"]) == 0
    assert json.loads((runner / "c.json").read_text())["exit_code"] == 0
    assert main(["check", "a.json", "--baseline", "store", "--missing-baseline", "pass", "--limit", "step_time_ns <= 50 ms"]) == 1


def test_outside_of_github_one_line_says_so(tmp_path, capsys):
    assert main(["compare", "a.json", "b.json", "--github"]) == 1
    told = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("::")]
    assert told == ["--github: GITHUB_STEP_SUMMARY and GITHUB_OUTPUT not set, so this is no step of GitHub Actions; going on without"]


def test_a_summary_that_is_full_or_cannot_be_written_changes_no_verdict(runner, monkeypatch, capsys):
    (runner / "GITHUB_STEP_SUMMARY").write_bytes(b"x" * (1 << 20))
    monkeypatch.setenv("GITHUB_OUTPUT", str(runner / "missing" / "file"))
    assert main(["compare", "a.json", "b.json", "--github"]) == 1
    said = capsys.readouterr().err
    assert "is full" in said and "cannot write" in said
    assert (runner / "GITHUB_STEP_SUMMARY").stat().st_size == 1 << 20


@pytest.mark.parametrize("options", [["--html", "missing/x.html"], ["--junit", "x", "--markdown", "./x"], ["--gitlab", "x.xml"], ["--save", "."]], ids=" ".join)
def test_2_before_anything_is_read_where_a_file_makes_no_sense(options, capsys):
    assert main(["compare", "nowhere", "b.json", *options]) == 2
    said = capsys.readouterr()
    assert not said.out and len(said.err.splitlines()) == 1


@pytest.fixture
def kept(tmp_path, capsys):
    main(["compare", "a.json", "b.json", "--save", "kept.json"])
    capsys.readouterr()
    return json.loads((tmp_path / "kept.json").read_text())


def first_row(kept, **cells):
    return {**kept, "metrics": [{**kept["metrics"][0], **cells}, *kept["metrics"][1:]]}


@pytest.mark.parametrize(
    "damage",
    [
        lambda k: {**k, "schema": "tracekit.report/1"},
        lambda k: {**k, "metrics": "x"},
        lambda k: {**k, "verdict": "fine"},
        lambda k: {**k, "sentence": None},
        lambda k: {n: v for n, v in k.items() if n != "fingerprint"},
        lambda k: first_row(k, title=7),
        lambda k: first_row(k, where=[]),
        lambda k: first_row(k, shift="1"),
        lambda k: first_row(k, base=10**400),
        lambda k: {**k, "history": [{"metric": "m", "title": "t", "commits": ["a"], "values": []}]},
        lambda k: {**k, "rules": {"deep": json.loads("[" * 50 + "]" * 50)}},
    ],
    ids=range(11),
)
def test_4_where_a_kept_comparison_is_none(damage, kept, tmp_path, capsys):
    (tmp_path / "kept.json").write_text(json.dumps(damage(kept)))
    assert main(["render", "kept.json", *EVERY]) == 4
    said = capsys.readouterr()
    assert not said.out
    assert said.err.startswith("tracekit: kept.json: ") and len(said.err.splitlines()) == 1 and "bug" not in said.err


@pytest.mark.parametrize(
    "text", ['{"schema": "tracekit.comparison/1"', "[" * 200_000, '{"schema": NaN}', "[]", ""], ids=["cut", "deep", "nan", "list", "empty"]
)
def test_4_where_the_file_is_no_json_of_ours(text, tmp_path, capsys):
    (tmp_path / "kept.json").write_text(text)
    assert main(["render", "kept.json"]) == 4
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert main(["render", "missing.json"]) == 4
