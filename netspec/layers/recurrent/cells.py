"""The step of a recurrent layer: LSTMCell, GRUCell, SimpleRNNCell and stacks of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.graph.ops import rnn
from netspec.graph.ops.cumsum import CumSum
from netspec.graph.ops.elementwise import Equal, Where, call_elementwise, cast, scalar
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.recurrence import time_step
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Concat, PadAxis
from netspec.graph.ops.source import Fill
from netspec.graph.types import TensorType
from netspec.graph.value import Value
from netspec.layers.activation.base import Activation, OverAxis
from netspec.layers.activation.smooth import Sigmoid, Tanh
from netspec.layers.base import Builder
from netspec.layers.checks import PositiveInt
from netspec.layers.constraints import Constraint
from netspec.layers.core.dropout import apply_dropout
from netspec.layers.core.masking import broadcast_mask
from netspec.layers.initializers.base import Initializer, Zeros
from netspec.layers.initializers.matrices import Orthogonal
from netspec.layers.initializers.variance_scaling import GlorotUniform
from netspec.layers.regularizers import Regularizer
from netspec.layers.states import Initial
from netspec.schema.specs.kinds import CELLS
from netspec.schema.specs.names import NamedEntry, default_names
from netspec.schema.specs.spec import Member, Spec, problem


class CellSpec(Spec):
    """Base of cells: the computation of one step, and the states that it passes to the next."""

    def state_names(self) -> tuple[str, ...]:
        """The name of each state."""
        raise NotImplementedError  # subclasses implement it

    def sizes(self) -> tuple[int, ...]:
        """Number of elements of each state."""
        raise NotImplementedError  # subclasses implement it

    def output_index(self) -> int:
        """Return the index of the state that is the output."""
        return 0

    def run(
        self, builder: Builder, x: Value, initial: Sequence[Value], mask: Value | None, *, reverse: bool
    ) -> tuple[Value, ...]:
        """Run over all steps of x: (N, T, features) → the outputs (N, T, units), and the final states (N, units).

        `initial` are the initial states, or empty: then they are 0. Steps for which `mask` (N, T) is False change
        neither the states nor the output.
        """
        raise NotImplementedError  # subclasses implement it


AnyCell = Annotated[CellSpec, Member(CELLS)]


class WeightFields(CellSpec):
    """Fields of all cells, and of the layers that run them."""

    activation: Activation | None = Tanh()
    """Activation of the candidate state and of the output."""
    use_bias: bool = True
    """Add learned offsets."""
    kernel_initializer: Initializer = GlorotUniform()
    """First values of `kernel`, which is multiplied with the input."""
    recurrent_initializer: Initializer = Orthogonal()
    """First values of `recurrent_kernel`, which is multiplied with the state."""
    bias_initializer: Initializer = Zeros()
    """First values of `bias`."""
    kernel_regularizer: Regularizer | None = None
    """Penalty on `kernel`, added to the loss."""
    kernel_constraint: Constraint | None = None
    """Constraint on `kernel`, applied after each step."""
    recurrent_regularizer: Regularizer | None = None
    """Penalty on `recurrent_kernel`, added to the loss."""
    recurrent_constraint: Constraint | None = None
    """Constraint on `recurrent_kernel`, applied after each step."""
    bias_regularizer: Regularizer | None = None
    """Penalty on `bias`, added to the loss."""
    bias_constraint: Constraint | None = None
    """Constraint on `bias`, applied after each step."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the inputs that are set to 0 in training, the same in all steps of a sequence."""
    recurrent_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the states that are set to 0 before the recurrent product in training, the same in all steps."""

    states: ClassVar[tuple[str, ...]] = ("state_h",)

    def state_names(self) -> tuple[str, ...]:
        """Names of the class's states."""
        return self.states

    def weight(self, builder: Builder, name: Literal["kernel", "recurrent_kernel"], shape: tuple[int, ...]) -> Value:
        """Create one of the two kernels."""
        return builder.parameter_of(self, name, shape, name.removesuffix("_kernel"))

    @model_validator(mode="after")
    def _by_unit(self) -> Self:
        for field in ("activation", "recurrent_activation"):
            function = getattr(self, field, None)
            if isinstance(function, OverAxis):
                name = type(function).model_fields["type"].default
                raise problem(
                    f"`{name}` normalizes over all units at once, which a recurrent layer does not support",
                    field=field,
                    expected="an elementwise function, such as tanh", got=name,
                )  # fmt: skip
        return self


