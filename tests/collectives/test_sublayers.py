"""Of which part of a layer is a collective, by the name of its module?"""

from __future__ import annotations

import pytest

from tests.collectives.rows import facts
from tracekit.job.assemble import build
from tracekit.metrics.collectives import METRIC
from tracekit.vocabulary import sublayer

PATHS: dict[str, tuple[str | None, ...]] = {
    "attention": (
        "layers.3.attention",
        "layers.3.attention.wo",
        "layers.0.attention.q_norm",
        "model.layers.0.self_attn",
        "model.layers.0.self_attn.q_proj",
        "layers.0.self_attn.kv_a_proj_with_mqa",
        "layers.0.self_attn.kv_b_proj",
        "transformer.h.1.attn.c_proj",
        "gpt_neox.layers.2.attention.query_key_value",
        "decoder.layers.1.self_attention.linear_qkv",
        "decoder.layers.1.cross_attention.linear_proj",
        "encoder.block.0.layer.0.SelfAttention.k",
        "bert.encoder.layer.3.attention.output.dense",
        "q_proj",
        "layers.1.wq",
        "layers.1.qkv",
        "model.decoder.layers.5.out_proj",
    ),
    "mlp": (
        "layers.0.mlp",
        "layers.0.mlp.up",
        "transformer.h.1.mlp",
        "layers.3.feed_forward",
        "layers.3.feed_forward.w2",
        "model.layers.1.block_sparse_moe",
        "model.layers.1.block_sparse_moe.gate",
        "model.layers.1.block_sparse_moe.experts.7.w1",
        "layers.2.moe.router.gate",
        "layers.2.experts",
        "layers.2.shared_experts.down_proj",
        "decoder.layers.1.mlp.token_dispatcher",
        "model.decoder.layers.5.fc1",
        "encoder.block.0.layer.1.DenseReluDense.wo",
        "bert.encoder.layer.3.intermediate.dense",
        "bert.encoder.layer.3.output.dense",
        "layers.4.ffn",
        "gate_up_proj",
    ),
    "norm": (
        "layers.2.attention_norm",
        "layers.2.ffn_norm",
        "layers.2.mlp_norm",
        "model.layers.0.input_layernorm",
        "model.layers.0.post_attention_layernorm",
        "encoder.layers.0.self_attn_layer_norm",
        "transformer.h.1.ln_1",
        "transformer.h.1.ln2",
        "transformer.ln_f",
        "model.norm",
        "decoder.final_layernorm",
    ),
    "embedding": (
        "tok_embeddings",
        "embedding.token",
        "model.embed_tokens",
        "transformer.wte",
        "transformer.wpe",
        "embedding.word_embeddings",
        "bert.embeddings.LayerNorm",
        "gpt_neox.embed_in",
        "shared",
    ),
    "head": ("lm_head", "output", "head", "output_layer", "embed_out", "model.classifier"),
    "none": ("layers.3", "model.layers.3", "layers.0.conv", "model.rotary_emb", "rotary_pos_emb", "fc", "model", "", None),
}


@pytest.mark.parametrize(("path", "part"), [(path, part) for part, paths in PATHS.items() for path in paths])
def test_a_module_path_tells_the_part(path: str | None, part: str) -> None:
    assert sublayer(path) == (None if part == "none" else part)


def test_sums_by_part_add_up_the_layers() -> None:
    rows = [
        {"layer": "layers.0.attention", "direction": "forward", "nbytes": 100},
        {"layer": "layers.1.attention", "direction": "forward", "nbytes": 10},
        {"layer": "layers.1.mlp", "direction": "forward", "nbytes": 7},
        {"layer": "layers.1", "direction": "forward", "nbytes": 5},
        {"layer": "layers.0.mlp", "layer_last": "layers.1.mlp", "direction": "gradient", "nbytes": 3},
    ]
    job = build({(r, 0): facts(r, *[{**row, "seq": i, "at": (100 * i + r, 100 * i + 50)} for i, row in enumerate(rows)], world_size=2) for r in (0, 1)})
    result = METRIC.compute(job)
    assert result.tables["instances"]["sublayer"].tolist() == ["attention", "attention", "mlp", None, None]
    table = result.tables["by_sublayer"]
    every = table[table["step"].isna()]
    columns = ["sublayer", "direction", "kind", "count", "nbytes", "transfer_ns", "wait_ns"]
    assert [[None if v != v else v for v in row] for row in every[columns].values.tolist()] == [
        [None, "forward", "all_reduce", 1, 5, 49, 1],
        [None, "gradient", "all_reduce", 1, 3, 49, 1],
        ["attention", "forward", "all_reduce", 2, 110, 98, 2],
        ["mlp", "forward", "all_reduce", 1, 7, 49, 1],
    ]


def test_where_no_path_tells_a_part_there_are_no_sums_by_part() -> None:
    job = build({(r, 0): facts(r, {"layer": "layers.1", "seq": 1, "at": (r, 50)}, world_size=2) for r in (0, 1)})
    result = METRIC.compute(job)
    assert len(result.tables["by_sublayer"]) == 0
    assert result.tables["instances"]["sublayer"].isna().all()
