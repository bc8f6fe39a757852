"""The kernel registry: which code can run an op, on which backend, and why a faster one declines.

Kernels live in `backends/`, keyed by op class; nothing above them knows that they exist. A kernel for a base class
serves its subclasses. Among the kernels that accept a node the highest `rank` wins, unless the layouts that it wants
cost more than it gains: the layout pass weighs the ways in which kernels offer to run a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

from netspec.graph.fused import inner_traits
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.op import Op
from netspec.graph.rates import Rates, rates
from netspec.graph.types import DType, Precision, TensorType
from netspec.graph.value import Node

Thunk: TypeAlias = Callable[[], None]
"""One bound kernel call of a step: reads and writes the buffers it was bound to."""

Example: TypeAlias = tuple[Op, tuple[TensorType, ...]]
"""An op and the types of its operands."""


@dataclass(frozen=True)
class Buffers:
    """The memory a kernel is bound to: arrays of the operands, and of the results that anybody reads."""

    inputs: tuple[Any, ...]
    outputs: tuple[Any | None, ...]
    """None for a result that nobody reads: the kernel need not compute it."""
    layouts: Signature
    """How operands and results lie: what the kernel asked for."""
    workspace: Any | None = None
    """As many bytes as `Kernel.workspace` asked for; their content does not outlive the call."""


class Kernel:
    """Base of kernels: one way to run one op on one backend."""

    backend: ClassVar[str]
    rank: ClassVar[int]
    array_code: ClassVar[bool] = False
    """Whether it runs code of the array library, which warns of overflow and may have threads of its own."""
    hosted: ClassVar[bool] = False
    """Whether the processor takes part in each call of a device's: it waits for what comes before, and then does it."""
    tf32: ClassVar[bool] = False
    """Whether it rounds operands of float32 to ten bits of the mantissa before it multiplies them."""
    elements: ClassVar[tuple[DType, ...]] = ()
    """The element types that large operands must lie in; none where it takes them as they are."""

    deterministic: ClassVar[bool] = True
    """Whether it finds the same numbers each time, to the last bit."""

    overwrites: ClassVar[bool] = True
    """Whether its results may lie where operands do, of those that the op allows."""

    @property
    def label(self) -> str:
        """`backend:KernelClass`, as `netspec plan --kernels` prints it."""
        return f"{self.backend}:{type(self).__name__}"

    def absent(self) -> str | None:
        """Why it can take nothing on this machine, such as a processor without certain instructions; None if it can."""
        return None

    def samples(self) -> Sequence[Example]:
        """Calls that it takes, for the registry-wide tests: only where no sample of a layer or an op is one."""
        return ()

    def why_not(self, op: Any, *types: TensorType) -> str | None:
        """Why this kernel cannot take the op with operands of these types; None if it can."""
        return None

    def layouts(self, node: Node, given: Sequence[Layout]) -> Signature:
        """The layouts it reads and writes, where the operands lie as `given`; by default plain ones.

        An operand that lies otherwise than wanted is copied before the call.
        """
        return Signature((PLAIN,) * len(node.inputs), (PLAIN,) * len(node.outputs))

    def narrowed(self, node: Node, wanted: Signature) -> Signature | None:
        """How it reads and writes where elements may lie in fewer bits; None where it does not take them so.

        `wanted` is what `layouts` gave, with the element types that operands and results would best have in memory.
        """
        return None

    def alternatives(self, node: Node, given: Sequence[Layout]) -> Sequence[Signature]:
        """Other layouts that it could read and write: which cost less depends on the copies that they need."""
        return ()

    def variants(self, node: Node, lying: Signature) -> Sequence[Kernel]:
        """Other ways to do the same, of which it cannot tell which is fastest: they are for races alone."""
        return ()

    def seconds(self, node: Node, lying: Signature) -> float:
        """About what a call takes that reads and writes so, to be compared with other ways to run the node."""
        if not inner_traits(node.op).contracts:
            return roofline(node, lying)
        return roofline(node, lying, rates().of_products(multiplied_in(node, lying, tf32=self.tf32)))

    def threads(self, node: Node) -> int | None:
        """The number of threads that must be set when it is bound and called; None if that does not matter to it."""
        return None

    def workspace(self, node: Node, layouts: Signature) -> int:
        """Bytes of scratch memory a call needs."""
        return 0

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Prepare everything once; the returned thunk only runs. It must write into the given outputs."""
        raise NotImplementedError  # abstract: subclasses say


def multiplied_in(node: Node, lying: Signature, *, tf32: bool) -> Precision:
    """The precision in which a node multiplies operands that lie so; float32 is rounded with `tf32`."""
    stored = lying.inputs[0].stored(node.inputs[0].type)
    if not stored.is_float:
        return Precision.FLOAT32
    return Precision.TF32 if tf32 and stored == DType.FLOAT32 else Precision(stored)


def traffic(node: Node, lying: Signature) -> int:
    """Bytes that a node reads and writes where operands and results lie so."""
    values, layouts = (*node.inputs, *node.outputs), (*lying.inputs, *lying.outputs)
    return sum(layout.nbytes(value.type) for value, layout in zip(values, layouts, strict=True))


def roofline(node: Node, lying: Signature, flops_per_second: float | None = None) -> float:
    """Seconds that the arithmetic of a node takes, or the memory that it reads and writes, whichever is more.

    Default: at the rate of float32 of the machine that is planned for.
    """
    flops = node.op.flops(*(value.type for value in node.inputs))
    return max(flops / (flops_per_second or rates().flops), moving(traffic(node, lying)))


def moving(nbytes: int) -> float:
    """Seconds that it takes to read or write so many bytes on the machine that is planned for."""
    return rates().moving(nbytes)


def large_narrowed(node: Node, wanted: Signature) -> Signature:
    """The signature with fewer bits for values of the first operand's shape alone: not for the vectors beside them."""
    shape = node.inputs[0].shape
    lying = [
        layout if value.shape == shape else layout.as_stored(None)
        for value, layout in zip((*node.inputs, *node.outputs), (*wanted.inputs, *wanted.outputs), strict=True)
    ]
    return Signature(tuple(lying[: len(node.inputs)]), tuple(lying[len(node.inputs) :]))


