"""What other estimators got wrong, one test each, with the size of the mistake worked out.

Where a ratio is said to be measured, it is what vLLM 0.32's ModelMetrics or SGLang 0.5.23's counters gave beside the
count here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_points import One, total

from rooflens.analyzer.arch import arch_from_config
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.operators import kv_bytes_per_token, works
from rooflens.analyzer.precision import Precision, choose_precision, precision_of
from rooflens.analyzer.work import Work, resident_bytes
from rooflens.arch_records import (
    Attention,
    DenseMLP,
    Deployment,
    Indexer,
    LatentAttention,
    Layer,
    MixtureOfExperts,
    ModelArch,
    StateMixer,
)
from rooflens.records import EngineInfo, RooflensError

BF16 = Precision("bf16", "bf16", "bf16", "bf16")
FP8_KV = replace(BF16, kv="fp8")
LAYER = Layer(32, Attention(32, 8, 128, 128), DenseMLP(14336, gated=True))
LLAMA_8B = ModelArch("8b", 4096, 128256, False, (LAYER,))
LINEAR = 32 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336)  # 6,979,321,856 elements in the layers
HEAD = 128256 * 4096


def memory(rows: tuple[Work, ...], step: list[One]) -> float:
    parts = ("weight_bytes", "kv_read_bytes", "kv_write_bytes", "state_bytes", "gather_bytes")
    return sum(total(rows, part, step) for part in parts)


def test_weights_are_read_once_a_pass_not_once_a_token() -> None:
    """SGLang multiplies them with the tokens: at batch 32 it counts 32 times 15 GB, 480 GB a step."""
    rows = works(LLAMA_8B, BF16)
    assert total(rows, "weight_bytes", [One(10)]) == 2 * (LINEAR + HEAD)  # 15.0 GB
    assert total(rows, "weight_bytes", [One(10)] * 32) == 2 * (LINEAR + HEAD)
    # A prompt of 8192 tokens reads them once too, and not 8192 times, 123 TB.
    assert total(rows, "weight_bytes", [One(0, 8192, prefill=True)]) == 2 * (LINEAR + HEAD)


def test_a_causal_prompt_has_half_the_pairs() -> None:
    """Without the half, attention is 2.00 times and the step of 32768 tokens 1.38 times too much (vLLM, measured).

    Layers: 2 x 6.98e9 x 32768 = 4.574e14 flops. Attention: 4 x 32 layers x 32 heads x 128 x 32768 x 32769 / 2 pairs =
    2.815e14. (4.574 + 2 x 2.815) / (4.574 + 2.815) = 1.381.
    """
    rows, step = works(LLAMA_8B, BF16), [One(0, 32768, prefill=True)]
    square = 4 * 32 * 32 * 128 * 32768**2
    causal = total(rows, "flops", step, "attention")
    assert square / causal == pytest.approx(2, rel=1e-4)
    whole = total(rows, "flops", step)
    assert (whole - causal + square) / whole == pytest.approx(1.38, abs=0.002)


@pytest.mark.parametrize(("gated", "gb"), [(False, 13.3), (True, 17.6)])
def test_a_plain_mlp_has_two_matrices(gated: bool, gb: float) -> None:
    """OPT-6.7B: 32 x (4 x 4096^2 + 2 x 4096 x 16384) + 50272 x 4096 = 6.65e9 weights, 13.3 GB; with three 17.6."""
    opt = ModelArch("opt", 4096, 50272, True, (Layer(32, Attention(32, 32, 128, 128), DenseMLP(16384, gated)),))
    assert total(works(opt, BF16), "weight_bytes", [One(10)]) / 1e9 == pytest.approx(gb, abs=0.05)


def test_a_head_is_as_wide_as_it_says() -> None:
    """Qwen3-0.6B: hidden 1024 and 16 heads of 128, not of 1024 / 16 = 64: half the cache would be forgotten."""
    qwen = ModelArch("qwen", 1024, 151936, True, (Layer(28, Attention(16, 8, 128, 128), DenseMLP(3072, gated=True)),))
    assert kv_bytes_per_token(works(qwen, BF16)) == 28 * 2 * 8 * 128 * 2


QWEN_30B = ModelArch(
    "moe", 2048, 151936, False, (Layer(48, Attention(32, 4, 128, 128), MixtureOfExperts(128, 8, 768, gated=True)),)
)
EXPERT = 48 * 3 * 2048 * 768 * 2  # bytes of one in every layer


@pytest.mark.parametrize(
    ("batch", "too_much"),
    # min(8 B, 128) / (128 (1 - (15 / 16)^B)): 32 / 29.12, 64 / 51.62, 128 / 82.42, 128 / 111.8.
    [(4, 1.10), (8, 1.24), (16, 1.55), (32, 1.15)],
)
def test_experts_are_not_dealt_out_evenly(batch: int, too_much: float) -> None:
    """vLLM and aiconfigurator count min(B k, E) experts: as if no two tokens ever chose the same (measured)."""
    rows, step = works(QWEN_30B, BF16), [One(1000)] * batch
    expected = total(rows, "weight_bytes", step, "experts") + total(rows, "expert_bytes", step, "experts")
    assert min(8 * batch, 128) * EXPERT / expected == pytest.approx(too_much, abs=0.006)


def test_nor_are_there_k_of_them_or_all() -> None:
    """k whatever the batch (GenZ) is the least possible: the floor, and it says no more than that. All (InferSim) come
    with hundreds of tokens: at one token they are 16 times too many."""
    rows = works(QWEN_30B, BF16)
    for batch in (1, 16, 512):
        assert total(rows, "weight_bytes", [One(1000)] * batch, "experts") == 8 * EXPERT
    assert total(rows, "expert_bytes", [One(1000)], "experts") == 0
    # 512 tokens: 128 x (15 / 16)^512 = 5.7e-13 experts are left alone.
    assert total(rows, "expert_bytes", [One(1000)] * 512, "experts") == pytest.approx(120 * EXPERT)


def test_a_verify_step_reaches_the_experts_of_all_its_rows() -> None:
    """4 sequences with 3 drafts: 16 tokens reach 82.4 experts, a plain step's 4 reach 29.1: drafts are not free."""
    rows = works(QWEN_30B, BF16)
    plain, verify = [One(1000)] * 4, [One(1000, 4, sampled=4)] * 4
    read = [
        total(rows, "weight_bytes", s, "experts") + total(rows, "expert_bytes", s, "experts") for s in (plain, verify)
    ]
    assert read[1] / read[0] == pytest.approx(82.42 / 29.12, abs=0.002)


