"""From spec to graph: all mistakes are reported at once with their locations; the graphs of each purpose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from netspec.compile import LOSS, REGULARIZATION, Compiler, ProgramKind, build
from netspec.errors import SpecError
from netspec.graph.ops.source import Input
from netspec.graph.types import DType
from tests.compile.nets import CLASSIFIER, batch, net, solver


def problems(text: str, folder: Path, *, training: bool = True) -> str:
    """Return the problems that `build` reports, without folders in the locations."""
    with pytest.raises(SpecError) as caught:
        build(net(text, folder), 4, training=training)
    return caught.value.render().replace(f"{folder}/", "")


def test_all_shape_errors_are_reported_but_not_their_consequences(tmp_path: Path) -> None:
    text = """\
    netspec: 1
    inputs:
      image: {shape: [1, 6, 6]}
      label: {shape: [], dtype: int32}
    layers:
      - {name: conv1, type: Conv2D, filters: 4, kernel_size: 3}
      - {name: conv2, type: Conv2D, filters: 4, kernel_size: 5}
      - {name: after, type: Flatten}
      - {name: shape, type: Reshape, from: conv1, target_shape: [7, 9]}
      - {name: sum, type: Add, from: [conv1, image]}
      - {name: logits, type: Dense, from: after, units: 3}
    losses: [{type: SparseCategoricalCrossentropy, from: [conv1, label], from_logits: true}]
    """
    with pytest.raises(SpecError) as caught:
        build(net(text, tmp_path), 4, training=True)
    problems = [(problem.location, problem.path, problem.notes) for problem in caught.value.problems]
    assert [
        (location and location.line, location and location.column, path, *notes) for location, path, notes in problems
    ] == [
        (7, 5, "layers.conv2", OF_CONV1, FROM_CONV1),
        (9, 5, "layers.shape", OF_CONV1, FROM_CONV1),
        (10, 5, "layers.sum", f"{OF_CONV1}, float32 (batch, 1, 6, 6)", FROM_CONV1, "came from: image (batch, 1, 6, 6)"),
        (12, 10, "losses.sparse_categorical_crossentropy", f"{OF_CONV1}, int32 (batch)", FROM_CONV1, LABEL),
    ]


OF_CONV1 = "operands: float32 (batch, 4, 4, 4)"
LABEL = "came from: label (batch)"
FROM_CONV1 = "came from: image (batch, 1, 6, 6) → conv1 (batch, 4, 4, 4)"


def test_arity_and_operands_of_losses_and_metrics(tmp_path: Path) -> None:
    text = """\
    netspec: 1
    inputs: {x: {shape: [3]}, y: {shape: [4]}}
    layers:
      - {name: both, type: Dense, from: [x, y], units: 2}
      - {name: one, type: Add, from: x}
      - {name: out, type: Dense, from: x, units: 2}
    losses: [{type: MeanSquaredError, from: [out]}]
    metrics: [{type: MeanAbsoluteError, from: [out, y]}]
    """
    assert problems(text, tmp_path) == ARITY


ARITY = """\
net.yaml:4:5: error: layer `both` (Dense): Dense takes 1 input, not 2
  4 |   - {name: both, type: Dense, from: [x, y], units: 2}
    |     ^
  expected: `from` with 1 name
  got: 2
  operands: float32 (batch, 3), float32 (batch, 4)
  came from: x (batch, 3)
  came from: y (batch, 4)
net.yaml:5:5: error: layer `one` (Add): Add takes 2 or more inputs, not 1
  5 |   - {name: one, type: Add, from: x}
    |     ^
  expected: `from` with 2 or more names
  got: 1
  operands: float32 (batch, 3)
  came from: x (batch, 3)
net.yaml:7:10: error: loss `mean_squared_error` (MeanSquaredError): MeanSquaredError takes 2 inputs, not 1
  7 | losses: [{type: MeanSquaredError, from: [out]}]
    |          ^
  expected: `from` with 2 names
  got: 1
  operands: float32 (batch, 2)
  came from: x (batch, 3) → out (batch, 2)
net.yaml:8:11: error: metric `mean_absolute_error` (MeanAbsoluteError): prediction and target differ in shape
  8 | metrics: [{type: MeanAbsoluteError, from: [out, y]}]
    |           ^
  expected: a target of shape (batch, 2)
  got: (batch, 4)
  operands: float32 (batch, 2), float32 (batch, 4)
  came from: x (batch, 3) → out (batch, 2)
  came from: y (batch, 4)
