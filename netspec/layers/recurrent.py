"""The recurrent layers LSTM, GRU and SimpleRNN, with Keras's fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Flip, Slice
from netspec.graph.ops.source import Fill
from netspec.graph.types import TensorType
from netspec.graph.value import Value
from netspec.layers import cells
from netspec.layers.activations import Activation, OverAxis
from netspec.layers.base import Builder, Initial, LayerSpec, PositiveInt, Sample, need
from netspec.layers.constraints import Constraint
from netspec.layers.dropout import dropped
from netspec.layers.initializers import GlorotUniform, Initializer, Orthogonal, Zeros
from netspec.layers.regularizers import Regularizer
from netspec.layers.smooth_activations import Sigmoid, Tanh
from netspec.schema.kinds import LAYERS
from netspec.schema.spec import problem


class RecurrentSpec(LayerSpec):
    """Base of the recurrent layers: what all of them have.

    Input (N, T, features), output (N, units), or (N, T, units) with `return_sequences`.
    """

    one_way: ClassVar = "ONNX's recurrent operators are not read"
    units: PositiveInt
    """number of outputs, and size of the state"""
    activation: Activation | None = Tanh()
    """function applied to what goes into the state and comes out of it"""
    use_bias: bool = True
    """add learned numbers"""
    kernel_initializer: Initializer = GlorotUniform()
    """first values of `kernel`, which is multiplied with the input"""
    recurrent_initializer: Initializer = Orthogonal()
    """first values of `recurrent_kernel`, which is multiplied with the state"""
    bias_initializer: Initializer = Zeros()
    """first values of `bias`"""
    kernel_regularizer: Regularizer | None = None
    """penalty on `kernel`, added to the loss"""
    kernel_constraint: Constraint | None = None
    """what `kernel` is projected on after each step"""
    recurrent_regularizer: Regularizer | None = None
    """penalty on `recurrent_kernel`, added to the loss"""
    recurrent_constraint: Constraint | None = None
    """what `recurrent_kernel` is projected on after each step"""
    bias_regularizer: Regularizer | None = None
    """penalty on `bias`, added to the loss"""
    bias_constraint: Constraint | None = None
    """what `bias` is projected on after each step"""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """share of the inputs that become 0 in training, the same ones in all steps of a sequence"""
    recurrent_dropout: float = Field(default=0.0, ge=0, lt=1)
    """share of the states that become 0 before the recurrent product in training, the same ones in all steps"""
    return_sequences: bool = False
    """true: the output of every step; false: of the last one"""
    go_backwards: bool = False
    """read the sequence from its end; with `return_sequences` the outputs are in the order of reading"""
    return_state: bool = False
    """not available: a layer has one output"""
    stateful: bool = False
    """not available: every sequence starts from a state of zeros"""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for field, why in (("return_state", "a layer has one output"), ("stateful", "a state starts from zeros")):
            if getattr(self, field):
                raise problem(f"`{field}` is not available: {why}", field=field, expected="false", got="true")
        for field in ("activation", "recurrent_activation"):
            function = getattr(self, field, None)
            if isinstance(function, OverAxis):
                name = type(function).model_fields["type"].default
                raise problem(
                    f"`{name}` runs over all units at once, and not inside of a recurrent layer", field=field,
                    expected="a function of each number, such as tanh", got=name,
                )  # fmt: skip
        return self

    def cell(self, masked: bool) -> cells.Cell:
        """The op of the whole sequence, with or without a mask of the state."""
        raise NotImplementedError

    def first_bias(self) -> Initial:
        """First values of the bias."""
        return self.bias_initializer

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, T, features) → (N, units), or (N, T, units) with `return_sequences`."""
        need(
            len(x.shape) == 3,
            "the input is not a sequence",
            expected="(batch, steps, features)",
            got=x.type,
            hint="put an Embedding before it to make vectors of numbers" if len(x.shape) == 2 else None,
        )
        masked = net.training and self.recurrent_dropout > 0
        x, op = net.floating(x), self.cell(masked)
        (batch, steps, features), wide = x.shape, op.gates * self.units
        weights = [
            net.parameter(
                "kernel", (features, wide), self.kernel_initializer, self.kernel_regularizer, self.kernel_constraint
            ),
            net.parameter(
                "recurrent_kernel",
                (self.units, wide),
                self.recurrent_initializer,
                self.recurrent_regularizer,
                self.recurrent_constraint,
            ),
        ]
        if self.use_bias:
            weights.append(
                net.parameter(
                    "bias", op.bias_shape(self.units), self.first_bias(), self.bias_regularizer, self.bias_constraint
                )
            )
        if net.training and self.dropout:
            x = x * reshape_to(_mask(net, x.type.with_shape(batch, features), self.dropout), (batch, 1, features))
        if masked:
            weights.append(_mask(net, x.type.with_shape(batch, self.units), self.recurrent_dropout))
        y = op(x, *weights)
        if self.return_sequences:
            return Flip(1)(y) if self.go_backwards else y
        last = 0 if self.go_backwards else steps - 1
        return reshape_to(Slice(1, last, last + 1)(y), (batch, self.units))


