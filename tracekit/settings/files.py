"""Where is something set? The user's file, the project's, and the environment, each read and checked."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracekit.compare.rules import Override
from tracekit.errors import UsageError
from tracekit.settings.keys import BY_KEY, SETTINGS, override

#: A configuration larger than this is refused.
MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Source:
    """One place where settings were made.

    Attributes:
        origin: file or environment, as people name it.
        values: checked values by key, each with its own origin.
        overrides: what it says of metrics, in its order.
    """

    origin: str
    values: Mapping[str, tuple[Any, str]]
    overrides: tuple[Override, ...] = ()


def user_file(environment: Mapping[str, str]) -> Path:
    """The user's own file, whether it exists or not."""
    home = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME") or Path.home()) / ".config")
    return Path(home) / "tracekit" / "tracekit.toml"


def project_file(folder: Path) -> Path | None:
    """The nearest ``tracekit.toml``, or ``pyproject.toml`` with a ``[tool.tracekit]``, in a folder or above it, up to the repository's root."""
    for place in (folder, *folder.parents):
        if (place / "tracekit.toml").is_file():
            return place / "tracekit.toml"
        if (place / "pyproject.toml").is_file() and "tracekit" in _tool(_parsed(place / "pyproject.toml"), place / "pyproject.toml"):
            return place / "pyproject.toml"
        if (place / ".git").exists():
            return None
    return None


def from_file(path: Path) -> Source:
    """What a file sets.

    Raises:
        UsageError: it cannot be read, or holds a key or value that makes no sense; the message names file and key.
    """
    document = _parsed(path)
    table = document
    if path.name == "pyproject.toml":
        table = _tool(document, path).get("tracekit", {})
        if not isinstance(table, dict):
            raise UsageError(f"{path}: tool.tracekit: a table is expected")
    prefix = "tool.tracekit." if path.name == "pyproject.toml" else ""
    values: dict[str, tuple[Any, str]] = {}
    overrides: list[Override] = []
    for name, value in table.items():
        if name == "metrics":
            overrides = [*_metrics(value, path, prefix), *overrides]
        elif name == "rules":
            overrides += _rules(value, path, prefix)
        elif name in BY_KEY:
            given = _checked(name, value, f"{path}: {prefix}{name}")
            values[name] = (_beside(path, given) if name == "baseline" else given, f"{path}")
        else:
            raise UsageError(f"{path}: {prefix}{str(name)[:60]}: there is no such key; there are {', '.join([*BY_KEY, 'metrics', 'rules'])}")
    return Source(str(path), values, tuple(overrides))


def from_environment(environment: Mapping[str, str]) -> Source:
    """What variables set: ``TRACEKIT_`` and a key in capitals; lists are written with ``,`` (limits: ``;``).

    Raises:
        UsageError: a value makes no sense; the message names the variable.
    """
    values = {}
    for setting in SETTINGS:
        variable = f"TRACEKIT_{setting.name.upper()}"
        if variable in environment:
            text = environment[variable]
            given: Any = [part.strip() for part in text.split(setting.separator) if part.strip()] if setting.separator else text
            values[setting.name] = (_checked(setting.name, given, variable), variable)
    return Source("environment", values)


def _checked(name: str, value: Any, where: str) -> Any:
    try:
        return BY_KEY[name].check(value)
    except ValueError as e:
        raise UsageError(f"{where}: {e}") from e


def _beside(path: Path, place: str) -> str:
    """A folder as a file names it: relative to the file, wherever the command runs; branches and URLs as they are."""
    return place if place.startswith(("git:", "~")) or "://" in place else str(path.resolve().parent / place)


def _metrics(value: Any, path: Path, prefix: str) -> list[Override]:
    if not isinstance(value, dict):
        raise UsageError(f"{path}: {prefix}metrics: a table of metrics is expected")
    return [_override(metric, table, False, f"{path}: {prefix}metrics.{str(metric)[:60]}") for metric, table in value.items()]


def _rules(value: Any, path: Path, prefix: str) -> list[Override]:
    if not isinstance(value, list) or not all(isinstance(rule, dict) for rule in value):
        raise UsageError(f"{path}: {prefix}rules: a list of tables is expected, [[{prefix}rules]]")
    return [
        _override(rule.get("metric", "*"), {k: v for k, v in rule.items() if k != "metric"}, True, f"{path}: {prefix}rules[{number}]")
        for number, rule in enumerate(value)
    ]


def _override(metric: Any, table: Any, places: bool, where: str) -> Override:
    try:
        return override(metric, table, places)
    except ValueError as e:
        raise UsageError(f"{where}: {e}") from e


def _tool(document: dict[str, Any], path: Path) -> dict[str, Any]:
    tool = document.get("tool", {})
    if not isinstance(tool, dict):
        raise UsageError(f"{path}: tool: a table is expected")
    return tool


def _parsed(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file():
            raise UsageError(f"{path}: there is no such file; name a tracekit.toml or pyproject.toml")
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"{path}: larger than {MAX_BYTES:,} bytes, which no configuration is")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise UsageError(f"{path}: cannot be read: {e.strerror or e}") from e
    except UnicodeDecodeError as e:
        raise UsageError(f"{path}: byte {e.start:,} is no UTF-8") from e
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as e:
        raise UsageError(f"{path}: this is no TOML: {str(e)[:200] or 'nested too deeply'}") from e


def environment() -> Mapping[str, str]:
    """The process's environment."""
    return os.environ
