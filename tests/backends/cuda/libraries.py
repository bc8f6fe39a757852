"""Libraries of CUDA kernels for the CPU: compiled by g++, and cached in `build/emulated`."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_char_p, c_size_t, c_void_p
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
CACHE = HERE.parents[2] / "build" / "emulated"
KEPT = 4
"""Number of versions of the shared sources whose libraries stay on disk."""
SIGNATURE = re.compile(r'extern "C" __global__ void __launch_bounds__\(\d+\) (netspec_\w+)\((.*)\) {')
CHECKS = (
    "-fsanitize=thread,signed-integer-overflow,integer-divide-by-zero,shift,bounds,float-cast-overflow,alignment,bool",
    "-fsanitize-recover=all", "--param=tsan-instrument-func-entry-exit=0",
)  # fmt: skip
FLAGS = (
    "-std=c++17", "-O1", "-g1", "-w", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique", "-ffp-contract=off",
    "-D_GLIBCXX_BITS_SPECFUN_H",  # leave out special functions, most of the code that <math.h> includes
)  # fmt: skip
CALL = """
__attribute__((no_sanitize("thread", "undefined"))) static void call_{name}(void **given) {{ {name}({arguments}); }}
extern "C" __attribute__((visibility("default"))) const char *run_{name}(
    void **given, unsigned blocks, unsigned threads, const EmulatedArray *arrays, unsigned count, unsigned turn) {{
    return emulated_run(call_{name}, given, blocks, threads, arrays, count, turn);
}}
"""


class Library:
    """A loaded library of kernels."""

    def __init__(self, path: Path) -> None:
        register, loaded = runtime().emulated_shared, ctypes.PyDLL(str(path))
        self._path = path
        self.parameters = dict(_signatures(path.with_suffix(".cpp").read_text(encoding="utf-8")))
        """Types and names of the parameters of each kernel."""
        self.run: dict[str, Any] = {name: getattr(loaded, f"run_{name}") for name in self.parameters}
        """`emulated_run` of each kernel."""
        for run in self.run.values():
            run.restype = c_char_p
        symbols = [row.split(None, 3) for row in _output("nm", "--print-size", "--demangle", str(path)).splitlines()]
        sized = [(int(at, 16), int(size, 16), kind, name) for at, size, kind, name in filter(_is_sized, symbols)]
        name, run = next(iter(self.run.items()))
        (offset,) = (at for at, _, _, label in sized if label == f"run_{name}")
        self._base = int(ctypes.cast(run, c_void_p).value or 0) - offset
        for at, size, kind, label in sized:
            if kind in "bBdDuVv" and "::" in label:  # a static variable of a function
                variable = label.rpartition("::")[2].encode()
                register(self._base + at, size, variable)

    def explained(self, error: str) -> str:
        """An error with the source line that causes it."""
        code, _, text = error.partition("\t")
        if not code.startswith("0x"):
            return text
        offset = int(code, 16) - self._base - 1
        file, _, line = _output("addr2line", "--exe", str(self._path), hex(offset)).split()[0].rpartition(":")
        if not line.isdigit() or not Path(file).exists():
            return text
        return f"{text}\n    {Path(file).read_text(encoding='utf-8').splitlines()[int(line) - 1].strip()}"


class Libraries:
    """The libraries of all kernels that are added, which share the beginning of their sources."""

    def __init__(self, prelude: str, flags: Sequence[str]) -> None:
        self._head, self._flags = (HERE / "emulated.h").read_text(encoding="utf-8") + prelude, (*FLAGS, *CHECKS, *flags)
        self._folder = CACHE / _key(_version(), self._head, *self._flags)
        self._waiting: dict[str, str] = {}
        self._loaded: dict[str, Library] = {}

    def add(self, name: str, text: str) -> None:
        """Add a kernel, which has a unique name."""
        if name not in self._loaded:
            self._waiting[name] = text

    def of(self, name: str) -> Library:
        """The library that contains a kernel. All kernels that are not compiled yet are compiled to one library."""
        if name not in self._loaded:
            missing = {name: text for name, text in self._waiting.items() if not self._link(name).exists()}
            if missing:
                self._compile(missing)
            self._loaded |= {name: _library(self._link(name).resolve()) for name in self._waiting}
            self._waiting = {}
        return self._loaded[name]

    def _link(self, name: str) -> Path:
        return self._folder / f"{name}.so"

    def _compile(self, kernels: dict[str, str]) -> None:
        texts = [self._head]
        for name, text in kernels.items():
            ((actual, parameters),) = _signatures(text)
            assert actual == name, text
            values = ", ".join(f"*({kind} *)given[{index}]" for index, (kind, _) in enumerate(parameters))
            texts += [text, CALL.format(name=name, arguments=values)]
        source = "\n".join(texts)
        if not self._folder.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            _drop_old()
        library = self._folder / f"all-{_key(source)}.so"
        path = library.with_suffix(".cpp")
        with _replacing(path) as written:  # another process may compile the same file now
            Path(written).write_text(source, encoding="utf-8")
        with _replacing(library) as result:
            _output("g++", *self._flags, "-c", str(path), "-o", f"{result}.o")
            _output("g++", "-shared", f"{result}.o", "-o", result)
            Path(f"{result}.o").unlink()
        for name in kernels:
            with _replacing(self._link(name)) as result:
                Path(result).symlink_to(library.name)


@cache
def runtime() -> Any:
    """The library that runs kernels, compiled from `emulated.cpp`."""
    source = HERE / "emulated.cpp"
    path = CACHE / f"runtime-{_key(_version(), source.read_text(encoding='utf-8'))}.so"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with _replacing(path) as result:
            _output("g++", "-std=c++17", "-O2", "-U_FORTIFY_SOURCE", "-shared", "-fPIC", str(source), "-o", result)
    loaded = ctypes.PyDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    loaded.emulated_undefined.argtypes = c_size_t, c_size_t, c_void_p
    loaded.emulated_shared.argtypes = c_size_t, c_size_t, c_char_p
    return loaded


@cache
def _library(path: Path) -> Library:
    return Library(path)


@cache
def _version() -> str:
    return _output("g++", "--version")


def _key(*texts: str) -> str:
    return sha256("\0".join(texts).encode()).hexdigest()[:24]


def _signatures(text: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """The kernels of a source: name, and type and name of each parameter."""
    actual = []
    for name, parameters in SIGNATURE.findall(text):
        rows = [re.fullmatch(r"(.*\*|\w+) ?(\w+)", part) for part in parameters.split(", ")]
        actual.append((name, [(row[1].strip(), row[2]) for row in rows if row is not None]))
    return actual


def _is_sized(row: list[str]) -> bool:
    return len(row) == 4


def _output(*command: str) -> str:
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not process.returncode, f"{' '.join(command)}\n{process.stderr[:4000]}"
    return process.stdout


@contextmanager
def _replacing(path: Path) -> Iterator[str]:
    """A temporary path that is renamed to the file, so that other processes never see an incomplete file."""
    with TemporaryDirectory(dir=path.parent) as folder:
        result = Path(folder, path.name)
        yield str(result)
        result.replace(path)


def _drop_old() -> None:
    folders = sorted((path for path in CACHE.iterdir() if path.is_dir()), key=lambda value: value.stat().st_mtime)
    for folder in folders[:-KEPT]:
        shutil.rmtree(folder, ignore_errors=True)
