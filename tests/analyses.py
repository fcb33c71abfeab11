"""Analyses that many tests look at: each is made once per test run, however many processes the tests are spread over."""

from __future__ import annotations

import getpass
import os
import pickle
import shutil
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path

from tracekit import Analysis, analyze


@cache
def analysis_of(*paths: Path) -> Analysis:
    """The analysis of a job's traces; not to be changed."""
    folder = _shelf()
    if folder is None:
        return analyze(list(paths), workers=1)
    place = folder / sha256("\0".join(map(str, paths)).encode()).hexdigest()
    if place.is_file():
        kept: Analysis = pickle.loads(place.read_bytes())
        return kept
    made = analyze(list(paths), workers=1)
    made.to_dict()
    beside = place.with_suffix(f".{os.getpid()}")
    beside.write_bytes(pickle.dumps(made))
    beside.replace(place)
    return made


def _shelf() -> Path | None:
    """A folder that the processes of this test run share, and nobody else can write to; None where there is one process."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return None
    folder = Path(tempfile.gettempdir()) / f"tracekit-tests-{getpass.getuser()}-{run}"
    folder.mkdir(mode=0o700, exist_ok=True)
    assert folder.stat().st_uid == os.getuid(), f"{folder} belongs to somebody else"
    return folder


def forget(run: str) -> None:
    """Remove what a test run left."""
    shutil.rmtree(Path(tempfile.gettempdir()) / f"tracekit-tests-{getpass.getuser()}-{run}", ignore_errors=True)
