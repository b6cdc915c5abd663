"""NVML opened, closed and opened again; every call guarded alone, so that what fails is one figure and not the rest."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType
from typing import Any

from rooflens.collector.nvml import failures as kinds
from rooflens.collector.nvml.failures import Failures, pause_s

NO_BINDING = "NVML: nvidia-ml-py is not installed: pip install 'rooflens[sidecar]'"
NO_LIBRARY = (
    "NVML: libnvidia-ml.so.1 was not found: there is no NVIDIA driver here, or this container was started without it"
)
LIBRARY_FILE = "libnvidia-ml.so.1"
NO_DRIVER = "NVML: the NVIDIA driver is not loaded: load it (modprobe nvidia), then nvidia-smi answers"
NO_ACCESS = "NVML: no permission to talk to the driver: run as root, or as a user who may open /dev/nvidiactl"
OTHER_VERSION = "NVML: the library and the loaded driver are of different versions: reload the driver, or reboot"
_OPENING = {
    kinds.LIBRARY_NOT_FOUND: NO_LIBRARY,
    kinds.DRIVER_NOT_LOADED: NO_DRIVER,
    kinds.NO_PERMISSION: NO_ACCESS,
    kinds.VERSION_MISMATCH: OTHER_VERSION,
}

Attempt = tuple[str, tuple[Any, ...]]  # the name of a function of nvidia-ml-py, and its arguments


class Library:
    """One hold of NVML, for one thread at a time.

    ``problem`` is why it is not open, in one line. ``reopen_wanted`` is set by an answer after which handles may be
    stale: whoever holds handles opens anew when ``reopen_due`` says so, and takes fresh ones.
    """

    def __init__(self, period_s: float, clock: Callable[[], float]) -> None:
        self.nvml: ModuleType | None = None
        self.failures = Failures(period_s)
        self.problem: str | None = None
        self.reopen_wanted = False
        self.is_open = False
        self._clock = clock
        self._period_s = period_s
        self._openings = 0
        self._not_before_s = float("-inf")

    def open(self) -> bool:
        """Import and initialise; False, with ``problem`` set, where that fails or failed a moment ago."""
        if self.is_open or self._clock() < self._not_before_s:
            return self.is_open
        self._not_before_s = self._clock() + pause_s(self._period_s, self._openings)
        self._openings += 1
        try:
            import pynvml
        except ModuleNotFoundError:
            self.problem = NO_BINDING
            return False
        except Exception as error:
            self.problem = f"NVML: nvidia-ml-py cannot be imported ({_word(error)}): pip install -U nvidia-ml-py"
            return False
        try:
            pynvml.nvmlInit()
        except Exception as error:
            other = f"NVML: it cannot be opened ({_word(error)}): see whether nvidia-smi answers"
            code = _code(error)
            broken = unloadable() if code == kinds.LIBRARY_NOT_FOUND else None
            self.problem = broken or _OPENING.get(code, other)
            return False
        self.nvml, self.is_open, self.problem, self.reopen_wanted = pynvml, True, None, False
        return True

    def close(self) -> None:
        """Give NVML back; harmless when it is not open."""
        self.give_back("nvmlShutdown")
        self.is_open = False

    @property
    def reopen_due(self) -> bool:
        """Whether to open anew now: after growing pauses, while opening does not help."""
        return self.reopen_wanted and self._clock() >= self._not_before_s

    def reopen(self) -> bool:
        """Close and open anew; every handle and sample of before is void."""
        self.close()
        self.failures.try_again()
        return self.open()

    def settled(self) -> None:
        """Nothing is lost: the next loss is answered at once."""
        self._openings = 0
        self._not_before_s = float("-inf")

    def constant(self, name: str, otherwise: int) -> int:
        """A constant of nvidia-ml-py; older ones lack the names of what the library knows."""
        return int(getattr(self.nvml, name, otherwise))

    def read(
        self,
        owner: str,
        what: str,
        *attempts: Attempt,
        ordinary: bool = False,
        expected: frozenset[int] = frozenset(),
    ) -> Any:
        """The first answer among ``attempts``; None, kept in ``failures``, where there is none.

        ``ordinary``: that a device or driver merely lacks it is not worth a line. Codes that are ``expected`` are no
        failure at all.
        """
        said: tuple[int, str] | None = None
        for name, arguments in attempts:
            call = (name, len(arguments))
            why = self.failures.resting(owner, what, call, self._clock())
            if why is None:
                answer, why = self._ask(name, arguments)
                if why is None:
                    self.failures.worked(owner, what, call)
                    return answer
                if why[0] in expected:
                    continue
                self.failures.failed(owner, what, call, *why, self._clock())
                self.reopen_wanted = self.reopen_wanted or why[0] in kinds.REOPENED
            if said is None or said[0] in kinds.ABSENT:
                said = why
        if said is None or (ordinary and said[0] in kinds.ABSENT):
            self.failures.known(owner, what)
        else:
            self.failures.missing(owner, what, *said)
        return None

    def give_back(self, name: str, *arguments: Any) -> None:
        """A call that frees something: that it fails changes nothing, what comes next tells how the driver is."""
        if self.is_open:
            self._ask(name, arguments)

    def _ask(self, name: str, arguments: tuple[Any, ...]) -> tuple[Any, tuple[int, str] | None]:
        """(the answer, None), or (None, how it failed)."""
        try:
            return getattr(self.nvml, name)(*arguments), None
        except Exception as error:
            return None, (_code(error), _word(error))


def _code(error: Exception) -> int:
    """NVML's code for an exception of nvidia-ml-py; OLD_BINDING for what that itself does not know."""
    value = getattr(error, "value", None)
    if isinstance(value, int):
        return value
    # What nvidia-ml-py raises where it calls a later version of a function than the library has.
    mismatch = type(error).__name__ == "NVMLLibraryMismatchError"
    return kinds.FUNCTION_NOT_FOUND if mismatch else kinds.OLD_BINDING


def unloadable() -> str | None:
    """Why a library that is there cannot be loaded: nvidia-ml-py says of it too that there is none."""
    try:
        ctypes.CDLL(LIBRARY_FILE)
    except OSError as error:
        if str(error).startswith(f"{LIBRARY_FILE}: cannot open shared object file: No such file"):
            return None
        return (
            f"NVML: {LIBRARY_FILE} cannot be loaded ({_word(error)}): install the NVIDIA driver's own for this machine"
        )
    return None


def _word(error: Exception) -> str:
    """An exception's own words on one line, or its kind."""
    return " ".join(str(error).split())[:120] or type(error).__name__
