"""Recurrent layers: LSTM, GRU and SimpleRNN, and RNN over a described cell, with Keras's fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from netspec.graph.ops.elementwise import Where, call_elementwise
from netspec.graph.ops.shape import Flip
from netspec.graph.types import batch_shape
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample, StepPosition, StepStates
from netspec.layers.checks import require
from netspec.layers.core.masking import broadcast_mask, step_mask
from netspec.layers.recurrent.cells import AnyCell, CellSpec, GRUFields, LSTMFields, SimpleRNNFields, cell_names
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.spec import problem

_STATEFUL = "a separate program is compiled for each batch size, and could not share its states"


class RecurrentLayer(CellSpec, LayerSpec):
    """Base of layers that read a sequence step by step and pass states from step to step.

    Input (N, T, features), output (N, units), or (N, T, units) with `return_sequences`.
    """

    foreign_fields: ClassVar[dict[str, str]] = LayerSpec.foreign_fields | {
        "unroll": "not needed: the number of steps is fixed when the net is compiled",
        "initial_state": "here initial states follow the sequence in `from`: `[sequence, state_h, state_c]`",
        "batch_first": "not needed: a sequence is (batch, steps, features)",
        "hidden_size": "`hidden_size` is PyTorch's name: use `units`",
        "bidirectional": "`{type: Bidirectional, layer: {type: LSTM, …}}`",
        "num_layers": "write several layers, or `{type: RNN, cell: {type: StackedRNNCells, cells: […]}}`",
    }

    onnx_roundtrip_blocker: ClassVar[str | None] = "it is written step by step"
    return_sequences: bool = False
    """`true`: the output of every step; false: of the last one."""
    return_state: bool = False
    """`true`: the final states are outputs too, `NAME.state_h` and for an LSTM `NAME.state_c`."""
    go_backwards: bool = False
    """Read the sequence from its end; with `return_sequences` the outputs are in the order of reading."""
    zero_output_for_mask: bool = False
    """`true`: with `return_sequences` the output is 0 at masked steps; false: it repeats that of the previous step."""
    stateful: bool = False
    """Not available; to continue a sequence, use `return_state` and pass initial states in `from`."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.stateful:
            raise problem(
                f"`stateful` is not available: {_STATEFUL}", field="stateful", expected="`stateful: false`", got="true",
                hint="`return_state: true` returns the states, `from: [sequence, state, …]` sets the initial ones",
            )  # fmt: skip
        if self.zero_output_for_mask and not self.return_sequences:
            raise problem(
                "`zero_output_for_mask` needs the outputs of all steps", field="zero_output_for_mask",
                expected="`zero_output_for_mask: false`, or `return_sequences: true`", got="true",
            )  # fmt: skip
        return self

    def output_names(self) -> tuple[str, ...]:
        """Return the names of the output and, with `return_state`, of the final states."""
        return ("output", *self.state_names()) if self.return_state else ()

    def build(self, builder: Builder, x: Value, *states: Value) -> Value | tuple[Value, ...]:
        """x: (N, T, features), initial states, all or none: (N, units) → (N, units), or (N, T, units)."""
        require(
            len(x.shape) == 3,
            "the input is not a sequence",
            expected="(batch, steps, features)",
            got=x.type,
            hint="put an Embedding before it to turn integers into vectors" if len(x.shape) == 2 else None,
        )
        mask = step_mask(builder, x)
        self.require_states(states, [(x.shape[0], size) for size in self.sizes()])
        y, *last = self.run(
            builder, builder.floating(x), [*map(builder.floating, states)], mask, reverse=self.go_backwards
        )
        return self.select_outputs(y, last, mask)

    def require_states(self, states: Sequence[Value], shapes: Sequence[tuple[int, ...]]) -> None:
        """Raise a located error unless there are initial states of these shapes, or none."""
        names = self.state_names()
        require(
            len(states) in (0, len(names)),
            "there must be one initial state for each state",
            expected=f"{', '.join(names)} after the sequence in `from`, or the sequence alone",
            got=f"{len(states)}",
        )
        for name, shape, state in zip(names, shapes, states, strict=False):
            require(
                state.shape == shape,
                f"the initial `{name}` has the wrong size",
                expected=batch_shape(shape),
                got=state.type,
            )

    def select_outputs(self, y: Value, last: Sequence[Value], mask: Value | None) -> Value | tuple[Value, ...]:
        """Select from the outputs of all steps and the final states, according to the fields."""
        if self.zero_output_for_mask and self.return_sequences and mask is not None:
            y = call_elementwise(Where(), broadcast_mask(mask, y), y, 0.0)
        output = (Flip(1)(y) if self.go_backwards else y) if self.return_sequences else last[self.output_index()]
        return (output, *last) if self.return_state else output

    def step_states(self, steps: int) -> StepStates | None:
        """The states of the cell, unless the sequence is read from its end."""
        return (
            None
            if self.go_backwards
            else StepStates({name: (size,) for name, size in zip(self.state_names(), self.sizes(), strict=True)})
        )

    def build_step(self, builder: Builder, x: Value, states: Sequence[Value], at: StepPosition) -> tuple[Value, ...]:
        """x: (N, 1, features) → (N, 1, units), or (N, units) without `return_sequences`; the states."""
        y, *last = self.run(builder, builder.floating(x), states, None, reverse=False)
        return (y if self.return_sequences else last[self.output_index()], *last)

    def mask(self, builder: Builder, *inputs: Value) -> Value | None:
        """The mask of the sequence, if all outputs are returned: unchanged, as in Keras, also with `go_backwards`."""
        return builder.mask() if self.return_sequences else None


