"""A stand-in for `cupy.cuda.nccl`: MPI sends what NCCL would, from host memory.

A call runs when its turn in the stream comes; the calls of a group run together. Without MPI, calls are only recorded,
and receive buffers keep their content.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from ctypes import c_uint8
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.backends.cuda.fake import Machine, Mark, Stream

if TYPE_CHECKING:
    import pytest

TYPES = {"UINT8": (1, "uint8"), "FLOAT16": (6, "float16"), "FLOAT32": (7, "float32"), "FLOAT64": (8, "float64"),
         "BFLOAT16": (9, "bfloat16")}  # fmt: skip
"""NCCL's numbers of element types, as CuPy 14.2 has them."""
BY_NUMBER = dict(TYPES.values())


class NcclError(RuntimeError):
    """Stands for CuPy's `NcclError`."""


class Underway(Mark):
    """MPI requests under way, which only their stream waits for."""

    def __init__(self, machine: Machine, stream: Stream, requests: Sequence[Any]) -> None:
        self.machine, self.stream, self.requests = machine, stream, requests

    @property
    def done(self) -> bool:  # type: ignore[override]  # events of the base have an attribute
        # Tests every request, so that MPI makes progress on all.
        return bool(sum(request.Test() for request in self.requests) == len(self.requests))

    def wait(self) -> None:
        while not self.done:
            self.machine.advance()


def array(address: int, count: int, kind: int) -> Any:
    """Return an array over memory."""
    dtype = np.dtype(BY_NUMBER[kind])
    memory: Any = (c_uint8 * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype)


def library(machine: Machine, members: Any = None) -> Any:
    """Return the module. `members` is the MPI communicator of the workers; without one, `calls` only records calls."""
    calls: list[tuple[Any, ...]] = []
    group: list[tuple[int, Callable[[], Sequence[Any]]]] | None = None

    def submit(stream: int, begin: Callable[[], Sequence[Any]]) -> None:
        if group is not None:
            group.append((stream, begin))
        else:
            _together([(stream, begin)])

    def _together(calls: Sequence[tuple[int, Callable[[], Sequence[Any]]]]) -> None:
        (number,) = {stream for stream, _ in calls}

        def run() -> None:
            requests = [request for _, begin in calls for request in begin()]
            stream.waiting.appendleft(Underway(machine, stream, requests))

        stream = machine.streams[number - 1]
        machine.give(stream, run)

    def start() -> None:
        nonlocal group
        assert group is None
        group = []

    def end() -> None:
        nonlocal group
        assert group is not None
        actual, group = group, None
        _together(actual)

    class NcclCommunicator:
        """A communicator over a duplicate of `members`."""

        def __init__(self, count: int, uid: bytes, rank: int) -> None:
            assert (len(uid), type(uid)) == (128, bytes)
            self._comm = None if members is None else members.Dup()
            assert self._comm is None or (self._comm.size, self._comm.rank) == (count, rank)

        def _do(self, stream: int, name: str, *arguments: Any, begin: Callable[[Any], Sequence[Any]]) -> None:
            comm = self._comm
            calls.append((name, stream, *arguments))
            submit(stream, (lambda: ()) if comm is None else lambda: begin(comm))

        def check_async_error(self) -> None:
            if problem := result.lost:
                raise NcclError(problem)

        def abort(self) -> None:
            calls.append(("abort", 0))

        def destroy(self) -> None:
            calls.append(("destroy", 0))

        def allReduce(self, send: int, sums: int, count: int, kind: int, op: int, stream: int) -> None:  # noqa: N802  # CuPy's name
            assert op == 0
            self._do(stream, "allReduce", count, BY_NUMBER[kind], begin=lambda comm: [
                comm.Iallreduce(array(send, count, kind).copy(), array(sums, count, kind))
            ])  # fmt: skip

        def allGather(self, send: int, all_: int, count: int, kind: int, stream: int) -> None:  # noqa: N802  # CuPy's name
            self._do(stream, "allGather", count, BY_NUMBER[kind], begin=lambda comm: [
                comm.Iallgather(array(send, count, kind).copy(), array(all_, count * comm.size, kind))
            ])  # fmt: skip

        def reduceScatter(self, send: int, part: int, count: int, kind: int, op: int, stream: int) -> None:  # noqa: N802  # CuPy's name
            assert op == 0
            self._do(stream, "reduceScatter", count, BY_NUMBER[kind], begin=lambda comm: [
                comm.Ireduce_scatter_block(array(send, count * comm.size, kind).copy(), array(part, count, kind))
            ])  # fmt: skip

        def reduce(self, send: int, sums: int, count: int, kind: int, op: int, root: int, stream: int) -> None:
            assert op == 0
            self._do(stream, "reduce", count, BY_NUMBER[kind], begin=lambda comm: [
                comm.Ireduce(array(send, count, kind).copy(), array(sums, count, kind) if comm.rank == root else None,
                             root=root)
            ])  # fmt: skip

        def broadcast(self, send: int, theirs: int, count: int, kind: int, root: int, stream: int) -> None:
            assert send == theirs
            self._do(stream, "broadcast", count, BY_NUMBER[kind], begin=lambda comm: [
                comm.Ibcast(array(send, count, kind), root)
            ])  # fmt: skip

        def send(self, send: int, count: int, kind: int, to: int, stream: int) -> None:
            self._do(stream, "send", count, BY_NUMBER[kind], begin=lambda comm: [
                comm.Isend(array(send, count, kind), to)
            ])  # fmt: skip

        def recv(self, theirs: int, count: int, kind: int, source: int, stream: int) -> None:
            self._do(stream, "recv", count, BY_NUMBER[kind], begin=lambda comm: [
                comm.Irecv(array(theirs, count, kind), source)
            ])  # fmt: skip

    names = {f"NCCL_{name}": number for name, (number, _) in TYPES.items()}
    result = SimpleNamespace(
        available=True, lost="", get_version=lambda: 22707, get_unique_id=lambda: bytes(range(100, 228)),
        NcclError=NcclError, NcclCommunicator=NcclCommunicator, groupStart=start, groupEnd=end,
        NCCL_SUM=0, calls=calls, **names,
    )  # fmt: skip
    return result


def install(patch: pytest.MonkeyPatch, machine: Machine, members: Any = None) -> Any:
    """Install the CuPy of a machine with this stand-in for NCCL, and return the stand-in."""
    cupy, result = machine.cupy(), library(machine, members)
    cuda = ModuleType("cupy.cuda")
    cuda.nccl = result  # type: ignore[attr-defined]  # modules take any
    for name, module in {"cupy": cupy, "cupy.cuda": cuda, "cupy.cuda.nccl": result}.items():
        patch.setitem(sys.modules, name, module)
    return result
