"""Kernels of ops that NCCL does not support: the CPU sends their operands, as it does for workers without GPUs.

Operands are copied to host memory, the backend `workers` computes there, and its results are copied back. The CPU waits
for earlier work on the GPU, so a step with such an op can't be a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from netspec.backends.backend import load_kernels
from netspec.backends.cuda.pinned_buffer import PinnedBuffer, pinned_buffer
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel, kernels_for
from netspec.graph.ops.all_reduce import ORDER_TOKEN, CommunicationOp, JoinAllReduce, StartAllReduce
from netspec.graph.ops.send_recv import JoinReceive, Send, StartReceive, WaitSends
from netspec.graph.types import TensorType
from netspec.graph.value import Node

load_kernels("workers")


@kernel(CommunicationOp, backend="nccl", rank=3)
class HostStagedKernel(Kernel):
    """Run the kernel of the backend `workers` on host copies; results are complete when the call returns."""

    runs_on_host = True
    read_count: ClassVar[int | None] = None
    """Number of leading operands that are read; None: all."""
    blocks: ClassVar[bool] = True
    """Whether results are complete when the call returns; otherwise after the join."""

    def reject_reason(self, op: Any, *types: TensorType) -> str | None:
        """Accept only ops that no other kernel accepts: workers hang if autotuning chooses differently on them."""
        others = (candidate for candidate in kernels_for(type(op), (self.backend,)) if candidate.rank > self.rank)
        return next((f"{other.label} takes it" for other in others if other.reject_reason(op, *types) is None), None)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Use the pinned buffer of each array's address: the join finds the value in the buffer of the start."""
        inputs = [pinned_buffer(array) for array in buffers.inputs]
        outputs = [None if array is None else pinned_buffer(array) for array in buffers.outputs]
        hosts = Buffers(
            tuple(mirror.view_like(array) for mirror, array in zip(inputs, buffers.inputs, strict=True)),
            tuple(mirror and mirror.view_like(array) for mirror, array in zip(outputs, buffers.outputs, strict=True)),
            buffers.layouts,
        )  # fmt: skip
        carry = kernels_for(type(node.op), ("workers",))[0].bind(node, hosts)
        kinds = [value.type for value in node.inputs[: self.read_count]]
        read = _data_buffers(kinds, inputs, buffers.inputs)
        written = _data_buffers(node.types, outputs, buffers.outputs)
        copied_back = written if self.blocks else []

        def run() -> None:
            for mirror, array in read:
                mirror.copy_from(array)
            for mirror, _ in (*read, *written):
                mirror.settle()
            with np.errstate(all="ignore"):
                carry()
            for mirror, array in copied_back:
                mirror.copy_to(array)

        return run


def _data_buffers(
    types: Sequence[TensorType], mirrors: Sequence[PinnedBuffer | None], arrays: Sequence[Any]
) -> list[tuple[PinnedBuffer, Any]]:
    """Return the arrays that hold data, with their pinned buffers; order tokens and empty arrays are left out."""
    triples = zip(types, mirrors, arrays, strict=False)
    return [
        (mirror, array) for kind, mirror, array in triples if mirror is not None and kind != ORDER_TOKEN and array.size
    ]


@kernel(StartAllReduce, backend="nccl", rank=4)
class HostStagedStartKernel(HostStagedKernel):
    """Start an all-reduce."""

    blocks = False


@kernel(JoinAllReduce, JoinReceive, backend="nccl", rank=4)
class HostStagedJoinKernel(HostStagedKernel):
    """Wait for values that arrive in the operands' pinned buffers."""

    read_count = 0


@kernel(Send, backend="nccl", rank=4)
class HostStagedSendKernel(HostStagedKernel):
    """Start to send the first operand."""

    read_count = 1


@kernel(StartReceive, WaitSends, backend="nccl", rank=4)
class HostStagedReceiveKernel(HostStagedKernel):
    """Start to receive, or wait for sent messages."""

    read_count = 0
    blocks = False
