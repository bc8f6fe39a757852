"""Runs one op by its numba kernel, on arrays in a given layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from netspec.backends.backend import load_kernels
from netspec.backends.device_registry import CpuDevice
from netspec.graph.execution_plan import align_up
from netspec.graph.kernel import Buffers, kernel_candidates
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.op import Op
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

DEVICE = CpuDevice()
load_kernels(*DEVICE.kernels)


def node_of(op: Op, *arrays: Any) -> Node:
    inputs = [Input(f"x{i}", TensorType(x.shape, DType(str(x.dtype))))() for i, x in enumerate(map(np.asarray, arrays))]
    return op.call_multi(*inputs)[0].node


def placed(array: np.ndarray, layout: Layout) -> Any:
    kind = TensorType(array.shape, DType(str(array.dtype)))
    result = DEVICE.view(DEVICE.allocate(align_up(kind.nbytes)), 0, kind, layout)
    result[...] = array
    return result


def by_numba(
    op: Op, *operands: Any, layouts: Sequence[Layout] | None = None, over: int | None = None
) -> list[np.ndarray]:
    """Return the results; with `over`, the first result overwrites an operand."""
    arrays = [np.asarray(x) for x in operands]
    node = node_of(op, *arrays)
    kernel = kernel_candidates(node, ["numba"]).kernels[0]
    layouts = layouts or [PLAIN] * len(arrays)
    if op.traits.elementwise:
        full = next(layout for layout, x in zip(layouts, arrays, strict=True) if x.shape == node.types[0].shape)
        signature = LayoutSignature(tuple(layouts), (full,) * len(node.types))
    else:
        signature = kernel.layouts(node, layouts)
    inputs = [placed(x, layout) for x, layout in zip(arrays, signature.inputs, strict=True)]
    outputs = [
        placed(np.zeros(kind.shape, str(kind.dtype)), layout)
        for kind, layout in zip(node.types, signature.outputs, strict=True)
    ]
    if over is not None:
        outputs[0] = inputs[over]
    size = kernel.workspace(node, signature)
    memory = DEVICE.allocate(align_up(size)) if size else None
    kernel.bind(node, Buffers(tuple(inputs), tuple(outputs), signature, memory))()
    return [np.array(y) for y in outputs]


def by_reference(op: Op, *operands: Any) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        result = op.forward(np, *map(np.asarray, operands))
    return [np.asarray(y) for y in (result if isinstance(result, tuple) else (result,))]
