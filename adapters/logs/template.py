"""A sentence with places in it, as the tables write it: "Maximum concurrency for {max_context_tokens} tokens".

``{name}`` is a number, ``{name:word}`` a word without blanks, ``{}`` anything short that is not kept; two blanks stand
for any number of them. Every pattern made of it runs in time linear in the line: each place ends where its kind of
characters does, and is bounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rooflens.adapters.facts import word
from rooflens.adapters.logs.pairs import NUMBER, number

_PLACE = re.compile(r"\{(?P<name>\w*)(?::(?P<what>\w+))?\}")
LONGEST_UNIT = 18  # with the blank before it
_NUMBER = r"[-+]?[\d,]{1,26}(?:\.\d{1,20})?(?:[eE][-+]?\d{1,3})?"
_WORD = r"[^\s,;'\"()\[\]]{1,80}"
_ANY = r"[^\s,]{1,64}"


@dataclass(frozen=True, slots=True)
class Template:
    """One sentence: ``mark`` is a stretch that every such line holds, ``words`` are the places that are no numbers."""

    mark: str
    pattern: re.Pattern[str]
    words: frozenset[str]

    def read(self, line: str) -> tuple[dict[str, float], dict[str, str], int] | None:
        """The values, the words and where the sentence ends; None where the line does not hold it."""
        found = self.pattern.search(line)
        if found is None:
            return None
        values: dict[str, float] = {}
        words: dict[str, str] = {}
        for name, text in found.groupdict().items():
            if name in self.words:
                kept = word(text.rstrip(".:"))
                words.update({name: kept} if kept else {})
                continue
            read = number(line[found.start(name) : found.end(name) + LONGEST_UNIT])
            if read is not None and NUMBER.match(text):
                values[name] = read[0]
        return values, words, found.end()


def template(text: str) -> Template:
    """The sentence as a pattern; ValueError where it has no stretch of its own."""
    pieces: list[str] = []
    plain: list[str] = []
    words: set[str] = set()
    start = 0
    for place in _PLACE.finditer(text):
        _literal(text[start : place.start()], pieces, plain)
        kind = _WORD if place["what"] == "word" else _NUMBER
        pieces.append(f"(?P<{place['name']}>{kind})" if place["name"] else _ANY)
        words.update({place["name"]} if place["what"] == "word" else ())
        start = place.end()
    _literal(text[start:], pieces, plain)
    mark = max(plain, key=len, default="")
    if len(mark.strip()) < 4:
        raise ValueError(f"no stretch to look for in {text!r}")
    return Template(mark, re.compile("".join(pieces)), frozenset(words))


def _literal(text: str, pieces: list[str], plain: list[str]) -> None:
    for index, stretch in enumerate(text.split("  ")):
        pieces.append((r"[ \t]{1,40}" if index else "") + re.escape(stretch))
        plain.append(stretch)
