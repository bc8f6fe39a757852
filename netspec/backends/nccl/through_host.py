"""Kernels of what NCCL has no call for: the processor carries it, as it does between workers without GPUs.

Operands are copied to memory of the processor, where the backend `workers` does what it always does; its results are
copied back. The processor waits for what comes before on the GPU, so that a step which has such a call is no CUDA
graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

import netspec.backends.workers.kernels  # noqa: F401  # it registers those that carry
from netspec.backends.cuda.mirror import Mirror, mirror
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel, kernels_for
from netspec.graph.ops.communication import ORDER, Communication, JoinAllReduce, StartAllReduce
from netspec.graph.ops.messages import JoinReceive, Send, Sent, StartReceive
from netspec.graph.types import TensorType
from netspec.graph.value import Node


@kernel(Communication, backend="nccl", rank=3)
class ThroughHost(Kernel):
    """What is sent and has come when the call returns."""

    hosted = True
    first: ClassVar[int | None] = None
    """How many operands are read, the first ones; None: all."""
    gives: ClassVar[bool] = True
    """Whether results are there when the call returns; else they are when somebody has waited for them."""

    def why_not(self, op: Any, *types: TensorType) -> str | None:
        """Only what no other kernel takes: in a race of the two one worker would wait for another's choice."""
        others = (one for one in kernels_for(type(op), (self.backend,)) if one.rank > self.rank)
        return next((f"{one.label} takes it" for one in others if one.why_not(op, *types) is None), None)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Mirrors go by where arrays lie: a value that is under way arrives in the mirror of who has started it."""
        inputs = [mirror(array) for array in buffers.inputs]
        outputs = [None if array is None else mirror(array) for array in buffers.outputs]
        hosts = Buffers(
            tuple(one.like(array) for one, array in zip(inputs, buffers.inputs, strict=True)),
            tuple(one and one.like(array) for one, array in zip(outputs, buffers.outputs, strict=True)),
            buffers.layouts,
        )  # fmt: skip
        carry = kernels_for(type(node.op), ("workers",))[0].bind(node, hosts)
        kinds = [value.type for value in node.inputs[: self.first]]
        read = _of_numbers(kinds, inputs, buffers.inputs)
        written = _of_numbers(node.types, outputs, buffers.outputs)
        given = written if self.gives else []

        def run() -> None:
            for one, array in read:
                one.take(array)
            for one, _ in (*read, *written):
                one.settle()
            with np.errstate(all="ignore"):
                carry()
            for one, array in given:
                one.give(array)

        return run


def _of_numbers(
    types: Sequence[TensorType], mirrors: Sequence[Mirror | None], arrays: Sequence[Any]
) -> list[tuple[Mirror, Any]]:
    """Mirrors and their arrays, but for those that only say what comes before, and empty ones."""
    found = zip(types, mirrors, arrays, strict=False)
    return [(one, array) for kind, one, array in found if one is not None and kind != ORDER and array.size]


@kernel(StartAllReduce, backend="nccl", rank=4)
class Started(ThroughHost):
    """Send on its way."""

    gives = False


@kernel(JoinAllReduce, JoinReceive, backend="nccl", rank=4)
class Joined(ThroughHost):
    """Wait for what arrives in the operands' mirrors."""

    first = 0


@kernel(Send, backend="nccl", rank=4)
class Sending(ThroughHost):
    """Send the first operand on its way."""

    first = 1


@kernel(StartReceive, Sent, backend="nccl", rank=4)
class Awaiting(ThroughHost):
    """Be ready for what comes; wait for what was sent."""

    first = 0
    gives = False
