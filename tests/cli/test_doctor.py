"""What `rooflens doctor` finds on machines that are made up of real rings, pages and recorded processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.doctor_machines import machine, named, one
from cli.pages import served
from cli.test_find_rings import SERVER, process
from cli.test_find_servers import COLONS, HEALTH, closed_port

from rooflens.adapters.embedded.shape import SMALL
from rooflens.adapters.recorder import Recorder
from rooflens.adapters.vllm.patch import MOST_FAILURES
from rooflens.cli import VERBS, doctor, doctor_checks, doctor_install, main
from rooflens.cli.doctor import examine, text
from rooflens.cli.doctor_checks import Check, Machine, Standing
from rooflens.cli.doctor_install import NEEDS
from rooflens.ring_folder import SIZES

OK, NOTE, MISSING, BROKEN = Standing.OK, Standing.NOTE, Standing.MISSING, Standing.BROKEN


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROOFLENS_DISABLE", "ROOFLENS_DIR", "VLLM_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROOFLENS_URL", f"http://127.0.0.1:{closed_port()}")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine on which nothing runs."""
    (tmp_path / "proc" / "net").mkdir(parents=True)
    (tmp_path / "proc" / "net" / "tcp").write_text("head\n")
    return tmp_path


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with Recorder("e", folder=tmp_path / "rings", strict=True, model_name="m", model_config=SMALL.config(128)) as made:
        with made.step(contexts=[1]):
            pass
        yield made


def test_a_machine_without_an_engine(root: Path) -> None:
    found = list(examine(machine(root)))
    standing, what, remedy = one(found, "engines")
    assert (standing, what) == (MISSING, "no engine that can be watched")
    assert "install rooflens into its environment" in str(remedy)
    assert one(found, "ring folder")[0] is NOTE
    assert one(found, "space")[0] is OK
    assert one(found, "sidecar") == (NOTE, "none runs", "rooflens sidecar")
    assert "could not be looked at" not in "\n".join(text(found))


def test_an_engine_that_is_recorded_needs_nothing(root: Path, recorder: Recorder) -> None:
    found = list(examine(machine(root)))
    assert one(found, "engines") == (OK, "1 engine recorded: m", None)
    assert one(found, "rings") == (OK, "1 live, 0 of engines that have ended", None)
    assert one(found, "model") == (OK, "m: its roofline can be drawn", None)
    assert "mode 0700" in one(found, "ring folder")[1]
    assert [check for check in found if check.standing in doctor.IN_THE_WAY] == []
    assert text(found)[-1] == "nothing needs action"
    recorder.close()
    assert one(list(examine(machine(root))), "engines")[0] is MISSING


def test_a_server_that_was_told_not_to_record(root: Path, recorder: Recorder) -> None:
    process(root, 41, SERVER, "VLLM_PLUGINS=other")
    standing, what, remedy = named(list(examine(machine(root))), "engines")[1]
    assert (standing, remedy) == (NOTE, "add rooflens to it and restart")
    assert what.startswith("vLLM (process 41) was started with VLLM_PLUGINS='other'")
    recorder.close()
    standing, _, remedy = one(list(examine(machine(root))), "engines")
    assert standing is MISSING
    assert str(remedy).startswith("vLLM (process 41) was started with VLLM_PLUGINS='other'")


def test_a_hook_that_failed_and_one_that_is_off(root: Path, recorder: Recorder) -> None:
    assert recorder._ring is not None
    recorder._ring.count_failure()
    standing, what, _ = one(list(examine(machine(root))), "hook")
    assert (standing, what.endswith("it failed 1 times, and goes on")) == (BROKEN, True)
    for _ in range(MOST_FAILURES - 1):
        recorder._ring.count_failure()
    assert "has switched itself off" in one(list(examine(machine(root))), "hook")[1]