class UnitsFields(WeightFields):
    """Fields of cells with `units`, and of the layers that run them."""

    units: PositiveInt
    """Number of outputs, and size of the state."""

    def op(self, **facts: Any) -> rnn.RecurrentOp:
        """Return the op that runs the full sequence; `facts` are fields of `rnn.RecurrentOp`."""
        raise NotImplementedError  # subclasses implement it

    def first_bias(self, units: int) -> Initial:
        """Initializer of the bias."""
        return self.bias_initializer

    def sizes(self) -> tuple[int, ...]:
        """`units` for each state."""
        return (self.units,) * len(self.states)

    def run(
        self, builder: Builder, x: Value, initial: Sequence[Value], mask: Value | None, *, reverse: bool
    ) -> tuple[Value, ...]:
        """Run the cell over all steps."""
        op = self.op(
            activation=self.activation, use_bias=self.use_bias, reverse=reverse, has_initial_state=bool(initial),
            has_dropout=builder.training and self.recurrent_dropout > 0, has_mask=mask is not None,
        )  # fmt: skip
        (batch, _, features), wide = x.shape, op.gates * self.units
        kernel = self.weight(builder, "kernel", (features, wide))
        recurrent = self.weight(builder, "recurrent_kernel", (self.sizes()[0], wide))
        if builder.training and self.dropout:
            x = x * reshape_to(
                dropout_factors(builder, x.type.with_shape(batch, features), self.dropout), (batch, 1, features)
            )
        return self.compute(builder, op, x, kernel, recurrent, initial, mask)

    def compute(
        self, builder: Builder, op: rnn.RecurrentOp, x: Value, kernel: Value, recurrent: Value,
        initial: Sequence[Value], mask: Value | None,
    ) -> tuple[Value, ...]:  # fmt: skip
        """The results of `run`, from the two kernels and the inputs after dropout."""
        operands = []
        if self.use_bias:
            bias = self.first_bias(self.units), self.bias_regularizer, self.bias_constraint
            operands.append(builder.parameter("bias", op.bias_shape(self.units), *bias))
        if op.has_dropout:
            operands.append(dropout_factors(builder, x.type.with_shape(x.shape[0], self.units), self.recurrent_dropout))
        return op.call_multi(x, kernel, recurrent, *operands, *initial, *([] if mask is None else [mask]))


def dropout_factors(builder: Builder, kind: TensorType, rate: float) -> Value:
    """Factors that apply dropout."""
    return apply_dropout(builder, Fill(1.0, kind)(), rate)


class GatedFields(WeightFields):
    """Fields of cells whose gates have their own activation."""

    recurrent_activation: Activation | None = Sigmoid()
    """Function applied to the gates."""


class ForgetGateFields(GatedFields):
    """Fields of cells with a forget gate."""

    unit_forget_bias: bool = True
    """The bias of the forget gate starts as 1. Jozefowicz et al. 2015."""

    states: ClassVar[tuple[str, ...]] = ("state_h", "state_c")

    def first_bias(self, units: int) -> Initial:
        """Initializer of the bias."""
        return ForgetBias(self.bias_initializer, units) if self.unit_forget_bias else self.bias_initializer


class SimpleRNNFields(UnitsFields):
    """Fields of SimpleRNN and SimpleRNNCell."""

    def op(self, **facts: Any) -> rnn.RecurrentOp:
        return rnn.RNN(**facts)


class LSTMFields(ForgetGateFields, UnitsFields):
    """Fields of LSTM and LSTMCell."""

    projection_units: PositiveInt | None = None
    """Size of the outputs and of `state_h`, if the `units` values h of the gates are projected: y = h ·
    projection_kernel, and `recurrent_kernel` is applied to y. `recurrent_dropout` then applies to h. Default: no
    projection. (PyTorch's `proj_size`; Keras has no such option.) Sak et al. 2014, arXiv:1402.1128."""
    projection_initializer: Initializer = GlorotUniform()
    """First values of `projection_kernel` (units, projection_units)."""
    projection_regularizer: Regularizer | None = None
    """Penalty on `projection_kernel`, added to the loss."""
    projection_constraint: Constraint | None = None
    """Constraint on `projection_kernel`, applied after each step."""

    def op(self, **facts: Any) -> rnn.RecurrentOp:
        return rnn.LSTM(recurrent_activation=self.recurrent_activation, **facts)

    def sizes(self) -> tuple[int, ...]:
        """Size of the outputs, and size of the cell state."""
        return self.projection_units or self.units, self.units

    def compute(
        self, builder: Builder, op: rnn.RecurrentOp, x: Value, kernel: Value, recurrent: Value,
        initial: Sequence[Value], mask: Value | None,
    ) -> tuple[Value, ...]:  # fmt: skip
        """Project the outputs of all steps at once; the recurrent kernel is multiplied by the projection, too.

        An initial state h is already projected, so it is treated as an additional input of the first valid step.
        """
        if self.projection_units is None:
            return super().compute(builder, op, x, kernel, recurrent, initial, mask)
        shape = (self.units, self.projection_units)
        projection = builder.parameter_of(self, "projection_kernel", shape, "projection")
        steps, initial_output = x.shape[1], None
        if initial:
            first, cell = initial
            first_input, initial_output = _initial_sequences(first, steps, mask, reverse=op.reverse)
            x, kernel, initial = Concat(2)(x, first_input), Concat(0)(kernel, recurrent), (cell * 0.0, cell)
        h, _, cell = super().compute(builder, op, x, kernel, MatMul()(projection, recurrent), initial, mask)
        y = MatMul()(h, projection)
        y = y if initial_output is None else y + initial_output
        return y, time_step(y, 0 if op.reverse else steps - 1), cell


