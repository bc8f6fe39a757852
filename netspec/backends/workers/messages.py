"""Kernels of messages from one worker to another, and of the order in which they are sent."""

from __future__ import annotations

from netspec.backends.workers.filling import filling
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.messages import After, JoinReceive, Send, Sent, StartReceive
from netspec.graph.value import Node
from netspec.parallel import Pending, world

_sending: dict[tuple[int, int], Pending] = {}
"""What was sent and may not have arrived, by the worker and the tag."""
_receiving: dict[tuple[int, int], Pending] = {}
"""What is waited for, by the worker and the tag."""


def _wait(pending: dict[tuple[int, int], Pending], channel: tuple[int, int]) -> None:
    if (one := pending.pop(channel, None)) is not None:
        one.wait()


@kernel(Send, backend="workers", rank=10)
class Sending(Kernel):
    """From where the value lies."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that waits until what was sent before has arrived."""
        op, workers, x = node.op, world(), buffers.inputs[0]
        assert isinstance(op, Send)
        channel = op.to, op.tag

        def run() -> None:
            _wait(_sending, channel)
            if workers.size > 1:
                _sending[channel] = workers.start_send(x, *channel)

        return run


@kernel(Sent, backend="workers", rank=10)
class Arriving(Kernel):
    """Wait for all."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that waits."""
        op = node.op
        assert isinstance(op, Sent)
        channels = op.channels

        def run() -> None:
            for channel in channels:
                _wait(_sending, channel)

        return run


@kernel(StartReceive, backend="workers", rank=10)
class Awaiting(Kernel):
    """To where the value is to lie."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that does not wait."""
        op, workers, x = node.op, world(), buffers.outputs[0]
        assert isinstance(op, StartReceive)
        assert x is not None
        channel = op.source, op.tag

        def run() -> None:
            _wait(_receiving, channel)  # of a step that was broken off
            if workers.size > 1:
                _receiving[channel] = workers.start_receive(x, *channel)
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
        channel, place = (op.source, op.tag), filling(buffers.inputs[:1], buffers.outputs[:1])

        def run() -> None:
            _wait(_receiving, channel)
            place()

        return run


@kernel(After, backend="workers", rank=10)
class Ordered(Kernel):
    """Where its operand lies, or a copy."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """A thunk that copies what lies elsewhere."""
        return filling(buffers.inputs[:1], buffers.outputs)
