"""Kernels of messages from one worker to another, and of the order in which they are sent."""

from __future__ import annotations

from typing import Literal, TypeAlias

from netspec.distributed import world
from netspec.distributed.kernels.mpi.buffers import filling, joining
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.send_recv import JoinReceive, Send, StartReceive, WaitSends, WithDependencies
from netspec.graph.value import Node

Channel: TypeAlias = tuple[Literal["to", "from"], int, int]
"""What is under way on it: a message to a worker or from one, with a tag."""


@kernel(Send, backend="workers", rank=10)
class Sending(Kernel):
    """From where the value lies."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that waits until what was sent before has arrived."""
        op, workers, x = node.op, world(), buffers.inputs[0]
        assert isinstance(op, Send)
        channel: Channel = ("to", op.to, op.tag)

        def run() -> None:
            workers.finish(channel)
            if workers.size > 1:
                workers.in_flight[channel] = [workers.start_send(x, op.to, op.tag)]

        return run


@kernel(WaitSends, backend="workers", rank=10)
class Arriving(Kernel):
    """Wait for all."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that waits."""
        op, workers = node.op, world()
        assert isinstance(op, WaitSends)
        channels: list[Channel] = [("to", *one) for one in op.channels]

        def run() -> None:
            for channel in channels:
                workers.finish(channel)

        return run


@kernel(StartReceive, backend="workers", rank=10)
class Awaiting(Kernel):
    """To where the value is to lie."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that does not wait."""
        op, workers, x = node.op, world(), buffers.outputs[0]
        assert isinstance(op, StartReceive)
        assert x is not None
        channel: Channel = ("from", op.source, op.tag)

        def run() -> None:
            workers.finish(channel)  # of a step that was broken off
            if workers.size > 1:
                workers.in_flight[channel] = [workers.start_receive(x, op.source, op.tag)]
            else:
                x[...] = 0

        return run


@kernel(JoinReceive, backend="workers", rank=10)
class Receiving(Kernel):
    """Wait for a value."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that waits."""
        op = node.op
        assert isinstance(op, JoinReceive)
        channel: Channel = ("from", op.source, op.tag)
        return joining(channel, filling(buffers.inputs[:1], buffers.outputs[:1]))


@kernel(WithDependencies, backend="workers", rank=10)
class Ordered(Kernel):
    """Where its operand lies, or a copy."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that copies what lies elsewhere."""
        return filling(buffers.inputs[:1], buffers.outputs)
