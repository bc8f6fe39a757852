"""The shape of the house (CONTRIBUTING.md), read from the syntax trees of netspec: no module is imported to test it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "netspec"
MAX_LINES = 450

ROOMS = {path.stem for path in ROOT.iterdir() if path.name != "__init__.py" and (path.suffix == ".py" or path.is_dir())}
ROOMS -= {"__pycache__", "__main__", "model_zoo"}
PUBLIC = "the public API"  # what netspec/__init__.py offers; a room of its own in the table

EVERY_ROOM = {
    "errors", "schema", "graph", "parallel", "layers", "solvers", "passes",
    "backends", "data", "exchange", "compile", "train", "cli",
}  # fmt: skip
MAY_IMPORT = {
    "errors": set(),
    "schema": {"errors"},
    "graph": {"errors"},
    "parallel": {"errors", "schema", "graph"},
    "layers": {"schema", "graph"},
    "solvers": {"schema", "graph"},
    "passes": {"graph"},
    "backends": {"graph", "layers", "parallel"},
    "data": {"schema"},
    "exchange": {"schema", "graph", "layers"},
    "compile": {"schema", "graph", "layers", "solvers", "passes", "backends"},
    "train": EVERY_ROOM - {"cli"},
    "cli": EVERY_ROOM | {PUBLIC},
    PUBLIC: EVERY_ROOM - {"cli"},
    "__main__": {"cli"},
}

# Libraries that only one folder of netspec may import, or some; None: none may.
FENCED: dict[str, str | tuple[str, ...] | None] = {
    "onnx": "exchange",
    "onnxruntime": "exchange",
    "h5py": ("exchange", "data/readers"),
    "lmdb": "data/readers",
    "cupy": ("backends/cuda", "parallel"),
    "cupyx": "backends/cuda",
    "cudnn": "backends/cudnn",
    "mpi4py": "parallel",
    "ml_dtypes": "backends",
    "numba": ("backends/numba", "data/imaging"),
    "tokenizers": "data/readers",
    "pyarrow": "data/readers",
    "torch": None,
    "tensorflow": None,
    "keras": None,
    "jax": None,
    "pickle": None,
    "shelve": None,
    "marshal": None,
    "dill": None,
    "cloudpickle": None,
}
NO_NUMPY = {"errors", "schema"}
# Too slow for what must answer at once: never loaded by importing netspec, its schema or its command line.
HEAVY = {
    "numpy",
    "h5py",
    "lmdb",
    "onnx",
    "onnxruntime",
    "PIL",
    "threadpoolctl",
    "ml_dtypes",
    "numba",
    "cupy",
    "google",
    "tokenizers",
    "pyarrow",
}
EXECUTES = {"eval", "exec", "__import__"}
UNSAFE_YAML = {"load", "load_all", "full_load", "full_load_all", "unsafe_load", "unsafe_load_all"}


@dataclass(frozen=True)
class Import:
    """One import of a dotted module; `names` are what a `from` import takes out of it."""

    module: str
    names: tuple[str, ...]
    line: int
    at_load: bool
    """Runs when the module is loaded: neither inside a function nor for the type checker alone."""


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def package_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts[:-1])


def module_of(path: Path) -> str:
    package = package_of(path)
    return package if path.name == "__init__.py" else f"{package}.{path.stem}"


FILES = sorted(ROOT.rglob("*.py"))
BY_MODULE = {module_of(path): path for path in FILES}


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def room_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return PUBLIC if first == "__init__" else first


def imports(path: Path) -> Iterator[Import]:
    """All imports of a file, those inside functions and by `import_module("…")` included."""
    yield from _imports(parse(path), package_of(path), at_load=True)


def _imports(node: ast.AST, package: str, *, at_load: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import():
                for alias in child.names:
                    yield Import(alias.name, (), child.lineno, at_load)
            case ast.ImportFrom():
                above = package.split(".")[: len(package.split(".")) - child.level + 1] if child.level else []
                module = ".".join([*above, child.module] if child.module else above)
                yield Import(module, tuple(alias.name for alias in child.names), child.lineno, at_load)
            case ast.Call(func=ast.Name(id="import_module") | ast.Attribute(attr="import_module")):
                if child.args and isinstance(child.args[0], ast.Constant) and isinstance(child.args[0].value, str):
                    yield Import(child.args[0].value, (), child.lineno, at_load)
                yield from _imports(child, package, at_load=at_load)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from _imports(child, package, at_load=False)
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                yield from _imports(child, package, at_load=False)
            case _:
                yield from _imports(child, package, at_load=at_load)


def targets(found: Import) -> set[str]:
    """The rooms of netspec that an import reaches."""
    first, *rest = found.module.split(".")
    if first != "netspec":
        return set()
    if rest:
        return {rest[0]}
    names = set(found.names) - {"__version__"}
    return {name if name in ROOMS else PUBLIC for name in names} if found.names else {PUBLIC}


def loaded(start: str) -> set[str]:
    """The modules of netspec that importing `start` runs."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        module = waiting.pop()
        if module in seen or module not in BY_MODULE:
            continue
        seen.add(module)
        waiting.append(module.rpartition(".")[0])
        for found in imports(BY_MODULE[module]):
            if found.at_load:
                waiting += [found.module, *(f"{found.module}.{name}" for name in found.names)]
    return seen


