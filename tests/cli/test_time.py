"""`netspec time`: every node is timed, sums agree, and no data of the training is needed."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.compile import LEARNING_RATE, STEP, Compiler, ProgramKind
from netspec.graph.ops.random import RNG_INPUT
from netspec.schema.load import load_train
from netspec.solvers.base import SolverSpec
from netspec.tools.measuring import roofline
from netspec.tools.measuring.roofline import Roofline, measure_roofline


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use small matrices and copies, and one call of each: the measured rates are not tested here."""
    monkeypatch.setattr(roofline, "MATRICES", (32,))
    monkeypatch.setattr(roofline, "COPIED", 2**12)
    monkeypatch.setattr(roofline, "BUDGET", 0.0)


def test_json_adds_up(netspec, work):
    (work / "blobs.npz").unlink()  # no data file is needed
    result = netspec("time", "train.yaml", "--steps", "4", "--json").json
    assert (result["name"], result["purpose"], result["solver"], result["batch_size"]) == ("blobs", "train", "SGD", 8)
    assert result["steps"] == 4
    assert 0 < result["fastest_step_seconds"] <= result["step_seconds"]
    assert result["samples_per_second"] == pytest.approx(8 / result["step_seconds"])
    nodes, layers = result["nodes"], result["layers"]
    assert [layer["name"] for layer in layers[:3]] == ["hidden", "logits", "sparse_categorical_crossentropy"]
    assert [layer["type"] for layer in layers[:2]] == ["Dense", "Dense"]
    assert {node["phase"] for node in nodes} == {"forward", "backward", "update"}
    for part in ("seconds", "flops", "bytes", "share", "least_seconds"):
        assert sum(layer[part] for layer in layers) == pytest.approx(sum(node[part] for node in nodes))
    assert sum(layer["share"] for layer in layers) == pytest.approx(1)
    assert result["flops"] == sum(node["flops"] for node in nodes)
    for layer in layers:
        assert layer["seconds"] == pytest.approx(sum(layer["phases"].values()))
        assert layer["of_roofline"] == pytest.approx(layer["least_seconds"] / layer["seconds"])


def test_flops_and_nodes_equal_the_plan(netspec, work):
    program = netspec("plan", "train.yaml", "--json", "--kernels").json
    result = netspec("time", "train.yaml", "--steps", "1", "--json").json
    copies = [node for node in result["nodes"] if node["op"] == "copies of states"]
    assert len(result["nodes"]) - len(copies) == program["programs"]["train"]["nodes"]
    assert result["flops"] == program["programs"]["train"]["flops"]
    planned = [
        (kernel["op"], kernel["layer"], kernel["phase"], kernel["kernel"]) for kernel in program["kernels"]["train"]
    ]
    timed = [
        (node["op"], node["layer"], node["phase"], node["kernel"]) for node in result["nodes"] if node not in copies
    ]
    assert timed == planned


def test_the_timed_program_of_a_net_file(netspec, work):
    training = netspec("time", "net.yaml", "--steps", "1", "--batch-size", "3", "--json").json
    assert (training["purpose"], training["solver"], training["batch_size"]) == ("train", "SGD", 3)
    prediction = netspec("time", "net.yaml", "--steps", "1", "--inference", "--json").json
    assert (prediction["purpose"], prediction["solver"], prediction["batch_size"]) == ("predict", None, 1)
    assert {node["phase"] for node in prediction["nodes"]} == {"forward"}
    assert prediction["flops"] < training["flops"]
    (work / "net.yaml").write_text("netspec: 1\ninputs: {x: {shape: [4]}}\nlayers: [{type: Dense, units: 4}]\n")
    assert netspec("time", "net.yaml", "--steps", "1", "--json").json["purpose"] == "predict"


def test_predictions_of_a_training_that_accumulates_gradients_are_timed(netspec, work):
    words = ("train.yaml", "train.accumulate=2", "--steps", "1", "--json")
    assert netspec.ok("time", *words, "--inference").json["batches"] == 1
    assert netspec.ok("time", *words).json["batches"] == 2


def test_integers_stay_within_their_domains(netspec, work):
    # Only three indices are valid: with any other, the step would fail.
    (work / "net.yaml").write_text(
        "netspec: 1\ninputs: {word: {shape: [50], dtype: int32}}\n"
        "layers: [{type: Embedding, input_dim: 3, output_dim: 2}]\n"
    )
    netspec.ok("time", "net.yaml", "--steps", "1")


def test_text(netspec, work):
    out = netspec("time", "train.yaml", "--steps", "2", "--nodes").out
    assert out.startswith("blobs: training step with SGD, a batch of 8, float32, on ")
    head = next(line for line in out.splitlines() if line.startswith("layer "))
    words = "layer type forward ms backward ms update ms share arithmetic traffic % of roofline"
    assert head.split() == words.split()
    assert "overhead outside operations:" in out
    assert "\ntotal " in out
    assert "reference:" in out or "numba:" in out
    assert all(line == line.rstrip() for line in out.splitlines())
    assert " operation " not in netspec("time", "train.yaml", "--steps", "1").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--batch-size", "0"), "--batch-size must be 1 or more"),
        (("--steps", "0"), "--steps must be 1 or more"),
        (("--device", "null"), "the device `null` only plans"),
        (("--device", "tpu"), "unknown device 'tpu'"),
    ],
)
def test_mistakes(netspec, work, words, message):
    result = netspec("time", "train.yaml", *words)
    assert result.status == 2
    assert message in result.err


def test_a_timed_run_is_a_run(work):
    """Node by node, a step computes the same results and states."""
    spec = load_train(work / "train.yaml")
    assert isinstance(spec.solver, SolverSpec)
    random = np.random.default_rng(1)
    inputs = {
        "features": random.standard_normal((8, 3)),
        "label": random.integers(0, 2, 8),
        LEARNING_RATE: np.array(0.1),
        STEP: np.array(1.0),
        RNG_INPUT: np.array([0, 0, 0]),
    }
    created = []
    for call in ("run", "timed"):
        compiler = Compiler(spec.net, solver=spec.solver)
        program = compiler.program(ProgramKind.TRAIN, 8)
        program.write(inputs)
        getattr(program, call)()
        created.append({**program.read(), **compiler.states})
    ran, timed = created
    assert all(np.array_equal(ran[name], timed[name]) for name in ran)
    assert not np.array_equal(ran["hidden/kernel"], Compiler(spec.net).states["hidden/kernel"])


def test_roofline():
    from netspec.backends.device_registry import open_device

    roofline = measure_roofline(open_device())
    assert roofline.flops_per_second > 0
    assert roofline.bytes_per_second > 0
    roof = Roofline(flops_per_second=10.0, bytes_per_second=2.0)
    assert roof.seconds(flops=100, nbytes=2) == 10.0  # bound by arithmetic
    assert roof.seconds(flops=10, nbytes=20) == 10.0  # bound by memory


def test_an_unknown_autotune_level_gets_the_nearest_one(netspec):
    result = netspec("time", "model_zoo/lenet_mnist/net.yaml", "--autotune", "ful")
    assert result.status == 2
    assert "full" in result.err
