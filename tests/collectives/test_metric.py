"""The collectives metric: rates, sums by layer and kind, and the pattern of a tensor-parallel layer."""

from __future__ import annotations

import pandas as pd

from tests.collectives.rows import facts
from tracekit.job.assemble import build
from tracekit.job.base import Job
from tracekit.metrics.collectives import METRIC


def layer_job(kinds: tuple[str, ...] = ("all_reduce", "all_reduce"), ranks: tuple[int, ...] = (0, 1), steps: tuple[int, ...] = (1,)) -> Job:
    """Two layers, two microbatches; forward and backward run the kinds each. Rank r starts 10·r ns late, all end at 100."""

    def rows(rank: int) -> list[dict[str, object]]:
        cells = [(s, m, n, d, k) for s in steps for m in (0, 1) for n in (0, 1) for d in ("forward", "backward") for k in kinds]
        return [
            {"seq": i, "step": s, "microbatch": m, "layer": f"layers.{n}.mlp", "layer_source": "range", "direction": d, "kind": k}
            | {"at": (1000 * i + 10 * rank, 1000 * i + 100), "exposed_ns": 50, "nbytes": 900, "group_desc": "mesh_tp"}
            for i, (s, m, n, d, k) in enumerate(cells)
        ]

    return build({(r, 0): facts(r, *rows(r), world_size=2) for r in ranks})


def test_bandwidths_follow_nccl_tests() -> None:
    job = build({(r, 0): facts(r, {"seq": 1, "at": (r, 1000), "nbytes": 999_000, "group_ranks": "0,1,2,3"}, world_size=4) for r in range(4)})
    row = METRIC.compute(job).tables["instances"].iloc[0]
    assert (row.transfer_ns, row.group_ranks) == (997, [0, 1, 2, 3])
    assert row.algbw_gbps == 999_000 / 997
    assert row.busbw_gbps == 999_000 / 997 * 1.5
    assert row.wire_bytes == 999_000 * 3 // 2


def test_by_layer_adds_instances_for_transfer_and_ranks_for_wait_and_exposure() -> None:
    table = METRIC.compute(layer_job(steps=(1, 2))).tables["by_layer"]
    every = table[table["step"].isna()]
    columns = ["layer", "layer_index", "direction", "count", "nbytes", "transfer_ns", "wait_ns", "exposed_ns"]
    assert every[columns].values.tolist()[0] == ["layers.0.mlp", 0, "backward", 8, 7200, 8 * 90, 8 * 10, 8 * 2 * 50]
    assert len(every) == 4 and len(table) == 12  # all steps together, then step 1 and step 2
    assert table[table["step"].eq(1)]["count"].tolist() == [4, 4, 4, 4]


def test_four_all_reduces_per_layer_and_microbatch_are_found() -> None:
    result = METRIC.compute(layer_job())
    assert result.summary["tp_all_reduce_forward_per_layer_microbatch"] == result.summary["tp_all_reduce_backward_per_layer_microbatch"] == 2
    assert result.summary["tp_pattern_holds"] is True
    pattern = result.tables["layer_pattern"]
    assert pattern[["layer_index", "direction", "cells", "count_min", "count_max", "expected", "holds"]].values.tolist()[0] == [0, "backward", 2, 2, 2, 2, True]


def test_a_third_all_reduce_breaks_the_pattern() -> None:
    result = METRIC.compute(layer_job(("all_reduce",) * 3))
    assert result.summary["tp_all_reduce_forward_per_layer_microbatch"] == 3
    assert result.summary["tp_pattern_holds"] is False


def test_sequence_parallelism_sends_the_same_bytes() -> None:
    plain = METRIC.compute(layer_job())
    sequence = METRIC.compute(layer_job(("all_gather", "reduce_scatter") * 2))
    assert sequence.summary["tp_all_reduce_forward_per_layer_microbatch"] == 0
    assert sequence.summary["tp_all_gather_forward_per_layer_microbatch"] == 2
    assert sequence.summary["tp_pattern_holds"] is True
    assert plain.summary["tp_layer_wire_bytes"] == sequence.summary["tp_layer_wire_bytes"] == 2 * 2 * 4 * 900


def test_with_a_rank_missing_sums_are_unknown_and_not_zero() -> None:
    result = METRIC.compute(layer_job(ranks=(0,)))
    by_layer = result.tables["by_layer"]
    assert by_layer["transfer_ns"].isna().all() and by_layer["wait_ns"].isna().all()
    assert by_layer["exposed_ns"].notna().all()
    assert result.summary["transfer_total_ns"] is None and result.summary["wait_total_ns"] is None
    assert result.summary["unknown_transfers"] == 16