@pytest.mark.parametrize(
    ("facts", "said"), [({}, "config is not known"), ({"model_config": {"x": 1}}, "no roofline: ")]
)
def test_a_model_without_a_roofline(root: Path, facts: dict[str, Any], said: str) -> None:
    with Recorder("e", folder=root / "rings", strict=True, **facts):
        standing, what, remedy = one(list(examine(machine(root))), "model")
    assert standing is NOTE
    assert said in what
    assert remedy


def test_rings_are_found_among_many_files_that_are_none(root: Path, recorder: Recorder) -> None:
    for number in range(100):
        (root / "rings" / f"junk-{number}.ring").write_bytes(b"x")
    found = named(list(examine(machine(root))), "rings")
    assert found[0] == (OK, "1 live, 0 of engines that have ended, 100 that cannot be read", None)
    assert [standing for standing, *_ in found[1:]] == [BROKEN] * 3
    assert recorder.failures == 0


def test_rings_that_cannot_be_read(root: Path, recorder: Recorder) -> None:
    (root / "rings" / "bad.ring").write_bytes(b"x" * 5000)
    os.symlink("/dev/null", root / "rings" / "link.ring")
    bad = [check for check in named(list(examine(machine(root))), "rings") if check[0] is BROKEN]
    assert len(bad) == 2
    assert any("is a symbolic link" in what for _, what, _ in bad)
    assert recorder.failures == 0


def test_an_unfit_folder(root: Path) -> None:
    (root / "rings").mkdir()
    (root / "rings").chmod(0o777)
    standing, what, remedy = one(list(examine(machine(root))), "ring folder")
    assert (standing, "can be written by other users" in what) == (BROKEN, True)
    assert str(remedy).startswith("set ROOFLENS_DIR")


@pytest.mark.parametrize(("free", "standing"), [(1 << 20, OK), (5000, NOTE), (10, BROKEN)])
def test_room_for_rings(root: Path, monkeypatch: pytest.MonkeyPatch, free: int, standing: Standing) -> None:
    assert SIZES[0][0] * 128 > 5000 * 1024 > SIZES[-1][0] * 128
    space = types.SimpleNamespace(f_bavail=free, f_frsize=1024)
    monkeypatch.setattr(doctor_checks.os, "statvfs", lambda place: space)
    found = one(list(examine(machine(root))), "space")
    assert (found[0], bool(found[2])) == (standing, standing is not OK)


def test_a_page_without_the_hook(root: Path) -> None:
    net = root / "proc" / "net"
    with served({"/metrics": COLONS, "/version": b'{"version":"0.33.0"}'}) as port:
        net.joinpath("tcp").write_text(f"head\n 0: 0100007F:{port:04X} 00000000:0000 0A\n")
        found = list(examine(machine(root, ports=[port, closed_port()])))
    assert one(found, "engines")[0] is NOTE
    first, second = named(found, "metrics page")
    assert first == (OK, f"http://127.0.0.1:{port}/metrics, vLLM 0.33.0, names begin with vllm:", None)
    assert (second[0], second[2]) == (NOTE, "start vLLM without --disable-log-stats")
    assert one(found, "model")[2] == "name it: rooflens top --model NAME|config.json"


def test_several_api_servers_whose_page_is_that_of_one(root: Path) -> None:
    process(root, 41, f"{SERVER} --api-server-count 4", "A=b")
    with served({"/metrics": COLONS}) as port:
        (root / "proc" / "net" / "tcp").write_text(f"head\n 0: 0100007F:{port:04X} 00000000:0000 0A\n")
        standing, what, _ = one(list(examine(machine(root, ports=[port]))), "API servers")
    assert (standing, what[:13]) == (MISSING, "4 API servers")


def test_a_sidecar_that_runs(root: Path) -> None:
    with served({"/healthz": HEALTH}) as port:
        found = one(list(examine(machine(root, sidecar_url=f"127.0.0.1:{port}"))), "sidecar")
    assert (found[0], f"http://127.0.0.1:{port}/metrics" in found[1]) == (OK, True)