def _initial_sequences(first: Value, steps: int, mask: Value | None, *, reverse: bool) -> tuple[Value, Value | None]:
    """Two copies of a state (N, H) as sequences (N, T, H), which are 0 at all other steps.

    The first one holds it at the steps up to and including the first valid one; the second at the steps before that.
    Without a mask, the first one holds it at the first step, and the second is None.
    """
    row = reshape_to(first, (first.shape[0], 1, first.shape[1]))
    if mask is None:
        before = steps - 1 if reverse else 0
        return PadAxis(1, before, steps - 1 - before)(row), None
    valid = cast(mask, first.dtype)
    until_first, before_first = (
        call_elementwise(Where(), broadcast_mask(Equal()(sums, scalar(0.0, first.dtype)), row), row, 0.0)
        for sums in (CumSum(1, exclusive, reverse)(valid) for exclusive in (True, False))
    )
    return until_first, before_first


class GRUFields(GatedFields, UnitsFields):
    """Fields of GRU and GRUCell."""

    reset_after: bool = True
    """`true`: r is applied after the recurrent product, with two biases; false: before it, with one."""

    def op(self, **facts: Any) -> rnn.RecurrentOp:
        return rnn.GRU(recurrent_activation=self.recurrent_activation, reset_after=self.reset_after, **facts)


@dataclass(frozen=True)
class ForgetBias(Initial):
    """An initializer's values, but 1 for the forget gate."""

    others: Initial
    units: int

    def sample(self, seed: int, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        """A NumPy array, the same for the same (seed, name, shape)."""
        bias = self.others.sample(seed, name, shape, dtype)
        bias[self.units : 2 * self.units] = 1
        return bias


@CELLS.register
class SimpleRNNCell(SimpleRNNFields):
    """The step of SimpleRNN."""

    type: Literal["SimpleRNNCell"] = "SimpleRNNCell"
    samples: ClassVar = ({"units": 3},)


@CELLS.register
class LSTMCell(LSTMFields):
    """The step of LSTM."""

    type: Literal["LSTMCell"] = "LSTMCell"
    samples: ClassVar = ({"units": 3},)


@CELLS.register
class GRUCell(GRUFields):
    """The step of GRU."""

    type: Literal["GRUCell"] = "GRUCell"
    samples: ClassVar = ({"units": 3},)


@CELLS.register
class StackedRNNCells(CellSpec):
    """Several cells at each step: each reads the output of the previous one, and the last one's output is returned.

    As in a stack of layers with these cells, but in a single `RNN`.
    """

    type: Literal["StackedRNNCells"] = "StackedRNNCells"
    cells: tuple[AnyCell, ...] = Field(min_length=1, strict=False)
    """The cells, in the order in which they are applied."""
    samples: ClassVar = ({"cells": [{"type": "LSTMCell", "units": 3}, {"type": "GRUCell", "units": 2}]},)

    def state_names(self) -> tuple[str, ...]:
        """State names of all cells, numbered by the cell."""
        return tuple(f"{name}_{k}" for k, cell in enumerate(self.cells) for name in cell.state_names())

    def sizes(self) -> tuple[int, ...]:
        """State sizes of all cells."""
        return tuple(size for cell in self.cells for size in cell.sizes())

    def output_index(self) -> int:
        """Return the index of the last cell's output."""
        return sum(len(cell.sizes()) for cell in self.cells[:-1]) + self.cells[-1].output_index()

    def run(
        self, builder: Builder, x: Value, initial: Sequence[Value], mask: Value | None, *, reverse: bool
    ) -> tuple[Value, ...]:
        """Run each cell over all steps in turn, since no cell reads the output of a later one."""
        final_states: list[Value] = []
        for cell, name in zip(self.cells, cell_names(self.cells), strict=True):
            count = len(cell.sizes())
            with builder.within(name):
                x, *states = cell.run(builder, x, initial[:count], mask, reverse=reverse)
            final_states, initial = [*final_states, *states], initial[count:]
        return x, *final_states


def cell_names(cells: Sequence[CellSpec]) -> list[str]:
    """Prefixes of the cells' parameter names: their types in snake case, numbered from the second on."""
    entries = [NamedEntry(str(getattr(cell, "type", ""))) for cell in cells]
    default_names(entries, set())
    return [entry.name or "" for entry in entries]
