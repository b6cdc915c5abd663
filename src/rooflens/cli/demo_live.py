"""The sidecar of the demo: watches the one engine while it runs, serves what it sees, keeps what fired."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflens.calibration_records import Calibration
from rooflens.cli.announce import fired
from rooflens.cli.embedded import Say
from rooflens.findings import Code, Finding, Severity, Status
from rooflens.live_records import EngineView, Snapshot, State
from rooflens.model_records import HardwareSpec
from rooflens.records import RooflensError

if TYPE_CHECKING:
    from rooflens.collector.windows import WindowSettings
    from rooflens.exporters.http_app import LiveServer
    from rooflens.pipeline.watch import Watch
    from rooflens.protocols import Exporter

HOST, USUAL_PORT = "127.0.0.1", 9980
TICK_S = 0.5  # half of a sidecar's: a demo is short
LAST_TURNS_S = 20.0  # a turn takes milliseconds; this on a machine that hangs


class Raised:
    """An exporter that keeps, of one engine, what fired at any time and what could not be told while it ran.

    ``ring`` is that of the engine; nothing is kept until it is known. ``findings`` are by code, each as it was at its
    last verdict that fired; ``cannot_tell`` likewise, of the codes that never fired. ``over`` is set once the engine
    has ended and all of it was seen.
    """

    def __init__(self, say: Say) -> None:
        self.ring: Path | None = None
        self.findings: dict[Code, Finding] = {}
        self.over = threading.Event()
        self._cannot_tell: dict[Code, Finding] = {}
        self._say = say

    def export(self, snapshot: Snapshot) -> None:
        """Take what is new of the engine, and say what began to fire."""
        for view in snapshot.engines:
            if self.ring is not None and view.info is not None and view.info.instance == self.ring.stem:
                self._take(view)

    def _take(self, view: EngineView) -> None:
        for finding in view.findings:
            if finding.status is Status.FIRING:
                if finding.code not in self.findings:
                    self._say(f"  {fired(finding)}")
                self.findings[finding.code] = finding
        if view.state is State.LIVE and view.windows:  # the last window is cut short and says only that it is short
            found = (finding for finding in view.findings if finding.status is Status.CANNOT_TELL)
            self._cannot_tell = {finding.code: finding for finding in found}
        if view.state is not State.LIVE:
            self.over.set()

    @property
    def cannot_tell(self) -> dict[Code, Finding]:
        """What could not be told, by code."""
        return {code: finding for code, finding in self._cannot_tell.items() if code not in self.findings}

    @property
    def serious(self) -> list[Finding]:
        """What fired above info."""
        return [finding for finding in self.findings.values() if finding.severity is not Severity.INFO]


@contextlib.contextmanager
def served() -> Iterator[LiveServer]:
    """The live API on loopback: at the usual port, or any where that is taken."""
    from rooflens.exporters.http_app import LiveServer

    server = LiveServer(HOST, USUAL_PORT)
    try:
        server.start()
    except RooflensError:
        server = LiveServer(HOST, 0)
        server.start()
    try:
        yield server
    finally:
        server.close()


class Watching:
    """A loop in a thread that watches the engine of ``raised`` in ``folder``, and no other; a context, which ends it.

    ``exporters`` get every snapshot, and ``raised`` too.
    """

    def __init__(
        self,
        folder: Path,
        hardware: HardwareSpec,
        windows: WindowSettings,
        raised: Raised,
        exporters: Sequence[Exporter] = (),
        calibration: Calibration | None = None,
    ) -> None:
        from rooflens.pipeline.watch import Watch
        from rooflens.pipeline.watch_settings import WatchSettings

        settings = WatchSettings(
            (folder,),
            hardware=hardware,
            windows=windows,
            tick_s=TICK_S,
            wanted=lambda path: path == raised.ring,
            calibrations=(calibration,) if calibration else (),
        )
        self.watch: Watch = Watch(settings)
        self._exporters = (*exporters, raised)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-sidecar", daemon=True)

    def _run(self) -> None:
        from rooflens.pipeline.loop import run_loop

        run_loop(self.watch, self._exporters, self._stop)

    def __enter__(self) -> Watching:
        self._thread.start()
        return self

    def __exit__(self, *_fault: Any) -> None:
        self._stop.set()
        self._thread.join(LAST_TURNS_S)
        self.watch.close()
