"""Which environment variables must stand before the process group is made, so that the recording is complete?"""

from __future__ import annotations

import ctypes.util
from collections.abc import Mapping
from pathlib import Path

from tracekit.recorder.files import rank_directory

#: Entries that the Flight Recorder keeps; torch's ring buffer, about 1 kB each.
FLIGHT_RECORDER_ENTRIES = 20_000


def environment(directory: str | Path | None = None, rank: int | None = None, device: str = "cpu") -> dict[str, str]:
    """Variables to set before ``init_process_group`` (in the launcher, or first thing in the process).

    ``TORCH_FR_BUFFER_SIZE`` makes torch keep the list of collectives that becomes ``flight_recorder.json``: group and
    sequence number of every gloo collective come from there. With ``device="cuda"``, a directory and a rank, NCCL
    also writes its own log to ``<directory>/rank00000/nccl.log``, and NCCL Inspector (NCCL 2.28 and later, where its
    plugin ``libnccl-profiler-inspector.so`` is installed) its measurements to the folder ``nccl_inspector`` beside it.

    Args:
        directory: the run directory.
        rank: global rank of the process that the variables are for.
        device: ``cpu`` or ``cuda``.

    Returns:
        Name to value; only what has to be set.

    >>> environment()
    {'TORCH_FR_BUFFER_SIZE': '20000'}
    """
    variables = {"TORCH_FR_BUFFER_SIZE": str(FLIGHT_RECORDER_ENTRIES)}
    if device == "cuda" and directory is not None and rank is not None:
        folder = rank_directory(Path(directory), rank)
        variables |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,ENV,TUNING", "NCCL_DEBUG_FILE": str(folder / "nccl.log")}
        plugin = ctypes.util.find_library("nccl-profiler-inspector")
        if plugin:
            variables |= {
                "NCCL_PROFILER_PLUGIN": plugin,
                "NCCL_INSPECTOR_ENABLE": "1",
                "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "500",
                "NCCL_INSPECTOR_DUMP_DIR": str(folder / "nccl_inspector"),
            }
    return variables


def missing(environ: Mapping[str, str], backend: str | None) -> tuple[str, ...]:
    """One line for each variable whose absence costs something under this backend (None: not distributed).

    >>> missing({"TORCH_FR_BUFFER_SIZE": "20000"}, "gloo")
    ()
    """
    if backend is None:
        return ()
    lines = []
    advice = f"set TORCH_FR_BUFFER_SIZE={FLIGHT_RECORDER_ENTRIES} before init_process_group, as tracekit.recorder.environment says"
    entries = next((environ[name] for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE") if environ.get(name)), None)
    if entries is None:
        lines.append(f"flight_recorder.json will hold torch's default of the last 2000 collectives, too few for a long window: {advice}")
    elif entries == "0":
        lines.append(f"no flight_recorder.json will be written, and without it gloo collectives have no group and no sequence number: {advice}")
    if "nccl" in backend and not environ.get("NCCL_DEBUG_FILE"):
        lines.append("no nccl.log will be written: set NCCL_DEBUG=INFO and NCCL_DEBUG_FILE before init_process_group, as tracekit.recorder.environment says")
    return tuple(lines)
