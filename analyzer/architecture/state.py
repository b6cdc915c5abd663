"""Mixers whose memory does not grow with the context, from the fields of a config.json.

The flops of a token in the state are those of the recurrence's products, 2 for a multiply-add: an outer product of
what is new into the state (2 for each element) and the state's product with the query (2); a delta rule also reads
what the state holds for the key (2, Yang et al. 2024, arXiv:2412.06464). Decays are left out: over a chunk they fold
into keys and queries (Dao and Gu 2024, arXiv:2405.21060, section 6), so that a lower bound may not count them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rooflens.analyzer.architecture.attention import HEAD_DIM, HEADS, WIDTH
from rooflens.analyzer.architecture.numbers import flag, needed, part, stated
from rooflens.analyzer.config_fields import shown
from rooflens.analyzer.precision import KV_FORMATS, normalise
from rooflens.arch_records import StateMixer
from rooflens.records import RooflensError

LINEAR_FLOPS = 4  # a token and element of the state: written once, read once
DELTA_FLOPS = 6  # and read once more for the key
SCAN_FLOPS = 6  # Mamba 1: A x delta, decay, B x delta x, sum, C x h and its sum: no chunked form (arXiv:2312.00752)
CONV = ("conv_kernel", "mamba_d_conv", "conv_kernel_size")
STATE_FORMAT = ("mamba_ssm_dtype", "mamba_ssm_cache_dtype")
STATE_SIZE = ("ssm_state_size", "mamba_d_state", "state_size")


def state(fields: Mapping[str, Any], kind: str) -> StateMixer:
    """One layer's mixer of a ``kind`` of KINDS.

    ``in_columns`` and ``out_rows`` are the large projections, everything else the mixer holds is ``other_elements``,
    whose products are in ``token_flops``. Raises RooflensError, one line naming the field.
    """
    if kind not in KINDS:
        raise RooflensError(f"a state mixer of kind {kind[:40]!r} is not known; known: {', '.join(KINDS)}")
    return KINDS[kind](fields)


def state_format(fields: Mapping[str, Any], default: str | None = None) -> str:
    """The format of the recurrent state: what the config says, else ``default``, else the model's own format.

    vLLM does so (0.32, model_executor/layers/mamba/mamba_utils.py and models/config.py): Kimi Linear and Nemotron-H
    default to float32, every other kind to the model's dtype. The convolution's state is in the activations' format.
    """
    named = next((n for n in (*STATE_FORMAT, "torch_dtype", "dtype") if fields.get(n) is not None), None)
    if default is not None and named not in STATE_FORMAT:
        return default
    found = normalise(fields[named]) if named and isinstance(fields[named], str) else "" if named else "bf16"
    if found not in KV_FORMATS:
        raise RooflensError(f"config field {named} is {shown(fields[named or ''])}: not one of {', '.join(KV_FORMATS)}")
    return found


def _gated_delta(fields: Mapping[str, Any]) -> StateMixer:
    """Qwen3-Next, Qwen3.5, OLMo Hybrid; Kimi Linear's fields are told apart."""
    if fields.get("linear_attn_config") is not None or fields.get("linear_num_heads") is not None:
        return _kimi_delta(fields)
    heads = needed(fields, "linear_num_value_heads")
    key_dim = needed(fields, "linear_key_head_dim")
    value_dim = needed(fields, "linear_value_head_dim")
    kernel = needed(fields, "linear_conv_kernel_dim")
    keys = needed(fields, "linear_num_key_heads") * key_dim
    values = heads * value_dim
    conv = 2 * keys + values
    elements = heads * key_dim * value_dim
    return StateMixer(
        kind="gated delta net",
        heads=heads,
        in_columns=2 * keys + 2 * values + 2 * heads,  # q, k, v, output gate z, decay a, strength b
        out_rows=values,
        other_elements=conv * kernel + 2 * heads + value_dim,  # convolution, A and dt bias, norm
        state_elements=elements,
        conv_state_elements=conv * (kernel - 1),
        token_flops=DELTA_FLOPS * elements + 2 * conv * kernel,
        state_format=state_format(fields),
    )


