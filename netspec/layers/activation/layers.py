"""Activation functions as layers: Activation, which applies any function, and layers of single ones."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Where, call_elementwise
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Transpose
from netspec.graph.ops.unary import PRelu
from netspec.graph.types import broadcast_shapes
from netspec.graph.value import Value
from netspec.layers.activation import over_axis, piecewise, smooth
from netspec.layers.activation.base import Activation as Function
from netspec.layers.activation.base import ActivationSpec, activate
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import Axes, require, sample_axis
from netspec.layers.constraints import Constraint
from netspec.layers.core.masking import as_mask
from netspec.layers.initializers.base import Initializer, Zeros
from netspec.layers.regularizers import Regularizer
from netspec.schema.specs.kinds import ACTIVATIONS, LAYERS, LayerFields

ACTIVATION_MODULES = (piecewise, smooth, over_axis)


def _samples() -> Iterator[Sample]:
    """One sample for each function and each of its sample configurations."""
    for cls in (
        member
        for family in ACTIVATION_MODULES
        for member in vars(family).values()
        if member in ACTIVATIONS.registered()
    ):
        assert issubclass(cls, ActivationSpec)
        name = cls.model_fields["type"].default
        for fields in cls.samples:
            blocked = cls.onnx_roundtrip == "never" or (cls.onnx_roundtrip == "plain" and bool(fields))
            activation = {"type": name, **fields} if fields else name
            yield Sample.of((2, 3, 4), activation=activation, ranges=((-7.0, 7.0),), no_onnx_roundtrip=blocked)


@LAYERS.register
class Activation(LayerSpec):
    """Apply an activation function to each element, or along an axis.

    Input and output have the same shape; of `glu` the output has half the features.
    """

    type: Literal["Activation"] = "Activation"
    activation: Function
    """The function."""
    axis: int = -1
    """The axis of functions that need one (`softmax`, `glu`), unless the function sets its own."""

    passes_mask: ClassVar = True
    samples: ClassVar[Any] = tuple(_samples())

    def build(self, builder: Builder, x: Value) -> Value:
        """x → function of x, same shape."""
        return activate(self.activation, builder.floating(x), self.axis)


class FunctionLayer(LayerSpec):
    """Base of layers that apply a single activation function."""

    onnx_equivalents: ClassVar = ("Activation",)
    passes_mask: ClassVar = True

    def function(self) -> ActivationSpec:
        """The activation function that the fields describe."""
        raise NotImplementedError  # subclasses implement it

    def build(self, builder: Builder, x: Value) -> Value:
        """x → function of x, same shape."""
        return self.function().apply(builder.floating(x))


@LAYERS.register
class ReLU(FunctionLayer):
    """Pass elements from `threshold` to `max_value`; larger ones become `max_value`, smaller ones 0.

    Input and output have the same shape. Below the threshold the output is negative_slope · (x - threshold).
    """

    type: Literal["ReLU"] = "ReLU"
    max_value: float | None = Field(default=None, ge=0)
    """Greatest output; default: no limit."""
    negative_slope: float = Field(default=0.0, ge=0)
    """Slope below the threshold."""
    threshold: float = Field(default=0.0, ge=0)
    """Elements that are not greater count as negative."""

    samples: ClassVar = (
        Sample.of((2, 3, 4)),
        Sample.of((2, 9), no_onnx_roundtrip=True, max_value=1.5, negative_slope=0.1, threshold=0.5),
        Sample.of((2, 3, 2, 2), no_onnx_roundtrip=True, max_value=1.0),
    )

    def function(self) -> ActivationSpec:
        return piecewise.Relu(max_value=self.max_value, negative_slope=self.negative_slope, threshold=self.threshold)


@LAYERS.register
class LeakyReLU(FunctionLayer):
    """Pass positive elements, and multiply the others by a small slope.

    Input and output have the same shape. Maas, Hannun and Ng 2013. PReLU learns the slope.
    """

    foreign_fields: ClassVar[dict[str, str]] = LayerFields.foreign_fields | {"alpha": "use `negative_slope`"}

    type: Literal["LeakyReLU"] = "LeakyReLU"
    negative_slope: float = Field(default=0.3, ge=0)
    """Slope for negative elements (in Keras the layer has 0.3, the function 0.2; PyTorch has 0.01)."""

    samples: ClassVar = (Sample.of((2, 3, 4)), Sample.of((2, 3), negative_slope=0.01))

    def function(self) -> ActivationSpec:
        return piecewise.LeakyRelu(negative_slope=self.negative_slope)


@LAYERS.register
class ELU(FunctionLayer):
    """Pass positive elements; the others become alpha · (eˣ - 1), which approaches -alpha.

    Input and output have the same shape. Clevert et al. 2015, arXiv:1511.07289.
    """

    type: Literal["ELU"] = "ELU"
    alpha: float = 1.0
    """The function approaches -alpha for very negative elements."""

    samples: ClassVar = (Sample.of((2, 3, 4)), Sample.of((2, 3), alpha=0.5))

    def function(self) -> ActivationSpec:
        return smooth.Elu(alpha=self.alpha)


@LAYERS.register
class BNLL(FunctionLayer):
    """Caffe's binomial normal log likelihood: ln(1 + eˣ), the function `softplus`.

    Input and output have the same shape.
    """

    type: Literal["BNLL"] = "BNLL"

    samples: ClassVar = (Sample.of((2, 3, 4)),)

    def function(self) -> ActivationSpec:
        return smooth.Softplus()


@LAYERS.register
class Swish(FunctionLayer):
    """Caffe's Swish: x · sigmoid(beta · x).

    Input and output have the same shape. Ramachandran et al. 2017, arXiv:1710.05941.
    """

    type: Literal["Swish"] = "Swish"
    beta: float = 1.0
    """Factor of the operand of the sigmoid."""

    samples: ClassVar = (Sample.of((2, 3, 4)), Sample.of((2, 3), no_onnx_roundtrip=True, beta=1.7))

    def function(self) -> ActivationSpec:
        return smooth.SwishActivation(beta=self.beta)


MASKED = -1e9
"""Replacement for masked elements; Keras's value."""


