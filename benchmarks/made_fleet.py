"""Makes a trace of a fleet from recorded engines: their own steps drawn again, with a day's load and faults in some.

    python benchmarks/made_fleet.py FOLDER --engines 100 --steps 10000000

The recordings are the rings of tests/data/traces: real steps of vLLM and of the embedded engine, with the bounds of
the device that they are laid beside there. Each engine of the fleet draws runs of consecutive steps from one of them,
long ones of busy stretches when its load is high and of light ones when it is low, so that regimes follow each other
as they did and times within a regime vary as they did; times are scaled by the engine's own pace and some noise.
Every seventh engine has a fault in the second half: its steps wait for the host. Files are laid out as the writer
does, a file a minute and host, in the same schema and encoding.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from recorded_rings import HARDWARE, NAMES, unpacked  # noqa: E402

from rooflens.analyzer.hardware import find_hardware  # noqa: E402
from rooflens.analyzer.roofline import analyse_engine  # noqa: E402
from rooflens.collector.trace.file import write_file  # noqa: E402
from rooflens.collector.trace.schema import to_arrow  # noqa: E402
from rooflens.live_records import SourceKind  # noqa: E402
from rooflens.pipeline.recording import read_ring  # noqa: E402
from rooflens.trace_records import TraceFacts, TraceRows  # noqa: E402

START_UNIX_S = 1_796_040_000.0  # some noon; any would do
PER_HOST = 8
RUN_STEPS = 64  # consecutive steps that are drawn together
FAULTY, FAULT_S = 7, 0.002  # every seventh engine waits so long for its host, in the second half
PACE, NOISE = 0.05, 0.02  # spread of the engines' pace, and of a step's time, of the logarithm
DAY_S = 86_400.0
BETWEEN = 1.05  # of a step's time, until the next one is done


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded engine: its steps with their bounds, and the first of each run of steps, the busiest last."""

    facts: TraceFacts
    table: pa.Table
    starts: NDArray[np.int64]
    observed_s: NDArray[np.float64]


def recorded(names: Sequence[str] = NAMES) -> list[Recorded]:
    """The recordings, laid beside their device."""
    hardware = find_hardware(str(HARDWARE))
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            ring = read_ring(unpacked(name, Path(folder)))
            assert ring.info is not None
            facts = TraceFacts(
                "0" * 16, "host", ring.info.model_name or name, "0", SourceKind.RING, ring.info, hardware
            )
            rows = TraceRows(facts, ring.steps, analyse_engine(ring.steps, ring.info, hardware))
            starts = np.arange(0, len(ring.steps) - RUN_STEPS)
            load = np.convolve(ring.steps["requests"], np.ones(RUN_STEPS), "valid")[: len(starts)]
            observed_s = np.maximum(ring.steps["observed_s"], 1e-5)
            found.append(Recorded(facts, to_arrow(rows), starts[np.argsort(load, kind="stable")], observed_s))
    return found


@dataclass(slots=True)
class Engine:
    """One engine of the fleet, whose steps are drawn a stretch at a time."""

    number: int
    of: Recorded
    facts: TraceFacts
    random: np.random.Generator
    pace: float
    unix_s: float
    steps: int
    sequence: int = 0

    def next(self, until_unix_s: float, most: int) -> pa.Table | None:
        """Its steps up to a time, at most so many."""
        rows: list[NDArray[Any]] = []
        times: list[NDArray[Any]] = []
        seconds: list[NDArray[Any]] = []
        now = self.unix_s
        count = 0
        while now < until_unix_s and count < most:
            load = 0.55 + 0.4 * np.sin(2 * np.pi * (now / DAY_S + self.number / 40)) + self.random.normal(0, 0.08)
            place = int(np.clip(load, 0, 0.999) * len(self.of.starts))
            start = int(self.of.starts[place])
            drawn = np.arange(start, start + min(RUN_STEPS, most - count))
            took = self.of.observed_s[drawn] * self.pace * np.exp(self.random.normal(0, NOISE, len(drawn)))
            if self.number % FAULTY == FAULTY - 1 and self.sequence + count >= self.steps / 2:
                took = took + FAULT_S
            ends = now + np.cumsum(took * BETWEEN)
            fits = ends < until_unix_s
            rows.append(drawn[fits])
            times.append(ends[fits])
            seconds.append(took[fits])
            now, count = float(ends[-1]) if fits.all() else until_unix_s, count + int(fits.sum())
        self.unix_s = now
        return self._table(np.concatenate(rows), np.concatenate(times), np.concatenate(seconds)) if count else None

    def _table(self, rows: NDArray[Any], times: NDArray[Any], seconds: NDArray[Any]) -> pa.Table:
        count = len(rows)
        made = {
            "facts": pa.array([self.facts.digest] * count),
            "run": pa.array([self.facts.run] * count),
            "sequence": pa.array(np.arange(self.sequence + 1, self.sequence + 1 + count)),
            "unix_s": pa.array(times),
            "submit_monotonic_s": pa.array(times - seconds - START_UNIX_S),
            "output_monotonic_s": pa.array(times - START_UNIX_S),
            "observed_s": pa.array(seconds),
        }
        self.sequence += count
        taken = self.of.table.take(pa.array(rows))
        return pa.table([made.get(name, taken.column(name)) for name in taken.column_names], schema=taken.schema)


def engines_of(count: int, steps: int, seed: int, run_of: Callable[[int], str] = "{:016x}".format) -> list[Engine]:
    """The fleet; ``steps`` are those of each engine."""
    found, kinds = [], recorded()
    for number in range(count):
        of = kinds[number % len(kinds)]
        random = np.random.default_rng((seed, number))
        facts = replace(
            of.facts, run=run_of(number), host=f"host-{number // PER_HOST:03}", engine=str(number % PER_HOST)
        )
        found.append(Engine(number, of, facts, random, float(np.exp(random.normal(0, PACE))), START_UNIX_S, steps))
    return found


def write_fleet(
    folder: Path, engines: int, steps: int, seed: int = 0, progress: Callable[[int], None] | None = None
) -> int:
    """Write some ``steps`` of so many engines; how many rows were written."""
    each = -(-steps // engines)
    fleet, written = engines_of(engines, each, seed), 0
    hosts = [fleet[first : first + PER_HOST] for first in range(0, engines, PER_HOST)]
    for host in hosts:
        minute = START_UNIX_S
        while any(engine.sequence < each for engine in host):
            minute += 60.0
            parts = [(e, e.next(minute, each - e.sequence)) for e in host if e.sequence < each]
            parts = [(engine, part) for engine, part in parts if part is not None]
            if not parts:
                continue
            table = pa.concat_tables([part for _, part in sorted(parts, key=lambda each: each[0].facts.digest)])
            when = datetime.fromtimestamp(minute - 60.0, UTC)
            place = folder / "steps" / f"host={host[0].facts.host}" / f"{when:date=%Y-%m-%d/hour=%H}"
            write_file(place / f"{when:%M}-{seed:08x}.parquet", table, [engine.facts for engine, _ in parts])
            written += table.num_rows
            if progress is not None:
                progress(written)
    return written


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--engines", type=int, default=100)
    parser.add_argument("--steps", type=int, default=10_000_000, help="of all engines together")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    print(f"{write_fleet(asked.folder, asked.engines, asked.steps, asked.seed):,} steps in {asked.folder}")


if __name__ == "__main__":
    main()
