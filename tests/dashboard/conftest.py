"""One browser for all tests of the dashboard: playwright runs once per process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


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
        yield opened
        opened.close()
