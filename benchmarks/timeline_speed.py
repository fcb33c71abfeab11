"""How fast is a window of a large job answered, how long does a rank take to be stored, and how large does it get?

    python benchmarks/timeline_speed.py [--ranks 16] [--events 1000000] [--queries 200] [--folder DIR]

The ranks are synthetic: two threads of nested operators and four streams of kernels and communication, in bursts as steps are, with
clocks that differ. One after the other is stored, then windows are asked for as somebody who zooms in would: from everything down to
microseconds, at places drawn at random, in every view. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from tracekit import pyramid, schema, store
from tracekit.timeline.run import VIEWS, Run, open_run
from tracekit.timeline.search import search
from tracekit.timeline.window import window
from tracekit.trace import RankMeta, RankTrace
from tracekit.vocabulary import Kind

NAMES = [f"aten::operator_{i}" for i in range(200)] + [f"void kernel_{i}<float, {i}>(int)" for i in range(300)] + ["ncclDevKernel_AllReduce_Sum_bf16_RING_LL"]
STEPS = 20


def rank(number: int, events: int) -> RankTrace:
    """A rank with about so many events."""
    draw = np.random.default_rng(number)
    kernels, operators = int(events * 0.4), int(events * 0.6)
    parts = [_stream(draw, kernels // 4, stream) for stream in range(4)] + [_thread(draw, operators // 2, thread) for thread in (4, 5)]
    frame = pd.concat(parts, ignore_index=True)
    frame["ts"] += 1_700_000_000_000_000_000 + number * 1_000
    frame = frame.sort_values(["thread", "ts", "dur"], ascending=[True, True, False], ignore_index=True)
    frame["correlation"] = pd.array(np.arange(len(frame)), "Int64")
    frame["name"] = pd.Categorical.from_codes(frame["name"], NAMES)
    frame["kind"] = pd.Categorical.from_codes(frame["kind"], list(Kind))
    meta = RankMeta(rank=number, device_type="gpu", base_ns=0, threads={i: f"thread {i}" for i in range(6)})
    return RankTrace(schema.conform(frame.assign(recompute=False), schema.EVENTS), meta=meta)


def _bursts(draw: np.random.Generator, count: int) -> np.ndarray:
    """Gaps before each of so many slices: short, and a long one where a step begins."""
    gaps = draw.integers(200, 2_000, count)
    gaps[:: max(count // STEPS, 1)] += 50_000_000
    return gaps


def _stream(draw: np.random.Generator, count: int, stream: int) -> pd.DataFrame:
    dur = draw.integers(1_000, 100_000, count)
    start = np.cumsum(_bursts(draw, count) + dur) - dur
    kind = list(Kind).index(Kind.COMMUNICATION if stream == 3 else Kind.COMPUTE)
    name = np.full(count, len(NAMES) - 1) if stream == 3 else draw.integers(200, 500, count)
    device = pd.array(np.zeros(count, np.int32), "Int32")
    return pd.DataFrame(
        {"ts": start, "dur": dur, "kind": kind, "name": name, "thread": stream, "device": device, "stream": pd.array([stream] * count, "Int64")}
    )


def _thread(draw: np.random.Generator, count: int, thread: int) -> pd.DataFrame:
    """Operators four deep: each outer one holds three inside each other."""
    outer = count // 4
    dur = draw.integers(8_000, 400_000, outer)
    start = np.cumsum(_bursts(draw, outer) + dur) - dur
    level = np.tile(np.arange(4), outer)
    ts, length = np.repeat(start, 4) + level * 500, np.repeat(dur, 4) - level * 1_500
    kind = list(Kind).index(Kind.OPERATOR)
    return pd.DataFrame({"ts": ts, "dur": length, "kind": kind, "name": draw.integers(0, 200, len(ts)), "thread": thread})


def zooms(run: Run, count: int) -> list[float]:
    """Seconds that each of so many windows took, from everything to microseconds."""
    draw = np.random.default_rng(1)
    out = []
    for number in range(count):
        width = int(run.extent_ns * 10.0 ** (-6.0 * (number % 40) / 39))
        start = int(draw.integers(0, max(run.extent_ns - width, 1)))
        begun = time.perf_counter()
        json.dumps(window(run, start, start + max(width, 1), 1_600, VIEWS[number % 3]).to_dict())
        run.release()
        out.append(time.perf_counter() - begun)
    return out


def measure(folder: Path, ranks: int, events: int, queries: int) -> dict[str, object]:
    """Store so many ranks and ask for windows of them."""
    built, worked, stored, parquet, drawn, count = 0.0, 0.0, 0, 0, 0, 0
    for number in range(ranks):
        trace = rank(number, events)
        begun, cpu = time.perf_counter(), time.process_time()
        made = pyramid.build(trace, folder / f"rank{number}")
        built += time.perf_counter() - begun
        worked += time.process_time() - cpu
        count += len(trace.events)
        stored += sum(f.stat().st_size for f in made.iterdir())
        drawn += sum(f.stat().st_size for f in made.iterdir() if f.name != "events.parquet")
        if number == 0:
            parquet = len(store.dump(trace)) * ranks
    begun = time.perf_counter()
    run = open_run(sorted(folder.iterdir()))
    opened = time.perf_counter() - begun
    first = zooms(run, 40)
    times = np.sort(zooms(run, queries)) * 1e3
    begun = time.perf_counter()
    search(run, "kernel_17", at=run.extent_ns // 2)
    found = time.perf_counter() - begun
    return {
        "ranks": ranks,
        "events": count,
        "build_s_per_million": built / count * 1e6,
        "build_cpu_s_per_million": worked / count * 1e6,
        "stored_bytes_per_event": stored / count,
        "drawn_bytes_per_event": drawn / count,
        "stored_over_parquet": stored / parquet,
        "drawn_over_parquet": drawn / parquet,
        "open_ms": opened * 1e3,
        "first_zooms_max_ms": max(first) * 1e3,
        "zoom_p50_ms": float(times[len(times) // 2]),
        "zoom_p95_ms": float(times[int(len(times) * 0.95)]),
        "zoom_max_ms": float(times[-1]),
        "search_ms": found * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--folder", type=Path, help="where to keep what is stored; a temporary folder where none is given")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tracekit-") as scratch:
        print(json.dumps(measure(asked.folder or Path(scratch), asked.ranks, asked.events, asked.queries), indent=1))


if __name__ == "__main__":
    main()
