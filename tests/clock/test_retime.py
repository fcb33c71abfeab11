"""Facts are put on the reference clock: every time by the same function, and parts still sum to their wholes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit import schema
from tracekit.job.retime import Clock, retime
from tracekit.trace import RankFacts, RankMeta

DRIFT = 50e-6
ACTION = {"step": 1, "stage": 0, "action": "F", "source": "range"}


def clocks(offset: int, drift_ppm: float | None = None) -> pd.DataFrame:
    return pd.DataFrame({"rank": [0], "capture": [0], "origin_ns": [0], "offset_ns": [offset], "drift_ppm": pd.array([drift_ppm], "Float64")})


def moved(name: str, rows: pd.DataFrame, offset: int, drift_ppm: float | None = None) -> pd.DataFrame:
    facts = RankFacts(RankMeta(rank=0), {name: schema.conform(rows, schema.FACTS[name])})
    return retime({(0, 0): facts}, clocks(offset, drift_ppm))[0, 0][name]


def test_an_offset_moves_times_and_no_length_of_time() -> None:
    steps = pd.DataFrame([{"step": 1, "start_ns": 100, "end_ns": 300, "window_start_ns": 120, "window_end_ns": 290, "complete": True, "warmup": False}])
    got = moved("steps", steps, 100)
    assert got[["start_ns", "end_ns", "window_start_ns", "window_end_ns"]].values.tolist() == [[0, 200, 20, 190]]
    peaks = pd.DataFrame([{"device": 0, "allocated_peak_bytes": 9, "allocated_peak_ts_ns": 130, "unknown_bytes": 9}])
    got = moved("memory_peaks", peaks, 100)
    assert got[["allocated_peak_ts_ns", "allocated_peak_bytes"]].values.tolist() == [[30, 9]]
    assert moved("extent", pd.DataFrame({"start_ns": [100], "end_ns": [900], "events": [700]}), 100).values.tolist() == [[0, 800, 700]]


def test_an_unknown_time_stays_unknown() -> None:
    got = moved("records", pd.DataFrame({"start_ns": pd.array([150, None], "Int64"), "duration_ns": pd.array([7, 8], "Int64")}), 100)
    assert got[["start_ns", "duration_ns"]].astype(object).where(got[["start_ns", "duration_ns"]].notna(), None).values.tolist() == [[50, 7], [None, 8]]


def test_a_clock_that_agrees_keeps_the_very_same_facts() -> None:
    facts = RankFacts(RankMeta(rank=0), {"extent": pd.DataFrame({"start_ns": [1], "end_ns": [2], "events": [3]})})
    for table in (clocks(0), clocks(0, 0.0)):
        assert retime({(0, 0): facts}, table)[0, 0] is facts


@given(st.integers(-(10**12), 10**12), st.floats(-1e-4, 1e-4), st.lists(st.integers(0, 10**10), min_size=2, max_size=20))
def test_times_come_back_in_order_and_to_the_ns(offset: int, drift: float, true: list[int]) -> None:
    at = np.sort(np.array(true, np.int64))
    read = at + offset + np.rint(at * drift).astype(np.int64)
    back = Clock(0, offset, drift).true(read)
    assert np.abs(back - at).max() <= 1
    assert (np.diff(back) >= -1).all()


@given(st.lists(st.tuples(st.integers(0, 10**8), st.integers(0, 10**8), st.integers(0, 10**8)), min_size=1, max_size=8), st.sampled_from([-80.0, 80.0]))
def test_the_parts_of_an_action_fill_its_span_with_a_drift_too(parts: list[tuple[int, int, int]], drift_ppm: float) -> None:
    rows, at = [], 10**9
    for compute, exposed, gap in parts:
        end = at + compute + exposed + gap
        rows.append({**ACTION, "microbatch": 0, "start_ns": at, "end_ns": end, "fresh_start_ns": at, "inner_gap_ns": gap})
        rows[-1] |= {f"{fresh}compute_ns": compute for fresh in ("", "fresh_")} | {f"{fresh}exposed_collective_ns": exposed for fresh in ("", "fresh_")}
        at = end
    got = moved("actions", pd.DataFrame(rows), 0, drift_ppm)
    span = got["end_ns"] - got["start_ns"]
    assert (got["compute_ns"] + got["exposed_collective_ns"] + got["inner_gap_ns"] == span).all()
    assert (got[["compute_ns", "exposed_collective_ns", "inner_gap_ns"]] >= 0).all(axis=None)
    assert (span - got["fresh_compute_ns"] - got["fresh_exposed_collective_ns"] >= 0).all()
    assert (got["start_ns"].iloc[1:].to_numpy() == got["end_ns"].iloc[:-1].to_numpy()).all()  # what touches still does
    assert (got["compute_ns"] - [c / (1 + drift_ppm * 1e-6) for c, _, _ in parts]).abs().max() <= 2


@pytest.mark.parametrize("drift_ppm", [-50.0, 50.0])
def test_a_call_that_was_all_exposed_still_is(drift_ppm: float) -> None:
    call = {"kind": "all_reduce", "in_action": False, "device": 0, "start_ns": 0, "end_ns": 10**8}
    got = moved("calls", pd.DataFrame([{**call, "exposed_ns": 10**8}, {**call, "exposed_ns": 10**8 - 1}]), 0, drift_ppm)
    length = int(got["end_ns"].iloc[0])
    assert abs(length - 10**8) == 5000
    assert got["exposed_ns"].tolist() == [length, min(length, 10**8 - 1)]


def test_pieces_of_exposed_time_keep_their_length() -> None:
    piece = {"device": 0, "step": 1, "start_ns": 10**9, "end_ns": 2 * 10**9, "exposed_ns": 10**9, "call_start_ns": 10**9, "call_end_ns": 3 * 10**9}
    got = moved("exposed", pd.DataFrame([piece]), 500, 50.0)
    assert (got["end_ns"] - got["start_ns"]).tolist() == [10**9]
    assert (got["call_start_ns"] == got["start_ns"]).all()