def test_a_shared_expert_is_read_and_multiplied_always() -> None:
    """vLLM's estimator has no field for Qwen's shared_expert_intermediate_size: its weights are missing."""
    moe = MixtureOfExperts(512, 10, 512, gated=True, shared_intermediate_size=512, shared_gate=True)
    arch = ModelArch("next", 2048, 151936, False, (Layer(48, Attention(16, 2, 256, 256), moe),))
    shared = next(row for row in works(arch, BF16) if row.operator == "shared_expert")
    assert shared.weight_bytes == {"passes": 48 * 3 * 2048 * 512 * 2}
    assert shared.flops == {"query_tokens": 2 * 48 * 3 * 2048 * 512}


@pytest.mark.parametrize("step", [[One(600, 400, prefill=True)], [One(4096, 4, sampled=4)] * 32, [One(4096)] * 32])
def test_the_cache_keeps_its_format_in_every_kind_of_step(step: list[One]) -> None:
    """vLLM reads the cache of chunks and verify steps at the activations' 2 bytes: 2.06 times with fp8 (measured)."""
    fp8, bf16 = works(LLAMA_8B, FP8_KV), works(LLAMA_8B, BF16)
    assert total(fp8, "kv_read_bytes", step) == total(bf16, "kv_read_bytes", step) / 2


