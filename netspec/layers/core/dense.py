"""Dense: the fully connected layer; EinsumDense: the same over any axes, given by an equation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, model_validator

from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import ReduceSum, reshape_to
from netspec.graph.ops.shape import Transpose
from netspec.graph.value import Value
from netspec.layers.activation.base import Activation, activate
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, as_items, is_integer, require
from netspec.layers.constraints import Constraint
from netspec.layers.initializers.base import Initializer, MatrixInitial, Zeros
from netspec.layers.initializers.variance_scaling import GlorotUniform
from netspec.layers.regularizers import Regularizer
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.spec import problem


@LAYERS.register
class Dense(LayerSpec):
    """Connect every feature to each of `units` outputs: y = activation(x · kernel + bias).

    Input (N, …, features), output (N, …, units): it acts on the last axis, as Keras's Dense does. Put Flatten before it
    to connect all elements of an image.
    """

    type: Literal["Dense"] = "Dense"
    units: PositiveInt
    """Number of outputs."""
    activation: Activation | None = None
    """Function applied to the result (softmax: over the units)."""
    use_bias: bool = True
    """Add a learned offset to each output."""
    kernel_initializer: Initializer = GlorotUniform()
    """First values of `kernel` (features, units)."""
    bias_initializer: Initializer = Zeros()
    """First values of `bias` (units)."""
    kernel_regularizer: Regularizer | None = None
    """Penalty on `kernel`, added to the loss."""
    kernel_constraint: Constraint | None = None
    """Constraint on `kernel`, applied after each step."""
    bias_regularizer: Regularizer | None = None
    """Penalty on `bias`, added to the loss."""
    bias_constraint: Constraint | None = None
    """Constraint on `bias`, applied after each step."""

    passes_mask: ClassVar = True
    shardable_parameter: ClassVar = "kernel"
    samples: ClassVar = (
        Sample.of((3, 5), units=4),
        Sample.of((2, 3, 4), units=2, use_bias=False, activation="softmax"),
        Sample.of((2, 3), units=3, activation="relu", kernel_regularizer={"type": "L2", "l2": 0.1}),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …, features) → (N, …, units)."""
        require(
            len(x.shape) >= 2,
            "the input has no features",
            expected="(batch, …, features)",
            got=x.type,
            hint="an input of shape [] has one value per sample: declare it as [1]",
        )
        x = builder.floating(x)
        kernel = builder.parameter(
            "kernel",
            (x.shape[-1], self.units),
            self.kernel_initializer,
            self.kernel_regularizer,
            self.kernel_constraint,
        )
        y = MatMul()(x, kernel)
        if self.use_bias:
            y = y + builder.parameter_of(self, "bias", (self.units,))
        return activate(self.activation, y)


_FORM = re.compile(r"(\.\.\.)?([a-zA-Z]+)(\.\.\.)?,([a-zA-Z]+)->(\.\.\.)?([a-zA-Z]+)(\.\.\.)?")
_FORMS = "`[X],[Y]->[Z]`, `...[X],[Y]->...[Z]` or `[X]...,[Y]->[Z]...` with letters for axes"


def _sizes(value: Any) -> Any:
    if value == []:
        return ()
    return as_items(
        value, lambda size: size is None or (is_integer(size) and size >= 1), "an integer of 1 or more, or null"
    )


Sizes = Annotated[tuple[int | None, ...], BeforeValidator(_sizes, json_schema_input_type=int | list[int | None])]
"""One size or several; null for the input's size."""


