"""Headers of weight files: what the real libraries write is read to the byte, what lies is one line."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rooflens.analyzer.arch import arch_from_config
from rooflens.analyzer.ggml_types import GGML_TYPES
from rooflens.analyzer.gguf_header import gguf_header
from rooflens.analyzer.gguf_model import gguf_config
from rooflens.analyzer.operators import works
from rooflens.analyzer.precision import GROUPS, choose_precision
from rooflens.analyzer.safetensors_header import DTYPE_BITS, safetensors_header
from rooflens.analyzer.tensor_files import group_bytes, precision_from_files, read_tensors, weight_files
from rooflens.analyzer.tensor_groups import group_of
from rooflens.analyzer.tensor_table import Tensor
from rooflens.analyzer.work import resident_bytes
from rooflens.arch_records import DenseMLP, MixtureOfExperts, ModelArch
from rooflens.records import RooflensError

SMALL = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 256, "hidden_act": "silu",
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA_MATRICES = {
    "self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64),
    "self_attn.o_proj": (64, 64), "mlp.gate_proj": (128, 64), "mlp.up_proj": (128, 64), "mlp.down_proj": (64, 128),
}  # fmt: skip
Listed = Mapping[str, tuple[str, tuple[int, ...]]]


def write(path: Path, tensors: Listed, metadata: dict[str, str] | None = None) -> Path:
    """A safetensors file of these types and shapes, its data a hole."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = int(np.prod(shape, dtype=object)) * DTYPE_BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw)
    os.truncate(path, 8 + len(raw) + at)
    return path


def llama(dtype: str = "BF16") -> dict[str, tuple[str, tuple[int, ...]]]:
    found: dict[str, tuple[str, tuple[int, ...]]] = {"model.embed_tokens.weight": ("BF16", (256, 64))}
    found |= {"lm_head.weight": ("BF16", (256, 64)), "model.norm.weight": ("BF16", (64,))}
    for layer in range(2):
        for name, shape in LLAMA_MATRICES.items():
            found[f"model.layers.{layer}.{name}.weight"] = (dtype, shape)
        found[f"model.layers.{layer}.input_layernorm.weight"] = ("BF16", (64,))
    return found


def arch(**change: Any) -> ModelArch:
    return arch_from_config({**SMALL, **change})


def test_what_safetensors_writes_is_read(tmp_path: Path) -> None:
    numpy_file = pytest.importorskip("safetensors.numpy")
    library = pytest.importorskip("safetensors")
    path = tmp_path / "model.safetensors"
    made = {
        "model.embed_tokens.weight": np.zeros((256, 64), np.float16),
        "model.layers.0.mlp.up_proj.weight": np.zeros((128, 64), np.int8),
        "model.layers.0.mlp.up_proj.weight_scale": np.zeros((128, 1), np.float32),
        "a.scalar": np.zeros((), np.float64),
        "an.empty": np.zeros((0, 7), np.uint8),
    }
    numpy_file.save_file(made, path, {"format": "pt"})
    found = {tensor.name: tensor for tensor in safetensors_header(path)}
    with library.safe_open(path, "np") as theirs:
        assert set(found) == set(theirs.keys())
        for name in theirs.keys():  # noqa: SIM118 - no dict
            held = theirs.get_slice(name)
            assert (list(found[name].shape), found[name].dtype) == (held.get_shape(), held.get_dtype())
            assert found[name].size_bytes == made[name].nbytes


