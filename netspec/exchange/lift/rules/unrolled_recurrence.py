"""Unroll LSTM, GRU and RNN with features that netspec's layers lack, such as peepholes or other activations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.nodes import Expansion
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import UnsupportedFeature

MAX_STEPS = 1024
"""Largest number of steps in both directions together: each step becomes a dozen layers."""
DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
PLAIN = ("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus")
OF_ALPHA = {"Elu": 1.0, "LeakyRelu": 0.01, "ThresholdedRelu": 1.0}
"""Activations with a parameter, and its default."""


@dataclass
class Direction:
    """One direction of a recurrent node."""

    ctx: LiftContext
    node: OperatorNode
    steps: Expansion
    number: int
    """0, or 1 for the second direction of a bidirectional node."""
    weights: dict[str, NDArray[Any]] = field(default_factory=dict)

    def activated(self, index: int, x: str, clipped: bool = True) -> str:
        """Apply the activation function with this index in ONNX's order, after `clip` if the node has it."""
        node, count = self.node, len(DEFAULTS[self.node.op_type])
        clip, at = node.attributes.get("clip"), self.number * count + index
        if clip and clipped:
            x = self.steps.node("Clip", x, self.steps.number(-clip), self.steps.number(clip))
        activations = list(node.attributes.get("activations") or DEFAULTS[node.op_type] * 2)
        name = next(function for function in (*PLAIN, *OF_ALPHA, "HardSigmoid", "Affine", "ScaledTanh", activations[at])
                    if function.lower() == activations[at].lower())  # fmt: skip
        defaults = {"HardSigmoid": (0.2, 0.5), "Affine": (1.0, 0.0), "ScaledTanh": (1.0, 1.0)}
        default = defaults.get(name, (OF_ALPHA.get(name, 1.0), 0.0))
        alphas, betas = (list(node.attributes.get(f"activation_{parameter}") or []) for parameter in ("alpha", "beta"))
        alpha = alphas[at] if at < len(alphas) else default[0]
        beta = betas[at] if at < len(betas) else default[1]
        if name in PLAIN:
            return self.steps.node(name, x)
        if name in OF_ALPHA:
            return self.steps.node(name, x, alpha=alpha)
        if name == "HardSigmoid":
            return self.steps.node(name, x, alpha=alpha, beta=beta)
        if name == "Affine":
            return self.steps.node("Add", self.steps.node("Mul", x, self.steps.number(alpha)), self.steps.number(beta))
        if name == "ScaledTanh":
            inner = self.steps.node("Tanh", self.steps.node("Mul", x, self.steps.number(beta)))
            return self.steps.node("Mul", inner, self.steps.number(alpha))
        raise UnsupportedFeature(f"the activation {name} is not supported")

    def sum(self, *terms: str) -> str:
        """The sum of the terms; those with an empty name are 0."""
        present = [term for term in terms if term]
        total = present[0]
        for addend in present[1:]:
            total = self.steps.node("Add", total, addend)
        return total

    def times(self, x: str, y: str) -> str:
        """A product; an empty name, which stands for 0, if a factor has one."""
        return self.steps.node("Mul", x, y) if x and y else ""

    def element(self, at: int) -> str:
        """The element of the sequence at a step."""
        return picked(self.steps, self.node.inputs[0], at, int(bool(self.node.attributes.get("layout"))))

    def product(self, x: str, name: str, gate: int) -> str:
        """x · the part of a kernel for one gate."""
        if not x:
            return ""
        kernel = self.weights[name]
        units = kernel.shape[1] // self.gates
        part = kernel[:, gate * units : (gate + 1) * units]
        return self.steps.node("MatMul", x, self.steps.constant(part))

    @property
    def gates(self) -> int:
        """The number of gates."""
        return {"LSTM": 4, "GRU": 3, "RNN": 1}[self.node.op_type]

    def bias(self, gate: int, half: int | None = None) -> str:
        """The bias of a gate: for the input (half 0), for the state (half 1), or the sum of both."""
        if "bias" not in self.weights:
            return ""
        halves = self.weights["bias"].reshape(2, self.gates, -1)[:, gate]
        return self.steps.constant(halves.sum(axis=0) if half is None else halves[half])

    def peephole(self, number: int, state: str) -> str:
        """The peephole term of a gate."""
        if "peepholes" not in self.weights or not state:
            return ""
        return self.times(state, self.steps.constant(self.weights["peepholes"].reshape(3, -1)[number]))

    def gate(self, x: str, h: str, number: int, peephole: str = "") -> str:
        """The value of a gate before its activation function."""
        return self.sum(self.product(x, "kernel", number), self.product(h, "recurrent", number),
                        self.bias(number), peephole)  # fmt: skip

    def step(self, x: str, states: list[str]) -> list[str]:
        """The new states, by the formulas of ONNX's operators."""
        kind, (h, *rest) = self.node.op_type, states
        if kind == "RNN":
            return [self.activated(0, self.gate(x, h, 0))]
        if kind == "LSTM":
            (c,) = rest
            i = self.activated(0, self.gate(x, h, 0, self.peephole(0, c)))
            if self.node.attributes.get("input_forget"):
                f = self.steps.node("Sub", self.steps.number(1.0), i)
            else:
                f = self.activated(0, self.gate(x, h, 2, self.peephole(2, c)))
            fresh = self.times(i, self.activated(1, self.gate(x, h, 3)))
            c = self.sum(fresh, self.times(f, c))
            o = self.activated(0, self.gate(x, h, 1, self.peephole(1, c)))
            return [self.times(o, self.activated(2, c, clipped=False)), c]
        z, r = (self.activated(0, self.gate(x, h, number)) for number in (0, 1))
        if self.node.attributes.get("linear_before_reset"):
            recurrent = self.times(
                r, self.sum(self.product(h, "recurrent", 2), self.bias(2, 1)) if h else self.bias(2, 1)
            )
            candidate = self.sum(self.product(x, "kernel", 2), self.bias(2, 0), recurrent)
        else:
            candidate = self.sum(self.product(x, "kernel", 2), self.product(self.times(r, h), "recurrent", 2),
                                 self.bias(2))  # fmt: skip
        keep = self.steps.node("Sub", self.steps.number(1.0), z)
        return [self.sum(self.times(keep, self.activated(1, candidate)), self.times(z, h))]


