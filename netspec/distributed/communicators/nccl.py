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

TYPES = {
    "float16": ("NCCL_FLOAT16", 2), "bfloat16": ("NCCL_BFLOAT16", 2), "float32": ("NCCL_FLOAT32", 4),
    "float64": ("NCCL_FLOAT64", 8), "uint8": ("NCCL_UINT8", 1),
}  # fmt: skip
"""NCCL's name of each element type, and the bytes of an element."""
INSTALL = "pip install 'nvidia-nccl-cu13>=2.27.7,<3', or 'nvidia-nccl-cu12' with CUDA 12"


def library() -> Any | None:
    """CuPy's module for NCCL; None where there is no CuPy, or it finds no library."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says by a warning that there is no library
            from cupy.cuda import nccl
    except ImportError:
        return None
    return nccl if nccl.available else None


WHEELS = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")


def installed() -> str | None:
    """Which NCCL is there, with or without a GPU: what CuPy loads, else a package that it does not; None without."""
    if (found := version()) is not None:
        return f"{found}, which CuPy loads"
    for name in WHEELS:
        with suppress(PackageNotFoundError):
            return f"{metadata.version(name)} of {name}, which no CuPy loads"
    return None


def version() -> str | None:
    """The library's version, such as 2.27.7; None where it is missing."""
    nccl = library()
    if nccl is None:
        return None
    number = int(nccl.get_version())  # since 2.9 major · 10000 + minor · 100 + patch
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def missing() -> InputError | None:
    """Return the error for several workers on GPUs if there is no NCCL."""
    if library() is not None:
        return None
    return InputError("several workers on GPUs need NCCL", got="CuPy finds no library", hint=INSTALL)


