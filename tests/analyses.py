"""Analyses that many tests look at: each is made once per test run, however many processes the tests are spread over."""

from __future__ import annotations

import atexit
import contextlib
import copy
import getpass
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

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


@cache
def made(name: str, make: Callable[[Path], object]) -> Path:
    """A folder of files that many tests read, filled by ``make`` once per test run; not to be changed."""
    shelf = _shelf() or Path(_own_folder())
    place = shelf / name
    if not place.is_dir():
        beside = shelf / f"{name}.{os.getpid()}"
        beside.mkdir()
        make(beside)
        with contextlib.suppress(OSError):  # another process of the run was first: its folder holds the same
            beside.rename(place)
    return place


def unchanging(value: Any) -> Any:
    """A document that many tests look at: whoever writes into it fails there and then, and not another test later; a deep copy is one's own."""
    if isinstance(value, dict):
        return _Shared({k: unchanging(v) for k, v in value.items()})
    return _SharedList(map(unchanging, value)) if isinstance(value, list) else value


def _no(*_: Any, **__: Any) -> NoReturn:
    raise TypeError("other tests look at this document: change a deep copy of it")


class _Shared(dict[Any, Any]):
    __setitem__ = __delitem__ = __ior__ = pop = popitem = setdefault = update = clear = _no  # type: ignore[assignment]

    def __deepcopy__(self, memo: Any) -> dict[Any, Any]:
        return {k: copy.deepcopy(v, memo) for k, v in self.items()}


class _SharedList(list[Any]):
    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = extend = insert = pop = remove = clear = sort = reverse = _no  # type: ignore[assignment]

    def __deepcopy__(self, memo: Any) -> list[Any]:
        return [copy.deepcopy(v, memo) for v in self]


def _own_folder() -> str:
    """A folder that goes with this process."""
    folder = tempfile.mkdtemp(prefix="tracekit-tests-")
    atexit.register(shutil.rmtree, folder, True)
    return folder


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