def _kimi_delta(fields: Mapping[str, Any]) -> StateMixer:
    """Kimi delta attention: a decay for each channel and an output gate, each through a rank of head_dim.

    Kimi K3 makes the gate at once (use_full_rank_gate; vLLM 0.32, models/kimi_k3/nvidia/kda.py).
    """
    nested = part(fields, "linear_attn_config")
    heads = stated(nested, "num_heads") or needed(fields, "linear_num_heads")
    head_dim = stated(nested, "head_dim") or needed(fields, "linear_head_dim")
    kernel = stated(nested, "short_conv_kernel_size") or needed(fields, "linear_conv_kernel_dim")
    width = heads * head_dim
    elements = heads * head_dim * head_dim
    at_once = flag(nested, "use_full_rank_gate")
    widened = (1 if at_once else 2) * head_dim * width  # the second halves of decay and gate
    inward = 4 * width + head_dim if at_once else 3 * width + 2 * head_dim
    return StateMixer(
        kind="Kimi delta attention",
        heads=heads,
        in_columns=inward + heads,  # q, k, v, gate and decay or their first halves, strength b
        out_rows=width,
        other_elements=widened + 3 * width * kernel + width + heads + head_dim,  # convolutions, dt bias, A, norm
        state_elements=elements,
        conv_state_elements=3 * width * (kernel - 1),
        token_flops=DELTA_FLOPS * elements + 2 * widened + 2 * 3 * width * kernel,
        state_format=state_format(fields, "fp32"),
    )


def _lightning(fields: Mapping[str, Any]) -> StateMixer:
    """MiniMax-Text-01 (arXiv:2501.08313): linear attention, a fixed decay for each head, a gate on the output."""
    heads = needed(fields, *HEADS)
    head_dim = stated(fields, *HEAD_DIM) or needed(fields, *WIDTH) // heads
    width = heads * head_dim
    elements = heads * head_dim * head_dim
    return StateMixer(
        kind="lightning attention",
        heads=heads,
        in_columns=4 * width,  # q, k, v, output gate
        out_rows=width,
        other_elements=width,  # norm
        state_elements=elements,
        conv_state_elements=0,
        token_flops=LINEAR_FLOPS * elements,
        state_format=state_format(fields),
    )


def _mamba1(fields: Mapping[str, Any]) -> StateMixer:
    """Jamba, Falcon-Mamba and Mamba: a state for each channel, whose B, C and step come out of the channels."""
    hidden = needed(fields, *WIDTH)
    jamba = fields.get("mamba_d_state") is not None
    inner = stated(fields, "mamba_expand", "expand")
    channels = inner * hidden if inner is not None else needed(fields, "intermediate_size")
    if not jamba and fields.get("intermediate_size") is not None:
        channels = needed(fields, "intermediate_size")
    size, kernel = needed(fields, *STATE_SIZE), needed(fields, *CONV)
    rank = _step_rank(fields, hidden)
    inner_matrices = channels * (rank + 2 * size) + rank * channels
    biased = 2 * channels + hidden if flag(fields, "mamba_proj_bias" if jamba else "use_bias") else 0
    conv_bias = channels if flag(fields, "mamba_conv_bias" if jamba else "use_conv_bias", default=True) else 0
    norms = rank + 2 * size if jamba else 0
    small = channels * kernel + conv_bias + channels * size + 2 * channels  # A, then D and the step's bias
    return StateMixer(
        kind="Mamba",
        heads=channels,
        in_columns=2 * channels,
        out_rows=channels,
        other_elements=inner_matrices + small + biased + norms,
        state_elements=channels * size,
        conv_state_elements=channels * (kernel - 1),
        token_flops=SCAN_FLOPS * channels * size + 2 * inner_matrices + 2 * channels * kernel,
        state_format=state_format(fields),
    )


