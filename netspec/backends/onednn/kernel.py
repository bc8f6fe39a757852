"""`OneDnnKernel`: from a node to a bound primitive.

A kernel defines the computation of a node and the operand of each argument. If the library needs a layout that only it
knows (blocked weights), the value gets an opaque layout, and the layout pass inserts a reorder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

from netspec.backends.onednn.constants import Arg, DataType
from netspec.backends.onednn.library import open_library, unavailable_reason
from netspec.backends.onednn.memory import DTYPES, Memory, MemoryDesc
from netspec.backends.onednn.native import OneDnnEngine, OneDnnError, open_engine
from netspec.backends.onednn.primitive import PrimitiveDesc
from netspec.backends.openmp import thread_count, using_threads
from netspec.graph.cost_model import DEFAULT_CORE
from netspec.graph.kernel import Buffers, Kernel, Thunk, roofline_seconds
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

SHARED_BYTES_PER_SECOND = 5e10
"""Bytes that one core moves to and from the shared cache in a second, approximately."""
SERIAL_SECONDS = 5e-6
"""Seconds below which one thread is used. Waking a second thread costs 1.5 µs if it spins, 25 µs or more if it
sleeps.
"""


def engine() -> OneDnnEngine:
    """The library's engine. Raises `RunError` if there is no library."""
    library = open_library()
    if library is None:
        raise RuntimeError(unavailable_reason())
    return open_engine(library)


@cache
def zero_memory() -> Memory:
    """The constant 0 as an argument."""
    return Memory.of(engine(), np.zeros(1, np.float32))


def data_type(kind: TensorType, layout: Layout) -> DataType:
    """The library's element type of a value in memory."""
    return DTYPES[layout.stored_dtype(kind)]


def desc(kind: TensorType, layout: Layout, shape: tuple[int, ...] | None = None) -> MemoryDesc:
    """Describe a value's memory; with `shape`, that of a plain value with another shape."""
    dtype = data_type(kind, layout)
    if shape is not None:
        return MemoryDesc.strided(engine(), shape, dtype=dtype)
    last = Layout.channels_last(kind.rank) if kind.rank > 2 else layout
    if layout.is_plain(kind) and last.is_plain(kind):
        layout = last  # both have the same layout and description
    return MemoryDesc.strided(engine(), kind.shape, layout.strides(kind), dtype)


@dataclass(frozen=True)
class PackedLayout:
    """A layout that only the library knows, and the plain layout that is reordered into it."""

    plain: MemoryDesc
    memory: MemoryDesc

    @property
    def nbytes(self) -> int:
        """Bytes of the memory, padding included."""
        return self.memory.nbytes

    def __str__(self) -> str:
        return str(self.memory)


@dataclass(frozen=True)
class _ChosenLayout:
    """A layout for the library to choose."""

    nbytes: int = 0


CHOSEN = Layout(opaque=_ChosenLayout())
"""Request for the layout that the library prefers, which may be plain."""


@dataclass(frozen=True)
class Operand:
    """An operand or result of a node, and its memory before a reorder into the library's own layout, if any."""

    index: int
    desc: MemoryDesc
    output: bool = False


@dataclass(frozen=True)
class Computation:
    """A primitive, and the operands of its arguments."""

    primitive: PrimitiveDesc
    arguments: Mapping[int, Operand]
    zeros: tuple[int, ...] = ()
    """Arguments that are the constant 0."""

    @classmethod
    def of_one(
        cls, primitive: PrimitiveDesc, x: MemoryDesc, y: MemoryDesc, arguments: tuple[Arg, Arg] = (Arg.SRC, Arg.DST)
    ) -> Computation:
        """The computation of a node with a single operand and a single result, passed as these arguments."""
        source, target = arguments
        return cls(primitive, {source: Operand(0, x), target: Operand(0, y, output=True)})

    def signature(self, requested: LayoutSignature) -> LayoutSignature:
        """Return the requested layouts, with those that the library has chosen filled in."""
        inputs, outputs = list(requested.inputs), list(requested.outputs)
        for argument, operand in self.arguments.items():
            chosen, layouts = self.primitive[argument], outputs if operand.output else inputs
            if chosen != operand.desc:
                packed, narrow = PackedLayout(operand.desc, chosen), chosen.dtype is DataType.BF16
                layouts[operand.index] = Layout(opaque=packed, dtype=DType.BFLOAT16 if narrow else None)
            elif layouts[operand.index] == CHOSEN:
                layouts[operand.index] = PLAIN
        return LayoutSignature(tuple(inputs), tuple(outputs))


def products_per_second(signature: LayoutSignature) -> float:
    """Floating-point operations per second of a core, for the element type of the first operand."""
    if signature.inputs[0].dtype is not DType.BFLOAT16:
        return DEFAULT_CORE.flops_per_second
    return DEFAULT_CORE.flops_per_second * (
        2 if engine().library.multiplies_bfloat16 else 0.5
    )  # otherwise it is emulated


def slow_reason(make: Callable[[], PrimitiveDesc]) -> str | None:
    """Return why a computation should not run: it is unsupported, or only generic code supports it."""
    try:
        name = make().implementation
    except OneDnnError as error:
        return f"oneDNN says {error.reason}"
    return f"oneDNN has nothing faster than `{name}` for it" if name.endswith(":any") else None


