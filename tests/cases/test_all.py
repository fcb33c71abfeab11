"""Every case that concerns reading and measuring has its test."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

from tests.cases import case


def test_every_case_has_a_test(shared: Path) -> None:
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        importlib.import_module(f"tests.cases.{path.stem}")
    known = {json.loads(line)["id"] for line in (shared / "cases" / "cases.jsonl").read_text().splitlines()}
    assert known - set(case.ELSEWHERE) <= set(case.COVERED.values())
