"""What nvidia-smi printed, kept in a file: each device as it told of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rooflens.adapters.logs.files import LogFiles
from rooflens.cli.output import one_line
from rooflens.cli.recorded import Asked
from rooflens.cli.recorded.said import KEPT_RECORDS, record_json
from rooflens.cli.units import aligned
from rooflens.collector import nvidia_smi
from rooflens.log_records import LogRecord
from rooflens.records import RooflensError

FORMAT = nvidia_smi.ORIGIN
MOST_BYTES = 64 << 20
MOST_SHOWN = 16
NO_EFFICIENCY = "utilization is the time in which any kernel ran: it says nothing of how well the device was used"


def is_mine(head: str) -> bool:
    """Whether it is something that nvidia-smi prints."""
    return nvidia_smi.is_mine(head)


def report(path: Path, asked: Asked) -> tuple[dict[str, Any], str]:
    """Every device at every moment; RooflensError in one line where none can be read."""
    lines, taken = [], 0
    for line in LogFiles([path]):
        taken += len(line) + 1
        if taken > MOST_BYTES:
            break
        lines.append(line)
    records = nvidia_smi.read_text("\n".join(lines))
    if not records:
        raise RooflensError(f"{path}: nvidia-smi printed this, and no value of it can be read")
    data = {
        "format": FORMAT,
        "file": str(path),
        "records_by_kind": {"sensor": len(records)},
        "records": [record_json(record) for record in records[-KEPT_RECORDS:]],
    }
    return data, "\n".join(map(one_line, _text(path, records)))


def _text(path: Path, records: tuple[LogRecord, ...]) -> list[str]:
    lines = [f"sensors   {path}; {FORMAT}, {len(records):,} record{'s' if len(records) > 1 else ''}"]
    for record in records[-MOST_SHOWN:]:
        name = f"GPU {record.ranks['gpu']}" if "gpu" in record.ranks else "a device"
        rows = [(label.replace("_", " "), f"{value:,g}") for label, value in record.values.items()]
        rows += [(label.replace("_", " "), text) for label, text in record.words.items()]
        lines += ["", name, *aligned(rows)] if rows else ["", f"{name}: no value"]
    unknown = dict.fromkeys(label for record in records for label in record.unknown)
    lines += ["", NO_EFFICIENCY] if any("utilization" in n or "busy" in n for r in records for n in r.values) else []
    return lines + ([f"unknown   {', '.join(list(unknown)[:MOST_SHOWN])}"] if unknown else [])
