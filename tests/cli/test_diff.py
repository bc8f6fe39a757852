"""`netspec diff`: layers, settings, weights and results of two nets."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, save

from netspec.exchange.formats.native.hdf5 import read_weights, write_weights
from netspec.exchange.formats.native.npz import write_npz
from netspec.exchange.formats.native.safetensors import write_safetensors
from netspec.exchange.formats.pytorch.state_dicts import to_state_dict

RUN = ("diff", "run")


def test_nothing_differs_between_a_run_and_its_weights(netspec, trained):
    result = netspec(*RUN, "run/best.h5", "--exit-code")
    assert (result.status, result.err) == (0, "")
    assert result.out.endswith("no difference\n")


def test_a_model_that_came_back_computes_the_same(netspec, trained):
    netspec.ok("export", "net.yaml", "--weights", "run/best.h5", "--output", "model.onnx")
    result = netspec(*RUN, "model.onnx", "--json").json
    assert all(weight["loadable"] for weight in result["weights"])
    assert max(result["outputs"].values()) < 1e-4  # float32 through a few products


def test_weights_that_differ_are_named_with_how_far(netspec, trained):
    stored = read_weights("run/best.h5")
    name = next(iter(stored.arrays))
    arrays = {**stored.arrays, name: stored.arrays[name] + np.float32(0.5)}
    write_weights("other.h5", arrays, net=stored.net)
    result = netspec(*RUN, "other.h5", "--exit-code")
    assert result.status == 1
    assert f"  {name}: largest difference 0.5 (relative " in result.out
    assert "largest difference" in result.out


def test_weights_that_are_not_finite_are_named(netspec, trained):
    stored = read_weights("run/best.h5")
    name = next(iter(stored.arrays))
    arrays = {**stored.arrays, name: stored.arrays[name] * np.float32(np.nan)}
    write_weights("nan.h5", arrays, net=stored.net)
    result = netspec("diff", "nan.h5", "nan.h5")
    assert f"weights that are not finite:\n  {name}: in A and B\n" in result.out
    result = netspec(*RUN, "nan.h5", "--exit-code")
    assert result.status == 1
    assert f"  {name}: in B\n" in result.out
    size = stored.arrays[name].size
    assert f"  {name}: NaN on one side alone: {size} of {size} numbers\n" in result.out
    assert "NaN on one side alone: " in next(line for line in result.out.splitlines() if line.startswith("output "))
    for target in ("nan.npz", "nan.onnx"):
        result = netspec("convert", "nan.h5", target)
        assert f"note: the weights `{name}` hold values that are not finite" in result.err
        assert "gives no finite value: NaN or infinite alike on both sides: " in result.out
    written = netspec("convert", "nan.h5", "nan.npz", "--json").json
    assert written["max_abs_difference"] is None
    assert written["comparison"]["same_not_finite"] == written["comparison"]["size"] > 0


def test_layers_and_settings(netspec, trained):
    text = Path("net.yaml").read_text()
    Path("wide.yaml").write_text(text.replace("{width: 4}", "{width: 5}"))
    result = netspec.ok("diff", "net.yaml", "wide.yaml")
    assert "units: 4 → 5" in result.out
    assert "weights that do not fit:" in result.out
    assert "outputs were not compared: A, B have no weights" in result.out
    both = netspec("diff", "train.yaml", "train.yaml", "--json").json
    assert both["same"]
    other = Path("train.yaml").read_text() + "\nname: other\n"
    Path("faster.yaml").write_text(other.replace("learning_rate: ", "learning_rate: 1"))
    assert "solver.learning_rate" in netspec("diff", "train.yaml", "faster.yaml").out


def test_layers_without_names(netspec, current_folder):
    net = "netspec: 1\ninputs: {x: {shape: [4]}}\nlayers: [{type: Dense, units: UNITS}, {type: Dense, units: 2}]\n"
    Path("one.yaml").write_text(net.replace("UNITS", "3"))
    Path("two.yaml").write_text(net.replace("UNITS", "4"))
    netspec.ok("diff", "one.yaml", "one.yaml", "--exit-code")
    result = netspec("diff", "one.yaml", "two.yaml", "--json").json
    assert [(layer["before"], layer["after"]) for layer in result["layers"]] == [("dense", "dense")]


IMAGES = """
netspec: 1
inputs: {image: {shape: [1, 8, 8]}, label: {shape: [], dtype: int32}}
layers:
  - {name: conv, type: Conv2D, filters: 2, kernel_size: 5, padding: same}
  - {name: pool, type: MaxPooling2D, pool_size: 2}
  - {name: flat, type: Flatten}
  - {name: y, type: Dense, units: 3}
