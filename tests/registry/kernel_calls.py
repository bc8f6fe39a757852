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
        for op_call in calls(dtype, most):
            if not (op_call.op.traits.source or op_call.op.traits.view):
                yield op_call


def own_calls(kernel: Kernel) -> Iterator[Call]:
    """The samples that the kernel brings along."""
    for op, types in kernel.samples():
        yield call(op, *(numbers(*kind.shape, offset=0.1 * i).astype(str(kind.dtype)) for i, kind in enumerate(types)))


def is_double(call: Call) -> bool:
    return any(value.dtype == DType.FLOAT64 for value in (*call.node.inputs, *call.node.outputs))


def code_of(call: Call) -> Any:
    """Return a key that is equal for calls whose code has the same structure: elementwise ops, which are all compiled
    by the same rules, the ways in which operands and results lie; of others the call itself.
    """
    results, operands = call.node.outputs, call.node.inputs
    if not call.op.traits.elementwise:
        return call
    return tuple((value.dtype, value.shape == results[0].shape) for value in (*operands, *results))


def over(call: Call) -> tuple[tuple[int, ...], ...]:
    """For each result the operands, by number, that it may be written over."""
    operands = call.node.inputs
    choices = (call.op.inplace_operands(result.index, operands) for result in call.node.outputs)
    return tuple(tuple(operands.index(operand) for operand in choice) for choice in choices)


def array(device: Device, kind: TensorType, host: Any = None, layout: Layout = PLAIN) -> Any:
    """An array on the device, of the given values or full of what no kernel would write by chance."""
    buffer = device.view(device.allocate(align_up(max(layout.nbytes(kind), 1))), 0, kind, layout)
    if host is None:
        host = np.full(buffer.shape, np.nan if kind.dtype.is_float else 101 if kind.dtype != DType.BOOL else True)
    elif layout.opaque is not None:
        repack(device, kind, array(device, kind, host), PLAIN, buffer, layout)
        return buffer
    device.upload(buffer, np.asarray(host).astype(str(kind.dtype)))
    return buffer


def fetch(device: Device, buffer: Any, kind: TensorType, layout: Layout) -> Any:
    """Return the contents of an array on the device; its backend converts an opaque layout to a plain one."""
    if layout.opaque is None:
        return device.fetch(buffer)
    plain = array(device, kind)
    repack(device, kind, buffer, layout, plain, PLAIN)
    return device.fetch(plain)


def repack(
    device: Device, kind: TensorType, source: Any, source_layout: Layout, target: Any, target_layout: Layout
) -> None:
    """Copy a value from one layout into another."""
    node, kernel = repacking(device, kind, source_layout, target_layout)
    signature = LayoutSignature((source_layout,), (target_layout,))
    called(device, kernel, node, kernel.bind(node, Buffers((source,), (target,), signature)))()


def repacking(device: Device, kind: TensorType, source_layout: Layout, target_layout: Layout) -> tuple[Node, Kernel]:
    """Return the node and the kernel that copy a value from one layout into another."""
    node = Reorder(source_layout, target_layout)(Input("x", kind)()).node
    return node, kernel_candidates(node, device.kernels).kernels[0]


def signatures(device: Device, kernel: Kernel, call: Call) -> list[LayoutSignature]:
    """Return the layouts of the call's operands and results: for plain operands, and for channels-last ones;
    and where the device has types of fewer bits and the kernel takes them, both once more in these.

    As in the layout pass the results of an elementwise op lie as its whole operands do, all of them alike.
    """

    def channels_last(kind: TensorType) -> Layout:
        return Layout.channels_last(kind.rank) if kind.rank > 2 else PLAIN

    def plain(_: TensorType) -> Layout:
        return PLAIN

    accepted = []
    for layout_of in (plain, channels_last):
        input_layouts = [layout_of(value.type) for value in call.node.inputs]
        if call.op.traits.elementwise:
            accepted.append(
                LayoutSignature(tuple(input_layouts), tuple(layout_of(value.type) for value in call.node.outputs))
            )
        else:
            accepted.append(kernel.layouts(call.node, input_layouts))
            accepted += kernel.alternatives(call.node, input_layouts)
    for signature in accepted[:]:
        for dtype in device.low_precision_dtypes:
            narrow = kernel.low_precision_signature(call.node, in_type(call, signature, dtype))
            if narrow is not None:
                accepted.append(narrow)
    return list(dict.fromkeys(accepted))


