"""`rooflens predict` from the command to what it prints, for one model of each kind, with the arithmetic beside it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from rooflens.cli import main

PREDICT = ("predict", "--hardware")
LLAMA = (*PREDICT, "h100-sxm5-80", "--devices", "8", "--model", "meta-llama-3-70b")
DEEPSEEK_V3 = (*PREDICT, "h200-sxm-141", "--devices", "8", "--ep", "--model", "deepseek-v3")
GIB = 2**30


def text_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def json_of(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return json.loads(text_of(capsys, *words, "--json"))


def row(text: str, label: str) -> str:
    """The line of one label, its columns one space apart."""
    (line,) = re.findall(rf"^{re.escape(label)} {{2,}}(.+)$", text, re.MULTILINE)
    return " ".join(line.split())


def test_llama_3_70b_on_eight_h100(capsys: pytest.CaptureFixture[str]) -> None:
    # 139.0 GB of weights without the embedding, less 8 x 50 MiB that the caches may keep, over 8 x 3.35 TB/s:
    # (139.006e9 - 0.419e9) / 26.8e12 = 5.171 ms. Flops: 139 GFLOP / (8 x 989.4e12) = 17.6 us, 0.34 % of it.
    text = text_of(capsys, *LLAMA, "--context", "1")
    assert row(text, "floor") == "5.17 ms bound by memory; no step can be shorter"
    assert row(text, "tokens").startswith("193 tokens/s at the floor")
    assert row(text, "MFU, MBU").startswith("0.34%, 100.0% ")
    assert row(text, "parameters") == "70.6B"
    # 80 layers x 8 KV heads x 128 x 2 (keys, values) x 2 bytes = 327,680.
    assert row(text, "KV a sequence") == "328 kB of 1 tokens: 327,680 bytes (320 KiB), 327,680 a token"
    assert row(text, "ridge").startswith("295 FLOP/B bf16")  # 989.4e12 / 3.35e12 = 295.3
    data = json_of(capsys, *LLAMA, "--context", "1")
    assert data["ridge_flop_per_byte"] == pytest.approx(295.3, abs=0.05)
    assert (data["next_token_kv_bytes"], data["kv_bytes_per_token"]) == (327_680, 327_680)
    assert data["expected_s"] == data["floor_s"]  # no experts
    assert "expected" not in text


def test_reachable_is_no_bound_and_says_whose_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    data = json_of(capsys, *LLAMA)
    assert data["reachable_s"] > data["floor_s"]
    assert data["reachable_tokens_per_s"] == pytest.approx(1 / data["reachable_s"])
    published = row(text_of(capsys, *LLAMA), "reachable")
    assert "what a well-tuned engine gets" in published
    assert "not a bound (with kernels as published for it)" in published
    borrowed = row(text_of(capsys, *PREDICT, "h20", "--model", "qwen3-8b"), "reachable")
    assert re.search(r"assumed: the fractions of \S+ stand in for h20\)", borrowed)


def test_deepseek_v3_strict_beside_expected(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*DEEPSEEK_V3, "--batch", "64", "--context", "4k")
    text, data = text_of(capsys, *words), json_of(capsys, *words)
    assert row(text, "hardware") == "8 x h200-sxm-141 tp 8 ep"
    assert row(text, "parameters").startswith("671B 37.6B of them used by a token")
    # One latent of 512 + 64 elements in each of 61 layers, 2 bytes: 70,272 a token; kept by all 8 devices.
    assert row(text, "KV a sequence") == f"288 MB of 4,096 tokens: {4096 * 70_272:,} bytes (274 MiB), 70,272 a token"
    assert "which keep 8 copies" in row(text, "KV cache")
    # A pass reads at least 8 of 256 experts, 64 tokens under uniform routing 256 (1 - (1 - 8/256)^64) = 222.4.
    strict, spread = data["weight_read_bytes"], data["expert_bytes"]
    experts = 58 * 3 * 7168 * 2048  # bytes of one expert in all its layers, at fp8
    assert spread / experts == pytest.approx(222.4 - 8, rel=0.01)
    assert strict < 50e9
    assert data["floor_s"] < data["expected_s"] < data["reachable_s"]
    assert row(text, "expected").endswith(
        "the floor with the distinct experts of uniform or measured routing; not a bound"
    )
    assert f"{(strict + spread) / 1e9:.3g} GB expected" in row(text, "weights")
    assert data["expert_parallel"] is True


def test_gpt_oss_120b_on_one_b200(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*PREDICT, "b200-sxm", "--model", "gpt-oss-120b", "--batch", "32", "--context", "8k")
    text, data = text_of(capsys, *words), json_of(capsys, *words)
    assert row(text, "model") == "gpt-oss-120b weights mxfp4 (attention bf16), KV bf16"
    # 18 full layers x 8,192 and 18 of window 128, each 2 x 8 x 64 x 2 bytes = 2,048 a token.
    assert data["sequence_kv_bytes"] == 18 * 2048 * (8192 + 128)
    assert data["next_token_kv_bytes"] == 18 * 2048  # the windows are full
    assert row(text, "KV a sequence").endswith("306,708,480 bytes (292 MiB), 36,864 for one token more")
    assert row(text, "parameters").startswith("117B 5.71B")
    assert data["fits"] is True


def test_qwen35_keeps_a_state(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*PREDICT, "h100-sxm5-80", "--model", "qwen3.5-27b")
    short, long = (json_of(capsys, *words, "--context", n) for n in ("1k", "128k"))
    # 16 of 64 layers attend: 4 KV heads x 256 x 2 x 2 bytes x 16 = 65,536 a token. The other 48 keep 48 heads x 128 x
    # 128 in fp32 and 3 x 10,240 of the convolution in bf16, whatever the context.
    state = 48 * (48 * 128 * 128 * 4 + 3 * 10_240 * 2)
    assert long["sequence_kv_bytes"] == 131_072 * 65_536 + state
    assert short["sequence_kv_bytes"] == 1024 * 65_536 + state
    assert short["state_bytes"] == long["state_bytes"] == 2 * state  # read and written
    assert row(text_of(capsys, *words), "states").endswith("read and written in a step, whatever the context")


def test_gemma_reads_windows(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*PREDICT, "l40s", "--model", "gemma-3-12b-it", "--context", "32k")
    # 8 of 48 layers see all, 40 the last 1,024; 2 x 8 x 256 x 2 bytes = 8,192 a token and layer.
    assert json_of(capsys, *words)["sequence_kv_bytes"] == 8192 * (8 * 32_768 + 40 * 1024)


def test_deepseek_v4_pro_at_a_million_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*PREDICT, "b200-sxm", "--devices", "8", "--ep", "--model", "deepseek-v4-pro", "--context", "1M")
    text, data = text_of(capsys, *words), json_of(capsys, *words)
    assert data["context_tokens"] == 1_048_576
    assert data["sequence_kv_bytes"] / GIB == pytest.approx(9.62, abs=0.005)  # vLLM's published figure
    assert row(text, "KV a sequence").startswith("10.3 GB of 1,048,576 tokens: 10,334,371,840 bytes (9.62 GiB)")
    assert "experts mxfp4" in row(text, "model")


def test_a_verify_step_reads_the_weights_once(capsys: pytest.CaptureFixture[str]) -> None:
    plain = json_of(capsys, *LLAMA)
    verify = json_of(capsys, *LLAMA, "--phase", "verify", "--spec-tokens", "4")
    assert verify["phase"] == "verify"
    assert verify["computed_tokens"] == 5
    assert verify["weight_read_bytes"] == plain["weight_read_bytes"]
    assert verify["flops"] == pytest.approx(5 * plain["flops"], rel=0.001)


def test_speculation_helps_at_one_and_fades(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*LLAMA, "--spec-method", "eagle3", "--spec-tokens", "4", "--acceptance", "0.8")
    one, many = (json_of(capsys, *words, "--batch", n)["speculation"] for n in ("1", "256"))
    assert one["expected_tokens"] == pytest.approx(3.36, abs=0.005)  # (1 - .8^5) / (1 - .8)
    assert one["gain"] > 2.5 > 1.5 > many["gain"]
    assert one["verify_ratio"] < 1.1  # nearly free while memory binds
    assert many["verify_ratio"] > 2
    assert one["break_even"]["batch"] == many["break_even"]["batch"] > 256
    assert one["best"]["gain"] >= one["gain"]
    text = text_of(capsys, *words)
    assert row(text, "speculation") == "eagle3, 4 drafts acceptance 0.8"
    assert row(text, "tokens a step").startswith("3.36 of each sequence")
    assert row(text, "gains up to").startswith(f"batch {one['break_even']['batch']:,} ")


def test_the_best_depth_is_shallower_where_arithmetic_binds(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*LLAMA, "--spec-method", "ngram", "--acceptance", "0.8")
    one, many = (json_of(capsys, *words, "--batch", n)["speculation"] for n in ("1", "256"))
    assert one["depth"] == one["best"]["depth"] > many["best"]["depth"]
    assert (one["acceptance_assumed"], one["draft_s"]) == (False, 0.0)


def test_assumed_acceptance_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*DEEPSEEK_V3, "--spec-method", "mtp")
    assert row(text_of(capsys, *words), "speculation") == "mtp, 1 draft acceptance 0.8, assumed (say --acceptance)"
    assert json_of(capsys, *words)["speculation"]["acceptance_assumed"] is True


def test_a_chunk_is_part_of_a_prompt(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*LLAMA, "--phase", "prefill", "--context", "8k")
    whole = json_of(capsys, *words)
    parts = [json_of(capsys, *words, "--chunk", "2k", "--cached", f"{2 * n}k") for n in range(4)]
    assert [part["computed_tokens"] for part in parts] == [2048] * 4
    assert sum(part["flops"] for part in parts) == pytest.approx(whole["flops"], rel=1e-9)
    assert " of each prompt, at the floor, " in row(text_of(capsys, *words), "TTFT")
    assert row(text_of(capsys, *words, "--chunk", "2k"), "chunk time").startswith(
        row(text_of(capsys, *words, "--chunk", "2k"), "floor").split(" bound")[0]
    )


def test_the_cache_goes_over_a_link(capsys: pytest.CaptureFixture[str]) -> None:
    data = json_of(capsys, *LLAMA, "--context", "8k", "--kv-link", "400Gbit/s")["handover"]
    assert data["cache_bytes"] == 8192 * 327_680
    assert data["transfer_s"] == pytest.approx(8192 * 327_680 / 50e9)  # 53.7 ms
    text = text_of(capsys, *LLAMA, "--context", "8k", "--kv-link", "400Gbit/s")
    assert row(text, "KV transfer").startswith("53.7 ms of one prompt's 2.68 GB")
    assert row(text, "KV link needed").endswith("it keeps up")
    assert row(text_of(capsys, *LLAMA, "--context", "8k", "--kv-link", "1GB/s"), "KV link needed").endswith(
        "not keep up"
    )


def test_every_option_reaches_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    plain = json_of(capsys, *LLAMA, "--batch", "8", "--context", "4k")

    def changed(*words: str) -> dict[str, Any]:
        found: dict[str, Any] = json_of(capsys, *LLAMA, "--batch", "8", "--context", "4k", *words)
        return found

    # Eight caches share 1,024 tokens: 8 x 4,096 - 7 x 1,024 tokens are kept and read.
    shared = changed("--shared-prefix", "1k")
    assert shared["kv_bytes"] == (8 * 4096 - 7 * 1024) * 327_680
    assert shared["kv_read_bytes"] == shared["kv_bytes"] < plain["kv_read_bytes"]
    # Adapters of rank 16 add 2 x 16 x (in + out) flops to each of 8 tokens and matrix.
    one, four = changed("--lora", "16"), changed("--lora", "16:4")
    assert one["flops"] == four["flops"] > plain["flops"]
    assert four["weight_read_bytes"] > one["weight_read_bytes"] > plain["weight_read_bytes"]
    assert changed("--graph-sizes", "64")["padded_tokens"] == 64 > plain["padded_tokens"]
    assert changed("--context", "4000", "--block", "64")["kv_bytes"] == 8 * 4032 * 327_680  # 63 blocks
    assert changed("--memory", "320GB")["capacity_bytes"] == pytest.approx(0.9 * 320e9)
    assert changed("--utilization", "50%")["capacity_bytes"] == pytest.approx(plain["capacity_bytes"] * 5 / 9)
    piped = changed("--pp", "2")
    assert (piped["tensor_parallel"], piped["pipeline_parallel"], piped["devices"]) == (4, 2, 8)
    assert changed("--tp", "16", "--devices", "16", "--cp", "2")["context_parallel"] == 2
    assert changed("--tp", "4")["replicas"] == 2
    assert changed("--kv", "fp8")["sequence_kv_bytes"] == plain["sequence_kv_bytes"] / 2


def test_time_a_token_of_a_verify_step_is_of_all_its_rows(capsys: pytest.CaptureFixture[str]) -> None:
    data = json_of(capsys, *LLAMA, "--phase", "verify", "--spec-tokens", "4", "--batch", "8")
    assert data["token_s"] == data["floor_s"] / 5
    assert data["tokens_per_s"] == pytest.approx(8 * 5 / data["floor_s"])


def test_the_last_chunk_is_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*LLAMA, "--phase", "prefill", "--context", "5000", "--cached", "4k", "--chunk", "2k")
    assert json_of(capsys, *words)["computed_tokens"] == 5000 - 4096


def test_measured_experts_stand_in_for_those_of_uniform_routing(capsys: pytest.CaptureFixture[str]) -> None:
    # Qwen3-30B-A3B at batch 16: uniform routing reads 128 x (1 - (1 - 8 / 128)^16) = 82.4 experts a layer, 40 were
    # measured. One expert of bf16 is 3 x 2048 x 768 x 2 = 9,437,184 B, 48 layers: 452,984,832 B for each in a step.
    words = (*PREDICT, "h100-sxm5-80", "--model", "qwen3-30b-a3b", "--batch", "16")
    uniform, measured = (json_of(capsys, *words, *more) for more in ((), ("--distinct-experts", "40")))
    spread = 128 * (1 - (1 - 8 / 128) ** 16)
    assert uniform["expert_bytes"] - measured["expert_bytes"] == pytest.approx((spread - 40) * 452_984_832, rel=1e-9)
    assert uniform["floor_s"] == measured["floor_s"] < measured["expected_s"] < uniform["expected_s"]
    assert main([*words, "--distinct-experts", "nan"]) == 2
    assert capsys.readouterr().err.startswith("rooflens: --distinct-experts must be from 0")