4 errors"""


def test_shared_parameters_of_another_shape(tmp_path: Path) -> None:
    text = """\
    netspec: 1
    inputs: {x: {shape: [3]}, y: {shape: [4]}}
    layers:
      - {name: a, type: Dense, from: x, units: 2}
      - {name: b, type: Dense, from: y, units: 2, share: a}
    """
    assert problems(text, tmp_path) == SHARED


SHARED = """\
net.yaml:5:5: error: layer `b` (Dense): the shared parameter `kernel` of `a` has the wrong shape
  5 |   - {name: b, type: Dense, from: y, units: 2, share: a}
    |     ^
  expected: float32 of shape [3, 2]
  got: float32 of shape [4, 2]
  operands: float32 (batch, 4)
  came from: y (batch, 4)"""


def test_multipliers_without_effect_and_reserved_names(tmp_path: Path) -> None:
    text = """\
    netspec: 1
    inputs: {x: {shape: [3]}, y: {shape: [3]}}
    layers:
      - {name: a, type: Dense, units: 3, learning_rate_multiplier: {kernal: 2, bias: 0.5}}
      - {name: flat, type: Flatten, weight_decay_multiplier: {kernel: 2}}
      - {name: b, type: Dense, units: 3, share: a, learning_rate_multiplier: 2}
    losses: [{type: MeanSquaredError, name: regularization, from: [b, y]}]
    metrics: [{type: MeanAbsoluteError, name: loss, from: [b, y]}]
    """
    assert problems(text, tmp_path) == WITHOUT_EFFECT


WITHOUT_EFFECT = """\
net.yaml:4:65: error: layer `a` has no parameter `kernal`
  4 |   - {name: a, type: Dense, units: 3, learning_rate_multiplier: {kernal: 2, bias: 0.5}}
    |                                                                 ^
  expected: one of bias, kernel
  hint: did you mean `kernel`?
net.yaml:5:59: error: layer `flat` has no parameter `kernel`
  5 |   - {name: flat, type: Flatten, weight_decay_multiplier: {kernel: 2}}
    |                                                           ^
  expected: none
net.yaml:6:74: error: layer `b` shares its parameters: its `learning_rate_multiplier` would have no effect
  6 |   - {name: b, type: Dense, units: 3, share: a, learning_rate_multiplier: 2}
    |                                                                          ^
  hint: set it in `a`
net.yaml:7:41: error: a loss can't have the name `regularization`: the name is reserved for the sum of all penalties
  7 | losses: [{type: MeanSquaredError, name: regularization, from: [b, y]}]
    |                                         ^
  expected: a different name
net.yaml:8:43: error: a metric can't have the name `loss`: the name is reserved for the sum of all losses
  8 | metrics: [{type: MeanAbsoluteError, name: loss, from: [b, y]}]
    |                                           ^
  expected: a different name
