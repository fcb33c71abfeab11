"""How does a test end after its comparison? By the comparison's exit code; a run whose facts hold needs no verdict on its times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tracekit.pytest_plugin.told import Finding


class Ending(Enum):
    """How a test ends."""

    PASS = "pass"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True)
class Ended:
    """How a test ends, and how the summary says so.

    Attributes:
        ending: of the test.
        finding: as the summary counts it.
        note: what has to be said beside the comparison's sentence.
    """

    ending: Ending
    finding: Finding
    note: str | None = None


def ending(document: Mapping[str, Any], inconclusive: str | None, missing: str | None) -> Ended:
    """How a test ends.

    Args:
        document: the comparison of its recording with the baseline (``tracekit.comparison/1``).
        inconclusive: ``pass`` or ``fail`` where the project says how it ends when it cannot be told. None: a test whose facts
            were compared and hold passes, for one run says nothing of times and was not asked to; every other is skipped.
        missing: ``pass`` or ``fail`` where the project says how it ends without a baseline. None: it is skipped.
    """
    from tracekit.thresholds import Verdict, exit_code

    if document["verdict"] is None:
        return Ended(Ending(missing or "skip"), Finding.NO_BASELINE)
    verdict = Verdict(document["verdict"])
    finding, code = Finding(verdict.value), exit_code(verdict, inconclusive)
    if code == 1:
        return Ended(Ending.FAIL, finding)
    if verdict in (Verdict.UNCHANGED, Verdict.IMPROVED):
        return Ended(Ending.PASS, finding)
    if verdict is Verdict.INCONCLUSIVE and facts_hold(document):
        return Ended(Ending.PASS, Finding.UNCHANGED_FACTS, "facts are unchanged; times need more runs")
    return Ended(Ending.PASS if code == 0 else Ending.SKIP, finding)


def facts_hold(document: Mapping[str, Any]) -> bool:
    """Whether there are facts on both sides, every one that counts is known and no worse, and every limit is kept.

    >>> row = {"sort": "fact", "decisive": True, "severity": "fail"}
    >>> facts_hold({"budgets": [], "metrics": [row | {"verdict": "unchanged"}, row | {"verdict": "inconclusive"}]})
    False
    """
    good = ("unchanged", "improved")
    facts = [r for r in document["metrics"] if r["sort"] == "fact"]
    in_doubt = [r for r in facts if r["verdict"] not in good and r["decisive"] and r["severity"] == "fail"]
    limits = all(b["verdict"] == "unchanged" for b in document["budgets"])
    return any(r["verdict"] in good for r in facts) and not in_doubt and limits
