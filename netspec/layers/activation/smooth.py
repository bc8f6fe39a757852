"""Activation functions made of exponentials and roots."""

from __future__ import annotations

from math import pi, sqrt
from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops import unary as ops
from netspec.graph.ops.special import Gelu as GeluOp
from netspec.graph.value import Value
from netspec.layers.activation.base import ActivationSpec
from netspec.schema.specs.kinds import ACTIVATIONS

_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


@ACTIVATIONS.register
class Elu(ActivationSpec):
    """x if x > 0, else alpha · (eˣ - 1). Clevert et al. 2015, arXiv:1511.07289"""

    type: Literal["elu"] = "elu"
    onnx_roundtrip: ClassVar = "always"
    alpha: float = 1.0
    """The function approaches -alpha for very negative elements."""
    samples: ClassVar = ({}, {"alpha": 0.5})

    def apply(self, x: Value) -> Value:
        return ops.Elu(self.alpha)(x)


@ACTIVATIONS.register
class Celu(ActivationSpec):
    """max(x, 0) + min(alpha · (e^(x/alpha) - 1), 0): smooth whatever alpha is. Barron 2017, arXiv:1704.07483"""

    type: Literal["celu"] = "celu"
    alpha: float = Field(default=1.0, gt=0)
    """The function approaches -alpha for very negative elements."""
    samples: ClassVar = ({}, {"alpha": 0.5})

    def apply(self, x: Value) -> Value:
        """alpha · elu(x / alpha)."""
        return ops.Elu()(x) if self.alpha == 1 else ops.Elu()(x * (1 / self.alpha)) * self.alpha


@ACTIVATIONS.register
class Selu(ActivationSpec):
    """1.0507 · elu(x) with alpha = 1.6733: keeps mean 0 and variance 1. Klambauer et al. 2017, arXiv:1706.02515"""

    type: Literal["selu"] = "selu"

    def apply(self, x: Value) -> Value:
        """Compute SELU with the paper's constants in full precision."""
        return ops.Elu(_SELU_ALPHA)(x) * _SELU_SCALE


@ACTIVATIONS.register
class Gelu(ActivationSpec):
    """x · Φ(x), where Φ is the cumulative normal distribution. Hendrycks and Gimpel 2016, arXiv:1606.08415"""

    type: Literal["gelu"] = "gelu"
    approximate: bool = False
    """`true`: use ½ x (1 + tanh(√(2/π) · (x + 0.044715 x³))), as some published models do."""
    samples: ClassVar = ({}, {"approximate": True})

    def apply(self, x: Value) -> Value:
        """One op, or the formula with tanh."""
        if not self.approximate:
            return GeluOp()(x)
        return x * (ops.Tanh()((x * x * 0.044715 + 1.0) * x * sqrt(2 / pi)) + 1.0) * 0.5


@ACTIVATIONS.register
class Sigmoid(ActivationSpec):
    """1 / (1 + e⁻ˣ)"""

    type: Literal["sigmoid"] = "sigmoid"

    def apply(self, x: Value) -> Value:
        return ops.Sigmoid()(x)


@ACTIVATIONS.register
class LogSigmoid(ActivationSpec):
    """ln(1 / (1 + e⁻ˣ))"""

    type: Literal["log_sigmoid"] = "log_sigmoid"

    def apply(self, x: Value) -> Value:
        """-softplus(-x), which does not overflow."""
        return -ops.Softplus()(-x)


@ACTIVATIONS.register
class Tanh(ActivationSpec):
    """tanh x"""

    type: Literal["tanh"] = "tanh"

    def apply(self, x: Value) -> Value:
        return ops.Tanh()(x)


@ACTIVATIONS.register
class TanhShrink(ActivationSpec):
    """x - tanh x"""

    type: Literal["tanh_shrink"] = "tanh_shrink"

    def apply(self, x: Value) -> Value:
        return x - ops.Tanh()(x)


@ACTIVATIONS.register
class Softplus(ActivationSpec):
    """ln(1 + eˣ); Caffe's BNLL"""

    type: Literal["softplus"] = "softplus"

    def apply(self, x: Value) -> Value:
        """One op, which does not overflow."""
        return ops.Softplus()(x)


@ACTIVATIONS.register
class SquarePlus(ActivationSpec):
    """(x + √(x² + b)) / 2. Barron 2021, arXiv:2112.11687"""

    type: Literal["squareplus"] = "squareplus"
    b: float = Field(default=4.0, gt=0)
    """Roundness b of the bend: at 0 the function is √b / 2."""
    samples: ClassVar = ({}, {"b": 1.0})

    def apply(self, x: Value) -> Value:
        return (x + ops.Sqrt()(x * x + self.b)) * 0.5


@ACTIVATIONS.register
class Softsign(ActivationSpec):
    """x / (|x| + 1)"""

    type: Literal["softsign"] = "softsign"

    def apply(self, x: Value) -> Value:
        return x / (ops.Abs()(x) + 1.0)


@ACTIVATIONS.register
class Silu(ActivationSpec):
    """x · sigmoid(x). Elfwing et al. 2017, arXiv:1702.03118"""

    type: Literal["silu"] = "silu"

    def apply(self, x: Value) -> Value:
        return x * ops.Sigmoid()(x)


@ACTIVATIONS.register
class SwishActivation(ActivationSpec):
    """x · sigmoid(beta · x). Ramachandran et al. 2017, arXiv:1710.05941; Caffe's Swish"""

    type: Literal["swish"] = "swish"
    beta: float = 1.0
    """Factor of the operand; with 1 it is `silu`."""
    samples: ClassVar = ({}, {"beta": 1.7})

    def apply(self, x: Value) -> Value:
        return x * ops.Sigmoid()(x if self.beta == 1 else x * self.beta)


@ACTIVATIONS.register
class Mish(ActivationSpec):
    """x · tanh(softplus(x)). Misra 2019, arXiv:1908.08681"""

    type: Literal["mish"] = "mish"

    def apply(self, x: Value) -> Value:
        return x * ops.Tanh()(ops.Softplus()(x))


@ACTIVATIONS.register
class Exponential(ActivationSpec):
    """eˣ"""

    type: Literal["exponential"] = "exponential"

    def apply(self, x: Value) -> Value:
        return ops.Exp()(x)
