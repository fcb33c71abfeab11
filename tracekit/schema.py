"""Which columns does every table have, of which type and unit, and what do they mean?

Left half (one rank at a time): ``EVENTS`` and ``SAMPLES`` are the two tables of a RankTrace, the tables in ``FACTS``
are what a rank is boiled down to. Nullable columns use pandas' masked types (``Int64``, ``boolean``) or categories;
null means unknown and there is no -1. All times are int64 ns since the Unix epoch where the trace has a base.
"""

from __future__ import annotations

from tracekit.memory_tables import MEMORY_ACCOUNTS as MEMORY_ACCOUNTS
from tracekit.memory_tables import MEMORY_IN_FLIGHT as MEMORY_IN_FLIGHT
from tracekit.memory_tables import MEMORY_MICROBATCHES as MEMORY_MICROBATCHES
from tracekit.memory_tables import MEMORY_OWNERS as MEMORY_OWNERS
from tracekit.stated import BENCHMARKS as BENCHMARKS
from tracekit.stated import COMMUNICATORS as COMMUNICATORS
from tracekit.stated import GROUP_STATUS as GROUP_STATUS
from tracekit.stated import MEMORY_SNAPSHOTS as MEMORY_SNAPSHOTS
from tracekit.stated import MEMORY_STACKS as MEMORY_STACKS
from tracekit.stated import MEMORY_STANDING as MEMORY_STANDING
from tracekit.stated import OPERATORS as OPERATORS
from tracekit.stated import RECORDS as RECORDS
from tracekit.stated import STATED as STATED
from tracekit.table import Column as Column
from tracekit.table import Table as Table
from tracekit.table import conform as conform
from tracekit.table import empty as empty
from tracekit.table import validate as validate

REPORT_SCHEMA = "tracekit.report/1"

_TIME: Table = {
    "start_ns": Column("int64", "start, ns on this rank's clock"),
    "end_ns": Column("int64", "end (exclusive), ns on this rank's clock"),
}
_STEP: Table = {"step": Column("Int64", "N of ProfilerStep#N; null outside every step")}

#: One row per complete slice, sorted by (thread, ts, -dur); the row number is the event's id.
EVENTS: Table = {
    "step": Column("Int64", "N of the ProfilerStep#N that holds it (device work: that holds its launch)"),
    "ts": Column("int64", "start, ns"),
    "dur": Column("int64", "duration, ns"),
    "kind": Column("category", "vocabulary.Kind"),
    "name": Column("category", "name as written in the trace"),
    "thread": Column("int32", "code of the (pid, tid) pair, unique within the rank"),
    "device": Column("Int32", "device index of device work"),
    "stream": Column("Int64", "stream of device work"),
    "parent": Column("Int64", "row of the innermost enclosing CPU event on the same thread (async ranges excluded)"),
    "launch": Column("Int64", "row of the CPU event that launched it: device work by correlation, gloo:* by call order"),
    "correlation": Column("Int64", "CUPTI correlation id"),
    "external_id": Column("Int64", "Kineto External id"),
    "sequence": Column("Int64", "autograd Sequence number"),
    "fwd_thread": Column("Int64", "Fwd thread id: 0 in forward operators, >= 1 in backward nodes"),
    "phase": Column("category", "vocabulary.Phase"),
    "layer": Column("category", "module path, e.g. layers.3.attention"),
    "layer_source": Column("category", "what gave the layer: fsdp, range, module, sequence, inferred"),
    "recompute": Column("bool", "inside a repeated forward"),
    "stage": Column("Int64", "pipeline stage (virtual stages counted)"),
    "action": Column("category", "pipeline action F, B, I or W it runs in"),
    "microbatch": Column("Int64", "microbatch number"),
    "collective": Column("category", "vocabulary.Collective, on communication and on the operator that issues it"),
    "group": Column("category", "process group name"),
    "group_desc": Column("category", "process group description, e.g. mesh_tp"),
    "group_ranks": Column("category", "global ranks of the group, '0,1,2,3', sorted"),
    "group_cut": Column("category", "list of its ranks as far as it is written, where the trace cuts it: '0,1,...,63'"),
    "group_size": Column("Int64", "ranks in the group"),
    "seq": Column("Int64", "collective sequence number within the group"),
    "peer": Column("Int64", "global rank at the other end of a send or receive"),
    "nbytes": Column("Int64", "nccl-tests' size: the buffer; the total over ranks for all-gather and reduce-scatter"),
    "elements": Column("Int64", "elements of the largest tensor argument, where the trace does not name their type"),
    "dtype": Column("category", "element type as the trace names it"),
}

