"""Kinds of files of which each is a sample: images, masks, sounds and texts, and the formats that are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from mimetypes import MimeTypes
from pathlib import Path
from typing import NamedTuple

from netspec.errors import counted

_MEDIA_TYPES = MimeTypes()
"""Python's table, without the types that a machine adds."""


class FileKind(NamedTuple):
    """Kind of file: its name in messages, and its formats."""

    name: str
    """Name of one file in messages: `image`."""
    suffixes: frozenset[str]
    """Suffixes of the formats that are read."""
    medium: str
    """Start of the media types of such files, whether they are read or not."""
    common_formats: str
    """Formats to convert others to."""

    def has_suffix(self, file: Path) -> bool:
        """Return whether a file, by its name, is of this kind."""
        return file.suffix.lower() in self.suffixes or self.is_unread(file)

    def is_unread(self, file: Path) -> bool:
        """Return whether a file, by its name, is of this kind but in a format that is not read."""
        if file.suffix.lower() in self.suffixes:
            return False
        media_type, encoding = _MEDIA_TYPES.guess_type(file.name)
        return encoding is None and (media_type or "").startswith(self.medium)

    def describe_unread(self, files: Sequence[Path]) -> str:
        """Return a sentence about files of formats that are not read."""
        are, them = ("is", "it") if len(files) == 1 else ("are", "them")
        counts = Counter(file.suffix.lower() for file in files)
        formats = ", ".join(f"{count:,} {suffix}" for suffix, count in sorted(counts.items()))
        several = f" ({formats})" if len(counts) > 1 else ""
        return (
            f"{counted(len(files), self.name)} {are} in a format that netspec does not read{several}, such as "
            f"{files[0]}: convert {them} to {self.common_formats}"
        )


_LOSSLESS = frozenset({".png", ".bmp", ".gif", ".tif", ".tiff"})
IMAGES = FileKind("image", _LOSSLESS | {".jpg", ".jpeg", ".webp"}, "image/", "JPEG or PNG")
MASKS = FileKind("mask", _LOSSLESS, "image/", "PNG")
"""JPEG and WebP are missing because their compression would change class indices."""
SOUNDS = FileKind("sound", frozenset({".wav", ".wave"}), "audio/", "WAV")
TEXTS = FileKind("text", frozenset({".txt"}), "text/", "plain text (.txt)")
TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".parquet", ".pq"})
"""Suffixes of tables."""


def has_table_suffix(path: Path) -> bool:
    """Return whether a file, by its name, is a table."""
    return path.suffix.lower() in TABLE_SUFFIXES
