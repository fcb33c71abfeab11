"""What do our own files beside a trace say? ``run.json`` and the memory baseline, each checked once here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from tracekit.errors import InputError
from tracekit.group_ranks import MOST_RANKS
from tracekit.model_sizes import MOST_FLOPS, MOST_RATIO, MOST_SIZE
from tracekit.readers.bytes import read_bytes

T = TypeVar("T")
#: What fits the columns that these numbers end up in.
_Number = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_Ranks = Annotated[int, msgspec.Meta(ge=1, le=MOST_RANKS)]
#: A size of a model or of its step; products of several are made of these.
_Size = Annotated[int, msgspec.Meta(ge=0, le=MOST_SIZE)]


class _Model(msgspec.Struct):
    layers: _Size | None = None
    hidden: _Size | None = None
    heads: _Size | None = None
    sequence: _Size | None = None
    vocabulary: _Size | None = None
    parameters: _Natural | None = None
    dtype: str | None = None
    dtype_bytes: Annotated[int, msgspec.Meta(ge=0, le=64)] | None = None
    attention: str | None = None
    mlp_ratio: Annotated[float, msgspec.Meta(ge=0, le=MOST_RATIO)] | None = None
    dropout: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    kv_heads: _Size | None = None
    head_size: _Size | None = None
    ffn_hidden: _Size | None = None
    gated_mlp: bool | None = None
    experts: _Size | None = None


class _Training(msgspec.Struct):
    microbatch_size: _Size | None = None
    microbatches: _Size | None = None
    global_batch: _Size | None = None
    optimizer: str | None = None
    sequence_parallel: bool | None = None


class _Pipeline(msgspec.Struct):
    schedule: str | None = None
    stages: _Size | None = None
    virtual: _Size | None = None


class _Run(msgspec.Struct):
    """The parts of ``run.json`` that are computed with; everything may be absent, and what is not listed is only shown."""

    world_size: _Ranks | None = None
    mesh: dict[str, _Ranks] | None = None
    model: _Model | None = None
    training: _Training | None = None
    pipeline: _Pipeline | None = None
    recompute: str | None = None
    peak_flops: Annotated[float, msgspec.Meta(ge=0, le=MOST_FLOPS)] | None = None
    emulate_compute_ns: _Natural | None = None
    versions: dict[str, str | None] | None = None
    host: str | None = None
    device: str | None = None
    given: list[str] | None = None


class _Block(msgspec.Struct):
    """One block of memory.json."""

    addr: _Natural
    bytes: _Natural
    category: str | None = None
    layer: str | None = None
    device_type: _Number | None = None
    device: _Number | None = None
    time_ns: _Number | None = None


class _Memory(msgspec.Struct):
    blocks: list[_Block] = []
    later: list[_Block] = []
    seen: list[_Block] = []


def run_json(path: Path) -> dict[str, Any]:
    """The whole of a ``run.json``.

    Raises:
        InputError: it is no JSON object, or a part that is computed with has another type.
    """
    return _checked(path, _Run)


def memory(path: Path) -> tuple[Mapping[str, Any], ...]:
    """The blocks of a ``memory.json``, each with the list it stands in as ``when``: blocks, later or seen.

    Raises:
        InputError: as :func:`run_json`.
    """
    found = _checked(path, _Memory)
    return tuple({**block, "when": when} for when in ("blocks", "later", "seen") for block in found.get(when, ()))


def _checked(path: Path, shape: type[T]) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(read_bytes(path))
        msgspec.convert(found, shape)
    except msgspec.ValidationError as error:
        raise InputError(f"not what it should hold ({error}); record the run again or remove the file", path) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"not valid JSON ({error}); record the run again or remove the file", path) from error
    return found
