"""Reader of columns of type `text`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.base import Array
from netspec.data.tabular.column import Column
from netspec.data.text.tokenizers.base import TOKENIZER, learned_tokenizer, opened_tokenizer
from netspec.data.text.tokens import UnknownText
from netspec.errors import InputError

if TYPE_CHECKING:
    from netspec.data.tabular.cells import Cells
    from netspec.data.tabular.columns.base import ColumnSetting
    from netspec.data.tabular.columns.text import TextColumnSpec
    from netspec.data.tabular.row_errors import BlockFaults
    from netspec.data.text.tokens import Tokenizer


class TextColumn(Column):
    """Reads texts as Python objects; empty for missing ones."""

    vector = True

    def __init__(self, spec: TextColumnSpec, setting: ColumnSetting) -> None:
        super().__init__(setting)
        self._spec = spec
        self._tokenizer: Tokenizer | None = None
        self._tokenizer_data: dict[str, Any] = {}
        learned = self.learned_values(TOKENIZER)
        if learned is not None:
            self._tokenizer_data = dict(learned[TOKENIZER])
            self._tokenizer = opened_tokenizer(spec.tokenizer, self._tokenizer_data)

    def parse(self, cells: Cells, faults: BlockFaults) -> Array:
        texts, text_indices = cells.distinct()
        lost = [index for index, text in enumerate(texts) if not text or text.lower() in self.setting.absent]
        if lost and self._spec.missing == "error":
            rows = np.flatnonzero(np.isin(text_indices, lost))
            self.add_absent(faults, rows, cells, expected="a text", hint="`missing: empty` reads it as an empty text")
        usable = ["" if index in set(lost) else text for index, text in enumerate(texts)] if lost else texts
        if self._tokenizer is not None and self._tokenizer.unknown is None:
            self._report_unknown(self._tokenizer, usable, text_indices, faults)
        return np.array(usable, object)[text_indices]

    def _report_unknown(self, tokenizer: Tokenizer, texts: list[str], text_indices: Array, faults: BlockFaults) -> None:
        try:
            tokenizer.encode_all(texts)
        except UnknownText:
            for index, text in enumerate(texts):
                try:
                    tokenizer.encode(text)
                except UnknownText as error:
                    problem = error.problem()
                    rows = np.flatnonzero(text_indices == index)
                    faults.add(rows, self.index, problem.message, expected=problem.expected, hint=problem.hint)

    def drops(self, values: Array) -> Array | None:
        return values == "" if self._spec.missing == "drop" else None

    def bytes_of(self, values: Array) -> int:
        return values.nbytes + sum(map(len, values.tolist()))

    def finish_learning(self, reread: Callable[[], Iterator[Array]]) -> None:
        if self._tokenizer is None:
            texts = (text for values in reread() for text in values.tolist())
            self._tokenizer, self._tokenizer_data = learned_tokenizer(self._spec.tokenizer, texts)
        if self._tokenizer.padding is None:
            raise InputError(
                f"texts of {self.title} differ in length, and the tokenizer has no index for padding",
                expected="a tokenizer with padding",
            )

    @property
    def learned(self) -> dict[str, Any]:
        return {TOKENIZER: self._tokenizer_data}

    @property
    def width(self) -> int:
        return self._spec.length

    @property
    def dtype(self) -> str:
        return "int32"

    def encode(self, values: Array) -> Array:
        assert self._tokenizer is not None
        padded = np.full((len(values), self.width), self._tokenizer.padding, np.int32)
        for row, tokens in enumerate(self._tokenizer.encode_all(values.tolist())):
            padded[row, : len(tokens)] = tokens[: self.width]
        return padded
