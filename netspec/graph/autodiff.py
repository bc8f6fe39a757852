"""Reverse-mode differentiation: each op's `vjp` adds the gradients to the same graph as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from netspec.graph.graph import topological_order
from netspec.graph.ops.source import Fill
from netspec.graph.value import Node, Scope, Value, in_scope


def gradients(loss: Value, wrt: Sequence[Value]) -> list[Value]:
    """Gradient of the scalar `loss` with respect to each value of `wrt`; zeros if the loss does not depend on it."""
    if loss.shape != ():
        raise ValueError(f"the loss must be a scalar, not {loss.type}")
    per_value = pullback((loss,), (Fill(1.0, loss.type)(),), wrt)
    return [
        gradient if gradient is not None else Fill(0.0, value.type)()
        for gradient, value in zip(per_value, wrt, strict=True)
    ]


def pullback(ys: Sequence[Value], dys: Sequence[Value | None], wrt: Sequence[Value]) -> list[Value | None]:
    """Gradients of `wrt` given the gradients `dys` of `ys`; None for a value that receives no gradient.

    Visits only the nodes on a path from `wrt` to `ys`, so nothing unneeded is computed. The added nodes belong to the
    layer of the node that they differentiate, with the phase `backward`.
    """
    targets = frozenset(wrt)
    nodes = topological_order(ys, stop=targets)
    needed = dependent_values(nodes, targets)
    total: dict[Value, Value] = {}
    scopes: dict[int, Scope] = {}

    def accumulate(value: Value, gradient: Value) -> None:
        if gradient.shape != value.shape:
            raise ValueError(f"gradient of {value!r} has shape {gradient.shape}")
        total[value] = total[value] + gradient if value in total else gradient

    for y, dy in zip(ys, dys, strict=True):
        if dy is not None:
            accumulate(y, dy)
    for node in reversed(nodes):
        if not needed.intersection(node.outputs) or not any(value in total for value in node.outputs):
            continue
        scope = scopes.get(id(node.scope)) or scopes.setdefault(id(node.scope), replace(node.scope, phase="backward"))
        with in_scope(scope):
            operand_gradients = node.op.vjp_outputs(node.outputs, [total.get(value) for value in node.outputs])
            for value, gradient in zip(node.inputs, operand_gradients, strict=True):
                if gradient is not None and value in needed and value.dtype.is_float:
                    accumulate(value, gradient)
    return [total.get(value) for value in wrt]


def dependent_values(nodes: Sequence[Node], targets: frozenset[Value]) -> set[Value]:
    """The values that depend on a target, including the targets."""
    dependent = set(targets)
    for node in nodes:
        if dependent.intersection(node.inputs):
            dependent.update(node.outputs)
    return dependent
