"""Products of several inputs: Dot, of vectors, MatMul, of matrices, and Einsum, given by an equation."""

from __future__ import annotations

import re
from math import prod
from string import ascii_letters
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator

from netspec.graph.ops import einsum, linear
from netspec.graph.ops.elementwise import Maximum, call_elementwise
from netspec.graph.ops.reduce import ReduceSum, reshape_to
from netspec.graph.ops.shape import Transpose
from netspec.graph.ops.unary import Sqrt
from netspec.graph.types import TensorType, broadcast_shapes
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import require, sample_axis
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.spec import describe, problem

SMALLEST = 1e-12
"""Lower bound of squared lengths, as in Keras, so that vectors of zeros are not divided by 0."""


def _axis_pair(value: Any) -> Any:
    axes = value if isinstance(value, (list, tuple)) else [value, value]
    if len(axes) != 2 or any(isinstance(axis, bool) or not isinstance(axis, int) for axis in axes):
        expected = "an integer, or one for each input, such as [1, 2]"
        raise problem("has an invalid value", expected=expected, got=describe(value))
    return tuple(axes)


AxisOfEach = Annotated[tuple[int, ...], BeforeValidator(_axis_pair, json_schema_input_type=int | list[int])]
"""An axis of each of two inputs; a single number is used for both."""


def _move_axis_last(x: Value, axis: int) -> Value:
    """`x` with `axis` moved to the end."""
    others = [other for other in range(len(x.shape)) if other != axis]
    return x if axis == len(x.shape) - 1 else Transpose((*others, axis))(x)


def _normalized(x: Value, axis: int) -> Value:
    length = Sqrt()(call_elementwise(Maximum(), ReduceSum((axis,), keepdims=True)(x * x), SMALLEST))
    return x / length


@LAYERS.register
class Dot(LayerSpec):
    """The dot products of all vectors of one input with all of another, along an axis of each.

    Inputs (N, a…, k, b…) and (N, c…, k, d…), output (N, a…, b…, c…, d…); (N, 1) for two vectors (N, k). With
    `normalize` it is the cosine of the angle between them.
    """

    onnx_equivalents: ClassVar[tuple[str, ...]] = ("MatMul", "Reshape", "Flatten")

    type: Literal["Dot"] = "Dot"
    axes: AxisOfEach
    """The axis of each input to sum over: a number for both, or [first, second]; 0 is the batch."""
    normalize: bool = False
    """Normalize the vectors to length 1 first."""

    samples: ClassVar = (
        Sample.of((2, 3), (2, 3), axes=1),
        Sample.of((2, 3, 4), (2, 5, 3), axes=[1, 2]),
        Sample.of((2, 4, 3), (2, 3), axes=[2, 1], normalize=True, no_onnx_roundtrip=True),
    )

    def build(self, builder: Builder, a: Value, b: Value) -> Value:
        """a: (N, …), b: (N, …) → (N, …)."""
        a, b = builder.floating(a), builder.floating(b)
        first, second = (sample_axis(x, axis, "to sum over") for x, axis in zip((a, b), self.axes, strict=True))
        require(
            a.shape[first] == b.shape[second],
            "the vectors of the two inputs differ in length",
            expected=f"{a.shape[first]} along axis {second} of the second, as along axis {first} of the first",
            got=f"{b.shape[second]}",
        )
        if self.normalize:
            a, b = _normalized(a, first), _normalized(b, second)
        left, right = _move_axis_last(a, first), _move_axis_last(b, second)
        sample_shape = (*left.shape[1:-1], *right.shape[1:-1]) or (1,)
        # One matrix for each sample.
        rows, columns = (reshape_to(x, (x.shape[0], prod(x.shape[1:-1]), x.shape[-1])) for x in (left, right))
        return reshape_to(linear.MatMul(transpose_b=True)(rows, columns), (a.shape[0], *sample_shape))


@LAYERS.register
class MatMul(LayerSpec):
    """Multiply the matrices of one input with those of another: over the last two axes, in each sample.

    Inputs (N, …, m, k) and (N, …, k, n), output (N, …, m, n). Axes between batch and matrices must agree, or be 1.
    """

    type: Literal["MatMul"] = "MatMul"
    transpose_a: bool = False
    """Transpose the matrices of the first input, which are (k, m)."""
    transpose_b: bool = False
    """Transpose the matrices of the second input, which are (n, k)."""

    samples: ClassVar = (
        Sample.of((2, 3, 4), (2, 4, 2)),
        Sample.of((2, 4, 3), (2, 2, 4), transpose_a=True, transpose_b=True),
        Sample.of((2, 2, 2, 3), (2, 1, 3, 2)),
    )

    def build(self, builder: Builder, a: Value, b: Value) -> Value:
        """a: (N, …, m, k), b: (N, …, k, n) → (N, …, m, n)."""
        for ordinal, x in (("first", a), ("second", b)):
            expected = "(batch, …, rows, columns)"
            require(
                len(x.shape) >= 3,
                f"the {ordinal} input does not have a matrix for each sample",
                expected=expected,
                got=x.type,
            )
        inner = a.shape[-2 if self.transpose_a else -1]
        rows = b.shape[-1 if self.transpose_b else -2]
        require(
            inner == rows,
            "the inner sizes of the matrices differ",
            expected=f"{inner} rows in the second input, one for each column of the first",
            got=f"{rows}",
            hint="`transpose_a` and `transpose_b` transpose them",
        )
        between = [x.shape[1:-2] for x in (a, b)]
        require(
            len(a.shape) == len(b.shape) and broadcast_shapes(*between) is not None,
            "the inputs differ in the axes between batch and matrices",
            expected="the same number of such axes, of equal sizes or 1",
            got=" and ".join(str(list(sizes)) for sizes in between),
        )
        return linear.MatMul(self.transpose_a, self.transpose_b)(builder.floating(a), builder.floating(b))


