"""Zip archives (.npz, .keras), whose directory is checked before anything is unpacked."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from netspec.errors import InputError, Problem, listing
from netspec.exchange.files import reading, sniff
from netspec.files.damage import MAX_DEFLATE_RATIO
from netspec.files.zip_directory import check_number_of_members

MAX_MEMBERS = 100_000
MAGIC = b"PK\x03\x04"
_READABLE = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_ENCRYPTED = 0x1


@contextmanager
def open_zip(path: str | Path, kind: str) -> Iterator[zipfile.ZipFile]:
    """Open an archive after a check of its directory: names, headers and sizes of members.

    Raises `InputError` with all problems of the directory, or if a member that is read in the block is damaged.
    """
    with reading(path, kind) as (file, size):
        try:
            archive = zipfile.ZipFile(file)
        except Exception as error:  # the file's first bytes explain more than the error
            file.seek(0)
            head = file.read(512)
            got, hint = ("a damaged zip archive", None) if head.startswith(MAGIC) else sniff(head)
            raise InputError(f"{path} can't be read", expected=kind, got=got, hint=hint) from error
        with archive:
            problems = _problems(archive, size)
            if problems:
                raise InputError(Problem(f"{path} is refused: {text}", expected=kind) for text in problems)
            yield archive


def _problems(archive: zipfile.ZipFile, size: int) -> list[str]:
    try:
        check_number_of_members(archive)
    except zipfile.BadZipFile as error:
        return [str(error)]
    members = archive.infolist()
    if len(members) > MAX_MEMBERS:
        return [f"it has {len(members):,} members"]
    names = [member.filename for member in members]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    outside = [name for name in names if name.startswith(("/", "\\")) or ".." in PurePosixPath(name).parts]
    locked = [member.filename for member in members if member.flag_bits & _ENCRYPTED]
    packed = [member.filename for member in members if member.compress_type not in _READABLE]
    bombs = [member.filename for member in members if member.file_size > MAX_DEFLATE_RATIO * (member.compress_size + 1)]
    findings = [
        ("duplicate members: ", twice),
        ("members outside of the archive: ", outside),
        ("encrypted members: ", locked),
        ("members with an unsupported compression: ", packed),
        ("members whose declared size cannot be right: ", bombs),
    ]
    problems = [text + listing(names, 6) for text, names in findings if names]
    if sum(member.compress_size for member in members) > size:
        problems.append("its members overlap")
    if not problems and (damaged := [member.filename for member in members if not _has_header(archive, member)]):
        problems.append(f"members whose headers are damaged or have another name: {listing(damaged, 6)}")
    return problems


def _has_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bool:
    """Return whether the header of a member agrees with the directory, which has no checksum."""
    try:
        archive.open(member).close()
    except zipfile.BadZipFile:
        return False
    return True
