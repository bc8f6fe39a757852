"""The Python interface: public names, accepted arguments, and texts of errors."""

from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pytest
import yaml

import netspec
from netspec.errors import in_python

NET = {
    "netspec": 1,
    "name": "blobs",
    "inputs": {"x": {"shape": [3]}},
    "layers": [{"name": "logits", "type": "Dense", "units": 2}],
}


@pytest.fixture
def folder(current_folder):
    """A folder with a net file, which is the current one."""
    (current_folder / "net.yaml").write_text(yaml.safe_dump(NET, sort_keys=False))
    return current_folder


def test_importing_the_package_loads_no_other_module():
    code = "import netspec, sys; print(*(name for name in sys.modules if name.startswith('netspec.')))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.split() == []


@pytest.mark.parametrize("name", netspec.__all__)
def test_every_public_name_is_documented(name):
    value = getattr(netspec, name)
    assert value.__doc__
    assert name in dir(netspec)


def test_functions_take_files_and_mappings(folder):
    assert netspec.check("net.yaml").parameters == 8
    assert netspec.check(NET).layers == 1
    assert netspec.plan("net.yaml", batch_size=4).costs.layers[0].output_shape == (4, 2)
    assert netspec.time("net.yaml", steps=1, device="reference").solver is None
    assert "lenet_mnist" in [model.name for model in netspec.zoo()]


TRAIN = {
    "netspec": 1,
    "net": {
        **NET,
        "inputs": {"x": {"shape": [3]}, "label": {"shape": [], "dtype": "int32"}},
        "losses": [{"type": "SparseCategoricalCrossentropy", "from": ["logits", "label"], "from_logits": True}],
    },
    "data": {"train": {"source": "npz", "path": "blobs.npz", "batch_size": 4}},
    "solver": {"type": "SGD", "learning_rate": 0.1},
    "train": {"max_steps": 2, "log_every": 1},
}


@pytest.fixture
def training(folder):
    """The current folder with `train.yaml` and its data as well."""
    random = np.random.default_rng(0)
    np.savez(folder / "blobs.npz", x=random.random((8, 3), np.float32), label=np.arange(8, dtype=np.int32) % 2)
    (folder / "train.yaml").write_text(yaml.safe_dump(TRAIN, sort_keys=False))
    return folder


@pytest.mark.slow
def test_commands_are_functions_with_typed_results(training):
    report = netspec.scale("train.yaml", workers=[4, 1], step_time=0.08, strategies=["all_reduce"])
    assert (report.workers, len(report.predictions["all_reduce"])) == ([1, 4], 2)
    data = netspec.inspect_data("train.yaml", max_samples=0)
    assert (data.pipeline.samples, data.scanned.read) == (8, 8)
    assert netspec.plot("train.yaml", schedule=True, output="rate.svg")[0].curves[0].ys == [0.1, 0.1]
    assert (training / "rate.svg").exists()
    assert [device.name for device in netspec.devices().devices if device.is_default] == ["cpu"]
    assert "npz" in [source.name for source in netspec.data_sources()]
    assert "cifar10" in [dataset.name for dataset in netspec.datasets()]
    assert netspec.json_schema("train")["$schema"]
    netspec.zoo_model("lenet_mnist").copy("lenet")
    assert (training / "lenet" / "train.yaml").exists()
    assert {result.problem for result in netspec.check_expectations("train.yaml")} == {None}
    assert netspec.time("train.yaml", steps=1, device="reference").communication is None


