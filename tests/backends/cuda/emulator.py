"""CUDA C++ without a GPU: a C++ compiler makes of it a library that runs block after block on the processor.

It shows that kernels compute what they should, that their threads meet at the same barriers, and that nothing is
written outside; not how fast they are, nor what happens when threads really run at once.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from weakref import finalize

import numpy as np

from netspec.backends.cuda import launch
from netspec.graph.kernel import Thunk

HEADER = (Path(__file__).parent / "emulated.h").read_text()
SIGNATURE = re.compile(r'extern "C" __global__ void __launch_bounds__\(\d+\) (netspec_\w+)\((.*)\) {')
MEETS = re.compile(r"of_(block|warp|row|columns)|tile_of_product|__syncthreads|__shfl")
CALL = """
static void call_{name}(void **given) {{ {name}({arguments}); }}
extern "C" bool run_{name}(void **given, unsigned blocks, unsigned threads) {{
    return emulated::run(call_{name}, given, blocks, threads, {meets});
}}
"""


@cache
def compiler() -> str | None:
    """A C++ compiler, if there is one."""
    return shutil.which("g++") or shutil.which("clang++")


class OnHost:
    """The processor in the place of a GPU, with one stream, on which everything is done at once."""

    def address(self, array: Any) -> int:
        """In the memory of the processor."""
        return int(array.ctypes.data)

    def table(self, host: Any) -> Any:
        """As it is."""
        return host

    def on_stream(self, call: Callable[[int], None]) -> Thunk:
        """Done when it is called."""
        return lambda: call(0)

    def device(self) -> int:
        """The only one."""
        return 0


class Emulator(OnHost):
    """Compiles what was bound since the last time when one of these is called: one call of the compiler for many."""

    def __init__(self) -> None:
        self._waiting: dict[str, str] = {}
        self._made: dict[str, Any] = {}
        self._parameters: dict[str, list[str]] = {}
        self._folder = Path(mkdtemp(prefix="netspec-cuda-"))
        finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def starter(self, name: str, text: str) -> launch.Starter:
        """Compiled when it is called."""
        if name not in self._made:
            self._waiting[name] = text.removeprefix(launch.prelude())
        return lambda blocks, threads, arguments: self._run(name, blocks, threads, arguments)

    def _run(self, name: str, blocks: int, threads: int, arguments: Sequence[Any]) -> None:
        if name not in self._made:
            self._compile()
        given, kept = [], []
        for kind, one in zip(self._parameters[name], arguments, strict=True):
            if kind.endswith("*"):
                assert isinstance(one, np.ndarray), f"{name}: a pointer is given {type(one)}"
                held: Any = ctypes.c_void_p(one.ctypes.data)
            else:
                assert isinstance(one, np.generic), f"{name}: {kind} is given {type(one)}"
                assert str(one.dtype) == kind, f"{name}: {kind} is given {one.dtype}"
                held = np.ctypeslib.as_ctypes(np.array(one))
            kept.append(held)
            given.append(ctypes.cast(ctypes.pointer(held), ctypes.c_void_p))
        assert self._made[name]((ctypes.c_void_p * len(given))(*given), blocks, threads), (
            f"{name}: some threads ended while others wait for them"
        )

    def _compile(self) -> None:
        texts = [HEADER, launch.prelude()]
        for name, text in self._waiting.items():
            found = SIGNATURE.search(text)
            assert found, text
            assert found[1] == name
            kinds = [
                one.rsplit(" ", 1)[0] + ("*" if "*" in one.rsplit(" ", 1)[1] else "") for one in found[2].split(", ")
            ]
            self._parameters[name] = kinds
            arguments = ", ".join(f"*({kind} *)given[{place}]" for place, kind in enumerate(kinds))
            texts += [text, CALL.format(name=name, arguments=arguments, meets=str(bool(MEETS.search(text))).lower())]
        source = self._folder / f"kernels{len(self._made)}.cpp"
        source.write_text("\n".join(texts))
        library = source.with_suffix(".so")
        command = [
            str(compiler()),
            "-std=c++17",
            "-O1",
            "-w",
            "-U_FORTIFY_SOURCE",
            "-shared",
            "-fPIC",
            str(source),
            "-o",
            str(library),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not done.returncode, f"{source}: {done.stderr[:4000]}"
        loaded = ctypes.CDLL(str(library))
        for name in self._waiting:
            self._made[name] = getattr(loaded, f"run_{name}")
            self._made[name].restype = ctypes.c_bool
        self._waiting = {}
