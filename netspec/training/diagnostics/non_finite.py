"""Diagnose a loss or gradient that is not finite: the first operation, the message and the likely reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netspec.backends.reference.interpreter import BadOperation, first_bad_operation, storage_types
from netspec.compile import LOSS, Compiler, gradient_sum_label
from netspec.errors import Location
from netspec.graph.graph import Graph
from netspec.graph.ops.source import Input, State
from netspec.passes.mixed_precision import narrowable_values
from netspec.training.diagnostics.call_record import FailedCall


@dataclass(frozen=True)
class NonFiniteReport:
    """Description of the first value of a step that is not finite."""

    message: str
    location: Location | None
    notes: Sequence[str]
    hint: str


def bad_operation(failed: FailedCall, compiler: Compiler, *, forward: bool) -> BadOperation | None:
    """Return the first operation whose result is not finite; None if the reference kernels find none.

    `forward`: the loss is not finite, so that gradients need not be computed.
    """
    call = failed.call
    graph = compiler.graph(call.kind, call.rows, call.global_batch)
    if forward and graph.guard is not None:
        statistics = {name: value for name, value in graph.updates.items() if value.node.scope.phase == "forward"}
        graph = Graph({LOSS: graph.guard}, statistics)
    dtypes = storage_types(narrowable_values(graph), compiler.precision.storage_dtype)
    return first_bad_operation(graph, {**failed.states, **call.inputs}, dtypes)


def failure_text(bad: BadOperation, step: int, compiler: Compiler) -> str:
    """Return the message that names the first value of a step that is not finite."""
    scope, parameters, op = bad.scope, compiler.names("parameter"), bad.node.op
    if isinstance(op, State):
        return f"the loss is not finite at step {step}: `{op.label}` was already not finite before it"
    if isinstance(op, Input):
        return f"the loss is not finite at step {step}: the batch has values of `{op.label}` that are not finite"
    if scope.phase == "forward":
        return f"the loss is not finite at step {step}: first in {bad.layer}"
    reached = [name.removeprefix(gradient_sum_label("")) for name in bad.reaches]
    tensor = next((f"`{name}`" for name in reached if name in parameters), "a state")
    if scope.phase == "backward":
        return f"the gradient of {tensor} is not finite at step {step}: first in the gradient of {bad.layer}"
    return f"{tensor} is not finite after the update of step {step}: first in the update of {bad.layer}"


def operand_notes(bad: BadOperation) -> list[str]:
    """Return notes on the first result of an operation, and on its operands."""
    return [f"first result: {bad.results[0]}", *(f"operand: {operand}" for operand in bad.operands)]


def likely_fix(bad: BadOperation | None) -> str:
    """Return the likely reason of a value that is not finite, and what to do."""
    general = "lower the learning rate, add `global_clipnorm`, or check the data of this step"
    if bad is None:
        return general
    op, lows = bad.node.op.name, [operand.min for operand in bad.operands if operand.min is not None]
    lowest = min(lows, default=1.0)
    if op == "Log" and lowest <= 0:
        return "the logarithm of 0 or less: clip its operand from below, or use a loss with `from_logits: true`"
    if op == "Div" and len(bad.operands) == 2 and (bad.operands[1].min or 0) <= 0 <= (bad.operands[1].max or 0):
        return "a division by 0: add a small constant to the denominator"
    if op in ("Sqrt", "Pow") and lowest <= 0:
        return "a root or power of 0 or less: clip its operand from below; the derivative of a root is infinite at 0"
    if op == "Exp":
        return f"an exponential that overflows: limit its operand, or {general}"
    if any(result.type.startswith("float16") for result in bad.results):
        return f"float16 holds values up to 65,504: set `train.precision` to bfloat16, or {general}"
    return general
