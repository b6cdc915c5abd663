"""Regular expressions and globs of module names as parts of an automaton, in a subset that is matched in linear time.

Read are literals, ``.``, classes, groups, alternatives and repeats; references back and looks ahead are not. Names are
ASCII, so a class is a set of ASCII letters.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable
from dataclasses import dataclass, field

ALPHABET = frozenset(map(chr, range(128)))
MOST_REPEATS = 64  # of one element by {m,n}
MOST_DEPTH = 16  # groups in groups
MOST_NODES = 5_000  # of one pattern
DIGITS = frozenset(string.digits)
WORD = frozenset(string.ascii_letters + string.digits + "_")
SPACE = frozenset(string.whitespace)
CLASSES = {"d": DIGITS, "w": WORD, "s": SPACE, "D": ALPHABET - DIGITS, "W": ALPHABET - WORD, "S": ALPHABET - SPACE}


class NotUnderstood(ValueError):
    """A pattern outside of the subset; the text says why, for the end of a sentence."""


@dataclass(slots=True)
class Node:
    """One state: it takes a letter of ``letters`` to go on to all of ``onward``; None: it goes on at once.

    ``begins`` and ``ends``: only at that end of the name. ``accepts``: the pattern has matched.
    """

    letters: frozenset[str] | None = None
    onward: list[int] = field(default_factory=list)
    begins: bool = False
    ends: bool = False
    accepts: bool = False


Piece = tuple[int, int]  # the node that enters, and one that leaves, whose way on is still open


class Builder:
    """The nodes of one pattern, entered at ``entry``."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.entry = 0

    def expression(self, text: str) -> Builder:
        """Read a regular expression, matched from the beginning of a name; NotUnderstood outside of the subset."""
        return self._accept(*_Parser(self, text).whole())

    def glob(self, text: str) -> Builder:
        """Read a glob that matches a whole name, or one that a name lies below of."""
        whole = self.joined([self._wild(text, at) for at in _glob_parts(text)])
        below = self.joined([self.take(frozenset(".")), self.repeated(lambda: self.take(ALPHABET), 0, None)])
        either = self.either([below, self.node()])
        return self._accept(*self.joined([whole, either, self.node(Node(ends=True))]))

    def _wild(self, text: str, part: tuple[int, int]) -> Piece:
        begin, end = part
        if text[begin] == "*":
            return self.repeated(lambda: self.take(ALPHABET), 0, None)
        if text[begin] == "?":
            return self.take(ALPHABET)
        if end - begin > 1:
            other = text[begin + 1] == "!"
            return self.take(_class(text[begin + 1 + other : end - 1], other, raw=True))
        return self.take(frozenset(text[begin]))

    def _accept(self, enter: int, leave: int) -> Builder:
        """A name that has matched once stays matched whatever comes after."""
        accepted = len(self.nodes)
        self.nodes.append(Node(letters=ALPHABET, onward=[accepted], accepts=True))
        self.nodes[leave].onward.append(accepted)
        self.entry = enter
        return self

    def node(self, node: Node | None = None) -> Piece:
        """A new node as a piece."""
        if len(self.nodes) > MOST_NODES:
            raise NotUnderstood("it repeats too often")
        self.nodes.append(node or Node())
        return len(self.nodes) - 1, len(self.nodes) - 1

    def take(self, letters: frozenset[str]) -> Piece:
        """One letter of ``letters``."""
        return self.node(Node(letters & ALPHABET))

    def joined(self, pieces: list[Piece]) -> Piece:
        """One after the other; each piece is used once."""
        if not pieces:
            return self.node()
        for (_, leave), (enter, _) in itertools.pairwise(pieces):
            self.nodes[leave].onward.append(enter)
        return pieces[0][0], pieces[-1][1]

    def either(self, pieces: list[Piece]) -> Piece:
        """One of them."""
        enter, leave = self.node()[0], self.node()[0]
        for begin, end in pieces:
            self.nodes[enter].onward.append(begin)
            self.nodes[end].onward.append(leave)
        return enter, leave

    def repeated(self, make: Callable[[], Piece], least: int, most: int | None) -> Piece:
        """What ``make`` builds, ``least`` to ``most`` times, None for any number."""
        pieces = [make() for _ in range(least)]
        for _ in range((most - least) if most is not None else 0):
            pieces.append(self.either([make(), self.node()]))
        if most is None:
            enter, leave = self.node()[0], self.node()[0]
            begin, end = make()
            self.nodes[enter].onward += [begin, leave]
            self.nodes[end].onward.append(enter)
            pieces.append((enter, leave))
        return self.joined(pieces)


