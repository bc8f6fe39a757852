"""The calls that each kernel of the backend `cuda` is tried on, bound to NumPy's arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

import netspec.backends.cuda.kernels  # noqa: F401  # it registers them
from netspec.backends.cuda.device import CudaDevice
from netspec.backends.device import CpuDevice
from netspec.graph.kernel import Kernel, kernels_for, registered
from netspec.graph.layout import Signature
from tests.interpret import evaluate
from tests.registry.kernel_calls import (
    agree,
    all_calls,
    array,
    bound,
    code_of,
    fetch,
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
    backends: ClassVar[tuple[str, ...]] = ("reference", "cuda")
    kernels: ClassVar[tuple[str, ...]] = ("reference", "cuda")
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
    found = [made for made in all_calls() if one in kernels_for(type(made.op), (one.backend,))]
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


def check(one: Kernel, *, twice: bool = False) -> None:
    """Each call of a kernel agrees with the reference, is the same once more, and leaves its operands alone.

    `twice` as in `agree`.
    """
    cases = list(prepared(one))
    assert cases, "no layer, op or sample reaches it: give the kernel `samples`"
    for case in cases:
        given = [DEVICE.fetch(x) for x in case.inputs]
        case.run()
        nodes = case.made.node.outputs
        results = [(value.type, layout) for value, layout in zip(nodes, case.lying.outputs, strict=True)]
        first = [fetch(DEVICE, y, *how) for y, how in zip(case.outputs, results, strict=True)]
        for got, right in zip(first, evaluate(nodes, case.made.feeds), strict=True):
            agree(got, right, twice=twice and is_narrow(case.lying))
        for y, (kind, layout) in zip(case.outputs, results, strict=True):
            DEVICE.upload(y, DEVICE.fetch(array(DEVICE, kind, None, layout)))
        case.run()
        for y, before, how in zip(case.outputs, first, results, strict=True):
            np.testing.assert_array_equal(fetch(DEVICE, y, *how), before)
        for x, before in zip(case.inputs, given, strict=True):
            np.testing.assert_array_equal(DEVICE.fetch(x), before)
