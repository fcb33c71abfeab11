"""tracekit compare, check and baseline: every exit code, one document for machines, and lines that a person can read."""

from __future__ import annotations

import json

import pytest

from tests.regression.documents import report
from tracekit.cli import main


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A folder without any configuration, whatever the machine has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    (tmp_path / ".git").mkdir()


def runs(folder, name, number, step_ms=100.0, **more):
    """Files of so many reports, whose steps differ by a per mille each."""
    folder = folder / name
    folder.mkdir()
    for n in range(number):
        (folder / f"{n}.json").write_text(json.dumps(report(step_ms=step_ms * (1 + n / 1000), **more)))
    return str(folder)


def document(capsys):
    return json.loads(capsys.readouterr().out)


def test_0_where_nothing_changed(tmp_path, capsys):
    base, head = runs(tmp_path, "a", 8), runs(tmp_path, "b", 8)
    assert main(["compare", base, head]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "UNCHANGED: step unchanged"
    assert "base 8 runs, head 8 runs" in out and "can see" in out


def test_1_where_the_head_regressed_with_the_cause_in_the_first_line(tmp_path, capsys):
    base, head = runs(tmp_path, "a", 8), runs(tmp_path, "b", 8, 107.0, transfer_ms={2: 4.5, 3: 4.5})
    assert main(["compare", base, "--", head]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("REGRESSED: step +7.0 % [") and "all-reduce of layers 2–3 exposed +5.00 ms" in first


def test_1_where_a_limit_is_broken(tmp_path, capsys):
    base, head = runs(tmp_path, "a", 1), runs(tmp_path, "b", 1)
    assert main(["compare", base, head, "--limit", "step_time_ns <= 50 ms"]) == 1
    assert capsys.readouterr().out.startswith("REGRESSED: limit step_time_ns <= 50 ms is broken")


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "a"],
        ["compare", "a", "b", "c"],
        ["compare", "a", "--"],
        ["compare", "a", "--", "b", "--", "c"],
        ["compare", "a", "b", "--inconclusive", "maybe"],
        ["compare", "a", "b", "--limit", "nonsense"],
        ["check", "a"],
        ["check", "a", "--baseline", "s", "--missing-baseline", "maybe"],
        ["baseline", "forget", "--baseline", "s"],
        ["baseline", "add", "--baseline", "s"],
        ["baseline", "accept", "a", "--baseline", "s"],
        ["baseline", "list", "a", "--baseline", "s"],
        ["baseline", "list"],
    ],
)
def test_2_where_the_command_makes_no_sense(arguments, tmp_path, capsys):
    runs(tmp_path, "a", 1), runs(tmp_path, "b", 1)
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert not said.out and said.err.startswith("tracekit: ") and len(said.err.splitlines()) == 1


def test_3_where_runs_are_too_few_unless_it_is_asked_otherwise(tmp_path, capsys):
    base, head = runs(tmp_path, "a", 1), runs(tmp_path, "b", 1, 100.1)
    assert main(["compare", base, head]) == 3
    assert "5 on each side would do" in capsys.readouterr().out
    assert main(["compare", base, head, "--inconclusive", "pass"]) == 0
    assert main(["compare", base, head, "--inconclusive", "fail"]) == 1


def test_3_where_the_setups_differ(tmp_path, capsys):
    base, head = runs(tmp_path, "a", 8), runs(tmp_path, "b", 8, device_names=["A100"])
    assert main(["compare", base, head]) == 3
    assert capsys.readouterr().out.startswith("INCOMPARABLE: not the same setup: device_names H200 → A100")
    assert main(["compare", base, head, "--ignore", "device_names"]) == 0
    assert main(["compare", base, head, "--allow-incomparable"]) == 0


@pytest.mark.parametrize("text", ['{"schema": "tracekit.report/1", "metrics"', '{"schema": "tracekit.report/1", "a": NaN}', '{"schema": "tracekit.study/1"}'])
def test_4_where_an_input_cannot_be_read(tmp_path, capsys, text):
    head = runs(tmp_path, "b", 1)
    (tmp_path / "broken.json").write_text(text)
    assert main(["compare", "broken.json", head]) == 4
    assert "broken.json" in capsys.readouterr().err
    assert main(["compare", "missing.json", head]) == 4


def test_4_where_a_report_nests_without_end(tmp_path, capsys):
    head = runs(tmp_path, "b", 1)
    (tmp_path / "deep.json").write_text('{"schema": "tracekit.report/1", "metrics": ' + "[" * 200_000)
    assert main(["compare", "deep.json", head]) == 4


def test_5_where_there_is_no_baseline_yet(tmp_path, capsys):
    head = runs(tmp_path, "b", 1)
    assert main(["check", head, "--baseline", "store"]) == 5
    assert "tracekit baseline add" in capsys.readouterr().err
    assert main(["check", head, "--baseline", "store", "--missing-baseline", "pass", "--json"]) == 0
    assert document(capsys)["verdict"] is None


