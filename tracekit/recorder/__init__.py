"""What does a user add to their own training loop? A Recorder: profiler windows, layer and action ranges, memory baseline.

    from tracekit.recorder import Recorder

    with Recorder("runs/mine", model=model, optimizer=optimizer) as recorder:
        for batch in loader:
            train_step(batch)
            recorder.step()

It leaves a run directory that ``tracekit analyze runs/mine`` reads. Needs torch (``pip install tracekit-train[recorder]``),
which nothing else of tracekit imports. What the process environment must hold before ``init_process_group`` (collective
metadata on gloo, the NCCL log on CUDA) is what :func:`environment` returns.
"""

from __future__ import annotations

from tracekit.recorder.recorder import Recorder
from tracekit.recorder.variables import environment
from tracekit.recorder.windows import Window

__all__ = ["Recorder", "Window", "environment"]