def test_a_verify_step_reads_weights_and_cache_once() -> None:
    """Batch 32, 4096 tokens each, fp8 cache, 3 drafts: 15.0 GB + 32 x 4096 x 65536 = 8.6 GB = 23.6 GB, as the plain
    step; vLLM has 32.7 GB (measured), for it takes the verify for a prompt."""
    rows, plain, verify = works(LLAMA_8B, FP8_KV), [One(4096)] * 32, [One(4096, 4, sampled=4)] * 32
    assert memory(rows, plain) / 1e9 == pytest.approx(23.6, abs=0.05)
    # Three more tokens a sequence are written (65536 bytes) and gathered (8192).
    assert memory(rows, verify) - memory(rows, plain) == 96 * (65536 + 8192)


def test_verified_tokens_are_computed_whether_accepted_or_not() -> None:
    """SGLang counts the accepted ones: of 4 verified rows it would see 1 to 4. And each row has logits: vLLM's head
    flops are a quarter (measured)."""
    rows, plain, verify = works(LLAMA_8B, BF16), [One(4096)] * 32, [One(4096, 4, sampled=4)] * 32
    assert total(rows, "flops", verify, "mlp_in_projection") == 4 * total(rows, "flops", plain, "mlp_in_projection")
    assert total(rows, "flops", verify, "head") == 4 * total(rows, "flops", plain, "head")


def test_the_head_works_for_sampled_rows_only() -> None:
    rows = works(LLAMA_8B, BF16)
    assert total(rows, "flops", [One(0, 8192, prefill=True)], "head") == 2 * HEAD
    assert total(rows, "weight_bytes", [One(0, 8192, prefill=True, sampled=0)], "head") == 0


def test_the_embedding_is_a_gather() -> None:
    """Its 1.05 GB stay in memory; a token reads one row of 8192 bytes."""
    row = next(row for row in works(LLAMA_8B, BF16) if row.operator == "embedding")
    assert (row.weight_bytes, row.gather_bytes, row.resident_bytes) == ({}, {"query_tokens": 8192}, 2 * HEAD)


def test_layers_with_a_state_have_no_cache() -> None:
    """Qwen3-Next: 12 of 48 layers have keys and values; taking all for attention reads 4.00 times (vLLM, measured)."""
    full = Attention(16, 2, 256, 256, output_gate=True)
    delta = StateMixer("gated_delta", 32, 12352, 4096, 0, 32 * 128 * 128, 8192 * 3, 6.0 * 32 * 128 * 128)
    hybrid = ModelArch("next", 2048, 151936, False, (Layer(36, delta, None), Layer(12, full, None)))
    every = replace(hybrid, layers=(Layer(48, full, None),))
    step = [One(32768)] * 4
    rows = works(hybrid, BF16)
    assert total(works(every, BF16), "kv_read_bytes", step) == 4 * total(rows, "kv_read_bytes", step)
    # The state is there instead: 36 x (2 MiB + 48 KiB) a sequence, read and written, at any length.
    assert total(rows, "state_bytes", step) == 4 * 2 * 36 * (32 * 128 * 128 * 4 + 8192 * 3 * 2)
    assert total(rows, "state_bytes", [One(10)] * 4) == total(rows, "state_bytes", step)


def test_windows_chunks_and_shared_keys_are_no_full_layers() -> None:
    """Llama 4: 36 of 48 layers see a chunk of 8192. At 131072 + 100 tokens those read 100, not 131172."""
    chunked = replace(LLAMA_8B, layers=(Layer(36, Attention(40, 8, 128, 128, chunk_tokens=8192), None),))
    assert total(works(chunked, BF16), "kv_read_bytes", [One(131172)]) == 36 * 4096 * 100
    # Gemma 3n keeps nothing in its last 15 layers and reads another layer's keys there.
    shared = replace(LLAMA_8B, layers=(Layer(15, Attention(8, 2, 256, 256, kv_shared=True), None),))
    assert total(works(shared, BF16), "stored_bytes", [One(1000)]) == 0
    assert total(works(shared, BF16), "kv_read_bytes", [One(1000)]) == 15 * 2048 * 1000


MLA = LatentAttention(128, 1536, 512, 128, 64, 128)


