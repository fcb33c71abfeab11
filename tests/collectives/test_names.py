"""Names of kernels, copies and element types: what communicates, what it does, and what only looks like it."""

from __future__ import annotations

import pytest

from tests.builders import kernel, op, read, span
from tracekit.passes.classify import KERNELS, LOOK_ALIKES, WORDS, classify, is_communication_kernel, kernel_collective
from tracekit.vocabulary import Kind
from tracekit.widths import element_bytes


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)", "all_gather"),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "all_reduce"),
        ("nccldevkernel_reducescatter_sum_f32_ring_ll", "reduce_scatter"),
        ("ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymDevArgs)", "all_reduce"),
        ("ncclSymkDevKernel_ReduceScatter_LDMC_sum_f32(ncclSymkDevWorkArgs4K)", "reduce_scatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv"),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", None),
        ("_Z23ncclDevKernel_Generic_124ncclDevKernelArgsStorageILm4096EE", None),
        ("rcclGenericKernel<5, false>(ncclDevComm*)", None),
        ("mscclKernel_Sum_half_Simple_false(ncclDevComm*)", None),
        ("void mscclpp::collective::allgatherFullmesh2<8>(void*)", "all_gather"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)", "all_reduce"),
        ("void aiter::reduce_scatter_cross_device_store<__hip_bfloat16, 8>(aiter::RankData*)", "reduce_scatter"),
        ("void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4<__half, 4>, true>, __half>(__half const*)", "all_reduce"),
        ("void tensorrt_llm::kernels::twoShotAllReduceKernel<__nv_bfloat16, 8>(AllReduceParams)", "all_reduce"),
        ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(int)0, __nv_bfloat16, 4>(Params)", "all_reduce"),
        ("void c10d::symmetric_memory::(anonymous namespace)::multimem_all_gather_kernel<16>(char*)", "all_gather"),
        ("void c10d::symmetric_memory::multimem_one_shot_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)", "all_reduce"),
        ("c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)", "barrier"),
        ("exchangeSplitAndOffset(long*, long*, int)", "barrier"),
        ("allToAllV(void*, void*, long*, long, nvshmem_team_t)", "all_to_all"),
        ("void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)", "barrier"),
        ("void userbuffers_fp16_sum_inplace_gpu_mc_rs_oop<8>(int, int)", "reduce_scatter"),
        ("void userbuffers_fp16_sum_inplace_gpu_rr_ag<8>(int, int)", "all_gather"),
        ("kuserbuffers_pushsend(int*, int*, int4*, int4*, int)", "send"),
        ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)", "all_to_all"),
        ("void deep_ep::internode_ll::combine<false, 7168, 9>(void*)", "all_to_all"),
        ("_ZN7deep_ep9intranode7combineI13__nv_bfloat16Li8EEEvPT_", "all_to_all"),
        ("void deep_ep::intranode::notify_dispatch<8>(int const*, int*)", "barrier"),
        ("moeA2ADispatchKernel<4, false>(int const*)", "all_to_all"),
        ("allreduce_kernel_fp32(float*, unsigned long)", "all_reduce"),
        ("all-reduce.12", "all_reduce"),
    ],
)
def test_kernels_that_communicate(name: str, kind: str | None) -> None:
    assert is_communication_kernel(name)
    assert kernel_collective(name) == kind


@pytest.mark.parametrize(
    "name",
    [
        "sm90_gemm_bf16_128x128",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(at::native::ReduceOp<float>)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::cublasSplitKParams<float>)",
        "void at::native::_scatter_gather_elementwise_kernel<128, 4>(int)",
        "triton_poi_fused_all_reduce_wait_tensor_3",
        "triton_per_fused__to_copy_reduce_scatter_tensor_0",
        "fsdp_all_gather_copy_in_kernel(float*)",
        "void at::native::(anonymous namespace)::chunk_cat_cuda_kernel<float>(float**)",
        "at::native::detail::split_with_sizes_copy_out_contiguous_no_cast_kernel(char**, char**)",
        "void deep_ep::layout::get_dispatch_layout<256, 4>(long const*)",
        "void flashinfer::trtllm_mnnvl_allreduce::rmsNormLamport<__nv_bfloat16>(float*)",
        "void aiter::local_device_load_rmsnorm<__hip_bfloat16>(aiter::RankSignals)",
        "void transformer_engine::(anonymous namespace)::amax_kernel<8, true, __nv_bfloat16>(__nv_bfloat16 const*)",
        "void softmax_warp_all_reduce<float>(float*)",
        "Memcpy DtoD (Device -> Device)",
    ],
)
def test_kernels_that_do_not(name: str) -> None:
    assert not is_communication_kernel(name)


def test_every_pattern_has_a_source() -> None:
    assert [p.name for p in (*KERNELS, *LOOK_ALIKES, WORDS) if len(p.source) < 12] == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Memcpy PtoP (Device -> Device)", Kind.COMMUNICATION),
        ("Memcpy P2P", Kind.COMMUNICATION),
        ("[CUDA memcpy Peer-to-Peer]", Kind.COMMUNICATION),
        ("CopyPeerToPeer", Kind.COMMUNICATION),
        ("Memcpy DtoD (Device -> Device)", Kind.MEMCPY),
        ("Memcpy HtoD (Pinned -> Device)", Kind.MEMCPY),
    ],
)
def test_copies_between_gpus_communicate_and_others_do_not(name: str, kind: str) -> None:
    row = classify(read([kernel(name, 0, 4, 1, cat="gpu_memcpy", bytes=1024)])).events.iloc[0]
    assert (row["kind"], row["nbytes"]) == (kind, 1024)
    assert (row["collective"] == "peer_copy") == (kind == Kind.COMMUNICATION)


def test_metadata_makes_a_collective_of_a_kernel_with_any_name_but_not_of_the_copies_beside_it() -> None:
    said = {"Collective name": "allreduce", "In msg nelems": 8, "dtype": "Half", "Group size": 2}
    rows = classify(read([kernel("my_transport", 0, 4, 1, **said), kernel("void at::native::vectorized_elementwise_kernel<4>(int)", 4, 6, 2, **said)])).events
    assert rows["kind"].tolist() == [Kind.COMMUNICATION, Kind.COMPUTE]
    assert rows["collective"].astype(object).where(rows["collective"].notna(), None).tolist() == ["all_reduce", None]


@pytest.mark.parametrize("name", ["gloo:all_reduce", "ucc:allreduce", "mpi:all_reduce"])
def test_executions_of_host_backends_are_ranges(name: str) -> None:
    row = classify(read([span(name, 0, 4)])).events.iloc[0]
    assert (row["kind"], row["collective"]) == (Kind.COMMUNICATION, "all_reduce")


def test_nccl_ranges_are_no_second_communication() -> None:
    assert classify(read([span("nccl:all_reduce", 0, 4), op("c10d::allreduce_", 0, 2)])).events["kind"].tolist() == [Kind.ASYNC_RANGE, Kind.OPERATOR]


@pytest.mark.parametrize(
    ("name", "width"),
    [
        *(("BFloat16", 2), ("Float8_e4m3fn", 1), ("c10::Float8_e5m2fnuz", 1), ("UInt16", 2), ("Long", 8), ("long int", 8), ("ComplexDouble", 16)),
        *(("torch.int32", 4), ("ncclFloat16", 2), ("Byte", 1), ("Bool", 1), ("QInt32", 4)),
        *(("Float4_e2m1fn_x2", None), ("TensorList", None), ("", None), (None, None)),
    ],
)
def test_widths_of_element_types(name: str | None, width: int | None) -> None:
    assert element_bytes(name) == width
