"""The gate of this repository: does what it keeps tell an added all-reduce and a dropped recomputation from another machine?"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from types import ModuleType

import pytest

from tests.conftest import REPOSITORY
from tracekit.baselines import open_store
from tracekit.cli import main
from tracekit.compare import Snapshot
from tracekit.compare.keys import key


def gate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gate", REPOSITORY / ".ci" / "gate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GATE = gate()


@pytest.fixture
def checked(tmp_path, monkeypatch, capsys):
    """Checks a changed run of a scenario as the gate does: the exit code and the first line."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def check(scenario, change):
        store = open_store(str(REPOSITORY / ".ci" / "baseline"))
        kept = store.snapshot(store.entries(scenario)[0][-1])
        (tmp_path / "run.json").write_text(json.dumps(change(kept).to_dict()))
        code = main(GATE.arguments(scenario, tmp_path / "run.json", None))
        return code, capsys.readouterr().out.splitlines()[0]

    return check


def elsewhere(run: Snapshot) -> Snapshot:
    """The same program on a machine that is three times as slow, with another build of torch and of its products."""
    facts = {k: v + 7 if k.metric == "kernel_count" else v for k, v in run.facts.items()}
    return replace(run, fingerprint={**run.fingerprint, "torch": "2.13.0", "gloo": "x"}, timed={k: 3 * v for k, v in run.timed.items()}, facts=facts)


def one_more(run: Snapshot) -> Snapshot:
    """An all-reduce that nothing had asked for."""
    where = {"axis": "tp", "kind": "all_reduce", "direction": "gradient"}
    return replace(run, facts={**run.facts, key("collective_count", **where): 1, key("collective_bytes", **where): 32})


def one_less(run: Snapshot) -> Snapshot:
    """A layer that is no longer computed again."""
    return replace(run, facts={k: v for k, v in run.facts.items() if (k.metric, k.place("layer")) != ("recompute_runs", "layers.1")})


def unread(run: Snapshot) -> Snapshot:
    """A run whose collectives can no longer be read."""
    facts = {k: v for k, v in run.facts.items() if not k.metric.startswith("collective_")}
    return replace(run, facts=facts, missing={**run.missing, "collective_count": "no collectives", "collective_bytes": "no collectives"})


@pytest.mark.parametrize(
    ("scenario", "change", "code", "words"),
    [
        ("tp2-recompute", elsewhere, 0, "UNCHANGED"),
        ("pp2-1f1b", elsewhere, 0, "UNCHANGED"),
        ("tp2-recompute", one_more, 1, "all-reduce (tp, gradient): calls per step 0 → 1"),
        ("tp2-recompute", one_less, 1, "REGRESSED"),
        ("tp2-recompute", unread, 3, "INCOMPARABLE"),
        ("pp2-1f1b", lambda run: replace(run, facts={**run.facts, key("schedule"): "gpipe"}), 1, "1f1b → gpipe"),
        ("pp2-1f1b", lambda run: replace(run, facts={**run.facts, key("p2p_count", direction="forward"): 3}), 1, "REGRESSED"),
    ],
)
def test_the_gate_fails_where_the_program_changed_and_only_there(checked, scenario, change, code, words):
    ended, first = checked(scenario, change)
    assert ended == code, first
    assert words in first


def test_every_run_of_the_gate_has_its_baseline():
    store = open_store(str(REPOSITORY / ".ci" / "baseline"))
    entries, wrong = store.entries()
    assert {e.scenario for e in entries} == set(GATE.RUNS) and wrong == []
    assert "make gate" in (REPOSITORY / ".ci" / "run").read_text()