5 errors"""


@pytest.mark.parametrize("name", ["$rng", "$learning_rate", "$step"])
def test_reserved_names_of_programs_are_rejected(name: str, tmp_path: Path) -> None:
    for text in (
        f"netspec: 1\ninputs: {{{name}: {{shape: [3]}}}}\nlayers: [{{type: Dense, units: 2}}]\n",
        f"netspec: 1\ninputs: {{x: {{shape: [3]}}}}\nlayers: [{{name: {name}, type: Dense, units: 2}}]\n",
    ):
        with pytest.raises(SpecError):
            net(text, tmp_path)


def test_training_requires_losses_and_parameters(tmp_path: Path) -> None:
    bare = "netspec: 1\ninputs: {x: {shape: [3]}, y: {shape: [3]}}\nlayers: [{name: d, type: Dense, units: 3%s}]\n%s"
    loss = "losses: [{type: MeanSquaredError, from: [d, y]}]\n"
    for fields, losses, message in (
        ("", "", "the net has no losses: there is nothing to minimize"),
        (", trainable: false", loss, "there is nothing to train: every layer is frozen"),
        (", learning_rate_multiplier: 0", loss, "there is nothing to train: every layer is frozen"),
    ):
        spec = net(bare % (fields, losses), tmp_path)
        with pytest.raises(SpecError) as caught:
            Compiler(spec, solver=solver())
        assert [problem.message for problem in caught.value.problems] == [message]
        assert caught.value.problems[0].location is not None
    flat = net(
        f"netspec: 1\ninputs: {{x: {{shape: [3]}}, y: {{shape: [3]}}}}\nlayers: [{{name: d, type: Flatten}}]\n{loss}",
        tmp_path,
    )
    with pytest.raises(SpecError, match="nothing to train: no layer has parameters"):
        Compiler(flat, solver=solver())


def test_inputs_of_losses_and_metrics_only_are_omitted(tmp_path: Path) -> None:
    compiler = Compiler(net(CLASSIFIER, tmp_path))
    inputs = {purpose: set(compiler.graph(purpose, 2).inputs()) for purpose in (ProgramKind.PREDICT, ProgramKind.TEST)}
    assert inputs == {ProgramKind.PREDICT: {"image"}, ProgramKind.TEST: {"image", "label"}}
    assert set(compiler.graph(ProgramKind.GRADIENTS, 2).inputs()) == {"image", "label", "$rng"}


def test_all_values_have_the_requested_precision(tmp_path: Path) -> None:
    compiler = Compiler(net(CLASSIFIER, tmp_path), solver=solver("Adam"), dtype=DType.FLOAT64, device="reference")
    for purpose in ProgramKind:
        floats = {value.dtype for node in compiler.graph(purpose, 2).nodes() for value in node.outputs} - {
            DType.BOOL, DType.INT32, DType.INT64,
        }  # fmt: skip
        nothing = purpose is ProgramKind.ADAPT  # this net has no layer to be adapted
        assert floats == (set() if nothing else {DType.FLOAT64})
    results = compiler.program(ProgramKind.TRAIN, 2)(batch(compiler, 2))
    assert results[LOSS].dtype == np.float64
    assert all(compiler.states[name].dtype == np.float64 for name in compiler.states)


LINEAR = """\
netspec: 1
inputs: {x: {shape: [3]}, y: {shape: [3]}}
layers:
  - {name: a, type: Dense, units: 3, kernel_regularizer: {type: L1, l1: 0.1}, bias_initializer: Ones}
  - {name: b, type: Dense, units: 3%s}
losses:
  - {name: first, type: MeanSquaredError, from: [a, y]}
  - {name: second, type: MeanSquaredError, from: [b, y], weight: 0.25}
"""


def gradients(text: str, folder: Path) -> tuple[Compiler, dict[str, np.ndarray]]:
    compiler = Compiler(net(text, folder), dtype=DType.FLOAT64)
    return compiler, compiler.program(ProgramKind.GRADIENTS, 5)(batch(compiler, 5, purpose=ProgramKind.GRADIENTS))


def test_losses_are_weighted_and_include_penalties(tmp_path: Path) -> None:
    compiler, actual = gradients(LINEAR % "", tmp_path)
    data = batch(compiler, 5, purpose=ProgramKind.GRADIENTS)
    w, v = compiler.states["a/kernel"], compiler.states["b/kernel"]
    a = data["x"] @ w + 1
    first, second = (np.mean((value - data["y"]) ** 2) for value in (a, a @ v))
    assert actual["loss/first"] == pytest.approx(first, rel=1e-12)
    assert actual["loss/second"] == pytest.approx(0.25 * second, rel=1e-12)
    assert actual[f"loss/{REGULARIZATION}"] == pytest.approx(0.1 * np.abs(w).sum(), rel=1e-12)
    assert actual[LOSS] == pytest.approx(first + 0.25 * second + 0.1 * np.abs(w).sum(), rel=1e-12)
    tested = compiler.program(ProgramKind.TEST, 5)(data)
    assert set(tested) == {LOSS, "loss/first", "loss/second"}, "penalties are a matter of training"


def test_gradients_of_shared_parameters_are_summed(tmp_path: Path) -> None:
    _, separate = gradients(LINEAR % ", kernel_regularizer: {type: L1, l1: 0.1}", tmp_path)
    compiler, shared = gradients(LINEAR % ", share: a", tmp_path)
    assert sorted(compiler.info) == ["a/bias", "a/kernel"]
    assert set(shared) == set(separate) - {"gradient/b/kernel", "gradient/b/bias"}
    data = batch(compiler, 5, purpose=ProgramKind.GRADIENTS)
    w, epsilon = compiler.states["a/kernel"], 1e-6

    def loss(kernel: np.ndarray) -> float:
        compiler.states.assign("a/kernel", kernel)
        return float(compiler.program(ProgramKind.GRADIENTS, 5)(data)[LOSS])

    for index in np.ndindex(*w.shape):
        step = np.zeros_like(w)
        step[index] = epsilon
        by_differences = (loss(w + step) - loss(w - step)) / (2 * epsilon)  # accurate to 1e-9 in float64
        assert shared["gradient/a/kernel"][index] == pytest.approx(by_differences, rel=1e-6, abs=1e-8)


def test_frozen_layers_and_learning_rate_multipliers(tmp_path: Path) -> None:
    def change(fields: str) -> dict[str, np.ndarray]:
        compiler = Compiler(net(LINEAR % fields, tmp_path), solver=solver(), dtype=DType.FLOAT64)
        before = dict(compiler.states)
        compiler.program(ProgramKind.TRAIN, 5)(batch(compiler, 5))
        return {name: compiler.states[name] - array for name, array in before.items()}

    plain = change("")
    assert all(array.any() for array in plain.values())
    for fields, factors in (
        (", trainable: false", {"b/kernel": 0, "b/bias": 0}),
        (", learning_rate_multiplier: 0", {"b/kernel": 0, "b/bias": 0}),
        (", learning_rate_multiplier: {bias: 0}", {"b/bias": 0}),
        (", learning_rate_multiplier: {bias: 3, kernel: 0.5}", {"b/kernel": 0.5, "b/bias": 3}),
    ):
        changed = change(fields)
        for name, step in plain.items():
            np.testing.assert_allclose(changed[name], factors.get(name, 1) * step, rtol=1e-9, atol=1e-15)


def test_nodes_know_their_layer_and_phase(tmp_path: Path) -> None:
    compiler = Compiler(net(CLASSIFIER, tmp_path), solver=solver("Adam", global_clipnorm=1.0))
    nodes = compiler.plan(ProgramKind.TRAIN, 2).order
    assert {node.scope.phase for node in nodes} == {"forward", "backward", "update"}
    layers = {link for node in nodes if not isinstance(node.op, Input) if (link := node.scope.layer)}
    assert {"conv", "norm", "act", "pool", "hidden", "drop", "logits"} <= layers


PARTS = """\
netspec: 1
inputs: {x: {shape: [5]}, y: {shape: [3]}, parts.y: {shape: [2]}}
layers:
  - {name: parts.1, type: Dense, from: x, units: 2, use_bias: false}
  - {name: parts, type: Split, from: x, sections: [2, 3]}
  - {name: first, type: Activation, activation: linear}
  - {name: exact, type: Activation, from: parts.1, activation: linear}
  - {name: more, type: Split, from: x, sections: [2, 3]}
