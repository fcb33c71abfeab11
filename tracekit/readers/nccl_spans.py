"""NCCL's example profiler plugin writes nested spans, not events: which event stands in which?

NVIDIA/nccl, plugins/profiler/example/print_event.cc (earlier ext-profiler/example): a list with one object per line, ``"ph":
"b"`` and ``"e"`` by category and id, a collective's channels between its two ends. Times are µs since the plugin was loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from tracekit.readers.nccl_lines import part, text

_MARK = re.compile(rb'"cat": "(?:GROUP_API|COLL_API|P2P_API|GROUP|COLL|P2P|PROXY)", "ph": "b"')
#: Category -> type of the event, as the plugin interface calls it.
_TYPES = {
    "COLL": "ncclProfileColl",
    "P2P": "ncclProfileP2p",
    "COLL_API": "ncclProfileCollApi",
    "P2P_API": "ncclProfileP2pApi",
    "GPU": "ncclProfileKernelCh",
}
#: What the plugin calls an argument -> what the events call it.
_DETAILS = {"SeqNum": "seq", "Algorithm": "algo", "Protocol": "proto", "Count": "count", "count": "count", "Peer": "peer"}


def is_spans(head: bytes) -> bool:
    """Whether the first lines are of the example plugin."""
    return head.lstrip().startswith(b"[") and _MARK.search(head) is not None


def as_events(spans: Iterable[tuple[int, dict[str, Any]]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The spans as events with addresses and parents; a span without an end has no stop."""
    inside: list[dict[str, Any]] = []
    for number, (at, span) in enumerate(spans):
        kind = text(span.get("cat"))
        if span.get("ph") == "e":
            place = next((i for i in range(len(inside) - 1, -1, -1) if (inside[i]["cat"], inside[i]["id"]) == (kind, span.get("id"))), None)
            if place is not None:
                ended = inside[place]
                del inside[place]
                ended["event"]["stop"] = {"ts": span.get("ts")}
                if ended["event"]["type"] is not None:
                    yield at, ended["event"]
        elif span.get("ph") == "b" and kind is not None:
            home = next((open_ for open_ in reversed(inside) if _holds(open_["cat"], kind)), None)
            inside.append({"cat": kind, "id": span.get("id"), "event": _event(span, kind, f"{kind} {number}", home)})
    for open_ in inside:
        if open_["event"]["type"] is not None:
            yield 0, open_["event"]


def _holds(outer: str, inner: str) -> bool:
    return outer == f"{inner}_API" or (inner == "GPU" and outer in ("COLL", "P2P"))


def _event(span: dict[str, Any], kind: str, address: str, home: dict[str, Any] | None) -> dict[str, Any]:
    args = part(span, "args")
    named = text(span.get("name"))
    dtype = args.get("Datatype", args.get("datatype"))
    details = {"func": named, "dtype": dtype, **{ours: args[theirs] for theirs, ours in _DETAILS.items() if theirs in args}}
    return {
        "type": _TYPES.get(kind) if kind != "GPU" or named == "KernelCh" else None,
        "commId": args.get("CommHash"),
        "rank": args.get("Rank"),
        "start": {"ts": span.get("ts"), "pid": span.get("pid")},
        "eventAddr": address,
        "parentObj": home["event"]["eventAddr"] if home is not None else None,
        "details": details,
    }
