"""Properties of gradient clipping, for gradients of any size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from netspec.graph.graph import Graph
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.solvers.clipping import ClipByGlobalNorm, ClipByNorm, ClipByValue
from netspec.solvers.transform import Param, Step, UpdateTransform
from tests.interpret import run

ELEMENTS = st.floats(-1e6, 1e6).filter(lambda x: x == 0 or abs(x) > 1e-6)
PAIRS = st.tuples(arrays(float, (2, 3), elements=ELEMENTS), arrays(float, (4,), elements=ELEMENTS))
LIMITS = st.floats(1e-3, 1e3)
ROUNDING = 1 + 1e-12


def clip(transform: UpdateTransform, gradients: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """Return the gradients after the transform."""
    dtype = DType.FLOAT64
    values = [Input(f"g{index}", TensorType(g.shape, dtype))() for index, g in enumerate(gradients)]
    scalar = Input("scalar", TensorType((), dtype))()
    step = Step(tuple(Param(f"p{index}", value, value) for index, value in enumerate(values)), scalar, scalar)
    updates, slots = transform.update(values, [{} for _ in values], step)
    assert list(slots) == [{} for _ in values]
    graph = Graph(outputs={f"g{index}": value for index, value in enumerate(updates)})
    outputs, _ = run(graph, {f"g{index}": g for index, g in enumerate(gradients)}, {})
    return list(outputs.values())


def norm(*arrays: np.ndarray) -> float:
    return float(np.linalg.norm(np.concatenate([array.ravel() for array in arrays])))


@given(PAIRS, LIMITS)
def test_global_norm_is_limited_and_the_direction_kept(gradients, limit) -> None:
    clipped = clip(ClipByGlobalNorm(limit), gradients)
    assert norm(*clipped) <= limit * ROUNDING
    factor = min(1.0, limit / norm(*gradients)) if norm(*gradients) else 1.0
    for new, old in zip(clipped, gradients, strict=True):
        np.testing.assert_allclose(new, old * factor, rtol=1e-12)


@given(PAIRS, LIMITS)
def test_each_norm_is_limited(gradients, limit) -> None:
    for new, old in zip(clip(ClipByNorm(limit), gradients), gradients, strict=True):
        assert norm(new) <= limit * ROUNDING
        np.testing.assert_allclose(new, old * (min(1.0, limit / norm(old)) if norm(old) else 1.0), rtol=1e-12)


@given(PAIRS, LIMITS)
def test_each_element_is_limited(gradients, limit) -> None:
    for new, old in zip(clip(ClipByValue(limit), gradients), gradients, strict=True):
        np.testing.assert_array_equal(new, np.clip(old, -limit, limit))


@pytest.mark.parametrize("kind", [ClipByNorm, ClipByGlobalNorm, ClipByValue])
def test_gradients_within_the_limit_are_bit_identical(kind) -> None:
    gradients = (np.array([[0.1, -0.2]]), np.array([0.3, 0.0]))
    for new, old in zip(clip(kind(1.0), gradients), gradients, strict=True):
        np.testing.assert_array_equal(new, old)
