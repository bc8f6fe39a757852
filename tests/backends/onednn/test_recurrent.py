"""LSTM and GRU over whole sequences, forward and backward, against their formulas step by step in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from netspec.backends.onednn import recurrent
from netspec.backends.onednn.constants import Arg, Direction
from netspec.backends.onednn.primitive import PrimitiveDesc
from netspec.backends.onednn.recurrent import RecurrentDescs
from netspec.graph.op import Array
from tests.backends.onednn.harness import Run, assert_close, describe, uniform
from tests.backends.onednn.naive import numerical_gradient

STEPS, BATCH, UNITS = 4, 2, 3
# Three approximated functions a step, and sums of some ten products, carried through all steps.
TERMS = 128


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def lstm_step(x: Array, h: Array, c: Array, w: Array, u: Array, b: Array) -> tuple[Array, Array]:
    i, f, g, o = (x @ w[:, k] + h @ u[:, k] + b[k] for k in range(4))
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru_step(x: Array, h: Array, c: Array, w: Array, u: Array, b: Array, *, reset_after: bool) -> tuple[Array, Array]:
    update, reset = (sigmoid(x @ w[:, k] + h @ u[:, k] + b[k]) for k in range(2))
    if reset_after:
        candidate = np.tanh(x @ w[:, 2] + b[2] + reset * (h @ u[:, 2] + b[3]))
    else:
        candidate = np.tanh(x @ w[:, 2] + (reset * h) @ u[:, 2] + b[2])
    return update * h + (1 - update) * candidate, c


class Cell:
    """One kind of cell: its formula, and how its primitives are made."""

    def __init__(self, step: Callable, gates: int, biases: int, forward: Callable, backward: Callable, states: int):
        self.step, self.gates, self.biases = step, gates, biases
        self.forward: Callable[..., PrimitiveDesc] = forward
        self.backward: Callable[..., PrimitiveDesc] = backward
        self.states = states


def gru(reset_after: bool) -> Cell:
    return Cell(
        lambda *operands: gru_step(*operands, reset_after=reset_after),
        3,
        4 if reset_after else 3,
        lambda *descs: recurrent.gru_forward(*descs, reset_after=reset_after),
        lambda *descs: recurrent.gru_backward(*descs, reset_after=reset_after),
        states=1,
    )


CELLS = {
    "lstm": Cell(lstm_step, 4, 4, recurrent.lstm_forward, recurrent.lstm_backward, states=2),
    "gru": gru(reset_after=False),
    "gru_reset_after": gru(reset_after=True),
}


def unroll(cell: Cell, direction: Direction, operands: Sequence[Array]) -> tuple[Array, Array, Array]:
    """(T, N, C) and parameters (L, D, …) → outputs (T, N, H or 2H), last states (L, D, N, H)."""
    x, w, u, b, h, c = operands
    last_h, last_c = np.zeros(h.shape), np.zeros(c.shape)
    for layer in range(len(w)):
        results = []
        for way in range(w.shape[1]):
            backwards = way == 1 or direction is Direction.RIGHT_TO_LEFT
            state, memory, outputs = h[layer, way], c[layer, way], []
            for seen in x[::-1] if backwards else x:
                parameters = (w[layer, way], u[layer, way], b[layer, way])
                state, memory = cell.step(seen, state, memory, *parameters)
                outputs.append(state)
            last_h[layer, way], last_c[layer, way] = state, memory
            results.append(np.stack(outputs[::-1] if backwards else outputs))
        x = sum(results) if direction is Direction.BIDIRECTIONAL_SUM else np.concatenate(results, -1)
    return x, last_h, last_c


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize(
    ("direction", "layers"),
    [
        (Direction.LEFT_TO_RIGHT, 1),
        (Direction.LEFT_TO_RIGHT, 2),
        (Direction.RIGHT_TO_LEFT, 1),
        (Direction.BIDIRECTIONAL_CONCAT, 1),
        (Direction.BIDIRECTIONAL_SUM, 1),
    ],
    ids=lambda one: getattr(one, "name", str(one)),
)
def test_a_sequence(engine, name, direction, layers):
    cell = CELLS[name]
    ways = 2 if direction in (Direction.BIDIRECTIONAL_CONCAT, Direction.BIDIRECTIONAL_SUM) else 1
    features = UNITS if layers > 1 else 5
    x = uniform(STEPS, BATCH, features)
    w = uniform(layers, ways, features, cell.gates, UNITS, seed=1)
    u = uniform(layers, ways, UNITS, cell.gates, UNITS, seed=2)
    b = uniform(layers, ways, cell.biases, UNITS, seed=3)
    h, c = uniform(layers, ways, BATCH, UNITS, seed=4), uniform(layers, ways, BATCH, UNITS, seed=5)
    wide = [one.astype(np.float64) for one in (x, w, u, b, h, c)]
    y, last_h, last_c = unroll(cell, direction, wide)

    state = describe(engine, h.shape)
    descs = RecurrentDescs(
        src_layer=describe(engine, x.shape),
        weights_layer=describe(engine, w.shape, "any"),
        weights_iter=describe(engine, u.shape, "any"),
        bias=describe(engine, b.shape),
        dst_layer=describe(engine, y.shape),
        src_iter=state,
        dst_iter=state,
        src_iter_c=state if cell.states == 2 else None,
        dst_iter_c=state if cell.states == 2 else None,
    )
    forward = cell.forward(descs, direction)
    operands = {
        Arg.SRC_LAYER: x, Arg.WEIGHTS_LAYER: w, Arg.WEIGHTS_ITER: u, Arg.BIAS: b, Arg.SRC_ITER: h, Arg.SRC_ITER_C: c,
    }  # fmt: skip
    if cell.states == 1:
        del operands[Arg.SRC_ITER_C]
    run = Run(forward, operands)
    assert_close(run[Arg.DST_LAYER], y, TERMS)
    assert_close(run[Arg.DST_ITER], last_h, TERMS)
    if cell.states == 2:
        assert_close(run[Arg.DST_ITER_C], last_c, TERMS)

    dy, dh, dc = uniform(*y.shape, seed=6), uniform(*h.shape, seed=7), uniform(*c.shape, seed=8)
    backward = cell.backward(descs, descs, forward, direction)
    held = 0.25  # gradients of parameters are added to what is there
    parameters = {Arg.DIFF_WEIGHTS_LAYER: w, Arg.DIFF_WEIGHTS_ITER: u, Arg.DIFF_BIAS: b}
    given = {
        **operands,
        Arg.DST_LAYER: run[Arg.DST_LAYER], Arg.DST_ITER: run[Arg.DST_ITER],
        Arg.DIFF_DST_LAYER: dy, Arg.DIFF_DST_ITER: dh,
        Arg.WORKSPACE: run.memories[Arg.WORKSPACE],
        **{argument: np.full_like(array, held) for argument, array in parameters.items()},
    }  # fmt: skip
    if cell.states == 2:
        given |= {Arg.DST_ITER_C: run[Arg.DST_ITER_C], Arg.DIFF_DST_ITER_C: dc}
    run = Run(backward, given)

    def objective(place: int) -> Callable[[Array], Array]:
        def value(array: Array) -> Array:
            outputs, h_end, c_end = unroll(cell, direction, [*wide[:place], array, *wide[place + 1 :]])
            total = np.sum(outputs * dy) + np.sum(h_end * dh)
            return total + np.sum(c_end * dc) if cell.states == 2 else total

        return value

    results = [
        Arg.DIFF_SRC_LAYER, Arg.DIFF_WEIGHTS_LAYER, Arg.DIFF_WEIGHTS_ITER, Arg.DIFF_BIAS,
        Arg.DIFF_SRC_ITER, Arg.DIFF_SRC_ITER_C,
    ]  # fmt: skip
    for place, argument in enumerate(results[: 4 + cell.states]):
        expected = numerical_gradient(objective(place), wide[place], np.ones(()))
        assert_close(run[argument] - (held if argument in parameters else 0), expected, TERMS)


def test_zero_states_need_no_memory(engine):
    cell = CELLS["lstm"]
    x, w, u = uniform(3, 2, 5), uniform(1, 1, 5, 4, 3, seed=1), uniform(1, 1, 3, 4, 3, seed=2)
    b, y, zero = uniform(1, 1, 4, 3, seed=3), np.empty((3, 2, 3)), np.zeros((1, 1, 2, 3))
    descs = RecurrentDescs(*[describe(engine, one.shape) for one in (x, w, u, b, y)])
    desc = recurrent.lstm_forward(descs, training=False)
    assert Arg.SRC_ITER not in desc.arguments
    run = Run(desc, {Arg.SRC_LAYER: x, Arg.WEIGHTS_LAYER: w, Arg.WEIGHTS_ITER: u, Arg.BIAS: b})
    wide = [one.astype(np.float64) for one in (x, w, u, b)]
    assert_close(run[Arg.DST_LAYER], unroll(cell, Direction.LEFT_TO_RIGHT, [*wide, zero, zero])[0], TERMS)
