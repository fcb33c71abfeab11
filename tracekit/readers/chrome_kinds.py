"""What is a slice of a Chrome trace, by its category? Names of all eras of Kineto and of its offspring, and traces without categories.

Sources: pytorch/kineto, libkineto/include/ActivityType.h (all versions: ``Kernel`` and ``Operator`` are of 2021, the others
since), torch's own exporter from before Kineto (``CPU functions``, ``CUDA functions``), IBM's aiu-trace-analyzer (``Cmpt Exec``,
``DmaI``, ``DmaO``).
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.readers.chrome_records import Event
from tracekit.vocabulary import Kind

_ALL = list(Kind)
_DTYPE = pd.CategoricalDtype(_ALL)
_CODES = {kind: code for code, kind in enumerate(_ALL)}
_KINDS = {
    **dict.fromkeys(("cpu_op", "Operator"), Kind.OPERATOR),
    "user_annotation": Kind.RANGE,
    "python_function": Kind.PYTHON,
    **dict.fromkeys(("Runtime", "hpu_op"), Kind.LAUNCH),
    **dict.fromkeys(("kernel", "Kernel", "concurrent_kernel", "mtia_ccp_events"), Kind.COMPUTE),
    **dict.fromkeys(("Memcpy", "gpu_memcpy"), Kind.MEMCPY),
    **dict.fromkeys(("Memset", "gpu_memset"), Kind.MEMSET),
    "gpu_user_annotation": Kind.DEVICE_RANGE,
    # neither work nor its cause: the profiler's own account, and records of waiting
    **dict.fromkeys(("Trace", "overhead", "cuda_sync", "cuda_event", "xpu_sync", "mtia_insight", "external_correlation"), Kind.OTHER),
}
#: Makers of accelerators put their own word in front: ``xpu_runtime``, ``mlu_memcpy``, ``GCU_MEMSET``.
_ENDINGS = {
    "_runtime": Kind.LAUNCH,
    "_driver": Kind.LAUNCH,
    "_memcpy": Kind.MEMCPY,
    "_memset": Kind.MEMSET,
    "_user_annotation": Kind.DEVICE_RANGE,
    "_sync": Kind.OTHER,
}
#: Records of MTIA's command processor that are no work: the marks of events, and waiting for them.
_MTIA = {"event_wait": Kind.OTHER, "event_record": Kind.OTHER, "dma_request": Kind.MEMCPY}
#: Endings of names in traces of IBM's AIU, which have no categories.
_AIU = {" Cmpt Exec": Kind.COMPUTE, " DmaI": Kind.MEMCPY, " DmaO": Kind.MEMCPY, " Cmpt Prep": Kind.OTHER}
ON_DEVICE = frozenset({Kind.COMPUTE, Kind.MEMCPY, Kind.MEMSET, Kind.DEVICE_RANGE})
GPU_WORK = frozenset({Kind.COMPUTE, Kind.MEMCPY, Kind.MEMSET})


class Kinds(NamedTuple):
    """What slices are.

    Attributes:
        column: their kinds, a category per slice.
        on_device: which ran on a device.
        unknown: categories that are not known here, with their counts.
        without: number of slices without a category, of which nothing else tells what they are.
    """

    column: pd.Categorical
    on_device: npt.NDArray[np.bool_]
    unknown: dict[str, int]
    without: int


def kinds_of(slices: list[Event]) -> Kinds:
    """The kind of each slice, by its category; without one by its name and track."""
    categories = [e.cat if type(e.cat) is str else None for e in slices]
    counts = Counter(category for category in categories if category is not None)
    known = {category: kind_of(category) for category in counts}
    table: dict[str | None, int] = {category: _CODES[kind or Kind.OTHER] for category, kind in known.items()}
    codes = np.fromiter((table.get(category, -1) for category in categories), np.int8, len(slices))
    without = 0
    for row in np.flatnonzero(codes < 0).tolist():
        kind = _uncategorised(slices[row])
        without += kind is Kind.RANGE
        codes[row] = _CODES[kind]
    if "mtia_ccp_events" in known:
        for row in (i for i, category in enumerate(categories) if category == "mtia_ccp_events"):
            codes[row] = _CODES[_MTIA.get(slices[row].name, Kind.COMPUTE)]
    on_device = np.isin(codes, [_CODES[kind] for kind in ON_DEVICE])
    unknown = {category: counts[category] for category, kind in known.items() if kind is None}
    return Kinds(pd.Categorical.from_codes(codes, dtype=_DTYPE), on_device, unknown, without)


def kind_of(category: str) -> Kind | None:
    """Kind of a category; None where it is not known.

    >>> kind_of("cuda_runtime"), kind_of("XPU_MEMCPY"), kind_of("weather")
    (<Kind.LAUNCH: 'launch'>, <Kind.MEMCPY: 'memcpy'>, None)
    """
    if category in _KINDS:
        return _KINDS[category]
    return next((kind for ending, kind in _ENDINGS.items() if category.lower().endswith(ending)), None)


def _uncategorised(event: Event) -> Kind:
    """A slice without a category: a range, unless its name or its track tells more."""
    name: Any = event.name
    if event.pid == "CUDA functions":
        return next((kind for word, kind in (("Memcpy", Kind.MEMCPY), ("Memset", Kind.MEMSET)) if name.startswith(word)), Kind.COMPUTE)
    if event.pid == "CPU functions" and "::" in name:
        return Kind.OPERATOR
    return next((kind for ending, kind in _AIU.items() if name.endswith(ending)), Kind.RANGE)
