"""Which devices an engine runs on: what says so, in which order, and what is never guessed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import pytest

from rooflens.device_records import CounterSource, DeviceFacts
from rooflens.pipeline.engine_devices import (
    INITIAL_PID_NAMESPACE,
    Claimant,
    EngineDevices,
    engine_devices,
    parent_here,
    pid_namespace_here,
)
from rooflens.records import EngineInfo


def device(uuid: str, *pids: int, parent: str | None = None) -> DeviceFacts:
    return DeviceFacts(uuid, CounterSource.NVML, pids=pids, parent_uuid=parent)


def engine(run: str = "a", pid: int | None = 100, tp: int = 1, pp: int = 1, **more: object) -> Claimant:
    given = {"uuids": (), "workers": (), "here": True, "device": "cuda", **more}
    info = EngineInfo(
        instance=run, engine="made", tensor_parallel=tp, pipeline_parallel=pp, device=given["device"],  # type: ignore[arg-type]
        device_uuids=given["uuids"],  # type: ignore[arg-type]
    )  # fmt: skip
    return Claimant(run, info, pid, given["workers"], bool(given["here"]))  # type: ignore[arg-type]


def resolved(
    engines: Sequence[Claimant],
    devices: Sequence[DeviceFacts],
    parents: Mapping[int, int] | None = None,
    namespace: str | None = INITIAL_PID_NAMESPACE,
) -> dict[str, EngineDevices]:
    return engine_devices(engines, devices, (parents or {}).get, lambda: namespace)


def uuids(
    engines: Sequence[Claimant], devices: Sequence[DeviceFacts], parents: Mapping[int, int] | None = None
) -> dict[str, tuple[str, ...]]:
    return {run: found.uuids for run, found in resolved(engines, devices, parents).items()}


EIGHT = [device(f"GPU-{n}") for n in range(8)]


def test_what_the_engine_says_comes_first_spelt_as_the_driver_does() -> None:
    told = engine(uuids=("gpu-3", "GPU-5"), workers=("GPU-7",), tp=2)
    assert resolved([told], EIGHT) == {"a": EngineDevices(("GPU-3", "GPU-5"), 2)}


def test_a_device_that_no_driver_tells_of_is_still_the_engines() -> None:
    assert resolved([engine(uuids=("GPU-x",))], []) == {"a": EngineDevices(("GPU-x",), 1)}


def test_then_what_its_workers_name() -> None:
    devices = [device("GPU-0", 100), *EIGHT[1:]]
    assert uuids([engine(workers=("GPU-6", "GPU-7"), tp=2)], devices) == {"a": ("GPU-6", "GPU-7")}


def test_then_those_on_which_it_or_its_children_compute() -> None:
    parents = {201: 200, 200: 100, 301: 300, 300: 1}
    devices = [device("GPU-0", 201), device("GPU-1", 100), device("GPU-2", 301), device("GPU-3")]
    found = uuids([engine(pid=100, tp=2), engine("b", pid=300)], devices, parents)
    assert found == {"a": ("GPU-0", "GPU-1"), "b": ("GPU-2",)}


def test_a_process_belongs_to_the_nearest_engine_above_it() -> None:
    parents = {300: 200, 200: 100}
    found = uuids([engine("outer", 100), engine("inner", 200)], [device("GPU-0", 300), device("GPU-1")], parents)
    assert found == {"outer": (), "inner": ("GPU-0",)}


def test_process_trees_that_go_in_circles_end() -> None:
    assert uuids([engine(pid=7)], [device("GPU-0", 5), device("GPU-1")], {5: 6, 6: 5}) == {"a": ()}


def test_else_all_there_are_where_that_is_the_right_number() -> None:
    assert uuids([engine(tp=4, pp=2)], EIGHT) == {"a": tuple(f"GPU-{n}" for n in range(8))}
    assert uuids([engine(tp=4)], EIGHT) == {"a": ()}
    assert uuids([engine(pid=None, tp=8)], EIGHT)["a"] == tuple(f"GPU-{n}" for n in range(8))


def test_but_not_where_another_engine_has_some_or_may_have() -> None:
    assert uuids([engine(tp=8), engine("b", 200, uuids=("GPU-0",))], EIGHT)["a"] == ()
    assert uuids([engine(tp=8), engine("b", 200)], EIGHT) == {"a": (), "b": ()}
    assert uuids([engine(tp=8), engine("b", 200, device="cpu")], EIGHT)["a"] != ()
    assert uuids([engine(tp=8, here=False)], EIGHT) == {"a": ()}


def test_a_device_that_is_cut_into_slices_is_nobodys() -> None:
    sliced = [device("GPU-0", 100), device("MIG-1", 100, parent="gpu-0")]
    assert uuids([engine(pid=100)], sliced) == {"a": ("MIG-1",)}
    assert uuids([engine(pid=5)], [device("GPU-0"), device("MIG-1", parent="GPU-0")]) == {"a": ("MIG-1",)}


def test_two_engines_with_one_pid_are_not_told_apart_by_it() -> None:
    assert uuids([engine("a", 100), engine("b", 100)], [device("GPU-0", 100)]) == {"a": (), "b": ()}


@pytest.mark.parametrize(
    ("claimant", "devices", "said"),
    [
        (engine(tp=2), EIGHT, "8 devices"),
        (engine(tp=2), EIGHT[:1], "the device of this host"),
        (engine(tp=2), [], None),
        (engine(device="cpu"), EIGHT, None),
        (engine(tp=2, here=False), EIGHT, None),
        (engine(uuids=("GPU-1",)), EIGHT, None),
        (Claimant("a", None, None), EIGHT, "8 devices"),
    ],
)
def test_what_is_not_known_is_one_line_only_where_there_is_a_device_and_a_next_step(
    claimant: Claimant, devices: Sequence[DeviceFacts], said: str | None
) -> None:
    problem = resolved([claimant], devices)["a"].problem
    assert (problem is None) if said is None else (problem is not None and said in problem)
    if problem is not None:
        assert "ROOFLENS_DEVICE_TIME=1" in problem
        assert "\n" not in problem


def test_a_cpu_has_no_devices_and_expects_none() -> None:
    assert resolved([engine(device="cpu", tp=2)], EIGHT)["a"] == EngineDevices((), 0)


def test_the_parent_of_a_process_is_what_this_host_says() -> None:
    assert parent_here(os.getpid()) == os.getppid()
    assert parent_here(2**22 + 1) is None


PARENTS = {100: 90, 90: 80, 80: 1, 101: 100, 102: 101, 500: 80, 600: 1, 700: 699, 699: 600}


@pytest.mark.parametrize(
    ("pids", "shared"),
    [
        ((100,), False),
        ((101, 102), False),
        ((90, 101), False),  # its API server
        ((101, 600), True),  # another server of the machine
        ((101, 500), True),  # started by the same shell
        ((101, 700), True),
        ((), None),  # not visible here
        ((600,), None),  # perhaps its own worker, started apart
        ((101, 999), None),  # gone, or another user's that is hidden
        ((101, 600, 999), True),
    ],
)
def test_who_else_computes_on_its_device(pids: tuple[int, ...], shared: bool | None) -> None:
    found = resolved([engine(uuids=("GPU-0",))], [device("GPU-0", *pids), device("GPU-1", 600)], PARENTS)
    assert found["a"].shared is shared


@pytest.mark.parametrize("namespace", ["pid:[4026532201]", None])
def test_nobody_else_is_never_said_where_the_driver_leaves_out_other_namespaces(namespace: str | None) -> None:
    """In a container no process of another one is named; one that is named is there all the same."""
    own, strange = [device("GPU-0", 101)], [device("GPU-0", 101, 600)]
    assert resolved([engine(uuids=("GPU-0",))], own, PARENTS)["a"].shared is False
    assert resolved([engine(uuids=("GPU-0",))], own, PARENTS, namespace)["a"].shared is None
    assert resolved([engine(uuids=("GPU-0",))], strange, PARENTS, namespace)["a"].shared is True


def test_the_pid_namespace_is_what_the_kernel_says() -> None:
    here = pid_namespace_here()
    assert here == os.readlink(f"/proc/{os.getpid()}/ns/pid")


def test_fewer_devices_by_processes_than_it_has_are_a_problem_and_nobody_knows_of_the_rest() -> None:
    found = resolved([engine(tp=2)], [device("GPU-0", 101), device("GPU-1")], PARENTS)["a"]
    assert (found.uuids, found.expected, found.shared) == (("GPU-0",), 2, None)
    assert found.problem is not None
    assert "only 1 of its 2 devices" in found.problem
    assert "ROOFLENS_DEVICE_TIME=1" in found.problem
    whole = resolved([engine(tp=2)], [device("GPU-0", 101), device("GPU-1", 102)], PARENTS)["a"]
    assert (whole.shared, whole.problem) == (False, None)
    seen = resolved([engine(tp=2)], [device("GPU-0", 101, 600), device("GPU-1")], PARENTS)["a"]
    assert seen.shared is True


def test_one_shared_device_of_several_is_enough_and_one_of_which_nothing_is_told_leaves_it_open() -> None:
    two = engine(uuids=("GPU-0", "GPU-1"), tp=2)
    own, other, unseen = device("GPU-0", 101), device("GPU-1", 101, 600), device("GPU-1")
    assert resolved([two], [own, other], PARENTS)["a"].shared is True
    assert resolved([two], [own, unseen], PARENTS)["a"].shared is None
    assert resolved([two], [own, device("GPU-1", 102)], PARENTS)["a"].shared is False
    assert resolved([two], [own], PARENTS)["a"].shared is None


def test_another_engines_process_is_a_neighbour_and_two_engines_of_one_process_cannot_be_told_apart() -> None:
    devices = [device("GPU-0", 101, 600)]
    both = resolved([engine(uuids=("GPU-0",)), engine("b", 600, device="cpu")], devices, PARENTS)
    assert both["a"].shared is True
    within = resolved([engine(uuids=("GPU-0",)), engine("b", 101)], [device("GPU-0", 100, 102)], PARENTS)
    assert within["a"].shared is True  # an engine that the first one started
    twice = resolved([engine(uuids=("GPU-0",)), engine("b", uuids=("GPU-1",))], [device("GPU-0", 100)], PARENTS)
    assert twice["a"].shared is None
    assert resolved([engine(uuids=("GPU-0",), pid=None)], [device("GPU-0", 7)], PARENTS)["a"].shared is None
