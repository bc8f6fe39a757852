"""Checks of the package structure in CONTRIBUTING.md, from syntax trees: no module of netspec is imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unicodedata import normalize

import pytest

ROOT = Path(__file__).parents[1] / "netspec"
PUBLIC = "the public API"  # the names that netspec/__init__.py exports

LOW = {"errors", "files", "schema", "graph", "layers", "solvers", "passes", "backends", "data", "exchange", "compile"}
MAY_IMPORT = {
    "errors": set(),
    "files": set(),
    "schema": {"files"},
    "graph": set(),
    "layers": {"files", "schema", "graph"},
    "solvers": {"schema", "graph"},
    "passes": {"graph"},
    "backends": {"files", "graph"},
    "data": {"files", "schema"},
    "exchange": {"files", "schema", "graph", "layers"},
    "compile": {"schema", "graph", "layers", "solvers", "passes", "backends"},
    "training": LOW,
    "distributed": LOW | {"training"},
    "tools": LOW | {"training", "distributed"},
    "cli": LOW | {"training", "distributed", "tools", PUBLIC},
    "sklearn": LOW | {"training", "distributed", "tools", PUBLIC},
    PUBLIC: LOW | {"training", "distributed", "tools"},
    "__main__": {"cli"},
}
"""The packages that each package may import, besides itself and `errors`."""
CHOOSES = ("training/session.py", "distributed")
"""The module whose `open_session` imports the sessions of several workers, and only if a training has several."""

# Libraries that only some folders or modules of netspec may import; None: not allowed at all.
FENCED: dict[str, str | tuple[str, ...] | None] = {
    "onnx": "exchange",
    "google": "exchange",
    "onnxruntime": "exchange/onnx_runtime.py",
    "h5py": ("exchange", "files"),
    "lmdb": "data/readers",
    "cupy": ("backends/cuda", "distributed"),
    "cupyx": "backends/cuda",
    "cudnn": "backends/cuda/cudnn",
    "mpi4py": "distributed",
    "ml_dtypes": "backends",
    "numba": ("backends/numba", "data/imaging"),
    "tokenizers": "data/text",
    "pyarrow": "data/tabular",
    "starlette": ("tools/serving", "tools/report"),
    "uvicorn": "tools/serving",
    "sklearn": "sklearn",
    "optuna": "tools/search",
    "tensorboardX": "training/callbacks",
    "mlflow": "training/callbacks",
    "wandb": "training/callbacks",
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
# Slow to import: not loaded with netspec, its schema or its command line.
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
    "starlette",
    "uvicorn",
    "optuna",
    "tensorboardX",
    "mlflow",
    "wandb",
}
EXECUTES = {"eval", "exec", "__import__"}
UNSAFE_YAML = {"load", "load_all", "full_load", "full_load_all", "unsafe_load", "unsafe_load_all"}


PACKAGES = {
    path.stem for path in ROOT.iterdir() if path.name != "__init__.py" and (path.suffix == ".py" or path.is_dir())
}
PACKAGES -= {"__init__", "__pycache__", "model_zoo"}


@dataclass(frozen=True)
class Import:
    """An import of a dotted module; `names` are those of a `from` import."""

    module: str
    names: tuple[str, ...]
    line: int
    at_load: bool
    """True if it runs when the module is loaded: neither in a function nor for the type checker alone."""


@cache
def text_of(path: Path) -> str:
    """Return the text of a file as Python reads names in it."""
    return normalize("NFKC", path.read_text(encoding="utf-8"))


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


def top_package(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return PUBLIC if first == "__init__" else first


@cache
def imports(path: Path) -> list[Import]:
    """Return all imports of a file, including those in functions and by `import_module("…")`."""
    return list(_imports(parse(path), package_of(path), at_load=True, calls="import_module" in text_of(path)))


def _imports(node: ast.AST, package: str, *, at_load: bool, calls: bool) -> Iterator[Import]:
    """Yield the imports in a node; expressions, most of a tree, are searched if the file has `calls`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr) and not calls:
            continue
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
                yield from _imports(child, package, at_load=at_load, calls=calls)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from _imports(child, package, at_load=False, calls=calls)
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                yield from _imports(child, package, at_load=False, calls=calls)
            case _:
                yield from _imports(child, package, at_load=at_load, calls=calls)


