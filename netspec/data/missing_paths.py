"""Find the paths in a spec that do not exist, before any data is read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from netspec.data.base import Source
from netspec.data.known_datasets import KNOWN_SETS
from netspec.errors import Problem, command, folded, near_path, nearest_path
from netspec.files.cache_folder import data_folder
from netspec.schema.bundled import zoo_root
from netspec.schema.load import load_card
from netspec.schema.specs.paths import expanded, paths_in_fields, resolve_path
from netspec.schema.specs.spec import Spec, parts_of

CARD = "card.yaml"
SCRIPTS = frozenset({".py", ".sh", ".ipynb"})
MAX_FILES, MAX_BYTES = 50, 2**16
"""Limits of the search for the name of a missing file: number of files next to a spec, and bytes read of each."""


def missing_paths(spec: Spec, path: str) -> Iterator[Problem]:
    """Yield a problem for each path in the fields of `spec` and of its parts that does not exist.

    `path` is the dotted path of `spec` in its document. Paths that a source downloads to are left out.
    """
    for inside, part in parts_of(spec):
        optional = part.optional_paths() if isinstance(part, Source) else ()
        for keys in paths_in_fields(part):
            if keys[0] not in optional and not resolve_path(part, *keys).exists():
                yield _missing(part, keys, ".".join(filter(None, (path, inside, *map(str, keys)))))


def _missing(spec: Spec, keys: list[str | int], path: str) -> Problem:
    full, where = resolve_path(spec, *keys), spec.where(*keys)
    written = _written(spec, keys)
    in_file = where is not None and not where.file.startswith("<")
    base = Path(where.file).parent.absolute() if where is not None and in_file else Path().absolute()
    if base.parent == zoo_root():
        full, in_file = expanded(written).absolute(), False
    if expanded(written).is_absolute():
        expected = "a file or folder that exists"
    else:
        whose = f"the folder of {Path(where.file).name}" if where is not None and in_file else "the current folder"
        expected = f"a file or folder, relative to {whose}"
    return Problem(
        f"`{written}` does not exist", where, path, expected=expected, got=f"nothing at {full}",
        hint=_needs(written, full, base) or _hint(written, full, base),
    )  # fmt: skip


def _needs(written: str, full: Path, base: Path) -> str | None:
    """Return a similar path, or the data that a model of the zoo needs; None for other specs."""
    card = base / CARD
    if base.parent != zoo_root() or not card.is_file():
        return None
    similar = _similar(full)
    if similar is not None and similar.suffix == full.suffix:
        return f"did you mean `{_relative(similar, Path().absolute())}`?"
    data = load_card(card).data
    scripts = [script.name for script in base.glob("*.py") if script.name in data]
    copied = f" `{command('zoo', 'copy', base.name)}` copies {scripts[0]}." if scripts else ""
    return f"the data that this model needs: {data}{copied}"


def _written(spec: Spec, keys: list[str | int]) -> str:
    """Return the path in a field, as it is in the spec."""
    value: object = spec
    for key in keys:
        value = getattr(value, str(key)) if isinstance(value, Spec) else value[key]  # type: ignore[index]  # a list or mapping
    return str(value)


def _hint(written: str, full: Path, base: Path) -> str:
    """Return a hint: a similar path, or a command or script that creates the files."""
    is_relative = not expanded(written).is_absolute()
    from_current = Path(written).absolute()
    if is_relative and from_current.exists():
        return f"it exists in the current folder: from the spec's folder it is `{_relative(from_current, base)}`"
    similar = _similar(full)
    if similar is not None and similar.suffix == full.suffix:
        return f"did you mean `{_relative(similar, base) if is_relative else similar}`?"
    dataset = next((name for name in KNOWN_SETS if any(_is_named_after(part, name) for part in full.parts[1:])), None)
    if dataset is not None:
        to = f" to {data_folder() / dataset}"
        reads = f", and `source: {dataset}` reads it" if KNOWN_SETS[dataset].splits else to
        return f"`{command('data', 'get', dataset)}` downloads the dataset{reads}"
    origin = _origin(written, full, base)
    return origin or near_path(full) or "if the data is on another machine, `--no-data` checks the rest"


def _similar(full: Path) -> Path | None:
    """Return a path that exists and differs from `full` in one component by a few letters."""
    for parent in full.parents:
        if not parent.is_dir():
            continue
        first, *rest = full.relative_to(parent).parts
        try:
            similar = nearest_path(parent / first)
        except OSError:
            return None
        candidate = similar.joinpath(*rest) if similar is not None else None
        return candidate if candidate is not None and candidate.exists() else None
    return None


def _relative(path: Path, base: Path) -> str:
    """Return a path relative to a folder."""
    return Path(os.path.relpath(path, base)).as_posix()


def _is_named_after(part: str, dataset: str) -> bool:
    """Whether the name of a folder or file belongs to a known dataset, such as `cifar-10-batches-bin` to `cifar10`."""
    return re.match(rf"{dataset.replace('_', '')}(?!\d)", folded(part)) is not None


def _origin(written: str, full: Path, base: Path) -> str | None:
    """Return a hint if a script or a text next to the spec mentions the missing file or folder."""
    name = full.name if "." in full.name else written.strip("./")
    mention = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
    for file in _texts_in(base):
        try:
            with file.open(encoding="utf-8", errors="replace") as opened:
                text = opened.read(MAX_BYTES)
        except OSError:
            continue
        if mention.search(text):
            if file.suffix in SCRIPTS or file.name == "Makefile":
                return f"{file.name} next to the spec mentions `{name}`: run it first"
            return f"see {file.name} next to the spec, which mentions `{name}`"
    return None


def _texts_in(folder: Path) -> list[Path]:
    """Return scripts and README files of a folder, scripts first."""
    try:
        files = sorted(entry for entry in folder.iterdir() if entry.is_file())
    except OSError:
        return []
    scripts = [file for file in files if file.suffix in SCRIPTS or file.name == "Makefile"]
    return [*scripts, *(file for file in files if file.name.lower().startswith("readme"))][:MAX_FILES]
