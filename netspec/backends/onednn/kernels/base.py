"""`OneDnnKernel`: from a node to a bound primitive.

A kernel says which computation a node is and which operand is which argument. Where the library wants an argument in a
layout of its own (blocked weights), that is an opaque layout of the value: the layout pass has it reordered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from netspec.backends.onednn.constants import Arg, DataType
from netspec.backends.onednn.library import open_library, why_missing
from netspec.backends.onednn.memory import DTYPES, Memory, MemoryDesc
from netspec.backends.onednn.native import Engine, OneDnnError, open_engine
from netspec.backends.onednn.primitive import PrimitiveDesc
from netspec.backends.openmp import thread_count, using_threads
from netspec.graph.kernel import Buffers, Kernel, Thunk, roofline
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.rates import CORE
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

SHARED_BYTES_PER_SECOND = 5e10
"""About what one core moves from and to the caches of all."""
SERIAL_SECONDS = 5e-6
"""What takes one thread less is done by one. A second thread that spins costs 1.5 µs, one that sleeps 25 µs or more."""


def engine() -> Engine:
    """The engine of the library that was found. Raises `RunError` where there is none."""
    library = open_library()
    if library is None:
        raise RuntimeError(why_missing())
    return open_engine(library)


@cache
def zero() -> Memory:
    """The number 0 as an argument."""
    import numpy as np

    return Memory.of(engine(), np.zeros(1, np.float32))


def data_type(kind: TensorType, layout: Layout) -> DataType:
    """The library's word for the elements of a value in memory."""
    return DTYPES[layout.stored(kind)]


def desc(kind: TensorType, layout: Layout, shape: tuple[int, ...] | None = None) -> MemoryDesc:
    """A value's memory; with `shape`, a plain value's under another shape."""
    dtype = data_type(kind, layout)
    if shape is not None:
        return MemoryDesc.strided(engine(), shape, dtype=dtype)
    last = Layout.channels_last(kind.rank) if kind.rank > 2 else layout
    if layout.is_plain(kind) and last.is_plain(kind):
        layout = last  # both lie alike, and are told alike
    return MemoryDesc.strided(engine(), kind.shape, layout.strides(kind), dtype)


@dataclass(frozen=True)
class Packed:
    """A form of the library's own, and how the value lies that is reordered into it."""

    plain: MemoryDesc
    memory: MemoryDesc

    @property
    def nbytes(self) -> int:
        """Bytes of the memory, padding included."""
        return self.memory.nbytes

    def __str__(self) -> str:
        return str(self.memory)


@dataclass(frozen=True)
class _Any:
    """A form for the library to choose."""

    nbytes: int = 0


CHOSEN = Layout(form=_Any())
"""A wish: the layout that the library likes best, which may be the plain one."""


@dataclass(frozen=True)
class Place:
    """An operand or a result of a node, and how its memory lies where it lies in no form of the library's own."""

    index: int
    desc: MemoryDesc
    output: bool = False


@dataclass(frozen=True)
class Computation:
    """A primitive and where its arguments come from."""

    primitive: PrimitiveDesc
    arguments: Mapping[int, Place]
    zeros: tuple[int, ...] = ()
    """Arguments that are the number 0."""

    def signature(self, wished: Signature) -> Signature:
        """The layouts as wished, and those that the library chose."""
        inputs, outputs = list(wished.inputs), list(wished.outputs)
        for argument, place in self.arguments.items():
            wanted, layouts = self.primitive[argument], outputs if place.output else inputs
            if wanted != place.desc:
                packed, narrow = Packed(place.desc, wanted), wanted.dtype is DataType.BF16
                layouts[place.index] = Layout(form=packed, dtype=DType.BFLOAT16 if narrow else None)
            elif layouts[place.index] == CHOSEN:
                layouts[place.index] = PLAIN
        return Signature(tuple(inputs), tuple(outputs))


def products_per_second(lying: Signature) -> float:
    """Floating-point operations of a core that multiplies the first operand, as it lies."""
    if lying.inputs[0].dtype is not DType.BFLOAT16:
        return CORE.flops
    return CORE.flops * (2 if engine().library.multiplies_bfloat16 else 0.5)  # else it is emulated


def why_slow(make: Callable[[], PrimitiveDesc]) -> str | None:
    """Why not to run a computation: the library has no code for it, or only code for any processor."""
    try:
        name = make().implementation
    except OneDnnError as error:
        return f"oneDNN says {error.reason}"
    return f"oneDNN has nothing faster than `{name}` for it" if name.endswith(":any") else None


