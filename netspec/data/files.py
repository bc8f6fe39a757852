"""Finding and reading whole files, with errors that say which file and what is there instead."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from netspec.errors import InputError, kind_of_path, near_path


def read_bytes(path: Path) -> bytes:
    """The content of a file. Raises InputError where there is none or it cannot be read."""
    try:
        return existing(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}", got=error.strerror or str(error)) from None


def existing(path: Path, *, folder: bool = False) -> Path:
    """`path`, if a file (or a folder) is there. Raises InputError with the nearest name if not."""
    if path.is_dir() if folder else path.is_file():
        return path
    kind = "folder" if folder else "file"
    if path.exists():
        got = "a file" if path.is_file() else kind_of_path(path)
        raise InputError(f"{path} is not a {kind}", expected=f"a {kind}", got=got)
    raise InputError(f"there is no {kind} {path}", hint=near_path(path, folders=folder))


def fingerprint(*parts: bytes | str) -> str:
    """A digest of the parts and of where each ends."""
    digest = sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