class Nccl:
    """The GPUs of all workers, which make the same calls in the same order."""

    def __init__(self, workers: Communicator) -> None:
        """All come here, with their GPUs current. Raises `InputError` without NCCL, `RunError` where it can't begin."""
        if (error := missing()) is not None:
            raise error
        nccl: Any = library()
        self._nccl, self._workers = nccl, workers
        # Connections are made now: by the first sum of each group a worker would wait in it for another that waits in
        # the first sum of the other group.
        os.environ.setdefault("NCCL_RUNTIME_CONNECT", "0")
        told = workers.broadcast_object([int(one) for one in nccl.get_unique_id()] if workers.is_first else None)
        # It waits for the others where the watchdog sees nothing: all are there, since all have been told.
        with self._told("NCCL can't bring the workers' GPUs together"):
            self._comm = nccl.NcclCommunicator(workers.size, bytes(told), workers.rank)

    def check(self) -> None:
        """Raise `RunError` where NCCL has found out that what was started will never be done."""
        with self._told("NCCL has lost another worker's GPU"):
            self._comm.check_async_error()

    def meet(self) -> None:
        """Have all send each other a byte: what is sent from one to one is connected by the first such call, which

        waits on the host. `NCCL_RUNTIME_CONNECT` is of collective calls only.
        """
        import cupy

        size = self._workers.size
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            told = cupy.zeros(2 * size, cupy.uint8)
        self._exchange(told.data.ptr, told.data.ptr + size, 1, stream.ptr)
        self._met = stream, told  # until this is done

    def abort(self) -> None:
        """Have this GPU stop waiting for others: what was started is never done, and nothing can be started."""
        self._comm.abort()

    def destroy(self) -> None:
        """End it, once all that was started is done; all come here. It waits until no graph refers to it."""
        self._comm.destroy()

    def all_reduce(self, place: int, count: int, dtype: str, stream: int) -> None:
        """Replace numbers by the sums of all workers'."""
        kind, nbytes = self._kind(dtype)
        self._workers.sent += all_reduce_volume(count * nbytes, self._workers.size)
        with self._told():
            self._comm.allReduce(place, place, count, kind, self._nccl.NCCL_SUM, stream)

    def all_gather(self, mine: int, all_: int, nbytes: int, stream: int) -> None:
        """Gather `nbytes` bytes of each worker, in the order of ranks; `mine` may point into `all_`."""
        self._workers.sent += all_gather_volume(nbytes, self._workers.size)
        with self._told():
            self._comm.allGather(mine, all_, nbytes, self._nccl.NCCL_UINT8, stream)

    def all_to_all(self, mine: int, theirs: int, nbytes: int, stream: int) -> None:
        """Send the i-th block of `nbytes` bytes to worker i, and receive a block of worker i at the same offset."""
        self._workers.sent += all_to_all_volume(nbytes * self._workers.size, self._workers.size)
        self._exchange(mine, theirs, nbytes, stream)

    def _exchange(self, mine: int, theirs: int, nbytes: int, stream: int) -> None:
        kind = self._nccl.NCCL_UINT8
        with self._grouped():
            for rank in range(self._workers.size):
                self._comm.send(mine + rank * nbytes, nbytes, kind, rank, stream)
                self._comm.recv(theirs + rank * nbytes, nbytes, kind, rank, stream)

    def reduce_scatter(self, whole: int, part: int, counts: Sequence[int], dtype: str, stream: int) -> None:
        """Sum over workers; each worker receives its part. `counts`: elements of each part."""
        kind, nbytes = self._kind(dtype)
        self._workers.sent += all_to_all_volume(sum(counts) * nbytes, self._workers.size)
        total = self._nccl.NCCL_SUM
        if len(set(counts)) == 1:
            with self._told():
                self._comm.reduceScatter(whole, part, counts[0], kind, total, stream)
            return
        with self._grouped():  # NCCL's reduce-scatter requires parts of equal size
            for rank, (start, count) in enumerate(_parts(counts)):
                if count:
                    self._comm.reduce(whole + start * nbytes, part, count, kind, total, rank, stream)

    def gather_parts(self, whole: int, counts: Sequence[int], dtype: str, stream: int) -> None:
        """Gather all parts in place: `whole` holds this worker's part. `counts`: elements of each part."""
        kind, nbytes = self._kind(dtype)
        self._workers.sent += all_to_all_volume(sum(counts) * nbytes, self._workers.size)
        if len(set(counts)) == 1:
            own = whole + self._workers.rank * counts[0] * nbytes
            with self._told():
                self._comm.allGather(own, whole, counts[0], kind, stream)
            return
        with self._grouped():
            for rank, (start, count) in enumerate(_parts(counts)):
                place = whole + start * nbytes
                if count:
                    self._comm.broadcast(place, place, count, kind, rank, stream)

    def _kind(self, dtype: str) -> tuple[int, int]:
        name, nbytes = TYPES[dtype]
        return getattr(self._nccl, name), nbytes

    @contextmanager
    def _grouped(self) -> Iterator[None]:
        """Calls that are one to NCCL: none of them waits for another."""
        with self._told():
            self._nccl.groupStart()
            try:
                yield
            finally:
                self._nccl.groupEnd()

    @contextmanager
    def _told(self, what: str = "NCCL can't carry what workers sum up") -> Iterator[None]:
        try:
            yield
        except self._nccl.NcclError as error:
            raise RunError(what, got=str(error), hint="NCCL_DEBUG=INFO in the environment has it say more") from error


def _parts(counts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where each part begins, and how many numbers it has."""
    return zip(accumulate(counts, initial=0), counts, strict=False)


_groups: dict[tuple[Communicator, bool], Nccl] = {}


def gpus(workers: Communicator, *, apart: bool = False) -> Nccl:
    """The GPUs of these workers; those that are `apart` are in an order of their own.

    All come here the first time, whichever they ask for: workers with other numbers of samples need them in other
    orders, so that both are made then.
    """
    if (workers, apart) not in _groups:
        if not _groups:
            on_abort(forget_graphs)
            atexit.register(leave)
        for order in (False, True):
            made = _groups[workers, order] = Nccl(workers)
            # A GPU that waits for another one does so for ever, and its process may not end before.
            on_abort(made.abort)
            made.meet()
    return _groups[workers, apart]


def forget_graphs() -> None:
    """Drop all of them."""
    for owner in list(communicating_graphs):
        owner.forget()


def leave() -> None:
    """End all groups, in the order in which they were made, before Python tears down what holds graphs."""
    forget_graphs()
    while _groups:
        with suppress(Exception):  # the next one is ended all the same
            _groups.pop(next(iter(_groups))).destroy()


def check_groups() -> None:
    """Raise `RunError` if NCCL has found that a started call can never complete."""
    for group in _groups.values():
        group.check()
