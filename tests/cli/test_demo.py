from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rooflens.adapters.embedded.blocks import BlockPool
from rooflens.adapters.embedded.engine import Settings, recorder_for
from rooflens.adapters.embedded.scheduler import Request, Scheduler
from rooflens.adapters.embedded.shape import SMALL
from rooflens.cli import main
from rooflens.cli.demo_live import Raised, Watching
from rooflens.cli.demo_presets import BLOCK_TOKENS, HEALTHY, LONG_OUTPUT_TOKENS, OUTPUTS, SHORT_PROMPTS
from rooflens.cli.demo_text import apart_text, findings_text
from rooflens.cli.embedded import carry_out
from rooflens.collector.windows import WindowSettings
from rooflens.findings import Code, Evidence, Finding, Price, Severity, Status
from rooflens.live_records import EngineView, Snapshot, SourceKind, State, WindowFigures
from rooflens.model_records import HardwareSpec
from rooflens.records import EngineInfo, RooflensError, StepTable

QUICK = ("demo", "--small", "--seconds", "3", "--threads", "1", "--json")


def demo(folder: Path, *words: str) -> dict[str, Any]:
    environment = {**os.environ, "ROOFLENS_DIR": str(folder / "rings")}
    command = [sys.executable, "-c", "import sys; from rooflens.cli import main; sys.exit(main())", *QUICK, *words]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    found = json.loads(run.stdout)
    assert isinstance(found, dict)
    return found


def test_the_demo_records_explains_and_watches(tmp_path: Path) -> None:
    found = demo(tmp_path, "--fault", "stall", "--stall", "5", "--kv-blocks", "20", "--batch", "4")
    phases = {phase["name"]: phase for phase in found["phases"]}
    assert {"decode", "mixed", "between steps"} <= set(phases)
    assert phases["decode"]["floor"]["steps"] == phases["decode"]["steps"]
    assert found["ending"] == "ended"
    assert (found["lost_steps"], found["torn_steps"], found["doubted_frames"], found["hook_failures"]) == (0, 0, 0, 0)
    assert found["totals"]["preempted"] > 0
    assert found["totals"]["recomputed_tokens"] > 0
    assert found["spreads"]["requests"]["max"] == 4
    assert found["hardware"]["id"] == "this-cpu"
    assert found["why_smaller"] == "a small model was asked for"
    assert Path(found["ring"]).exists()
    assert Path(found["ring"]).parent == tmp_path / "rings" / "demo"
    assert (tmp_path / "rings" / "demo").stat().st_mode & 0o777 == 0o700
    assert set(found["events"]) == {"load_batch", "load_ended"}
    assert found["api"].startswith("http://127.0.0.1:")
    assert (found["fault"], found["expected"]) == ("stall", "engine_stalled")
    assert set(found["findings"]).isdisjoint(found["cannot_tell"])
    assert all(Finding.from_json(finding).code == code for code, finding in found["findings"].items())
    stalled = Finding.from_json(found["findings"]["engine_stalled"])
    assert stalled.price is not None
    assert stalled.price.judged_s > 3
    assert stalled.remedy is not None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_kept_goes_on_until_a_signal_and_then_tells(tmp_path: Path, number: signal.Signals) -> None:
    environment = {**os.environ, "ROOFLENS_DIR": str(tmp_path / "rings")}
    code = "import sys; from rooflens.cli import main; sys.exit(main())"
    words = [word for word in QUICK if word != "--json"]
    command = [sys.executable, "-P", "-c", code, *words, "--keep", "--fault", "batch"]  # an hour
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as run:
        try:
            assert run.stderr is not None
            said = list(takewhile(lambda line: "load: batch" not in line, run.stderr))
            assert "rooflens top" in "".join(said)
            os.killpg(run.pid, number)  # as a terminal sends it: to the whole group
            out, _ = run.communicate(timeout=60)
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode == 0
    assert "ended in order" in out
    assert "was expected" in out


