"""What gives more, or shows where an engine hangs, in the words of each engine: not every one is Python or has a hook.

The names are those that the adapters give the engines.
"""

from __future__ import annotations

from rooflens.records import EngineInfo

INSTALL = "install rooflens into the engine's environment (the hook)"
STEPS = {
    "vllm": f"{INSTALL}; if VLLM_PLUGINS is set, add rooflens to it",
    "sglang": f"{INSTALL}, from SGLang 0.5.12 on; if SGLANG_PLUGINS is set, add rooflens to it",
    "transformers": f"{INSTALL} and take hold of its continuous batching (docs/transformers.md)",
    "tensorrt-llm": "TensorRT-LLM has no hook; the JSON of each iteration at its /metrics comes nearest (--scrape)",
    "llama.cpp": "llama.cpp has no hook and tells no single steps; its log has the timings of each request (--log)",
    "tgi": "TGI has no hook and tells no single steps",
    "dynamo": "forward-pass messages of its workers (--feed)",
}
OTHER_STEPS = "the recorder in the engine (docs/recorder.md), or push (docs/push.md)"
POOL = {
    "vllm": "the hook, or a metrics page with the engine's cache configuration",
    "sglang": "the hook, its metrics page (--enable-metrics), or its log from the start (--log)",
    "transformers": "the hook",
    "tensorrt-llm": "its JSON at /metrics (--scrape), or its log from the start (--log)",
    "llama.cpp": "its log from the start (--log)",
    "tgi": "TGI does not tell it",
    "dynamo": "the metrics page of its workers (--scrape)",
}
OTHER_POOL = "the recorder or push, which are told it"
BEFORE_RESTART = "look where it hangs before restarting"
PYTHON = "py-spy dump --pid of the engine core and of each worker"
HANGS = {
    "vllm": f"{PYTHON}; VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=60 makes the next one end by itself",
    "sglang": f"{PYTHON}; --watchdog-timeout 60 makes the next one end by itself",
    "transformers": "py-spy dump --pid of its process",
    "tensorrt-llm": "py-spy dump --native --pid of each rank, and the end of its log",
    "llama.cpp": "gdb -p PID -batch -ex 'thread apply all bt', and the end of its log",
    "tgi": "py-spy dump --pid of each shard (text-generation-server), and the router's log",
    "dynamo": "the workers behind the frontend, each by its own page or log",
}
OTHER_HANGS = "the stacks of its threads (py-spy dump --pid for Python, gdb -p for others), and its log"


def single_steps(info: EngineInfo | None) -> str:
    """What gives steps one by one, as far as this engine can."""
    return STEPS.get(_engine(info), OTHER_STEPS)


def steps_missing(info: EngineInfo | None) -> str:
    """The same as an input that a rule lacks."""
    return f"steps one by one: {single_steps(info)}"


def kv_pool(info: EngineInfo | None) -> str:
    """What tells the size of the KV pool."""
    return POOL.get(_engine(info), OTHER_POOL)


def where_it_hangs(info: EngineInfo | None) -> str:
    """How to see where a stalled engine hangs, and what ends the next one by itself where something does."""
    return f"{BEFORE_RESTART}: {HANGS.get(_engine(info), OTHER_HANGS)}"


def _engine(info: EngineInfo | None) -> str:
    return info.engine if info is not None else ""
