"""The calls that each kernel of the backend `cuda` is tried on, bound to NumPy's arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import netspec.backends.cuda.kernels  # noqa: F401  # it registers them
from netspec.backends.cuda.device import CudaDevice
from netspec.backends.device import CpuDevice
from netspec.graph.kernel import Kernel, kernels_for, registered
from netspec.graph.layout import Signature
from tests.registry.kernel_calls import (
    all_calls,
    array,
    bound,
    code_of,
    for_signature,
    is_double,
    is_narrow,
    operands,
    own_calls,
    signatures,
)
from tests.registry.op_calls import Call

KERNELS = registered(["cuda"])


class EmulatedDevice(CpuDevice):
    """The kernels of the backend `cuda` on NumPy's arrays, whatever CuPy says."""

    name = "emulated"
    backends = ("reference", "cuda")
    kernels = ("reference", "cuda")
    narrow = CudaDevice.narrow


DEVICE = EmulatedDevice()


@dataclass(frozen=True)
class Bound:
    """A call of a kernel."""

    kernel: Kernel
    made: Call
    lying: Signature
    run: Callable[[], None]
    inputs: list[Any]
    outputs: list[Any]

    @classmethod
    def of(cls, one: Kernel, made: Call, lying: Signature, inputs: list[Any], outputs: list[Any]) -> Bound:
        """The call of a kernel."""
        return cls(one, made, lying, bound(DEVICE, one, made, lying, inputs, outputs), inputs, outputs)

    def over(self, result: int, operand: int) -> Bound:
        """The same call, one of its results in the memory of an operand."""
        outputs = list(self.outputs)
        outputs[result] = self.inputs[operand]
        return Bound.of(self.kernel, self.made, self.lying, self.inputs, outputs)


@cache
def taken(one: Kernel) -> list[Call]:
    """The calls that a kernel takes."""
    found = [made for made in all_calls() if one in kernels_for(type(made.op), ("cuda",))]
    found += own_calls(one)
    return [made for made in found if one.why_not(made.op, *(value.type for value in made.node.inputs)) is None]


def prepared(one: Kernel) -> Iterator[Bound]:
    """All calls of a kernel, bound, in each layout that it offers."""
    known = set[Any]()
    for made in taken(one):
        for lying in signatures(DEVICE, one, made):
            if is_narrow(lying) and (is_double(made) or code_of(made) in known):
                continue  # how elements of fewer bits are read and written is the same for all elementwise ops
            given = for_signature(made, lying)
            inputs = operands(DEVICE, given, lying)
            outputs = [
                array(DEVICE, value.type, None, layout)
                for value, layout in zip(given.node.outputs, lying.outputs, strict=True)
            ]
            yield Bound.of(one, given, lying, inputs, outputs)
        known.add(code_of(made))
