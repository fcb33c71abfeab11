"""Fixtures that many tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from tests.analyses import forget

#: Examples may take their time on a loaded machine: no test here measures speed.
settings.register_profile("tracekit", deadline=None)
settings.load_profile("tracekit")

pytest_plugins = ["pytester"]

REPOSITORY = Path(__file__).resolve().parent.parent
#: Their processes talk to each other and wait for one another: beside other tests they would time out or measure the machine.
ALONE = ("instrumentation", "recorder", "cli/test_demo.py", "cli/test_run.py", "cli/test_study.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need the machine to themselves."""
    for item in items:
        if item.path.relative_to(REPOSITORY / "tests").as_posix().startswith(ALONE):
            item.add_marker(pytest.mark.alone)


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