@LAYERS.register
class SimpleRNN(SimpleRNNFields, RecurrentLayer):
    """A simple recurrent layer: h[t] = activation(x[t] · kernel + h[t-1] · recurrent_kernel + bias).

    Inputs (N, T, features) and optionally the first state h (N, units), 0 by default; output (N, units), or (N, T,
    units) with `return_sequences`. At masked steps the state and the output do not change.
    """

    onnx_roundtrip_blocker: ClassVar = None

    type: Literal["SimpleRNN"] = "SimpleRNN"

    samples: ClassVar = (
        Sample.of((2, 4, 3), units=3),
        Sample.of(
            (2, 3, 2), units=2, use_bias=False, activation="softplus", return_sequences=True, no_onnx_roundtrip=True
        ),
        Sample.of(
            (3, 3, 2),
            units=2,
            activation=None,
            return_sequences=True,
            go_backwards=True,
            recurrent_dropout=0.4,
            no_onnx_roundtrip=True,
        ),
        Sample.of((3, 4, 2), (3, 2), units=2, return_state=True, recurrent_dropout=0.3),
        Sample.of((3, 4, 2), units=2, return_sequences=True, go_backwards=True, masks=[(3, 4)], no_onnx_roundtrip=True),
    )


@LAYERS.register
class LSTM(LSTMFields, RecurrentLayer):
    """Long short-term memory: gates control what enters a cell state, what is forgotten and what is output.

    Inputs (N, T, features) and optionally the first states h and c (N, units), 0 by default; output (N, units), or (N,
    T, units) with `return_sequences`. The four parts of x[t] · kernel + h[t-1] · recurrent_kernel + bias are i, f, g
    and o: c[t] = σ(f) · c[t-1] + σ(i) · tanh(g) and h[t] = σ(o) · tanh(c[t]). At masked steps h, c and the output do
    not change. With `projection_units`, outputs and h have that size: σ(o) · tanh(c[t]) is multiplied by a learned
    matrix. Hochreiter and Schmidhuber 1997; Gers et al. 2000.
    """

    foreign_fields: ClassVar[dict[str, str]] = RecurrentLayer.foreign_fields | {
        "proj_size": "`proj_size` is PyTorch's name: use `projection_units`"
    }

    onnx_roundtrip_blocker: ClassVar = None

    type: Literal["LSTM"] = "LSTM"

    samples: ClassVar = (
        Sample.of((2, 4, 3), units=3, return_sequences=True),
        Sample.of((3, 3, 2), units=2, use_bias=False, go_backwards=True, dropout=0.3, recurrent_dropout=0.4),
        Sample.of(
            (2, 3, 4),
            units=3,
            activation="elu",
            recurrent_activation="hard_sigmoid",
            unit_forget_bias=False,
            no_onnx_roundtrip=True,
        ),
        Sample.of((2, 2, 3), units=2, return_sequences=True, kernel_regularizer={"type": "L2", "l2": 0.1}),
        Sample.of((2, 3, 2), (2, 3), (2, 3), units=3, return_sequences=True, return_state=True),
        Sample.of((2, 3, 2), units=2, return_state=True, recurrent_dropout=0.3, masks=[(2, 3)]),
        Sample.of(
            (3, 4, 2), units=2, return_sequences=True, go_backwards=True, use_bias=False, masks=[(3, 4)],
            no_onnx_roundtrip=True,
        ),
        Sample.of((2, 4, 3), units=3, projection_units=2, return_sequences=True, no_onnx_roundtrip=True),
        Sample.of(
            (2, 3, 2), (2, 2), (2, 3), units=3, projection_units=2, use_bias=False, go_backwards=True,
            return_sequences=True, return_state=True, no_onnx_roundtrip=True,
        ),
        Sample.of(
            (3, 4, 2), (3, 2), (3, 3), units=3, projection_units=2, return_state=True, dropout=0.3,
            recurrent_dropout=0.4, masks=[(3, 4)], no_onnx_roundtrip=True,
        ),
    )  # fmt: skip


