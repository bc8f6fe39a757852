"""The kernel registry: which code can run an op, on which backend, and why a faster one declines.

Kernels live in `backends/`, keyed by op class; nothing above them knows that they exist. A kernel for a base class
serves its subclasses. Among the kernels that accept a node the highest `rank` wins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.op import Op
from netspec.graph.types import TensorType
from netspec.graph.value import Node

Thunk: TypeAlias = Callable[[], None]
"""One bound kernel call of a step: reads and writes the buffers it was bound to."""


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

    @property
    def label(self) -> str:
        """`backend:KernelClass`, as `netspec plan --kernels` prints it."""
        return f"{self.backend}:{type(self).__name__}"

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

    def steady_layouts(self, node: Node, given: Sequence[Layout], steady: Collection[int]) -> Signature:
        """As `layouts`, where the operands of these numbers change so seldom that copies of them cost nothing."""
        return self.layouts(node, given)

    def threads(self, node: Node) -> int | None:
        """The number of threads that must be set when it is bound and called; None if that does not matter to it."""
        return None

    def workspace(self, node: Node, layouts: Signature) -> int:
        """Bytes of scratch memory a call needs."""
        return 0

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Prepare everything once; the returned thunk only runs. It must write into the given outputs."""
        raise NotImplementedError


def large_narrowed(node: Node, wanted: Signature) -> Signature:
    """The signature with fewer bits for values of the first operand's shape alone: not for the vectors beside them."""
    shape = node.inputs[0].shape
    lying = [
        layout if value.shape == shape else layout.as_stored(None)
        for value, layout in zip((*node.inputs, *node.outputs), (*wanted.inputs, *wanted.outputs), strict=True)
    ]
    return Signature(tuple(lying[: len(node.inputs)]), tuple(lying[len(node.inputs) :]))


@dataclass(frozen=True)
class Choice:
    """The kernel chosen for a node, and the faster ones that declined, with their reasons."""

    kernel: Kernel
    declined: tuple[tuple[str, str], ...] = ()
    seconds: float | None = None
    """What it took in a race, if there was one; those who lost are among the declined."""

    @property
    def label(self) -> str:
        """The kernel's."""
        return self.kernel.label


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


def kernels_for(op: type[Op], backends: Iterable[str]) -> list[Kernel]:
    """The registered kernels of these backends for an op class, the highest rank first."""
    allowed = set(backends)
    found = [one for base in op.__mro__ for one in _kernels.get(base, ()) if one.backend in allowed]
    return sorted(dict.fromkeys(found), key=lambda one: -one.rank)


def accepting(node: Node, backends: Iterable[str]) -> list[Kernel]:
    """The kernels of these backends that take the node, the highest rank first."""
    types = [value.type for value in node.inputs]
    return [one for one in kernels_for(type(node.op), backends) if one.why_not(node.op, *types) is None]


class NoKernelError(Exception):
    """No kernel of the device takes a node."""


def choose(node: Node, backends: Sequence[str]) -> Choice:
    """The best kernel of these backends that takes the node. Raises `NoKernelError` with all reasons."""
    types = [value.type for value in node.inputs]
    declined: list[tuple[str, str]] = []
    for one in kernels_for(type(node.op), backends):
        reason = one.why_not(node.op, *types)
        if reason is None:
            return Choice(one, tuple(declined))
        declined.append((one.label, reason))
    reasons = "; ".join(f"{name}: {reason}" for name, reason in declined) or "none is registered"
    raise NoKernelError(f"no kernel of {', '.join(backends)} runs {node.op.name}: {reasons}")
