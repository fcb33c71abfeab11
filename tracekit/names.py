"""Which rank, capture and worker does a file's name tell? Used only where the content does not.

rank0_trace.json.gz, rank-3.json.gz, rank00003/…, worker3.…        torch.profiler handlers, Megatron, run directories
iteration_20/rank3_trace.json.gz, memory_snapshot/step_20/3_step_20.pickle    torchtitan
nccl_trace_rank_<host>_<rank>, _dump_<rank>                        Flight Recorder
<host>_<pid>.<stamp>.pt.trace.json.gz                              TensorBoard: tells the process, not the rank
"""

from __future__ import annotations

import re
from pathlib import PurePath

#: A file of a TensorBoard handler: worker, time stamp.
_TENSORBOARD = re.compile(r"^(?P<worker>.+?)\.(?P<stamp>\d{13,20})\.pt\.trace\.json")
_HOST_AND_PROCESS = re.compile(r"^.+_\d+$")
#: Flight Recorder dumps: torch writes a prefix of the user's and the rank, without extension.
_BARE = re.compile(r"^[A-Za-z_][\w.-]*?(?P<rank>\d{1,7})$")
_DUMP = re.compile(r"(?:^|_)(?:nccl_trace_rank|comm_lib_trace_rank|dump|flight_recorder|fr_trace)(?:_.*?)?_(?P<rank>\d{1,7})(?:\.[a-z]\w*){0,2}$")
_RANK = (
    re.compile(r"(?:^|[^a-z])rank[-_=]?(?P<rank>\d{1,7})(?!\d)", re.IGNORECASE),
    re.compile(r"^worker[-_]?(?P<rank>\d{1,7})(?!\d)"),
    re.compile(r"^(?P<rank>\d{1,6})_(?:step|trace|memory)"),
    re.compile(r"^(?P<rank>\d{1,6})\.(?:json|pickle|pt\.trace)"),
)
_CAPTURE = re.compile(r"(?:capture|iteration_|step_|cycle_?)(?P<capture>\d{1,15})")


def rank_of(path: PurePath) -> int | None:
    """Rank by the names of a file and of the two folders above it; None where they do not tell.

    >>> [rank_of(PurePath(p)) for p in ("iteration_20/rank3_trace.json.gz", "nccl_trace_rank_gpu-b07_1", "gpu3_851.1752215573993.pt.trace.json")]
    [3, 1, None]
    """
    bare = _BARE.match(path.name)
    if bare is not None and not _CAPTURE.match(path.name):
        return int(bare["rank"])
    for name in (path.name, *(parent.name for parent in list(path.parents)[:2])):
        found = _rank_in(name)
        if found is not None:
            return found
    return None


def _rank_in(name: str) -> int | None:
    if (dump := _DUMP.search(name)) is not None:
        return int(dump["rank"])
    board = _TENSORBOARD.match(name)
    if board is not None and _HOST_AND_PROCESS.match(board["worker"]) and "rank" not in board["worker"]:
        return None
    return next((int(found["rank"]) for pattern in _RANK if (found := pattern.search(name))), None)


def capture_of(path: PurePath) -> int | None:
    """Which profiler cycle, by the names of a file and the folder above it; None where they do not tell.

    >>> capture_of(PurePath("iteration_20/rank3_trace.json.gz")), capture_of(PurePath("rank3.json"))
    (20, None)
    """
    for name in (path.parent.name, path.name):
        if (found := _CAPTURE.search(name)) is not None:
            return int(found["capture"])
    return None


def worker_of(path: PurePath) -> str | None:
    """The process that a TensorBoard handler wrote for: files of one worker are captures of one rank.

    >>> worker_of(PurePath("log/dc3b0e7228dd_851.1752215573993169006.pt.trace.json"))
    'dc3b0e7228dd_851'
    """
    board = _TENSORBOARD.match(path.name)
    return board["worker"] if board is not None else None
