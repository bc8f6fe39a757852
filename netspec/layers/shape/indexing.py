"""Elements read from, or written to, the indices that a field or another input gives: Gather, ScatterND, …."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator

from netspec.graph.ops import indexing, linear, shape
from netspec.graph.ops.elementwise import call_elementwise, cast
from netspec.graph.ops.integer import Mod
from netspec.graph.ops.reduce import BroadcastLike, reshape_to
from netspec.graph.ops.shape import Concat, Slice
from netspec.graph.ops.source import constant
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, require, require_countable, sample_axis
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.spec import describe, problem

MAX_STEPPED_ELEMENTS = 2**24
"""Largest number of elements that a Slice with a step selects one by one."""


def _indices(value: Any) -> Any:
    fits = isinstance(value, (list, tuple)) and value and all(type(item) is int for item in value)
    if not fits:
        raise problem("not a list of indices", expected="integers, such as [0, 2]", got=describe(value))
    return tuple(value)


Indices = Annotated[tuple[int, ...], BeforeValidator(_indices, json_schema_input_type=list[int])]
"""One or more integers."""


@LAYERS.register
class Gather(LayerSpec):
    """Select elements along an axis by index: the same indices for all samples, or those of a second input.

    Input (N, …, A, …), output (N, …, K, …) for K indices. A second input (N, K…) holds integers from -A to A - 1; its
    axes, any number of them or none, replace the indexed axis.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "index": "use `indices`",
        "dim": "`dim` is PyTorch's name: use `axis`",
    }
    onnx_equivalents: ClassVar[tuple[str, ...]] = ("Slice",)

    type: Literal["Gather"] = "Gather"
    indices: Indices | None = None
    """The indices, counted from 0, negative ones from the end; omitted if a second input holds them."""
    axis: int = 1
    """The axis to gather along; 1 is the channels."""

    samples: ClassVar = (
        Sample.of((2, 4, 2), indices=[3, 0, 1, 0, -1]),
        Sample.of((2, 2, 3), indices=[2, 0], axis=-1),
        Sample.of((2, 4, 2), (2, 3), dtypes=("float32", "int32"), no_onnx_roundtrip=True),
        Sample.of((2, 2, 4), (2, 1), dtypes=("float32", "int64"), axis=2, no_onnx_roundtrip=True),
        Sample.of((2, 2, 4, 2), (2, 3, 2), dtypes=("float32", "int64"), axis=2, no_onnx_roundtrip=True),
        Sample.of((2, 4, 2), (2,), dtypes=("float32", "int64"), no_onnx_roundtrip=True),
    )

    def build(self, builder: Builder, x: Value, indices: Value | None = None) -> Value:
        """x: (N, …, A, …), indices: (N, K) → (N, …, K, …)."""
        axis = sample_axis(x, self.axis, "to gather along")
        size = x.shape[axis]
        require(
            (self.indices is None) != (indices is None),
            "`indices` are missing" if indices is None else "`indices` and a second input are both given",
            expected="`indices`, or a second input with integers",
        )
        if indices is None:
            assert self.indices is not None
            require(
                all(-size <= index < size for index in self.indices),
                f"index out of range along axis {axis}",
                expected=f"integers from {-size} to {size - 1}",
                got=f"{list(self.indices)}",
            )
            return shape.Take(axis, tuple(index % size for index in self.indices))(x)
        require(
            not indices.dtype.is_float and indices.dtype != DType.BOOL and indices.shape[0] == x.shape[0],
            "the second input does not hold indices",
            expected="integers (batch, …)",
            got=indices.type,
        )
        builder.require_range(indices, -size, size, f"axis {axis} of the first input has {size} elements")
        others = [other for other in range(1, len(x.shape)) if other != axis]
        front = x if axis == 1 else shape.Transpose((0, axis, *others))(x)
        picked = indexing.GatherND(1)(front, reshape_to(indices, (*indices.shape, 1)))
        count = len(indices.shape) - 1
        order = (0, *range(count + 1, count + axis), *range(1, count + 1), *range(count + axis, len(picked.shape)))
        return picked if axis == 1 else shape.Transpose(order)(picked)


@LAYERS.register
class BatchReindex(LayerSpec):
    """Select the samples of a batch by index, as Caffe's BatchReindex does; samples may be repeated or left out.

    Input (N, …) and integers (N) from 0 to N - 1, output (N, …): sample i is sample index[i] of the input.
    """

    type: Literal["BatchReindex"] = "BatchReindex"

    samples: ClassVar = (Sample.of((2, 3, 2), (2,), dtypes=("float32", "int32"), high=1),)

    def build(self, builder: Builder, x: Value, index: Value) -> Value:
        """x: (N, …), index: (N) → (N, …)."""
        require(
            not index.dtype.is_float and len(index.shape) == 1,
            "the second input does not hold indices of samples",
            expected="integers (batch): an input with `shape: []` and `dtype: int32`",
            got=index.type,
        )
        return linear.Gather()(x, index)


