"""Which samples of a window are joined with its steps: whole ones wherever there are any, of all devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooflens.collector.device_tracks import Floats, Intervals, Track, common, in_both, overlap_s

MOSTLY_RATIO = 0.5  # a sample belongs to the stretch that all devices cover where more than this of it lies inside


@dataclass(frozen=True, slots=True)
class Joined:
    """The samples of one device that are joined, each with the part [begin_s, end_s] of it that is."""

    track: Track
    begin_s: Floats
    end_s: Floats

    @property
    def weight_s(self) -> Floats:
        """How much of each sample is joined, in seconds."""
        return self.end_s - self.begin_s

    def cut_s(self) -> tuple[Floats, Floats]:
        """What of each sample lies before and after the part of it that is joined, in seconds."""
        return self.begin_s - self.track.start_s, self.track.end_s - self.end_s

    def follows(self) -> NDArray[np.bool_]:
        """Whether each part but the first begins where the one before it ended: neither sample was cut there."""
        before, after = self.cut_s()
        found: NDArray[np.bool_] = self.track.follows() & (before[1:] == 0) & (after[:-1] == 0)
        return found


def joined(tracks: Sequence[Track], start_s: float, end_s: float) -> tuple[tuple[Joined, ...], Intervals]:
    """What of each device's samples is joined with the steps known in [start_s, end_s], and what is covered by all.

    Where every device has a sample that lies in it as a whole, only whole samples are joined, since nobody knows how
    the bytes of a sample were spread in it: best those that lie in it for certain, with their slack. Their ends differ
    a little between devices. Else, as with samples that are longer than the window, parts of samples are.
    """
    stretch = common(tracks, float("-inf"), float("inf"))
    for sure in (True, False):
        found = list(_whole(tracks, stretch, start_s, end_s, sure))
        if len(found) == len(tracks):
            break
    else:
        inside = in_both(stretch, [(start_s, end_s)] if end_s > start_s else [])
        found = list(_parts(tracks, inside))
        if len(found) < len(tracks):
            return (), []
    covered = [(float("-inf"), float("inf"))]
    for one in found:
        covered = in_both(covered, _runs(one))
    return tuple(found), covered


def _whole(tracks: Sequence[Track], stretch: Intervals, start_s: float, end_s: float, sure: bool) -> Iterator[Joined]:
    for track in tracks:
        slack = track.slack_s if sure else 0.0
        within = (track.start_s - slack >= start_s) & (track.end_s + slack <= end_s)
        mostly = overlap_s(track, stretch) > MOSTLY_RATIO * (track.end_s - track.start_s)
        kept = track.take(within & mostly)
        if kept is None:
            return
        yield Joined(kept, kept.start_s, kept.end_s)


def _parts(tracks: Sequence[Track], inside: Intervals) -> Iterator[Joined]:
    """Parts of samples; one that two intervals cut in two counts with the longer part."""
    for track in tracks:
        begin, end = track.start_s.copy(), track.start_s.copy()
        for start_s, stop_s in inside:
            first, last = np.maximum(track.start_s, start_s), np.minimum(track.end_s, stop_s)
            longer = last - first > end - begin
            begin, end = np.where(longer, first, begin), np.where(longer, last, end)
        rows = end > begin
        kept = track.take(rows)
        if kept is None:
            return
        yield Joined(kept, begin[rows], end[rows])


def _runs(one: Joined) -> Intervals:
    breaks = np.flatnonzero(~one.follows())
    starts = one.begin_s[np.concatenate(([0], breaks + 1))]
    ends = one.end_s[np.concatenate((breaks, [len(one.end_s) - 1]))]
    return list(zip(starts.tolist(), ends.tolist(), strict=True))
