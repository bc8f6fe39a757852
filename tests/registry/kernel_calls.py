"""Calls of kernels on a device: which they take, in which layouts, and whether they agree with the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from netspec.backends.device import Device
from netspec.backends.executor import CallSequence
from netspec.graph.execution_plan import align_up
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel_candidates
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.ops.shape import Reorder
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node, Value
from tests.registry.op_calls import Call, call, calls, numbers

MOST = {DType.FLOAT32: 2, DType.FLOAT64: 1}
"""So many calls of each op that the cases make, beside its samples; in float64 the same code runs with another type."""


RELATIVE = {DType.FLOAT32: 2e-5, DType.FLOAT64: 1e-12}
"""Of the greatest number of a result: some hundred terms, added in another order, with fused multiplications or not."""


ROUNDED = 2**-8
"""Of a number that lies as bfloat16, which has 8 significant bits: rounding takes half of the last one, and two numbers
that differ by a rounding of float32 may be rounded to two neighbours."""


def all_calls() -> Iterator[Call]:
    """The calls that kernels are tried on, in both precisions."""
    for dtype, most in MOST.items():
        for made in calls(dtype, most):
            if not (made.op.traits.source or made.op.traits.view):
                yield made


def own_calls(one: Kernel) -> Iterator[Call]:
    """The samples that the kernel brings along."""
    for op, types in one.samples():
        yield call(op, *(numbers(*kind.shape, offset=0.1 * i).astype(str(kind.dtype)) for i, kind in enumerate(types)))


def is_double(made: Call) -> bool:
    return any(value.dtype == DType.FLOAT64 for value in (*made.node.inputs, *made.node.outputs))


def code_of(made: Call) -> Any:
    """What tells a call's code from that of others but for what it computes: of elementwise ops, which are all compiled
    by the same rules, the ways in which operands and results lie; of others the call itself.
    """
    results, operands = made.node.outputs, made.node.inputs
    if not made.op.traits.elementwise:
        return made
    return tuple((value.dtype, value.shape == results[0].shape) for value in (*operands, *results))


def over(made: Call) -> tuple[tuple[int, ...], ...]:
    """For each result the operands, by number, that it may be written over."""
    operands = made.node.inputs
    ways = (made.op.inplace_operands(result.index, operands) for result in made.node.outputs)
    return tuple(tuple(operands.index(operand) for operand in way) for way in ways)


def array(device: Device, kind: TensorType, host: Any = None, layout: Layout = PLAIN) -> Any:
    """An array on the device, of the given values or full of what no kernel would write by chance."""
    made = device.view(device.allocate(align_up(max(layout.nbytes(kind), 1))), 0, kind, layout)
    if host is None:
        host = np.full(made.shape, np.nan if kind.dtype.is_float else 101 if kind.dtype != DType.BOOL else True)
    elif layout.opaque is not None:
        repack(device, kind, array(device, kind, host), PLAIN, made, layout)
        return made
    device.upload(made, np.asarray(host).astype(str(kind.dtype)))
    return made


def fetch(device: Device, made: Any, kind: TensorType, layout: Layout) -> Any:
    """What an array on the device holds; an opaque one is made plain by the backend that knows it."""
    if layout.opaque is None:
        return device.fetch(made)
    plain = array(device, kind)
    repack(device, kind, made, layout, plain, PLAIN)
    return device.fetch(plain)


def repack(device: Device, kind: TensorType, source: Any, lies: Layout, target: Any, wanted: Layout) -> None:
    """Copy a value from one layout into another."""
    node, one = repacking(device, kind, lies, wanted)
    signature = LayoutSignature((lies,), (wanted,))
    called(device, one, node, one.bind(node, Buffers((source,), (target,), signature)))()


def repacking(device: Device, kind: TensorType, lies: Layout, wanted: Layout) -> tuple[Node, Kernel]:
    """What copies a value from one layout into another."""
    node = Reorder(lies, wanted)(Input("x", kind)()).node
    return node, kernel_candidates(node, device.kernels).kernels[0]


def signatures(device: Device, one: Kernel, made: Call) -> list[LayoutSignature]:
    """How the kernel takes the call's operands and gives its results: for plain operands, and for channels-last ones;
    and where the device has types of fewer bits and the kernel takes them, both once more in these.

    As in the layout pass the results of an elementwise op lie as its whole operands do, all of them alike.
    """

    def channels_last(kind: TensorType) -> Layout:
        return Layout.channels_last(kind.rank) if kind.rank > 2 else PLAIN

    def plain(_: TensorType) -> Layout:
        return PLAIN

    found = []
    for layout_of in (plain, channels_last):
        given = [layout_of(value.type) for value in made.node.inputs]
        if made.op.traits.elementwise:
            found.append(LayoutSignature(tuple(given), tuple(layout_of(value.type) for value in made.node.outputs)))
        else:
            found.append(one.layouts(made.node, given))
            found += one.alternatives(made.node, given)
    for signature in found[:]:
        for dtype in device.low_precision_dtypes:
            narrow = one.low_precision_signature(made.node, in_type(made, signature, dtype))
            if narrow is not None:
                found.append(narrow)
    return list(dict.fromkeys(found))


def in_type(made: Call, signature: LayoutSignature, dtype: DType) -> LayoutSignature:
    """The layouts with all float32 operands and results in another type."""

    def stored(values: Sequence[Value], layouts: Sequence[Layout]) -> tuple[Layout, ...]:
        floats = [value.dtype == DType.FLOAT32 for value in values]
        return tuple(one.with_dtype(dtype) if as_float else one for one, as_float in zip(layouts, floats, strict=True))

    return LayoutSignature(stored(made.node.inputs, signature.inputs), stored(made.node.outputs, signature.outputs))


def is_narrow(signature: LayoutSignature) -> bool:
    return any(layout.dtype is not None for layout in (*signature.inputs, *signature.outputs))


def for_signature(made: Call, signature: LayoutSignature) -> Call:
    """The call, with operands that bfloat16 and float16 can represent if any operand or result is stored in 16 bits."""
    if not is_narrow(signature):
        return made
    return Call(made.node, tuple(_in_16_bits(x) if x.dtype == np.float32 else x for x in made.operands))


def _in_16_bits(x: np.ndarray) -> np.ndarray:
    largest = np.float32(2**15)
    finite = np.where(np.isfinite(x), x.clip(-largest, largest), x)
    return finite.astype(ml_dtypes.bfloat16).astype(np.float32)


def bound(
    device: Device,
    one: Kernel,
    made: Call,
    signature: LayoutSignature,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    workspace: Any = None,
) -> Callable[[], None]:
    """A call of the kernel; by default, its workspace is allocated here."""
    if workspace is None:
        workspace = workspace_of(device, one, made, signature)
    thunk: Thunk = one.bind(made.node, Buffers(tuple(inputs), tuple(outputs), signature, workspace))
    return called(device, one, made.node, thunk)


def workspace_of(device: Device, one: Kernel, made: Call, signature: LayoutSignature) -> Any:
    """Allocate the workspace that the kernel needs for a call; None if it needs none."""
    size = one.workspace(made.node, signature)
    return device.view(device.allocate(align_up(size)), 0, TensorType((size,), DType.UINT8)) if size else None


def called(device: Device, one: Kernel, node: Node, thunk: Thunk) -> Callable[[], None]:
    """A call that finds as many threads as the kernel wants."""
    calls = CallSequence(device.set_threads, device.threads())
    calls.add(thunk, node, one.threads(node))
    return calls.run


def operands(device: Device, made: Call, signature: LayoutSignature) -> list[Any]:
    """The call's operands on the device, lying as the kernel wants them."""
    return [
        array(device, value.type, x, layout)
        for value, x, layout in zip(made.node.inputs, made.operands, signature.inputs, strict=True)
    ]


def agree(got: Any, expected: np.ndarray, *, twice: bool = False) -> None:
    """Equal but for rounding; `twice`: numbers of any size were rounded to fewer bits on the way, too."""
    stored = DType(str(got.dtype))
    assert got.shape == expected.shape
    assert str(stored.compute_dtype) == str(expected.dtype)
    if stored.is_float:
        tolerance = RELATIVE[stored.compute_dtype]
        relative = tolerance if stored == stored.compute_dtype and not twice else ROUNDED
        tolerance = relative if twice else tolerance
        scale = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0)))
        np.testing.assert_allclose(got.astype(expected.dtype), expected, rtol=relative, atol=tolerance * scale)
    else:
        np.testing.assert_array_equal(got, expected)
