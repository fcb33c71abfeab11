"""What do the arguments of a record say about communication? Group, ranks, size, type, and the peer of a send or receive."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import msgspec

from tracekit.group_ranks import MOST_RANKS, canonical
from tracekit.numbers import natural
from tracekit.readers.chrome_records import Args, label
from tracekit.vocabulary import Kind
from tracekit.widths import element_bytes

_FULL_RANKS = re.compile(r"^\[?[\d\s,]*\]?$")


class Payload(NamedTuple):
    """What the shapes of an operator's arguments tell of a call: elements, their type, and the peer within the group."""

    elements: int | None = None
    dtype: str | None = None
    peer: int | None = None


NO_PAYLOAD = Payload()


def process_groups(config: Any) -> dict[str, dict[str, Any]]:
    """Process groups of ``distributedInfo.pg_config``: name -> description and ranks."""
    groups: dict[str, dict[str, Any]] = {}
    for entry in config if isinstance(config, list) else []:
        if not isinstance(entry, dict) or "ranks" not in entry:
            continue
        name, found = str(entry.get("pg_name")), {"desc": label(entry.get("pg_desc")), "ranks": _members(entry["ranks"])}
        # a name that two groups share names neither
        groups[name] = found if groups.get(name, found)["ranks"] == found["ranks"] else {"desc": None, "ranks": ()}
    return groups


def _members(ranks: Any) -> tuple[int, ...]:
    """Ranks of a process group, given as a list or as text; empty where the list is cut or absent."""
    text = ranks_of(ranks)
    return tuple(r for r in map(int, text.split(",")) if r < MOST_RANKS) if text else ()


def ranks_of(value: Any) -> str | None:
    """``"[0, 1]"`` -> ``"0,1"``; None where the list is cut with dots or absent."""
    if isinstance(value, list):
        value = str(value)
    if not isinstance(value, str) or not _FULL_RANKS.match(value):
        return None
    found = re.findall(r"\d+", value)
    if any(len(n) > 9 for n in found):
        return None  # no rank
    return canonical({int(n) for n in found}) or None


def cut_ranks(value: Any) -> str | None:
    """``"[0, 1, ..., 63]"`` -> ``"0,1,...,63"``: the list as far as it is written; None where it is whole or absent."""
    if isinstance(value, list):
        value = ",".join(map(str, value))
    if not isinstance(value, str) or "..." not in value:
        return None
    return ",".join(re.findall(r"\d+|\.\.\.", value))


def payload_bytes(a: Args, payload: Payload, kind: Kind) -> int | None:
    """Size of a copy, or of a communication call; None where it or the element type is unknown."""
    if kind in (Kind.MEMCPY, Kind.MEMSET):
        return natural(a.copied)
    width = element_bytes(payload.dtype)
    return payload.elements * width if payload.elements is not None and width is not None else _message_bytes(a)


def _message_bytes(a: Args) -> int | None:
    """nccl-tests' size of a NCCL call: the larger side, but the send buffer of an all-to-all."""
    width = element_bytes(a.dtype) if type(a.dtype) is str else None
    if width is None or a.collective is None:
        return None
    sizes = [natural(a.in_nelems), natural(a.out_nelems)]
    if "to_all" in str(a.collective) or "toall" in str(a.collective):
        sizes = sizes[:1]
    known = [s for s in sizes if s is not None]
    return max(known) * width if known else None


def payload_of(a: Args, operator: str) -> Payload:
    """Elements of the largest tensor argument (lists added up; of an all-to-all the input), their type, and the peer of a send or receive."""
    if not bytes(a.dims) or not bytes(a.types):
        return NO_PAYLOAD
    try:
        dims, types = msgspec.json.decode(a.dims), msgspec.json.decode(a.types)
        concrete = msgspec.json.decode(a.concrete) if bytes(a.concrete) else []
        dims, types, concrete = (v if isinstance(v, list) else [] for v in (dims, types, concrete))
        sizes = [_numel(d) for d in dims if isinstance(d, list) and d]
    except (msgspec.DecodeError, RecursionError):
        return NO_PAYLOAD
    sizes = sizes[1:2] or sizes if "alltoall" in operator else sizes  # (output, input, …)
    name = next((t for t in types if isinstance(t, str) and element_bytes(t) is not None), None)
    peer = natural(concrete[2]) if len(concrete) > 2 and concrete[2] != "" else None
    return Payload(max(sizes) if sizes else None, name, peer)


def _numel(dims: list[Any]) -> int:
    """Elements of a shape, or of a list of shapes added up."""
    if all(isinstance(d, int) for d in dims):
        return math.prod(dims)
    return sum(_numel(d) for d in dims if isinstance(d, list) and d)


def peer_of(a: Args, group_rank: int | None) -> int | None:
    """Rank at the other end, as a rank within the group."""
    for value in (a.src, a.dst):
        number = natural(value)
        if number is not None:
            return number
    return group_rank
