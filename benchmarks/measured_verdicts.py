"""What rooflens itself says of a published figure that lies below its floor: the rule that runs in the sidecar."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from measured_floors import Bound, plan_of
from measured_rows import ROOT, Row, config_of

sys.path.insert(0, str(ROOT / "tests"))

from made_windows import case, steps, window

from rooflens.analyzer.acceptance import expected_tokens
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.predict import predict
from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.rules.measurement_invalid import measurement_invalid
from rooflens.findings import Finding, Status
from rooflens.records import EngineInfo

SEEN_STEPS = 100


def finding_of(row: Row, bound: Bound) -> Finding:
    """The verdict on a window of steps as the row has them, of an engine that states what the row states."""
    info = EngineInfo(
        instance="published",
        engine=row.maker,
        model_name=row.model.split("/")[-1],
        model_config=config_of(row.model),
        weight_dtype=row.weights,
        kv_dtype=row.kv_dtype,
        tensor_parallel=row.deployment.tensor,
    )
    roofline = Roofline.of(info, find_hardware(row.hardware))
    table = steps(SEEN_STEPS, row.batch or 1, row.ctx, roofline=roofline, observed_s=bound.observed_s)
    return measurement_invalid(case(window(table, info, roofline), info=info, roofline=roofline))


def reason_of(row: Row, bound: Bound) -> str:
    """Why the figure cannot be what it is taken for."""
    if row.metric == "spec_speedup":
        tokens = expected_tokens(row.alpha, row.gamma)
        return (
            f"a verify step takes no less than a plain one and yields {tokens:.3g} tokens at {row.alpha:.0%} acceptance"
        )
    found = finding_of(row, bound)
    if found.status is not Status.FIRING:
        return "measurement_invalid does not fire"
    words = f"{found.code}: {found.summary}"
    plan = predict(row.arch, row.hardware_spec, row.least, plan_of(row))
    if not plan.fits:
        weights, room = plan.weight_bytes / 1e9, plan.capacity_bytes / 1e9
        words += f"; {weights:.0f} GB of weights do not fit the {room:.0f} GB that an engine may use"
    return words + ("; a step yields several tokens" if row.flag == "speculation" else "")


def below(found: Iterable[tuple[Row, Bound]]) -> list[tuple[Row, Bound, str]]:
    """Every row below its floor, with the reason."""
    return [(row, bound, reason_of(row, bound)) for row, bound in found if bound.ratio < 1]
