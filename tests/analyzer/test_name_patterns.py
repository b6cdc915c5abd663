"""Patterns of module names: the same answers as re and fnmatch, and no list that takes work without end."""

from __future__ import annotations

import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.analyzer.arch import arch_from_config
from rooflens.analyzer.module_rules import MOST_NODES as RULE_NODES
from rooflens.analyzer.module_rules import Place, RuleBook
from rooflens.analyzer.modules import Module
from rooflens.analyzer.name_automaton import MOST_WORK, Automaton, Work
from rooflens.analyzer.name_patterns import MOST_NODES as PATTERN_NODES
from rooflens.analyzer.name_patterns import Builder, Node, NotUnderstood
from rooflens.analyzer.precision import choose_precision
from rooflens.arch_records import FormatRule
from rooflens.records import RooflensError

LLAMA = {
    "hidden_size": 4096, "num_hidden_layers": 80, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16",
    "mlp_gated": True,
}  # fmt: skip
NAMES = st.text("ab1._", min_size=1, max_size=8)
ATOMS = st.sampled_from(["a", "b", "1", ".", r"\.", r"\d", r"\w", r"\W", "[ab]", "[^a]", "[0-9_]", r"[\d.]", "^", "$",
                         r"\Z", "[]a]", "_"])  # fmt: skip
REPEATS = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,3}", "{0,}", "*?", "+?", "??"])
EXPRESSIONS = st.recursive(
    st.builds("{}{}".format, ATOMS.filter(lambda a: a not in ("^", "$", r"\Z")), REPEATS) | ATOMS,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map("".join)
        | st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({'|'.join(parts)})")
        | st.builds("(?:{}){}".format, inner, REPEATS)
    ),
    max_leaves=6,
)
GLOBS = st.lists(st.sampled_from(["a", "b", "1", ".", "*", "**", "?", "[ab]", "[!a]", "[a-z]", "["]), max_size=6)


def matched(built: Builder, name: str) -> bool:
    """Whether the name matches, in one part below nothing; without the ending .weight, which adds names."""
    pattern = Automaton(built, Work())
    return pattern._matches[pattern.after(pattern.start, name)]


@given(EXPRESSIONS, NAMES)
def test_expressions_match_as_in_re(expression: str, name: str) -> None:
    assert matched(Builder().expression(expression), name) == (re.match(expression, name) is not None)


@given(GLOBS.map("".join), NAMES)
def test_globs_match_a_name_or_what_it_lies_below(glob: str, name: str) -> None:
    below = [name[:at] for at, letter in enumerate(name) if letter == "."]
    assert matched(Builder().glob(glob), name) == any(fnmatch.fnmatchcase(n, glob) for n in (name, *below))


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (r"(?=(.*)\1)a", "looks ahead"), (r"(a)\1", "refers back"), ("(?i)a", "sets flags"), ("(a", "leaves a group"),
        ("a)", "closes a group"), ("[a", "class open"), ("[z-a]", "range"), ("a**", "repeats a repeat"),
        ("*a", "repeats nothing"), ("a{x}", "brace"), ("a{65}", "64 times"), (r"\bgate", "escapes a letter"),
        ("a\\", "backslash"), ("(" * 40 + "a" + ")" * 40, "too deep"), ("(((a{64}){64}){64})", "repeats too often"),
        ("a++", "repeats a repeat"), ("a{3,2}", "64 times"), (r"[\b]", "escapes a letter"),
    ],
)  # fmt: skip
def test_what_is_outside_of_the_subset_is_said(expression: str, why: str) -> None:
    with pytest.raises(NotUnderstood, match=why):
        Builder().expression(expression)
    with pytest.raises(RooflensError, match=r"names modules by the expression .*say --weights") as told:
        RuleBook([FormatRule("re:" + expression, None)])
    assert "\n" not in str(told.value)


HOSTILE = {
    "optional": ["re:" + ".?" * 100 + "Z"], "optional25": ["re:" + ".?" * 25 + "Z"],
    "stars": [r"re:\w*.*\w*.*\w*.*\w*.*Z"], "either": ["re:" + r"(?:.|\w)" * 45 + "Z"],
    "nested": ["re:(a+)+$", "re:(.*a){40}", "re:" + ".*a" * 20, "*a" * 30, "re:" + r"(?:\w|.)?" * 40 + "Z"],
    "globs": [f"*x{n}*" for n in range(2000)], "the same": ["x"] * 300_000,
    "names": [f"model.layers.{n % 80}.foo{n}" for n in range(20_000)], "free": [f"foo{n}.bar" for n in range(20_000)],
    "too many": [f"foo{n}.bar" for n in range(140_000)], "long": ["a" * 5000], "long names": ["a!" * 400] * 10_000,
    "work": [f"re:.*{n}" + ".?" * 13 + "q" for n in range(1800)],
    "nodes": ["re:" + str(n) + "[ab]?.*" * 40 for n in range(4000)],
}  # fmt: skip
REFUSED = {"too many": "more than 131072", "long": "4960 letters more", "work": "too long", "nodes": "more patterns"}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """[nodes built, letters and states gone through] by all patterns of a test."""
    spent = [0, 0]
    add, node = Work.add, Builder.node

    def counting_add(self: Work, steps: int) -> None:
        spent[1] += steps
        add(self, steps)

    def counting_node(self: Builder, new: Node | None = None) -> tuple[int, int]:
        spent[0] += 1
        return node(self, new)

    monkeypatch.setattr(Work, "add", counting_add)
    monkeypatch.setattr(Builder, "node", counting_node)
    return spent


@pytest.mark.parametrize("case", HOSTILE)
def test_no_list_of_ignored_modules_takes_work_without_end(case: str, counted: list[int]) -> None:
    config = {**LLAMA, "quantization_config": {"quant_method": "fp8", "ignored_layers": HOSTILE[case]}}
    if case in REFUSED:
        with pytest.raises(RooflensError, match=REFUSED[case]) as told:
            choose_precision(arch_from_config(config))
        assert "say --weights" in str(told.value)
    else:
        assert choose_precision(arch_from_config(config)).weights == "fp8"
    # Time follows these two, whatever the machine; a list is read for one precision and at most twice.
    assert counted[0] <= 2 * (RULE_NODES + PATTERN_NODES)
    assert counted[1] <= 2 * (MOST_WORK + PATTERN_NODES)


def test_rules_for_each_layer_by_expressions_are_still_read() -> None:
    # GPTQModel's dynamic writes such lists: five expressions for each of 80 layers.
    words = ("self_attn", "q_proj", "gate_proj", "down_proj", "o_proj")
    rules = [FormatRule(rf"re:.*\.{n}\..*{word}.*", None) for n in range(80) for word in words]
    book = RuleBook(rules)
    down = Module("mlp", (("mlp",), ("down_proj",)), 8, 8)
    up = Module("mlp", (("mlp",), ("up_proj",)), 8, 8)
    for depth in range(80):
        assert book.rule_for(down, Place(depth)) == rules[5 * depth + 3]
        assert book.rule_for(up, Place(depth)) is None