def test_what_gguf_writes_is_read(tmp_path: Path) -> None:
    library = pytest.importorskip("gguf")
    path = tmp_path / "model.gguf"
    writer = library.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_array("tokenizer.ggml.tokens", ["a", "bb", ""])
    writer.add_array("numbers", [1, 2, 3])
    writer.add_float32("some.float", 0.5)
    writer.add_string("general.name", "a name")
    kinds = library.GGMLQuantizationType
    for number, kind in enumerate(
        (kinds.Q4_0, kinds.Q8_0, kinds.Q4_K, kinds.Q6_K, kinds.BF16, kinds.IQ4_XS, kinds.F32)
    ):
        block, size = library.constants.GGML_QUANT_SIZES[kind]
        data = np.zeros((6, 512 // block * size), np.uint8)
        writer.add_tensor(f"blk.{number}.ffn_up.weight", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = gguf_header(path)
    theirs = library.GGUFReader(path)
    assert (header.version, header.metadata["llama.block_count"], header.metadata["general.name"]) == (3, 2, "a name")
    assert header.lengths == {"tokenizer.ggml.tokens": 3, "numbers": 3}
    assert len(header.tensors) == 7
    for ours, other in zip(header.tensors, theirs.tensors, strict=True):
        assert (ours.name, list(reversed(ours.shape))) == (other.name, [int(n) for n in other.shape])
        assert (ours.size_bytes, ours.elements) == (int(other.n_bytes), int(other.n_elements))
        assert ours.dtype == {"f32": "fp32"}.get(other.tensor_type.name.lower(), other.tensor_type.name.lower())


def test_a_plain_model_is_what_the_config_says(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", llama(), {"format": "pt"})
    found = precision_from_files(arch(), tmp_path)
    assert (found.weights, found.head, found.kv) == ("bf16", "bf16", "bf16")
    assert resident_bytes(works(arch(), found)) == resident_bytes(works(arch(), choose_precision(arch())))
    # Attention 12,288 a layer, MLP 24,576, norms apart.
    held = group_bytes(read_tensors(tmp_path))
    assert {name: part.size_bytes for name, part in held.items()} == {
        "embedding": 32768, "head": 32768, "attention": 2 * 2 * 12288, "mlp": 2 * 2 * 24576, "other": 3 * 128,
    }  # fmt: skip


def test_scales_of_block_fp8_count_with_their_weights(tmp_path: Path) -> None:
    tensors = llama("F8_E4M3")
    for name, (dtype, _) in list(tensors.items()):
        if dtype == "F8_E4M3":
            tensors[name + "_scale_inv"] = ("F32", (1, 1))
    write(tmp_path / "model.safetensors", tensors)
    found = precision_from_files(arch(), tmp_path)
    (attention,) = found.parts("attention")
    # Four matrices of 12,288 elements in all, each with a scale of four bytes.
    assert (attention.name, attention.bytes_per_element) == ("fp8", pytest.approx(1 + 4 * 4 / 12288))
    assert found.parts("head")[0].name == "bf16"


def packed(kind: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """One matrix of 128 outputs x 256 inputs as each method stores it."""
    forms: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = {
        "nvfp4": {"weight": ("U8", (128, 128)), "weight_scale": ("F8_E4M3", (128, 16)), "weight_scale_2": ("F32", ()),
                  "input_scale": ("F32", ())},
        "compressed nvfp4": {"weight_packed": ("U8", (128, 128)), "weight_scale": ("F8_E4M3", (128, 16)),
                             "weight_global_scale": ("F32", (1,))},
        "mxfp4": {"weight": ("I8", (128, 128)), "scale": ("F8_E8M0", (128, 8))},
        "gptq": {"qweight": ("I32", (32, 128)), "qzeros": ("I32", (2, 16)), "scales": ("F16", (2, 128)),
                 "g_idx": ("I32", (256,))},
        "gptq 8": {"qweight": ("I32", (64, 128)), "qzeros": ("I32", (2, 32)), "scales": ("F16", (2, 128)),
                   "g_idx": ("I32", (256,))},
        "awq": {"qweight": ("I32", (256, 16)), "qzeros": ("I32", (2, 16)), "scales": ("F16", (2, 128))},
        "packed int4": {"weight_packed": ("I32", (128, 32)), "weight_scale": ("BF16", (128, 2)),
                        "weight_shape": ("I64", (2,))},
        "packed int8": {"weight_packed": ("I32", (128, 64)), "weight_scale": ("BF16", (128, 2)),
                        "weight_shape": ("I64", (2,))},
        "nf4": {"weight": ("U8", (16384, 1)), "weight.absmax": ("F32", (512,)), "weight.quant_map": ("F32", (16,)),
                "weight.quant_state.bitsandbytes__nf4": ("U8", (80,))},
        "int8": {"weight": ("I8", (128, 256)), "weight_scale": ("F32", (128, 1))},
        "fp8": {"weight": ("F8_E4M3", (128, 256)), "weight_scale": ("F32", (128, 1)), "input_scale": ("F32", ())},
    }  # fmt: skip
    return {f"model.layers.0.mlp.up_proj.{leaf}": stored for leaf, stored in forms[kind].items()}


@pytest.mark.parametrize(
    ("kind", "name", "size"),
    [
        ("nvfp4", "nvfp4", 16384 + 2048 + 8),
        ("compressed nvfp4", "nvfp4", 16384 + 2048 + 4),
        ("mxfp4", "mxfp4", 16384 + 1024),
        ("gptq", "int4", 16384 + 128 + 512 + 1024),  # words, zero points, scales, order
        ("gptq 8", "int8-weights", 32768 + 256 + 512 + 1024),
        ("awq", "int4", 16384 + 128 + 512),
        ("packed int4", "int4", 16384 + 512 + 16),
        ("packed int8", "int8-weights", 32768 + 512 + 16),
        ("nf4", "nf4", 16384 + 2048 + 64 + 80),
        ("int8", "int8", 32768 + 512),
        ("fp8", "fp8", 32768 + 512 + 4),
    ],
)
def test_packed_weights_are_unpacked_by_their_scales(tmp_path: Path, kind: str, name: str, size: int) -> None:
    write(tmp_path / "model.safetensors", packed(kind))
    part = group_bytes(read_tensors(tmp_path))["mlp"]
    assert dict(part.formats) == {name: (128 * 256, size)}


def test_gpt_oss_keeps_its_experts_in_blocks() -> None:
    base = "model.layers.0.mlp.experts.gate_up_proj"
    held = group_bytes([
        Tensor(base + "_blocks", "U8", (4, 64, 8, 16), 32768),  # 4 experts x 64 rows x 256 elements, two a byte
        Tensor(base + "_scales", "U8", (4, 64, 8), 2048),
        Tensor(base + "_bias", "BF16", (4, 64), 512),
        Tensor("model.layers.0.mlp.router.weight", "BF16", (4, 256), 2048),
    ])  # fmt: skip
    assert dict(held["experts"].formats) == {"mxfp4": (65536, 34816)}  # 17 / 32 of a byte each
    assert (held["router"].size_bytes, held["other"].size_bytes) == (2048, 512)


def test_the_config_tells_the_bits_of_words_that_shapes_leave_open() -> None:
    # 8 bit in groups of 64 looks like 4 bit in groups of 128: two scales in a row of 32 words.
    words = [Tensor("model.layers.0.mlp.up_proj.weight_packed", "I32", (128, 32), 16384),
             Tensor("model.layers.0.mlp.up_proj.weight_scale", "BF16", (128, 2), 512)]  # fmt: skip
    weights = {"num_bits": 8, "type": "int", "group_size": 64, "strategy": "group"}
    scheme = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    stated = {"quant_method": "compressed-tensors", "config_groups": {"g": scheme}}
    assert dict(group_bytes(words)["mlp"].formats) == {"int4": (32768, 16896)}
    held = group_bytes(words, arch(quantization_config=stated))
    assert dict(held["mlp"].formats) == {"int8-weights": (16384, 16896)}


def test_the_config_tells_whether_products_are_narrow(tmp_path: Path) -> None:
    weights = {"num_bits": 8, "type": "float", "strategy": "channel"}
    scheme = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    stated = {"quant_method": "compressed-tensors", "config_groups": {"g": scheme}, "ignore": ["lm_head"]}
    write(tmp_path / "model.safetensors", llama("F8_E4M3"))
    found = precision_from_files(arch(quantization_config=stated), tmp_path)
    assert (found.weights, found.parts("mlp")[0].compute) == ("fp8-weights", ("bf16", "fp16"))


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("model.embed_tokens.weight", "embedding"),
        ("lm_head.weight", "head"),
        ("model.norm.weight", "other"),
        ("model.layers.3.self_attn.q_proj.weight", "attention"),
        ("model.layers.3.self_attn.q_a_layernorm.weight", "other"),
        ("model.layers.3.self_attn.indexer.wq_b.weight", "indexer"),
        ("model.layers.3.mlp.gate_proj.weight", "mlp"),
        ("model.layers.3.mlp.gate.weight", "router"),
        ("model.layers.3.mlp.gate.e_score_correction_bias", "other"),
        ("model.layers.3.mlp.experts.17.gate_proj.weight", "experts"),
        ("model.layers.3.mlp.experts.gate_up_proj", "experts"),
        ("model.layers.3.mlp.shared_experts.up_proj.weight", "shared_experts"),
        ("model.layers.3.mlp.shared_expert_gate.weight", "shared_experts"),
        ("model.layers.3.block_sparse_moe.experts.1.w1.weight", "experts"),
        ("model.layers.3.block_sparse_moe.gate.weight", "router"),
        ("model.layers.3.linear_attn.in_proj_qkvz.weight", "state"),
        ("model.layers.3.linear_attn.conv1d.weight", "other"),
        ("backbone.layers.3.mixer.in_proj.weight", "state"),
        ("backbone.layers.3.mixer.q_proj.weight", "attention"),
        ("backbone.layers.3.mixer.up_proj.weight", "mlp"),
        ("backbone.layers.3.mixer.experts.7.up_proj.weight", "experts"),
        ("backbone.layers.3.mixer.gate.weight", "router"),
        ("layers.3.attn.wq_a.weight", "attention"),
        ("layers.3.ffn.experts.0.w1.weight", "experts"),
        ("layers.3.ffn.shared_experts.w2.weight", "shared_experts"),
        ("embed.weight", "embedding"),
        ("head.weight", "head"),
        ("mtp.0.attn.wq_a.weight", "mtp"),
        ("mtp.layers.0.mlp.up_proj.weight", "mtp"),
        ("model.layers.61.mlp.experts.0.up_proj.weight", "mtp"),
        ("model.layers.61.shared_head.head.weight", "other"),
        ("model.visual.blocks.0.attn.qkv.weight", "vision"),
        ("vision_tower.encoder.layers.0.self_attn.q_proj.weight", "vision"),
        ("mm_projector.proj.0.weight", "vision"),
        ("multi_modal_projector.linear_1.weight", "vision"),
        ("model.language_model.layers.3.self_attn.o_proj.weight", "attention"),
        ("language_model.model.layers.3.mlp.down_proj.weight", "mlp"),
        ("transformer.h.3.attn.c_attn.weight", "attention"),
        ("transformer.wte.weight", "embedding"),
        ("encoder.block.0.layer.0.SelfAttention.q.weight", "encoder"),
        ("decoder.block.0.layer.1.EncDecAttention.k.weight", "attention"),
        ("shared.weight", "embedding"),
        ("token_embd.weight", "embedding"),
        ("output.weight", "head"),
        ("output_norm.weight", "other"),
        ("blk.3.attn_q.weight", "attention"),
        ("blk.3.attn_norm.weight", "other"),
        ("blk.3.ffn_gate.weight", "mlp"),
        ("blk.3.ffn_gate_exps.weight", "experts"),
        ("blk.3.ffn_gate_inp.weight", "router"),
        ("blk.3.ffn_down_shexp.weight", "shared_experts"),
        ("blk.3.ssm_in.weight", "state"),
        ("blk.3.ssm_a", "other"),
        ("v.blk.0.attn_q.weight", "vision"),
    ],
)
def test_names_are_groups(name: str, group: str) -> None:
    assert group_of(name.removesuffix(".weight"), 61) == group
    assert group in (*GROUPS, "other", "vision")


def shards(folder: Path) -> list[str]:
    tensors = llama()
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    halves = [dict(list(tensors.items())[:8]), dict(list(tensors.items())[8:])]
    for name, half in zip(names, halves, strict=True):
        write(folder / name, half)
    weight_map = {key: name for name, half in zip(names, halves, strict=True) for key in half}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return names


def test_shards_are_one_model_and_a_missing_one_is_said(tmp_path: Path) -> None:
    names = shards(tmp_path)
    assert [path.name for path in weight_files(tmp_path)] == names
    assert len(read_tensors(tmp_path)) == len(llama())
    assert len(read_tensors(tmp_path / names[0])) == len(llama())
    (tmp_path / names[1]).unlink()
    for path in (tmp_path, tmp_path / names[0], tmp_path / "model.safetensors.index.json"):
        with pytest.raises(RooflensError, match=r"1 of 2 weight files are missing, the first model-00002-of"):
            read_tensors(path)
    (tmp_path / names[0]).unlink()
    assert weight_files(tmp_path) == ()  # the index alone, as a folder that was fetched without its weights has it


def test_folders_without_weights(tmp_path: Path) -> None:
    assert weight_files(tmp_path) == ()
    with pytest.raises(RooflensError, match=r"no .safetensors or .gguf files"):
        read_tensors(tmp_path)
    for name in ("a-Q4_K_M.gguf", "b-Q8_0.gguf", "mmproj-b.gguf"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(RooflensError, match=r"several .gguf files, name one: a-Q4_K_M"):
        weight_files(tmp_path)
    with pytest.raises(RooflensError, match="shorter than the 8 bytes"):
        read_tensors(write_bytes(tmp_path / "x.safetensors", b"1234567"))


def write_bytes(path: Path, raw: bytes) -> Path:
    path.write_bytes(raw)
    return path


def test_another_models_files_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", llama())
    with pytest.raises(RooflensError, match="another model's files"):
        precision_from_files(arch(hidden_size=4096, head_dim=64), tmp_path)


def test_a_file_of_half_the_layers_is_refused(tmp_path: Path) -> None:
    half = {name: stored for name, stored in llama().items() if "layers.1." not in name}
    write(tmp_path / "model.safetensors", half)
    with pytest.raises(
        RooflensError, match=r"^[^:]*/model.safetensors: holds 1 of 2 layers: fetch .* or say --weights"
    ):
        precision_from_files(arch(), tmp_path)
    adapter = {f"base_model.model.{n}.lora_A.weight": ("BF16", (1, 64)) for n in llama() if "layers" in n}
    write(tmp_path / "model.safetensors", adapter)
    with pytest.raises(RooflensError, match=r"holds 1,024 weights where the config counts .* only an adapter"):
        precision_from_files(arch(), tmp_path)


def test_bytes_are_those_of_the_files_only_where_all_is_there(tmp_path: Path) -> None:
    path, whole = tmp_path / "model.safetensors", llama()
    norms = {f"model.layers.{n}.post_attention_layernorm.weight": ("BF16", (64,)) for n in (0, 1)}
    write(path, whole | norms)
    found = precision_from_files(arch(), path)
    assert (found.exact_weights, found.notes) == (True, ())
    assert resident_bytes(works(arch(), found)) == sum(tensor.size_bytes for tensor in read_tensors(path))
    # Norms of four bytes instead of two: 5 x 64 x 2 bytes more, which is said and below a thousandth in a real model.
    wide = {name: ("F32" if "norm" in name else dtype, shape) for name, (dtype, shape) in (whole | norms).items()}
    write(path, wide)
    found = precision_from_files(arch(), path)
    counted = resident_bytes(works(arch(), found))
    assert found.notes == (
        f"the files hold {counted + 640:,.0f} B of weights, {counted:,.0f} B are counted: these are not the bytes of "
        "the files",
    )
    assert not found.exact_weights


def test_groups_that_are_not_whole_are_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write(path, {name: stored for name, stored in llama().items() if "layers.1.mlp.down" not in name})
    found = precision_from_files(arch(), path)
    # One of six MLP matrices of 8,192 is missing; nothing is said of the attention, which is whole.
    assert found.notes == (
        "the files hold other numbers of weights than the config counts (mlp 40,960 of 49,152): the counted ones are "
        "taken, in the formats of those that are there",
    )
    assert not found.exact_weights
    write(path, {name: stored for name, stored in llama().items() if "lm_head" not in name})
    assert "(head 0 of 16,384)" in precision_from_files(arch(), path).notes[0]
    assert not precision_from_files(arch(tie_word_embeddings=True), path).notes[0].startswith("the files hold other")


def test_modules_of_other_names_are_the_same_bytes(tmp_path: Path) -> None:
    """What only goes by a name that says nothing is in no group of its own, and yet all bytes are there."""
    path = tmp_path / "model.safetensors"
    norms = {f"model.layers.{n}.post_attention_layernorm.weight": ("BF16", (64,)) for n in (0, 1)}
    write(path, {name.replace("self_attn.q_proj", "odd.q"): stored for name, stored in (llama() | norms).items()})
    assert group_bytes(read_tensors(path), arch())["attention"].elements == 2 * (12288 - 4096)
    found = precision_from_files(arch(), path)
    assert (found.exact_weights, found.notes) == (True, ())


def test_what_is_not_resident_is_not_compared(tmp_path: Path) -> None:
    """A head beside the embedding that it shares, a tower, a layer of prediction with a copy of the head."""
    path = tmp_path / "model.safetensors"
    norms = {f"model.layers.{n}.post_attention_layernorm.weight": ("BF16", (64,)) for n in (0, 1)}
    more = {"vision_tower.layers.0.mlp.fc1.weight": (256, 256), "model.layers.2.mlp.up_proj.weight": (128, 64),
            "model.layers.2.shared_head.head.weight": (256, 64), "mtp.fc.weight": (64, 128)}  # fmt: skip
    write(path, llama() | norms | {name: ("BF16", shape) for name, shape in more.items()})
    for tied in (False, True):
        found = precision_from_files(arch(tie_word_embeddings=tied), path)
        assert (found.exact_weights, found.notes) == (True, ())


def good_header() -> dict[str, Any]:
    return {"a": {"dtype": "BF16", "shape": [2, 4], "data_offsets": [0, 16]},
            "b": {"dtype": "U8", "shape": [8], "data_offsets": [16, 24]}}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": {"dtype": "BF16", "shape": [2, 4], "data_offsets": [0, 15]}}, "takes 15 bytes, not those of 8 x BF16"),
        ({"a": {"dtype": "BF16", "shape": [2, 5], "data_offsets": [0, 16]}}, "not those of 10"),
        ({"a": {"dtype": "BF16", "shape": [2, 4], "data_offsets": [4, 20]}}, "share bytes"),
        ({"a": {"dtype": "BF16", "shape": [2, 4], "data_offsets": [16, 0]}}, "takes -16 bytes"),
        ({"c": {"dtype": "U8", "shape": [8], "data_offsets": [24, 32]}}, "cut short: tensor 'c' ends at byte 32 of 24"),
        ({"a": {"dtype": "Q4", "shape": [1], "data_offsets": [0, 16]}}, "has the type 'Q4'"),
        ({"a": {"dtype": "BF16", "shape": [-2, 4], "data_offsets": [0, 16]}}, "no proper shape"),
        ({"a": {"dtype": "BF16", "shape": [2.0, 4], "data_offsets": [0, 16]}}, "no proper shape"),
        ({"a": {"dtype": "BF16", "shape": [True, 8], "data_offsets": [0, 16]}}, "no proper shape"),
        ({"a": {"dtype": "BF16", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 16]}}, "more elements than a file"),
        ({"a": {"dtype": "BF16", "shape": [10**40], "data_offsets": [0, 16]}}, "no proper shape"),
        ({"a": []}, "is no object"),
        ({"a" * 2000: {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}, "a name of 2000 letters"),
    ],
)
def test_a_safetensors_header_that_lies(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    raw = json.dumps({**good_header(), **change}).encode()
    path = write_bytes(tmp_path / "model.safetensors", len(raw).to_bytes(8, "little") + raw + bytes(24))
    with pytest.raises(RooflensError, match=message) as caught:
        safetensors_header(path)
    assert len(str(caught.value).splitlines()) == 1


def test_a_damaged_file_is_named_with_its_folder_and_a_remedy(tmp_path: Path) -> None:
    for name, remedy in (("model.safetensors", "; fetch it again, or say --weights"), ("a.gguf", "; fetch it again")):
        path = write_bytes(tmp_path / name, b"GGUF\3\0\0\0" if name == "a.gguf" else struct.pack("<Q", 500))
        with pytest.raises(RooflensError) as caught:
            read_tensors(path)
        message = str(caught.value)
        assert message.startswith(f"{tmp_path.name}/{name}: ")
        assert message.endswith(remedy)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "shorter than the 8 bytes"),
        ((64_000_001).to_bytes(8, "little") + b"{}", "a header of 64000001 bytes in a file of 10"),
        (b"\xff" * 8 + b"{}", "in a file of 10"),
        ((100).to_bytes(8, "little") + b"{}", "a header of 100 bytes in a file of 10"),
        ((2).to_bytes(8, "little") + b"[]", "no object of tensors"),
        ((2).to_bytes(8, "little") + b"\xff\xfe", "no JSON"),
        ((100_000).to_bytes(8, "little") + b"[" * 100_000, "no JSON"),
        ((18).to_bytes(8, "little") + b'{"a":{},"a":{}}   ', "listed twice"),
        ((9).to_bytes(8, "little") + b'{"a":NaN}', "NaN is no number"),
        ((6009).to_bytes(8, "little") + b'{"a":[' + b"9" * 6001 + b"]}", "no JSON"),
    ],
)
def test_no_safetensors_file(tmp_path: Path, raw: bytes, message: str) -> None:
    with pytest.raises(RooflensError, match=message):
        safetensors_header(write_bytes(tmp_path / "model.safetensors", raw))


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(tensors: bytes, count: int = 1, pairs: bytes = b"", pair_count: int = 0, data: int = 4096) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, count, pair_count) + pairs + tensors
    return head + bytes(-len(head) % 32) + bytes(data)


