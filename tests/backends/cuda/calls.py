"""The calls on which each kernel of the backend `cuda` is tested, bound to NumPy's arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from netspec.backends.backend import load_kernels
from netspec.backends.cuda.device import CudaDevice
from netspec.backends.device_registry import CpuDevice
from netspec.backends.kernel_check import array, bound, check_call, for_signature, is_narrow, operands, signatures
from netspec.backends.op_call import OpCall, code_of, is_double, own_calls
from netspec.graph.kernel import Kernel, kernels_for, registered_kernels
from netspec.graph.layout import LayoutSignature
from netspec.tools.verification.op_calls import all_calls

load_kernels("cuda")
KERNELS = registered_kernels(["cuda"])


class EmulatedDevice(CpuDevice):
    """The kernels of the backend `cuda` on NumPy's arrays, whatever CuPy says."""

    name = "emulated"
    backends: ClassVar[tuple[str, ...]] = ("reference", "cuda")
    kernels: ClassVar[tuple[str, ...]] = ("reference", "cuda")
    low_precision_dtypes = CudaDevice.low_precision_dtypes


DEVICE = EmulatedDevice()


@dataclass(frozen=True)
class Bound:
    """A call of a kernel."""

    kernel: Kernel
    made: OpCall
    lying: LayoutSignature
    run: Callable[[], None]
    inputs: list[Any]
    outputs: list[Any]

    @classmethod
    def of(
        cls, kernel: Kernel, result: OpCall, signature: LayoutSignature, inputs: list[Any], outputs: list[Any],
        device: EmulatedDevice | None = None,
    ) -> Bound:  # fmt: skip
        """Bind the call of a kernel to arrays of a device, by default `DEVICE`."""
        return cls(
            kernel,
            result,
            signature,
            bound(device or DEVICE, kernel, result, signature, inputs, outputs),
            inputs,
            outputs,
        )


@cache
def taken(kernel: Kernel) -> list[OpCall]:
    """The calls that a kernel accepts."""
    actual = [result for result in all_calls() if kernel in kernels_for(type(result.op), (kernel.backend,))]
    actual += own_calls(kernel)
    return [
        result
        for result in actual
        if kernel.reject_reason(result.op, *(value.type for value in result.node.inputs)) is None
    ]


def in_layouts(
    kernel: Kernel, calls: Iterable[OpCall], device: EmulatedDevice = DEVICE
) -> Iterator[tuple[OpCall, LayoutSignature]]:
    """Bind calls of a kernel in each layout that it offers."""
    seen_codes = set[Any]()
    for result in calls:
        for signature in signatures(device, kernel, result):
            if is_narrow(signature) and (is_double(result) or code_of(result) in seen_codes):
                continue  # how elements of fewer bits are read and written is the same for all elementwise ops
            yield for_signature(result, signature), signature
        seen_codes.add(code_of(result))


def prepared(kernel: Kernel, device: EmulatedDevice = DEVICE) -> Iterator[Bound]:
    """All calls of a kernel, each bound in every layout that it offers."""
    for result, signature in in_layouts(kernel, taken(kernel), device):
        inputs = operands(device, result, signature)
        outputs = [
            array(device, value.type, None, layout)
            for value, layout in zip(result.node.outputs, signature.outputs, strict=True)
        ]
        yield Bound.of(kernel, result, signature, inputs, outputs, device)


def check(kernel: Kernel, *, rounded_twice: bool = False) -> None:
    """Check that each call of a kernel agrees with the reference, repeatedly, and leaves its operands unchanged.

    `rounded_twice` as in `agree`.
    """
    cases = list(in_layouts(kernel, taken(kernel)))
    assert cases, "no layer, op or sample reaches it: give the kernel `samples`"
    for call, signature in cases:
        check_call(DEVICE, kernel, call, signature, rounded_twice=rounded_twice and is_narrow(signature))
