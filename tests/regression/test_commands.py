"""tracekit compare, check and baseline: every exit code, one document for machines, and lines that a person can read."""

from __future__ import annotations

import json

import pytest

from tests.regression.documents import report
from tracekit.baselines import Store
from tracekit.cli import main
from tracekit.compare import snapshot
from tracekit.settings import files


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
        ["compare", "a", "b", "--limit", "step_time_ns <= 1e999"],
        ["check", "a", "--baseline", "~nobody-of-this-name/x"],
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
    for row in nasty["metrics"]["budget"]["tables"]["ranks"]:
        row["part"] = row["part"].replace("idle", "::error::x\x1b]0;owned\x07\u202e\n::error::")
    (tmp_path / "nasty.json").write_text(json.dumps(nasty))
    kept = snapshot(nasty).to_dict()
    kept["timed"] += [{"metric": name, "where": {"axis": name}, "value": 1.0} for name in ("\x1b[31m_ns", "\n::error::", "::warning::y")]
    kept["facts"] += [{"metric": "::notice::\x1b", "where": {}, "value": "\x1b\n::error::"}]
    kept["fingerprint"]["::error::\x1b"] = "\n::error::"
    (tmp_path / "kept.json").write_text(json.dumps(kept))
    base = runs(tmp_path, "a", 1)
    for arguments in ([base, "nasty.json"], [base, "kept.json"], ["kept.json", "nasty.json", "--allow-incomparable"]):
        main(["compare", *arguments])
        out = capsys.readouterr().out
        assert "error: :" in out
        assert not set(out) & {"\x1b", "\x07", "\u202e"} and not any(line.lstrip().startswith("::") for line in out.splitlines())


HUGE = 10**400


def damaged(metric, table, **cells):
    made = report()
    for row in made["metrics"][metric]["tables"][table]:
        row.update(cells)
    return made


@pytest.mark.parametrize(
    "head",
    [
        damaged("breakdown", "devices", step=[]),
        damaged("collectives", "instances", nbytes=[]),
        damaged("collectives", "instances", axis=[], direction={}),
        damaged("budget", "ranks", rank={}, part=[], device=[[]]),
        damaged("step_time", "steps", capture={}, window_ns=HUGE),
        damaged("breakdown", "devices", kernels=HUGE, compute_ns=-HUGE),
        damaged("step_time", "steps", window_ns=1e308, step=HUGE),
        report(device_names=7),
        report(device_names=["\ud800"], world_size=HUGE, mesh={"tp\udfff": 2}),
    ],
    ids=range(9),
)
def test_a_report_that_makes_no_sense_is_no_bug_of_ours(tmp_path, capsys, head):
    base = runs(tmp_path, "a", 2)
    (tmp_path / "b.json").write_text(json.dumps(head))
    for more in ([], ["--json"]):
        assert main(["compare", base, "--", "b.json", *more, "--allow-incomparable"]) in (0, 1, 3)
        assert capsys.readouterr().out.encode()
    assert main(["baseline", "add", "b.json", "--baseline", "store", "--commit", "c"]) == 0
    assert main(["check", "b.json", "--baseline", "store", "--json"]) in (0, 1, 3)


def test_a_setup_with_an_infinite_number_is_refused(tmp_path, capsys):
    base = runs(tmp_path, "a", 1)
    (tmp_path / "b.json").write_text(json.dumps(report(world_size=7)).replace('"world_size": 7', '"world_size": 1e999'))
    assert main(["compare", base, "b.json"]) == 4
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_store_beside_the_configuration_is_found_from_a_subfolder(tmp_path, monkeypatch, capsys):
    (tmp_path / "tracekit.toml").write_text('baseline = "store"\n')
    base = runs(tmp_path, "a", 6)
    assert main(["baseline", "add", base, "--commit", "c"]) == 0
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert main(["check", base]) == 0


def test_check_reads_each_snapshot_once_and_the_configuration_once(tmp_path, monkeypatch, capsys):
    for n in range(6):
        main(["baseline", "add", runs(tmp_path, f"m{n}", 1, 100 + n), "--baseline", "store", "--commit", f"c{n}"])
    (tmp_path / "tracekit.toml").write_text("window = 3\n")
    read: list[str] = []
    snapshot_of, parsed = Store.snapshot, files._parsed
    monkeypatch.setattr(Store, "snapshot", lambda self, entry: read.append("snapshot") or snapshot_of(self, entry))
    monkeypatch.setattr(files, "_parsed", lambda path: read.append("file") or parsed(path))
    main(["check", str(tmp_path / "m0"), "--baseline", "store"])
    assert (read.count("snapshot"), read.count("file")) == (3, 1)


def test_a_damaged_snapshot_of_another_setup_blocks_nobody(tmp_path, capsys):
    own, other = runs(tmp_path, "a", 6), runs(tmp_path, "b", 1, device_names=["A100"])
    assert main(["baseline", "add", own, "--baseline", "store", "--commit", "c0"]) == 0
    before = {*tmp_path.glob("store/objects/*/*.json")}
    assert main(["baseline", "add", other, "--baseline", "store", "--commit", "c1"]) == 0
    (of_other,) = {*tmp_path.glob("store/objects/*/*.json")} - before
    of_other.write_text("{}")
    capsys.readouterr()
    assert main(["check", own, "--baseline", "store"]) == 0
    assert "left out: " in capsys.readouterr().err
    assert main(["check", runs(tmp_path, "d", 6, device_names=["B200"]), "--baseline", "store"]) == 3
    # of its own setup it does, and says what to do
    assert main(["check", other, "--baseline", "store"]) == 4
    assert "add the run again" in capsys.readouterr().err
    assert main(["baseline", "add", other, "--baseline", "store", "--commit", "c1"]) == 0
    capsys.readouterr()
    assert main(["check", other, "--baseline", "store", "--json"]) == 0
    assert len(document(capsys)["base"]) == 1


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
