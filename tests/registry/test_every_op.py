"""Every op is documented and tested; inferred types equal computed ones, and gradients equal differences."""

from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import pytest

from netspec.backends.op_call import OpCall, generator
from netspec.graph.autodiff import gradients, pullback
from netspec.graph.op import NoGradient, Op
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, broadcast_shapes
from netspec.graph.value import Value
from netspec.tools.verification.op_calls import calls
from tests.interpret import evaluate
from tests.registry.op_classes import op_classes
from tests.registry.parametrize import each_op

every_call = each_op(dtypes=[DType.FLOAT64])


@pytest.mark.parametrize("cls", op_classes(), ids=lambda cls: cls.__name__)
def test_is_documented_frozen_and_reached(cls: type[Op]) -> None:
    assert "__doc__" in vars(cls)
    assert cls.__doc__
    assert not cls.__doc__.startswith(f"{cls.__name__}("), "the docstring is the one that dataclass makes"
    assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]  # every dataclass has it
    attributes = {name for name, kind in inspect.get_annotations(cls).items() if not kind.startswith("ClassVar")}
    assert attributes <= {field.name for field in dataclasses.fields(cls)}, "attributes want `@dataclass(frozen=True)`"
    assert cls.onnx is not None, "neither an ONNX form nor a reason for having none"
    assert any(type(each.op) is cls for each in calls()), (
        "no layer, loss or metric reaches it: add a sample to netspec/tools/verification/op_calls.py"
    )


@pytest.mark.parametrize("cls", op_classes(), ids=lambda cls: cls.__name__)
def test_has_a_gradient_or_declares_that_it_has_none(cls: type[Op]) -> None:
    has_rule = cls.vjp is not Op.vjp or cls.vjp_outputs is not Op.vjp_outputs or cls.decompose is not Op.decompose
    assert has_rule, "give it `vjp`, `vjp_outputs` or `decompose`, or derive it from NoGradient"


@every_call
def test_computes_the_inferred_types(call: OpCall) -> None:
    evaluate(call.node.outputs, call.feeds)  # the interpreter compares shapes and types


@every_call
def test_is_hashable_and_counts_its_flops(call: OpCall) -> None:
    op = call.op
    copy = type(op)(**{field.name: getattr(op, field.name) for field in dataclasses.fields(op)})
    assert copy == op
    assert hash(copy) == hash(op)
    flops = op.flops(*(value.type for value in call.node.inputs))
    assert isinstance(flops, int)
    assert flops >= 0


@every_call
def test_traits_are_true(call: OpCall) -> None:
    op, node = call.op, call.node
    (y, *rest) = node.outputs
    if op.traits.elementwise:
        assert rest == []
        assert y.shape == broadcast_shapes(*(x.shape for x in node.inputs))
    if op.traits.inplace:
        assert any(x.dtype == y.dtype for x in node.inputs)
    if op.traits.view:
        (array,) = evaluate([y], call.feeds)
        np.testing.assert_array_equal(array.reshape(-1), call.operands[0].reshape(-1))
    if op.traits.pure:
        first, second = (evaluate(node.outputs, call.feeds) for _ in range(2))
        for result, other in zip(first, second, strict=True):
            np.testing.assert_array_equal(result, other)


@every_call
def test_gradient_matches_central_differences(call: OpCall) -> None:
    wrt = [value for value in call.node.inputs if value.dtype.is_float]
    results = [value for value in call.node.outputs if value.dtype.is_float]
    if isinstance(call.op, NoGradient):
        assert pullback(call.node.outputs, [y if y.dtype.is_float else None for y in call.node.outputs], wrt) == [
            None
        ] * len(wrt)
        return
    if not wrt or not results or any(value.dtype != DType.FLOAT64 for value in (*wrt, *results)):
        return  # small differences need float64
    # Masks add -1e9 to scores; next to such values, small steps are lost to rounding.
    clipped = {label: np.clip(x, -1e3, 1e3) for label, x in call.feeds.items() if x.dtype == np.float64}
    feeds, random = call.feeds | clipped, generator(call.name)
    for x in wrt:
        if call.op.is_window_max(x.type):  # equal elements would make the maximum jump with a small step
            label = x.op.label  # type: ignore[attr-defined]  # all are inputs
            feeds[label] = feeds[label] + 1e-4 * random.permutation(x.type.size).reshape(x.shape)
    scalar: Value | None = None
    for index, y in enumerate(results):
        feeds[f"weights{index}"] = random.uniform(-1, 1, y.shape)
        term = ReduceSum()(y * Input(f"weights{index}", y.type)())
        scalar = term if scalar is None else scalar + term
    assert scalar is not None
    # A small step, since operands such as variances may be as small as 0.01.
    step = 1e-6
    labels = [value.op.label for value in wrt]  # type: ignore[attr-defined]  # all are inputs
    direction = {label: random.uniform(-1, 1, feeds[label].shape) for label in labels}
    derivatives = evaluate(gradients(scalar, wrt), feeds)
    by_rule = sum(float((g * d).sum()) for g, d in zip(derivatives, direction.values(), strict=True))

    def moved(by: float) -> float:
        return float(evaluate([scalar], feeds | {n: feeds[n] + by * d for n, d in direction.items()})[0])

    by_differences = (moved(step) - moved(-step)) / (2 * step)
    # Rounding of the differences: 1e-16 · |f| / step ≈ 1e-10 · |f|.
    assert by_rule == pytest.approx(by_differences, rel=1e-6, abs=1e-7)


@every_call
def test_decomposed_and_simplified_forms_compute_the_same(call: OpCall) -> None:
    node, forms = call.node, []
    if type(call.op).decompose is not Op.decompose:
        forms.append(call.op.decompose(*node.inputs))
    simple = call.op.simplify(*node.inputs)
    if simple is not None:
        forms.append(simple)
    for form in forms:
        decomposed = form if isinstance(form, tuple) else (form,)
        assert [y.type for y in decomposed] == [y.type for y in node.outputs]
        with np.errstate(all="ignore"):
            actual, expected = (evaluate(ys, call.feeds) for ys in (decomposed, node.outputs))
        for array, other in zip(actual, expected, strict=True):
            # Sums in another order: each addend is rounded to 1e-16 (6e-8 in float32) of the largest.
            tolerance = 1e-10 if array.dtype != np.float32 else 2e-5
            scale = max(1.0, float(np.abs(other.astype(np.float64)).max(initial=0)))
            np.testing.assert_allclose(array, other, rtol=tolerance, atol=tolerance * scale)


def test_calls_cover_both_precisions() -> None:
    covered = {dtype: {type(call.op) for call in calls(dtype)} for dtype in (DType.FLOAT32, DType.FLOAT64)}
    assert {cls.__name__ for cls in covered[DType.FLOAT64] - covered[DType.FLOAT32]} <= {"Constant"}
