"""When is a difference a regression? The only comparisons in tracekit that judge.

A timed metric is judged when it is significant and material; a fact by being equal or not; a budget by its limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum


class Verdict(StrEnum):
    """What a comparison says of one metric, or of all."""

    REGRESSED = "regressed"
    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    INCONCLUSIVE = "inconclusive"
    INCOMPARABLE = "incomparable"


class Direction(StrEnum):
    """Which change is for the worse."""

    LOWER = "lower"  #: less is better
    HIGHER = "higher"  #: more is better
    SAME = "same"  #: any change is for the worse
    NONE = "none"  #: no change is


class Severity(StrEnum):
    """What a regression of a metric does to the verdict."""

    FAIL = "fail"
    WARN = "warn"
    IGNORE = "ignore"


#: p at which the siblings of a layer count as changed themselves.
SIBLINGS_CHANGED = 0.01
#: Share of all comparisons of equal programs that may raise an alarm, and how the families of tests divide it.
FALSE_ALARM = 0.02
STEP_SHARE, PART_SHARE, DETAIL_SHARE = 0.5, 0.25, 0.25


def changed(direction: Direction, shift: float) -> Verdict:
    """What a change by ``shift`` (head - base, not 0) means.

    >>> changed(Direction.LOWER, +1).value, changed(Direction.HIGHER, +1).value, changed(Direction.NONE, 1).value
    ('regressed', 'improved', 'unchanged')
    """
    if direction == Direction.NONE or shift == 0:
        return Verdict.UNCHANGED
    worse = direction == Direction.SAME or (shift > 0) == (direction == Direction.LOWER)
    return Verdict.REGRESSED if worse else Verdict.IMPROVED


def fact(direction: Direction, base: float | str, head: float | str, tolerance: float = 0.0) -> Verdict:
    """A fact's verdict: equal or not, numbers within a tolerance (share of the base).

    >>> fact(Direction.LOWER, 4, 5).value, fact(Direction.SAME, "1f1b", "gpipe").value, fact(Direction.LOWER, 100, 101, 0.02).value
    ('regressed', 'regressed', 'unchanged')
    """
    if base == head:
        return Verdict.UNCHANGED
    if isinstance(base, str) or isinstance(head, str):
        return Verdict.UNCHANGED if direction == Direction.NONE else Verdict.REGRESSED
    if abs(head - base) <= tolerance * abs(base):
        return Verdict.UNCHANGED
    return changed(direction, head - base)


def scattered(before: Sequence[float], after: Sequence[float], *, among_runs: bool) -> Verdict | None:
    """What follows from a base that holds several values of one fact: nothing is wrong with a head within them.

    Args:
        before: the base's values.
        after: the head's.
        among_runs: whether the base's own runs differ, not only its steps: then it is no fact.

    Returns:
        None where the values have to be compared.

    >>> scattered([1, 3], [2], among_runs=True).value, scattered([1, 3], [4], among_runs=True).value, scattered([1], [4], among_runs=False)
    ('unchanged', 'inconclusive', None)
    """
    if len(before) < 2:
        return None
    if all(min(before) <= v <= max(before) for v in after):
        return Verdict.UNCHANGED
    return Verdict.INCONCLUSIVE if among_runs else None


def worst_fact(direction: Direction, base: float | str, heads: Iterable[float | str], tolerance: float = 0.0) -> Verdict:
    """Of several values of the head, the worst decides.

    >>> worst_fact(Direction.LOWER, 4, [3, 5]).value
    'regressed'
    """
    verdicts = {fact(direction, base, head, tolerance) for head in heads}
    return next((v for v in (Verdict.REGRESSED, Verdict.IMPROVED) if v in verdicts), Verdict.UNCHANGED)


def material(change: float | None, step: float | None, share: float) -> bool:
    """Whether a time changed by enough of the step; where either is unknown, its share cannot excuse it.

    >>> material(2.0, 1000.0, 0.005), material(5.0, 1000.0, 0.005)
    (False, True)
    """
    return step is None or change is None or abs(change) >= share * step


def from_zero(direction: Direction, change: float, *, p: float, alpha: float, material: bool, possible: bool) -> Verdict:
    """The verdict of a part that some runs do not have at all, so that there is no ratio; arguments as of ``timed``."""
    if not possible:
        return Verdict.INCONCLUSIVE
    return changed(direction, change) if p <= alpha and material else Verdict.UNCHANGED


def moved_by_siblings(shift: float, *, common: float, own: float, p: float) -> bool:
    """Whether a layer changed only against siblings that themselves changed.

    Args:
        shift: of the layer against its siblings.
        common: shift of the siblings, as a logarithm.
        own: of the layer itself, likewise.
        p: of the siblings' shift.
    """
    return (common > 0) != (shift > 0) and abs(common) > abs(own) and p <= SIBLINGS_CHANGED


def crept(direction: Direction, *, level: float, head: float, min_effect: float, material: bool) -> Verdict:
    """The verdict of a metric whose history has a new level; none where the head itself is back at the first one, or past it.

    Args:
        direction: which change is for the worse.
        level: last level against the first, as a share of the first.
        head: the head against the first level, likewise.
        min_effect: least change that matters, likewise.
        material: whether the levels are also far enough apart against the step.

    >>> crept(Direction.LOWER, level=0.1, head=0.1, min_effect=0.03, material=True).value
    'regressed'
    >>> crept(Direction.LOWER, level=0.1, head=0.0, min_effect=0.03, material=True).value
    'unchanged'
    """
    apart = abs(level) >= min_effect and abs(head) >= min_effect and (head > 0) == (level > 0)
    return changed(direction, level) if apart and material else Verdict.UNCHANGED


def timed(
    direction: Direction, *, shift: float, p: float, alpha: float, min_effect: float, material: bool, possible: bool, detectable: float | None, limit: float
) -> Verdict:
    """A timed metric's verdict.

    Args:
        direction: which change is for the worse.
        shift: head against base, on the scale of ``min_effect``.
        p: adjusted for the family of tests.
        alpha: level of the family.
        min_effect: least shift that matters.
        material: whether the change is also large enough against the step.
        possible: whether this many runs can give a p below alpha at all.
        detectable: the shift that these runs find in 80 % of cases, None where unknown.
        limit: detectable shifts above this say nothing.
    """
    if not possible:
        return Verdict.INCONCLUSIVE
    if p <= alpha and abs(shift) >= min_effect and material:
        return changed(direction, shift)
    if detectable is None or detectable > limit:
        return Verdict.INCONCLUSIVE
    return Verdict.UNCHANGED


def within(value: float, comparison: str, limit: float) -> bool:
    """Whether a value keeps to a limit; ``comparison`` is one of <=, <, >=, >.

    >>> within(0.15, "<=", 0.15), within(0.15, "<", 0.15)
    (True, False)
    """
    match comparison:
        case "<=":
            return value <= limit
        case "<":
            return value < limit
        case ">=":
            return value >= limit
        case ">":
            return value > limit
    raise ValueError(f"no comparison {comparison!r}")


def overall(verdicts: Iterable[tuple[Verdict, Severity, bool]]) -> Verdict:
    """The verdict of all: (verdict, severity, whether it must be known) of each metric.

    A regression outweighs what is not known, and what is not known outweighs an improvement.

    >>> overall([(Verdict.IMPROVED, Severity.FAIL, True), (Verdict.INCONCLUSIVE, Severity.FAIL, True)]).value
    'inconclusive'
    """
    counted = [(v, decisive) for v, severity, decisive in verdicts if severity == Severity.FAIL]
    if any(v == Verdict.REGRESSED for v, _ in counted):
        return Verdict.REGRESSED
    for unknown in (Verdict.INCOMPARABLE, Verdict.INCONCLUSIVE):
        if any(v == unknown and decisive for v, decisive in counted):
            return unknown
    return Verdict.IMPROVED if any(v == Verdict.IMPROVED for v, _ in counted) else Verdict.UNCHANGED


#: Exit code of a verdict; a person may ask for another of what is not known.
EXIT = {Verdict.REGRESSED: 1, Verdict.INCONCLUSIVE: 3, Verdict.INCOMPARABLE: 3, Verdict.IMPROVED: 0, Verdict.UNCHANGED: 0}


def exit_code(verdict: Verdict, inconclusive: str | None = None) -> int:
    """The exit code of a verdict; ``inconclusive`` (``pass`` or ``fail``) decides what is otherwise 3.

    >>> exit_code(Verdict.INCONCLUSIVE), exit_code(Verdict.INCONCLUSIVE, "pass"), exit_code(Verdict.REGRESSED, "pass")
    (3, 0, 1)
    """
    code = EXIT[verdict]
    return code if code != 3 or inconclusive is None else {"pass": 0, "fail": 1}[inconclusive]
