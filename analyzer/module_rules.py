"""Which rule of a quantisation holds for which module: dotted names, globs and regular expressions, layer by layer.

Names are compared below the layer, whatever stands before ``layers.N`` (a wrapper of a multimodal model).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rooflens.analyzer.modules import ANY_EXPERT, Module
from rooflens.analyzer.name_automaton import NONE, Patterns, TooLong
from rooflens.analyzer.name_patterns import Builder, NotUnderstood
from rooflens.arch_records import FormatRule
from rooflens.records import RooflensError

MOST_NAMES = 1 << 17  # of one model; modelopt lists each expert's matrices, some ten thousand
TOO_MANY = "more patterns than are read"
MOST_LETTERS = 1000  # of one of them
MOST_NODES = 1 << 17  # of all patterns together; a pattern has about as many as letters
LAYER = r"(?:layers|h|blocks|block|layer)"
IN_LAYER = re.compile(rf"^(?:[A-Za-z_]+\.)*{LAYER}\.(\d+)(?:\.(.+))?$")
IN_MTP = re.compile(r"^(?:[A-Za-z_]+\.)*(?:mtp|nextn)\.(?:layers\.)?(\d+)(?:\.(.+))?$")
TOWER = re.compile(r"^(?:re:)?\W*(?:[a-z_]+\W+)*[a-z_]*(vision|visual|vit|audio|image|projector|merger)", re.IGNORECASE)
PREDICTION = re.compile(r"^\^?(?:model\\?\.)?(?:mtp|nextn)\b")  # its layers are numbered on their own
BELOW_ANY = re.compile(rf"^(?:[A-Za-z_]+\.)*{LAYER}\.")
BELOW_ANY_EXPRESSION = re.compile(rf"^\^?(?:[A-Za-z_]+\\?\.)*{LAYER}\\?\.")
ABOVE = ("weight", "model", "language_model", "transformer")  # parts of a name that tell no modules apart
BELOW = r"model\.layers\."
CLASS_GROUPS = (("Attention", ("attention", "indexer")), ("Experts", ("experts",)), ("Router", ("router",)),
                ("MLP", ("mlp",)), ("MoE", ("experts", "shared_experts", "router")),
                ("MoeBlock", ("experts", "shared_experts", "router")), ("Embedding", ("embedding",)),
                ("LMHead", ("head",)))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Where a module stands: its layer's number (None outside of the layers) and whether it is for prediction (MTP)."""

    depth: int | None
    mtp: int | None = None


class _Literals:
    """Plain names, sought by the dotted parts that a module could be named by."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, ...], int] = {}
        self._groups: dict[str, int] = {}
        self._found: dict[Module, int] = {}

    def add(self, number: int, name: str) -> None:
        """``number`` is the rule's; "" names all modules."""
        if re.fullmatch(r"[A-Z][A-Za-z0-9]+", name):  # the class of a module
            for group in (g for ending, groups in CLASS_GROUPS if name.endswith(ending) for g in groups):
                self._groups.setdefault(group, number)
            return
        parts = tuple(ANY_EXPERT if p.isdigit() else p for p in name.split(".") if name and p not in ABOVE)
        if parts or not name:
            self._parts.setdefault(parts, number)

    def find(self, module: Module) -> int:
        """The smallest number whose name is some of the module's levels in a row, NONE for none."""
        if not self._parts and not self._groups:
            return NONE
        if module not in self._found:
            numbers = (self._parts.get(run, NONE) for run in _runs(module.levels))
            self._found[module] = min(self._groups.get(module.group, NONE), *numbers)
        return self._found[module]


