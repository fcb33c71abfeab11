"""Do the closed forms give the published numbers?"""

from __future__ import annotations

import pytest

from tracekit import flop_counts, theory

# heads, hidden, layers, tensor, pipeline, gpus, global batch, microbatch: arXiv 2205.05198 Table 3; s 2048, V 51200.
CASES = {
    "22B": (64, 6144, 48, 8, 1, 8, 4, 4),
    "175B": (96, 12288, 96, 8, 8, 64, 64, 1),
    "530B": (128, 20480, 105, 8, 35, 280, 280, 1),
    "1T": (160, 25600, 128, 8, 64, 512, 512, 1),
}
# none, tensor, + sequence, tensor + selective, + sequence + selective, full: bytes per layer by Table 2.
PER_LAYER = {
    "22B": (7079985152, 1325400064, 884998144, 654311424, 213909504, 100663296),
    "175B": (2868903936, 578813952, 358612992, 327155712, 106954752, 50331648),
    "530B": (4110417920, 880803840, 513802240, 545259520, 178257920, 83886080),
    "1T": (5138022400, 1101004800, 642252800, 681574400, 222822400, 104857600),
}
# seconds per iteration with the present work, MFU and HFU in percent: arXiv 2205.05198 Table 5 (A100, 312e12).
TABLE_5 = {"22B": (1.10, 41.5, 43.7), "175B": (13.75, 51.4, 52.8), "530B": (37.83, 56.0, 57.0), "1T": (71.49, 56.3, 57.0)}


@pytest.mark.parametrize("model", CASES)
def test_activation_bytes_are_those_of_table_2(model: str) -> None:
    a, h, _, t, _, _, _, b = CASES[model]
    got = [
        theory.activation_bytes_per_layer(2048, b, h, a, t if mode.tensor_parallel else 1, sequence_parallel=mode.sequence_parallel, recompute=mode.recompute)
        for mode in theory.ACTIVATION_MODES
    ]
    assert tuple(got) == PER_LAYER[model]


@pytest.mark.parametrize(("with_ms", "percent"), [(27.2, 39), (20.9, 7), (20.3, 4)])  # full, selective, selective + sequence parallel
def test_overhead_is_that_of_table_4(with_ms: float, percent: int) -> None:
    without = 7.7 + 11.9
    assert round(100 * (theory.step_overhead(without, with_ms - without) or 0)) == percent
    assert theory.step_overhead(0, 1) is None


def test_flash_attention_keeps_what_selective_recomputation_keeps() -> None:
    flash = theory.activation_bytes_per_layer(2048, 1, 4096, 32, t=4, flash=True)
    assert flash == theory.activation_bytes_per_layer(2048, 1, 4096, 32, t=4, recompute="selective:core_attention") == 16 * 2048 * 4096


def test_without_dropout_in_fp32_no_mask_is_counted() -> None:
    # 16 tensors of sbh (4 inputs outside, q k v, projection's input, twice 4h) and one softmax output of abss, 4 bytes each
    assert theory.activation_bytes_per_layer(8, 2, 16, 4, dtype_bytes=4, dropout=False) == 4 * (16 * 8 * 2 * 16 + 4 * 2 * 8 * 8)


def test_sequence_parallelism_that_keeps_gathered_inputs_costs_more() -> None:
    def held(regather: bool) -> int:
        got = theory.activation_bytes_per_layer(8, 2, 16, 4, t=2, sequence_parallel=True, regather=regather)
        assert got is not None
        return got

    assert held(False) - held(True) == 2 * 2 * (8 * 2 * 16) // 2


@pytest.mark.parametrize("recompute", ["selective:op", "sqrt", "unheard_of"])
def test_no_closed_form_is_none(recompute: str) -> None:
    assert theory.activation_bytes_per_layer(8, 2, 16, 4, recompute=recompute) is None


def test_output_layer_keeps_logits_in_fp32() -> None:
    assert theory.output_activation_bytes(8, 2, 16, 100) == 4 * 8 * 2 * 16 + 4 * 8 * 2 * 100  # 4sbh(1 + V/h)


@pytest.mark.parametrize("model", CASES)
def test_flops_reproduce_mfu_and_hfu(model: str) -> None:
    _, h, layers, _, _, gpus, batch, _ = CASES[model]
    seconds, mfu, hfu = TABLE_5[model]
    model_ = flop_counts.model_flops(batch, layers, 2048, h, 51200)
    hardware = model_ + flop_counts.repeated_flops(batch, 2048, h, core=layers)
    got = [flop_counts.flops_utilization(x, seconds, gpus, 312e12) for x in (model_, hardware)]
    assert [100 * (x or 0) for x in got] == pytest.approx([mfu, hfu], abs=0.25)


