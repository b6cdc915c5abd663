"""Which rule of a quantisation holds for which module: dotted names, globs and regular expressions, layer by layer.

Names are compared below the layer, whatever stands before ``layers.N`` (a wrapper of a multimodal model).
"""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rooflens.analyzer.modules import ANY_EXPERT, Module
from rooflens.arch_records import FormatRule
from rooflens.records import RooflensError

MOST_EXPRESSIONS = 2000  # regular expressions and globs of one model
MOST_LETTERS = 400  # of one of them
MOST_REPEATS = 8  # unbounded repeats in one of them, so that no pattern takes longer than a moment
LAYER = r"(?:layers|h|blocks|block|layer)"
IN_LAYER = re.compile(rf"^(?:[A-Za-z_]+\.)*{LAYER}\.(\d+)(?:\.(.+))?$")
IN_MTP = re.compile(r"^(?:[A-Za-z_]+\.)*(?:mtp|nextn)\.(?:layers\.)?(\d+)(?:\.(.+))?$")
TOWER = re.compile(r"^(?:re:)?\W*(?:[a-z_]+\W+)*[a-z_]*(vision|visual|vit|audio|image|projector|merger)", re.IGNORECASE)
PREDICTION = re.compile(r"^\^?(?:model\\?\.)?(?:mtp|nextn)\b")  # its layers are numbered on their own
BELOW_ANY = re.compile(rf"^(?:[A-Za-z_]+\.)*{LAYER}\.")
BELOW_ANY_EXPRESSION = re.compile(rf"^\^?(?:[A-Za-z_]+\\?\.)*{LAYER}\\?\.")
CLASS_GROUPS = (("Attention", ("attention", "indexer")), ("Experts", ("experts",)), ("Router", ("router",)),
                ("MLP", ("mlp",)), ("MoE", ("experts", "shared_experts", "router")),
                ("MoeBlock", ("experts", "shared_experts", "router")), ("Embedding", ("embedding",)),
                ("LMHead", ("head",)))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Where a module stands: its layer's number (None outside of the layers) and whether it is for prediction (MTP)."""

    depth: int | None
    mtp: int | None = None


@dataclass(slots=True)
class _Names:
    """Dotted names of one rule's place in the list: by layer, or for all of them."""

    by_layer: dict[int, list[tuple[int, str]]] = field(default_factory=dict)  # -1 - n for layer n of MTP
    anywhere: list[tuple[int, str]] = field(default_factory=list)