@dataclass(frozen=True)
class EinsumEquation:
    """The axes of input, kernel and output as letters; axes covered by `...` are named by digits."""

    x: tuple[str, ...]
    kernel: tuple[str, ...]
    y: tuple[str, ...]

    def axes(self, *, x: bool, kernel: bool, y: bool) -> list[str]:
        """The letters that occur in exactly these of the three terms, in order of appearance."""
        terms = (x, kernel, y)
        letters = dict.fromkeys((*self.x, *self.kernel))
        return [letter for letter in letters if (letter in self.x, letter in self.kernel, letter in self.y) == terms]

    def __call__(self, x: Value, kernel: Value) -> Value:
        """Compute a matrix product, batched over the axes that all three terms have; the batch stays first."""
        size = dict(zip((*self.x, *self.kernel), (*x.shape, *kernel.shape), strict=True))

        def count(letters: list[str]) -> int:
            return prod(size[letter] for letter in letters)

        alone = self.axes(x=True, kernel=False, y=False)
        if alone:
            x = ReduceSum(tuple(self.x.index(letter) for letter in alone))(x)
        remaining = [letter for letter in self.x if letter not in alone]
        first, *rows = self.axes(x=True, kernel=False, y=True)
        inner, batch = self.axes(x=True, kernel=True, y=False), self.axes(x=True, kernel=True, y=True)
        columns = self.axes(x=False, kernel=True, y=True)
        x = Transpose(tuple(remaining.index(letter) for letter in (first, *batch, *rows, *inner)))(x)
        kernel = Transpose(tuple(self.kernel.index(letter) for letter in (*batch, *inner, *columns)))(kernel)
        matrices, lines = [count(batch)] * bool(batch), [count(rows)] * bool(batch or rows)
        left = reshape_to(x, (size[first], *matrices, *lines, count(inner)))
        product = MatMul()(left, reshape_to(kernel, (*matrices, count(inner), count(columns))))
        order = (first, *batch, *rows, *columns)
        y = reshape_to(product, tuple(size[letter] for letter in order))
        return Transpose(tuple(order.index(letter) for letter in self.y))(y)


