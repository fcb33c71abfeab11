"""Do public traces with memory events give the reference peaks, device by device?"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pandas as pd
import pytest

from tracekit.facts.memory import memory
from tracekit.passes import run_passes
from tracekit.readers import read

FILES = (
    "kineto/resnet50_num_workers_0__worker0.1623143566756.pt.trace.json.gz",
    "sidnb13/transformer__dc3b0e7228dd_851.1752215573993169006.pt.trace.json.gz",
    "tracelens/capture_traces__graph_capture_rank_0.1773709679453551615.pt.trace.json.gz",
    "tracelens/h100__Falconsai_nsfw_image_detection__1016002.json.gz",
    "tracelens/h100__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "tracelens/h100__gaunernst_bert-small-uncased__1016001.json.gz",
    "tracelens/mi300__gaunernst_bert-small-uncased__1016001.json.gz",
    "tracelens/normalization__normalization_layer_test.json.gz",
)
BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d+)')


@pytest.mark.parametrize("name", FILES)
def test_peaks_of_every_device(shared: Path, name: str) -> None:
    path = shared / "traces" / name
    want = json.loads((shared / "traces" / "reference.json").read_text())[name]["memory"]
    stated = BASE.search(gzip.decompress(path.read_bytes()))
    base = int(stated[1]) if stated else 0
    (trace,) = read(path)
    peaks = memory(run_passes(trace))["memory_peaks"]
    rows = peaks[peaks["step"].isna()]
    got = {f"{row.device_type}{row.device}": row for row in rows.itertuples()}
    assert len(got) == len(want)
    for key, device in want.items():
        kind, number = re.fullmatch(r"type(\d+)/id(-?\d+)", key).groups()  # type: ignore[union-attr]
        row = got["cpu0" if kind == "0" else f"gpu{number}"]
        total = device.get("max_total_allocated_bytes")
        if total is None:  # no totals in old traces: the running sum, and nothing said of what stood before
            assert (row.allocated_peak_bytes, row.baseline_source) == (device["relative_peak_of_running_sum_bytes"], "none")
            assert row.allocated_peak_ts_ns == device["relative_peak_ts_ns"] + base
            assert pd.isna(row.allocated_before_bytes)
            continue
        before = 0 if kind == "0" else int(row.allocated_before_bytes)
        assert row.allocated_peak_bytes == max(total, before)
        if total > before:
            assert row.allocated_peak_ts_ns == device["max_total_allocated_first_ts_ns"] + base
        if kind != "0":
            assert row.reserved_peak_bytes == device["max_total_reserved_bytes"]