class RuleBook:
    """The rules of a quantisation, sorted so that a module of a layer is compared with few of them."""

    def __init__(self, rules: Iterable[FormatRule]) -> None:
        self.rules = tuple(rules)
        self._by_layer: dict[int, _Literals] = {}  # -1 - n for layer n of MTP
        self._anywhere, self._ahead = _Literals(), _Literals()
        self._patterns, self._nodes = Patterns(), 0
        first: dict[str, int] = {}
        for index, rule in enumerate(self.rules):
            first.setdefault(rule.pattern, index)
        if len(first) > MOST_NAMES:
            raise RooflensError(f"quantization_config names more than {MOST_NAMES} modules: say --weights")
        for pattern, index in first.items():
            self._add(index, pattern)

    def rule_for(self, module: Module, place: Place) -> FormatRule | None:
        """The first rule that names ``module`` at ``place``; None where none does."""
        free = self._anywhere if place.mtp is None else self._ahead
        keys = [place.depth] if place.depth is not None else []
        keys += [-1 - place.mtp] if place.mtp is not None else []
        own = [self._by_layer[key].find(module) for key in keys if key in self._by_layer]
        try:
            number = min(free.find(module), self._patterns.first(_above(place), module), *own)
        except TooLong as error:
            raise RooflensError(f"quantization_config names modules by {error}: say --weights") from error
        return None if number == NONE else self.rules[number]

    def _add(self, index: int, pattern: str) -> None:
        if len(pattern) > MOST_LETTERS:
            raise RooflensError(
                f"quantization_config names modules by {pattern[:40]!r} and {len(pattern) - 40} letters more: "
                "say --weights"
            )
        if TOWER.match(pattern):  # a tower that is no language model
            return
        inside, ahead = IN_LAYER.match(pattern), IN_MTP.match(pattern)
        if pattern.startswith("re:"):
            rest = pattern[3:]
            below = rest if PREDICTION.match(rest) else BELOW_ANY_EXPRESSION.sub(BELOW, rest)
            self._pattern(index, below, glob=False)
        elif ahead:
            number = int(ahead[1][:9])
            self._in_layer(index, -1 - number, f"mtp.{number}.", ahead[2] or "")
        elif inside:
            number = int(inside[1][:9])
            self._in_layer(index, number, f"model.layers.{number}.", inside[2] or "")
        elif _is_glob(pattern):
            below = pattern if PREDICTION.match(pattern) else BELOW_ANY.sub("model.layers.", pattern)
            self._pattern(index, below, glob=True)
        else:
            self._anywhere.add(index, pattern)
            self._ahead.add(index, re.sub(r"^(?:model\.)?(?:mtp|nextn)\.?", "", pattern))

    def _in_layer(self, index: int, key: int, above: str, name: str) -> None:
        if _is_glob(name):
            self._pattern(index, above + name, glob=True)
        else:
            self._by_layer.setdefault(key, _Literals()).add(index, name)

    def _pattern(self, index: int, text: str, glob: bool) -> None:
        try:
            built = Builder().glob(text) if glob else Builder().expression(text)
            self._nodes += len(built.nodes)
            if self._nodes > MOST_NODES:
                raise RooflensError(f"quantization_config names modules by {TOO_MANY}: say --weights")
            self._patterns.add(index, built)
        except NotUnderstood as error:
            raise RooflensError(
                f"quantization_config names modules by {'' if glob else 'the expression '}{text[:40]!r}, not "
                f"understood ({error}): say --weights"
            ) from error


def _is_glob(name: str) -> bool:
    return any(letter in name for letter in "*?[")


def _runs(levels: tuple[tuple[str, ...], ...]) -> Iterator[tuple[str, ...]]:
    """All spellings of some levels in a row, and of none."""
    yield ()
    for begin in range(len(levels)):
        for end in range(begin + 1, len(levels) + 1):
            yield from itertools.product(*levels[begin:end])


def _above(place: Place) -> Iterator[tuple[str, str]]:
    """What may stand before a module's own name, with the usual beginnings; the second part is the layer's own."""
    if place.depth is None:
        yield "", ""
        yield "model.", ""
    else:
        yield "model.layers.", f"{place.depth}."
    if place.mtp is not None:
        yield "mtp.", f"{place.mtp}."
        yield "mtp.layers.", f"{place.mtp}."