def test_an_unknown_size_leaves_the_bandwidth_unknown() -> None:
    job = build({(r, 0): facts(r, {"seq": 1, "at": (0, 9), "nbytes": None}, world_size=2) for r in (0, 1)})
    row = METRIC.compute(job).tables["instances"].iloc[0]
    assert pd.isna(row.busbw_gbps) and pd.isna(row.wire_bytes)
    assert METRIC.compute(job).summary["nbytes"] is None


def test_a_pipeline_without_collectives_still_has_its_sends() -> None:
    job = build(
        {
            (0, 0): facts(0, p2p=({"kind": "send", "peer": 1, "at": (0, 9)},), world_size=2),
            (1, 0): facts(1, p2p=({"kind": "recv", "peer": 0, "at": (4, 9)},), world_size=2),
        }
    )
    result = METRIC.compute(job)
    assert result.available
    assert result.tables["p2p"][["src", "dst", "transfer_ns", "axis", "group_ranks"]].values.tolist() == [[0, 1, 5, "pp", [0, 1]]]
    assert result.summary["instances"] == 0


def test_a_single_rank_has_no_communication_and_says_so() -> None:
    result = METRIC.compute(build({(0, 0): facts(0, world_size=1)}))
    assert not result.available
    assert "no communication" in str(result.reason)
    assert "single rank" in str(result.reason)


def test_a_bucket_over_several_layers_is_not_booked_on_its_first() -> None:
    bucket = {"seq": 1, "at": (0, 100), "layer": "layers.0", "layer_last": "layers.3", "direction": "gradient", "nbytes": 900}
    alone = {"seq": 2, "at": (200, 300), "layer": "layers.0", "direction": "gradient", "nbytes": 90}
    table = METRIC.compute(build({(r, 0): facts(r, bucket, alone, world_size=2) for r in (0, 1)})).tables["by_layer"]
    every = table[table["step"].isna()]
    assert {last if isinstance(last, str) else None: n for last, n in zip(every["layer_last"], every["nbytes"], strict=True)} == {"layers.3": 900, None: 90}


def test_a_barrier_has_no_bandwidth_and_no_bytes_in_the_sums() -> None:
    rows = [{"seq": 1, "kind": "barrier", "at": (0, 5000), "nbytes": 4}, {"seq": 2, "at": (6000, 7000), "nbytes": 1000}]
    result = METRIC.compute(build({(r, 0): facts(r, *rows, world_size=2) for r in (0, 1)}))
    by_kind = result.tables["by_kind"]
    every = by_kind[by_kind["step"].isna()].set_index("kind")
    assert every["duration_ns"].to_dict() == {"all_reduce": 2000, "barrier": 10_000}
    assert every["busbw_gbps"].isna().to_dict() == {"all_reduce": False, "barrier": True}
    assert (result.summary["barriers"], result.summary["nbytes"], result.summary["wire_bytes"]) == (1, 1000, 1000)


def test_a_copy_to_another_gpu_has_the_bandwidth_of_its_bytes() -> None:
    copy = {"kind": "peer_copy", "group": None, "group_ranks": None, "at": (0, 40), "nbytes": 80}
    result = METRIC.compute(build({(0, 0): facts(0, copy)}))
    row = result.tables["instances"].iloc[0]
    assert (row.transfer_ns, row.wait_ns, row.algbw_gbps, row.busbw_gbps, row.wire_bytes) == (40, 0, 2.0, 2.0, 80)
    assert result.summary["peer_copies"] == 1


def test_operations_of_one_kernel_are_one_kernel() -> None:
    batch = [{"kind": kind, "peer": 1, "batch": 0, "at": (0, 80)} for kind in ("send", "recv")]
    result = METRIC.compute(build({(0, 0): facts(0, p2p=(*batch, {"kind": "send_recv", "at": (100, 110)}), world_size=2)}))
    assert (result.summary["p2p_kernels"], result.summary["p2p_kernel_total_ns"], result.summary["p2p"]) == (2, 90, 2)


def test_sends_without_a_peer_are_still_communication() -> None:
    result = METRIC.compute(build({(0, 0): facts(0, p2p=({"kind": "send_recv", "at": (0, 9)},), world_size=2)}))
    assert result.available
    assert (result.summary["p2p_kernels"], result.summary["p2p_kernel_total_ns"]) == (1, 9)


def test_host_time_stands_apart_from_device_time() -> None:
    host = {"time_source": "host", "exposed_ns": None, "at": (0, 40)}
    result = METRIC.compute(build({(0, 0): facts(0, host, {**host, "seq": 2, "at": (50, 110)}, world_size=2)}))
    assert (result.summary["host_time_instances"], result.summary["host_time_total_ns"], result.summary["exposed_total_ns"]) == (2, 100, None)
    assert set(result.tables["by_kind"]["time_source"]) == {"host"}
    assert any("host time" in note for note in result.notes)
