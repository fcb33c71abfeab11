"""Which collectives did this rank issue, in which group and order? Torch's Flight Recorder, dumped as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import torch.distributed as dist

from tracekit.recorder.files import write_text


def dump(path: Path) -> bool:
    """Write what the Flight Recorder holds; nothing where it is off or empty.

    It is a ring of the last ``TORCH_FR_BUFFER_SIZE`` collectives since the process group was made, so it reaches
    further back than the capture. Source: ``torch._C._distributed_c10d._dump_fr_trace_json`` (torch 2.5 and later).

    Returns:
        Whether a file was written.
    """
    if not dist.is_available() or not dist.is_initialized():
        return False
    from torch._C import _distributed_c10d

    take = getattr(_distributed_c10d, "_dump_fr_trace_json", None)
    text = take() if take is not None else None
    if isinstance(text, bytes):
        text = text.decode()
    if not text or not json.loads(text).get("entries"):
        return False
    write_text(path, text)
    return True
