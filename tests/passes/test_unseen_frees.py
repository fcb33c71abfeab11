"""Is memory that a thread without a profiler freed taken out once it is handed out again, and nothing else?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import kernel, memory, op, passed
from tracekit.passes.unseen_frees import lost


def test_a_block_is_lost_when_its_address_is_handed_out_again() -> None:
    made, taken = lost([16, 16, 16], [8, 4, -4])
    assert (made.tolist(), taken.tolist()) == ([0], [1])


def test_frees_in_swapped_order_lose_nothing() -> None:
    made, _ = lost([16, 16, 16, 16], [8, 4, -8, -4])
    assert made.tolist() == []


def test_a_block_is_lost_when_a_later_one_overlaps_it() -> None:
    made, taken = lost([100, 40, 96, 108], [8, 8, 8, 1])  # 96..104 reaches into 100..108, 108 only touches it
    assert (made.tolist(), taken.tolist()) == ([0], [2])


def test_the_block_that_took_the_memory_may_be_alive_at_the_end_too() -> None:
    made, taken = lost([100, 104], [8, 8])
    assert (made.tolist(), taken.tolist()) == ([0], [1])


def test_an_earlier_overlap_loses_nothing() -> None:
    made, _ = lost([96, 96, 100], [8, -8, 8])
    assert made.tolist() == []


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_of_a_replay_exactly_the_hidden_frees_that_were_followed_by_an_allocation_are_found(toggles: list[tuple[int, bool]]) -> None:
    """Each toggle allocates its address or frees it where it is allocated; the free is seen or hidden."""
    addr: list[int] = []
    nbytes: list[int] = []
    alive: dict[int, int] = {}
    hidden: dict[int, int] = {}
    want = []
    for one, seen in toggles:
        if one in alive:
            event = alive.pop(one)
            if seen:
                addr.append(one * 10)
                nbytes.append(-5)
            else:
                hidden[one] = event
            continue
        if one in hidden:
            want.append((hidden.pop(one), len(addr)))
        alive[one] = len(addr)
        addr.append(one * 10)
        nbytes.append(5)
    made, taken = lost(addr, nbytes)
    assert list(zip(made.tolist(), taken.tolist(), strict=True)) == sorted(want, key=lambda pair: pair[1])


LEFT = [op("aten::mm", 0, 9), memory(1, 64, 64, 7), memory(3, 32, 96, 7), memory(5, -32, 64, 7)]


def test_totals_fall_when_lost_memory_is_taken_and_health_says_so() -> None:
    trace = passed(LEFT)
    assert trace.samples[["ts", "nbytes", "allocated"]].values.tolist() == [[1000, 64, 64], [3000, -64, 0], [3000, 32, 32], [5000, -32, 0]]
    assert trace.samples["event"].isna().tolist() == [False, True, False, False]
    assert [f["count"] for f in trace.findings if f["code"] == "memory_frees_unseen"] == [1]


def test_a_gpu_run_is_left_as_it_is() -> None:
    trace = passed([*LEFT, kernel("gemm", 1, 2)])
    assert len(trace.samples) == 3 and not [f for f in trace.findings if f["code"] == "memory_frees_unseen"]
