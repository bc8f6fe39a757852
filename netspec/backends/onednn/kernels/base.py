"""`OneDnnKernel`: from a node to a bound primitive.

A kernel says which computation a node is and which operand is which argument. Where the library wants an argument in a
layout of its own (blocked weights), it is reordered through scratch memory, within the same call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from netspec.backends.onednn.constants import Arg
from netspec.backends.onednn.library import open_library, why_missing
from netspec.backends.onednn.memory import Memory, MemoryDesc
from netspec.backends.onednn.native import Engine, OneDnnError, open_engine
from netspec.backends.onednn.pointwise import reorder
from netspec.backends.onednn.primitive import PrimitiveDesc
from netspec.graph.kernel import Buffers, Kernel, Thunk
from netspec.graph.layout import Layout, Signature
from netspec.graph.plan import aligned
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node


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


def desc(kind: TensorType, layout: Layout, shape: tuple[int, ...] | None = None) -> MemoryDesc:
    """A value's memory; with `shape`, a plain value's under another shape."""
    if shape is not None:
        return MemoryDesc.strided(engine(), shape)
    last = Layout.channels_last(kind.rank) if kind.rank > 2 else layout
    if layout.is_plain(kind) and last.is_plain(kind):
        layout = last  # both lie alike, and are told alike
    return MemoryDesc.strided(engine(), kind.shape, layout.strides(kind))


@dataclass(frozen=True)
class Place:
    """An operand or a result of a node, and how its memory lies."""

    index: int
    desc: MemoryDesc
    output: bool = False


@dataclass(frozen=True)
class Computation:
    """A primitive and where its arguments come from."""

    primitive: PrimitiveDesc
    arguments: Mapping[int, Place]
    moved: tuple[int, ...] = ()
    """Arguments that the library wants in another layout than they have."""
    zeros: tuple[int, ...] = ()
    """Arguments that are the number 0."""

    @classmethod
    def of(cls, primitive: PrimitiveDesc, arguments: Mapping[int, Place], zeros: tuple[int, ...] = ()) -> Computation:
        """With the arguments that must be moved found out."""
        moved = tuple(one for one, place in arguments.items() if primitive[one] != place.desc)
        return cls(primitive, arguments, moved, zeros)

    @property
    def scratch(self) -> list[int]:
        """Bytes of the primitive's own scratch memory, then of each moved argument."""
        own = self.primitive.get(Arg.SCRATCHPAD)
        return [aligned(own.nbytes if own else 0), *(aligned(self.primitive[one].nbytes) for one in self.moved)]


class OneDnnKernel(Kernel):
    """Base of the kernels of this backend: float32 only, one primitive a node."""

    dtypes: ClassVar[tuple[DType, ...]] = (DType.FLOAT32,)

    def __init__(self) -> None:
        self._made: dict[Any, Computation] = {}

    def why_not(self, op: Any, *types: TensorType) -> str | None:
        wrong = next((kind.dtype for kind in types if kind.dtype not in self.dtypes), None)
        return f"oneDNN kernels compute in float32, not {wrong}" if wrong else self.declines(op, types)

    def declines(self, op: Any, types: Sequence[TensorType]) -> str | None:
        """Why this kernel cannot take the op, beyond the element types."""
        return None

    def describe(self, node: Node, layouts: Signature) -> Computation:
        """The computation that the node is, with its operands lying so."""
        raise NotImplementedError

    def computation(self, node: Node, layouts: Signature) -> Computation:
        """As `describe`, made once for all equal nodes."""
        key = node.op, tuple(value.type for value in node.inputs), layouts
        if key not in self._made:
            self._made[key] = self.describe(node, layouts)
        return self._made[key]

    def workspace(self, node: Node, layouts: Signature) -> int:
        return sum(self.computation(node, layouts).scratch)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        made = self.computation(node, buffers.layouts)
        pieces = _pieces(buffers.workspace, made.scratch)
        memories: dict[int, Memory] = {}
        before: list[Callable[[], None]] = []
        after: list[Callable[[], None]] = []
        for argument, place in made.arguments.items():
            array = (buffers.outputs if place.output else buffers.inputs)[place.index]
            if array is None:
                raise OneDnnError("bind", 0)
            given = Memory(place.desc, array)
            memories[argument] = given
            if argument in made.moved:
                wanted = made.primitive[argument]
                inner = Memory(wanted, pieces[1 + made.moved.index(argument)])
                memories[argument] = inner
                if place.output:
                    after.append(_move(wanted, place.desc, inner, given))
                else:
                    before.append(_move(place.desc, wanted, given, inner))
        for argument in made.zeros:
            memories[argument] = zero()
        own = made.primitive.get(Arg.SCRATCHPAD)
        if own is not None and own.nbytes:
            memories[Arg.SCRATCHPAD] = Memory(own, pieces[0])
        run = made.primitive.primitive().bind(memories)
        return _in_a_row([*before, run, *after])


def _move(source: MemoryDesc, target: MemoryDesc, given: Memory, made: Memory) -> Thunk:
    primitive = reorder(source, target)
    arguments: dict[int, Memory] = {Arg.SRC: given, Arg.DST: made}
    return primitive.primitive().bind(arguments)


def _in_a_row(thunks: Sequence[Thunk]) -> Thunk:
    if len(thunks) == 1:
        return thunks[0]

    def run() -> None:
        for thunk in thunks:
            thunk()

    return run


def _pieces(workspace: Any, sizes: Sequence[int]) -> list[Any]:
    pieces, start = [], 0
    for size in sizes:
        pieces.append(workspace[start : start + size] if size else None)
        start += size
    return pieces