def info(name: str = "blk.0.ffn_up.weight", shape: tuple[int, ...] = (32, 4), kind: int = 8, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "cut short"),
        (b"GGML" + bytes(40), "does not begin with GGUF"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1 is not known"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "1152921504606846976 tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 40), "metadata entries"),
        (gguf(info(kind=4)), r"q4_2 \(removed from ggml\)"),
        (gguf(info(kind=99)), "number 99, which is not known"),
        (gguf(info(shape=(33, 4))), "no whole blocks of q8_0"),
        (gguf(info(shape=(1 << 40, 1 << 40))), "more elements than a file"),
        (gguf(info(shape=(32,) * 9)), "9 dimensions"),
        (gguf(info(offset=4096)), "ends behind the file"),
        (gguf(info(offset=1 << 63)), "ends behind the file"),
        (gguf(info() + info("blk.1.ffn_up.weight", offset=32), 2), "share bytes"),
        (gguf(info("x" * 5000)), "a name of 5000 bytes"),
        (gguf(info()[:20], data=0), "cut short"),
        (gguf(info(), pairs=text("k") + struct.pack("<I", 77), pair_count=1), "metadata of type 77"),
        (
            gguf(info(), pairs=text("k") + struct.pack("<IIQ", 9, 8, 1 << 50), pair_count=1),
            "a list of 1125899906842624",
        ),
        (gguf(info(), pairs=text("k") + struct.pack("<IIQ", 9, 4, 1 << 62), pair_count=1), "a list would end behind"),
        (gguf(info(), pairs=text("k") + struct.pack("<IIQ", 9, 9, 1) * 9, pair_count=1), "header lies|cut short"),
        (gguf(info(), pairs=text("general.alignment") + struct.pack("<II", 4, 0), pair_count=1), "an alignment of 0"),
        (gguf(info(), pairs=text("general.alignment") + struct.pack("<If", 6, 32.0), pair_count=1), "an alignment"),
    ],
)
def test_a_gguf_header_that_lies(tmp_path: Path, raw: bytes, message: str) -> None:
    with pytest.raises(RooflensError, match=message) as caught:
        gguf_header(write_bytes(tmp_path / "model.gguf", raw))
    assert len(str(caught.value).splitlines()) == 1


