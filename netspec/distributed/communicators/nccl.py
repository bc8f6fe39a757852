"""Communication between the GPUs of several workers: NCCL, called through CuPy.

MPI carries the messages of the CPUs and sets up the communicator of the GPUs. A call only enqueues its work on a
stream: nothing waits for it here, and it can be part of a CUDA graph. Arrays are passed by their addresses.
"""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from importlib.metadata import PackageNotFoundError
from itertools import accumulate
from typing import Any

from netspec.backends.process_group import communicating_graphs
from netspec.distributed.communicators.base import Communicator, all_gather_volume, all_reduce_volume, all_to_all_volume
from netspec.distributed.monitoring.abort_hooks import on_abort
from netspec.errors import InputError, RunError

NCCL_TYPES = {
    "float16": ("NCCL_FLOAT16", 2), "bfloat16": ("NCCL_BFLOAT16", 2), "float32": ("NCCL_FLOAT32", 4),
    "float64": ("NCCL_FLOAT64", 8), "uint8": ("NCCL_UINT8", 1),
}  # fmt: skip
"""NCCL's name of each element type, and the bytes of an element."""
INSTALL = "pip install 'nvidia-nccl-cu13>=2.27.7,<3', or 'nvidia-nccl-cu12' with CUDA 12"


def library() -> Any | None:
    """Return CuPy's module for NCCL; None if CuPy is missing or finds no library."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CuPy warns if there is no library
            from cupy.cuda import nccl
    except ImportError:
        return None
    return nccl if nccl.available else None


PYPI_PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")


def installed_version() -> str | None:
    """Return the version of the NCCL that CuPy loads, or of a package that it doesn't load; None without NCCL."""
    if (loaded := version()) is not None:
        return f"{loaded}, which CuPy loads"
    for name in PYPI_PACKAGES:
        with suppress(PackageNotFoundError):
            return f"{metadata.version(name)} of {name}, which no CuPy loads"
    return None


def version() -> str | None:
    """Return the library's version, such as 2.27.7; None if it is missing."""
    nccl = library()
    if nccl is None:
        return None
    number = int(nccl.get_version())  # since 2.9 major · 10000 + minor · 100 + patch
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def unavailable_error() -> InputError | None:
    """Return the error for several workers on GPUs if there is no NCCL."""
    if library() is not None:
        return None
    return InputError("several workers on GPUs need NCCL", got="CuPy finds no library", hint=INSTALL)