Joined: TypeAlias = Literal["none", "add", "mul", "min", "max"]


def require_indices(x: Value, indices: Value, *, rank: int | None = None) -> None:
    """Raise unless the second input holds integers and has the required number of axes."""
    is_integer = not indices.dtype.is_float and indices.dtype != DType.BOOL
    require(
        is_integer and (rank is None or len(indices.shape) == rank),
        "the second input does not hold indices",
        expected="integers" + (f" (batch, …) of {rank} axes, as the first input has" if rank else ""),
        got=indices.type,
    )


class ElementwiseIndexing(LayerSpec):
    """Base of layers that read or write elements along one axis."""

    foreign_fields: ClassVar[dict[str, str]] = {"dim": "`dim` is PyTorch's name: use `axis`"}

    axis: int = 1
    """The axis that the indices refer to."""

    def check_axis(self, builder: Builder, x: Value, indices: Value) -> int:
        """Check the indices, and return the axis counted from the front.

        Along each other axis there must be at most as many indices as elements.
        """
        axis = sample_axis(x, self.axis, "to search along")
        require_indices(x, indices, rank=len(x.shape))
        for k, (size, count) in enumerate(zip(x.shape, indices.shape, strict=True)):
            fits = k == axis or count == size or (k > 0 and count < size)
            require(
                fits,
                f"there are more indices than elements along axis {k}",
                expected=f"up to {size}",
                got=count,
            )
        builder.require_range(indices, -x.shape[axis], x.shape[axis], f"axis {axis} has {x.shape[axis]} elements")
        return axis


def _shorter_axis(x: Value, axis: int, indices: Value) -> int | None:
    """The first axis other than `axis` with fewer indices than elements."""
    shorter = (k for k, count in enumerate(indices.shape) if k != axis and count < x.shape[k])
    return next(shorter, None)


@LAYERS.register
class GatherElements(ElementwiseIndexing):
    """Select an element for each index of a second input, along `axis`.

    Inputs (N, …, A, …) and integers (N, …, K, …) from -A to A - 1, output (N, …, K, …): PyTorch's `gather`. Along the
    other axes there may be fewer indices than elements.
    """

    type: Literal["GatherElements"] = "GatherElements"

    samples: ClassVar = (
        Sample.of((2, 4, 3), (2, 2, 3), dtypes=("float32", "int32")),
        Sample.of((2, 3, 4), (2, 2, 5), dtypes=("float32", "int64"), axis=-1),
    )

    def build(self, builder: Builder, x: Value, indices: Value) -> Value:
        """x: (N, …, A, …), indices: (N, …, K, …) → (N, …, K, …)."""
        axis = self.check_axis(builder, x, indices)
        while (beyond := _shorter_axis(x, axis, indices)) is not None:
            x = Slice(beyond, 0, indices.shape[beyond])(x)
        return indexing.GatherElements(axis)(x, indices)


@LAYERS.register
class ScatterElements(ElementwiseIndexing):
    """Write elements of a third input to the indices of a second, along `axis` of the first.

    Inputs (N, …, A, …), integers (N, …, K, …) from -A to A - 1 and updates (N, …, K, …), output (N, …, A, …). If an
    index is repeated, `reduction` combines its updates; with "none" any one of them is kept, and all get the gradient.
    """

    type: Literal["ScatterElements"] = "ScatterElements"
    reduction: Joined = "none"
    """Operation that combines updates with the old element and with each other: replace it, or the sum, product,
    minimum or maximum."""

    samples: ClassVar = (
        Sample.of((2, 4, 3), (2, 1, 3), (2, 1, 3), dtypes=("float32", "int32", "float32")),
        Sample.of((2, 3), (2, 4), (2, 4), dtypes=("float32", "int64", "float32"), reduction="add", high=3),
        Sample.of((2, 4), (2, 1), (2, 1), dtypes=("float32", "int64", "float32"), axis=-1, reduction="mul"),
        Sample.of((2, 4), (2, 2), (2, 2), dtypes=("float32", "int64", "float32"), reduction="max"),
        Sample.of((2, 4), (2, 2), (2, 2), dtypes=("float32", "int64", "float32"), reduction="min"),
    )

    def build(self, builder: Builder, x: Value, indices: Value, updates: Value) -> Value:
        """x: (N, …, A, …), indices and updates: (N, …, K, …) → (N, …, A, …)."""
        axis = self.check_axis(builder, x, indices)
        require_updates(x, indices.shape, updates)
        return self._scatter(x, axis, indices, updates)

    def _scatter(self, x: Value, axis: int, indices: Value, updates: Value) -> Value:
        """Write to the part of x that the indices cover, and concatenate the rest."""
        beyond = _shorter_axis(x, axis, indices)
        if beyond is None:
            return indexing.ScatterElements(axis, self.reduction)(x, indices, updates)
        count = indices.shape[beyond]
        part = self._scatter(Slice(beyond, 0, count)(x), axis, indices, updates)
        return Concat(beyond)(part, Slice(beyond, count, x.shape[beyond])(x))