def test_a_gguf_model_in_two_files(tmp_path: Path) -> None:
    matrices = {"attn_q": (64, 64), "attn_k": (64, 32), "attn_v": (64, 32), "attn_output": (64, 64),
                "ffn_gate": (64, 128), "ffn_up": (64, 128), "ffn_down": (128, 64)}  # fmt: skip
    infos, at = b"", 0
    listed = [
        ("token_embd.weight", (64, 256)),
        *((f"blk.{n}.{m}.weight", s) for n in (0, 1) for m, s in matrices.items()),
    ]
    for name, shape in listed:
        infos += info(name, shape, 2, at)  # q4_0: 18 bytes for 32
        at += shape[0] * shape[1] // 32 * 18
    first = tmp_path / "model-00001-of-00002.gguf"
    first.write_bytes(gguf(infos, len(listed), data=at))
    with pytest.raises(RooflensError, match=r"the first model-00002-of-00002.gguf"):
        read_tensors(first)
    (tmp_path / "model-00002-of-00002.gguf").write_bytes(gguf(info("output_norm.weight", (64,), 0), data=256))
    tied = arch(tie_word_embeddings=True)
    for path in (first, tmp_path):
        found = precision_from_files(tied, path)
        assert (found.weights, found.head) == ("q4_0", "q4_0")
        assert found.parts("mlp")[0].bytes_per_element == found.parts("head")[0].bytes_per_element == 0.5625
    # 0.5625 bytes for every matrix: 2 x 36,864 in the layers and 16,384 in the table that the head shares.
    plain = sum(row.resident_bytes for row in works(tied, found) if row.operator in ("norms", "residual"))
    assert resident_bytes(works(tied, found)) - plain == 0.5625 * (2 * 36864 + 16384)