#: Memory events and counters of a rank, in order of time.
SAMPLES: Table = {
    "ts": Column("int64", "time, ns; of a snapshot without times: the number of the record"),
    "thread": Column("Int32", "thread code, as in events; null where the source names no thread (a memory snapshot)"),
    "device_type": Column("Int64", "0 CPU, 1 CUDA, 6 HIP (torch's DeviceType)"),
    "device": Column("Int64", "device index; null for CPU"),
    "addr": Column("UInt64", "address of the block"),
    "nbytes": Column("int64", "bytes, negative when freed"),
    "allocated": Column("Int64", "Total Allocated after the event, bytes"),
    "reserved": Column("Int64", "Total Reserved after the event, bytes"),
    "event": Column("Int64", "row of the innermost CPU event (operator or range) it happened in"),
    "stack": Column("Int64", "stack of the memory snapshot's record, as in memory_stacks; null where it names none"),
}

FINDINGS: Table = {
    "code": Column("object", "short name of the finding, e.g. rank_missing"),
    "severity": Column("object", "info, warning or error"),
    "message": Column("object", "what is wrong, and what to do"),
    "file": Column("object", "file it is about, or null"),
    "rank": Column("Int64", "rank it is about, or null"),
    "offset": Column("Int64", "byte in the file, or null"),
    "count": Column("Int64", "how many records are concerned, or null"),
}

EXTENT: Table = {
    **_TIME,
    "events": Column("int64", "number of slices read"),
}

#: What a rank's files hold and what they lack: one row per signal that some figure needs.
SIGNALS: Table = {
    "signal": Column("object", "name of the signal, as in tracekit.needs"),
    "count": Column("int64", "records that have it"),
    "of": Column("Int64", "records that could have it; null where there is no such number"),
}

STEPS: Table = {
    "step": Column("int64", "N of ProfilerStep#N"),
    **_TIME,
    "window_start_ns": Column("int64", "start of the window that holds the step's device work"),
    "window_end_ns": Column("int64", "end of that window"),
    "window_source": Column("object", "host: the ProfilerStep range; device: end of the previous step's last device work to end of its own"),
    "complete": Column("bool", "the whole step was recorded"),
    "warmup": Column("bool", "first recorded step and longer than 1.1 x the median of the others"),
}

BUSY: Table = {
    "device": Column("int64", "device index (0 for a CPU run: the rank's process)"),
    "device_type": Column("object", "cpu or gpu"),
    "step": Column("Int64", "step; null = the whole trace"),
    "span_ns": Column("int64", "of a step: its window; of the whole trace: first start to last end of device work"),
    "busy_ns": Column("Int64", "union of all device work; null on a CPU run whose communication left host records only"),
    "compute_ns": Column("Int64", "union of compute; null, like every part of busy below, where a whole CUDA graph is among the work"),
    "comm_ns": Column("Int64", "union of communication; null where it left host records only"),
    "overlap_ns": Column("Int64", "communication under compute; null likewise"),
    "exposed_comm_ns": Column("Int64", "communication not under compute; null likewise"),
    "memcpy_ns": Column("Int64", "union of copies and memsets"),
    "exposed_memcpy_ns": Column("Int64", "copies under neither compute nor communication"),
    "idle_ns": Column("Int64", "span minus busy; null where busy is"),
    "graph_ns": Column("int64", "union of CUDA graphs recorded as one piece: a part of busy that cannot be divided"),
    "emulated_ns": Column("int64", "part of compute that was slept, not computed"),
    "kernel_sum_ns": Column("Int64", "sum of durations of compute and communication: more than their union where streams run side by side"),
    "kernels": Column("Int64", "number of compute and communication events"),
}

#: What could be tied to the call that caused it: one row of counts per rank.
LINKS: Table = {
    "device_work": Column("int64", "kernels, copies and memsets; on a CPU run the executions of gloo"),
    "by_correlation": Column("int64", "of them tied to a launch call by correlation id; several may share one (a graph's launch)"),
    "by_external_id": Column("int64", "tied to an operator by External id, the launch call being absent"),
    "by_order": Column("int64", "gloo executions tied to their call by order"),
    "before_recording": Column("int64", "launched before the recording began, so tied to nothing"),
    "unlinked": Column("int64", "tied to nothing, for no such reason"),
    "stepless": Column("int64", "of all device work, what belongs to no step of a trace that has steps"),
    "graph_work": Column("int64", "device work that shares its correlation id with other device work"),
    "most_per_launch": Column("int64", "most pieces of device work with one correlation id"),
    "launches": Column("int64", "calls that launch kernels or graphs"),
    "launches_without_work": Column("int64", "of them those of which no device work was recorded"),
    "backward_nodes": Column("int64", "autograd nodes with a Sequence number"),
    "backward_unpaired": Column("int64", "of them those whose forward operator is not in the trace"),
    "communication": Column("int64", "communication executions"),
    "communication_without_record": Column("int64", "of them those of which neither they nor the call that caused them state a process group or a size"),
}

