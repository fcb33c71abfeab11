"""The command line: one line and the right exit code for whatever goes wrong, one document for machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.report.builder import pipeline, tp
from tracekit import analysis as analysis_module
from tracekit.cli import COMMANDS, main
from tracekit.errors import InputError, RunFailed


@pytest.fixture
def analysed(monkeypatch):
    """``analyze`` answers with an analysis made by hand and keeps what it was asked."""
    asked = {}

    def fake(paths, *, workers=None, progress=None, **more):
        asked.update(paths=paths, workers=workers, **more)
        progress(1, 2, "rank 0")
        progress(2, 2, "rank 1")
        return tp()

    monkeypatch.setattr(analysis_module, "analyze", fake)
    return asked


def failing(monkeypatch, error):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(analysis_module, "analyze", fail)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.__name__)
def test_every_command_has_help_with_an_example_that_calls_it(command, capsys):
    assert main([command.__name__, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"Usage: tracekit {command.__name__}" in out
    assert "Examples:" in out and f"\n    tracekit {command.__name__}" in out


def test_the_help_lists_every_command(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {c.__name__} " in out for c in COMMANDS)


def test_the_version(capsys):
    from tracekit import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tracekit {__version__}\n"


def test_a_report_goes_to_stdout_as_plain_text_when_it_is_no_terminal(analysed, capsys):
    assert main(["analyze", "runs/a", "runs/b", "--workers", "3"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("tracekit: tp") and "\x1b" not in out and err == ""
    assert [str(p) for p in analysed["paths"]] == ["runs/a", "runs/b"] and analysed["workers"] == 3


def test_json_is_one_strict_document_on_stdout_and_files_are_named_on_stderr(analysed, capsys, tmp_path):
    assert main(["analyze", "x", "--json", "--html", str(tmp_path / "r.html"), "--markdown", str(tmp_path / "r.md")]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out, parse_constant=pytest.fail)["schema"] == "tracekit.report/1"
    assert err.splitlines() == [f"wrote {tmp_path / 'r.html'}", f"wrote {tmp_path / 'r.md'}"]
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>") and (tmp_path / "r.md").read_text().startswith("# tracekit")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.html", "r.md"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["analyse"], "No such command"),
        (["analyze"], "PATH"),
        (["analyze", "x", "--nonsense"], "--nonsense"),
        (["metrics", "speed"], "no metric 'speed'"),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(arguments, words, capsys):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and words in err


def test_a_folder_that_is_missing_is_told_before_the_traces_are_read(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("tracekit.analysis.analyze", lambda *a, **k: pytest.fail("read the traces first"))
    assert main(["analyze", "x", "--markdown", str(tmp_path / "missing" / "r.md")]) == 2
    assert main(["analyze", "x", "--html", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_a_report_that_cannot_be_written_is_a_usage_error(analysed, capsys, tmp_path):
    assert main(["analyze", "x", "--html", str(tmp_path / "missing" / "r.html")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "missing" in err and "folder" in err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InputError("no such file or folder; check the path", "runs/x"), 4, "tracekit: runs/x: no such file or folder; check the path\n"),
        (InputError("the file ends early; record it again", "r0.json.gz", 4096), 4, "tracekit: r0.json.gz: byte 4,096: the file ends early; record it again\n"),
        (RunFailed("rank 1 of tp failed: boom"), 1, "tracekit: rank 1 of tp failed: boom\n"),
        (InputError("bad\nname\x1b[2J", "a\nb"), 4, "tracekit: a�b: bad�name�[2J\n"),
        (ZeroDivisionError("division by zero"), 70, "tracekit: a bug of tracekit: ZeroDivisionError: division by zero; rerun with --debug and report it\n"),
        (KeyboardInterrupt(), 130, "tracekit: interrupted\n"),
    ],
)
def test_whatever_goes_wrong_is_one_line_without_a_traceback(error, code, line, monkeypatch, capsys):
    failing(monkeypatch, error)
    assert main(["analyze", "x", "--json"]) == code
    assert capsys.readouterr() == ("", line)


@pytest.mark.parametrize("error", [InputError("cut", "a"), ZeroDivisionError()])
def test_debug_shows_the_traceback_before_the_line(error, monkeypatch, capsys):
    failing(monkeypatch, error)
    main(["analyze", "x", "--debug"])
    err = capsys.readouterr().err
    assert err.startswith("Traceback") and err.splitlines()[-1].startswith("tracekit: ")


def test_a_missing_path_a_folder_without_traces_and_a_file_that_is_none_exit_4(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.json").write_text("hello")
    for path in ("nowhere", "empty", "text.json"):
        assert main(["analyze", str(tmp_path / path)]) == 4
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and path in err


def test_metrics_are_listed_with_their_definitions(capsys):
    from tracekit.metrics import METRICS

    assert main(["metrics"]) == 0
    out = capsys.readouterr().out
    assert all(f"{m.name}: {m.question}" in out for m in METRICS)
    assert main(["metrics", "breakdown", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [m["name"] for m in document["metrics"]] == ["breakdown"] and document["metrics"][0]["definition"]


def test_a_terminal_gets_tables_and_no_color_is_heeded(analysed, capsys, monkeypatch):
    monkeypatch.setattr("tracekit.cli.screen.rich_terminal", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "")
    assert main(["analyze", "x"]) == 0
    out = capsys.readouterr().out
    assert "╭" in out and "\x1b[3" not in out


def test_the_help_loads_neither_pandas_nor_plotly_nor_torch():
    code = (
        "import sys; from tracekit.cli import main; assert main(['--help']) == 0;print([m for m in ('pandas', 'plotly', 'torch', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_a_reader_that_goes_away_is_no_error():
    code = (
        "import sys; from tests.report.builder import tp; import tracekit.analysis as a; a.analyze = lambda *x, **y: tp(ranks=512);"
        "from tracekit.cli import main; sys.exit(main(['analyze', 'x', '--json']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(Path.cwd())}
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(60) == 0 and err == b""


def test_a_progress_line_is_written_to_a_log_only_when_it_takes_long(capsys, monkeypatch):
    from tracekit.cli import screen

    now = [0.0]
    monkeypatch.setattr(screen.time, "monotonic", lambda: now[0])
    with screen.meter() as progress:
        progress(1, 9, "rank 0")
        now[0] = 6.0
        progress(2, 9, "rank 1\x1b[2J")
    assert capsys.readouterr().err == "2 of 9: rank 1�[2J\n"


def test_an_emulated_run_is_called_emulated_on_the_screen(analysed, monkeypatch, capsys):
    monkeypatch.setattr(analysis_module, "analyze", lambda *a, **k: pipeline())
    assert main(["analyze", "x"]) == 0
    assert "EMULATED COMPUTE" in capsys.readouterr().out.splitlines()[0]
