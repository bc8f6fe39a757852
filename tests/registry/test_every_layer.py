"""Tests of all layers, losses and metrics, without code for single classes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from netspec.backends.device import Device
from netspec.backends.device_registry import open_device
from netspec.backends.op_call import generator
from netspec.compile import make_plan
from netspec.exchange.lower.emit import emit
from netspec.graph.graph import Graph
from netspec.graph.onnx_map import NoOnnxForm
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.graph.verify import verify, verify_layouts
from netspec.layers.base import Builder, arity
from netspec.schema.language.provenance import canonical_yaml
from netspec.schema.specs.annotations import fields_by_name
from netspec.schema.specs.docs import field_docs
from netspec.schema.yaml.reader import parse_yaml
from netspec.tools.verification.cases import KINDS, SampleCase, SampleGraph, built, cases, open_case
from tests.interpret import evaluate
from tests.registry.parametrize import different_forms, each_class

CLASSES = [(kind, name) for kind, registry in KINDS.items() for name in registry.names()]


every = each_class(*KINDS)
every_form = each_class(*KINDS, arguments=different_forms, costly=True)
every_layer = each_class("layer", costly=True)
every_differentiable_form = each_class("layer", "loss", arguments=different_forms, costly=True)


@pytest.mark.parametrize(("kind", "name"), CLASSES)
def test_is_documented_and_has_samples(kind: str, name: str) -> None:
    cls: Any = KINDS[kind][name]
    assert cls.samples, "no samples: the suites would pass it by"
    assert "__doc__" in vars(cls)
    assert cls.__doc__, "no docstring: the reference would be empty"
    assert len(cls.__doc__.strip().splitlines()) > 1, "the docstring does not tell the shapes"
    assert fields_by_name(cls).keys() - field_docs(cls).keys() <= {"type"}
    assert cls.build.__doc__, "`build` does not tell its shapes"


@pytest.mark.parametrize(
    "type_", ["BatchNormalization", "Dropout", "FractionalMaxPooling2D", "LSTM", "MultiHeadAttention"]
)
def test_both_forms_of_layers_that_differ_in_training_are_checked(type_: str) -> None:
    forms = [different_forms(case) for case in cases("layer", only=type_)]
    assert any(len(arguments) == 2 for arguments in forms)


@every
def test_round_trips_through_yaml(case: SampleCase) -> None:
    spec = case.spec()
    read_back = KINDS[case.kind].parse(parse_yaml(canonical_yaml(spec), "written.yaml"))
    assert type(read_back) is type(spec)
    assert read_back.model_dump() == spec.model_dump()


@every
def test_accepts_the_number_of_inputs_of_its_samples(case: SampleCase) -> None:
    least, most = arity(type(case.spec()))
    assert least <= len(case.sample.shapes)
    assert most is None or len(case.sample.shapes) <= most


@every_form
def test_the_graph_is_valid(case: SampleCase, training: bool) -> None:
    net = built(case, training)
    verify(net.graph())
    if case.kind == "loss":
        assert net.outputs[0].shape == ()
    if case.kind == "layer":
        assert {y.shape[0] for y in net.outputs} == {case.sample.shapes[0][0]}, "the batch axis was lost"
        assert len(net.outputs) == max(1, len(case.spec().output_names()))


@cache
def planning_device() -> Device:
    return open_device("null")


def directional(graph: SampleGraph, scalar: Value, grads: list[Value], step: float = 1e-5) -> tuple[float, float]:
    """Return the derivative of `scalar` along a random direction of all inputs: by `grads`, and by central differences.

    In float64, the differences have an error of about step² · f‴ / 6 + 1e-16 · |f| / step ≈ 1e-10.
    """
    random = generator(graph.case.id + "direction")
    direction = {name: random.uniform(-1, 1, value.shape) for name, value in graph.wrt.items()}
    derivatives = evaluate(grads, graph.feeds)
    by_rule = sum(float((g * d).sum()) for g, d in zip(derivatives, direction.values(), strict=True))

    def moved(by: float) -> float:
        return float(evaluate([scalar], graph.feeds | {n: graph.feeds[n] + by * d for n, d in direction.items()})[0])

    return by_rule, (moved(step) - moved(-step)) / (2 * step)


@each_class(*KINDS, costly=True)
def test_passes_and_layouts_keep_the_graph_valid(case: SampleCase) -> None:
    """Includes first and second gradients; the kernels of the CPU choose the layouts."""
    assert_plan_is_valid(case, DType.FLOAT32)


@pytest.mark.slow
@each_class(*KINDS)
def test_passes_and_layouts_keep_a_graph_in_bfloat16_valid(case: SampleCase) -> None:
    if case.number == 0:
        assert_plan_is_valid(case, DType.BFLOAT16)


def assert_plan_is_valid(case: SampleCase, stored: DType) -> None:
    plan = make_plan(built(case, True, DType.FLOAT32).graph(), planning_device(), stored)
    verify_layouts(verify(plan.graph), plan.layouts)
    computed = {node for node in plan.order if not (node.op.traits.source or node.op.traits.view)}
    assert plan.choices.keys() == computed


@every_differentiable_form
def test_gradient_matches_central_differences(case: SampleCase, training: bool) -> None:
    net = built(case, training)
    by_rule, by_differences = directional(net, net.scalar, net.gradients)
    # Differences are accurate to about 1e-9; a wrong gradient differs in the first digits.
    assert by_rule == pytest.approx(by_differences, rel=1e-6, abs=1e-8)


@every_differentiable_form
def test_second_gradient_matches_central_differences(case: SampleCase, training: bool) -> None:
    net = built(case, training)
    scalar, second = net.second
    by_rule, by_differences = directional(net, scalar, second)
    assert by_rule == pytest.approx(by_differences, rel=1e-6, abs=1e-7)


@each_class("layer", "loss", costly=True)
def test_every_trainable_parameter_has_a_gradient(case: SampleCase) -> None:
    net = built(case, True)
    trainable = [name for name, state in net.builder.states.items() if state.trainable]
    gradients = dict(zip(net.wrt, evaluate(net.gradients, net.feeds), strict=True))
    assert [name for name in trainable if not np.any(gradients[name])] == []


@every_form
def test_inferred_types_are_computed_and_float32_agrees_with_float64(case: SampleCase, training: bool) -> None:
    """`evaluate` compares the shape and type of each result with the op's rule."""
    results = []
    for dtype in (DType.FLOAT32, DType.FLOAT64):
        net = built(case, training, dtype)
        results.append(evaluate(net.graph().roots(), net.feeds))
    for single, double in zip(*results, strict=True):
        # Sums of some hundred terms, each rounded to 6e-8 of the largest, through a few ops.
        scale = max(1.0, float(np.abs(double).max(initial=0)))
        np.testing.assert_allclose(single, double, rtol=1e-4, atol=2e-5 * scale)