def test_the_flops_of_gpt_are_those_of_the_paper_and_other_models_count_their_own_matrices() -> None:
    b, n, s, h, v = 3, 5, 7, 11, 13
    assert flop_counts.model_flops(b, n, s, h, v) == pytest.approx(72 * b * n * s * h * h * (1 + s / (6 * h) + v / (12 * h * n)))
    # two query heads of size 4 share one key and value head; a gated MLP of width 6 has three matrices
    matrices = 8 * 8 + 2 * 8 * 4 + 8 * 8 + 3 * 8 * 6
    assert flop_counts.forward_flops_per_layer(s, 8, attention=8, kv=4, mlp=6, gated=True) == 2 * matrices + 2 * 2 * s * 8


def test_full_recomputation_runs_a_third_more() -> None:
    assert 3 * flop_counts.repeated_flops(1, 2048, 4096, whole=1000) == flop_counts.model_flops(1, 1000, 2048, 4096, 0)
    assert theory.recompute_overhead_theory("full") == pytest.approx(1 / 3)
    assert theory.recompute_overhead_theory("selective:op") is None
    # 4bs^2h over 72bsh^2 + 12bs^2h, s = 6h: 4 / (12 + 12) of it
    assert theory.recompute_overhead_theory("selective:core_attention", s=6, h=1) == pytest.approx(24 / (72 + 72))


@pytest.mark.parametrize(
    ("kind", "nbytes", "n", "microseconds", "algbw", "busbw"),
    [  # NCCL Inspector's README; the reduce-scatter's size is per rank, so times n
        ("all_reduce", 17179869184, 8, 61974, 277.210914, 485.119099),
        ("reduce_scatter", 8 * 2147483648, 8, 41057, 418.439467, 366.134533),
    ],
)
def test_busbw_of_nccl_inspectors_examples(kind: str, nbytes: int, n: int, microseconds: int, algbw: float, busbw: float) -> None:
    factor = theory.busbw_factor(kind, n)
    assert factor is not None
    assert nbytes / (microseconds * 1e3) == pytest.approx(algbw, rel=1e-6)
    assert nbytes / (microseconds * 1e3) * factor == pytest.approx(busbw, rel=1e-6)


def test_a_gather_and_a_scatter_send_what_an_all_reduce_sends() -> None:
    parts = [theory.wire_bytes(kind, 4096, 4) for kind in ("all_gather", "reduce_scatter")]
    assert parts == [3072, 3072] and theory.wire_bytes("all_reduce", 4096, 4) == 6144
    assert theory.wire_bytes("barrier", 0, 4) is None and theory.busbw_factor("all_reduce", 0) is None


def test_in_flight_microbatches() -> None:
    assert [theory.in_flight_microbatches("gpipe", s, 4, 8) for s in range(4)] == [8, 8, 8, 8]
    assert [theory.in_flight_microbatches("1f1b", s, 4, 2) for s in range(4)] == [2, 2, 2, 1]
    assert [theory.in_flight_microbatches("zb_h2", s, 4, 8) for s in range(4)] == [7, 7, 7, 7]
    # rank 0 of p = 4, v = 2: pv + p - 1 = 11 forwards before the first backward: chunk 0 twice 4 less 1, chunk 1 four
    assert [theory.in_flight_microbatches("interleaved_1f1b", s, 4, 8, 2) for s in (0, 4)] == [7, 4]
    assert theory.in_flight_microbatches("dualpipev", 0, 4, 8) is None and theory.in_flight_microbatches("1f1b", 4, 4, 8) is None


def test_model_state() -> None:
    whole, split = theory.layer_parameters(1024), theory.layer_parameters(1024, t=2)
    assert whole == 12 * 1024**2 + 13 * 1024 and split == (12 * 1024**2 + 7 * 1024) // 2 + 6 * 1024
    assert theory.state_bytes(1000, "adamw", 4, shards=4) == (1000, 1000, 2000)
    assert theory.state_bytes(1000, "sgd", 4) == (4000, 4000, 0)
    assert theory.state_bytes(1000, "adamw", 4, shards=4, zero_stage=1) == (4000, 4000, 2000)
    assert theory.state_bytes(1000, "muon") is None


def test_sqrt_checkpoints_cover_every_layer() -> None:
    for layers in range(1, 200):
        got = theory.sqrt_checkpoints(layers)
        assert got is not None
        count, length = got
        assert abs(count - layers**0.5) <= 0.5
        assert count * (length - 1) < layers <= count * length