def in_type(call: Call, signature: LayoutSignature, dtype: DType) -> LayoutSignature:
    """The layouts with all float32 operands and results in another type."""

    def stored(values: Sequence[Value], layouts: Sequence[Layout]) -> tuple[Layout, ...]:
        floats = [value.dtype == DType.FLOAT32 for value in values]
        return tuple(
            layout.with_dtype(dtype) if as_float else layout for layout, as_float in zip(layouts, floats, strict=True)
        )

    return LayoutSignature(stored(call.node.inputs, signature.inputs), stored(call.node.outputs, signature.outputs))


def is_narrow(signature: LayoutSignature) -> bool:
    return any(layout.dtype is not None for layout in (*signature.inputs, *signature.outputs))


def for_signature(call: Call, signature: LayoutSignature) -> Call:
    """The call, with operands that bfloat16 and float16 can represent if any operand or result is stored in 16 bits."""
    if not is_narrow(signature):
        return call
    return Call(call.node, tuple(_in_16_bits(x) if x.dtype == np.float32 else x for x in call.operands))


def _in_16_bits(x: np.ndarray) -> np.ndarray:
    largest = np.float32(2**15)
    finite = np.where(np.isfinite(x), x.clip(-largest, largest), x)
    return finite.astype(ml_dtypes.bfloat16).astype(np.float32)


def bound(
    device: Device,
    kernel: Kernel,
    call: Call,
    signature: LayoutSignature,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    workspace: Any = None,
) -> Callable[[], None]:
    """A call of the kernel; by default, its workspace is allocated here."""
    if workspace is None:
        workspace = workspace_of(device, kernel, call, signature)
    thunk: Thunk = kernel.bind(call.node, Buffers(tuple(inputs), tuple(outputs), signature, workspace))
    return called(device, kernel, call.node, thunk)


def workspace_of(device: Device, kernel: Kernel, call: Call, signature: LayoutSignature) -> Any:
    """Allocate the workspace that the kernel needs for a call; None if it needs none."""
    size = kernel.workspace(call.node, signature)
    return device.view(device.allocate(align_up(size)), 0, TensorType((size,), DType.UINT8)) if size else None


def called(device: Device, kernel: Kernel, node: Node, thunk: Thunk) -> Callable[[], None]:
    """A call that finds as many threads as the kernel wants."""
    calls = CallSequence(device.set_threads, device.threads())
    calls.add(thunk, node, kernel.threads(node))
    return calls.run


def operands(device: Device, call: Call, signature: LayoutSignature) -> list[Any]:
    """The call's operands on the device, lying as the kernel wants them."""
    return [
        array(device, value.type, x, layout)
        for value, x, layout in zip(call.node.inputs, call.operands, signature.inputs, strict=True)
    ]


def agree(actual: Any, expected: np.ndarray, *, rounded_twice: bool = False) -> None:
    """Assert equality up to rounding; `rounded_twice`: intermediate values were also rounded to fewer bits."""
    stored = DType(str(actual.dtype))
    assert actual.shape == expected.shape
    assert str(stored.compute_dtype) == str(expected.dtype)
    if stored.is_float:
        tolerance = RELATIVE[stored.compute_dtype]
        relative = tolerance if stored == stored.compute_dtype and not rounded_twice else ROUNDED
        tolerance = relative if rounded_twice else tolerance
        scale = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0)))
        np.testing.assert_allclose(actual.astype(expected.dtype), expected, rtol=relative, atol=tolerance * scale)
    else:
        np.testing.assert_array_equal(actual, expected)
