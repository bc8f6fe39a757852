"""The Python interface: load, predict, gradients, parameters, evaluation."""

from __future__ import annotations

import inspect
import pydoc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.data.loader import open_loader
from netspec.errors import InputError
from netspec.schema.load import load_train
from netspec.training.evaluation import open_evaluation_loader
from netspec.training.evaluation import test as evaluate_weights
from tests.training.conftest import NET

Make = Callable[..., dict[str, Any]]
RNG = np.random.default_rng(5)


@pytest.fixture
def model() -> netspec.Model:
    return netspec.load(NET, precision="float64", seed=2)


def x(count: int) -> Any:
    return RNG.normal(size=(count, 6))


def test_predictions_do_not_depend_on_the_batch_size(model: netspec.Model) -> None:
    p = dict(model.parameters)
    p["norm/moving_mean"], p["norm/moving_variance"] = RNG.normal(size=16), RNG.uniform(0.5, 2, size=16)
    for name in ("norm/moving_mean", "norm/moving_variance"):
        model.parameters[name] = p[name]
    inputs = x(11)
    hidden = np.maximum(inputs @ p["fc1/kernel"] + p["fc1/bias"], 0)
    scale = p["norm/gamma"] / np.sqrt(p["norm/moving_variance"] + 1e-3)
    expected = ((hidden - p["norm/moving_mean"]) * scale + p["norm/beta"]) @ p["logits/kernel"] + p["logits/bias"]
    predictions = model.predict({"x": inputs})
    assert list(predictions) == ["logits"]
    np.testing.assert_allclose(
        predictions["logits"], expected, rtol=1e-12
    )  # in float64, only the order of additions differs
    for size in (1, 3, 11, 100):
        parts = model.predict({"x": inputs}, batch_size=size)["logits"]
        np.testing.assert_allclose(parts, expected, rtol=1e-12)


@pytest.mark.slow
def test_gradients_belong_to_the_sum_of_losses() -> None:
    model = netspec.load(NET, precision="float64", seed=2, device="reference")
    batch = {"x": x(8), "label": RNG.integers(0, 3, 8)}
    losses, gradients = model.loss_and_gradients(batch, seed=9, step=4)
    assert set(losses) == {"sparse_categorical_crossentropy", "regularization"}
    assert set(gradients) == {name for name in model.parameters if "moving" not in name}
    step = 1e-6  # central differences in float64: error about step² = 1e-12 and rounding 1e-16 / step = 1e-10
    for name, gradient in gradients.items():
        direction = RNG.normal(size=gradient.shape)
        start = model.parameters[name]
        ends = []
        for sign in (1, -1):
            model.parameters[name] = start + sign * step * direction
            ends.append(sum(model.loss_and_gradients(batch, seed=9, step=4)[0].values()))
        model.parameters[name] = start
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(
            float((gradient * direction).sum()), rel=1e-6, abs=1e-8
        )


def test_computing_gradients_changes_no_state(model: netspec.Model) -> None:
    before = {name: array.tobytes() for name, array in model.parameters.items()}
    model.loss_and_gradients({"x": x(4), "label": np.zeros(4, np.int64)})
    assert before == {name: array.tobytes() for name, array in model.parameters.items()}


def test_parameters_are_read_as_copies_and_assigned_by_value(model: netspec.Model) -> None:
    copy = model.parameters["fc1/bias"]
    copy[:] = 7
    assert not model.parameters["fc1/bias"].any()
    model.parameters["fc1/bias"] = copy
    assert (model.parameters["fc1/bias"] == 7).all()
    with pytest.raises(InputError, match="the wrong shape"):
        model.parameters["fc1/bias"] = np.zeros(3)
    with pytest.raises(KeyError):
        model.parameters["fc1/nothing"] = copy
    with pytest.raises(TypeError, match="none can be removed"):
        del model.parameters["fc1/bias"]


def test_the_repr_of_a_model_summarizes_it(model: netspec.Model) -> None:
    assert repr(model) == "<Model small: 195 parameters on cpu>"  # 6·16 + 16 + 2·16 + 16·3 + 3; no moving statistics
    assert repr(model.parameters).startswith("<Parameters: fc1/kernel [6, 16], fc1/bias [16], ")


