"""What does a PyTorch execution trace (PARAM, Chakra) say? Operators, bytes and communication calls of a rank; no times.

torch.profiler.ExecutionTraceObserver writes a graph of nodes: one per call, with its arguments, their shapes and types. Nodes
have taken two forms: arguments as ``inputs``, ``input_shapes``, ``input_types`` (schema 1.0.1), and as ``inputs: {values, shapes,
types}`` with everything else under ``attrs`` (1.0.2-chakra.0.0.4 and later). A tensor is written as
``[tensor id, storage id, offset, elements, bytes per element, device]``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd

from tracekit import schema
from tracekit.errors import InputError
from tracekit.group_ranks import MOST_RANKS, canonical
from tracekit.numbers import natural, numbers
from tracekit.readers.json_repair import depths
from tracekit.readers.json_text import Damaged, decode, said
from tracekit.reading import DEFAULT, Deadline, Reading
from tracekit.trace import RankMeta, RankTrace
from tracekit.vocabulary import P2P, Collective, collective_of

_SNIFF = re.compile(rb'"schema"\s*:\s*"\d+\.\d+')
_COMMS = "record_param_comms"
_GROUPS = "## process_group:init ##"
_DEFAULT_GROUP = "default_pg"
#: Collectives whose stated rank is the root, not the own one.
_ROOTED = frozenset({Collective.BROADCAST, Collective.REDUCE, Collective.GATHER, Collective.SCATTER})
_CHECK_EVERY = 100_000


class _Node(msgspec.Struct, gc=False):
    """One call."""

    id: Any = None
    name: Any = None
    parent: Any = None
    ctrl_deps: Any = None
    inputs: Any = None
    input_types: Any = None
    outputs: Any = None
    output_types: Any = None
    attrs: Any = None


class _File(msgspec.Struct, gc=False):
    """The top-level object."""

    nodes: list[_Node]
    schema: Any = None


class _Group(NamedTuple):
    """A process group: description, and global ranks where they are known."""

    desc: str | None
    ranks: tuple[int, ...]
    size: int | None
    backend: str | None


class _Book:
    """Which ranks a group has: by its name or pointer, else by the first rank and stride that a call states."""

    def __init__(self, groups: dict[str, _Group], pointers: dict[int, str]) -> None:
        self.groups = groups
        self._pointers = pointers
        self._texts: dict[Sequence[int], str | None] = {}
        self._held = 0

    def name(self, group: Any) -> tuple[str | None, str | None]:
        """Name and description of a group as a call refers to it."""
        if isinstance(group, list):
            name, desc = [*(str(part) or None for part in group[:2]), None, None][:2]
            return name, desc
        if type(group) is not int or not group:
            return None, None
        return self._pointers.get(group, f"0x{group & (1 << 64) - 1:x}"), None

    def text(self, ranks: Sequence[int]) -> str | None:
        """Global ranks as the tables write them; the texts of all groups together stay below ``MOST_RANKS`` ranks."""
        if ranks not in self._texts:
            self._held += len(ranks)
            self._texts[ranks] = canonical(ranks) or None if self._held <= MOST_RANKS else None
        return self._texts[ranks]


class _Place(NamedTuple):
    """Where a call says that its caller stands: place in a group, and the global rank where the group's ranks are known."""

    group: str | None
    place: int
    rank: int | None


