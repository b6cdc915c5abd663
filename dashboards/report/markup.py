"""Elements of HTML and SVG as text. What is not Markup is escaped: nothing that a recording says becomes an element."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

EMPTY = frozenset({"meta", "input", "br", "rect", "line", "circle", "path"})  # the SVG ones never hold anything here
ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
UNSEEN = "�"  # for what is no character of a text: control characters, and marks that turn the writing direction
TURNING = frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)))
IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(text: str) -> Markup:
    """``text`` as the content of an element or of a quoted attribute."""
    return Markup(seen(text).translate(ESCAPES))


def seen(text: str) -> str:
    """``text`` with UNSEEN for every character that shows nothing, or turns what stands beside it."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _shows(char) else UNSEEN for char in text)


def _shows(char: str) -> bool:
    return (char.isprintable() or char in "\n\u00a0") and char not in TURNING


Child = str | None | Iterable["Child"]


def tag(name: str, /, *children: Child, **attributes: object) -> Markup:
    """An element. A trailing _ of an attribute's name is left out and another _ is a hyphen; None or False: none."""
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        words.append(key if value is True else f'{key}="{escaped(_plain(value))}"')
    if name in EMPTY and not children:
        return Markup(f"<{' '.join(words)}>" if name in ("meta", "input", "br") else f"<{' '.join(words)}/>")
    return Markup(f"<{' '.join(words)}>{joined(children)}</{name}>")


def joined(children: Child) -> Markup:
    """Everything in ``children`` one after the other, escaped where it is no Markup."""
    if children is None:
        return Markup("")
    if isinstance(children, str):
        return children if isinstance(children, Markup) else escaped(children)
    return Markup("".join(map(joined, children)))


def _plain(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def as_data(value: Any) -> Markup:
    """JSON that may stand in a script element: no character of it can end the element or begin another."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return Markup(text.translate(IN_SCRIPT))