@every_layer
def test_inference_form_has_an_onnx_form(case: SampleCase) -> None:
    net = built(case, False)
    nodes = Graph({str(index): y for index, y in enumerate(net.outputs)}).nodes()
    computing = [node.op for node in nodes if node.inputs or not node.op.traits.source]
    assert [op.name for op in computing if op.onnx is None or isinstance(op.onnx, NoOnnxForm)] == []


@every_layer
def test_training_form_has_an_onnx_form_unless_it_is_random(case: SampleCase) -> None:
    net = built(case, True)
    _, problems = emit(Graph({str(index): y for index, y in enumerate((*net.outputs, *net.builder.updates.values()))}))
    messages = [problem.message for problem in problems]
    assert not messages or any("RandomUniform has no ONNX form" in message for message in messages)


@every
def test_inference_form_updates_no_state(case: SampleCase) -> None:
    assert built(case, False).builder.updates == {}


@every
def test_initial_values_have_the_right_shape_and_depend_only_on_the_seed(case: SampleCase) -> None:
    for name, state in built(case, True).builder.states.items():
        first, repeated = (state.initial.sample(5, name, state.value.shape, "float32") for _ in range(2))
        assert first.shape == state.value.shape
        assert first.dtype == np.float32
        np.testing.assert_array_equal(first, repeated)


@each_class("metric")
def test_metric_of_uneven_batches_equals_the_metric_of_all_samples(case: SampleCase) -> None:
    """Totals of a first batch of 1 and a second with the rest add up to those of all samples; rows are concatenated."""
    metric, full_batch = case.spec(), built(case, False)
    size = case.sample.shapes[0][0]

    def totals_of(outputs: Any, feeds: dict[str, np.ndarray]) -> Any:
        values = evaluate(outputs, feeds)
        return metric.collect(*values) if metric.collects else values

    expected = totals_of(full_batch.outputs, full_batch.feeds)
    parts = []
    for part in (slice(0, 1), slice(1, size)):
        builder = Builder(False, DType.FLOAT64)
        _, inputs = open_case(case, builder, len(range(size)[part]))
        feeds = {name: full_batch.feeds[name][part] for name in builder.inputs}
        parts.append(totals_of(metric.build(builder, *inputs), feeds))
    join: Any = np.concatenate if metric.collects else sum
    totals = [join(values) for values in zip(*parts, strict=True)]
    for total, value in zip(totals, expected, strict=True):
        np.testing.assert_allclose(total, value, rtol=1e-12)
    assert numbers_of(metric.result(*totals)) == pytest.approx(numbers_of(metric.result(*expected)), rel=1e-12)
    nothing = numbers_of(metric.result(*(np.zeros_like(total) for total in totals)))
    assert np.isfinite(list(nothing.values())).all()


def numbers_of(figure: Any) -> dict[str, float]:
    """Return the values of a result by their paths."""
    if not isinstance(figure, Mapping):
        return {"": figure}
    return {f"{key}/{index}": value for key, below in figure.items() for index, value in numbers_of(below).items()}