@LAYERS.register
class EinsumDense(LayerSpec):
    """Connect any axes to any others: y = activation(einsum(equation, x, kernel) + bias).

    Input (N, …) with the axes that `equation` names; output likewise. `abc,cde->abde` connects the last of three axes
    to two new ones; `...x,xy->...y` is Dense. It is computed as a matrix product.
    """

    type: Literal["EinsumDense"] = "EinsumDense"
    equation: str
    """The axes of the input, the kernel and the output: letters, as in NumPy's einsum."""
    output_shape: Sizes
    """Sizes of the output's axes without the batch and without those that dots stand for; null: the input's size."""
    activation: Activation | None = None
    """Function applied to the result."""
    bias_axes: str | None = None
    """Letters of the output's axes along which a learned offset is added; null: no bias."""
    kernel_initializer: Initializer = GlorotUniform()
    """First values of `kernel`: those of a matrix of all its input axes by all its output axes."""
    bias_initializer: Initializer = Zeros()
    """First values of `bias`."""
    kernel_regularizer: Regularizer | None = None
    """Penalty on `kernel`, added to the loss."""
    kernel_constraint: Constraint | None = None
    """Constraint on `kernel`, applied after each step."""
    bias_regularizer: Regularizer | None = None
    """Penalty on `bias`, added to the loss."""
    bias_constraint: Constraint | None = None
    """Constraint on `bias`, applied after each step."""

    onnx_roundtrip_blocker: ClassVar = "it is written as a product of matrices, which does not contain the equation"
    samples: ClassVar = (
        Sample.of((2, 3, 4), equation="abc,cde->abde", output_shape=[None, 2, 3], bias_axes="de", activation="relu"),
        Sample.of((2, 3, 4), equation="abc,bcd->adb", output_shape=[2, 3], bias_axes="b"),
        Sample.of((2, 3, 4), equation="ab...,bc->ac...", output_shape=5, bias_axes="c"),
        Sample.of(
            (2, 3, 2, 2), equation="...xy,yz->...z", output_shape=3, kernel_regularizer={"type": "L2", "l2": 0.1}
        ),
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        match_ = _FORM.fullmatch(self.equation.replace(" ", ""))
        dots = match_ is not None and [match_[k] is not None for k in (1, 3, 5, 7)]
        if match_ is None or dots not in ([False] * 4, [True, False] * 2, [False, True] * 2):
            raise problem("has an invalid value", field="equation", expected=_FORMS, got=repr(self.equation))
        x, kernel, y = match_[2], match_[4], match_[6]
        for letters in (x, kernel, y):
            if len(set(letters)) < len(letters):
                raise problem(
                    f"`{letters}` has a letter twice",
                    field="equation",
                    expected="each axis of an operand once",
                    got=repr(self.equation),
                )
        if not match_[1] and (x[0] != y[0] or x[0] in kernel):
            raise problem(
                "the batch axis must be the first of the input and the output, and must not occur in the kernel",
                field="equation",
                expected=f"an output that begins with `{x[0]}`", got=repr(self.equation),
            )  # fmt: skip
        for letter in y + kernel:
            if (letter not in x + kernel) if letter in y else (letter not in x):
                raise problem(
                    f"the axis `{letter}` of the equation is undefined", field="equation",
                    expected=f"`{letter}` in the input or the {'kernel' if letter in y else 'output'}",
                    got=repr(self.equation),
                )  # fmt: skip
        if not set(self.bias_axes or "") <= set(y):
            raise problem(
                "`bias_axes` must name axes of the output", field="bias_axes", expected=f"letters of `{y}`",
                got=repr(self.bias_axes),
            )  # fmt: skip
        if self.bias_axes == "":
            raise problem("not axes of the bias", field="bias_axes", expected="letters, or null for no bias", got="''")
        sizes = len(y) if match_[1] else len(y) - 1
        if len(self.output_shape) != sizes:
            named = y if match_[1] else y[1:]
            raise problem(
                "`output_shape` needs one size for each axis of the output", field="output_shape",
                expected=f"{sizes}, for {', '.join(f'`{axis}`' for axis in named)}", got=f"{len(self.output_shape)}",
            )  # fmt: skip
        return self

    def _einsum(self, rank: int) -> EinsumEquation:
        """The axes for an input of this rank."""
        (x, kernel), y = self.equation.replace(" ", "").partition("->")[0].split(","), self.equation.split("->")[1]
        named = len(x.replace(".", ""))
        dotted = "..." in x
        fits = rank > named if x.startswith("...") else rank >= named if dotted else rank == named
        require(
            fits,
            f"the input does not have the axes of `{self.equation}`",
            expected=f"{named + x.startswith('...')} axes{' or more' if dotted else ''}, the batch among them",
            got=f"{rank}",
        )
        numbers = tuple(map(str, range(rank - named)))

        def axes(letters: str) -> tuple[str, ...]:
            before, dots, behind = letters.strip().partition("...")
            return (*before, *(numbers if dots else ()), *behind)

        return EinsumEquation(axes(x), tuple(kernel), axes(y))

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        x = builder.floating(x)
        einsum = self._einsum(len(x.shape))
        size, letters = dict(zip(einsum.x, x.shape, strict=True)), [axis for axis in einsum.y[1:] if axis.isalpha()]
        for axis, output_size in zip(letters, self.output_shape, strict=True):
            fixed_size = size.get(axis)
            require(
                output_size is not None or fixed_size is not None,
                f"the size of the axis `{axis}` is unknown",
                expected="its size in `output_shape`",
            )
            require(
                output_size is None or fixed_size in (None, output_size),
                f"the axis `{axis}` has a different size in the input",
                expected=f"{fixed_size}, or null, in `output_shape`",
                got=f"{output_size}",
            )
            size.setdefault(axis, output_size or 0)
        inputs, outputs = (
            prod(size[axis] for axis in einsum.kernel if (axis in einsum.y) is in_output) for in_output in (False, True)
        )
        shape = tuple(size[axis] for axis in einsum.kernel)
        initial = MatrixInitial(self.kernel_initializer, (inputs, outputs))
        y = einsum(x, builder.parameter("kernel", shape, initial, self.kernel_regularizer, self.kernel_constraint))
        if self.bias_axes is not None:
            from_first = einsum.y[min(einsum.y.index(axis) for axis in self.bias_axes) :]
            bias_shape = tuple(size[axis] if axis in self.bias_axes else 1 for axis in from_first)
            y = y + builder.parameter_of(self, "bias", bias_shape)
        return activate(self.activation, y)
