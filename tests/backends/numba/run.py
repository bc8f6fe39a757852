"""Runs one op by its numba kernel, on arrays in a given layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from netspec.backends.device import CpuDevice
from netspec.graph.kernel import Buffers, candidates
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.op import Op
from netspec.graph.ops.source import Input
from netspec.graph.plan import aligned
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

DEVICE = CpuDevice()
DEVICE.load_kernels()


def node_of(op: Op, *arrays: Any) -> Node:
    inputs = [Input(f"x{i}", TensorType(x.shape, DType(str(x.dtype))))() for i, x in enumerate(map(np.asarray, arrays))]
    return op.many(*inputs)[0].node


def placed(array: np.ndarray, layout: Layout) -> Any:
    kind = TensorType(array.shape, DType(str(array.dtype)))
    made = DEVICE.view(DEVICE.allocate(aligned(kind.nbytes)), 0, kind, layout)
    made[...] = array
    return made


def by_numba(
    op: Op, *operands: Any, given: Sequence[Layout] | None = None, over: int | None = None
) -> list[np.ndarray]:
    """The results; `over`: the first is written over an operand."""
    arrays = [np.asarray(x) for x in operands]
    node = node_of(op, *arrays)
    kernel = candidates(node, ["numba"]).kernels[0]
    given = given or [PLAIN] * len(arrays)
    if op.traits.elementwise:
        whole = next(one for one, x in zip(given, arrays, strict=True) if x.shape == node.types[0].shape)
        lying = Signature(tuple(given), (whole,) * len(node.types))
    else:
        lying = kernel.layouts(node, given)
    inputs = [placed(x, layout) for x, layout in zip(arrays, lying.inputs, strict=True)]
    outputs = [
        placed(np.zeros(kind.shape, str(kind.dtype)), layout)
        for kind, layout in zip(node.types, lying.outputs, strict=True)
    ]
    if over is not None:
        outputs[0] = inputs[over]
    size = kernel.workspace(node, lying)
    memory = DEVICE.allocate(aligned(size)) if size else None
    kernel.bind(node, Buffers(tuple(inputs), tuple(outputs), lying, memory))()
    return [np.array(y) for y in outputs]


def by_reference(op: Op, *operands: Any) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        made = op.forward(np, *map(np.asarray, operands))
    return [np.asarray(y) for y in (made if isinstance(made, tuple) else (made,))]
