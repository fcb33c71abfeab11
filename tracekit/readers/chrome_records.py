"""Which records does a Chrome trace hold? The structs that its JSON is decoded into: only what is read, everything else stays in the file."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

#: A field that is absent: an empty raw text.
NOTHING = msgspec.Raw()


class Args(msgspec.Struct, gc=False):
    """The arguments that are read; everything else stays in the file."""

    external_id: Any = msgspec.field(name="External id", default=None)
    external_old: Any = msgspec.field(name="external id", default=None)
    correlation: Any = None
    sequence: Any = msgspec.field(name="Sequence number", default=None)
    fwd_thread: Any = msgspec.field(name="Fwd thread id", default=None)
    device: Any = None
    stream: Any = None
    collective: Any = msgspec.field(name="Collective name", default=None)
    in_nelems: Any = msgspec.field(name="In msg nelems", default=None)
    out_nelems: Any = msgspec.field(name="Out msg nelems", default=None)
    group_size: Any = msgspec.field(name="Group size", default=None)
    dtype: Any = None
    group: Any = msgspec.field(name="Process Group Name", default=None)
    group_desc: Any = msgspec.field(name="Process Group Description", default=None)
    group_ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    seq: Any = msgspec.field(name="Seq", default=None)
    src: Any = msgspec.field(name="Src Rank", default=None)
    dst: Any = msgspec.field(name="Dst Rank", default=None)
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=NOTHING)
    types: msgspec.Raw = msgspec.field(name="Input type", default=NOTHING)
    concrete: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=NOTHING)
    addr: Any = msgspec.field(name="Addr", default=None)
    nbytes: Any = msgspec.field(name="Bytes", default=None)
    copied: Any = msgspec.field(name="bytes", default=None)
    allocated: Any = msgspec.field(name="Total Allocated", default=None)
    reserved: Any = msgspec.field(name="Total Reserved", default=None)
    device_type: Any = msgspec.field(name="Device Type", default=None)
    device_id: Any = msgspec.field(name="Device Id", default=None)
    thread_name: Any = msgspec.field(name="name", default=None)
    action: Any = None


class Event(msgspec.Struct, gc=False):
    """One entry of ``traceEvents``. Arguments that are no object are kept as what they are: they make no record unreadable."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = NOTHING
    dur: msgspec.Raw = NOTHING
    id: Any = None
    args: Args | str | int | float | bool | list[Any] | None = None


#: Records as they come: some writers put other things between events.
Records = list[Event | str | int | float | bool | list[Any] | None]


class File(msgspec.Struct, gc=False):
    """The top-level object; of a bare list of events, that list."""

    events: Records | None = msgspec.field(name="traceEvents", default=None)
    base: Any = msgspec.field(name="baseTimeNanoseconds", default=None)
    distributed: Any = msgspec.field(name="distributedInfo", default=None)
    devices: Any = msgspec.field(name="deviceProperties", default=None)
    host: Any = msgspec.field(name="host_name", default=None)
    profile_memory: Any = None
    with_modules: Any = None
    record_shapes: Any = None


class Note(NamedTuple):
    """Something to be said of a file; becomes a finding.

    Attributes:
        code: short name.
        severity: info or warning.
        says: what is wrong, and what was done.
        number: how many records are concerned.
        offset: byte of the first, where it is known.
    """

    code: str
    severity: str
    says: str
    number: int | None = None
    offset: int | None = None


def label(value: Any) -> str | None:
    """A value as text; None where it is absent or empty."""
    return None if value is None or value == "" else str(value)