outputs: [parts.0, first, exact, more.1, more]
losses: [{type: MeanSquaredError, name: part, from: [more.1, y]}]
metrics: [{type: MeanSquaredError, from: [parts, parts.y]}]
"""


def test_layer_outputs_are_read_by_name(tmp_path: Path) -> None:
    built = build(net(PARTS, tmp_path), 4, training=True)
    values = built.values
    assert {name: value.shape for name, value in built.outputs.items()} == {
        "parts.0": (4, 2), "first": (4, 2), "exact": (4, 2), "more.1": (4, 3), "more": (4, 2),
    }  # fmt: skip
    assert values["first"] is values["parts"] is values["parts.0"]
    assert values["exact"] is values["parts.1"]
    assert "parts.1/kernel" in built.builder.states
    assert values["more.1"] is values["more"].node.outputs[1]
    (loss,) = built.losses.values()
    assert built.losses.keys() == {"part"}
    assert loss.shape == ()


def test_gradient_flows_through_the_output_that_is_read(tmp_path: Path) -> None:
    text = """\
    netspec: 1
    inputs: {x: {shape: [3]}, y: {shape: [2]}}
    layers:
      - {name: dense, type: Dense, units: 6}
      - {name: parts, type: Split, sections: 3}
    outputs: [parts.2]
    losses: [{type: MeanSquaredError, from: [parts.2, y]}]
    """
    compiler = Compiler(net(text, tmp_path), solver=solver())
    before = compiler.states["dense/kernel"].copy()
    compiler.program(ProgramKind.TRAIN, 4)(batch(compiler, 4))
    moved = (compiler.states["dense/kernel"] != before).any(axis=0)
    assert moved.tolist() == [False, False, False, False, True, True]
    fed = batch(compiler, 4, purpose=ProgramKind.PREDICT)
    actual = compiler.program(ProgramKind.PREDICT, 4)(fed)["parts.2"]
    expected = fed["x"] @ compiler.states["dense/kernel"] + compiler.states["dense/bias"]
    np.testing.assert_allclose(actual, expected[:, 4:], rtol=1e-5, atol=1e-6)