_TERM = r"[a-zA-Z]*(?:\.\.\.)?[a-zA-Z]*"
_FORM = re.compile(rf"{_TERM}(?:,{_TERM})*->{_TERM}")


def _equation(value: Any) -> Any:
    text = value.replace(" ", "") if isinstance(value, str) else ""
    if not _FORM.fullmatch(text):
        expected = "letters for the axes of each input and of the output, such as `bij,bjk->bik`"
        raise problem("has an invalid value", expected=expected, got=describe(value))
    inputs, _, output = text.partition("->")
    terms, letters = inputs.split(","), output.replace(".", "")
    for term in (*terms, output):
        if not term or term[0] == "." or term[0] != output[0]:
            raise problem(
                "the inputs and the output must all begin with the batch axis",
                expected="the same first letter everywhere, such as the `b` of `bij,bjk->bik`",
                got=repr(value),
            )
    if len(set(letters)) < len(letters) or not set(letters) <= set(inputs):
        raise problem(
            "an axis of the output is repeated or not in an input", expected="each axis once", got=repr(value)
        )
    if letters[0] in "".join(term[1:] for term in (*terms, output)):
        raise problem("the batch axis is repeated", expected=f"`{letters[0]}` once in each input", got=repr(value))
    if "..." in output and not any("..." in term for term in terms):
        raise problem("the output has `...`, but the inputs do not", expected="`...` in an input", got=repr(value))
    return text


Equation = Annotated[str, AfterValidator(_equation)]
"""Equation of NumPy's einsum with an explicit output."""


@LAYERS.register
class Einsum(LayerSpec):
    """Multiply inputs and sum over axes, as given by an equation in letters: `bij,bjk->bik` is a matrix product.

    One letter for each axis of each input, the batch first, then those of the output; axes that are not in the output
    are summed over. A letter that occurs twice in one input selects its diagonal; `...` are all axes without letters,
    which broadcast. (For a product with learned weights use EinsumDense.)
    """

    type: Literal["Einsum"] = "Einsum"
    equation: Equation
    """The axes of the inputs and of the output."""

    samples: ClassVar = (
        Sample.of((2, 3, 4), (2, 4, 5), equation="bij,bjk->bik"),
        Sample.of((2, 3, 4), equation="bij -> bji"),
        Sample.of((2, 3, 4), (2, 4), (2, 3), equation="bij,bj,bi->bj"),
        Sample.of((2, 3, 3, 2), equation="biij->bij"),
        Sample.of((2, 2, 3, 4), (2, 1, 4, 5), equation="b...ij,b...jk->b...ki"),
        Sample.of((2, 3), (2, 4), equation="bi,bj->bij"),
        Sample.of((2, 3), (2, 3), equation="bi,bi->b"),
    )

    def build(self, builder: Builder, first: Value, *others: Value) -> Value:
        """Inputs: (N, …) → (N, …)."""
        inputs, _, output = self.equation.partition("->")
        terms, values = inputs.split(","), builder.to_common_dtype([first, *others])
        require(
            len(terms) == len(values), "the number of terms differs from the number of inputs",
            expected=f"{len(terms)} input{'s' * (len(terms) > 1)}", got=len(values),
        )  # fmt: skip
        hidden = [_hidden(term, x.type) for term, x in zip(terms, values, strict=True)]
        spare = [letter for letter in ascii_letters if letter not in self.equation]
        most = max(hidden)
        require(
            most <= len(spare), "there are more axes than letters", expected=f"up to {len(ascii_letters)}", got=most
        )
        dots = "".join(spare[:most])  # counted from the last, as sizes broadcast
        named = [term.replace("...", dots[most - count :]) for term, count in zip(terms, hidden, strict=True)]
        return einsum.Einsum(tuple(named), output.replace("...", dots))(*values)


def _hidden(term: str, x: TensorType) -> int:
    """Number of axes of an input that `...` in its term stands for."""
    named = len(term.replace(".", ""))
    fits = x.rank >= named if "." in term else x.rank == named
    require(fits, f"`{term}` does not name the axes of an input", expected=f"{named} axes", got=x)
    return x.rank - named
