"""Calls of kernels on a device: which they take, in which layouts, and whether they agree with the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from netspec.backends.base import Device
from netspec.backends.calls import Calls
from netspec.graph.kernel import Buffers, Kernel, Thunk, candidates
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.ops.shape import Reorder
from netspec.graph.ops.source import Input
from netspec.graph.plan import aligned
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
    ways = (made.op.overwritable(result.index, operands) for result in made.node.outputs)
    return tuple(tuple(operands.index(operand) for operand in way) for way in ways)


def array(device: Device, kind: TensorType, host: Any = None, layout: Layout = PLAIN) -> Any:
    """An array on the device, of the given values or full of what no kernel would write by chance."""
    made = device.view(device.allocate(aligned(max(layout.nbytes(kind), 1))), 0, kind, layout)
    if host is None:
        host = np.full(made.shape, np.nan if kind.dtype.is_float else 101 if kind.dtype != DType.BOOL else True)
    elif layout.form is not None:
        repack(device, kind, array(device, kind, host), PLAIN, made, layout)
        return made
    device.upload(made, np.asarray(host).astype(str(kind.dtype)))
    return made


def fetch(device: Device, made: Any, kind: TensorType, layout: Layout) -> Any:
    """What an array on the device holds; an opaque one is made plain by the backend that knows it."""
    if layout.form is None:
        return device.fetch(made)
    plain = array(device, kind)
    repack(device, kind, made, layout, plain, PLAIN)
    return device.fetch(plain)


def repack(device: Device, kind: TensorType, source: Any, lies: Layout, target: Any, wanted: Layout) -> None:
    """Copy a value from one layout into another."""
    node, one = repacking(device, kind, lies, wanted)
    lying = Signature((lies,), (wanted,))
    called(device, one, node, one.bind(node, Buffers((source,), (target,), lying)))()


def repacking(device: Device, kind: TensorType, lies: Layout, wanted: Layout) -> tuple[Node, Kernel]:
    """What copies a value from one layout into another."""
    node = Reorder(lies, wanted)(Input("x", kind)()).node
    return node, candidates(node, device.kernels).kernels[0]


def signatures(device: Device, one: Kernel, made: Call) -> list[Signature]:
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
            found.append(Signature(tuple(given), tuple(layout_of(value.type) for value in made.node.outputs)))
        else:
            found.append(one.layouts(made.node, given))
            found += one.alternatives(made.node, given)
    for lying in found[:]:
        for dtype in device.narrow:
            narrow = one.narrowed(made.node, in_type(made, lying, dtype))
            if narrow is not None:
                found.append(narrow)
    return list(dict.fromkeys(found))


def in_type(made: Call, lying: Signature, dtype: DType) -> Signature:
    """The layouts with all float32 operands and results in another type."""

    def stored(values: Sequence[Value], layouts: Sequence[Layout]) -> tuple[Layout, ...]:
        floats = [value.dtype == DType.FLOAT32 for value in values]
        return tuple(one.as_stored(dtype) if as_float else one for one, as_float in zip(layouts, floats, strict=True))

    return Signature(stored(made.node.inputs, lying.inputs), stored(made.node.outputs, lying.outputs))


def is_narrow(lying: Signature) -> bool:
    return any(layout.dtype is not None for layout in (*lying.inputs, *lying.outputs))


def for_signature(made: Call, lying: Signature) -> Call:
    """The call; with operands that bfloat16 holds if any lie so: then a product may round all of them."""
    if not is_narrow(lying):
        return made
    given = [x.astype(ml_dtypes.bfloat16).astype(x.dtype) if x.dtype == np.float32 else x for x in made.operands]
    return Call(made.node, tuple(given))


def bound(
    device: Device, one: Kernel, made: Call, lying: Signature, inputs: Sequence[Any], outputs: Sequence[Any]
) -> Callable[[], None]:
    size = one.workspace(made.node, lying)
    workspace = device.view(device.allocate(aligned(size)), 0, TensorType((size,), DType.UINT8)) if size else None
    thunk: Thunk = one.bind(made.node, Buffers(tuple(inputs), tuple(outputs), lying, workspace))
    return called(device, one, made.node, thunk)


def called(device: Device, one: Kernel, node: Node, thunk: Thunk) -> Callable[[], None]:
    """A call that finds as many threads as the kernel wants."""
    calls = Calls(device.set_threads, device.threads())
    calls.add(thunk, node, one.threads(node))
    return calls.run


def operands(device: Device, made: Call, lying: Signature) -> list[Any]:
    """The call's operands on the device, lying as the kernel wants them."""
    return [
        array(device, value.type, x, layout)
        for value, x, layout in zip(made.node.inputs, made.operands, lying.inputs, strict=True)
    ]


def agree(got: Any, expected: np.ndarray, *, twice: bool = False) -> None:
    """Equal but for rounding; `twice`: numbers of any size were rounded to fewer bits on the way, too."""
    stored = DType(str(got.dtype))
    assert got.shape == expected.shape
    assert str(stored.computed) == str(expected.dtype)
    if stored.is_float:
        tolerance = RELATIVE[stored.computed]
        relative = tolerance if stored == stored.computed and not twice else ROUNDED
        tolerance = relative if twice else tolerance
        scale = max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(got.astype(expected.dtype), expected, rtol=relative, atol=tolerance * scale)
    else:
        np.testing.assert_array_equal(got, expected)