#: Device time by the operator that launched it, over the whole trace.
OPERATOR_TIMES: Table = {
    "operator": Column("object", "operator; null = launched outside every operator, or by no call in the trace"),
    "pieces": Column("int64", "kernels, copies and memsets of which it is the innermost operator"),
    "duration_ns": Column("int64", "sum of their durations"),
    "outermost_pieces": Column("int64", "those of which it is the outermost operator"),
    "outermost_duration_ns": Column("int64", "sum of their durations"),
}

#: One row per collective execution of this rank (kernel, or gloo:* on CPU runs); sends and receives are in P2P_CALLS.
CALLS: Table = {
    **_STEP,
    **_TIME,
    "kind": Column("object", "vocabulary.Collective; null where neither record nor name tells"),
    "exposed_ns": Column("Int64", "part not under this rank's compute; null for host time"),
    "time_source": Column("object", "device: its execution was recorded; host: only the host's call was, and the times are the host's"),
    "group": Column("object", "process group name, or null"),
    "group_desc": Column("object", "process group description, or null"),
    "group_ranks": Column("object", "'0,1,2,3', or null"),
    "group_cut": Column("object", "its ranks as far as they are written, where the trace cuts the list; else null"),
    "group_size": Column("Int64", "ranks in the group"),
    "seq": Column("Int64", "sequence number in the group"),
    "nbytes": Column("Int64", "nccl-tests' size"),
    "dtype": Column("object", "element type"),
    "layer": Column("object", "module path, or null"),
    "layer_last": Column("object", "last layer of a bucket that spans several, or null"),
    "layer_source": Column("object", "range, sequence, fsdp, module, inferred, or null"),
    "direction": Column("object", "vocabulary.Direction, or null"),
    "microbatch": Column("Int64", "microbatch, or null"),
    "stage": Column("Int64", "pipeline stage, or null"),
    "in_action": Column("bool", "launched inside a pipeline action"),
    "device": Column("int64", "device index (0 on CPU)"),
    "stream": Column("Int64", "stream, or thread on CPU"),
}

#: One row per send or receive of this rank.
P2P_CALLS: Table = {
    **_STEP,
    **_TIME,
    "kind": Column("object", "send, recv, or send_recv where one kernel does several"),
    "exposed_ns": Column("Int64", "part not under this rank's compute; null for host time"),
    "time_source": Column("object", "device or host, as in calls"),
    "peer": Column("Int64", "global rank at the other end; null where unknown"),
    "group": Column("object", "process group name"),
    "group_desc": Column("object", "process group description"),
    "group_ranks": Column("object", "'0,1,2,3', or null"),
    "seq": Column("Int64", "sequence number (rank-local)"),
    "nbytes": Column("Int64", "bytes moved"),
    "dtype": Column("object", "element type"),
    "direction": Column("object", "forward (activations), backward (gradients), or null"),
    "microbatch": Column("Int64", "microbatch, or null"),
    "stage": Column("Int64", "this rank's stage, or null"),
    "batch": Column("Int64", "number of the coalesced kernel it belongs to; null when it has its own kernel"),
}

#: Waits of the host for functional collectives (wait_tensor).
HOST_WAITS: Table = {
    **_STEP,
    "waits": Column("int64", "how often it waited"),
    "host_wait_ns": Column("int64", "sum of the waits, host time"),
}

#: What this rank's device had done when each communication began: running sums since its first work.
PROGRESS: Table = {
    "device": Column("int64", "device index (0 on CPU)"),
    **_TIME,
    "computed_before_ns": Column("int64", "union of compute before the start"),
    "busy_before_ns": Column("int64", "union of all device work before the start"),
}

