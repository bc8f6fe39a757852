"""What a recurrent layer does at each step: LSTMCell, GRUCell, SimpleRNNCell and stacks of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.source import Fill
from netspec.graph.types import TensorType
from netspec.graph.value import Value
from netspec.layers import cells
from netspec.layers.activations import Activation, OverAxis
from netspec.layers.base import Builder
from netspec.layers.checks import PositiveInt
from netspec.layers.constraints import Constraint
from netspec.layers.dropout import dropped
from netspec.layers.initializers import GlorotUniform, Initializer, Zeros
from netspec.layers.matrix_initializers import Orthogonal
from netspec.layers.regularizers import Regularizer
from netspec.layers.smooth_activations import Sigmoid, Tanh
from netspec.layers.states import Initial
from netspec.schema.kinds import CELLS
from netspec.schema.names import Entry, default_names
from netspec.schema.spec import Member, Spec, problem


class CellSpec(Spec):
    """Base of cells: what is done at each step, and which states it hands to the next."""

    def state_names(self) -> tuple[str, ...]:
        """The name of each state."""
        raise NotImplementedError  # abstract: subclasses say

    def sizes(self) -> tuple[int, ...]:
        """How many numbers each state has."""
        raise NotImplementedError  # abstract: subclasses say

    def shown(self) -> int:
        """Which of the states is the output."""
        return 0

    def run(
        self, net: Builder, x: Value, initial: Sequence[Value], mask: Value | None, *, reverse: bool
    ) -> tuple[Value, ...]:
        """Over all steps of x: (N, T, features) → the outputs (N, T, units), and the states in the end (N, units).

        `initial` are the first states, which are 0 without; at a step that does not count (mask: (N, T)) all states,
        and the output, stay as they were.
        """
        raise NotImplementedError  # abstract: subclasses say


AnyCell = Annotated[CellSpec, Member(CELLS)]


class WeightFields(CellSpec):
    """What all cells have, and the layers that run them."""

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

    states: ClassVar[tuple[str, ...]] = ("state_h",)

    def state_names(self) -> tuple[str, ...]:
        """Those of the class."""
        return self.states

    def weight(self, net: Builder, name: Literal["kernel", "recurrent_kernel"], shape: tuple[int, ...]) -> Value:
        """One of the two kernels."""
        kernel = self.kernel_initializer, self.kernel_regularizer, self.kernel_constraint
        recurrent = self.recurrent_initializer, self.recurrent_regularizer, self.recurrent_constraint
        return net.parameter(name, shape, *(kernel if name == "kernel" else recurrent))

    @model_validator(mode="after")
    def _by_unit(self) -> Self:
        for field in ("activation", "recurrent_activation"):
            function = getattr(self, field, None)
            if isinstance(function, OverAxis):
                name = type(function).model_fields["type"].default
                raise problem(
                    f"`{name}` runs over all units at once, and not inside of a recurrent layer", field=field,
                    expected="a function of each number, such as tanh", got=name,
                )  # fmt: skip
        return self


class UnitsFields(WeightFields):
    """What cells have that are made of units, and the layers that run them."""

    units: PositiveInt
    """number of outputs, and size of the state"""

    def op(self, **facts: Any) -> cells.Cell:
        """The op of the whole sequence; `facts` are fields of `cells.Cell`."""
        raise NotImplementedError  # abstract: subclasses say

    def first_bias(self, units: int) -> Initial:
        """First values of the bias for so many units."""
        return self.bias_initializer

    def sizes(self) -> tuple[int, ...]:
        """As many as there are units."""
        return (self.units,) * len(self.states)

    def run(
        self, net: Builder, x: Value, initial: Sequence[Value], mask: Value | None, *, reverse: bool
    ) -> tuple[Value, ...]:
        """As every cell's."""
        dropping = net.training and self.recurrent_dropout > 0
        op = self.op(
            activation=self.activation, use_bias=self.use_bias, reverse=reverse, dropped=dropping,
            initial=bool(initial), masked=mask is not None,
        )  # fmt: skip
        (batch, _, features), wide = x.shape, op.gates * self.units
        operands = [
            self.weight(net, "kernel", (features, wide)),
            self.weight(net, "recurrent_kernel", (self.units, wide)),
        ]
        if self.use_bias:
            bias = self.first_bias(self.units), self.bias_regularizer, self.bias_constraint
            operands.append(net.parameter("bias", op.bias_shape(self.units), *bias))
        if net.training and self.dropout:
            x = x * reshape_to(factors(net, x.type.with_shape(batch, features), self.dropout), (batch, 1, features))
        if dropping:
            operands.append(factors(net, x.type.with_shape(batch, self.units), self.recurrent_dropout))
        return op.many(x, *operands, *initial, *([] if mask is None else [mask]))


