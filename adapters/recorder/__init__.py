"""The recorder: the same records as from a hooked engine, from three lines in anybody's loop.

::

    recorder = Recorder("my-engine", model_config=config, kv_blocks=4096, block_tokens=16)
    while requests:
        with recorder.step(contexts=[r.cached_tokens for r in requests]) as step:
            step.generated_tokens = run(requests)

Standard library only. Lengths and counts are recorded, never a token, a name or a path. Once constructed, a
recorder never raises into the engine's loop: what it cannot record it counts, and it warns once.
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rooflens.adapters.facts import LARGEST, disabled
from rooflens.adapters.frames import Payload
from rooflens.adapters.recorder.encode import Encoder, Rows, rows_of
from rooflens.adapters.recorder.info import checked
from rooflens.adapters.recorder.slot import check_facts, cold_of, extras_of, nanoseconds
from rooflens.adapters.recorder.step import Step
from rooflens.records import EngineInfo, RooflensError
from rooflens.ring import KEY, REPEAT, UNKNOWN
from rooflens.ring_folder import create_ring, default_folder
from rooflens.ring_writer import RingWriter

__all__ = ["Recorder", "Step"]

log = logging.getLogger("rooflens")

LONGEST_NAME = 64  # of an event


class Recorder:
    """Writes an engine's steps into a ring of its own. It belongs to the thread that runs the engine's loop.

    ``path`` is the ring's file, None where nothing is recorded; ``failures`` counts what could not be recorded.
    """

    clock_ns = staticmethod(time.monotonic_ns)

    def __init__(
        self, engine: str, *, folder: Path | None = None, rank: int = 0, strict: bool = False, **facts: Any
    ) -> None:
        """Open a ring in ``folder`` (default: that of ring_folder) for the engine called ``engine``.

        ``facts`` are fields of records.EngineInfo: model_config, kv_blocks, block_tokens, max_sequences, ...
        A fact of another type, or one that holds a path, is left out with a warning.
        Where no ring can be opened the recorder warns once and does nothing; with ``strict`` it raises RooflensError.
        """
        self.path: Path | None = None
        self.failures = 0
        self._warned = False
        self._ring: RingWriter | None = None
        self._encoder = Encoder()
        self._ordinal = 0
        if disabled(os.environ):
            return
        info, problems = checked(engine, rank, facts)
        if problems:
            message = "; ".join(problems)
            if strict:
                raise RooflensError(f"the recorder cannot record: {message}")
            log.warning("rooflens records this engine without it: %s", message)
        try:
            self._ring, self.path = create_ring(folder or default_folder(), info["rank"])
            self._ring.set_info(EngineInfo.from_json({**info, "instance": self.path.stem}).to_json())
        except Exception as error:  # whatever is wrong with a folder or a fact, the engine goes on
            self.close()
            if self.path is not None:
                self.path.unlink(missing_ok=True)  # an empty ring would look like an engine that ended at once
            self.path = None
            if strict:
                raise RooflensError(f"the recorder cannot record: {error}") from error
            self._warn(f"rooflens does not record this engine: {error}")
            return
        _recorders.add(self)

    def step(
        self,
        contexts: Sequence[int] = (),
        queries: Sequence[int] | None = None,
        *,
        prefill: Sequence[int] | None = None,
        drafts: Sequence[int] | None = None,
        **facts: Any,
    ) -> Step:
        """A step about to run: enter it once scheduling is done, leave it when the output is there.

        ``contexts`` are the tokens of each sequence that are in the KV cache before the step, ``queries`` the
        tokens that each computes (default: one and its drafts), ``prefill`` the positions of the sequences that
        still work on their prompt or recompute (default: those that compute more), ``drafts`` the speculative
        tokens that each verifies. A step without sequences is a dummy step. ``facts``: step.FACTS, named and
        counted as in records.STEP_COLUMNS; one that is left out is not known, or zero for a count of happenings.
        """
        if self._ring is None:
            return Step(None, None, {})
        try:
            check_facts(facts)
            return Step(self, rows_of(contexts, queries, prefill, drafts), facts)
        except Exception as error:  # nothing of ours may reach the engine's loop
            self._fail("a step's lengths", error)
            return Step(None, None, {})

    def begin(self, step: Step) -> None:
        """Stamp a step as in flight; called by the step itself."""
        ring, rows = self._ring, step.rows
        if ring is None or rows is None:
            return
        try:
            self._ordinal += 1
            step.submit_ns = self.clock_ns()
            ring.stamp(self._ordinal, step.submit_ns, rows.query_tokens, len(rows.contexts))
        except Exception as error:
            self._fail("the start of a step", error)

    def end(self, step: Step, failed: bool) -> None:
        """Commit a step; called by the step itself."""
        ended_ns = self.clock_ns()
        ring, rows = self._ring, step.rows
        if ring is None or rows is None or not step.submit_ns:
            return
        try:
            if failed:
                self._encoder.forget()
                ring.event("step_failed", {"requests": len(rows.contexts)})
            else:
                self._commit(ring, step, rows, ended_ns)
        except Exception as error:
            self._fail("a step", error, step.submit_ns)

    def _commit(self, ring: RingWriter, step: Step, rows: Rows, ended_ns: int) -> None:
        facts = step.facts
        check_facts(facts)
        rows.reject(step.rejected)
        extras = extras_of(facts)
        output_ns = step.output_ns or ended_ns
        payload = Payload()
        frame, base = self._encoder.encode(rows, payload, ended_ns) if rows.contexts else (REPEAT, 0)
        if extras:
            payload.extras(extras)
        if frame == KEY:
            payload.anchor(time.time_ns(), self.clock_ns())
        cold = cold_of(rows, facts, step.generated_tokens, (frame, base, payload.sections))
        ring.commit(
            step.submit_ns,
            output_ns,
            sum(rows.contexts),
            nanoseconds(facts, "schedule_s", UNKNOWN),
            ended_ns - output_ns if step.output_ns else UNKNOWN,
            nanoseconds(facts, "executor_s", UNKNOWN),
            nanoseconds(facts, "wait_s", UNKNOWN),
            self.clock_ns() - ended_ns + step.spent_ns,
            facts.get("kv_blocks_used", UNKNOWN),
            cold,
            payload.tobytes(),
        )

    def event(self, name: str, **counts: int | float) -> None:
        """Record something that is not a step (sleep, wake, a reset cache) with numbers that belong to it."""
        if self._ring is None:
            return
        try:
            if not name.isidentifier() or len(name) > LONGEST_NAME:
                raise ValueError("an event's name is a short word")
            if any(not isinstance(value, int | float) for value in counts.values()):
                raise TypeError("an event holds numbers only")
            if any(not abs(value) < LARGEST for value in counts.values()):
                raise ValueError("an event holds finite numbers only")
            self._ring.event(name, counts)
        except Exception as error:
            self._fail("an event", error)

    def close(self) -> None:
        """Mark the recording as ended in order; the ring stays for reading."""
        ring, self._ring = self._ring, None
        _recorders.discard(self)
        try:
            if ring is not None:
                ring.close()
        except Exception as error:
            self._fail("the end", error)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def stop_in_child(self) -> None:
        """After a fork: the ring belongs to the parent."""
        self._ring = None

    def _fail(self, where: str, error: Exception, submit_ns: int | None = None) -> None:
        self.failures += 1
        self._encoder.forget()
        self._warn(f"rooflens could not record {where} and goes on: {error}")
        try:
            if self._ring is not None:
                if submit_ns is not None:
                    self._ring.unstamp(submit_ns)  # else the step would look like one that hangs
                self._ring.count_failure()
        except Exception:  # a ring that cannot even count is of no use any more
            self._ring = None

    def _warn(self, message: str) -> None:
        if not self._warned:
            self._warned = True
            log.warning(message)


_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _stop_in_child() -> None:
    for recorder in list(_recorders):
        recorder.stop_in_child()
    _recorders.clear()


os.register_at_fork(after_in_child=_stop_in_child)
