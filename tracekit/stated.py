"""Which tables may a file state outright, instead of as events on a timeline? Records of calls, benchmarks, operators, snapshots."""

from __future__ import annotations

from enum import StrEnum

from tracekit.table import Column, Table

#: One row per communication call that a log or dump states (Flight Recorder, NCCL's log or profiler, an execution trace): no slice of a timeline.
RECORDS: Table = {
    "source": Column("object", "what states it: flight_recorder, nccl_log, nccl_profiler, nccl_inspector or execution_trace"),
    "kind": Column("object", "vocabulary.Collective (send and recv among them)"),
    "name": Column("object", "the call as it is written, e.g. nccl:all_reduce"),
    "group": Column("object", "process group or communicator, as the source names it"),
    "group_desc": Column("object", "its description, or null"),
    "group_ranks": Column("object", "'0,1,2,3', or null"),
    "group_size": Column("Int64", "ranks in the group"),
    "seq": Column("Int64", "collective sequence number in the group (opCount of NCCL's log); for sends and receives their own numbering"),
    "peer": Column("Int64", "global rank at the other end of a send or receive"),
    "nbytes": Column("Int64", "nccl-tests' size where the group's size is known; what the rank puts in otherwise"),
    "dtype": Column("object", "element type as written"),
    "shape": Column("object", "shape of its input as written, 4096x5120; several tensors joined by +"),
    "p2p": Column("boolean", "its seq counts sends and receives, not collectives"),
    "record": Column("Int64", "number of the call among all that the rank made, in order"),
    "algorithm": Column("object", "Ring, Tree, NVLS, ..., or null"),
    "protocol": Column("object", "LL, LL128 or Simple, or null"),
    "state": Column("object", "scheduled, started or completed, or null"),
    "created_ns": Column("Int64", "when the call was made, ns"),
    "start_ns": Column("Int64", "start of its execution, ns"),
    "end_ns": Column("Int64", "end of its execution, ns"),
    "duration_ns": Column("Int64", "its duration, where the source states one"),
    "algbw_gbps": Column("Float64", "algorithm bandwidth as the source states it, 1e9 bytes/s"),
    "busbw_gbps": Column("Float64", "bus bandwidth as the source states it, 1e9 bytes/s"),
}

#: How far each process group had come on this rank when a Flight Recorder was dumped.
GROUP_STATUS: Table = {
    "group": Column("object", "process group name"),
    "group_desc": Column("object", "its description, or null"),
    "group_ranks": Column("object", "'0,1,2,3', or null"),
    "last_enqueued": Column("Int64", "sequence number of the last call that was enqueued; 0: none yet (numbers begin at 1)"),
    "last_started": Column("Int64", "of the last call that began to run"),
    "last_completed": Column("Int64", "of the last call that ended"),
}

#: One row per communicator that NCCL's log, profiler plugin or Inspector states for this rank, whether it was used or not.
COMMUNICATORS: Table = {
    "source": Column("object", "what states it: nccl_log, nccl_profiler or nccl_inspector"),
    "group": Column("object", "the communicator, as in RECORDS"),
    "group_desc": Column("object", "its description, or null"),
    "group_ranks": Column("object", "'0,1,2,3', or null"),
    "group_size": Column("Int64", "ranks in the communicator"),
    "group_rank": Column("Int64", "number of this rank inside the communicator"),
    "handle": Column("object", "the communicator's address in its process, e.g. 0x5500aa, or null"),
    "device": Column("Int64", "CUDA device it was made on"),
}

#: Rows that nccl-tests printed.
BENCHMARKS: Table = {
    "run": Column("object", "which table: the file, and the number of the table in it"),
    "test": Column("object", "which collective, vocabulary.Collective, or null where the log does not tell"),
    "nbytes": Column("int64", "size column, bytes"),
    "count": Column("Int64", "elements"),
    "dtype": Column("object", "element type"),
    "redop": Column("object", "reduction, or null"),
    "ranks": Column("Int64", "ranks that took part, or null"),
    "in_place": Column("bool", "the in-place half of the row"),
    "duration_ns": Column("int64", "time column"),
    "algbw_gbps": Column("Float64", "algorithm bandwidth as printed, 1e9 bytes/s"),
    "busbw_gbps": Column("Float64", "bus bandwidth as printed, 1e9 bytes/s"),
    "errors": Column("Int64", "wrong results; null where the check was off or not applicable"),
    "run_busbw_gbps": Column("Float64", "average bus bandwidth that the run printed below its table, or null"),
}

#: Operators of an execution trace (no times), by name.
OPERATORS: Table = {
    "name": Column("object", "operator"),
    "count": Column("int64", "how often it ran"),
    "input_bytes": Column("Int64", "bytes of its tensor inputs, all runs together; null where a size or type is unknown"),
    "output_bytes": Column("Int64", "bytes of its tensor outputs"),
}

