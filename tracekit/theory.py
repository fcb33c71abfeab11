"""What should it cost, on paper? Closed forms for collectives, pipelines, memory, recomputation and FLOPs.

Pure functions, one formula each, with its source. They know nothing of traces: metrics put them beside what was
measured. None means that no closed form holds for these arguments; it is never replaced by a guess.

Letters: ``s`` sequence, ``b`` microbatch size, ``h`` hidden size, ``a`` heads, ``t`` tensor-parallel degree, ``p``
pipeline ranks, ``m`` microbatches per step and pipeline, ``v`` virtual stages per pipeline rank.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from tracekit.vocabulary import Collective

_RING = {Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL, Collective.GATHER, Collective.SCATTER}
_WHOLE = {Collective.BROADCAST, Collective.REDUCE, Collective.SEND, Collective.RECV, Collective.SEND_RECV}


def busbw_factor(kind: str, n: int) -> float | None:
    """What algbw is multiplied with to give busbw.

    all_reduce 2(n-1)/n; all_gather, reduce_scatter, all_to_all, gather and scatter (n-1)/n; broadcast, reduce and
    point-to-point 1. Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md. algbw = size / time, with size the buffer
    (all_reduce), the total over the ranks (all_gather, reduce_scatter) or one rank's send buffer (all_to_all).

    Args:
        kind: a ``vocabulary.Collective``.
        n: ranks of the group.

    Returns:
        The factor; None for a barrier, an unknown kind, or n < 1.

    >>> busbw_factor("all_reduce", 8), busbw_factor("reduce_scatter", 8), busbw_factor("barrier", 8)
    (1.75, 0.875, None)
    """
    if n < 1:
        return None
    if kind == Collective.ALL_REDUCE:
        return 2 * (n - 1) / n
    if kind in _RING:
        return (n - 1) / n
    return 1.0 if kind in _WHOLE else None


def wire_bytes(kind: str, nbytes: int, n: int) -> int | None:
    """Bytes that a rank sends when a ring does the work (for rooted kinds: the rank that sends most).

    ``nbytes`` is nccl-tests' size, so the number is ``nbytes`` times :func:`busbw_factor`, rounded down: all_reduce
    2(n-1)/n, all_gather and reduce_scatter (n-1)/n of the total. An all_reduce therefore sends exactly as much as a
    reduce_scatter and an all_gather of the same tensor. Source: Patarasuk and Yuan 2009 (ring all-reduce);
    nccl-tests, doc/PERFORMANCE.md.

    Returns:
        Bytes, or None where :func:`busbw_factor` is None.

    >>> wire_bytes("all_reduce", 1024, 4), wire_bytes("all_gather", 1024, 4)
    (1536, 768)
    """
    if n < 1 or nbytes < 0:
        return None
    if kind == Collective.ALL_REDUCE:
        return 2 * (n - 1) * nbytes // n
    if kind in _RING:
        return (n - 1) * nbytes // n
    return nbytes if kind in _WHOLE else None


def in_flight_microbatches(schedule: str, stage: int, p: int, m: int, v: int = 1) -> int | None:
    """How many microbatches' activations a stage holds at its rank's peak.

    - ``gpipe``, ``looped_bfs``: m, all of them
    - ``1f1b``: min(p - stage, m) (arXiv 2104.04473 section 2.2.1)
    - ``interleaved_1f1b``: rank r = stage mod p has run 2(p-r-1) + (v-1)g + 1 forwards when its first backward begins,
      in turns of g = m / max(1, m // p) microbatches (p, where m is a multiple of it) per virtual stage; the part of
      them that is this stage's. Over the stages of rank 0
      it sums to pv + p - 1, the 1 + (p-1)/(pv) of arXiv 2205.05198 section 4.2.3
    - ``zb_h1``: min(p, m), ``zb_h2``: min(2p - 1, m) on every stage, microbatches whose weight gradient is still to
      come included (arXiv 2401.10241 Table 2); those hold less than a whole microbatch, so it is an upper bound

    Args:
        schedule: a schedule's name.
        stage: stage, virtual ones counted, 0 ... pv-1.
        p: pipeline ranks.
        m: microbatches.
        v: virtual stages per rank.

    Returns:
        The count; None for other schedules, or a stage that does not exist.

    >>> [in_flight_microbatches("1f1b", stage, p=4, m=8) for stage in range(4)]
    [4, 3, 2, 1]
    """
    if p < 1 or m < 1 or v < 1 or not 0 <= stage < p * v:
        return None
    if schedule in ("gpipe", "looped_bfs"):
        return m
    if schedule == "1f1b":
        return min(p - stage, m)
    if schedule == "interleaved_1f1b":
        rank, chunk = stage % p, stage // p
        turn = m // max(1, m // p)
        run = min(2 * (p - rank - 1) + (v - 1) * turn + 1, m * v)
        turns, rest = divmod(run, turn * v)
        return min(m, turns * turn + min(max(rest - chunk * turn, 0), turn))
    if schedule == "zb_h1":
        return min(p, m)
    return min(2 * p - 1, m) if schedule == "zb_h2" else None


def activation_bytes_per_layer(
    s: int,
    b: int,
    h: int,
    a: int,
    t: int = 1,
    *,
    sequence_parallel: bool = False,
    recompute: str = "none",
    flash: bool = False,
    dtype_bytes: int = 2,
    mask_bytes: int = 1,
    dropout: bool = True,
    mlp_ratio: float | Fraction = 4,
    regather: bool = True,
) -> int | None:
    """Bytes that one transformer layer keeps for its backward, per microbatch and rank.

    Table 2 of Reducing Activation Recomputation in Large Transformer Models (arXiv 2205.05198, section 4), counted
    tensor by tensor, so that it also holds for other element sizes (E bytes), masks (M bytes) and without dropout.
    The layer is a GPT block: LayerNorm, attention with equal numbers of query and key heads, LayerNorm, an MLP of two
    linear layers with GeLU between them (r = mlp_ratio). In units of sbh elements:

    ====================================  ======  ===============================================
    tensor                                bytes   tensor parallelism
    ====================================  ======  ===============================================
    inputs of the two LayerNorms          2E      whole on every rank; /t with sequence parallelism
    input of query, key, value            E       same; with ``regather`` False whole even then
    input of the MLP's first linear       E       same
    two dropout masks (if dropout)        2M      whole; /t with sequence parallelism
    query, key, value                     3E      /t
    input of the output projection        E       /t
    GeLU's input                          rE      /t
    input of the MLP's second linear      rE      /t
    softmax's output                      E       /t, times as/h
    its dropout's mask (if dropout)       M       /t, times as/h
    its dropout's output (if dropout)     E       /t, times as/h
    ====================================  ======  ===============================================

    With E = 2, M = 1, r = 4: sbh(34 + 5as/h), sbh(10 + 24/t + 5as/(ht)), sbh(34 + 5as/h)/t.
    Left out, as in the paper: LayerNorm's mean and variance (2/h of a tensor) and, with ``flash``, the softmax's
    log-sum-exp. ``flash`` drops the three softmax tensors, and so does recomputing the core attention.

    Args:
        s: sequence length.
        b: samples in the microbatch.
        h: hidden size.
        a: attention heads.
        t: tensor-parallel degree.
        sequence_parallel: Megatron sequence parallelism over the same ranks.
        recompute: ``none``, ``full`` (only the layer's input is kept: E, /t with sequence parallelism) or
            ``selective:core_attention``.
        flash: a fused attention that keeps no s x s matrix.
        dtype_bytes: E.
        mask_bytes: M: 1 on CUDA; torch's CPU dropout keeps its noise in the element type.
        dropout: whether dropout is active.
        mlp_ratio: r, width of the MLP over h.
        regather: with sequence parallelism, the gathered inputs of the linear layers are kept as this rank's shard
            and gathered again in backward (Megatron-LM); False: kept whole, as DTensor does.

    Returns:
        Bytes; None where the table does not hold (``selective:op``, ``sqrt``, arguments below 1).

    >>> activation_bytes_per_layer(2048, 4, 6144, 64, t=8, sequence_parallel=True)
    884998144
    """
    if min(s, b, h, a, t, dtype_bytes, mlp_ratio) < 1:
        return None
    elements = s * b * h
    if recompute == "full":
        return int(Fraction(elements * dtype_bytes, t if sequence_parallel else 1))
    if recompute not in ("none", "selective:core_attention"):
        return None
    masks = mask_bytes if dropout else 0
    outside = Fraction(2 * dtype_bytes + 2 * masks, t if sequence_parallel else 1)
    gathered = Fraction(2 * dtype_bytes, t if sequence_parallel and regather else 1)
    inside = (4 + 2 * Fraction(mlp_ratio)) * dtype_bytes / t
    total = elements * (outside + gathered + inside)
    if not flash and recompute == "none":
        total += Fraction(s * s * a * b * (dtype_bytes + masks + (dtype_bytes if dropout else 0)), t)
    return int(total)


class ActivationMode(NamedTuple):
    """A way to keep fewer activations: a column of arXiv 2205.05198 Table 2.

    Attributes:
        name: what it is called here.
        tensor_parallel: matrices are split over the tensor-parallel ranks; otherwise the layer is whole.
        sequence_parallel: so are norms, dropout and residual, along the sequence.
        recompute: as in :func:`activation_bytes_per_layer`.
    """

    name: str
    tensor_parallel: bool
    sequence_parallel: bool
    recompute: str


#: The six modes of Table 2, in its order.
ACTIVATION_MODES = (
    ActivationMode("none", False, False, "none"),
    ActivationMode("tp", True, False, "none"),
    ActivationMode("tp_sp", True, True, "none"),
    ActivationMode("tp_selective", True, False, "selective:core_attention"),
    ActivationMode("tp_sp_selective", True, True, "selective:core_attention"),
    ActivationMode("full", False, False, "full"),
)


def output_activation_bytes(s: int, b: int, h: int, vocabulary: int, t: int = 1, dtype_bytes: int = 2) -> int | None:
    """Bytes that the end of the model keeps: the last LayerNorm's input, the head's input, logits in fp32.

    sbh(2E + 4V/h)/t. Source: arXiv 2205.05198 section 4.3 (with E = 2: 4sbh(1 + V/h)/t).

    Returns:
        Bytes, or None for arguments below 1.
    """
    if min(s, b, h, vocabulary, t, dtype_bytes) < 1:
        return None
    return s * b * (2 * dtype_bytes * h + 4 * vocabulary) // t


def sqrt_checkpoints(layers: int) -> tuple[int, int] | None:
    """(checkpoints, layers of the longest segment) when the layers are cut into about sqrt(N) segments of equal length.

    round(sqrt(N)) checkpoints of a segment's input each: O(sqrt(N)) memory for one more forward; while a segment is
    repeated, all of its layers' activations live too. Source: Chen et al., Training Deep Nets with Sublinear Memory
    Cost, arXiv 1604.06174 section 4.1.

    >>> sqrt_checkpoints(16), sqrt_checkpoints(6)
    ((4, 4), (2, 3))
    """
    if layers < 1:
        return None
    count = max(1, round(math.sqrt(layers)))
    return count, -(-layers // count)


class StateBytes(NamedTuple):
    """Bytes of model state on one rank."""

    parameter: int
    gradient: int
    optimizer_state: int


#: fp32 tensors of a parameter's size that the optimizer keeps.
_OPTIMIZER_TENSORS = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}


def layer_parameters(h: int, t: int = 1, mlp_ratio: int = 4, bias: bool = True) -> int | None:
    """Parameters of one GPT layer on one tensor-parallel rank.

    Whole: (4+2r)h^2 + (9+r)h, i.e. 12h^2 + 13h with r = 4 (arXiv 2104.04473 eq. 2). Split over t: the matrices and the
    biases of the column-split layers; whole on every rank: LayerNorms and the biases of the row-split layers, 6h
    (arXiv 1909.08053 section 3).

    Returns:
        The count, or None for arguments below 1.

    >>> layer_parameters(1024) == 12 * 1024**2 + 13 * 1024
    True
    """
    if min(h, t, mlp_ratio) < 1:
        return None
    split = (4 + 2 * mlp_ratio) * h * h + ((3 + mlp_ratio) * h if bias else 0)
    return -(-split // t) + (6 * h if bias else 4 * h)


def state_bytes(parameters: int, optimizer: str = "adamw", dtype_bytes: int = 4, shards: int = 1, zero_stage: int = 3) -> StateBytes | None:
    """Parameters, gradients and optimizer state of a rank that holds ``parameters`` of the model's.

    Tensor and pipeline parallelism make ``parameters`` smaller (:func:`layer_parameters`, layers per stage); plain data
    parallelism changes nothing; sharded data parallelism over ``shards`` ranks divides optimizer state (stage 1), also
    gradients (2), also parameters (3: FSDP, between uses). States are fp32, and with 16-bit parameters one more fp32
    copy of the parameters belongs to them: 2 + 2 + 12 bytes for Adam. Source: ZeRO, arXiv 1910.02054 sections 3, 5.

    Returns:
        Bytes (rounded up per shard), or None for an optimizer whose state is not known here.

    >>> state_bytes(1000, "adamw", dtype_bytes=2)
    StateBytes(parameter=2000, gradient=2000, optimizer_state=12000)
    """
    tensors = _OPTIMIZER_TENSORS.get(optimizer.lower())
    if tensors is None or parameters < 0 or shards < 1:
        return None
    part = -(-parameters // shards)
    master = 4 if dtype_bytes < 4 else 0
    return StateBytes(
        parameter=dtype_bytes * (part if zero_stage >= 3 else parameters),
        gradient=dtype_bytes * (part if zero_stage >= 2 else parameters),
        optimizer_state=(4 * tensors + master) * (part if zero_stage >= 1 else parameters),
    )


def step_overhead(without: float, extra: float) -> float | None:
    """Time that recomputation adds to forward and backward, over what they take without it: T_with / T_without - 1.

    The "combined" overhead of arXiv 2205.05198 Table 4: 39 % where a layer takes 7.7 + 11.9 ms and 27.2 ms with full
    recomputation. Over the backward alone the same times give 64 %: the denominator has to be named.

    Args:
        without: time of forward and backward without the repeated part.
        extra: time of the repeated part.

    Returns:
        A ratio, or None where ``without`` is not above 0.

    >>> round(100 * (step_overhead(7.7 + 11.9, 27.2 - (7.7 + 11.9)) or 0))
    39
    """
    return extra / without if without > 0 else None


def recompute_overhead_theory(mode: str, s: int | None = None, h: int | None = None) -> float | None:
    """FLOPs of repeated forwards over those of forward and backward, the repeated part not among the latter.

    ``full`` and ``sqrt`` repeat every layer's forward, and a backward costs two forwards: 1/3. Core attention
    (``selective:core_attention``) repeats its two products, 4bs^2h of the layer's forward 24bsh^2 + 4bs^2h: x/(3(1+x))
    with x = s/(6h); its softmax costs time but next to no FLOPs, so measured time lies above. Source: arXiv 2205.05198
    appendix A (FLOPs per layer).

    Args:
        mode: ``none``, ``full``, ``sqrt``, ``selective:core_attention``.
        s: sequence length, needed for core attention.
        h: hidden size, needed for core attention.

    Returns:
        The ratio, or None where it is not known.

    >>> round(recompute_overhead_theory("full"), 4)
    0.3333
    """
    if mode == "none":
        return 0.0
    if mode in ("full", "sqrt"):
        return 1 / 3
    if mode == "selective:core_attention" and s and h:
        x = s / (6 * h)
        return x / (3 * (1 + x))
    return None
