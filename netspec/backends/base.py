"""`Device`: memory and arrays of what a program runs on, behind one interface."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

from netspec.backends.steps import Bound, Steps
from netspec.errors import InputError
from netspec.graph.kernel import Candidates, Offer, Thunk, candidates, kernels_for, reason_against, registered
from netspec.graph.layout import PLAIN, Layout
from netspec.graph.op import Op, Xp
from netspec.graph.plan import Plan
from netspec.graph.rates import CORE, Rates
from netspec.graph.types import DType, Precision, TensorType
from netspec.graph.value import Node

if TYPE_CHECKING:
    from netspec.backends.tuning import Tuner


def missing_backends(names: Sequence[str]) -> dict[str, str]:
    """The backends that cannot be used here, with the reason that each gives (`missing() -> str | None`).

    The environment's NETSPEC_KERNELS, names between commas, leaves the others out.
    """
    found = {}
    for name in names:
        reason = import_module(f"netspec.backends.{name}").missing() if allowed(name) else "NETSPEC_KERNELS omits it"
        if reason is not None:
            found[name] = reason
    return found


def allowed(name: str) -> bool:
    """Whether the environment's NETSPEC_KERNELS, where it is set, leaves a backend in."""
    wanted = os.environ.get("NETSPEC_KERNELS", "")
    return not wanted or name in {"reference", "workers", "nccl", *(one.strip() for one in wanted.split(","))}


def rounds_more(name: str) -> bool:
    """Whether a backend's kernels round more than sums of products in some order do."""
    return bool(getattr(import_module(f"netspec.backends.{name}"), "ROUNDS_MORE", False))


def assumed(name: str, gpu: str) -> str | None:
    """Why a backend's kernels are planned for a GPU that is not there as it is assumed that they are; None if they are

    as its library says, or need none to be planned (`assumed(gpu) -> str | None` of its package).
    """
    asked = getattr(import_module(f"netspec.backends.{name}"), "assumed", None)
    return None if asked is None else asked(gpu)


def numpy_type(dtype: DType) -> str:
    """NumPy's name of an element type, made known to NumPy if it is not its own."""
    if dtype == DType.BFLOAT16:
        import ml_dtypes  # noqa: F401, TID251  # it registers the type
    return str(dtype)