def gguf_model(path: Path, change: dict[str, Any], without: str = "output.weight", family: str = "llama") -> Path:
    """A file with the metadata of the small model, written by the library."""
    library = pytest.importorskip("gguf")
    writer = library.GGUFWriter(path, family)
    values = {"embedding_length": 64, "block_count": 2, "attention.head_count": 4, "attention.head_count_kv": 2,
              "feed_forward_length": 128, "context_length": 4096, **change}  # fmt: skip
    for key, value in values.items():
        if isinstance(value, list):
            writer.add_array(f"{family}.{key}", value)
        else:
            writer.add_uint32(f"{family}.{key}", value)
    shapes = {"token_embd.weight": (256, 64), "output.weight": (256, 64), "blk.0.attn_q.weight": (64, 64),
              "blk.0.ffn_gate.weight": (128, 64), "blk.0.ffn_up.weight": (128, 64)}  # fmt: skip
    for name, shape in shapes.items():
        if name != without:
            writer.add_tensor(name, np.zeros(shape, np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_describes_a_plain_model(tmp_path: Path) -> None:
    found = arch_from_config(gguf_config(gguf_model(tmp_path / "a.gguf", {})))
    assert found.layers == arch(tie_word_embeddings=True).layers
    assert (found.tied_head, found.vocab_size, found.max_context_tokens) == (True, 256, 4096)
    untied = arch_from_config(gguf_config(gguf_model(tmp_path / "b.gguf", {}, without="blk.0.ffn_gate.weight")))
    assert not untied.tied_head
    assert untied.layers[0].mlp == DenseMLP(128, gated=False)
    experts = {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 32}
    mixed = arch_from_config(gguf_config(gguf_model(tmp_path / "c.gguf", experts)))
    assert mixed.layers[0].mlp == MixtureOfExperts(8, 2, 32, gated=True)


@pytest.mark.parametrize(
    ("change", "without", "why"),
    [
        ({"attention.sliding_window": 512}, "output.weight", "attention.sliding_window is set"),
        ({"attention.kv_lora_rank": 512}, "output.weight", "kv_lora_rank is set"),
        ({"attention.head_count_kv": [2, 4]}, "output.weight", "differs from layer to layer"),
        ({}, "token_embd.weight", "holds no token_embd"),
    ],
)
def test_what_a_gguf_file_leaves_open_is_said(tmp_path: Path, change: dict[str, Any], without: str, why: str) -> None:
    with pytest.raises(RooflensError, match=rf"{why}.*config\.json"):
        gguf_config(gguf_model(tmp_path / "a.gguf", change, without))


def test_what_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.gguf", Path("/dev/zero"), tmp_path / "a\0b.safetensors"):
        with pytest.raises(RooflensError) as caught:
            read_tensors(path)
        assert len(str(caught.value).splitlines()) == 1
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(RooflensError, match="not a regular file"):
        gguf_header(tmp_path / "pipe.gguf")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../../etc/passwd"}}')
    with pytest.raises(RooflensError, match="no proper files"):
        read_tensors(tmp_path)


SHAPES = st.lists(st.integers(0, 64), max_size=3)
GOOD_GGUF = gguf(info() + info("output.weight", (256, 2), 12, 256), 2,
                 text("general.alignment") + struct.pack("<II", 4, 32) + text("t") + struct.pack("<IIQ", 9, 8, 2)
                 + text("a") + text("b"), 2)  # fmt: skip
GOOD_RAW = json.dumps(good_header()).encode()
GOOD_SAFE = len(GOOD_RAW).to_bytes(8, "little") + GOOD_RAW + bytes(24)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damage_is_tensors_or_one_line(tmp_path: Path, data: st.DataObject) -> None:
    kind, good = data.draw(st.sampled_from([(".gguf", GOOD_GGUF), (".safetensors", GOOD_SAFE)]))
    raw = bytearray(good[: data.draw(st.sampled_from([len(good), len(good), 10, 50, 200]))])
    for _ in range(data.draw(st.integers(0, 4))):
        raw[data.draw(st.integers(0, min(len(raw), 240) - 1))] = data.draw(st.integers(0, 255))
    raw += data.draw(st.binary(max_size=8))
    path, fault = write_bytes(tmp_path / f"model{kind}", bytes(raw)), ""
    try:
        for tensor in read_tensors(path):
            assert tensor.size_bytes <= len(raw)
        precision_from_files(arch(), path)
    except RooflensError as error:
        fault = str(error)
    assert len(fault.splitlines()) <= 1
    assert len(fault) < 500


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=30), st.sampled_from(sorted(DTYPE_BITS)), SHAPES), max_size=6))
def test_any_tensors_fall_into_groups_without_loss(listed: list[tuple[str, str, list[int]]]) -> None:
    tensors = [Tensor(f"{number}.{name}", dtype, tuple(shape), 8) for number, (name, dtype, shape) in enumerate(listed)]
    held = group_bytes(tensors, arch())
    assert sum(part.size_bytes for part in held.values()) == 8 * len(tensors)


def test_every_type_is_a_format_or_named() -> None:
    for kind in GGML_TYPES.values():
        held = group_bytes([Tensor("blk.0.ffn_up.weight", kind.name, (2, 256), 100)])
        assert held["mlp"].size_bytes == 100
