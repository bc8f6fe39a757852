"""Export to ONNX: familiar names, a dynamic batch axis, and no model with different results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from netspec.errors import InputError, RunError
from netspec.exchange.formats.onnx import messages
from netspec.exchange.formats.onnx.exporting import export_onnx, export_verified, preflight_onnx, to_onnx
from netspec.exchange.formats.onnx.messages import newest_opset, open_session
from netspec.exchange.formats.onnx.verify import Verifier
from netspec.exchange.formats.registry import Exportable, ExportOptions, Lost
from netspec.exchange.numeric_diff import compare
from netspec.graph.graph import Graph
from netspec.graph.ops.elementwise import Maximum
from netspec.graph.ops.random import RandomUniform
from netspec.graph.ops.reduce import Broadcast, ReduceSum
from netspec.graph.ops.shape import Reorder, Reshape
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Scope, in_scope
from tests.exchange.nets import LENET, Net, net_data


@pytest.fixture(scope="module")
def lenet() -> Net:
    return Net.of(LENET)


def test_names_equal_the_net(lenet: Net, tmp_path: Path) -> None:
    report = export_onnx(lenet.graph, lenet.states, tmp_path / "m.onnx", name="lenet", metadata={"spec": "abc"})
    model = onnx.load(tmp_path / "m.onnx")
    graph = model.graph
    assert (graph.name, model.producer_name) == ("lenet", "netspec")
    assert {prop.key: prop.value for prop in model.metadata_props} == {"spec": "abc"}
    assert report.inputs == {"image": ("N", 2, 8, 8)}
    assert report.outputs == {"logits": ("N", 5), "probabilities": ("N", 5)}
    assert {initializer.name for initializer in graph.initializer} > lenet.states.keys()
    tensors = {name for node in graph.node for name in node.output}
    assert {layer.name for layer in lenet.spec.layers} <= tensors
    first = graph.node[0]  # the bias is an operand of the convolution, instead of a separate Add
    assert (first.op_type, first.name) == ("Conv", "conv1/Conv")
    assert list(first.input) == ["image", "conv1/kernel", "conv1/bias"]
    assert report.parameters == sum(array.size for array in lenet.states.values())
    assert report.nbytes == (tmp_path / "m.onnx").stat().st_size


def test_the_same_net_gives_the_same_bytes(lenet: Net, tmp_path: Path) -> None:
    for name in ("a", "b"):
        export_onnx(lenet.graph, lenet.states, tmp_path / name, metadata={"x": "1", "y": "2"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_verified_export_reports_the_largest_difference(lenet: Net, tmp_path: Path) -> None:
    report = export_verified(lenet.graph, lenet.states, tmp_path / "m.onnx", lenet.predict)
    assert report.comparison is not None
    assert 0 <= report.comparison.whole.max_abs < 1e-5
    props = {prop.key: prop.value for prop in onnx.load(tmp_path / "m.onnx").metadata_props}
    worst = report.comparison.whole.max_abs
    assert float(props["verified_max_abs_difference"]) == pytest.approx(worst, rel=0.01, abs=1e-12)


def test_a_fixed_batch_stays_fixed(lenet: Net, tmp_path: Path) -> None:
    report = export_verified(lenet.graph, lenet.states, tmp_path / "m.onnx", lenet.predict, batch=4)
    assert report.inputs["image"] == (4, 2, 8, 8)
    session = open_session((tmp_path / "m.onnx").read_bytes())
    assert session.get_inputs()[0].shape == [4, 2, 8, 8]


@pytest.mark.parametrize("opset", [11, 13, 17, 21])
def test_older_opsets(lenet: Net, tmp_path: Path, opset: int) -> None:
    assert export_verified(lenet.graph, lenet.states, tmp_path / "m", lenet.predict, opset=opset).opset == opset
    assert onnx.load(tmp_path / "m").opset_import[0].version == opset


def test_onnxruntime_runs_the_operators_around_a_net_in_the_chosen_opset(
    lenet: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = newest_opset()
    monkeypatch.setattr(messages, "_runs", lambda op_type, opset: op_type != "StringNormalizer" or opset < newest)
    assert to_onnx(lenet.graph, lenet.states).opset == newest
    assert to_onnx(lenet.graph, lenet.states, around=("StringNormalizer",)).opset == newest - 1


def test_an_opset_without_the_operator(tmp_path: Path) -> None:
    inputs = {name: {"shape": [3], "dtype": "int32"} for name in "xy"}
    net = Net.of(net_data({"name": "most", "type": "Maximum", "from": ["x", "y"]}, inputs=inputs))
    with pytest.raises(InputError, match=r"layer `most` .* can't be written in ONNX opset 11") as error:
        to_onnx(net.graph, net.states, opset=11)
    assert "its Max takes no int32" in error.value.render()
    assert f"the newest here is {newest_opset()}" in error.value.render()
    with pytest.raises(InputError, match="cannot write ONNX opset 99"):
        to_onnx(net.graph, net.states, opset=99)


@pytest.mark.parametrize("opset", [17, None])
def test_a_type_that_no_opset_takes_has_no_hint(opset: int | None) -> None:
    shifted = {"name": "shifted", "type": "Expression", "expr": "shift_left(x, 2)", "keep_types": True}
    net = Net.of(net_data(shifted, inputs={"x": {"shape": [3], "dtype": "int32"}}))
    with pytest.raises(InputError) as error:
        to_onnx(net.graph, net.states, opset=opset)
    assert [(problem.got, problem.hint) for problem in error.value.problems] == [("its BitShift takes no int32", None)]


def x(*shape: int, dtype: DType = DType.FLOAT32) -> Any:
    return Input("x", TensorType(shape, dtype))()


def test_all_ops_without_an_onnx_form_are_reported() -> None:
    def graph(size: int) -> Graph:
        with in_scope(Scope("left", "Odd")):
            left = Reorder()(x(size, 4))
        with in_scope(Scope("right", "Random")):
            right = RandomUniform(TensorType((size, 4), DType.FLOAT32), 0)(Input("r", TensorType((3,), DType.INT64))())
        with in_scope(Scope("behind", "Odd")):
            behind = Reorder()(left + right)
        with in_scope(Scope("spread", "Repeat")):
            spread = Broadcast((size, 3, 4))(Reshape((1, 1, 4))(ReduceSum((0,))(behind)))
        integers = Input("w", TensorType((size, 2), DType.INT32))()
        with in_scope(Scope("new", "Largest")):
            return Graph({"y": spread, "z": Maximum()(integers, integers)})

    # All layers without a form are reported at once, before any training.
    messages = [
        "layer `left` (Odd): Reorder has no ONNX form",
        "layer `right` (Random): RandomUniform has no ONNX form",
        "layer `behind` (Odd): Reorder has no ONNX form",
        "layer `spread` (Repeat) depends on the batch size",
        "layer `new` (Largest) can't be written in ONNX opset 11",
    ]
    with pytest.raises(InputError) as error:
        to_onnx(graph, {}, opset=11)
    assert [problem.message for problem in error.value.problems] == messages
    problems = preflight_onnx(Exportable(Net.of(LENET).spec, {}, graph), ExportOptions(opset=11)).problems
    assert [problem.message for problem in problems] == messages


def test_a_net_is_checked_without_its_weights(lenet: Net) -> None:
    bare = Exportable(lenet.spec, {}, lenet.graph)
    assert preflight_onnx(bare, ExportOptions()) == Lost([])
    with pytest.raises(InputError, match="cannot write ONNX opset 99"):
        preflight_onnx(bare, ExportOptions(opset=99))


def test_a_layer_that_depends_on_the_batch_size_is_reported() -> None:
    def graph(size: int) -> Graph:
        with in_scope(Scope("spread", "Repeat")):
            return Graph({"y": Broadcast((size, 3, 4))(x(1, 3, 1))})

    with pytest.raises(InputError, match=r"layer `spread` .* depends on the batch size"):
        to_onnx(graph, {})
    assert to_onnx(graph, {}, batch=2).dims["y"] == (2, 3, 4)


def test_repeating_along_another_axis_does_not_depend_on_the_batch_size() -> None:
    model = to_onnx(lambda size: Graph({"y": Broadcast((size, 3, 4))(x(size, 3, 1))}), {}).model
    samples = np.arange(15, dtype="float32").reshape(5, 3, 1)
    (y,) = open_session(model.SerializeToString()).run(None, {"x": samples})
    np.testing.assert_array_equal(y, samples.repeat(4, 2))


def test_outputs_that_are_one_tensor_keep_their_names() -> None:
    def graph(size: int) -> Graph:
        inputs = x(size, 3)
        with in_scope(Scope("one", "Negate")):
            y = -inputs
        return Graph({"one": y, "two": y, "three": inputs})

    session = open_session(to_onnx(graph, {}).model.SerializeToString())
    samples = np.ones((2, 3), "float32")
    first, two, three = session.run(["one", "two", "three"], {"x": samples})
    assert (first == -samples).all()
    assert (two == -samples).all()
    assert (three == samples).all()


def test_tensors_are_called_as_the_outputs_of_layers() -> None:
    parts = {"name": "parts", "type": "Split", "sections": [1, 2], "from": "x"}
    flatten = {"name": "one", "type": "Flatten", "from": "parts.1"}
    net = Net.of(net_data(parts, flatten, inputs={"x": {"shape": [3, 2]}}, outputs=["one", "parts.0"]))
    exported = to_onnx(net.graph, {})
    assert exported.graph.tensors == {"parts": "parts.0", "parts.1": "parts.1", "one": "one"}
    assert [node.outputs for node in exported.graph.nodes] == [("parts.0", "parts.1"), ("one",)]
    x = np.arange(12, dtype="float32").reshape(2, 3, 2)
    results = open_session(exported.model.SerializeToString()).run(["one", "parts.0"], {"x": x})
    np.testing.assert_array_equal(results[0], x[:, 1:].reshape(2, 4))
    np.testing.assert_array_equal(results[1], x[:, :1])


def test_weights_must_fit(lenet: Net) -> None:
    states = {**lenet.states, "fc1/bias": np.zeros(7, "float32")}
    del states["conv1/kernel"]
    with pytest.raises(InputError) as error:
        to_onnx(lenet.graph, states)
    assert {problem.message for problem in error.value.problems} == {
        "the weights lack `conv1/kernel`",
        "`fc1/bias` has the wrong shape",
    }


def test_a_model_that_differs_is_not_written_and_its_layer_is_named(lenet: Net, tmp_path: Path) -> None:
    other = Net(lenet.spec, {**lenet.states, "beside/bias": lenet.states["beside/bias"] + 1})
    with pytest.raises(RunError, match="the first layer to differ is `beside`") as error:
        export_verified(lenet.graph, lenet.states, tmp_path / "m", other.predict, all_values=other.layers)
    assert "small_lenet.yaml:11:" in error.value.render()
    assert not list(tmp_path.iterdir())


def test_samples_passed_by_the_caller_are_compared(lenet: Net, tmp_path: Path) -> None:
    # more samples than one batch
    samples = {"image": np.random.default_rng(0).normal(size=(67, 2, 8, 8)).astype("float32")}
    report = export_verified(lenet.graph, lenet.states, tmp_path / "m.onnx", lenet.predict, user_inputs=samples)
    assert report.on_user_inputs is not None
    assert set(report.on_user_inputs.max_abs) == {"logits", "probabilities"}
    assert 0 <= report.on_user_inputs.whole.max_abs < 1e-5

    def wrong_at_last(inputs: Any) -> Any:
        outputs = lenet.predict(inputs)
        is_last = (inputs["image"] == samples["image"][-1]).all((1, 2, 3))
        return {**outputs, "logits": outputs["logits"] + is_last[:, None]}

    with pytest.raises(RunError) as error:
        export_verified(lenet.graph, lenet.states, tmp_path / "n.onnx", wrong_at_last, user_inputs=samples)
    assert "in `logits`, for the samples given, from sample 64 on" in error.value.render()
    assert not (tmp_path / "n.onnx").exists()
    with pytest.raises(InputError, match="do not fill whole batches"):
        export_verified(lenet.graph, lenet.states, tmp_path / "n.onnx", lenet.predict, user_inputs=samples, batch=2)


def test_how_far_results_may_be_apart_is_chosen(lenet: Net, tmp_path: Path) -> None:
    def a_little_off(inputs: Any) -> Any:
        return {name: array + 1e-3 for name, array in lenet.predict(inputs).items()}

    with pytest.raises(RunError, match="computes something else"):
        export_verified(lenet.graph, lenet.states, tmp_path / "m.onnx", a_little_off)
    report = export_verified(lenet.graph, lenet.states, tmp_path / "m.onnx", a_little_off, tolerance=1e-2)
    assert report.comparison is not None
    assert report.comparison.whole.max_abs == pytest.approx(1e-3, rel=0.1)


def test_weights_too_large_for_one_file_are_external(tmp_path: Path) -> None:
    def files() -> list[str]:
        return sorted(path.name for path in tmp_path.iterdir())

    conv = {"name": "conv1", "type": "Conv2D", "filters": 16, "kernel_size": 3}
    net = Net.of(net_data(conv, {"type": "Flatten"}, {"type": "Dense", "units": 5}))
    path = tmp_path / "m.onnx"
    report = export_verified(net.graph, net.states, path, net.predict, inside=0)
    assert report.data is not None
    assert files() == ["m.onnx", report.data.name]
    assert report.nbytes == sum((tmp_path / name).stat().st_size for name in files())
    model = onnx.load(path, load_external_data=False)
    separate = {
        tensor.name: {entry.key: entry.value for entry in tensor.external_data} for tensor in model.graph.initializer
    }
    large = {name for name, array in net.states.items() if array.nbytes >= 1024}
    assert large == {name for name, entries in separate.items() if entries}
    assert large
    for name in large:
        assert separate[name]["location"] == report.data.name
        assert int(separate[name]["offset"]) % 4096 == 0
    image = np.ones((2, 2, 8, 8), "float32")
    assert Verifier(path, net.predict)({"image": image}).whole.max_abs < 1e-5
    onnx.checker.check_model(path)
    assert export_onnx(net.graph, net.states, tmp_path / "m.onnx", inside=0).data == report.data  # a deterministic file

    other = Net(net.spec, {name: array + 1 for name, array in net.states.items()})
    with pytest.raises(RunError, match="the first layer to differ is `conv1`"):
        export_verified(net.graph, other.states, path, net.predict, all_values=net.layers, inside=0)
    assert files() == ["m.onnx", report.data.name]  # the old files are unchanged
    second = export_verified(other.graph, other.states, path, other.predict, inside=0)
    assert second.data is not None
    assert second.data != report.data
    assert files() == ["m.onnx", second.data.name]
    assert export_onnx(net.graph, net.states, path).data is None
    assert files() == ["m.onnx"]


def test_verify_reads_a_file(lenet: Net, tmp_path: Path) -> None:
    export_onnx(lenet.graph, lenet.states, tmp_path / "m.onnx")
    image = np.ones((2, 2, 8, 8), "float32")
    verify = Verifier(tmp_path / "m.onnx", lenet.predict)
    assert verify({"image": image, "label": np.zeros(2)}).whole.max_abs < 1e-5
    with pytest.raises(RunError, match="onnxruntime cannot run"):
        verify.check({"image": image[:, :1]}, {})


@pytest.mark.parametrize(
    ("ours", "theirs", "difference", "scaled"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.5, 0.25),
        ([0.1], [0.3], 0.2, 0.2),
        ([np.nan, np.inf], [np.nan, np.inf], 0.0, 0.0),
        ([np.nan, 5.0], [1.0, 5.0], np.inf, np.inf),
        ([np.inf], [-np.inf], np.inf, np.inf),
        ([np.inf], [1.0], np.inf, np.inf),
        ([1.0], [1.0, 1.0], np.inf, np.inf),
        ([], [], 0.0, 0.0),
    ],
)
def test_differences(ours: list[float], theirs: list[float], difference: float, scaled: float) -> None:
    gap = compare({"y": np.array(ours)}, {"y": np.array(theirs)})
    assert gap.gaps["y"].max_abs == pytest.approx(difference)
    assert gap.gaps["y"].scaled == pytest.approx(scaled)


def test_a_missing_output_is_a_difference() -> None:
    assert compare({"y": np.zeros(1)}, {}).whole.max_abs == np.inf
