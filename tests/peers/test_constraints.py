"""Constraints in training: some steps of netspec against recorded steps of Keras's `fit`."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.compile import LEARNING_RATE, STEP, Compiler, ProgramKind
from netspec.graph.types import DType
from tests.compile.nets import net, solver
from tests.peers import constraints
from tests.peers.recordings import load_answers

TEXT = """
netspec: 1
inputs: {x: {shape: [%d]}, y: {shape: [%d]}}
layers: [{name: fc, type: Dense, from: x, units: %d, kernel_constraint: %s, bias_constraint: non_neg}]
losses: [{type: MeanSquaredError, from: [fc, y]}]
"""


@pytest.mark.parametrize("name", constraints.CONSTRAINTS)
def test_constrained_weights_equal_keras(name, tmp_path):
    answers = load_answers("constraints")
    for key, array in constraints.given().items():
        np.testing.assert_array_equal(answers[key], array, err_msg="record the peers' answers")
    sizes = constraints.FEATURES, constraints.UNITS, constraints.UNITS
    text = TEXT % (*sizes, str(constraints.CONSTRAINTS[name]).replace("'", ""))
    rule = solver(momentum=constraints.MOMENTUM)
    compiler = Compiler(net(text, tmp_path), solver=rule, dtype=DType.FLOAT64, device="reference")
    for part in ("kernel", "bias"):
        compiler.states.assign(f"fc/{part}", answers[part])
    for step in range(constraints.STEPS):
        feeds = {"x": answers["x"], "y": answers["y"]} | {LEARNING_RATE: constraints.RATE, STEP: step + 1}
        compiler.program(ProgramKind.TRAIN, constraints.BATCH)(
            {key: np.asarray(a, "float64") for key, a in feeds.items()}
        )
    for part in ("kernel", "bias"):
        # Keras stores the learning rate in float32, with a relative error of 6e-8.
        np.testing.assert_allclose(compiler.states[f"fc/{part}"], answers[f"{name}/{part}"], rtol=2e-6, atol=2e-7)