def unrolled(ctx: LiftContext, node: OperatorNode, direction_class: type[Direction] = Direction) -> None:
    """Unroll the steps of the sequences, in one direction or both.

    `direction_class` defines how the input and the state are multiplied by the kernels.
    """
    steps, layout = Expansion(ctx, node), int(bool(node.attributes.get("layout")))
    both, backwards = (node.attributes.get("direction") == direction for direction in ("bidirectional", "reverse"))
    count, states = ctx.tensors.shape(node.inputs[0])[layout], 2 if node.op_type == "LSTM" else 1
    if count * (1 + both) > MAX_STEPS:
        raise UnsupportedFeature(
            f"it has options that no layer supports, and more than {MAX_STEPS} steps, too many to unroll"
        )
    named = {"kernel": 1, "recurrent": 2, "bias": 3, "peepholes": 7}
    arrays = {name: ctx.tensors.constant(node.operand(at), name) for name, at in named.items() if node.operand(at)}

    def concatenated(tensors: list[str], axis: int) -> str:
        return tensors[0] if len(tensors) == 1 else steps.node("Concat", *tensors, axis=axis)

    lengths, ends, results = node.operand(4), [], []
    for number in range(1 + both):
        weights = {name: array[number].T if array.ndim == 3 else array[number] for name, array in arrays.items()}
        direction = direction_class(ctx, node, steps, number, weights)
        last = [
            picked(steps, node.operand(5 + k), number, layout) if node.operand(5 + k) else "" for k in range(states)
        ]
        outputs_by_step: dict[int, str] = {}
        for at in range(count)[:: -1 if backwards or number else 1]:
            new = direction.step(direction.element(at), last)
            outputs_by_step[at] = new[0]
            if lengths:
                bound = steps.constant(np.asarray(at, ctx.tensors.dtype_name(lengths)))
                active = steps.node("Cast", steps.node("Greater", lengths, bound), to=1)
                active = steps.node("Unsqueeze", active, steps.integers([1]), axes=[1])
                gone = steps.node("Sub", steps.number(1.0), active)
                old_states = [direction.times(gone, before) for before in last]
                new = [
                    direction.sum(direction.times(active, state), before)
                    for state, before in zip(new, old_states, strict=True)
                ]
                outputs_by_step[at] = direction.times(active, outputs_by_step[at])
            last = new
        axes = [layout, layout + 1]
        results.append([_raised(steps, outputs_by_step[at], axes) for at in range(count)])
        ends.append([_raised(steps, state, [layout]) for state in last])
    y = concatenated(
        [concatenated([direction[at] for direction in results], layout + 1) for at in range(count)], layout
    )
    steps.lift(y, *(concatenated([direction[k] for direction in ends], layout) for k in range(states)))


def picked(steps: Expansion, tensor: str, at: int, axis: int) -> str:
    """The element at index `at` along an axis."""
    return steps.node("Gather", tensor, steps.integers(at), axis=axis)


def _raised(steps: Expansion, tensor: str, axes: list[int]) -> str:
    return steps.node("Unsqueeze", tensor, steps.integers(axes), axes=axes)
