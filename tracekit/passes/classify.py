"""Which events are communication, and of which kind? The only place where names of kernels are judged.

Metadata speaks first (the ``collective`` that the trace itself names), then the name of the kernel or operator. Each
distinct name is judged once.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from tracekit.columns import by_name, choose, named
from tracekit.trace import RankTrace
from tracekit.vocabulary import EMULATED_COMPUTE, Collective, Kind

#: Kernels that communicate, by a part of their name. NCCL's own names, old and new (github.com/NVIDIA/nccl,
#: src/device/generate.py), RCCL's generic kernel, NCCL symmetric memory, MSCCL, the custom all-reduces of vLLM and
#: TensorRT-LLM, torch's symmetric-memory kernels, and NVSHMEM.
COMMUNICATION_KERNELS = (
    "ncclKernel",
    "ncclDevKernel",
    "rcclGenericKernel",
    "ncclSymk",
    "ncclSymDevKernel",
    "mscclKernel_",
    "cross_device_reduce",
    "multimem_all_reduce",
    "multimem_one_shot_all_reduce",
    "one_shot_all_reduce",
    "two_shot_all_reduce",
    "allreduce_fusion_kernel",
    "nvshmem",
)

#: Kinds by a part of a name, first match wins; names are compared without case and underscores.
_COLLECTIVE_WORDS = (
    ("reducescatter", Collective.REDUCE_SCATTER),
    ("allreduce", Collective.ALL_REDUCE),
    ("allgather", Collective.ALL_GATHER),
    ("alltoall", Collective.ALL_TO_ALL),
    ("broadcast", Collective.BROADCAST),
    ("crossdevicereduce", Collective.ALL_REDUCE),
    ("barrier", Collective.BARRIER),
    ("sendrecv", Collective.SEND_RECV),
    ("recv", Collective.RECV),
    ("send", Collective.SEND),
    ("scatter", Collective.SCATTER),
    ("gather", Collective.GATHER),
    ("reduce", Collective.REDUCE),
)


def collective_of(name: str) -> Collective | None:
    """Kind of collective that a kernel, operator or metadata name stands for.

    >>> collective_of("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(args)"), collective_of("c10d::_reduce_scatter_base_")
    (<Collective.ALL_REDUCE: 'all_reduce'>, <Collective.REDUCE_SCATTER: 'reduce_scatter'>)
    """
    flat = re.sub(r"[_\s]", "", name).lower()
    return next((kind for word, kind in _COLLECTIVE_WORDS if word in flat), None)


def is_communication_kernel(name: str) -> bool:
    """Whether a device kernel's name is one of ``COMMUNICATION_KERNELS``.

    >>> is_communication_kernel("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)"), is_communication_kernel("gemm")
    (True, False)
    """
    return any(part in name for part in COMMUNICATION_KERNELS)


def classify(trace: RankTrace) -> RankTrace:
    """Set ``kind`` of communication, emulated compute and async ranges, and ``collective`` of whatever communicates."""
    events = trace.events
    kind = events["kind"].to_numpy(object, copy=True)

    is_range, is_operator = kind == Kind.RANGE, kind == Kind.OPERATOR
    kernels = (kind == Kind.COMPUTE) & named(events, is_communication_kernel)
    gloo = is_range & named(events, lambda n: n.startswith("gloo:"))
    kind[kernels | gloo] = Kind.COMMUNICATION
    kind[is_range & named(events, lambda n: n.startswith("nccl:"))] = Kind.ASYNC_RANGE
    kind[is_range & named(events, lambda n: n == EMULATED_COMPUTE)] = Kind.COMPUTE
    issuing = is_operator & named(events, lambda n: n.startswith("c10d::"))

    collective = choose(kernels | gloo | issuing, by_name(events, collective_of), None)
    stated = events["collective"].cat
    if len(stated.categories):
        meaning = np.array([*(collective_of(str(c)) for c in stated.categories), None], object)[stated.codes.to_numpy()]
        collective = choose(pd.notna(meaning), meaning, collective)
    return trace.with_events(kind=pd.Categorical(kind, categories=list(Kind)), collective=pd.Categorical(collective, categories=list(Collective)))