def test_an_unknown_parameter_name_suggests_the_nearest(model: netspec.Model) -> None:
    with pytest.raises(KeyError, match="no parameter `fc1/bia`: did you mean `fc1/bias`"):
        model.parameters["fc1/bia"]
    assert "fc1/bia" not in model.parameters


def test_an_array_without_a_name_gets_a_hint(model: netspec.Model) -> None:
    for call in (model.predict, model.loss_and_gradients):
        with pytest.raises(InputError, match=r"expected: a mapping \{input: array\}: \{'x': …\}\n.*shape \[4, 6\]"):
            call(x(4))


def test_train_is_a_documented_function() -> None:
    parameters = inspect.signature(netspec.train).parameters
    assert list(parameters) == [
        "spec", "run_dir", "resume", "weights", "samples", "device", "listeners", "callbacks", "overrides",
    ]  # fmt: skip
    assert "Train a net as described in a training file" in pydoc.plain(pydoc.render_doc(netspec.train))
    train: Any = netspec.train
    with pytest.raises(TypeError, match=r"takes 1 positional argument"):
        train("train.yaml", "runs/a")
    assert {"Callback", "CallbackSpec", "Model", "Run", "load", "train"} <= set(dir(netspec))


def test_all_wrong_inputs_are_reported_at_once(model: netspec.Model) -> None:
    with pytest.raises(InputError) as caught:
        model.loss_and_gradients({"X": x(4), "x": x(4)[:, :5], "label": np.array([0, 1, 2, 3])})
    assert [problem.render() for problem in caught.value.problems] == [
        "error: the net has no input `X`\n  expected: one of label, x\n  hint: did you mean `x`?",
        "error: the input `x` has the wrong shape\n  expected: float64 of shape [N, 6] with N ≥ 1\n  got: [4, 5]",
        (
            "error: `label` is out of range\n"
            "  expected: 0 to 2: `logits` has `units: 3`, one for each class\n  got: 0 to 3"
        ),
    ]
    with pytest.raises(InputError, match="the input `x` is missing"):
        model.predict({"label": np.zeros(2, np.int32)})
    with pytest.raises(InputError, match="the wrong type"):
        model.predict({"x": np.full((2, 6), "a")})
    with pytest.raises(InputError, match="different numbers of samples"):
        model.loss_and_gradients({"x": x(4), "label": np.zeros(3, np.int32)})


def test_weights_round_trip_through_a_file(model: netspec.Model, tmp_path: Path) -> None:
    model.save_weights(tmp_path / "w.h5")
    other = netspec.load(NET, tmp_path / "w.h5", precision="float64", seed=77)
    assert all(array.tobytes() == other.parameters[name].tobytes() for name, array in model.parameters.items())


def test_evaluation_covers_each_sample_once_whatever_the_batch_size(spec: Make, tmp_path: Path) -> None:
    run = netspec.train(spec(max_steps=20), run_dir=tmp_path / "run")
    assert run.test is not None
    model = netspec.load(run.run_dir / "spec.yaml", run.weights)
    data = np.load(tmp_path / "test.npz")
    logits = model.predict({"x": data["x"]})["logits"].astype(np.float64)
    label = data["label"]
    accuracy = (logits.argmax(1) == label).mean()
    entropy = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(label)), label]
    assert run.test.samples == 57
    assert run.test.metrics["accuracy"] == accuracy
    training = load_train(spec())
    for size in (1, 7, 57, 100):
        source = training.data.test.model_copy(update={"batch_size": size}) if training.data.test else None
        assert source is not None
        with open_loader(source, seed=1) as loader:
            evaluation = model.evaluate(loader)
        assert evaluation.samples == 57
        assert evaluation.metrics["accuracy"] == accuracy
        # Penalties are not evaluated. Sums of 57 terms in float32 differ by a few units in the 7th digit.
        assert evaluation.loss == pytest.approx(entropy.mean(), rel=2e-6)


