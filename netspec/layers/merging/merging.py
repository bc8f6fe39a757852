"""Layers that combine several inputs: element by element, or by concatenation."""

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
from netspec.graph.types import DType, TensorType, batch_shape, broadcast_shapes
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import as_items, is_number, require, sample_axis
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.spec import describe, problem


class ElementwiseMerge(LayerSpec):
    """Base of layers that combine the inputs element by element."""

    participle: ClassVar[str]
    """Participle for messages about inputs that do not fit, such as "added"."""

    samples: ClassVar[tuple[Sample, ...]] = (
        Sample.of((2, 3, 4), (2, 3, 4)),
        Sample.of((2, 3, 4), (2, 3, 1), (2, 1, 4)),
    )

    keeps_integers: ClassVar[bool] = True
    """Whether integers stay integers."""

    def broadcast_inputs(self, builder: Builder, *inputs: Value) -> list[Value]:
        """The inputs in one element type; their shapes must broadcast, except for the batch."""
        shapes = [x.shape[1:] for x in inputs]
        require(
            len({len(shape) for shape in shapes}) == 1 and broadcast_shapes(*shapes) is not None,
            f"inputs of different sizes cannot be {self.participle}",
            expected="equal sizes, or 1",
            got=" and ".join(batch_shape(x.shape) for x in inputs),
        )
        return builder.to_common_dtype(inputs) if self.keeps_integers else [builder.floating(x) for x in inputs]

    def mask(self, builder: Builder, *inputs: Value) -> Value | None:
        """True for elements that any of the inputs' masks keeps; None if an input has no mask."""
        masks = [mask for mask in builder.masks if mask is not None]
        return reduce(Or(), masks) if len(masks) == len(inputs) else None


class ReducingMerge(ElementwiseMerge):
    """Base of layers of two or more inputs."""

    def merge(self, inputs: Sequence[Value]) -> Value:
        """Combine the inputs."""
        raise NotImplementedError  # subclasses implement it

    def build(self, builder: Builder, first: Value, second: Value, *others: Value) -> Value:
        """Inputs: (N, …) → (N, …)."""
        return self.merge(self.broadcast_inputs(builder, first, second, *others))


@LAYERS.register
class Add(ReducingMerge):
    """Add two or more inputs element by element, as in a residual connection.

    Inputs and output have one shape (N, …). An axis of size 1, except the batch, is repeated to fit the others.
    """

    participle: ClassVar[str] = "added"

    type: Literal["Add"] = "Add"

    samples: ClassVar = (*ReducingMerge.samples, Sample.of((2, 3), (2, 3), dtypes=("float32", "int32")),
               Sample.of((2, 3), (2, 1), dtypes=("int32", "int32")))  # fmt: skip

    def merge(self, inputs: Sequence[Value]) -> Value:
        return reduce(add, inputs)


@LAYERS.register
class Subtract(ElementwiseMerge):
    """Subtract the second input from the first, element by element.

    Inputs and output have one shape (N, …). An axis of size 1, except the batch, is repeated to fit the other.
    """

    participle: ClassVar[str] = "subtracted"

    type: Literal["Subtract"] = "Subtract"

    samples: ClassVar = (Sample.of((2, 3, 4), (2, 3, 4)), Sample.of((2, 1, 4), (2, 3, 1)))

    def build(self, builder: Builder, first: Value, second: Value) -> Value:
        """Inputs: (N, …) → (N, …)."""
        a, b = self.broadcast_inputs(builder, first, second)
        return a - b


@LAYERS.register
class Multiply(ReducingMerge):
    """Multiply two or more inputs element by element, as a gate does.

    Inputs and output have one shape (N, …). An axis of size 1, except the batch, is repeated to fit the others.
    """

    participle: ClassVar[str] = "multiplied"

    type: Literal["Multiply"] = "Multiply"

    def merge(self, inputs: Sequence[Value]) -> Value:
        return reduce(mul, inputs)


@LAYERS.register
class Average(ReducingMerge):
    """The mean of two or more inputs, element by element.

    Inputs and output have one shape (N, …). An axis of size 1, except the batch, is repeated to fit the others.
    """

    participle: ClassVar[str] = "averaged"
    keeps_integers: ClassVar[bool] = False

    type: Literal["Average"] = "Average"

    def merge(self, inputs: Sequence[Value]) -> Value:
        return reduce(add, inputs) * (1 / len(inputs))


@LAYERS.register
class Maximum(ReducingMerge):
    """The maximum of two or more inputs, element by element.

    Inputs and output have one shape (N, …). An axis of size 1, except the batch, is repeated to fit the others. Of
    equal elements the first input's gets the gradient.
    """

    participle: ClassVar[str] = "compared"

    type: Literal["Maximum"] = "Maximum"

    samples: ClassVar = (*ReducingMerge.samples, Sample.of((2, 3), (2, 3), dtypes=("int32", "int32")))

    def merge(self, inputs: Sequence[Value]) -> Value:
        return reduce(elementwise.Maximum(), inputs)


