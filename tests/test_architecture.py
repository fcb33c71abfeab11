"""The house stands as it is drawn: nothing is left out of a tuple, every public name is documented, torch stays outside."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import tracekit
from tests.conftest import REPOSITORY
from tracekit import facts, metrics, passes, readers, schema

PACKAGE = REPOSITORY / "tracekit"
MODULES = sorted(str(p.relative_to(REPOSITORY).with_suffix("")).replace("/", ".") for p in PACKAGE.rglob("*.py") if p.name != "__main__.py")


def files_of(package: ModuleType) -> set[str]:
    return {m.name for m in pkgutil.iter_modules(package.__path__)}


def test_every_fact_file_is_in_the_tuple() -> None:
    assert files_of(facts) == {f.__module__.rsplit(".", 1)[1] for f in facts.FACTS}


def test_every_metric_file_is_in_the_tuple() -> None:
    assert files_of(metrics) - {"base"} == {m.name for m in metrics.METRICS}


def test_every_pass_file_is_in_the_tuple() -> None:
    assert files_of(passes) == {f.__module__.rsplit(".", 1)[1] for f in passes.PASSES}


def test_every_reader_file_is_in_the_tuple() -> None:
    formats = {name for name in files_of(readers) if hasattr(importlib.import_module(f"tracekit.readers.{name}"), "sniff")}
    assert formats == {r.read.__module__.rsplit(".", 1)[1] for r in readers.READERS}


def test_every_table_of_the_facts_explains_its_columns() -> None:
    for name, table in schema.FACTS.items():
        assert [c for c, column in table.items() if not column.meaning and not c.endswith("_bytes")] == [], name


@pytest.mark.parametrize("module", MODULES)
def test_public_names_are_documented(module: str) -> None:
    tree = ast.parse((REPOSITORY / (module.replace(".", "/") + ".py")).read_text())
    assert ast.get_docstring(tree), f"{module} says nothing of itself"
    bare = [n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and not n.name.startswith("_") and not ast.get_docstring(n)]
    assert bare == []


def test_metrics_state_their_definition_and_question() -> None:
    for metric in metrics.METRICS:
        assert metric.question.endswith("?") and len(metric.definition) > 80, metric.name


def test_the_public_surface_is_what_it_says() -> None:
    assert sorted(tracekit.__all__) == tracekit.__all__
    for name in tracekit.__all__:
        assert getattr(tracekit, name) is not None
    assert inspect.signature(tracekit.analyze).parameters.keys() == {"paths", "workers", "progress", "reading", "capture", "link_gbps", "model"}


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("tracekit", "torch pandas plotly"),
        ("tracekit.analysis", "torch plotly dash"),
        ("tracekit.cli", "torch pandas plotly dash"),
        ("tracekit.pytest_plugin", "torch pandas numpy plotly"),
    ],
)
def test_importing_stays_light(module: str, unwanted: str) -> None:
    check = f"import sys, {module}; print(*[m for m in {unwanted.split()!r} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout.split() == []


def test_no_module_is_longer_than_four_hundred_lines() -> None:
    long = [
        str(p.relative_to(REPOSITORY))
        for root in ("tracekit", "instrumentation")
        for p in (REPOSITORY / root).rglob("*.py")
        if len(p.read_text().splitlines()) > 400
    ]
    assert long == []


def test_every_module_can_be_imported_on_its_own() -> None:
    for module in MODULES:
        if not module.startswith("tracekit.recorder"):
            importlib.import_module(module.removesuffix(".__init__"))


def test_the_reference_runs_ship_beside_the_library() -> None:
    assert {p.name for p in REPOSITORY.iterdir()} >= {
        "pyproject.toml",
        "README.md",
        "tracekit",
        "instrumentation",
        "dashboard",
        "tests",
        "sample_traces",
        "LICENSE",
        "Makefile",
    }


def test_pins_match_what_the_project_asks_for() -> None:
    pins = {line.split("==")[0].lower().replace("_", "-") for line in Path(REPOSITORY / "constraints.txt").read_text().splitlines() if "==" in line}
    import tomllib

    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    assert {d.split(">=")[0].split("[")[0].lower() for d in asked} <= pins