class NcclGroup:
    """A communicator between the GPUs of all workers, which make the same calls in the same order."""

    def __init__(self, workers: Communicator) -> None:
        """Collective; each worker's GPU must be current. Raises `InputError` without NCCL, or `RunError`."""
        if (error := unavailable_error()) is not None:
            raise error
        nccl: Any = library()
        self._nccl, self._workers = nccl, workers
        # Connect now. If each group connected in its first sum, one worker could wait there for a worker that waits in
        # the first sum of the other group.
        os.environ.setdefault("NCCL_RUNTIME_CONNECT", "0")
        unique_id = workers.broadcast_object([int(byte) for byte in nccl.get_unique_id()] if workers.is_first else None)
        # The watchdog doesn't see this wait. All workers are here, since all have received the id.
        with self._reporting_errors("NCCL can't connect the workers' GPUs"):
            self._comm = nccl.NcclCommunicator(workers.size, bytes(unique_id), workers.rank)

    def check(self) -> None:
        """Raise `RunError` if NCCL has found that a started call can never complete."""
        with self._reporting_errors("NCCL has lost another worker's GPU"):
            self._comm.check_async_error()

    def connect_peers(self) -> None:
        """Have all workers send each other a byte, which connects them.

        Otherwise the first point-to-point call would wait on the host: `NCCL_RUNTIME_CONNECT` only covers collective
        calls.
        """
        import cupy

        size = self._workers.size
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            buffer = cupy.zeros(2 * size, cupy.uint8)
        self._exchange(buffer.data.ptr, buffer.data.ptr + size, 1, stream.ptr)
        self._connection_buffer = stream, buffer  # kept until the exchange is complete

    def abort(self) -> None:
        """Cancel the started calls, so that this GPU stops waiting for others. No call can be started afterwards."""
        self._comm.abort()

    def destroy(self) -> None:
        """End the group, a collective call, after all started calls. Waits until no CUDA graph refers to the group."""
        self._comm.destroy()

    def all_reduce(self, array: int, count: int, dtype: str, stream: int) -> None:
        """Replace `count` elements by their sums over all workers."""
        kind, nbytes = self._nccl_type(dtype)
        self._workers.sent += all_reduce_volume(count * nbytes, self._workers.size)
        with self._reporting_errors():
            self._comm.allReduce(array, array, count, kind, self._nccl.NCCL_SUM, stream)

    def all_gather(self, send: int, receive: int, nbytes: int, stream: int) -> None:
        """Gather `nbytes` bytes of each worker, in the order of ranks; `send` may point into `receive`."""
        self._workers.sent += all_gather_volume(nbytes, self._workers.size)
        with self._reporting_errors():
            self._comm.allGather(send, receive, nbytes, self._nccl.NCCL_UINT8, stream)

    def all_to_all(self, send: int, receive: int, nbytes: int, stream: int) -> None:
        """Send the i-th block of `nbytes` bytes to worker i, and receive a block of worker i at the same offset."""
        self._workers.sent += all_to_all_volume(nbytes * self._workers.size, self._workers.size)
        self._exchange(send, receive, nbytes, stream)

    def _exchange(self, send: int, receive: int, nbytes: int, stream: int) -> None:
        kind = self._nccl.NCCL_UINT8
        with self._group_call():
            for rank in range(self._workers.size):
                self._comm.send(send + rank * nbytes, nbytes, kind, rank, stream)
                self._comm.recv(receive + rank * nbytes, nbytes, kind, rank, stream)

    def reduce_scatter(self, buffer: int, part: int, counts: Sequence[int], dtype: str, stream: int) -> None:
        """Sum over workers; each worker receives its part. `counts`: elements of each part."""
        kind, nbytes = self._nccl_type(dtype)
        self._workers.sent += all_to_all_volume(sum(counts) * nbytes, self._workers.size)
        total = self._nccl.NCCL_SUM
        if len(set(counts)) == 1:
            with self._reporting_errors():
                self._comm.reduceScatter(buffer, part, counts[0], kind, total, stream)
            return
        with self._group_call():  # NCCL's reduce-scatter requires parts of equal size
            for rank, (start, count) in enumerate(_offsets_and_counts(counts)):
                if count:
                    self._comm.reduce(buffer + start * nbytes, part, count, kind, total, rank, stream)

    def all_gatherv(self, buffer: int, counts: Sequence[int], dtype: str, stream: int) -> None:
        """Gather all parts in place: `buffer` holds this worker's part. `counts`: elements of each part."""
        kind, nbytes = self._nccl_type(dtype)
        self._workers.sent += all_to_all_volume(sum(counts) * nbytes, self._workers.size)
        if len(set(counts)) == 1:
            own_part = buffer + self._workers.rank * counts[0] * nbytes
            with self._reporting_errors():
                self._comm.allGather(own_part, buffer, counts[0], kind, stream)
            return
        with self._group_call():
            for rank, (start, count) in enumerate(_offsets_and_counts(counts)):
                address = buffer + start * nbytes
                if count:
                    self._comm.broadcast(address, address, count, kind, rank, stream)

    def _nccl_type(self, dtype: str) -> tuple[int, int]:
        name, nbytes = NCCL_TYPES[dtype]
        return getattr(self._nccl, name), nbytes

    @contextmanager
    def _group_call(self) -> Iterator[None]:
        """Group the calls of a block: none of them waits for another."""
        with self._reporting_errors():
            self._nccl.groupStart()
            try:
                yield
            finally:
                self._nccl.groupEnd()

    @contextmanager
    def _reporting_errors(self, message: str = "NCCL failed to exchange data between workers") -> Iterator[None]:
        try:
            yield
        except self._nccl.NcclError as error:
            raise RunError(
                message, got=str(error), hint="set NCCL_DEBUG=INFO in the environment for details"
            ) from error


def _offsets_and_counts(counts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Return the offset and the number of elements of each part."""
    return zip(accumulate(counts, initial=0), counts, strict=False)


_groups: dict[tuple[Communicator, bool], NcclGroup] = {}


def nccl_group(workers: Communicator, *, blocking: bool = False) -> NcclGroup:
    """Return the NCCL group of these workers; `blocking` calls have a separate group, and so a separate order.

    The first call is collective and creates both groups: workers with different numbers of samples may need them in
    different orders.
    """
    if (workers, blocking) not in _groups:
        if not _groups:
            on_abort(forget_graphs)
            atexit.register(destroy_groups)
        for order in (False, True):
            group = _groups[workers, order] = NcclGroup(workers)
            # Otherwise a GPU would wait for a lost worker's GPU forever, and its process could not end.
            on_abort(group.abort)
            group.connect_peers()
    return _groups[workers, blocking]


def forget_graphs() -> None:
    """Drop all CUDA graphs that contain communication."""
    for owner in list(communicating_graphs):
        owner.forget()


def destroy_groups() -> None:
    """End all groups, in the order of their creation, before Python destroys the owners of graphs."""
    forget_graphs()
    while _groups:
        with suppress(Exception):  # go on with the next group
            _groups.pop(next(iter(_groups))).destroy()


def check_groups() -> None:
    """Raise `RunError` if NCCL has found that a started call can never complete."""
    for group in _groups.values():
        group.check()
