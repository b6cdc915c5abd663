"""`rooflens analyze` of logs: what they say beside which floor; rotated, packed, odd, of something else."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from logs.log_lines import CONFIG, FITS, POOL, decode, iteration, prefill, vllm

from rooflens.cli import main
from rooflens.cli.recorded import said as said_of
from rooflens.cli.recorded.log import NO_HARDWARE, NO_MODEL, NOTHING
from rooflens.cli.recorded.log_text import NO_PROMPT_LENGTHS

HERE = Path(__file__).parent
DATA = HERE.parent / "data"
ROOF = ("--hardware", "h100-sxm5-80", "--model", "meta-llama-3-8b")
# github.com/vllm-project/vllm/issues/19254 and 16258, forms of their lines.
SPECULATION = (
    "INFO 06-23 10:00:11 [metrics.py:86] SpecDecoding metrics: Draft acceptance rate: 48.7%, Mean acceptance length: "
    "2.46, Accepted: 725 tokens, Drafted: 1488 tokens, Per-position acceptance rate: 0.615, 0.464, 0.383"
)
PREEMPTED = (
    "WARNING 06-23 10:00:12 scheduler.py:1141] Sequence group 147 is preempted by PreemptionMode.RECOMPUTE mode "
    "because there is not enough KV cache space. This can affect the end-to-end performance. Increase "
    "gpu_memory_utilization or tensor_parallel_size to provide more KV cache memory. total_num_cumulative_preemption=51"
)


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["analyze", *arguments, "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["analyze", *arguments]) == 0
    return capsys.readouterr().out


def test_blank_cells_of_intervals_with_prompts_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [vllm(10 * i, 800.0, prompt=500.0 * (i % 2)) for i in range(8)]
    path = written(tmp_path / "mixed.log", CONFIG, POOL, FITS, *lines)
    text = shown(capsys, str(path), *ROOF)
    assert text.count(NO_PROMPT_LENGTHS) == 1
    assert f"mixed     {NO_PROMPT_LENGTHS}" in text
    assert NO_PROMPT_LENGTHS not in shown(capsys, str(path)), "without hardware nothing has a floor"


@pytest.fixture
def periodic(tmp_path: Path) -> Path:
    lines = [vllm(10 * i, 800.0, waiting=i % 3) for i in range(12)]
    return written(tmp_path / "server.log", CONFIG, POOL, FITS, *lines, SPECULATION, PREEMPTED, "GET /user/secret 200")


def test_intervals_beside_the_floor(periodic: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data,) = told(capsys, str(periodic), *ROOF)
    assert data["format"] == "log"
    assert data["records_by_kind"] == {"startup": 3, "interval": 12, "speculation": 1, "preemption": 1}
    assert data["startup"]["engine_version"] == "0.32.0"
    assert data["gauges"]["running"] == {"lines": 12, "mean": 8.0, "max": 8.0}
    assert data["gauges"]["waiting"]["max"] == 2
    assert data["preempted"] == 51
    assert data["speculation"]["acceptance_ratio"] == pytest.approx(725 / 1488)
    (engine,) = data["engines"]
    figures = engine["intervals"]
    kind = figures["kinds"]["decode"]
    assert engine["floor_problem"] is None
    assert kind["step_p50_s"] == pytest.approx(0.010)
    # 8.03 B parameters of two bytes, without the table of embeddings, and 8 contexts of 128 KiB a token at 3.35 TB/s.
    floor_s = kind["floor_s"] / kind["compared_steps"]
    assert floor_s == pytest.approx((15.01e9 + 8 * 1991.5 * 131_072) / 3.35e12, rel=0.02)
    assert data["records"][0]["kind"] == "startup"
    assert "secret" not in json.dumps(data).replace(str(periodic), "")


def test_the_text_says_what_it_is_and_what_it_says(periodic: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(periodic), *ROOF)
    for line in (
        "; vllm 0.32.0",
        "12 interval",
        "engine    vllm 0.32.0, Meta-Llama-3-8B-Instruct, bfloat16: ",
        "intervals by kind",
        "x floor",
        "drafts    1,488 drafted, 725 accepted; 48.7%; 2.46 tokens a verification",
        "preempted 51 requests lost their KV blocks",
        "floor     h100-sxm5-80 (datasheet): 3.35 TB/s",
        "waiting requests",
    ):
        assert line in text
    assert "secret" not in text


def test_iterations_are_a_table_of_phases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [iteration(i, i // 80, 12.0, prompts=i % 50 == 0, prompt_tokens=512 * (i % 50 == 0)) for i in range(400)]
    path = written(tmp_path / "server.log", CONFIG, POOL, FITS, *lines)
    text = shown(capsys, str(path), *ROOF)
    assert "where the time went" in text
    assert "without scheduling" in text
    (data,) = told(capsys, str(path), *ROOF)
    phases = {phase["name"]: phase for phase in data["engines"][0]["steps"]["phases"]}
    assert phases["decode"]["steps"] == 392
    assert phases["mixed"]["steps"] == 8
    assert phases["decode"]["floor"]["floor_s"] > 0


def test_what_is_missing_is_named_once(periodic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, str(periodic)).count(NO_HARDWARE) == 1
    unknown = "the model 'Meta-Llama-3-8B-Instruct' is not known by exactly this name: give --model NAME or config.json"
    hardware = ("--hardware", "h100-sxm5-80")
    (data,) = told(capsys, str(periodic), *hardware)
    assert data["engines"][0]["floor_problem"] == f"{unknown}; nearest: --model meta-llama-3-8b"
    bare = written(tmp_path / "bare.log", vllm(0, 80.0), vllm(10, 80.0))
    assert NO_MODEL in shown(capsys, str(bare), *hardware)
    (data,) = told(capsys, str(bare), *ROOF)
    assert data["engines"][0]["floor_problem"].startswith(
        "vllm's log tells no contexts, so there is no floor: the KV pool's size or use is missing"
    )


def test_a_file_type_of_llama_cpp_is_the_format_of_the_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (DATA / "llamacpp" / "server_lv4.log").read_text()
    line = next(line for line in text.splitlines() if "file type" in line)
    mixed = line[: line.index("file type")] + "file type   = Q4_K - Medium"
    path = written(tmp_path / "llama.log", text.replace(line, mixed))
    (data,) = told(capsys, str(path), *ROOF)
    (engine,) = data["engines"]
    assert engine["engine"]["quantization"] == "Q4_K - Medium"
    assert engine["floor_problem"] is None


def test_the_log_of_tensorrt_llm_names_what_tells_contexts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The form of TensorRT-LLM 1.3.
    form = (
        "[07/22/2026-00:00:{:02}] [TRT-LLM] [I] [_torch][RANK 0] iter = {}, global_rank = 0, rank = 0, "
        "num_scheduled_requests = 8, kv_cache_util = 0.100, currank_total_requests = 0/0, host_step_time = 10.0ms, "
        "prev_device_step_time = 9.0ms, timestamp = 2026-07-22 00:00:{:02}, states = {{'num_ctx_requests': 0, "
        "'num_ctx_tokens': 0, 'num_generation_tokens': 8}}"
    )
    path = written(tmp_path / "trtllm.log", *(form.format(at, at, at) for at in range(10)))
    (data,) = told(capsys, str(path), *ROOF)
    assert data["engines"][0]["floor_problem"] == (
        "tensorrt-llm's log tells no contexts, so there is no floor: its JSON statistics at /metrics tell them where "
        "they hold numGenKvTokens (--scrape URL)"
    )


def test_labels_that_are_not_known_are_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "a.log", *(vllm(10 * i, 80.0) + ", Warp factor: 9.0" for i in range(5)))
    text = shown(capsys, str(path))
    assert text.count("Warp factor") == 1
    (data,) = told(capsys, str(path))
    assert data["unknown"] == {"Warp factor": 5}


def test_a_rotated_log_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [CONFIG, POOL, FITS, *(vllm(10 * i, 800.0) for i in range(30))]
    (tmp_path / "server.log.2.gz").write_bytes(gzip.compress("\n".join([*lines[:12], ""]).encode()))
    written(tmp_path / "server.log.1", *lines[12:22])
    written(tmp_path / "server.log", *lines[22:])
    for places in ([str(tmp_path)], [str(path) for path in tmp_path.iterdir()]):
        (data,) = told(capsys, *places)
        assert data["files"] == 3
        assert data["records_by_kind"]["interval"] == 30
        assert data["engines"][0]["engine"]["engine_version"] == "0.32.0"
        assert data["engines"][0]["intervals"]["generated_tokens"] == 29 * 8000


def test_ranks_and_other_engines_of_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [decode(2 * i, 160.0, rank=f"DP{rank} TP{rank}") for i in range(5) for rank in range(3)]
    (data,) = told(capsys, str(written(tmp_path / "sglang.log", prefill(0, 3), *lines)))
    assert [engine["engine"]["rank"] for engine in data["engines"]] == [0, 1, 2]
    assert {engine["rows"] for engine in data["engines"]} == {4}


def test_the_log_of_a_real_llama_cpp_server(capsys: pytest.CaptureFixture[str]) -> None:
    (data,) = told(capsys, str(DATA / "llamacpp" / "server_lv4.log"))
    assert data["records_by_kind"]["timing"] == 6
    assert data["engines"][0]["engine"]["model_name"] == "tiny-random-llama"
    assert data["engines"][0]["intervals"]["generated_tokens"] == 1370 - 6  # first ones came of prompts
    assert "ran alone" not in shown(capsys, str(DATA / "llamacpp" / "server_lv4.log")), "each ran beside another one"


def test_the_words_about_times_of_requests_stand_only_where_there_are_any(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without stamps it is not known which requests ran alone: no row has a time."""
    block = [
        "slot print_timing: id  0 | task 1 |        eval time =    3200.00 ms /   101 tokens",
        "slot print_timing: id  0 | task 1 |       total time =    3300.00 ms /   111 tokens",
        "slot      release: id  0 | task 1 | stop processing: n_tokens = 110, truncated = 0",
    ]
    unsure = shown(capsys, str(written(tmp_path / "unsure.log", *block, *block)))
    assert "does not say when requests began" in unsure
    assert "those that ran alone" not in unsure
    stamped = (f"2026-06-23T10:0{at}:00.5Z {line}" for at in range(3) for line in block)
    sure = shown(capsys, str(written(tmp_path / "sure.log", *stamped)))
    assert "those that ran alone" in sure
    assert "does not say when requests began" not in sure


