"""What a model's ``quantization_config`` or ``hf_quant_config.json`` says, as the formats of its modules.

The number of bits, the type, the group size and the activations decide, never a method's name where it leaves them
open. Methods are read in quantization_methods.py; here is what they share: ignored modules and the KV cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from rooflens.analyzer.number_formats import COMMON, KV_FORMATS, WEIGHT_FORMATS, normalise
from rooflens.analyzer.quantization_methods import METHODS, modelopt, schemes
from rooflens.analyzer.quantization_schemes import IGNORED, Read, integer, names, refused, text
from rooflens.arch_records import FormatRule, Quantization, StoredFormat
from rooflens.records import RooflensError

SAME_METHOD = {
    "awq_marlin": "awq", "gptq_marlin": "gptq", "auto_gptq": "gptq", "gptq_bitblas": "gptq", "moe_wna16": "gptq",
    "modelopt_fp4": "modelopt", "modelopt_fp8": "modelopt", "modelopt_mixed": "modelopt", "compressed_tensors":
    "compressed-tensors", "intel/auto-round": "auto-round", "auto_round": "auto-round", "inc": "auto-round",
    "deepseek_v4_fp8": "fp8", "gpt_oss_mxfp4": "mxfp4", "bnb": "bitsandbytes",
}  # fmt: skip
# Methods whose name alone says what is stored.
FIXED_METHODS = ("fp8", "mxfp4", "mxfp8", "nvfp4", "fbgemm_fp8", "ptpc_fp8", "experts_int8", "eetq", "bitnet")
CHOICES = "|".join(name for name in COMMON if name in WEIGHT_FORMATS)
EXPERT_FORMATS: Mapping[str, StoredFormat] = {
    "fp4": StoredFormat("mxfp4", 0.5 + 1 / 32),  # DeepSeek V4: an e8m0 scale for 32 elements
    "mxfp4": StoredFormat("mxfp4", 0.5 + 1 / 32),
    "nvfp4": StoredFormat("nvfp4", 0.5 + 1 / 16),
}


def quantization_of(stated: Any, fields: Mapping[str, Any]) -> Quantization:
    """The formats that ``stated`` (a config's quantization_config) gives; ``fields`` are the config's own.

    Raises RooflensError, one line that names what is not understood and the option to say instead; nothing else.
    """
    if isinstance(stated, dict) and isinstance(stated.get("quantization"), dict):  # hf_quant_config.json as it stands
        stated = stated["quantization"]
    if not isinstance(stated, dict):
        raise RooflensError("quantization_config is not an object: say --weights and --kv")
    method = text(stated, "quant_method").lower() or ("modelopt" if "quant_algo" in stated else "")
    method = SAME_METHOD.get(method, method)
    read = _read(method, stated, fields)
    kept = tuple(FormatRule(name, None) for name in names(stated, IGNORED))
    experts = EXPERT_FORMATS.get(text(fields, "expert_dtype").lower())
    own = (FormatRule("experts", experts),) if experts and method == "fp8" else ()
    ignored = () if read.keeps_ignored else kept
    return Quantization(method or "unnamed", read.default, (*ignored, *read.rules, *own), _kv(stated))


def _read(method: str, stated: Mapping[str, Any], fields: Mapping[str, Any]) -> Read:
    _refuse_sparse(stated)
    if method == "fp8" and text(stated, "quant_algo"):  # quantised again: what modelopt ignores stays as it was
        return Read(METHODS["fp8"](stated, fields).default, modelopt(stated, fields).rules, keeps_ignored=True)
    if isinstance(stated.get("config_groups"), dict) or isinstance(stated.get("weights"), dict):
        return schemes(stated, fields)
    reader = METHODS.get(method) or (METHODS["gptq"] if not method and integer(stated, "bits") else None)
    if reader is None:
        raise RooflensError(f"quantization_config of method {method[:40]!r} is not understood: say --weights {CHOICES}")
    return reader(stated, fields)


def _refuse_sparse(stated: Mapping[str, Any]) -> None:
    sparsity = stated.get("sparsity_config")
    form = text(sparsity, "format") if isinstance(sparsity, dict) else ""
    if form and form != "dense":
        raise RooflensError(f"quantization_config is sparse ({form[:40]!r}), which is not modelled yet: say --weights")


def _kv(stated: Mapping[str, Any]) -> str | None:
    """The KV cache's format; a scale for the tensor or for each head, as files give them, costs no bytes a token.

    RooflensError where two fields say different ones.
    """
    said = {"kv_cache_scheme": _kv_scheme(stated.get("kv_cache_scheme"))}
    said |= {key: _kv_word(key, stated.get(key)) for key in ("kv_cache_quant_algo", "kv_cache_dtype")}
    said["kv_cache_quant_config"] = _quark_kv(stated)
    found = {key: name for key, name in said.items() if name is not None}
    if len(set(found.values())) > 1:
        (first, one), (second, other) = next(p for p in itertools.pairwise(found.items()) if p[0][1] != p[1][1])
        raise RooflensError(f"quantization_config.{first} says {one} and {second} says {other}: say --kv")
    return next(iter(found.values()), None)


def _kv_scheme(scheme: Any) -> str | None:
    if not isinstance(scheme, dict):
        return _kv_word("kv_cache_scheme", scheme)
    bits, kind = integer(scheme, "num_bits"), text(scheme, "type").lower() or "float"
    found = {(8, "float"): "fp8", (8, "int"): "int8", (4, "float"): "nvfp4"}.get((bits or 0, kind))
    if found is None:
        raise refused("kv_cache_scheme", f"{bits} bits of {kind}")
    return found


def _kv_word(key: str, word: Any) -> str | None:
    """A format in one word; None where it says that there is none of its own."""
    if word is None or (isinstance(word, str) and word.lower() in ("", "none", "auto", "no_quant")):
        return None
    name = normalise(word) if isinstance(word, str) else ""
    if name not in KV_FORMATS:
        raise refused(key, word)
    return name


def _quark_kv(stated: Mapping[str, Any]) -> str | None:
    """Quark describes the outputs of k_proj and v_proj."""
    described = stated.get("kv_cache_quant_config")
    for part in described.values() if isinstance(described, dict) else ():
        output = part.get("output_tensors") if isinstance(part, dict) else None
        if isinstance(output, dict):
            name = normalise(text(output, "dtype"))
            if name not in KV_FORMATS:
                raise refused("kv_cache_quant_config", name)
            return name
    return None
