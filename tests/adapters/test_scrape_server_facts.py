"""What servers say of themselves, as facts: shapes as the engines' own handlers write them, cut to what matters."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.adapters.scrape.server_facts import ASKED, facts_from
from rooflens.info_fields import fits

# vLLM 0.32 (vllm/entrypoints/openai/models/protocol.py), an organisation in the name.
VLLM = {
    "/v1/models": {
        "object": "list",
        "data": [{
            "id": "meta-llama/Llama-3.1-8B-Instruct", "object": "model", "created": 1764000000, "owned_by": "vllm",
            "root": "/models/Meta-Llama-3.1-8B", "parent": None, "max_model_len": 8192,
        }],
    },
    "/version": {"version": "0.32.0"},
}  # fmt: skip
# SGLang 0.5.x (srt/entrypoints/http_server.py: the server's arguments, then internal_states, then version).
SGLANG = {
    "/get_server_info": {
        "model_path": "/data/models/Qwen3-8B", "served_model_name": "Qwen/Qwen3-8B", "dtype": "auto",
        "quantization": "fp8", "kv_cache_dtype": "fp8_e4m3", "tp_size": 2, "dp_size": 1, "pp_size": 1, "page_size": 16,
        "max_running_requests": 256, "context_length": None, "chunked_prefill_size": 8192,
        "attention_backend": "fa3", "speculative_algorithm": None, "tokenizer_path": "/data/models/Qwen3-8B",
        "api_key": "secret", "internal_states": [{"max_total_num_tokens": 2_980_160, "last_gen_throughput": 0.0}],
        "version": "0.5.9",
    },
}  # fmt: skip
# llama.cpp b8681 (tools/server/server.cpp, /props).
LLAMA_CPP = {
    "/props": {
        "default_generation_settings": {"n_ctx": 65536}, "total_slots": 4,
        "model_alias": "unsloth/Qwen3.6-35B-A3B-GGUF", "model_path": "/models/x.gguf", "build_info": "b8681-Debian",
    },
}  # fmt: skip
TGI = {
    "/info": {
        "model_id": "bigscience/bloom", "model_dtype": "torch.float16", "model_device_type": "cuda",
        "max_concurrent_requests": 128, "max_total_tokens": 2048, "max_batch_total_tokens": 32000, "version": "3.0.1",
    },
}  # fmt: skip


def told(answers: dict[str, Any], engine: str) -> dict[str, Any]:
    return facts_from({path: json.dumps(answer) for path, answer in answers.items()}, engine)


def test_each_engine_by_its_own_pages() -> None:
    assert told(VLLM, "vllm") == {
        "model_name": "Llama-3.1-8B-Instruct", "base_model_name": "Meta-Llama-3.1-8B", "max_context_tokens": 8192,
        "engine_version": "0.32.0",
    }  # fmt: skip
    assert told(SGLANG, "sglang") == {
        "model_name": "Qwen3-8B", "engine_version": "0.5.9", "quantization": "fp8", "kv_dtype": "fp8_e4m3",
        "tensor_parallel": 2, "data_parallel": 1, "pipeline_parallel": 1, "max_sequences": 256,
        "max_batched_tokens": 8192, "block_tokens": 16, "attention_backend": "fa3", "kv_blocks": 186_260,
    }  # fmt: skip
    assert told(LLAMA_CPP, "llama.cpp") == {
        "model_name": "Qwen3.6-35B-A3B-GGUF", "engine_version": "b8681-Debian", "max_sequences": 4,
        "max_context_tokens": 65536,
    }  # fmt: skip
    assert told(TGI, "tgi")["weight_dtype"] == "torch.float16"
    assert told(TGI, "tgi")["model_name"] == "bloom"


def test_a_model_that_only_its_file_names() -> None:
    answer = {"/props": {"model_path": "C:\\models\\gemma-3-4b-Q4_K_M.gguf", "total_slots": 1}}
    assert told(answer, "llama.cpp") == {"model_name": "gemma-3-4b-Q4_K_M", "max_sequences": 1}


def test_neither_a_path_nor_a_secret_is_kept() -> None:
    text = json.dumps([told(answers, engine) for engine, answers in (("vllm", VLLM), ("sglang", SGLANG))])
    assert not any(word in text for word in ("/", "secret", "models"))


@pytest.mark.parametrize(
    "answer", ["", "no JSON", "[" * 100_000, "NaN", '"' + "a" * (2 << 20) + '"', "[]", "{}", "1e999"]
)
def test_anything_else_tells_nothing(answer: str) -> None:
    for engine, paths in ASKED.items():
        assert facts_from(dict.fromkeys(paths, answer), engine) == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
KEYS = ("data", "id", "max_model_len", "version", "internal_states", "max_total_num_tokens", "page_size", "tp_size")


@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6), st.sampled_from(sorted(ASKED)))
def test_whatever_stands_there_what_comes_out_fits(answer: dict[str, Any], engine: str) -> None:
    from rooflens.adapters.scrape.server_facts import _ANNOTATIONS

    text = json.dumps(answer)
    for name, value in facts_from(dict.fromkeys(ASKED[engine], text), engine).items():
        assert fits(name, _ANNOTATIONS[name], value)
