"""Headers of weight files written byte by byte: every type, and the last size that is believed beside the first not."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from rooflens.analyzer.ggml_types import GGML_TYPES, MIXES, QUANTISED
from rooflens.analyzer.gguf_header import GgufHeader, gguf_header
from rooflens.analyzer.gguf_model import gguf_config
from rooflens.analyzer.number_formats import WEIGHT_FORMATS
from rooflens.analyzer.safetensors_header import DTYPE_BITS, safetensors_header
from rooflens.analyzer.tensor_table import Tensor
from rooflens.records import RooflensError

U32, STRING, ARRAY = 4, 8, 9


def text(words: str) -> bytes:
    return struct.pack("<Q", len(words)) + words.encode()


def pair(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def listed(kind: int, count: int, values: bytes) -> bytes:
    return struct.pack("<IQ", kind, count) + values


def tensor(name: str, kind: int, shape: tuple[int, ...], offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def gguf(path: Path, pairs: list[bytes], tensors: list[bytes], data_bytes: int = 0, **change: Any) -> GgufHeader:
    """Writes the file, its data behind the next multiple of ``aligned`` bytes, and reads its header."""
    counts = change.get("counts", (len(tensors), len(pairs)))
    raw = b"GGUF" + struct.pack("<IQQ", change.get("version", 3), *counts) + b"".join(pairs + tensors)
    aligned = change.get("aligned", 32)
    path.write_bytes(raw + bytes(-len(raw) % aligned + data_bytes))
    return gguf_header(path)


def refused(path: Path, *parts: Any, **change: Any) -> str:
    with pytest.raises(RooflensError) as caught:
        gguf(path, *parts, **change)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_every_kind_of_value(tmp_path: Path) -> None:
    kinds: dict[int, tuple[str, Any]] = {
        0: ("<B", 200), 1: ("<b", -3), 2: ("<H", 60_000), 3: ("<h", -300), 4: ("<I", 4_000_000_000), 5: ("<i", -70_000),
        6: ("<f", 0.5), 7: ("<?", True), 10: ("<Q", 1 << 63), 11: ("<q", -(1 << 40)), 12: ("<d", 0.1),
    }  # fmt: skip
    pairs = [pair(f"k{kind}", kind, struct.pack(form, value)) for kind, (form, value) in kinds.items()]
    pairs += [pair("name", STRING, text("a name")), pair("last", U32, struct.pack("<I", 7))]
    found = gguf(tmp_path / "a.gguf", pairs, [])
    assert found.metadata == {f"k{kind}": value for kind, (_, value) in kinds.items()} | {"name": "a name", "last": 7}
    assert (found.version, found.tensors, found.lengths) == (3, (), {})


@pytest.mark.parametrize(("kind", "size"), [(0, 1), (2, 2), (4, 4), (6, 4), (7, 1), (10, 8), (12, 8)])
def test_lists_are_gone_over(tmp_path: Path, kind: int, size: int) -> None:
    lists = [pair("numbers", ARRAY, listed(kind, 5, bytes(5 * size))), pair("last", U32, struct.pack("<I", 7))]
    found = gguf(tmp_path / "a.gguf", lists, [])
    assert (found.lengths, found.metadata) == ({"numbers": 5}, {"last": 7})


def test_lists_of_strings_and_of_lists(tmp_path: Path) -> None:
    words = listed(STRING, 3, text("a") + text("") + text("bcd"))
    nested = listed(ARRAY, 2, listed(0, 3, b"abc") + listed(ARRAY, 1, listed(U32, 1, bytes(4))))
    pairs = [pair("w", ARRAY, words), pair("n", ARRAY, nested), pair("last", U32, struct.pack("<I", 7))]
    found = gguf(tmp_path / "a.gguf", pairs, [])
    assert (found.lengths, found.metadata) == ({"w": 3, "n": 2}, {"last": 7})


def test_four_lists_in_each_other_are_read_and_five_are_not(tmp_path: Path) -> None:
    def deep(levels: int) -> bytes:
        return listed(0, 1, b"a") if levels == 1 else listed(ARRAY, 1, deep(levels - 1))

    assert gguf(tmp_path / "a.gguf", [pair("n", ARRAY, deep(4))], []).lengths == {"n": 1}
    assert "metadata of type 9" in refused(tmp_path / "a.gguf", [pair("n", ARRAY, deep(5))], [])
    assert "metadata of type 13" in refused(tmp_path / "a.gguf", [pair("n", 13, bytes(8))], [])


def test_a_list_longer_than_the_file_is_not_gone_over(tmp_path: Path) -> None:
    # Five strings take forty bytes at least: there are 40 and not 39.
    empty = [pair("w", ARRAY, listed(STRING, 5, bytes(40)))]
    assert gguf(tmp_path / "a.gguf", empty, [], aligned=1).lengths == {"w": 5}
    short = [pair("w", ARRAY, listed(STRING, 5, bytes(39)))]
    assert "a list of 5" in refused(tmp_path / "a.gguf", short, [], aligned=1)
    assert "a list would end" in refused(
        tmp_path / "a.gguf", [pair("w", ARRAY, listed(U32, 2, bytes(7)))], [], aligned=1
    )


def test_long_strings_are_not_kept(tmp_path: Path) -> None:
    pairs = [pair("kept", STRING, text("x" * 1024)), pair("template", STRING, text("y" * 1025))]
    found = gguf(tmp_path / "a.gguf", [*pairs, pair("last", U32, struct.pack("<I", 7))], [])
    assert found.metadata == {"kept": "x" * 1024, "template": "", "last": 7}
    assert "k" * 1024 in gguf(tmp_path / "a.gguf", [pair("k" * 1024, 0, b"a")], []).metadata
    assert "a name of 1025 bytes" in refused(tmp_path / "a.gguf", [pair("k" * 1025, 0, b"a")], [])
    assert "a string would end" in refused(
        tmp_path / "a.gguf", [text("k") + struct.pack("<IQ", STRING, 5000) + bytes(100)], [], counts=(0, 1)
    )


def test_versions(tmp_path: Path) -> None:
    assert gguf(tmp_path / "a.gguf", [], [], version=2).version == 2
    for version in (1, 4):
        assert f"GGUF version {version} is not known" in refused(tmp_path / "a.gguf", [], [], version=version)
    for version in (2, 3):
        assert "big-endian" in refused(tmp_path / "a.gguf", [], [], version=version << 24)
    (tmp_path / "b.gguf").write_bytes(b"GGUX" + bytes(20))
    with pytest.raises(RooflensError, match="does not begin with GGUF"):
        gguf_header(tmp_path / "b.gguf")


def test_counts_that_no_file_has(tmp_path: Path) -> None:
    for counts in (((1 << 18) + 1, 0), (0, (1 << 16) + 1)):
        assert f"{counts[0]} tensors and {counts[1]} metadata" in refused(tmp_path / "a.gguf", [], [], counts=counts)
    # As many as may be: read until the file ends.
    for counts in ((1 << 18, 0), (0, 1 << 16)):
        assert "a number would end behind" in refused(tmp_path / "a.gguf", [], [], counts=counts, aligned=1)


def test_tensors_and_their_places(tmp_path: Path) -> None:
    # 3 rows of 64 in blocks of 32: 6 x 18 bytes; then 5 numbers of 2 bytes.
    rows = [tensor("a", 2, (64, 3)), tensor("b", 30, (5,), 128), tensor("c", 0, (), 160)]
    found = gguf(tmp_path / "a.gguf", [], rows, 164)
    assert found.tensors == (
        Tensor("a", "q4_0", (3, 64), 108),
        Tensor("b", "bf16", (5,), 10),
        Tensor("c", "fp32", (), 4),
    )
    assert "tensor 'c' ends behind" in refused(tmp_path / "a.gguf", [], rows, 163)
    assert "no whole blocks of q4_0" in refused(tmp_path / "a.gguf", [], [tensor("a", 2, (48, 2))], 1000)
    assert "9 dimensions" in refused(tmp_path / "a.gguf", [], [tensor("a", 0, (1,) * 9)], 1000)
    assert gguf(tmp_path / "a.gguf", [], [tensor("a", 0, (1,) * 8)], 4).tensors[0].shape == (1,) * 8
    assert "more elements" in refused(tmp_path / "a.gguf", [], [tensor("a", 0, (1 << 31, (1 << 31) + 1))], 4)
    assert "ends behind" in refused(tmp_path / "a.gguf", [], [tensor("a", 0, (1 << 31, 1 << 31))], 4)
    assert "removed from ggml" in refused(tmp_path / "a.gguf", [], [tensor("a", 4, (32,))], 100)
    assert "number 99" in refused(tmp_path / "a.gguf", [], [tensor("a", 99, (32,))], 100)
    overlapping = [tensor("a", 0, (4,), 0), tensor("b", 0, (4,), 15)]
    assert "a" in refused(tmp_path / "a.gguf", [], overlapping, 100)


@pytest.mark.parametrize(
    ("number", "name"),
    [(4, "q4_2"), (5, "q4_3"), (31, "q4_0_4_4"), (32, "q4_0_4_8"), (33, "q4_0_8_8"), (36, "iq4_nl_4_4"),
     (37, "iq4_nl_4_8"), (38, "iq4_nl_8_8")],
)  # fmt: skip
def test_types_that_are_gone_are_named(tmp_path: Path, number: int, name: str) -> None:
    assert f"type {name} (removed" in refused(tmp_path / "a.gguf", [], [tensor("a", number, (32,))], 100)


def test_data_begins_at_the_alignment(tmp_path: Path) -> None:
    def aligned(to: int, data_bytes: int) -> GgufHeader:
        name = pair("general.alignment", U32, struct.pack("<I", to))
        return gguf(tmp_path / "a.gguf", [name], [tensor("a", 0, (4,))], data_bytes, aligned=max(1, to))

    for to in (1, 64, 4096):
        assert aligned(to, 16).tensors[0].size_bytes == 16
        with pytest.raises(RooflensError, match="ends behind"):
            aligned(to, 15)
    assert aligned(1 << 20, 16).tensors[0].size_bytes == 16
    for to in (0, (1 << 20) + 1):
        with pytest.raises(RooflensError, match="an alignment of"):
            aligned(to, 16)
    with pytest.raises(RooflensError, match="an alignment of"):
        gguf(tmp_path / "a.gguf", [pair("general.alignment", 6, struct.pack("<f", 32.0))], [])
    # Nothing said: 32. The header of 24 bytes and a tensor's 41 end at 65; data from 96 on.
    raw = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + tensor("a", 0, (4,))
    assert len(raw) == 65 - 8
    (tmp_path / "b.gguf").write_bytes(raw + bytes(64 - len(raw) + 16))
    assert gguf_header(tmp_path / "b.gguf").tensors[0].size_bytes == 16
    (tmp_path / "b.gguf").write_bytes(raw + bytes(64 - len(raw) + 15))
    with pytest.raises(RooflensError, match="ends behind"):
        gguf_header(tmp_path / "b.gguf")


KEYS = {
    "embedding_length": "hidden_size", "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads", "attention.key_length": "head_dim",
    "attention.value_length": "v_head_dim", "feed_forward_length": "intermediate_size",
    "context_length": "max_position_embeddings", "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok", "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "leading_dense_block_count": "first_k_dense_replace",
}  # fmt: skip
LEFT_OPEN = (
    "attention.sliding_window attention.kv_lora_rank attention.indexer.head_count ssm.inner_size ssm.conv_kernel "
    "wkv.head_size nextn_predict_layers expert_shared_count shortconv.l_cache attention.shared_kv_layers "
    "embedding_length_per_layer_input interleave_moe_layer_step"
)


def described(path: Path, values: dict[str, int], tensors: tuple[str, ...] = ("token_embd.weight",)) -> dict[str, Any]:
    pairs = [pair("general.architecture", STRING, text("kin"))]
    pairs += [pair(f"kin.{key}", U32, struct.pack("<I", value)) for key, value in values.items()]
    gguf(
        path,
        pairs,
        [tensor(name, 0, (4, 100), 1600 * place) for place, name in enumerate(tensors)],
        1600 * len(tensors),
    )
    return gguf_config(path)


def test_fields_of_a_gguf_file(tmp_path: Path) -> None:
    values = {key: place for place, key in enumerate(KEYS, 1)}
    told = {"vocab_size": 100, "tie_word_embeddings": True, "mlp_gated": False, "torch_dtype": "float16"}
    assert described(tmp_path / "a.gguf", values) == {KEYS[key]: value for key, value in values.items()} | told
    # Without experts nothing is said of them.
    plain = dict(list(values.items())[:8])
    assert described(tmp_path / "a.gguf", values | {"expert_count": 0}) == {KEYS[k]: v for k, v in plain.items()} | told
    # Experts without a width of their own are as wide as the MLP.
    del values["expert_feed_forward_length"]
    assert described(tmp_path / "a.gguf", values)["moe_intermediate_size"] == values["feed_forward_length"]
    names = ("token_embd.weight", "output.weight", "blk.0.ffn_gate_exps.weight")
    found = described(tmp_path / "a.gguf", plain, names)
    assert (found["tie_word_embeddings"], found["mlp_gated"]) == (False, True)
    router = ("token_embd.weight", "blk.0.ffn_gate_inp.weight")
    assert not described(tmp_path / "a.gguf", plain, router)["mlp_gated"]


@pytest.mark.parametrize("key", LEFT_OPEN.split())
def test_kinds_that_metadata_leaves_open(tmp_path: Path, key: str) -> None:
    with pytest.raises(RooflensError, match=f"{key} is set"):
        described(tmp_path / "a.gguf", {key: 2})
    assert described(tmp_path / "a.gguf", {key: 0})["vocab_size"] == 100


# Bytes of a block: the packed bits of its elements, then its scales and minima.
BLOCKS = {
    2: ("q4_0", 32, 16 + 2), 3: ("q4_1", 32, 16 + 4), 6: ("q5_0", 32, 16 + 4 + 2), 7: ("q5_1", 32, 16 + 4 + 4),
    8: ("q8_0", 32, 32 + 2), 9: ("q8_1", 32, 32 + 8), 10: ("q2_k", 256, 64 + 16 + 4), 11: ("q3_k", 256, 64 + 32 + 14),
    12: ("q4_k", 256, 128 + 12 + 4), 13: ("q5_k", 256, 128 + 32 + 16), 14: ("q6_k", 256, 128 + 64 + 18),
    15: ("q8_k", 256, 256 + 32 + 4), 20: ("iq4_nl", 32, 16 + 2), 23: ("iq4_xs", 256, 128 + 8),
    34: ("tq1_0", 256, 52 + 2),
    35: ("tq2_0", 256, 64 + 2), 39: ("mxfp4", 32, 16 + 1), 40: ("nvfp4", 64, 32 + 4), 41: ("q1_0", 128, 16 + 2),
}  # fmt: skip


@pytest.mark.parametrize(("number", "block"), BLOCKS.items())
def test_blocks_of_ggml(number: int, block: tuple[str, int, int]) -> None:
    found = GGML_TYPES[number]
    assert (found.name, found.block_elements, found.block_bytes) == block


def test_mixes_are_weight_formats_between_their_types() -> None:
    for name, size in MIXES.items():
        assert WEIGHT_FORMATS[name].bytes_per_element == size
        low, high = (QUANTISED[kind] for kind in ("iq2_xxs", "q6_k"))
        assert low < size < high
    bits = {name: round(8 * size, 2) for name, size in MIXES.items()}
    assert bits == {
        "q2_k_s": 2.97, "q3_k_s": 3.64, "q3_k_m": 3.91, "q3_k_l": 4.3, "q4_k_s": 4.67, "q4_k_m": 4.83, "q5_k_s": 5.57,
        "q5_k_m": 5.7, "iq2_m": 2.93, "iq3_xs": 3.5, "iq3_m": 3.76,
    }  # fmt: skip


def safe(path: Path, header: Any, data_bytes: int = 0) -> tuple[Tensor, ...]:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(data_bytes))
    return safetensors_header(path)


def one(dtype: str = "F32", shape: Any = (2, 3), begin: Any = 0, end: int = 24) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape) if isinstance(shape, tuple) else shape, "data_offsets": [begin, end]}


def test_bits_of_every_type_of_safetensors(tmp_path: Path) -> None:
    bits = {8: "BOOL U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ", 16: "I16 U16 F16 BF16", 32: "I32 U32 F32",
            64: "C64 F64 I64 U64", 4: "F4", 6: "F6_E2M3 F6_E3M2"}  # fmt: skip
    expected = {name: size for size, names in bits.items() for name in names.split()}
    assert expected == DTYPE_BITS
    for name, size in expected.items():
        assert safe(tmp_path / "a", {"t": one(name, (8,), 0, size)}, size)[0] == Tensor("t", name, (8,), size)


def test_what_is_believed_of_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert safe(path, {"t": one()}, 24) == (Tensor("t", "F32", (2, 3), 24),)
    assert safe(path, {}) == ()
    assert safe(path, {"__metadata__": {"t": "x"}, "t" * 1024: one(shape=(1,) * 32, end=4)}, 4)[0].size_bytes == 4
    assert safe(path, {"t": one(shape=(), end=4)}, 4)[0].shape == ()
    assert safe(path, {"t": one(shape=(0, 5), end=0)}) == (Tensor("t", "F32", (0, 5), 0),)


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ({"t": one(end=25)}, "takes 25 bytes"),
        ({"t": one(begin=1)}, "takes 23 bytes"),
        ({"t": one(), "u": one(begin=20, end=44)}, "u"),
        ({"t": one(begin=24, end=48)}, "ends at byte 48 of 24"),
        ({"t" * 1025: one()}, "a name of 1025 letters"),
        ({"t": one(shape=(1,) * 33)}, "no proper shape"),
        ({"t": one(shape=[2, -3])}, "no proper shape"),
        ({"t": one(shape=[2, True])}, "no proper shape"),
        ({"t": one(shape=[2.0, 3])}, "no proper shape"),
        ({"t": one(shape="23")}, "no proper shape"),
        ({"t": {**one(), "data_offsets": [0, 24, 24]}}, "no proper shape"),
        ({"t": {**one(), "data_offsets": [-24, 0]}}, "no proper shape"),
        ({"t": {**one(), "dtype": 4}}, "has the type '4'"),
        ({"t": one("F7")}, "has the type 'F7'"),
        ({"t": one(shape=(1 << 31, (1 << 31) + 1))}, "more elements"),
        ({"t": one(shape=(1 << 31, 1 << 31))}, "takes 24 bytes"),
        ({"t": [1]}, "is no object"),
        ([], "no object of tensors"),
        (b'{"t": 1, "t": 2}', "listed twice"),
        (b'{"t": NaN}', "no number"),
        (b"[" * 100_000, "no JSON"),
        (b"\xff\xff", "no JSON"),
        (b"1", "a header of 1 bytes"),
    ],
)
def test_what_is_not(tmp_path: Path, header: Any, named: str) -> None:
    with pytest.raises(RooflensError) as caught:
        safe(tmp_path / "a", header, 24)
    assert named in str(caught.value)


def test_lengths_of_a_header(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(7))
    with pytest.raises(RooflensError, match="shorter than the 8 bytes"):
        safetensors_header(path)
    for length, size in ((3, 2), (64_000_001, 2), (0, 2)):
        path.write_bytes(struct.pack("<Q", length) + b"{}"[:size])
        with pytest.raises(RooflensError, match=f"a header of {length} bytes"):
            safetensors_header(path)
