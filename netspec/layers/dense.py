"""Dense: the fully connected layer."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops.linear import MatMul
from netspec.graph.value import Value
from netspec.layers.activations import Activation, activate
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, need
from netspec.layers.constraints import Constraint
from netspec.layers.initializers import GlorotUniform, Initializer, Zeros
from netspec.layers.regularizers import Regularizer
from netspec.schema.kinds import LAYERS


@LAYERS.register
class Dense(LayerSpec):
    """Connect every feature to each of `units` outputs: y = activation(x · kernel + bias).

    Input (N, …, features), output (N, …, units): it acts on the last axis, as Keras's Dense does. Put Flatten before it
    to connect all of an image.
    """

    type: Literal["Dense"] = "Dense"
    units: PositiveInt
    """number of outputs"""
    activation: Activation | None = None
    """function applied to the result (softmax: over the units)"""
    use_bias: bool = True
    """add a learned number to each output"""
    kernel_initializer: Initializer = GlorotUniform()
    """first values of `kernel` (features, units)"""
    bias_initializer: Initializer = Zeros()
    """first values of `bias` (units)"""
    kernel_regularizer: Regularizer | None = None
    """penalty on `kernel`, added to the loss"""
    kernel_constraint: Constraint | None = None
    """what `kernel` is projected on after each step"""
    bias_regularizer: Regularizer | None = None
    """penalty on `bias`, added to the loss"""
    bias_constraint: Constraint | None = None
    """what `bias` is projected on after each step"""

    passes_mask: ClassVar = True
    divides: ClassVar = "kernel"
    samples: ClassVar = (
        Sample.of((3, 5), units=4),
        Sample.of((2, 3, 4), units=2, use_bias=False, activation="softmax"),
        Sample.of((2, 3), units=3, activation="relu", kernel_regularizer={"type": "L2", "l2": 0.1}),
    )

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …, features) → (N, …, units)."""
        need(
            len(x.shape) >= 2,
            "the input has no features",
            expected="(batch, …, features)",
            got=x.type,
            hint="an input of shape [] holds one number per sample: declare it as [1]",
        )
        x = net.floating(x)
        kernel = net.parameter(
            "kernel",
            (x.shape[-1], self.units),
            self.kernel_initializer,
            self.kernel_regularizer,
            self.kernel_constraint,
        )
        y = MatMul()(x, kernel)
        if self.use_bias:
            y = y + net.parameter(
                "bias", (self.units,), self.bias_initializer, self.bias_regularizer, self.bias_constraint
            )
        return activate(self.activation, y)
