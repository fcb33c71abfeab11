"""What can be set, of which type, and what does it mean? One entry per key of ``[tool.tracekit]``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tracekit.compare.budgets import budget
from tracekit.compare.catalog import BY_NAME
from tracekit.compare.keys import PLACES
from tracekit.compare.rules import Override
from tracekit.errors import UsageError
from tracekit.thresholds import FALSE_ALARM, Direction, Severity


@dataclass(frozen=True)
class Setting:
    """One key.

    Attributes:
        name: in the file; of the environment ``TRACEKIT_`` and the name in capitals.
        meaning: one line.
        default: where nobody says anything.
        check: the value as it is used; raises ValueError with what is wrong.
        separator: how the environment writes a list; None: it is none.
    """

    name: str
    meaning: str
    default: Any
    check: Callable[[Any], Any]
    separator: str | None = None


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text is expected")
    return value


def _one_of(*words: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in words:
            raise ValueError(f"one of {', '.join(words)} is expected")
        return str(value)

    return check


def _number(low: float, high: float) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        given = float(value) if isinstance(value, str) else value
        if isinstance(given, bool) or not isinstance(given, (int, float)) or not low <= given <= high:
            raise ValueError(f"a number from {low:g} to {high:g} is expected")
        return float(given)

    return check


def _count(low: int, high: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        given = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
        if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
            raise ValueError(f"a whole number from {low:,} to {high:,} is expected")
        return given

    return check


def _switch(value: Any) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    given = words.get(value.lower(), value) if isinstance(value, str) else value
    if not isinstance(given, bool):
        raise ValueError("true or false is expected")
    return given


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) and v.strip() for v in value):
        raise ValueError("a list of texts is expected")
    return tuple(value)


def _limits(value: Any) -> tuple[str, ...]:
    texts = _texts(value)
    for text in texts:
        try:
            budget(text)
        except UsageError as e:
            raise ValueError(str(e)) from e
    return texts


SETTINGS: tuple[Setting, ...] = (
    Setting("baseline", "where baselines are: a folder, git:BRANCH, or a URL that fsspec knows", None, _text),
    Setting("scenario", "what a run is a run of; runs of one scenario are compared", "default", _text),
    Setting("window", "commits of the baseline that a run is compared with", 10, _count(1, 1000)),
    Setting("inconclusive", "how to end where it cannot be told: pass or fail; unset: exit code 3", None, _one_of("pass", "fail")),
    Setting("missing_baseline", "how to end where there is no baseline yet: pass or fail (exit code 5)", "fail", _one_of("pass", "fail")),
    Setting("false_alarm", "share of comparisons of equal programs that may raise an alarm", FALSE_ALARM, _number(0.0001, 0.5)),
    Setting("resamples", "resamples of the bootstrap", 2000, _count(100, 100_000)),
    Setting("ignore", "names of the setup that may differ: torch, nccl, device_names, model, …", (), _texts, ","),
    Setting("allow_incomparable", "compare although the setups differ", False, _switch),
    Setting("limits", "limits that a run must keep: 'bubble_ratio <= 0.15'", (), _limits, ";"),
)

BY_KEY = {s.name: s for s in SETTINGS}
#: Keys of a table of ``metrics`` and, with a metric and places, of one of ``rules``.
OVERRIDES: dict[str, Callable[[Any], Any]] = {
    "min_effect": _number(0.0, 10.0),
    "better": _one_of(*(d.value for d in Direction)),
    "severity": _one_of(*(s.value for s in Severity)),
}


def override(metric: Any, table: Any, places: bool) -> Override:
    """What one table says of metrics.

    Args:
        metric: name or pattern.
        table: keys of ``OVERRIDES``, and with ``places`` the places that it is about.
        places: whether it may name any.

    Raises:
        ValueError: with what is wrong.
    """
    if not isinstance(metric, str) or not any(fnmatchcase(name, metric) for name in BY_NAME):
        raise ValueError(f"no metric is called {str(metric)[:60]!r}; there are {', '.join(BY_NAME)}")
    if not isinstance(table, dict):
        raise ValueError("a table is expected")
    where, given = [], {}
    for name, value in table.items():
        if places and name in PLACES:
            if isinstance(value, bool) or not isinstance(value, (str, int)):
                raise ValueError(f"{name}: a text or a number is expected")
            where.append((name, str(value)))
        elif name in OVERRIDES:
            try:
                given[name] = OVERRIDES[name](value)
            except ValueError as e:
                raise ValueError(f"{name}: {e}") from e
        else:
            known = [*OVERRIDES, *(PLACES if places else ())]
            raise ValueError(f"no key {str(name)[:60]!r}; there are {', '.join(known)}")
    better, severity = given.get("better"), given.get("severity")
    return Override(metric, tuple(where), given.get("min_effect"), Direction(better) if better else None, Severity(severity) if severity else None)
