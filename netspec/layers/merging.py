"""Layers that bring several inputs together: element by element, or one after another (Concatenate)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add, mul
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator

from netspec.graph.ops import elementwise
from netspec.graph.ops.logic import Or
from netspec.graph.ops.shape import Concat
from netspec.graph.ops.source import Fill
from netspec.graph.types import DType, TensorType, broadcast_shapes
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import need, sample_axis
from netspec.schema.kinds import LAYERS
from netspec.schema.spec import describe, problem


class ElementByElement(LayerSpec):
    """Base of layers that make one number of those at the same place of all inputs."""

    done: ClassVar[str]
    """What cannot be done with inputs that do not fit: "added"."""

    samples: ClassVar[tuple[Sample, ...]] = (
        Sample.of((2, 3, 4), (2, 3, 4)),
        Sample.of((2, 3, 4), (2, 3, 1), (2, 1, 4)),
    )

    whole: ClassVar[bool] = True
    """Whether what is made of whole numbers is whole."""

    def fitting(self, net: Builder, *inputs: Value) -> list[Value]:
        """The inputs in one element type; their shapes must broadcast, the batch apart."""
        shapes = [x.shape[1:] for x in inputs]
        need(
            len({len(shape) for shape in shapes}) == 1 and broadcast_shapes(*shapes) is not None,
            f"inputs of different sizes cannot be {self.done}",
            expected="equal sizes, or 1",
            got=" and ".join(str(list(shape)) for shape in shapes) + " per sample",
        )
        return net.common(inputs) if self.whole else [net.floating(x) for x in inputs]

    def mask(self, net: Builder, *inputs: Value) -> Value | None:
        """Where any of the inputs counts, if all of them have masks."""
        masks = [mask for mask in net.masks if mask is not None]
        return reduce(Or(), masks) if len(masks) == len(inputs) else None


class Merging(ElementByElement):
    """Base of those that take any number of inputs from two on."""

    def merged(self, inputs: Sequence[Value]) -> Value:
        """The inputs made one."""
        raise NotImplementedError  # abstract: subclasses say

    def build(self, net: Builder, first: Value, second: Value, *others: Value) -> Value:
        """Inputs: (N, …) → (N, …)."""
        return self.merged(self.fitting(net, first, second, *others))


@LAYERS.register
class Add(Merging):
    """Add up two or more inputs element by element, as in a residual connection.

    Inputs of one shape (N, …), output the same. An axis of size 1, except the batch, is repeated to fit the others.
    """

    done: ClassVar[str] = "added"

    type: Literal["Add"] = "Add"

    samples: ClassVar = (*Merging.samples, Sample.of((2, 3), (2, 3), dtypes=("float32", "int32")),
               Sample.of((2, 3), (2, 1), dtypes=("int32", "int32")))  # fmt: skip

    def merged(self, inputs: Sequence[Value]) -> Value:
        """a + b + …"""
        return reduce(add, inputs)


@LAYERS.register
class Subtract(ElementByElement):
    """Subtract the second input from the first, element by element.

    Two inputs of one shape (N, …), output the same. An axis of size 1, except the batch, is repeated to fit the other.
    """

    done: ClassVar[str] = "subtracted"

    type: Literal["Subtract"] = "Subtract"

    samples: ClassVar = (Sample.of((2, 3, 4), (2, 3, 4)), Sample.of((2, 1, 4), (2, 3, 1)))

    def build(self, net: Builder, first: Value, second: Value) -> Value:
        """Inputs: (N, …) → (N, …)."""
        a, b = self.fitting(net, first, second)
        return a - b


@LAYERS.register
class Multiply(Merging):
    """Multiply two or more inputs element by element, as a gate does.

    Inputs of one shape (N, …), output the same. An axis of size 1, except the batch, is repeated to fit the others.
    """

    done: ClassVar[str] = "multiplied"

    type: Literal["Multiply"] = "Multiply"

    def merged(self, inputs: Sequence[Value]) -> Value:
        """a · b · …"""
        return reduce(mul, inputs)


@LAYERS.register
class Average(Merging):
    """The mean of two or more inputs, element by element.

    Inputs of one shape (N, …), output the same. An axis of size 1, except the batch, is repeated to fit the others.
    """

    done: ClassVar[str] = "averaged"
    whole: ClassVar[bool] = False

    type: Literal["Average"] = "Average"

    def merged(self, inputs: Sequence[Value]) -> Value:
        """(a + b + …) / count"""
        return reduce(add, inputs) * (1 / len(inputs))


@LAYERS.register
class Maximum(Merging):
    """The greatest of two or more inputs, element by element.

    Inputs of one shape (N, …), output the same. An axis of size 1, except the batch, is repeated to fit the others. Of
    equal numbers that of the first input gets the gradient.
    """

    done: ClassVar[str] = "compared"

    type: Literal["Maximum"] = "Maximum"

    samples: ClassVar = (*Merging.samples, Sample.of((2, 3), (2, 3), dtypes=("int32", "int32")))

    def merged(self, inputs: Sequence[Value]) -> Value:
        """max(a, b, …)"""
        return reduce(elementwise.Maximum(), inputs)


@LAYERS.register
class Minimum(Merging):
    """The least of two or more inputs, element by element.

    Inputs of one shape (N, …), output the same. An axis of size 1, except the batch, is repeated to fit the others. Of
    equal numbers that of the first input gets the gradient.
    """

    done: ClassVar[str] = "compared"

    type: Literal["Minimum"] = "Minimum"

    def merged(self, inputs: Sequence[Value]) -> Value:
        """min(a, b, …)"""
        return reduce(elementwise.Minimum(), inputs)


def _coefficients(value: Any) -> Any:
    numbers = value if isinstance(value, (list, tuple)) else ()
    if len(numbers) < 2 or any(isinstance(one, bool) or not isinstance(one, (int, float)) for one in numbers):
        expected = "a number for each input, such as [1, -1]"
        raise problem("not a list of factors", expected=expected, got=describe(value))
    return tuple(map(float, numbers))


Coefficients = Annotated[tuple[float, ...], BeforeValidator(_coefficients, json_schema_input_type=list[float])]
"""A factor for each of two or more inputs."""


@LAYERS.register
class WeightedSum(ElementByElement):
    """Add up two or more inputs, each times a number: what Caffe's Eltwise does with coefficients.

    Inputs of one shape (N, …), output the same. An axis of size 1, except the batch, is repeated to fit the others.
    """

    done: ClassVar[str] = "added"
    whole: ClassVar[bool] = False
    foreign_fields: ClassVar[dict[str, str]] = {"coeff": "`coeff` is Caffe's name: here it is `coefficients`"}
    alike: ClassVar[tuple[str, ...]] = ("Add",)

    type: Literal["WeightedSum"] = "WeightedSum"
    coefficients: Coefficients
    """the factor of each input"""

    samples: ClassVar = (
        Sample.of((2, 3), (2, 3), coefficients=[1, -1]),
        Sample.of((2, 3, 4), (2, 1, 4), (2, 3, 4), coefficients=[0.5, 1.0, 0.25]),
    )

    def build(self, net: Builder, first: Value, second: Value, *others: Value) -> Value:
        """Inputs: (N, …) → (N, …)."""
        inputs = self.fitting(net, first, second, *others)
        count = len(self.coefficients)
        need(
            len(inputs) == count, "there is not one factor for each input", expected=f"{count} inputs", got=len(inputs)
        )
        parts = (x if factor == 1.0 else x * factor for x, factor in zip(inputs, self.coefficients, strict=True))
        return reduce(add, parts)


@LAYERS.register
class Concatenate(LayerSpec):
    """Put two or more inputs one after another along an axis: channels beside channels.

    Inputs (N, C₁, …), (N, C₂, …) …, output (N, C₁ + C₂ + …, …) for axis 1. The other axes must agree.
    """

    type: Literal["Concatenate"] = "Concatenate"
    axis: int = 1
    """the axis to join along: the channels. Keras's default, -1, is the same axis in channels-last data"""

    samples: ClassVar = (
        Sample.of((2, 3, 2, 2), (2, 1, 2, 2)),
        Sample.of((2, 3), (2, 2), (2, 3), axis=-1),
        Sample.of((2, 2), (2, 2), dtypes=("float32", "uint8")),
        Sample.of((2, 2), (2, 3), dtypes=("int32", "int32")),
    )

    def build(self, net: Builder, first: Value, second: Value, *others: Value) -> Value:
        """Inputs: (N, …) → (N, …)."""
        inputs = (first, second, *others)
        rank = len(first.shape)
        sizes = " and ".join(str(list(x.shape[1:])) for x in inputs) + " per sample"
        need(
            all(len(x.shape) == rank for x in inputs),
            "inputs of different numbers of axes cannot be joined",
            expected=f"{rank - 1} axes besides the batch, as the first has",
            got=sizes,
        )
        axis = sample_axis(first, self.axis, "to join along")
        rests = {x.shape[:axis] + x.shape[axis + 1 :] for x in inputs}
        need(
            len(rests) == 1,
            f"the inputs differ in another axis than {axis}, the one they are joined along",
            expected="equal sizes everywhere else",
            got=sizes,
        )
        return Concat(axis)(*net.common(inputs))

    def mask(self, net: Builder, *inputs: Value) -> Value | None:
        """The masks one after another where their places are; along another axis, where any of the inputs counts."""
        known = [mask for mask in net.masks if mask is not None]
        if not known:
            return None
        axis, rank = self.axis % len(inputs[0].shape), len(known[0].shape)
        if axis >= rank:
            return reduce(Or(), known) if len(known) == len(inputs) else None
        shapes = [TensorType(x.shape[:rank], DType.BOOL) for x in inputs]
        return Concat(axis)(*(mask or Fill(1, shape)() for mask, shape in zip(net.masks, shapes, strict=True)))
