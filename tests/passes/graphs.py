"""Random graphs for property tests, with inputs, states, constants, views, in-place ops, updates and a guard."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st

from netspec.graph.graph import Graph
from netspec.graph.op import Op
from netspec.graph.ops import elementwise as ew
from netspec.graph.ops.batch_normalization import BatchNormalizationTraining
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.shape import Concat, Reshape, Slice, Transpose
from netspec.graph.ops.source import Constant, Fill, Input, State
from netspec.graph.ops.unary import Abs, Exp, Relu, Tanh
from netspec.graph.types import DType, TensorType, broadcast_shapes
from netspec.graph.value import Value
from tests.interpret import Arrays

SHAPES = ((), (3,), (2, 3), (3, 2), (6,), (1, 6))
UNARY: tuple[Op, ...] = (Relu(), ew.Neg(), Tanh(), Abs(), Exp())
BINARY: tuple[Op, ...] = (ew.Add(), ew.Sub(), ew.Mul(), ew.Maximum())
FILLS = (0.0, -0.0, 1.0, -1.5)


def typed(shape: tuple[int, ...]) -> TensorType:
    return TensorType(shape, DType.FLOAT32)


def graphs(most: int = 40) -> st.SearchStrategy[Graph]:
    """Return a strategy for graphs of at most `most` ops, drawn by seed, since Hypothesis prefers trivial graphs."""
    return st.builds(random_graph, st.integers(0, 1 << 32), st.integers(1, most))


def random_graph(seed: int, size: int) -> Graph:
    """Return a random graph of about `size` ops, with at least one output."""
    random = Random(seed)
    values: list[Value] = [Input(f"x{i}", typed(shape))() for i, shape in enumerate(SHAPES[1:4])]
    states = {f"s{i}": State(f"s{i}", typed(SHAPES[i % len(SHAPES)]))() for i in range(8)}
    values += states.values()
    values.append(Constant(np.arange(6, dtype="float32").tobytes(), typed((2, 3)))())
    values += [Fill(value, typed(random.choice(SHAPES)))() for value in FILLS]
    for _ in range(size):
        values += grow(random, values)
    outputs = {f"y{i}": random.choice(values) for i in range(random.randint(1, 3))}
    updates = {}
    for name, state in states.items():
        if random.random() < 0.6:
            updates[name] = random.choice([value for value in values if value.type == state.type])
    scalars = [value for value in values if value.shape == ()]
    return Graph(outputs, updates, random.choice([None, *scalars]))


def grow(random: Random, values: list[Value]) -> tuple[Value, ...]:
    """Return the results of another op on some of the values; later values are preferred, so that graphs are deep."""
    pool = values + 4 * values[-4:]
    x = random.choice(pool)
    alike = [value for value in pool if value.type == x.type]
    kinds = ["unary", "unary", "binary", "binary", "scaled", "view", "sum"]
    kinds += ["transpose", "slice", "concat", "product", "normalize"] if len(x.shape) == 2 else []
    match random.choice(kinds):
        case "unary":
            return (random.choice(UNARY)(x),)
        case "binary":
            return (random.choice(BINARY)(x, random.choice(alike)),)
        case "scaled":
            factors = [value for value in values if broadcast_shapes(value.shape, x.shape) in (x.shape, *SHAPES)]
            return (x * random.choice(factors),)
        case "view":
            return (Reshape(random.choice([x.shape, *(s for s in SHAPES if typed(s).size == x.type.size)]))(x),)
        case "sum":
            return (ReduceSum()(x),)
        case "transpose":
            return (Transpose((1, 0))(x),)
        case "slice":
            return (Slice(1, 0, 1)(x),)
        case "concat":
            return (Slice(1, 0, x.shape[1])(Concat(1)(x, x)),)
        case "product":
            return (MatMul(False, True)(x, x),)
    gamma = Fill(1.0, typed((x.shape[1],)))()
    return BatchNormalizationTraining(1, 0.1).call_multi(x, gamma, gamma)


def feeds(graph: Graph, seed: int = 0) -> tuple[Arrays, dict[str, TensorType], Arrays]:
    """Return values of the inputs, and types and values of all states that are read or written."""
    random = np.random.default_rng(seed)

    def numbers(kind: TensorType) -> Any:
        return random.uniform(-1.5, 1.5, kind.shape).astype("float32")

    inputs = {name: numbers(value.type) for name, value in sorted(graph.inputs().items())}
    types = {name: value.type for name, value in (graph.states() | graph.updates).items()}
    return inputs, types, {name: numbers(kind) for name, kind in sorted(types.items())}


def same_bits(actual: Arrays, other: Arrays) -> None:
    """Check that both have bit-identical arrays; all NaN are equal, 0.0 and -0.0 are not."""
    assert actual.keys() == other.keys()
    for name, array in actual.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)
        finite = ~np.isnan(array)
        assert (np.signbit(array)[finite] == np.signbit(other[name])[finite]).all(), name