@pytest.mark.parametrize("form", ["arrays", "source", "list", "tuples", "stream"])
def test_samples_can_be_arrays_rows_or_streams(model: netspec.Model, tmp_path: Path, form: str) -> None:
    arrays = {"x": x(20).astype(np.float32), "label": RNG.integers(0, 3, 20).astype(np.int32)}
    np.savez(tmp_path / "data.npz", **arrays)
    rows = [{"x": image, "label": label} for image, label in zip(arrays["x"], arrays["label"], strict=True)]
    forms: dict[str, Any] = {
        "arrays": arrays,
        "source": {"source": "npz", "path": str(tmp_path / "data.npz"), "transforms": []},
        "list": rows,
        "tuples": list(zip(arrays["x"], arrays["label"], strict=True)),
        "stream": lambda: iter(rows),
    }
    expected = model.predict({"x": arrays["x"]})["logits"]
    for size in (None, 7):  # in float64, only the order of additions differs
        np.testing.assert_allclose(model.predict(forms[form], size)["logits"], expected, rtol=1e-12)
        evaluation = model.evaluate(forms[form], batch_size=size)
        assert evaluation.samples == 20
        assert evaluation.metrics["accuracy"] == (expected.argmax(1) == arrays["label"]).mean()


def test_other_data_is_transformed_with_values_learned_in_training(spec: Make, tmp_path: Path) -> None:
    training = spec()
    for split in training["data"].values():
        split["transforms"] = [{"type": "Normalization", "apply_to": "x", "adapt": True}]
    run = netspec.train(training, run_dir=tmp_path / "run")
    model = netspec.load(run.run_dir / "spec.yaml", run.weights)
    assert model.evaluate(training["data"]["test"]) == run.test
    with np.load(tmp_path / "test.npz") as stored:
        label = stored["label"]
    logits = model.predict(training["data"]["test"])["logits"]
    assert run.test is not None
    assert (logits.argmax(1) == label).mean() == run.test.metrics["accuracy"]


def test_samples_that_do_not_fit_the_net_are_reported(model: netspec.Model) -> None:
    with pytest.raises(InputError, match="unknown data source 'nzp'"):
        model.evaluate({"source": "nzp"})
    with pytest.raises(InputError, match="`npz` needs `path`, which is missing") as caught:
        model.predict({"source": "npz", "limt": 3})
    assert [problem.path for problem in caught.value.problems] == ["limt", "path"]
    with pytest.raises(InputError, match="a generator can be iterated only once"):
        model.predict(row for row in [{"x": x(1)[0]}])
    with pytest.raises(InputError, match="the object does not hold samples"):
        model.evaluate(7)
    with pytest.raises(InputError, match="`label` is 9, out of range"):
        model.evaluate({"x": x(2), "label": np.array([1, 9])})
    with pytest.raises(InputError, match="`batch_size` is wrong"):
        model.evaluate({"x": x(2), "label": np.array([1, 2])}, batch_size=0)


def test_evaluating_saved_weights_repeats_the_results_of_the_run(spec: Make, tmp_path: Path) -> None:
    run = netspec.train(spec(), run_dir=tmp_path / "run")
    assert evaluate_weights(run.run_dir / "spec.yaml", run.weights) == run.test
    training = load_train(run.run_dir / "spec.yaml")
    model = netspec.load(training.net, run.weights)
    with (
        open_loader(training.data.train, seed=3) as train,
        open_evaluation_loader(training, "test", model.compiler, train.learned) as t,
    ):
        assert model.evaluate(t) == run.test


def test_a_model_is_evaluated_on_the_test_data_of_a_training(spec: Make, tmp_path: Path) -> None:
    training = spec()
    for split in training["data"].values():
        split["transforms"] = [{"type": "Normalization", "apply_to": "x", "adapt": True}]
    run = netspec.train(training, run_dir=tmp_path / "run")
    model = netspec.load(run.run_dir / "spec.yaml", run.weights)
    assert model.evaluate(run.run_dir / "spec.yaml") == run.test
    assert model.evaluate(training) == run.test
    (step,) = model.preprocessing.transforms or ()
    assert (step["input"], step["type"], len(step["mean"])) == ("x", "Normalization", 6)
    model.save_weights(tmp_path / "copy.h5")
    assert netspec.load(NET, tmp_path / "copy.h5").preprocessing == model.preprocessing
    fresh = netspec.load(NET)
    fresh.parameters.update(model.parameters)
    assert fresh.evaluate(training) == run.test  # statistics that were not loaded are learned from the training data
    with pytest.raises(InputError, match="has no test data"):
        model.evaluate(NET)


def test_a_net_without_training_cannot_be_tested(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no test data") as caught:
        evaluate_weights(NET, tmp_path / "none.h5")
    assert "the spec.yaml of a run" in str(caught.value.problems[0].hint)
