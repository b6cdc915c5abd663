"""Write models.jsonl: configurations of transformers' classes and the weights that the models made from them have.

Run with a Python that has torch and transformers, from anywhere: ``python record.py``. Every model is made on the meta
device from its class's default configuration, and a second time with other widths and counts, and its parameters are
counted once each. No weights are read and nothing is fetched.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

FILE = Path(__file__).with_name("models.jsonl")
SECONDS = 60  # for one model
MAPPINGS = (
    modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
)
OTHER_SIZES = {
    "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 2,
    "intermediate_size": 768, "vocab_size": 1000, "head_dim": 96, "moe_intermediate_size": 160, "num_experts": 12,
    "num_local_experts": 12, "n_routed_experts": 12, "kv_lora_rank": 64, "shared_expert_intermediate_size": 224,
    "shared_intermediate_size": 224, "d_model": 512, "d_ff": 768, "num_layers": 6, "num_heads": 8,
    "n_group": 1, "topk_group": 1,
}  # fmt: skip
TOWER = ("vision", "visual", "audio", "multi_modal", "connector", "merger", "vpm", "resampler", "embed_vision")
NOISE = re.compile(
    r"id2label|label2id|.*token_id|.*token_index|.*dropout.*|initializer.*|rope_.*|rotary.*|_name_or_path|output_.*|"
    r"return_dict|transformers_version|use_cache|chunk_size_feed_forward|problem_type|architectures|.*_coef|dtype|"
    r"time_step_limit|supported_aspect_ratios|suppress_tokens|begin_suppress_tokens"
)


def stripped(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields without those that say nothing of a shape, and without nulls."""
    return {
        key: stripped(value) if isinstance(value, dict) else value
        for key, value in config.items()
        if value is not None and not NOISE.fullmatch(key)
    }


def counted(cls: Any, config: Any) -> dict[str, Any]:
    with torch.device("meta"):
        model = cls(config)
    seen = {id(p): (name, p.numel()) for name, p in model.named_parameters(remove_duplicate=False)}
    towers = sum(count for name, count in seen.values() if any(part in name for part in TOWER))
    return {"elements": sum(count for _, count in seen.values()), "tower_elements": towers}


def variants(kind: str) -> Iterator[tuple[str, Any]]:
    """The default configuration and one of other sizes."""
    cls = CONFIG_MAPPING[kind]
    default = cls()
    yield "default", default
    there = default.to_dict()
    changed = {k: v for k, v in OTHER_SIZES.items() if isinstance(there.get(k), int) and there[k] > 1}
    if changed:
        yield "other sizes", cls(**changed)


def record(kind: str, name: str) -> Iterator[dict[str, Any]]:
    for variant, config in variants(kind):
        row = {"model_type": kind, "class": name, "variant": variant}
        fields = stripped(json.loads(config.to_json_string(use_diff=False)))
        yield {**row, **counted(getattr(transformers, name), config), "config": fields}


def stop(*_: Any) -> None:
    raise TimeoutError


def main() -> None:
    warnings.filterwarnings("ignore")
    signal.signal(signal.SIGALRM, stop)
    done: set[str] = set()
    with FILE.open("w", encoding="utf-8") as out:
        for mapping in MAPPINGS:
            for kind, names in mapping.items():
                name = names if isinstance(names, str) else names[0]
                if kind in done or kind not in CONFIG_MAPPING:
                    continue
                done.add(kind)
                signal.alarm(SECONDS)
                try:
                    for row in record(kind, name):
                        out.write(json.dumps(row, separators=(",", ":")) + "\n")
                except Exception as error:  # a class that cannot be made from its defaults
                    print(kind, type(error).__name__, str(error)[:80].replace("\n", " "), file=sys.stderr)
                signal.alarm(0)


if __name__ == "__main__":
    main()
