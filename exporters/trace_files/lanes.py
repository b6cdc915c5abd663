"""Slices on a track without overlaps: what a viewer of nested slices needs, whatever the clocks did."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_LANES = 8  # of one track; what overlaps more than that is no sequence of steps
CLIPPED_RATIO = 0.1  # of a slice that may be cut off its front before it goes to a lane of its own


@dataclass(slots=True)
class Lanes:
    """Whole-number times in; each slice gets the first lane on which it begins after the last one has ended.

    Steps of one engine follow each other: a step is busy from the later of its submit and the output before it. The
    wall clock may still be set back, and an interval of many steps may overlap another: then a second lane is used.
    """

    ends: list[int] = field(default_factory=list)

    def place(self, begin: int, end: int) -> tuple[int, int, int] | None:
        """(lane, begin, end) with begin <= end; None where every lane is taken."""
        end = max(begin, end)
        allowed = CLIPPED_RATIO * (end - begin) + 1  # a rounding is no overlap
        for lane, last in enumerate(self.ends):
            if begin >= last or (last - begin <= allowed and end >= last):
                self.ends[lane] = end
                return lane, max(begin, last), end
        if len(self.ends) >= MOST_LANES:
            return None
        self.ends.append(end)
        return len(self.ends) - 1, begin, end