class OneDnnKernel(Kernel):
    """Base class: one primitive per node, with values in float32 or bfloat16."""

    dtypes: ClassVar[tuple[DType, ...]] = (DType.FLOAT32,)
    max_elements: ClassVar[int] = 2**31 - 1
    """The library uses 32-bit sizes and offsets, and aborts the process if they overflow."""

    def __init__(self) -> None:
        self._computations: dict[Any, tuple[Computation, LayoutSignature]] = {}

    def reject_reason(self, op: Any, *types: TensorType) -> str | None:
        wrong = next((kind.dtype for kind in types if kind.dtype not in self.dtypes), None)
        return f"oneDNN kernels compute in float32, not {wrong}" if wrong else self.decline_reason(op, types)

    def decline_reason(self, op: Any, types: Sequence[TensorType]) -> str | None:
        """Return why this kernel cannot run the op, apart from element types."""
        return None

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        """The computation of the node with these layouts."""
        raise NotImplementedError  # abstract

    def requested_layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        """The layouts for describing the computation, possibly `CHOSEN`; operands are stored as `offered`."""
        return LayoutSignature((PLAIN,) * len(node.inputs), (PLAIN,) * len(node.outputs))

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        return self.described_layouts(node, self.requested_layouts(node, offered))

    def described_layouts(self, node: Node, requested: LayoutSignature) -> LayoutSignature:
        """The final layouts of the computation that is described with the requested layouts."""
        return self._cached(node, requested)[1]

    def threads(self, node: Node) -> int:
        """Use one thread for a call that ends before a second thread would start."""
        values = (*node.inputs, *node.outputs)
        flops, nbytes = (
            node.op.flops(*(value.type for value in node.inputs)),
            sum(value.type.nbytes for value in values),
        )
        small = max(flops / DEFAULT_CORE.flops_per_second, nbytes / SHARED_BYTES_PER_SECOND) < SERIAL_SECONDS
        return 1 if small else thread_count()

    def estimated_seconds(self, node: Node, signature: LayoutSignature) -> float:
        return roofline_seconds(node, signature, self.flops_per_second(node, signature))

    def flops_per_second(self, node: Node, signature: LayoutSignature) -> float:
        """Estimated arithmetic throughput of one core, in FLOP per second."""
        return DEFAULT_CORE.flops_per_second

    def low_precision_signature(self, node: Node, preferred: LayoutSignature) -> LayoutSignature | None:
        """The signature with the element types of `storage_layouts`, if the library has fast code for it."""
        layouts = self.storage_layouts(_requested_layouts(preferred))
        if layouts is None:
            return None
        try:
            computation, signature = self._cached(node, layouts)
        except OneDnnError:
            return None
        return None if computation.primitive.implementation.endswith(":any") else signature

    def storage_layouts(self, requested: LayoutSignature) -> LayoutSignature | None:
        """The requested layouts, with the 16-bit types that the kernel supports; None if it supports none."""
        return None

    def computation(self, node: Node, layouts: LayoutSignature) -> Computation:
        """Like `describe`, cached for equal nodes."""
        return self._cached(node, layouts)[0]

    def _cached(self, node: Node, layouts: LayoutSignature) -> tuple[Computation, LayoutSignature]:
        """The computation, and the layouts of its operands and results."""
        requested, threads = _requested_layouts(layouts), self.threads(node)
        key = node.op, tuple(value.type for value in node.inputs), requested, threads
        if key not in self._computations:
            with using_threads(threads):
                computation = self.describe(node, requested)
            self._computations[key] = computation, computation.signature(requested)
        return self._computations[key]

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        return self.computation(node, signature).primitive.scratchpad_bytes

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        computation = self.computation(node, buffers.layouts)
        memories: dict[int, Memory] = {}
        for argument, operand in computation.arguments.items():
            array = buffers.outputs[operand.index] if operand.output else buffers.inputs[operand.index]
            if array is None:
                array = _unread(operand.desc)
            layout = (buffers.layouts.outputs if operand.output else buffers.layouts.inputs)[operand.index]
            memories[argument] = Memory(
                layout.opaque.memory if isinstance(layout.opaque, PackedLayout) else operand.desc, array
            )
        for argument in computation.zeros:
            memories[argument] = zero_memory()
        if buffers.workspace is not None:
            memories[Arg.SCRATCHPAD] = Memory(computation.primitive[Arg.SCRATCHPAD], buffers.workspace)
        with using_threads(self.threads(node)):
            primitive = computation.primitive.primitive()
        return primitive.bind(memories)


def _unread(memory: MemoryDesc) -> Any:
    """Memory for a result that is not read, and so is not in the plan: the library computes all results."""
    return np.empty(memory.nbytes, np.uint8)


def _requested_layouts(layouts: LayoutSignature) -> LayoutSignature:
    """Requests that lead to these layouts: the library has chosen the opaque ones, including element types."""

    def request(layout: Layout) -> Layout:
        return CHOSEN if layout.opaque is not None else layout

    return LayoutSignature(tuple(map(request, layouts.inputs)), tuple(map(request, layouts.outputs)))
