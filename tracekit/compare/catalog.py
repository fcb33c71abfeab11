"""What can be compared between two runs, and what is a change for the worse? One entry per metric."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tracekit.thresholds import Direction, Severity


class Sort(StrEnum):
    """How a metric is judged."""

    FACT = "fact"  #: the same program gives the same value: compared exactly, one run per side is enough
    STEP = "step"  #: the step's time: the first test, with half of the false alarms that are allowed
    PART = "part"  #: parts of the step and ratios: one family of tests
    DETAIL = "detail"  #: single layers: one family of tests
    SHOWN = "shown"  #: stands beside the others to explain them; never judged


@dataclass(frozen=True)
class Entry:
    """One metric of a comparison.

    Attributes:
        name: its name; the unit is in it.
        title: a few words for tables.
        sort: how it is judged.
        direction: which change is for the worse.
        min_effect: changes below this are immaterial: a share of the base value, for ratios the difference itself.
        min_share: changes below this share of the base's step time are immaterial as well; only of times.
        limit: where the runs can only see changes above this, the metric is inconclusive.
        decisive: whether the whole verdict is inconclusive where this metric is.
        severity: what a regression does.
    """

    name: str
    title: str
    sort: Sort
    direction: Direction = Direction.LOWER
    min_effect: float = 0.0
    min_share: float = 0.0
    limit: float = 0.25
    decisive: bool = False
    severity: Severity = Severity.FAIL


def _fact(name: str, title: str, direction: Direction = Direction.LOWER) -> Entry:
    return Entry(name, title, Sort.FACT, direction, decisive=True)


def _part(name: str, title: str, direction: Direction = Direction.LOWER, effect: float = 0.05, severity: Severity = Severity.FAIL) -> Entry:
    return Entry(name, title, Sort.PART, direction, effect, 0.005, severity=severity)


_SAME = Direction.SAME

CATALOG: tuple[Entry, ...] = (
    _fact("collective_count", "collectives per step"),
    _fact("collective_bytes", "bytes of collectives per step"),
    _fact("p2p_count", "sends per step"),
    _fact("p2p_bytes", "bytes of sends per step"),
    _fact("kernel_count", "kernels per step"),
    _fact("operator_count", "operators in the execution trace"),
    _fact("schedule", "pipeline schedule", _SAME),
    _fact("pipeline_ranks", "pipeline ranks", _SAME),
    _fact("stages", "pipeline stages", _SAME),
    _fact("microbatches", "microbatches", _SAME),
    _fact("closed_form_bubble_ratio", "bubble by closed form"),
    _fact("peak_allocated_bytes", "peak memory allocated"),
    _fact("recompute_mode", "recomputation", _SAME),
    _fact("recompute_runs", "forwards run again per step", _SAME),
    Entry("step_time_ns", "step time", Sort.STEP, min_effect=0.03, decisive=True),
    _part("compute_ns", "compute", effect=0.03),
    _part("exposed_comm_ns", "exposed communication"),
    _part("comm_wait_ns", "exposed waiting for other ranks"),
    _part("comm_transfer_ns", "exposed moving of bytes"),
    _part("comm_unsplit_ns", "exposed communication, not divided"),
    _part("forward_ns", "forward"),
    _part("backward_ns", "backward"),
    _part("recompute_ns", "recomputation"),
    _part("optimizer_ns", "optimizer"),
    _part("other_compute_ns", "other compute"),
    _part("graph_ns", "whole CUDA graphs"),
    _part("copies_ns", "exposed copies"),
    _part("bubble_ns", "pipeline bubble"),
    _part("input_wait_ns", "waiting for input data"),
    _part("launch_gap_ns", "launch gaps"),
    _part("idle_ns", "idle"),
    _part("pipeline_window_ns", "pipeline window"),
    Entry("bubble_ratio", "pipeline bubble", Sort.PART, min_effect=0.01, limit=0.1),
    Entry("measured_peak_bytes", "peak memory allocated (CPU)", Sort.PART, min_effect=0.05),
    Entry("reserved_peak_bytes", "peak memory reserved", Sort.PART, min_effect=0.02, severity=Severity.WARN),
    Entry("layer_transfer_ns", "transfer of a layer's collectives", Sort.DETAIL, min_effect=0.05),
    Entry("layer_duration_ns", "duration of a layer's collectives", Sort.DETAIL, min_effect=0.05),
    Entry("layer_exposed_ns", "exposed time of a layer's collectives", Sort.SHOWN),
)

#: Metrics by name.
BY_NAME = {entry.name: entry for entry in CATALOG}


def entry_of(name: str) -> Entry:
    """A metric's entry; of a part of the step that has no entry of its own, that of parts in general.

    >>> entry_of("step_time_ns").min_effect, entry_of("something_new_ns").sort.value
    (0.03, 'part')
    """
    return BY_NAME.get(name) or _part(name, name.removesuffix("_ns").replace("_", " "))