def processor() -> str:
    """The processor's name, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "flags"))]
    return " ".join(dict.fromkeys(names))


class Device:
    """Base of devices. An arena is opaque; a view of it is an array of the device's namespace."""

    name: ClassVar[str]
    backends: ClassVar[tuple[str, ...]]
    """Backends that have kernels for such a device."""
    runs: ClassVar[bool] = True
    """False for a device that only plans."""
    tuner: Tuner | None = None
    """Who measures where several kernels can serve; without one, they rate themselves."""
    rates: Rates = CORE
    """What the machine does in a second, by which kernels rate themselves."""
    narrow: tuple[DType, ...] = ()
    """Types of fewer bits than float32 that values may lie in."""
    sums_itself: bool = False
    """Whether what the programs of several workers sum up goes from device to device, past the communicator."""
    prefers_bytes: bool = False
    """Whether images had better come as bytes, of which programs make numbers there."""
    slots: int = 0
    """Places on the device for the inputs of a run, beside the one that it reads them from."""
    direct: bool = False
    """Whether to leave out the backends that round more than direct sums (`ROUNDS_MORE` of their packages)."""
    remark: str | None = None
    """What there is to say of why it is this device, where that was left open."""
    deterministic: bool = True
    """Whether to leave out kernels that do not find the same numbers each time, to the last bit."""

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        """Those of `backends` that can be used here."""
        missing = missing_backends(self.backends)
        return tuple(name for name in self.backends if name not in missing and not (self.direct and rounds_more(name)))

    def allocate(self, nbytes: int) -> Any:
        """Memory for so many bytes, all zero."""
        raise NotImplementedError  # abstract: subclasses say

    def computing(self, dtype: DType) -> str:
        """The option that names devices which compute in a type of fewer bits than float32, where this one does not."""
        return "`--device cuda`"

    def share(self, nbytes: int) -> Any:
        """Memory that all workers of this host have in common. Raises `InputError` on a device that has none."""
        raise InputError(
            f"workers can't share the memory of the device `{self.name}`",
            expected="`--device cpu`, or a strategy that shares none",
        )  # fmt: skip

    def view(self, arena: Any, offset: int, kind: TensorType, layout: Layout = PLAIN) -> Any:
        """An array of the given type at `offset` bytes in the arena; in an opaque layout, a row of elements."""
        raise NotImplementedError  # abstract: subclasses say

    def upload(self, array: Any, host: Any) -> None:
        """Write a NumPy array into a device array; its type is converted. Raises `ValueError` for another shape."""
        raise NotImplementedError  # abstract: subclasses say

    def copier(self, target: Any, source: Any) -> Thunk:
        """A call that writes one device array into another of the same type, and as many elements."""
        raise NotImplementedError  # abstract: subclasses say

    def fetch(self, array: Any) -> Any:
        """A NumPy copy of a device array."""
        raise NotImplementedError  # abstract: subclasses say

    def wait(self) -> None:
        """Return when everything is done that was started."""

    def free_bytes(self) -> int | None:
        """Memory that could be allocated now; None where that is not known."""
        return None

    def settle(self) -> None:
        """Give back to the system what compiling, or making first values, has taken and no longer needs."""

    def running(self) -> AbstractContextManager[object]:
        """What kernels run inside of, where one of them runs array code."""
        return nullcontext()

    def planning(self) -> AbstractContextManager[object]:
        """What a plan is made inside of."""
        return nullcontext()

    def around(self, *, array_code: bool) -> Callable[[], AbstractContextManager[object]]:
        """Makes what a program runs inside of. Entering the processor's takes 10 µs, a twentieth of a small step."""
        return self.running if array_code else nullcontext

    def guarding(self) -> AbstractContextManager[object]:
        """What those calls of a program are bound inside of that must not write when a guard was not finite."""
        return nullcontext()

    def steps(self, bound: Bound) -> Steps:
        """What runs the calls of a program."""
        return Steps(self, bound)

    def notes(self, plan: Plan) -> list[str]:
        """What there is to say of how a program runs here, in sentences."""
        return []

    def threads(self) -> int:
        """How many threads a kernel called from this thread may use, where the device's kernels share a pool."""
        return 1

    def set_threads(self, count: int) -> None:
        """Set that number."""

    def timed(self, call: Thunk, least: float) -> float:
        """Mean seconds of a call, over as many calls as fill `least` seconds."""
        calls, start = 0, perf_counter()
        while True:
            call()
            calls += 1
            passed = perf_counter() - start
            if passed >= least:
                return passed / calls

    def identity(self) -> list[Any]:
        """What times depend on, beside the libraries that `about` tells of: plain data."""
        from netspec.backends.openmp import thread_count

        return [processor(), os.cpu_count(), thread_count()]

    def about(self) -> dict[str, str]:
        """What runs the kernels of each backend."""
        return {name: import_module(f"netspec.backends.{name}").about() for name in self.kernels}

    def describe(self) -> dict[str, Any]:
        """What `netspec devices` says of it."""
        return {
            "name": self.name,
            "kernels": list(self.kernels),
            "about": self.about(),
            "missing": missing_backends(self.backends),
        }

    def candidates(self, node: Node, precision: Precision = Precision.FLOAT32) -> Candidates:
        """The kernels that take a node where values may be rounded so. Raises `NoKernelError` where none does."""
        key = node.op, tuple(value.type for value in node.inputs), precision
        if key not in self._candidates:
            self._candidates[key] = candidates(node, self.kernels, precision, deterministic=self.deterministic)
        return self._candidates[key]

    @property
    def has_tf32(self) -> bool:
        """Whether some of its kernels multiply float32 faster by rounding it to tf32."""
        return any(one.tf32 for one in registered(self.kernels))

    @cached_property
    def _candidates(self) -> dict[tuple[Op, tuple[TensorType, ...], Precision], Candidates]:
        """Those of the nodes that were asked for."""
        return {}

    @property
    def races(self) -> bool:
        """Whether there is a tuner."""
        return self.tuner is not None

    def measured(self, node: Node, offers: Sequence[Offer]) -> Sequence[float] | None:
        """Seconds that each offer takes, if there is a tuner and it has looked, now or before."""
        return None if self.tuner is None else self.tuner.measured(node, offers)

    def accepts(self, op: Op, types: Sequence[TensorType], precision: Precision = Precision.FLOAT32) -> bool:
        """Whether a kernel above the reference takes the op on operands of these types, where they are rounded so."""
        fast = (one for one in kernels_for(type(op), self.kernels) if one.rank > 0)
        return any(reason_against(one, op, types, precision, deterministic=self.deterministic) is None for one in fast)

    def load_kernels(self) -> None:
        """Import the kernels of this device's backends, so that they are registered."""
        for backend in self.kernels:
            import_module(f"netspec.backends.{backend}.kernels")


class ArrayDevice(Device):
    """Base of devices whose arrays are those of NumPy, or of a library that speaks like it."""

    xp: Xp
    """The array namespace."""

    def view(self, arena: Any, offset: int, kind: TensorType, layout: Layout = PLAIN) -> Any:
        """A NumPy array at the offset: of the given shape, with the strides of the layout; flat in an opaque one."""
        flat = arena[offset : offset + layout.nbytes(kind)].view(numpy_type(layout.stored(kind)))
        return flat if layout.form is not None else layout.arranged(flat, kind)

    def upload(self, array: Any, host: Any) -> None:
        """Copy, converting the element type."""
        given = self.xp.asarray(host)
        if given.shape != array.shape:  # NumPy would repeat a smaller array without a word
            raise ValueError(f"an array of shape {given.shape} does not fill one of shape {array.shape}")
        self.xp.copyto(array, given, casting="unsafe")

    def copier(self, target: Any, source: Any) -> Thunk:
        """Copy the elements; views of one state may differ in shape."""
        copyto, alike = self.xp.copyto, source.reshape(target.shape)
        return lambda: copyto(target, alike)

    def fetch(self, array: Any) -> Any:
        """A copy."""
        return array.copy()
