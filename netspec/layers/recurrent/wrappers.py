"""Layers around a layer in one of their fields: Bidirectional and TimeDistributed."""

from __future__ import annotations

from functools import reduce
from operator import add, mul
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from netspec.errors import SpecError
from netspec.graph.op import as_tuple
from netspec.graph.ops.elementwise import Where, call_elementwise
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Concat, Flip
from netspec.graph.value import ShapeMismatch, Value, mismatch_problem
from netspec.layers.base import Builder, LayerSpec, Sample, arity
from netspec.layers.checks import require
from netspec.layers.core.masking import broadcast_mask
from netspec.layers.recurrent.layers import RecurrentLayer
from netspec.schema.specs.kinds import LAYERS, AnyLayer, LayerFields
from netspec.schema.specs.names import snake_case
from netspec.schema.specs.spec import problem


class WrapperSpec(LayerSpec):
    """Base of layers that have other layers in their fields."""

    onnx_roundtrip_blocker: ClassVar = "it is written as the inner layer's operators"
    inner_fields: ClassVar[tuple[str, ...]] = ("layer",)
    """The fields that hold layers."""

    @model_validator(mode="after")
    def _anonymous(self) -> Self:
        """Reject `from` and `share` of an inner layer: it uses the wrapper's inputs and parameters."""
        for field in self.inner_fields:
            layer = getattr(self, field)
            for attribute, reason in (
                ("from_", "reads the inputs of the outer layer"),
                ("share", "shares what the outer layer shares"),
            ):
                if layer is not None and getattr(layer, attribute) is not None:
                    name = attribute.rstrip("_")
                    raise problem(
                        f"an inner layer {reason}", field=f"{field}.{name}", expected=f"no `{name}`",
                        hint=f"`{name}` goes next to `type: {getattr(self, 'type', '')}`",
                    )  # fmt: skip
        return self


def inner_name(layer: LayerFields) -> str:
    """Name of an inner layer among the parameters."""
    return layer.name or snake_case(str(getattr(layer, "type", "")))


def build_inner(builder: Builder, layer: Any, name: str, *inputs: Value, **facts: Any) -> Any:
    """Build an inner layer. Errors have its location."""
    with builder.within(name, layer, **facts):
        least, most = arity(type(layer))
        try:
            require(
                least <= len(inputs) and (most is None or len(inputs) <= most),
                f"this inner layer must take {len(inputs)} input{'s' * (len(inputs) != 1)}",
                expected=f"a layer with {len(inputs)} input{'s' * (len(inputs) != 1)}",
                got=f"a layer with {least}",
            )
            return layer.call(builder, *inputs)
        except ShapeMismatch as mismatch:
            raise SpecError(mismatch_problem(inputs, mismatch)) from None


