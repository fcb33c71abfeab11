"""Fixtures that many tests share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.analyses import forget

#: Examples may take their time on a loaded machine: no test here measures speed.
settings.register_profile("tracekit", deadline=None, max_examples=50)
#: For a change of what such a test guards: ``pytest --hypothesis-profile=thorough tests/…``.
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile("tracekit")

pytest_plugins = ["pytester"]

REPOSITORY = Path(__file__).resolve().parent.parent
#: What they assert of times holds on a machine that does nothing else.
ALONE = (
    "instrumentation/test_measured.py",
    "instrumentation/test_launch.py",
    "recorder/test_recorder.py",
    "cli/test_demo.py",
    "cli/test_run.py",
    "cli/test_study.py",
)
#: They take longest: begun last, one of them would run on when the other processes have nothing left to do.
LONGEST = (
    "instrumentation/test_equality.py",
    "instrumentation/test_without_layer_ranges.py",
    "dashboard/pages/test_browser.py",
    "test_stripped.py",
    "dashboard/server/test_upload_browser.py",
    "memory/test_budget_truth.py",
    "cli/test_study_memory.py",
)
PATIENCE_MS = 120_000
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need the machine to themselves, and put the longest files first."""
    for item in items:
        if _file(item).startswith(ALONE):
            item.add_marker(pytest.mark.alone)
    items.sort(key=lambda item: LONGEST.index(_file(item)) if _file(item) in LONGEST else len(LONGEST))


def _file(item: pytest.Item) -> str:
    return os.path.relpath(item.path, REPOSITORY / "tests").replace(os.sep, "/")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """When the last process is done, what they shared goes."""
    run = getattr(session.config.pluginmanager.get_plugin("dsession"), "nodemanager", None)
    if run is not None:
        forget(run.testrunuid)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of public traces and forged jobs beside the checkout; its absence skips the test."""
    folder = REPOSITORY.parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"reference traces are not here: {folder} does not exist")
    return folder


@pytest.fixture(scope="session")
def samples() -> Path:
    """The traces that ship with the repository."""
    return REPOSITORY / "sample_traces"


class Patient:
    """A browser whose pages wait longer than Playwright's do: the machine is shared with other tests."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser

    def new_page(self, **options: Any) -> Any:
        """A page in a context of its own."""
        page = self._browser.new_page(**options)
        page.set_default_timeout(PATIENCE_MS)
        return page

    def new_context(self, **options: Any) -> Any:
        """A context, of which all pages are patient."""
        context = self._browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        return context


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium; where there is none, its tests are skipped unless the environment requires them."""
    if CHROMIUM is None:
        if os.environ.get("TRACEKIT_BROWSER") == "required":
            pytest.fail("no Chromium here, and this environment requires one")
        pytest.skip("no Chromium here: install Debian's chromium to run browser tests")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield Patient(opened)
        opened.close()
