"""What part of a model's layer is a kernel or operator? The landmarks by which one layer is told from the next."""

from __future__ import annotations

import re

#: By a part of the name, first match wins. What matches none of them (elementwise work, copies) is no landmark.
#: Names: pytorch/pytorch aten/src/ATen/native (and its cuda folder), Dao-AILab/flash-attention, NVIDIA/cudnn-frontend, NVIDIA/cutlass (also as
#: cuBLAS's nvjet and xmma kernels), ROCm/composable_kernel (ck_tile), ROCm/Tensile (Cijk), ROCm/aiter, vllm-project/vllm, triton kernels by
#: what torch/_inductor fused into them.
_PARTS = (
    (re.compile(r"cross_?entropy|log_?soft_?max|embedding_?bag|nll_?loss", re.IGNORECASE), None),
    (re.compile(r"flash|fmha|attention|attn|sdpa|soft_?max", re.IGNORECASE), "attention"),
    (re.compile(r"(?:layer|rms)_?norm|rsqrt", re.IGNORECASE), "norm"),
    (re.compile(r"index_?select|(?<!rotary_)embedding|vectorized_gather", re.IGNORECASE), "embedding"),
    (re.compile(r"gemm|gemv|nvjet|cijk_|xmma|wgmma|matmul|cutlass.*(?:tensorop|kernel)", re.IGNORECASE), "matrix"),
    (re.compile(r"^aten::(?:linear|mm|addmm|bmm|baddbmm|_?scaled_mm|_grouped_mm)$"), "matrix"),
)

#: Kernels that compute gradients, where they say so.
_GRADIENT = re.compile(r"bwd|backward|dgrad|wgrad|_grad_", re.IGNORECASE)


def landmark_of(name: str) -> str | None:
    """``attention`` (its core), ``norm``, ``matrix``, ``embedding``, or None.

    >>> landmark_of("sm90_xmma_gemm_bf16bf16_bf16f32"), landmark_of("flash_fwd_kernel"), landmark_of("vectorized_elementwise_kernel<4, Gelu>")
    ('matrix', 'attention', None)
    """
    return next((part for pattern, part in _PARTS if pattern.search(name)), None)


def is_gradient(name: str) -> bool:
    """Whether a kernel's name says that it belongs to backward.

    >>> is_gradient("flash_bwd_dq_dk_dv_loop_kernel"), is_gradient("flash_fwd_kernel")
    (True, False)
    """
    return bool(_GRADIENT.search(name))