def deepseek(mixer: LatentAttention) -> ModelArch:
    return ModelArch("mla", 7168, 129280, False, (Layer(61, mixer, None),))


def test_decode_works_on_latents() -> None:
    """128 + 64 + 128 = 320 a head and pair un-absorbed, 2 x 512 + 64 = 1088 absorbed: 0.294 of it (vLLM, measured)."""
    rows = works(deepseek(MLA), BF16)
    pairs = 4097
    absorbed = total(rows, "flops", [One(4096)], "attention")
    assert absorbed == 2 * 61 * 128 * 1088 * pairs
    assert 2 * 61 * 128 * 320 * pairs / absorbed == pytest.approx(0.294, abs=0.0005)
    # A prompt is un-absorbed.
    assert total(rows, "flops", [One(0, 100, prefill=True)], "attention") == 2 * 61 * 128 * 320 * 5050


def test_every_device_reads_the_whole_latent() -> None:
    """Tensor parallelism divides heads, and a latent has none: 8 devices read 8 times what one does."""
    one, eight = works(deepseek(MLA), BF16), works(deepseek(MLA), BF16, Deployment(tensor=8))
    assert total(eight, "kv_read_bytes", [One(4096)]) == total(one, "kv_read_bytes", [One(4096)]) == 61 * 576 * 2 * 4096


def test_sparse_attention_is_not_dense() -> None:
    """DeepSeek V3.2 at 131072 tokens: 2048 latents, and 131072 index keys. As dense it comes out above 100 % MFU."""
    rows = works(deepseek(replace(MLA, indexer=Indexer(64, 128, 2048))), BF16)
    step = [One(131072)]
    assert total(rows, "kv_read_bytes", step) == 61 * 2 * (2048 * 576 + 131072 * 128)
    assert total(rows, "flops", step, "attention") == 2 * 61 * 128 * 1088 * 2048
    dense = total(works(deepseek(MLA), BF16), "flops", step, "attention")
    assert dense / total(rows, "flops", step, "attention") == pytest.approx(64, rel=1e-4)


def test_quantised_weights_leave_head_and_embedding() -> None:
    """8B in int4: 6.98e9 x 0.515625 = 3.6 GB and two tables of 1.05 GB, 5.7 GB and not 4.1."""
    int4 = works(LLAMA_8B, replace(BF16, weights="int4"))
    assert resident_bytes(int4) == pytest.approx(LINEAR * (0.5 + 2 / 128) + 2 * 2 * HEAD)
    assert all("int4" not in row.compute for row in int4)  # weight-only: the arithmetic stays at 16 bit


@pytest.mark.parametrize(
    ("device", "number_format", "dense_tflops", "taken_for"),
    [
        ("l40s", "fp8", 733, 1466),  # BLIS has the sparse figure
        ("a100-sxm4-80", "bf16", 312, 156),  # mfu-tracker has that of TF32
        ("h100-sxm5-80", "bf16", 989.4, 1979),
        # MoE-CAP keeps sparse and dense peaks in one table and halves them all: right for one kind, half for the other.
        ("h100-sxm5-80", "fp8", 1979, 3958),
        ("a100-sxm4-80", "int8", 624, 312),
    ],
)
def test_peaks_are_dense_and_whole(device: str, number_format: str, dense_tflops: float, taken_for: float) -> None:
    """A peak twice too high makes MFU half of what it is, and a floor that compute sets half as long; half a peak makes
    it 2 x 0.6 = 120 %."""
    peak = find_hardware(device).peak_flops_per_s[number_format]
    assert peak / 1e12 == pytest.approx(dense_tflops, rel=0.005)
    assert max(peak / 1e12, taken_for) / min(peak / 1e12, taken_for) == pytest.approx(2, rel=0.005)