def targets(imported: Import) -> set[str]:
    """Return the packages of netspec that an import reaches."""
    first, *rest = imported.module.split(".")
    if first != "netspec":
        return set()
    if rest:
        return {rest[0]}
    names = set(imported.names) - {"__version__"}
    return {name if name in PACKAGES else PUBLIC for name in names} if imported.names else {PUBLIC}


def loaded(start: str) -> set[str]:
    """Return the modules of netspec that run when `start` is imported."""
    visited: set[str] = set()
    waiting = [start]
    while waiting:
        module = waiting.pop()
        if module in visited or module not in BY_MODULE:
            continue
        visited.add(module)
        waiting.append(module.rpartition(".")[0])
        for each in imports(BY_MODULE[module]):
            if each.at_load:
                waiting += [each.module, *(f"{each.module}.{name}" for name in each.names)]
    return visited


def test_every_package_is_in_the_table() -> None:
    assert MAY_IMPORT.keys() >= PACKAGES, "a new package needs an ADR and a line in this table and in CONTRIBUTING.md"


def test_packages_import_only_what_the_table_allows() -> None:
    wrong = []
    for path in FILES:
        package = top_package(path)
        allowed = MAY_IMPORT[package] | {package, "errors"}
        allowed |= {CHOOSES[1]} if short(path) == CHOOSES[0] else set()
        wrong += [f"{short(path)}:{each.line} {each.module}" for each in imports(path) if not targets(each) <= allowed]
    assert not wrong


def test_libraries_stay_in_their_packages() -> None:
    wrong = []
    for path in FILES:
        for each in imports(path):
            library = each.module.partition(".")[0]
            folders = FENCED.get(library, "")
            folders = (folders,) if isinstance(folders, str) else folders or ()
            if library in FENCED and not any(f"{short(path)}/".startswith(f"{folder}/") for folder in folders):
                wrong.append(f"{short(path)}:{each.line} {library} belongs in {' or '.join(folders) or 'no package'}")
            if library == "numpy" and top_package(path) in NO_NUMPY:
                wrong.append(f"{short(path)}:{each.line} numpy does not belong in {top_package(path)}")
    assert not wrong


@pytest.mark.parametrize("start", ["netspec", "netspec.schema", "netspec.cli"])
def test_start_up_loads_nothing_heavy(start: str) -> None:
    wrong = [
        f"{module}:{each.line} {each.module}"
        for module in sorted(loaded(start))
        for each in imports(BY_MODULE[module])
        if each.at_load and each.module.partition(".")[0] in HEAVY
    ]
    assert not wrong, f"importing {start} must not load these: import them in the function that needs them"


UNSAFE_WORDS = re.compile("|".join([*EXECUTES, "yaml", "allow_pickle"]))


def unsafe_calls(tree: ast.AST) -> Iterator[str]:
    """Yield calls that execute text or read a format that can."""
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


def test_nothing_in_a_file_is_executed() -> None:
    suspects = [path for path in FILES if UNSAFE_WORDS.search(text_of(path))]
    assert not [f"{short(path)} {call}" for path in suspects for call in unsafe_calls(parse(path))]


def test_every_module_has_a_docstring() -> None:
    assert not [short(path) for path in FILES if not ast.get_docstring(parse(path))]


def test_every_folder_of_modules_is_a_package() -> None:
    assert not sorted({short(path.parent) for path in FILES if not (path.parent / "__init__.py").exists()})