def _step_rank(fields: Mapping[str, Any], hidden: int) -> int:
    """``auto`` is a sixteenth of the width, rounded up."""
    for name in ("mamba_dt_rank", "time_step_rank"):
        if fields.get(name) == "auto":
            return -(-hidden // 16)
    return stated(fields, "mamba_dt_rank", "time_step_rank") or -(-hidden // 16)


def _mamba2(fields: Mapping[str, Any]) -> StateMixer:
    """Nemotron-H, Granite 4, Bamba, Zamba2, Falcon-H1, Mamba 2: heads with a scalar decay, B and C shared by groups."""
    heads = needed(fields, "mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "num_heads")
    inner = _inner_width(fields, heads)
    groups = needed(fields, "mamba_n_groups", "mamba_ngroups", "n_groups")
    size, kernel = needed(fields, *STATE_SIZE), needed(fields, *CONV)
    conv = inner + 2 * groups * size
    in_columns = inner + conv + heads
    hidden = needed(fields, *WIDTH)
    conv_bias = conv if flag(fields, _first(fields, "mamba_conv_bias", "use_conv_bias"), default=True) else 0
    biased = flag(fields, _first(fields, "mamba_proj_bias", "use_bias", "add_bias_linear"))
    norm = inner if flag(fields, "mamba_rms_norm", default=fields.get("mamba_d_ssm") is None) else 0
    elements = inner * size
    return StateMixer(
        kind="Mamba 2",
        heads=heads,
        in_columns=in_columns,
        out_rows=inner,
        other_elements=conv * kernel + conv_bias + 3 * heads + norm + (in_columns + hidden if biased else 0),
        state_elements=elements,
        conv_state_elements=conv * (kernel - 1),
        token_flops=LINEAR_FLOPS * elements + 2 * conv * kernel,
        state_format=state_format(fields, "fp32" if fields.get("mamba_num_heads") is not None else None),
    )


def _inner_width(fields: Mapping[str, Any], heads: int) -> int:
    """Channels of the heads: said by the width of a head, or as a multiple of the hidden size."""
    whole = stated(fields, "mamba_d_ssm")
    if whole is not None:
        return whole
    if fields.get("mamba_head_dim") is not None:
        return heads * needed(fields, "mamba_head_dim")
    return needed(fields, "mamba_expand", "expand") * needed(fields, *WIDTH)


def _first(fields: Mapping[str, Any], *names: str) -> str:
    return next((name for name in names if fields.get(name) is not None), names[0])


def _short_conv(fields: Mapping[str, Any]) -> StateMixer:
    """LFM2: a gated convolution over the last few tokens, no other state."""
    hidden = needed(fields, *WIDTH)
    kernel = needed(fields, "conv_L_cache")
    bias = 5 * hidden if flag(fields, "conv_bias") else 0  # three in-projections, the convolution, the out-projection
    return StateMixer(
        kind="short convolution",
        heads=hidden,
        in_columns=3 * hidden,
        out_rows=hidden,
        other_elements=hidden * kernel + bias,
        state_elements=0,
        conv_state_elements=hidden * (kernel - 1),
        token_flops=2 * hidden * kernel + 2 * hidden,  # and the two gates
        state_format=state_format(fields),
    )


def _recurrent(fields: Mapping[str, Any]) -> StateMixer:
    """RecurrentGemma: a gated linear recurrence of one number a channel, gates by blocks (arXiv:2402.19427)."""
    hidden = needed(fields, *WIDTH)
    width = stated(fields, "lru_width") or hidden
    blocks, kernel = needed(fields, *HEADS), needed(fields, "conv1d_width")
    if width % blocks:
        raise RooflensError(f"config field lru_width is {width}, no multiple of its {blocks} heads")
    gates = 2 * width * (width // blocks)
    biases = 3 * width + hidden + 2 * width  # both inputs, convolution, output, gates
    return StateMixer(
        kind="gated linear recurrence",
        heads=blocks,
        in_columns=2 * width,
        out_rows=width,
        other_elements=gates + width * kernel + width + biases,
        state_elements=width,
        conv_state_elements=width * (kernel - 1),
        token_flops=2 * gates + 2 * width * kernel + LINEAR_FLOPS * width,
        state_format=state_format(fields, "fp32"),
    )


KINDS: Mapping[str, Callable[[Mapping[str, Any]], StateMixer]] = {
    "gated_delta": _gated_delta,
    "kda": _kimi_delta,
    "lightning": _lightning,
    "mamba1": _mamba1,
    "mamba2": _mamba2,
    "short_conv": _short_conv,
    "recurrent": _recurrent,
}
