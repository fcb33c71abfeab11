"""Which results and figures are there beside those of the metrics? What-ifs: simulated when the run was read, narrowed here to what the address asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dashboard.components.drawings import Drawn, serialised
from dashboard.components.query import number, text
from dashboard.reading import View
from tracekit.errors import UsageError
from tracekit.memory_what_if import limited
from tracekit.metrics import Result
from tracekit.what_if import narrowed

#: Names of a what-if in the address of its page: how many microbatches, how large one is, how much memory a device has.
MICROBATCHES, SIZE, LIMIT = "microbatches", "size", "limit"
ASKED = (MICROBATCHES, SIZE, LIMIT)


@dataclass(frozen=True)
class Asked:
    """What an address asks of a what-if.

    Attributes:
        microbatches: per step; None: as many as ran.
        size: samples per microbatch; None: as many as ran.
        limit_bytes: memory of a device; None: none.
        refused: why the limit that was given is none, or "".
    """

    microbatches: int | None = None
    size: int | None = None
    limit_bytes: int | None = None
    refused: str = ""


def asked(query: Mapping[str, str]) -> Asked:
    """What is asked for; what is no number asks for nothing.

    >>> asked({"limit": "1 KiB", "size": "2"})
    Asked(microbatches=None, size=2, limit_bytes=1024, refused='')
    """
    from tracekit.cli.simulate import size_bytes

    given, limit, refused = text(query.get(LIMIT)).strip(), None, ""
    try:
        limit = size_bytes(given) if given else None
    except UsageError as error:
        refused = str(error)
    return Asked(number(query.get(MICROBATCHES)), number(query.get(SIZE)), limit, refused)


def stored(view: View, name: str) -> Result | None:
    """A what-if as it was simulated when the run was read; None where nobody did."""
    read = getattr(view.analysis, "extra", None)
    found: Result | None = read(name) if callable(read) else None
    return found


def of_pipeline(view: View, of: Asked) -> Result | None:
    """The alternatives to the pipeline that ran; None where nobody simulated them."""
    result = stored(view, "what_if")
    if result is None or not result.available:
        return result
    known = set(result.tables["alternatives"]["microbatches"].dropna().astype(int))
    return narrowed(result, of.microbatches if of.microbatches in known else None, of.limit_bytes)


def of_memory(view: View, of: Asked) -> Result | None:
    """Other recomputations, of microbatches of one size, against the memory of a device; None where nobody foretold them."""
    result = stored(view, "memory_what_if")
    if result is None or not result.available:
        return result
    table = result.tables["alternatives"]
    size = of.size if of.size is not None and of.size in set(table["microbatch_size"]) else int(result.summary["microbatch_size"])
    chosen = replace(result, tables={"alternatives": table[table["microbatch_size"].eq(size)].reset_index(drop=True)})
    return limited(chosen, of.limit_bytes)


def alternatives(view: View, of: Asked) -> Drawn | None:
    """Alternatives to the pipeline that ran."""
    from tracekit.figures.what_if import alternatives as draw

    result = of_pipeline(view, of)
    return None if result is None or not result.available else serialised(draw(result))


def recomputations(view: View, of: Asked) -> Drawn | None:
    """Other recomputations than the one that ran."""
    from tracekit.figures.memory_what_if import alternatives as draw

    result = of_memory(view, of)
    return None if result is None or not result.available else serialised(draw(result))


#: Name in the address -> its drawing.
EXTRAS: Mapping[str, Callable[[View, Asked], Drawn | None]] = {"what_if": alternatives, "memory_what_if": recomputations}
