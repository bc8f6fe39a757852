"""LocalResponseNormalization. Krizhevsky, Sutskever and Hinton 2012, section 3.3; the fields are Caffe's LRN's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from netspec.graph.onnx_map import GRADIENT, Emitter, OnnxExpansion
from netspec.graph.op import Array, Grads, Op, Traits, Xp
from netspec.graph.ops.elementwise import Pow
from netspec.graph.ops.shape import PadAxis, Slice
from netspec.graph.types import TensorType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, need
from netspec.layers.pooling import AveragePool
from netspec.layers.sizes import need_image
from netspec.layers.window import Window
from netspec.schema.kinds import LAYERS, LayerFields
from netspec.schema.spec import problem


@dataclass(frozen=True)
class AcrossChannels(Op):
    """Base of both ops: the sum over the `size` channels around each, of which some may not be there."""

    size: int = 5
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0
    traits = Traits(rounds=(0,))

    @property
    def reach(self) -> int:
        """How many channels on either side take part."""
        return self.size // 2

    @property
    def share(self) -> float:
        """The factor of a sum of squares."""
        return self.alpha / self.size

    def sums(self, xp: Xp, x: Array) -> Array:
        """Sums over the channels around each."""
        padded = xp.pad(x, [(0, 0), (self.reach, self.reach), *((0, 0),) * (x.ndim - 2)])
        return reduce(add, (padded[:, k : k + x.shape[1]] for k in range(self.size)))

    def summed(self, x: Value) -> Value:
        """As `sums`, of a graph value."""
        padded = PadAxis(1, self.reach, self.reach)(x)
        return reduce(add, (Slice(1, k, k + x.shape[1])(padded) for k in range(self.size)))


def _to_onnx(g: Emitter, y: Value, x: str) -> str:
    op = y.op
    assert isinstance(op, LRN)
    numbers: dict[str, Any] = {"size": op.size, "alpha": op.alpha, "beta": op.beta, "bias": op.bias}
    if len(y.shape) == 4:
        return g.node("LRN", x, **numbers)
    image = g.node("Reshape", x, g.constant([0, 0, -1, 1], "int64"))  # ONNX Runtime has it for images alone
    return g.node("Reshape", g.node("LRN", image, **numbers), g.constant([0, *y.shape[1:]], "int64"))


class LRN(AcrossChannels):
    """Local response normalization across channels: y[c] = x[c] · (bias + α/size · Σ x[c']²)^-β.

    The sum is over the `size` channels c' around c, an odd number.
    """

    onnx = OnnxExpansion(_to_onnx)

    def infer(self, x: TensorType) -> TensorType:
        """x: (N, C, …) → (N, C, …)."""
        self.check(x.rank >= 2, "there is no axis of channels", expected="(batch, channels, …)", got=x)
        return x

    def forward(self, xp: Xp, x: Array) -> Array:
        return x * (self.bias + self.share * self.sums(xp, x * x)) ** -self.beta

    def vjp(self, y: Value, dy: Value) -> Grads:
        (x,) = y.inputs
        return (LRNGrad(self.size, self.alpha, self.beta, self.bias)(x, dy),)

    def flops(self, x: TensorType) -> int:
        return (2 * self.size + 5) * x.size


class LRNGrad(AcrossChannels):
    """Gradient of `LRN`: x, dy → dx = dy · s^-β - 2αβ/size · x · Σ dy · x · s^(-β-1), with s what y = x · s^-β has."""

    onnx = GRADIENT

    def infer(self, x: TensorType, dy: TensorType) -> TensorType:
        """x, dy: (N, C, …) → (N, C, …)."""
        self.check(dy == x, "the gradient is not of the operand's type", expected=str(x), got=dy)
        return x

    def forward(self, xp: Xp, x: Array, dy: Array) -> Array:
        scale = self.bias + self.share * self.sums(xp, x * x)
        direct = dy * scale**-self.beta
        return direct - 2 * self.share * self.beta * x * self.sums(xp, direct * x / scale)

    def decompose(self, x: Value, dy: Value) -> Value:
        scale = self.summed(x * x) * self.share + self.bias
        direct = dy * Pow(-self.beta)(scale)
        return direct - x * self.summed(direct * x / scale) * (2 * self.share * self.beta)

    def flops(self, x: TensorType, dy: TensorType) -> int:
        return (3 * self.size + 11) * x.size


@LAYERS.register
class LocalResponseNormalization(LayerSpec):
    """Divide each number by a power of the mean square around it: in neighbouring channels, or places of an image.

    Input (N, C, …), output the same: y = x · (k + alpha/n · Σ x²)^-beta, where the sum is over the n = size channels
    around, or (within a channel) the n = size² places around. What lies outside counts as 0, and n does not change
    there. This is Caffe's LRN, and PyTorch's and ONNX's across channels: alpha is divided by n.
    """

    foreign_fields: ClassVar[dict[str, str]] = LayerFields.foreign_fields | {
        "local_size": "`local_size` is Caffe's name: here it is `size`",
        "norm_region": "`norm_region` is Caffe's name: here it is `region`, across_channels or within_channel",
    }

    type: Literal["LocalResponseNormalization"] = "LocalResponseNormalization"
    size: PositiveInt = 5
    """how many channels, or places along height and along width, take part; odd"""
    alpha: float = Field(default=1.0, ge=0)
    """factor of the mean square"""
    beta: float = Field(default=0.75, ge=0)
    """exponent"""
    k: float = Field(default=1.0, gt=0)
    """added to the mean square"""
    region: Literal["across_channels", "within_channel"] = "across_channels"
    """where the neighbours are: in other channels at the same place, or around the place in an image's same channel"""

    samples: ClassVar = (
        Sample.of((2, 7, 3, 2)),
        Sample.of((2, 2, 4, 1), size=3, alpha=0.3, beta=0.6, k=2.0),
        Sample.of((2, 2, 5, 4), one_way=True, size=3, region="within_channel"),
    )

    @field_validator("size")
    @classmethod
    def _odd(cls, size: int) -> int:
        if size % 2 == 0:
            raise problem("there is no middle among an even number", expected="an odd number", got=str(size))
        return size

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …)."""
        x = net.floating(x)
        if self.region == "across_channels":
            need(len(x.shape) >= 2, "the input has no channels", expected="(batch, channels, …)", got=x.type)
            return LRN(self.size, self.alpha, self.beta, self.k)(x)
        need_image(x)
        reach = self.size // 2
        squares = PadAxis(3, reach, reach)(PadAxis(2, reach, reach)(x * x))
        window = Window.of(squares.shape[2:], (self.size, self.size), (1, 1), "valid")
        return x * Pow(-self.beta)(AveragePool(window)(squares) * self.alpha + self.k)
