"""Files of text in UTF-8, read by blocks; errors name the line and column of the wrong bytes."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple

from netspec.data.files import existing, explain_read_errors
from netspec.errors import InputError, Location, Problem

BLOCK = 2**20
"""Number of bytes that are read at a time."""
_BOM = b"\xef\xbb\xbf"
_MAX_QUOTED = 2**16


class TextBlock(NamedTuple):
    """A piece of text of a file."""

    text: str
    start: int
    """Its first byte in the file."""


class FileRange(NamedTuple):
    """The bytes of a file from `start` up to `end`."""

    path: Path
    start: int
    end: int


def part_of(path: Path, first: float, last: float) -> FileRange:
    """Return the range from the fraction `first` of a file to the fraction `last`, at character boundaries.

    Raises `InputError` if the file is missing or empty.
    """
    size = existing(path).stat().st_size
    if not size:
        raise InputError(f"{path} is empty", expected="text in UTF-8")
    with opened(path) as file:
        return FileRange(path, *(_character(file, int(size * fraction)) for fraction in (first, last)))


def opened(path: Path) -> BinaryIO:
    """Open a file to read bytes. Raises `InputError` if it cannot be read."""
    with explain_read_errors(path):
        return existing(path).open("rb")


def _character(file: BinaryIO, byte: int) -> int:
    """Return the first byte from `byte` on that does not continue a character."""
    file.seek(byte)
    content = file.read(4)
    return byte + next((at for at, byte_value in enumerate(content) if byte_value & 0xC0 != 0x80), len(content))


def blocks(part: FileRange) -> Iterator[TextBlock]:
    """Yield the text of a range, split after lines, or after words if lines are long.

    Raises `InputError` for bytes that are not text.
    """
    with opened(part.path) as file:
        start = part.start
        file.seek(start)
        while start < part.end:
            raw = file.read(min(BLOCK, part.end - start))
            if not raw:
                raise InputError(f"{part.path} shrank while it was read", got=f"{start:,} bytes of {part.end:,}")
            if start + len(raw) < part.end:
                raw = raw[: _end_of(raw)]
                file.seek(start + len(raw))
            yield TextBlock(decoded(part.path, raw, start), start)
            start += len(raw)


def _end_of(raw: bytes) -> int:
    """Return where to split: after the last line, else the last blank, else the last complete character."""
    for blank in (b"\n", b" "):
        position = raw.rfind(blank) + 1
        if position:
            return position
    for end in range(len(raw) - 1, max(len(raw) - 4, 0), -1):
        if raw[end] & 0xC0 == 0xC0:  # a lead byte: its leading ones are the length of the character
            return end if len(raw) - end < 2 + (raw[end] >= 0xE0) + (raw[end] >= 0xF0) else len(raw)
    return len(raw)


def decoded(path: Path, raw: bytes, start: int = 0) -> str:
    """Decode bytes that begin at `start` in the file. Raises `InputError` if they are not UTF-8 or contain NUL."""
    offset = len(_BOM) if start == 0 and raw.startswith(_BOM) else 0
    try:
        text = raw[offset:].decode()
    except UnicodeDecodeError as error:
        byte = offset + error.start
        got = f"the byte {raw[byte]:#04x} at {start + byte:,}"
        problem = Problem(
            f"{path} is not text in UTF-8", locate_byte(path, start + byte), expected="text in UTF-8", got=got,
            hint="write the file again in UTF-8, for example by `iconv -f latin1 -t utf8`",
        )  # fmt: skip
        raise InputError(problem) from None
    if "\0" in text:
        byte = raw.index(b"\0")
        raise InputError(
            Problem(f"{path} has a NUL byte", locate_byte(path, start + byte), expected="text, which has none")
        )
    return text


def locate_byte(path: Path, byte: int, line: int = 0, column: int | None = None) -> Location:
    """Return the location of a byte, or of a column (from 0) in the `line`-th line after the byte's line.

    Reads the file up to there.
    """
    before = 0
    with opened(path) as file:
        remaining, begin = byte, 0
        while remaining and (raw := file.read(min(BLOCK, remaining))):
            before += raw.count(b"\n")
            if b"\n" in raw:
                begin = byte - remaining + raw.rindex(b"\n") + 1
            remaining -= len(raw)
        file.seek(begin)
        for _ in range(line):
            begin += len(file.readline())
        text = file.readline(_MAX_QUOTED)
    if begin == 0 and text.startswith(_BOM):
        text, begin = text[len(_BOM) :], len(_BOM)
    if column is None:
        column = len(text[: byte - begin].decode(errors="replace"))
    elif not line:
        column += len(text[: byte - begin].decode(errors="replace"))
    return Location(str(path), before + line + 1, column + 1, text.decode(errors="replace").rstrip("\r\n"))


def digest_of(part: FileRange) -> str:
    """Return a fingerprint of the bytes of a range."""
    digest, remaining = sha256(), part.end - part.start
    with opened(part.path) as file:
        file.seek(part.start)
        while remaining and (raw := file.read(min(BLOCK, remaining))):
            digest.update(raw)
            remaining -= len(raw)
    return digest.hexdigest()


def text_files_below(folder: Path) -> list[Path]:
    """Return all `.txt` files below a folder, sorted by path. Raises `InputError` if there are none."""
    files = sorted(file for file in folder.rglob("*.txt") if file.is_file() and not file.name.startswith("."))
    if not files:
        raise InputError(f"{folder} holds no text", expected="files whose names end in .txt")
    return files
