"""Models that mix samples become nets of a single sample; a batch may also be another axis, or part of one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from netspec.errors import InputError
from netspec.exchange.formats.onnx.importing import import_onnx
from netspec.exchange.formats.onnx.messages import open_session
from netspec.exchange.interface import ImportOptions
from tests.exchange.lift.models.generic import agrees, chain, floats, imported, ints, layers_of, model, node, random
from tests.exchange.lift.models.single_sample import IN_BATCHES, WHOLE, joined

READ_WHOLE = "the whole model is imported as one sample; all inputs and outputs get a batch axis in front"


def computed(proto: onnx.ModelProto, **inputs: np.ndarray) -> list[np.ndarray]:
    feeds = {name: np.asarray(array) for name, array in inputs.items()}
    results: list[np.ndarray] = open_session(proto.SerializeToString()).run(None, feeds)
    return results


@pytest.mark.parametrize("name", WHOLE)
def test_a_single_sample_model_is_computed_for_each_sample(name: str, tmp_path: Path) -> None:
    proto, line = WHOLE[name]
    net, text = imported(proto, tmp_path)
    shape = tuple(size.dim_value for size in proto.graph.input[0].type.tensor_type.shape.dim)
    assert net.spec.inputs["x"].shape == shape
    x = random.normal(size=(2, *shape)).astype("float32")
    expected = np.stack([computed(proto, x=sample)[0] for sample in x])
    np.testing.assert_allclose(net.predict({"x": x})["y"], expected, rtol=1e-5, atol=1e-5)
    assert layers_of(text)[-1] == line


@pytest.mark.parametrize("name", IN_BATCHES)
def test_samples_are_kept_apart(name: str, tmp_path: Path) -> None:
    proto, line = IN_BATCHES[name]
    net, text = imported(proto, tmp_path)
    axes = proto.graph.input[0].type.tensor_type.shape.dim
    batch = next((axis for axis, size in enumerate(axes) if not size.dim_value), 0)
    x = random.normal(size=(axes[batch].dim_value or 3, *net.spec.inputs["x"].shape)).astype("float32")
    (expected,) = computed(proto, x=np.moveaxis(x, 0, batch))
    np.testing.assert_allclose(net.predict({"x": x})["y"], expected, rtol=1e-5, atol=1e-5)
    assert layers_of(text)[-1] == line


def test_the_only_open_size_is_requested_if_it_is_not_the_batch(tmp_path: Path) -> None:
    proto = model([node("Conv", "x w", "y")], (1, 2, 6, "image_width"), w=floats(3, 2, 3, 3))
    with pytest.raises(InputError, match="image_width"):
        imported(proto, tmp_path)
    net, _ = imported(proto, tmp_path, shapes={"image_width": (5,)})
    assert net.spec.inputs["x"].shape == (2, 6, 5)


def test_a_mask_per_window_is_computed_for_a_single_sample(tmp_path: Path) -> None:
    """As in Swin: computed for the placeholder of a dynamic batch size, the mask would be too large."""
    nodes = [
        *chain("s = Shape x", "n = Gather s zero", "u = Unsqueeze n at", "f = Concat u rest", "r = Expand mask f",
               "t = Mul r two", "k = Reshape t windows", "y = Add x k", Gather={"axis": 0}, Concat={"axis": 0}),
    ]  # fmt: skip
    proto = model(nodes, ("N", 4, 12, 12), zero=np.int64(0), at=ints(0), rest=ints(4, 12, 12), two=np.float32(2),
                 mask=floats(1, 4, 12, 12), windows=ints(-1, 4, 12, 12))  # fmt: skip
    net, _ = imported(proto, tmp_path)
    x = random.normal(size=(3, 1, 4, 12, 12)).astype("float32")
    expected = [computed(proto, x=sample)[0] for sample in x]
    np.testing.assert_allclose(net.predict({"x": x})["y"], expected, rtol=1e-6)  # float32, one product


def test_the_batch_axis_of_states_is_moved_to_the_front(tmp_path: Path) -> None:
    proto = joined(
        [node("MatMul", "h w", "z"), node("Squeeze", "z a", "s"), node("Add", "x s", "y"), node("Tanh", "z", "k")],
        {"x": ["batch", 3], "h": [1, "batch", 4]}, "y k", w=floats(4, 3), a=ints(0),
    )  # fmt: skip
    net, _ = imported(proto, tmp_path)
    assert net.spec.inputs["h"].shape == (1, 4)
    x, h = random.normal(size=(5, 3)).astype("float32"), random.normal(size=(1, 5, 4)).astype("float32")
    y, k = computed(proto, x=x, h=h)
    results = net.predict({"x": x, "h": h.swapaxes(0, 1)})
    np.testing.assert_allclose(results["y"], y, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(results["k"].swapaxes(0, 1), k, rtol=1e-5, atol=1e-5)
    assert import_onnx(tmp_path / "model.onnx").notes == (
        "the input `h` has its samples in front here, not as axis 1",
        "the output `k` has its samples in front here, not as axis 1",
    )


def test_outputs_may_be_constants_inputs_and_each_other(tmp_path: Path) -> None:
    proto = joined(
        [node("Relu", "x", "r"), node("Shape", "x", "s"), node("Cast", "s", "c", to=1), node("Identity", "r", "t")],
        {"x": [2, 3]}, "r x c t k", k=floats(2, 2),
    )  # fmt: skip
    net, _ = imported(proto, tmp_path)
    x = random.normal(size=(2, 2, 3)).astype("float32")
    results = net.predict({"x": x})
    assert len(results) == 5
    for index, y in enumerate(results.values()):
        expected = np.stack([computed(proto, x=sample)[index] for sample in x])
        np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_a_note_reports_that_the_model_takes_a_single_sample(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(model([node("ReduceSum", "x a")], ("N", 3), a=ints(0)).SerializeToString())
    assert import_onnx(tmp_path / "m").notes == (
        f"{READ_WHOLE}: node `y` (ReduceSum, opset 13): it operates along the batch axis",
        "axis 0 of `x` is taken to have the size 1: `--shape` gives another",
    )
    imported = import_onnx(tmp_path / "m", ImportOptions(shapes={"N": (5,)}))
    assert "x: {shape: [5, 3]}" in imported.net
    assert len(imported.notes) == 1


@pytest.mark.parametrize("constant", [floats(1, 3), floats(3), floats(3, 2)])
def test_constant_outputs_have_the_batch_size_of_the_model(constant: np.ndarray, tmp_path: Path) -> None:
    proto = joined([node("Relu", "x"), node("Identity", "c", "k")], {"x": [3, 2]}, "y k", c=constant)
    agrees(proto, tmp_path)
    first = [node("Shape", "x", "n", end=1), node("Cast", "n", "k", to=1)]
    agrees(joined([node("Relu", "x"), *first], {"x": [3, 2]}, "y k"), tmp_path)


def test_a_constant_output_of_open_batches_is_repeated_for_each_sample(tmp_path: Path) -> None:
    proto = joined([node("Relu", "x"), node("Identity", "c", "k")], {"x": ["N", 2]}, "y k", c=floats(1, 3))
    net, _ = imported(proto, tmp_path)
    assert net.predict({"x": floats(2, 2)})["k"].shape == (2, 3)
    (note,) = import_onnx(tmp_path / "model.onnx").notes
    assert note == "the output `k` is a constant, which the net repeats for each sample"


SCALED = chain("s = Shape x", "n = Gather s first", "f = Cast n", Cast={"to": 1})


@pytest.mark.parametrize(("batch", "expected_shape"), [(3, True), ("N", True), (1, False)])
def test_a_model_that_computes_with_its_batch_size_is_a_single_sample(
    batch: int | str, expected_shape: bool, tmp_path: Path
) -> None:
    proto = model([*SCALED, node("Mul", "x f")], (batch, 4), first=np.array(0))
    if batch != "N":
        agrees(proto, tmp_path)
    imported(proto, tmp_path)
    notes = import_onnx(tmp_path / "model.onnx").notes
    message = f"{READ_WHOLE}: node `y` (Mul, opset 13): its result depends on the batch size"
    assert (message in notes) == expected_shape


def test_a_note_warns_that_the_batch_size_may_enter_computations(tmp_path: Path) -> None:
    """The model cannot be tried with another batch size, since a constant contains it."""
    nodes = [*SCALED, *chain("a = Reshape x t", "b = Mul a f", "y = Reshape b u")]
    proto = model(nodes, (3, 4, 5), first=np.array(0), t=ints(12, 5), u=ints(3, 4, 5))
    agrees(proto, tmp_path)
    note = "the model may compute with its batch size, 3, as a constant"
    assert note in import_onnx(tmp_path / "model.onnx").notes


@pytest.mark.parametrize("training", [True, False])
def test_a_note_on_dropout_that_is_always_active(training: bool, tmp_path: Path) -> None:
    proto = model([node("Dropout", "x rate on", name="drop")], ("N", 4), rate=np.float32(0.5), on=np.array(training))
    imported(proto, tmp_path)
    note = "node `drop` (Dropout, opset 13) drops elements in inference too; in netspec it does not"
    assert import_onnx(tmp_path / "model.onnx").notes == ((note,) if training else ())


@pytest.mark.parametrize(
    ("shapes", "actual"),
    [
        ({"x": (2, 4, 6)}, (2, 4, 6)), ({"x": (9, 2, 4, 6)}, (2, 4, 6)), ({"high": (4,), "wide": (6,)}, (2, 4, 6)),
        ({"x": (2, 4, 6), "wide": (6,)}, (2, 4, 6)),
    ],
)  # fmt: skip
def test_sizes_are_given_with_the_batch_without_it_or_by_name(
    shapes: dict[str, tuple[int, ...]], actual: tuple[int, ...], tmp_path: Path
) -> None:
    net, _ = imported(model([node("Relu", "x")], ("N", 2, "high", "wide")), tmp_path, shapes=shapes)
    assert net.spec.inputs["x"].shape == actual


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({}, "or `--shape high=… --shape wide=…`"), ({"x": (3, 4, 6)}, "the shape given for `x` is not its"),
        ({"high": (3, 4)}, "`high` is an axis"), ({"hihg": (3,)}, "did you mean `high`"),
        ({"x": (2, 999_999_999, 6)}, "the input `x` is too large"), ({"x": (4,)}, "is not its"),
    ],
)  # fmt: skip
def test_sizes_that_are_missing_or_do_not_fit_are_reported(
    shapes: dict[str, tuple[int, ...]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        imported(model([node("Relu", "x")], ("N", 2, "high", "wide")), tmp_path, shapes=shapes)
    assert message in error.value.render()
