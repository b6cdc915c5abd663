"""What the tests look at: half a minute of engines and sidecars, with every restart there is, under one Prometheus."""

from __future__ import annotations

import sys
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from prom_engines import DEVICES, Beat, beats
from prom_harness import OPENMETRICS, TEXT, Child, Prometheus, Sidecar, free_port, wait_for
from prom_page import MODEL, Page

C = TypeVar("C", bound=Child)

STEADY, CROWD, REBORN = "steady-model", "crowd-model", "reborn-model"
RATE, CROWD_RATE, CROWD_ENGINES = 50, 20, 8  # steps a second of each engine
OLD_STEPS = 150  # in the ring before its sidecars start
PART_S = 10  # of each of the two parts
PART_STEPS = PART_S * RATE
HARDWARE = "l40s"
# A device with every counter there is, of 1 TB/s, whose DRAM is busy for a tenth of the time.
DEVICE = f"""driver 580.82
device 0 name="NVIDIA L40S" uuid={DEVICES["reborn-model"][0]} arch=9 cc=9.0 bus_width=4000 mem_clk_max=1000 sm_max=1980 mem_total=150754820096 power_limit_w=700 c2c=1 nvlink=1
at 0 0 gr=60 sm=40 occ=31 tensor=9 dram=10 pcie_tx=120 pcie_rx=60 nvl_tx=30 nvl_rx=40 c2c_tx=5 c2c_rx=6 gpu_util=100 mem_util=68 sm_clk=1500 mem_clk=1000 power_w=430 temp=51 mem_used=130000000000 throttle=4
"""  # noqa: E501


class Engines(Child):
    """Engines of one model in a process of their own; ``log`` is what they did."""

    def __init__(self, folder: Path, model: str, engines: int, rate: float, run: int = 0) -> None:
        self.model = model
        self.beats_log = folder.with_name(f"{model}-{run}.beats")
        script = str(Path(__file__).with_name("prom_engines.py"))
        command = [sys.executable, "-P", script, str(folder), str(self.beats_log), model, str(engines), str(rate)]
        super().__init__(command, folder.with_name(f"{model}-{run}.log"))

    def beats(self) -> list[Beat]:
        """What they did so far."""
        return beats(self.beats_log)

    def wait_for_steps(self, steps: int) -> None:
        """Until each has made that many."""
        wait_for(f"{self.model}: {steps} steps", lambda: len(self.beats()) >= steps, 60, self.said)


def done_by(log: list[Beat], unix_s: float) -> Beat:
    """What an engine had done at a moment."""
    place = bisect_right(log, unix_s, key=lambda beat: beat.unix_s)
    return log[place - 1] if place else Beat(unix_s, 0, 0)


@dataclass
class World:
    """``keeper`` is the sidecar that was killed and started anew on its port, ``second`` reads the same rings without
    a break, ``other`` watches all else. The moments are in the order of time.
    """

    prometheus: Prometheus
    page: Page
    keeper: Sidecar
    second: Sidecar
    other: Sidecar
    pages: dict[str, tuple[str, str]]  # by address: as text and as OpenMetrics, just before the engines ended
    logs: dict[str, list[Beat]]  # by model; of the one that was reborn, with its two lives as one
    watched_unix_s: float  # Prometheus scrapes all
    restarts_unix_s: float
    watched_again_unix_s: float
    ending_unix_s: float


class _Cast:
    """Everything that runs; all of it is gone after ``end``."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o700)
        self.folder, self.steady, self.other = folder, folder / "steady", folder / "other"
        for rings in (self.steady, self.other):
            rings.mkdir(mode=0o700)
        self.ports = [free_port() for _ in range(3)]
        self.children: list[Child] = []
        self.page = Page()

    def add(self, child: C) -> C:
        self.children.append(child)
        return child

    def sidecar(self, rings: Path, port: int, *flags: str, env: Mapping[str, str] | None = None) -> Sidecar:
        return self.add(Sidecar(self.folder, str(rings), "--hardware", HARDWARE, *flags, port=port, env=env))

    def device(self, library: Path) -> dict[str, str]:
        """The environment in which a sidecar finds the device that this library plays."""
        profile = self.folder / "profile"
        profile.write_text(DEVICE)
        return {"NVMLSIM_PROFILE": str(profile), "LD_LIBRARY_PATH": str(library.parent)}

    def end(self) -> None:
        for child in self.children:
            if child.alive():
                child.kill()
        self.page.close()


@contextmanager
def lived_through(folder: Path, library: Path) -> Iterator[World]:
    """The half minute, with the device that ``library`` plays. Afterwards the engines have ended; Prometheus and the
    sidecars run until the block is left.
    """
    cast = _Cast(folder)
    try:
        yield _live(cast, library)
    finally:
        cast.end()


def _live(cast: _Cast, library: Path) -> World:
    addresses = [f"127.0.0.1:{port}" for port in cast.ports]
    prometheus = cast.add(Prometheus(cast.folder / "prometheus", addresses))
    steady = cast.add(Engines(cast.steady, STEADY, 1, RATE))
    scraping = ("--scrape", cast.page.url, "--scrape-period", "1")
    keeping = ("--trace", str(cast.folder / "trace"))
    other = cast.sidecar(cast.other, cast.ports[2], *scraping, *keeping, env=cast.device(library))
    other.wait_up()
    crowd = cast.add(Engines(cast.other, CROWD, CROWD_ENGINES, CROWD_RATE))
    first_life = cast.add(Engines(cast.other, REBORN, 1, RATE))
    steady.wait_for_steps(OLD_STEPS)
    keeper, second = (cast.sidecar(cast.steady, port) for port in cast.ports[:2])
    keeper.wait_up()
    second.wait_up()
    prometheus.wait_up(*addresses)
    watched = time.time()
    steady.wait_for_steps(len(steady.beats()) + PART_STEPS)

    restarts = time.time()
    keeper.kill()
    keeper = cast.sidecar(cast.steady, cast.ports[0])
    first_life.kill()
    second_life = cast.add(Engines(cast.other, REBORN, 1, RATE, run=1))
    cast.page.restart()
    keeper.wait_up()
    wait_for("the new sidecar is scraped", lambda: prometheus.last_scraped(keeper.address) > keeper.started_unix_s)
    watched_again = time.time()
    steady.wait_for_steps(len(steady.beats()) + PART_STEPS)

    ending = time.time()
    pages = {sidecar.address: tuple(sidecar.page(kind) for kind in (TEXT, OPENMETRICS)) for sidecar in (second, other)}
    engines = (steady, crowd, second_life)
    for child in engines:
        child.stop()
    down = f'count(rooflens_engine_up{{model_name!="{MODEL}"}} == 0) == {CROWD_ENGINES + 3}'
    wait_for("Prometheus sees that all have ended", lambda: prometheus.query(down), says=other.said)
    logs = {child.model: child.beats() for child in engines}
    logs[REBORN] = joined(first_life.beats(), logs[REBORN])
    return World(prometheus, cast.page, keeper, second, other, pages, logs, watched, restarts, watched_again, ending)


def joined(first: list[Beat], then: list[Beat]) -> list[Beat]:
    """Two lives of an engine as one log."""
    past = first[-1]
    return first + [Beat(b.unix_s, b.steps + past.steps, b.context_tokens + past.context_tokens) for b in then]
