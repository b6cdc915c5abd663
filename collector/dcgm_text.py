"""The text of a dcgm-exporter page into values by device, in SI units; anything may stand there, nothing raises."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rooflens.collector.dcgm_names import (
    BLANKS,
    BOARD_KEYS,
    BY_SPELLING,
    DRIVER_LABELS,
    LEAST_BLANK,
    MODEL_LABELS,
    OTHER_LABELS,
    PROFILE_LABEL,
    SLICE_LABEL,
    SLICE_UUID_LABEL,
    UUID_LABELS,
    Field,
)

# A page of 8 devices with 7 slices each and every field of DCGM is about 2 MB.
MOST_BYTES = 16 << 20
MOST_SERIES = 50_000
MOST_DEVICES = 1024
LONGEST_LABELS = 8192
LONGEST_NAME = 200
MOST_PROBLEMS = 5
# The exporter prints six digits: a ratio of 1 may come out a little above it.
ABOVE_MOST = 1.01

_SAMPLE = re.compile(
    r'[ \t]*\{((?:[^"}]|"(?:[^"\\]|\\.)*+")*+)\}[ \t]*([^ \t]+)(?:[ \t]+-?[0-9.]+)?[ \t\r]*\Z', re.ASCII
)
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*+)"[ \t]*(?:,|\Z)', re.ASCII)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)  # of a label's value: a backslash, a quote and n for a new line
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?\Z", re.ASCII)
_UUID = re.compile(r"[!-~]{1,128}\Z", re.ASCII)

Values = dict[str, float]
Key = tuple[str, str]  # a device's uuid in lower case and its MIG instance, empty for none


@dataclass(slots=True)
class DeviceValues:
    """What a page says of one device. ``uuid`` of a MIG slice is ``GPU-<parent>/GI-<instance>`` where the page does not
    name the slice's own: it is no uuid that an engine would give."""

    uuid: str
    parent_uuid: str | None = None
    mig_profile: str | None = None
    name: str | None = None
    index: int | None = None
    driver_version: str | None = None
    values: Values = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PageReading:
    """The devices of a page; ``problems`` are one line each and are read after the page's name."""

    devices: Mapping[Key, DeviceValues]
    problems: tuple[str, ...] = ()

    def values(self) -> dict[Key, Values]:
        """The numbers alone: two pages with the same were not written anew, or nothing changed."""
        return {key: device.values for key, device in self.devices.items()}


class _Reader:
    """One page while it is read."""

    def __init__(self) -> None:
        self.devices: dict[Key, DeviceValues] = {}
        self.is_dcgm = False
        self._series = 0
        self._different: dict[tuple[str, str, str], set[float]] = {}
        self._spellings: dict[tuple[str, str, str], dict[str, None]] = {}
        self._impossible: dict[str, float] = {}
        self._unreadable: dict[str, int] = {}
        self._without_uuid = 0
        self._left_out = 0

    def line(self, line: str) -> None:
        """Take one line in."""
        name = line[: line.find("{")].strip() if "{" in line else line.split(None, 1)[0] if line.strip() else ""
        if not name.startswith(("DCGM_", "dcgm_")):
            return
        self.is_dcgm = True
        wanted = BY_SPELLING.get(name)
        if wanted is None:
            return
        self._series += 1
        if self._series > MOST_SERIES:
            self._left_out += 1
            return
        match = _SAMPLE.match(line.lstrip()[len(name) :])
        labels = _labels(match[1]) if match else None
        if match is None or labels is None:
            self._unreadable[name] = self._unreadable.get(name, 0) + 1
        elif not OTHER_LABELS & labels.keys():
            self._take(name, wanted, labels, match[2])

    def _take(self, name: str, wanted: Field, labels: Mapping[str, str], text: str) -> None:
        uuid = next((labels[label] for label in UUID_LABELS if labels.get(label)), "")
        instance = labels.get(SLICE_LABEL, "")
        if not _UUID.match(uuid) or (instance and not _UUID.match(instance)):
            self._without_uuid += 1
            return
        key = (uuid.lower(), instance)
        device = self.devices.get(key)
        if device is None:
            if len(self.devices) >= MOST_DEVICES:
                self._left_out += 1
                return
            device = self.devices[key] = DeviceValues(uuid)
        _name(device, uuid, instance, labels)
        if instance and wanted.key in BOARD_KEYS:
            return  # the exporter repeats the board's power under each slice: none of them draws it
        value = self._value(name, wanted, text)
        if value is None:
            return
        place = (*key, wanted.key)
        self._spellings.setdefault(place, {})[name] = None
        if device.values.setdefault(wanted.key, value) != value:
            self._different.setdefault(place, {device.values[wanted.key]}).add(value)

    def _value(self, name: str, wanted: Field, text: str) -> float | None:
        number = float(text) if len(text) < 64 and _NUMBER.match(text) else math.nan
        if not math.isfinite(number) or number in BLANKS or number >= LEAST_BLANK:
            return None
        value = number * wanted.scale
        if value < 0 or (wanted.most is not None and value > wanted.most * ABOVE_MOST):
            self._impossible[name] = number
            return None
        return value if wanted.most is None else min(value, wanted.most)

    def done(self) -> PageReading:
        """What was read, without what contradicts itself."""
        problems = []
        for place, values in self._different.items():
            device = self.devices[place[0], place[1]]
            device.values.pop(place[2], None)
            names = " and ".join(self._spellings[place])
            problems.append(
                f"{names} of {device.uuid} is given with {len(values)} different values, so it is not known: "
                "two exporters for one device, or values by pod, on one page?"
            )
        problems += [
            f"{name}: {number:g} is outside of what it can be and is left out"
            for name, number in self._impossible.items()
        ]
        problems += [f"{name}: {count} lines that cannot be read" for name, count in self._unreadable.items()]
        if self._without_uuid:
            problems.append(f"{self._without_uuid} series without the uuid of a device cannot be joined")
        if self._left_out:
            problems.append(
                f"{self._left_out} series beyond {MOST_SERIES:,}, or {MOST_DEVICES:,} devices, are left out"
            )
        if len(problems) > MOST_PROBLEMS:
            problems = [*problems[: MOST_PROBLEMS - 1], f"{len(problems) - MOST_PROBLEMS + 1} more of the kind"]
        return PageReading(self.devices, tuple(problems))


