"""Activation functions as layers: Activation, which takes any, and Keras's and Caffe's layers of single ones."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Where, elementwise
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Transpose
from netspec.graph.types import broadcast_shapes
from netspec.graph.value import Value
from netspec.layers import axis_activations, piecewise_activations, smooth_activations
from netspec.layers.activations import Activation as Function
from netspec.layers.activations import ActivationSpec, activate
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import Axes, need, sample_axis
from netspec.layers.masking import as_mask
from netspec.schema.kinds import ACTIVATIONS, LAYERS, LayerFields

FAMILIES = (piecewise_activations, smooth_activations, axis_activations)


def _samples() -> Iterator[Sample]:
    """Every function with every set of fields that it has as a sample."""
    for cls in (one for family in FAMILIES for one in vars(family).values() if one in ACTIVATIONS.known()):
        assert issubclass(cls, ActivationSpec)
        name = cls.model_fields["type"].default
        for fields in cls.samples:
            one_way = cls.comes_back == "never" or (cls.comes_back == "plain" and bool(fields))
            given = {"type": name, **fields} if fields else name
            yield Sample.of((2, 3, 4), activation=given, ranges=((-7.0, 7.0),), one_way=one_way)


@LAYERS.register
class Activation(LayerSpec):
    """Apply an activation function to each element, or along an axis.

    Input and output have the same shape; of `glu` the output has half the features.
    """

    type: Literal["Activation"] = "Activation"
    activation: Function
    """the function"""
    axis: int = -1
    """the axis that functions along one (`softmax`, `glu`) run over, unless the function names its own"""

    passes_mask: ClassVar = True
    samples: ClassVar[Any] = tuple(_samples())

    def build(self, net: Builder, x: Value) -> Value:
        """x → function of x, same shape."""
        return activate(self.activation, net.floating(x), self.axis)


class FunctionLayer(LayerSpec):
    """Base of layers that are one activation function."""

    alike: ClassVar = ("Activation",)
    passes_mask: ClassVar = True

    def function(self) -> ActivationSpec:
        """The function that the fields describe."""
        raise NotImplementedError  # abstract: subclasses say

    def build(self, net: Builder, x: Value) -> Value:
        """x → function of x, same shape."""
        return self.function().of(net.floating(x))


@LAYERS.register
class ReLU(FunctionLayer):
    """Let numbers from `threshold` to `max_value` pass: what is larger becomes `max_value`, what is smaller 0.

    Input and output have the same shape. Below the threshold it is negative_slope · (x - threshold).
    """

    type: Literal["ReLU"] = "ReLU"
    max_value: float | None = Field(default=None, ge=0)
    """the greatest number that comes out; default: none"""
    negative_slope: float = Field(default=0.0, ge=0)
    """slope below the threshold"""
    threshold: float = Field(default=0.0, ge=0)
    """what is not greater counts as negative"""

    samples: ClassVar = (
        Sample.of((2, 3, 4)),
        Sample.of((2, 9), one_way=True, max_value=1.5, negative_slope=0.1, threshold=0.5),
        Sample.of((2, 3, 2, 2), one_way=True, max_value=1.0),
    )

    def function(self) -> ActivationSpec:
        """`relu` with these fields."""
        return piecewise_activations.Relu(
            max_value=self.max_value, negative_slope=self.negative_slope, threshold=self.threshold
        )


@LAYERS.register
class LeakyReLU(FunctionLayer):
    """Let positive numbers pass, and multiply the others by a small slope.

    Input and output have the same shape. Maas, Hannun and Ng 2013. Where the slope is to be learned: PReLU.
    """

    foreign_fields: ClassVar[dict[str, str]] = LayerFields.foreign_fields | {"alpha": "here it is `negative_slope`"}

    type: Literal["LeakyReLU"] = "LeakyReLU"
    negative_slope: float = Field(default=0.3, ge=0)
    """slope of negative numbers (as a layer Keras has 0.3, as a function 0.2, PyTorch 0.01)"""

    samples: ClassVar = (Sample.of((2, 3, 4)), Sample.of((2, 3), negative_slope=0.01))

    def function(self) -> ActivationSpec:
        """`leaky_relu` with this slope."""
        return piecewise_activations.LeakyRelu(negative_slope=self.negative_slope)


@LAYERS.register
class ELU(FunctionLayer):
    """Let positive numbers pass, and bend the others towards -alpha: alpha · (eˣ - 1).

    Input and output have the same shape. Clevert et al. 2015, arXiv:1511.07289.
    """

    type: Literal["ELU"] = "ELU"
    alpha: float = 1.0
    """what large negative numbers come near to, negated"""

    samples: ClassVar = (Sample.of((2, 3, 4)), Sample.of((2, 3), alpha=0.5))

    def function(self) -> ActivationSpec:
        """`elu` with this factor."""
        return smooth_activations.Elu(alpha=self.alpha)


@LAYERS.register
class BNLL(FunctionLayer):
    """Caffe's binomial normal log likelihood: ln(1 + eˣ), the function `softplus`.

    Input and output have the same shape.
    """

    type: Literal["BNLL"] = "BNLL"

    samples: ClassVar = (Sample.of((2, 3, 4)),)

    def function(self) -> ActivationSpec:
        """`softplus`."""
        return smooth_activations.Softplus()


@LAYERS.register
class Swish(FunctionLayer):
    """Caffe's Swish: x · sigmoid(beta · x).

    Input and output have the same shape. Ramachandran et al. 2017, arXiv:1710.05941.
    """

    type: Literal["Swish"] = "Swish"
    beta: float = 1.0
    """factor of the operand of the sigmoid"""

    samples: ClassVar = (Sample.of((2, 3, 4)), Sample.of((2, 3), one_way=True, beta=1.7))

    def function(self) -> ActivationSpec:
        """`swish` with this factor."""
        return smooth_activations.Swish(beta=self.beta)


LEAST = -1e9
"""What a place that does not count is instead; Keras's number."""


