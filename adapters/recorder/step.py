"""One step as an engine reports it: begun, run, committed."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rooflens.adapters.recorder import Recorder
    from rooflens.adapters.recorder.encode import Rows


class Step:
    """A step in flight: a context manager around the engine's forward pass.

    Set ``generated_tokens`` (tokens that reached the requests) and, after speculation, ``rejected`` (drafts
    rejected, one figure a row) before it ends. Left None, every row that is not prefilling is taken to have
    generated one token and its accepted drafts. An exception of the engine passes through untouched; the step is
    then an event ``step_failed``.
    """

    __slots__ = (
        "_recorder", "facts", "generated_tokens", "output_ns", "rejected", "rows", "spent_ns", "submit_ns",
    )  # fmt: skip

    def __init__(self, recorder: Recorder | None, rows: Rows | None, facts: dict[str, Any]) -> None:
        self._recorder = recorder if rows is not None else None
        self.rows = rows
        self.facts = facts
        self.generated_tokens: int | None = None
        self.rejected: Sequence[int] | None = None
        self.submit_ns = self.output_ns = 0
        self.spent_ns = 0  # what the caller spent on capturing this step

    def note(self, **facts: Any) -> None:
        """Facts that are known only now; the names are those of Recorder.step."""
        self.facts.update(facts)

    def done(self) -> None:
        """The output is there; the rest of the block is the engine's own bookkeeping (``update_s``)."""
        if self._recorder is not None:
            self.output_ns = self._recorder.clock_ns()

    def __enter__(self) -> Step:
        if self._recorder is not None:
            self._recorder.begin(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._recorder is not None:
            self._recorder.end(self, failed=kind is not None)
