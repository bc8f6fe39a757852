"""Multi-tensor elementwise kernels: one generated kernel over many sets of arrays, shared among the threads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from netspec.backends.common.copy_kernels import chain
from netspec.backends.common.elementwise import BaseMultiTensorKernel
from netspec.backends.numba import native
from netspec.backends.numba.kernels.elementwise import OPERATIONS_PER_ELEMENT, dtype_of, source_of
from netspec.backends.numba.scalar_code import WRITER, scalar_code
from netspec.graph.fused import MultiTensor
from netspec.graph.kernel import Buffers, Thunk, kernel
from netspec.graph.types import DType
from netspec.graph.value import Node

ENTRY = """{body}


def each(first, last, table, sets):
    for k in range(sets):
        row = k * {width}
        start, count = table[row], table[row + 1]
        low, high = max(first - start, 0), min(last - start, count)
        if low < high:
            one(low, high, {pointers})
"""


@kernel(MultiTensor, backend="numba", rank=10)
class MultiTensorKernel(BaseMultiTensorKernel):
    """Every elementwise op on sets of plain arrays of one shape each, and scalars."""

    writer = WRITER

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op = node.op
        assert isinstance(op, MultiTensor)
        code = scalar_code(op.op, *(value.dtype for value in op.sets(node.inputs)[0]))
        # sets whose results overwrite other operands, or are not all read, need other code
        alike: dict[tuple[str, tuple[DType, ...]], list[list[Any]]] = defaultdict(list)
        for inputs, outputs in zip(op.sets(buffers.inputs), op.sets(buffers.outputs), strict=True):
            if all(result is None for result in outputs):
                continue
            source, arrays = source_of(code, inputs, outputs)
            assert not source.numbers(), "plain arrays of one shape, and scalars: one loop, steps of 1 and 0"
            dtypes = tuple(dtype_of(arrays[index]) for index in source.arrays)
            alike[source.text(), dtypes].append([arrays[index] for index in source.arrays])
        return chain([_bound(text, dtypes, sets, len(code[0])) for (text, dtypes), sets in alike.items()])


def _bound(text: str, dtypes: Sequence[DType], sets: Sequence[Sequence[Any]], lines: int) -> Thunk:
    """A call that runs one source on many sets of arrays."""
    width = 2 + len(dtypes)
    table = np.zeros((len(sets), width), np.int64)
    total = 0
    for row, arrays in zip(table, sets, strict=True):
        count = max(array.size for array in arrays)
        row[:2] = total, count
        row[2:] = [array.__array_interface__["data"][0] for array in arrays]
        total += count
    pointers = ", ".join(
        f"pointer(table[row + {index}], {native.STORED.get(dtype, dtype)})" for index, dtype in enumerate(dtypes, 2)
    )
    inner = f"{text}\n\n{native.compiled('body', name='one')}"
    source = ENTRY.format(body=inner, width=width, pointers=pointers)
    arguments = (native.Pointer(DType.INT64), native.Size())
    work = total + total * lines // OPERATIONS_PER_ELEMENT
    thunk = native.of_source(source, arguments, "each").bind(total, work, table, len(sets))
    vars(thunk)["sets"] = sets  # keep the arrays alive as long as the call
    return thunk
