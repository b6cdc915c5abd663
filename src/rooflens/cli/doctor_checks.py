"""What `rooflens doctor` looks at: one small function a question, in the order in which they are answered."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from rooflens.adapters.facts import DISABLE_VARIABLE, disabled
from rooflens.adapters.scrape.recognised import SPOKEN, read_page
from rooflens.cli.devices import NamedDevices, named_devices
from rooflens.cli.find_rings import engine_processes, next_step, running_engine, told_not_to_record
from rooflens.cli.find_servers import USUAL_PORTS, find_sidecar, live_engines, metrics_pages, versions
from rooflens.collector.ring_file import RingFile
from rooflens.records import EngineInfo, RooflensError
from rooflens.ring import SLOT_BYTES, SLOTS_OFFSET
from rooflens.ring_folder import FOLDER_VARIABLE, SIZES, default_folder, list_rings

LARGEST_RING_BYTES, SMALLEST_RING_BYTES = (
    SLOTS_OFFSET + slots * SLOT_BYTES + arena_bytes for slots, arena_bytes in (SIZES[0], SIZES[-1])
)
MOST_RINGS = 64  # that are read; more would take longer than somebody waits
MOST_FILES = 4096  # that are opened to find them: what is no ring is soon known
API_SERVERS = re.compile(rb"(?:^|\0)--api-server-count(?:=|\0)(\d+)")


class Standing(StrEnum):
    """How a thing stands: MISSING and BROKEN need somebody to act before rooflens can show all it could."""

    OK = "ok"
    NOTE = "note"
    MISSING = "missing"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Check:
    """One answer: what was found in words, and the remedy where there is something to do."""

    name: str
    standing: Standing
    found: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class FoundRing:
    """A ring that can be read, or in ``problem`` why not."""

    path: Path
    live: bool = False
    pid: int | None = None
    failures: int = 0
    info: EngineInfo | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Machine:
    """Where to look; everything is looked up once and kept. ``root`` is where /proc, /sys and /dev are."""

    root: Path = Path("/")
    folder: Path = field(default_factory=default_folder)
    ports: Collection[int] = USUAL_PORTS
    sidecar_url: str | None = None
    exporter_ports: Collection[int] = (9400,)  # of dcgm-exporter

    @cached_property
    def rings(self) -> list[FoundRing]:
        """The rings of the folder, newest first; none where the folder cannot be read."""
        with suppress(RooflensError):
            return _rings_of(list_rings(self.folder))
        return []

    @cached_property
    def live(self) -> list[FoundRing]:
        """Those that an engine holds now."""
        return [ring for ring in self.rings if ring.live]

    @cached_property
    def pages(self) -> dict[str, bytes]:
        """Metrics pages of engines by base URL."""
        return metrics_pages(self.root, self.ports)

    @cached_property
    def sidecar(self) -> str | None:
        """The base URL of a sidecar that runs here."""
        return find_sidecar(self.sidecar_url)

    @cached_property
    def processes(self) -> dict[int, dict[str, str]]:
        """Running processes of vLLM by pid, with their environments."""
        return engine_processes(self.root)

    @cached_property
    def devices(self) -> NamedDevices:
        """What NVML says of the devices."""
        return named_devices()


def _rings_of(paths: Sequence[Path]) -> list[FoundRing]:
    """Up to MOST_RINGS rings that can be read, in the order of ``paths``, and those among them that cannot."""
    found, readable = [], 0
    for path in paths[:MOST_FILES]:
        found.append(_opened(path))
        readable += found[-1].problem is None
        if readable == MOST_RINGS:
            break
    return found


def _opened(path: Path) -> FoundRing:
    try:
        file = RingFile(path)
    except RooflensError as error:
        return FoundRing(path, problem=str(error))
    try:
        return FoundRing(path, file.live(), file.header.pid, file.state().hook_failures, file.info())
    except RooflensError as error:
        return FoundRing(path, problem=str(error))
    finally:
        file.close()


def check_folder(machine: Machine) -> Iterator[Check]:
    """Whether rings can be written and read here, and whether there is room."""
    folder, name = machine.folder, "ring folder"
    set_other = f"set {FOLDER_VARIABLE} to a private folder, for the engine as well as here"
    if disabled(os.environ):
        yield Check("environment", Standing.MISSING,
                    f"{DISABLE_VARIABLE} is set here: an engine started from this shell records nothing",
                    f"unset {DISABLE_VARIABLE}")  # fmt: skip
    exists = folder.exists() or folder.is_symlink()
    try:
        rings = list_rings(folder)
    except RooflensError as error:
        if exists:
            yield Check(name, Standing.BROKEN, str(error), set_other)
            return
        yield Check(name, Standing.NOTE, f"{folder} does not exist yet: the first engine makes it")
    else:
        more = "" if os.access(folder, os.W_OK) else ", not writable for this user"
        yield Check(name, Standing.OK, f"{folder}, mode {folder.stat().st_mode & 0o7777:04o}{more}, "
                    f"{counted(len(rings), 'ring')}")  # fmt: skip
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    space = os.statvfs(place)
    free_bytes = space.f_bavail * space.f_frsize
    told = f"{free_bytes / 1e6:,.0f} MB free in {place}; a ring takes {LARGEST_RING_BYTES / 1e6:.0f} MB"
    if free_bytes >= LARGEST_RING_BYTES:
        yield Check("space", Standing.OK, told)
    elif free_bytes >= SMALLEST_RING_BYTES:
        yield Check("space", Standing.NOTE, f"{told}, so the next one will be shorter",
                    "make room, or give the container a larger /dev/shm (docker: --shm-size)")  # fmt: skip
    else:
        yield Check("space", Standing.BROKEN, f"{told}, and not even the smallest fits",
                    f"give the container a larger /dev/shm (docker: --shm-size), or {set_other}")  # fmt: skip


def check_rings(machine: Machine) -> Iterator[Check]:
    """What the rings say of the hook, and which of them cannot be read."""
    from rooflens.adapters.vllm.patch import MOST_FAILURES

    unreadable = [ring for ring in machine.rings if ring.problem]
    if machine.rings:
        dead = len(machine.rings) - len(machine.live) - len(unreadable)
        damaged = f", {len(unreadable):,} that cannot be read" if unreadable else ""
        yield Check("rings", Standing.OK, f"{len(machine.live)} live, {dead} of engines that have ended{damaged}")
    for ring in unreadable[:3]:
        yield Check(
            "rings", Standing.BROKEN, f"{ring.problem}", "remove the file, or read it as the user it belongs to"
        )
    for ring in machine.live:
        if ring.failures:
            then = "and has switched itself off" if ring.failures >= MOST_FAILURES else "and goes on"
            yield Check("hook", Standing.BROKEN, f"{ring.path.name}: it failed {ring.failures:,} times, {then}",
                        "report what the engine's log says after 'rooflens failed in'")  # fmt: skip
    for folder in _others(machine):
        standing = Standing.NOTE if machine.live else Standing.MISSING
        yield Check("other users", standing, f"{folder} belongs to another user: its rings are not read here",
                    f"run as that user, or with root's rights: rooflens top {folder}")  # fmt: skip


def _others(machine: Machine) -> list[Path]:
    """Default ring folders in shared memory other than the one that is read."""
    with suppress(OSError):
        found = sorted((machine.root / "dev" / "shm").glob("rooflens-[0-9]*"))
        return [path for path in found if path.name.removeprefix("rooflens-").isdigit()
                and path.name != machine.folder.name and path.stat().st_uid != os.geteuid()]  # fmt: skip
    return []


def check_engines(machine: Machine) -> Iterator[Check]:
    """Whether there is an engine to watch, and by which way."""
    cause = running_engine(machine.root, {machine.folder}) if machine.processes else None
    if machine.live:
        names = sorted(
            {(ring.info.model_name or ring.info.engine) if ring.info else "unnamed" for ring in machine.live}
        )
        yield Check("engines", Standing.OK, f"{counted(len(machine.live), 'engine')} recorded: {', '.join(names)}")
        if (hindered := told_not_to_record(machine.processes)) is not None:
            found, _, remedy = hindered.rpartition(": ")
            yield Check("engines", Standing.NOTE, found, remedy)
    elif machine.sidecar is not None and (watched := live_engines(machine.sidecar)):
        yield Check("engines", Standing.OK, f"{counted(watched, 'engine')} watched by the sidecar at "
                    f"{machine.sidecar}: rooflens top; none in the ring folder above")  # fmt: skip
    elif machine.pages:
        yield Check("engines", Standing.NOTE, "no engine is recorded: only its metrics page is seen, no single step",
                    cause or next_step(machine.root, {machine.folder}))  # fmt: skip
    else:
        yield Check("engines", Standing.MISSING, "no engine that can be watched",
                    cause or next_step(machine.root, {machine.folder}))  # fmt: skip


def check_pages(machine: Machine) -> Iterator[Check]:
    """The metrics pages of engines on the usual ports, and what is odd about them."""
    said = versions(machine.pages)
    for url, page in machine.pages.items():
        engine = read_page(page.decode("utf-8", "replace"), 0.0, 0.0).engine
        if engine != "vllm":
            yield Check("metrics page", Standing.OK, f"{url}/metrics, {SPOKEN.get(engine or '', 'an engine')}")
            continue
        spelling = "vllm:" if re.search(rb"^vllm:", page, re.MULTILINE) else "vllm_"
        version = f"vLLM {said[url]}" if url in said else "vLLM of unknown version"
        yield Check("metrics page", Standing.OK, f"{url}/metrics, {version}, names begin with {spelling}")
        if not re.search(rb"^vllm[:_](?:gpu_cache|kv_cache)_usage_perc", page, re.MULTILINE):
            yield Check("metrics page", Standing.NOTE, f"{url}/metrics has no KV cache figures: context is not known",
                        "start vLLM without --disable-log-stats")  # fmt: skip
    servers = max((int(match[1]) for pid in machine.processes if (match := _command(machine, pid))), default=1)
    if servers > 1 and any(re.search(rb"^python_info\b", page, re.MULTILINE) for page in machine.pages.values()):
        yield Check("API servers", Standing.MISSING,
                    f"{servers} API servers, and the page is that of whichever one answers: rates from it are wrong",
                    "start vLLM with PROMETHEUS_MULTIPROC_DIR set to an empty folder, or hook it")  # fmt: skip


def _command(machine: Machine, pid: int) -> re.Match[bytes] | None:
    with suppress(OSError):
        return API_SERVERS.search((machine.root / "proc" / str(pid) / "cmdline").read_bytes())
    return None


def check_sidecar(machine: Machine) -> Iterator[Check]:
    """Whether a sidecar runs."""
    url = machine.sidecar
    if url is None:
        yield Check("sidecar", Standing.NOTE, "none runs", "rooflens sidecar")
    else:
        yield Check("sidecar", Standing.OK, f"{url}, metrics for Prometheus at {url}/metrics")


def check_models(machine: Machine) -> Iterator[Check]:
    """Whether each live engine says enough of its model for a roofline."""
    from rooflens.analyzer.arch import arch_from_config

    for ring in machine.live:
        info = ring.info
        if info is None:
            yield Check("model", Standing.BROKEN, f"{ring.path.name} holds no facts of its engine: no roofline",
                        "restart the engine with this version of rooflens")  # fmt: skip
        elif not info.model_config:
            yield Check("model", Standing.NOTE, f"{_name(ring)}: its model's config is not known",
                        "name it: rooflens top --model NAME|config.json")  # fmt: skip
        else:
            try:
                arch_from_config(dict(info.model_config), _name(ring))
            except RooflensError as error:
                yield Check("model", Standing.NOTE, f"no roofline: {error}", "steps and times are shown without one")
            else:
                yield Check("model", Standing.OK, f"{_name(ring)}: its roofline can be drawn")
    if machine.pages and not machine.live:
        yield Check("model", Standing.NOTE, "a metrics page does not say what its model is made of",
                    "name it: rooflens top --model NAME|config.json")  # fmt: skip


def _name(ring: FoundRing) -> str:
    return "unnamed" if ring.info is None else ring.info.model_name or ring.info.engine


def counted(number: int, what: str) -> str:
    """A number with its noun."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


CHECKS: tuple[Callable[[Machine], Iterator[Check]], ...] = (
    check_folder, check_rings, check_engines, check_pages, check_sidecar, check_models,
)  # fmt: skip
