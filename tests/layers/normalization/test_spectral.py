"""SpectralNormalization: the kernel after a training step, and when it stays unchanged."""

from __future__ import annotations

from typing import Any

import numpy as np

from netspec.compile import LEARNING_RATE, STEP, Compiler, ProgramKind
from netspec.graph.types import DType
from netspec.schema.load import load_net
from netspec.schema.specs.kinds import SOLVERS
from tests.layers.apply import layer

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(6, 4))
KERNEL: np.ndarray = RANDOM.normal(size=(4, 3))
U: np.ndarray = RANDOM.normal(size=(1, 3))
FIELDS: dict[str, Any] = {"type": "SpectralNormalization", "layer": {"type": "Dense", "units": 3}}
STATES: dict[str, Any] = {"dense/kernel": KERNEL, "vector_u": U}


def trained(fields: dict[str, Any], **states: Any) -> Any:
    return layer(fields, X, training=True, **states)


def test_power_iterations_find_the_largest_singular_value():
    applied = trained({**FIELDS, "power_iterations": 60}, **STATES)
    _, values, right = np.linalg.svd(KERNEL)
    np.testing.assert_allclose(applied.y, X @ KERNEL / values[0], rtol=1e-9)
    np.testing.assert_allclose(applied.updates["dense/kernel"], KERNEL / values[0], rtol=1e-9)
    np.testing.assert_allclose(np.abs(applied.updates["vector_u"]), np.abs(right[:1]), rtol=1e-6)


def test_spectral_normalization_keeps_the_kernel_in_inference_and_frozen_layers():
    plain = X @ KERNEL
    np.testing.assert_allclose(layer(FIELDS, X, **STATES).y, plain)
    for frozen in ({**FIELDS, "trainable": False}, {**FIELDS, "layer": {**FIELDS["layer"], "trainable": False}}):
        applied = trained(frozen, **STATES)
        np.testing.assert_allclose(applied.y, plain)
        assert applied.updates == {}


def test_spectral_normalization_of_a_zero_kernel():
    applied = trained(FIELDS, **{**STATES, "dense/kernel": np.zeros((4, 3))})
    assert not applied.y.any()
    assert not applied.updates["dense/kernel"].any()
    np.testing.assert_array_equal(applied.updates["vector_u"], U)


SOLVER: Any = SOLVERS.parse({"type": "SGD"})
NET: dict[str, Any] = {
    "netspec": 1,
    "inputs": {"x": {"shape": [4]}, "target": {"shape": [3]}},
    "layers": [{"name": "it", **FIELDS, "from": "x"}],
    "losses": [{"type": "MeanSquaredError", "from": ["it", "target"]}],
}


def step(net: dict[str, Any]) -> tuple[Compiler, np.ndarray]:
    """Return a compiler after one step of SGD with the rate 0.5, and the target."""
    compiler = Compiler(load_net(net), solver=SOLVER, dtype=DType.FLOAT64, device="reference")
    target = RANDOM.normal(size=(6, 3))
    for name, value in STATES.items():
        compiler.states.assign(f"it/{name}", value)
    program = compiler.program(ProgramKind.TRAIN, 6)
    program.write({"x": X, "target": target, LEARNING_RATE: np.array(0.5), STEP: np.array(1.0)})
    program.run()
    return compiler, target


def normalized() -> np.ndarray:
    """Return the kernel after one power iteration, in NumPy."""
    v = U @ KERNEL.T / np.linalg.norm(U @ KERNEL.T)
    u = v @ KERNEL / np.linalg.norm(v @ KERNEL)
    actual: np.ndarray = KERNEL / (v @ KERNEL @ u.T)
    return actual


def test_solver_updates_the_normalized_kernel():
    compiler, target = step(NET)
    start = normalized()
    gradient = X.T @ (X @ start - target) * 2 / target.size
    np.testing.assert_allclose(compiler.states["it/dense/kernel"], start - 0.5 * gradient, rtol=1e-9)


def test_shared_kernel_is_normalized_once():
    second = {"name": "again", **FIELDS, "share": "it", "from": "x"}
    loss = {"type": "MeanSquaredError", "name": "second", "from": ["again", "target"]}
    compiler, target = step({**NET, "layers": [*NET["layers"], second], "losses": [*NET["losses"], loss]})
    start = normalized()
    gradient = 2 * (X.T @ (X @ start - target) * 2 / target.size)
    np.testing.assert_allclose(compiler.states["it/dense/kernel"], start - 0.5 * gradient, rtol=1e-9)