def test_memory_is_bounded_by_the_newest_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(said_of, "KEPT_ROWS", 600)
    monkeypatch.setattr(said_of, "DRAIN_EVERY", 100)
    path = written(tmp_path / "a.log", *(iteration(i, i // 80, 12.0) for i in range(3000)))
    (data,) = told(capsys, str(path))
    assert data["engines"][0]["rows"] == 3000
    assert data["engines"][0]["rows_kept"] <= 700
    assert len(data["records"]) == 1000
    assert "of which the last" in shown(capsys, str(path))


@pytest.mark.parametrize(
    ("name", "content"),
    [("words.txt", b"some words\nof nobody\n"), ("page.html", b"<html><body>It works!</body></html>\n")],
)
def test_a_file_that_no_format_knows_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    assert main(["analyze", str(tmp_path / name)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert NOTHING in err


@pytest.mark.parametrize("count", [40, 40_000])
def test_a_cut_off_packed_log_is_read_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    lines = [vllm(10 * i, 800.0 + i % 7) for i in range(count)]
    packed = gzip.compress("\n".join(lines).encode())
    (tmp_path / "a.log.gz").write_bytes(packed[: len(packed) * 3 // 4])
    text = shown(capsys, str(tmp_path / "a.log.gz"))
    assert "warning   the packed file is cut off" in text


def test_a_log_that_begins_with_a_hole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As copytruncate leaves it where the writer does not append."""
    with (tmp_path / "a.log").open("wb") as file:
        file.truncate(64 << 20)
        file.seek(0, 2)
        file.write(("\n" + vllm(0, 80.0) + "\n").encode())
    (data,) = told(capsys, str(tmp_path / "a.log"))
    assert data["records_by_kind"] == {"interval": 1}


def test_a_log_in_utf_16(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_bytes("\r\n".join(vllm(10 * i, 800.0) for i in range(5)).encode("utf-16"))
    (data,) = told(capsys, str(tmp_path / "a.log"))
    assert data["records_by_kind"] == {"interval": 5}
    assert "UTF-16" in data["problems"][0]


def test_a_saved_page_tells_of_its_moment(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(DATA / "metrics_pages" / "vllm-0.32-dp2-decode1.txt")
    (data,) = told(capsys, path)
    assert data["format"] == "metrics-page"
    assert [engine["running"] for engine in data["engines"]] == [4, 4]
    assert "rates     not told by one page" in shown(capsys, path)


def test_a_page_of_something_else_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "page.txt", "# TYPE process_cpu_seconds_total counter", "process_cpu_seconds_total 1")
    assert main(["analyze", str(tmp_path / "page.txt")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_what_nvidia_smi_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """nvitop#208: a device with unified memory tells none."""
    head = (
        "memory.total [MiB], memory.used [MiB], memory.free [MiB], utilization.gpu [%], power.draw [W], temperature.gpu"
    )
    path = written(tmp_path / "smi.csv", head, "[N/A], [N/A], [N/A], 0 %, 11.17 W, 35")
    (data,) = told(capsys, str(path))
    assert data["records_by_kind"] == {"sensor": 1}
    assert data["records"][0]["values"]["power_w"] == 11.17
    assert "11.17" in shown(capsys, str(path))