#: What a CUDA memory snapshot says of each device: its records replayed from the level that stood before them.
MEMORY_SNAPSHOTS: Table = {
    "device": Column("int64", "device index"),
    "records": Column("int64", "entries of its trace"),
    "allocations": Column("int64", "blocks that were handed out"),
    "frees": Column("int64", "blocks that were given back (free_requested)"),
    "frees_without_alloc": Column("int64", "of them blocks that were handed out before the record began"),
    "failed_allocations": Column("int64", "entries oom: the allocator found no memory"),
    "timed": Column("bool", "every entry has a time"),
    "first_ts_ns": Column("Int64", "time of the first entry"),
    "last_ts_ns": Column("Int64", "time of the last entry"),
    "allocated_before_bytes": Column("Int64", "requested bytes that stood before the record; null where the snapshot lists no segments"),
    "allocated_untouched_bytes": Column("Int64", "of them bytes that stood to the end"),
    "allocated_peak_bytes": Column("Int64", "highest sum of requested bytes"),
    "allocated_peak_record": Column("Int64", "entry after which it was first reached, from 0; null: before the first"),
    "allocated_peak_ts_ns": Column("Int64", "time of that entry"),
    "allocated_end_bytes": Column("Int64", "requested bytes at the end"),
    "rounded_peak_bytes": Column("Int64", "the peak with every block rounded up to 512 bytes: what torch.cuda.max_memory_allocated() shows at least"),
    "active_peak_bytes": Column("Int64", "highest sum of blocks not yet free for use again (until free_completed)"),
    "active_peak_record": Column("Int64", "entry after which it was first reached; null: before the first"),
    "reserved_before_bytes": Column("Int64", "reserved before the record"),
    "reserved_peak_bytes": Column("Int64", "highest reserved"),
    "reserved_peak_record": Column("Int64", "entry after which it was first reached; null: before the first"),
    "reserved_end_bytes": Column("Int64", "reserved at the end"),
    "segments": Column("Int64", "segments at the end"),
    "blocks_end_bytes": Column("Int64", "whole blocks handed out at the end: torch.cuda.memory_allocated()"),
    "inactive_end_bytes": Column("Int64", "reserved at the end and in no block in use: cached or fragmented"),
    "largest_inactive_end_bytes": Column("Int64", "the largest of its pieces"),
    "split_inactive_end_bytes": Column("Int64", "of it in segments that hold blocks in use too: fragmentation, which emptying the cache does not free"),
    "expandable_segments": Column("Int64", "segments that grow and shrink (expandable_segments:True); null where the snapshot does not say"),
}


class StackPlace(StrEnum):
    """Where in training a stack of a memory snapshot stands (column ``place``)."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    RECOMPUTE = "recompute"  #: a checkpoint's own frames, inside backward
    ZERO_GRAD = "zero_grad"
    COMMUNICATION = "communication"
    GATHER = "gather"  #: sharded parameters made whole
    MODULE_STATE = "module_state"  #: a module's constructor, or ``Module.to``


#: Stacks of a memory snapshot's records, each once.
MEMORY_STACKS: Table = {
    "stack": Column("int64", "a number made of its frames: the same stack has the same in every file"),
    "place": Column("object", "word of StackPlace: the part of training in which its innermost telling frame stands, or null"),
    "repeated": Column("bool", "a forward that a backward asked for"),
    "to_device": Column("bool", "in no part of training, inside Tensor.to or Tensor.cuda"),
    "maker": Column("object", "its operator and the user's line that called it, or autograd's node, e.g. bmm in model.py:432 attention"),
}

#: Blocks that stood throughout the records of a memory snapshot and were made before them, where their stack is known.
MEMORY_STANDING: Table = {
    "device": Column("int64", "device index"),
    "addr": Column("UInt64", "address of the block"),
    "nbytes": Column("int64", "requested bytes"),
    "stack": Column("int64", "the stack that made it, as in MEMORY_STACKS"),
}

#: Tables that a file may state outright; a rank's facts hold them as they are.
STATED: dict[str, Table] = {
    "records": RECORDS,
    "group_status": GROUP_STATUS,
    "communicators": COMMUNICATORS,
    "benchmarks": BENCHMARKS,
    "operators": OPERATORS,
    "memory_snapshots": MEMORY_SNAPSHOTS,
    "memory_stacks": MEMORY_STACKS,
    "memory_standing": MEMORY_STANDING,
}

#: Of them those that only serve to tell what a rank's own blocks were for.
LEFT_BEHIND = ("memory_stacks", "memory_standing")
