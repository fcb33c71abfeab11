"""Kernels without correlation ids are tied to their launches by the arrows that the trace draws."""

from __future__ import annotations

from typing import Any

from tests.builders import MAIN, column, kernel, op, passed, read, span


def call(start: float, end: float, **args: Any) -> dict[str, Any]:
    return op("hipLaunchKernel", start, end, cat="hip_runtime", **args)


def arrow(number: int, start: float, end: float, *, stream: int = 7, cat: str = "ac2g") -> list[dict[str, Any]]:
    about = {"id": number, "cat": cat, "name": cat}
    return [{"ph": "s", "pid": 1, "tid": MAIN, "ts": start, **about}, {"ph": "f", "pid": 0, "tid": stream, "ts": end, "bp": "e", **about}]


STEPS = [span("ProfilerStep#1", 0, 10), span("ProfilerStep#2", 10, 20)]


def test_an_arrow_leads_from_the_call_to_the_kernel() -> None:
    events = [call(1, 2), call(11, 12), kernel("a", 13, 14), kernel("b", 14, 15), *arrow(5, 1, 13), *arrow(6, 11, 14)]
    trace = passed([*STEPS, *events])
    assert (column(trace, "step")["a"], column(trace, "step")["b"]) == (1, 2)
    assert "work_without_launch" not in {f["code"] for f in trace.findings}


def test_arrows_of_one_call_lead_to_the_kernels_of_a_graph() -> None:
    trace = read([op("hipGraphLaunch", 1, 2, cat="hip_runtime"), kernel("a", 3, 4), kernel("b", 4, 5), *arrow(5, 1, 3), *arrow(5, 1, 4)[1:]])
    assert len(set(trace.events["correlation"])) == 1


def test_a_call_keeps_the_id_it_has() -> None:
    trace = read([call(1, 2, correlation=77), kernel("a", 3, 4), kernel("known", 4, 5, 80), *arrow(5, 1, 3)])
    assert column(trace, "correlation") == {"hipLaunchKernel": 77, "a": 77, "known": 80}


def test_arrows_between_forward_and_backward_tie_no_kernel() -> None:
    trace = read([call(1, 2), kernel("a", 3, 4), *arrow(5, 1, 3)[:1], *arrow(5, 1, 3, cat="fwdbwd")[1:]])
    assert column(trace, "correlation")["a"] is None


def test_arrows_are_not_looked_at_where_ids_are_whole() -> None:
    trace = read([call(1, 2, correlation=1), call(2, 3, correlation=2), kernel("a", 4, 5, 2), *arrow(9, 1, 4)])
    assert column(trace, "correlation")["a"] == 2
