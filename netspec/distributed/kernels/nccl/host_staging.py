"""Kernels of ops that NCCL does not support: the CPU sends their operands, as it does for workers without GPUs.

Operands are copied to host memory, the backend `workers` computes there, and its results are copied back. The CPU waits
for earlier work on the GPU, so a step with such an op can't be a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

import netspec.distributed.kernels.mpi.kernels  # noqa: F401  # it registers those that carry
from netspec.backends.cuda.pinned_buffer import PinnedBuffer, pinned_buffer
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel, kernels_for
from netspec.graph.ops.all_reduce import ORDER_TOKEN, CommunicationOp, JoinAllReduce, StartAllReduce
from netspec.graph.ops.send_recv import JoinReceive, Send, StartReceive, WaitSends
from netspec.graph.types import TensorType
from netspec.graph.value import Node


@kernel(CommunicationOp, backend="nccl", rank=3)
class ThroughHost(Kernel):
    """What is sent and has come when the call returns."""

    runs_on_host = True
    first: ClassVar[int | None] = None
    """How many operands are read, the first ones; None: all."""
    gives: ClassVar[bool] = True
    """Whether results are there when the call returns; else they are when somebody has waited for them."""

    def reject_reason(self, op: Any, *types: TensorType) -> str | None:
        """Only what no other kernel takes: in a race of the two one worker would wait for another's choice."""
        others = (one for one in kernels_for(type(op), (self.backend,)) if one.rank > self.rank)
        return next((f"{one.label} takes it" for one in others if one.reject_reason(op, *types) is None), None)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Mirrors go by where arrays lie: a value that is under way arrives in the mirror of who has started it."""
        inputs = [pinned_buffer(array) for array in buffers.inputs]
        outputs = [None if array is None else pinned_buffer(array) for array in buffers.outputs]
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
    types: Sequence[TensorType], mirrors: Sequence[PinnedBuffer | None], arrays: Sequence[Any]
) -> list[tuple[PinnedBuffer, Any]]:
    """Mirrors and their arrays, but for those that only say what comes before, and empty ones."""
    found = zip(types, mirrors, arrays, strict=False)
    return [(one, array) for kind, one, array in found if one is not None and kind != ORDER_TOKEN and array.size]


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


@kernel(StartReceive, WaitSends, backend="nccl", rank=4)
class Awaiting(ThroughHost):
    """Be ready for what comes; wait for what was sent."""

    first = 0
    gives = False