#: One row per pipeline action of this rank.
ACTIONS: Table = {
    **_STEP,
    "stage": Column("int64", "stage (virtual stages counted)"),
    "action": Column("object", "F, B, I or W"),
    "microbatch": Column("int64", "microbatch"),
    **_TIME,
    "compute_ns": Column("int64", "union of its compute"),
    "exposed_collective_ns": Column("int64", "its TP, CP and EP collectives not under compute"),
    "inner_gap_ns": Column("int64", "span minus the two above"),
    "fresh_start_ns": Column("int64", "start of the part of the span that no earlier action of the rank covers"),
    "fresh_compute_ns": Column("int64", "compute of all actions in that part: overlapped actions count once"),
    "fresh_exposed_collective_ns": Column("int64", "exposed collectives of all actions in that part"),
    "source": Column("object", "range (PP:), gpipe_range, named_range (other frameworks'), label (device work names it), or inferred"),
    "explained_ratio": Column("Float64", "inferred: the least of the shares of the step's sends, receives and compute that the actions explain; else null"),
}

#: Where, between pipeline actions of this rank, collectives of no action (FSDP, DP, world) run under no compute.
GAP_COLLECTIVES: Table = {
    **_STEP,
    **_TIME,
}

MEMORY_PEAKS: Table = {
    "device": Column("int64", "device index (0 on CPU)"),
    "device_type": Column("object", "cpu or gpu: whose memory it is"),
    "step": Column("Int64", "step; null = the whole trace"),
    "allocated_before_bytes": Column("Int64", "level with which the step, or the recording, began; null where it is not known"),
    "allocated_lowest_bytes": Column("Int64", "lowest level, that one included; null where it is not known"),
    "allocated_peak_bytes": Column("int64", "highest allocated"),
    "allocated_peak_ts_ns": Column("Int64", "first time it was reached; null where the records have no times"),
    "reserved_peak_bytes": Column("Int64", "highest reserved; null where there is no caching allocator"),
    "parameter_bytes": Column("Int64", "null: not known, then part of unknown"),
    "gradient_bytes": Column("Int64", ""),
    "optimizer_state_bytes": Column("Int64", ""),
    "activation_bytes": Column("Int64", "saved in a layer's forward until its backward frees it"),
    "activation_peak_bytes": Column("Int64", "most activations alive at one time, which need not be when most was allocated"),
    "input_bytes": Column("Int64", "batches and receive buffers"),
    "temporary_bytes": Column("Int64", "communication buffers among them"),
    "communication_bytes": Column("Int64", "of temporary_bytes: communication buffers"),
    "unknown_bytes": Column("int64", "the categories (temporary with its communication buffers once) sum to the peak exactly"),
    "reserved_at_peak_bytes": Column("Int64", "reserved when allocated was highest; null where there is no caching allocator"),
    "baseline_source": Column("object", "where the level before the recording comes from: recorder, totals, snapshot, none"),
}

MEMORY_LAYERS: Table = {
    "device": Column("int64", "device index"),
    "device_type": Column("object", "cpu or gpu"),
    "step": Column("Int64", "step; null = the whole trace"),
    "layer": Column("object", "module path of the layer (no sublayer)"),
    "layer_index": Column("Int64", "global number of the layer"),
    "activation_bytes": Column("int64", "activations of the layer alive at the peak"),
}

MEMORY_CURVE: Table = {
    "device": Column("int64", "device index"),
    "device_type": Column("object", "cpu or gpu"),
    "step": Column("Int64", "step"),
    "ts_ns": Column("Int64", "time; null where the records have no times"),
    "record": Column("int64", "number of the memory event on its device, from 0"),
    "allocated_bytes": Column("int64", "allocated after that time; thinned to at most 2,000 points that keep each extreme"),
    "reserved_bytes": Column("Int64", "reserved"),
    "phase": Column("object", "forward, backward, optimizer, or null"),
}

RECOMPUTE: Table = {
    **_STEP,
    "layer": Column("object", "layer path; null = all of the step, those without a layer included"),
    "layer_index": Column("Int64", "global number of the layer"),
    "forward_ns": Column("int64", "sum of compute in forward, without the repeated part"),
    "backward_ns": Column("int64", "sum of compute in backward, without the repeated part"),
    "recompute_ns": Column("int64", "sum of compute of repeated forwards"),
    "reissued_collective_ns": Column("int64", "sum of durations of collectives issued again, waits included"),
    "reissued_collectives": Column("int64", "their number"),
    "forward_runs": Column("Int64", "how often the layer's forward ran; null where neither range nor frame tells"),
    "recompute_runs": Column("int64", "how often it was repeated"),
    "checkpoints": Column("int64", "autograd nodes in which anything was repeated: one per checkpointed piece that ran again"),
    "forward_products": Column("int64", "products with weights (mm, addmm) that forward ran"),
    "recompute_products": Column("int64", "products with weights that were run again"),
    "decidable": Column("bool", "false where the trace cannot tell (compiled, no sequence numbers)"),
}

