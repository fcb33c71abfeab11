"""Which what-ifs are simulated while a run is read? Every schedule and every recomputation, with microbatches as they ran and more of them."""

from __future__ import annotations

from tracekit.analysis import Analysis
from tracekit.memory_what_if import MODES, Recomputation, memory_what_if
from tracekit.metrics import Result
from tracekit.what_if import what_if

#: Microbatches per step, and samples per microbatch, that are tried: so many times those of the run.
_MULTIPLES = (1, 2, 4)


def simulated(analysis: Analysis) -> dict[str, Result]:
    """Every what-if of a run that was read, by the name under which it is stored."""
    memory = memory_what_if(analysis)
    if memory.available:
        own = int(memory.summary["microbatch_size"])
        tried = [Recomputation(mode, 2 if mode == "every" else None, n * own) for n in _MULTIPLES for mode in MODES]
        memory = memory_what_if(analysis, tried)
    return {"what_if": what_if(analysis, multiples=_MULTIPLES), "memory_what_if": memory}
