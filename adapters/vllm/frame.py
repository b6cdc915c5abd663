"""What the last frames held, so that the next one needs to say only what changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

KEYFRAME_NS = 1_000_000_000  # a reader that starts late, or a lost frame, costs at most this much
MOST_STREAMS = 8  # as many disjoint batches as a pipeline may interleave


class Stream:
    """A batch that goes on from step to step; its lists are the scheduler's own, never copied or changed.

    ``number`` counts the steps of the ring; ``next_context`` is the sum of all contexts after the step, in tokens;
    ``steady`` says that every row decodes from here on.
    """

    number = 0
    next_context = 0
    keyed_ns = 0
    unjudged = 0
    steady = False
    plain = False
    corrections: Mapping[str, int] = MappingProxyType({})
    queries: Mapping[int, int] = MappingProxyType({})
    drafts: Sequence[int] = ()
    rejected: Sequence[int] = ()

    def __init__(self, ids: list[str], seen: list[int], new_contexts: Sequence[int]) -> None:
        self.ids = ids
        self.seen = seen
        self.new_contexts = new_contexts

    def key_due(self, now_ns: int) -> bool:
        """Whether the next frame of this batch should hold every length."""
        return now_ns - self.keyed_ns >= KEYFRAME_NS

    def context_before(self, row: int) -> int:
        """True context of a row when the step ran, in tokens: seen, less drafts rejected meanwhile."""
        cached = len(self.seen)
        seen = self.seen[row] if row < cached else self.new_contexts[row - cached]
        return seen - self.corrections.get(self.ids[row], 0) if self.corrections else seen

    def context_after(self, row: int) -> int:
        """True context of a row once the step was done, in tokens."""
        query = self.queries.get(row) or 1 + (self.drafts[row] if self.drafts else 0)
        return self.context_before(row) + query - (self.rejected[row] if self.rejected else 0)

    def advance(self, seen: list[int]) -> int:
        """Go one plain decode step further; returns the sum of contexts before it."""
        if not self.plain:
            self.plain = True
            self.corrections, self.queries = Stream.corrections, Stream.queries
            self.drafts = self.rejected = self.new_contexts = ()
        self.seen = seen
        self.number += 1
        context = self.next_context
        self.next_context = context + len(seen)
        return context


class StreamTable:
    """The batches in turn; one where there is no pipeline."""

    def __init__(self, pipeline_parallel: int) -> None:
        # The batch of the step before; None before the first and where batches alternate.
        self.latest: Stream | None = None
        self._limit = max(1, min(int(pipeline_parallel), MOST_STREAMS))
        self._streams: list[Stream] = []
        self._number = 0

    def step_number(self) -> int:
        """The number of the step about to be written."""
        for stream in self._streams:
            if stream.number > self._number:
                self._number = stream.number
        self._number += 1
        return self._number

    def base_for(self, ids: list[str]) -> Stream | None:
        """The batch that ``ids`` most likely goes on from."""
        if len(self._streams) <= 1:
            return self._streams[0] if self._streams else None
        for stream in self._streams:
            if ids and stream.ids and stream.ids[0] == ids[0]:
                return stream
        return min(self._streams, key=lambda stream: stream.number)

    def keep(self, stream: Stream, base: Stream | None, limit: int) -> None:
        """Put ``stream`` in the place of the batch it went on from, or beside it while there is room."""
        self._number = stream.number
        streams = self._streams
        room = max(self._limit, min(limit, MOST_STREAMS)) if self._limit > 1 else 1
        if room == 1:
            self._streams = [stream]
            self.latest = stream
            return
        if base in streams and (base is None or base.ids[:1] == stream.ids[:1] or len(streams) >= room):
            streams.remove(base)
        streams.insert(0, stream)
        del streams[room:]
        self.latest = stream if len(streams) == 1 else None

    def forget(self) -> None:
        """A step was not written: the next frame cannot go on from what came before it."""
        self._streams.clear()
        self.latest = None
