"""`model`: which layers are split, which can't be, and that a plan agrees with theory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from netspec.compile import Compiler
from netspec.distributed.cost_model.collectives import ring
from netspec.distributed.cost_model.networks import NETWORKS, Cluster
from netspec.distributed.cost_model.plans import TrainingJob, traffic
from netspec.distributed.cost_model.strategies import STRATEGIES, choose_splits
from netspec.distributed.cost_model.workload import ComputeModel, DenseShape, StepCost
from netspec.distributed.session import WorkerSession
from netspec.distributed.strategies.base import Strategy
from netspec.errors import SpecError
from netspec.schema.load import load_train
from netspec.tools.planning.scale import as_trained, layers_of
from netspec.tools.planning.worker_plan import SimulatedCommunicator, worker_traffic
from netspec.training.compiler import training_compiler

LAYERS: list[dict[str, Any]] = [
    {"name": "conv", "type": "Conv2D", "filters": 4, "kernel_size": 3, "activation": "relu"},
    {"name": "flat", "type": "Flatten"},
    {"name": "fc1", "type": "Dense", "units": 96, "activation": "relu"},
    {"name": "drop", "type": "Dropout", "rate": 0.5},
    {"name": "fc2", "type": "Dense", "units": 64, "activation": "relu"},
    {"name": "logits", "type": "Dense", "units": 10},
]


def given(layers: dict[str, str], samples: int = 16, **more: Any) -> dict[str, Any]:
    return {
        "netspec": 1,
        "net": {
            "netspec": 1,
            "inputs": {"x": {"shape": [1, 12, 12]}, "label": {"shape": [], "dtype": "int32"}},
            "layers": LAYERS,
            "losses": [{"type": "SparseCategoricalCrossentropy", "from": ["logits", "label"], "from_logits": True}],
        },
        "data": {"train": {"source": "npz", "path": "none.npz", "batch_size": samples}},
        "solver": {"type": "Adam", "learning_rate": 0.01},
        "train": {"max_steps": 1},
        "parallel": {"strategy": "model", "layers": layers},
        **more,
    }  # fmt: skip


def compiled(spec: dict[str, Any], workers: int = 4) -> Compiler:
    read = load_train(spec)
    assert isinstance(read.parallel, Strategy)
    return training_compiler(read, "null", WorkerSession(SimulatedCommunicator(workers, workers), read.parallel))


@pytest.mark.parametrize(
    "layers",
    [
        {},
        {"fc1": "columns", "fc2": "columns", "logits": "whole"},
        {"fc1": "columns", "fc2": "rows", "logits": "rows"},
        {"fc1": "rows", "fc2": "columns", "logits": "rows"},
        {"fc1": "whole", "fc2": "columns", "logits": "whole"},
    ],
)
def test_plan_sends_theoretical_bytes(layers: dict[str, str]) -> None:
    """Gradients and activations; losses, weights of samples, gaps and stop requests are sent as well."""
    spec, workers = load_train(given(layers)), 4
    actual = worker_traffic(spec, workers, 1, 16)
    work = StepCost(16, tuple(layer for layer, _ in layers_of(spec)))
    network = NETWORKS["ib-hdr"]
    cluster = Cluster(workers, network, network)
    job = as_trained(TrainingJob(ComputeModel((work,)), 16, algorithm=ring), spec)
    expected = traffic(STRATEGIES["model"].plan(job, cluster), {"worker": workers}).by_role["worker"]
    assert (
        expected + 3 * 4 * 2 * 3 / 4 < actual.sent_bytes()["worker"] < expected + len(actual.messages) * 64 * 2 * 3 / 4
    )


def test_large_matrices_are_divided_and_small_ones_are_not() -> None:
    sizes = [("fc6", 9216, 4096), ("fc7", 4096, 4096), ("fc8", 4096, 1000)]
    alexnet = [(name, DenseShape(inputs, units, follows=name != "fc6")) for name, inputs, units in sizes]
    assert choose_splits(alexnet, 128, 4) == {"fc6": "rows", "fc7": "columns", "fc8": "rows"}
    assert choose_splits(alexnet, 128, 4, {"fc6": "columns"}) == {"fc6": "columns", "fc7": "columns", "fc8": "rows"}
    small = [("fc1", replace(alexnet[0][1], inputs=20, units=16))]
    assert choose_splits(small, 128, 4) == {"fc1": "whole"}


def test_states_are_pieces_and_evaluated_states_are_full() -> None:
    compiler = compiled(given({"fc1": "columns", "fc2": "rows", "logits": "whole"}))
    shapes = {name: info.value.shape for name, info in compiler.info.items()}
    assert shapes["fc1/kernel"] == shapes["solver/fc1/kernel/first_moment"] == (400, 24)
    assert shapes["fc2/kernel"] == shapes["solver/fc2/kernel/second_moment"] == (24, 64)
    assert shapes["fc1/bias"] == (96,)
    assert compiler.types("parameter")["fc1/kernel"].shape == (400, 96)
    assert compiler.evaluated == {f"{name}/kernel": f"gathered/{name}/kernel" for name in ("fc1", "fc2")}
    assert shapes["gathered/fc1/kernel"] == (400, 96)


@pytest.mark.parametrize(
    ("spec", "workers", "message"),
    [
        (given({"fc1": "columns"}), 5, "the 96 units of fc1 do not divide by 5"),
        (given({"logits": "columns"}), 4, "the 10 units of logits do not divide by 4"),
        (given({"fc1": "rows"}), 3, "the 400 inputs of fc1 do not divide by 3"),
        (given(dict.fromkeys(("fc1", "fc2", "logits"), "whole")), 2, "would send more than its gradients"),
        (given({}, samples=100_000), 2, "would send more than its gradients"),
        (
            given({"fc1": "columns"}, solver={"type": "Lamb"}), 2,
            "parameters are split though their update needs the full tensor: fc1/kernel",
        ),
        (given({"fc1": "columns"}, solver={"type": "SGD", "clipnorm": 1.0}), 2, "needs the full tensor"),
    ],
)  # fmt: skip
def test_unsplittable_layers_are_reported(spec: dict[str, Any], workers: int, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        compiled(spec, workers)


@pytest.mark.parametrize("constraint", [{"type": "NonNeg"}])
def test_elementwise_constraints_work_on_parts(constraint: dict[str, Any]) -> None:
    layers = [{**layer, "kernel_constraint": constraint} if layer["type"] == "Dense" else layer for layer in LAYERS]
    spec = given({"fc1": "columns", "fc2": "rows"})
    spec["net"] = {**spec["net"], "layers": layers}
    assert "gathered/fc1/kernel" in compiled(spec).info
