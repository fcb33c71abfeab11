"""How long do the facts of memory take, next to the passes, and do they grow as the number of memory events does? Ratios within one process.

    python benchmarks/memory_speed.py [--trace sample_traces/recompute-none/rank00000/capture000/trace.json.gz] [--times 60] [--repeat 3]

A sample trace is small, so its table is repeated after reading: every copy stands behind the one before. ``growth`` is the time of all copies
over that of half of them, taken in turns, the fastest of each: 2 is in proportion. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tracekit.facts.memory import memory
from tracekit.passes import run_passes
from tracekit.readers import read
from tracekit.trace import RankTrace

REPOSITORY = Path(__file__).resolve().parent.parent
SAMPLE = REPOSITORY / "sample_traces" / "recompute-none" / "rank00000" / "capture000" / "trace.json.gz"


def repeated(trace: RankTrace, times: int) -> RankTrace:
    """A trace that has been through the passes, its events and memory events ``times`` over; the steps are those of the first copy."""
    events, samples = trace.events, trace.samples
    length = int((events["ts"] + events["dur"]).max() - events["ts"].min()) + 1000
    copy, of = np.repeat(np.arange(times), len(events)), np.repeat(np.arange(times), len(samples))
    names = events["name"].cat.rename_categories(lambda n: n.replace("ProfilerStep#", "step "))
    first, later = events, events.assign(name=names)
    more = pd.concat([first, *[later] * (times - 1)], ignore_index=True)
    more = more.assign(name=pd.Categorical(more["name"]), ts=more["ts"] + copy * length, parent=more["parent"] + pd.array(copy * len(events), "Int64"))
    own = pd.concat([samples] * times, ignore_index=True)
    own = own.assign(ts=own["ts"] + of * length, event=own["event"] + pd.array(of * len(events), "Int64"))
    return replace(trace, events=more, samples=own)


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=SAMPLE)
    parser.add_argument("--times", type=int, default=60)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    (plain,) = read(given.trace)
    passed = run_passes(plain)
    half, whole = repeated(passed, max(1, given.times // 2)), repeated(passed, given.times)
    took: dict[str, list[float]] = {"passes": [], "half": [], "whole": []}
    for _ in range(given.repeat):
        took["passes"].append(seconds(lambda: run_passes(plain)) * given.times)
        took["half"].append(seconds(lambda: memory(replace(half))))
        took["whole"].append(seconds(lambda: memory(replace(whole))))
    best = {name: min(times) for name, times in took.items()}
    shown = {
        "memory_events": len(whole.samples),
        "events": len(whole.events),
        "growth": round(best["whole"] / best["half"], 2),
        "over_passes": round(best["whole"] / best["passes"], 3),
        "memory_seconds": round(best["whole"], 3),
    }
    print(json.dumps(shown))


if __name__ == "__main__":
    main()
