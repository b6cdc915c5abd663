"""The lines of one page from reading to reading: of a line that begins as it did, only the value is read again."""

from __future__ import annotations

from collections.abc import Collection
from itertools import compress
from operator import ne

from rooflens.adapters.scrape.text import Sample, Samples, name_of, read_samples, value_at, value_of

# Of pages beyond this many characters nothing is kept: the page of an engine has less than a tenth of it.
MOST_KEPT = 1 << 20
# A page whose lines change more than their values, time after time, is mostly read as if for the first time.
MISSES, TRIED_AGAIN = 8, 32


class Lines:
    """Reads one page again and again; each time what read_samples gives for it."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._heads: list[str] = []  # what a line of the same series begins with; empty where it must be the same
        self._samples: dict[int, Sample] = {}  # by line, in order
        self._announced: frozenset[str] = frozenset()
        self._misses = 0

    def read(self, text: str, wanted: Collection[str]) -> Samples:
        """Every sample of ``text`` whose name is ``wanted``, which are the same each time."""
        lines = text.split("\n")
        if len(lines) == len(self._lines) and self._took(lines):
            self._misses = 0
            return Samples(tuple(self._samples.values()), (), self._announced)
        self._misses += 1
        self._lines = []
        found = read_samples(text, wanted)
        seldom = self._misses > MISSES and self._misses % TRIED_AGAIN
        if not (seldom or found.complaints or len(text) > MOST_KEPT):
            self._learn(lines, found, wanted)
        return found

    def _took(self, lines: list[str]) -> bool:
        """Take the values of lines that are as before otherwise; False where one is not, what is kept is then worth
        nothing."""
        heads, samples = self._heads, self._samples
        for at in list(compress(range(len(lines)), map(ne, lines, self._lines))):
            line, head = lines[at], heads[at]
            if not head or not line.startswith(head):
                return False
            if at in samples:
                sample = samples[at]
                value = value_of(line[len(head) :])
                if value is None:
                    return False
                samples[at] = Sample(sample.name, sample.labels, value)
        self._lines = lines
        return True

    def _learn(self, lines: list[str], found: Samples, wanted: Collection[str]) -> None:
        samples = iter(found.samples)
        self._lines, self._announced, self._samples, self._heads = lines, found.announced, {}, []
        for at, line in enumerate(lines):
            name, head = name_of(line), ""
            if name in wanted:
                self._samples[at] = next(samples)  # a page without complaints has one for each such line
                place = value_at(line)
                head = "" if place is None else line[:place]
            elif name and line.startswith((name + "{", name + " ")):
                head = line[: len(name) + 1]
            self._heads.append(head)