@LAYERS.register
class Bidirectional(WrapperSpec):
    """Read a sequence in both directions, by a recurrent layer and a second one that starts from the end.

    Inputs (N, T, features) and optionally the first states of both layers, 0 by default; output (N, 2 · units), or (N,
    T, 2 · units) with `return_sequences`, in the order of the input; units instead of 2 · units if the outputs are not
    concatenated. Images are concatenated along their channels. Masked steps give zeros. With `return_state` the final
    states of both follow, `NAME.forward_state_h` and so on. Schuster and Paliwal 1997.
    """

    type: Literal["Bidirectional"] = "Bidirectional"
    layer: AnyLayer
    """The recurrent layer that reads from the start: `{type: LSTM, units: 8}`. Its parameters are called
    `forward_lstm/kernel` and so on."""
    merge_mode: Literal["concat", "sum", "mul", "ave"] | None = "concat"
    """Combination of both outputs; null: there are two outputs, `NAME.forward` and `NAME.backward`."""
    backward_layer: AnyLayer | None = None
    """The recurrent layer that reads from the end, with `go_backwards: true`; default: one like `layer`."""

    inner_fields: ClassVar = ("layer", "backward_layer")
    samples: ClassVar = (
        Sample.of((2, 3, 2), layer={"type": "LSTM", "units": 2}),
        Sample.of((3, 4, 2), layer={"type": "GRU", "units": 2, "return_sequences": True}, masks=[(3, 4)]),
        Sample.of((2, 3, 2), layer={"type": "SimpleRNN", "units": 3, "return_sequences": True}, merge_mode="mul"),
        Sample.of(
            (2, 3, 2), merge_mode="ave", layer={"type": "LSTM", "units": 2, "unit_forget_bias": False},
            backward_layer={"type": "GRU", "units": 2, "go_backwards": True},
        ),
        Sample.of(
            (2, 3, 2), (2, 2), (2, 2), merge_mode="sum", layer={"type": "GRU", "units": 2, "return_state": True},
        ),
        Sample.of((2, 3, 2), merge_mode=None, layer={"type": "SimpleRNN", "units": 2, "return_sequences": True}),
    )  # fmt: skip

    @model_validator(mode="after")
    def _both_ways(self) -> Self:
        for field, backwards in (("layer", False), ("backward_layer", True)):
            layer = getattr(self, field)
            if layer is None:
                continue
            if not isinstance(layer, RecurrentLayer):
                raise problem(
                    "the inner layer must be recurrent", field=f"{field}.type",
                    expected="a layer such as LSTM, GRU or RNN", got=str(getattr(layer, "type", "")),
                )  # fmt: skip
            if layer.go_backwards != backwards:
                raise problem(
                    f"`{field}` must read the sequence {'backwards' if backwards else 'forwards'}",
                    field=f"{field}.go_backwards",
                    expected=f"`go_backwards: {str(backwards).lower()}` in `{field}`",
                )  # fmt: skip
        first, second = self._both()
        for name in ("return_sequences", "return_state"):
            if getattr(first, name) != getattr(second, name):
                raise problem(
                    f"both layers must have the same `{name}`", field=f"backward_layer.{name}",
                    expected=f"`{name}: {str(getattr(first, name)).lower()}`",
                )  # fmt: skip
        return self

    def _both(self) -> tuple[RecurrentLayer, RecurrentLayer]:
        first, second = self.layer, self.backward_layer
        assert isinstance(first, RecurrentLayer)
        if second is None:
            second = first.model_copy(update={"go_backwards": True})
        assert isinstance(second, RecurrentLayer)
        return first, second

    def output_names(self) -> tuple[str, ...]:
        """The merged output, or both outputs; then, with `return_state`, the final states of both layers."""
        outputs = ("forward", "backward") if self.merge_mode is None else ("output",)
        directions = zip(("forward", "backward"), self._both(), strict=True)
        states = [
            f"{direction}_{name}"
            for direction, layer in directions
            if layer.return_state
            for name in layer.state_names()
        ]
        return (*outputs, *states) if states or len(outputs) > 1 else ()

    def build(self, builder: Builder, x: Value, *states: Value) -> Value | tuple[Value, ...]:
        """x: (N, T, features), initial states of both layers, all or none: (N, units) → the merged outputs."""
        first, second = self._both()
        count, others = len(first.state_names()), len(second.state_names())
        require(
            len(states) in (0, count + others),
            "there must be one initial state for each state of both layers",
            expected=f"{count + others} after the sequence in `from`, or the sequence alone",
            got=f"{len(states)}",
        )
        y, *last = as_tuple(build_inner(builder, first, f"forward_{inner_name(first)}", x, *states[:count]))
        back, *more = as_tuple(build_inner(builder, second, f"backward_{inner_name(second)}", x, *states[count:]))
        if second.return_sequences:
            back, mask = Flip(1)(back), builder.mask()
            if mask is not None:  # at masked steps, each direction repeats a different output
                y, back = (call_elementwise(Where(), broadcast_mask(mask, x), x, 0.0) for x in (y, back))
        require(
            self.merge_mode in (None, "concat") or y.shape == back.shape,
            "the two layers have outputs of different sizes",
            expected="equal `units`, or `merge_mode: concat`",
            got=f"{y.type.describe()} and {back.type.describe()}",
        )
        sequences = [y, back] if self.merge_mode is None else [self._merge(y, back)]
        outputs = (*sequences, *last, *more)
        return outputs if len(outputs) > 1 else outputs[0]

    def _merge(self, y: Value, back: Value) -> Value:
        if self.merge_mode == "concat":  # along units or channels, also of images
            return Concat(2 if self._both()[0].return_sequences else 1)(y, back)
        merged: Value = reduce(mul if self.merge_mode == "mul" else add, [y, back])
        return merged * 0.5 if self.merge_mode == "ave" else merged

    def mask(self, builder: Builder, *inputs: Value) -> tuple[Value | None, ...]:
        """The mask of the sequence, if all outputs are returned."""
        return ((builder.mask() if self._both()[0].return_sequences else None),) * (2 - (self.merge_mode is not None))


@LAYERS.register
class TimeDistributed(WrapperSpec):
    """Apply a layer to each step of a sequence separately, such as a convolution to each image of a video.

    Input (N, T, …), output (N, T, …): the inner layer sees all steps of all samples as a batch. (In Keras it sees one
    step after another, so that an inner BatchNormalization computes statistics for each step separately.)
    """

    type: Literal["TimeDistributed"] = "TimeDistributed"
    layer: AnyLayer
    """The layer: `{type: Conv2D, filters: 8, kernel_size: 3}`. Its parameters are called `conv2d/kernel` and so on."""

    samples: ClassVar = (
        Sample.of((2, 3, 2, 5, 4), layer={"type": "Conv2D", "filters": 2, "kernel_size": 2, "activation": "relu"}),
        Sample.of((2, 3, 4), layer={"type": "Dense", "units": 2, "kernel_regularizer": {"type": "L2", "l2": 0.1}}),
        Sample.of((2, 3, 4, 2), layer={"type": "GRU", "units": 2}, masks=[(2, 3, 4)]),
        Sample.of((2, 3, 2, 2), layer={"type": "Dropout", "rate": 0.4}),
    )

    def output_names(self) -> tuple[str, ...]:
        """Names of the inner layer's outputs."""
        return self.layer.output_names()

    def build(self, builder: Builder, x: Value) -> Value | tuple[Value, ...]:
        """x: (N, T, …) → (N, T, …)."""
        require(
            len(x.shape) >= 3,
            "the input is not a sequence",
            expected="(batch, steps, …)",
            got=x.type,
        )
        batch, steps, *rest = x.shape
        mask = builder.mask()
        step_masks = None if mask is None or len(mask.shape) < 3 else reshape_to(mask, (batch * steps, *mask.shape[2:]))
        rows = reshape_to(x, (batch * steps, *rest))
        outputs = build_inner(builder, self.layer, inner_name(self.layer), rows, masks=(step_masks,), steps=steps)
        sequences = tuple(reshape_to(y, (batch, steps, *y.shape[1:])) for y in as_tuple(outputs))
        return sequences if isinstance(outputs, tuple) else sequences[0]

    def mask(self, builder: Builder, *inputs: Value) -> Value | None:
        """Return the mask of the steps."""
        mask = builder.mask()
        return mask if mask is not None and len(mask.shape) == 2 else None