outputs: [y]
"""


def test_a_padding_that_comes_to_the_same_is_the_same(netspec, current_folder):
    Path("a.yaml").write_text(IMAGES)
    other = IMAGES.replace("padding: same", "padding: [[2, 2], [2, 2]]").replace(
        "pool_size: 2", "pool_size: 2, strides: 2"
    )
    Path("b.yaml").write_text(other)
    result = netspec.ok("diff", "a.yaml", "b.yaml", "--exit-code")
    assert result.out.endswith("no difference between the nets\n")
    Path("b.yaml").write_text(IMAGES.replace("padding: same", "padding: [[1, 3], [2, 2]]"))
    assert "padding.0.0: 2 → 1" in netspec("diff", "a.yaml", "b.yaml").out


def test_added_layers_are_printed_without_defaults(netspec, current_folder):
    loss = "losses: [{type: SparseCategoricalCrossentropy, from: [y, label], from_logits: true, name: loss}]\n"
    Path("a.yaml").write_text(IMAGES)
    Path("b.yaml").write_text(IMAGES + loss)
    fields = "{name: loss, type: SparseCategoricalCrossentropy, from: [y, label], from_logits: true}"
    assert f"  losses.loss: - → {fields}\n" in netspec("diff", "a.yaml", "b.yaml").out


def test_weights_on_only_one_side_are_a_difference(netspec, trained):
    result = netspec("diff", "run", "net.yaml", "--exit-code")
    assert result.status == 1
    assert "outputs were not compared: B has no weights" in result.out
    assert result.out.endswith("A alone has weights\n")


def test_mistakes_of_both_sides_are_reported_at_once(netspec, trained):
    result = netspec("diff", "nothing.onnx", "run/spec.yam")
    assert result.status == 2
    assert "nothing.onnx" in result.err
    assert "run/spec.yam" in result.err
    Path("empty").mkdir()
    assert "a folder without a spec" in netspec("diff", "empty", "net.yaml").err


@pytest.mark.parametrize("name", ["own.h5", "own.npz", "torch.safetensors", "blobs.weights.h5", "blobs.caffemodel.h5"])
def test_a_weights_file_takes_the_net_of_the_other_side(netspec, trained, name):
    stored = read_weights("run/best.h5")
    if name == "own.h5":
        write_weights(name, stored.arrays)
    elif name == "own.npz":
        write_npz(Path(name), stored.arrays)
    elif name == "torch.safetensors":
        write_safetensors(name, to_state_dict(stored.arrays), {})
    else:
        netspec.ok("export", "net.yaml", "--weights", "run/best.h5", "--output", name)
    for sides in ((name, "run"), ("run", name), (name, "net.yaml")):
        result = netspec("diff", *sides)
        assert (result.status, result.err) == (0, "")
        assert "4 of 4 weights can be loaded" in result.out
        compared = "output logits: largest difference 0, on 2 random samples" in result.out
        assert compared == ("run" in sides)
    both = netspec("diff", name, name)
    assert both.status == 2
    assert "weights without" in both.err


def test_a_net_of_another_program_without_weights(netspec, trained):
    netspec.ok("export", "net.yaml", "--weights", "run/best.h5", "--output", "blobs.prototxt")
    result = netspec("diff", "blobs.prototxt", "net.yaml")
    assert (result.status, result.err) == (0, "")
    assert "4 of 4 weights can be loaded" in result.out
    assert "outputs were not compared: A, B have no weights" in result.out


def test_shapes_that_models_leave_open_are_reported(netspec, trained):
    result = netspec("diff", "run", "run/best.h5", "--shape", "features=three")
    assert result.status == 2
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Relu", ["x"], ["y"])], "open",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "size"])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", "size"])],
        )
    )  # fmt: skip
    save(model, "open.onnx")
    assert netspec("diff", "open.onnx", "open.onnx").status == 2
    result = netspec("diff", "open.onnx", "open.onnx", "--shape", "size=5")
    assert (result.status, result.err) == (0, "")
    assert result.out.endswith("no difference\n")


def test_results_of_runs_are_compared_at_the_end_at_their_best_and_at_equal_steps(netspec, work):
    for name, *changes in (("a", "solver.learning_rate=0.01"), ("b", "train.max_steps=16", "train.seed=3")):
        words = "train", "train.yaml", "train.test_every=4", "solver.momentum=0", *changes, "--run-dir", name
        netspec.ok(*words)
    by_name = {figure["name"]: figure for figure in netspec("diff", "a", "b", "--json").json["results"]}
    assert set(by_name) == {"train/loss", "train/accuracy", "test/loss", "test/accuracy"}
    loss = by_name["test/loss"]
    assert [step for step, *_ in loss["curve"]] == [4, 8, 12]
    assert loss["last"][0] == loss["curve"][-1][1]
    first, other = netspec("plot", "a", "b", "--metric", "loss", "--json").json[0]["curves"][1::2]
    assert [loss["last"][1], loss["best"][1]] == [other["y"][-1], min(other["y"])]
    assert loss["best_steps"][0] == first["x"][first["y"].index(min(first["y"]))]
    text = netspec("diff", "a", "b").out
    assert re.search(
        r"^  test/loss: \S+ → \S+; best \S+ → \S+ at step \d+ → \d+; \S+ → \S+ at step 12 of both$", text, re.MULTILINE
    )
    assert re.search(r"^ +step +train/loss +train/accuracy +test/loss", text, re.MULTILINE)


def test_a_run_does_not_differ_from_itself_and_a_file_has_no_results(netspec, trained):
    netspec.ok("diff", "run", "run", "--exit-code")
    assert netspec("diff", "run", "net.yaml", "--json").json["results"] == []
