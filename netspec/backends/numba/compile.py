"""Compile a generated module with numba to an object file with one function.

numba compiles `run` to LLVM IR. A function of one argument, the entry point, is added; LLVM inlines `run` into it and
optimizes the result. Before that, `run` gets numba's passes for functions but not those for modules, which took a
fifth of the compile time and made no kernel faster.

The argument is an array of 64-bit words: `words[0]` and `words[1]` are the addresses of OpenMP's `omp_get_thread_num`
and `omp_get_num_threads` (0 without OpenMP), `words[2]` is the number of units of work; the others are the arguments of
`run`: addresses, integers, and bits of floats.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any, cast

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types as numba_types
from numba.core import codegen, registry
from numba.core import compiler as numba_compiler
from numba.core.compiler_lock import global_compiler_lock

from netspec.backends.numba import math_functions
from netspec.backends.numba.bfloat16 import BFLOAT16_POINTER
from netspec.backends.numba.native import (
    FIXED,
    Argument,
    CompiledFunction,
    ConstArg,
    Literal,
    Number,
    Pointer,
    Type,
    pack,
)
from netspec.graph.types import DType

# numba is only partly typed
types, compiler, cpu_target = (cast("Any", part) for part in (numba_types, numba_compiler, registry.cpu_target))

FUNCTIONS = (
    "exp", "expm1", "log", "log1p", "pow", "sqrt", "sin", "cos", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh", "floor", "ceil", "rint", "fmod",
)  # fmt: skip
LIBRARY_CALLS = {"memset", "memcpy", "memmove", *FUNCTIONS, *(f"{name}f" for name in FUNCTIONS)}
"""Functions that machine code may call: the C and math libraries, which every process has."""

OPTIONS = (
    # LLVM does not vectorize a loop if more pointers than this (8 by default) must be compared first.
    "-runtime-memory-check-threshold=256",
    # Compare pointers row by row: over all rows at once, columns of one matrix seem to overlap.
    "-hoist-runtime-checks=false",
)
"""Settings of LLVM. Increment `native.ABI` when they change."""

WORD, INT, DOUBLE = ir.IntType(64), ir.IntType(32), ir.DoubleType()
FIRST_ARGUMENT = 3
"""Index of the first word that belongs to an argument of `run`."""

_set: list[str] = []


class _ObjectLibrary(codegen.AOTCodeLibrary):
    """A module that becomes an object file. numba's own libraries would also be loaded into this process."""

    def _finalize_final_module(self) -> None:
        self._finalized = True


class _InlinedLibrary(_ObjectLibrary):
    """A module that is linked into another module, and optimized as a part of it.

    Its functions are simplified first: otherwise LLVM does not vectorize loops of max pooling, LRN and others.
    """

    def _optimize_final_module(self) -> None:
        """Do nothing: the module that this one is linked into is optimized."""


def _new_library(name: str, kind: Any = _ObjectLibrary) -> Any:
    return kind(cpu_target.target_context.codegen(), name)


def compile_module(module: ModuleType, arguments: Sequence[Argument]) -> bytes:
    """Return the packed object code of a module's `run`, compiled for these arguments.

    Raises `RuntimeError` if the code calls functions that a process without numba does not have.
    """
    _set_up()
    library = _new_library("entry")
    with global_compiler_lock:
        run = _compile_run(module.run, arguments)
        library.add_ir_module(_entry(module.__name__, run, arguments))
        library.add_linking_library(run.library)
        library.finalize()
    unresolved = set(re.findall(r"^declare .*?@\"?([\w.$]+)", library.get_llvm_str(), re.MULTILINE))
    unresolved = {name for name in unresolved if not name.startswith("llvm.")} - LIBRARY_CALLS
    if unresolved:
        raise RuntimeError(f"{module.__name__} calls {', '.join(sorted(unresolved))}: it cannot run outside of numba")
    return pack(module.__name__, library.emit_native_object())


