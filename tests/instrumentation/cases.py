"""Which runs are held against the single process? Every recipe, schedule and recomputation, all in one launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from instrumentation.config import RunConfig, configure

#: Microbatches of a step over all ranks: every run trains on the same data.
GLOBAL_MICROBATCHES = 4
#: The same data in two microbatches: gradients still have to be added up, and DTensor, which takes its time for every
#: operator however small, has half as many to do.
LARGER: dict[str, Any] = {"microbatches": GLOBAL_MICROBATCHES // 2, "microbatch_size": 4}

#: float64, so that equal means equal: what is left are sums taken in another order.
MODEL: dict[str, Any] = {
    "layers": 4,
    "hidden": 32,
    "heads": 4,
    "sequence": 16,
    "vocabulary": 32,
    "microbatch_size": 2,
    "steps": 10,
    "dtype": "float64",
    "wait": 1,
    "warmup": 1,
    "active": 1,
    "save_parameters": True,
}

#: Eight processes on fewer cores: half the steps, held against a single process that takes as many.
EIGHT: dict[str, Any] = {"steps": 5}

_MODES = ("full", "selective:core_attention", "selective:op", "sqrt")
_SCHEDULES = ("gpipe", "1f1b", "interleaved", "interleaved-zb", "zbv", "dualpipev")

#: Name -> recipe, ranks and what differs from MODEL.
CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "dense": ("dense", 1, {}),
    "dense again": ("dense", 1, {"record": False}),
    "dense, half the steps": ("dense", 1, EIGHT),
    **{f"dense {mode}": ("dense", 1, {"recompute": mode}) for mode in _MODES},
    "ddp": ("ddp", 2, {}),
    "fsdp": ("fsdp", 2, {}),
    "fsdp full": ("fsdp", 2, {"recompute": "full"}),
    "tp": ("tp", 2, LARGER),
    "tp again": ("tp", 2, LARGER),
    "tp selective:op": ("tp", 2, {**LARGER, "recompute": "selective:op"}),
    "tp-sp": ("tp-sp", 2, LARGER),
    "tp-sp full": ("tp-sp", 2, {**LARGER, "recompute": "full"}),
    "cp": ("cp", 2, LARGER),
    "cp selective:core_attention": ("cp", 2, {**LARGER, "recompute": "selective:core_attention"}),
    **{f"pp {schedule}": ("pp", 2, {"schedule": schedule}) for schedule in _SCHEDULES},
    "pp interleaved-zb one stage a rank": ("pp", 2, {"schedule": "interleaved-zb", "virtual": 1}),
    "pp zbv selective:core_attention": ("pp", 2, {"schedule": "zbv", "recompute": "selective:core_attention"}),
    "pp 1f1b sqrt": ("pp", 2, {"schedule": "1f1b", "recompute": "sqrt"}),
    "3d ddp 1f1b": ("3d", 8, EIGHT),
    "3d fsdp sp interleaved full": ("3d", 8, {**EIGHT, "data": "fsdp", "sequence_parallel": True, "schedule": "interleaved", "recompute": "full"}),
    "3d fsdp sp interleaved-zb": ("3d", 8, {**EIGHT, "data": "fsdp", "sequence_parallel": True, "schedule": "interleaved-zb"}),
}


def config_of(name: str, folder: Path) -> RunConfig:
    """The configuration of a case, writing into ``folder/<name>``."""
    recipe, ranks, given = CASES[name]
    replicas = 2 if recipe in ("ddp", "fsdp", "3d") else 1
    return configure(
        recipe, ranks, out=str(folder / name.replace(" ", "_").replace(":", "_")), **{**MODEL, "microbatches": GLOBAL_MICROBATCHES // replicas, **given}
    )
