"""`sufficient_factors`: which gradients are sent as factors, when, and which layers cannot send factors."""

from __future__ import annotations

from typing import Any

import pytest

from netspec.compile import Compiler, ProgramKind
from netspec.distributed import Communicator
from netspec.distributed.plans import SufficientFactorsPlan
from netspec.distributed.session import WorkerSession
from netspec.distributed.strategies.base import Strategy
from netspec.distributed.strategies.sufficient_factors import SufficientFactors
from netspec.errors import InputError, SpecError
from netspec.graph.execution_plan import ExecutionPlan
from netspec.graph.ops.all_gather import FactorPair, StartAllGatherRows, SufficientFactorPlan
from netspec.graph.ops.all_reduce import StartAllReduce
from netspec.schema.load import load_train
from netspec.training.compiler import training_compiler

pytestmark = pytest.mark.slow

LAYERS: list[dict[str, Any]] = [
    {"name": "project", "type": "Dense", "units": 6, "kernel_regularizer": {"type": "L2", "l2": 0.01}},
    {"name": "recurrent", "type": "LSTM", "units": 4, "return_sequences": True},
    {"name": "attention", "type": "MultiHeadAttention", "num_heads": 2, "key_dim": 3, "from": ["recurrent"] * 2},
    {"name": "flat", "type": "Flatten"},
    {"name": "norm", "type": "BatchNormalization", "synchronized": True},
    {"name": "logits", "type": "Dense", "units": 2},
]


def given(parallel: dict[str, Any], layers: list[dict[str, Any]] | None = None, **loop: Any) -> dict[str, Any]:
    return {
        "netspec": 1,
        "net": {
            "netspec": 1,
            "inputs": {"x": {"shape": [5, 7]}, "label": {"shape": [], "dtype": "int32"}},
            "layers": LAYERS if layers is None else layers,
            "losses": [
                {"type": "SparseCategoricalCrossentropy", "from": ["logits", "label"], "from_logits": True}
            ],
        },
        "data": {"train": {"source": "npz", "path": "none.npz", "batch_size": 11}},
        "solver": {"type": "SGD", "learning_rate": 0.01},
        "train": {"max_steps": 1, **loop},
        "parallel": {"strategy": "sufficient_factors", **parallel},
    }  # fmt: skip


class Four(Communicator):
    """Worker 0 of four simulated workers."""

    size = 4


def compiled(spec: dict[str, Any]) -> Compiler:
    read = load_train(spec)
    assert isinstance(read.parallel, Strategy)
    return training_compiler(read, "null", WorkerSession(Four(), read.parallel))


def factoring(spec: dict[str, Any]) -> SufficientFactorPlan:
    plan = compiled(spec).distribution
    assert isinstance(plan, SufficientFactorsPlan)
    assert plan.factoring is not None
    return plan.factoring


def rows(plan: ExecutionPlan) -> list[tuple[int, ...]]:
    """Return the shapes of the gathered rows, in order."""
    return [node.types[0].shape for node in plan.order if isinstance(node.op, StartAllGatherRows)]


def test_products_over_samples_and_positions_are_found() -> None:
    actual = factoring(given({"layers": "all"}))
    assert (actual.workers, actual.max_samples) == (4, 3)
    heads = [f"attention/{name}/kernel" for name in ("query", "key", "value", "attention_output")]
    kernels = ["project/kernel", "recurrent/kernel", "recurrent/recurrent_kernel", "logits/kernel", *heads]
    assert sorted(actual.products) == sorted(kernels)
    (product,) = actual.products["project/kernel"]
    assert (product.positions, product.inputs, product.units) == (5, 7, 6)
    (product,) = actual.products["logits/kernel"]
    assert (product.positions, product.inputs, product.units) == (1, 20, 2)


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_all_sizes_of_a_batch_send_the_same(samples: int) -> None:
    """An input that query, key and value of the attention share is sent once, with 4 · 3 rows."""
    compiler = compiled(given({"layers": "all"}))
    plan = compiler.plan(ProgramKind.TRAIN, samples)
    shapes = rows(plan)
    inputs = [(60, 7), (60, 6), (60, 4), (60, 4), (60, 6), (12, 20)]
    gradients = [(12, 2), (60, 4), (60, 6), (60, 6), (60, 6), (60, 16), (60, 6)]
    assert sorted(shapes) == sorted(inputs + gradients)
    assert shapes[-1] == (60, 6)  # the gradient of the first layer's output comes last
    sums = [node for node in plan.order if isinstance(node.op, (StartAllReduce, StartAllGatherRows))]
    first = next(index for index, node in enumerate(sums) if isinstance(node.op, StartAllReduce))
    assert first == len(inputs)  # the loss is sent after the layers' inputs, which are computed before it
    assert plan.before_guard_count > plan.order.index(sums[-1])


