"""What did the user, the project and the environment set, and who had the last word? Command line > environment > project > user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracekit.compare.budgets import budget
from tracekit.compare.rules import Rules
from tracekit.settings.files import environment, from_environment, from_file, project_file, user_file
from tracekit.settings.keys import SETTINGS


@dataclass(frozen=True)
class Settings:
    """Everything that is set.

    Attributes:
        values: by key; the command line comes on top of these.
        origins: key -> where the value comes from.
        rules: the same as rules of a comparison.
        overrides: (origin, text) of each override, in the order in which they apply.
    """

    values: Mapping[str, Any]
    origins: Mapping[str, str]
    rules: Rules
    overrides: tuple[tuple[str, str], ...] = ()

    @property
    def inconclusive(self) -> str | None:
        """``pass``, ``fail`` or None."""
        value: str | None = self.values["inconclusive"]
        return value


def settings(config: Path | None = None, *, folder: Path | None = None, variables: Mapping[str, str] | None = None) -> Settings:
    """What is set for commands that run in a folder.

    Args:
        config: a file in place of the project's own.
        folder: where to look for the project's file; the current one where None.
        variables: the environment; the process's where None.

    Raises:
        UsageError: a file or variable makes no sense; the message names it and the key.
    """
    env = environment() if variables is None else variables
    own = user_file(env)
    project = config if config is not None else project_file((folder or Path.cwd()).resolve())
    sources = [from_file(path) for path in (own if own.is_file() else None, project) if path is not None]
    sources.append(from_environment(env))
    values: dict[str, Any] = {s.name: s.default for s in SETTINGS}
    origins = dict.fromkeys(values, "default")
    for source in sources:
        for name, (value, origin) in source.values.items():
            values[name], origins[name] = value, origin
    overrides = tuple(o for source in sources for o in source.overrides)
    told = tuple((source.origin, _told(o)) for source in sources for o in source.overrides)
    rules = Rules(
        overrides=overrides,
        budgets=tuple(budget(text) for text in values["limits"]),
        false_alarm=values["false_alarm"],
        ignore=tuple(values["ignore"]),
        allow_incomparable=values["allow_incomparable"],
        resamples=values["resamples"],
    )
    return Settings(values, origins, rules, told)


def _told(o: Any) -> str:
    what = {"min_effect": o.min_effect, "better": o.better and o.better.value, "severity": o.severity and o.severity.value}
    places = f"[{' '.join(f'{p}={v}' for p, v in o.places)}]" if o.places else ""
    return f"{o.metric}{places}: " + (", ".join(f"{k} {v}" for k, v in what.items() if v is not None) or "nothing")


__all__ = ["Settings", "settings"]
