"""The hook against the sources of SGLang's releases, as engines/contract/read_sglang.py read them from the wheels."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from rooflens.adapters.sglang import surface

FOLDER = Path(__file__).parent / "data" / "sglang_surface"
RELEASES: dict[str, dict[str, Any]] = {path.stem: json.loads(path.read_text()) for path in FOLDER.glob("*.json")}


def canary(facts: dict[str, Any]) -> list[str]:
    """What the canary says of stand-ins that look to it as the release's own classes do."""
    classes = facts["classes"]
    batch = dataclasses.make_dataclass("ScheduleBatch", classes["ScheduleBatch"]["fields"])

    def like(name: str) -> type:
        members: dict[str, Any] = {}
        for method, parameters in classes[name]["methods"].items():
            exec(f"def {method}({', '.join(parameters)}): ...", members)
        members.pop("__builtins__", None)
        return type(name, (), members)

    return surface.class_problems(like("Scheduler"), batch, like("Req"), like("ForwardMode"))


def test_the_oldest_and_the_newest_that_are_known_were_read() -> None:
    numbers = sorted(tuple(map(int, version.split("."))) for version in RELEASES)
    assert (numbers[0], numbers[-1]) == (surface.OLDEST, surface.NEWEST)


@pytest.mark.parametrize("version", RELEASES)
def test_the_hook_fits(version: str) -> None:
    facts = RELEASES[version]
    assert canary(facts) == []
    assert facts["plugin_group"] == "sglang.srt.plugins"
    assert facts["scheduler_loads_plugins"]
    assert facts["result_is_kept"]  # with overlap the same result object comes back later
    assert set(surface.SCHEDULER_ATTRIBUTES) <= set(facts["classes"]["Scheduler"]["attributes"])
    assert surface.version_problem(version) is None


@pytest.mark.parametrize("version", RELEASES)
def test_the_messages_are_version_1_by_name(version: str) -> None:
    facts = RELEASES[version]["classes"]["ForwardPassMetrics"]
    assert facts["fields"] == [
        "version",
        "worker_id",
        "dp_rank",
        "counter_id",
        "wall_time",
        "scheduled_requests",
        "queued_requests",
    ]


@pytest.mark.parametrize("name", [*surface.BATCH_FIELDS])
def test_a_field_that_is_gone_is_seen(name: str) -> None:
    facts = copy.deepcopy(RELEASES["0.5.23"])
    facts["classes"]["ScheduleBatch"]["fields"].remove(name)
    assert canary(facts) == [f"ScheduleBatch.{name}"]


@pytest.mark.parametrize("name", [*surface.METHODS])
def test_another_signature_is_seen(name: str) -> None:
    facts = copy.deepcopy(RELEASES["0.5.23"])
    facts["classes"]["Scheduler"]["methods"][name] = ["self", "result", "batch"]
    assert canary(facts) == [f"Scheduler.{name}{surface.METHODS[name]}"]


@pytest.mark.parametrize("version", ["0.4.9", "0.5.11", "0.5.24", "0.6.0", "1.0", "0.5.23rc1", "dev", ""])
def test_unknown_versions_are_left_alone(version: str) -> None:
    assert surface.version_problem(version) is not None


@pytest.mark.parametrize("version", ["0.5.13", "0.5.12.post1", "0.5.21"])
def test_versions_between_are_left_to_the_canary(version: str) -> None:
    assert surface.version_problem(version) is None
