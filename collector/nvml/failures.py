"""What may go wrong with a call of NVML, with cause and next step; a failed call rests, then is tried again."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

LONGEST_REST_S = 60.0
LIBRARY = "NVML"  # the owner of what fails without a device
GPM = "bandwidth and activity (GPM)"  # the figure that most of the analysis needs

INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
VERSION_MISMATCH = 18
UNKNOWN = 999
# Not NVML's own: nvidia-ml-py lacks a name or takes other arguments; a counter contradicts itself or another, or is
# of a type that nvml.h does not have.
OLD_BINDING, IMPOSSIBLE, SHARED, UNREADABLE = -1, -2, -3, -4
# After these every handle may be stale: uninitialized, driver not loaded, GPU lost, reset required, library and driver
# of different versions, GPU not found, unknown.
REOPENED = frozenset({1, DRIVER_NOT_LOADED, GPU_IS_LOST, 16, VERSION_MISMATCH, 28, UNKNOWN})
# What a device or driver does not have: not supported, function not found, other versions of arguments, deprecated.
ABSENT = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND, 25, 26, OLD_BINDING})

_TEXTS = {
    NOT_SUPPORTED: "{who} does not support {what}: left out",
    NO_PERMISSION: "no permission for {what} of {who}: run as root, or have it allowed by who runs this machine",
    DRIVER_NOT_LOADED: "the driver is not loaded ({what} of {who}): load it, then nvidia-smi answers",
    TIMEOUT: "{who} did not answer in time for {what}: tried again at growing intervals",
    FUNCTION_NOT_FOUND: "this driver is too old for {what} of {who}: left out until it is updated",
    GPU_IS_LOST: "{who} is lost ({what}): look for Xid in the kernel's log, reset it; NVML is opened again",
    UNKNOWN: "unknown error of the driver for {what} of {who}: see whether nvidia-smi answers; NVML is opened again",
    OLD_BINDING: "nvidia-ml-py is too old for {what} of {who}: pip install -U nvidia-ml-py",
    IMPOSSIBLE: "{who} reports more than all there is of {what}: left out",
    UNREADABLE: "{who} tells {what} in a form that is not known: left out; a newer rooflens may know it",
    SHARED: "{who} shares its GPU instance with another compute instance: {what} counts both, left out",
}
_NO_GPM = (
    "{who} does not measure its own bandwidth (GPM needs Hopper or newer, and a driver of its age): "
    "dcgm-exporter can tell it on older data-centre devices"
)
# Whether GPM needs a privilege is documented nowhere; counters that tell of other users' work need one by default.
_GPM_PERMISSION = "try as root, or with the driver's option NVreg_RestrictProfilingToAdminUsers=0"


@dataclass(slots=True)
class _Rest:
    """A call that failed ``count`` times in a row, not to be tried before ``until_s``."""

    code: int
    text: str
    count: int = 0
    until_s: float = 0.0


class Failures:
    """Which calls fail now, and which figures are therefore not known. An owner is a device's uuid, or LIBRARY."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._rests: dict[tuple[str, str, str, int], _Rest] = {}
        self._missing: dict[tuple[str, str], tuple[int, str]] = {}

    def resting(self, owner: str, what: str, call: tuple[str, int], now_s: float) -> tuple[int, str] | None:
        """How a call last failed, if it is not to be tried yet; a call is a function's name and number of arguments."""
        rest = self._rests.get((owner, what, *call)) if self._rests else None
        return (rest.code, rest.text) if rest is not None and now_s < rest.until_s else None

    def failed(self, owner: str, what: str, call: tuple[str, int], code: int, text: str, now_s: float) -> None:
        """Let a call rest until the next sample, then for twice as long each time, a minute at most."""
        rest = self._rests.setdefault((owner, what, *call), _Rest(code, text))
        rest.code, rest.text = code, text
        rest.until_s = now_s + pause_s(self._period_s, rest.count)
        rest.count += 1

    def worked(self, owner: str, what: str, call: tuple[str, int]) -> None:
        """The figure is known, and the call that gave it may fail afresh."""
        if self._rests:
            self._rests.pop((owner, what, *call), None)
        self.known(owner, what)

    def known(self, owner: str, what: str) -> None:
        """The figure is known, or need not be."""
        if self._missing:
            self._missing.pop((owner, what), None)

    def missing(self, owner: str, what: str, code: int, text: str = "") -> None:
        """The figure is not known because of ``code``; ``text`` is for a code that has no words here."""
        self._missing[owner, what] = (code, text)

    def code(self, owner: str, what: str) -> int | None:
        """Why a figure is not known; None where it is."""
        why = self._missing.get((owner, what))
        return None if why is None else why[0]

    def lacks(self, owner: str, what: str) -> bool:
        """Whether every call for a figure was answered with that there is no such thing."""
        codes = [rest.code for key, rest in self._rests.items() if key[:2] == (owner, what)]
        return bool(codes) and all(code in ABSENT for code in codes)

    def owners(self) -> frozenset[str]:
        """Of whom anything is not known."""
        return frozenset(owner for owner, _ in self._missing)

    def forget(self, owners: Container[str]) -> None:
        """Drop what is kept of those that are no longer there."""
        self._rests = {key: rest for key, rest in self._rests.items() if key[0] not in owners}
        self._missing = {key: why for key, why in self._missing.items() if key[0] not in owners}

    def try_again(self) -> None:
        """The library was opened anew: no call rests any longer."""
        for rest in self._rests.values():
            rest.until_s = float("-inf")

    def lines(self, owners: Container[str]) -> Iterator[str]:
        """One line for each of ``owners`` and kind of failure."""
        return (line for _, _, line in self._told(owners))

    def lacking(self, owners: Container[str]) -> Iterator[tuple[str, str]]:
        """Those lines that are no failure, each after its owner: what a device or its driver does not have."""
        return ((owner, line) for owner, code, line in self._told(owners) if code in ABSENT or code == SHARED)

    def _told(self, owners: Container[str]) -> Iterator[tuple[str, int, str]]:
        grouped: dict[tuple[str, int, str], list[str]] = {}
        for (owner, what), (code, text) in self._missing.items():
            if owner in owners:
                grouped.setdefault((owner, code, "" if code in _TEXTS else text), []).append(what)
        for (who, code, text), figures in grouped.items():
            form = _TEXTS.get(code) or f"{text or f'error {code}'} for {{what}} of {{who}}: tried again"
            if code == NOT_SUPPORTED and figures == [GPM]:
                form = _NO_GPM
            elif code == NO_PERMISSION and GPM in figures:
                form = f"no permission for {{what}} of {{who}}: {_GPM_PERMISSION}"
            yield who, code, "NVML: " + form.format(who=who, what=", ".join(sorted(figures)))


def pause_s(period_s: float, failures: int) -> float:
    """How long to wait after so many failures before this one.

    A little less than whole periods, lest a sample that comes on time finds the pause not quite over.
    """
    return min(LONGEST_REST_S, period_s * (2.0 ** min(failures, 10) - 0.5))