def sniff(head: bytes) -> bool:
    """Whether the first bytes are those of an execution trace."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and b'"nodes"' in head and b'"traceEvents"' not in head and bool(_SNIFF.search(head))


def read(data: bytes, path: Path, reading: Reading = DEFAULT) -> tuple[RankTrace, ...]:
    """The operators and communication calls of one rank, in ``stated``: ``operators`` (every node counts) and ``records``.

    Raises:
        InputError: the text is cut or malformed (with the byte), has no nodes, or more than ``reading.max_events``.
    """
    file, notes = _opened(data, path, reading)
    if not file.nodes:
        raise InputError("the execution trace holds 0 nodes; was the observer started before the step?", path, 0)
    if len(file.nodes) > reading.max_events:
        raise InputError(f"holds {len(file.nodes)} nodes, more than {reading.max_events}; raise --max-events", path)
    deadline = reading.started()
    book = _book(file.nodes)
    groups = book.groups
    world = next((g.size for name, g in groups.items() if g.desc == _DEFAULT_GROUP or name == "0"), None)
    calls, places = _calls(file.nodes, book)
    ranks = {place.rank for place in places if place.rank is not None}
    # no list of groups (schema 1.0.1): where all calls are in one group, it is taken for the whole job
    guessed = len(places) == 1 and not ranks
    rank = next(iter(ranks)) if len(ranks) == 1 else next(iter(places)).place if guessed else None
    backends = {g.backend for g in groups.values() if g.backend}
    meta = RankMeta(
        rank=rank,
        world_size=world,
        backend=backends.pop() if len(backends) == 1 else None,
        files=(str(path),),
        groups={name: {"desc": g.desc, "ranks": g.ranks} for name, g in groups.items()},
        versions={"execution_trace": str(file.schema)},
    )
    trace = RankTrace(meta=meta, stated={"operators": _operators(file.nodes, deadline, path), "records": calls})
    for note in notes:
        trace = trace.with_finding(severity="warning", file=str(path), **note)
    nameless = sum(type(n.name) is not str for n in file.nodes)
    if nameless:
        trace = trace.with_finding("records_dropped", "warning", f"{nameless} nodes without a name were left out", file=str(path), count=nameless)
    if guessed:
        says = f"rank {rank} is its place in the only process group it communicates in: the file lists no groups"
        trace = trace.with_finding("rank_inferred", "info", says, file=str(path))
    if len(ranks) > 1:
        says = f"its calls state several ranks as their own ({', '.join(map(str, sorted(ranks)))}): only the file's name can tell the rank"
        trace = trace.with_finding("rank_ambiguous", "warning", says, file=str(path))
    return (trace,)


def _opened(data: bytes, path: Path, reading: Reading) -> tuple[_File, list[dict[str, Any]]]:
    """The decoded file and what is to be said of it; with ``reading.salvage`` the whole nodes before the damage."""
    try:
        decoded, partial = decode(data, path, _File), None
    except Damaged as damage:
        if not reading.salvage or damage.offset is None or damage.kind == "deep":
            raise
        decoded, partial = decode(_before(data, damage), path, _File), damage.offset
    notes = [{"code": r.what, "message": said(r), "count": r.number, "offset": r.offset} for r in decoded.repairs]
    if partial is not None:
        kept = len(decoded.value.nodes)
        says = f"partial: the text is damaged at byte {partial}, and {kept} whole nodes before that were kept; every figure is a lower bound"
        notes.append({"code": "salvaged", "message": says, "count": kept, "offset": partial})
    return decoded.value, notes


def _before(data: bytes, damage: Damaged) -> bytes:
    """The file with its list of nodes ended after the last whole node before the damage.

    Raises:
        Damaged: there is none.
    """
    text = data[: damage.offset]
    brackets, open_ones = depths(np.frombuffer(text, np.uint8))
    ends = brackets[(open_ones == 2) & (np.frombuffer(text, np.uint8)[brackets] == ord("}"))]
    if not len(ends):
        raise damage
    return text[: int(ends[-1]) + 1] + b"]}"


def _operators(nodes: list[_Node], deadline: Deadline, path: Path) -> pd.DataFrame:
    """Every name with its count and the bytes of its tensors, the most frequent first."""
    counts: Counter[str] = Counter()
    sums: dict[str, tuple[int | None, int | None]] = {}
    for number, node in enumerate(nodes):
        if number % _CHECK_EVERY == 0:
            deadline.check(path)
        if type(node.name) is str:
            counts[node.name] += 1
            size_in, size_out = sums.get(node.name, (0, 0))
            more_in, more_out = _tensor_bytes(*_side(node.inputs, node.input_types)), _tensor_bytes(*_side(node.outputs, node.output_types))
            sums[node.name] = (_sum(size_in, more_in), _sum(size_out, more_out))
    names = sorted(counts, key=lambda name: (-counts[name], name))
    columns = {
        "name": names,
        "count": [counts[name] for name in names],
        "input_bytes": numbers([sums[name][0] for name in names], "Int64"),
        "output_bytes": numbers([sums[name][1] for name in names], "Int64"),
    }
    return schema.conform(pd.DataFrame(columns), schema.OPERATORS)


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _side(values: Any, types: Any) -> tuple[list[Any], list[Any]]:
    """Arguments and their types, in either form."""
    if isinstance(values, dict):
        values, types = values.get("values"), values.get("types")
    return (values if isinstance(values, list) else []), (types if isinstance(types, list) else [])


def _tensor_bytes(values: list[Any], types: list[Any]) -> int | None:
    """Bytes of all tensors among some arguments; None where one's size is not told."""
    total = 0
    for value, kind in zip(values, types, strict=False):
        if isinstance(kind, str) and "Tensor(" in kind:
            for tensor in _tensors(value):
                size = _size(tensor)
                if size is None:
                    return None
                total += size
    return total


