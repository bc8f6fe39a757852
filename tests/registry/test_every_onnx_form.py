"""Exported ONNX models give equal results in ONNX Runtime: every layer with an open batch axis, and every op."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from netspec.backends.op_call import OpCall
from netspec.errors import InputError
from netspec.exchange.formats.onnx.exporting import to_onnx
from netspec.exchange.formats.onnx.messages import LOWEST_OPSET, open_session
from netspec.graph.graph import Graph
from netspec.graph.onnx_map import NoOnnxForm, OnnxMap
from netspec.graph.op import Op
from netspec.graph.types import DType
from netspec.graph.value import in_scope
from netspec.layers.base import Builder
from netspec.tools.verification.cases import SampleCase, apply_spec, built, open_case
from tests.interpret import evaluate
from tests.registry.parametrize import each_class, each_op


def has_onnx_form(call: OpCall) -> bool:
    """Whether the op has an ONNX form and is deterministic."""
    is_random = type(call.op).deterministic_form is not Op.deterministic_form
    return not isinstance(call.op.onnx, NoOnnxForm) and bool(call.node.inputs) and not is_random


def agree(actual: Any, expected: np.ndarray) -> None:
    assert actual.shape == expected.shape
    # Both compute in float32 and add some hundred terms in different orders.
    scale = max(1.0, float(np.abs(expected.astype(np.float64)).max(initial=0)))
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-6 * scale)


def inference(case: SampleCase, size: int) -> Graph:
    """Return the layer in inference form, for another batch size than the sample's."""
    builder = Builder(False, DType.FLOAT32)
    scope, inputs = open_case(case, builder, size)
    with in_scope(scope):
        net = apply_spec(case.spec(), builder, inputs)
    outputs = net if isinstance(net, tuple) else (net,)
    return Graph({f"y{index}": y for index, y in enumerate(outputs)})


@each_class("layer", costly=True)
def test_layer_computes_the_same_for_any_batch(case: SampleCase) -> None:
    net = built(case, False, DType.FLOAT32)
    states = {label: net.feeds[label] for label in net.builder.states}
    model = to_onnx(lambda size: inference(case, size), states)
    session = open_session(model.model.SerializeToString())
    arrays = {label: array for label, array in net.feeds.items() if label.startswith(("x", "mask"))}
    read = {argument.name for argument in session.get_inputs()}
    for size in (case.sample.shapes[0][0], 1):
        fed = {label: array[:size] for label, array in arrays.items()}
        results = session.run(None, {label: array for label, array in fed.items() if label in read})
        outputs = inference(case, size).outputs
        assert [argument.name for argument in session.get_outputs()] == list(outputs)
        for actual, expected in zip(results, evaluate(list(outputs.values()), {**states, **fed}), strict=True):
            agree(actual, expected)


@each_class("layer", costly=True, others=pytest.mark.exhaustive)
def test_layer_computes_the_same_in_the_oldest_opset(case: SampleCase) -> None:
    net = built(case, False, DType.FLOAT32)
    states = {label: net.feeds[label] for label in net.builder.states}
    try:
        model = to_onnx(lambda size: inference(case, size), states, opset=LOWEST_OPSET)
    except InputError as refused:
        assert "can't be written in ONNX opset" in str(refused)  # noqa: PT017  # one of two outcomes
        return
    session = open_session(model.model.SerializeToString())
    read = {argument.name for argument in session.get_inputs()}
    size = case.sample.shapes[0][0]
    outputs = list(inference(case, size).outputs.values())
    results = session.run(None, {label: array for label, array in net.feeds.items() if label in read})
    for actual, expected in zip(results, evaluate(outputs, net.feeds), strict=True):
        agree(actual, expected)


@each_op(dtypes=[DType.FLOAT32], applies=has_onnx_form)
def test_op_computes_the_same(call: OpCall) -> None:
    # ONNX does not have the other results, such as the indices of maxima.
    y = call.node.outputs[0]
    model = to_onnx(lambda _: Graph({"y": y}), {}, batch=1)
    (actual,) = open_session(model.model.SerializeToString()).run(None, call.feeds)
    agree(actual, evaluate([y], call.feeds)[0])


def is_decoded(call: OpCall) -> bool:
    """Whether all of ONNX's attributes are fields of the op; those of ConvTranspose depend on its input's size."""
    form, field_names = call.op.onnx, {field.name for field in fields(call.op)}
    return (
        isinstance(form, OnnxMap)
        and {codec.path.partition(".")[0] for codec in form.attributes.values()} == field_names
    )


@each_op(dtypes=[DType.FLOAT32], applies=lambda call: has_onnx_form(call) and is_decoded(call))
def test_op_is_decoded_from_its_attributes(call: OpCall) -> None:
    form = call.op.onnx
    assert isinstance(form, OnnxMap)
    assert form.decode(type(call.op), form.encode(call.op)) == call.op
