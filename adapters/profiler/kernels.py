"""What a kernel or an operator does, by its name.

The words are those that kernels of cuBLAS, cuDNN, CUTLASS, FlashAttention, FlashInfer, Triton, NCCL, RCCL, vLLM,
SGLang and TensorRT-LLM carry, and PyTorch's operators. A name that none of them is in is "other".
"""

from __future__ import annotations

import re
from functools import lru_cache

CLASSES = ("attention", "matrix products", "experts", "recurrent", "collectives", "copies", "other")
ATTENTION, PRODUCTS, EXPERTS, RECURRENT, COLLECTIVES, COPIES, OTHER = range(len(CLASSES))
LONGEST_NAME = 4096  # characters of a demangled name that are looked at

# The first that fits: an all-reduce fused with a norm waits for others, a fused MoE product is a product of experts.
_WORDS: tuple[tuple[int, str], ...] = (
    (
        COLLECTIVES,
        r"nccl|rccl|oneccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|all2all|cross_device_reduce|"
        r"deep_?ep|nvshmem|sendrecv|c10d::|lamport|userbuffers|mscclpp|broadcast_coalesced",
    ),
    (COPIES, r"^memcpy|^memset|aten::copy_|\bcopy_kernel|direct_copy|cudaMemcpy|hipMemcpy"),
    (EXPERTS, r"moe|expert|grouped_?gemm|group_gemm"),
    (
        ATTENTION,
        r"attention|attn|flash_?(?:fwd|infer|mla)|fmha|(?:^|[^a-z])mla(?:[^a-z]|$)|paged|reshape_and_cache|kv_cache|"
        r"batch_?(?:decode|prefill)with|splitkv|scaled_dot_product",
    ),
    (RECURRENT, r"mamba|selective_scan|ssd_|ssm|gated_delta|chunk_(?:fwd|scan|state|gated)|causal_conv1d|wkv"),
    (
        PRODUCTS,
        r"gemm|gemv|cublas|cutlass|cijk_|matmul|_mm\b|::mm\b|::bmm\b|::linear|addmm|xmma|nvjet|splitk|marlin|machete|"
        r"weight_packed_linear|onednn_mm|tensile|deep_gemm|wvsplit|dequantize_and_|mul_mat",
    ),
)
_PATTERNS = tuple((number, re.compile(words, re.IGNORECASE)) for number, words in _WORDS)


@lru_cache(maxsize=65536)
def class_of(name: str) -> int:
    """The class of a kernel or operator, an index of CLASSES."""
    shown = name[:LONGEST_NAME]
    for number, pattern in _PATTERNS:
        if pattern.search(shown):
            return number
    return OTHER
