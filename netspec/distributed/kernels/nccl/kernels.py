"""Kernels of communication between GPUs. Each computes the same as its counterpart of the backend `workers`."""

from __future__ import annotations

from functools import partial

from netspec.backends.cuda.kernels.elementwise import fill
from netspec.backends.cuda.side_stream import side_stream
from netspec.distributed import world
from netspec.distributed.communicators.encodings import ONE_BIT, between_hosts
from netspec.distributed.communicators.nccl import gpus
from netspec.distributed.kernels.nccl import all_to_all, host_staging, reduce_scatter  # noqa: F401  # they register
from netspec.distributed.kernels.nccl.memory import Bundle, address, all_of, filling, joining
from netspec.distributed.kernels.nccl.one_bit import BitSum
from netspec.distributed.kernels.nccl.sixteen_bit import FORMS, PackedSum
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.all_gather import JoinAllGatherRows, StartAllGatherRows
from netspec.graph.ops.all_reduce import AllReduce, JoinAllReduce, StartAllReduce
from netspec.graph.ops.send_recv import WithDependencies
from netspec.graph.types import TensorType
from netspec.graph.value import Node


@kernel(AllReduce, backend="nccl", rank=10)
class Sum(Kernel):
    """In the step's stream, by a communicator of its own: what is waited for has an order of its own."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (out,), workers = buffers.outputs, world()
        assert out is not None
        place = filling(buffers.inputs[:1], [out])
        if workers.size == 1:
            return place
        how = address(out), out.size, str(out.dtype)
        send = side_stream().here(partial(gpus(workers, apart=True).all_reduce, *how))

        def run() -> None:
            place()
            if not workers.silent:
                send()

        return run


@kernel(StartAllReduce, backend="nccl", rank=10)
class Start(Kernel):
    """Start the all-reduce of a bucket, as one contiguous buffer, on the side stream."""

    def reject_reason(self, op: StartAllReduce, *types: TensorType) -> str | None:
        return unsummed(op.encoding)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, workers = node.op, world()
        assert isinstance(op, StartAllReduce)
        outputs = buffers.outputs[: op.count]
        place = filling(buffers.inputs[: op.count], outputs)
        read = [one for one in outputs if one is not None]
        if workers.size == 1 or not read:
            return place
        form, group = _form(op.encoding), gpus(workers)
        if form:
            packed = BitSum(workers, group, read) if form == ONE_BIT else PackedSum(workers, group, form, read)
            call = side_stream().call(address(read[0]), packed, packed.empty)
            pack = packed.fill
        else:
            bundle = Bundle(read)
            how = partial(group.all_reduce, bundle.place, bundle.size, bundle.dtype)
            call = side_stream().call(address(read[0]), how, bundle.empty)
            pack = bundle.fill
        send = all_of([pack, call.start])

        def run() -> None:
            place()
            if not workers.silent:
                send()

        return run


@kernel(StartAllGatherRows, backend="nccl", rank=10)
class StartGather(Kernel):
    """Send rows on their way, with zeros below them."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, mine, workers = node.op, buffers.inputs[0], world()
        assert isinstance(op, StartAllGatherRows)
        whole = buffers.outputs[0]
        if whole is None:  # nobody wants the rows
            return all_of(())
        parts = whole.reshape(op.workers, op.max_rows, -1)
        own = parts[workers.rank]
        put = [filling([mine], [own[: len(mine)]])]
        put += [fill(0.0, own[len(mine) :])] * (len(mine) < op.max_rows)
        clear = fill(0.0, whole)
        if workers.size == 1:
            return all_of([clear, *put])
        carry = partial(gpus(workers).all_gather, address(own), address(whole), own.nbytes)
        call = side_stream().call(address(whole), carry, all_of(()))

        def run() -> None:
            if workers.silent:
                clear()
            for one in put:
                one()
            if not workers.silent:
                call.start()

        return run


def _form(encoding: str) -> str:
    """In which form GPUs sum up: which workers are on one host is NCCL's to find out, and so by host as else."""
    form = between_hosts(encoding)
    return encoding if form is None else form


def unsummed(encoding: str) -> str | None:
    """Why GPUs don't sum up what is encoded so; None if they do."""
    form = _form(encoding)
    return None if form in ("", ONE_BIT, *FORMS) else f"no GPU packs {form}"


@kernel(WithDependencies, backend="nccl", rank=10)
class Ordered(Kernel):
    """Where its operand lies, or a copy: the stream is in order."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        return filling(buffers.inputs[:1], buffers.outputs)


@kernel(JoinAllReduce, JoinAllGatherRows, backend="nccl", rank=10)
class Join(Kernel):
    """Have the step's stream wait for what was sent on its way."""

    def reject_reason(self, op: JoinAllReduce | JoinAllGatherRows, *types: TensorType) -> str | None:
        return unsummed(op.encoding)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        return joining(buffers.inputs[0], filling(buffers.inputs, buffers.outputs))
