"""Which events are communication, and of which kind? The only place where names of kernels are judged.

Metadata speaks first (the ``collective`` that the trace itself names), then the name of the kernel or operator, looked up in
one table. Each distinct name is judged once.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from tracekit.columns import Objects, by_name, choose, named
from tracekit.trace import RankTrace
from tracekit.vocabulary import EMULATED_COMPUTE, Collective, Kind, collective_of


class Pattern(NamedTuple):
    """One family of kernels.

    Attributes:
        name: regular expression, searched anywhere in the kernel's name without regard to case.
        kind: what they do; None: their name says it (``collective_of``), or nothing does (RCCL's generic kernel).
        source: where the names come from.
    """

    name: str
    kind: Collective | None
    source: str


_AR, _AG, _RS, _A2A = Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL
_BARRIER = Collective.BARRIER

#: Names that hold the words of a collective and move nothing between ranks. They are asked first.
LOOK_ALIKES = (
    Pattern(r"^triton_(?:poi|red|per|tem|for|mix|unk|split_scan)_", None, "pytorch/pytorch torch/_inductor/codegen/triton.py: named after what is fused"),
    Pattern(r"copy_(?:in|out)|chunk_cat|split_with_sizes", None, "pytorch/pytorch torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py: packing for FSDP"),
    Pattern(r"deep_ep.*layout", None, "deepseek-ai/DeepEP csrc/kernels/layout.cu: counts a rank's own tokens"),
    Pattern(r"local_device_load|rms_?norm_?lamport", None, "ROCm/aiter custom_all_reduce.cuh, TensorRT-LLM mnnvlAllreduceKernels.cu: a norm"),
    Pattern(r"amax_(?:kernel|reduc)|delayed_scaling|amax_and_scale", None, "NVIDIA/TransformerEngine transformer_engine/common/recipe: FP8 amax of one rank"),
    Pattern(r"(?:block|warp|wave|thread)_?(?:all_?)?reduce", None, "reductions within one kernel, e.g. NVIDIA/cub block_reduce.cuh"),
)

#: Kernels that communicate: the first that matches anywhere in the name wins.
KERNELS = (
    Pattern(r"deep_ep.*(?:notify_dispatch|cached_notify|barrier|clean_low_latency)", _BARRIER, "deepseek-ai/DeepEP csrc/kernels: ranks exchange counts"),
    Pattern(r"deep_ep.*(?:dispatch|combine)", _A2A, "deepseek-ai/DeepEP csrc/kernels/{intranode,internode,internode_ll}.cu"),
    Pattern(r"hybrid_ep.*(?:dispatch|combine)", _A2A, "deepseek-ai/DeepEP csrc/hybrid_ep"),
    Pattern(r"a2a_?(?:dispatch|combine)", _A2A, "NVIDIA/TensorRT-LLM cpp/tensorrt_llm/kernels/communicationKernels/moeAlltoAllKernels.cu"),
    Pattern(r"pplx.*(?:dispatch|combine)", _A2A, "perplexityai/pplx-kernels csrc/all_to_all"),
    Pattern(r"userbuffers_fp16_sum_inplace_gpu_\w*_rs", _RS, "NVIDIA/TransformerEngine common/comm_gemm_overlap/userbuffers/userbuffers.cu"),
    Pattern(r"userbuffers_fp16_sum_inplace_gpu_\w*_ag", _AG, "the same file"),
    Pattern(r"userbuffers_fp16_sum_inplace_gpu", _AR, "the same file"),
    Pattern(r"userbuffers", None, "the same file (kuserbuffers_pushsend, _pushrecv, _pushsendrecv), NVIDIA/TensorRT-LLM cpp/tensorrt_llm/kernels/userbuffers"),
    Pattern(r"nccl\w*Kernel", None, "NVIDIA/nccl src/device/generate.py: ncclDevKernel_ (2.19 on), ncclKernel_ (2.10 on), ncclAllReduceRingLLKernel_ (before)"),
    Pattern(r"ncclSymk|ncclSymDev", None, "NVIDIA/nccl src/device/symmetric/generate.py: symmetric memory (2.27 on), NVLS among it"),
    Pattern(r"rcclGeneric", None, "ROCm/rccl src/device/common.h: one kernel for every kind, as ncclDevKernel_Generic is"),
    Pattern(r"mscclKernel|mscclpp", None, "ROCm/rccl src/device/msccl_kernel_impl.h; microsoft/mscclpp src"),
    Pattern(r"(?:barrier|sync(?:_all)?)_on_stream_kernel", _BARRIER, "NVIDIA/nvshmem src/host/stream/coll/barrier/barrier.cu"),
    Pattern(r"exchangeSplitAndOffset", _BARRIER, "pytorch/pytorch c10d/symm_mem/nvshmem_extension.cu: counts are exchanged before allToAllV"),
    Pattern(r"symmetric_memory\W.*(?:barrier|signal)_kernel", _BARRIER, "pytorch/pytorch c10d/symm_mem/CUDASymmetricMemory.cu"),
    Pattern(r"nvshmem|rocshmem", None, "NVIDIA/nvshmem src; ROCm/rocSHMEM src"),
    Pattern(r"multimem_\w*reduce", None, "pytorch/pytorch c10d/symm_mem/CUDASymmetricMemoryOps.cu: reductions in the NVSwitch"),
    Pattern(r"cross_device_reduce_scatter|reduce_scatter_cross_device", _RS, "ROCm/aiter csrc/include/custom_all_reduce.cuh"),
    Pattern(r"cross_device_reduce", _AR, "vllm-project/vllm csrc/custom_all_reduce.cuh; sgl-project/sglang sgl-kernel/csrc/allreduce; ROCm/aiter"),
    Pattern(r"quickreduce", _AR, "vllm-project/vllm csrc/quickreduce; sgl-project/sglang sgl-kernel/csrc/allreduce/quick_all_reduce.cuh"),
)

#: Last, whatever is named after a collective: one_shot_all_reduce_kernel, multimem_all_gather_kernel (pytorch/pytorch c10d/symm_mem);
#: oneShotAllReduceKernel, twoshotAllreduceKernel, allreduce_fusion_kernel_oneshot_lamport (NVIDIA/TensorRT-LLM communicationKernels,
#: flashinfer-ai/flashinfer include/flashinfer/comm); allgatherFullmesh (microsoft/mscclpp src/algorithms); allreduce_kernel_fp32 (openucx/ucc
#: src/components/tl/cuda/kernels); allToAllV (pytorch/pytorch nvshmem_extension.cu); all-reduce.1 (openxla/xla).
WORDS = Pattern(r"all[-_]?reduce|all[-_]?gather|reduce[-_]?scatter|all[-_]?to[-_]?all", None, "the function's own name; parameters do not count")

#: Copies between GPUs, which async tensor parallelism (pytorch/pytorch torch/distributed/_symmetric_memory) and NCCL's copy engine collectives run
#: instead of kernels: ``Memcpy PtoP`` (CUPTI's PTOP, pytorch/kineto libkineto/src/CuptiActivity.cpp), and how others write it.
PEER_COPIES = re.compile(r"\bP(?:to|2)P\b|peer[-_ ]?(?:to|2)[-_ ]?peer|copy_?peer", re.IGNORECASE)

#: Kernels of a framework: where the metadata of a collective stands on one, it prepared the buffers (flattening, copying) inside the call.
LOCAL_KERNELS = re.compile(r"^(?:at|c10|cub|thrust|rocprim)::|^triton_|elementwise|memcpy|copy|fill|\bcat", re.IGNORECASE)

#: Ranges that a host backend of torch.distributed draws from start to end of an execution (pytorch/pytorch c10d/ProcessGroupGloo.cpp, …MPI.cpp, …UCC.cpp).
HOST_EXECUTIONS = ("gloo:", "mpi:", "ucc:")

_LOOK_ALIKES, _KERNELS, (_WORDS,) = (tuple((re.compile(p.name, re.IGNORECASE), p.kind) for p in table) for table in (LOOK_ALIKES, KERNELS, (WORDS,)))
_ANONYMOUS = re.compile(r"\(anonymous namespace\)|<unnamed>|\{anonymous\}")


class _Judgement(NamedTuple):
    """What a kernel's name tells: whether it communicates, and what it does."""

    communicates: bool
    kind: Collective | None = None


def is_communication_kernel(name: str) -> bool:
    """Whether a device kernel communicates, by its name.

    >>> is_communication_kernel("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)"), is_communication_kernel("triton_poi_fused_all_reduce_0")
    (True, False)
    """
    return _judge(name).communicates


def kernel_collective(name: str) -> Collective | None:
    """What a communication kernel does, as far as its name tells.

    >>> kernel_collective("void deep_ep::intranode::combine<__nv_bfloat16, 8>(int4*)"), kernel_collective("ncclDevKernel_Generic_1(x)")
    (<Collective.ALL_TO_ALL: 'all_to_all'>, None)
    """
    return _judge(name).kind


def function_of(name: str) -> str:
    """A kernel's name without return type, template arguments and parameters.

    >>> function_of("void deep_ep::intranode::dispatch<8, 768>(int4*, float*)")
    'deep_ep::intranode::dispatch'
    """
    return re.split(r"[<(]", _ANONYMOUS.sub("", name), maxsplit=1)[0].removeprefix("void ").strip()


def _judge(name: str) -> _Judgement:
    function = function_of(name)
    if any(pattern.search(function) for pattern, _ in _LOOK_ALIKES):
        return _Judgement(communicates=False)
    for pattern, kind in _KERNELS:
        if pattern.search(name):
            return _Judgement(True, kind or collective_of(function))
    return _Judgement(True, collective_of(function)) if _WORDS[0].search(function) else _Judgement(communicates=False)


def classify(trace: RankTrace) -> RankTrace:
    """Set ``kind`` of communication, emulated compute and async ranges, and ``collective`` of whatever communicates."""
    events = trace.events
    kind = events["kind"].to_numpy(object, copy=True)

    is_range, is_operator = kind == Kind.RANGE, kind == Kind.OPERATOR
    meaning = _stated(events)
    kernels = (kind == Kind.COMPUTE) & named(events, is_communication_kernel)
    # what the trace itself calls a collective is one, whatever its name
    kernels |= (kind == Kind.COMPUTE) & pd.notna(meaning) & ~named(events, lambda n: bool(LOCAL_KERNELS.search(function_of(n))))
    copies = (kind == Kind.MEMCPY) & named(events, lambda n: bool(PEER_COPIES.search(n)))
    on_host = is_range & named(events, lambda n: n.startswith(HOST_EXECUTIONS))
    kind[kernels | copies | on_host] = Kind.COMMUNICATION
    kind[is_range & named(events, lambda n: n.startswith(("nccl:", "xccl:")))] = Kind.ASYNC_RANGE
    kind[is_range & named(events, lambda n: n == EMULATED_COMPUTE)] = Kind.COMPUTE
    issuing = is_operator & named(events, lambda n: n.startswith("c10d::"))

    collective = choose(on_host | issuing, by_name(events, collective_of), None)
    collective = choose(kernels, by_name(events, kernel_collective), choose(copies, Collective.PEER_COPY, collective))
    collective = choose(pd.notna(meaning) & (kind != Kind.COMPUTE), meaning, collective)
    return trace.with_events(kind=pd.Categorical(kind, categories=list(Kind)), collective=pd.Categorical(collective, categories=list(Collective)))


def _stated(events: pd.DataFrame) -> Objects:
    """The kind that the trace itself names for each event, or None."""
    stated = events["collective"].cat
    return np.array([*(collective_of(str(c)) for c in stated.categories), None], object)[stated.codes.to_numpy()]
