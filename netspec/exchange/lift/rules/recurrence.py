"""LSTM, GRU and RNN → LSTM, GRU and SimpleRNN, in one direction or both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.axis_view import Axes
from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.registry import rule
from netspec.exchange.lift.rules.unrolled_recurrence import DEFAULTS, unrolled
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import MixesSamples, UnsupportedFeature
from netspec.schema.specs.names import snake_case

GATES = {"LSTM": (0, 2, 3, 1), "GRU": (0, 1, 2), "RNN": (0,)}
"""The index in ONNX of each of the layer's gates."""
LAYERS = {"LSTM": "LSTM", "GRU": "GRU", "RNN": "SimpleRNN"}
FUNCTIONS = ("tanh", "sigmoid", "relu", "softsign", "softplus", "elu")
"""Activation functions whose parameters, if any, have their defaults."""
STATES = {"LSTM": 2, "GRU": 1, "RNN": 1}


@dataclass(frozen=True)
class _Recurrent:
    """A recurrent node, and what a layer takes from it."""

    ctx: LiftContext
    node: OperatorNode

    @property
    def both(self) -> bool:
        """Whether it reads in both directions."""
        return bool(self.node.attributes.get("direction", "forward") == "bidirectional")

    @property
    def batch_axis(self) -> int:
        """The axis of the samples in the sequence."""
        return 0 if self.node.attributes.get("layout", 0) else 1

    @property
    def steps(self) -> int:
        """Return the number of steps of the sequence."""
        return self.ctx.tensors.shape(self.node.inputs[0])[1 - self.batch_axis]

    def read(self, index: int) -> str:
        """The name of the result Y, Y_h or Y_c (by its index); empty if nothing reads it."""
        name = self.node.outputs[index] if index < len(self.node.outputs) else ""
        return name if name and self.ctx.tensors.is_read(name) else ""

    def fields(self) -> dict[str, Any]:
        """The fields of the layer; in a Bidirectional, both directions have the same."""
        node, kind = self.node, self.node.op_type
        for name, why in (("clip", "`clip` is not supported"), ("input_forget", "`input_forget` is not supported")):
            if node.attributes.get(name):
                raise UnsupportedFeature(why)
        if node.operand(7):
            raise UnsupportedFeature("peepholes are not supported")
        if node.operand(4):
            lengths = self.ctx.tensors.constant(node.operand(4), "sequence lengths")
            if (lengths != self.steps).any():
                raise UnsupportedFeature(f"sequences shorter than {self.steps} steps are not supported")
        return {"units": self.units(), **self._activations(), **self._kind(kind)}

    def units(self) -> int:
        """The size of the state."""
        return int(self.ctx.tensors.constant(self.node.inputs[2], "recurrent kernel").shape[-1])

    def _kind(self, kind: str) -> dict[str, Any]:
        fields: dict[str, Any] = {"use_bias": bool(self.node.operand(3))}
        if kind == "GRU" and not self.node.attributes.get("linear_before_reset"):
            fields["reset_after"] = False
        return fields

    def _activations(self) -> dict[str, Any]:
        node, default = self.node, DEFAULTS[self.node.op_type]
        count = len(default)
        activations = list(node.attributes.get("activations") or [])
        names = [name.lower() for name in activations or default * 2]
        names = names[: count * (1 + self.both)]  # RNN has two by default, even with one direction
        forward, backward = names[:count], names[count:]
        if len(names) != count * (1 + self.both) or (backward and backward != forward):
            raise UnsupportedFeature(f"the activations {activations} are not supported")
        if any(name not in FUNCTIONS for name in forward) or forward[1:] != forward[1:2] * (count - 1):
            raise UnsupportedFeature(f"the activations {activations} are not supported")
        if any(value != 1.0 for value in node.attributes.get("activation_alpha") or []) and "elu" in forward:
            raise UnsupportedFeature("an Elu with an alpha other than 1 is not supported")
        return {"activation": forward[-1], **({"recurrent_activation": forward[0]} if count > 1 else {})}

    def weights(self) -> list[dict[str, NDArray[Any]]]:
        """For each direction: kernel (in, gates · H), recurrent kernel (H, gates · H), bias."""
        node, order = self.node, list(GATES[self.node.op_type])
        kernels, recurrent = (
            self.ctx.tensors.constant(node.inputs[k], role) for k, role in ((1, "kernel"), (2, "kernel"))
        )
        units = self.units()

        def sorted_(rows: NDArray[Any]) -> NDArray[Any]:
            """Sort (gates · H, …) by netspec's order of gates."""
            by_gate = rows.reshape(len(order), units, *rows.shape[1:])[order]
            return by_gate.reshape(rows.shape)

        arrays_by_way = []
        for way in range(1 + self.both):
            arrays = {"kernel": sorted_(kernels[way]).T, "recurrent_kernel": sorted_(recurrent[way]).T}
            if node.operand(3):
                bias = self.ctx.tensors.constant(node.operand(3), "bias")[way]
                first, second = (sorted_(half) for half in np.split(bias, 2))
                two = node.op_type == "GRU" and node.attributes.get("linear_before_reset")
                arrays["bias"] = np.stack([first, second]) if two else first + second
            arrays_by_way.append(arrays)
        return arrays_by_way

    def initial_tensors(self) -> tuple[list[str], list[bool]]:
        """The tensors of the initial states, and which of them are 0."""
        names = [self.node.operand(5 + index) for index in range(STATES[self.node.op_type])]
        return names, [
            not name or (name in self.ctx.tensors.constants and not self.ctx.tensors.constants[name].any())
            for name in names
        ]

    def initial_states(self) -> list[str]:
        """The initial states: those of the first direction, then of the second. Empty if all are 0."""
        names, zero = self.initial_tensors()
        if all(zero):
            return []
        if any(zero) and len(names) > 1:
            like = names[zero.index(False)]
            shape = self.ctx.tensors.shape(like)
            names = [self._zeros(shape) if none else name for name, none in zip(names, zero, strict=True)]
        return [self._state(name, way) for way in range(1 + self.both) for name in names]

    def _zeros(self, shape: tuple[int, ...]) -> str:
        name = self.ctx.tensors.fresh_name(self.node.outputs[0])
        self.ctx.tensors.constants[name] = np.zeros(shape, "float32")
        return name

    def _state(self, name: str, way: int) -> str:
        """An initial state of one direction: (N, H) in the net."""
        ctx, state = self.ctx, self.ctx.tensors.fresh_name(name)
        if name in ctx.tensors.constants:
            rows = ctx.tensors.constants[name].take(way, 1 - self.batch_axis)
            if (rows != rows[:1]).any():
                raise MixesSamples("its initial states are constants that differ between samples")
            ctx.tensors.constants[state] = rows[0] if ctx.tensors.single_sample else rows[:1]
            return state
        if self.both:
            part, source = ctx.tensors.fresh_name(name), ctx.reshaping.samples_first(name, self.batch_axis)
            ctx.layers.add(self.node, "Slice", [source], {"start": way, "stop": way + 1}, outputs=[part])
            ctx.layers.add(self.node, "Flatten", [part], {}, outputs=[state])
            return state
        shape = ctx.tensors.shape(name)
        ctx.reshaping.reshape(self.node, name, (shape[self.batch_axis], shape[2]), state)
        return ctx.reshaping.samples_first(state)