def _tensors(value: Any) -> Iterable[Any]:
    """The tensors of an argument: itself, or those of a list (of lists)."""
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, list) and (not one or isinstance(one[0], list) or one[0] is None or isinstance(one[0], str)):
            todo.extend(one)
        elif one is not None and not isinstance(one, str):
            yield one


def _size(tensor: Any) -> int | None:
    """Bytes of ``[id, storage, offset, elements, bytes per element, device]``; None for anything else."""
    if not isinstance(tensor, list) or len(tensor) != 6 or not all(type(n) is int and 0 <= n < 1 << 62 for n in tensor[3:5]):
        return None
    size: int = tensor[3] * tensor[4]
    return size if size < 1 << 62 else None


def _book(nodes: list[_Node]) -> _Book:
    """Process groups by name, and the names by the pointers that older traces call them by."""
    groups: dict[str, _Group] = {}
    pointers: dict[int, str] = {}
    for node in nodes:
        if node.name != _GROUPS:
            continue
        entries = [e for text in _side(node.inputs, node.input_types)[0] if isinstance(text, str) for e in _entries(text)]
        sizes = {str(e.get("pg_name")): natural(e.get("group_size")) for e in entries}
        world = next((natural(e.get("group_size")) for e in entries if e.get("pg_desc") == _DEFAULT_GROUP), sizes.get("0"))
        everyone = tuple(range(world if world is not None and world < MOST_RANKS else 0))
        for entry in entries:
            name, size = str(entry.get("pg_name")), natural(entry.get("group_size"))
            ranks = entry.get("ranks")
            known = tuple(sorted(r for r in ranks if type(r) is int and 0 <= r < MOST_RANKS)) if isinstance(ranks, list) else ()
            # an empty list stands for all ranks of the job
            if ranks == [] and size == world:
                known = everyone
            desc = entry.get("pg_desc")
            groups[name] = _Group(str(desc) if desc else None, known, size, _backend(entry.get("backend_config")))
            if type(entry.get("backend_id")) is int:
                pointers[entry["backend_id"]] = name
    return _Book(groups, pointers)


