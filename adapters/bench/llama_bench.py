"""llama-bench: its Markdown table, CSV, JSON, JSON lines and SQL, with runs at a depth of context.

Its tests are of the engine alone, in its own process and with one sequence: pp512 computes a prompt, tg128 generates,
pp512+tg128 does both, each "@ d4096" behind 4,096 tokens that are in the cache already.
"""

from __future__ import annotations

import calendar
import csv
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from rooflens.adapters.bench.amounts import MOST_CHARS, amount, number_of, spread
from rooflens.adapters.bench.draft import Draft, model_name

ORIGIN, ENGINE = "llama-bench", "llama.cpp"
TEST = re.compile(r"^(?:pp ?(\d{1,9}))?\s?\+?\s?(?:tg ?(\d{1,9}))?(?:\s*@ ?d ?(\d{1,9}))?$", re.IGNORECASE)
INSERT = re.compile(r"^\s*INSERT INTO \w{1,60} \(([^()]{1,4000})\) VALUES \((.{1,8000})\);?$")
VALUE = re.compile(r"'((?:[^']|'')*)'|([^',\s][^',]*)")
BUILD = re.compile(r"^\s*build: (\w{1,40}) \((\d{1,9})\)")
SIZE = {"kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40}
# The words of a file's type, at the end of the model's description: "Q4_K - Medium", "mostly Q4_0".
TYPE = re.compile(
    r"\s(?:(?:mostly|all) )?((?:IQ|TQ|Q)\d_\w{1,4}|BF16|F16|F32|MXFP4|NVFP4)(?: MoE)?"
    r"(?: - (Small|Medium|Large|Extra Large|[\d.]{1,8} bpw(?: ternary)?))?(?: \(guessed\))?$",
    re.IGNORECASE,
)
IN_NAME = re.compile(
    r"[-._]((?:UD-)?(?:IQ|TQ|Q)\d_\w{1,6}|BF16|F16|F32|MXFP4|NVFP4)(?:-\d{5}-of-\d{5})?$", re.IGNORECASE
)
SHORT = {"small": "S", "medium": "M", "large": "L", "extra large": "XL"}
NAMES = {"model": "model_type", "size": "model_size", "params": "model_n_params", "backend": "backends", "ngl":
         "n_gpu_layers", "threads": "n_threads", "dev": "devices"}  # fmt: skip
BOTH = "the rate of a prompt and what follows it together is neither the speed of prefill nor that of decode"


def is_row(data: Mapping[str, Any]) -> bool:
    """Whether ``data`` is a row of llama-bench."""
    return "avg_ts" in data and "n_prompt" in data and "n_gen" in data


def row(data: Mapping[str, Any]) -> Draft:
    """One test of the JSON, CSV or SQL output."""
    draft = Draft(ORIGIN, client_side=False, engine=ENGINE)
    prompt, generated, depth = (_count(data.get(name)) for name in ("n_prompt", "n_gen", "n_depth"))
    _test(draft, (prompt, generated, depth), number_of(data.get("avg_ts")), number_of(data.get("stddev_ts")))
    _model(draft, str(data.get("model_type") or ""), data.get("model_filename"))
    draft.number("weight_bytes", data.get("model_size"), "model_size")
    _kept(draft, data)
    stamp = str(data.get("test_time") or "")
    with suppress(ValueError, OverflowError):
        draft.values["unix_s"] = float(calendar.timegm(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ")))
    tokens, ns, rate = prompt + generated, number_of(data.get("avg_ns")), number_of(data.get("avg_ts"))
    if ns and rate and tokens and not 0.9 <= tokens / (ns * 1e-9) / rate <= 1.1:
        draft.complain(f"{tokens:,} tokens in {ns * 1e-6:,.4g} ms are {tokens / (ns * 1e-9):,.4g}/s, not {rate:,.4g}/s")
    return draft


def _count(value: object) -> int:
    """A number of tokens; 0 for what is none."""
    found = number_of(value)
    return int(found) if found is not None and 0 <= found < 1e9 else 0


def _kept(draft: Draft, data: Mapping[str, Any]) -> None:
    draft.word("hardware", data.get("gpu_info") or data.get("cpu_info"))
    draft.word("kv_dtype", data.get("type_k"))
    number = data.get("build_number")
    draft.word("engine_version", None if number in (None, "") else f"b{number}")


def _test(draft: Draft, counts: tuple[int, int, int], rate: float | None, std: float | None) -> None:
    """What one test measured: (prompt, generated tokens, depth of the context they come in)."""
    prompt, generated, depth = counts
    if not prompt and not generated:
        return
    names = [f"pp{prompt}"] * (prompt > 0) + [f"tg{generated}"] * (generated > 0)
    label = "+".join(names) + (f" @ d{depth}" if depth else "")
    draft.word("label", label)
    draft.number("batch", 1, "batch")
    draft.number("rate_std_per_s", std, "spread")
    if prompt and generated:
        draft.withhold(f"{label}: {BOTH}")
        draft.number("prompt_tokens_mean", prompt, label)
        draft.number("generated_tokens_mean", generated, label)
    elif prompt:
        draft.word("phase", "prefill")
        draft.number("prompt_tokens_per_s", rate, label)
        draft.number("prompt_tokens_mean", prompt, label)
        draft.number("context_tokens", depth + prompt, label)
    elif generated:
        draft.word("phase", "decode")
        draft.number("generated_tokens_per_s", rate, label)
        draft.number("generated_tokens_mean", generated, label)
        draft.number("context_tokens", depth + generated / 2, label)
        if rate is not None and rate > 0:
            draft.time("tpot_s", "mean", 1 / rate, label)


def _model(draft: Draft, kind: str, file: object) -> None:
    """The model's name and its mix of types: from the file's name, which says more, else from the description."""
    kind = kind[:MOST_CHARS]
    found = TYPE.search(kind)
    name, stored = (kind[: found.start()], _stored(found[1], found[2])) if found else (kind, None)
    if isinstance(file, str) and file.strip():
        stem = model_name(file[-1000:]).rpartition("/")[2].removesuffix(".gguf")
        named = IN_NAME.search(stem)
        name = stem[: named.start()] if named else stem
        stored = stored or (named[1].upper().removeprefix("UD-") if named else None)
    draft.word("model_name", name)
    draft.word("quantization", stored)


def _stored(kind: str, size: str | None) -> str:
    """Q4_K_M of ("Q4_K", "Medium")."""
    short = SHORT.get((size or "").lower())
    return kind.upper() if short is None or kind.upper().endswith(f"_{short}") else f"{kind.upper()}_{short}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[Draft]:
    """The tests of a Markdown table with these headings, among them "model", "test" and "t/s"."""
    wanted = [head.strip(" *`").lower() for head in heads]
    drafts = []
    for cells in rows:
        told = dict(zip(wanted, (cell.strip() for cell in cells), strict=False))
        test = TEST.match(told.get("test", "").strip("*` "))
        draft = Draft(ORIGIN, client_side=False, engine=ENGINE)
        rate = amount(told.get("t/s", ""))
        if test is None or test[0] == "" or rate is None:
            continue
        prompt, generated, depth = (int(part or 0) for part in test.groups())
        _test(draft, (prompt, generated, depth), rate, spread(told.get("t/s", "")))
        _model(draft, told.get("model", "").strip("*` "), None)
        size, unit = amount(told.get("size", "")), told.get("size", "").split()[-1:]
        if size is not None and unit and unit[0].lower() in SIZE:
            draft.number("weight_bytes", size * SIZE[unit[0].lower()], "size")
        _kept(draft, {NAMES.get(name, name): value for name, value in told.items()} | {"cpu_info": None})
        drafts.append(draft)
    return drafts


def inserted(line: str) -> dict[str, str] | None:
    """The row that one INSERT of the SQL output adds; None for any other line."""
    found = INSERT.match(line[:20000].rstrip())
    if found is None:
        return None
    values = [(a.replace("''", "'") if a or not b else b) for a, b in VALUE.findall(found[2])]
    names = [name.strip() for name in found[1].split(",")]
    return dict(zip(names, values, strict=False))


def csv_rows(lines: Iterable[str]) -> list[dict[str, str]]:
    """The rows of the CSV output; the line of names may come again."""
    found: list[dict[str, str]] = []
    names: list[str] | None = None
    for line in lines:
        if line.startswith("build_commit,"):
            names = line.strip().split(",")
        elif names is not None and line.startswith('"'):
            try:
                cells = next(csv.reader([line[:20000]]), [])
            except csv.Error:
                continue
            if len(cells) == len(names):
                found.append(dict(zip(names, cells, strict=True)))
    return found


def note_build(line: str, drafts: Sequence[Draft]) -> bool:
    """Keep the release of the line below a table; whether it is one."""
    found = BUILD.match(line)
    for draft in drafts if found else ():
        draft.values.setdefault("engine_version", f"b{found[2]}" if found else "")
    return found is not None
