"""One case from a public bug report: its input, what is expected, and what tracekit says of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

from tracekit import analyze
from tracekit.cli import main
from tracekit.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])
#: Cases that belong to the dashboard, the live page or the comparison of two runs.
ELSEWHERE = ("d01-same-file-again", "d03-slow-live-update", "c22-ci-false-gain")
#: Test -> the case that it covers.
COVERED: dict[str, str] = {}


@dataclass(frozen=True)
class Case:
    """A case.

    Attributes:
        path: its folder of inputs.
        expected: verdict, values (times in µs), message_must_mention.
    """

    id: str
    path: Path
    expected: dict[str, Any]

    @property
    def values(self) -> dict[str, Any]:
        """The expected values."""
        return dict(self.expected["values"])

    def report(self, **options: Any) -> dict[str, Any]:
        """The report document of the case; it must hold every word that must be mentioned."""
        report = analyze(self.path, workers=1, **options).to_dict()
        said = [[m["reason"], m["notes"]] for m in report["metrics"].values()]
        spoken = json.dumps([report["health"], report["run"]["formats"], said])
        assert [word for word in self.expected["message_must_mention"] if str(word) not in spoken] == []
        assert (report["health"]["verdict"] == "ok") == (self.expected["verdict"] == "load"), report["health"]
        return report

    def refusal(self, **options: Any) -> str:
        """The one line with which the case is refused; it must hold every word that must be mentioned."""
        try:
            analyze(self.path, workers=1, **options)
        except InputError as error:
            line = str(error)
        else:
            raise AssertionError(f"{self.id} was not refused")
        assert [word for word in self.expected["message_must_mention"] if str(word) not in line] == []
        assert "\n" not in line
        return line


def case(shared: Path, name: str) -> Case:
    """A case by its id."""
    lines = (shared / "cases" / "cases.jsonl").read_text().splitlines()
    found = next(entry for entry in map(json.loads, lines) if entry["id"] == name)
    return Case(name, shared / "cases" / "inputs" / name, found["expected"])


def covers(name: str) -> Callable[[F], F]:
    """Mark a test as the one of a case."""

    def mark(test: F) -> F:
        COVERED[f"{test.__module__}.{test.__name__}"] = name
        return test

    return mark


def devices(report: dict[str, Any], step: int | None = None) -> list[dict[str, Any]]:
    """Rows of the breakdown for one step, or for the whole trace."""
    return [row for row in report["metrics"]["breakdown"]["tables"].get("devices", []) if row["step"] == step]


def codes(report: dict[str, Any]) -> set[str]:
    """Codes of the health findings."""
    return {finding["code"] for finding in report["health"]["findings"]}


def shell(*arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([str(a) for a in arguments])
    return code, out.getvalue(), err.getvalue()
