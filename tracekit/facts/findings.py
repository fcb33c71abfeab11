"""What was wrong with this rank's files? The findings that reader and passes met, as a table."""

from __future__ import annotations

import pandas as pd

from tracekit import schema
from tracekit.trace import RankTrace


def findings(trace: RankTrace) -> dict[str, pd.DataFrame]:
    """``findings``: one row per thing to know before believing a number (``schema.FINDINGS``)."""
    if not trace.findings:
        return {"findings": schema.empty(schema.FINDINGS)}
    return {"findings": schema.conform(pd.DataFrame(list(trace.findings)), schema.FINDINGS)}
