"""Fixtures that many tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

#: Examples may take their time on a loaded machine: no test here measures speed.
settings.register_profile("tracekit", deadline=None)
settings.load_profile("tracekit")

REPOSITORY = Path(__file__).resolve().parent.parent


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
