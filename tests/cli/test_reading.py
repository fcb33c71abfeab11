"""Every cap of a Reading has its flag on every command that reads traces, and what the flag says arrives."""

from __future__ import annotations

import inspect
from dataclasses import asdict

import pytest
from typer.testing import CliRunner

from tracekit import analysis as analysis_module
from tracekit import doctor as doctor_module
from tracekit.cli import application
from tracekit.cli.reading import asked
from tracekit.reading import Reading

FLAGS = ["--salvage", "--max-bytes", "1", "--max-ratio", "2", "--max-events", "3", "--max-members", "4", "--max-seconds", "5", "--max-memory", "6"]


def test_every_cap_has_a_flag() -> None:
    assert inspect.signature(asked).parameters.keys() == asdict(Reading()).keys() - {"keep_going", "tell"}


@pytest.mark.parametrize("command", ["analyze", "doctor"])
def test_what_the_flags_say_arrives(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[Reading] = []

    def stop(*_: object, reading: Reading, **__: object) -> None:
        got.append(reading)
        raise KeyboardInterrupt

    monkeypatch.setattr(analysis_module, "analyze", stop)
    monkeypatch.setattr(doctor_module, "examine", stop)
    CliRunner().invoke(application(), [command, "x", *FLAGS])
    assert got == [Reading(1, 2, 3, 4, 5.0, 6, salvage=True)]
