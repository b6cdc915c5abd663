"""Device time on a real GPU: what no test without one can show. Needs vLLM, numpy and rooflens in one environment.

    python benchmarks/gpu/check_device_time.py                 # exit code 0: proven here; 1: refuted; 2: no GPU
    python benchmarks/gpu/check_device_time.py --hardware h100-sxm5-80

vLLM runs a small Llama with random weights at batch 1, 16 and 64, with and without ROOFLENS_DEVICE_TIME=1, in turns.
Passing proves, for this GPU, this vLLM and one worker:

- recorded: the engine's steps have a device time, nearly all, under the UUID that nvidia-smi gives the GPU, and
  the passes of vLLM's own warm-up are not among them;
- above:    no device time is longer than from the step's submit to its output (a clock or a join that is off by a
  step would break it);
- below:    none is shorter than the roofline's strict floor of its step (an event that passes too early would);
- in sum:   the device times of steps that follow each other fill no more than the wall clock, so spans do not overlap;
- cost:     generating takes at most 3 % longer, the medians of three runs each compared.

It does not prove several workers, speculation, a pipeline, or that the device was busy all of the time it gives.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 32000,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
RUNS = 3
NEARLY_ALL = 0.95
LONGEST_SLOWDOWN = 1.03
CLOCK_S = 50e-6  # what the two clocks may differ by over one step


def generate(model: str) -> None:
    """The child: seconds for each batch size, after one round to warm up."""
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=model,
        load_format="dummy",
        skip_tokenizer_init=True,
        max_model_len=2048,
        gpu_memory_utilization=0.5,
        seed=0,
    )
    params = SamplingParams(temperature=0.0, max_tokens=200, ignore_eos=True, detokenize=False)
    total = 0.0
    for count, batch in enumerate((16, 1, 16, 64)):
        prompts = [{"prompt_token_ids": [3 + row % 1000] * (100 + row)} for row in range(batch)]
        started = time.monotonic()
        llm.generate(prompts, params, use_tqdm=False)
        total += (time.monotonic() - started) if count else 0.0
    print(json.dumps({"seconds": total}))


def run(model: Path, rings: Path, asked: bool) -> float:
    """One engine from start to end; the seconds it generated for."""
    env = {**os.environ, "ROOFLENS_DIR": str(rings), "ROOFLENS_DEVICE_TIME": "1" if asked else "0"}
    env |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    command = [sys.executable, __file__, "--generate", str(model)]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, timeout=1200, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["seconds"])


def gpus() -> dict[str, str]:
    """Name of each GPU by its UUID; empty without nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        return {}
    query = ["nvidia-smi", "--query-gpu=uuid,name", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    rows = [line.split(", ", 1) for line in done.stdout.splitlines() if done.returncode == 0]
    return {row[0]: row[1] for row in rows if len(row) == 2}


def judge(rings: Path, found: dict[str, str], hardware: str | None) -> list[tuple[str, bool, str]]:
    """(check, whether it holds, the figures) for the one engine whose rings these are."""
    from rooflens.analyzer.hardware import find_hardware
    from rooflens.collector.device_spans import join_device, read_device_ring
    from rooflens.pipeline import lay_beside, read_ring
    from rooflens.records import StepKind
    from rooflens.ring_folder import DEVICE_SUFFIX, list_rings

    (path,), (engine,) = list_rings(rings, DEVICE_SUFFIX), list_rings(rings)
    worker, recording = read_device_ring(path), read_ring(engine)
    table = join_device(recording.steps, worker.spans, from_first_step=not recording.lost_steps)
    real = table["kind"] != StepKind.DUMMY
    known = table.where("device_s") & real
    share = float(known.sum() / max(1, real.sum()))
    uuids = worker.facts["device_uuids"]
    checks = [("recorded", share >= NEARLY_ALL, f"{share:.2%} of {real.sum()} steps; skipped {worker.skipped}")]
    first = worker.spans[0].ordinal if worker.spans else 0
    checks.append(("warm-up apart", first == 1 and worker.spans[-1].ordinal <= real.sum(), f"first ordinal {first}"))
    checks.append(("UUID", set(uuids) <= set(found) and len(uuids) == 1, f"{uuids} among {sorted(found)}"))
    took = table["output_monotonic_s"] - table["submit_monotonic_s"]
    above = known & (table["device_s"] > took + CLOCK_S)
    checks.append(("above", not above.any(), f"{above.sum()} of {known.sum()} longer than submit to output"))
    _, analysis, problem = lay_beside(recording, find_hardware(hardware or found.get(uuids[0] if uuids else "", "")))
    if analysis is None:
        checks.append(("below", False, str(problem)))
    else:
        below = known & analysis.modelled & (table["device_s"] < analysis.floor_s)
        ratio = statistics.median((table["device_s"] / analysis.floor_s)[known & analysis.modelled].tolist())
        checks.append(("below", not below.any(), f"{below.sum()} shorter than the floor; median {ratio:.2f} times it"))
    busy_s, observed_s = float(table["device_s"][known].sum()), float(table["observed_s"][known].sum())
    wall_s = float(table["output_monotonic_s"][known][-1] - table["submit_monotonic_s"][known][0])
    figures = f"{busy_s:.3f} s on the device, {observed_s:.3f} s observed, {wall_s:.3f} s by the clock"
    checks.append(("in sum", busy_s <= wall_s, figures))
    return checks


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hardware", help="what rooflens calls this GPU; by default as nvidia-smi names it")
    parser.add_argument("--generate", metavar="MODEL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.generate:
        generate(options.generate)
        return 0
    found = gpus()
    if not found:
        print("no NVIDIA GPU here: nothing was proven", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text(json.dumps(CONFIG))
        timed = [
            (run(folder / "model", folder / f"plain-{n}", False), run(folder / "model", folder / f"asked-{n}", True))
            for n in range(RUNS)
        ]
        checks = judge(folder / f"asked-{RUNS - 1}", found, options.hardware)
        plain_s, asked_s = (statistics.median(column) for column in zip(*timed, strict=True))
    ratio = asked_s / plain_s
    checks.append(("cost", ratio <= LONGEST_SLOWDOWN, f"{asked_s:.3f} s against {plain_s:.3f} s: {ratio:.4f} times"))
    for check, holds, figures in checks:
        print(f"{'holds' if holds else 'FAILS':6} {check:14} {figures}")
    return 0 if all(holds for _, holds, _ in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