def _mask(net: Builder, kind: TensorType, rate: float) -> Value:
    """What to multiply with for dropout."""
    return dropped(net, Fill(1.0, kind)(), rate)


@LAYERS.register
class SimpleRNN(RecurrentSpec):
    """A plain recurrent layer: h[t] = activation(x[t] · kernel + h[t-1] · recurrent_kernel + bias).

    Input (N, T, features), output (N, units), or (N, T, units) with `return_sequences`. The first state is 0.
    """

    type: Literal["SimpleRNN"] = "SimpleRNN"

    samples: ClassVar = (
        Sample.of((2, 4, 3), units=3),
        Sample.of((2, 3, 2), units=2, use_bias=False, activation="softplus", return_sequences=True),
        Sample.of((3, 3, 2), units=2, activation=None, return_sequences=True, go_backwards=True, recurrent_dropout=0.4),
    )

    def cell(self, masked: bool) -> cells.Cell:
        return cells.RNN(self.activation, self.use_bias, masked, self.go_backwards)


class GatedSpec(RecurrentSpec):
    """Base of the layers whose gates have an activation of their own."""

    recurrent_activation: Activation | None = Sigmoid()
    """function applied to the gates"""


@LAYERS.register
class LSTM(GatedSpec):
    """Long short-term memory: gates decide what goes into a cell, what is forgotten, what comes out.

    Input (N, T, features), output (N, units), or (N, T, units) with `return_sequences`. The four parts of
    x[t] · kernel + h[t-1] · recurrent_kernel + bias are i, f, g and o: c[t] = σ(f) · c[t-1] + σ(i) · tanh(g) and
    h[t] = σ(o) · tanh(c[t]); the first states are 0. Hochreiter and Schmidhuber 1997; Gers et al. 2000.
    """

    type: Literal["LSTM"] = "LSTM"
    unit_forget_bias: bool = True
    """the bias of the forget gate starts as 1. Jozefowicz et al. 2015"""

    samples: ClassVar = (
        Sample.of((2, 4, 3), units=3, return_sequences=True),
        Sample.of((3, 3, 2), units=2, use_bias=False, go_backwards=True, dropout=0.3, recurrent_dropout=0.4),
        Sample.of((2, 3, 4), units=3, activation="elu", recurrent_activation="hard_sigmoid", unit_forget_bias=False),
        Sample.of((2, 2, 3), units=2, return_sequences=True, kernel_regularizer={"type": "L2", "l2": 0.1}),
    )

    def cell(self, masked: bool) -> cells.Cell:
        gate = self.recurrent_activation
        return cells.LSTM(self.activation, self.use_bias, masked, self.go_backwards, gate)

    def first_bias(self) -> Initial:
        return ForgetBias(self.bias_initializer, self.units) if self.unit_forget_bias else self.bias_initializer


@dataclass(frozen=True)
class ForgetBias(Initial):
    """An initializer's numbers, but 1 for the forget gate."""

    others: Initial
    units: int

    def sample(self, seed: int, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        """A NumPy array, the same for the same (seed, name, shape)."""
        made = self.others.sample(seed, name, shape, dtype)
        made[self.units : 2 * self.units] = 1
        return made


@LAYERS.register
class GRU(GatedSpec):
    """Gated recurrent unit: one gate mixes the state with a candidate, one says what of the state the candidate sees.

    Input (N, T, features), output (N, units), or (N, T, units) with `return_sequences`. Of the three parts each of
    a = x[t] · kernel + bias[0] and b = h[t-1] · recurrent_kernel + bias[1]: z = σ(a₁ + b₁), r = σ(a₂ + b₂),
    g = tanh(a₃ + r · b₃), h[t] = z · h[t-1] + (1 - z) · g; the first state is 0. Cho et al. 2014, arXiv:1406.1078.
    """

    type: Literal["GRU"] = "GRU"
    reset_after: bool = True
    """true: r is applied behind the recurrent product, with two biases; false: before it, with one"""

    samples: ClassVar = (
        Sample.of((2, 4, 3), units=3, return_sequences=True),
        Sample.of((3, 3, 2), units=2, use_bias=False, go_backwards=True, dropout=0.3, recurrent_dropout=0.4),
        Sample.of((2, 3, 4), units=3, reset_after=False, recurrent_dropout=0.3),
        Sample.of((2, 3, 2), units=3, reset_after=False, use_bias=False, return_sequences=True, go_backwards=True),
        Sample.of((2, 3, 2), units=2, activation="softsign", recurrent_activation="hard_sigmoid"),
    )

    def cell(self, masked: bool) -> cells.Cell:
        gate = self.recurrent_activation
        return cells.GRU(self.activation, self.use_bias, masked, self.go_backwards, gate, self.reset_after)
