"""Kernels that round operands to tf32 are only used for trainings in tf32."""

from __future__ import annotations

import pytest

from netspec.backends.backend import load_kernels
from netspec.backends.device import Device
from netspec.backends.device_registry import ReferenceDevice
from netspec.compile import make_plan
from netspec.graph import kernel as registry
from netspec.graph.graph import Graph
from netspec.graph.kernel import Kernel, kernel
from netspec.graph.ops.linear import MatMul
from netspec.graph.types import Precision
from tests.passes.test_layout import x


class Rounding(ReferenceDevice):
    """A device with an additional, simulated backend."""

    backends = ("reference", "rounding")
    kernels = ("reference", "rounding")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    load_kernels("reference")
    monkeypatch.setattr(registry, "_kernels", {op: list(kernels) for op, kernels in registry._kernels.items()})

    @kernel(MatMul, backend="rounding", rank=20)
    class Rounded(Kernel):
        tf32 = True

    return Rounding()


@pytest.mark.parametrize(
    ("precision", "label"), [(Precision.TF32, "rounding:Rounded"), (Precision.FLOAT32, "reference:ForwardKernel")]
)
def test_rounding_kernels_are_chosen_if_precision_permits(device: Device, precision: Precision, label: str) -> None:
    product = MatMul()(x(8, 8), x(8, 8, name="w"))
    plan = make_plan(Graph({"y": product}), device, precision)
    (choice,) = plan.choices.values()
    assert choice.label == label
    reasons = dict(choice.rejected)
    assert (precision == Precision.TF32) == (reasons.get("rounding:Rounded") is None)
    assert device.has_tf32
    assert device.accepts(product.op, [operand.type for operand in product.inputs], Precision.TF32)
    assert not device.accepts(product.op, [operand.type for operand in product.inputs])
