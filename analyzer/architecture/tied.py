"""Whether a model's head is its embedding where the file does not say: by the defaults of its declared type.

Files hold only what differs from the defaults of the type's configuration class. Source of both lists: the classes of
transformers 5.19, tie_word_embeddings.
"""

from __future__ import annotations

TIED_BY_DEFAULT = frozenset((
    "bart", "bigbird_pegasus", "biogpt", "blenderbot", "blenderbot-small", "bloom", "cohere", "cohere2",
    "cohere2_moe", "ctrl", "ernie4_5", "ernie4_5_moe", "ernie4_5_vl_moe_text", "falcon", "falcon_mamba", "gemma",
    "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text", "gemma4", "gemma4_text", "gemma4_unified_text",
    "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox_japanese", "granite_swa", "hunyuan_vl_text", "jetmoe", "led",
    "lfm2", "lfm2_moe", "longt5", "m2m_100", "mamba", "marian", "mbart", "minicpm3", "modernbert-decoder",
    "moonshine", "mpt", "mt5", "mvp", "nllb-moe", "opt", "paddleocr_vl_text", "paligemma", "pegasus", "pegasus_x",
    "plbart", "prophetnet", "qwen3_vl_moe_text", "recurrent_gemma", "smollm3", "speech_to_text", "starcoder2",
    "switch_transformers", "t5", "t5gemma", "t5gemma2", "t5gemma2_text", "umt5", "vaultgemma",
    "voxtral_realtime_text", "whisper", "xglm", "xlnet", "youtu", "zamba", "zamba2", "zaya",
))  # fmt: skip
UNTIED_BY_DEFAULT = frozenset((
    "afmoe", "apertus", "arcee", "aria_text", "baichuan", "bamba", "bitnet", "chatglm", "codegen", "cwm", "dbrx",
    "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4", "diffllama", "doge", "dots1", "exaone4",
    "exaone_moe", "falcon_h1", "flex_olmo", "fuyu", "glm", "glm4", "glm4_moe", "glm4_moe_lite", "glm4v_moe_text",
    "glm_moe_dsa", "gpt_neox", "gpt_oss", "gptj", "granite", "granitemoe", "granitemoehybrid", "granitemoeshared",
    "grok-1", "helium", "hunyuan_v1_dense", "hunyuan_v1_moe", "internlm", "internlm2", "internlm3", "jais2",
    "jamba", "kimi_k2", "kimi_linear", "llama", "llama4_text", "longcat_flash", "mamba2", "mimo", "mimo_v2_flash",
    "minimax", "minimax_m1", "minimax_m2", "minimax_m3_vl_text", "minimax_text_01", "ministral", "ministral3",
    "mistral", "mistral4", "mixtral", "mllama_text_model", "moshi", "nemotron", "nemotron-nas", "nemotron_h",
    "olmo", "olmo2", "olmo3", "olmo_hybrid", "olmoe", "persimmon", "phi", "phi3", "phi4_multimodal", "phimoe",
    "qwen", "qwen2", "qwen2_moe", "qwen3", "qwen2_5_vl", "qwen2_vl", "step3_text", "step3p7", "arctic", "hunyuan",
    "minimax_m3", "bailing_moe", "bailing_moe_v2", "bailing_moe_linear", "exaone", "qwen3_5_moe_text",
    "qwen3_5_text", "qwen3_moe", "qwen3_next", "qwen3_vl_text", "rwkv", "seed_oss", "solar_open", "stablelm",
    "step3p5", "xlstm",
))  # fmt: skip
