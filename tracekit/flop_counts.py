"""How many floating-point operations does a decoder ask for, and what share of a device's peak is that? Closed forms, each with its source."""

from __future__ import annotations


def forward_flops_per_layer(s: int, h: int, attention: int | None = None, kv: int | None = None, mlp: int | None = None, gated: bool = False) -> int:
    """FLOPs of one layer's forward for one token: 4hq + 4h kv + 4sq + 2nhf, a multiply-add being two.

    q = ``attention`` (heads x head size), kv = ``kv`` (key/value heads x head size), f = ``mlp``, n = 3 matrices where the MLP
    is gated (SwiGLU, GeGLU), else 2: the query, key and value, output and MLP products, and the two products of attention
    over the whole s x s matrix, a causal mask not being made use of. With q = kv = h and f = 4h, n = 2 (GPT): 24h^2 + 4sh, as
    in arXiv 2205.05198 appendix A. Norms, softmax and activations are left out, as there.

    Args:
        s: sequence length.
        h: hidden size.
        attention: q; h where None.
        kv: q where None: as many key and value heads as query heads.
        mlp: f; 4h where None.
        gated: a third matrix gates the MLP.

    >>> forward_flops_per_layer(2048, 4096) == 24 * 4096**2 + 4 * 2048 * 4096
    True
    """
    q = attention or h
    return 4 * h * q + 4 * h * (kv or q) + 4 * s * q + 2 * (3 if gated else 2) * h * (mlp or 4 * h)


def model_flops(batch: int, layers: int, s: int, h: int, vocabulary: int, per_layer: int | None = None) -> int:
    """FLOPs of one step's forward and backward: 3Bs(L x :func:`forward_flops_per_layer` + 2hV), a backward being two forwards.

    For GPT 72BLsh^2(1 + s/6h + V/12hL). Source: arXiv 2205.05198 eq. 7. The embedding is a look-up and counts nothing.

    Args:
        batch: B, samples of the whole step.
        layers: L.
        s: sequence length.
        h: hidden size.
        vocabulary: V.
        per_layer: :func:`forward_flops_per_layer` of the model; that of GPT where None.
    """
    return 3 * batch * s * (layers * (per_layer or forward_flops_per_layer(s, h)) + 2 * h * vocabulary)


def repeated_flops(batch: int, s: int, h: int, *, whole: int = 0, core: int = 0, per_layer: int | None = None, attention: int | None = None) -> int:
    """FLOPs that recomputation adds to a step: hardware FLOPs are :func:`model_flops` and these.

    A layer that is repeated whole runs its forward once more. A layer of which core attention is repeated counts 12Bs^2q, the
    formula of arXiv 2205.05198 appendix A (72BLsh^2(1 + s/3h + V/12hL)) with which its Table 5 was made: it counts the repeated
    products of attention as often as their forward and backward together; the two products once more would be 4Bs^2q.

    Args:
        batch: B, samples of the whole step.
        s: sequence length.
        h: hidden size.
        whole: layers whose whole forward is repeated.
        core: layers whose core attention alone is repeated.
        per_layer: as in :func:`model_flops`.
        attention: q, heads x head size; h where None.
    """
    return batch * s * (whole * (per_layer or forward_flops_per_layer(s, h)) + core * 12 * s * (attention or h))


def flops_utilization(flops: float, seconds: float, devices: int, peak_flops: float) -> float | None:
    """MFU (of :func:`model_flops`) or HFU (with :func:`repeated_flops`): flops / (seconds x devices x peak).

    Source: PaLM, arXiv 2204.02311 appendix B; arXiv 2205.05198 section 6.3.

    Returns:
        A ratio, or None where time, devices or peak are not above 0.
    """
    if seconds <= 0 or devices < 1 or peak_flops <= 0:
        return None
    return flops / (seconds * devices * peak_flops)
