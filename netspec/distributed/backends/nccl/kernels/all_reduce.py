"""Kernels of all-reduces and gathered rows. Each computes the same as its counterpart of the backend `workers`."""

from __future__ import annotations

from functools import partial

from netspec.backends.cuda.kernels.elementwise import fill
from netspec.backends.cuda.side_stream import side_stream
from netspec.distributed import world
from netspec.distributed.backends.nccl.memory import BucketBuffer, address, all_of, copies_to_outputs, join_call
from netspec.distributed.backends.nccl.one_bit import OneBitAllReduce
from netspec.distributed.backends.nccl.sixteen_bit import FORMS, SixteenBitAllReduce
from netspec.distributed.communicators.encodings import ONE_BIT, between_hosts
from netspec.distributed.communicators.nccl import nccl_group
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.all_gather import JoinAllGatherRows, StartAllGatherRows
from netspec.graph.ops.all_reduce import AllReduce, JoinAllReduce, StartAllReduce
from netspec.graph.ops.send_recv import WithDependencies
from netspec.graph.types import TensorType
from netspec.graph.value import Node


@kernel(AllReduce, backend="nccl", rank=10)
class AllReduceKernel(Kernel):
    """All-reduce in the step's stream, by the communicator of blocking calls."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (out,), workers = buffers.outputs, world()
        assert out is not None
        copy_operands = copies_to_outputs(buffers.inputs[:1], [out])
        if workers.size == 1:
            return copy_operands
        buffer = address(out), out.size, str(out.dtype)
        send = side_stream().on_current_stream(partial(nccl_group(workers, blocking=True).all_reduce, *buffer))

        def run() -> None:
            copy_operands()
            if not workers.silent:
                send()

        return run


@kernel(StartAllReduce, backend="nccl", rank=10)
class StartAllReduceKernel(Kernel):
    """Start the all-reduce of a bucket, as one contiguous buffer, on the side stream."""

    def reject_reason(self, op: StartAllReduce, *types: TensorType) -> str | None:
        return unsupported_encoding(op.encoding)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, workers = node.op, world()
        assert isinstance(op, StartAllReduce)
        outputs = buffers.outputs[: op.count]
        copy_operands = copies_to_outputs(buffers.inputs[: op.count], outputs)
        read = [result for result in outputs if result is not None]
        if workers.size == 1 or not read:
            return copy_operands
        form, group = _flat_encoding(op.encoding), nccl_group(workers)
        if form:
            packed = (
                OneBitAllReduce(workers, group, read)
                if form == ONE_BIT
                else SixteenBitAllReduce(workers, group, form, read)
            )
            call = side_stream().call(address(read[0]), packed, packed.unpack)
            pack = packed.pack
        else:
            bundle = BucketBuffer(read)
            all_reduce = partial(group.all_reduce, bundle.address, bundle.size, bundle.dtype)
            call = side_stream().call(address(read[0]), all_reduce, bundle.unpack)
            pack = bundle.pack
        send = all_of([pack, call.start])

        def run() -> None:
            copy_operands()
            if not workers.silent:
                send()

        return run


@kernel(StartAllGatherRows, backend="nccl", rank=10)
class StartAllGatherRowsKernel(Kernel):
    """Start the all-gather of rows, padded with zeros."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, own, workers = node.op, buffers.inputs[0], world()
        assert isinstance(op, StartAllGatherRows)
        gathered = buffers.outputs[0]
        if gathered is None:  # no node reads the rows
            return all_of(())
        parts = gathered.reshape(op.workers, op.max_rows, -1)
        own_rows = parts[workers.rank]
        put = [copies_to_outputs([own], [own_rows[: len(own)]])]
        put += [fill(0.0, own_rows[len(own) :])] * (len(own) < op.max_rows)
        clear = fill(0.0, gathered)
        if workers.size == 1:
            return all_of([clear, *put])
        carry = partial(nccl_group(workers).all_gather, address(own_rows), address(gathered), own_rows.nbytes)
        call = side_stream().call(address(gathered), carry, all_of(()))

        def run() -> None:
            if workers.silent:
                clear()
            for store in put:
                store()
            if not workers.silent:
                call.start()

        return run


def _flat_encoding(encoding: str) -> str:
    """Return the encoding without the hierarchy, if it has one: NCCL itself sums within hosts first."""
    form = between_hosts(encoding)
    return encoding if form is None else form


def unsupported_encoding(encoding: str) -> str | None:
    """Return why GPUs can't sum in an encoding; None if they can."""
    form = _flat_encoding(encoding)
    return None if form in ("", ONE_BIT, *FORMS) else f"the encoding {form} is not implemented on GPUs"


@kernel(WithDependencies, backend="nccl", rank=10)
class WithDependenciesKernel(Kernel):
    """Copy the operand unless the result shares its memory; the stream keeps the order."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        return copies_to_outputs(buffers.inputs[:1], buffers.outputs)


@kernel(JoinAllReduce, JoinAllGatherRows, backend="nccl", rank=10)
class JoinKernel(Kernel):
    """Have the step's stream wait for a started call."""

    def reject_reason(self, op: JoinAllReduce | JoinAllGatherRows, *types: TensorType) -> str | None:
        return unsupported_encoding(op.encoding)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        return join_call(buffers.inputs[0], copies_to_outputs(buffers.inputs, buffers.outputs))
