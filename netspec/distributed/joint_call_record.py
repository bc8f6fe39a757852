"""`JointCallRecord`: calls of one of several workers, which repeat their calls together to find the failed step."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from netspec.backends.failures import NonFiniteLoss
from netspec.backends.program import Program
from netspec.compile import Compiler
from netspec.training.diagnostics.call_record import MAX_INPUT_BYTES, CallRecord, ProgramCall

if TYPE_CHECKING:
    from netspec.distributed import Communicator

CALLS_PER_COPY = 50
"""Number of calls after which the copy of the states is renewed. A step reads and writes its parameters, gradients and
states about ten times, and a copy once, so copies take about 0.2 % of the time."""


class JointCallRecord(CallRecord):
    """Records the calls of a worker. All workers copy their states after the same calls, without asking each other."""

    def __init__(self, compiler: Compiler, group: Communicator) -> None:
        super().__init__(compiler, processes_per_host=group.host_size)
        self._group = group
        self._max_calls: int | None = None

    def run(self, call: ProgramCall) -> Program:
        """Run a call. Raises `NonFiniteLoss`."""
        if self._max_calls is None:
            self._max_calls = calls_between_copies(call, self._compiler.workers)
        return super().run(call)

    def check(self) -> None:
        """Raise `NonFiniteLoss` if a state of any worker is not finite. A collective call."""
        wrong = self._group.all_gather_objects(self._non_finite_state() if self._keeps else None)
        first = next((name for name in wrong if name is not None), None)
        if first is not None:
            raise NonFiniteLoss(None, first)

    def _is_due(self, begins_step: bool) -> bool:
        assert self._max_calls is not None
        if self._version != self._compiler.states.version:
            return True
        is_bounded = self._max_calls < CALLS_PER_COPY  # the batches of these calls fill the memory limit
        return len(self._calls) >= self._max_calls and (begins_step or is_bounded)

    def _save(self) -> None:
        """Copy all states.

        If one is not finite, stop recording instead of raising: raising would leave the other workers waiting.
        """
        if self._non_finite_state() is None:
            self._copy()
        else:
            self._keeps, self._calls = False, deque(maxlen=2)
            self.unknown_reason = "a state was not finite when the states were last copied"

    def _can_repeat(self) -> bool:
        """Return whether all workers have copies from before the same calls. A collective call.

        Waits for messages that the failed step has started: their results would overwrite those of a repeated call.
        """
        steps = [call.step for call in self._calls] if self._keeps and self._saved else None
        by_rank = self._group.all_gather_objects(steps)
        if steps is None or any(other != steps for other in by_rank):
            self.unknown_reason = self.unknown_reason or "the workers have not recorded the same steps"
            return False
        for key in list(self._group.in_flight):
            self._group.finish(key)
        return True


def calls_between_copies(call: ProgramCall, workers: int) -> int:
    """Return the number of calls between two copies, the same on all workers.

    It follows from the global batch size of the first call, which `workers` divide among them.
    """
    rows = -(-(call.global_batch or call.rows) // workers)
    per_row: int = sum(array.nbytes // call.rows for array in call.inputs.values() if array.shape[:1] == (call.rows,))
    return max(1, min(CALLS_PER_COPY, MAX_INPUT_BYTES // max(rows * per_row, 1)))
