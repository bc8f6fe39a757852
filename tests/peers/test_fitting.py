"""Constraints in training: some steps of netspec's, and of Keras's `fit` as it was recorded."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.compile import LEARNING_RATE, STEP, Compiler, ProgramKind
from netspec.graph.types import DType
from tests.compile.nets import net, solver
from tests.peers import fitting
from tests.peers.test_answers import ANSWERS

TEXT = """
netspec: 1
inputs: {x: {shape: [%d]}, y: {shape: [%d]}}
layers: [{name: fc, type: Dense, from: x, units: %d, kernel_constraint: %s, bias_constraint: non_neg}]
losses: [{type: MeanSquaredError, from: [fc, y]}]
"""


@pytest.mark.parametrize("name", fitting.CONSTRAINTS)
def test_constrained_weights_are_those_of_keras(name, tmp_path):
    with np.load(ANSWERS / "fitting.npz") as stored:
        answers = dict(stored)
    for key, array in fitting.given().items():
        np.testing.assert_array_equal(answers[key], array, err_msg="record the peers' answers")
    sizes = fitting.FEATURES, fitting.UNITS, fitting.UNITS
    text = TEXT % (*sizes, str(fitting.CONSTRAINTS[name]).replace("'", ""))
    rule = solver(momentum=fitting.MOMENTUM)
    compiler = Compiler(net(text, tmp_path), solver=rule, dtype=DType.FLOAT64, device="reference")
    for part in ("kernel", "bias"):
        compiler.states.assign(f"fc/{part}", answers[part])
    for step in range(fitting.STEPS):
        feeds = {"x": answers["x"], "y": answers["y"]} | {LEARNING_RATE: fitting.RATE, STEP: step + 1}
        compiler.program(ProgramKind.TRAIN, fitting.BATCH)({key: np.asarray(a, "float64") for key, a in feeds.items()})
    for part in ("kernel", "bias"):
        # Keras keeps the learning rate in float32: 6e-8 of a change.
        np.testing.assert_allclose(compiler.states[f"fc/{part}"], answers[f"{name}/{part}"], rtol=2e-6, atol=2e-7)