class _Parser:
    """Reads one expression from left to right."""

    def __init__(self, builder: Builder, text: str) -> None:
        self.builder, self.text, self.at, self.depth = builder, text, 0, 0

    def whole(self) -> Piece:
        found = self.alternatives()
        if self.at < len(self.text):
            raise NotUnderstood("it closes a group that it did not open")
        return found

    def alternatives(self) -> Piece:
        found = [self.sequence()]
        while self.text[self.at : self.at + 1] == "|":
            self.at += 1
            found.append(self.sequence())
        return found[0] if len(found) == 1 else self.builder.either(found)

    def sequence(self) -> Piece:
        pieces = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            begin = self.at
            piece = self.element()
            pieces.append(self.quantified(begin, piece))
        return self.builder.joined(pieces)

    def quantified(self, begin: int, piece: Piece) -> Piece:
        """``piece``, read from ``begin``, as often as what follows it says."""
        counts = self.counts()
        if counts is None:
            return piece
        after = self.at + (self.text[self.at : self.at + 1] == "?")  # lazy or not, the same names match
        if self.text[after : after + 1] in ("*", "+", "?", "{") and after < len(self.text):
            raise NotUnderstood("it repeats a repeat")

        ready = [piece]

        def again() -> Piece:
            if ready:
                return ready.pop()
            self.at = begin
            return self.element()

        found = self.builder.repeated(again, *counts)
        self.at = after
        return found

    def counts(self) -> tuple[int, int | None] | None:
        """How often the element before is repeated, None where nothing says so."""
        sign = self.text[self.at : self.at + 1]
        if sign in ("*", "+", "?") and sign:
            self.at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        if sign != "{":
            return None
        inside, closed, _ = self.text[self.at + 1 :].partition("}")
        low, comma, high = inside[:8].partition(",")
        if not closed or not all(n.isascii() and n.isdigit() for n in (low or "0", high or "0")) or not (low or high):
            raise NotUnderstood("it has a brace that is no number of repeats")
        least = int(low or 0)
        most = int(high) if high else None if comma else least
        if least > MOST_REPEATS or (most or 0) > MOST_REPEATS or (most is not None and most < least):
            raise NotUnderstood(f"it repeats more than {MOST_REPEATS} times")
        self.at += len(inside) + 2
        return least, most

    def element(self) -> Piece:
        sign = self.text[self.at]
        self.at += 1
        if sign == "(":
            return self.group()
        if sign == "[":
            return self.builder.take(self.letters())
        if sign == "\\":
            return self.escaped()
        if sign in "*+?{":
            raise NotUnderstood("it repeats nothing")
        if sign in "^$":
            return self.builder.node(Node(begins=sign == "^", ends=sign == "$"))
        return self.builder.take(ALPHABET if sign == "." else frozenset(sign))

    def group(self) -> Piece:
        if self.text.startswith("?:", self.at):
            self.at += 2
        elif self.text.startswith("?", self.at):
            raise NotUnderstood("it looks ahead or back, or sets flags")
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise NotUnderstood("its groups are too deep")
        found = self.alternatives()
        self.depth -= 1
        if self.text[self.at : self.at + 1] != ")":
            raise NotUnderstood("it leaves a group open")
        self.at += 1
        return found

    def escaped(self) -> Piece:
        sign = self.text[self.at : self.at + 1]
        self.at += 1
        if sign in CLASSES:
            return self.builder.take(CLASSES[sign])
        if sign and sign in "AZ":
            return self.builder.node(Node(begins=sign == "A", ends=sign == "Z"))
        if not sign or sign.isalnum():
            raise NotUnderstood("it refers back or escapes a letter" if sign else "it ends in a backslash")
        return self.builder.take(frozenset(sign))

    def letters(self) -> frozenset[str]:
        """A class up to its closing bracket."""
        end = self.at + self.text.startswith("^", self.at)
        end += self.text.startswith("]", end)
        while self.text[end : end + 1] not in ("]", ""):
            end += 2 if self.text[end] == "\\" else 1
        if self.text[end : end + 1] != "]":
            raise NotUnderstood("it leaves a class open")
        other = self.text.startswith("^", self.at)
        inside, self.at = self.text[self.at + other : end], end + 1
        return _class(inside, other)


def _class(signs: str, other: bool, raw: bool = False) -> frozenset[str]:
    """The letters between brackets, or all ``other``; ``raw``: a backslash is one of them, as in a glob."""
    members: list[frozenset[str]] = []
    at = 0
    while at < len(signs):
        if signs[at] == "\\" and not raw:
            sign = signs[at + 1 : at + 2]
            if sign not in CLASSES and (not sign or sign.isalnum()):
                raise NotUnderstood("its class escapes a letter")
            members.append(CLASSES.get(sign, frozenset(sign)))
            at += 2
            continue
        members.append(frozenset(signs[at]))
        at += 1
        if signs[at : at + 1] == "-" and at + 1 < len(signs):
            last = signs[at + 1]
            if last < signs[at - 1] or (last == "\\" and not raw):
                raise NotUnderstood("its class has a range that is none")
            members.append(frozenset(c for c in ALPHABET if signs[at - 1] <= c <= last))
            at += 2
    found = frozenset[str]().union(*members)
    return ALPHABET - found if other else found


def _glob_parts(text: str) -> list[tuple[int, int]]:
    """Begin and end of each element: a class in brackets, else one letter; stars in a row are one."""
    parts, at = [], 0
    while at < len(text):
        end = at + 1
        if text[at] == "[":
            after = at + 1 + text.startswith("!", at + 1)
            closing = text.find("]", after + 1)
            end = closing + 1 if closing > 0 else end
        if not (text[at] == "*" and text[max(at - 1, 0) : at] == "*"):
            parts.append((at, end))
        at = end
    return parts
