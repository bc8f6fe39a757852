"""Products of two inputs: Dot, of vectors, and MatMul, of matrices."""

from __future__ import annotations

from math import prod
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator

from netspec.graph.ops import linear
from netspec.graph.ops.elementwise import Maximum, elementwise
from netspec.graph.ops.functions import Sqrt
from netspec.graph.ops.reduce import ReduceSum, reshape_to
from netspec.graph.ops.shape import Transpose
from netspec.graph.types import broadcast_shapes
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import need, sample_axis
from netspec.schema.kinds import LAYERS
from netspec.schema.spec import describe, problem

SMALLEST = 1e-12
"""Squares of lengths below this are taken for it, as Keras does: a vector of zeros has a direction too."""


def _both(value: Any) -> Any:
    axes = value if isinstance(value, (list, tuple)) else [value, value]
    if len(axes) != 2 or any(isinstance(one, bool) or not isinstance(one, int) for one in axes):
        expected = "a whole number, or one for each input, such as [1, 2]"
        raise problem("not the axes of a product", expected=expected, got=describe(value))
    return tuple(axes)


AxisOfEach = Annotated[tuple[int, ...], BeforeValidator(_both, json_schema_input_type=int | list[int])]
"""An axis of each of two inputs; one number stands for both."""


def _last(x: Value, axis: int) -> Value:
    """`x` with `axis` as the last one."""
    others = [one for one in range(len(x.shape)) if one != axis]
    return x if axis == len(x.shape) - 1 else Transpose((*others, axis))(x)


def _normalized(x: Value, axis: int) -> Value:
    length = Sqrt()(elementwise(Maximum(), ReduceSum((axis,), keepdims=True)(x * x), SMALLEST))
    return x / length


@LAYERS.register
class Dot(LayerSpec):
    """The products of all vectors of one input with all of another, summed over an axis of each.

    Inputs (N, a…, k, b…) and (N, c…, k, d…), output (N, a…, b…, c…, d…); of two vectors (N, k) it is (N, 1). With
    `normalize` it is the cosine of the angle between them.
    """

    alike: ClassVar[tuple[str, ...]] = ("MatMul", "Reshape", "Flatten")

    type: Literal["Dot"] = "Dot"
    axes: AxisOfEach
    """the axis of each input that is summed over: a number for both, or [first, second]; 0 is the batch"""
    normalize: bool = False
    """give the vectors length 1 before"""

    samples: ClassVar = (
        Sample.of((2, 3), (2, 3), axes=1),
        Sample.of((2, 3, 4), (2, 5, 3), axes=[1, 2]),
        Sample.of((2, 4, 3), (2, 3), axes=[2, 1], normalize=True, one_way=True),
    )

    def build(self, net: Builder, a: Value, b: Value) -> Value:
        """a: (N, …), b: (N, …) → (N, …)."""
        a, b = net.floating(a), net.floating(b)
        first, second = (sample_axis(x, axis, "to sum over") for x, axis in zip((a, b), self.axes, strict=True))
        need(
            a.shape[first] == b.shape[second],
            "the vectors of the two inputs differ in length",
            expected=f"{a.shape[first]} along axis {second} of the second, as along axis {first} of the first",
            got=f"{b.shape[second]}",
        )
        if self.normalize:
            a, b = _normalized(a, first), _normalized(b, second)
        left, right = _last(a, first), _last(b, second)
        rest = (*left.shape[1:-1], *right.shape[1:-1]) or (1,)
        rows, columns = (
            reshape_to(x, (x.shape[0], prod(x.shape[1:-1]), x.shape[-1])) for x in (left, right)
        )  # to both sides, one matrix for each sample
        return reshape_to(linear.MatMul(transpose_b=True)(rows, columns), (a.shape[0], *rest))


@LAYERS.register
class MatMul(LayerSpec):
    """Multiply the matrices of one input with those of another: over the last two axes, in each sample.

    Inputs (N, …, m, k) and (N, …, k, n), output (N, …, m, n). Axes between batch and matrices must agree, or be 1.
    """

    type: Literal["MatMul"] = "MatMul"
    transpose_a: bool = False
    """turn the matrices of the first input: they are (k, m)"""
    transpose_b: bool = False
    """turn the matrices of the second input: they are (n, k)"""

    samples: ClassVar = (
        Sample.of((2, 3, 4), (2, 4, 2)),
        Sample.of((2, 4, 3), (2, 2, 4), transpose_a=True, transpose_b=True),
        Sample.of((2, 2, 2, 3), (2, 1, 3, 2)),
    )

    def build(self, net: Builder, a: Value, b: Value) -> Value:
        """a: (N, …, m, k), b: (N, …, k, n) → (N, …, m, n)."""
        for what, x in (("first", a), ("second", b)):
            expected = "(batch, …, rows, columns)"
            need(len(x.shape) >= 3, f"the {what} input is no matrix for each sample", expected=expected, got=x.type)
        inner = a.shape[-2 if self.transpose_a else -1]
        rows = b.shape[-1 if self.transpose_b else -2]
        need(
            inner == rows,
            "the matrices do not fit together",
            expected=f"{inner} rows in the second, as the first has columns",
            got=f"{rows}",
            hint="`transpose_a` and `transpose_b` turn them",
        )
        between = [x.shape[1:-2] for x in (a, b)]
        need(
            len(a.shape) == len(b.shape) and broadcast_shapes(*between) is not None,
            "the inputs differ in the axes between batch and matrices",
            expected="as many axes, of equal sizes or 1",
            got=" and ".join(str(list(one)) for one in between),
        )
        return linear.MatMul(self.transpose_a, self.transpose_b)(net.floating(a), net.floating(b))
