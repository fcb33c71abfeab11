"""Are peaks, their parts and their baseline right?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import backward, forward, kernel, memory, passed, read, span
from tracekit import schema
from tracekit.facts.memory import TABLES
from tracekit.facts.memory import memory as memory_fact
from tracekit.metrics.memory import _fragmentation
from tracekit.passes import run_passes
from tracekit.trace import RankTrace

CPU = [
    span("ProfilerStep#1", 0, 100),
    span("layers.0.forward", 10, 20),
    forward("aten::mm", 11, 14, 1),
    backward("MmBackward0", 40, 60, 1),
    memory(12, 100, 100, 1),
    memory(13, 30, 130, 2),
    memory(14, -30, 100, 2),
    memory(45, 40, 140, 3),
    memory(50, -100, 40, 1),
    span("Optimizer.step#AdamW.step", 70, 80),
]


def with_baseline(events: list[dict[str, Any]], *blocks: dict[str, Any]) -> RankTrace:
    trace = passed(events)
    return replace(trace, meta=replace(trace.meta, memory_baseline=blocks))


def peak(trace: RankTrace, step: int | None = None, device_type: str = "cpu", device: int = 0) -> dict[str, Any]:
    table = memory_fact(trace)["memory_peaks"]
    schema.validate(table, schema.MEMORY_PEAKS)
    table = table[table["device_type"].eq(device_type) & table["device"].eq(device)]
    row = table[table["step"].isna() if step is None else table["step"].eq(step).fillna(False)].iloc[0]
    return {k.removesuffix("_bytes"): None if pd.isna(v) else v for k, v in row.items()}


def test_without_a_baseline_a_cpu_peak_is_relative_and_says_so() -> None:
    got = peak(passed(CPU), 1)
    assert (got["allocated_peak"], got["allocated_peak_ts_ns"], got["baseline_source"]) == (140, 45_000, "none")
    assert (got["parameter"], got["optimizer_state"], got["reserved_peak"]) == (None, None, None)
    assert (got["activation"], got["gradient"], got["temporary"], got["unknown"]) == (100, 40, 0, 0)


def test_a_baseline_is_added_on_a_cpu_and_named() -> None:
    got = peak(with_baseline(CPU, {"addr": 900, "bytes": 1000, "category": "parameter"}, {"addr": 9000, "bytes": 5, "category": "unknown"}), 1)
    assert (got["allocated_peak"], got["parameter"], got["unknown"], got["baseline_source"]) == (1145, 1000, 5, "recorder")
    assert got["optimizer_state"] == 0  # the recorder would have seen any


def test_an_old_block_is_gone_once_its_memory_is_used_again() -> None:
    got = peak(with_baseline(CPU, {"addr": 0, "bytes": 2, "category": "gradient"}), 1)
    assert (got["allocated_peak"], got["gradient"]) == (140, 40)  # address 1 was handed out again: the old gradient was freed unseen


def test_an_old_gradient_is_gone_after_zero_grad_when_gradients_come_anew() -> None:
    zero = span("Optimizer.zero_grad#AdamW.zero_grad", 1, 5)
    old = {"addr": 900, "bytes": 40, "category": "gradient"}
    assert peak(with_baseline([*CPU, zero], old), 1)["allocated_peak"] == 140
    assert peak(with_baseline(CPU, old), 1)["allocated_peak"] == 180


def test_the_recorder_names_a_block_that_no_rule_knows() -> None:
    events = [*CPU, memory(90, 500, 540, 800)]
    seen = {"addr": 800, "bytes": 500, "category": "optimizer_state", "when": "later"}
    assert peak(passed(events), 1)["unknown"] == 500
    got = peak(with_baseline(events, seen), 1)
    assert (got["optimizer_state"], got["unknown"], got["gradient"]) == (500, 0, 40)


@pytest.mark.parametrize(("freed", "category"), [(95, "temporary"), (None, "unknown")])
def test_a_block_that_the_recorder_did_not_see_among_the_gradients_is_none(freed: float | None, category: str) -> None:
    """Its look at 69 µs found address 3 only: what backward made at address 800 is a buffer, perhaps freed unseen."""
    events = [*CPU, memory(46, 500, 640, 800)] + ([] if freed is None else [memory(freed, -500, 40, 800)])
    seen = {"addr": 3, "bytes": 40, "category": "gradient", "when": "seen", "time_ns": 69_000}
    assert peak(passed(events), 1)["gradient"] == 540
    got = peak(with_baseline(events, seen), 1)
    assert (got["gradient"], got[category]) == (40, 500)


def on_gpu(events: list[dict[str, Any]]) -> RankTrace:
    trace = passed(events)
    return replace(trace, meta=replace(trace.meta, device_type="gpu"))


def gpu(at: float, nbytes: int, total: int, addr: int, device: int = 0, reserved: int = 0) -> dict[str, Any]:
    event = memory(at, nbytes, total, addr, device_type=1)
    return {**event, "args": {**event["args"], "Device Id": device, "Total Reserved": reserved}}


def test_on_a_gpu_totals_are_absolute_and_what_stood_before_is_unknown() -> None:
    got = peak(on_gpu([*CPU[:4], gpu(12, 100, 5100, 1), gpu(50, -100, 5000, 1), memory(13, 9999, 9999, 3)]), 1, "gpu")
    assert (got["allocated_peak"], got["activation"], got["unknown"], got["baseline_source"]) == (5100, 100, 5000, "totals")
    assert (got["parameter"], got["optimizer_state"], got["reserved_peak"]) == (None, None, 0)


def test_parts_larger_than_the_peak_are_not_believed() -> None:
    first = [*CPU[:4], span("PP:0F1", 9, 21), gpu(12, 100, 100, 1), gpu(50, -100, 0, 1)]
    second = [gpu(13, 100, 110, 2), gpu(51, -100, 0, 2)]
    names = ("memory_layers", "memory_microbatches", "memory_in_flight")
    assert all(len(memory_fact(on_gpu(first))[name]) for name in names)
    trace = on_gpu([*first, *second])
    got = peak(trace, 1, "gpu")
    assert (got["allocated_peak"], got["unknown"], got["activation"], got["gradient"]) == (110, 110, None, None)
    assert [len(memory_fact(trace)[name]) for name in names] == [0, 0, 0]


def test_a_step_without_events_keeps_the_level_it_began_with() -> None:
    got = peak(passed([*CPU, span("ProfilerStep#2", 100, 200)]), 2)
    assert (got["allocated_peak"], got["allocated_peak_ts_ns"]) == (40, 100_000)


def test_layers_sum_to_the_activations() -> None:
    tables = memory_fact(passed(CPU))
    one = tables["memory_layers"].query("step == 1")
    assert one[["layer", "layer_index", "activation_bytes"]].values.tolist() == [["layers.0", 0, 100]]
    assert tables["memory_curve"][["ts_ns", "allocated_bytes", "phase"]].values.tolist() == [
        [12_000, 100, "forward"],
        [13_000, 130, "forward"],
        [14_000, 100, "forward"],
        [45_000, 140, "backward"],
        [50_000, 40, "backward"],
    ]


def test_no_memory_events_give_empty_tables() -> None:
    assert {name: len(table) for name, table in memory_fact(passed(CPU[:4])).items()} == dict.fromkeys(TABLES, 0)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 50)), min_size=1, max_size=60), st.integers(0, 100))
def test_peak_and_sum_are_those_of_a_replay(toggles: list[tuple[int, int]], before: int) -> None:
    """Each toggle allocates its address, or frees it where it is allocated."""
    alive: dict[int, int] = {}
    level, best, at, events = before, -1, 0, []
    for i, (addr, size) in enumerate(toggles):
        change = -alive.pop(addr) if addr in alive else size
        if change > 0:
            alive[addr] = change
        level += change
        events.append(gpu(10 + i, change, level, addr))
        if level > best:
            best, at = level, i
    got = peak(on_gpu([span("ProfilerStep#1", 0, 1000), *events]), None, "gpu")
    assert got["allocated_peak"] == max(best, before)
    if best > before:
        assert got["allocated_peak_ts_ns"] == (10 + at) * 1000
    parts = ("parameter", "gradient", "optimizer_state", "activation", "input", "temporary", "unknown")
    assert sum(got[p] or 0 for p in parts) == got["allocated_peak"]


def test_a_long_curve_is_thinned_but_keeps_its_extremes() -> None:
    events, level = [], 0
    for i in range(6000):
        change = 1000 if i == 4321 else (-1000 if i == 4322 else (1 if i % 2 == 0 else -1))
        addr = {4321: 77, 4322: 77}.get(i, i // 2 % 2 + 1)
        level += change
        events.append(gpu(10 + i, change, level, addr))
    curve = memory_fact(on_gpu([span("ProfilerStep#1", 0, 10_000), *events]))["memory_curve"]
    assert len(curve) <= 2000
    assert curve["allocated_bytes"].max() == max(e["args"]["Total Allocated"] for e in events)
    assert curve["ts_ns"].is_monotonic_increasing


@pytest.mark.parametrize("step", [1, None])
def test_the_first_time_of_a_peak_counts(step: int | None) -> None:
    twice = [*CPU[:4], memory(12, 100, 100, 1), memory(13, -100, 0, 1), memory(14, 100, 100, 1)]
    assert peak(passed(twice), step)["allocated_peak_ts_ns"] == 12_000


MIXED = [gpu(10, 200, 200, 1, reserved=400), memory(11, 600, 600, 1), gpu(12, 150, 350, 2, reserved=400), gpu(13, 100, 100, 1, 1), gpu(14, -200, 150, 1)]


@pytest.mark.parametrize("work", [[], [kernel("gemm", 5, 6)]])
def test_every_device_stands_for_itself(work: list[dict[str, Any]]) -> None:
    """The same address on three devices is three blocks; on a run of CPU or GPU work alike."""
    tables = memory_fact(passed([*work, *MIXED]))
    rows = tables["memory_peaks"][["device_type", "device", "allocated_peak_bytes", "allocated_peak_ts_ns", "reserved_peak_bytes"]]
    assert rows.astype(object).where(rows.notna(), None).values.tolist() == [
        ["cpu", 0, 600, 11_000, None],
        ["gpu", 0, 350, 12_000, 400],
        ["gpu", 1, 100, 13_000, 0],
    ]
    curves = tables["memory_curve"].groupby(["device_type", "device"])["allocated_bytes"].apply(list).to_dict()
    assert curves == {("cpu", 0): [600], ("gpu", 0): [200, 350, 150], ("gpu", 1): [100]}


def test_level_at_the_beginning_and_the_lowest_one() -> None:
    trace = on_gpu([*CPU[:4], gpu(2, -100, 300, 9), gpu(12, 100, 400, 1), gpu(50, -100, 300, 1)])
    whole, step = peak(trace, None, "gpu"), peak(trace, 1, "gpu")
    assert (whole["allocated_before"], whole["allocated_lowest"], whole["allocated_peak"]) == (400, 300, 400)
    assert (step["allocated_before"], step["allocated_lowest"]) == (400, 300)
    assert peak(passed(CPU), 1)["allocated_before"] is None  # a CPU's totals count from the profiler's start


def test_a_baseline_of_the_gpus_says_nothing_of_the_host() -> None:
    trace = on_gpu([*CPU[:4], gpu(12, 100, 5100, 1), memory(13, 50, 50, 3)])
    trace = replace(trace, meta=replace(trace.meta, memory_baseline=({"addr": 900, "bytes": 5000, "category": "parameter", "device_type": 1, "device": 0},)))
    assert (peak(trace, 1, "gpu")["baseline_source"], peak(trace, 1, "gpu")["parameter"]) == ("recorder", 5000)
    assert (peak(trace, 1, "cpu")["baseline_source"], peak(trace, 1, "cpu")["parameter"]) == ("none", None)


def with_snapshot(events: list[dict[str, Any]], *records: tuple[float | None, int, int, int], before: int = 0) -> RankTrace:
    """A timeline with the events of a snapshot (time in µs, bytes, level, address) beside it."""
    timed = all(at is not None for at, *_ in records)
    samples = pd.DataFrame(
        {
            "ts": [int(at * 1000) if at is not None else i for i, (at, *_) in enumerate(records)],
            "device_type": 1,
            "device": 0,
            "addr": [addr for *_, addr in records],
            "nbytes": [size for _, size, _, _ in records],
            "allocated": [level for _, _, level, _ in records],
            "reserved": 4096,
        }
    )
    row = {"device": 0, "records": len(records), "allocations": 0, "frees": 0, "frees_without_alloc": 0, "failed_allocations": 0, "timed": timed}
    table = schema.conform(pd.DataFrame([{**row, "allocated_before_bytes": before}]), schema.MEMORY_SNAPSHOTS)
    return run_passes(replace(read(events), samples=schema.conform(samples, schema.SAMPLES), stated={"memory_snapshots": table}))


def test_a_snapshot_tells_levels_and_no_owners() -> None:
    got = peak(with_snapshot(CPU[:4], (12, 100, 700, 1), (13, -600, 100, 2), before=600), None, "gpu")
    assert (got["allocated_before"], got["allocated_lowest"], got["allocated_peak"], got["baseline_source"]) == (600, 100, 700, "snapshot")
    assert (got["activation"], got["temporary"], got["unknown"], got["reserved_peak"]) == (None, None, 700, 4096)


def test_a_snapshot_speaks_only_of_the_steps_that_it_covers() -> None:
    steps = [span(f"ProfilerStep#{n}", 100 * n, 100 * n + 90) for n in (1, 2, 3)]
    trace = with_snapshot(steps, (150, 8, 8, 1), (250, 8, 16, 2), (310, -8, 8, 1))
    peaks = memory_fact(trace)["memory_peaks"]
    assert peaks["step"].astype(object).where(peaks["step"].notna(), None).tolist() == [None, 2]


def test_records_without_times_have_a_peak_and_no_time() -> None:
    tables = memory_fact(with_snapshot(CPU[:1], (None, 8, 8, 1), (None, 8, 16, 2)))
    assert tables["memory_peaks"]["allocated_peak_ts_ns"].isna().all() and tables["memory_peaks"]["step"].isna().all()
    assert tables["memory_curve"]["ts_ns"].isna().all()
    assert tables["memory_curve"]["record"].tolist() == [0, 1]


def test_without_addresses_and_totals_levels_count_from_the_start() -> None:
    """What the events of old traces (sizes alone) free at first must have stood before: the level is at least 0."""
    bare = [gpu(at, size, 0, 1) for at, size in ((10, -60), (11, 100), (12, -50))]
    bare = [{**e, "args": {k: v for k, v in e["args"].items() if k in ("Bytes", "Device Type", "Device Id")}} for e in bare]
    trace = passed([*CPU[:4], *bare])
    got = peak(trace, None, "gpu")
    assert (got["allocated_peak"], got["allocated_peak_ts_ns"], got["allocated_before"], got["baseline_source"]) == (100, 11_000, None, "none")
    assert (got["activation"], got["unknown"]) == (None, 100)
    assert memory_fact(trace)["memory_curve"]["allocated_bytes"].tolist() == [0, 100, 50]
    assert [f["count"] for f in trace.findings if f["code"] == "memory_events_incomplete"] == [3]


def test_every_gpu_has_its_own_fragmentation() -> None:
    """Reserved less allocated, as a share of the reserved, where each GPU's own allocated memory is most: 75 of 100 and 30 of 60."""
    events = []
    for at, size, level, device, reserved in [(20, 75, 75, 0, 100), (21, 30, 30, 1, 60), (22, -70, 5, 0, 400)]:
        event = memory(at, size, level, 8, device_type=1)
        events.append({**event, "args": {**event["args"], "Device Id": device, "Total Reserved": reserved}})
    table = memory_fact(passed([*CPU[:4], *events]))["memory_peaks"]
    assert _fragmentation(table[table["step"].isna() & table["device_type"].eq("gpu")]).tolist() == [0.25, 0.5]
