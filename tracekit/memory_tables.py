"""Which columns do the tables of memory have that go beyond peaks, layers and curve?"""

from __future__ import annotations

from tracekit.table import Column, Table

_WHERE: Table = {
    "device": Column("int64", "device index (0 on CPU)"),
    "device_type": Column("object", "cpu or gpu: whose memory it is"),
    "step": Column("Int64", "step; null = the whole trace"),
}

#: What was alive at each peak, grouped; the groups of a peak sum to it exactly.
MEMORY_OWNERS: Table = {
    **_WHERE,
    "category": Column("object", "word of owners.CATEGORIES; where the category is null in memory_peaks, its groups are the part that is known"),
    "rule": Column("object", "code of owners.RULES: which rule decided the category"),
    "layer": Column("object", "layer in which it was made (no sublayer), or null"),
    "layer_index": Column("Int64", "global number of the layer"),
    "layer_source": Column("object", "what gave the layer: fsdp, range, module, sequence, inferred, recorder, or null"),
    "sublayer": Column("object", "rest of the path, e.g. attention, or null"),
    "direction": Column("object", "forward, backward, recompute or optimizer in which it was made, or null"),
    "stage": Column("Int64", "pipeline stage in which it was made"),
    "microbatch": Column("Int64", "microbatch for which it was made"),
    "maker": Column("object", "operator or range that made it, or null"),
    "since": Column("object", "before_recording, earlier (a step before the peak's, or no step), this_step"),
    "blocks": Column("Int64", "number of blocks; null where only the bytes are known"),
    "nbytes": Column("int64", "their bytes"),
}

#: Activations alive at each peak by layer and microbatch.
MEMORY_MICROBATCHES: Table = {
    **_WHERE,
    "layer": Column("object", "layer (no sublayer), or null"),
    "layer_index": Column("Int64", "global number of the layer"),
    "stage": Column("Int64", "pipeline stage"),
    "microbatch": Column("Int64", "microbatch, or null"),
    "activation_bytes": Column("int64", "activations alive at the peak"),
}

#: How many microbatches' activations each stage held.
MEMORY_IN_FLIGHT: Table = {
    "device": Column("int64", "device index (0 on CPU)"),
    "device_type": Column("object", "cpu or gpu"),
    "step": Column("Int64", "step"),
    "stage": Column("Int64", "pipeline stage; null where none is known"),
    "microbatches": Column("int64", "microbatches of the step whose activations this rank saw"),
    "in_flight_microbatches": Column("Int64", "microbatches with live activations when the stage's activations were most; null where some of them name none"),
    "most_microbatches": Column("Int64", "most microbatches with live activations at any one time"),
    "activation_peak_bytes": Column("int64", "most bytes of the stage's activations"),
    "activation_peak_ts_ns": Column("int64", "first time of it"),
    "without_microbatch_bytes": Column("int64", "of them bytes of which no microbatch is known"),
}

#: Blocks of a whole recording, per device.
MEMORY_ACCOUNTS: Table = {
    "device": Column("int64", "device index (0 on CPU)"),
    "device_type": Column("object", "cpu or gpu"),
    "events": Column("int64", "memory events"),
    "empty_events": Column("int64", "of them those of 0 bytes, which change nothing"),
    "allocations": Column("Int64", "blocks that were made; null where events give no address"),
    "allocations_bytes": Column("Int64", "their bytes"),
    "frees": Column("Int64", "blocks that were freed"),
    "frees_bytes": Column("Int64", "their bytes"),
    "frees_without_alloc": Column("Int64", "of them blocks that were made before the recording"),
    "frees_without_alloc_bytes": Column("Int64", "their bytes"),
    "never_freed": Column("Int64", "blocks that stood when the recording ended"),
    "never_freed_bytes": Column("Int64", "their bytes"),
    "allocated_before_bytes": Column("Int64", "level before the recording; null where nothing tells"),
    "named_before_bytes": Column("Int64", "of it what the recorder's baseline names; null without one"),
    "allocated_end_bytes": Column("Int64", "level after the last event; null where what stood before is not known"),
    "ended_by_reuse": Column("Int64", "allocations at an address whose block still stood: its free was not seen"),
}
