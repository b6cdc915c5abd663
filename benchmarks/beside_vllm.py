"""vLLM's own estimator beside the roofline and a count by hand, on steps that vLLM's scheduler made.

Run in an environment with vLLM 0.32 and rooflens; half a minute, no weights, no GPU. Writes
benchmarks/results/beside_vllm.json and the table in docs/estimators.md; ``--print`` writes neither.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "engines"))

from both_estimators import (
    DECODE,
    DENSE,
    FP8,
    FP8_KV,
    HYBRID,
    MAMBA,
    MIXED,
    MLA,
    MLA_TP8,
    PAIRS,
    VERIFY,
    Both,
    Case,
    Step,
    beside,
)
from hand_counts import BY_HAND, SUMS, Count

from rooflens.adapters.vllm import register

ROOT = Path(__file__).parents[1]
RESULT, PAGE = ROOT / "benchmarks" / "results" / "beside_vllm.json", ROOT / "docs" / "estimators.md"
BEGIN, END = "<!-- table: begin (written by benchmarks/beside_vllm.py) -->", "<!-- table: end -->"
AGREE = 0.005
# What the format changes: the rest is as in the rows of the plain model.
ONLY = {FP8_KV: ("cache read",), FP8: ("weights read",)}
ATTENTION, WEIGHTS, CACHE, STATE = "flops of attention", "weights read", "cache read", "state read and written"
WHY = {
    "causal": "vLLM counts 512 x 2048 pairs for the chunk of 512 onto 1536; under the causal mask there are 512 x 1536 "
    "+ 512 x 513 / 2",
    "logits": "vLLM takes a sequence with several tokens for a prompt, with one row of logits; a verify step needs all",
    "width": "vLLM takes it for a prompt and reads the cache of a prompt at the 2 bytes of an "
    "activation; the cache is fp8 in every kind of step",
    "half a byte": "vLLM takes half a byte for what compressed-tensors stores, and no scales; these weights are fp8",
    "experts": "vLLM counts min(T k, E) experts, as if no two tokens chose the same; uniform routing reaches "
    "E (1 - (1 - k / E)^T). Real routing is skewed and reaches fewer still: the floor has k",
    "absorbed": "vLLM counts a key and a value for each head (192 + 128 products a pair); decode works on the latent "
    "(576 + 512)",
    "latent": "vLLM takes a verify step for a prompt and reads 320 elements a head for each token; it works on latents "
    "of 576 as decode does",
    "prompt": "vLLM counts the keys and values that a prompt's kernel makes of latents and reads again: activations, "
    "not the cache, and not in the floor",
    "all attention": "vLLM takes every layer for full attention: 48 where 12 have a cache, 52 where 6 do",
    "no state": "the other layers have a state, which vLLM does not count",
    "no shared expert": "vLLM knows no shared_expert_intermediate_size, and no matrices of a delta net",
    "all experts": "vLLM gives all 52 layers experts with three matrices, and a shared one as wide as a routed one; 23 "
    "have some, with two matrices, and the shared one is twice as wide",
}


@dataclass(frozen=True)
class Row:
    """One figure of one step of one GPU, three times; flops or bytes."""

    model: str
    step: str
    what: str
    vllm: float
    rooflens: float
    by_hand: float
    why: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """vLLM's over the count by hand."""
        return self.vllm / self.by_hand


def rows_of(case: Case, step: Step, seen: Both, hand: Count) -> Iterator[Row]:
    """All figures of one step."""
    theirs, ours = seen.theirs, seen.ours
    weights = ours.weight_bytes + ours.spread_bytes, hand.weight_bytes + hand.spread_bytes
    figures = {
        "flops": (theirs.flops, ours.flops, hand.flops),
        ATTENTION: (theirs.attention_flops, ours.attention_flops, hand.attention_flops),
        WEIGHTS: (theirs.weight_bytes, *weights),
        CACHE: (theirs.kv_read_bytes, ours.kv_read_bytes, hand.kv_read_bytes),
    }
    if hand.state_bytes:
        figures[STATE] = (0.0, ours.state_bytes, hand.state_bytes)
    for what, (one, other, counted) in figures.items():
        differs = abs(one / counted - 1) > AGREE
        yield Row(case.name, step.name, what, one, other, counted, why(case, step, what) if differs else ())


