"""Drives the decode loop through the recorder, as a stranger's engine would be, with CUDA events around every step."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from decode_loop import Loop, Weights, attention_backend

from rooflens.adapters.recorder import Recorder
from rooflens.collector.device_spans import join_device
from rooflens.pipeline import Recording, read_ring
from rooflens.records import DeviceSpan, GraphMode, RooflensError, StepTable

LEAST_STEPS = 30  # of a loop: a rule wants twenty
LONGEST_FACTOR = 10.0  # of the seconds asked for, where steps are so slow that there are not enough of them
LEAST_PAUSE_S = 1e-3
MOST_STEPS = 50_000  # a ring holds some more


@dataclass(frozen=True)
class Case:
    """One loop to run; ``made_for`` is the finding that it is made to raise.

    ``paused``: the host rests before each step for as long as the last one took. ``passes``: how often the whole model
    is read for one step.
    """

    name: str
    batch: int
    graphs: bool = False
    paused: bool = False
    passes: int = 1
    made_for: str | None = None


@dataclass
class Run:
    """What a loop left: its steps with device time where there is one, and the counters sampled meanwhile."""

    case: Case
    recording: Recording
    steps: StepTable
    samples: list[Any] = field(default_factory=list)
    facts: list[Any] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def cases(batches: tuple[int, ...], cuda: bool) -> list[Case]:
    """Every loop, in the order in which they run."""
    found = [Case(f"eager, batch {batch}", batch) for batch in batches]
    if cuda:
        found += [Case(f"graph, batch {batch}", batch, graphs=True) for batch in batches]
    first = batches[0]
    found.append(Case(f"pauses of the host, batch {first}", first, graphs=cuda, paused=True, made_for="host_overhead"))
    found.append(
        Case(f"weights read twice, batch {first}", first, graphs=cuda, passes=2, made_for="memory_bound_waste")
    )
    return found


def run_case(
    torch: Any, weights: Weights, case: Case, seconds: float, uuid: str | None, watch: Callable[[], Any]
) -> Run:
    """Run one loop for ``seconds``; RooflensError where its steps cannot be recorded, RuntimeError where torch fails.

    ``watch`` makes a context that samples counters, as counted.Sampling.
    """
    cuda = weights.device.type == "cuda"
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode())
        if cuda:
            stack.enter_context(attention_backend(torch))
        loop = Loop(torch, weights, case.batch, case.passes)
        loop.warm_up()
        if case.graphs:
            loop.capture()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o700)
        facts = weights.shape.facts(case.batch, case.graphs, uuid)
        sampling = stack.enter_context(watch())
        with Recorder("torch-decode-loop", folder=folder, strict=True, **facts) as recorder:
            spans = _steps(torch, loop, recorder, case, seconds)
            path = recorder.path
        if path is None or recorder.failures:
            raise RooflensError(f"{case.name}: {recorder.failures} steps were not recorded; is ROOFLENS_DISABLE set?")
        recording = read_ring(path)
    steps = join_device(recording.steps, spans, from_first_step=True) if spans else recording.steps
    run = Run(case, recording, steps)
    run.samples, run.facts, run.problems = sampling.taken()
    return run


def _steps(torch: Any, loop: Loop, recorder: Recorder, case: Case, seconds: float) -> list[DeviceSpan]:
    """Step after step until the time is over; the spans of the steps on the device, none without CUDA events."""
    cuda = loop.weights.device.type == "cuda"
    context = loop.weights.shape.context_tokens
    contexts = [context] * case.batch
    given = {
        "running": case.batch,
        "waiting": 0,
        "deferred": 0,
        "kv_blocks_used": case.batch * (context + 1),
        "graph_mode": int(GraphMode.FULL if case.graphs else GraphMode.EAGER),
    }
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2)) if cuda else (None, None)
    spans: list[DeviceSpan] = []
    started_s = time.monotonic()
    ordinal, step_s = 0, LEAST_PAUSE_S
    while True:
        gone_s = time.monotonic() - started_s
        enough = ordinal >= LEAST_STEPS or gone_s >= LONGEST_FACTOR * seconds
        if ordinal == MOST_STEPS or (enough and gone_s >= seconds):
            return spans
        if case.paused:
            time.sleep(max(LEAST_PAUSE_S, step_s))
        ordinal += 1
        with recorder.step(contexts=contexts, **given) as step:
            begun_s = time.monotonic()
            if cuda:
                begin.record()
            loop.forward()
            if cuda:
                end.record()
            loop.tokens.tolist()  # waits for the device
            ended_s = time.monotonic()
            step.done()
        step_s = ended_s - begun_s
        if cuda:
            device_s = begin.elapsed_time(end) / 1e3
            spans.append(DeviceSpan(ordinal, begun_s, ended_s, device_s, 0.0, case.batch, case.batch))