def test_every_room_is_in_the_table() -> None:
    assert ROOMS <= EVERY_ROOM, "a new room needs an ADR, and a line in this table and in that of CONTRIBUTING.md"


@pytest.mark.parametrize("path", FILES, ids=short)
def test_imports_point_one_way(path: Path) -> None:
    room = room_of(path)
    allowed = MAY_IMPORT[room] | {room} | ({"errors"} if room != "errors" else set())
    wrong = [f"line {found.line}: {found.module}" for found in imports(path) if not targets(found) <= allowed]
    assert not wrong, f"{room} may import {sorted(allowed)} only"


@pytest.mark.parametrize("path", FILES, ids=short)
def test_libraries_stay_in_their_room(path: Path) -> None:
    wrong = []
    for found in imports(path):
        library = found.module.partition(".")[0]
        rooms = FENCED.get(library, "")
        rooms = (rooms,) if isinstance(rooms, str) else rooms or ()
        if library in FENCED and not any(short(path).startswith(f"{room}/") for room in rooms):
            wrong.append(f"line {found.line}: {library} belongs in {' or '.join(rooms) or 'no room'}")
        if library == "numpy" and room_of(path) in NO_NUMPY:
            wrong.append(f"line {found.line}: numpy does not belong in {room_of(path)}")
    assert not wrong


@pytest.mark.parametrize("start", ["netspec", "netspec.schema", "netspec.cli"])
def test_start_up_loads_nothing_heavy(start: str) -> None:
    wrong = [
        f"{module} line {found.line}: {found.module}"
        for module in sorted(loaded(start))
        for found in imports(BY_MODULE[module])
        if found.at_load and found.module.partition(".")[0] in HEAVY
    ]
    assert not wrong, f"importing {start} must not load these: import them inside the function that needs them"


def unsafe_calls(tree: ast.AST) -> Iterator[str]:
    """Calls that execute text, or read a format that can."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in EXECUTES:
                yield f"line {node.lineno}: {name}"
            case ast.Attribute(value=ast.Name(id="builtins"), attr=name) if name in EXECUTES:
                yield f"line {node.lineno}: builtins.{name}"
            case ast.Attribute(value=ast.Name(id="yaml"), attr=name) if name in UNSAFE_YAML:
                yield f"line {node.lineno}: yaml.{name}"
            case ast.ImportFrom(module="yaml", names=names) if UNSAFE_YAML & {alias.name for alias in names}:
                yield f"line {node.lineno}: from yaml import …"
            case ast.keyword(arg="allow_pickle", value=value):
                if not (isinstance(value, ast.Constant) and value.value is False):
                    yield f"line {value.lineno}: allow_pickle"


@pytest.mark.parametrize("path", FILES, ids=short)
def test_nothing_in_a_file_is_executed(path: Path) -> None:
    assert not list(unsafe_calls(parse(path)))


@pytest.mark.parametrize("path", FILES, ids=short)
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(parse(path)), "a module starts with a docstring: its one idea"


def test_every_folder_of_modules_is_a_package() -> None:
    assert not sorted({short(path.parent) for path in FILES if not (path.parent / "__init__.py").exists()})


@pytest.mark.parametrize("path", FILES, ids=short)
def test_files_stay_small(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_LINES, "split it along its ideas"


@pytest.mark.parametrize(
    ("source", "finds"),
    [
        ("eval('1')", 1),
        ("builtins.exec('1')", 1),
        ("yaml.load(text)", 1),
        ("from yaml import load", 1),
        ("np.load(path, allow_pickle=True)", 1),
        ("np.load(path, allow_pickle=False); yaml.safe_load(text); model.evaluate()", 0),
    ],
)
def test_the_search_for_unsafe_calls_finds_them(source: str, finds: int) -> None:
    assert len(list(unsafe_calls(ast.parse(source)))) == finds


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from netspec.schema.spec import Spec", ("netspec.schema.spec", {"schema"}, True)),
        ("import netspec.graph.value", ("netspec.graph.value", {"graph"}, True)),
        ("from netspec import train", ("netspec", {"train"}, True)),
        ("from netspec import load", ("netspec", {PUBLIC}, True)),
        ("from netspec import __version__", ("netspec", set(), True)),
        ("from ..schema import spec", ("netspec.schema", {"schema"}, True)),
        ("import_module('netspec.layers')", ("netspec.layers", {"layers"}, True)),
        ("def f():\n    import netspec.errors", ("netspec.errors", {"errors"}, False)),
        ("if TYPE_CHECKING:\n    import numpy", ("numpy", set(), False)),
        ("try:\n    import numpy\nexcept ImportError:\n    pass", ("numpy", set(), True)),
    ],
)
def test_imports_are_seen_for_what_they_are(source: str, expected: tuple[str, set[str], bool]) -> None:
    (found,) = _imports(ast.parse(source), "netspec.layers", at_load=True)
    assert (found.module, targets(found), found.at_load) == expected