def why(case: Case, step: Step, what: str) -> tuple[str, ...]:
    """Where vLLM's figure comes from, as keys of WHY."""
    mla, hybrid = case in (MLA, MLA_TP8), case in (HYBRID, MAMBA)
    mixer = ("absorbed",) if mla else ("all attention",) if hybrid else ()
    if what == ATTENTION:
        return (*mixer, *(("causal",) if step is MIXED else ()))
    if what == "flops":
        rest = {HYBRID: ("no shared expert",), MAMBA: ("all experts",)}.get(case, ())
        return (*mixer, *rest, *{MIXED: ("causal",), VERIFY: ("logits",)}.get(step, ()))
    if what == WEIGHTS:
        known = {FP8: ("half a byte",), HYBRID: ("experts", "no shared expert"), MAMBA: ("all experts",)}
        return known.get(case, ("experts",))
    if what == STATE:
        return ("no state",)
    if mla:
        return ("prompt",) if step is MIXED else ("latent",)
    return mixer or ("width",)


def shown(row: Row, case: Case, step: Step) -> bool:
    """Whether the row is in the table: those that differ, and what is alike in every kind of step once."""
    if row.what not in ONLY.get(case, (row.what,)) or not row.why:
        return False
    if row.what == ATTENTION:
        return step is (MIXED if case is DENSE else DECODE) and case is not MLA_TP8
    alike = {FP8: (WEIGHTS,), HYBRID: (WEIGHTS, CACHE, STATE), MAMBA: (WEIGHTS, CACHE, STATE)}.get(case, ())
    return step is DECODE or row.what not in alike


def verdict(row: Row) -> str:
    """Who is right."""
    if row.why[0] == "experts":
        return "rooflens, if routing is uniform"
    return "rooflens, of the cache" if row.why == ("prompt",) else "rooflens"


def line(row: Row) -> str:
    """A row of the table."""
    unit, scale = ("TFLOP", 1e12) if "flops" in row.what else ("GB", 1e9)
    cells = (f"{value / scale:.3f}" for value in (row.vllm, row.rooflens, row.by_hand))
    named = f"{row.model} | {row.step} | {row.what}, {unit} | {' | '.join(cells)}"
    return f"| {named} | {row.ratio:.3f} | {verdict(row)} | {', '.join(row.why)} |"


def page_of(rows: Sequence[Row], lines: Sequence[str]) -> str:
    """The table, and what its last column stands for."""
    agreed = sum(not row.why for row in rows)
    told = f"Of {len(rows)} figures {agreed} of vLLM's are within {AGREE:.1%} of the count by hand. Of the others:"
    head = "| model | step | what | vLLM | rooflens | by hand | vLLM / by hand | right | why |"
    legend = (f"- **{name}**: {text}." for name, text in WHY.items())
    return "\n".join((told, "", head, "|---" * 9 + "|", *lines, "", *legend))


def main() -> None:
    """Count, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--print", action="store_true", help="only print the table")
    options = parser.parse_args()
    register()
    rows, lines = [], []
    for case, step in PAIRS:
        for row in rows_of(case, step, beside(case, step), BY_HAND[case.name](SUMS[step.name])):
            rows.append(row)
            if shown(row, case, step):
                lines.append(line(row))
    table = page_of(rows, lines)
    if options.print:
        print(table)
        return
    import vllm

    about = {"vllm": vllm.__version__, "agree_within": AGREE, "figures": len(rows)}
    found = [asdict(row) | {"ratio": row.ratio} for row in rows]
    RESULT.write_text(json.dumps({"about": about, "rows": found}, indent=1) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
