"""`PrimitiveDesc`, a supported computation, and `Primitive`, its code, ready to be bound."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self, TypeAlias

from netspec.backends.onednn.attributes import Attributes, BinaryPostOp, PReluPostOp
from netspec.backends.onednn.constants import Arg, Query, Status, multiple_src, post_op_src, post_op_weights
from netspec.backends.onednn.memory import Memory, MemoryDesc, same
from netspec.backends.onednn.native import OneDnnEngine, OneDnnError, OneDnnObject, Pointer

Arguments: TypeAlias = Mapping[int, Memory] | Mapping[Arg, Memory]


class PrimitiveDesc(OneDnnObject):
    """A computation on described memory, with a chosen implementation and the required layout of each argument."""

    def __init__(
        self,
        engine: OneDnnEngine,
        kind: str,
        arguments: tuple[Any, ...],
        attributes: Attributes | None = None,
        unused: frozenset[int] = frozenset(),
    ) -> None:
        """Created by `dnnl_{kind}_primitive_desc_create`. Raises `OneDnnError` if it is not supported.

        `unused` are arguments that the library describes, but rejects when they are given.
        """
        self.attributes = attributes or Attributes(engine)
        pointer = Pointer()
        engine.call(f"{kind}_primitive_desc_create", ctypes.byref(pointer), *arguments, self.attributes)
        super().__init__(engine, "primitive_desc", pointer)
        self._kind, self._arguments, self._unused, self._skipped = kind, arguments, unused, 0

    @classmethod
    def make(
        cls,
        engine: OneDnnEngine,
        kind: str,
        *arguments: Any,
        attributes: Attributes | None = None,
        unused: frozenset[int] = frozenset(),
    ) -> Self:
        """Create a computation whose first argument is the engine: any except a reorder."""
        return cls(engine, kind, (engine, *arguments), attributes, unused)

    def __getitem__(self, argument: int) -> MemoryDesc:
        """The memory that an argument must have. Raises `KeyError` if the computation has no such argument."""
        memory = self.find(argument)
        if memory is None:
            raise KeyError(argument)
        return MemoryDesc.copy_of(self.engine, memory)

    def get(self, argument: int) -> MemoryDesc | None:
        """The memory that an argument must have; None if there is no such argument, or it needs no memory."""
        memory = self.find(argument)
        return None if memory is None else MemoryDesc.copy_of(self.engine, memory)

    def find(self, argument: int) -> Pointer | None:
        """Like `get`, but borrowed: valid while this object lives."""
        if argument in self._unused:
            return None
        query = self.engine.library.functions.dnnl_primitive_desc_query_md
        pointer = Pointer(query(self.pointer, ctypes.c_int(Query.EXEC_ARG), ctypes.c_int(argument)))
        if not pointer.value:
            return None
        rank = ctypes.c_int()
        self.engine.call("memory_desc_query", pointer, Query.RANK, ctypes.byref(rank))
        return pointer if rank.value else None

    @property
    def scratchpad_bytes(self) -> int:
        """Scratch memory that a call needs as `Arg.SCRATCHPAD`; its content does not outlive the call."""
        desc = self.get(Arg.SCRATCHPAD)
        return desc.nbytes if desc else 0

    @property
    def arguments(self) -> list[int]:
        """Arguments that must be bound, including bias and workspaces."""
        candidates = [int(argument) for argument in Arg]
        candidates += [multiple_src(index) for index in range(self.count(Query.INPUTS))]
        candidates += [post_op_src(i) for i, op in enumerate(self.attributes.post_ops) if isinstance(op, BinaryPostOp)]
        return [argument for argument in candidates if self.find(argument) is not None] + self.slopes

    @property
    def slopes(self) -> list[int]:
        """The slopes of PReLU post-ops, which the library does not describe."""
        return [post_op_weights(i) for i, op in enumerate(self.attributes.post_ops) if isinstance(op, PReluPostOp)]

    def count(self, query: Query) -> int:
        """The number of its inputs or outputs: `Query.INPUTS`, `Query.OUTPUTS`."""
        result = ctypes.c_int()
        self.engine.call("primitive_desc_query", self, query, 0, ctypes.byref(result))
        return result.value

    @property
    def implementation(self) -> str:
        """Name of the implementation, e.g. `brgconv:avx512_core` or `ref:any`."""
        text = ctypes.c_char_p()
        self.engine.call("primitive_desc_query", self, Query.IMPLEMENTATION, 0, ctypes.byref(text))
        return (text.value or b"").decode()

    def alternatives(self) -> Iterator[PrimitiveDesc]:
        """The computation with each later implementation, in the library's order of preference."""
        skipped = self._skipped
        while True:
            skipped += 1
            other = PrimitiveDesc(self.engine, self._kind, self._arguments, self.attributes, self._unused)
            try:
                for _ in range(skipped):
                    self.engine.call("primitive_desc_next_impl", other)
            except OneDnnError as error:
                if error.code == Status.LAST_IMPL_REACHED:
                    return
                raise
            other._skipped = skipped
            yield other

    def primitive(self) -> Primitive:
        """Generate its code, or take it from the library's cache."""
        return Primitive(self)


class _ExecArg(ctypes.Structure):
    """`dnnl_exec_arg_t`."""

    _fields_ = (("argument", ctypes.c_int), ("memory", ctypes.c_void_p))


class Primitive(OneDnnObject):
    """The code of a computation, which can be bound to addresses any number of times."""

    def __init__(self, desc: PrimitiveDesc) -> None:
        pointer = Pointer()
        desc.engine.call("primitive_create", ctypes.byref(pointer), desc)
        super().__init__(desc.engine, "primitive", pointer)
        self.desc = desc

    def bind(self, arguments: Arguments) -> Callable[[], None]:
        """A thunk that runs the primitive on these memories and does nothing else; it keeps all of them alive.

        Raises `ValueError` for an argument that is missing, unknown, or not laid out as `desc[argument]` says: the
        library itself does not look.
        """
        self._check(arguments)
        items = [_ExecArg(int(argument), memory.pointer) for argument, memory in arguments.items()]
        array = (_ExecArg * len(items))(*items)
        execute = self.engine.library.functions.dnnl_primitive_execute
        pointer, stream, count = self.pointer, self.engine.stream, ctypes.c_int(len(items))
        alive = (self, *arguments.values())  # `array` holds plain addresses: the thunk must keep their owners alive

        def run(_: object = alive) -> None:
            code = execute(pointer, stream, count, array)
            if code:
                raise OneDnnError("primitive_execute", code)

        return run

    def _check(self, arguments: Arguments) -> None:
        missing = set(self.desc.arguments) - {int(argument) for argument in arguments}
        if missing:
            raise ValueError(f"{self.desc.implementation}: {_names(missing)} missing")
        for argument, memory in arguments.items():
            if int(argument) in self.desc.slopes:
                continue
            required = self.desc.find(int(argument))
            if required is None:
                raise ValueError(f"{self.desc.implementation} takes no {_names([argument])}")
            if not same(self.engine, required, memory.desc.pointer):
                raise ValueError(f"{_names([argument])} is {memory.desc}, expected {self.desc[argument]}")


def _names(arguments: Any) -> str:
    named = {int(argument) for argument in Arg}
    return ", ".join(
        Arg(argument).name.lower() if argument in named else str(argument) for argument in sorted(arguments)
    )
