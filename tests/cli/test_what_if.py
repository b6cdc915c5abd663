"""The grammar of --set: one --set is one what-if, its keys are typed, and a mistyped one is told the right one."""

from __future__ import annotations

import pytest

from rooflens.cli.what_if import KEYS, MOST_WHAT_IFS, what_if, what_ifs
from rooflens.records import RooflensError


def test_each_set_is_one_what_if() -> None:
    first, second = what_ifs(["weights=fp8", "batch=128,kv=fp8"])
    assert (first.text, first.changes) == ("weights=fp8", {"weights": "fp8"})
    assert second.changes == {"batch": 128, "kv": "fp8"}
    assert what_ifs([]) == ()


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("acceptance=0.9,0.7,0.5,spec-tokens=3", {"acceptance": (0.9, 0.7, 0.5), "spec-tokens": 3}),
        ("spec-tokens=best,spec-method=eagle3", {"spec-tokens": "best", "spec-method": "eagle3"}),
        ("context=128k", {"context": 131_072}),
        ("ep=on,tp=8", {"ep": True, "tp": 8}),
        ("ep=off", {"ep": False}),
        ("KV=fp8_e4m3, Weights=FP8", {"kv": "fp8", "weights": "fp8"}),  # as engines and people spell it
        ("shared_prefix=1k", {"shared-prefix": 1024}),
        ("--batch=4", {"batch": 4}),
        ("memory=80GiB,utilization=90%", {"memory": 80 * 2**30, "utilization": 0.9}),
        ("kv-link=400Gbit/s", {"kv-link": 50e9}),
        ("hardware=h200-sxm-141", {"hardware": "h200-sxm-141"}),
    ],
)
def test_values_have_types(text: str, changes: dict[str, object]) -> None:
    assert what_if(text).changes == changes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("weight=fp8", "--set knows no 'weight' (did you mean weights?)"),
        ("bacth=4", "(did you mean batch?)"),
        ("colour=red", "--set knows no 'colour': it knows model, hardware, devices"),
        ("weights=fp9", "--set weights: 'fp9' is none of fp32, bf16"),
        ("phase=decoding", "--set phase: 'decoding' is none of decode, prefill, verify (did you mean decode?)"),
        ("batch=many", "--set batch: 'many' is no count: write a number such as 128"),
        ("batch=0", "--set batch: must be at least 1"),
        ("batch=1..4", "--set batch: '1..4' is no count"),
        ("ep=maybe", "--set ep: 'maybe' is neither on nor off"),
        ("batch=1,batch=2", "says batch twice: give each what-if a --set of its own"),
        ("fp8", "--set 'fp8' changes nothing: write KEY=VALUE, such as weights=fp8,batch=128"),
        ("", "changes nothing"),
        ("batch=4,", "changes nothing"),
        ("hardware=", "--set hardware: names nothing"),
        ("memory=80XB", "--set memory: '80XB' is no memory size"),
    ],
)
def test_a_fault_is_one_line_with_the_next_step(text: str, message: str) -> None:
    with pytest.raises(RooflensError) as fault:
        what_if(text)
    assert message in str(fault.value)
    assert "\n" not in str(fault.value)


def test_a_verb_may_know_fewer_keys() -> None:
    few = {name: KEYS[name] for name in ("weights", "batch")}
    assert what_if("batch=2", few).changes == {"batch": 2}
    with pytest.raises(RooflensError, match="--set knows no 'phase': it knows weights, batch"):
        what_if("phase=prefill", few)


def test_no_more_than_a_page_holds() -> None:
    with pytest.raises(RooflensError, match=f"at most {MOST_WHAT_IFS} fit beside each other"):
        what_ifs(["batch=1"] * (MOST_WHAT_IFS + 1))
