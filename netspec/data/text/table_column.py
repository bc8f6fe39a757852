"""Texts in a column of a table, for a net whose training data is files of texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from netspec.data.base import Array, Dataset, FieldType, Samples
from netspec.data.files import fingerprint
from netspec.data.tabular.row_errors import BlockFaults, Faults
from netspec.data.tabular.table_format import open_by_content
from netspec.data.text.tokenizers.base import TOKENIZER, TokenizerSpec, opened_tokenizer
from netspec.data.text.tokens import UnknownText
from netspec.errors import InputError, listing

TEXT = "text"


def has_text_column(path: Path) -> bool:
    """Return whether a file is a table with a column `text`."""
    try:
        return TEXT in open_by_content(path).names
    except InputError:  # for example a text with an unbalanced quotation mark
        return False


class TableTexts(Dataset):
    """The rows of a table: `text` (None,) of int32, from the column `text` or the only one; the texts are in memory.

    Raises `InputError` if the column is missing, or rows cannot be read.
    """

    def __init__(self, path: Path, spec: TokenizerSpec, learned: Mapping[str, Any] | None) -> None:
        saved = dict((learned or {}).get(TOKENIZER, {}))
        self._tokenizer = opened_tokenizer(spec, saved)
        self._file = open_by_content(path)
        self._texts = self._read_texts()
        self.fields = {TEXT: FieldType((None,), "int32")}
        self.vocabulary_sizes = {TEXT: self._tokenizer.size}
        self.learned = {TOKENIZER: saved}
        self.digest = fingerprint(self._file.digest, json.dumps(saved, sort_keys=True))

    def _read_texts(self) -> list[str]:
        names = [str(name) for name in self._file.names]
        if TEXT not in names and len(names) > 1:
            raise InputError(
                f"{self._file.path} has no column `{TEXT}`", expected=f"a column `{TEXT}`, or a single column",
                got=f"columns {listing(names, 10)}",
            )  # fmt: skip
        faults, texts = Faults(self._file.title), list[str]()
        for block in self._file.blocks([names.index(TEXT) if TEXT in names else 0]):
            of_block = BlockFaults(faults, len(block), block.locate)
            for fault in block.faults:
                of_block.add([fault.row], None, fault.message, expected=fault.expected, got=fault.got, hint=fault.hint)
            texts += [block.cells[0].text(row) for row in range(len(block))]
        faults.raise_found()
        if not texts:
            raise InputError(f"{self._file.path} has no rows", expected="a text in each row")
        return texts

    def __len__(self) -> int:
        return len(self._texts)

    def read(self, indices: Array) -> dict[str, Samples]:
        """Return the tokens of the texts at `indices`. Raises `InputError` for text that is not in the vocabulary."""
        try:
            return {TEXT: [self._tokenizer.encode(self._texts[index]) for index in indices.tolist()]}
        except UnknownText as error:
            raise InputError([error.problem()]) from None

    def describe(self, index: int) -> str:
        """Return the file and the row."""
        return f"{self._file.path.name}, row {index + 1}"