def factors(net: Builder, kind: TensorType, rate: float) -> Value:
    """What to multiply with for dropout."""
    return dropped(net, Fill(1.0, kind)(), rate)


class GatedFields(WeightFields):
    """What cells have whose gates have an activation of their own."""

    recurrent_activation: Activation | None = Sigmoid()
    """function applied to the gates"""


class ForgettingFields(GatedFields):
    """What cells have that forget by a gate."""

    unit_forget_bias: bool = True
    """the bias of the forget gate starts as 1. Jozefowicz et al. 2015"""

    states: ClassVar[tuple[str, ...]] = ("state_h", "state_c")

    def first_bias(self, units: int) -> Initial:
        """First values of the bias for so many units."""
        return ForgetBias(self.bias_initializer, units) if self.unit_forget_bias else self.bias_initializer


class SimpleRNNFields(UnitsFields):
    """What SimpleRNN and SimpleRNNCell have."""

    def op(self, **facts: Any) -> cells.Cell:
        return cells.RNN(**facts)


class LSTMFields(ForgettingFields, UnitsFields):
    """What LSTM and LSTMCell have."""

    def op(self, **facts: Any) -> cells.Cell:
        return cells.LSTM(recurrent_activation=self.recurrent_activation, **facts)


class GRUFields(GatedFields, UnitsFields):
    """What GRU and GRUCell have."""

    reset_after: bool = True
    """true: r is applied behind the recurrent product, with two biases; false: before it, with one"""

    def op(self, **facts: Any) -> cells.Cell:
        return cells.GRU(recurrent_activation=self.recurrent_activation, reset_after=self.reset_after, **facts)


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


@CELLS.register
class SimpleRNNCell(SimpleRNNFields):
    """What SimpleRNN does at each step."""

    type: Literal["SimpleRNNCell"] = "SimpleRNNCell"
    samples: ClassVar = ({"units": 3},)


@CELLS.register
class LSTMCell(LSTMFields):
    """What LSTM does at each step."""

    type: Literal["LSTMCell"] = "LSTMCell"
    samples: ClassVar = ({"units": 3},)


@CELLS.register
class GRUCell(GRUFields):
    """What GRU does at each step."""

    type: Literal["GRUCell"] = "GRUCell"
    samples: ClassVar = ({"units": 3},)


@CELLS.register
class StackedRNNCells(CellSpec):
    """Several cells at each step, each of which reads the output of the one before; the last one's is the output.

    As the layers of these cells one behind another, which it is computed as, but for one `RNN`.
    """

    type: Literal["StackedRNNCells"] = "StackedRNNCells"
    cells: tuple[AnyCell, ...] = Field(min_length=1, strict=False)
    """the cells, the first one first"""
    samples: ClassVar = ({"cells": [{"type": "LSTMCell", "units": 3}, {"type": "GRUCell", "units": 2}]},)

    def state_names(self) -> tuple[str, ...]:
        """Those of all cells, numbered by the cell."""
        return tuple(f"{name}_{k}" for k, cell in enumerate(self.cells) for name in cell.state_names())

    def sizes(self) -> tuple[int, ...]:
        """Those of all cells."""
        return tuple(size for cell in self.cells for size in cell.sizes())

    def shown(self) -> int:
        """The last cell's."""
        return sum(len(cell.sizes()) for cell in self.cells[:-1]) + self.cells[-1].shown()

    def run(
        self, net: Builder, x: Value, initial: Sequence[Value], mask: Value | None, *, reverse: bool
    ) -> tuple[Value, ...]:
        """As every cell's: no cell reads one behind it, so that each may run over all steps before the next one."""
        found: list[Value] = []
        for cell, name in zip(self.cells, cell_names(self.cells), strict=True):
            count = len(cell.sizes())
            with net.within(name):
                x, *states = cell.run(net, x, initial[:count], mask, reverse=reverse)
            found, initial = [*found, *states], initial[count:]
        return x, *found


def cell_names(those: Sequence[CellSpec]) -> list[str]:
    """What cells are called among the parameters: their types in snake case, numbered from the second on."""
    entries = [Entry(str(getattr(cell, "type", ""))) for cell in those]
    default_names(entries, set())
    return [entry.name or "" for entry in entries]
