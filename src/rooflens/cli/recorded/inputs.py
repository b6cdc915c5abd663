"""Whether a file that is to be written is one of those that are read."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence

from rooflens.cli.recorded.places import recordings_at
from rooflens.collector.trace.listing import SUFFIX, is_trace
from rooflens.records import RooflensError

REMOTE = "://"


def refuse_input(place: str, sources: Sequence[str]) -> None:
    """RooflensError in one line where ``place`` is one of the files at ``sources``, however it is named."""
    try:
        there = os.stat(place)
    except OSError:
        return
    for path in _read(sources):
        try:
            found = os.stat(path)
        except OSError:
            continue
        if os.path.samestat(there, found):
            raise RooflensError(f"{place}: this is what is read: name another file")


def _read(sources: Sequence[str]) -> Iterator[str]:
    """The files that are read, and some more; of a folder those of a trace, or what else would be read in it."""
    for source in sources or ("",):
        for named in _named(source):
            yield named
            if os.path.isdir(named):
                for folder, _, names in os.walk(named):
                    yield from (os.path.join(folder, name) for name in names if name.endswith(SUFFIX))
            if is_trace(named) or REMOTE in named:
                continue
            try:
                yield from map(str, recordings_at([named] if named else []))
            except (RooflensError, OSError):
                continue  # said by who reads it


def _named(source: str) -> list[str]:
    local = os.path.expanduser(source.removeprefix("file://").removeprefix("local://"))
    return [local] if not local or os.path.exists(local) else glob.glob(local, recursive=True)
