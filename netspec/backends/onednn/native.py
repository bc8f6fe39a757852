"""Calls of the C interface: conversion of arguments, ownership of objects, and errors."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

from netspec.backends.onednn.constants import Status
from netspec.backends.onednn.library import OneDnnLibrary
from netspec.errors import RunError

Pointer: TypeAlias = ctypes.c_void_p


class OneDnnError(RunError):
    """A call of oneDNN failed. `code` is the status: `Status.UNIMPLEMENTED` if there is no code for these arguments."""

    def __init__(self, function: str, code: int) -> None:
        self.function = function
        self.code = code
        super().__init__(f"oneDNN cannot do this: {function} says {self.reason}")

    @property
    def reason(self) -> str:
        """The status as text."""
        return Status(self.code).name.lower().replace("_", " ") if self.code in set(Status) else f"status {self.code}"


class OneDnnEngine:
    """oneDNN's CPU engine, and the stream in which its primitives run in order.

    One per library and process, never destroyed, so that it outlives all other objects. Primitives run on the thread
    that calls them and end before the call returns; only one thread may use the stream at a time.
    """

    CPU = 1
    IN_ORDER = 1

    def __init__(self, library: OneDnnLibrary) -> None:
        """Call `open_engine` instead, which makes one engine per library."""
        self.library = library
        self.pointer, self.stream = Pointer(), Pointer()
        self.call("engine_create", ctypes.byref(self.pointer), self.CPU, ctypes.c_size_t(0))
        self.call("stream_create", ctypes.byref(self.stream), self.pointer, self.IN_ORDER)

    def call(self, function: str, *arguments: Any) -> None:
        """Call `dnnl_{function}`; raises `OneDnnError` unless it succeeds."""
        code = getattr(self.library.functions, f"dnnl_{function}")(*map(c_argument, arguments))
        if code:
            raise OneDnnError(function, code)


@cache
def open_engine(library: OneDnnLibrary) -> OneDnnEngine:
    """The engine of the library."""
    return OneDnnEngine(library)


class OneDnnObject:
    """A C object that is destroyed together with the Python object that owns it."""

    def __init__(self, engine: OneDnnEngine, kind: str, pointer: Pointer) -> None:
        self.engine = engine
        self.pointer = pointer
        destroy: Callable[..., Any] = getattr(engine.library.functions, f"dnnl_{kind}_destroy")
        # at exit nothing is destroyed: the order would be arbitrary
        weakref.finalize(self, destroy, pointer).atexit = False


def c_argument(value: Any) -> Any:
    """A Python value as C expects it. The same rules apply to all functions; their argument types are not declared.

    None → NULL; a handle → its pointer; int (an enumeration) → int; float → float; a tuple of ints → dnnl_dims_t;
    a list of handles → an array of their pointers.
    Other types of C (`size_t`, `dnnl_dim_t`, pointers to results) are given as ctypes objects.
    """
    match value:
        case None:
            return Pointer()
        case OneDnnObject() | OneDnnEngine():
            return value.pointer
        case bool():
            raise TypeError("no function of oneDNN takes a bool")
        case int():
            return ctypes.c_int(value)
        case float():
            return ctypes.c_float(value)
        case tuple():
            return dims(value)
        case list():
            return (Pointer * len(value))(*(handle.pointer.value for handle in value))
        case _:
            return value


def dims(sizes: tuple[int, ...]) -> ctypes.Array[ctypes.c_int64]:
    """`dnnl_dims_t`: sizes, strides or offsets along the axes. Only as many are read as there are axes."""
    return (ctypes.c_int64 * len(sizes))(*sizes)
