"""How far a measurement is, on standard error."""

from __future__ import annotations

import re
import sys

from rooflens.cli.output import one_line

WIDTH = 24  # characters
LINE_SHARE = 0.25  # of the whole: a log gets a line as often where only a number in the words changes
NUMBER = re.compile(r"\d+")


class Bar:
    """A bar that replaces itself on a terminal, else a line when other words are said and now and then meanwhile."""

    def __init__(self, quiet: bool = False) -> None:
        """``quiet`` says nothing where there is no terminal."""
        self._terminal = sys.stderr.isatty()
        self._quiet = quiet
        self._words = ""
        self._ratio = 0.0

    def tell(self, words: str, ratio: float) -> None:
        """``ratio`` of the time is over, and what is done now."""
        if self._terminal:
            done = round(WIDTH * min(1.0, max(0.0, ratio)))
            line = one_line(f"{'#' * done}{'.' * (WIDTH - done)} {ratio:4.0%}  {words}")
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
            self._words = words
        elif (
            not self._quiet
            and words != self._words
            and (_kind(words) != _kind(self._words) or ratio - self._ratio >= LINE_SHARE)
        ):
            print(one_line(f"{ratio:4.0%}  {words}"), file=sys.stderr, flush=True)
            self._words, self._ratio = words, ratio

    def end(self) -> None:
        """Nothing follows: the terminal gets its line back."""
        if self._terminal and self._words:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _kind(words: str) -> str:
    return NUMBER.sub("", words)
