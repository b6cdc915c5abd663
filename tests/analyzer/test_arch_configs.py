"""Published config files parse with nothing unknown, and counts are those that the publishers and other code give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rooflens.analyzer.arch import arch_from_config, find_model, known_models
from rooflens.analyzer.counting import parameters
from rooflens.arch_records import Attention, CompressedAttention, LatentAttention, MixtureOfExperts, StateMixer
from rooflens.records import RooflensError

DATA = Path(__file__).parents[1] / "data"
FILES = [f for f in sorted((DATA / "configs").glob("*_config.json")) if "hf_quant" not in f.name]
PUBLISHED = json.loads((DATA / "published_models.json").read_text())["models"]
RECORDED = [json.loads(line) for line in (DATA / "transformers_models" / "models.jsonl").read_text().splitlines()]
# What transformers makes and no model of the kind has.
KNOWN_MISSES = {
    "longcat_flash",  # transformers makes two of three matrices for its zero experts, which need none
    "helium",  # in other sizes its output projection does not fit its heads: no such model can run
}


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name.removesuffix("_config.json"))
def test_every_published_config_parses_with_nothing_unknown(file: Path) -> None:
    arch = arch_from_config(json.loads(file.read_text()), file.name, read_quantization=False)
    assert arch.unknown == ()
    assert arch.vision_elements is not None
    assert len(arch.order) == sum(layer.count for layer in arch.layers)
    assert parameters(arch).total > 0.5e9


@pytest.mark.parametrize("row", known_models(), ids=lambda row: row["id"])
def test_every_shipped_model_is_known_by_both_names(row: Any) -> None:
    arch = find_model(row["hf_id"])
    assert arch == find_model(row["id"])
    assert arch.unknown == ()


# Falcon 7B: its files hold the tied head twice, 6.92 + 0.30 = 7.22. The published sizes of Gemma 4 and Qwen 3.5
# include the vision tower, which their config describes.
@pytest.mark.parametrize("row", [r for r in PUBLISHED if r.get("params_published")], ids=lambda row: row["id"])
def test_parameters_are_the_published_ones(row: dict[str, Any]) -> None:
    published = row["params_published"]
    arch = find_model(row["id"], read_quantization=False)
    count = parameters(arch)
    total = count.total + (count.vision or 0)
    if row["id"] == "falcon-7b":
        total += arch.vocab_size * arch.hidden_size
    assert total == pytest.approx(published, rel=0.02)


# Publishers round to whole billions and differ in whether the embedding's table and the head are active.
@pytest.mark.parametrize("row", [r for r in PUBLISHED if "params_active_published" in r], ids=lambda row: row["id"])
def test_active_parameters_are_the_published_ones(row: dict[str, Any]) -> None:
    arch = find_model(row["id"], read_quantization=False)
    active = parameters(arch).active
    published, table = row["params_active_published"], arch.vocab_size * arch.hidden_size
    assert (active - 2 * table) * 0.98 <= published + 0.5e9
    assert published - 0.5e9 <= active * 1.02


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: f"{row['model_type']}, {row['variant']}")
def test_counts_are_those_of_the_models_that_transformers_makes(row: dict[str, Any]) -> None:
    """Within 1 % (2 % of small models), or something is named as unknown, or the config is refused in one line."""
    arch, fault = None, ""
    try:
        arch = arch_from_config(row["config"])
    except RooflensError as error:
        fault = str(error)
    assert len(fault.splitlines()) == (0 if arch else 1)
    if arch is None or arch.unknown or row["model_type"] in KNOWN_MISSES:
        return
    count = parameters(arch)
    rel = 0.01 if row["elements"] > 3e8 else 0.02
    assert count.total + (count.vision or 0) == pytest.approx(row["elements"], rel=rel)


def test_most_of_transformers_models_are_counted_whole() -> None:
    """277 of 420 within 1 % when this was written: a change that names or refuses more of them must say why."""
    exact = 0
    for row in RECORDED:
        try:
            arch = arch_from_config(row["config"])
        except RooflensError:
            continue
        count = parameters(arch)
        exact += abs((count.total + (count.vision or 0)) / row["elements"] - 1) < 0.01
    assert exact >= 270


def arch_of(name: str) -> Any:
    return arch_from_config(json.loads((DATA / "configs" / f"{name}_config.json").read_text()), read_quantization=False)


def test_deepseek_v3() -> None:
    arch = arch_of("deepseek-ai--DeepSeek-V3")
    dense, sparse = arch.layers
    assert (dense.count, sparse.count, arch.order[:4]) == (3, 58, (0, 0, 0, 1))
    assert sparse.mixer == LatentAttention(128, 1536, 512, 128, 64, 128)
    assert sparse.mlp == MixtureOfExperts(
        256, 8, 2048, gated=True, shared_intermediate_size=2048, groups=8, top_groups=4
    )
    assert [layer.count for layer in arch.mtp] == [1]
    assert arch.mtp_elements == 2 * 7168 * 7168 + 3 * 7168


def test_deepseek_v4_alternates_its_ratios() -> None:
    arch = arch_of("deepseek-ai--DeepSeek-V4-Pro")
    ratios = [arch.layers[i].mixer.ratio for i in arch.order]
    assert all(isinstance(layer.mixer, CompressedAttention) for layer in arch.layers)
    assert (ratios[:5], ratios.count(128), ratios.count(4)) == ([128, 128, 4, 128, 4], 31, 30)
    assert arch.mtp[0].mixer.ratio == 0  # the 62nd entry


def test_qwen_35_has_three_states_to_one_attention() -> None:
    arch = arch_of("Qwen--Qwen3.5-27B")
    state, attention = arch.layers
    assert (state.count, attention.count, arch.order[:8]) == (48, 16, (0, 0, 0, 1) * 2)
    assert isinstance(state.mixer, StateMixer)
    assert attention.mixer == Attention(24, 4, 256, 256, output_gate=True)


def test_nemotron_layers_hold_a_mixer_or_an_mlp() -> None:
    arch = arch_of("nvidia--Nemotron-H-56B-Base-8K")
    assert sorted(layer.count for layer in arch.layers) == [10, 54, 54]
    assert all((layer.mixer is None) != (layer.mlp is None) for layer in arch.layers)


def test_layers_of_different_shapes() -> None:
    # 31 of the 80 layers have no attention; ffn_mult 5.25 is 28672 wide: 2 x 5.25 x 8192 / 3 = 28672.
    arch = arch_of("nvidia--Llama-3_3-Nemotron-Super-49B-v1")
    assert sum(layer.count for layer in arch.layers if layer.mixer is None) == 31
    assert max(layer.mlp.intermediate_size for layer in arch.layers if layer.mlp) == 28672
    assert parameters(arch).total == pytest.approx(49.87e9, rel=0.001)


def test_gemma_4_windows_are_narrower_and_its_globals_share_keys_and_values() -> None:
    local, whole = arch_of("google--gemma-4-26B-A4B").layers
    assert local.mixer == Attention(16, 8, 256, 256, window_tokens=1024)
    assert whole.mixer == Attention(16, 2, 512, 512, keys_are_values=True)
    assert local.mlp.dense is not None


def test_mimo_windows_have_heads_of_their_own() -> None:
    kinds = {(layer.mixer.kv_heads, layer.mixer.window_tokens) for layer in arch_of("XiaomiMiMo--MiMo-V2-Flash").layers}
    assert kinds == {(4, None), (8, 128)}


def test_kimi_k3() -> None:
    """69 layers of delta attention and 24 of MLA, both with an output gate at once; experts in half the width."""
    arch = arch_of("moonshotai--Kimi-K3")
    counts = {type(layer.mixer): 0 for layer in arch.layers}
    for layer in arch.layers:
        counts[type(layer.mixer)] += layer.count
    assert counts == {StateMixer: 69, LatentAttention: 24}
    latent = next(layer for layer in arch.layers if isinstance(layer.mixer, LatentAttention))
    assert latent.mixer == LatentAttention(96, 1536, 512, 128, 64, 128, output_gate=True)
    assert latent.mlp == MixtureOfExperts(
        896, 16, 3072, gated=True, shared_intermediate_size=2 * 3072, latent_size=3584
    )
    # Two norms, two norms and two queries of attention residuals, the latents' norms and that behind the experts.
    assert latent.other_elements == 6 * 7168 + 1536 + 512 + 3584
    state = next(layer.mixer for layer in arch.layers if isinstance(layer.mixer, StateMixer))
    # q, k, v and the gate of 96 x 128, the decay's first half, a strength for each head; the decay's second half.
    assert state.in_columns == 4 * 96 * 128 + 128 + 96
    assert state.other_elements == 128 * 96 * 128 + 3 * 96 * 128 * 4 + 96 * 128 + 96 + 128
    # In each of 92 layers 896 experts of 3 x 3584 x 3072: 2.72 of 2.78 trillion.
    assert parameters(arch).total == pytest.approx(92 * 896 * 3 * 3584 * 3072, rel=0.025)


def test_longcat_counts_zero_experts_as_nothing() -> None:
    """560 billion, of which a token uses 27 on average (model card): 8 of its 12 choices have weights."""
    row = next(r for r in RECORDED if (r["model_type"], r["variant"]) == ("longcat_flash", "default"))
    count = parameters(arch_from_config(row["config"]))
    assert count.total == pytest.approx(560e9, rel=0.01)
    assert count.active == pytest.approx(27e9, rel=0.05)


MLA = {
    "model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 96, "vocab_size": 100, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4, "v_head_dim": 8, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip


def test_index_keys_of_several_tokens() -> None:
    """GLM-5 Next: 16 tokens share a key; up to 2048 + 15 tokens all are chosen."""
    arch = arch_from_config({**MLA, "index_topk": 2048, "index_n_heads": 2, "index_head_dim": 8, "index_kpool": 16})
    mixer = arch.layers[0].mixer
    assert isinstance(mixer, LatentAttention)
    assert mixer.indexer is not None
    assert (mixer.indexer.pool, mixer.indexer.idle_tokens()) == (16, 2063)
    # 2 norms of 64, those of the latents, and of the indexer a norm, gates 64 x 8 and 16 places x 8.
    assert arch.layers[0].other_elements == 2 * 64 + 24 + 16 + 2 * 8 + 64 * 8 + 16 * 8


def test_latent_attention_in_a_window_has_sizes_of_its_own() -> None:
    own = {
        "layer_types": ["full_attention", "sliding_attention"], "sliding_window_size": 128, "swa_q_lora_rank": 12,
        "swa_kv_lora_rank": 8, "swa_qk_nope_head_dim": 6, "swa_qk_rope_head_dim": 2, "swa_v_head_dim": 6,
        "swa_num_attention_heads": 2,
    }  # fmt: skip
    arch = arch_from_config({**MLA, **own})
    assert arch.layers[1].mixer == LatentAttention(2, 12, 8, 6, 2, 6, window_tokens=128)
    assert arch.unknown == ()
    gated = arch_from_config({**MLA, **own, "attention_gate_type": "headwise"})
    assert gated.unknown == (
        "config field 'attention_gate_type' says a gate on the output of attention, which is not counted",
    )


def test_attention_that_chooses_means_of_tokens() -> None:
    """Qwen4: 4 tokens share an index key, 2048 tokens are chosen."""
    arch = arch_from_config({
        "model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "head_dim": 16,
        "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 100, "hidden_act": "silu",
        "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 2048,
        "indexer_compress_ratio": 4,
    })  # fmt: skip
    mixer = arch.layers[0].mixer
    assert isinstance(mixer, Attention)
    assert mixer.indexer is not None
    assert (mixer.indexer.top_k, mixer.indexer.pool, arch.unknown) == (2048, 4, ())


def test_an_indexer_that_no_layer_has_is_named() -> None:
    plain = {key: value for key, value in MLA.items() if key != "kv_lora_rank"}
    arch = arch_from_config({**plain, "head_dim": 16, "index_topk": 2048})
    assert arch.unknown == (
        "config field index_topk says that attention reads chosen tokens, and it is counted over all of them",
    )


def test_layers_that_run_several_times_are_refused() -> None:
    with pytest.raises(RooflensError, match="H_cycles says that layers run several times a pass"):
        arch_from_config({**MLA, "H_cycles": 2})