def test_an_engine_that_has_ended_is_not_killed_by_a_late_signal(tmp_path: Path) -> None:
    """Told to end a second time while Python shuts down, as when a terminal and the demo both tell it."""
    order = {"small": True, "folder": str(tmp_path), "phases": []}
    code = (
        "import os, signal, sys; from rooflens.adapters.embedded.__main__ import main; "
        "code = main(); "
        "[os.kill(os.getpid(), number) for number in (signal.SIGTERM, signal.SIGINT)]; "
        "sys.exit(code or 7 * (signal.getsignal(signal.SIGTERM) != signal.SIG_IGN))"
    )
    run = subprocess.run(
        [sys.executable, "-P", "-c", code, json.dumps(order)], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert json.loads(run.stdout.splitlines()[-1])["done"] is True


def test_a_demo_that_may_not_record_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLENS_DISABLE", "1")
    with pytest.raises(RooflensError, match="ROOFLENS_DISABLE is set"):
        carry_out({"small": True, "phases": []}, 1, print, print)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--seconds", "0"), "--seconds 0 is not from 3 to 3,600"),
        (("--seconds", "nan"), "--seconds nan is not from"),
        (("--batch", "0"), "--batch 0 is not from 1 to"),
        (("--batch", "-3"), "--batch -3 is not from 1 to"),
        (("--threads", "0"), "--threads 0 is not from 1 to"),
        (("--prompt", "0"), "--prompt 0 is not from 1 to"),
        (("--host-delay", "-1"), "--host-delay -1 is not from 0 to"),
        (("--stall", "-1"), "--stall -1 is not from 0 to"),
        (("--stall-at", "0"), "--stall-at 0 is not from 1 to"),
        (("--neighbours", "-1"), "--neighbours -1 is not from 0 to"),
        (("--kv-blocks", "0"), "--kv-blocks 0 is not from 1 to"),
        (("--chunk", "0"), "--chunk 0 is not from 1 to"),
        (("--kv-blocks", "7"), "--kv-blocks 7 is too few: the longest request never fits, 8 blocks are needed"),
        (("--prompt", "512", "--kv-blocks", "32"), "the longest request never fits, 33 blocks are needed"),
        (("--fault", "kw"), "invalid choice: 'kw'"),
    ],
)
def test_what_cannot_be_is_one_line_before_anything_is_measured(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*_: object) -> None:
        raise AssertionError("measured first")

    monkeypatch.setattr("rooflens.cli.demo.best_threads", measured)
    monkeypatch.setattr("rooflens.collector.step_roof.measure_step_roof", measured)
    assert main(["demo", *words]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert told in output.err


def test_what_is_not_installed_is_named_with_its_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rooflens.cli.demo.find_spec", lambda name: None if name == "uvicorn" else object())
    assert main(["demo"]) == 2
    assert capsys.readouterr().err == "rooflens: 'demo' needs uvicorn: pip install 'rooflens[demo]'\n"


def snapshot_of(findings: tuple[Finding, ...], state: State = State.LIVE, instance: str = "ours") -> Snapshot:
    figures = WindowFigures(0.0, 4.0, 24, 4.0, 4.0, 0.0, None)
    info = EngineInfo(instance=instance, engine="rooflens-embedded")
    view = EngineView("m", "0", SourceKind.RING, state, info, None, 0.0, 4.0, (figures,), findings, StepTable({}), None)
    return Snapshot(1, 0.0, 0.0, 0.0, "0", (view,))


def test_only_what_fired_at_our_engine_is_kept_and_said_once() -> None:
    said: list[str] = []
    raised = Raised(said.append)
    first = Finding(Code.KV_PRESSURE, Severity.WARNING, Status.FIRING, "3 preemptions")
    unknown = Finding(Code.HOST_OVERHEAD, Severity.INFO, Status.CANNOT_TELL, "?", missing=("the hook",))
    raised.export(snapshot_of((first, unknown)))
    assert (said, raised.findings) == ([], {})  # the engine is not known yet
    raised.ring = Path("/rings/ours.ring")
    raised.export(snapshot_of((first,), instance="another"))
    assert raised.findings == {}
    raised.export(snapshot_of((first, unknown)))
    raised.export(snapshot_of((replace(first, summary="7 preemptions"), unknown)))
    assert [line.strip() for line in said] == ["warning  kv_pressure: 3 preemptions"]
    assert raised.findings[Code.KV_PRESSURE].summary == "7 preemptions"
    assert not raised.over.is_set()
    raised.export(snapshot_of((replace(unknown, code=Code.MISSED_BATCHING),), State.ENDED))
    assert raised.over.is_set()
    assert set(raised.cannot_tell) == {Code.HOST_OVERHEAD}
    assert [finding.code for finding in raised.serious] == [Code.KV_PRESSURE]


def test_another_demo_beside_it_is_not_watched(tmp_path: Path) -> None:
    """Their folder is one; each knows its own ring, and that once its engine has made it."""
    raised, hardware = Raised(print), HardwareSpec("this-cpu", "c", "unknown", 1, 1e9, {}, {})
    watching = Watching(tmp_path, hardware, WindowSettings(1.0, 1), raised)
    with ExitStack() as stack:
        rings = [
            stack.enter_context(recorder_for(SMALL, Settings(), 128, strict=True, folder=tmp_path)).path for _ in "ab"
        ]
        assert watching.watch.turn().engines == ()
        raised.ring = rings[1]
        (view,) = watching.watch.turn().engines
        assert rings[1] is not None
        assert view.info is not None
        assert (view.engine, view.info.instance) == ("0", rings[1].stem)
    watching.watch.close()


def test_the_blocks_said_to_be_needed_are_just_enough() -> None:
    preset = HEALTHY.given({"prompt": 512})
    tokens = 512 + LONG_OUTPUT_TOKENS
    pool = BlockPool(preset.longest_request_blocks, BLOCK_TOKENS)
    Scheduler(pool, 1, 128).add(Request([0] * (tokens - LONG_OUTPUT_TOKENS), LONG_OUTPUT_TOKENS))
    with pytest.raises(RooflensError, match="never fits"):
        Scheduler(BlockPool(pool.blocks - 1, BLOCK_TOKENS), 1, 128).add(Request([0] * 512, LONG_OUTPUT_TOKENS))
    short = HEALTHY.longest_request_blocks
    assert (short - 1) * BLOCK_TOKENS < SHORT_PROMPTS[1] + OUTPUTS[1] - 1 <= short * BLOCK_TOKENS


def summary_of(observed_s: float, reachable_s: float | None, single_s: float) -> Any:
    """As much of a summary as is told of steps far above their floor of a second."""
    floor = SimpleNamespace(observed_s=observed_s, floor_s=1.0, reachable_s=reachable_s)
    single = SimpleNamespace(observed_s=single_s, floor_s=1.0, reachable_s=reachable_s)
    batches = [SimpleNamespace(name="batch 1", floor=single), SimpleNamespace(name="batch 8 to 15", floor=floor)]
    return SimpleNamespace(phases=[SimpleNamespace(floor=floor), SimpleNamespace(floor=None)], decode_by_batch=batches)


def test_steps_far_above_what_is_reachable_are_tied_to_the_load() -> None:
    assert apart_text(summary_of(3.9, 2.0, 1.0), 2, 9.0, 2) == ""
    text = " ".join(apart_text(summary_of(6.0, 2.0, 2.0), 2, 2.4, 2).split())
    assert text == (
        "steps 6.00 times their floor, 3.00 times what is reachable: that is what NumPy makes of this load (decode by "
        "batch: batch 1 2.00, batch 8 to 15 6.00); its products of a few rows take a multiple of those of one, though "
        "they read the same weights"
    )
    text = " ".join(apart_text(summary_of(6.0, None, 5.0), 1, 3.4, 2).split())
    assert "reachable" not in text
    assert "products" not in text
    assert text.endswith("others use the machine too (load average 3.4 on 2 cores, the engine has 1)")


def test_the_findings_are_told_with_price_remedy_and_what_is_missing() -> None:
    said: list[str] = []
    raised = Raised(said.append)
    assert findings_text(raised, None) == "findings  none above info"
    untold = Finding(Code.MEMORY_BOUND_WASTE, Severity.INFO, Status.CANNOT_TELL, "?", missing=("what is reachable",))
    raised.ring = Path("ours.ring")
    raised.export(snapshot_of((untold,)))
    text = findings_text(raised, None)
    assert text == "findings  none above info; not told: memory_bound_waste (what is reachable)"
    raised.findings[Code.KV_PRESSURE] = Finding(
        Code.KV_PRESSURE,
        Severity.WARNING,
        Status.FIRING,
        "7 preemptions",
        evidence=(Evidence("kv_used_mean", 0.953, "1"), Evidence("kv_blocks", 20)),
        price=Price(0.5, 2.0, 0.1, 0.9, "re-evaluated"),
        remedy="more memory",
    )
    text = findings_text(raised, "kv_pressure")
    for part in (
        "kv_pressure, as the fault should raise",
        "warning   kv_pressure: 7 preemptions",
        "kv used mean 95%, kv blocks 20",
        "500 ms (25%) of 2 s, 100 ms to 900 ms: re-evaluated",
        "remedy    more memory",
        "rooflens explain kv_pressure",
    ):
        assert part in text
    assert "kv_pressure; host_overhead was expected" in findings_text(raised, "host_overhead")
    assert "none above info; host_overhead was expected" in findings_text(Raised(said.append), "host_overhead")