@rule("LSTM", "GRU", "RNN", uses_all_results=True)
def recurrent(ctx: LiftContext, node: OperatorNode) -> None:
    """LSTM, GRU or SimpleRNN, or Bidirectional with one of them, with initial and final states as in the model.

    A node that the layer cannot express is unrolled into its steps.
    """
    rnn = _Recurrent(ctx, node)
    several = ctx.tensors.single_sample and ctx.tensors.shape(node.inputs[0])[rnn.batch_axis] > 1
    try:
        fields = rnn.fields()
        if several and not all(rnn.initial_tensors()[1]):
            raise UnsupportedFeature(
                "several sequences with initial states, while the whole model is one sample, are not supported"
            )
    except UnsupportedFeature:
        unrolled(ctx, node)
        return
    weights, states = rnn.weights(), rnn.initial_states()
    kind = LAYERS[node.op_type]
    sequence, results = rnn.read(0), [rnn.read(index) for index in range(1, 1 + STATES[node.op_type])]
    fields["return_sequences"] = bool(sequence)
    fields["return_state"] = bool((sequence and any(results)) or any(results[1:]))
    if rnn.both:
        name = snake_case(kind)
        arrays = {f"{way}_{name}/{key}": array for way, arrays_of in zip(("forward", "backward"), weights, strict=True)
                  for key, array in arrays_of.items()}  # fmt: skip
        type_, fields = "Bidirectional", {"layer": {"type": kind, **fields}}
    else:
        type_, arrays = kind, weights[0]
        if node.attributes.get("direction", "forward") == "reverse":
            fields["go_backwards"] = True
    if several:
        x = ctx.tensors.fresh_name(node.inputs[0])
        order = [rnn.batch_axis, 1 - rnn.batch_axis, 2]
        ctx.reshaping.transpose(OperatorNode("Transpose", "", (), (x,), {}, node.opset), node.inputs[0], order)
        arrays = {f"{snake_case(type_)}/{name}": array for name, array in arrays.items()}
        type_, fields = "TimeDistributed", {"layer": {"type": type_, **fields}}
    else:
        x = ctx.reshaping.samples_first(node.inputs[0], rnn.batch_axis)
    _written(rnn, type_, [x, *states], fields, arrays, sequence, results)


