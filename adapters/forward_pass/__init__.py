"""ForwardPassMetrics: one message for each forward pass, which engines publish over ZMQ or Dynamo writes to files.

What was read, and where:

- ai-dynamo/dynamo ``components/src/dynamo/common/forward_pass_metrics.py``: the first form without a version (commit
  327e70f4b436ac6ff9c038d9e0e513c259b5fe86) and version 1; ``components/src/dynamo/vllm/instrumented_scheduler.py``
  (commit 745cf376f3485eb767e9ef7b75d913a0a575a01b and later states) for what the sums and ``wall_time`` are.
- sgl-project/sglang ``srt/observability/forward_pass_metrics.py``: the wheels 0.5.12 to 0.5.23.
- vllm-project/vllm pull request 52061 (open in 2026-09): version 1 with a ``timing_scope``.
- ``dynamo.fpm.trace.v1``: Dynamo's trace writer in Rust and its reference page; ai-dynamo/aiconfigurator
  ``aic-core/rust/aiconfigurator-core/src/fpm/metrics.rs`` (commit 095f58a51c4ca8e61b66ec108d86f223f8d559ce).

All of them declare plain ``msgspec.Struct``: what is on the wire is a map with the names of the fields, although
SGLang's docstring calls it positional. Dynamo's Rust side reads maps only. Arrays by position (``array_like``) are read
as well, checked place by place.
"""
