"""ConvLSTM1D, 2D and 3D: an LSTM whose products are convolutions, for videos and fields that change over time."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from netspec.graph.ops import rnn
from netspec.graph.ops.convolution import Conv
from netspec.graph.ops.elementwise import Where, scalar
from netspec.graph.ops.recurrence import stack_steps, time_step, time_steps
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Slice
from netspec.graph.ops.window import Window
from netspec.graph.value import Value, require_unrollable
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import PositiveInt, require
from netspec.layers.core.masking import broadcast_mask, step_mask
from netspec.layers.recurrent.cells import ForgetGateFields, dropout_factors
from netspec.layers.recurrent.layers import RecurrentLayer
from netspec.layers.spatial import AXIS_NAMES, Size1D, Size2D, Size3D
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.spec import problem


class ConvLSTM(ForgetGateFields, RecurrentLayer):
    """Base of ConvLSTM1D, 2D and 3D."""

    rank: ClassVar[int]

    filters: PositiveInt
    """Number of channels of the output, and of both states."""
    kernel_size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: Literal["valid", "same"] = "valid"
    """Padding of the input, `valid`: none; `same`: ⌈size / stride⌉ outputs. The state is padded to keep its size."""
    dilation_rate: tuple[int, ...]

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise problem(
                "`strides` and `dilation_rate` cannot both be above 1", field="dilation_rate",
                expected="`dilation_rate: 1`, or `strides: 1`", got=f"{list(self.dilation_rate)}",
            )  # fmt: skip
        return self

    def step_states(self, steps: int) -> None:
        """Return None, because the sizes of the states depend on the input."""

    def build(self, builder: Builder, x: Value, *states: Value) -> Value | tuple[Value, ...]:
        """x: (N, T, C, …), initial states, both or none: (N, filters, …) → (N, filters, …), or (N, T, filters, …)."""
        require(
            len(x.shape) == self.rank + 3,
            "the input is not a sequence of " + {1: "sequences", 2: "images", 3: "volumes"}[self.rank],
            expected=f"(batch, steps, channels, {AXIS_NAMES[self.rank]})",
            got=x.type,
        )
        mask, x = step_mask(builder, x), builder.floating(x)
        batch, steps, channels, *spatial = x.shape
        require_unrollable(steps, "time steps")
        window = Window.of(tuple(spatial), self.kernel_size, self.strides, self.padding, self.dilation_rate)
        size, ones = window.out(tuple(spatial)), (1,) * self.rank
        op = rnn.LSTM(activation=self.activation, recurrent_activation=self.recurrent_activation)
        gate_channels, state_type = op.gates * self.filters, x.type.with_shape(batch, self.filters, *size)
        self.require_states(states, [state_type.shape] * op.states)
        kernel = self.weight(builder, "kernel", (gate_channels, channels, *self.kernel_size))
        recurrent = self.weight(builder, "recurrent_kernel", (gate_channels, self.filters, *self.kernel_size))
        if builder.training and self.dropout:
            x = x * dropout_factors(builder, x.type.with_shape(batch, 1, channels, *spatial), self.dropout)
        z = Conv(window)(reshape_to(x, (batch * steps, channels, *spatial)), kernel)
        if self.use_bias:
            first = self.first_bias(self.filters)
            bias = builder.parameter("bias", (gate_channels,), first, self.bias_regularizer, self.bias_constraint)
            z = z + reshape_to(bias, (gate_channels, *ones))
        z = reshape_to(z, (batch, steps, gate_channels, *size))
        dropout_factor = (
            dropout_factors(builder, state_type, self.recurrent_dropout)
            if builder.training and self.recurrent_dropout
            else None
        )
        recurrent_conv = Conv(Window.of(size, self.kernel_size, ones, "same", ones))
        zero = scalar(0.0, x.dtype)
        h, c = map(builder.floating, states) if states else (zero, zero)
        by_step: dict[int, Value] = {}
        for index, t in enumerate(time_steps(steps, self.go_backwards)):
            gates = time_step(z, t)
            if index or states:
                gates = gates + recurrent_conv(h if dropout_factor is None else h * dropout_factor, recurrent)
            parts = [Slice(1, k * self.filters, (k + 1) * self.filters)(gates) for k in range(op.gates)]
            new = op.equations(parts, [zero] * op.gates, (h, c))
            if mask is not None:
                valid = broadcast_mask(Slice(1, t, t + 1)(mask), new[0])
                new = tuple(Where()(valid, after, before) for after, before in zip(new, (h, c), strict=True))
            by_step[t] = h = new[0]
            c = new[1]
        return self.select_outputs(stack_steps([by_step[t] for t in range(steps)]), (h, c), mask)


@LAYERS.register
class ConvLSTM1D(ConvLSTM):
    """A convolutional LSTM over sequences of sequences: its products are convolutions over the length.

    Inputs (N, T, C, L) and optionally the first states h and c (N, filters, OL), 0 by default; output (N, filters, OL),
    or (N, T, filters, OL) with `return_sequences`. As LSTM, with convolutions as products: the input's as in Conv1D,
    the state's padded with zeros to keep its size. `dropout` drops the same elements for all gates. At masked steps the
    states do not change. Shi et al. 2015, arXiv:1506.04214.
    """

    rank: ClassVar[int] = 1

    type: Literal["ConvLSTM1D"] = "ConvLSTM1D"
    kernel_size: Size1D
    """Size of the kernels."""
    strides: Size1D = (1,)
    """Step of the kernel over the input."""
    dilation_rate: Size1D = (1,)
    """Distance between the elements of the kernel over the input."""

    samples: ClassVar = (
        Sample.of((2, 3, 2, 5), filters=2, kernel_size=2, return_sequences=True),
        Sample.of((2, 2, 1, 5), filters=2, kernel_size=3, strides=2, padding="same", dropout=0.3, use_bias=False),
        Sample.of(
            (2, 3, 1, 4),
            (2, 2, 2),
            (2, 2, 2),
            filters=2,
            kernel_size=2,
            dilation_rate=2,
            return_state=True,
            recurrent_dropout=0.4,
            recurrent_activation="hard_sigmoid",
        ),
    )


@LAYERS.register
class ConvLSTM2D(ConvLSTM):
    """A convolutional LSTM over sequences of images: its products are convolutions over height and width.

    Inputs (N, T, C, H, W) and optionally the first states h and c (N, filters, OH, OW), 0 by default; output (N,
    filters, OH, OW), or (N, T, filters, OH, OW) with `return_sequences`. As LSTM, with convolutions as products: the
    input's as in Conv2D, the state's padded with zeros to keep its size. `dropout` drops the same elements for all
    gates. At masked steps the states do not change. Shi et al. 2015, arXiv:1506.04214.
    """

    rank: ClassVar[int] = 2

    type: Literal["ConvLSTM2D"] = "ConvLSTM2D"
    kernel_size: Size2D
    """Size of the kernels; a single number sets all axes."""
    strides: Size2D = (1, 1)
    """Step of the kernel over the input."""
    dilation_rate: Size2D = (1, 1)
    """Distance between the elements of the kernel over the input."""

    samples: ClassVar = (
        Sample.of((2, 2, 2, 3, 4), filters=2, kernel_size=2, padding="same", go_backwards=True, return_sequences=True),
        Sample.of((3, 3, 1, 3, 2), filters=1, kernel_size=(2, 1), masks=[(3, 3)]),
    )


@LAYERS.register
class ConvLSTM3D(ConvLSTM):
    """A convolutional LSTM over sequences of volumes: its products are convolutions over depth, height and width.

    Inputs (N, T, C, D, H, W) and optionally the first states h and c (N, filters, OD, OH, OW), 0 by default; output (N,
    filters, OD, OH, OW), or (N, T, filters, OD, OH, OW) with `return_sequences`. As LSTM, with convolutions as
    products: the input's as in Conv3D, the state's padded with zeros to keep its size. `dropout` drops the same
    elements for all gates. At masked steps the states do not change. Shi et al. 2015, arXiv:1506.04214.
    """

    rank: ClassVar[int] = 3

    type: Literal["ConvLSTM3D"] = "ConvLSTM3D"
    kernel_size: Size3D
    """Size of the kernels; a single number sets all axes."""
    strides: Size3D = (1, 1, 1)
    """Step of the kernel over the input."""
    dilation_rate: Size3D = (1, 1, 1)
    """Distance between the elements of the kernel over the input."""

    samples: ClassVar = (Sample.of((1, 2, 1, 2, 3, 2), filters=1, kernel_size=2, unit_forget_bias=False),)