def _written(
    rnn: _Recurrent, type_: str, inputs: list[str], fields: dict[str, Any], arrays: dict[str, NDArray[Any]],
    sequence: str, results: list[str],
) -> None:  # fmt: skip
    """Add the layer, and layers that give its results ONNX's shapes."""
    ctx, node = rnn.ctx, rnn.node
    axes_of_result = _result_axes(rnn, type_ == "TimeDistributed")
    backwards = bool(fields.get("go_backwards") or fields.get("layer", {}).get("go_backwards"))
    first = sequence or results[0]
    outputs = [first, *(results if sequence or any(results[1:]) else [])]
    if rnn.both or (sequence and backwards):
        output = ctx.tensors.fresh_name(node.outputs[0])
        states = [ctx.tensors.fresh_name(name) if name else "" for name in outputs[1:]]
        if rnn.both:
            states = [
                ctx.tensors.fresh_name(node.outputs[0]) if any(outputs[1:]) else "" for _ in range(2 * len(outputs[1:]))
            ]
        ctx.layers.add(node, type_, inputs, fields, arrays, outputs=[output, *states])
        _after(rnn, output, states, first, outputs[1:], axes_of_result)
        return
    ctx.layers.add(node, type_, inputs, fields, arrays, outputs=outputs, result_axes=axes_of_result)


def _after(
    rnn: _Recurrent,
    output: str,
    states: Sequence[str],
    first: str,
    results: Sequence[str],
    axes_of_result: Callable[[int], Axes],
) -> None:
    """Add layers for the results: those of both directions are stacked, a sequence read backwards is reversed."""
    ctx, node = rnn.ctx, rnn.node
    if not rnn.both:
        along = ctx.tensors.rank_in_net(output) - 2
        backwards = list(range(rnn.steps))[::-1]
        fields = {"indices": backwards, "axis": along}
        ctx.layers.add(node, "Gather", [output], fields, outputs=[first], result_axes=axes_of_result)
        for state, result in zip(states, results, strict=True):
            if result:
                ctx.layers.add(
                    node, "Activation", [state], {"activation": "linear"}, outputs=[result], result_axes=axes_of_result
                )
        return
    sources_and_results = [(output, first)]
    for index, result in enumerate(results):
        if result:
            joined = ctx.tensors.fresh_name(result)
            both = [states[index], states[index + len(results)]]
            ctx.layers.add(node, "Concatenate", both, {"axis": -1}, outputs=[joined])
            sources_and_results.append((joined, result))
    for source, result in sources_and_results:
        if result:
            *front, last = ctx.layers.value(source).shape[1:]
            ctx.layers.add(node, "Reshape", [source], {"target_shape": [*front, 2, last // 2]}, outputs=[result],
                    result_axes=axes_of_result)  # fmt: skip


def _result_axes(rnn: _Recurrent, distributed: bool) -> Callable[[int], Axes]:
    """Axes in the net of Y (T, D, N, H) and the states (D, N, H), or (N, T, D, H) and (N, D, H) with `layout`."""
    first = 1 if distributed else 0

    def axes(rank: int) -> Axes:
        batch = (1,) if distributed else () if rnn.ctx.tensors.single_sample else (0,)
        rank -= first
        ways = (rank - 2 + first,) if rnn.both else ()
        last = (rank - 1 + first,)
        if rank == 3 + rnn.both:
            steps = (1 + first,)
            return (batch, steps, ways, last) if rnn.batch_axis == 0 else (steps, ways, batch, last)
        return (batch, ways, last) if rnn.batch_axis == 0 else (ways, batch, last)

    return axes
