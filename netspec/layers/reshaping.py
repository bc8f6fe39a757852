"""Flatten, RepeatVector, Reshape and Permute: the same numbers in another shape."""

from __future__ import annotations

from math import prod
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator

from netspec.graph.ops.reduce import Broadcast, reshape_to
from netspec.graph.ops.shape import Transpose
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, need
from netspec.schema.kinds import LAYERS
from netspec.schema.spec import describe, problem


@LAYERS.register
class Flatten(LayerSpec):
    """Make one row of each sample.

    Input (N, C, H, W), output (N, C·H·W); an input (N) becomes (N, 1). The order is that of memory: channels first.
    """

    type: Literal["Flatten"] = "Flatten"

    samples: ClassVar = (Sample.of((2, 3, 4, 5)), Sample.of((3,)), Sample.of((3, 4)))

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …) → (N, product of …)."""
        return reshape_to(x, (x.shape[0], prod(x.shape[1:])))


def _target(value: Any) -> Any:
    sizes = [value] if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(sizes, (list, tuple)):
        raise problem("not a shape", expected="a list of sizes, without the batch axis", got=describe(value))
    for index, size in enumerate(sizes):
        if isinstance(size, bool) or not isinstance(size, int) or (size < 1 and size != -1):
            where = str(index) if isinstance(value, (list, tuple)) else None
            raise problem("not a size", field=where, expected="1 or more, or -1 for what remains", got=describe(size))
    if list(sizes).count(-1) > 1:
        raise problem("two sizes are left open", expected="-1 at most once", got=str(list(sizes)))
    return tuple(sizes)


TargetShape = Annotated[tuple[int, ...], BeforeValidator(_target, json_schema_input_type=int | list[int])]
"""Sizes without the batch axis, of which one may be -1."""


@LAYERS.register
class Reshape(LayerSpec):
    """Give each sample another shape with as many numbers.

    Input (N, …), output (N, *target_shape).
    """

    alike: ClassVar = ("Flatten",)

    type: Literal["Reshape"] = "Reshape"
    target_shape: TargetShape
    """the new sizes, without the batch axis; one may be -1 and becomes what is needed"""

    samples: ClassVar = (
        Sample.of((2, 3, 4), target_shape=[4, 3]),
        Sample.of((2, 12), target_shape=[3, -1, 2]),
        Sample.of((2, 3, 1), target_shape=3),
    )

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …) → (N, *target_shape)."""
        have, known = prod(x.shape[1:]), prod(size for size in self.target_shape if size != -1)
        free = -1 in self.target_shape
        need(
            have % known == 0 if free else have == known,
            f"{have} numbers per sample cannot take the shape {list(self.target_shape)}",
            expected=f"a multiple of {known} numbers" if free else f"{known} numbers per sample",
            got=f"{list(x.shape[1:])}, which is {have}",
        )
        sizes = tuple(have // known if size == -1 else size for size in self.target_shape)
        return reshape_to(x, (x.shape[0], *sizes))


def _order(value: Any) -> Any:
    listed = isinstance(value, (list, tuple)) and all(type(axis) is int for axis in value)
    if not listed or sorted(value) != list(range(1, len(value) + 1)):
        expected = "each axis from 1 once, without the batch, such as [2, 1]"
        raise problem("not an order of axes", expected=expected, got=str(list(value)) if listed else describe(value))
    return tuple(value)


Order = Annotated[tuple[int, ...], BeforeValidator(_order, json_schema_input_type=list[int])]
"""Axes from 1 in another order; 0, the batch, is left out."""


@LAYERS.register
class Permute(LayerSpec):
    """Give the axes of each sample another order.

    Input (N, …), output (N, …): axis i of the output is axis dims[i - 1] of the input. [2, 1] turns matrices.
    """

    type: Literal["Permute"] = "Permute"
    dims: Order
    """the axes of the input in their new order, counted from 1: the batch is axis 0 and stays"""

    samples: ClassVar = (Sample.of((2, 3, 4), dims=[2, 1]), Sample.of((2, 3, 1, 2), dims=[3, 1, 2]))

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        need(
            len(x.shape) == len(self.dims) + 1,
            f"`dims` orders {len(self.dims)} axes",
            expected=f"{len(self.dims)} axes besides the batch",
            got=x.type,
        )
        return Transpose((0, *self.dims))(x)


@LAYERS.register
class RepeatVector(LayerSpec):
    """Repeat the vector of each sample: a sequence of equal elements, as a decoder wants it.

    Input (N, features), output (N, n, features).
    """

    type: Literal["RepeatVector"] = "RepeatVector"
    n: PositiveInt
    """how many times"""

    samples: ClassVar = (Sample.of((2, 3), n=4),)

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, features) → (N, n, features)."""
        need(len(x.shape) == 2, "the input is not a vector", expected="(batch, features)", got=x.type)
        batch, features = x.shape
        return Broadcast((batch, self.n, features))(reshape_to(x, (batch, 1, features)))
