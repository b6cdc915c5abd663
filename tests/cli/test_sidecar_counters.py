"""The real `rooflens sidecar` and the counters that it reads: what it says at the start, of a driver and of a page."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cli.test_sidecar import sidecar, wait_for
from made_engine import made_engine
from nvml_fixture import DoubleError, build

UUID = "GPU-0a0a0a0a-0000-0000-0000-000000000001"
DEVICE = f"""driver 580.82
device 0 name="NVIDIA H200" uuid={UUID} arch=9 cc=9.0 bus_width=6144 mem_clk_max=3201 sm_max=1980 mem_total=150754820096 power_limit_w=700
at 0 * gr=100 sm=92 occ=31 tensor=9 dram=71 gpu_util=100 mem_util=68 sm_clk=1980 mem_clk=3201 power_w=430 temp=51 mem_used=130000000000
"""  # noqa: E501


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rings = tmp_path / "rings"
    rings.mkdir(mode=0o700)
    return rings


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return build(tmp_path_factory.mktemp("nvml"))
    except DoubleError as error:
        pytest.skip(str(error))


@pytest.fixture
def page() -> Iterator[str]:
    """A dcgm-exporter of one device, whose figures change at every read."""
    reads = [0]

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            reads[0] += 1
            labels = f'gpu="0",UUID="{UUID}",modelName="NVIDIA H200",Hostname="n1"'
            text = "".join(
                f"# HELP {name} Figure.\n# TYPE {name} gauge\n{name}{{{labels}}} {value}\n"
                for name, value in (("DCGM_FI_DEV_SM_CLOCK", 1500 + reads[0] % 2), ("DCGM_FI_DEV_POWER_USAGE", 431.5))
            ).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_driver_is_named_at_the_start_and_its_devices_are_served(folder: Path, library: Path, tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    profile.write_text(DEVICE)
    played = {"LD_LIBRARY_PATH": str(library.parent), "NVMLSIM_PROFILE": str(profile)}
    with (
        made_engine(folder, device="cuda", device_uuids=[UUID]) as engine,
        sidecar(str(folder), "--counter-period", "0.25", **played) as run,
    ):
        run.line("live")
        assert "counters  NVML every 0.25 s (1 device), processes of engines" in run.said
        engine.steps(10)
        key = f'device_uuid="{UUID}",source="nvml"'
        wait_for(run, f"rooflens_device_power_watts{{{key}}}", 430.0)
        assert run.sample(f"rooflens_device_up{{{key}}}") == 1
        assert run.sample(f'rooflens_engine_device_info{{model_name="llama",engine="0",device_uuid="{UUID}"}}') == 1
        content = json.loads(run.get("/api/v1/engines"))
        assert [device["uuid"] for device in content["devices"]] == [UUID]
        assert content["problems"] == []


def test_a_machine_without_devices_says_so_once_and_has_no_problem(folder: Path) -> None:
    with made_engine(folder) as engine, sidecar(str(folder)) as run:
        run.line("live")
        assert "counters  processes of engines; no device by NVML or amdsmi" in run.said
        engine.steps(10)
        wait_for(run, 'rooflens_steps_total{model_name="llama",engine="0",kind="decode"}', 10)
        assert json.loads(run.get("/healthz"))["problems"] == []


def test_a_page_of_dcgm_exporter_is_read(folder: Path, page: str) -> None:
    with (
        made_engine(folder, device="cuda", device_uuids=[UUID.upper()]) as engine,
        sidecar(str(folder), "--dcgm", page, "--dcgm-period", "1", ROOFLENS_HARDWARE="h200-sxm-141") as run,
    ):
        run.line("live")
        engine.steps(10)
        wait_for(run, f'rooflens_device_power_watts{{device_uuid="{UUID}",source="dcgm"}}', 431.5)
        assert json.loads(run.get("/api/v1/engines"))["engines"][0]["device_uuids"] == [UUID]


def test_counters_can_be_left_out(folder: Path) -> None:
    with sidecar(str(folder), "--no-counters") as run:
        assert "counters  not read (--no-counters)" in run.said
        run.line("no engine yet")
        assert "rooflens_probe_failures_total" not in run.get("/metrics")
