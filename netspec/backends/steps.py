"""`Steps`: what of a program runs each time. Here on the processor, in turn; a device may have a way of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

from netspec.backends.calls import Calls
from netspec.backends.failures import NonFiniteLoss
from netspec.graph.kernel import Thunk
from netspec.graph.plan import Plan
from netspec.graph.value import Node

if TYPE_CHECKING:
    from netspec.backends.base import Device

Outcome: TypeAlias = Callable[[], float]
"""The guard of a run, once it is known. Raises `NonFiniteLoss` where it is not finite, and no state was written."""


@dataclass(frozen=True)
class Bound:
    """A program's calls, and what they are called on."""

    plan: Plan
    before: Calls
    """What the guard needs; without a guard nothing."""
    after: Calls
    """The rest: new states are written here."""
    inputs: Mapping[str, Any]
    """The arrays that calls read them from."""
    guard: Any | None
    writing: Thunk
    """Tells others that states are about to be written."""
    origin: Callable[[], tuple[Node | None, str | None]]
    """Runs `before` again, and finds where the first value that is not finite comes from: see `NonFiniteLoss`."""


class Steps:
    """Calls one after another. The guard is looked at before the first one that writes a state."""

    def __init__(self, device: Device, bound: Bound) -> None:
        self.device, self.bound = device, bound
        self.targets: Mapping[str, Any] = bound.inputs
        """Arrays of the shapes and types of the inputs, as `write` fills them."""

    def write(self, inputs: Mapping[str, Any]) -> None:
        """Take the inputs of the next run."""
        upload = self.device.upload
        for name, array in self.targets.items():
            upload(array, inputs[name])

    def take(self) -> None:
        """Bring the inputs written last to where calls read them: for who runs calls one by one."""

    def run(self) -> Outcome:
        """One run. Raises `NonFiniteLoss` before any state is written, of this run or, late, of one before it."""
        bound, value = self.bound, 0.0
        bound.before.run()
        if bound.guard is not None:
            value = float(bound.guard)
            if not isfinite(value):
                raise NonFiniteLoss(*bound.origin())
        bound.writing()
        bound.after.run()
        return lambda: value