@dataclass(frozen=True)
class Offer:
    """One way to run a node: a kernel, and how it reads and writes then."""

    kernel: Kernel
    layouts: Signature
    seconds: float
    """What a call takes, as the kernel rates itself, or as it was measured."""
    raced: bool = False
    """Whether it was measured, beside the others."""


@dataclass(frozen=True)
class Choice:
    """The kernel chosen for a node, and the others that were considered, with the reasons against them."""

    kernel: Kernel
    declined: tuple[tuple[str, str], ...] = ()
    seconds: float | None = None
    """What it took in a race, if there was one."""

    @property
    def label(self) -> str:
        """The kernel's."""
        return self.kernel.label


@dataclass(frozen=True)
class Candidates:
    """The kernels that take a node, the highest rank first, and those that do not, with their reasons."""

    kernels: tuple[Kernel, ...]
    declined: tuple[tuple[Kernel, str], ...]


class Kernels(Protocol):
    """Who knows kernels, and how fast they are: a device."""

    @property
    def rates(self) -> Rates:
        """What the machine does in a second."""

    @property
    def races(self) -> bool:
        """Whether somebody looks how long kernels take."""

    def candidates(self, node: Node, precision: Precision = Precision.FLOAT32) -> Candidates:
        """Those that take a node where values may be rounded so. Raises `NoKernelError` where none does."""

    def measured(self, node: Node, offers: Sequence[Offer]) -> Sequence[float] | None:
        """Seconds that each takes, operands lying as it wants them; None where nobody looks or has looked."""


_kernels: dict[type[Op], list[Kernel]] = {}


def kernel(*ops: type[Op], backend: str, rank: int) -> Callable[[type[Kernel]], type[Kernel]]:
    """Class decorator: register a kernel for the op classes (and their subclasses)."""

    def register(cls: type[Kernel]) -> type[Kernel]:
        cls.backend, cls.rank = backend, rank
        made = cls()
        for op in ops:
            _kernels.setdefault(op, []).append(made)
        return cls

    return register


def registered(backends: Sequence[str]) -> list[Kernel]:
    """All kernels of these backends."""
    return list(dict.fromkeys(one for several in _kernels.values() for one in several if one.backend in backends))


def kernels_for(op: type[Op], backends: Iterable[str]) -> list[Kernel]:
    """The registered kernels of these backends for an op class, the highest rank first."""
    allowed = set(backends)
    found = [one for base in op.__mro__ for one in _kernels.get(base, ()) if one.backend in allowed]
    return sorted(dict.fromkeys(found), key=lambda one: -one.rank)


class NoKernelError(Exception):
    """No kernel of the device takes a node."""


def reason_against(
    one: Kernel, op: Op, types: Sequence[TensorType], precision: Precision, *, deterministic: bool
) -> str | None:
    """Why a kernel is not for an op on operands of these types; None where it is.

    Values may be rounded as `precision` says; not `deterministic`: it may find other numbers each time, but for
    rounding.
    """
    if one.tf32 and precision != Precision.TF32:
        return "it rounds to tf32, and `precision` is not"
    if one.elements and precision.stored not in one.elements:
        return f"its operands lie as {' or '.join(one.elements)}, and `precision` is {precision}"
    if deterministic and not one.deterministic:
        return "it adds up in another order each time, and `deterministic` is not false"
    return one.why_not(op, *types)


def candidates(
    node: Node, backends: Sequence[str], precision: Precision = Precision.FLOAT32, *, deterministic: bool = True
) -> Candidates:
    """The kernels of these backends that take the node; the reference's alone where there is no other.

    `precision` and `deterministic` as in `reason_against`. Raises `NoKernelError` with all reasons.
    """
    types = [value.type for value in node.inputs]
    accepting: list[Kernel] = []
    declined: list[tuple[Kernel, str]] = []
    for one in kernels_for(type(node.op), backends):
        if accepting and one.rank <= 0:
            break
        reason = reason_against(one, node.op, types, precision, deterministic=deterministic)
        if reason is None:
            accepting.append(one)
        else:
            declined.append((one, reason))
    if not accepting:
        reasons = "; ".join(f"{one.label}: {reason}" for one, reason in declined) or "none is registered"
        raise NoKernelError(f"no kernel of {', '.join(backends)} runs {node.op.name}: {reasons}")
    return Candidates(tuple(accepting), tuple(declined))