def test_70_where_it_is_a_bug_of_ours(tmp_path, monkeypatch, capsys):
    from tracekit import compare as package

    monkeypatch.setattr(package, "compare", lambda *a, **k: 1 / 0)
    assert main(["compare", runs(tmp_path, "a", 1), runs(tmp_path, "b", 1)]) == 70
    assert "a bug of tracekit: ZeroDivisionError" in capsys.readouterr().err


def test_the_document_is_whole_and_alone_on_stdout(tmp_path, capsys):
    base, head = runs(tmp_path, "a", 8), runs(tmp_path, "b", 8, count={1: 2})
    assert main(["compare", base, "--", head, "--json"]) == 1
    made = document(capsys)
    assert (made["schema"], made["verdict"], made["exit_code"]) == ("tracekit.comparison/1", "regressed", 1)
    row = next(r for r in made["metrics"] if r["verdict"] == "regressed")
    assert (row["metric"], row["base"], row["head"], row["where"]["layer"]) == ("collective_bytes", 1024, 2048, "layers.1")
    step = next(r for r in made["metrics"] if r["metric"] == "step_time_ns")
    assert step["verdict"] == "unchanged" and step["base_runs"] == 8 and step["detectable"] > 0 and step["low"] <= step["shift"] <= step["high"]
    assert len(made["base"]) == 8 and made["fingerprint"]["differs"] == [] and made["attribution"].keys() == {"parts", "layers"}


def test_names_from_files_cannot_command_a_terminal(tmp_path, capsys):
    nasty = report(count={1: 2})
    for table in ("by_layer", "instances"):
        for row in nasty["metrics"]["collectives"]["tables"][table]:
            row["layer"] = row["layer"].replace("layers.1", "x\x1b]0;owned\x07\u202e\n::error::")
    (tmp_path / "nasty.json").write_text(json.dumps(nasty))
    main(["compare", runs(tmp_path, "a", 1), "nasty.json"])
    out = capsys.readouterr().out
    assert not set(out) & {"\x1b", "\x07", "\u202e"} and not any(line.startswith("::") for line in out.splitlines())


def test_check_against_a_rolling_baseline(tmp_path, capsys):
    for n in range(4):
        base = runs(tmp_path, f"main{n}", 3, 100 + n / 10)
        assert main(["baseline", "add", base, "--baseline", "store", "--scenario", "tp2", "--commit", f"c{n}"]) == 0
    same, slow = runs(tmp_path, "same", 6), runs(tmp_path, "slow", 6, 110.0)
    capsys.readouterr()
    assert main(["check", same, "--baseline", "store", "--scenario", "tp2", "--json"]) == 0
    made = document(capsys)
    assert (made["scenario"], len(made["base"])) == ("tp2", 12)
    assert main(["check", slow, "--baseline", "store", "--scenario", "tp2"]) == 1
    assert main(["check", same, "--baseline", "store", "--scenario", "other"]) == 5
    assert main(["baseline", "accept", slow, "--baseline", "store", "--scenario", "tp2", "--reason", "bigger", "--commit", "c9"]) == 0
    assert main(["check", slow, "--baseline", "store", "--scenario", "tp2"]) == 0
    capsys.readouterr()
    assert main(["baseline", "list", "--baseline", "store"]) == 0
    assert capsys.readouterr().out.count("accepted: bigger") == 6
    assert main(["baseline", "prune", "--baseline", "store", "--keep", "1", "--json"]) == 0
    assert len(document(capsys)["entries"]) == 12


def test_check_names_the_setup_that_differs(tmp_path, capsys):
    main(["baseline", "add", runs(tmp_path, "a", 6), "--baseline", "store", "--commit", "c"])
    capsys.readouterr()
    assert main(["check", runs(tmp_path, "b", 6, device_names=["A100"]), "--baseline", "store"]) == 3
    assert "device_names H200 → A100" in capsys.readouterr().out


def test_ten_times_one_percent_is_seen(tmp_path, capsys):
    for n in range(10):
        main(["baseline", "add", runs(tmp_path, f"m{n}", 3, 100 * 1.01**n), "--baseline", "store", "--commit", f"c{n}"])
    capsys.readouterr()
    assert main(["check", runs(tmp_path, "head", 3, 100 * 1.01**10), "--baseline", "store", "--json"]) == 1
    made = document(capsys)
    crept = next(d for d in made["drift"] if d["metric"] == "step_time_ns")
    assert crept["verdict"] == "regressed" and 0.03 < crept["shift"] < 0.11 and len(crept["values"]) == 11
    assert made["sentence"].startswith("step time crept +")


def test_the_projects_own_rules_are_heeded(tmp_path, capsys):
    (tmp_path / "tracekit.toml").write_text(
        '[metrics.step_time_ns]\nseverity = "warn"\n[metrics."collective_*"]\nbetter = "none"\n[metrics.kernel_count]\nbetter = "none"\n'
    )
    assert main(["compare", runs(tmp_path, "a", 1), runs(tmp_path, "b", 1, 100.1, count={1: 2})]) == 0
