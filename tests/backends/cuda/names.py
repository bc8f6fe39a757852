"""`python -m tests.backends.cuda.names`: what netspec calls of CuPy is there, and takes what it is given. Needs no GPU.

The package is looked at, and makes arrays of memory of the processor, but is not asked to compute. Names are those that
the sources of netspec have behind `cupy` and `xp`, reference code included, which runs on either library; calls are
bound to the signatures that functions tell of.
Exit status 1 where something is missing or takes other arguments.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import numpy as np

import netspec
from netspec.backends.base import ArrayDevice
from netspec.graph.plan import ALIGNMENT
from netspec.graph.types import DType, TensorType

NUMPYS = Path("backends/device.py")
"""Where `xp` is NumPy always."""
STREAM, EVENT = object(), object()
CALLS: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = (
    ("asarray", ([1],), {}),
    ("asnumpy", ([1],), {}),
    ("copyto", ([1], [1]), {"casting": "unsafe"}),
    ("zeros", (1, "uint8"), {}),
    ("cuda.compiler.compile_using_nvrtc", ("", ("-std=c++17",)), {"filename": "kernel.cu"}),
    ("cuda.function.Module", (), {}),
    ("cuda.function.Module.load", (None, b""), {}),
    ("cuda.function.Module.get_function", (None, "name"), {}),
    ("cuda.nvrtc.getVersion", (), {}),
    ("cuda.Device", (0,), {}),
    ("cuda.Device.use", (None,), {}),
    ("cuda.Event", (), {"disable_timing": True}),
    ("cuda.Event.record", (EVENT,), {}),
    ("cuda.Event.record", (EVENT, STREAM), {}),
    ("cuda.Event.synchronize", (EVENT,), {}),
    ("cuda.get_elapsed_time", (EVENT, EVENT), {}),
    ("cuda.get_current_stream", (), {}),
    ("cuda.alloc_pinned_memory", (64,), {}),
    ("cuda.Stream", (), {"non_blocking": True}),
    ("cuda.Stream.record", (STREAM, EVENT), {}),
    ("cuda.Stream.wait_event", (STREAM, EVENT), {}),
    ("cuda.Stream.synchronize", (STREAM,), {}),
    ("cuda.Stream.begin_capture", (STREAM,), {}),
    ("cuda.Stream.end_capture", (STREAM,), {}),
    ("cuda.Graph.launch", (None, STREAM), {}),
    ("cuda.MemoryPointer.copy_from_host_async", (None, 0, 64, STREAM), {}),
    ("cuda.MemoryPointer.copy_to_host_async", (None, 0, 64, STREAM), {}),
    ("cuda.MemoryPool.free_bytes", (None,), {}),
    ("cuda.runtime.deviceSynchronize", (), {}),
    ("cuda.runtime.driverGetVersion", (), {}),
    ("cuda.runtime.eventQuery", (0,), {}),
    ("cuda.runtime.getDevice", (), {}),
    ("cuda.runtime.getDeviceCount", (), {}),
    ("cuda.runtime.getDeviceProperties", (0,), {}),
    ("cuda.runtime.memGetInfo", (), {}),
    ("cuda.runtime.runtimeGetVersion", (), {}),
    ("get_default_memory_pool", (), {}),
)
"""What netspec calls of it on a device, with arguments of the same number and names."""
ATTRIBUTES = (
    "cuda.Device.compute_capability", "cuda.Device.id", "cuda.Device.__enter__", "cuda.MemoryPointer.ptr",
    "cuda.Stream.__enter__", "RawKernel.__call__", "ndarray.data", "ndarray.fill",
)  # fmt: skip


def used() -> dict[str, str]:
    """Every dotted name behind `cupy` or `xp` in netspec, with a file that has it."""
    found: dict[str, str] = {}
    folder = Path(netspec.__file__).parent
    for file in sorted(set(folder.rglob("*.py")) - {folder / NUMPYS}):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        inner = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Attribute)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and id(node) not in inner and (name := _behind(node)):
                found.setdefault(name, file.name)
    return found


def _behind(node: ast.Attribute) -> str | None:
    names, at = list[str](), node
    while True:
        names.append(at.attr)
        root = at.value
        if isinstance(root, ast.Name):
            return ".".join(reversed(names)) if root.id in ("cupy", "xp") else None
        if not isinstance(root, ast.Attribute):
            return None
        if root.attr == "xp":
            return ".".join(reversed(names))
        at = root


def signature(function: Any) -> Signature | None:
    """What a function takes; of compiled ones, as the first line of their documentation has it."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        told = re.match(r"[\w.]+\((.*?)\)(?: ->.*)?$", (inspect.getdoc(function) or "").partition("\n")[0])
    if told is None:
        return None
    parameters, named = list[Parameter](), False
    for one in filter(None, re.split(r",\s*(?![^(]*\))", told[1])):
        name, _, default = one.partition("=")
        if name == "*":
            named = True
            continue
        kind = Parameter.KEYWORD_ONLY if named else Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(Parameter(name.split()[-1], kind, default=default or Parameter.empty))
    return Signature(parameters)


def complaints(cupy: Any) -> Iterator[str]:
    """What is not there, or not as it is called."""
    for name, file in used().items():
        if _found(cupy, name) is None:
            yield f"{name} ({file}): there is no such name"
    for name in ATTRIBUTES:
        if _found(cupy, name) is None:
            yield f"{name}: there is no such name"
    for name, arguments, named in CALLS:
        function = _found(cupy, name)
        takes = None if function is None else signature(function)
        if takes is None:
            yield f"{name}: {'there is no such name' if function is None else 'it does not tell what it takes'}"
            continue
        try:
            takes.bind(*arguments, **named)
        except TypeError as error:
            yield f"{name}{takes}: {error}"
    for dtype in DType:
        if (wrong := _viewed(cupy, dtype)) is not None:
            yield f"a view of {dtype}: {wrong}"


def _viewed(cupy: Any, dtype: DType) -> str | None:
    """What is wrong with an array in an arena, such as kernels are given."""
    raw, kind = np.zeros(4096, np.uint8), TensorType((3, 4), dtype)
    memory = cupy.cuda.UnownedMemory(raw.ctypes.data, raw.nbytes, raw, 0)  # of the GPU 0, as far as CuPy knows
    arena = cupy.ndarray(raw.shape, cupy.uint8, memptr=cupy.cuda.MemoryPointer(memory, 0))
    try:
        made = ArrayDevice().view(arena, ALIGNMENT, kind)
    except (TypeError, ValueError) as error:
        return str(error)
    found = made.shape, str(made.dtype), made.data.ptr - raw.ctypes.data
    return None if found == ((3, 4), str(dtype), ALIGNMENT) else f"{found}"


def _found(cupy: Any, name: str) -> Any:
    found = cupy
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def main() -> int:
    """Look at CuPy; the exit status."""
    try:
        cupy = import_module("cupy")
    except ImportError:
        print("CuPy is not there: pip install cupy-cuda13x, or cupy-cuda12x")
        return 1
    found = list(complaints(cupy))
    print("\n".join([*found, f"CuPy {cupy.__version__}: {len(used())} names, {len(CALLS)} calls, {len(found)} wrong"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