@dataclass(frozen=True)
class ClassName:
    """A public class of a module."""

    name: str
    file: str
    backend: str
    """The folder of the backend that it belongs to; "" outside of backends."""
    is_vocabulary: bool
    """True if users or ONNX know its name: a class registered for specs, or one in a module of ops."""

    @property
    def package(self) -> str:
        return self.file.partition("/")[0]

    def may_share(self, other: ClassName) -> bool:
        """Whether both classes may have the same name.

        In a package, only kernels of different backends may, since they are named after their op. Across packages, a
        layer may be named like its op, and vocabulary of specs may have any name, but two other classes may not.
        """
        if self.package == other.package:
            return self.backend != other.backend and bool(self.backend) and bool(other.backend)
        return self.is_vocabulary or other.is_vocabulary or bool(self.backend) or bool(other.backend)


BACKENDS = {path.parent for path in ROOT.rglob("kernels")} | {path.parent for path in ROOT.rglob("kernels.py")}


def class_names(path: Path) -> Iterator[ClassName]:
    """Yield the public classes of a file."""
    backend = next((short(folder) for folder in path.parents if folder in BACKENDS), "")
    for node in parse(path).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            registered = any(".register" in ast.unparse(decorator) for decorator in node.decorator_list)
            yield ClassName(node.name, short(path), backend, registered or short(path).startswith("graph/ops/"))


def repeated_names(classes: Iterable[ClassName]) -> list[str]:
    """Describe each pair of classes that must not have one name."""
    by_name: dict[str, list[ClassName]] = {}
    repeated = []
    for each in classes:
        others = by_name.setdefault(each.name, [])
        repeated += [f"{each.name}: {other.file} and {each.file}" for other in others if not each.may_share(other)]
        others.append(each)
    return repeated


def test_class_names_are_unique() -> None:
    assert not repeated_names(each for path in FILES for each in class_names(path))


@pytest.mark.parametrize(
    ("first", "second", "is_allowed"),
    [
        (("data/a.py", "", True), ("data/b.py", "", True), False),
        (("data/a.py", "", False), ("training/b.py", "", False), False),
        (("graph/ops/a.py", "", True), ("layers/b.py", "", True), True),
        (("graph/types.py", "", False), ("layers/b.py", "", True), True),
        (("backends/numba/kernels/a.py", "numba", False), ("backends/cuda/kernels/a.py", "cuda", False), True),
        (("backends/numba/kernels/a.py", "numba", False), ("backends/numba/loops.py", "numba", False), False),
        (("backends/numba/kernels/a.py", "numba", False), ("backends/common/a.py", "", False), False),
    ],
)
def test_repeated_class_names_are_found(
    first: tuple[str, str, bool], second: tuple[str, str, bool], is_allowed: bool
) -> None:
    assert (not repeated_names([ClassName("Same", *first), ClassName("Same", *second)])) == is_allowed


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
def test_unsafe_calls_are_found(source: str, finds: int) -> None:
    assert len(list(unsafe_calls(ast.parse(source)))) == finds


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from netspec.schema.specs.spec import Spec", ("netspec.schema.specs.spec", {"schema"}, True)),
        ("import netspec.graph.value", ("netspec.graph.value", {"graph"}, True)),
        ("from netspec import training", ("netspec", {"training"}, True)),
        ("from netspec import load", ("netspec", {PUBLIC}, True)),
        ("from netspec import __version__", ("netspec", set(), True)),
        ("from ..schema import spec", ("netspec.schema", {"schema"}, True)),
        ("import_module('netspec.layers')", ("netspec.layers", {"layers"}, True)),
        ("def f():\n    import netspec.errors", ("netspec.errors", {"errors"}, False)),
        ("if TYPE_CHECKING:\n    import numpy", ("numpy", set(), False)),
        ("try:\n    import numpy\nexcept ImportError:\n    pass", ("numpy", set(), True)),
    ],
)
def test_imports_are_parsed(source: str, expected: tuple[str, set[str], bool]) -> None:
    (imported,) = _imports(ast.parse(source), "netspec.layers", at_load=True, calls=True)
    assert (imported.module, targets(imported), imported.at_load) == expected
