"""Windows of running text: the input of a language model, and its target, which is shifted by one token."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from netspec.data.base import Array, Dataset, FieldType
from netspec.data.files import Watched, fingerprint
from netspec.data.text.files import FileRange, blocks, digest_of, locate_byte
from netspec.data.text.token_store import token_store
from netspec.data.text.tokenizers.base import TOKENIZER, TokenizerSpec, tokenizer_of
from netspec.data.text.tokens import Tokenizer, UnknownText
from netspec.errors import InputError, counted


class TextWindows(Dataset):
    """Windows of `length` tokens, each beginning `stride` tokens after the previous one; no window spans two files.

    `learned` is that of the training split's dataset; None for the training split itself.
    """

    def __init__(
        self,
        parts: Sequence[FileRange],
        spec: TokenizerSpec,
        *,
        length: int,
        stride: int,
        learned: Mapping[str, Any] | None,
    ) -> None:
        watched = Watched([part.path for part in parts])
        tokenizer, saved = tokenizer_of(spec, lambda: _texts(parts), learned)
        self.learned = {TOKENIZER: saved}
        made_by = json.dumps(saved, sort_keys=True)
        self.digest = fingerprint(*(digest_of(part) for part in parts), made_by)
        self._parts = parts
        store = token_store([_encoded(part, tokenizer) for part in parts], tokenizer.size, self.digest)
        watched.check()
        self._tokens = store.tokens
        self._begins = store.bounds[:-1]
        sizes = np.diff(store.bounds)
        windows = np.maximum((sizes - 1 - length) // stride + 1, 0)
        if not windows.any():
            longest = f"{counted(int(sizes.max()), 'token')} in {parts[int(sizes.argmax())].path}"
            raise InputError(
                "the text is shorter than a window",
                path="length",
                expected=f"{length + 1:,} tokens or more: `length` and the next one",
                got=longest if len(parts) == 1 else f"at most {longest}",
            )
        self._firsts = np.concatenate([[0], np.cumsum(windows)])
        self._length, self._stride = length, stride
        kind = FieldType((length,), "int32")
        self.fields = {"text": kind, "target": kind}
        self.vocabulary_sizes = dict.fromkeys(self.fields, tokenizer.size)

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def read(self, indices: Array) -> dict[str, Any]:
        """Return the windows, and the next token for each of their tokens."""
        starts = self._starts(indices)[1]
        windows = self._tokens[starts[:, None] + np.arange(self._length + 1)].astype(np.int32)
        return {"text": windows[:, :-1], "target": windows[:, 1:]}

    def describe(self, index: int) -> str:
        """Return the file and the range of tokens in it, counted from 0."""
        files, starts = self._starts(np.array([index]))
        first = int(starts[0] - self._begins[files[0]])
        return f"{self._parts[files[0]].path.name}, tokens {first:,} to {first + self._length:,}"

    def _starts(self, indices: Array) -> tuple[Array, Array]:
        """The files of windows, and where these start in the array of all tokens."""
        files = np.searchsorted(self._firsts, indices, side="right") - 1
        return files, self._begins[files] + (indices - self._firsts[files]) * self._stride


def _texts(parts: Sequence[FileRange]) -> Iterator[str]:
    for part in parts:
        for block in blocks(part):
            yield block.text


def _encoded(part: FileRange, tokenizer: Tokenizer) -> Iterator[Array]:
    for block in blocks(part):
        try:
            yield tokenizer.encode_long(block.text)
        except UnknownText as error:
            raise InputError(error.problem(locate_byte(part.path, block.start, error.line, error.column))) from None
