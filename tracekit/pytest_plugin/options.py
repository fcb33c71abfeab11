"""What is asked of the plugin? pytest's command line, over the environment, its ini file and ``[tool.tracekit]``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.errors import UsageError
from tracekit.pytest_plugin.told import Told, digest

if TYPE_CHECKING:
    from tracekit.baselines import Store
    from tracekit.settings import Settings

_SETTINGS = pytest.StashKey["Settings"]()


def add_options(parser: pytest.Parser) -> None:
    """The plugin's options and ini keys."""
    group = parser.getgroup("tracekit", "training steps against their baseline (tracekit)")
    group.addoption("--tracekit-baseline", metavar="STORE", help="where baselines are: a folder, git:BRANCH, or a URL (s3://…)")
    group.addoption("--tracekit-update", action="store_true", help="keep what tests record as their baseline, in place of comparing it")
    group.addoption("--tracekit-reason", metavar="TEXT", help="with --tracekit-update: why this is the new normal; what was before no longer counts")
    group.addoption("--tracekit-report", metavar="DIR", help="write each test's reports and comparisons there, as JSON")
    parser.addini("tracekit_baseline", "where baselines of tracekit are, as --tracekit-baseline; a folder is relative to this file", default="")


def checked_options(config: pytest.Config) -> None:
    """Refuse options that make no sense together.

    Raises:
        pytest.UsageError: with what is wrong.
    """
    reason = config.getoption("--tracekit-reason")
    if reason is not None and not config.getoption("--tracekit-update"):
        raise pytest.UsageError("--tracekit-reason says why --tracekit-update makes these runs the new normal; give both")
    if reason is not None and not reason.strip():
        raise pytest.UsageError("--tracekit-reason is empty: say why this is the new normal")


@dataclass(frozen=True)
class Options:
    """What is asked, found when it is needed.

    Attributes:
        config: pytest's.
    """

    config: pytest.Config

    @property
    def update(self) -> bool:
        """Whether runs are kept in place of compared."""
        return bool(self.config.getoption("--tracekit-update"))

    @property
    def reason(self) -> str | None:
        """Why they are the new normal."""
        reason: str | None = self.config.getoption("--tracekit-reason")
        return reason

    @property
    def settings(self) -> Settings:
        """What the project and the environment set; read once.

        Raises:
            UsageError: a file or variable makes no sense.
        """
        if _SETTINGS not in self.config.stash:
            from tracekit.settings import settings

            self.config.stash[_SETTINGS] = settings(folder=self.config.rootpath)
        return self.config.stash[_SETTINGS]

    @property
    def missing_baseline(self) -> str | None:
        """``pass`` or ``fail`` where somebody said so; None: a test without baseline is skipped."""
        found = self.settings
        return None if found.origins["missing_baseline"] == "default" else str(found.values["missing_baseline"])

    def store(self, given: str | Path | None) -> Store | None:
        """The baseline store: of the test, the command line, the environment, the ini file or the project; None where none is named."""
        from tracekit.baselines import open_store

        place, folder = self._place(given)
        return open_store(place, folder) if place else None

    def _place(self, given: str | Path | None) -> tuple[str, Path]:
        """The store's name, and the folder that it is relative to: a test's to the root, a command line's to where pytest was started."""
        started, root = self.config.invocation_params.dir, self.config.rootpath
        if given is not None:
            return str(given), root
        if option := self.config.getoption("--tracekit-baseline"):
            return option, started
        found, ini = self.settings, self.config.getini("tracekit_baseline")
        if ini and found.origins["baseline"] != "TRACEKIT_BASELINE":
            return ini, self.config.inipath.parent if self.config.inipath else root
        return found.values["baseline"] or "", started

    def write_reports(self, told: Told) -> None:
        """Write a test's reports and comparisons where ``--tracekit-report`` wants them.

        Raises:
            UsageError: the folder cannot be written.
        """
        folder = self.config.getoption("--tracekit-report")
        if folder is None or not told.recordings:
            return
        place = self.config.invocation_params.dir / folder / folder_name(told.node_id)
        reports = [report for recording in told.recordings for report in recording.reports]
        for name, documents in (("report", reports), ("comparison", told.documents)):
            for number, document in enumerate(documents, 1):
                write_document(place / (f"{name}.json" if number == 1 else f"{name}-{number}.json"), document)


def folder_name(node_id: str) -> str:
    """A test's id as the name of a folder: readable, and no other test's.

    >>> folder_name("tests/test_step.py::test_step")
    'test_step-py-test_step-c784a0ff'
    """
    from tracekit.baselines.entries import slug

    return f"{slug(node_id.rpartition('/')[2])}-{digest(node_id)}"


def write_document(path: Path, document: dict[str, Any]) -> None:
    """Write JSON whole or not at all; what of a name is no text becomes ``�``.

    Raises:
        UsageError: the folder cannot be written.
    """
    text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False).encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    temporary = path.with_name(f".{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as e:
        raise UsageError(f"cannot write {path}: {e.strerror or e}; name a folder that is writable") from e