def test_an_engine_that_a_sidecar_watches_can_be_watched(root: Path) -> None:
    engines = json.dumps({"engines": [{"state": "live"}, {"state": "gone"}]}).encode()
    with served({"/healthz": HEALTH, "/api/v1/engines": engines}) as port:
        found = list(examine(machine(root, sidecar_url=f"127.0.0.1:{port}")))
    standing, what, remedy = one(found, "engines")
    assert (standing, remedy) == (OK, None)
    assert what.startswith(f"1 engine watched by the sidecar at http://127.0.0.1:{port}: rooflens top")
    with served({"/healthz": HEALTH, "/api/v1/engines": b"{}"}) as port:
        assert one(list(examine(machine(root, sidecar_url=f"127.0.0.1:{port}"))), "engines")[0] is MISSING


def test_what_is_not_installed_is_named_with_its_extra(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(NEEDS) == set(VERBS) - {"doctor", "explain", "export"}
    absent = {"numpy", "uvicorn"}
    monkeypatch.setattr(doctor_install, "find_spec", lambda name: None if name in absent else object())
    standing, what, remedy = one(list(examine(machine(root))), "verbs")
    assert (standing, remedy) == (MISSING, "pip install 'rooflens[sidecar]'")
    assert what.startswith("not installed: numpy, uvicorn, for analyze (shows counts only)")


def test_that_no_trace_can_be_kept_is_a_note(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_install, "find_spec", lambda name: None if name == "pyarrow" else object())
    found, remedy = list(examine(machine(root))), "pip install 'rooflens[trace]'"
    assert one(found, "traces") == (NOTE, "not installed: pyarrow: no trace is kept, read or exported", remedy)
    assert one(found, "verbs")[0] is OK


def test_processes_without_psutil_are_a_note(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert named(list(examine(machine(root))), "processes") == []
    monkeypatch.setattr(doctor_install, "find_spec", lambda name: None if name == "psutil" else object())
    standing, what, remedy = one(list(examine(machine(root))), "processes")
    assert (standing, remedy) == (NOTE, "pip install 'rooflens[sidecar]'")
    assert what.startswith("psutil is not installed")


def test_disabled_here(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLENS_DISABLE", "1")
    assert one(list(examine(machine(root))), "environment")[2] == "unset ROOFLENS_DISABLE"


def test_a_check_that_fails_is_an_answer(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check_odd(where: Machine) -> Iterator[Check]:
        yield Check("odd", OK, "so far")
        raise ValueError("an odd machine")

    monkeypatch.setattr(doctor, "CHECKS", (check_odd,))
    found = list(examine(machine(root)))
    assert named(found, "odd") == [
        (OK, "so far", None),
        (NOTE, "could not be looked at: ValueError: an odd machine", None),
    ]


def test_the_verb_prints_and_says_by_its_code(
    tmp_path: Path, recorder: Recorder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Machine(tmp_path, tmp_path / "rings", (), None)
    monkeypatch.setattr(doctor, "Machine", lambda folder, sidecar_url: made)
    assert main(["doctor"]) == 0
    assert "nothing needs action" in capsys.readouterr().out
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is True
    assert {"name", "standing", "found", "remedy"} == set(found["checks"][0])
    recorder.close()
    monkeypatch.setattr(doctor, "Machine", lambda folder, sidecar_url: machine(tmp_path))
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False
    assert main(["doctor", "--odd"]) == 2


def test_without_numpy_it_works(tmp_path: Path) -> None:
    code = "import sys; sys.modules['numpy'] = None; from rooflens.cli import main; sys.exit(main())"
    run = subprocess.run(
        [sys.executable, "-P", "-c", code, "doctor", str(tmp_path / "none"), "--json"],
        capture_output=True, text=True, check=False, env={**os.environ, "ROOFLENS_DIR": str(tmp_path)},
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (1, "")
    assert not [check for check in json.loads(run.stdout)["checks"] if "could not be looked at" in check["found"]]