@LAYERS.register
class Softmax(LayerSpec):
    """Positive elements that sum to 1 over `axis`: eˣ / Σ eˣ.

    Inputs (N, …) and optionally a mask that broadcasts to it and is nonzero for elements to include. Output (N, …), 0
    for masked elements.
    """

    onnx_equivalents: ClassVar = ("Activation",)
    passes_mask: ClassVar = True

    type: Literal["Softmax"] = "Softmax"
    axis: Axes = (-1,)
    """The axis or axes to sum over. For images (N, C, H, W), 1 is the channels and [2, 3] all positions."""

    samples: ClassVar = (
        Sample.of((2, 3, 4)),
        Sample.of((2, 3, 2, 4), axis=1),
        Sample.of((2, 3, 2, 4), no_onnx_roundtrip=True, axis=[1, -1]),
        Sample.of((2, 3, 4), (2, 3, 4), ranges=(None, (0, 2)), dtypes=("float32", "int32"), no_onnx_roundtrip=True),
    )

    def build(self, builder: Builder, x: Value, mask: Value | None = None) -> Value:
        """x: (N, …), mask: as x, or 1 along some axes → (N, …)."""
        if mask is None:
            return self._softmax(builder, x)
        fits = len(mask.shape) == len(x.shape) and broadcast_shapes(mask.shape, x.shape) == x.shape
        require(
            fits,
            "the mask does not broadcast to the input",
            expected=f"the sizes of {x.type.describe()}, or 1",
            got=mask.type,
        )
        counts = as_mask(mask)
        y = self._softmax(builder, call_elementwise(Where(), counts, builder.floating(x), MASKED))
        return call_elementwise(Where(), counts, y, 0.0)  # if all elements are masked, the softmax is uniform

    def _softmax(self, builder: Builder, x: Value) -> Value:
        axes = tuple(sorted(sample_axis(x, axis, "to normalize over") for axis in self.axis))
        require(len(set(axes)) == len(axes), "an axis is repeated", expected="different axes", got=list(self.axis))
        x = builder.floating(x)
        if len(axes) == 1:
            return over_axis.SoftmaxActivation().apply_along(x, axes[0])
        order = (*(axis for axis in range(len(x.shape)) if axis not in axes), *axes)
        inverse = tuple(sorted(order, key=order.__getitem__))
        axes_last = Transpose(order)(x)
        outer = axes_last.shape[: len(order) - len(axes)]
        flat = over_axis.SoftmaxActivation().apply_over(
            reshape_to(axes_last, (*outer, prod(axes_last.shape[len(outer) :]))), -1
        )
        return Transpose(inverse)(reshape_to(flat, axes_last.shape))


@LAYERS.register
class PReLU(LayerSpec):
    """Pass positive elements, and multiply the others by learned slopes.

    Input (N, …), output the same: x if x > 0, else alpha · x. Each element of a sample has its own slope, except that
    elements along `shared_axes` share one: for images, [2, 3] gives one per channel, as in Caffe's and PyTorch's PReLU.
    """

    type: Literal["PReLU"] = "PReLU"
    alpha_initializer: Initializer = Zeros()
    """First values of `alpha` (sizes of a sample, 1 along the shared axes)."""
    alpha_regularizer: Regularizer | None = None
    """Penalty on `alpha`, added to the loss."""
    alpha_constraint: Constraint | None = None
    """Constraint on `alpha`, applied after each step."""
    shared_axes: Axes | None = None
    """Axes along which all elements share one slope; default: none."""

    passes_mask: ClassVar = True
    samples: ClassVar = (
        Sample.of((2, 3, 4)),
        Sample.of((2, 3, 2, 2), shared_axes=[2, 3]),
        Sample.of((3, 4), shared_axes=1, alpha_regularizer={"type": "L2", "l2": 0.1}),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        shared = {sample_axis(x, axis, "to share slopes along") for axis in self.shared_axes or ()}
        require(len(x.shape) >= 2, "the input has no features", expected="(batch, …, features)", got=x.type)
        x = builder.floating(x)
        shape = tuple(1 if axis in shared else size for axis, size in enumerate(x.shape[1:], 1))
        alpha = builder.parameter_of(self, "alpha", shape)
        return PRelu()(x, alpha)