@LAYERS.register
class Softmax(LayerSpec):
    """Positive numbers that sum to 1 over `axis`: eˣ / Σ eˣ.

    Inputs (N, …) and, where not all places count, a mask that broadcasts to it, not 0 where one does; output (N, …), 0
    at places that do not count.
    """

    alike: ClassVar = ("Activation",)
    passes_mask: ClassVar = True

    type: Literal["Softmax"] = "Softmax"
    axis: Axes = (-1,)
    """the axis, or the axes, that the sum is over. Of images (N, C, H, W), 1 is the channels, [2, 3] all places"""

    samples: ClassVar = (
        Sample.of((2, 3, 4)),
        Sample.of((2, 3, 2, 4), axis=1),
        Sample.of((2, 3, 2, 4), one_way=True, axis=[1, -1]),
        Sample.of((2, 3, 4), (2, 3, 4), ranges=(None, (0, 2)), dtypes=("float32", "int32"), one_way=True),
    )

    def build(self, net: Builder, x: Value, mask: Value | None = None) -> Value:
        """x: (N, …), mask: as x, or 1 along some axes → (N, …)."""
        if mask is None:
            return self._normalized(net, x)
        fits = len(mask.shape) == len(x.shape) and broadcast_shapes(mask.shape, x.shape) == x.shape
        need(fits, "the mask has other sizes", expected=f"those of {x.type}, or 1", got=mask.type)
        counts = as_mask(mask)
        y = self._normalized(net, elementwise(Where(), counts, net.floating(x), LEAST))
        return elementwise(Where(), counts, y, 0.0)  # where none counts all would be alike

    def _normalized(self, net: Builder, x: Value) -> Value:
        axes = tuple(sorted(sample_axis(x, axis, "to normalize over") for axis in self.axis))
        need(len(set(axes)) == len(axes), "an axis is given twice", expected="different axes", got=list(self.axis))
        x = net.floating(x)
        if len(axes) == 1:
            return axis_activations.Softmax().along(x, axes[0])
        order = (*(axis for axis in range(len(x.shape)) if axis not in axes), *axes)
        back = tuple(sorted(order, key=order.__getitem__))
        turned = Transpose(order)(x)
        kept = turned.shape[: len(order) - len(axes)]
        flat = axis_activations.Softmax().over(reshape_to(turned, (*kept, prod(turned.shape[len(kept) :]))), -1)
        return Transpose(back)(reshape_to(flat, turned.shape))
