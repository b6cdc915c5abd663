"""Vision towers of multimodal models, told apart from the language model and counted as plain vision transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rooflens.analyzer.architecture.numbers import needed, stated
from rooflens.analyzer.config_fields import shown
from rooflens.records import RooflensError

Fields = Mapping[str, Any]
TOWERS = ("vision_config", "visual", "vit_config", "vision_tower_config", "vision_encoder")
UNCOUNTED = ("audio_config", "speech_config", "sound_config", "tts_config", "talker_config", "code2wav_config")
WIDTH = ("embed_dim", "vt_hidden_size", "hidden_size", "width", "d_model")
DEPTH = ("depth", "num_hidden_layers", "vt_num_hidden_layers", "layers", "num_layers")
INNER = ("intermediate_size", "vt_intermediate_size", "mlp_dim")
CHANNELS = ("in_channels", "num_channels", "in_chans")
GATED = ("silu", "swish", "swiglu")
# Towers that are no plain vision transformers, or whose projections the fields do not give.
OWN_SHAPE = ("cosmos3_edge_vision", "exaone4_5_vision", "mllama_vision_model", "radio", "got_ocr2_vision")
NORMS_OF_GEMMA_4 = 4  # of the width in each layer, before and behind attention and MLP


def vision_elements(config: Fields, text_hidden: int) -> tuple[int | None, tuple[str, ...]]:
    """Weights of all towers beside the language model; None, and why in a sentence, where a size is not known.

    ``text_hidden`` is the width that the towers' outputs are projected to.
    """
    for name in UNCOUNTED:
        if config.get(name):
            return None, (f"config field {name} says a tower whose size is not known: it is not counted",)
    if config.get("model_type") == "video_llava":
        return None, ("there are two towers, for images and for videos, of which the fields give one: not counted",)
    total = _listener(config) + _pixels(config, text_hidden)
    for name in TOWERS:
        tower = config.get(name)
        if tower is None or tower == {}:
            continue
        if not isinstance(tower, dict):
            raise RooflensError(f"config field {name} is {shown(tower)}, not an object of fields")
        found = _tower(tower, text_hidden)
        if found is None:
            return None, (f"config field {name} says a tower whose size is not known: it is not counted",)
        total += found
    return total, ()


def _listener(config: Fields) -> int:
    """Whisper's two convolutions over three frames of a spectrogram, and the places of its encoder."""
    bins, width = stated(config, "num_mel_bins"), stated(config, "d_model")
    if bins is None or width is None:
        return 0
    return 3 * bins * width + 3 * width * width + 2 * width + (stated(config, "max_source_positions") or 0) * width


def _pixels(config: Fields, text_hidden: int) -> int:
    """Fuyu has no tower: one matrix takes the pixels of a patch to the width of the language model."""
    return _patches(config, text_hidden) if config.get("model_type") == "fuyu" else 0


def _tower(tower: Fields, text_hidden: int) -> int | None:
    """A tower with its projection into the language model; None where the fields do not give its shape."""
    if any(isinstance(tower.get(name), list) for name in (*WIDTH, *DEPTH)):
        return None  # convolutional stages of different widths
    if tower.get("model_type") in OWN_SHAPE or tower.get("use_rel_pos") is True:
        return None
    if stated(tower, *WIDTH) is None or stated(tower, *DEPTH) is None or tower.get("patch_size") is None:
        return None
    width = needed(tower, *WIDTH)
    inner = stated(tower, *INNER) or _by_ratio(tower, width)
    if tower.get("model_type") == "glm4v_vision":
        return _glm_4v(tower, width)
    layers = needed(tower, *DEPTH) * _layer(tower, width, inner)
    return layers + _patches(tower, width) + _positions(tower, width) + _projection(tower, width, text_hidden)


def _glm_4v(tower: Fields, width: int) -> int:
    """GLM-4.1V and 4.5V: what is stated as the inner width is that of the projection behind merged patches.

    The MLP of a layer is as wide as the output (transformers 5.19, modeling_glm4v.py).
    """
    out, inner, merge = needed(tower, "out_hidden_size"), needed(tower, *INNER), needed(tower, "spatial_merge_size")
    layers = needed(tower, *DEPTH) * (4 * width * width + 3 * width * out + 2 * width)
    merged = merge * merge * width * out + out
    projection = out * out + 2 * out + 3 * out * inner
    return layers + _patches(tower, width) + _positions(tower, width) + merged + projection + 2 * width


def _by_ratio(tower: Fields, width: int) -> int:
    ratio = tower.get("mlp_ratio", 4)
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= 64:
        raise RooflensError(f"config field mlp_ratio is {shown(ratio)}: not a number from 0 to 64")
    return int(width * ratio)


def _layer(tower: Fields, width: int, inner: int) -> int:
    """Attention over all heads and an MLP, with biases and two norms; gated without biases in the newer ones."""
    name = tower.get("hidden_act")
    if tower.get("position_embedding_size") is not None:  # Gemma 4
        head_norms = 2 * (stated(tower, "head_dim") or 0)
        return 4 * width * width + 3 * width * inner + NORMS_OF_GEMMA_4 * width + head_norms
    gated = isinstance(name, str) and name in GATED
    biases = 0 if gated else 4 * width + inner + width
    return 4 * width * width + (3 if gated else 2) * width * inner + biases + (2 if gated else 4) * width


def _patches(tower: Fields, width: int) -> int:
    """One linear map from the pixels of a patch, of several frames where they are taken together."""
    side, frames = tower.get("patch_size"), stated(tower, "temporal_patch_size") or 1
    sides = side if isinstance(side, list) else [side, side]
    pixels = 1
    for one in sides:
        pixels *= needed({"patch_size": one}, "patch_size")
    return width * (stated(tower, *CHANNELS) or 3) * pixels * frames + width


def _positions(tower: Fields, width: int) -> int:
    listed = stated(tower, "num_position_embeddings")
    if listed is not None:
        return listed * width
    both = stated(tower, "position_embedding_size")
    if both is not None:
        return 2 * both * width
    high, wide = stated(tower, "init_pos_emb_height"), stated(tower, "init_pos_emb_width")
    if high is not None and wide is not None:
        return high * wide * width
    rotary = tower.get("rope_theta") is not None or tower.get("rope_parameters") is not None
    if rotary or isinstance(tower.get("image_size"), list) or tower.get("patch_size") is None:
        return 0
    image, patch = stated(tower, "image_size"), tower.get("patch_size")
    if image is None or not isinstance(patch, int) or isinstance(patch, bool):
        return 0
    return (image // patch) ** 2 * width


def _projection(tower: Fields, width: int, text_hidden: int) -> int:
    """Into the language model: of merged patches through two matrices (Qwen, Kimi), or of one (Gemma)."""
    merge = stated(tower, "spatial_merge_size")
    kernel = tower.get("merge_kernel_size")
    if merge is None and isinstance(kernel, list) and kernel:
        merge = needed({"merge_kernel_size": kernel[0]}, "merge_kernel_size")
    if merge is None:
        return width * text_hidden + width
    wide = width * merge * merge
    out = stated(tower, "out_hidden_size", "text_hidden_size") or text_hidden
    deep = tower.get("deepstack_visual_indexes")
    mergers = 1 + (len(deep) if isinstance(deep, list) else 0)
    return mergers * (wide * wide + wide + wide * out + out + 2 * width)
