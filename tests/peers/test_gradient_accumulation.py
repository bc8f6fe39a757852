"""Gradients of several batches, and scaled losses: some steps of netspec against recorded steps of Keras."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netspec.compile import FIRST, LEARNING_RATE, SCALE, SHARE, STEP, WEIGHT, Compiler, ProgramKind
from netspec.graph.types import DType
from netspec.schema.specs.train import LoopSpec
from tests.compile.nets import net, solver
from tests.peers.gradient_accumulation import (
    ACCUMULATE,
    BATCH,
    FACTOR,
    FEATURES,
    GROWTH,
    INITIAL_SCALE,
    RATE,
    SOLVERS,
    STEPS,
    UNITS,
    given,
)
from tests.peers.recordings import load_answers

ANSWERS = load_answers("gradient_accumulation")

TEXT = f"""
netspec: 1
inputs: {{x: {{shape: [{FEATURES}]}}, y: {{shape: [{UNITS}]}}}}
layers: [{{name: fc, type: Dense, from: x, units: {UNITS}}}]
losses: [{{type: MeanSquaredError, from: [fc, y], weight: %s}}]
"""


def compiled(folder: Any, rule: Any, dtype: DType, data: dict[str, np.ndarray], weight: float, **loop: Any) -> Compiler:
    loop_spec = LoopSpec.model_validate({"max_steps": 1, **loop})
    compiler = Compiler(net(TEXT % weight, folder), solver=rule, dtype=dtype, device="reference", loop=loop_spec)
    for part in ("kernel", "bias"):
        compiler.states.assign(f"fc/{part}", data[part])
    compiler.reset_copies()
    return compiler


@pytest.mark.parametrize("name", SOLVERS)
def test_updates_by_several_batches_equal_keras(name, tmp_path):
    """Ten updates, each by four batches, with clipping, decay and an average of the weights."""
    data = given(STEPS * ACCUMULATE)
    fields = {key: value for key, value in SOLVERS[name].items() if key != "type"}
    rule = solver(SOLVERS[name]["type"], **fields)
    compiler = compiled(tmp_path, rule, DType.FLOAT64, data, 1.0, accumulate=ACCUMULATE)
    batches = compiler.program(ProgramKind.ACCUMULATE, BATCH)
    update = compiler.program(ProgramKind.UPDATE, 1)
    for step in range(STEPS):
        for at in range(step * ACCUMULATE, (step + 1) * ACCUMULATE):
            counted = {WEIGHT: np.array(1.0), FIRST: np.array(at % ACCUMULATE == 0)}
            batches({"x": data["x"][at], "y": data["y"][at], **counted})
        share = np.array(1 / ACCUMULATE)
        update({LEARNING_RATE: np.array(RATE), STEP: np.array(step + 1.0), SHARE: share})
        for part in ("kernel", "bias"):
            np.testing.assert_allclose(compiler.states[f"fc/{part}"], ANSWERS[f"{name}/{part}"][step], rtol=1e-10)
    # Keras averages the weights at every batch, even if they have not changed.
    if "ema" in fields:
        average, decay = ANSWERS[f"{name}/kernel"][0], fields["ema"]["decay"]
        for weight in ANSWERS[f"{name}/kernel"][1:]:
            average = decay * average + (1 - decay) * weight
        np.testing.assert_allclose(compiler.weights()["fc/kernel"], average, rtol=1e-10)


def test_a_scaled_loss_equals_keras(tmp_path):
    """Ten steps in float32, the first of which overflow; later the scale is doubled after three good steps."""
    data = given(STEPS)
    scaling = {"initial": INITIAL_SCALE, "growth_steps": GROWTH}
    rule = solver(momentum=0.75)
    compiler = compiled(tmp_path, rule, DType.FLOAT32, data, FACTOR, loss_scale=scaling)
    program = compiler.program(ProgramKind.TRAIN, BATCH)
    for step in range(STEPS):
        batch = {name: data[name][step].astype(np.float32) for name in ("x", "y")}
        program({**batch, LEARNING_RATE: np.array(RATE), STEP: np.array(step + 1.0)})
        assert compiler.states[SCALE] == ANSWERS["scaled/scale"][step]
        for part in ("kernel", "bias"):
            # Sums of 4 products in float32, in another order, differ by a few 6e-8.
            np.testing.assert_allclose(
                compiler.states[f"fc/{part}"], ANSWERS[f"scaled/{part}"][step], rtol=1e-5, atol=1e-6
            )
    scales = ANSWERS["scaled/scale"]
    assert (np.diff(scales) < 0).any()
    assert (np.diff(scales) > 0).any()