def require_updates(x: Value, shape: tuple[int, ...], updates: Value) -> None:
    """Raise unless there is an update for each index."""
    expected = x.type.with_shape(*shape)
    require(
        updates.type == expected, "the updates do not match the indices", expected=expected.describe(), got=updates.type
    )


@LAYERS.register
class GatherND(LayerSpec):
    """Select parts of each sample by indices along its first axes, from a second input.

    Inputs (N, A, B, …, rest…) and integers (N, K…, count), each row an index into the first `count` axes after the
    batch, output (N, K…, rest…). Negative integers count from the end.
    """

    type: Literal["GatherND"] = "GatherND"
    batch_dims: PositiveInt = 1
    """Number of first axes, including the batch, that both inputs share: indices refer to the axes after them."""

    samples: ClassVar = (
        Sample.of((2, 4, 3), (2, 5, 1), dtypes=("float32", "int64")),
        Sample.of((2, 4, 4, 2), (2, 3, 2), dtypes=("float32", "int32")),
        Sample.of((2, 3, 4, 2), (2, 3, 2, 1), dtypes=("float32", "int64"), batch_dims=2),
    )

    def build(self, builder: Builder, x: Value, indices: Value) -> Value:
        """x: (N, A…, rest…), indices: (N, K…, count) → (N, K…, rest…)."""
        require_indices(x, indices)
        return indexing.GatherND(self.batch_dims)(x, indices)


@LAYERS.register
class ScatterND(LayerSpec):
    """Write parts of each sample at indices into its first axes, from a second input.

    Inputs (N, A, B, …, rest…), integers (N, K…, count), each row an index into the first `count` axes after the batch,
    and updates (N, K…, rest…), output like the first. If an index is repeated, `reduction` combines its updates; with
    "none" any one of them is kept, and all get the gradient.
    """

    onnx_roundtrip_blocker: ClassVar = "it is written with the indices of the samples, which an importer does not read"

    type: Literal["ScatterND"] = "ScatterND"
    reduction: Joined = "none"
    """Operation that combines updates with old elements and with each other: replace them, or the sum, product,
    minimum or maximum."""

    samples: ClassVar = (
        Sample.of((2, 4, 3), (2, 1, 1), (2, 1, 3), dtypes=("float32", "int64", "float32")),
        Sample.of((2, 4, 4), (2, 5, 2), (2, 5), dtypes=("float32", "int32", "float32"), reduction="add"),
    )

    def build(self, builder: Builder, x: Value, indices: Value, updates: Value) -> Value:
        """x: (N, A…, rest…), indices: (N, K…, count), updates: (N, K…, rest…) → (N, A…, rest…)."""
        require_indices(x, indices)
        return indexing.ScatterND(self.reduction)(x, indices, updates)


@LAYERS.register
class TensorScatter(LayerSpec):
    """Write new elements into a cache, at an offset that may differ between samples, such as keys of an attention.

    Inputs: the cache (N, …, L, …), the elements (N, …, l, …), and optionally an integer offset (N) for each sample, 0
    by default; output (N, …, L, …).
    """

    onnx_roundtrip_blocker: ClassVar = "it is written as a gather with constant indices"

    type: Literal["TensorScatter"] = "TensorScatter"
    axis: int = -2
    """The axis of the sequence."""
    mode: Literal["linear", "circular"] = "linear"
    """Circular: elements beyond the end wrap around to the beginning."""

    samples: ClassVar = (
        Sample.of((2, 6, 2), (2, 3, 2), (2,), dtypes=("float32", "float32", "int64")),
        Sample.of((2, 2, 3), (2, 2, 2), (2,), dtypes=("float32", "float32", "int32"), axis=2, mode="circular"),
        Sample.of((2, 3, 2), (2, 2, 2)),
    )

    def build(self, builder: Builder, x: Value, updates: Value, start: Value | None = None) -> Value:
        """x: (N, …, L, …), updates: (N, …, l, …), start: (N) → (N, …, L, …)."""
        import numpy as np

        axis = sample_axis(x, self.axis, "for steps")
        rank, size = len(x.shape), x.shape[axis]
        count = updates.shape[axis] if len(updates.shape) == rank else 0
        require_updates(x, (*x.shape[:axis], count, *x.shape[axis + 1 :]), updates)
        require(0 < count <= size, "the elements do not fit into the cache", expected=f"up to {size}", got=updates.type)
        require_countable(count, axis)
        steps = constant(np.arange(count).reshape(-1, *(1,) * (rank - axis - 1)))
        if start is not None:
            require(
                not start.dtype.is_float and start.shape == x.shape[:1],
                "the third input does not hold one offset per sample",
                expected="integers (batch)",
                got=start.type,
            )
            steps = steps + reshape_to(cast(start, DType.INT64), (x.shape[0], *(1,) * (rank - 1)))
        indices = call_elementwise(Mod(), steps, size) if self.mode == "circular" else steps
        return indexing.ScatterElements(axis)(x, BroadcastLike()(indices, updates), updates)
