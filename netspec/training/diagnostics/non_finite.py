"""Diagnose a loss or gradient that is not finite: the first operation, the message and the likely reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netspec.backends.program import NonFiniteLoss
from netspec.backends.reference.interpreter import BadOperation, first_bad_operation, storage_types
from netspec.compile import LOSS, Compiler, gradient_sum_label
from netspec.errors import Location, NetspecError, command
from netspec.graph.fused import node_scopes
from netspec.graph.graph import Graph
from netspec.graph.ops.source import Input, State
from netspec.passes.mixed_precision import narrowable_values
from netspec.schema.specs.train import TrainSpec
from netspec.training.diagnostics.call_record import FailedCall
from netspec.training.diagnostics.capsule import SingleCall, on_one_worker, save_capsule
from netspec.training.run_directory import RunDir
from netspec.training.session import NonFiniteOrigin, Session, gather_joint


@dataclass(frozen=True)
class NonFiniteReport:
    """Description of the first value of a step that is not finite."""

    message: str
    location: Location | None
    got: str | None
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
        if bad.scope.phase == "backward" and bad.node.inputs[1].node.op.name == "Sqrt":
            return "the derivative of a square root is infinite at 0: add a small constant inside the root"
        return "a division by 0: add a small constant to the denominator"
    if op in ("Sqrt", "Pow") and lowest <= 0:
        return "a root or power of 0 or less: clip its operand from below; the derivative of a root is infinite at 0"
    if op == "Exp":
        return f"an exponential that overflows: limit its operand, or {general}"
    if any(result.type.startswith("float16") for result in bad.results):
        return f"float16 holds values up to 65,504: set `train.precision` to bfloat16, or {general}"
    return general


class NonFiniteDiagnosis:
    """Finds the first operation of a failed step whose result is not finite, and writes a capsule of the step."""

    def __init__(self, spec: TrainSpec, compiler: Compiler, session: Session, folder: RunDir) -> None:
        self._spec, self._compiler, self._session, self._folder = spec, compiler, session, folder

    def report(
        self, error: NonFiniteLoss, failed: FailedCall | None, step: int, unknown_reason: str | None
    ) -> NonFiniteReport:
        """Report the first operation that is not finite, and write a capsule on the worker that computed it.

        `step` is the failed step, counted from 1; `unknown_reason` is why the failed call is not known. Collective if
        the workers share the step.
        """
        is_known = any(gather_joint(self._session, failed is not None))
        single = self._on_one_worker(failed) if is_known else None
        bad = None if single is None else self._bad_operation(single, error)
        origin = self._origin(error, failed, step, single, bad)
        advice = self._advice(single, bad) if single is not None and origin.is_own else None
        of_workers = [own for own in gather_joint(self._session, advice) if own is not None]
        if of_workers:
            got, notes, hint = of_workers[0]
        else:
            reason = unknown_reason if failed is None else None
            reason = reason or "one process can't repeat an update by the gradients of several workers"
            got, notes, hint = None, [f"no capsule of this step was written: {reason}"], likely_fix(None)
        return NonFiniteReport(origin.description, origin.location, got, notes, hint)

    def _on_one_worker(self, failed: FailedCall | None) -> SingleCall | None:
        """Convert a failed call to a call of a training on a single worker, if possible.

        Collective if the workers share the step.
        """
        if self._session.alone and not self._compiler.distribution.accumulates:
            return None if failed is None else SingleCall(failed, self._spec, self._compiler)
        full = self._session.full_states(self._compiler)
        return None if failed is None else on_one_worker(failed, full, self._spec, self._compiler)

    def _bad_operation(self, single: SingleCall, error: NonFiniteLoss) -> BadOperation | None:
        """Return the first operation of a call that is not finite with the reference kernels, if it is the cause."""
        bad = bad_operation(single.failed, single.compiler, forward=error.state is None)
        # One worker's gradients alone give a different update, whose operations are not the cause.
        return None if bad is not None and bad.scope.phase == "update" and self._session.joint_steps else bad

    def _origin(
        self,
        error: NonFiniteLoss,
        failed: FailedCall | None,
        step: int,
        single: SingleCall | None,
        bad: BadOperation | None,
    ) -> NonFiniteOrigin:
        """Return the first operation that is not finite with the reference kernels, or else with those of the device.

        Collective if the workers share the step.
        """
        if not any(gather_joint(self._session, bad is not None)):
            origin = device_origin(error, step, failed)
        elif bad is None or single is None:
            origin = NonFiniteOrigin("", None, is_known=False, is_own=False)
        else:
            text = failure_text(bad, single.failed.call.step + 1, single.compiler)
            origin = NonFiniteOrigin(text, bad.scope.location, is_known=True)
        return self._session.agree_on_origin(origin)

    def _advice(self, single: SingleCall, bad: BadOperation | None) -> tuple[str | None, list[str], str]:
        """Write a capsule of a call; return the values of the bad operation, notes on it and the capsule, and a fix."""
        notes = [self._save_capsule(single)]
        notes += operand_notes(bad) if bad is not None else []
        return None if bad is None else bad.results[0].non_finite, notes, likely_fix(bad)

    def _save_capsule(self, single: SingleCall) -> str:
        """Write a capsule of a call; return the note on it, or on why it could not be written."""
        worker = self._session.rank if self._session.training_share.count > 1 else None
        path = self._folder.capsule(single.failed.call.step + 1, worker)
        try:
            save_capsule(path, single)
        except (NetspecError, OSError) as error:  # the first error is the one to report
            return f"no capsule of this step was written: {error}"
        return f"`{command('replay', path)}` repeats this step" + ("" if worker is None else f" of worker {worker}")


def device_origin(error: NonFiniteLoss, step: int, failed: FailedCall | None) -> NonFiniteOrigin:
    """Describe the layer or the state that an error of step `step` names; `failed` left a state that is not finite."""
    location = error.node.scope.location if error.node is not None else None
    message = f"the loss is not finite at step {step}"
    if error.state is not None and failed is not None:
        message = f"`{error.state}` is not finite after the update of step {failed.call.step + 1}"
        return NonFiniteOrigin(message, None, is_known=False)
    if error.state is not None:
        return NonFiniteOrigin(f"{message}: `{error.state}` was already not finite before it", None, is_known=False)
    if layers := _layers_of(error):
        named = [f"`{name}` ({kind})" for name, kind in layers.items()]
        description = f"first in layer {named[0]}"
        if len(named) > 1:
            description = f"first in one of the layers {', '.join(named)}"
    else:
        description = "in the sum of the losses"
    return NonFiniteOrigin(f"{message}: {description}", location, error.node is not None)


def _layers_of(error: NonFiniteLoss) -> dict[str, str]:
    """Return the layers that the first non-finite node belongs to, and their types."""
    scopes = node_scopes(error.node) if error.node is not None else ()
    return {scope.layer: scope.kind for scope in scopes if scope.layer}