SAMPLES = {"x": np.ones((2, 3), "float32")}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished training, whose net and training files are next to its run directory."""
    folder = tmp_path_factory.mktemp("load")
    (folder / "net.yaml").write_text(yaml.safe_dump(TRAIN["net"], sort_keys=False))
    random = np.random.default_rng(0)
    np.savez(folder / "blobs.npz", x=random.random((8, 3), np.float32), label=np.arange(8, dtype=np.int32) % 2)
    data = {"source": "npz", "path": str(folder / "blobs.npz"), "batch_size": 4}
    spec = {**TRAIN, "net": str(folder / "net.yaml"), "data": {"train": data, "test": data}}
    (folder / "train.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    return netspec.train(folder / "train.yaml", run_dir=folder / "run", device="reference")


def test_a_run_has_history_best_weights_and_test(run):
    assert [(event["event"], event["step"]) for event in run.history] == [("log", 1), ("log", 2), ("test", 2)]
    assert run.best_weights == run.run_dir / "best.h5"
    assert run.test.loss == run.history[-1]["loss"]


@pytest.mark.parametrize("name", ["run", "run/best.h5", "run/weights.h5", "run/checkpoints/step-00000002.h5"])
def test_load_accepts_files_of_a_run(run, name):
    model = netspec.load(run.run_dir.parent / name, device="reference")
    assert model.evaluate(run.run_dir.parent / "train.yaml").loss == pytest.approx(run.test.loss)


def test_a_run_that_was_stopped_has_the_weights_of_its_newest_checkpoint(run, tmp_path):
    stopped = tmp_path / "stopped"
    shutil.copytree(run.run_dir, stopped)
    for name in ("best.h5", "weights.h5"):
        (stopped / name).unlink()
    assert netspec.load(stopped, device="reference").evaluate(run.run_dir.parent / "train.yaml").loss == run.test.loss
    assert netspec.test(stopped, device="reference").loss == run.test.loss
    shutil.rmtree(stopped / "checkpoints")
    with pytest.raises(netspec.InputError, match="has no weights"):
        netspec.load(stopped)


@pytest.mark.parametrize("name", ["net.yaml", "train.yaml", "run/spec.yaml"])
def test_load_takes_specs_with_fresh_or_given_weights(run, name):
    spec = run.run_dir.parent / name
    trained, fresh = netspec.load(spec, run.weights, device="reference"), netspec.load(spec, device="reference")
    expected = netspec.load(run.run_dir, device="reference").predict(SAMPLES)["logits"]
    np.testing.assert_array_equal(trained.predict(SAMPLES)["logits"], expected)
    assert (fresh.predict(SAMPLES)["logits"] != expected).any()


@pytest.mark.parametrize(
    "name", ["model.onnx", "model.keras", "model.caffemodel", "model.safetensors", "model.npz", "model.h5"]
)
def test_load_takes_a_model_file_of_any_format(run, name, tmp_path):
    file = tmp_path / name
    netspec.export(run.run_dir, file)
    expected = netspec.load(run.run_dir, device="reference").predict(SAMPLES)["logits"]
    actual = netspec.load(file, device="reference").predict(SAMPLES)["logits"]
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    outputs = netspec.predict(file, SAMPLES, device="reference").outputs["logits"]
    np.testing.assert_array_equal(outputs, actual)


def test_load_reports_the_problem_with_a_path(run, tmp_path):
    with pytest.raises(netspec.InputError, match="no such file"):
        netspec.load(tmp_path / "nothing.yaml")
    with pytest.raises(netspec.InputError, match="is a folder without a spec"):
        netspec.load(tmp_path)
    netspec.export(run.run_dir, tmp_path / "model.weights.h5")
    with pytest.raises(netspec.InputError, match="holds weights without the model they belong to"):
        netspec.load(tmp_path / "model.weights.h5")


def test_public_errors_are_exported():
    assert issubclass(netspec.InputError, netspec.NetspecError)
    assert issubclass(netspec.RunError, netspec.NetspecError)
    assert issubclass(netspec.Interrupted, KeyboardInterrupt)


def test_exchange_functions_take_and_give_models(folder):
    model = netspec.load("net.yaml", device="reference")
    (folder / "run").mkdir()
    (folder / "run" / "net.yaml").write_text((folder / "net.yaml").read_text())
    model.save_weights(folder / "run" / "weights.h5")
    model.save_weights("own.h5")
    exported = netspec.export("run", "model.onnx")
    assert (exported.format, exported.parameters) == ("onnx", 8)
    assert netspec.predict("run", SAMPLES, device="reference").outputs["logits"].shape == (2, 2)
    assert netspec.diff("run", "own.h5").same
    converted = netspec.convert("model.onnx", "again.safetensors")
    assert converted.files[0].exists()
    imported = netspec.import_model("model.onnx", "imported")
    assert (imported.layers, imported.weights) == (1, imported.folder / "weights.h5")


def test_errors_speak_of_arguments(folder):
    with pytest.raises(netspec.InputError) as error:
        netspec.export("net.yaml", "model.onnx")
    assert "`weights` is missing" in str(error.value)
    assert "--weights is missing" in error.value.render()
    with pytest.raises(netspec.InputError, match="`batch_size` must be 1 or more"):
        netspec.plan("net.yaml", batch_size=0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "to go on: netspec train runs/x/spec.yaml --resume",
            'to go on: netspec.train("runs/x/spec.yaml", resume=True)',
        ),
        ("`netspec import FILE --net net.yaml` reads it", '`netspec.import_model("FILE", net="net.yaml")` reads it'),
        ("go on with it by --resume", "go on with it by `resume`"),
        ("`--device cpu` computes without a GPU", '`device="cpu"` computes without a GPU'),
        ("say `--shape data=3,224,224`", 'say `shapes={"data": (3,224,224,)}`'),
        ("`--batch-size 32/worker` sets the batch", "`batch_size=32, per_worker=True` sets the batch"),
        ("`--task text` classifies texts", '`task="text"` classifies texts'),
        ("--step-time must be above 0", "`step_time` must be above 0"),
        ("`--shape x=CHANNELS,HEIGHT`, say", '`shapes={"x": (CHANNELS,HEIGHT,)}`, say'),
        ("expected: --batch-size 4 or more", "expected: `batch_size` 4 or more"),
        ("`netspec plan --kernels` lists them", "`netspec plan --kernels` lists them"),
        ("`docker run --shm-size 4g`", "`docker run --shm-size 4g`"),
    ],
)
def test_options_become_arguments(text, expected):
    assert in_python(text) == expected
