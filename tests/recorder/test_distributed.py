"""Do the ranges hold the collectives and actions of real ranks: TP, sequence parallel, FSDP, DDP and pipelines?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recorder.traces import Slice, chain, outline, parents, slices
from tracekit import analyze
from tracekit.vocabulary import parse_actions, parse_module_span

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """The run directories that two gloo ranks left."""
    folder = tmp_path_factory.mktemp("runs")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    logs = [folder / f"{rank}.log" for rank in (0, 1)]
    ranks = []
    for rank, log in enumerate(logs):
        command = [sys.executable, "-m", "tests.recorder.distributed_job", str(folder), str(rank)]
        with log.open("w") as file:
            ranks.append(subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=file, stderr=subprocess.STDOUT))
    try:
        codes = [process.wait(timeout=180) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    assert codes == [0, 0], "\n".join(log.read_text()[-3000:] for log in logs)
    return folder


def trace(runs: Path, name: str, rank: int = 0) -> list[Slice]:
    return slices(runs / name / f"rank{rank:05d}/capture000/trace.json.gz")


def collectives(events: list[Slice]) -> list[tuple[str, str | None]]:
    """Each c10d operator with the innermost layer range it lies in."""
    rows = parents(events)
    found = []
    for i, e in enumerate(events):
        if e.name.startswith("c10d::"):
            found.append((e.name, next((n for n in chain(events, rows, i) if parse_module_span(n)), None)))
    return found


@pytest.mark.parametrize("rank", [0, 1])
def test_tensor_parallel_all_reduces_lie_in_their_layer(runs, rank):
    assert collectives(trace(runs, "tp", rank)) == [
        ("c10d::allreduce_", "layers.0.mlp.forward"),
        ("c10d::allreduce_", "layers.1.mlp.forward"),
        ("c10d::allreduce_", "layers.1.mlp.backward"),
        ("c10d::allreduce_", "layers.0.mlp.backward"),
    ]


def test_all_reduces_issued_again_lie_in_the_recomputation(runs):
    assert [layer for _, layer in collectives(trace(runs, "tp-recompute"))] == [
        "layers.0.mlp.forward",
        "layers.1.mlp.forward",
        "layers.1.mlp.recompute",
        "layers.1.mlp.backward",
        "layers.0.mlp.recompute",  # and no gradient for its input, which is data
    ]


def test_sequence_parallel_gathers_and_scatters_lie_in_their_layer(runs):
    gather, scatter = "c10d::allgather_into_tensor_coalesced_", "c10d::reduce_scatter_tensor_coalesced_"
    where = ("layers.0.mlp.forward", "layers.1.mlp.forward", "layers.1.mlp.backward", "layers.0.mlp.backward")
    assert collectives(trace(runs, "tp-sp")) == [(name, layer) for layer in where for name in (gather, scatter)]


def test_sharded_parameters_are_gathered_inside_the_layer(runs):
    found = collectives(trace(runs, "fsdp"))
    gathers = [layer for name, layer in found if name == "c10d::_allgather_base_"]
    scatters = [layer for name, layer in found if name == "c10d::_reduce_scatter_base_"]
    assert gathers[1:3] == ["layers.0.forward", "layers.1.forward"]  # the first is the root's
    assert scatters[:2] == ["layers.1.backward", "layers.0.backward"]


def test_sharded_and_recomputed_layers(runs):
    lines = [line.strip() for line in outline(trace(runs, "fsdp-recompute"), step=1)]
    assert [line for line in lines if line.split(".")[0:1] == ["layers"] and line.count(".") == 2] == [
        *("layers.0.forward", "layers.1.forward"),
        *("layers.1.backward", "layers.1.recompute", "layers.0.backward", "layers.0.recompute"),
    ]


@pytest.mark.parametrize("name", ["fsdp", "ddp"])
def test_data_parallel_models_keep_the_plain_names(runs, name):
    lines = outline(trace(runs, name), step=1)
    assert [line for line in lines if not line.startswith(" ")] == [
        *("embedding.forward", "layers.0.forward", "layers.1.forward", "norm.forward", "head.forward"),
        *("head.backward", "norm.backward", "layers.1.backward", "layers.0.backward", "embedding.backward"),
    ]


@pytest.mark.parametrize("name", ["ddp", "fsdp"])
def test_analysis_of_a_loop_that_names_nothing_but_model_and_optimizer(runs, name):
    report = analyze(runs / name, workers=1).to_dict()
    assert report["health"]["verdict"] == "ok"
    assert (report["run"]["ranks"], report["run"]["steps"]) == ([0, 1], [1])
    found = report["metrics"]["collectives"]["tables"]["instances"]
    assert {(r["axis"], r["matched_ranks"], r["transfer_ns"] is not None) for r in found} == {("dp" if name == "ddp" else "dp_shard", 2, True)}
    # DDP broadcasts its new bucket layout in the second step's forward, which is the recorded one
    assert {(r["kind"], r["direction"]) for r in found if r["kind"] != "broadcast"} == (
        {("all_reduce", "gradient")} if name == "ddp" else {("all_gather", "parameter"), ("reduce_scatter", "gradient")}
    )
    peak = report["metrics"]["memory"]["summary"]
    assert peak["baseline_source"] == "recorder" and peak["parameter_bytes"] > 0 and peak["activation_bytes"] > 0
    assert {"layers.0", "layers.1"} <= {r["layer"] for r in report["metrics"]["recompute"]["tables"]["layers"]}


def actions(events: list[Slice]) -> list[str]:
    return [e.name for e in events if e.category == "user_annotation" and parse_actions(e.name)]


def test_1f1b_actions(runs):
    assert actions(trace(runs, "1f1b", 0)) == ["PP:0F0", "PP:0F1", "PP:0B0", "PP:0B1"]
    # the loss is a second range of the forward
    assert actions(trace(runs, "1f1b", 1)) == ["PP:1F0", "PP:1F0", "PP:1B0", "PP:1F1", "PP:1F1", "PP:1B1"]


def test_1f1b_actions_hold_layers_and_no_waiting(runs):
    events = trace(runs, "1f1b", 0)
    rows = parents(events)
    transfers = [i for i, e in enumerate(events) if e.name in ("c10d::send", "c10d::recv_")]
    assert len(transfers) == 4
    assert not any(parse_actions(n) for i in transfers for n in chain(events, rows, i))
    assert outline(events, step=1)[:3] == ["PP:0F0", "  embedding.forward", "  layers.0.forward"]


def test_gpipe_actions_stand_inside_its_own_ranges(runs):
    events = trace(runs, "gpipe", 0)
    rows = parents(events)
    assert [(e.name, chain(events, rows, i)[0]) for i, e in enumerate(events) if parse_actions(e.name)] == [
        ("PP:0F0", "Forward 0"),
        ("PP:0F1", "Forward 1"),
        ("PP:0B0", "Backward 0"),
        ("PP:0B1", "Backward 1"),
    ]


def test_runtime_schedule_keeps_its_own_actions(runs):
    names = actions(trace(runs, "zero-bubble", 0))
    assert sorted(names) == sorted(f"PP:{stage}{action}{microbatch}" for stage in (0, 2) for action in "FIW" for microbatch in (0, 1))


def test_what_each_rank_leaves(runs):
    for rank in (0, 1):
        folder = runs / f"tp/rank{rank:05d}/capture000"
        assert sorted(p.name for p in folder.iterdir()) == ["flight_recorder.json", "memory.json", "trace.json.gz"]
        entries = json.loads((folder / "flight_recorder.json").read_text())["entries"]
        assert sum(e["profiling_name"] == "gloo:all_reduce" for e in entries) >= 8
    run = json.loads((runs / "tp/run.json").read_text())
    assert (run["world_size"], run["backend"], run["mesh"]) == (2, "gloo", {"tp": 2})
    assert "parameters" in run["model"]  # DTensors count whole
    assert "parameters" not in json.loads((runs / "1f1b/run.json").read_text())["model"]  # a rank sees its stages only


def test_sharded_parameters_count_by_their_local_part(runs):
    def parameter_bytes(name: str) -> int:
        rows = json.loads((runs / name / "rank00000/capture000/memory.json").read_text())["blocks"]
        return sum(b["bytes"] for b in rows if b["category"] == "parameter")

    whole = json.loads((runs / "ddp/run.json").read_text())["model"]["parameters"] * 4
    assert parameter_bytes("ddp") == whole
    assert parameter_bytes("fsdp") == whole / 2  # every tensor of this model has an even first dimension
