"""Multi-tensor elementwise kernels: the update of all parameters in one launch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from netspec.backends.common.copy_kernels import chain
from netspec.backends.common.elementwise import BaseMultiTensorKernel
from netspec.backends.common.trace import Code
from netspec.backends.cuda import launch
from netspec.backends.cuda.kernels.elementwise import stored_type, value_type
from netspec.backends.cuda.launch import Launch, pointer, sizes
from netspec.backends.cuda.scalar_code import WRITER, scalar_code
from netspec.graph.fused import MultiTensor
from netspec.graph.kernel import Buffers, Thunk, kernel
from netspec.graph.value import Node

CHUNK = 2048
"""Elements of a set that a block handles: large sets are split among blocks."""


@kernel(MultiTensor, backend="cuda", rank=10)
class MultiTensorKernel(BaseMultiTensorKernel):
    """Every elementwise op on sets of plain arrays of one shape each, and scalars."""

    writer = WRITER

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op = node.op
        assert isinstance(op, MultiTensor)
        code = scalar_code(op.op, *(value.dtype for value in op.sets(node.inputs)[0]))
        alike: dict[tuple[bool, ...], list[tuple[Sequence[Any], Sequence[Any | None]]]] = defaultdict(list)
        for inputs, outputs in zip(op.sets(buffers.inputs), op.sets(buffers.outputs), strict=True):
            if any(result is not None for result in outputs):
                repeated = (operand.ndim == 0 for operand in inputs)
                alike[*repeated, *(result is not None for result in outputs)].append((inputs, outputs))
        return chain([_bound(code, sets) for sets in alike.values()])


def _bound(code: Code, sets: Sequence[tuple[Sequence[Any], Sequence[Any | None]]]) -> Thunk:
    """A call for sets that have the same scalar operands, and of which the same results are read."""
    lines, names = code
    inputs, outputs = sets[0]
    written = [k for k, result in enumerate(outputs) if result is not None]
    first = [*inputs, *(outputs[k] for k in written)]
    is_array = [operand.ndim > 0 for operand in inputs] + [True] * len(written)
    rows = []
    for operands, results in sets:
        arrays = [*operands, *(results[k] for k in written)]
        size = max(array.size for array in arrays)
        addresses = list(map(launch.engine.address, arrays))
        for start in range(0, size, CHUNK):
            moved = [
                at + start * array.itemsize * long for at, array, long in zip(addresses, arrays, is_array, strict=True)
            ]
            rows.append([min(CHUNK, size - start), *moved])
    kinds = [stored_type(array) for array in first]
    body = ["BLOCKS(unit, count) {", f"    const int64 *row = table + unit * {1 + len(first)};"]
    body += [f"    {kind} *p{k} = ({kind} *)row[{k + 1}];" for k, kind in enumerate(kinds)]
    body.append("    for (int i = threadIdx.x; i < row[0]; i += blockDim.x) {")
    body += [
        f"        const {value_type(operand)} a{k} = load(p{k}[{'i' if is_array[k] else 0}]);"
        for k, operand in enumerate(inputs)
    ]
    body += [f"        {line}" for line in lines]
    body += [f"        store(p{len(inputs) + index}[i], {names[k]});" for index, k in enumerate(written)]
    body += ["    }", "}"]
    table = launch.engine.table(np.array(rows, np.int64))
    parameters = [pointer("table", table), *sizes(len(rows), count=len(rows))]
    thunk = Launch(parameters, "\n".join(body), len(rows), of_blocks=True).bind()
    vars(thunk)["sets"] = sets  # keep the arrays alive as long as the call
    return thunk
