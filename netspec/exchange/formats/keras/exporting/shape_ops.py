"""ONNX's operators that reshape, slice, gather and scatter, as operations of Keras."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from netspec.exchange.formats.keras.exporting.model import OPS_CORE
from netspec.exchange.formats.keras.exporting.operators import (
    EmittedTensor,
    OperationWriter,
    SymbolicSizes,
    as_constant,
    as_integers,
    as_tensor,
    nonnegative_indices,
    operator,
    reduced_shape,
    split_indices,
)
from netspec.exchange.operator_graph.constant_folding import slice_range, squeezed, target_shape, unsqueezed
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.graph.ops.indexing import GatherElements
from netspec.graph.ops.shape import Concat, Transpose


@operator("Shape")
def shape(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Shape; the first size is the batch."""
    x = as_tensor(operands[0])
    return SymbolicSizes((None, *x.shape[1:]), x)


@operator("Reshape")
def reshape(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Reshape: 0 keeps a size, -1 infers it."""
    x, target = as_tensor(operands[0]), as_integers(operands[1])
    return ops.reshaped(x, target_shape(target, x.shape))


@operator("Unsqueeze", "Squeeze")
def squeeze_or_unsqueeze(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Squeeze and Unsqueeze."""
    x, axes = as_tensor(operands[0]), as_integers(operands[1])
    return ops.reshaped(x, (squeezed if node.op_type == "Squeeze" else unsqueezed)(x.shape, axes))


@operator("Transpose")
def transpose(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Transpose."""
    return ops.transposed(as_tensor(operands[0]), node.as_op(Transpose).permutation)


@operator("Expand")
def expand(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Expand: repeat along axes of size 1; a constant is repeated for each sample of a tensor."""
    x, sizes = operands
    if not isinstance(sizes, SymbolicSizes):
        return tiled(ops, as_tensor(x), np.broadcast_shapes(x.shape, tuple(as_integers(sizes))))
    sizes_of_batch = [sizes.batch_tensor.shape[0] if size is None else size for size in sizes.sizes]
    shape_of_batch = np.broadcast_shapes(x.shape, tuple(sizes_of_batch))
    if isinstance(x, EmittedTensor):
        return tiled(ops, x, shape_of_batch)
    x = as_constant(x)
    one_sample = np.broadcast_to(x, (1, *shape_of_batch[1:]))
    return ops.elementwise(
        "Where" if x.dtype == bool else "Add", *_per_sample(ops, sizes.batch_tensor, one_sample), element=str(x.dtype)
    )


def _per_sample(ops: OperationWriter, batch_tensor: EmittedTensor, one_sample: Any) -> list[Any]:
    """Make a constant depend on the samples of a tensor, so that it is repeated for each of them."""
    element = "int32" if one_sample.dtype == bool else str(one_sample.dtype)
    zeros = ops.op(
        "ZerosLike",
        [first_elements(ops, batch_tensor, one_sample.ndim)],
        (batch_tensor.shape[0], *[1] * (one_sample.ndim - 1)),
        element,
        dtype=element,
    )
    if one_sample.dtype != bool:
        return [zeros, one_sample]
    return [ops.elementwise("Equal", zeros, np.array(0, element), element="bool"), one_sample, one_sample]


def first_elements(ops: OperationWriter, batch_tensor: EmittedTensor, rank: int) -> EmittedTensor:
    """One element of each sample of a tensor, (N, 1, …)."""
    if len(batch_tensor.shape) > 1:
        sizes = (batch_tensor.shape[0], prod(batch_tensor.shape[1:]))
        batch_tensor = ops.sliced(ops.reshaped(batch_tensor, sizes), 1, slice(0, 1))
    return ops.reshaped(batch_tensor, (batch_tensor.shape[0], *[1] * (rank - 1)))


def tiled(ops: OperationWriter, x: EmittedTensor, sizes: Sequence[int]) -> EmittedTensor:
    """The tensor repeated along axes of size 1."""
    if len(sizes) > len(x.shape):
        x = ops.reshaped(x, (*[1] * (len(sizes) - len(x.shape)), *x.shape))
    repeats = [size if old_size == 1 else 1 for old_size, size in zip(x.shape, sizes, strict=True)]
    if repeats[0] != 1:
        raise UnsupportedFeature("it repeats one sample for the whole batch")
    return x if set(repeats) == {1} else ops.op("Tile", [x], sizes, repeats=repeats)


@operator("Range")
def sample_range(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """The index of each sample, 0, 1, …."""
    start, stop, step = operands
    if (
        not isinstance(stop, SymbolicSizes)
        or stop.sizes != (None,)
        or as_integers(start) != [0]
        or as_integers(step) != [1]
    ):
        raise UnsupportedFeature(
            "the size of its result depends on the batch size in a way that Keras does not support"
        )
    return ops.reshaped(sample_indices(ops, stop.batch_tensor, 1), (stop.batch_tensor.shape[0],))


def sample_indices(ops: OperationWriter, batch_tensor: EmittedTensor, rank: int) -> Any:
    """The index of each sample, (N, 1, …)."""
    elements = first_elements(ops, batch_tensor, rank)
    ones = ops.op("OnesLike", [elements], elements.shape, "int32", dtype="int32")
    return ops.elementwise("Subtract", ops.op("Cumsum", [ones], ones.shape, axis=0, dtype=None), np.array(1, "int32"))


@operator("Concat")
def concatenate(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Concat."""
    if any(isinstance(operand, SymbolicSizes) for operand in operands):
        (batch_tensor,) = {operand.batch_tensor for operand in operands if isinstance(operand, SymbolicSizes)}
        return SymbolicSizes(tuple(size for operand in operands for size in _sizes(operand)), batch_tensor)
    axis = node.as_op(Concat).axis % len(operands[0].shape)
    sizes = [
        sum(operand.shape[axis] for operand in operands) if result_axis == axis else size
        for result_axis, size in enumerate(operands[0].shape)
    ]
    return ops.op("Concatenate", [list(operands)], sizes, axis=axis)


def _sizes(operand: Any) -> Sequence[int | None]:
    return operand.sizes if isinstance(operand, SymbolicSizes) else as_integers(operand)


@operator("Slice")
def slice_(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Slice; negative steps slice the reversed tensor."""
    x, starts, ends, axes, steps = [*operands, None, None][:5]
    starts, ends = as_integers(starts), as_integers(ends)
    axes = list(range(len(starts))) if axes is None else as_integers(axes)
    steps = [1] * len(starts) if steps is None else as_integers(steps)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis, size = axis % len(x.shape), x.shape[axis]
        indices = slice_range(start, end, step, size)
        if indices == range(size):
            continue
        if not indices:
            raise UnsupportedFeature("its result is empty along an axis")
        if not isinstance(x, EmittedTensor):
            x = as_constant(x).take(list(indices), axis)
            continue
        if axis == 0:
            raise UnsupportedFeature("it selects samples of the batch")
        if indices.step < 0:
            x = ops.op("Flip", [x], x.shape, axis=axis)
            indices = range(size - 1 - indices[0], size - indices[-1], -indices.step)
        step = None if indices.step == 1 else indices.step
        if indices != range(size):
            x = ops.sliced(x, axis, slice(indices.start, min(size, indices[-1] + 1), step))
    return x


@operator("Split")
def split(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Split."""
    x, axis = as_tensor(operands[0]), int(node.attributes.get("axis", 0)) % len(operands[0].shape)
    count = len(node.outputs)
    sections = as_integers(operands[1]) if len(operands) > 1 else [x.shape[axis] // count] * count
    shapes = [[*x.shape[:axis], size, *x.shape[axis + 1 :]] for size in sections]
    first = ops.op("Split", [x], shapes[0], indices_or_sections=split_indices(sections), axis=axis)
    return ops.outputs(first, shapes)


@operator("Pad")
def pad(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Pad by constants, or by gathered elements of the data."""
    x, pads, value, axes = [*operands, None, None][:4]
    x, mode, pad_sizes = as_tensor(x), str(node.attributes.get("mode", "constant")), as_integers(pads)
    axes = list(range(len(x.shape))) if axes is None else as_integers(axes)
    pad_width = [[0, 0] for _ in x.shape]
    for index, axis in enumerate(axes):
        pad_width[axis] = [pad_sizes[index], pad_sizes[index + len(axes)]]
    for axis, (pad_before, pad_after) in enumerate(pad_width):
        if min(pad_before, pad_after) < 0:  # negative padding crops
            x = ops.sliced(x, axis, slice(max(0, -pad_before), x.shape[axis] + min(0, pad_after)))
            pad_width[axis] = [max(0, pad_before), max(0, pad_after)]
    if mode == "constant":
        fill_value = 0.0 if value is None else as_constant(value).ravel()[0].item()
        sizes = [size + sum(side) for size, side in zip(x.shape, pad_width, strict=True)]
        return ops.op("Pad", [x], sizes, pad_width=pad_width, mode="constant", kwargs={"constant_values": fill_value})
    for axis, side in enumerate(pad_width):
        if any(side):
            x = _take(ops, x, axis, _source_indices(x.shape[axis], side, mode))
    return x


def _source_indices(size: int, pad_width: Sequence[int], mode: str) -> Any:
    """The source index of each element of a padded axis."""
    indices = np.pad(np.arange(size), tuple(pad_width), mode=mode)  # type: ignore[call-overload]  # a mode of NumPy's
    return indices.astype("int32")


def _take(ops: OperationWriter, x: Any, axis: int, index: Any) -> EmittedTensor:
    sizes = [*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]]
    return ops.op("Take", [x, index], sizes, str(x.dtype), axis=axis)


@operator("Gather")
def gather(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Gather by constant or computed indices."""
    x, index = operands
    if isinstance(x, SymbolicSizes):
        return SymbolicSizes(tuple(x.sizes[position] for position in as_integers(index)), x.batch_tensor)
    axis = int(node.attributes.get("axis", 0)) % len(x.shape)
    if not isinstance(index, EmittedTensor):
        index = as_constant(index) % x.shape[axis]
        if index.ndim == 0:  # a scalar index removes the axis
            return ops.op("Take", [x, int(index)], reduced_shape(x.shape, [axis], False), axis=axis)
        index = index.astype("int32")
    return _take(ops, x, axis, index)


@operator("GatherElements")
def gather_elements(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """GatherElements."""
    x, index = operands
    axis = node.as_op(GatherElements).axis % len(x.shape)
    x, index = (
        ops.cropped(x, index.shape, axis),
        index if isinstance(index, EmittedTensor) else as_constant(index).astype("int32"),
    )
    return ops.op("TakeAlongAxis", [x, index], index.shape, str(x.dtype), axis=axis)


@operator("GatherND")
def gather_nd(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """GatherND: rows of a table, looked up by flat indices."""
    x, index = operands
    batch_dims, count = int(node.attributes.get("batch_dims", 0)), index.shape[-1]
    if not isinstance(x, EmittedTensor) or not isinstance(index, EmittedTensor):
        raise UnsupportedFeature("the data of GatherND does not depend on the samples")
    sizes, row_shape, index_shape = (
        x.shape[batch_dims : batch_dims + count],
        x.shape[batch_dims + count :],
        index.shape[batch_dims:-1],
    )
    flat = flat_indices(ops, index, sizes)
    if batch_dims == 0:
        return _take(ops, ops.reshaped(x, (prod(sizes), *row_shape)), 0, flat)
    if batch_dims > 1:  # batch axes: each has its own part of the table
        table_offsets = np.arange(prod(x.shape[1:batch_dims])) * prod(sizes)
        flat = ops.elementwise(
            "Add", flat, table_offsets.reshape(1, *x.shape[1:batch_dims], *[1] * len(index_shape)).astype(flat.dtype)
        )
    sample, count = x.shape[0], prod(flat.shape[1:])
    gathered_shape = (sample, count, prod(row_shape))
    row_indices = tiled(ops, ops.reshaped(flat, (sample, count, 1)), gathered_shape)
    table = ops.reshaped(x, (sample, prod(x.shape[1:batch_dims]) * prod(sizes), prod(row_shape)))
    gathered = ops.op("TakeAlongAxis", [table, row_indices], gathered_shape, x.dtype, axis=1)
    return ops.reshaped(gathered, (*x.shape[:batch_dims], *index_shape, *row_shape))


def flat_indices(ops: OperationWriter, index: EmittedTensor, sizes: Sequence[int]) -> EmittedTensor:
    """Indices along several axes, the last axis of `index`, as flat indices."""
    element, shape = index.dtype, index.shape
    index = nonnegative_indices(ops, index, sizes)
    if shape[-1] == 1:
        return ops.reshaped(index, shape[:-1])
    steps = np.array([prod(sizes[k + 1 :]) for k in range(len(sizes))], element)
    product = ops.elementwise("Multiply", index, steps)
    return ops.cast(ops.op("Sum", [product], shape[:-1], axis=len(shape) - 1, keepdims=False), element)


@operator("ScatterElements")
def scatter_elements(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """ScatterElements."""
    x, index, updates = (as_tensor(operand) for operand in operands)
    axis, rank = int(node.attributes.get("axis", 0)) % len(x.shape), len(x.shape)
    index = nonnegative_indices(ops, ops.cast(index, "int32"), x.shape[axis])
    zeros = ops.op("ZerosLike", [index], index.shape, "int32", dtype="int32")
    columns = []
    for index_axis in range(rank):
        if index_axis == axis:
            columns.append(index)
            continue
        position_shape = [-1 if index == index_axis else 1 for index in range(rank)]
        positions = (
            sample_indices(ops, index, rank)
            if index_axis == 0
            else np.arange(index.shape[index_axis], dtype="int32").reshape(position_shape)
        )
        columns.append(ops.elementwise("Add", zeros, positions))
    count = prod(index.shape)
    flat = [ops.reshaped(column, (count, 1)) for column in columns]
    indices = ops.op("Concatenate", [flat], (count, rank), "int32", axis=1)
    return _scatter(ops, node, x, indices, ops.reshaped(updates, (count,)))


def _scatter(
    ops: OperationWriter, node: OperatorNode, x: EmittedTensor, indices: EmittedTensor, updates: EmittedTensor
) -> EmittedTensor:
    reduction = node.attributes.get("reduction", "none")
    return ops.op(
        "ScatterUpdate", [x, indices, updates], x.shape,
        module=OPS_CORE, reduction=None if reduction == "none" else reduction,
    )  # fmt: skip


@operator("Trilu")
def triangle(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """An operation on each matrix."""
    x, k = as_tensor(operands[0]), as_integers(operands[1])[0] if len(operands) > 1 else 0
    return ops.op("Triu" if node.attributes.get("upper", 1) else "Tril", [x], x.shape, k=k)