def test_a_format_of_half_the_width_is_twice_as_fast_at_most() -> None:
    """SMs of data centres do 2 x bf16 at 8 bits and, up to the B200, 4 x at 4 bits: a table with sparse and dense rates
    side by side would show 4 or 1."""
    for name in ("a100-sxm4-80", "a30", "h100-sxm5-80", "h200-sxm-141", "l4", "l40s", "b200-sxm", "mi300x", "mi355x"):
        peak = find_hardware(name).peak_flops_per_s
        for number_format, times in (("fp8", 2), ("int8", 2), ("nvfp4", 4), ("mxfp4", 4)):
            if number_format in peak:
                assert peak[number_format] / peak["bf16"] == pytest.approx(times, rel=0.02), (name, number_format)


CONFIG = {
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "hidden_act": "silu", "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize("name", ["my-finetune", "Qwen3-30B-A3B", "deepseek-v3", "mixtral-8x7b", ""])
def test_a_name_decides_nothing(name: str) -> None:
    """MoE-CAP looks for "qwen" and "deepseek" in the name: a renamed fine-tune then is another model. Here the fields
    are all there is: 32 layers, 131,072 bytes of cache a token, whatever it is called."""
    arch = arch_from_config(CONFIG, name)
    assert replace(arch, name="") == arch_from_config(CONFIG, "")
    assert kv_bytes_per_token(works(arch, BF16)) == 32 * 2 * 8 * 128 * 2


def test_a_config_states_its_heads_and_their_width() -> None:
    """LLM-Viewer and BLIS divide: 4096 / 32 = 128 is right for Llama, 1024 / 16 = 64 is half of Qwen3-0.6B's 128."""
    assert kv_bytes_per_token(works(arch_from_config(CONFIG), BF16)) == 32 * 2 * 8 * 128 * 2
    qwen = {**CONFIG, "hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 28, "head_dim": 128}
    assert kv_bytes_per_token(works(arch_from_config(qwen), BF16)) == 28 * 2 * 8 * 128 * 2


def test_a_config_states_how_many_matrices_its_mlp_has() -> None:
    """SiLU in Llama is gated, three matrices of 4096 x 14336; OPT's ReLU and GPT-2's GELU are plain, two. BLIS has two
    for all: 32 x 58.7e6 = 1.88e9 weights of an 8B model forgotten."""
    rows = works(arch_from_config(CONFIG), BF16)
    mlp = sum(total(rows, "weight_bytes", [One(1)], part) for part in ("mlp_in_projection", "mlp_out_projection"))
    assert mlp == 2 * 32 * 3 * 4096 * 14336
    opt = {**CONFIG, "model_type": "opt", "hidden_act": "relu"}
    rows = works(arch_from_config(opt), BF16)
    mlp = sum(total(rows, "weight_bytes", [One(1)], part) for part in ("mlp_in_projection", "mlp_out_projection"))
    assert mlp == 2 * 32 * 2 * 4096 * 14336


@pytest.mark.parametrize(
    ("weights", "layers_gb"),
    [
        ({"num_bits": 8, "type": "float", "strategy": "channel"}, 6.98),  # fp8: a byte
        ({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}, 3.60),  # half, and 2 bytes for 128
        ({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}, 3.93),  # half, and 1 for 16
    ],
)
def test_a_method_is_no_width(weights: dict[str, Any], layers_gb: float) -> None:
    """All three are "compressed-tensors", which vLLM takes for half a byte an element: 3.49 GB of 6.98e9 elements, so
    4.54 GB with the head for an fp8 model that reads 8.03 (measured)."""
    scheme = {
        "quant_method": "compressed-tensors", "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }  # fmt: skip
    arch = arch_from_config({**CONFIG, "quantization_config": scheme})
    rows = [row for row in works(arch, choose_precision(arch)) if row.operator.endswith("projection")]
    assert total(rows, "weight_bytes", [One(10)]) / 1e9 == pytest.approx(layers_gb, abs=0.01)


@pytest.mark.parametrize("method", ["compressed-tensors", "awq", "gptq"])
def test_a_method_alone_is_refused(method: str) -> None:
    info = EngineInfo("i", "vllm", quantization=method, weight_dtype="bfloat16")
    with pytest.raises(RooflensError, match="does not fix the size of a weight"):
        precision_of(info, arch_from_config(CONFIG))
