"""How do tests hold a training step to its baseline? The pytest plugin: fixture ``tracekit``, marker ``tracekit_budget``, a summary.

Nothing of the analysis is imported before a test asks for it, and nothing else of tracekit imports pytest.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tracekit.pytest_plugin.budgets import check_budgets, limits_of
from tracekit.pytest_plugin.fixture import Tracekit
from tracekit.pytest_plugin.options import Options, add_options, checked_options
from tracekit.pytest_plugin.recording import LiveRecording, Recording
from tracekit.pytest_plugin.summary import Summary
from tracekit.pytest_plugin.told import TOLD, Told

__all__ = ["LiveRecording", "Recording", "Tracekit"]

_MARKER = "tracekit_budget(*limits): hold every recording of the test to limits, such as 'bubble_ratio <= 0.15' or 'peak_memory_bytes <= 70 GiB'"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say what can be set on pytest's command line and in its ini file."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, and refuse options that make no sense together."""
    config.addinivalue_line("markers", _MARKER)
    checked_options(config)
    config.pluginmanager.register(Summary(), "tracekit-summary")


@pytest.fixture
def tracekit(request: pytest.FixtureRequest, tmp_path: Path) -> Tracekit:
    """Record a training step, analyse traces, and compare them with the baseline."""
    node: pytest.Item = request.node
    return Tracekit(node.stash[TOLD], Options(node.config), tmp_path / "tracekit")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin a test's account; a limit that is none ends it here, in one line."""
    item.stash[TOLD] = Told(item)
    limits_of(item)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Hold the test's recordings to its limits when it is over."""
    __tracebackhide__ = True
    told, options = item.stash[TOLD], Options(item.config)
    try:
        yield
    except pytest.skip.Exception:
        # there may be nothing to compare with yet; limits need no baseline
        if told.recordings:
            check_budgets(item, told, options)
        raise
    else:
        check_budgets(item, told, options)
    finally:
        options.write_reports(told)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
    """Send a test's account along with its last report: from a process of pytest-xdist as well."""
    report = yield
    told = item.stash.get(TOLD, None)
    if call.when == "teardown" and told is not None and (lines := told.lines()):
        vars(report)["tracekit"] = lines
    return report