@LAYERS.register
class GRU(GRUFields, RecurrentLayer):
    """Gated recurrent unit: one gate mixes state and candidate, another controls how much state the candidate sees.

    Inputs (N, T, features) and optionally the first state h (N, units), 0 by default; output (N, units), or (N, T,
    units) with `return_sequences`. With the three parts each of a = x[t] · kernel + bias[0] and b = h[t-1] ·
    recurrent_kernel + bias[1]: z = σ(a₁ + b₁), r = σ(a₂ + b₂), g = tanh(a₃ + r · b₃), h[t] = z · h[t-1] + (1 - z) · g.
    At masked steps h and the output do not change. Cho et al. 2014, arXiv:1406.1078.
    """

    onnx_roundtrip_blocker: ClassVar = None

    type: Literal["GRU"] = "GRU"

    samples: ClassVar = (
        Sample.of((2, 4, 3), units=3, return_sequences=True),
        Sample.of((3, 3, 2), units=2, use_bias=False, go_backwards=True, dropout=0.3, recurrent_dropout=0.4),
        Sample.of((2, 3, 4), units=3, reset_after=False, recurrent_dropout=0.3),
        Sample.of(
            (2, 3, 2),
            units=3,
            reset_after=False,
            use_bias=False,
            return_sequences=True,
            go_backwards=True,
            no_onnx_roundtrip=True,
        ),
        Sample.of(
            (2, 3, 2), units=2, activation="softsign", recurrent_activation="hard_sigmoid", no_onnx_roundtrip=True
        ),
        Sample.of((2, 3, 2), (2, 2), units=2, return_state=True, go_backwards=True),
        Sample.of((3, 4, 2), units=2, return_sequences=True, masks=[(3, 4)]),
        Sample.of((3, 4, 2), units=2, return_sequences=True, zero_output_for_mask=True, masks=[(3, 4)]),
        Sample.of((3, 3, 2), (3, 2), units=2, reset_after=False, return_state=True),
        Sample.of((3, 4, 2), units=2, reset_after=False, return_sequences=True, masks=[(3, 4)]),
    )


@LAYERS.register
class RNN(RecurrentLayer):
    """Run a cell, or a stack of cells, along a sequence.

    Inputs (N, T, features) and optionally the first states of all cells, 0 by default; output (N, units), or (N, T,
    units) with `return_sequences`. With `return_state` the states of a stack are numbered by the cell:
    `NAME.state_h_0`.
    """

    onnx_roundtrip_blocker: ClassVar = "it comes back as LSTM, GRU or SimpleRNN, one for each cell"

    type: Literal["RNN"] = "RNN"
    cell: AnyCell
    """The cell: `{type: LSTMCell, units: 8}`, or `{type: StackedRNNCells, cells: [{type: LSTMCell, units: 8}, …]}`."""

    samples: ClassVar = (
        Sample.of((2, 3, 2), cell={"type": "GRUCell", "units": 3}, return_sequences=True),
        Sample.of(
            (2, 3, 2),
            cell={"type": "StackedRNNCells", "cells": [{"type": "LSTMCell", "units": 2},
                                                       {"type": "SimpleRNNCell", "units": 3},
                                                       {"type": "LSTMCell", "units": 2, "use_bias": False}]},
            return_state=True, go_backwards=True,
        ),
        Sample.of(
            (3, 4, 2), return_sequences=True, masks=[(3, 4)],
            cell={"type": "StackedRNNCells", "cells": [{"type": "LSTMCell", "units": 2, "dropout": 0.3},
                                                       {"type": "GRUCell", "units": 2}]},
        ),
    )  # fmt: skip

    def state_names(self) -> tuple[str, ...]:
        return self.cell.state_names()

    def sizes(self) -> tuple[int, ...]:
        return self.cell.sizes()

    def output_index(self) -> int:
        return self.cell.output_index()

    def run(
        self, builder: Builder, x: Value, initial: Sequence[Value], mask: Value | None, *, reverse: bool
    ) -> tuple[Value, ...]:
        """Run the cell; its name is the prefix of the parameters' names."""
        (name,) = cell_names([self.cell])
        with builder.within(name):
            return self.cell.run(builder, x, initial, mask, reverse=reverse)
