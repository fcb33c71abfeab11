"""One comment on a pull request, found by its last line: whose is it, when is it written, and what if it may not be?"""

from __future__ import annotations

import json

import pytest

from tests.regression.fake_github import GitHub, github
from tracekit.cli import main
from tracekit.forges import ForgeError, Outcome, PullRequest, comment

TAG = "<!-- tracekit: tp2 -->"
SLOWER, CLEAN = f"REGRESSED: step +7 %\n\n{TAG}\n", f"UNCHANGED\n\n{TAG}\n"


@pytest.fixture
def api(monkeypatch, tmp_path):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "GH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with github() as state:
        (tmp_path / "event.json").write_text(json.dumps({"pull_request": {"number": 7}}))
        for name, value in {
            "GITHUB_API_URL": state.address,
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
            "GITHUB_TOKEN": "ghs_job",
        }.items():
            monkeypatch.setenv(name, value)
        yield state


def said(api: GitHub, body: str, *, news: bool, token: str = "ghs_job") -> Outcome:
    return comment(PullRequest("o/r", 7, api.address), token, body, news=news)


@pytest.mark.parametrize("token", ["ghs_job", "ghp_person"])
def test_one_comment_is_written_once_and_edited_from_then_on_also_to_say_that_all_is_well(api, token):
    for n in range(5):
        api.say("somebody", "User", f"comment {n}")
    assert said(api, CLEAN, news=False, token=token) == Outcome.SILENT
    assert said(api, SLOWER, news=True, token=token) == Outcome.CREATED
    assert said(api, SLOWER, news=True, token=token) == Outcome.KEPT
    assert said(api, CLEAN, news=False, token=token) == Outcome.EDITED
    assert api.changes == ["POST", "PATCH"]
    assert [c["body"] for c in api.comments][5:] == [CLEAN]


def test_a_tag_that_somebody_else_wrote_is_no_comment_of_ours(api):
    api.say("mallory", "User", f"all is well, merge it\n{TAG}")
    api.say("github-actions[bot]", "Bot", f"{TAG}\nquoted in the middle")
    api.say("github-actions[bot]", "Bot", "another scenario\n<!-- tracekit: pp4 -->")
    assert said(api, SLOWER, news=True) == Outcome.CREATED
    assert api.comments[0]["body"].startswith("all is well") and len(api.comments) == 4


def test_the_command_finds_the_pull_request_and_is_silent_where_nothing_changed(api, tmp_path, capsys):
    (tmp_path / "c.md").write_text(SLOWER)
    assert main(["comment", str(tmp_path / "c.md")]) == 0
    assert main(["comment", str(tmp_path / "c.md"), "--pr", "7", "--always"]) == 0
    assert capsys.readouterr().err.splitlines() == ["comment created", "comment left as it is: it says this already"]
    (tmp_path / "event.json").write_text(json.dumps({"ref": "refs/heads/main"}))
    assert main(["comment", str(tmp_path / "c.md")]) == 0
    assert "no job of a pull request" in capsys.readouterr().err
    assert api.changes == ["POST"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"GITHUB_TOKEN": "ghs_fork"}, "GitHub answered 403 (Resource not accessible by integration): the token may not comment here"),
        ({"GITHUB_TOKEN": "ghs_wrong"}, "GitHub answered 401"),
        ({"GITHUB_TOKEN": ""}, "there is no token"),
        ({"GITHUB_TOKEN": "ghs_two\nlines"}, "holds characters that no token has"),
        ({"GITHUB_REPOSITORY": "o/r/../x"}, "is no repository"),
        ({"GITHUB_REPOSITORY": "o/gone"}, "GitHub answered 404"),
        ({"GITHUB_API_URL": "file:///etc"}, "is no root of an API"),
        ({"GITHUB_API_URL": "http://127.0.0.1:9"}, "cannot be reached"),
    ],
)
def test_what_cannot_be_commented_is_one_line_and_no_failure(api, monkeypatch, tmp_path, capsys, changed, words):
    for name, value in changed.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "c.md").write_text(SLOWER)
    assert main(["comment", str(tmp_path / "c.md")]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: no comment: ") and words in line
    assert "ghs_" not in line
    assert not api.comments


def test_an_old_comment_that_may_not_be_edited_is_not_called_clean(api):
    api.say("github-actions[bot]", "Bot", SLOWER)
    with pytest.raises(ForgeError, match="403"):
        said(api, CLEAN, news=False, token="ghs_fork")


def test_what_is_no_comment_is_refused(api, tmp_path, capsys):
    (tmp_path / "c.md").write_text("no tag")
    assert main(["comment", str(tmp_path / "c.md")]) == 4
    assert main(["comment", str(tmp_path / "none.md")]) == 4
    assert len(capsys.readouterr().err.splitlines()) == 2
