"""`Program`: a graph bound to memory and kernels. Running it calls a flat list of thunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from netspec.backends.base import Device
from netspec.backends.calls import Calls
from netspec.backends.device import NullDevice
from netspec.backends.failures import NonFiniteLoss, first_inside, input_problems
from netspec.backends.states import States
from netspec.backends.steps import Bound, Outcome
from netspec.errors import InputError
from netspec.graph.fused import scopes
from netspec.graph.kernel import Buffers, Kernel, Thunk
from netspec.graph.ops.messages import JoinReceive, StartReceive
from netspec.graph.ops.source import Input, State
from netspec.graph.plan import Plan, Storage, signature
from netspec.graph.value import Node, Value
from netspec.parallel import world

__all__ = ["NonFiniteLoss", "Program"]


class Program:
    """A planned graph on a device. Inputs are copied in, thunks run, results are copied out.

    Nothing is allocated between construction and the end, except by the temporaries of reference kernels and for what
    `read` returns. Raises `InputError` on a device that only plans.
    """

    def __init__(self, plan: Plan, device: Device, states: States) -> None:
        if not device.runs:
            assert isinstance(device, NullDevice)
            raise device.refusal()
        self.outcome: Outcome = float
        """What the last run came to: it may still go on."""
        self.plan, self.device, self.states = plan, device, states
        memory = plan.memory
        self._arena = device.allocate(memory.arena_bytes)
        self._constants, self._steady = device.allocate(memory.constant_bytes), device.allocate(memory.steady_bytes)
        self._arrays: dict[Value, Any] = {
            value: self._view(value, storage) for value, storage in memory.storage.items()
        }
        self.inputs = {node.op.label: node.outputs[0] for node in plan.order if isinstance(node.op, Input)}
        self._fill_constants()
        self._first = self._bind_all(plan.order[: plan.steady])
        before = self._bind_all(plan.order[plan.steady : plan.before_guard])
        with device.guarding():
            after = self._bind_all(plan.order[plan.before_guard :])
            for value, name in memory.copies:
                after.add(device.copier(self.states.array(name), self._arrays[value]))
        self._before, self._after = before, after
        array_code = any(choice.kernel.array_code for choice in plan.choices.values())
        self._around = device.around(array_code=array_code)
        self._prepared: int | None = None  # the version of the states that the steady nodes have seen
        self._outputs = {name: self._arrays[value] for name, value in plan.graph.outputs.items()}
        guard = None if plan.graph.guard is None else self._arrays[plan.graph.guard]
        inputs = {name: self._arrays[value] for name, value in self.inputs.items()}
        self._steps = device.steps(Bound(plan, before, after, inputs, guard, self._writing, self._first_non_finite))
        self._targets = [(name, value.type, self._steps.targets[name]) for name, value in self.inputs.items()]
        device.settle()

    def _view(self, value: Value, storage: Storage) -> Any:
        if storage.kind.startswith("state:"):
            return self.states.array(storage.kind.removeprefix("state:")).reshape(value.shape)
        arena = {"arena": self._arena, "constant": self._constants, "steady": self._steady}[storage.kind]
        return self.device.view(arena, storage.offset, value.type, self.plan.layouts[value])

    def _fill_constants(self) -> None:
        import numpy as np

        for value, storage in self.plan.memory.storage.items():
            if storage.kind == "constant" and value.op.traits.source:
                self.device.upload(self._arrays[value], value.op.forward(np))

    def _bind_all(self, nodes: Iterable[Node]) -> Calls:
        """The calls of the nodes that have a kernel."""
        device = self.device
        calls = Calls(device.set_threads, device.threads(), device.wait)
        for node in nodes:
            if node in self.plan.choices:
                kernel = self.plan.choices[node].kernel
                calls.add(self._bind(node, kernel), node, kernel.threads(node))
        return calls

    def _bind(self, node: Node, kernel: Kernel) -> Thunk:
        scratch = self.plan.memory.workspace.get(node)
        workspace = None if scratch is None else self._arena[scratch.offset : scratch.offset + scratch.size]
        inputs = tuple(self._arrays[value] for value in node.inputs)
        outputs = tuple(map(self._arrays.get, node.outputs))
        return kernel.bind(node, Buffers(inputs, outputs, signature(node, self.plan.layouts), workspace))

    def write(self, inputs: Mapping[str, Any]) -> None:
        """Copy input arrays into place, by name.

        Inputs that the program does not read are passed over: one batch serves programs of several purposes. Raises
        `InputError` with every input that is missing or has another shape or kind of numbers; then nothing is written.
        """
        unlike = {name: kind for name, kind, array in self._targets if not _alike(inputs.get(name), array)}
        problems = input_problems(unlike, inputs) if unlike else []
        if problems:
            raise InputError(problems)
        self._steps.write(inputs)

    def run(self) -> None:
        """One run on the inputs written before; it uses them up. Steady nodes run if states have changed.

        Raises `NonFiniteLoss` before any state is written, and `RunError` naming the layer where a kernel fails: the
        states may then be written in part. A device that runs ahead raises the first in a later run, or where `outcome`
        is asked for; until then runs leave states as they are.
        """
        with self._around():
            if self._prepared != self.states.version:
                self._first.run()
                self._prepared = self.states.version
            self.outcome = self._steps.run()

    @property
    def guard(self) -> float:
        """Value of the guard in the last run. Raises `NonFiniteLoss` where that was found out only now."""
        return self.outcome()

    def _writing(self) -> None:
        """Tell other programs that states change; this one's own steady nodes read none of those."""
        if self.plan.graph.updates:
            self.states.version += 1
            self._prepared = self.states.version

    def timed(self) -> list[tuple[Node | None, float]]:
        """One run as `run` does it, and the seconds that each node took; None stands for a state copied at the end.

        The steady nodes, which `timed_steady` times, are not among them, and the guard is not looked at.
        """
        if self._prepared != self.states.version:
            self.timed_steady()
        self._writing()
        with self._around():
            self._steps.take()
            return [*self._before.each(), *self._after.each()]

    def timed_steady(self) -> list[tuple[Node | None, float]]:
        """Run the steady nodes, changed states or not, and the seconds that each took. Inputs must be written anew."""
        with self._around():
            taken = list(self._first.each())
        self._prepared = self.states.version
        return taken

    def only(self, wanted: Callable[[Node], bool]) -> Callable[[], None]:
        """What runs some nodes alone, in their order, on what the last run has left in memory: to be timed."""
        thunks = [*self._before.only(wanted), *self._after.only(wanted)]

        def run() -> None:
            with self._around():
                for thunk in thunks:
                    thunk()
                self.device.wait()

        return run

    def read(self, *names: str) -> dict[str, Any]:
        """Copies of the results called `names`; all of them without names."""
        return {name: self.device.fetch(self._outputs[name]) for name in names or self._outputs}

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Write, run, read. Raises as these do."""
        self.write(inputs)
        self.run()
        self.outcome()
        return self.read()

    def _first_non_finite(self) -> tuple[Node | None, str | None]:
        """Run the part before the guard again, one node at a time, looking at each result. Inputs are still whole.

        It runs to its end: other workers wait for what it sends them. What they have sent is for them to explain.
        """
        import numpy as np

        def finite(value: Value) -> bool:
            array = self._arrays.get(value)
            return array is None or not value.dtype.is_float or bool(np.isfinite(self.device.fetch(array)).all())

        self._steps.take()
        found: tuple[Node | None, str | None] | None = None
        read: list[Any] | None = None

        def keep(node: Node | None) -> None:
            """Keep what a node that computes several things at once reads, since it may write over it."""
            nonlocal read
            read = None
            if found is None and node is not None and len(scopes(node)) > 1:
                layouts = [self.plan.layouts[value] for value in node.inputs]
                if all(one.form is None and one.dtype is None for one in layouts):
                    read = [self.device.fetch(self._arrays[value]) for value in node.inputs]

        for node in self.plan.order[: self.plan.before_guard]:
            if found is None and isinstance(node.op, (Input, State)) and not finite(node.outputs[0]):
                found = (None, node.op.label) if isinstance(node.op, State) else (node, None)
        with world().silence():
            for made, _ in chain(self._first.each(keep), self._before.each(keep)):
                if found is not None or made is None or isinstance(made.op, StartReceive):
                    continue
                if not all(map(finite, made.outputs)):
                    first = made if read is None else first_inside(made, read)
                    found = (None, None) if isinstance(made.op, JoinReceive) else (first, None)
        return found or (None, None)


def _alike(given: Any, array: Any) -> bool:
    """Whether an array is exactly like another: the usual case, told in a fraction of a microsecond."""
    return type(given) is type(array) and given.shape == array.shape and given.dtype == array.dtype
