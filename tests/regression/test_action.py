"""The action, run as GitHub would: what fails, what is said and where, and what nobody can make it do.

Its install step is told to install nothing (``version: none``) and to use the Python that runs the tests.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
import yaml

from tests.conftest import REPOSITORY
from tests.regression import composite
from tests.regression.documents import report
from tests.regression.fake_github import github

ACTION = REPOSITORY / "action.yml"
HOSTILE = "tp2 $(touch owned) `touch owned`\n::error::owned\"; touch owned; '"


@pytest.fixture
def api():
    with github() as state:
        yield state


@pytest.fixture
def act(tmp_path, api):
    """Runs the action in a workspace with the inputs and context that it is given."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "tracekit.toml").write_text("resamples = 100\n")
    count = iter(range(100))

    def run(inputs, event_name="pull_request", event=None, ref_name="7/merge", token="ghs_job"):
        scratch = tmp_path / f"runner-{next(count)}"
        scratch.mkdir()
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "SYSTEMROOT")}
        (scratch / "event.json").write_text(json.dumps(event or {"pull_request": {"number": 7}}))
        job = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_API_URL": api.address,
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_SHA": "c" * 40,
            "GITHUB_EVENT_PATH": str(scratch / "event.json"),
            "RUNNER_TEMP": str(scratch),
            "HOME": str(scratch),
        }
        context = {"event_name": event_name, "event": event or {"pull_request": {"number": 7}}, "ref_name": ref_name, "token": token}
        given = {"version": "none", "python": sys.executable, **inputs}
        return composite.run(ACTION, given, context, kept | job, workspace, scratch)

    run.workspace = workspace
    return run


def runs(act, name, number=8, **more):
    folder = act.workspace / name
    folder.mkdir(parents=True)
    for n in range(number):
        (folder / f"{n}.json").write_text(json.dumps(report(step_ms=100 + n / 10, **more)))
    return name


def git(folder, *arguments):
    return subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True).stdout


def test_a_pull_request_that_regresses_then_is_mended(act, api):
    from tracekit.cli import main

    assert main(["baseline", "add", str(act.workspace / runs(act, "base")), "--baseline", str(act.workspace / "kept"), "--scenario", HOSTILE]) == 0
    runs(act, "heads/$(touch owned)", count={1: 2})
    common = {"baseline": "kept", "scenario": HOSTILE, "ignore": "\n", "artifact": "report-$(touch owned)"}

    worse = act({**common, "head": "heads/*touch owned*\n"})
    assert worse.exit_code == 1 and worse.outputs["exit-code"] == "1", worse.log
    assert worse.outputs["verdict"] == "regressed" and "all-reduce of layer 1" in worse.outputs["sentence"]
    assert "regressed" in worse.summary and "all-reduce of layer 1" in worse.summary
    assert 1 <= len(worse.annotations) <= 5 and not any(line.startswith("::error::owned") for line in worse.annotations)
    (upload,) = worse.used
    assert upload[0].startswith("actions/upload-artifact@") and upload[1]["name"] == "report-$(touch owned)"
    written = {p.name for p in composite.Path(upload[1]["path"]).iterdir()}
    assert written == {"comparison.json", "comment.md", "report.html", "junit.xml"}
    assert worse.outputs["report"] == upload[1]["path"] + "/report.html"
    assert len(api.comments) == 1 and "all-reduce of layer 1" in api.comments[0]["body"]

    mended = act({**common, "head": "base"})
    assert (mended.exit_code, mended.outputs["verdict"], mended.annotations) == (0, "unchanged", [])
    assert len(api.comments) == 1 and "all-reduce of layer 1" not in api.comments[0]["body"]
    assert not list(act.workspace.parent.rglob("owned")) and not list(REPOSITORY.glob("owned"))


def test_the_default_branch_makes_the_baseline_and_pushes_it(act, api):
    git(act.workspace, "init", "--quiet", "--initial-branch=main")
    git(act.workspace.parent, "init", "--quiet", "--bare", "origin.git")
    git(act.workspace, "remote", "add", "origin", str(act.workspace.parent / "origin.git"))
    runs(act, "head", 1)
    asked = {"head": "head", "baseline": "git:kept", "save-baseline": "true"}
    main_branch = {"event": {"repository": {"default_branch": "main"}}, "ref_name": "main"}

    before = list(api.comments)
    first = act(asked, event_name="push", **main_branch)
    assert (first.exit_code, first.outputs["verdict"]) == (0, "no_baseline"), first.log
    assert "no baseline yet" in first.summary and api.comments == before
    assert "at cccccccccccc" in git(act.workspace.parent / "origin.git", "log", "--format=%s", "kept")

    others = {"event": {"repository": {"default_branch": "main"}, "pull_request": {"number": 7}}, "ref_name": "main"}
    theirs = act({**asked, "head": runs(act, "theirs", 1, count={1: 2})}, event_name="pull_request_target", token="ghs_fork", **others)
    assert theirs.exit_code == 1 and "Add to the baseline" not in theirs.logs
    assert git(act.workspace.parent / "origin.git", "rev-list", "--count", "kept").strip() == "1"
    # there is news, but a token that may not comment: one line
    assert "warning: no comment: GitHub answered 403" in theirs.logs["Comment"] and api.comments == before


def test_what_is_unreadable_fails_with_its_own_code(act):
    (act.workspace / "head.json").write_text('{"schema": "tracekit.report/1"')
    ran = act({"head": "head.json", "baseline": "kept", "comment": "never"})
    assert (ran.exit_code, ran.outputs["exit-code"], ran.outputs["report"]) == (4, "4", "")


def test_every_action_that_is_used_is_pinned_and_every_input_explained():
    document = yaml.safe_load(ACTION.read_text())
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", s["uses"]) for s in document["runs"]["steps"] if "uses" in s)
    assert all(len(entry["description"]) > 15 for entry in (*document["inputs"].values(), *document["outputs"].values()))
    shown = (REPOSITORY / "docs" / "ci.md").read_text()
    assert [name for name in document["inputs"] if f"`{name}`" not in shown] == []


def test_the_examples_use_what_there_is(capsys):
    from tracekit.cli import main

    folder = REPOSITORY / "docs" / "examples"
    steps = yaml.safe_load((folder / "github-workflow.yml").read_text())["jobs"]["gate"]["steps"]
    assert set(steps[-1]["with"]) <= set(yaml.safe_load(ACTION.read_text())["inputs"])
    script = "\n".join(yaml.safe_load((folder / "gitlab-ci.yml").read_text())["training speed"]["script"])
    assert (main(["check", "--help"]), main(["baseline", "--help"])) == (0, 0)
    known = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    assert set(re.findall(r"(?<= )--[a-z][a-z-]+", script[script.index("tracekit check") :])) <= known
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("inputs.a == 'X' && github.ref || 'none'", "r"),
        ("!inputs.b && steps.c.outputs.d", None),
        ("(inputs.a != 'x' || always()) && !failure()", True),
    ],
)
def test_expressions_are_read_as_github_reads_them(expression, expected):
    assert composite.value(expression, {"inputs": {"a": "x", "b": ""}, "github": {"ref": "r"}, "steps": {}}, False) == expected
