"""Compare steps of nets that are split into stages with steps of one worker that accumulates the same micro-batches.

The first worker prints the largest differences between the states as JSON: one for each net, schedule and batch size.
"""

import json
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import yaml

from netspec.cli.workers import join_job, leave_job
from netspec.compile import Compiler, ProgramKind
from netspec.distributed import world
from netspec.distributed.partitioning.pipeline.partition import PipelineConfig, balance_stages
from netspec.distributed.plans import PipelinePlan
from netspec.graph.types import DType
from netspec.schema.load import load_net
from netspec.schema.specs.kinds import SOLVERS
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import LoopSpec
from netspec.solvers.base import SolverSpec

STEPS, PARTS = 3, 4
IMAGES = """\
netspec: 1
inputs: {image: {shape: [2, 8, 8]}, label: {shape: [], dtype: int32}}
layers:
  - {name: conv1, type: Conv2D, filters: 4, kernel_size: 3, padding: same}
  - {name: norm, type: BatchNormalization}
  - {name: pool, type: MaxPooling2D, pool_size: 2}
  - {name: drop, type: Dropout, rate: 0.3}
  - {name: conv2, type: Conv2D, filters: 4, kernel_size: 3, activation: relu, trainable: false}
  - {name: flat, type: Flatten}
  - {name: logits, type: Dense, units: 3, kernel_regularizer: {type: L2, l2: 0.01}}
losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
"""
SKIPS = """\
netspec: 1
inputs: {a: {shape: [5]}, b: {shape: [4]}, y: {shape: [3]}, z: {shape: [6]}}
layers:
  - {name: one, type: Dense, units: 6, from: a, kernel_regularizer: {type: L2, l2: 0.1}}
  - {name: two, type: Dense, units: 6, from: b, activation: tanh}
  - {name: both, type: Add, from: [one, two]}
  - {name: three, type: Dense, units: 6, activation: tanh}
  - {name: sum, type: Add, from: [one, three]}
  - {name: tied, type: Dense, units: 6, share: three, from: sum, activation: tanh}
  - {name: all, type: Concatenate, from: [one, tied, b]}
  - {name: end, type: Dense, units: 3}
losses:
  - {type: MeanSquaredError, name: first, from: [both, z], weight: 0.3}
  - {type: MeanSquaredError, name: last, from: [end, y]}
"""
WORDS = """\
netspec: 1
inputs: {text: {shape: [6], dtype: int32}, label: {shape: [], dtype: int32}}
layers:
  - {name: words, type: Embedding, input_dim: 11, output_dim: 8, mask_zero: true}
  - {name: attended, type: MultiHeadAttention, num_heads: 2, key_dim: 4, dropout: 0.1, from: [words, words]}
  - {name: added, type: Add, from: [words, attended]}
  - {name: norm1, type: LayerNormalization}
  - {name: wide, type: Dense, units: 16, activation: gelu}
  - {name: narrow, type: Dense, units: 8}
  - {name: more, type: Add, from: [norm1, narrow]}
  - {name: norm2, type: LayerNormalization}
  - {name: mean, type: GlobalAveragePooling1D}
  - {name: logits, type: Dense, units: 3}
losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
"""


def synthetic_inputs(net: NetSpec, samples: int) -> dict[str, Any]:
    """Inputs of a batch."""
    random = np.random.default_rng(5)
    return {
        name: random.standard_normal((samples, *model_input.shape))
        if model_input.dtype == "float32"
        else random.integers(0, 3, (samples, *model_input.shape)).astype(model_input.dtype)
        for name, model_input in net.inputs.items()
    }


def rates(step: int) -> dict[str, Any]:
    """Return the other inputs of an update."""
    return {"$learning_rate": np.array(0.1), "$step": np.array(step + 1.0)}


def alone(compiler: Compiler, inputs: dict[str, Any], samples: int) -> list[float]:
    """Run steps on one worker, which accumulates micro-batches; return their losses."""
    parts, losses = min(PARTS, samples), []
    offsets = [samples * part // parts for part in range(parts + 1)]
    for step in range(STEPS):
        loss = 0.0
        for first, end in pairwise(offsets):
            program = compiler.program(ProgramKind.ACCUMULATE, end - first)
            counts = {"$weight": np.array((end - first) / samples), "$first": np.array(first == 0)}
            part = {name: array[first:end] for name, array in inputs.items()}
            program.write({**part, "$rng": np.array([1, step, first]), **counts})
            program.run()
            loss += program.guard * (end - first) / samples
        update = compiler.program(ProgramKind.UPDATE, 1)
        update.write({**rates(step), "$share": np.array(1.0)})
        update.run()
        losses.append(loss)
    return losses


def pipeline_config(compiler: Compiler, inputs: dict[str, Any], samples: int) -> list[float]:
    """Run steps on all workers; return their losses. In the end, every worker gets all states."""
    program, losses = compiler.program(ProgramKind.TRAIN, samples), []
    for step in range(STEPS):
        program.write({**inputs, "$rng": np.array([1, step, 0]), **rates(step)})
        program.run()
        losses.append(program.guard)
    for name, owner in compiler.distribution.owners.items():
        array = compiler.states[name]
        world().broadcast(array, owner)
        compiler.states.assign(name, array)
    return losses


def apart(text: str, samples: int, *, interleaved: bool) -> float:
    """Return the largest difference of states and losses; only the first worker compares, since all have the same."""
    net, loop, workers = load_net(yaml.safe_load(text)), LoopSpec(max_steps=STEPS, accumulate=PARTS), world()
    solver = SOLVERS.parse({"type": "SGD", "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.01})
    assert isinstance(solver, SolverSpec)
    config = PipelineConfig(
        workers.size, workers.rank, PARTS, interleaved, balance_stages(net, workers.size, 2, DType.FLOAT64)
    )
    inputs = synthetic_inputs(net, samples)
    many = Compiler(net, solver=solver, dtype=DType.FLOAT64, distribution=PipelinePlan(config), device="cpu")
    actual = pipeline_config(many, inputs, samples)
    if not workers.is_first:
        return 0.0
    # The device `auto` would be a collective call.
    worker = Compiler(net, solver=solver, dtype=DType.FLOAT64, loop=loop, device="cpu")
    expected = alone(worker, inputs, samples)
    assert actual[0] != actual[-1]
    states = many.distribution.owners
    return max(*(abs(a - b) for a, b in zip(actual, expected, strict=True)),
               *(float(np.abs(many.states[name] - worker.states[name]).max()) for name in states))  # fmt: skip


if __name__ == "__main__":
    join_job()
    distances = [
        apart(text, samples, interleaved=interleaved)
        for text, samples, interleaved in (
            (IMAGES, 10, True),
            (IMAGES, 3, False),
            (SKIPS, 8, False),
            (SKIPS, 10, True),
            (WORDS, 10, True),
        )
    ]
    if world().is_first:
        print(json.dumps(distances), flush=True)
    sys.exit(leave_job(0))
