"""Check a kernel: run its calls on a device, in each layout that it offers, and compare them with the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from netspec.backends.device import Device, numpy_type
from netspec.backends.executor import CallSequence
from netspec.backends.op_call import OpCall
from netspec.graph.execution_plan import align_up
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel_candidates
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.ops.shape import Reorder
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node, Value

RELATIVE = {DType.FLOAT32: 2e-5, DType.FLOAT64: 1e-12}
"""Share of the largest element of a result: some hundred terms in another order, with or without fused
multiplications."""

ROUNDED = 2**-8
"""Share of an element stored as bfloat16, which has 8 significant bits: rounding changes half of the last one, and two
values that differ by a rounding of float32 may be rounded to two neighbors."""


def array(device: Device, kind: TensorType, host: Any = None, layout: Layout = PLAIN) -> Any:
    """An array on the device with the given values, or full of a value that no kernel would write by chance."""
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


def signatures(device: Device, kernel: Kernel, call: OpCall) -> list[LayoutSignature]:
    """Return the layouts of a call's operands and results that a kernel accepts.

    For plain and for channels-last operands, each also in the 16-bit types of the device, if the kernel supports
    these. As in the layout pass, the results of an elementwise op are stored like its operands.
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


def in_type(call: OpCall, signature: LayoutSignature, dtype: DType) -> LayoutSignature:
    """The layouts, with all float32 operands and results stored in another type."""

    def stored(values: Sequence[Value], layouts: Sequence[Layout]) -> tuple[Layout, ...]:
        floats = [value.dtype == DType.FLOAT32 for value in values]
        return tuple(
            layout.with_dtype(dtype) if as_float else layout for layout, as_float in zip(layouts, floats, strict=True)
        )

    return LayoutSignature(stored(call.node.inputs, signature.inputs), stored(call.node.outputs, signature.outputs))


def is_narrow(signature: LayoutSignature) -> bool:
    """Whether an operand or a result is stored in a 16-bit type."""
    return any(layout.dtype is not None for layout in (*signature.inputs, *signature.outputs))


def for_signature(call: OpCall, signature: LayoutSignature) -> OpCall:
    """The call; if any operand or result is stored in 16 bits, operands are values that fit in 16 bits exactly."""
    if not is_narrow(signature):
        return call
    return OpCall(call.node, tuple(_in_16_bits(x) if x.dtype == np.float32 else x for x in call.operands))


def _in_16_bits(x: np.ndarray) -> np.ndarray:
    largest = np.float32(2**15)
    finite = np.where(np.isfinite(x), x.clip(-largest, largest), x)
    return finite.astype(numpy_type(DType.BFLOAT16)).astype(np.float32)


def bound(
    device: Device,
    kernel: Kernel,
    call: OpCall,
    signature: LayoutSignature,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    workspace: Any = None,
) -> Callable[[], None]:
    """A call of the kernel; its workspace is allocated if none is given."""
    if workspace is None:
        workspace = workspace_of(device, kernel, call, signature)
    thunk: Thunk = kernel.bind(call.node, Buffers(tuple(inputs), tuple(outputs), signature, workspace))
    return called(device, kernel, call.node, thunk)


def workspace_of(device: Device, kernel: Kernel, call: OpCall, signature: LayoutSignature) -> Any:
    """Allocate the workspace that the kernel needs for a call; None if it needs none."""
    size = kernel.workspace(call.node, signature)
    return device.view(device.allocate(align_up(size)), 0, TensorType((size,), DType.UINT8)) if size else None


def called(device: Device, kernel: Kernel, node: Node, thunk: Thunk) -> Callable[[], None]:
    """A call with the number of threads that the kernel requests."""
    calls = CallSequence(device.set_threads, device.threads())
    calls.add(thunk, node, kernel.threads(node))
    return calls.run


def operands(device: Device, call: OpCall, signature: LayoutSignature) -> list[Any]:
    """The call's operands on the device, in the layouts that the kernel requested."""
    return [
        array(device, value.type, x, layout)
        for value, x, layout in zip(call.node.inputs, call.operands, signature.inputs, strict=True)
    ]


class WrongResult(AssertionError):
    """A kernel's results differ from the reference."""


def agree(actual: Any, expected: np.ndarray, *, rounded_twice: bool = False) -> None:
    """Raise `WrongResult` unless both are equal up to rounding.

    `rounded_twice`: intermediate values were also rounded to fewer bits.
    """
    stored = DType(str(actual.dtype))
    assert actual.shape == expected.shape
    assert str(stored.compute_dtype) == str(expected.dtype)
    if not stored.is_float:
        wrong = actual != expected
        if wrong.any():
            raise WrongResult(f"{wrong.sum():,} of {actual.size:,} elements differ from the reference")
        return
    tolerance = RELATIVE[stored.compute_dtype]
    relative = tolerance if stored == stored.compute_dtype and not rounded_twice else ROUNDED
    absolute = relative if rounded_twice else tolerance
    scale = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0)))
    actual = actual.astype(expected.dtype)
    wrong = ~np.isclose(actual, expected, rtol=relative, atol=absolute * scale, equal_nan=True)
    if wrong.any():
        with np.errstate(invalid="ignore"):
            most = float(np.abs(actual - expected)[wrong].max())
        raise WrongResult(
            f"{wrong.sum():,} of {actual.size:,} elements differ from the reference, by up to {most:.3g}; "
            f"the largest element is {scale:.3g}"
        )


def check_call(
    device: Device, kernel: Kernel, call: OpCall, signature: LayoutSignature, *, rounded_twice: bool = False
) -> None:
    """Run a call twice. Raise `WrongResult` if results differ from the reference or vary, or if operands change.

    `rounded_twice` as in `agree`.
    """
    expected, node = call.results(), call.node
    with device.running():
        inputs = operands(device, call, signature)
        kinds = list(zip(node.types, signature.outputs, strict=True))
        outputs = [array(device, kind, None, layout) for kind, layout in kinds]
        run = bound(device, kernel, call, signature, inputs, outputs)
        originals = [device.fetch(x) for x in inputs]
        run()
        first = [fetch(device, y, kind, layout) for y, (kind, layout) in zip(outputs, kinds, strict=True)]
        for result, right in zip(first, expected, strict=True):
            agree(result, right, rounded_twice=rounded_twice)
        for y, (kind, layout) in zip(outputs, kinds, strict=True):
            device.upload(y, device.fetch(array(device, kind, None, layout)))
        run()
        for y, before, right, (kind, layout) in zip(outputs, first, expected, kinds, strict=True):
            again = fetch(device, y, kind, layout)
            agree(again, right, rounded_twice=rounded_twice)
            if kernel.deterministic and again.tobytes() != before.tobytes():
                raise WrongResult("results of two calls are not bit-identical")
        for x, before in zip(inputs, originals, strict=True):
            if device.fetch(x).tobytes() != before.tobytes():
                raise WrongResult("the call changes its operands")