def _compile_run(run: Any, arguments: Sequence[Argument]) -> Any:
    """Compile the function for these arguments to LLVM IR."""
    kinds = (types.int64, types.int64, *map(_numba_type, arguments))
    flags = compiler.Flags()
    cpu_target.options.parse_as_flags(flags, run.targetoptions)
    flags.no_compile = True
    typing, target, library = cpu_target.typing_context, cpu_target.target_context, _new_library("run", _InlinedLibrary)
    return compiler.compile_extra(typing, target, run.py_func, kinds, types.none, flags, {}, library)


def _numba_type(argument: Argument) -> Any:
    """The numba type of an argument of `run`."""
    if isinstance(argument, Pointer):
        return BFLOAT16_POINTER if argument.dtype == DType.BFLOAT16 else types.CPointer(_element_type(argument.dtype))
    if isinstance(argument, Literal):
        return types.literal(argument.value)
    if isinstance(argument, ConstArg):
        return types.bool_ if argument.dtype == DType.BOOL else _element_type(argument.dtype)
    if isinstance(argument, CompiledFunction):
        return types.Dispatcher(getattr(math_functions, f"{argument.name}_{argument.dtype}"))
    if isinstance(argument, Type):
        return types.NumberClass(getattr(types, argument.name))
    return _element_type(argument.dtype) if isinstance(argument, Number) else types.int64


def _element_type(dtype: DType) -> Any:
    return types.uint8 if dtype == DType.BOOL else getattr(types, dtype)


def _entry(name: str, run: Any, arguments: Sequence[Argument]) -> ir.Module:
    """Return a module with the C function `name`, which does this thread's share of the units of work."""
    context = cpu_target.target_context
    module = context.create_module(name)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [WORD.as_pointer()]), name)
    builder = ir.IRBuilder(function.append_basic_block())

    def word(index: int) -> Any:
        return builder.load(builder.gep(function.args[0], [WORD(index)]))

    without_openmp = builder.block
    with builder.if_then(builder.icmp_unsigned("!=", word(1), WORD(0))):
        query = ir.FunctionType(INT, []).as_pointer()
        answers = [builder.sext(builder.call(builder.inttoptr(word(index), query), []), WORD) for index in (0, 1)]
        with_openmp = builder.block
    thread, threads = (builder.phi(WORD) for _ in answers)
    for number, default, answer in zip((thread, threads), (0, 1), answers, strict=True):
        number.add_incoming(WORD(default), without_openmp)
        number.add_incoming(answer, with_openmp)
    units = word(2)
    first = builder.sdiv(builder.mul(units, thread), threads)
    last = builder.sdiv(builder.mul(units, builder.add(thread, WORD(1))), threads)
    with builder.if_then(builder.icmp_signed("<", first, last)):
        values, index = [first, last], FIRST_ARGUMENT
        for argument, kind in zip(arguments, run.signature.args[2:], strict=True):
            if isinstance(argument, FIXED):
                values.append(_constant(context, kind, argument))
            else:
                values.append(_read(context, builder, argument, kind, word(index)))
                index += 1
        status, _ = context.call_internal_no_propagate(builder, run.fndesc, run.signature, values)
        with builder.if_then(status.is_error):  # removed if `run` cannot raise
            builder.call(ir.Function(module, ir.FunctionType(ir.VoidType(), []), "raise"), [])
    builder.ret_void()
    return module


def _constant(context: Any, kind: Any, argument: Argument) -> Any:
    if isinstance(argument, ConstArg | Literal):
        return context.get_constant(kind, argument.value if isinstance(kind, types.Float) else int(argument.value))
    return context.get_dummy_value()  # unused: `run` takes the value from the type


def _read(context: Any, builder: Any, argument: Argument, kind: Any, word: Any) -> Any:
    """Return the value of an argument of numba type `kind`, which is passed as a word."""
    if isinstance(argument, Pointer):
        return builder.inttoptr(word, context.get_value_type(kind))
    if isinstance(argument, Number):
        return context.cast(builder, builder.bitcast(word, DOUBLE), types.float64, kind)
    return word


def _set_up() -> None:
    """Apply LLVM's settings to the process."""
    if not _set:
        for option in OPTIONS:
            llvm.set_option("netspec", option)
            _set.append(option)
