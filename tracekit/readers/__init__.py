"""Bytes -> RankTrace: which formats can be read, and which one is this?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tracekit.errors import InputError
from tracekit.readers import (
    execution_trace,
    flight_recorder,
    kineto,
    memory_snapshot,
    nccl_inspector,
    nccl_log,
    nccl_profiler,
    nccl_tests,
    nsys,
    parquet,
    rocprof,
)
from tracekit.readers.bytes import HEAD, head, unpacked
from tracekit.readers.strangers import describe
from tracekit.reading import DEFAULT, Reading
from tracekit.trace import RankTrace


class Reader(NamedTuple):
    """One format.

    Attributes:
        name: what it is called in messages and in ``RankMeta.formats``.
        sniff: whether the first bytes (decompressed, up to 64 KiB) are of this format.
        read: content, path (for messages) and caps -> the ranks it holds, one RankTrace each.
        timeline: whether it holds slices of time, that others can be joined with.
        beside: whether it belongs beside a rank's timeline and is joined with it where there is one.
    """

    name: str
    sniff: Callable[[bytes], bool]
    read: Callable[[bytes, Path, Reading], tuple[RankTrace, ...]]
    beside: bool = False
    timeline: bool = False


#: In the order in which they are tried.
READERS: tuple[Reader, ...] = (
    Reader("Nsight Systems export", nsys.sniff, nsys.read, timeline=True),
    Reader("Parquet of tracekit", parquet.sniff, parquet.read, timeline=True),
    Reader("CUDA memory snapshot", memory_snapshot.sniff, memory_snapshot.read, beside=True),
    Reader("Flight Recorder dump", flight_recorder.sniff, flight_recorder.read, beside=True),
    Reader("rocprofiler-sdk JSON", rocprof.sniff, rocprof.read, timeline=True),
    Reader("execution trace", execution_trace.sniff, execution_trace.read, beside=True),
    Reader("NCCL profiler events", nccl_profiler.sniff, nccl_profiler.read),
    Reader("NCCL Inspector records", nccl_inspector.sniff, nccl_inspector.read),
    Reader("nccl-tests output", nccl_tests.sniff, nccl_tests.read),
    Reader("NCCL log", nccl_log.sniff, nccl_log.read),
    Reader("Kineto trace", kineto.sniff, kineto.read, timeline=True),
)


def reader_for(start: bytes) -> Reader | None:
    """The reader whose format the first decompressed bytes show, or None."""
    return next((r for r in READERS if r.sniff(start)), None)


def read(path: Path, reading: Reading = DEFAULT, label: Path | None = None) -> tuple[RankTrace, ...]:
    """Read one file: the ranks it holds.

    Args:
        path: where its bytes lie.
        reading: caps, and whether to salvage.
        label: what messages call it, where that is not its path (a member of an archive).

    Raises:
        InputError: it is no trace that is known here, or it is cut or damaged.
    """
    label = path if label is None else label
    reader = reader_for(head(path))
    data, packing, damage = unpacked(path, label, reading)  # a damaged compressed file says so itself
    if reader is None:
        raise InputError(f"not a trace I know: {describe(data[:HEAD], data, label.name)}", label)
    reading.says("decode", nbytes=len(data))
    traces = reader.read(data, label, reading)
    named = tuple(replace(t, meta=replace(t.meta, files=(str(label),), formats=(reader.name,), packings=(packing or "plain",))) for t in traces)
    if damage is None:
        return named
    says = f"{damage}; only what could be unpacked was read: every figure is of a part of the recording"
    return tuple(t.with_finding("unpacked_in_part", "warning", says, file=str(label)) for t in named)


__all__ = ["READERS", "Reader", "read", "reader_for"]
