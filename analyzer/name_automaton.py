"""Patterns compared with names that share their parts: sets of states, each built when a name first leads there."""

from __future__ import annotations

from collections.abc import Iterable

from rooflens.analyzer.modules import Module
from rooflens.analyzer.name_patterns import Builder

MOST_WORK = 4_000_000  # letters and states of patterns gone through for one model: some seconds
NONE = 1 << 62  # no pattern
STEP = 16  # what building a state costs, beside its nodes
DEAD = 0  # the state that no letter leads out of


class TooLong(ValueError):
    """The patterns take more work than any real list."""


class Work:
    """What all patterns of a model have taken so far."""

    def __init__(self) -> None:
        self._done = 0

    def add(self, steps: int) -> None:
        """Count ``steps``; TooLong beyond what a model may take."""
        self._done += steps
        if self._done > MOST_WORK:
            raise TooLong("patterns that take too long to compare")


class Automaton:
    """One pattern: walk from ``start`` part by part, then ask whether the name matches as it ends here."""

    def __init__(self, built: Builder, work: Work) -> None:
        self._nodes, self._work = built.nodes, work
        self._states: list[frozenset[int]] = []
        self._numbers: dict[frozenset[int], int] = {}
        self._matches: list[bool] = []
        self._letters: dict[tuple[int, str], int] = {}
        self._parts: dict[tuple[int, str], int] = {}
        self._found: dict[tuple[int, Module], bool] = {}
        self._state(frozenset())  # DEAD
        self.start = self._state(frozenset(self._reached([built.entry], begins=True, ends=False)))

    def after(self, state: int, part: str) -> int:
        """The state after the letters of ``part``."""
        key = (state, part)
        if key not in self._parts:
            for letter in part if state != DEAD else ():
                found = self._letters.get((state, letter))
                state = self._step(state, letter) if found is None else found
            self._work.add(len(part))
            self._parts[key] = state
        return self._parts[key]

    def names(self, state: int, module: Module) -> bool:
        """Whether a name that goes on from ``state`` with the module's levels matches, in any spelling."""
        key = (state, module)
        if key not in self._found:
            states = {state}
            for number, level in enumerate(module.levels):
                parts = [f".{part}" if number else part for part in level]
                self._work.add(len(parts) * len(states))
                states = {self.after(s, part) for s in states for part in parts}
            states |= {self.after(s, ".weight") for s in states}
            self._found[key] = any(self._matches[s] for s in states)
        return self._found[key]

    def _step(self, state: int, letter: str) -> int:
        taken = [n for n in self._states[state] if letter in (self._nodes[n].letters or ())]
        onward = [other for n in taken for other in self._nodes[n].onward]
        self._work.add(STEP + len(self._states[state]) + len(onward))
        found = self._state(frozenset(self._reached(onward, begins=False, ends=False)))
        self._letters[state, letter] = found
        return found

    def _state(self, nodes: frozenset[int]) -> int:
        """The number of the state of ``nodes``, which take a letter or wait for the end."""
        if nodes not in self._numbers:
            self._work.add(STEP + len(nodes))
            ended = self._reached([n for n in nodes if self._nodes[n].ends], begins=False, ends=True)
            self._matches.append(any(self._nodes[n].accepts for n in (*nodes, *ended)))
            self._numbers[nodes] = len(self._states)
            self._states.append(nodes)
        return self._numbers[nodes]

    def _reached(self, begun: list[int], begins: bool, ends: bool) -> set[int]:
        """The nodes that take a letter, or wait for the end, reached from ``begun`` without one."""
        seen, waiting = set(begun), list(begun)
        found: set[int] = set()
        while waiting:
            number = waiting.pop()
            node = self._nodes[number]
            self._work.add(1)
            if node.letters is not None or (node.ends and not ends):
                found.add(number)
            elif begins or not node.begins:
                onward = [n for n in node.onward if n not in seen]
                seen.update(onward)
                waiting += onward
        return found


class Patterns:
    """Patterns with the numbers of their rules: which is the first that names a module below some beginnings."""

    def __init__(self) -> None:
        self.work = Work()
        self._all: list[tuple[int, Automaton]] = []
        self._living: dict[tuple[str, str], int] = {}
        self._alike: dict[tuple[tuple[int, Automaton, int], ...], int] = {}  # beginnings that no pattern tells apart
        self._rows: dict[int, tuple[tuple[int, Automaton, int], ...]] = {}
        self._found: dict[tuple[int, Module], int] = {}

    def add(self, number: int, built: Builder) -> None:
        """Numbers rise from call to call."""
        self._all.append((number, Automaton(built, self.work)))

    def first(self, beginnings: Iterable[tuple[str, str]], module: Module) -> int:
        """The smallest number of a pattern that matches a beginning, in two parts, and then the module's name."""
        found = (self._first(above, module) for above in beginnings) if self._all else ()
        return min(found, default=NONE)

    def _first(self, above: tuple[str, str], module: Module) -> int:
        if above not in self._living:
            self.work.add(len(self._all))
            walked = ((n, pattern, pattern.after(pattern.after(pattern.start, above[0]), above[1]))
                      for n, pattern in self._all)  # fmt: skip
            living = tuple(row for row in walked if row[2] != DEAD)
            self._living[above] = self._alike.setdefault(living, len(self._alike))
            self._rows[self._living[above]] = living
        key = (self._living[above], module)
        if key not in self._found:
            living = self._rows[key[0]]
            self.work.add(len(living))
            self._found[key] = next((n for n, pattern, state in living if pattern.names(state, module)), NONE)
        return self._found[key]
