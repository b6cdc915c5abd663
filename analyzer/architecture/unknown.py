"""Fields that look as if they changed a model's shape and that nothing here reads: named, never passed over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rooflens.analyzer.config_fields import SIZES

# Words in the name of a field that may say something of the shape of a model.
SHAPE = re.compile(
    r"(^|_)(n|num|layers?|heads?|experts?|moe|mlp|ffn?|ff|attn|attention|mamba\d?|ssm|conv|window|sparse|index|indexer|"
    r"compress\w*|shar\w+|mtp|nextn|lora|latent|groups?|blocks?|hidden|width|depth|dims?|rank|size|embed\w*|vocab|"
    r"patterns?|memory|state|recurrent|kernel|topk|router|engram|ngram|adapter|stream|loop\w*|recur\w*|expansion)(_|$)",
    re.IGNORECASE,
)
# Of those, what costs nothing that the counts would notice: training, numerics, generation, labels, kernels' choices.
HARMLESS = re.compile(
    r".*(rope|rotary|theta|dropout|drop_rate|initializer|_init|init_|_eps|epsilon|token_id|token_ids|token_index|tokens?$|"
    r"_act$|_act_fn|activation|_coef|coeff|_loss|temperature|scal(e|ing)|multiplier|dtype|_bias$|bias_|norm|softcap|"
    r"clip|logit|_impl|implementation|flash|fused|fusion|checkpoint|output_|return_|bos_|eos_|pad_|tp_plan|_limit|"
    r"_alpha|_beta|_gamma|gate_fn|score_func|scoring|interleave$|precision|jitter|quant|overlap|_fn$|_type$|_mode$|"
    r"pooler|decoder_start|unk_|sep_|cls_|mask_|_std$|_factor$|time_step_(min|max|floor|limit)|residual_in|upcast|"
    r"reorder|sandwich|hash_layers|max_length|min_length|max_position|original_max|_value_scale|_method$|cache_"
    r"|truncate|position_bucket|max_distance|_prenorm|causal|bidirectional|_dense_output|image_|video_|audio_"
    r"|vision_|swiglu|_kernels?$|use_kernel|fp32|_scalar$|keep_window|max_attn_value|logn_attn|use_mlp$|num_media_embeds|mixed_mlp|moe_capacity|aux_free|"
    r"filter_width|classifier_proj|grouped_topk|conv_dim|token_type|for_mtp|correct|sinkhorn|exit_|lm_head|unembed|_pdrop).*",
    re.IGNORECASE,
)
NEVER_HARMLESS = ("gated_norm_rank",)  # a low-rank gate on each norm (A.X K2)
ELSEWHERE = re.compile(
    r"_.*|architectures|auto_map|id2label|label2id|num_labels|problem_type|chunk_size_feed_forward|pretraining_tp|ep_size|"
    r"num_beams|num_beam_groups|num_return_sequences|.*no_repeat_ngram_size|top_k|top_p|typical_p|pruned_heads|prefix|"
    r"task_specific_params|tokenizer_class|torchscript|.*_logits_to_keep|num_logits_to_keep|n_ctx|dim_model_base|is_decoder|chunk_size|"
    r"mamba_chunk_size|scale_attn_.*|summary_.*|gradient_checkpointing|model_max_length|seq_len|seq_length|base_model.*|"
    r"attention_probs.*|attn_config|ffn_config|base_model_tp_plan|dense_attention_every_n_layers|num_attention_chunks|"
    r"max_window_layers|use_sliding_window.*|index_local_blocks|index_share_for_mtp_iteration|training.*|vision_feature_layer|sub_configs|"
    r"tie_.*|use_cache|generation_.*|cross_attention_hidden_size|add_cross_attention|is_encoder_decoder|"
    r"parallel_attn|new_decoder_architecture|use_parallel_residual|multi_query.*|alibi|no_bias|model_type"
)
# What analyzer/architecture reads, beside the sizes of config_fields.
READ = frozenset((
    "num_query_heads", "n_head_kv", "n_heads", "kv_n_heads", "d_kv", "head_size", "v_head_dim", "qk_head_dim",
    "decoder_attention_heads", "encoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim", "encoder_layers",
    "decoder_layers", "num_decoder_layers", "num_encoder_layers", "d_ff", "vocab_size_per_layer_input",
    "sliding_window", "sliding_window_size", "attention_window_size", "local_attention_window", "window_size",
    "local_attention", "attention_chunk_size", "attn_chunk_size", "no_rope_layers", "no_rope_layer_interval",
    "attention_types", "attention_layers", "global_attn_every_n_layers", "sliding_window_pattern",
    "swa_num_attention_heads", "swa_num_key_value_heads", "swa_head_dim", "swa_v_head_dim", "hybrid_layer_pattern",
    "global_head_dim", "num_global_key_value_heads", "attention_k_eq_v", "attn_output_gate", "layer_types",
    "attn_type_list", "layers_block_type", "hybrid_override_pattern", "attn_layer_period", "attn_layer_offset",
    "attn_layer_indices", "full_attention_interval", "layer_group_size", "full_attn_idxs", "block_configs",
    "per_layer_config", "cross_attention_layers", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim",
    "qk_rope_head_dim", "o_lora_rank", "o_groups", "compress_ratios", "compress_rates", "hc_mult",
    "num_kv_shared_layers", "use_cla", "cla_share_factor", "use_double_wide_mlp", "hidden_size_per_layer_input",
    "altup_num_inputs", "altup_active_idx", "laurel_rank", "num_experts", "num_local_experts", "n_routed_experts",
    "moe_num_experts", "num_routed_experts", "n_experts", "num_experts_per_tok", "num_experts_per_token",
    "top_k_experts", "moe_topk", "moe_top_k", "moe_k", "num_selected_experts", "experts_per_token",
    "num_activated_experts", "moe_intermediate_size", "moe_latent_size", "expert_ffn_hidden_size",
    "moe_ffn_hidden_size", "expert_intermediate_size", "moe_expert_intermediate_size", "expert_hidden_size",
    "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "share_expert_dim",
    "shared_intermediate_size", "n_shared_experts", "num_shared_experts", "moe_num_shared_experts",
    "num_shared_expert", "intermediate_size_mlp", "dense_intermediate_size", "prefix_dense_intermediate_size",
    "n_group", "topk_group", "num_expert_group", "n_expert_groups", "n_limited_groups", "enable_moe_block",
    "parallel_attn_mlp_res", "residual_moe", "num_attention_groups", "num_sliding_attention_heads", "n_embed",
    "first_k_dense_replace", "num_dense_layers", "moe_layer_num_skipped", "n_dense_layers", "mlp_layer_types",
    "moe_layer_freq", "moe_layer_start_index", "moe_layer_end_index", "moe_layer_interval", "moe_layers",
    "moe_layers_enum", "interleave_moe_layer_step", "decoder_sparse_step", "mlp_only_layers", "expert_layer_period",
    "expert_layer_offset", "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers",
    "mtp_transformer_layers", "mtp_hybrid_override_pattern", "mtp_layers_block_type",
    "mtp_use_dedicated_embeddings", "use_mtp", "mlp_gated", "gated_mlp", "use_gated_mlp", "expansion_ratio",
    "block_auto_adjust_ff_dim", "block_ffn_dim_multiplier", "block_multiple_of", "block_ff_dim", "block_dim",
    "mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "mamba_head_dim", "mamba_d_head", "mamba_d_state",
    "mamba_d_conv", "mamba_d_ssm", "mamba_expand", "mamba_n_groups", "mamba_ngroups", "mamba_dt_rank", "n_groups",
    "ssm_state_size", "state_size", "conv_kernel", "conv_kernel_size", "conv_L_cache", "time_step_rank",
    "linear_num_value_heads", "linear_num_key_heads", "linear_key_head_dim", "linear_value_head_dim",
    "linear_conv_kernel_dim", "linear_attn_config", "linear_num_heads", "linear_head_dim", "block_size",
    "relative_attention_num_buckets", "num_attention_heads_per_layer", "intermediate_multiple_size", "qk_layernorm",
    "use_head_wise_attn_gate", "attention_window", "sparse_attention_config", "encoder", "decoder",
    "word_embed_proj_dim", "embedding_size", "input_embedding_size", "n_positions", "max_target_positions",
    "max_source_positions", "num_mel_bins", "num_hash_layers", "full_attn_layers", 
    "routed_expert_hidden_size", "attn_res_block_size", "index_topk", "index_n_heads", "index_head_dim", "index_kpool",
    "index_block_size", "index_topk_blocks", "index_topk_freq", "index_skip_topk_offset", "index_topk_pattern",
    "index_kpool_always_select_tail", "indexer_types", "indexer_budget", "indexer_n_heads", "indexer_kv_heads",
    "indexer_head_dim", "indexer_compress_ratio", "swa_q_lora_rank", "swa_kv_lora_rank", "swa_qk_nope_head_dim",
    "swa_qk_rope_head_dim", "zero_expert_num", "num_ln_in_parallel_attn",
))  # fmt: skip
SIZE_NAMES = frozenset(name for names, _ in SIZES.values() for name in names)


def unknown_fields(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """A sentence for each field that looks architectural, is set, and is read by nothing here."""
    return tuple(
        f"config field {name[:60]!r} is not understood and not counted"
        for name, value in fields.items()
        if isinstance(name, str) and _looks_like_shape(name) and _is_set(value)
    )


def _looks_like_shape(name: str) -> bool:
    if name in READ or name in SIZE_NAMES:
        return False
    if name in NEVER_HARMLESS:
        return True
    return bool(SHAPE.search(name)) and not HARMLESS.fullmatch(name) and not ELSEWHERE.fullmatch(name)


def _is_set(value: Any) -> bool:
    """Numbers above 1, true, lists and objects; a word alone gives no size."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value > 1
    return isinstance(value, list | dict) and bool(value)
