"""Small wrong edits of a Python file, one at a time: what a slip in a formula looks like.

An operator becomes its counterpart, a boundary moves by one, a number by one (or doubles), ``min`` becomes ``max``, a
keyword, a condition or a returned value is lost. Texts, annotations, docstrings, decorators and what is raised stay.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "ceil": "floor", "floor": "ceil"}
NAMES |= {"minimum": "maximum", "maximum": "minimum"}
# What these say changes no figure: zip's strict only guards.
IDLE_KEYWORDS = {"strict"}
CONDITIONS = (ast.Compare, ast.BoolOp)


@dataclass(frozen=True)
class Mutant:
    """One wrong edit: its line, what became what, the statement it is in, and the whole text of the file with it."""

    line: int
    change: str
    where: str
    text: str

    @property
    def key(self) -> tuple[str, str]:
        """What names it while other lines of the file come and go."""
        return self.where, self.change


def _numbers(value: object) -> list[object]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 0] if value == 1 else [value + 1]
    if isinstance(value, float):
        return [value * 2 if value else 1.0]
    return []


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _binary(node: ast.BinOp | ast.AugAssign) -> Iterator[ast.AST]:
    sides = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,)
    other = OPERATORS.get(type(node.op))
    if other is None or any(_is_text(side) for side in sides):
        return
    if isinstance(node, ast.BinOp):
        yield ast.BinOp(node.left, other(), node.right)
    else:
        yield ast.AugAssign(node.target, other(), node.value)


def _call(node: ast.Call) -> Iterator[ast.AST]:
    for index, keyword in enumerate(node.keywords):
        if keyword.arg is not None and keyword.arg not in IDLE_KEYWORDS:
            yield ast.Call(node.func, node.args, node.keywords[:index] + node.keywords[index + 1 :])
    if isinstance(node.func, ast.Name) and node.func.id in NAMES:
        yield ast.Call(ast.Name(NAMES[node.func.id], ast.Load()), node.args, node.keywords)
    if isinstance(node.func, ast.Attribute) and node.func.attr in NAMES:
        yield ast.Call(ast.Attribute(node.func.value, NAMES[node.func.attr], ast.Load()), node.args, node.keywords)


def _not(node: ast.expr) -> ast.UnaryOp:
    return ast.UnaryOp(ast.Not(), node)


def _keys(node: ast.Dict) -> Iterator[ast.AST]:
    for index, key in enumerate(node.keys):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            other: ast.expr = ast.Constant(key.value + "_")
            yield ast.Dict([*node.keys[:index], other, *node.keys[index + 1 :]], node.values)


def replacements(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand wrongly in the place of a node."""
    match node:
        case ast.BinOp() | ast.AugAssign():
            yield from _binary(node)
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                others = [*node.ops[:index], COMPARISONS[type(operator)](), *node.ops[index + 1 :]]
                yield ast.Compare(node.left, others, node.comparators)
        case ast.BoolOp():
            yield ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.Constant():
            yield from (ast.Constant(value) for value in _numbers(node.value))  # type: ignore[arg-type]
        case ast.Call():
            yield from _call(node)
        case ast.Dict():
            yield from _keys(node)
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield ast.Return(ast.Constant(None))
        case ast.IfExp() if not isinstance(node.test, CONDITIONS):
            yield ast.IfExp(_not(node.test), node.body, node.orelse)
        case ast.If() | ast.While() if not isinstance(node.test, (*CONDITIONS, ast.UnaryOp)):
            yield type(node)(_not(node.test), node.body, node.orelse)
        case ast.comprehension():
            for index, test in enumerate(node.ifs):
                if not isinstance(test, (*CONDITIONS, ast.UnaryOp)):
                    ifs = [*node.ifs[:index], _not(test), *node.ifs[index + 1 :]]
                    yield ast.comprehension(node.target, node.iter, ifs, node.is_async)


def _children(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """The parts of a node that may be edited: (node, field, index in the field, part)."""
    skipped = {"annotation", "returns", "decorator_list", "type_params"}
    if isinstance(node, ast.Raise | ast.Assert) or (isinstance(node, ast.keyword) and node.arg in IDLE_KEYWORDS):
        return
    for field, value in ast.iter_fields(node):
        if field in skipped or (field == "bases" and isinstance(node, ast.ClassDef)):
            continue
        parts = value if isinstance(value, list) else [value]
        for index, part in enumerate(parts):
            if isinstance(part, ast.AST):
                yield node, field, index if isinstance(value, list) else None, part


def _places(node: ast.AST, statement: ast.stmt | None) -> Iterator[tuple[ast.AST, str, int | None, ast.AST, ast.stmt]]:
    for parent, field, index, part in _children(node):
        if isinstance(part, ast.If) and ast.unparse(part.test) == "TYPE_CHECKING":
            continue
        inside = part if isinstance(part, ast.stmt) else statement
        if inside is not None:
            yield parent, field, index, part, inside
        yield from _places(part, inside)


def _put(parent: ast.AST, field: str, index: int | None, part: ast.AST) -> None:
    if index is None:
        setattr(parent, field, part)
    else:
        getattr(parent, field)[index] = part


def _short(node: ast.AST) -> str:
    """A node in one line: of a compound statement its head."""
    text = ast.unparse(node)
    lines = [line for line in text.splitlines() if not line.startswith("@")]
    return lines[0][:120] if isinstance(node, ast.stmt) else " ".join(text.split())[:120]


def _change(old: ast.AST, new: ast.AST) -> str:
    if isinstance(old, ast.Call) and isinstance(new, ast.Call) and len(old.keywords) > len(new.keywords):
        (lost,) = (keyword for keyword in old.keywords if keyword not in new.keywords)
        return f"{_short(old.func)}(...) without {_short(lost)}"
    if isinstance(old, ast.Dict) and isinstance(new, ast.Dict):
        ((was, now),) = (pair for pair in zip(old.keys, new.keys, strict=True) if pair[0] is not pair[1])
        return "" if was is None or now is None else f"key {_short(was)} -> {_short(now)}"
    if isinstance(old, ast.Return):
        return "return None"
    return f"{_short(old)} -> {_short(new)}"


def mutants_of(source: str) -> list[Mutant]:
    """All mutants of a file, in the order of its lines; two that read the same are one."""
    tree = ast.parse(source)
    plain = ast.unparse(tree)
    made: dict[str, Mutant] = {}
    for parent, field, index, part, statement in list(_places(tree, None)):
        for other in replacements(part):
            _put(parent, field, index, other)
            text = ast.unparse(ast.fix_missing_locations(tree))
            _put(parent, field, index, part)
            if text != plain and text not in made:
                line = getattr(part, "lineno", statement.lineno)
                made[text] = Mutant(line, _change(part, other), _short(statement), text)
    return sorted(made.values(), key=lambda one: one.line)
