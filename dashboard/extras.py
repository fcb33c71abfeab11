"""Which figures are there beside those of the report? Those of a what-if."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dashboard.components.drawings import Drawn, serialised
from dashboard.reading import View
from tracekit.metrics import Result


def what_if_of(view: View) -> Result | None:
    """The alternatives to the pipeline that ran, as they were simulated when the run was read; None where nobody did."""
    read = getattr(view.analysis, "what_if", None)
    return read() if callable(read) else None


def alternatives(view: View) -> Drawn | None:
    """Alternatives to the pipeline that ran."""
    from tracekit.figures.what_if import alternatives as draw

    result = what_if_of(view)
    return None if result is None or not result.available else serialised(draw(result))


#: Name in the address -> its drawing.
EXTRAS: Mapping[str, Callable[[View], Drawn | None]] = {"what_if": alternatives}
