"""What the hook says of a vLLM whose configuration is made up; the real one is asked in tests/engines."""

from __future__ import annotations

from types import SimpleNamespace as Made
from typing import Any

import pytest

from rooflens.adapters.vllm.info import engine_info

STATES = {"shapes": ((3, 8192), (32, 128, 128)), "dtypes": ("torch.bfloat16", "torch.float32"), "block_size": 16}


class MambaSpec(Made):
    """Named as vLLM's."""


class FullAttentionSpec(Made):
    """Named as vLLM's."""


def scheduler(*specs: Any, **cache: Any) -> Any:
    groups = [Made(kv_cache_spec=spec, layer_names=["a"]) for spec in specs]
    config = Made(model_config=None, scheduler_config=None, parallel_config=None, cache_config=Made(**cache))
    return Made(
        vllm_config=config,
        kv_cache_config=Made(kv_cache_groups=groups),
        kv_cache_manager=Made(block_pool=Made(num_gpu_blocks=9)),
    )


ATTENTION = FullAttentionSpec(block_size=16, dtype="torch.bfloat16")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (scheduler(ATTENTION, MambaSpec(**STATES)), "float32"),
        (scheduler(ATTENTION, MambaSpec(**STATES), mamba_ssm_cache_dtype="bfloat16"), "float32"),  # as resolved
        (scheduler(Made(block_size=16, kv_cache_specs={"a": ATTENTION, "b": MambaSpec(**STATES)})), "float32"),
        (scheduler(MambaSpec(**STATES | {"shapes": STATES["shapes"][::-1]})), "bfloat16"),  # the larger one counts
        (scheduler(MambaSpec(block_size=16), mamba_ssm_cache_dtype="float32", mamba_cache_dtype="auto"), "float32"),
        (scheduler(mamba_ssm_cache_dtype="auto", mamba_cache_dtype="float16"), "float16"),
        (scheduler(ATTENTION, mamba_ssm_cache_dtype="auto", mamba_cache_dtype="auto"), None),
        (scheduler(ATTENTION), None),
    ],
)
def test_the_format_of_states_is_as_vllm_resolved_it(made: Any, said: str | None) -> None:
    info = engine_info(made, "i")
    assert info.state_dtype == said
    assert info.to_json().get("state_dtype") == said
    assert (info.kv_blocks, len(info.kv_groups)) == (8, len(made.kv_cache_config.kv_cache_groups))
