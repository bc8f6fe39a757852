"""Documents as samples: text files, or lines of them, encoded when they are requested."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from netspec.data.base import Array, DamagedSamples, Dataset, FieldType, Samples
from netspec.data.files import Watched, fingerprint, read_bytes
from netspec.data.readers.file_samples import ListedFiles, Listing
from netspec.data.text.files import decoded, locate_byte, opened
from netspec.data.text.tokenizers.base import TOKENIZER, TokenizerSpec, tokenizer_of
from netspec.data.text.tokens import Tokenizer, UnknownText
from netspec.errors import InputError, Problem

MAX_BYTES = 2**26
"""Maximum size of a document."""
_TYPE = FieldType((None,), "int32")


class TextFiles(ListedFiles["Array"]):
    """The files of a listing: `text` (None,) of int32, and `label`, if there are labels."""

    def __init__(self, listing: Listing, spec: TokenizerSpec, learned: Mapping[str, Any] | None, *, skip: bool) -> None:
        super().__init__(listing, "text", *_TYPE)
        self._tokenizer, saved = tokenizer_of(spec, lambda: _usable(map(_text, listing.files), skip=skip), learned)
        self.vocabulary_sizes = {"text": self._tokenizer.size}
        self.learned = {TOKENIZER: saved}
        self.digest = fingerprint(self.digest, json.dumps(saved, sort_keys=True))

    def read_one(self, file: Path, name: str) -> Array:
        """Return the tokens of a file."""
        return _encoded(self._tokenizer, file, 0, _text(file)())


@dataclass(frozen=True)
class LineIndex:
    """The lines of files that are not blank: 16 bytes for each."""

    files: Sequence[Path]
    owners: Array
    """Index of the file of each line, (N,)."""
    starts: Array
    """Its first byte, (N,)."""
    sizes: Array
    """Its length in bytes, (N,)."""
    digests: tuple[str, ...]
    """Fingerprints of the files and of the choice of lines."""

    def only(self, indices: Array) -> LineIndex:
        """Return the lines at `indices`."""
        digests = (*self.digests, fingerprint(indices.astype("<i8").tobytes()))
        return LineIndex(self.files, self.owners[indices], self.starts[indices], self.sizes[indices], digests)


def find_lines(files: Sequence[Path]) -> LineIndex:
    """Find the lines of files. Raises `InputError` for empty files."""
    watched = Watched(files)
    lines = [_lines(file) for file in files]
    watched.check()
    starts, sizes = (np.concatenate([part[number] for part in lines]) for number in (0, 1))
    owners = np.repeat(np.arange(len(files)), [len(starts) for starts, _, _ in lines])
    return LineIndex(files, owners, starts, sizes, tuple(digest for _, _, digest in lines))


class TextLines(Dataset):
    """Lines of files: `text` (None,) of int32, and `label`, the label of the file, if it has one."""

    def __init__(
        self,
        lines: LineIndex,
        classes: tuple[str, ...],
        spec: TokenizerSpec,
        learned: Mapping[str, Any] | None,
        *,
        skip: bool,
    ) -> None:
        self._lines = lines
        self._watched = Watched(lines.files)
        self._labeled = bool(classes)
        self.classes = {"label": classes} if classes else {}
        self.fields = {"text": _TYPE, **({"label": FieldType((), "int32")} if classes else {})}
        self._tokenizer, saved = tokenizer_of(spec, lambda: _usable(self._texts(), skip=skip), learned)
        self.vocabulary_sizes = {"text": self._tokenizer.size}
        self.learned = {TOKENIZER: saved}
        self.digest = fingerprint(*lines.digests, *classes, json.dumps(saved, sort_keys=True))
        self._watched.check()

    def __len__(self) -> int:
        return len(self._lines.starts)

    def read(self, indices: Array) -> dict[str, Samples]:
        """Return the lines at `indices`. Raises `DamagedSamples` with lines that are not text or have unknown words."""
        owners = self._lines.owners[indices]
        texts: dict[int, Array] = {}
        damaged: dict[int, Sequence[Problem]] = {}
        for owner in np.unique(owners).tolist():
            path = self._lines.files[owner]
            self._watched.check(path)
            with opened(path) as file:
                for row in np.flatnonzero(owners == owner).tolist():
                    start, size = int(self._lines.starts[indices[row]]), int(self._lines.sizes[indices[row]])
                    file.seek(start)
                    try:
                        texts[row] = _encoded(self._tokenizer, path, start, decoded(path, file.read(size), start))
                    except InputError as error:
                        damaged[row] = error.problems
        if damaged:
            raise DamagedSamples(damaged)
        samples: dict[str, Samples] = {"text": [texts[row] for row in range(len(indices))]}
        if self._labeled:
            samples["label"] = owners.astype(np.int32)
        return samples

    def describe(self, index: int) -> str:
        """Return the file and the line."""
        where = locate_byte(self._lines.files[self._lines.owners[index]], int(self._lines.starts[index]))
        return f"{where.file}, line {where.line}"

    def _texts(self) -> Iterator[Any]:
        """Yield for each line a function that decodes it."""
        for owner, path in enumerate(self._lines.files):
            with opened(path) as file:
                for index in np.flatnonzero(self._lines.owners == owner).tolist():
                    start = int(self._lines.starts[index])
                    file.seek(start)
                    raw = file.read(int(self._lines.sizes[index]))
                    yield lambda path=path, raw=raw, start=start: decoded(path, raw, start)


def _text(file: Path) -> Any:
    """Return a function that reads a file."""

    def read() -> str:
        size = file.stat().st_size
        if size > MAX_BYTES:
            raise InputError(f"{file} is too long", expected=f"at most {MAX_BYTES:,} bytes", got=f"{size:,}")
        return decoded(file, read_bytes(file))

    return read


def _usable(texts: Iterator[Any], *, skip: bool) -> Iterator[str]:
    """Yield the texts from which a vocabulary is learned, without damaged ones if these are skipped."""
    for read in texts:
        try:
            yield read()
        except InputError:
            if not skip:
                raise


def _encoded(tokenizer: Tokenizer, path: Path, start: int, text: str) -> Array:
    try:
        return tokenizer.encode(text)
    except UnknownText as error:
        raise InputError(error.problem(locate_byte(path, start, error.line, error.column))) from None


def _lines(path: Path) -> tuple[Array, Array, str]:
    """Return start and length of the lines that are not blank, and a fingerprint."""
    starts, sizes, digest, start = array("q"), array("q"), sha256(), 0
    with opened(path) as file:
        while line := file.readline(MAX_BYTES + 1):
            if len(line) > MAX_BYTES:
                raise InputError(
                    Problem("this line is too long", locate_byte(path, start), expected=f"{MAX_BYTES:,} bytes")
                )
            digest.update(line)
            if line.strip():
                starts.append(start)
                sizes.append(len(line.rstrip(b"\r\n")))
            start += len(line)
    if not starts:
        raise InputError(
            f"{path} is empty" if not start else f"{path} holds nothing but blanks", expected="lines of text"
        )
    return np.array(starts), np.array(sizes), digest.hexdigest()