@LAYERS.register
class Minimum(ReducingMerge):
    """The minimum of two or more inputs, element by element.

    Inputs and output have one shape (N, …). An axis of size 1, except the batch, is repeated to fit the others. Of
    equal elements the first input's gets the gradient.
    """

    participle: ClassVar[str] = "compared"

    type: Literal["Minimum"] = "Minimum"

    def merge(self, inputs: Sequence[Value]) -> Value:
        return reduce(elementwise.Minimum(), inputs)


def _coefficients(value: Any) -> Any:
    if not isinstance(value, (list, tuple)) or len(value) < 2:
        raise problem("has an invalid value", expected="a number for each input, such as [1, -1]", got=describe(value))
    return tuple(map(float, as_items(value, is_number, "a number")))


Coefficients = Annotated[tuple[float, ...], BeforeValidator(_coefficients, json_schema_input_type=list[float])]
"""A factor for each of two or more inputs."""


@LAYERS.register
class WeightedSum(ElementwiseMerge):
    """Add two or more inputs, each multiplied by a constant: Caffe's Eltwise with coefficients.

    Inputs and output have one shape (N, …). An axis of size 1, except the batch, is repeated to fit the others.
    """

    participle: ClassVar[str] = "added"
    keeps_integers: ClassVar[bool] = False
    foreign_fields: ClassVar[dict[str, str]] = {"coeff": "`coeff` is Caffe's name: use `coefficients`"}
    onnx_equivalents: ClassVar[tuple[str, ...]] = ("Add",)

    type: Literal["WeightedSum"] = "WeightedSum"
    coefficients: Coefficients
    """The factor of each input."""

    samples: ClassVar = (
        Sample.of((2, 3), (2, 3), coefficients=[1, -1]),
        Sample.of((2, 3, 4), (2, 1, 4), (2, 3, 4), coefficients=[0.5, 1.0, 0.25]),
    )

    def build(self, builder: Builder, first: Value, second: Value, *others: Value) -> Value:
        """Inputs: (N, …) → (N, …)."""
        inputs = self.broadcast_inputs(builder, first, second, *others)
        count = len(self.coefficients)
        require(
            len(inputs) == count,
            "`coefficients` must have one number for each input",
            expected=f"{len(inputs)} numbers",
            got=f"{count} numbers",
        )
        parts = (x if factor == 1.0 else x * factor for x, factor in zip(inputs, self.coefficients, strict=True))
        return reduce(add, parts)


@LAYERS.register
class Concatenate(LayerSpec):
    """Concatenate two or more inputs along an axis, by default the channels.

    Inputs (N, C₁, …), (N, C₂, …) …, output (N, C₁ + C₂ + …, …) for axis 1. The other axes must agree.
    """

    type: Literal["Concatenate"] = "Concatenate"
    axis: int = 1
    """The axis to concatenate along; 1 is the channels. Keras's default, -1, is the same axis in channels-last data."""

    samples: ClassVar = (
        Sample.of((2, 3, 2, 2), (2, 1, 2, 2)),
        Sample.of((2, 3), (2, 2), (2, 3), axis=-1),
        Sample.of((2, 2), (2, 2), dtypes=("float32", "uint8")),
        Sample.of((2, 2), (2, 3), dtypes=("int32", "int32")),
    )

    def build(self, builder: Builder, first: Value, second: Value, *others: Value) -> Value:
        """Inputs: (N, …) → (N, …)."""
        inputs = (first, second, *others)
        rank = len(first.shape)
        sizes = " and ".join(batch_shape(x.shape) for x in inputs)
        require(
            all(len(x.shape) == rank for x in inputs),
            "inputs with different numbers of axes cannot be concatenated",
            expected=f"{rank - 1} axes besides the batch, as the first has",
            got=sizes,
        )
        axis = sample_axis(first, self.axis, "to concatenate along")
        rests = {x.shape[:axis] + x.shape[axis + 1 :] for x in inputs}
        require(
            len(rests) == 1,
            f"the inputs may differ in size only along axis {axis}, along which they are concatenated",
            expected="equal sizes along all other axes",
            got=sizes,
        )
        return Concat(axis)(*builder.to_common_dtype(inputs))

    def mask(self, builder: Builder, *inputs: Value) -> Value | None:
        """The masks, concatenated if they have the axis; else True for elements that any of them keeps."""
        masks = [mask for mask in builder.masks if mask is not None]
        if not masks:
            return None
        axis, rank = self.axis % len(inputs[0].shape), len(masks[0].shape)
        if axis >= rank:
            return reduce(Or(), masks) if len(masks) == len(inputs) else None
        shapes = [TensorType(x.shape[:rank], DType.BOOL) for x in inputs]
        return Concat(axis)(*(mask or Fill(1, shape)() for mask, shape in zip(builder.masks, shapes, strict=True)))
