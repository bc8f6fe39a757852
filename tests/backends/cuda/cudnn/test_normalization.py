"""Batch normalization by cuDNN or netspec's kernels, whichever moves fewer bytes, in nets that train like reference."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from netspec.backends.backend import load_kernels
from netspec.backends.cuda import launch
from netspec.backends.cuda.cudnn.kernels.batch_normalization import (
    BatchNormalizationGradientKernel,
    BatchNormalizationTrainingKernel,
    ReluBackwardMatch,
)
from netspec.backends.cuda.gpus import GPUS, planned_for
from netspec.backends.device_registry import open_device
from netspec.backends.kernel_check import array
from netspec.backends.op_call import call
from netspec.compile import Compiler, ProgramKind
from netspec.graph.execution_plan import ExecutionPlan
from netspec.graph.fused import EpilogueFused, PrologueFused, fuse_between
from netspec.graph.kernel import KernelOption
from netspec.graph.layout import PLAIN, Layout
from netspec.graph.ops.batch_normalization import BatchNormalizationGrad, BatchNormalizationTraining
from netspec.graph.ops.elementwise import Greater, Where, scalar
from netspec.graph.ops.source import Input
from netspec.graph.ops.unary import Relu, Sqrt
from netspec.graph.types import DType, Precision, TensorType
from netspec.graph.value import Node
from netspec.schema.load import load_net
from netspec.solvers.sgd import SGD
from tests.backends.cuda.calls import DEVICE, Bound, EmulatedDevice
from tests.backends.cuda.cudnn import fake
from tests.backends.cuda.emulator import Emulator, compiler
from tests.backends.cuda.test_nets import RESNET, losses

EVEN = RESNET.replace("filters: 6", "filters: 8")
"""A net with numbers of channels that are multiples of 8: the library reads eight channels of 16 bits at once."""
SOLVER = SGD.model_validate({"type": "SGD", "momentum": 0.9})
X, CHANNELS = (TensorType(shape, DType.FLOAT32) for shape in ((2, 8, 3, 3), (8,)))

load_kernels("cudnn")
pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run kernels of our own with")


class Both(EmulatedDevice):
    """The kernels of netspec and of the library."""

    name = "both"
    backends: ClassVar[tuple[str, ...]] = ("reference", "cuda", "cudnn")
    kernels: ClassVar[tuple[str, ...]] = backends
    rates = replace(GPUS["h200"].rates, call_seconds=0.0)  # with such small arrays, only launches would count


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "cudnn", fake)
    before = launch.use(Emulator())
    yield
    launch.use(before)


def compiled(folder: Path, device: Both | str, precision: Precision = Precision.FLOAT32) -> Compiler:
    file = folder / "net.yaml"
    file.write_text(EVEN)
    opened = open_device(device) if isinstance(device, str) else device
    return Compiler(load_net(file), solver=SOLVER, device=opened, dtype=precision, seed=5)


def normalizations(plan: ExecutionPlan) -> dict[Node, str]:
    """The kernels of normalizations."""
    return {node: choice.label for node, choice in plan.choices.items() if "BatchNormalization" in node.op.name}


@pytest.mark.parametrize(("precision", "within"), [(Precision.FLOAT32, 1e-4), (Precision.BFLOAT16, 0.02)])
@pytest.mark.slow
def test_each_layout_choice_moves_least_and_trains_like_reference(
    precision: Precision, within: float, tmp_path: Path
) -> None:
    compiler = compiled(tmp_path, Both(), precision)
    plan = compiler.plan(ProgramKind.TRAIN, 2)
    actual = normalizations(plan)
    for node, label in actual.items():
        if isinstance(node.op, EpilogueFused):
            assert label == "cuda:TrainingKernel"
        elif isinstance(node.op, BatchNormalizationTraining):
            assert label == "cudnn:BatchNormalizationTrainingKernel"
        else:
            assert label == "cudnn:BatchNormalizationGradientKernel"
            operands = [plan.memory.storage[value] for value in node.inputs]
            # The library may not support writing over an operand.
            assert plan.memory.storage[node.outputs[0]] not in operands
    fed = [node for node in actual if isinstance(node.op, PrologueFused)]
    assert len(actual) == 8
    assert [past is None for past in map(ReluBackwardMatch.of, fed)] == [
        False,
        True,
    ]  # the other prologue adds two gradients first
    expected = losses(compiled(tmp_path, "reference"))
    np.testing.assert_allclose(losses(compiler), expected, rtol=within)


@pytest.mark.parametrize("faster", ["cuda:GradientKernel", "cudnn:BatchNormalizationGradientKernel by eng3"])
def test_both_race(faster: str, tmp_path: Path) -> None:
    class Racing(Both):
        has_tuner = True

        def measured_seconds(self, node: Node, offers: Sequence[KernelOption]) -> Sequence[float]:
            """Return the seconds that decide which kernel is faster."""
            return [0.001 if offer.kernel.label == faster else 0.002 for offer in offers]

    actual = compiled(tmp_path, Racing()).plan(ProgramKind.TRAIN, 2)
    gradients = [actual.choices[node] for node in normalizations(actual) if isinstance(node.op, BatchNormalizationGrad)]
    assert len(gradients) == 2
    for choice in gradients:
        assert choice.label == faster
        others = {label for label, why in choice.rejected if "lost the race" in why}
        assert {choice.label, *others} == {
            "cuda:GradientKernel", "cudnn:BatchNormalizationGradientKernel",
            *(f"cudnn:BatchNormalizationGradientKernel by {plan}" for plan in ("eng1", "eng2_k2=5", "eng3")),
        }  # fmt: skip


def test_nan_is_not_hidden() -> None:
    """The ReLU of the epilogue keeps NaN, and so does the clamping of negative variances."""
    kernel = BatchNormalizationTrainingKernel()
    x = np.linspace(-1, 1, X.size, dtype=np.float32).reshape(X.shape)
    x[0, 3, 1, 1] = np.nan
    (epilogue,) = [op for op, _ in kernel.samples() if isinstance(op, EpilogueFused)]
    result = call(epilogue, x, np.ones(8, np.float32), np.zeros(8, np.float32), np.zeros_like(x))
    signature = kernel.layouts(result.node, [PLAIN] * 4)
    inputs = [
        array(DEVICE, value.type, host, layout)
        for value, host, layout in zip(result.node.inputs, result.feeds.values(), signature.inputs, strict=True)
    ]
    outputs = [
        array(DEVICE, kind, None, layout) for kind, layout in zip(result.node.types, signature.outputs, strict=True)
    ]
    Bound.of(kernel, result, signature, inputs, outputs).run()
    y, mean, variance = outputs
    assert np.isnan(y[:, 3]).all()
    assert np.isfinite(np.delete(y, 3, axis=1)).all()
    for vector in (mean, variance):
        assert np.isnan(vector).tolist() == [channel == 3 for channel in range(8)]


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_other_bodies_do_not_match_the_relu_gradient(factor: float) -> None:
    """The pattern matches only the scale of the normalization itself."""
    x, dy, *vectors = (Input(name, X if name in {"x", "dy"} else CHANNELS)() for name in ("x", "dy", *"gbmv"))
    gamma, beta, mean, variance = vectors
    op, zero = BatchNormalizationGrad(epsilon=0.5), scalar(0.0, DType.FLOAT32)
    scale = op.broadcast_vector(x, gamma / Sqrt()(variance + 0.5) * scalar(factor, DType.FLOAT32) if factor != 1 else
                      gamma / Sqrt()(variance + 0.5))  # fmt: skip
    operands = [op.broadcast_vector(x, mean), scale, op.broadcast_vector(x, beta)]
    y = Relu()((x - operands[0]) * operands[1] + operands[2])
    body = fuse_between([x, *operands, dy], [Where()(Greater()(y, zero), dy, zero)])
    node = PrologueFused(op, 4, 5, body.body).call_multi(x, gamma, mean, variance, x, *operands, dy)[0].node
    assert ReluBackwardMatch.of(node) == (ReluBackwardMatch(8, 7) if factor == 1 else None)


@pytest.mark.parametrize(
    ("shape", "dtype", "words"),
    [((2, 6, 3, 3), DType.FLOAT32, "6 channels; cuDNN needs a multiple of 4 in float32"),
     ((2, 8, 3, 3), DType.FLOAT64, "cuDNN normalizes float32, not float64")],
)  # fmt: skip
def test_reject_reasons(shape: tuple[int, ...], dtype: DType, words: str) -> None:
    x, vector = TensorType(shape, dtype), TensorType(shape[1:2], dtype)
    kernel = BatchNormalizationGradientKernel()
    assert kernel.reject_reason(BatchNormalizationGrad(), x, vector, vector, vector, x) == words
    assert kernel.reject_reason(BatchNormalizationGrad(axis=2), X, CHANNELS, CHANNELS, CHANNELS, X) == (
        "the channels are axis 2, not 1"
    )


def test_unread_gradient_is_not_written() -> None:
    """In the first layer, only the sums of the gradient are read, and netspec computes these."""
    kernel = BatchNormalizationGradientKernel()
    op, types = kernel.samples()[0]
    operands = [np.linspace(0.5, 2, kind.size, dtype=np.float32).reshape(kind.shape) ** 2 for kind in types]
    result = call(op, *operands)
    signature = kernel.layouts(result.node, [PLAIN] * 5)
    inputs = [
        array(DEVICE, kind, host, layout) for kind, host, layout in zip(types, operands, signature.inputs, strict=True)
    ]
    outputs = [None, *(array(DEVICE, kind, None, PLAIN) for kind in result.node.types[1:])]
    fake.executed.clear()
    Bound.of(kernel, result, signature, inputs, outputs).run()
    assert fake.executed == []
    for actual, right in zip(outputs[1:], op.forward(np, *operands)[1:], strict=True):
        np.testing.assert_allclose(actual, right, rtol=1e-5)


def test_older_gpus_have_kernels_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """netspec's kernels are available with and without the library."""
    monkeypatch.setitem(sys.modules, "cudnn", None)
    types = [TensorType((2, 8, 3, 3), DType.FLOAT32), *2 * [TensorType((8,), DType.FLOAT32)]]
    for name, words in (("t4", "cuDNN has no plan: it has none for GPUs before 8.0"), ("a100", None)):
        with planned_for(name):
            assert BatchNormalizationTrainingKernel().reject_reason(BatchNormalizationTraining(), *types) == words


def test_four_channels_are_not_read_in_16_bits() -> None:
    kind = TensorType((2, 4, 3, 3), DType.FLOAT32)
    kernel, (op, _) = BatchNormalizationTrainingKernel(), BatchNormalizationTrainingKernel().samples()[0]
    node = call(op, *(np.ones(shape, np.float32) for shape in (kind.shape, (4,), (4,)))).node
    assert kernel.reject_reason(op, *(value.type for value in node.inputs)) is None
    assert kernel.low_precision_signature(node, kernel.layouts(node, [PLAIN] * 3)) == kernel.layouts(node, [PLAIN] * 3)
    last = Layout.channels_last(4).with_dtype(DType.BFLOAT16)
    expected = kernel.layouts(node, [PLAIN] * 3)
    narrow = type(expected)((last, *expected.inputs[1:]), (last, *expected.outputs[1:]))
    assert kernel.low_precision_signature(node, narrow) is None