def _entries(text: str) -> list[Mapping[str, Any]]:
    try:
        entries = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return []
    return [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []


def _backend(config: Any) -> str | None:
    """``cuda:nccl`` -> nccl; None where devices have different ones."""
    names = {part.rpartition(":")[2] for part in config.split(",")} if isinstance(config, str) and config else set()
    return names.pop() if len(names) == 1 else None


def _calls(nodes: list[_Node], book: _Book) -> tuple[pd.DataFrame, set[_Place]]:
    """Communication calls in order, and the places that they state as the caller's.

    Each is told by ``record_param_comms`` where the backend writes it (NCCL), else by its ``c10d::`` operator (gloo).
    """
    told_by_child = {_parent(n) for n in nodes if n.name == _COMMS}
    rows: list[dict[str, Any]] = []
    places: set[_Place] = set()
    for node in nodes:
        name = node.name
        if name == _COMMS:
            row, own = _stated(node, book)
            if own is not None:
                places.add(own)
        elif isinstance(name, str) and name.startswith("c10d::") and not (isinstance(node.id, int) and node.id in told_by_child):
            row = _by_operator(node)
        else:
            continue
        if row is not None:
            rows.append({"source": "execution_trace", **row})
    return schema.conform(pd.DataFrame(rows, columns=list(schema.RECORDS), dtype=object), schema.RECORDS), places


def _parent(node: _Node) -> Any:
    parent = node.parent if node.parent is not None else node.ctrl_deps
    return parent if isinstance(parent, int) else None


def _stated(node: _Node, book: _Book) -> tuple[dict[str, Any] | None, _Place | None]:
    """One row of ``record_param_comms``, and the place that it states as the caller's.

    Arguments (torch, ParamCommsUtils.hpp): [tensors,] sequence number, group, rank, name, input splits, output splits
    [, first global rank, stride] [, group size, ...]. The group is a pointer, or (name, description) since torch 2.3; the rank is
    the own one in the group, the root of a rooted collective, the peer of a send or receive.
    """
    values, types = _side(node.inputs, node.input_types)
    attrs = {str(a.get("name")): a.get("value") for a in node.attrs if isinstance(a, dict)} if isinstance(node.attrs, list) else {}
    at = next((i for i in range(3, len(values)) if isinstance(values[i], str) and _type(types, i) == "String"), None)
    name = attrs.get("collective_name") or (None if at is None else values[at])
    kind = collective_of(name) if isinstance(name, str) and name != "wait" else None
    if kind is None or at is None:
        return None, None
    seq, group, rank = values[at - 3 : at]
    group_name, desc = book.name(group)
    known = book.groups.get(group_name or "", _Group(None, (), None, None))
    start, stride, size = (natural(attrs.get(k)) for k in ("global_rank_start", "global_rank_stride", "pg_size"))
    ranks: Sequence[int] = known.ranks
    if not ranks and start is not None and stride and size and start + size * stride <= MOST_RANKS:
        ranks = range(start, start + size * stride, stride)
    place = natural(rank)
    there = ranks[place] if place is not None and place < len(ranks) else None
    size = len(ranks) or size or known.size
    number = natural(seq[0] if isinstance(seq, list) and seq else seq)
    size_in, size_out = _tensor_bytes(values, types), _tensor_bytes(*_side(node.outputs, node.output_types))
    row = {
        "kind": str(kind),
        "name": name,
        "group": group_name,
        "group_desc": desc or known.desc,
        "group_ranks": book.text(ranks),
        "group_size": size or None,
        "seq": number,
        "peer": there if kind in P2P else None,
        "nbytes": _nbytes(kind, size_in, size_out),
        "dtype": attrs.get("dtype") if isinstance(attrs.get("dtype"), str) else _dtype(types),
    }
    return row, None if place is None or kind in P2P or kind in _ROOTED else _Place(group_name, place, there)


def _by_operator(node: _Node) -> dict[str, Any] | None:
    """One row of a ``c10d::`` operator: kind and bytes, but no group."""
    kind = collective_of(node.name)
    values, types = _side(node.inputs, node.input_types)
    if kind is None:
        return None
    # the receiving buffers are arguments too, before what is sent
    sizes = [_tensor_bytes([v], [t]) for v, t in zip(values, types, strict=False) if isinstance(t, str) and "Tensor(" in t]
    nbytes = None if not sizes or None in sizes or kind == Collective.BARRIER else sizes[-1] if kind == Collective.ALL_TO_ALL else max(s or 0 for s in sizes)
    return {"kind": str(kind), "name": node.name, "nbytes": nbytes, "dtype": _dtype(types)}


def _nbytes(kind: Collective, size_in: int | None, size_out: int | None) -> int | None:
    """nccl-tests' size: the larger side, but the send buffer of an all-to-all; a barrier moves nothing worth a size."""
    if kind == Collective.BARRIER or size_in is None or size_out is None:
        return None
    return size_in if kind == Collective.ALL_TO_ALL else max(size_in, size_out)


def _dtype(types: list[Any]) -> str | None:
    """Element type of the first tensor."""
    return next((m[1] for t in types if isinstance(t, str) and (m := re.search(r"Tensor\(([^()]+)\)", t))), None)


def _type(types: list[Any], i: int) -> Any:
    return types[i] if i < len(types) else None