def test_accumulated_batches_send_factors_and_the_update_does_not() -> None:
    compiler = compiled(given({"layers": "all"}, accumulate=3))
    single = rows(compiled(given({"layers": "all"})).plan(ProgramKind.TRAIN, 3))
    assert sorted(rows(compiler.plan(ProgramKind.ACCUMULATE, 3))) == sorted(single)
    update = compiler.plan(ProgramKind.UPDATE, 1)
    assert rows(update) == []
    sums = [content for node in update.order if isinstance(node.op, StartAllReduce) for content in node.op.contents]
    assert not {sum for sum in sums if sum.endswith("kernel")}
    assert "project/bias" in sums


@pytest.mark.parametrize(("accumulate", "chosen"), [(1, True), (64, False)])
def test_choice_counts_all_batches_of_a_step(accumulate: int, chosen: bool) -> None:
    """15 rows of 20 + 1024 elements are sent to three workers, instead of a matrix of 20 × 1024."""
    wide = [*LAYERS[:-1], {"name": "logits", "type": "Dense", "units": 1024}]
    actual = factoring(given({"network": "alpha=1us,beta=1ns", "speed": 1e15}, wide, accumulate=accumulate))
    assert ("logits/kernel" in actual.products) == chosen


def test_only_named_layers_send_factors() -> None:
    actual = factoring(given({"layers": ["logits"]}))
    assert list(actual.products) == ["logits/kernel"]


@pytest.mark.parametrize(
    ("inputs", "units", "samples", "network", "speed", "chosen"),
    [
        (4096, 4096, 8, "ethernet-10g", 1e11, True),
        (4096, 4096, 8, "ethernet-10g", 1e9, False),  # multiplying takes longer than sending
        (4096, 4096, 8192, "ethernet-10g", 1e15, False),  # the rows have more elements than the matrix
        (4096, 10, 8, "ethernet-10g", 1e11, False),
        (64, 64, 1, "alpha=1s,beta=1ns", 1e11, True),  # two calls instead of reduce-scatter and all-gather
    ],
)
def test_factors_are_chosen_if_faster(
    inputs: int, units: int, samples: int, network: str, speed: float, chosen: bool
) -> None:
    strategy = SufficientFactors(network=network, speed=speed)
    factor_pair = FactorPair(1, inputs, units, 0, 1)
    assert strategy.sends_factors("fc", [factor_pair], samples=samples, workers=4) == chosen


def test_layers_without_factors_are_reported() -> None:
    with pytest.raises(InputError, match="flat, norm: the gradient is not a product over samples") as raised:
        compiled(given({"layers": ["logits", "norm", "flat"]}))
    assert "some of attention, logits, project, recurrent" in str(raised.value)
    convolution: list[dict[str, Any]] = [
        {"name": "image", "type": "Reshape", "target_shape": [1, 5, 7]},
        {"name": "conv", "type": "Conv2D", "filters": 2, "kernel_size": 5},
        {"name": "logits", "type": "GlobalAveragePooling2D"},
    ]
    with pytest.raises(InputError, match="no layer has a gradient that is a product over samples"):
        compiled(given({}, convolution))
    with pytest.raises(SpecError, match="there is no layer `logit`"):
        load_train(given({"layers": ["flat", "logit"]}))


def test_workers_make_the_same_products_of_parts_of_different_sizes(jobs) -> None:
    job = jobs(3, "factors.py")
    assert job.end() == 0, job.err
    assert job.out == "all agree\n"


def test_one_worker_gathers_nothing() -> None:
    read = load_train(given({"layers": "all"}))
    assert isinstance(read.parallel, Strategy)
    assert (
        rows(training_compiler(read, "null", WorkerSession(Communicator(), read.parallel)).plan(ProgramKind.TRAIN, 3))
        == []
    )
