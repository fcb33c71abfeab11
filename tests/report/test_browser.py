"""A report opens in a real browser, draws every figure, and asks no network for anything."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import CHROMIUM
from tracekit.cli import main

QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def rendered(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The document after its scripts ran, and what the browser logged."""
    if CHROMIUM is None:
        if os.environ.get("TRACEKIT_BROWSER") == "required":
            pytest.fail("no Chromium here, and this environment requires one")
        pytest.skip("no Chromium here: install Debian's chromium to run browser tests")
    folder = tmp_path_factory.mktemp("browser")
    page = folder / "report.html"
    assert main(["analyze", str(samples / "pp-1f1b"), "--html", str(page)]) == 0
    command = [
        CHROMIUM,
        *QUIET,
        f"--user-data-dir={folder / 'profile'}",
        "--enable-logging=stderr",
        "--v=0",
        "--virtual-time-budget=20000",
        "--dump-dom",
        page.as_uri(),
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout, run.stderr


def test_every_figure_is_drawn(rendered: tuple[str, str]) -> None:
    dom, _ = rendered
    wanted = len(re.findall(r"<figure\b", dom))
    assert wanted >= 5
    assert len(re.findall(r'class="plot-container plotly"', dom)) == wanted


def test_scripts_end_without_an_error_and_policy_blocks_nothing(rendered: tuple[str, str]) -> None:
    complaints = [line for line in rendered[1].splitlines() if "CONSOLE" in line]
    assert complaints == []