class RuleBook:
    """The rules of a quantisation, sorted so that a module of a layer is compared with few of them."""

    def __init__(self, rules: Iterable[FormatRule]) -> None:
        self.rules = tuple(rules)
        self._names = _Names()
        self._expressions: list[tuple[int, re.Pattern[str], bool]] = []
        self._seen: dict[tuple[str, Module], bool] = {}
        for index, rule in enumerate(self.rules):
            self._add(index, rule.pattern)

    def rule_for(self, module: Module, place: Place) -> FormatRule | None:
        """The first rule that names ``module`` at ``place``; None where none does."""
        found = next(self._literal(module, place), None)
        for index, pattern, numbered in self._expressions:
            if found is not None and index > found:
                break
            if self._matches(pattern, numbered, module, place):
                return self.rules[index]
        return None if found is None else self.rules[found]

    def _add(self, index: int, pattern: str) -> None:
        if TOWER.match(pattern):  # a tower that is no language model
            return
        inside, ahead = IN_LAYER.match(pattern), IN_MTP.match(pattern)
        if not pattern.startswith("re:") and re.sub(r"\*+", "*", pattern).count("*") > MOST_REPEATS:
            raise RooflensError(
                f"quantization_config names modules by {pattern[:40]!r}, which repeats too often to be read: "
                "say --weights"
            )
        if ahead and not pattern.startswith("re:"):
            self._names.by_layer.setdefault(-1 - int(ahead[1][:9]), []).append((index, ahead[2] or ""))
        elif pattern.startswith("re:"):
            rest = pattern[3:]
            anywhere = BELOW_ANY_EXPRESSION.sub(r"model\.layers\.", rest)
            self._add_expression(index, rest if PREDICTION.match(rest) else anywhere)
        elif inside:
            self._names.by_layer.setdefault(int(inside[1][:9]), []).append((index, inside[2] or ""))
        elif any(letter in pattern for letter in "*?["):
            self._add_glob(index, pattern if PREDICTION.match(pattern) else BELOW_ANY.sub("model.layers.", pattern))
        else:
            self._names.anywhere.append((index, pattern))

    def _add_glob(self, index: int, glob: str) -> None:
        self._append(index, _either(glob))

    def _add_expression(self, index: int, expression: str) -> None:
        short = re.sub(r"(?:\.\*)+", ".*", expression)
        repeats = len(re.findall(r"[*+{]", short))
        if len(short) > MOST_LETTERS or repeats > MOST_REPEATS or re.search(r"\)[*+{]", short):
            raise RooflensError(
                f"quantization_config names modules by the expression {expression[:40]!r}, which repeats too often to "
                "be read: say --weights"
            )
        self._append(index, short)

    def _append(self, index: int, expression: str) -> None:
        if len(self._expressions) >= MOST_EXPRESSIONS:
            raise RooflensError(f"quantization_config has more than {MOST_EXPRESSIONS} patterns: say --weights")
        try:
            compiled = re.compile(expression)
        except (re.error, RecursionError, OverflowError) as error:
            raise RooflensError(
                f"quantization_config names modules by {expression[:40]!r}, no regular expression: say --weights"
            ) from error
        self._expressions.append((index, compiled, any(c.isdigit() or c == "\\" for c in expression)))

    def _literal(self, module: Module, place: Place) -> Iterator[int]:
        inside = [] if place.depth is None else self._names.by_layer.get(place.depth, [])
        if place.mtp is not None:
            inside = sorted([*inside, *self._names.by_layer.get(-1 - place.mtp, [])])
        own = ((i, rest) for i, rest in inside if not rest or self._named(rest, module))
        free = ((i, name) for i, name in self._names.anywhere if self._free(name, module, place))
        hits = [next(own, None), next(free, None)]
        yield from sorted(hit[0] for hit in hits if hit)

    def _free(self, name: str, module: Module, place: Place) -> bool:
        if place.mtp is not None:
            name = re.sub(r"^(?:model\.)?(?:mtp|nextn)\.?", "", name)
        return not name or self._named(name, module)

    def _named(self, name: str, module: Module) -> bool:
        key = (name, module)
        if key not in self._seen:
            self._seen[key] = _names_module(name, module)
        return self._seen[key]

    def _matches(self, pattern: re.Pattern[str], numbered: bool, module: Module, place: Place) -> bool:
        if numbered or place.depth is None or place.mtp is not None:
            return any(_spelled(pattern, name) for name in _full_names(module, place))
        key = (pattern.pattern, module)
        if key not in self._seen:
            self._seen[key] = any(_spelled(pattern, name) for name in _full_names(module, Place(0)))
        return self._seen[key]


def _spelled(pattern: re.Pattern[str], name: str) -> bool:
    return pattern.match(name) is not None or pattern.match(name + ".weight") is not None


def _names_module(name: str, module: Module) -> bool:
    """Whether the dotted parts of ``name``, of which some may be globs, are some of the module's levels in a row."""
    if re.fullmatch(r"[A-Z][A-Za-z0-9]+", name):
        return any(module.group in groups for ending, groups in CLASS_GROUPS if name.endswith(ending))
    if any(letter in name for letter in "*?["):
        both = re.compile(_either(name))
        return any(_spelled(both, full) for full in _names(module))
    parts = [part for part in name.split(".") if part not in ("weight", "model", "language_model", "transformer")]
    levels = module.levels
    return bool(parts) and any(
        all(_same(part, level) for part, level in zip(parts, levels[start:], strict=False))
        for start in range(len(levels) - len(parts) + 1)
    )


def _either(glob: str) -> str:
    """The expression of a glob, for the module that it names or for all below it."""
    short = re.sub(r"\*+", "*", glob)
    return rf"(?:{fnmatch.translate(short)}|{fnmatch.translate(short + '.*')})"


def _same(part: str, level: tuple[str, ...]) -> bool:
    return part in level or (level == (ANY_EXPERT,) and part.isdigit())


def _names(module: Module) -> Iterator[str]:
    for parts in itertools.product(*module.levels):
        yield ".".join(parts)


def _full_names(module: Module, place: Place) -> Iterator[str]:
    """All spellings of a module's whole name, with the usual beginnings."""
    for name in _names(module):
        if place.depth is None:
            yield name
            yield f"model.{name}"
        else:
            yield f"model.layers.{place.depth}.{name}"
        if place.mtp is not None:
            yield f"mtp.{place.mtp}.{name}"
            yield f"mtp.layers.{place.mtp}.{name}"
