"""Forged jobs: simulated NCCL traces with exact truth, each read once per test run."""

from __future__ import annotations

import gzip
import importlib.util
import json
import pickle
from functools import cache, partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from tests import analyses
from tracekit import Analysis

AREAS = ("steps", "breakdown", "collectives", "layers", "p2p", "pipeline", "memory", "recompute", "straggler", "clock")


def analysis_of(folder: Path) -> Analysis:
    """The analysis of a forged job's traces."""
    return analyses.analysis_of(*sorted(folder.glob("rank*.json*")))


def report_of(folder: Path) -> dict[str, Any]:
    """Its report document, one of their own for whoever asks: the script that checks it writes into it."""
    report: dict[str, Any] = pickle.loads(_pickled(folder))
    return report


@cache
def _pickled(folder: Path) -> bytes:
    return pickle.dumps(analysis_of(folder).to_dict())


def truth_of(folder: Path) -> dict[str, Any]:
    """Its truth."""
    truth: dict[str, Any] = json.loads((folder / "truth.json").read_text())
    return truth


def stripped(shared: Path, folder: Path) -> Path:
    """A forged job's traces without the ranges and frames that name layers, actions and recomputation; not to be changed."""
    name = "-".join(["stripped", *folder.relative_to(shared / "forged").parts])
    return analyses.made(name, partial(checker(shared).stripped, folder))


@cache
def checker(shared: Path) -> ModuleType:
    """The script that holds a report against a truth."""
    spec = importlib.util.spec_from_file_location("check_forged", shared / "check_forged.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.__dict__["gzip"] = SimpleNamespace(open=partial(gzip.open, compresslevel=1))  # what it writes is read once
    return module


def differences(shared: Path, folder: Path, areas: tuple[str, ...] = AREAS, truth: dict[str, Any] | None = None) -> tuple[list[str], int]:
    """The first differences in each area, and how many checks were made."""
    tallies = checker(shared).check(truth or truth_of(folder), report_of(folder), list(areas))
    return [f"{area}: {text}" for area, t in tallies.items() for text in t.first], sum(t.made for t in tallies.values())
