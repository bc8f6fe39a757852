"""Random damage to the bytes of a file: flipped bits, cuts, repetitions, huge numbers; in archives, to members too.

Half of the damaged texts are still texts: words, numbers and lines of them are exchanged, repeated or missing.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO

import numpy as np


@dataclass(frozen=True)
class Damaged:
    """A damaged file."""

    content: bytes
    resealed: bool = False
    """Whether the checksums in it are those of the damaged content, as in a member of an archive."""


def damaged(data: bytes, random: np.random.Generator) -> Damaged:
    """The file with one to four changes; an archive is changed in its members as often as outside of them."""
    if data.startswith(b"PK") and random.random() < 0.5:
        return Damaged(_in_a_member(data, random), resealed=True)
    changes, most = (_TEXT_CHANGES, 2) if _is_text(data) and random.random() < 0.5 else (_CHANGES, 4)
    for _ in range(int(random.integers(1, most + 1))):
        if data:
            change = changes[int(random.integers(len(changes)))]
            data = change(data, int(random.integers(len(data))), random)
    return Damaged(data)


def _in_a_member(data: bytes, random: np.random.Generator) -> bytes:
    rewritten = BytesIO()
    with zipfile.ZipFile(BytesIO(data)) as before, zipfile.ZipFile(rewritten, "w") as after:
        members = before.infolist()
        chosen = int(random.integers(len(members)))
        for index, member in enumerate(members):
            content = before.read(member)
            after.writestr(member.filename, damaged(content, random).content if index == chosen else content)
    return rewritten.getvalue()


def _flip(data: bytes, at: int, random: np.random.Generator) -> bytes:
    return data[:at] + bytes([data[at] ^ (1 << int(random.integers(8)))]) + data[at + 1 :]


def _byte(data: bytes, at: int, random: np.random.Generator) -> bytes:
    return data[:at] + bytes([int(random.choice([0, 1, 0x7F, 0x80, 0xFF, 0x22, 0x7B, 0x2D]))]) + data[at + 1 :]


def _cut(data: bytes, at: int, random: np.random.Generator) -> bytes:
    return data[:at]


def _remove(data: bytes, at: int, random: np.random.Generator) -> bytes:
    return data[:at] + data[at + int(random.integers(1, 64)) :]


def _repeat(data: bytes, at: int, random: np.random.Generator) -> bytes:
    part = data[at : at + int(random.integers(1, 256))]
    return data[:at] + part * int(random.integers(2, 9)) + data[at:]


def _huge(data: bytes, at: int, random: np.random.Generator) -> bytes:
    number = (2**63 - 1, 2**32 - 1, 2**31, 2**40)[int(random.integers(4))]
    width = (4, 8)[int(random.integers(2))]
    return data[:at] + number.to_bytes(8, "little")[:width] + data[at + width :]


def _varint(data: bytes, at: int, random: np.random.Generator) -> bytes:
    return data[:at] + b"\xff" * int(random.integers(1, 10)) + b"\x01" + data[at + 1 :]


def _digits(data: bytes, at: int, random: np.random.Generator) -> bytes:
    """Replace a number in a text."""
    digits = [position for position, byte in enumerate(data[:100_000]) if 0x30 <= byte <= 0x39]
    if not digits:
        return _flip(data, at, random)
    position = digits[int(random.integers(len(digits)))]
    numbers = (b"0", b"-1", b"99999999999", b"1e999", b"true", b'"x"', b"[]")
    text = numbers[int(random.integers(len(numbers)))]
    return data[:position] + text + data[position + 1 :]


def _swap(data: bytes, at: int, random: np.random.Generator) -> bytes:
    other, size = int(random.integers(len(data))), int(random.integers(1, 32))
    first, two = sorted((at, other))
    if first + size > two:
        return _flip(data, at, random)
    return (
        data[:first]
        + data[two : two + size]
        + data[first + size : two]
        + data[first : first + size]
        + data[two + size :]
    )


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def _word(data: bytes, at: int, random: np.random.Generator) -> bytes:
    """Replace a word or number of a text by another one of the text, or remove it."""
    words = [match.span() for match in re.finditer(rb"[\w.+-]+", data[:100_000])]
    if not words:
        return _flip(data, at, random)
    start, stop = words[int(random.integers(len(words)))]
    other = slice(*words[int(random.integers(len(words)))])
    return data[:start] + (data[other] if random.random() < 0.9 else b"") + data[stop:]


def _line(data: bytes, at: int, random: np.random.Generator) -> bytes:
    """Remove a line of a text, or copy it to another position, with more or less indentation."""
    lines = data.split(b"\n")
    index, other = (int(random.integers(len(lines))) for _ in range(2))
    line = lines[index]
    match int(random.integers(3)):
        case 0:
            del lines[index]
        case 1:
            lines.insert(other, line)
        case _:
            lines[index] = b" " * int(random.integers(9)) + line.lstrip()
    return b"\n".join(lines)


_TEXT_CHANGES: tuple[Callable[[bytes, int, np.random.Generator], bytes], ...] = (_word, _word, _digits, _line)
_CHANGES: tuple[Callable[[bytes, int, np.random.Generator], bytes], ...] = (
    _flip, _byte, _cut, _remove, _repeat, _huge, _varint, _digits, _swap,
)  # fmt: skip
