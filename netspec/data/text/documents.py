"""Documents as samples: text files, or lines of them, encoded when they are requested."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.base import DamagedSamples, Dataset, FieldType
from netspec.data.files import Watched, fingerprint, read_bytes
from netspec.data.readers.file_samples import FileKind, ListedFiles, Listing
from netspec.data.text.files import decoded, opened, place
from netspec.data.text.tokenizers.base import TOKENIZER, TokenizerSpec, tokenizer_of
from netspec.data.text.tokens import Tokenizer, UnknownText
from netspec.errors import InputError, Problem

if TYPE_CHECKING:
    from netspec.data.base import Array, Samples

TEXTS = FileKind("text", frozenset({".txt"}))
MOST_BYTES = 2**26
"""Maximum size of a document."""
_TYPE = FieldType((None,), "int32")


class TextFiles(ListedFiles["Array"]):
    """The files of a listing: `text` (None,) of int32, and `label`, if there are labels."""

    def __init__(
        self, listing: Listing, spec: TokenizerSpec, learned: Mapping[str, Any] | None, *, skip: bool = False
    ) -> None:
        super().__init__(listing, "text", *_TYPE)
        self._tokenizer, saved = tokenizer_of(spec, lambda: _usable(map(_text, listing.files), skip=skip), learned)
        self.learned = {TOKENIZER: saved}
        self.digest = fingerprint(self.digest, json.dumps(saved, sort_keys=True))

    def read_one(self, file: Path, name: str) -> Array:
        """Return the tokens of a file."""
        return _encoded(self._tokenizer, file, 0, _text(file)())


class TextLines(Dataset):
    """The lines of files that are not blank: `text` (None,) of int32, and `label`, that of the file, if it has one.

    Only the start of each line is kept in memory, 16 bytes per line.
    """

    def __init__(
        self,
        files: Sequence[Path],
        classes: tuple[str, ...],
        spec: TokenizerSpec,
        learned: Mapping[str, Any] | None,
        *,
        skip: bool = False,
    ) -> None:
        self._files = files
        self._watched = Watched(files)
        lines = [_lines(file) for file in files]
        self._firsts = np.concatenate([[0], np.cumsum([len(starts) for starts, _, _ in lines])])
        self._starts = np.concatenate([starts for starts, _, _ in lines])
        self._sizes = np.concatenate([sizes for _, sizes, _ in lines])
        self._labelled = bool(classes)
        self.classes = {"label": classes} if classes else {}
        self.fields = {"text": _TYPE, **({"label": FieldType((), "int32")} if classes else {})}
        self._tokenizer, saved = tokenizer_of(spec, lambda: _usable(self._texts(), skip=skip), learned)
        self.learned = {TOKENIZER: saved}
        self.digest = fingerprint(*(digest for _, _, digest in lines), *classes, json.dumps(saved, sort_keys=True))
        self._watched.check()

    def __len__(self) -> int:
        return len(self._starts)

    def read(self, indices: Array) -> dict[str, Samples]:
        """Return the lines at `indices`. Raises `DamagedSamples` with lines that are not text or have unknown words."""
        owners = np.searchsorted(self._firsts, indices, side="right") - 1
        texts: dict[int, Array] = {}
        damaged: dict[int, Sequence[Problem]] = {}
        for owner in np.unique(owners).tolist():
            path = self._files[owner]
            self._watched.check(path)
            with opened(path) as file:
                for row in np.flatnonzero(owners == owner).tolist():
                    start, size = int(self._starts[indices[row]]), int(self._sizes[indices[row]])
                    file.seek(start)
                    try:
                        texts[row] = _encoded(self._tokenizer, path, start, decoded(path, file.read(size), start))
                    except InputError as error:
                        damaged[row] = error.problems
        if damaged:
            raise DamagedSamples(damaged)
        samples: dict[str, Samples] = {"text": [texts[row] for row in range(len(indices))]}
        if self._labelled:
            samples["label"] = owners.astype(np.int32)
        return samples

    def describe(self, index: int) -> str:
        """Return the file and the line."""
        where = place(self._files[self._owner(index)], int(self._starts[index]))
        return f"{where.file}, line {where.line}"

    def _owner(self, index: int) -> int:
        return int(np.searchsorted(self._firsts, index, side="right")) - 1

    def _texts(self) -> Iterator[Any]:
        """Each line, to be decoded by a call."""
        for owner, path in enumerate(self._files):
            with opened(path) as file:
                for index in range(int(self._firsts[owner]), int(self._firsts[owner + 1])):
                    start = int(self._starts[index])
                    file.seek(start)
                    raw = file.read(int(self._sizes[index]))
                    yield lambda path=path, raw=raw, start=start: decoded(path, raw, start)


def _text(file: Path) -> Any:
    """Return a function that reads a file."""

    def read() -> str:
        size = file.stat().st_size
        if size > MOST_BYTES:
            raise InputError(f"{file} is too long", expected=f"at most {MOST_BYTES:,} bytes", got=f"{size:,}")
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
        raise InputError(error.problem(place(path, start, error.line, error.column))) from None


def _lines(path: Path) -> tuple[Array, Array, str]:
    """Return start and length of the lines that are not blank, and a fingerprint."""
    starts, sizes, digest, start = array("q"), array("q"), sha256(), 0
    with opened(path) as file:
        while line := file.readline(MOST_BYTES + 1):
            if len(line) > MOST_BYTES:
                raise InputError(Problem("this line is too long", place(path, start), expected=f"{MOST_BYTES:,} bytes"))
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