class OneDnnKernel(Kernel):
    """Base of the kernels of this backend: one primitive a node, of float32 values, which may lie as bfloat16."""

    dtypes: ClassVar[tuple[DType, ...]] = (DType.FLOAT32,)

    def __init__(self) -> None:
        self._made: dict[Any, tuple[Computation, Signature]] = {}

    def why_not(self, op: Any, *types: TensorType) -> str | None:
        wrong = next((kind.dtype for kind in types if kind.dtype not in self.dtypes), None)
        return f"oneDNN kernels compute in float32, not {wrong}" if wrong else self.declines(op, types)

    def declines(self, op: Any, types: Sequence[TensorType]) -> str | None:
        """Why this kernel cannot take the op, beyond the element types."""
        return None

    def describe(self, node: Node, layouts: Signature) -> Computation:
        """The computation that the node is, with its operands lying so."""
        raise NotImplementedError  # abstract: subclasses say

    def wished(self, node: Node, given: Sequence[Layout]) -> Signature:
        """The layouts to describe the computation with, `CHOSEN` among them, where the operands lie as `given`."""
        return Signature((PLAIN,) * len(node.inputs), (PLAIN,) * len(node.outputs))

    def layouts(self, node: Node, given: Sequence[Layout]) -> Signature:
        return self.found(node, self.wished(node, given))

    def found(self, node: Node, wished: Signature) -> Signature:
        """The layouts that the computation described so has."""
        return self._known(node, wished)[1]

    def threads(self, node: Node) -> int:
        """One for a call that is done before a second thread has begun."""
        values = (*node.inputs, *node.outputs)
        flops, nbytes = node.op.flops(*(value.type for value in node.inputs)), sum(one.type.nbytes for one in values)
        small = max(flops / CORE.flops, nbytes / SHARED_BYTES_PER_SECOND) < SERIAL_SECONDS
        return 1 if small else thread_count()

    def seconds(self, node: Node, lying: Signature) -> float:
        return roofline(node, lying, self.flops_per_second(node, lying))

    def flops_per_second(self, node: Node, lying: Signature) -> float:
        """What a core computes of the node's arithmetic."""
        return CORE.flops

    def narrowed(self, node: Node, wanted: Signature) -> Signature | None:
        """The signature as `stored` has it, where the library has fast code for it."""
        layouts = self.stored(_wish(wanted))
        if layouts is None:
            return None
        try:
            made, signature = self._known(node, layouts)
        except OneDnnError:
            return None
        return None if made.primitive.implementation.endswith(":any") else signature

    def stored(self, wanted: Signature) -> Signature | None:
        """The element types that the kernel reads and writes of those wanted; None where it has none for them."""
        return None

    def computation(self, node: Node, layouts: Signature) -> Computation:
        """As `describe`, made once for all equal nodes."""
        return self._known(node, layouts)[0]

    def _known(self, node: Node, layouts: Signature) -> tuple[Computation, Signature]:
        """The computation, and the layouts of everything it reads and writes."""
        wished, threads = _wish(layouts), self.threads(node)
        key = node.op, tuple(value.type for value in node.inputs), wished, threads
        if key not in self._made:
            with using_threads(threads):
                made = self.describe(node, wished)
            self._made[key] = made, made.signature(wished)
        return self._made[key]

    def workspace(self, node: Node, layouts: Signature) -> int:
        return self.computation(node, layouts).primitive.scratchpad_bytes

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        made = self.computation(node, buffers.layouts)
        memories: dict[int, Memory] = {}
        for argument, place in made.arguments.items():
            array = buffers.outputs[place.index] if place.output else buffers.inputs[place.index]
            if array is None:
                array = _unread(place.desc)
            lies = (buffers.layouts.outputs if place.output else buffers.layouts.inputs)[place.index]
            memories[argument] = Memory(lies.form.memory if isinstance(lies.form, Packed) else place.desc, array)
        for argument in made.zeros:
            memories[argument] = zero()
        if buffers.workspace is not None:
            memories[Arg.SCRATCHPAD] = Memory(made.primitive[Arg.SCRATCHPAD], buffers.workspace)
        with using_threads(self.threads(node)):
            primitive = made.primitive.primitive()
        return primitive.bind(memories)


def _unread(memory: MemoryDesc) -> Any:
    """Memory for a result that nobody reads, so that it is not in the plan: the library computes all of them."""
    import numpy as np

    return np.empty(memory.nbytes, np.uint8)


def _wish(layouts: Signature) -> Signature:
    """What led to these layouts: whatever lies in a form was for the library to choose, its element type too."""

    def wish(layout: Layout) -> Layout:
        return CHOSEN if layout.form is not None else layout

    return Signature(tuple(map(wish, layouts.inputs)), tuple(map(wish, layouts.outputs)))
