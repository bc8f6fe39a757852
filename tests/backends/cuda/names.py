"""`python -m tests.backends.cuda.names`: CuPy has what netspec uses of it, and takes the arguments. Needs no GPU.

Names are the attributes of `cupy` and `xp` in netspec's sources, including reference code, which runs on NumPy and
CuPy; calls there must fit the signatures of CuPy's functions. Everything that the stand-in for CuPy offers is called
with arguments of the real types: the only accepted error is that there is no device. CuPy must not refuse the calls
that are captured in a CUDA graph.
Exit status 1 where something is missing or takes other arguments.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import netspec
from netspec.backends.cuda.launch import OPTIONS
from netspec.graph.execution_plan import ALIGNMENT
from netspec.graph.types import DType, TensorType
from tests.backends.cuda import fake
from tests.backends.cuda.without_gpu import CupyDevice, asks_for_capture, complaint, load, wrapped

NUMPYS = Path("backends/device_registry.py")
"""Modules in which `xp` is always NumPy."""
KERNEL = 'extern "C" __global__ void kernel() {}'
CAPTURED = (
    "cuda.Event.record", "cuda.Stream.wait_event", "cuda.Stream.__enter__", "cuda.Stream.ptr", "cuda.MemoryPointer.ptr",
    "cuda.function.Function.__call__", "cuda.get_current_stream", "cuda.runtime.memcpyAsync",
)  # fmt: skip
"""Functions that netspec calls while a stream is being captured."""
REFUSED = ("cuda.MemoryPointer.copy_from_host_async", "cuda.MemoryPointer.copy_to_host_async")
"""Functions that CuPy refuses while a stream is being captured; so does the stand-in."""
STAND_INS = {
    "cuda.Stream": fake.Stream, "cuda.Event": fake.Event, "cuda.Graph": fake.Graph, "cuda.Device": fake.Gpu,
    "cuda.MemoryPointer": fake.Memory,
}  # fmt: skip
"""Classes of CuPy, and the classes that replace them in the stand-in."""
INSIDE = {
    "cuda.Stream.submit", "cuda.Stream.advance", "cuda.Stream.run_until", "cuda.Stream.recorded",
    "cuda.Stream.__exit__", "cuda.Event.mark", "cuda.Device.capability", "cuda.Device.__exit__",
}  # fmt: skip
"""Attributes of these classes that only the stand-in uses, or that are called after `__enter__`."""


def calls(cupy: Any) -> dict[str, Callable[[], object]]:
    """Every call that the stand-in for CuPy supports, by its name, on real CuPy objects without a GPU."""
    host, cuda = np.zeros(4096, np.uint8), cupy.cuda
    array, runtime, stream = wrapped(cupy, host), cuda.runtime, cuda.Stream.ptds
    event, graph, address = cuda.Event.__new__(cuda.Event), cuda.Graph.__new__(cuda.Graph), host.ctypes.data
    event.ptr = 0
    module, function = cuda.function.Module(), cuda.function.Function.__new__(cuda.function.Function)
    floats = array.view(np.float32)
    arguments = array, np.int32(1), np.int64(2), np.float32(3), np.float64(4)
    return {
        "asarray": lambda: cupy.asarray(host),
        "asnumpy": lambda: cupy.asnumpy(array),
        "copyto": lambda: cupy.copyto(floats, array[:1024], casting="unsafe"),
        "zeros": lambda: cupy.zeros(4096, cupy.uint8),
        "ndarray.fill": lambda: array.fill(0),
        "get_default_memory_pool": lambda: cupy.get_default_memory_pool().free_bytes(),
        "cuda.Device": lambda: cuda.Device(0),
        "cuda.Device.id": lambda: cuda.Device(0).id,
        "cuda.Device.compute_capability": lambda: cuda.Device(0).compute_capability,
        "cuda.Device.use": lambda: cuda.Device(0).use(),
        "cuda.Device.__enter__": lambda: cuda.Device(0).__enter__(),
        "cuda.Event": lambda: cuda.Event(disable_timing=True),
        "cuda.Event.ptr": lambda: event.ptr,
        "cuda.Event.record": lambda: event.record(stream),
        "cuda.Event.synchronize": lambda: event.synchronize(),
        "cuda.get_elapsed_time": lambda: cuda.get_elapsed_time(event, event),
        "cuda.get_current_stream": lambda: cuda.get_current_stream(),
        "cuda.alloc_pinned_memory": lambda: cuda.alloc_pinned_memory(64),
        "cuda.Stream": lambda: cuda.Stream(non_blocking=True),
        "cuda.Stream.ptr": lambda: stream.ptr,
        "cuda.Stream.record": lambda: stream.record(event),
        "cuda.Stream.wait_event": lambda: stream.wait_event(event),
        "cuda.Stream.synchronize": lambda: stream.synchronize(),
        "cuda.Stream.begin_capture": lambda: stream.begin_capture(),
        "cuda.Stream.end_capture": lambda: stream.end_capture(),
        "cuda.Stream.__enter__": lambda: stream.__enter__(),
        "cuda.Graph.launch": lambda: graph.launch(stream),
        "cuda.MemoryPointer.ptr": lambda: array.data.ptr,
        "cuda.MemoryPointer.copy_from_host_async": lambda: array.data.copy_from_host_async(address, 64, stream),
        "cuda.MemoryPointer.copy_to_host_async": lambda: array.data.copy_to_host_async(address, 64, stream),
        "cuda.compiler.compile_using_nvrtc": partial(compiled, cuda.compiler),
        "cuda.function.Module.load": lambda: module.load(b"code"),
        "cuda.function.Function.__call__": lambda: function((1,), (32,), arguments, 0, stream),
        "cuda.nvrtc.getSupportedArchs": lambda: min(cuda.nvrtc.getSupportedArchs()) + 0,
        "cuda.nvrtc.getVersion": lambda: cuda.nvrtc.getVersion()[0] + 0,
        "cuda.memory.OutOfMemoryError": lambda: cuda.memory.OutOfMemoryError,
        "cuda.runtime.CUDARuntimeError": lambda: str(runtime.CUDARuntimeError(700)),
        "cuda.runtime.deviceGetPCIBusId": lambda: runtime.deviceGetPCIBusId(0),
        "cuda.runtime.deviceSynchronize": lambda: runtime.deviceSynchronize(),
        "cuda.runtime.driverGetVersion": lambda: runtime.driverGetVersion(),
        "cuda.runtime.eventQuery": lambda: runtime.eventQuery(event.ptr) + 0,
        "cuda.runtime.getDevice": lambda: runtime.getDevice(),
        "cuda.runtime.getDeviceCount": lambda: runtime.getDeviceCount(),
        "cuda.runtime.getDeviceProperties": lambda: runtime.getDeviceProperties(0),
        "cuda.runtime.memGetInfo": lambda: runtime.memGetInfo(),
        "cuda.runtime.memcpyAsync": lambda: runtime.memcpyAsync(
            address, array.data.ptr, array.nbytes, runtime.memcpyDeviceToHost, stream.ptr
        ),
        "cuda.runtime.memcpyDeviceToHost": lambda: runtime.memcpyDeviceToHost + 0,
        "cuda.runtime.memcpyHostToDevice": lambda: runtime.memcpyHostToDevice + 0,
        "cuda.runtime.runtimeGetVersion": lambda: runtime.runtimeGetVersion() + 0,
        "uint8": lambda: cupy.uint8,
        "int32": lambda: cupy.int32,
    }


def compiled(compiler: Any) -> None:
    """Compile a kernel by NVRTC as `CupyEngine` does, for a fixed GPU; the code must be bytes."""
    compiler._get_arch_for_options_for_nvrtc = lambda arch=None: ("-arch=sm_90", "cubin")
    code, _ = compiler.compile_using_nvrtc(KERNEL, OPTIONS, filename="kernel.cu")
    assert isinstance(code, bytes), f"the code is {type(code)}"


def offered() -> Iterator[str]:
    """The names that the stand-in for CuPy has."""
    yield from _inside(fake.Machine().cupy(), "")
    for path, kind in STAND_INS.items():
        for name in vars(kind):
            if (not name.startswith("__") or name == "__enter__") and f"{path}.{name}" not in INSIDE:
                yield f"{path}.{name}"


def _inside(module: Any, path: str) -> Iterator[str]:
    for name, actual in vars(module).items():
        if isinstance(actual, SimpleNamespace):
            yield from _inside(actual, f"{path}{name}.")
        elif not name.startswith("__"):
            yield path + name


def used() -> Iterator[tuple[str, ast.Call | None, str]]:
    """Every attribute path of `cupy` or `xp` in netspec, its call if there is one, and the source line."""
    folder = Path(netspec.__file__).parent
    for file in sorted(set(folder.rglob("*.py")) - {folder / NUMPYS}):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and id(node) not in inner and (name := _behind(node)):
                yield name, called.get(id(node)), f"{file.name}:{node.lineno}"


def misfit(function: Any, call: ast.Call) -> str | None:
    """Why a function does not accept the number and names of the arguments of a call; None if it does.

    Compiled functions without a signature, and calls with `*` or `**` arguments, are not checked.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    names = [keyword.arg for keyword in call.keywords if keyword.arg is not None]
    if len(names) < len(call.keywords) or any(isinstance(arg, ast.Starred) for arg in call.args):
        return None
    try:
        signature.bind(*call.args, **dict.fromkeys(names))
    except TypeError as error:
        return f"{error}; it takes {signature}"
    return None


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


