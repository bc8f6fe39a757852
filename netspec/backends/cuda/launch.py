"""`Launch`: a kernel of our own as CUDA C++, the memory and the numbers that it is called with, and how many threads.

Who compiles and starts it is the `Engine`: CuPy, through NVRTC, or in tests a C++ compiler and the processor. CuPy is
imported by its first use, which is that of a device that is open.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Protocol, TypeAlias

import numpy as np

from netspec.backends.cuda.scalar import c_type
from netspec.backends.store import cache_store
from netspec.graph.kernel import Thunk
from netspec.graph.types import DType

THREADS = 256
"""Of a block."""
WARP = 32
"""Threads that run together."""
MOST_BLOCKS = 1 << 14
"""Of a launch whose threads go on to further units when they have done theirs: some waves on the largest GPU."""
OPTIONS = ("-std=c++17",)
"""Of the compiler. Products and sums may become one instruction, as everywhere; nothing else may change a number."""

Starter: TypeAlias = Callable[[int, int, Sequence[Any]], None]
"""Starts a kernel with so many blocks of so many threads, and arguments."""


class Engine(Protocol):
    """Who compiles kernels and starts them."""

    def starter(self, name: str, text: str) -> Starter:
        """What starts the kernel called `name` of a whole source text."""
        ...

    def address(self, array: Any) -> int:
        """Where an array begins."""
        ...

    def table(self, host: Any) -> Any:
        """A copy of a NumPy array where kernels can read it."""
        ...

    def on_stream(self, call: Callable[[int], None]) -> Thunk:
        """A call of a library's function, which is given the stream to work in: that in which kernels are started."""
        ...

    def device(self) -> int:
        """The number of the GPU."""
        ...


class CupyEngine:
    """CuPy on the current GPU. What NVRTC compiled is kept on disk.

    CuPy's own modules of CUDA C++ would not do: it has their numbers below 10⁻³⁸ become 0 (`-ftz=true`).
    """

    def __init__(self) -> None:
        self._functions: dict[tuple[int, str], Any] = {}

    def starter(self, name: str, text: str) -> Starter:
        """Compiled, or loaded, for the current GPU."""
        key = self.device(), name
        if key not in self._functions:
            self._functions[key] = _loaded(name, text)
        function = self._functions[key]
        return lambda blocks, threads, arguments: function((blocks,), (threads,), tuple(arguments))

    def address(self, array: Any) -> int:
        """In the memory of the GPU."""
        return int(array.data.ptr)

    def table(self, host: Any) -> Any:
        """In the memory of the GPU."""
        import cupy

        return cupy.asarray(host)

    def on_stream(self, call: Callable[[int], None]) -> Thunk:
        """CuPy's current one."""
        from cupy.cuda import get_current_stream

        return lambda: call(get_current_stream().ptr)

    def device(self) -> int:
        """CuPy's current one."""
        import cupy

        return int(cupy.cuda.runtime.getDevice())


def _loaded(name: str, text: str) -> Any:
    """The kernel called `name` of a source text."""
    from cupy.cuda import Device, compiler, nvrtc
    from cupy.cuda.function import Module

    store, told = cache_store("cuda"), [text, OPTIONS, Device().compute_capability, nvrtc.getVersion()]
    file = f"{sha256(json.dumps(told).encode()).hexdigest()[:32]}.bin"
    code = store.read(file)
    if code is None:
        code, _ = compiler.compile_using_nvrtc(text, OPTIONS, filename=f"{name}.cu")
        store.write(file, code)
    module = Module()
    module.load(code)
    return module.get_function(name)


engine: Engine = CupyEngine()
"""Of this process."""


def use(other: Engine) -> Engine:
    """Have another engine from now on; the one before."""
    global engine
    before, engine = engine, other
    return before


_flag: ContextVar[Any] = ContextVar("flag", default=None)
"""What kernels that are bound now look at before they write anything, if they do."""


@contextmanager
def stopped_by(flag: Any) -> Iterator[None]:
    """Kernels that are bound inside of this do nothing when they are called while `flag`, an int32, is not 0."""
    token = _flag.set(flag)
    try:
        yield
    finally:
        _flag.reset(token)


@cache
def prelude() -> str:
    """What every source begins with."""
    folder = files("netspec.backends.cuda")
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in ("prelude.cuh", "product.cuh"))


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel, and what is given for it."""

    name: str
    kind: str
    value: Any


def pointer(name: str, array: Any, *, written: bool = False) -> Parameter:
    """The first element of an array."""
    const = "" if written else "const "
    return Parameter(name, f"{const}{c_type(DType(str(array.dtype)))} *", array)


def sizes(large: int, **values: int) -> list[Parameter]:
    """Whole numbers of the type `Index`: one that `large`, the most that is counted, fits into."""
    kind, dtype = ("int64", np.int64) if large >= 2**31 - MOST_BLOCKS * THREADS else ("int32", np.int32)
    return [Parameter(name, kind, dtype(value)) for name, value in values.items()]


def number(name: str, value: float, dtype: DType) -> Parameter:
    """A float."""
    return Parameter(name, str(dtype), np.dtype(str(dtype)).type(value))


@dataclass(frozen=True)
class Launch:
    """A kernel and its arguments."""

    parameters: Sequence[Parameter]
    body: str
    """Statements in which parameters have their names."""
    units: int
    """How many units of work there are: of threads, or of blocks."""
    of_blocks: bool = False
    threads: int = THREADS

    @property
    def blocks(self) -> int:
        """How many are started."""
        return max(1, min(MOST_BLOCKS, self.units if self.of_blocks else -(-self.units // self.threads)))

    def text(self) -> tuple[str, str]:
        """The kernel's name, and its source without what all begin with. Equal sources have equal names."""
        index = next((one.kind for one in self.parameters if one.kind in ("int32", "int64")), "int32")
        parameters = ", ".join(f"{one.kind} {one.name}" for one in self.parameters)
        body = "\n    ".join(self.body.strip("\n").splitlines())
        head = f"__launch_bounds__({self.threads})"
        code = f"({parameters}) {{\n    typedef {index} Index;\n    {body}\n}}\n"
        name = "netspec_" + sha256((head + code).encode()).hexdigest()[:24]
        return name, f'\nextern "C" __global__ void {head} {name}{code}'

    def bind(self) -> Thunk:
        """A call of it."""
        flag = _flag.get()
        launch = self if flag is None else self._with(flag)
        name, text = launch.text()
        start, blocks, threads = engine.starter(name, prelude() + text), self.blocks, self.threads
        arguments = [one.value for one in launch.parameters]
        return lambda: start(blocks, threads, arguments)

    def _with(self, flag: Any) -> Launch:
        """The same, but nothing while the flag is up: all threads see the same, and none waits for another."""
        return replace(
            self, parameters=[*self.parameters, pointer("stopped", flag)], body=f"if (*stopped) return;\n{self.body}"
        )
