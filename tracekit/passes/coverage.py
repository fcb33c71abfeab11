"""What of this rank was recorded only in part? Findings on cut and cold steps, on launches without work, work without launch, compiled backwards.

The figures themselves come from the facts; here is only said what they lack.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.columns import Mask, named
from tracekit.passes.phases import COMPILED_BACKWARD
from tracekit.trace import RankTrace
from tracekit.vocabulary import Kind
from tracekit.windows import before_recording, launches_by_step, step_windows
from tracekit.work import WORK, kernel_launches, lost_launches

#: A first step so many times as long as the median of the others would spoil every mean: that is worth a warning.
COLD = 1.5


def coverage(trace: RankTrace) -> RankTrace:
    """Add the findings; the events stay as they are."""
    windows = step_windows(trace)
    return _compiled(_warmup(_steps(_launches(_unlinked(trace), windows), windows), windows))


def _unlinked(trace: RankTrace) -> RankTrace:
    """Device work that no recorded call launched: launched before the recording, or its launch was lost."""
    events = trace.events
    work: Mask = (events["device"].notna() & events["kind"].isin(WORK)).to_numpy()
    alone = work & events["launch"].isna().to_numpy()
    if not alone.any() or not events["kind"].eq(Kind.LAUNCH).any():
        return trace
    early = alone & before_recording(trace)
    if early.any():
        says = f"{early.sum()} of {work.sum()} pieces of device work were launched before the recording began: they belong to no step, layer or operator"
        trace = trace.with_finding("work_from_before", "info", says, count=int(early.sum()))
    late = alone & ~early
    if late.any():
        names = events.loc[late, "name"].astype(str).value_counts().index
        stepless = int((late & events["step"].isna().to_numpy()).sum()) if events["step"].notna().any() else 0
        lacks = f"no operator or layer can be told for them, and for {stepless} no step" if stepless else "no operator or layer can be told for them"
        says = f"{late.sum()} of {work.sum()} pieces of device work have no launch call in the trace ({_few([n[:80] for n in names])}): {lacks}"
        trace = trace.with_finding("work_without_launch", "warning", says, count=int(late.sum()))
    return trace


def _launches(trace: RankTrace, windows: pd.DataFrame) -> RankTrace:
    """Launches without device work, outside the steps that are called cut because of them."""
    events = trace.events
    lost = lost_launches(trace)
    cut = windows.loc[~windows["complete"], "step"]
    elsewhere = lost & ~events["step"].isin(cut).fillna(False).to_numpy(bool)
    if not elsewhere.any():
        return trace
    total = int(kernel_launches(events).sum())
    recorded = (events["device"].notna() & events["kind"].isin(WORK)).any()
    lacks = "busy time lacks what they ran, unless the calls failed" if recorded else "no device work was recorded at all: profile with CUDA activity too"
    says = f"{elsewhere.sum()} of {total} kernel launches have no device work in the trace: {lacks}"
    return trace.with_finding("launches_without_work", "warning", says, count=int(elsewhere.sum()))


def _steps(trace: RankTrace, windows: pd.DataFrame) -> RankTrace:
    """Steps that were not recorded whole."""
    cut = windows[~windows["complete"]]
    if not len(cut):
        return trace
    calls = launches_by_step(trace).reindex(cut["step"]).fillna(0).astype(int)
    work = trace.events.loc[trace.events["kind"].isin(WORK) | (trace.meta.device_type == "cpu"), "step"].dropna().unique()
    numbers = zip(cut["step"].tolist(), calls["launches"].tolist(), calls["lost"].tolist(), strict=True)
    said = [_why(step, launches, lost, step in work) for step, launches, lost in numbers]
    rest = "; left out of means" if len(cut) < len(windows) else "; there is no whole step, so figures are of what was recorded of these"
    return trace.with_finding("steps_cut", "warning", _few(said, "; ") + rest, count=len(cut))


def _why(step: int, launches: int, lost: int, worked: bool) -> str:
    if lost:
        return f"step {step} was recorded in part: {lost} of its {launches} kernel launches have no device work"
    if not worked:
        return f"step {step} was recorded in part: it holds no device work"
    return f"step {step} was recorded in part: it is less than half of every other step, in time and in work"


def _warmup(trace: RankTrace, windows: pd.DataFrame) -> RankTrace:
    """The first step where it was cold."""
    warm = windows[windows["warmup"]]
    rest = windows[~windows["warmup"] & windows["complete"]]
    if not len(warm) or not len(rest):
        return trace
    own = int((warm["window_end_ns"] - warm["window_start_ns"]).iloc[0])
    usual = float(np.median(rest["window_end_ns"] - rest["window_start_ns"]))
    says = f"step {warm['step'].iloc[0]} is warm-up: {own / usual:.2f} times as long as the median of the others; left out of means"
    return trace.with_finding("step_warmup", "warning" if own >= COLD * usual else "info", says, count=1)


def _compiled(trace: RankTrace) -> RankTrace:
    """Backwards that torch.compile made: they may hold recomputation that leaves no mark."""
    events = trace.events
    calls, nodes = (int(named(events, test).sum()) for test in (lambda n: n.startswith(COMPILED_BACKWARD), lambda n: n.endswith(f": {COMPILED_BACKWARD}")))
    count = calls or nodes
    if not count:
        return trace
    says = (
        f"{count} backward calls were compiled (torch.compile): what the compiler runs again is fused into their kernels, so recomputation cannot be told; "
        "record a few steps uncompiled to measure it"
    )
    return trace.with_finding("compiled_backward", "warning", says, count=count)


def _few(said: list[str], between: str = ", ") -> str:
    """At most three, and how many more there are."""
    return between.join(said[:3]) + (f"{between}and {len(said) - 3} more" if len(said) > 3 else "")
