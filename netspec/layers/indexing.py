"""Elements found, or put, at places that another input names: GatherElements, GatherND, ScatterElements and more."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from netspec.graph.ops import indexing
from netspec.graph.ops.elementwise import cast, elementwise
from netspec.graph.ops.reduce import BroadcastLike, reshape_to
from netspec.graph.ops.shape import Concat, Slice
from netspec.graph.ops.source import constant
from netspec.graph.ops.whole import Mod
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, need, need_countable, sample_axis
from netspec.schema.kinds import LAYERS

Joined: TypeAlias = Literal["none", "add", "mul", "min", "max"]


def need_places(x: Value, places: Value, *, rank: int | None = None) -> None:
    """Raise unless the second input is whole numbers, of so many axes."""
    whole = not places.dtype.is_float and places.dtype != DType.BOOL
    need(
        whole and (rank is None or len(places.shape) == rank),
        "the second input does not name places",
        expected="whole numbers" + (f" (batch, …) of {rank} axes, as the first input has" if rank else ""),
        got=places.type,
    )


class OverElements(LayerSpec):
    """Base of layers that find or put elements along one axis."""

    foreign_fields: ClassVar[dict[str, str]] = {"dim": "`dim` is PyTorch's name: here it is `axis`"}

    axis: int = 1
    """the axis along which places are named"""

    def along(self, net: Builder, x: Value, places: Value) -> int:
        """The axis; along the others there must not be more places than elements."""
        axis = sample_axis(x, self.axis, "to look along")
        need_places(x, places, rank=len(x.shape))
        for k, (size, count) in enumerate(zip(x.shape, places.shape, strict=True)):
            fits = k == axis or count == size or (k > 0 and count < size)
            need(fits, f"there are more places along axis {k} than elements", expected=f"up to {size}", got=count)
        net.require_range(places, -x.shape[axis], x.shape[axis], f"axis {axis} has {x.shape[axis]} elements")
        return axis


def _beyond(x: Value, axis: int, places: Value) -> int | None:
    """The first axis but `axis` along which there are elements without places."""
    shorter = (k for k, count in enumerate(places.shape) if k != axis and count < x.shape[k])
    return next(shorter, None)


@LAYERS.register
class GatherElements(OverElements):
    """Pick an element for each place of a second input: along `axis` where that says, along all others where it stands.

    Inputs (N, …, A, …) and whole numbers (N, …, K, …) from -A to A - 1, output (N, …, K, …): PyTorch's `gather`. Along
    the other axes there may be fewer places than elements.
    """

    type: Literal["GatherElements"] = "GatherElements"

    samples: ClassVar = (
        Sample.of((2, 4, 3), (2, 2, 3), dtypes=("float32", "int32")),
        Sample.of((2, 3, 4), (2, 2, 5), dtypes=("float32", "int64"), axis=-1),
    )

    def build(self, net: Builder, x: Value, places: Value) -> Value:
        """x: (N, …, A, …), places: (N, …, K, …) → (N, …, K, …)."""
        axis = self.along(net, x, places)
        while (beyond := _beyond(x, axis, places)) is not None:
            x = Slice(beyond, 0, places.shape[beyond])(x)
        return indexing.GatherElements(axis)(x, places)


@LAYERS.register
class ScatterElements(OverElements):
    """Put elements of a third input into the first: along `axis` where the second says, else where they are.

    Inputs (N, …, A, …), whole numbers (N, …, K, …) from -A to A - 1 and what is put there (N, …, K, …), output
    (N, …, A, …). Where several are put at one place they join; with `reduction` "none" it is not said which one stays,
    and the gradient is that of all.
    """

    type: Literal["ScatterElements"] = "ScatterElements"
    reduction: Joined = "none"
    """what becomes of what was there, and of several: replaced, or the sum, product, least or greatest of all"""

    samples: ClassVar = (
        Sample.of((2, 4, 3), (2, 1, 3), (2, 1, 3), dtypes=("float32", "int32", "float32")),
        Sample.of((2, 3), (2, 4), (2, 4), dtypes=("float32", "int64", "float32"), reduction="add", high=3),
        Sample.of((2, 4), (2, 1), (2, 1), dtypes=("float32", "int64", "float32"), axis=-1, reduction="mul"),
        Sample.of((2, 4), (2, 2), (2, 2), dtypes=("float32", "int64", "float32"), reduction="max"),
        Sample.of((2, 4), (2, 2), (2, 2), dtypes=("float32", "int64", "float32"), reduction="min"),
    )

    def build(self, net: Builder, x: Value, places: Value, updates: Value) -> Value:
        """x: (N, …, A, …), places and updates: (N, …, K, …) → (N, …, A, …)."""
        axis = self.along(net, x, places)
        need_updates(x, places.shape, updates)
        return self._put(x, axis, places, updates)

    def _put(self, x: Value, axis: int, places: Value, updates: Value) -> Value:
        """Into the part of x that places can be in, with the rest beside it."""
        beyond = _beyond(x, axis, places)
        if beyond is None:
            return indexing.ScatterElements(axis, self.reduction)(x, places, updates)
        count = places.shape[beyond]
        part = self._put(Slice(beyond, 0, count)(x), axis, places, updates)
        return Concat(beyond)(part, Slice(beyond, count, x.shape[beyond])(x))


def need_updates(x: Value, shape: tuple[int, ...], updates: Value) -> None:
    """Raise unless there is an update for each place."""
    wanted = x.type.with_shape(*shape)
    need(updates.type == wanted, "there is not one update for each place", expected=f"{wanted}", got=updates.type)


@LAYERS.register
class GatherND(LayerSpec):
    """Pick parts of each sample by their places along its first axes, which a second input names.

    Inputs (N, A, B, …, rest…) and whole numbers (N, K…, count), each row a place along the first `count` axes behind
    the batch, output (N, K…, rest…). Negative numbers count from the end.
    """

    type: Literal["GatherND"] = "GatherND"
    batch_dims: PositiveInt = 1
    """how many first axes, the batch among them, both inputs share: places are those behind"""

    samples: ClassVar = (
        Sample.of((2, 4, 3), (2, 5, 1), dtypes=("float32", "int64")),
        Sample.of((2, 4, 4, 2), (2, 3, 2), dtypes=("float32", "int32")),
        Sample.of((2, 3, 4, 2), (2, 3, 2, 1), dtypes=("float32", "int64"), batch_dims=2),
    )

    def build(self, net: Builder, x: Value, places: Value) -> Value:
        """x: (N, A…, rest…), places: (N, K…, count) → (N, K…, rest…)."""
        need_places(x, places)
        return indexing.GatherND(self.batch_dims)(x, places)


@LAYERS.register
class ScatterND(LayerSpec):
    """Put parts into each sample at places along its first axes, which a second input names.

    Inputs (N, A, B, …, rest…), whole numbers (N, K…, count), each row a place along the first `count` axes behind the
    batch, and what is put there (N, K…, rest…), output like the first. Where several are put at one place they join;
    with `reduction` "none" it is not said which one stays, and the gradient is that of all.
    """

    one_way: ClassVar = "it is written with the numbers of the samples, which are not read"

    type: Literal["ScatterND"] = "ScatterND"
    reduction: Joined = "none"
    """what becomes of what was there, and of several: replaced, or the sum, product, least or greatest of all"""

    samples: ClassVar = (
        Sample.of((2, 4, 3), (2, 1, 1), (2, 1, 3), dtypes=("float32", "int64", "float32")),
        Sample.of((2, 4, 4), (2, 5, 2), (2, 5), dtypes=("float32", "int32", "float32"), reduction="add"),
    )

    def build(self, net: Builder, x: Value, places: Value, updates: Value) -> Value:
        """x: (N, A…, rest…), places: (N, K…, count), updates: (N, K…, rest…) → (N, A…, rest…)."""
        need_places(x, places)
        return indexing.ScatterND(self.reduction)(x, places, updates)


@LAYERS.register
class TensorScatter(LayerSpec):
    """Write new elements into a cache, from a place on that may differ from sample to sample: keys of an attention.

    Inputs: the cache (N, …, L, …), the elements (N, …, l, …), and, if they are not to begin at 0, a whole number (N)
    for each sample; output (N, …, L, …).
    """

    one_way: ClassVar = "it is written as the places that it comes to"

    type: Literal["TensorScatter"] = "TensorScatter"
    axis: int = -2
    """the axis of the sequence"""
    mode: Literal["linear", "circular"] = "linear"
    """circular: what goes beyond the end goes on at the beginning"""

    samples: ClassVar = (
        Sample.of((2, 6, 2), (2, 3, 2), (2,), dtypes=("float32", "float32", "int64")),
        Sample.of((2, 2, 3), (2, 2, 2), (2,), dtypes=("float32", "float32", "int32"), axis=2, mode="circular"),
        Sample.of((2, 3, 2), (2, 2, 2)),
    )

    def build(self, net: Builder, x: Value, updates: Value, start: Value | None = None) -> Value:
        """x: (N, …, L, …), updates: (N, …, l, …), start: (N) → (N, …, L, …)."""
        import numpy as np

        axis = sample_axis(x, self.axis, "of a sequence")
        rank, size = len(x.shape), x.shape[axis]
        count = updates.shape[axis] if len(updates.shape) == rank else 0
        need_updates(x, (*x.shape[:axis], count, *x.shape[axis + 1 :]), updates)
        need(0 < count <= size, "there are more elements than places", expected=f"up to {size}", got=updates.type)
        need_countable(count, axis)
        steps = constant(np.arange(count).reshape(-1, *(1,) * (rank - axis - 1)))
        if start is not None:
            need(
                not start.dtype.is_float and start.shape == x.shape[:1],
                "the third input does not say where each sample begins",
                expected="one whole number a sample",
                got=start.type,
            )
            steps = steps + reshape_to(cast(start, DType.INT64), (x.shape[0], *(1,) * (rank - 1)))
        places = elementwise(Mod(), steps, size) if self.mode == "circular" else steps
        return indexing.ScatterElements(axis)(x, BroadcastLike()(places, updates), updates)
