"""What may be asked of an analysis, whether its traces were just read or it was stored earlier?"""

from __future__ import annotations

from typing import Any, Protocol

from tracekit.metrics.base import Metric, Result


class Analysed(Protocol):
    """The reading surface that ``analysis.Analysis`` and ``stored.StoredAnalysis`` share; figures and reports need nothing else."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Every metric there is, in the order of the report."""

    @property
    def steady_steps(self) -> frozenset[int]:
        """The steps over which means are taken: complete on every rank, and no warm-up."""

    def result(self, name: str) -> Result:
        """A metric's answer.

        Raises:
            KeyError: there is no metric of that name.
        """

    def health(self) -> dict[str, Any]:
        """Verdict and findings; comes before any number."""

    def run(self) -> dict[str, Any]:
        """What ran: ranks, world size, mesh, steps, sources."""

    def to_dict(self) -> dict[str, Any]:
        """The report document (schema ``tracekit.report/1``)."""

    def to_json(self, indent: int | None = None) -> str:
        """The report document as strict JSON."""
