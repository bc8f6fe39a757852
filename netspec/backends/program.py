"""`Program`: a graph bound to memory and kernels. Running it calls a flat list of thunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from netspec.backends.device import Device
from netspec.backends.states import States
from netspec.graph.kernel import Buffers, Choice, Thunk, choose
from netspec.graph.ops.source import Input, State
from netspec.graph.plan import Plan, Storage
from netspec.graph.value import Node, Value


class NonFiniteLoss(Exception):
    """The guard of a program is not finite; no state was written. Says which node's result was the first such."""

    def __init__(self, node: Node | None, state: str | None) -> None:
        super().__init__("the loss is not finite")
        self.node = node
        """The first node with a result that is not finite while its operands were."""
        self.state = state
        """The name of a state that was not finite before the step."""


def choose_kernels(order: Sequence[Node], device: Device) -> dict[Node, Choice]:
    """The kernel for each node that computes something."""
    computing = [node for node in order if not node.op.traits.source and not node.op.traits.view]
    return {node: choose(node, device.kernels) for node in computing}


class Program:
    """A planned graph on a device. Inputs are copied in, thunks run, results are copied out."""

    def __init__(self, plan: Plan, device: Device, states: States) -> None:
        self.guard = 0.0
        """Value of the guard in the last run."""
        self.plan, self.device, self.states = plan, device, states
        memory = plan.memory
        self._arena = device.allocate(memory.arena_bytes)
        self._constants = device.allocate(memory.constant_bytes)
        self._arrays: dict[Value, Any] = {}
        for value, storage in memory.storage.items():
            self._arrays[value] = self._view(value, storage)
        self.inputs = {node.op.label: node.outputs[0] for node in plan.order if isinstance(node.op, Input)}
        self._fill_constants()
        thunks = [self._bind(node) for node in plan.order]
        before = [thunk for thunk in thunks[: plan.before_guard] if thunk is not None]
        after = [thunk for thunk in thunks[plan.before_guard :] if thunk is not None]
        self._before, self._after = before, after + [self._copy(value, name) for value, name in memory.copies]
        self._outputs = {name: self._arrays[value] for name, value in plan.graph.outputs.items()}

    def _view(self, value: Value, storage: Storage) -> Any:
        if storage.kind.startswith("state:"):
            array = self.states.array(storage.kind.removeprefix("state:"))
            return array.reshape(value.shape) if self.device.runs else None
        arena = self._constants if storage.kind == "constant" else self._arena
        return self.device.view(arena, storage.offset, value.type)

    def _fill_constants(self) -> None:
        if not self.device.runs:
            return
        import numpy as np

        for value, storage in self.plan.memory.storage.items():
            if storage.kind == "constant" and value.op.traits.source:
                self.device.upload(self._arrays[value], value.op.forward(np))

    def _bind(self, node: Node) -> Thunk | None:
        choice = self.plan.choices.get(node)
        if choice is None or not self.device.runs:
            return None
        scratch = self.plan.memory.workspace.get(node)
        workspace = None if scratch is None else self._arena[scratch.offset : scratch.offset + scratch.size]
        inputs = tuple(self._arrays[value] for value in node.inputs)
        return choice.kernel.bind(node, Buffers(inputs, tuple(map(self._arrays.get, node.outputs)), workspace))

    def _copy(self, value: Value, name: str) -> Thunk:
        source, target = self._arrays[value], self.states.array(name)
        return lambda: self.device.upload(target, source)

    def write(self, inputs: Mapping[str, Any]) -> None:
        """Copy input arrays into place, by name; inputs that the program does not read are passed over."""
        for name, value in self.inputs.items():
            self.device.upload(self._arrays[value], inputs[name])

    def run(self) -> None:
        """One run on the inputs written last. Raises `NonFiniteLoss` before any state is written."""
        with self.device.running():
            for thunk in self._before:
                thunk()
            guard = self.plan.graph.guard
            if guard is not None:
                self.guard = float(self._arrays[guard])
                if not isfinite(self.guard):
                    raise NonFiniteLoss(*self._first_non_finite())
            for thunk in self._after:
                thunk()

    def read(self, *names: str) -> dict[str, Any]:
        """Copies of the results called `names`; all of them without names."""
        return {name: self.device.fetch(self._outputs[name]) for name in names or self._outputs}

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Write, run, read."""
        self.write(inputs)
        self.run()
        return self.read()

    def _first_non_finite(self) -> tuple[Node | None, str | None]:
        """Run the part before the guard again, one node at a time, looking at each result."""
        import numpy as np

        def finite(value: Value) -> bool:
            array = self._arrays.get(value)
            return array is None or not value.dtype.is_float or bool(np.isfinite(self.device.fetch(array)).all())

        for node in self.plan.order[: self.plan.before_guard]:
            if isinstance(node.op, State) and not finite(node.outputs[0]):
                return None, node.op.label
        for node in self.plan.order[: self.plan.before_guard]:
            thunk = self._bind(node)
            if thunk is not None:
                thunk()
                if not all(map(finite, node.outputs)):
                    return node, None
        return None, None