def read_page(raw: bytes) -> PageReading:
    """The devices of a page (exposition format 0.0.4), whichever version of the exporter wrote it.

    A value that is blank, NaN or no number is missing, as is a series that is not there. Time stamps of samples are
    read over: they are of another machine's wall clock (a Prometheus that federates), and the exporter prints none.
    """
    if len(raw) > MOST_BYTES:
        return PageReading({}, (f"has {len(raw):,} bytes, which is not read: is it dcgm-exporter's own page?",))
    reader = _Reader()
    for line in raw.decode("utf-8", "replace").split("\n"):
        if line and line[0] != "#":
            reader.line(line)
    if not reader.is_dcgm:
        return PageReading({}, ("answers, but not with DCGM's metrics: dcgm-exporter listens on port 9400",))
    reading = reader.done()
    if reading.devices or reading.problems:
        return reading
    return PageReading({}, ("has metrics of DCGM, and none of a device's counters: see the exporter's list of fields",))


def _labels(text: str) -> dict[str, str] | None:
    """What stands between the braces; None if it is no list of labels, names one twice, or is too long."""
    if len(text) > LONGEST_LABELS:
        return None
    found: dict[str, str] = {}
    at, text = 0, text.strip()
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None or match[1] in found:
            return None
        found[match[1]] = _ESCAPE.sub(_plain, match[2]) if "\\" in match[2] else match[2]
        at = match.end()
    return found


def _plain(escape: re.Match[str]) -> str:
    """What an escape stands for; one that is none stands for itself."""
    return {"\\": "\\", '"': '"', "n": "\n"}.get(escape[1], escape[0])


def _name(device: DeviceValues, uuid: str, instance: str, labels: Mapping[str, str]) -> None:
    """Fill in what labels say of a device beside its values; the first that says something counts."""
    if instance:
        own = labels.get(SLICE_UUID_LABEL, "")
        if device.parent_uuid is None or (own and _UUID.match(own)):
            device.uuid = own if own and _UUID.match(own) else f"{uuid}/GI-{instance}"
        device.parent_uuid = device.parent_uuid or uuid
        device.mig_profile = device.mig_profile or _told(labels.get(PROFILE_LABEL))
    device.name = device.name or next(filter(None, (_told(labels.get(label)) for label in MODEL_LABELS)), None)
    device.driver_version = device.driver_version or next(
        filter(None, (_told(labels.get(label)) for label in DRIVER_LABELS)), None
    )
    index = labels.get("gpu", "")
    if device.index is None and index.isascii() and index.isdecimal() and len(index) < 6:
        device.index = int(index)


def _told(label: str | None) -> str | None:
    """A label's text; None where it says nothing, or what DCGM prints for nothing."""
    if not label or not label.isprintable() or len(label) > LONGEST_NAME or label.startswith("<<<"):
        return None
    return label
