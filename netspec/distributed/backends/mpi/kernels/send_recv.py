"""Kernels that send and receive point-to-point messages, and that keep their order."""

from __future__ import annotations

from typing import Literal, TypeAlias

from netspec.distributed import world
from netspec.distributed.backends.mpi.buffers import copies_to_outputs, join_call
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.send_recv import JoinReceive, Send, StartReceive, WaitSends, WithDependencies
from netspec.graph.value import Node

Channel: TypeAlias = tuple[Literal["to", "from"], int, int]
"""Key of a pending message: its direction, the other worker, and the tag."""


@kernel(Send, backend="workers", rank=10)
class SendKernel(Kernel):
    """Start to send from the memory of the operand."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Return a call that waits for the previous message of this channel, then starts to send."""
        op, workers, x = node.op, world(), buffers.inputs[0]
        assert isinstance(op, Send)
        channel: Channel = ("to", op.to, op.tag)

        def run() -> None:
            workers.finish(channel)
            if workers.size > 1:
                workers.in_flight[channel] = [workers.start_send(x, op.to, op.tag)]

        return run


@kernel(WaitSends, backend="workers", rank=10)
class WaitSendsKernel(Kernel):
    """Wait until the messages of the op's channels are sent."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Return a call that waits."""
        op, workers = node.op, world()
        assert isinstance(op, WaitSends)
        channels: list[Channel] = [("to", *channel) for channel in op.channels]

        def run() -> None:
            for channel in channels:
                workers.finish(channel)

        return run


@kernel(StartReceive, backend="workers", rank=10)
class StartReceiveKernel(Kernel):
    """Start to receive into the memory of the result."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Return a call that starts to receive."""
        op, workers, x = node.op, world(), buffers.outputs[0]
        assert isinstance(op, StartReceive)
        assert x is not None
        channel: Channel = ("from", op.source, op.tag)

        def run() -> None:
            workers.finish(channel)  # left by a step that was interrupted
            if workers.size > 1:
                workers.in_flight[channel] = [workers.start_receive(x, op.source, op.tag)]
            else:
                x[...] = 0

        return run


@kernel(JoinReceive, backend="workers", rank=10)
class JoinReceiveKernel(Kernel):
    """Wait for a received value."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Return a call that waits."""
        op = node.op
        assert isinstance(op, JoinReceive)
        channel: Channel = ("from", op.source, op.tag)
        return join_call(channel, copies_to_outputs(buffers.inputs[:1], buffers.outputs[:1]))


@kernel(WithDependencies, backend="workers", rank=10)
class WithDependenciesKernel(Kernel):
    """Copy the operand unless the result shares its memory."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Return a call that copies, if needed."""
        return copies_to_outputs(buffers.inputs[:1], buffers.outputs)
