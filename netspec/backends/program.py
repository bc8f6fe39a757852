"""`Program`: a graph bound to memory and kernels, run as a flat list of calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from math import isfinite
from typing import Any

import numpy as np

from netspec.backends.device import Device
from netspec.backends.device_registry import NullDevice
from netspec.backends.executor import BoundProgram, CallSequence, CallTimer, Outcome
from netspec.backends.failures import NonFiniteLoss, first_inside, input_problems
from netspec.backends.process_group import world
from netspec.backends.states import States
from netspec.errors import InputError
from netspec.graph.execution_plan import ExecutionPlan, Storage, layout_signature
from netspec.graph.fused import node_scopes
from netspec.graph.kernel import Buffers, Kernel, Thunk
from netspec.graph.ops.send_recv import JoinReceive, StartReceive
from netspec.graph.ops.source import Input, State
from netspec.graph.value import Node, Value

__all__ = ["NonFiniteLoss", "Program"]


class Program:
    """A planned graph on a device: inputs are copied in, calls run, results are copied out.

    Runs allocate nothing, except for the temporaries of reference kernels and the results of `read`. Raises
    `InputError` on a device that only plans.
    """

    def __init__(self, plan: ExecutionPlan, device: Device, states: States, arena: Any = None) -> None:
        """`arena` is memory for the values of a run. Programs can share it if they never run at the same time."""
        if not device.runs:
            assert isinstance(device, NullDevice)
            raise device.refusal()
        self.outcome: Outcome = float
        """Outcome of the last run, which may still be in progress."""
        self.plan, self.device, self.states = plan, device, states
        memory = plan.memory
        self._arena = device.allocate(memory.arena_bytes) if arena is None else arena
        self._constants, self._invariant = (
            device.allocate(memory.constant_bytes),
            device.allocate(memory.invariant_bytes),
        )
        self._arrays: dict[Value, Any] = {
            value: self._view(value, storage) for value, storage in memory.storage.items()
        }
        self.inputs = {node.op.label: node.outputs[0] for node in plan.order if isinstance(node.op, Input)}
        self._fill_constants()
        self._first = self._bind_all(plan.order[: plan.invariant_count])
        before = self._bind_all(plan.order[plan.invariant_count : plan.before_guard_count])
        with device.guarded_context():
            after = self._bind_all(plan.order[plan.before_guard_count :])
            for value, name in memory.copies:
                after.add(device.copier(self.states.array(name), self._arrays[value]))
        self._before, self._after = before, after
        array_code = any(choice.kernel.uses_array_library for choice in plan.choices.values())
        self._around = device.run_context(array_code=array_code)
        self._prepared: int | None = None  # version of the states that the invariant nodes have read
        self._outputs = {name: self._arrays[value] for name, value in plan.graph.outputs.items()}
        self._guard = guard = None if plan.graph.guard is None else self._arrays[plan.graph.guard]
        inputs = {name: self._arrays[value] for name, value in self.inputs.items()}
        self._steps = device.executor(
            BoundProgram(plan, before, after, inputs, guard, self._writing, self._first_non_finite)
        )
        self._targets = [(name, value.type, self._steps.targets[name]) for name, value in self.inputs.items()]
        device.settle()

    def _view(self, value: Value, storage: Storage) -> Any:
        if storage.kind.startswith("state:"):
            return self.states.array(storage.kind.removeprefix("state:")).reshape(value.shape)
        arena = {"arena": self._arena, "constant": self._constants, "invariant": self._invariant}[storage.kind]
        return self.device.view(arena, storage.offset, value.type, self.plan.layouts[value])

    def _fill_constants(self) -> None:
        for value, storage in self.plan.memory.storage.items():
            if storage.kind == "constant" and value.op.traits.source:
                self.device.upload(self._arrays[value], value.op.forward(np))

    def _bind_all(self, nodes: Iterable[Node]) -> CallSequence:
        """Bind the nodes that have a kernel."""
        device = self.device
        calls = CallSequence(device.set_threads, device.threads(), device.wait)
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
        return kernel.bind(node, Buffers(inputs, outputs, layout_signature(node, self.plan.layouts), workspace))

    def write(self, inputs: Mapping[str, Any]) -> None:
        """Copy input arrays to the device, by name.

        Inputs that the program does not read are ignored: one batch serves programs of several purposes. Raises
        `InputError` for every input that is missing or has the wrong shape or type; then nothing is written.
        """
        unlike = {name: kind for name, kind, array in self._targets if not _alike(inputs.get(name), array)}
        problems = input_problems(unlike, inputs) if unlike else []
        if problems:
            raise InputError(problems)
        self._steps.write(inputs)

    def run(self) -> None:
        """Run once on the inputs written before, which it consumes. Invariant nodes run if states have changed.

        Raises `NonFiniteLoss` before any state is written, and `RunError` with the layer's name if a kernel fails:
        states may then be partly written. A device that runs ahead raises `NonFiniteLoss` in a later run, or when
        `outcome` is read; until then, runs leave states unchanged.
        """
        with self._around():
            if self._prepared != self.states.version:
                self._first.run()
                self._prepared = self.states.version
            self.outcome = self._steps.run()

    @property
    def guard(self) -> float:
        """Value of the guard in the last run. Raises `NonFiniteLoss` if it was not finite."""
        return self.outcome()

    def _writing(self) -> None:
        """Notify other programs that states change; the invariant nodes of this program do not read these states."""
        if self.plan.graph.updates:
            self.states.version += 1
            self._prepared = self.states.version

    def timed(self) -> list[tuple[Node | None, float]]:
        """Run once like `run`; return the seconds of each node, with None for a copied state.

        Invariant nodes, which `timed_invariant` times, are excluded, and the guard is not checked.
        """
        if self._prepared != self.states.version:
            self.timed_invariant()
        self._writing()
        with self._around():
            self._steps.take_inputs()
            return [*self._before.timed_calls(), *self._after.timed_calls()]

    def timed_invariant(self) -> list[tuple[Node | None, float]]:
        """Run the invariant nodes and return the seconds of each. Inputs must be written again."""
        with self._around():
            seconds = list(self._first.timed_calls())
        self._prepared = self.states.version
        return seconds

    def profile(self, timer: CallTimer) -> None:
        """Make `timer` record each call of all later runs. Programs that are not profiled have no overhead."""
        for calls in (self._first, self._before, self._after):
            calls.wrap(timer.wrap)
        self._steps.start_singly()

    def trace(self) -> Iterator[tuple[Node, list[Any]]]:
        """Run once, one node at a time; yield each node with copies of its results.

        Ends after a guard that is not finite, before any state changes, as `run` does. Results in opaque layouts are
        left out.
        """

        def traced(calls: CallSequence) -> Iterator[tuple[Node, list[Any]]]:
            for node, _ in calls.timed_calls():
                if node is not None:
                    plain = [value for value in node.outputs if value in self._arrays and self._is_plain(value)]
                    yield node, [self.device.fetch(self._arrays[value]) for value in plain]

        with self._around():
            self._steps.take_inputs()
            yield from traced(self._first)
            self._prepared = self.states.version
            yield from traced(self._before)
            if self._guard is not None and not isfinite(float(self.device.fetch(self._guard))):
                return
            self._writing()
            yield from traced(self._after)

    def _is_plain(self, value: Value) -> bool:
        return self.plan.layouts[value].opaque is None

    def only(self, is_wanted: Callable[[Node], bool]) -> Callable[[], None]:
        """Return a call that runs only some nodes, in order, on the memory of the last run; for timing."""
        thunks = [*self._before.only(is_wanted), *self._after.only(is_wanted)]

        def run() -> None:
            with self._around():
                for thunk in thunks:
                    thunk()
                self.device.wait()

        return run

    def read(self, *names: str) -> dict[str, Any]:
        """Copies of the results with these names; of all results by default."""
        return {name: self.device.fetch(self._outputs[name]) for name in names or self._outputs}

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Write, run and read. Raises what these raise."""
        self.write(inputs)
        self.run()
        self.outcome()
        return self.read()

    def _first_non_finite(self) -> tuple[Node | None, str | None]:
        """Run the part before the guard again, one node at a time, and check each result. Inputs are still valid.

        It runs to the end, because other workers wait for its messages. If a received value is not finite, its sender
        finds the origin.
        """

        def finite(value: Value) -> bool:
            array = self._arrays.get(value)
            return array is None or not value.dtype.is_float or bool(np.isfinite(self.device.fetch(array)).all())

        self._steps.take_inputs()
        origin: tuple[Node | None, str | None] | None = None
        read: list[Any] | None = None

        def keep(node: Node | None) -> None:
            """Copy the operands of a node that fuses several ops, since it may overwrite them."""
            nonlocal read
            read = None
            if origin is None and node is not None and len(node_scopes(node)) > 1:
                layouts = [self.plan.layouts[value] for value in node.inputs]
                if all(layout.opaque is None and layout.dtype is None for layout in layouts):
                    read = [self.device.fetch(self._arrays[value]) for value in node.inputs]

        for node in self.plan.order[: self.plan.before_guard_count]:
            if origin is None and isinstance(node.op, (Input, State)) and not finite(node.outputs[0]):
                origin = (None, node.op.label) if isinstance(node.op, State) else (node, None)
        with world().silence():
            for finished, _ in chain(self._first.timed_calls(keep), self._before.timed_calls(keep)):
                if origin is not None or finished is None or isinstance(finished.op, StartReceive):
                    continue
                if not all(map(finite, finished.outputs)):
                    first = finished if read is None else first_inside(finished, read)
                    origin = (None, None) if isinstance(finished.op, JoinReceive) else (first, None)
        return origin or (None, None)


def _alike(array_like: Any, array: Any) -> bool:
    """Whether an input already has the expected type and shape; a check of less than a microsecond."""
    return type(array_like) is type(array) and array_like.shape == array.shape and array_like.dtype == array.dtype
