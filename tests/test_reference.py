"""Busy time of public traces of many makes and ages equals a plain exact reading of the same files."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tracekit import analyze

TRACES = REPOSITORY.parent / "shared" / "traces"
EQUAL = {
    "busy_ns": "union_all_gpu_ns",
    "compute_ns": "union_compute_ns",
    "comm_ns": "union_comm_ns",
    "overlap_ns": "overlap_comm_compute_ns",
    "exposed_comm_ns": "exposed_comm_ns",
    "memcpy_ns": "union_memcpy_memset_ns",
    "span_ns": "span_ns",
    "idle_ns": "idle_ns",
}
#: A list of events at the top level is a format of its own, not read yet.
OTHER_FORMATS = ("ibmaiu/", "pippy/")


def references() -> dict[str, Any]:
    path = TRACES / "reference.json"
    known: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return {
        name: entry
        for name, entry in known.items()
        if entry.get("kind") == "chrome_trace" and "!" not in name and not name.startswith(("@", *OTHER_FORMATS)) and (TRACES / name).stat().st_size < 1_500_000
    }


REFERENCES = references()


@cache
def report_of(name: str) -> dict[str, Any]:
    """The report of one file, read once however many tests look at it; not to be changed."""
    return analyze(TRACES / name, workers=1).to_dict()


def test_references_are_here(shared: Path) -> None:
    assert len(REFERENCES) > 25, shared


@pytest.mark.parametrize("name", REFERENCES)
def test_busy_time_of_public_traces(name: str) -> None:
    rows = {r["device"]: r for r in report_of(name)["metrics"]["breakdown"]["tables"].get("devices", []) if r["step"] is None}
    for device, want in REFERENCES[name]["devices"].items():
        if want["n_kernels"] + want["n_memcpy"] + want["n_memset"]:
            assert {mine: rows[int(device)][mine] for mine in EQUAL} == {mine: want[theirs] for mine, theirs in EQUAL.items()}
