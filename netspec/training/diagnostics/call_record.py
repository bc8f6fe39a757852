"""`CallRecord`: the last calls of a training's programs, and the states that they started from.

A loss that is not finite leaves all states unchanged, but a gradient that is not finite is noticed only by what it did
to a parameter. To find its origin, the calls since a copy of the states are repeated. The copy is renewed so that it
takes at most `COST` of the time, so repeating takes at most `1 / COST` times as long as a copy.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.backends.memory import machine_memory
from netspec.backends.program import NonFiniteLoss, Program
from netspec.compile import FIRST, Compiler, ProgramKind

if TYPE_CHECKING:
    from netspec.training.progress import PendingStep

COST = 0.005
"""Largest fraction of the time of training that copies of the states take."""
MAX_MEMORY_FRACTION = 1 / 8
"""States are copied if the copies of all processes take at most this fraction of the memory of the host."""
MAX_INPUT_BYTES = 2**26
"""Size of the batches kept after which the copy is renewed."""
CHECKED_ROLES = ("parameter", "statistic", "gradient")
"""Roles of the states that are not finite after a gradient that is not finite."""


@dataclass
class ProgramCall:
    """A call of a program of a training step, and everything that it reads except states."""

    kind: ProgramKind
    rows: int
    """Number of samples in the arrays."""
    stage: int | None
    global_batch: int | None
    inputs: Mapping[str, Any]
    """The inputs that were written, by name."""
    step: int
    """Number of steps before the one that the call belongs to."""
    samples: Iterable[int] = ()
    """Indices of the samples in the training data."""
    pending: PendingStep | None = None
    """The point to return to if the call left a state that is not finite; None until the step is complete."""

    def program(self, compiler: Compiler) -> Program:
        """Return the program."""
        return compiler.program(self.kind, self.rows, self.stage, self.global_batch)

    def run(self, compiler: Compiler) -> Program:
        """Run the program. Raises `NonFiniteLoss`."""
        program = self.program(compiler)
        program.write(self.inputs)
        program.run()
        return program


@dataclass(frozen=True)
class FailedCall:
    """A call whose results are not finite, and the states before it."""

    call: ProgramCall
    states: Mapping[str, Any]
    states_before_step: Mapping[str, Any] | None = None
    """States before the first call of the step; None if the run continues from `states`."""


class CallRecord:
    """Records the calls of a stepper."""

    def __init__(
        self, compiler: Compiler, *, unknown_reason: str | None = None, processes_per_host: int = 1
    ) -> None:  # fmt: skip
        """`unknown_reason`: reason why the record can't find the call that made a state non-finite, if there is one.

        If it is set, no states are copied.
        `processes_per_host` is the number of processes on this host that copy states.
        """
        self._compiler = compiler
        self.unknown_reason = unknown_reason or _copy_reject_reason(compiler, processes_per_host)
        """Why the call that left a state that is not finite is not known; None while it could be found."""
        self._keeps = self.unknown_reason is None
        self._calls: deque[ProgramCall] = deque(maxlen=None if self._keeps else 2)
        self._saved: dict[str, Any] = {}
        self._saved_at, self._cost, self._bytes = -inf, 0.0, 0
        self._saved_step: int | None = None
        """The step before whose first call the states were copied; None if that was between two calls of a step."""
        self._version: int | None = None
        """Version of the states after the last call."""
        self._failed: FailedCall | None = None
        """The call whose gradients are not finite, if the stepper has found it itself."""

    def run(self, call: ProgramCall) -> Program:
        """Run a call. Raises `NonFiniteLoss`, also if an earlier call left a state that is not finite."""
        begins_step = not self._calls or self._calls[-1].step != call.step
        if self._keeps and self._is_due(begins_step):
            self._save()
            self._saved_step = call.step if begins_step else None
        self._calls.append(call)
        self._bytes += sum(array.nbytes for array in call.inputs.values())
        program = call.run(self._compiler)
        self._version = self._compiler.states.version
        return program

    def complete(self, pending: PendingStep) -> None:
        """Record the point to return to if the step of the last call fails."""
        for call in reversed(self._calls):
            if call.step != self._calls[-1].step:
                break
            call.pending = pending

    def check(self) -> None:
        """Raise `NonFiniteLoss` if a state is not finite. Only for trainings whose states are kept."""
        if self._keeps and (name := self._non_finite_state()) is not None:
            raise NonFiniteLoss(None, name)

    def _non_finite_state(self) -> str | None:
        """Return the first state that is not finite."""
        states, names = self._compiler.states, self._compiler.names(*CHECKED_ROLES)
        return next((name for name in names if not np.isfinite(states.array(name)).all()), None)

    def check_gradients(self) -> None:
        """Raise `NonFiniteLoss` if the last call, which changes no parameter, left gradients that are not finite.

        The states are then those before it, with sums of gradients that start from 0.
        """
        states, names = self._compiler.states, self._compiler.names("gradient")
        wrong = next((name for name in names if not np.isfinite(states.array(name)).all()), None)
        if wrong is None:
            return
        for name in names:
            states.assign(name, np.zeros_like(states[name]))
        self.mark_failed()
        raise NonFiniteLoss(None, wrong)

    def mark_failed(self) -> None:
        """Record that the last call failed. It only adds to gradients: all other states are those before it."""
        call = self._calls[-1]
        inputs = {**call.inputs, FIRST: np.array(True)}
        self._failed = FailedCall(replace(call, inputs=inputs), dict(self._compiler.states))

    def last(self) -> ProgramCall | None:
        """Return the last call; None before the first one."""
        return self._calls[-1] if self._calls else None

    def failed_call(self, error: NonFiniteLoss) -> FailedCall | None:
        """Return the call that an error is about, with the states before it; None if it is unknown.

        If a state was not finite, all states have the values from before that call again.
        """
        if self._failed is not None:
            return self._failed
        if error.state is not None:
            return self._find_failed_call()
        if error.late >= len(self._calls):
            return None
        return FailedCall(self._calls[-1 - error.late], dict(self._compiler.states))

    def _find_failed_call(self) -> FailedCall | None:
        """Repeat the calls since the states were copied; return the first after which a state is not finite.

        The states are then those before it. If there is none, because something else changed the states, they stay
        as they are.
        """
        states = self._compiler.states
        if not self._can_repeat():
            return None
        current, before = dict(states), self._saved
        step, of_step = self._saved_step, before if self._saved_step is not None else None
        self._assign(before)
        for call in self._calls:
            if step not in (None, call.step):
                of_step = before
            step = call.step
            try:
                call.run(self._compiler).outcome()
                self.check()
            except NonFiniteLoss:
                self._assign(before)
                return FailedCall(call, before, of_step)
            before = dict(states)
        self._assign(current)
        self.unknown_reason = "repeating the last steps gives finite values: a callback may have changed the weights"
        return None

    def _can_repeat(self) -> bool:
        """Return whether the states before the recorded calls are known."""
        return self._keeps and bool(self._saved)

    def _is_due(self, begins_step: bool) -> bool:
        """Return whether the copy is renewed: usually before the first call of a step, to which a run can return."""
        if self._version != self._compiler.states.version or self._bytes > MAX_INPUT_BYTES:
            return True
        return begins_step and time.perf_counter() - self._saved_at >= self._cost / COST

    def _save(self) -> None:
        """Copy all states, after a check that they are finite."""
        began = time.perf_counter()
        if self._version == self._compiler.states.version:
            self.check()  # else something else has assigned them
        self._copy()
        self._saved_at = time.perf_counter()
        self._cost = self._saved_at - began

    def _copy(self) -> None:
        """Copy all states, and forget the calls before."""
        states = self._compiler.states
        if self._saved:
            for name, array in self._saved.items():
                np.copyto(array, states.array(name))
        else:
            self._saved = dict(states)
        self._calls.clear()
        self._bytes = 0

    def _assign(self, states: Mapping[str, Any]) -> None:
        for name, array in states.items():
            self._compiler.states.assign(name, array)


def _copy_reject_reason(compiler: Compiler, processes_per_host: int) -> str | None:
    """Return why the states can't be copied regularly; None if they can."""
    if compiler.device.runs_ahead:
        return "a GPU finds it after the next step has begun; `--resume --device cpu` repeats the step and writes one"
    memory = machine_memory()
    if memory is not None and compiler.states.nbytes * processes_per_host > memory * MAX_MEMORY_FRACTION:
        return f"copies of all states would take more than {MAX_MEMORY_FRACTION:.1%} of this host's memory"
    return None