def complaints(cupy: Any) -> Iterator[str]:
    """Report names that CuPy does not have, and calls that it does not accept."""
    for name, use, location in used():
        if (function := _found(cupy, name)) is None:
            yield f"{name} ({location}): there is no such name"
        elif use is not None and (wrong := misfit(function, use)) is not None:
            yield f"{name} ({location}): {wrong}"
    tested = calls(cupy)
    for name in offered():
        if name not in tested:
            yield f"{name}: the stand-in has it, but no call of CuPy's is listed"
    for name, call in tested.items():
        if (wrong := complaint(call)) is not None:
            yield f"{name}: {wrong}"
    for name in CAPTURED:
        if asks_for_capture(tested[name]):
            yield f"{name}: CuPy refuses it while a stream is being captured"
    for name in REFUSED:
        if not asks_for_capture(tested[name]):
            yield f"{name}: CuPy does not refuse it while a stream is being captured"
    for dtype in DType:
        if (wrong := _viewed(cupy, dtype)) is not None:
            yield f"a view of {dtype}: {wrong}"


def _viewed(cupy: Any, dtype: DType) -> str | None:
    """Yield the problems of an array in an arena, as kernels get it."""
    raw, kind = np.zeros(4096, np.uint8), TensorType((3, 4), dtype)
    try:
        result = CupyDevice().view(wrapped(cupy, raw), ALIGNMENT, kind)
    except (TypeError, ValueError) as error:
        return str(error)
    actual = result.shape, str(result.dtype), result.data.ptr - raw.ctypes.data
    return None if actual == ((3, 4), str(dtype), ALIGNMENT) else f"{actual}"


def _found(cupy: Any, name: str) -> Any:
    actual = cupy
    for part in name.split("."):
        actual = getattr(actual, part, None)
    return actual


def main() -> int:
    """Check CuPy's names and calls, and return the exit status."""
    try:
        cupy = load()
    except ImportError:
        print("CuPy is not there: pip install cupy-cuda13x, or cupy-cuda12x")
        return 1
    actual = list(complaints(cupy))
    names = {name for name, _, _ in used()}
    counts = f"{len(names)} names, {len(calls(cupy))} calls, {len(actual)} wrong"
    print("\n".join([*actual, f"CuPy {cupy.__version__}: {counts}"]))
    return 1 if actual else 0


if __name__ == "__main__":
    sys.exit(main())
