"""When was each step, on the host and on the device, and can it be trusted?"""

from __future__ import annotations

import pandas as pd

from tracekit.trace import RankTrace
from tracekit.windows import step_windows


def steps(trace: RankTrace) -> dict[str, pd.DataFrame]:
    """``steps``: one row per ProfilerStep (``schema.STEPS``)."""
    return {"steps": step_windows(trace)}
