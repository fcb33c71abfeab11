"""Do the stacks of a memory snapshot tell what each block was for, and only where they leave one answer?"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tracekit.facts.memory import memory
from tracekit.passes import run_passes
from tracekit.readers import memory_snapshot, read
from tracekit.readers.memory_stacks import Stacks
from tracekit.reading import Reading

TORCH = "/v/lib/python3.12/site-packages/torch/"


def python(file: str, name: str, line: int = 1) -> dict[str, Any]:
    return {"filename": file, "name": name, "line": line}


def native(name: str) -> dict[str, Any]:
    return {"filename": "??", "name": name, "line": 0}


LOOP = python("/home/me/train.py", "main", 9)
CALL = python(TORCH + "nn/modules/module.py", "_call_impl")
ENGINE = native("torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)")
STEP = python(TORCH + "optim/optimizer.py", "wrapper")
#: Stacks, the innermost frame first.
STACKS: dict[str, list[dict[str, Any]]] = {
    "loop": [LOOP],
    "to": [native("torch::autograd::THPVariable_to(_object*, _object*, _object*)"), LOOP],
    "forward": [native("at::_ops::bmm::call(at::Tensor const&)"), python("/home/me/model.py", "attention", 432), CALL, LOOP],
    "backward": [native("torch::autograd::generated::BmmBackward0::apply(std::vector<at::Tensor>&&)"), ENGINE],
    "again": [python("/home/me/model.py", "attention"), CALL, python(TORCH + "utils/checkpoint.py", "unpack_hook"), ENGINE],
    "again_bare": [python("/home/me/model.py", "attention"), python(TORCH + "utils/checkpoint.py", "backward"), ENGINE],
    "main_backward": [python(TORCH + "autograd/__init__.py", "_make_grads"), python(TORCH + "autograd/__init__.py", "backward"), LOOP],
    "step": [python(TORCH + "optim/adamw.py", "_init_group"), STEP, LOOP],
    "own_step": [python("/home/me/lamb.py", "step"), STEP, LOOP],
    "zero_grad": [python(TORCH + "optim/optimizer.py", "zero_grad"), LOOP],
    "to_module": [python(TORCH + "nn/modules/module.py", "convert"), python(TORCH + "nn/modules/module.py", "_apply"), LOOP],
    "layer": [python(TORCH + "nn/modules/linear.py", "__init__"), python("/home/me/model.py", "__init__"), LOOP],
    "fill": [python(TORCH + "nn/init.py", "normal_"), python(TORCH + "nn/modules/linear.py", "reset_parameters"), LOOP],
    "all_reduce": [native("c10d::ProcessGroupNCCL::allreduce(std::vector<at::Tensor>&)"), python("/home/me/tp.py", "forward"), CALL, LOOP],
    "buckets": [native("c10d::Reducer::initialize_buckets(std::vector<unsigned long>)"), LOOP],
    "gather": [python(TORCH + "distributed/fsdp/_fully_shard/_fsdp_collectives.py", "foreach_all_gather"), CALL, LOOP],
    "bare": [],
}


@pytest.mark.parametrize(
    ("stack", "place", "repeated", "maker"),
    [
        ("loop", None, False, "train.py:9 main"),
        ("forward", "forward", False, "bmm in model.py:432 attention"),
        ("backward", "backward", False, "BmmBackward0"),
        ("again", "forward", True, "model.py:1 attention"),
        ("again_bare", "forward", True, "model.py:1 attention"),
        ("main_backward", "backward", False, "train.py:9 main"),
        ("own_step", "optimizer", False, "lamb.py:1 step"),
        ("zero_grad", "zero_grad", False, "train.py:9 main"),
        ("layer", "module_state", False, "model.py:1 __init__"),
        ("fill", None, False, "train.py:9 main"),
        ("all_reduce", "communication", False, "tp.py:1 forward"),
        ("buckets", None, False, "train.py:9 main"),
        ("gather", "gather", False, "train.py:9 main"),
    ],
)
def test_the_innermost_frame_of_one_part_of_training_decides(stack: str, place: str | None, repeated: bool, maker: str) -> None:
    stacks = Stacks()
    (code,) = stacks.codes([{"frames": STACKS[stack]}])
    (row,) = stacks.table().to_dict("records")
    assert (row["stack"], row["repeated"], row["maker"], row["to_device"]) == (code, repeated, maker, False)
    assert (None if pd.isna(row["place"]) else row["place"]) == place


def test_a_stack_is_the_same_wherever_it_stands() -> None:
    copied = json.loads(json.dumps(STACKS["forward"]))
    codes = Stacks().codes([{"frames": STACKS["forward"]}, {"frames": copied}, {"frames": STACKS["loop"]}, {"frames": []}, {"frames": 3}, None])
    assert codes[0] == codes[1] != codes[2]
    assert codes[3:].tolist() == [-1, -1, -1]


def tables(records: list[str], standing: dict[int, str] | None = None, annotations: Any = None) -> dict[str, pd.DataFrame]:
    """Memory tables of a snapshot. A record is ``+1 forward`` or ``-1 backward``: 1 byte is made or freed there; ``+1b`` is another block of 1 byte."""
    trace, alive = [], {4096 * n: (n, stack) for n, stack in (standing or {}).items()}
    for at, text in enumerate(records):
        change, stack = text.split()
        size, made = abs(int(change.rstrip("b"))), change.startswith("+")
        addr = 4096 * size + change.endswith("b") * 512
        trace.append({"action": "alloc" if made else "free_requested", "addr": addr, "size": size, "time_us": at, "frames": STACKS[stack]})
        alive = {**alive, addr: (size, "bare")} if made else {a: b for a, b in alive.items() if a != addr}
    blocks = [{"address": a, "size": n, "requested_size": n, "state": "active_allocated", "frames": STACKS[s]} for a, (n, s) in alive.items()]
    segments = [{"device": 0, "address": 0, "total_size": 1 << 20, "blocks": blocks}]
    whole = {"segments": segments, "device_traces": [trace], "external_annotations": annotations or []}
    (found,) = memory_snapshot.read(pickle.dumps(whole), Path("snapshot"), Reading())
    return memory(run_passes(found))


def at_peak(records: list[str], **more: Any) -> dict[str, int]:
    """Rule -> bytes of what was alive when most was allocated."""
    got = tables(records, **more)
    owners, peak = got["memory_owners"], got["memory_peaks"].iloc[0]
    owners = owners[owners["step"].isna()]
    assert owners["nbytes"].sum() == peak["allocated_peak_bytes"]
    assert peak[[c for c in peak.index if c in NAMES]].fillna(0).sum() == peak["allocated_peak_bytes"]
    return {str(k): int(v) for k, v in owners.groupby("rule")["nbytes"].sum().items()}


NAMES = [f"{c}_bytes" for c in ("parameter", "gradient", "optimizer_state", "activation", "input", "temporary", "unknown")]

#: One step of training; the peak stands where block 1000 is made.
STEP_RECORDS = ["+10 to_module", "+20 to", "+30 forward", "+2 forward", "-2 forward", "+40 loop", "+50 backward", "+3 backward", "-3 backward"]
STEP_RECORDS += ["-30 backward", "-40 backward", "+60 step", "+1000 step", "-1000 step", "-50 zero_grad", "-20 loop", "+20 to", "+5 forward"]


def test_a_step_of_training() -> None:
    assert at_peak(STEP_RECORDS) == {
        "stack_module_state": 10,
        "stack_input": 20,
        "stack_zeroed": 50,
        "stack_optimizer_kept": 60,
        "stack_optimizer_only": 1000,
    }
    assert at_peak(["+9 to_module", "+1000 forward", "+50 loop", "-1000 backward", "-50 backward"]) == {
        "stack_module_state": 9,
        "stack_forward_to_backward": 1050,
    }


def test_where_nothing_is_left_unknown_a_category_that_nothing_told_is_0_and_else_null() -> None:
    row = tables(STEP_RECORDS)["memory_peaks"].iloc[0]
    assert (row["activation_bytes"], row["parameter_bytes"], row["unknown_bytes"]) == (0, 10, 0)
    row = tables(["+7 loop", *STEP_RECORDS])["memory_peaks"].iloc[0]
    assert pd.isna(row["activation_bytes"]) and (row["parameter_bytes"], row["unknown_bytes"]) == (10, 7)


@pytest.mark.parametrize(
    ("records", "rules"),
    [
        (["+9 again", "+90 backward", "-9 backward", "-90 backward"], {"stack_repeated_to_backward": 9, "stack_backward_only": 90}),
        (["+9 again", "+90 again_bare", "-9 again", "-90 backward"], {"stack_repeated_only": 9, "stack_repeated_to_backward": 90}),
        (["+9 forward", "+90 backward", "-9 loop"], {"none": 9, "stack_backward_kept": 90}),  # the loop held it
        (["+9 backward", "+90 loop"], {"stack_backward_kept": 9, "none": 90}),
        (["+9 backward", "-9 loop", "+9 backward", "+90 step"], {"stack_backward_to_optimizer": 9, "none": 90}),
        (["+90 forward", "-90 forward", "+9 forward"], {"stack_forward_only": 90}),
        (["+90 forward"], {"stack_forward_standing": 90}),
        (["+90 forward", "-90 backward", "+90 forward", "+900 loop"], {"stack_same_site_activation": 90, "none": 900}),
        (["+90 forward", "-90 backward", "+90 forward", "-90 forward", "+90 forward", "+900 loop"], {"stack_forward_standing": 90, "none": 900}),
        (["+90 all_reduce", "+9 gather", "+8 buckets"], {"stack_communication": 90, "stack_gathered": 9, "none": 8}),
        (["+5 backward", "-5 backward", "+90 to_module", "+9 forward", "-9 forward"], {"none": 90, "stack_forward_only": 9}),  # gradients may move too
        (["+90 to", "+9 forward", "-9 backward"], {"none": 90, "stack_forward_to_backward": 9}),  # never freed: a batch, or kept
    ],
)
def test_rules(records: list[str], rules: dict[str, int]) -> None:
    assert at_peak(records) == rules


def test_state_made_in_the_last_step_is_kept_where_the_steps_range_ended() -> None:
    assert at_peak(["+9 forward", "-9 backward", "+90 step"]) == {"none": 90}
    marks = [{"device": 0, "stage": s, "name": "Optimizer.step#AdamW.step", "time_us": at} for s, at in (("START", 2), ("END", 3))]
    assert at_peak(["+9 forward", "-9 backward", "+90 step"], annotations=marks) == {"stack_optimizer_kept": 90}


def test_what_stood_before_the_records() -> None:
    """A block made before them is told by the stack that made it, else by the one that freed it."""
    standing = {1: "step", 2: "backward", 4: "to_module", 8: "forward", 16: "bare"}
    got = at_peak(["+256 forward", "-256 forward"], standing=standing)
    assert got == {"stack_optimizer_kept": 1, "stack_backward_kept": 2, "stack_module_state": 4, "before_recording": 24, "stack_forward_only": 256}
    assert at_peak(["-9 zero_grad", "-90 loop"]) == {"stack_zeroed": 9, "before_recording": 90}


def test_a_step_replaces_state_of_before_the_records_block_by_block() -> None:
    old = ["+64b step", "+512 own_step", "-512 own_step", "-64 own_step", "+2 loop"]
    assert at_peak(["+1 loop", *old])["stack_replaced"] == 64
    assert "stack_replaced" not in at_peak(old)  # the records may begin within the step
    assert "stack_replaced" not in at_peak(["+1 loop", "-64 own_step", "+512 own_step", "-512 own_step"])


def test_python_frames_alone_leave_autograds_thread_without_a_stack() -> None:
    records = ["+9 forward", "+1 main_backward", "+90 bare", "-9 bare", "-90 bare", "-1 loop"]
    assert at_peak(records) == {"stack_forward_to_backward": 9, "stack_backward_only": 91}


def test_frees_without_stacks_are_placed_between_records_of_one_part() -> None:
    """Recorded with context=alloc: the free of 9 lies between two of backward, that of 50 between optimizer and forward."""
    records = ["+9 forward", "+50 backward", "-9 bare", "+1 backward", "-1 bare", "+900 step", "-900 bare", "-50 bare", "+2 forward", "+3 forward"]
    assert at_peak(records) == {"stack_backward_to_optimizer": 50, "stack_optimizer_only": 900}
    assert at_peak(["+9 forward", "+50 backward", "-9 bare", "-50 bare", "+1 backward"]) == {"stack_forward_to_backward": 9, "stack_backward_only": 50}


def test_the_curve_shows_parts_of_training() -> None:
    curve = tables(["+1 forward", "+2 again", "+3 backward", "+4 step", "+5 loop"])["memory_curve"]
    assert curve["phase"].where(curve["phase"].notna(), None).tolist() == ["forward", "backward", "backward", "optimizer", None]


@pytest.mark.parametrize("frames", [3, [3], [{"filename": 1, "name": [], "line": "x"}], [{}] * 3, {"a": 1}])
def test_frames_of_other_types_are_no_error(frames: Any) -> None:
    record = {"action": "alloc", "addr": 16, "size": 8, "time_us": 1, "frames": frames}
    (trace,) = memory_snapshot.read(json.dumps({"device_traces": [[record]], "segments": []}).encode(), Path("x"), Reading())
    assert memory(run_passes(trace))["memory_owners"]["category"].unique().tolist() == ["unknown"]


#: Bytes at the peak by category, and of how many there is no telling: counted from the stacks of the files by hand.
REAL = {
    "memsnap_bcrafton/memory_snapshot.pickle.gz": ({"optimizer_state": 1_832_460_288, "temporary": 463_168_512, "input": 1024}, 1_553_602_816),
    "memsnap_nothanmin/memory_snapshot_forward.pickle.gz": (
        {"optimizer_state": 15_985_881_600, "gradient": 8_001_460_480, "temporary": 6_553_600},
        19_760_877_826,
    ),
    "memsnap_silmont/mem_snapshot.pickle": ({"gradient": 10_616_832, "activation": 537_264_128, "temporary": 2_684_354_564}, 16_908_292),
    "memsnap_wedsonlin/medium_512_training_memory_snapshot.pickle.gz": (
        {"optimizer_state": 3_385_466_880, "activation": 7_085_293_568, "temporary": 204_808_196},
        1_751_060_484,
    ),
}


@pytest.mark.parametrize("name", REAL)
def test_real_snapshots(shared: Path, name: str) -> None:
    (trace,) = read(shared / "traces" / name)
    got = memory(run_passes(trace))
    row = got["memory_peaks"].iloc[0]
    told = {c: int(row[f"{c}_bytes"]) for c in (n.removesuffix("_bytes") for n in NAMES[:-1]) if pd.notna(row[f"{c}_bytes"])}
    assert (told, row["unknown_bytes"]) == REAL[name]
    assert sum(told.values()) + row["unknown_bytes"] == row["allocated_peak_bytes"] == got["memory_owners"]["nbytes"].sum()
