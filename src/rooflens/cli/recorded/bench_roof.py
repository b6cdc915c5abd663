"""An observation beside the roofline: the floor and the reachable time of the step that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rooflens.analyzer.arch import known_models
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.observed import OperatingPoint, operating_points
from rooflens.analyzer.precision import weight_format
from rooflens.cli.named import is_this_cpu
from rooflens.cli.predict_answer import Answer, Sources, answer
from rooflens.cli.predict_options import Asked as Point
from rooflens.cli.recorded import Asked
from rooflens.collector.hf_cache import cached_file
from rooflens.observation_records import Observation
from rooflens.records import RooflensError

NO_MODEL = "the model is not told, or by no name that is known exactly: give --model NAME"
NO_HARDWARE = "the hardware is not told, or by no name that is known exactly: give --hardware ID"
ONE_DEVICE = "the result does not tell how many devices: taken for one (--devices N)"
NO_FIT = "the weights do not fit {}: the result does not tell how many devices; give --devices N"
TOO_FAST = (
    "measured below the floor of one sequence alone: the model, its format, the hardware or the number of devices is "
    "another than taken here"
)
ESTIMATE = "the batch is derived, so this floor is an estimate of the run; the strict one is that of one sequence"


@dataclass(frozen=True, slots=True)
class Beside:
    """A point of ``model`` and its bounds; ``alone_s`` is the floor of one sequence, which no batch can beat."""

    point: OperatingPoint
    answer: Answer
    alone_s: float
    model: str
    remarks: tuple[str, ...] = ()

    @property
    def times_floor(self) -> float:
        """How many times the floor was measured."""
        return self.point.measured_s / self.answer.result.floor_s if self.answer.result.floor_s else 0.0

    def to_json(self) -> dict[str, Any]:
        """The point and its bounds in SI units."""
        result, point = self.answer.result, asdict(self.point)
        return point | {
            "hardware": self.answer.hardware.id,
            "model": self.model,
            "weights": self.answer.precision.weights,
            "kv": self.answer.precision.kv,
            "devices": self.answer.plan.devices,
            "planned_batch": self.answer.plan.batch,
            "floor_s": result.floor_s,
            "floor_alone_s": self.alone_s,
            "expected_s": result.expected_s,
            "reachable_s": result.reachable_s,
            "reachable_origin": result.reachable_origin,
            "bound_side": result.bound,
            "times_floor": self.times_floor,
            "fits": result.fits,
            "remarks": list(self.remarks),
        }


@dataclass(slots=True)
class Roofs:
    """Lays observations beside the roofline; models and devices are found once for all of them."""

    asked: Asked
    sources: Sources = field(default_factory=Sources)

    def beside(self, seen: Observation) -> tuple[tuple[Beside, ...], str | None]:
        """The points of ``seen`` with their bounds, and why there are none in one line.

        RooflensError only for what was asked for on the command line and is not known.
        """
        points, missing = operating_points(seen)
        if not points:
            return (), missing
        model = self.asked.model or cached_name(seen.model_name) or known_name(seen.model_name)
        hardware = self.asked.hardware or known_device(seen.hardware)
        if model is None or hardware is None:
            return (), NO_MODEL if model is None else NO_HARDWARE
        try:
            return tuple(self._one(seen, point, model, hardware) for point in points), None
        except RooflensError as error:
            if self.asked.model and self.asked.hardware:
                raise
            return (), str(error)

    def _one(self, seen: Observation, point: OperatingPoint, model: str, hardware: str) -> Beside:
        told = self.asked.devices or seen.devices or seen.tensor_parallel
        weights, kv, remarks = formats(seen, self.asked.model)
        wanted = Point(
            hardware=hardware, model=model, devices=told or 1, batch=max(1, round(point.batch)),
            context=point.context_tokens, phase=point.phase, weights=weights, kv=kv,
            calibration=self.asked.calibration, cached=point.cached_tokens if point.phase == "prefill" else None,
        )  # fmt: skip
        found = answer(wanted, self.sources)
        one = found if wanted.batch == 1 else answer(_alone(wanted), self.sources)
        if told is None and not is_this_cpu(hardware) and seen.origin != "llama-bench":
            remarks.append(ONE_DEVICE)
            if not one.result.fits:
                remarks.append(NO_FIT.format(found.hardware.name))
        if point.batch_of.low != point.batch_of.high:
            remarks.append(ESTIMATE)
        if point.measured_s < one.result.floor_s:
            remarks.append(TOO_FAST)
        # a snapshot of the cache lies in a folder that is called by its commit
        called = str(seen.model_name) if model == cached_name(seen.model_name) else found.arch.name
        return Beside(point, found, one.result.floor_s, called, tuple(remarks))


def _alone(point: Point) -> Point:
    from dataclasses import replace

    return replace(point, batch=1)


def formats(seen: Observation, given: str | None) -> tuple[str | None, str | None, list[str]]:
    """(weights, KV cache, remarks): formats as the result spells them where the roofline knows them.

    A GGUF file that was given by --model says itself, tensor by tensor, how its weights are stored.
    """
    remarks: list[str] = []
    weights, kv = None, None
    if seen.quantization and not (given or "").endswith(".gguf"):
        try:
            weights = weight_format(seen.quantization)
        except RooflensError:
            remarks.append(f"weights in {seen.quantization} are not known here: taken as the model's files say")
    if seen.kv_dtype:
        kv = KV_NAMES.get(seen.kv_dtype.lower())
        if kv is None:
            remarks.append(f"a KV cache in {seen.kv_dtype} is not known here: taken as the model's files say")
    return weights, kv, remarks


KV_NAMES: Mapping[str, str] = {
    "f16": "fp16", "fp16": "fp16", "float16": "fp16", "bf16": "bf16", "bfloat16": "bf16", "f32": "fp32",
    "fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "int8": "int8", "q8_0": "q8_0", "q4_0": "q4_0",
    "nvfp4": "nvfp4",
}  # fmt: skip


def cached_name(name: str | None) -> str | None:
    """The config.json that the Hugging Face cache of this host holds of exactly this model."""
    found = cached_file(name)
    return None if found is None else str(found)


def known_name(name: str | None) -> str | None:
    """The id of the shipped model of exactly this name, with its owner or, where it then fits one alone, without."""
    wanted = (name or "").strip().casefold()
    rows = known_models() if wanted else ()
    exact = [row for row in rows if wanted in (str(row["id"]).casefold(), str(row["hf_id"]).casefold())]
    bare = [row for row in rows if str(row["hf_id"]).casefold().rpartition("/")[2] == wanted]
    found = exact[:1] or (bare if len(bare) == 1 else [])
    return str(found[0]["id"]) if found else None


def known_device(name: str | None) -> str | None:
    """The id of the shipped device that its driver calls exactly so; of several equal ones that of one."""
    for wanted in dict.fromkeys((name, (name or "").split(", ")[0])):
        if wanted and not is_this_cpu(wanted) and not wanted.lower().endswith(".toml"):
            try:
                return find_hardware(wanted).id
            except RooflensError:
                continue
    return None
