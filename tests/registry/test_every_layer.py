"""What must hold of every layer, loss and metric, whatever it computes. There is no code for any one class here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from netspec.backends.device import Device
from netspec.backends.device_registry import open_device
from netspec.compile import make_plan
from netspec.exchange.lower.emit import emit
from netspec.graph.graph import Graph
from netspec.graph.onnx_map import NoOnnxForm
from netspec.graph.types import DType
from netspec.graph.verify import verify, verify_layouts
from netspec.layers.base import Builder, arity
from netspec.schema.language.provenance import canonical_yaml
from netspec.schema.specs.annotations import fields_by_name
from netspec.schema.specs.docs import field_docs
from netspec.schema.yaml.reader import parse_yaml
from tests.interpret import environment, evaluate
from tests.registry.cases import KINDS, Case, built, cases, directional, opened

ALL = cases(*KINDS)
DIFFERENTIABLE = cases("layer", "loss")
CLASSES = [(kind, name) for kind, registry in KINDS.items() for name in registry.names()]


def ids(case: Case) -> str:
    return case.id


every = pytest.mark.parametrize("case", ALL, ids=ids)
every_differentiable = pytest.mark.parametrize("case", DIFFERENTIABLE, ids=ids)
both_forms = pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])


@pytest.mark.parametrize(("kind", "name"), CLASSES)
def test_is_documented_and_has_samples(kind: str, name: str) -> None:
    cls: Any = KINDS[kind][name]
    assert cls.samples, "no samples: the suites would pass it by"
    assert "__doc__" in vars(cls)
    assert cls.__doc__, "no docstring: the reference would be empty"
    assert len(cls.__doc__.strip().splitlines()) > 1, "the docstring does not tell the shapes"
    assert fields_by_name(cls).keys() - field_docs(cls).keys() <= {"type"}
    assert cls.build.__doc__, "`build` does not tell its shapes"


@every
def test_survives_yaml(case: Case) -> None:
    spec = case.spec()
    again = KINDS[case.kind].parse(parse_yaml(canonical_yaml(spec), "written.yaml"))
    assert type(again) is type(spec)
    assert again.model_dump() == spec.model_dump()


@every
def test_takes_as_many_inputs_as_its_samples_give(case: Case) -> None:
    least, most = arity(type(case.spec()))
    assert least <= len(case.sample.shapes)
    assert most is None or len(case.sample.shapes) <= most


@every
@both_forms
def test_infers_the_types_it_computes_and_passes_the_verifier(case: Case, training: bool) -> None:
    one = built(case, training)
    graph = verify(one.graph())
    environment(graph.roots(), one.feeds)  # checks each node's shape and type against its rule
    if case.kind == "loss":
        assert one.outputs[0].shape == ()
    if case.kind == "layer":
        assert {y.shape[0] for y in one.outputs} == {case.sample.shapes[0][0]}, "the batch axis was lost"
        assert len(one.outputs) == max(1, len(case.spec().output_names()))


@pytest.fixture(scope="module")
def planning() -> Device:
    return open_device("null")


@pytest.mark.parametrize(
    ("case", "stored"),
    [*((case, DType.FLOAT32) for case in ALL), *((case, DType.BFLOAT16) for case in ALL if case.number == 0)],
    ids=lambda value: value.id if isinstance(value, Case) else str(value),
)
def test_passes_and_layouts_leave_a_graph_that_the_verifier_takes(case: Case, stored: DType, planning: Device) -> None:
    """With gradients, and gradients of gradients: the kernels of the processor say how all of it is to lie."""
    plan = make_plan(built(case, True, DType.FLOAT32).graph(), planning, stored)
    verify_layouts(verify(plan.graph), plan.layouts)
    assert plan.choices.keys() == {one for one in plan.order if not (one.op.traits.source or one.op.traits.view)}


@every_differentiable
@both_forms
def test_gradient_is_that_of_central_differences(case: Case, training: bool) -> None:
    one = built(case, training)
    by_rule, by_differences = directional(one, one.scalar, one.gradients)
    # Differences are good to about 1e-9 of the numbers involved; a wrong rule is off in the first digits.
    assert by_rule == pytest.approx(by_differences, rel=1e-6, abs=1e-8)


@every_differentiable
@both_forms
def test_gradient_of_the_gradient_is_that_of_central_differences(case: Case, training: bool) -> None:
    one = built(case, training)
    scalar, second = one.second
    by_rule, by_differences = directional(one, scalar, second)
    assert by_rule == pytest.approx(by_differences, rel=1e-6, abs=1e-7)


@every_differentiable
def test_every_trainable_parameter_gets_a_gradient(case: Case) -> None:
    one = built(case, True)
    trainable = [name for name, state in one.builder.states.items() if state.trainable]
    found = dict(zip(one.wrt, evaluate(one.gradients, one.feeds), strict=True))
    assert [name for name in trainable if not np.any(found[name])] == []


@every
@both_forms
def test_float32_agrees_with_float64(case: Case, training: bool) -> None:
    results = []
    for dtype in (DType.FLOAT32, DType.FLOAT64):
        one = built(case, training, dtype)
        results.append(evaluate(one.graph().roots(), one.feeds))
    for single, double in zip(*results, strict=True):
        # Sums of some hundred terms, each rounded at 6e-8 of the largest, through a few ops.
        scale = max(1.0, float(np.abs(double).max(initial=0)))
        np.testing.assert_allclose(single, double, rtol=1e-4, atol=2e-5 * scale)


@pytest.mark.parametrize("case", cases("layer"), ids=ids)
def test_inference_form_can_be_written_in_onnx(case: Case) -> None:
    one = built(case, False)
    nodes = Graph({str(index): y for index, y in enumerate(one.outputs)}).nodes()
    computing = [node.op for node in nodes if node.inputs or not node.op.traits.source]
    assert [op.name for op in computing if op.onnx is None or isinstance(op.onnx, NoOnnxForm)] == []


@pytest.mark.parametrize("case", cases("layer"), ids=ids)
def test_training_form_can_be_written_in_onnx_unless_it_draws(case: Case) -> None:
    one = built(case, True)
    _, problems = emit(Graph({str(index): y for index, y in enumerate((*one.outputs, *one.builder.updates.values()))}))
    told = [problem.message for problem in problems]
    assert not told or any("RandomUniform has no ONNX form" in message for message in told)


@every
def test_inference_form_changes_no_state(case: Case) -> None:
    assert built(case, False).builder.updates == {}


@every
def test_starts_with_values_of_the_right_shape_that_depend_on_the_seed_alone(case: Case) -> None:
    for name, state in built(case, True).builder.states.items():
        first, again = (state.initial.sample(5, name, state.value.shape, "float32") for _ in range(2))
        assert first.shape == state.value.shape
        assert first.dtype == np.float32
        np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("case", cases("metric"), ids=ids)
def test_metric_of_uneven_batches_is_that_of_the_whole(case: Case) -> None:
    """Totals of batches of 1 and the rest add up to the totals of all samples at once."""
    whole = built(case, False)
    expected = evaluate(whole.outputs, whole.feeds)
    size = case.sample.shapes[0][0]
    totals = [np.zeros_like(total) for total in expected]
    for part in (slice(0, 1), slice(1, size)):
        builder = Builder(False, DType.FLOAT64)
        _, inputs = opened(case, builder, len(range(size)[part]))
        feeds = {name: whole.feeds[name][part] for name in builder.inputs}
        for total, more in zip(totals, evaluate(case.spec().build(builder, *inputs), feeds), strict=True):
            total += more
    for total, value in zip(totals, expected, strict=True):
        np.testing.assert_allclose(total, value, rtol=1e-12)
    assert numbers_of(case.spec().result(*totals)) == pytest.approx(
        numbers_of(case.spec().result(*expected)), rel=1e-12
    )
    nothing = numbers_of(case.spec().result(*(np.zeros_like(total) for total in totals)))
    assert np.isfinite(list(nothing.values())).all()


def numbers_of(figure: Any) -> dict[str, float]:
    """The numbers of a figure by where they stand."""
    if not isinstance(figure, Mapping):
        return {"": figure}
    return {f"{key}/{place}": one for key, below in figure.items() for place, one in numbers_of(below).items()}
