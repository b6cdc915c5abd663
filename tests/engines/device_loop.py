"""The real engine with the CPU's real model runner in one process: what it generated and what was wrapped, as JSON.

python device_loop.py MODEL_FOLDER
"""

from __future__ import annotations

import json
import sys

from vllm import LLM, SamplingParams


def main() -> None:
    llm = LLM(
        model=sys.argv[1], load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True,
        max_model_len=256, max_num_seqs=4, max_num_batched_tokens=64, num_gpu_blocks_override=64, seed=0,
    )  # fmt: skip
    prompts = [{"prompt_token_ids": list(range(3, 3 + length))} for length in (5, 90, 17)]
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, detokenize=False)
    generated = [list(one.outputs[0].token_ids) for one in llm.generate(prompts, params, use_tqdm=False)]
    worker = llm.llm_engine.model_executor.driver_worker.worker
    runner = worker.model_runner
    methods = {
        "WorkerBase.__init__": type(worker).__mro__[-2].__init__,
        "init_device": worker.init_device,
        "execute_model": runner.execute_model,
        "sample_tokens": runner.sample_tokens,
        "_dummy_run": runner._dummy_run,
    }
    print(
        json.dumps(
            {
                "generated": generated,
                "runner": type(runner).__name__,
                "wrapped": [name for name, method in methods.items() if hasattr(method, "_rooflens_wrapped")],
                "loaded": "rooflens.adapters.vllm.device" in sys.modules,
            }
        )
    )


if __name__ == "__main__":
    main()
