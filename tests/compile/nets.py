"""Small nets for the tests of the compiler."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import numpy as np

from netspec.compile import LEARNING_RATE, STEP, Compiler, ProgramKind
from netspec.graph.ops.random import RNG_INPUT
from netspec.schema.load import load_net
from netspec.schema.specs.kinds import SOLVERS
from netspec.schema.specs.net import NetSpec
from netspec.solvers.base import SolverSpec
from tests.interpret import Arrays

CLASSIFIER = """\
netspec: 1
inputs:
  image: {shape: [2, 8, 8]}
  label: {shape: [], dtype: int32}
layers:
  - {name: conv, type: Conv2D, filters: 4, kernel_size: 3, kernel_regularizer: {type: L2, l2: 0.01}}
  - {name: norm, type: BatchNormalization, momentum: 0.9}
  - {name: act, type: Activation, activation: relu}
  - {name: pool, type: MaxPooling2D, pool_size: 2}
  - {name: flat, type: Flatten}
  - {name: hidden, type: Dense, units: 6, activation: tanh}
  - {name: drop, type: Dropout, rate: 0.5}
  - {name: logits, type: Dense, units: 3}
losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
metrics: [{type: SparseCategoricalAccuracy, from: [logits, label]}]
"""
"""A net with all parts of a training step: convolution, moving averages, pooling, dropout and a penalty."""


def net(text: str, folder: Path) -> NetSpec:
    """Load the net in a new file `net.yaml` in the folder."""
    file = folder / "net.yaml"
    file.write_text(dedent(text))
    return load_net(file)


def solver(type_: str = "SGD", **fields: object) -> SolverSpec:
    spec = SOLVERS.parse({"type": type_, **fields})
    assert isinstance(spec, SolverSpec)
    return spec


def batch(compiler: Compiler, size: int, step: int = 0, purpose: ProgramKind = ProgramKind.TRAIN) -> Arrays:
    """Random values for every input of a program; integers are 0, 1 or 2."""
    random = np.random.default_rng([size, step])
    arrays: Arrays = {}
    for name, value in compiler.graph(purpose, size).inputs().items():
        if value.dtype.is_float:
            arrays[name] = random.normal(size=value.shape).astype(str(value.dtype))
        else:
            arrays[name] = random.integers(0, 3, value.shape).astype(str(value.dtype))
    special = {RNG_INPUT: np.array([5, step, 0]), LEARNING_RATE: np.array(0.1), STEP: np.array(step + 1.0)}
    return arrays | {name: array.astype(arrays[name].dtype) for name, array in special.items() if name in arrays}
