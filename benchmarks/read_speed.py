"""How long does tracekit need for a trace, next to plainly decoding its JSON? Ratios within one process.

    python benchmarks/read_speed.py [--trace sample_traces/tp/rank00000/capture000/trace.json.gz] [--times 4] [--repeat 3]

A sample trace is small, so its events are repeated: every copy is moved behind the one before, on the same threads and
with correlation, sequence and step numbers of its own. The file is then unpacked and decoded by msgspec (to
Python objects, what any reader in Python pays at least), read to a table, taken through the passes, and boiled down.
The load of the machine falls on all alike, because they take turns; ratios are of the fastest turn. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from tracekit import readers
from tracekit.facts import boil_down
from tracekit.passes import run_passes

REPOSITORY = Path(__file__).resolve().parent.parent
SAMPLE = REPOSITORY / "sample_traces" / "tp" / "rank00000" / "capture000" / "trace.json.gz"
#: Numbers that tie events to each other; a copy's must differ from those of the other copies.
LINKS = ("correlation", "External id", "Sequence number", "Ev Idx", "Record function id")


def replicated(source: Path, times: int) -> bytes:
    """The trace ``times`` over, one copy behind the other, as Kineto would have written a longer run."""
    document = json.loads(gzip.decompress(source.read_bytes()), parse_float=Decimal)
    events = document["traceEvents"]
    timed = [e for e in events if e.get("ph") == "X"]
    length = max(Decimal(e["ts"]) + Decimal(e["dur"]) for e in timed) - min(Decimal(e["ts"]) for e in timed) + 1
    apart = 1 + max(value for e in timed for key, value in e.get("args", {}).items() if key in LINKS and isinstance(value, int))
    steps = len({e["name"] for e in timed if e["name"].startswith("ProfilerStep#")})
    whole = [e for e in events if e.get("ph") != "X"] + [_moved(e, n, length, apart, steps) for n in range(times) for e in timed]
    return json.dumps({**document, "traceEvents": whole}, default=float).encode()


def _moved(event: dict[str, Any], n: int, length: Decimal, apart: int, steps: int) -> dict[str, Any]:
    """An event of the n-th copy."""
    arguments = {k: v + n * apart if k in LINKS and isinstance(v, int) and v else v for k, v in event.get("args", {}).items()}
    name = re.sub(r"^ProfilerStep#(\d+)$", lambda m: f"ProfilerStep#{int(m[1]) + n * steps}", event["name"])
    return {**event, "name": name, "ts": Decimal(event["ts"]) + n * length, "args": arguments}


def timed(work: Callable[[], Any]) -> tuple[int, Any]:
    """Time that a call took in ns, and what it gave."""
    start = time.perf_counter_ns()
    result = work()
    return time.perf_counter_ns() - start, result


def measure(source: Path, times: int, repeat: int) -> dict[str, Any]:
    """Fastest turns of decoding, reading, passes and facts, and their ratios to decoding."""
    text = replicated(source, times)
    took: dict[str, list[int]] = {"decode": [], "read": [], "passes": [], "facts": []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json.gz"
        path.write_bytes(gzip.compress(text, 6))
        for _ in range(repeat):
            duration, decoded = timed(lambda: msgspec.json.decode(gzip.decompress(path.read_bytes())))
            took["decode"].append(duration)
            count = len(decoded["traceEvents"])
            del decoded
            duration, (trace,) = timed(lambda: readers.read(path))
            took["read"].append(duration)
            trace = replace(trace, meta=replace(trace.meta, rank=0))
            duration, trace = timed(lambda trace=trace: run_passes(trace))
            took["passes"].append(duration)
            duration, _ = timed(lambda trace=trace: boil_down(trace))
            took["facts"].append(duration)
    best = {what: min(durations) for what, durations in took.items()}
    return {
        "trace": str(source),
        "events": count,
        "json_bytes": len(text),
        "decode_ns": best["decode"],
        "read_over_decode_ratio": best["read"] / best["decode"],
        "passes_over_decode_ratio": best["passes"] / best["decode"],
        "facts_over_decode_ratio": best["facts"] / best["decode"],
        "all_over_decode_ratio": (best["read"] + best["passes"] + best["facts"]) / best["decode"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=SAMPLE)
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.trace, arguments.times, arguments.repeat)))


if __name__ == "__main__":
    main()
