"""How do the facts of a source get onto the disk and back, the same numbers in the same types? One zip file: a document, and an Arrow stream per table.

A source is what is read at once: a file with what stands beside it, of which several traces may come. The file is renamed into its place, so
one that is there is whole; every entry carries a checksum, and a damaged file is refused, never read as other numbers.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec
import pandas as pd
import pyarrow as pa

from tracekit import schema
from tracekit.durable import sync
from tracekit.errors import InputError
from tracekit.store import meta_of
from tracekit.trace import RankFacts

SCHEMA = "tracekit.facts/1"
_DOCUMENT = "document.json"


def save(facts: Sequence[RankFacts], path: Path, of: str) -> Path:
    """Store the facts of a source, whole or not at all, and wait until the disk has them.

    Args:
        facts: of each of its traces, in their order.
        path: the file; its folder must exist.
        of: what they were made of and how; :func:`load` gives them back to nobody who asks for something else.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(beside, "w") as out:
            stated = [{"meta": asdict(f.meta), "tables": list(f.tables)} for f in facts]
            out.writestr(_DOCUMENT, json.dumps({"schema": SCHEMA, "of": of, "traces": stated}))
            for number, one in enumerate(facts):
                for name, frame in one.tables.items():
                    out.writestr(f"{number}/{name}.arrow", _packed(frame))
        sync(beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return path


def load(path: Path, of: str) -> list[RankFacts] | None:
    """The facts that were stored; None where there are none, or they were made of something else or in another way.

    Raises:
        InputError: the file is damaged.
    """
    try:
        with zipfile.ZipFile(path) as file:
            about = json.loads(file.read(_DOCUMENT))
            if (about["schema"], about["of"]) != (SCHEMA, of):
                return None
            return [
                RankFacts(meta_of(one["meta"]), {name: _restored(file.read(f"{number}/{name}.arrow"), name) for name in one["tables"]})
                for number, one in enumerate(about["traces"])
            ]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, zipfile.BadZipFile, zlib.error, pa.ArrowException, msgspec.MsgspecError) as error:
        raise InputError(f"damaged facts ({' '.join(str(error).split())[:120]}); read the trace again", path) from error


def _packed(frame: pd.DataFrame) -> bytes:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(table)
    return bytes(out.getvalue())


def _restored(data: bytes, name: str) -> pd.DataFrame:
    read = pa.ipc.open_stream(pa.py_buffer(data)).read_all().to_pandas()
    return schema.conform(read, schema.FACTS[name])
