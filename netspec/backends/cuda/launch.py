"""`Launch`: a CUDA C++ kernel with its arguments and the number of threads.

A `LaunchEngine` compiles and starts it: CuPy with NVRTC, or in tests a C++ compiler and the CPU. CuPy is imported on
first use, by an open device.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Protocol, TypeAlias

import numpy as np

from netspec.backends.cuda.scalar_code import c_type
from netspec.backends.disk_cache import open_cache
from netspec.graph.kernel import Thunk
from netspec.graph.types import DType

THREADS = 256
"""Threads of a block."""
WARP = 32
"""Threads of a warp."""
MAX_BLOCKS = 1 << 14
"""Maximum number of blocks of a launch whose threads loop over units: some waves on the largest GPU."""
OPTIONS = ("-std=c++17",)
"""Compiler options. Products and sums may be contracted; nothing else may change a result."""

Starter: TypeAlias = Callable[[int, int, Sequence[Any]], None]
"""Starts a kernel with a number of blocks, of threads per block, and arguments."""


class LaunchEngine(Protocol):
    """Compiles kernels and starts them."""

    def starter(self, name: str, text: str) -> Starter:
        """The starter of the kernel `name` in a source text."""
        ...

    def address(self, array: Any) -> int:
        """Address of an array."""
        ...

    def table(self, host: Any) -> Any:
        """A copy of a NumPy array that kernels can read."""
        ...

    def on_stream(self, call: Callable[[int], None]) -> Thunk:
        """A call of `call` with the stream in which kernels are started, for library functions."""
        ...

    def device(self) -> int:
        """Number of the GPU."""
        ...


class CupyEngine:
    """CuPy on the current GPU. Code compiled by NVRTC is cached on disk.

    CuPy's own modules cannot be used: it compiles with `-ftz=true`, which flushes numbers below 10⁻³⁸ to 0.
    """

    def __init__(self) -> None:
        self._functions: dict[tuple[int, str], Any] = {}

    def starter(self, name: str, text: str) -> Starter:
        """Compile or load a kernel for the current GPU."""
        key = self.device(), name
        if key not in self._functions:
            self._functions[key] = _loaded(name, text)
        function = self._functions[key]
        return lambda blocks, threads, arguments: function((blocks,), (threads,), tuple(arguments))

    def address(self, array: Any) -> int:
        """Address in GPU memory."""
        return int(array.data.ptr)

    def table(self, host: Any) -> Any:
        """A copy in GPU memory."""
        import cupy

        return cupy.asarray(host)

    def on_stream(self, call: Callable[[int], None]) -> Thunk:
        """Run on CuPy's current stream."""
        from cupy.cuda import get_current_stream

        return lambda: call(get_current_stream().ptr)

    def device(self) -> int:
        """CuPy's current GPU."""
        import cupy

        return int(cupy.cuda.runtime.getDevice())


def _loaded(name: str, text: str) -> Any:
    """The kernel called `name` in a source text."""
    from cupy.cuda import Device, compiler, nvrtc
    from cupy.cuda.function import Module

    store, key_parts = open_cache("cuda"), [text, OPTIONS, Device().compute_capability, nvrtc.getVersion()]
    file = f"{sha256(json.dumps(key_parts).encode()).hexdigest()[:32]}.bin"
    code = store.read(file)
    if code is None:
        code, _ = compiler.compile_using_nvrtc(text, OPTIONS, filename=f"{name}.cu")
        store.write(file, code)
    module = Module()
    module.load(code)
    return module.get_function(name)


engine: LaunchEngine = CupyEngine()
"""The engine of this process."""


def use(other: LaunchEngine) -> LaunchEngine:
    """Set another engine; return the previous one."""
    global engine
    before, engine = engine, other
    return before


_flag: ContextVar[Any] = ContextVar("flag", default=None)
"""The stop flag for kernels that are bound now; None without a flag."""


@contextmanager
def stopped_by(flag: Any) -> Iterator[None]:
    """Context: kernels that are bound inside do nothing when called while `flag`, an int32, is not 0."""
    token = _flag.set(flag)
    try:
        yield
    finally:
        _flag.reset(token)


@cache
def prelude() -> str:
    """Source text that precedes every kernel."""
    folder = files("netspec.backends.cuda")
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in ("prelude.cuh", "product.cuh"))


@dataclass(frozen=True)
class KernelParameter:
    """A parameter of a kernel, and its argument."""

    name: str
    kind: str
    value: Any


def pointer(name: str, array: Any, *, written: bool = False) -> KernelParameter:
    """A pointer to the first element of an array."""
    const = "" if written else "const "
    return KernelParameter(name, f"{const}{c_type(DType(str(array.dtype)))} *", array)


def sizes(large: int, **values: int) -> list[KernelParameter]:
    """Integers of the type `Index`, which is wide enough for `large`, the largest count."""
    kind, dtype = ("int64", np.int64) if large >= 2**31 - MAX_BLOCKS * THREADS else ("int32", np.int32)
    return [KernelParameter(name, kind, dtype(value)) for name, value in values.items()]


def number(name: str, value: float, dtype: DType) -> KernelParameter:
    """A float."""
    return KernelParameter(name, str(dtype), np.dtype(str(dtype)).type(value))


def substitute(text: str, replacements: Mapping[str, object]) -> str:
    """Replace the placeholders in a text, one after another."""
    for placeholder, replacement in replacements.items():
        text = text.replace(placeholder, str(replacement))
    return text


@dataclass(frozen=True)
class Launch:
    """A kernel and its arguments."""

    parameters: Sequence[KernelParameter]
    body: str
    """Statements that use the names of the parameters."""
    units: int
    """Number of units of work, for threads or for blocks."""
    of_blocks: bool = False
    threads: int = THREADS
    replacements: Mapping[str, object] = field(default_factory=dict)
    """Replacements of placeholders in `body`, applied in order; a replacement may contain later placeholders."""

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return max(1, min(MAX_BLOCKS, self.units if self.of_blocks else -(-self.units // self.threads)))

    def text(self) -> tuple[str, str]:
        """The kernel's name and its source without the prelude. Equal sources have equal names."""
        index = next((parameter.kind for parameter in self.parameters if parameter.kind in ("int32", "int64")), "int32")
        parameters = ", ".join(f"{parameter.kind} {parameter.name}" for parameter in self.parameters)
        body = "\n    ".join(substitute(self.body, self.replacements).strip("\n").splitlines())
        head = f"__launch_bounds__({self.threads})"
        code = f"({parameters}) {{\n    typedef {index} Index;\n    {body}\n}}\n"
        name = "netspec_" + sha256((head + code).encode()).hexdigest()[:24]
        return name, f'\nextern "C" __global__ void {head} {name}{code}'

    def bind(self) -> Thunk:
        """A call of the kernel."""
        flag = _flag.get()
        launch = self if flag is None else self._with(flag)
        name, text = launch.text()
        start, blocks, threads = engine.starter(name, prelude() + text), self.blocks, self.threads
        arguments = [parameter.value for parameter in launch.parameters]
        return lambda: start(blocks, threads, arguments)

    def _with(self, flag: Any) -> Launch:
        """Wrap a body so that it does nothing while the stop flag is set; all threads read the same value."""
        return replace(
            self, parameters=[*self.parameters, pointer("stopped", flag)], body=f"if (*stopped) return;\n{self.body}"
        )
