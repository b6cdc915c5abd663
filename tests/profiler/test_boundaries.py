from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.adapters.profiler.boundaries import FAMILIES, LARGEST, boundary
from rooflens.adapters.profiler.kernels import CLASSES, class_of
from rooflens.records import StepKind

requests = st.lists(st.tuples(st.integers(1, 900), st.integers(0, 5000)), max_size=6)


@pytest.mark.parametrize(
    ("name", "family", "kind", "columns"),
    [
        (
            "execute_context_2(86)_generation_1(1)", "vLLM execute_...", StepKind.MIXED,
            {"requests": 3, "prefill_requests": 2, "prefill_tokens": 86, "query_tokens": 87},
        ),
        (
            "execute_context_0(0)_generation_4(4)", "vLLM execute_...", StepKind.DECODE,
            {"requests": 4, "prefill_requests": 0, "prefill_tokens": 0, "query_tokens": 4},
        ),
        ("execute_new_1_cached_7", "vLLM execute_...", None, {"requests": 8}),
        (
            "[Executor] _forward_step 60000: 0 ctx reqs, 0 ctx tokens, 32 gen reqs", "TensorRT-LLM _forward_step",
            StepKind.DECODE, {"requests": 32, "prefill_requests": 0, "prefill_tokens": 0},
        ),
        (
            "[Executor] _forward_step: 2 ctx reqs, 5 gen reqs", "TensorRT-LLM _forward_step",
            StepKind.MIXED, {"requests": 7, "prefill_requests": 2},
        ),
        (
            "step[DECODE bs=63]", "SGLang step[...]", StepKind.DECODE,
            {"requests": 63, "query_tokens": 63, "prefill_requests": 0, "prefill_tokens": 0},
        ),
        (
            "step[EXTEND bs=17 toks=8192]", "SGLang step[...]", StepKind.PREFILL,
            {"requests": 17, "query_tokens": 8192, "prefill_requests": 17, "prefill_tokens": 8192},
        ),
        ("step[SOMETHING_NEW bs=3]", "SGLang step[...]", None, {"requests": 3}),
        ("gpu_model_runner: forward", "vLLM gpu_model_runner: forward", None, None),
        ("scheduler.run_batch", "SGLang scheduler.run_batch", None, None),
        ("ProfilerStep#12", "ProfilerStep#N", None, None),
    ],
)  # fmt: skip
def test_names_of_ranges(name: str, family: str, kind: StepKind | None, columns: dict[str, int] | None) -> None:
    found = boundary(name)
    assert found is not None
    assert (FAMILIES[found.family], found.kind, found.columns) == (family, kind, columns)


@pytest.mark.parametrize(
    "name",
    [
        "", "aten::mm", "execute_context_1(2)", "ProfilerStep#", "step[DECODE]", "xexecute_new_1_cached_1",
        "execute_new_1_cached_1 and more", f"execute_new_{LARGEST}_cached_1", "ProfilerStep#" + "1" * 500,
        "execute_new_\u0661_cached_1",
    ],
)  # fmt: skip
def test_other_names_are_no_steps(name: str) -> None:
    assert boundary(name) is None


@given(context=requests, generation=requests)
def test_detailed_names_tell_contexts_and_pairs_exactly(
    context: list[tuple[int, int]], generation: list[tuple[int, int]]
) -> None:
    """Against the sums over the requests themselves: q tokens on top of c in the cache."""

    def phase(found: list[tuple[int, int]]) -> str:
        q, k = sum(q for q, _ in found), sum(q + c for q, c in found)
        return f"{len(found)}(sq{q}sk{k}sqsq{sum(q * q for q, _ in found)}sqsk{sum(q * (q + c) for q, c in found)})"

    tokens = sum(q for q, _ in context + generation)
    found = boundary(f"execute_{tokens}_context_{phase(context)}_generation_{phase(generation)}")
    assert found is not None
    assert found.columns is not None
    assert found.empty == (not context and not generation)
    pairs = [sum(q * c + q * (q + 1) // 2 for q, c in group) for group in (context, context + generation)]
    assert found.columns["context_tokens"] == sum(c for _, c in context + generation)
    assert [found.columns[name] for name in ("prefill_pairs", "causal_pairs")] == pairs
    assert found.columns["query_tokens"] == tokens


@given(st.text(max_size=60))
def test_any_name_has_a_class_and_maybe_a_boundary(name: str) -> None:
    assert 0 <= class_of(name) < len(CLASSES)
    found = boundary(name)
    assert found is None or re.search("execute_|_forward|step|run_batch|Step", name)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>", "attention"),
        ("fmhaSm100fKernel_QkvE4m3OBfloat16H128", "attention"),
        ("void flashinfer::BatchDecodeWithPagedKVCacheKernel", "attention"),
        ("vllm::unified_attention_with_output", "attention"),
        ("_C::cpu_attn_reshape_and_cache", "attention"),
        ("kernel_unified_attention_2d", "attention"),
        ("flash_mla_kernel", "attention"),
        ("nvjet_tst_128x64_64x8_2x1_v_bz_TNT", "matrix products"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", "matrix products"),
        ("void cutlass::device_kernel<cutlass::gemm::kernel>", "matrix products"),
        ("Cijk_Alik_Bljk_HHS_BH_MT64x64x64", "matrix products"),
        ("aten::linear", "matrix products"),
        ("void marlin::Marlin<__nv_bfloat16>", "matrix products"),
        ("fused_moe_kernel", "experts"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "collectives"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>", "collectives"),
        ("flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport", "collectives"),
        ("Memcpy DtoH (Device -> Pinned)", "copies"),
        ("Memset (Device)", "copies"),
        ("causal_conv1d_fwd_kernel", "recurrent"),
        ("fused_recurrent_gated_delta_rule_fwd_kernel", "recurrent"),
        ("void vllm::rms_norm_kernel<c10::BFloat16>", "other"),
        ("triton_poi_fused_mul_silu_1", "other"),
    ],
)  # fmt: skip
def test_classes_of_kernels(name: str, kind: str) -> None:
    assert CLASSES[class_of(name)] == kind
