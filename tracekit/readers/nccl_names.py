"""What do NCCL's numbers and names stand for? Data types, calls, algorithms and protocols, as NCCL numbers and spells them."""

from __future__ import annotations

import re

from tracekit.numbers import below
from tracekit.vocabulary import Collective
from tracekit.widths import element_bytes

#: ncclDataType_t -> name, bytes. src/nccl.h.in: 0-8 since NCCL 2.0, bfloat16 since 2.10, float8 since 2.24 (RCCL numbers its own alike).
DATATYPES: dict[int, tuple[str, int]] = {
    0: ("int8", 1),
    1: ("uint8", 1),
    2: ("int32", 4),
    3: ("uint32", 4),
    4: ("int64", 8),
    5: ("uint64", 8),
    6: ("float16", 2),
    7: ("float32", 4),
    8: ("float64", 8),
    9: ("bfloat16", 2),
    10: ("float8e4m3", 1),
    11: ("float8e5m2", 1),
}

#: opName of ncclInfo (src/collectives.cc; all-to-all, gather and scatter since NCCL 2.28, earlier in RCCL), letters only, lower case.
_KINDS = {
    "allreduce": Collective.ALL_REDUCE,
    "allgather": Collective.ALL_GATHER,
    "reducescatter": Collective.REDUCE_SCATTER,
    "broadcast": Collective.BROADCAST,
    "bcast": Collective.BROADCAST,
    "reduce": Collective.REDUCE,
    "alltoall": Collective.ALL_TO_ALL,
    "alltoallpivot": Collective.ALL_TO_ALL,
    "alltoallgda": Collective.ALL_TO_ALL,
    "alltoallv": Collective.ALL_TO_ALL,
    "gather": Collective.GATHER,
    "scatter": Collective.SCATTER,
    "send": Collective.SEND,
    "recv": Collective.RECV,
    "sendrecv": Collective.SEND_RECV,
}
#: Calls whose count argument is what one rank has of the whole (src/nccl.h.in: sendcount, recvcount, count per peer).
PER_RANK = frozenset({Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL, Collective.GATHER, Collective.SCATTER})

#: NCCL_ALGO_* of src/include/nccl_tuner.h (earlier src/include/devcomm.h): 2 and 3 split up since 2.12, NVLS since 2.17, PAT since 2.23.
_ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
#: NCCL_PROTO_* of the same file.
_PROTOCOLS = ("LL", "LL128", "Simple")


def kind_of(name: str) -> Collective | None:
    """Which collective a call of NCCL is; None for calls that are none (PutSignal).

    >>> kind_of("AlltoAll"), kind_of("ncclReduceScatter"), kind_of("PutSignal")
    (<Collective.ALL_TO_ALL: 'all_to_all'>, <Collective.REDUCE_SCATTER: 'reduce_scatter'>, None)
    """
    return _KINDS.get(_letters(name).removeprefix("nccl"))


def dtype_of(name: str) -> tuple[str, int | None]:
    """Name and bytes of an element type by its name; bytes None where it is not known.

    >>> dtype_of("ncclBfloat16"), dtype_of("ncclFloat4")
    (('bfloat16', 2), ('float4', None))
    """
    short = name.removeprefix("nccl").lower()
    return short, element_bytes(short)


def algorithm_of(text: str) -> str | None:
    """An algorithm by number or name, as NCCL names it.

    >>> algorithm_of("1"), algorithm_of("NVLS_TREE"), algorithm_of("unknown")
    ('Ring', 'NVLSTree', None)
    """
    return _named(text, _ALGORITHMS)


def protocol_of(text: str) -> str | None:
    """A protocol by number or name.

    >>> protocol_of("2"), protocol_of("SIMPLE"), protocol_of("9")
    ('Simple', 'Simple', None)
    """
    return _named(text, _PROTOCOLS)


def whole_bytes(kind: Collective | None, of_one_rank: int | None, ranks: int | None) -> int | None:
    """nccl-tests' size of a call, given count x width as the call was made; that itself where the group's size is unknown.

    >>> whole_bytes(Collective.ALL_GATHER, 2000, 4), whole_bytes(Collective.ALL_REDUCE, 2000, 4)
    (8000, 2000)
    """
    if of_one_rank is None or kind not in PER_RANK:
        return of_one_rank
    return below(of_one_rank * ranks, 1 << 63) if ranks else of_one_rank


def _letters(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


def _named(text: str, names: tuple[str, ...]) -> str | None:
    if text.isdigit():
        return names[int(text)] if len(text) < 3 and int(text) < len(names) else None
    wanted = text.replace("_", "").lower()
    return next((name for name in names if name.lower() == wanted), None)