#: Cost of recomputation by part of a layer; the rows of a layer sum to its row in RECOMPUTE.
RECOMPUTE_SUBLAYERS: Table = {
    **_STEP,
    "layer": Column("object", "layer path without the sublayer"),
    "layer_index": Column("Int64", "global number of the layer"),
    "sublayer": Column("object", "attention, mlp, norm, embedding or head; null = the rest of the layer, or all of it where its parts are not named"),
    **{n: RECOMPUTE[n] for n in ("forward_ns", "backward_ns", "recompute_ns", "reissued_collective_ns", "reissued_collectives", "decidable")},
}

#: Which layers a rank counted for itself, and where it stands: what their numbers are in the whole model follows from all ranks.
LAYER_PLACES: Table = {
    "layer": Column("object", "path of the layer by the rank's own count (no sublayer), e.g. layers.0"),
    "number": Column("int64", "its number by the rank's own count"),
    "stage": Column("Int64", "pipeline stage that it runs in; null where no action is known"),
    "place": Column("Int64", "the rank's place in its pipeline; null where no group tells"),
    "pipeline_size": Column("Int64", "ranks of the pipeline; null where no group tells"),
    "exchanges": Column("bool", "the rank sends or receives along a pipeline"),
}

#: The compute of a step divided so that every ns counts once.
COMPUTE_PARTS: Table = {
    "device": Column("int64", "device index (0 on CPU)"),
    **_STEP,
    "part": Column("object", "recompute, backward, forward, optimizer or other_compute: where several run at once, the first of these"),
    "duration_ns": Column("int64", "length of the union; the parts sum to compute_ns of busy"),
    "emulated_ns": Column("int64", "of it slept, not computed"),
}

#: Which communication call was exposed when, so that every exposed ns belongs to one call.
EXPOSED: Table = {
    "device": Column("int64", "device index (0 on CPU)"),
    **_STEP,
    **_TIME,
    "exposed_ns": Column("int64", "exposed time inside; less than end - start only in the longest-cut calls, whose pieces are put together"),
    "kind": Column("object", "vocabulary.Collective of the call"),
    "call_start_ns": Column("int64", "start of the call"),
    "call_end_ns": Column("int64", "end of the call"),
    "group_desc": Column("object", "process group description, or null"),
    "group_ranks": Column("object", "'0,1,2,3', or null"),
}

#: When a device did nothing, and what its host did meanwhile; the pieces of a device and step sum to idle_ns of busy.
IDLE_PIECES: Table = {
    "device": Column("int64", "device index (0 on CPU)"),
    **_STEP,
    **_TIME,
    "idle_ns": Column("int64", "idle time inside; less than end - start where short pieces are put together"),
    "cause": Column("object", "input: the host fetched data; launch: the work after it was launched only when the device was idle; null: not known"),
    "in_action": Column("bool", "inside a pipeline action, or the step has none: its place does not matter, and all such pieces of a cause are one row"),
}

#: Every table of a rank's facts, by name.
FACTS: dict[str, Table] = {
    "findings": FINDINGS,
    "extent": EXTENT,
    "signals": SIGNALS,
    "steps": STEPS,
    "busy": BUSY,
    "calls": CALLS,
    "p2p_calls": P2P_CALLS,
    "host_waits": HOST_WAITS,
    "progress": PROGRESS,
    "actions": ACTIONS,
    "gap_collectives": GAP_COLLECTIVES,
    "layer_places": LAYER_PLACES,
    "memory_peaks": MEMORY_PEAKS,
    "memory_layers": MEMORY_LAYERS,
    "memory_curve": MEMORY_CURVE,
    "memory_owners": MEMORY_OWNERS,
    "memory_microbatches": MEMORY_MICROBATCHES,
    "memory_in_flight": MEMORY_IN_FLIGHT,
    "memory_accounts": MEMORY_ACCOUNTS,
    "recompute": RECOMPUTE,
    "recompute_sublayers": RECOMPUTE_SUBLAYERS,
    "compute_parts": COMPUTE_PARTS,
    "links": LINKS,
    "operator_times": OPERATOR_TIMES,
    "exposed": EXPOSED,
    "idle_pieces": IDLE_PIECES,
    **STATED,
}
