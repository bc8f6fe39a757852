"""The files of a known dataset in a folder: their possible names, and checks that their content is the published one.

A file is accepted if the SHA-256 of its content, unpacked if it is gzipped, is the published one. The digest is
computed when the file is first opened, and cached by size and modification time, so that opening a set again is fast.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from netspec.data.known_datasets import KnownSet, PublishedFile
from netspec.errors import InputError, kind_of_path
from netspec.files.cache_folder import data_folder

REMEMBERED, MAX_REMEMBERED, MAX_BYTES = "checked.json", 1000, 2**20
"""File that caches checksums, in the folder of all known sets; its maximum number of entries and bytes."""

_PIECE = 2**18
_log = logging.getLogger("netspec.data")


def find_file(dataset: KnownSet, folder: Path, part: PublishedFile) -> Path | None:
    """Return the path of a file in the folder or in its archive's subfolder, gzipped or not; None if it is missing.

    Raises `InputError` if another file has its name.
    """
    path = _first(dataset, folder, part)
    first = folder / part.name
    if path is None and not first.exists():
        return None
    path = path or first
    size = path.stat().st_size
    if kind_of_path(path) is not None or (path.suffix != ".gz" and size != part.size):
        raise InputError(
            f"{path} is not the published file",
            expected=f"{part.size:,} bytes",
            got=kind_of_path(path) or f"{size:,} bytes",
            hint=_hint(dataset),
        )
    return path


def has_file(dataset: KnownSet, folder: Path, part: PublishedFile) -> bool:
    """Return whether a file of this name exists, regardless of its content."""
    return _first(dataset, folder, part) is not None


def _first(dataset: KnownSet, folder: Path, part: PublishedFile) -> Path | None:
    return next((path for path in _candidate_paths(dataset, folder, part) if path.is_file()), None)


def _candidate_paths(dataset: KnownSet, folder: Path, part: PublishedFile) -> Iterable[Path]:
    for download in dataset.downloads:
        for member in (name for name, file in download.members.items() if file == part):
            if download.is_tar:
                yield from (folder / part.name, folder / member)
            else:
                spellings = dict.fromkeys([part.name, part.name.replace("-idx", ".idx")])
                yield from (folder / f"{name}{end}" for name in spellings for end in ("", ".gz"))


def _hint(dataset: KnownSet) -> str:
    source = "cifar_binary" if dataset.name.startswith("cifar") else "mnist"
    return f"remove it to download it again; to read your own files, use `source: {source}` with `path`"


def verified_files(dataset: KnownSet, folder: Path, names: Iterable[str]) -> list[Path]:
    """Return the paths of these files. Raises `InputError` if one is missing or is not the published one."""
    memory = _remembered()
    paths: list[Path] = []
    news: dict[str, Any] = {}
    for name in names:
        part = dataset.parts[name]
        path = find_file(dataset, folder, part)
        if path is None:
            raise InputError(f"{folder} does not contain {name}", expected=f"the files of {dataset.name}")
        mark = path.stat()
        facts = [mark.st_size, mark.st_mtime_ns, part.sha256]
        key = str(path.resolve())
        if memory.get(key) != facts:
            digest = content_digest(path, part)
            if digest != part.sha256:
                raise InputError(
                    f"{path} is not the published file", expected=f"content with SHA-256 {part.sha256}", got=digest,
                    hint=_hint(dataset),
                )  # fmt: skip
            news[key] = facts
        paths.append(path)
    if news:
        _remember({**{key: entry for key, entry in memory.items() if key not in news}, **news})
    return paths


def damaged_files(dataset: KnownSet, folder: Path) -> list[PublishedFile]:
    """Return the files of the set in a folder whose content is not the published one. Reads all of them."""
    wrong = []
    for part in dataset.parts.values():
        path = _first(dataset, folder, part)
        if path is None or content_digest(path, part) != part.sha256:
            wrong.append(part)
    return wrong


def content_digest(path: Path, part: PublishedFile) -> str:
    """Return the SHA-256 of a file's content, unpacked if it is gzipped. Reads at most one byte more than expected."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            return _digest(file, part.size + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        return f"data that cannot be unpacked: {error}"
    except OSError as error:
        raise InputError(f"cannot read {path}", got=error.strerror or str(error)) from None


def _digest(file: IO[bytes] | gzip.GzipFile, limit: int) -> str:
    digest = hashlib.sha256()
    while limit and (piece := file.read(min(_PIECE, limit))):
        limit -= len(piece)
        digest.update(piece)
    return digest.hexdigest()


def _remembered() -> Mapping[str, Any]:
    """Return the cached checksums; an empty mapping if they cannot be read."""
    try:
        with (data_folder() / REMEMBERED).open("rb") as file:
            entries = json.loads(file.read(MAX_BYTES))
    except (OSError, ValueError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _remember(facts: Mapping[str, Any]) -> None:
    """Write the newest entries to the cache of checksums. If it cannot be written, files are read again next time."""
    newest = dict(list(facts.items())[-MAX_REMEMBERED:])
    path = data_folder() / REMEMBERED
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{hashlib.sha256(repr(newest).encode()).hexdigest()[:8]}.new")
        temporary.write_text(json.dumps(newest))
        temporary.replace(path)
    except OSError as error:
        _log.debug("%s cannot be written: %s", path, error)
