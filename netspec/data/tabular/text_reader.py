"""Reader of columns of type `text`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.base import Array
from netspec.data.tabular.cells import each_distinct
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
        texts, text_indices = self.distinct_texts(cells)
        lost = [index for index, text in enumerate(texts) if not text]
        if lost and self._spec.missing == "error":
            rows = np.flatnonzero(np.isin(text_indices, lost))
            fields = "`missing: empty` to read it as an empty text"
            self.add_absent(faults, rows, cells, expected="a text", training=fields)
        if self._tokenizer is not None and self._tokenizer.unknown is None:
            self._report_unknown(self._tokenizer, texts, text_indices, faults)
        return np.array(texts, object)[text_indices]

    def distinct_texts(self, cells: Cells) -> tuple[list[str], Array]:
        """Return the distinct cells, empty for missing texts, and the index of each row's cell among them, (N,)."""
        return each_distinct(cells, lambda text: "" if text.lower() in self.setting.absent else text)

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
        return self._padded(values, (), self.tokenizer.end if self._spec.decoder_input else None)

    def encode_decoder_input(self, values: Array) -> Array:
        """Return the start token followed by the tokens, (N, width)."""
        assert self.tokenizer.start is not None
        return self._padded(values, [self.tokenizer.start], None)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, after learning."""
        assert self._tokenizer is not None
        return self._tokenizer

    def _padded(self, values: Array, prefix: Sequence[int], suffix: int | None) -> Array:
        padded = np.full((len(values), self.width), self.tokenizer.padding, np.int32)
        for row, tokens in enumerate(self.tokenizer.encode_all(values.tolist())):
            sequence = [*prefix, *tokens.tolist()[: self.width], *([] if suffix is None else [suffix])][: self.width]
            padded[row, : len(sequence)] = sequence
        return padded


class DecoderInput(Column):
    """The same texts as the input of a decoder, preceded by the start token."""

    vector = is_derived = True

    def __init__(self, texts: TextColumn) -> None:
        super().__init__(texts.setting)
        self._texts = texts
        self.index = texts.index

    def parse(self, cells: Cells, faults: BlockFaults) -> Array:
        texts, text_indices = self._texts.distinct_texts(cells)  # the text column itself reports faults
        return np.array(texts, object)[text_indices]

    def drops(self, values: Array) -> Array | None:
        return None  # the text column itself drops rows

    def bytes_of(self, values: Array) -> int:
        return self._texts.bytes_of(values)

    @property
    def learned(self) -> dict[str, Any]:
        return self._texts.learned

    @property
    def width(self) -> int:
        return self._texts.width

    @property
    def dtype(self) -> str:
        return self._texts.dtype

    def encode(self, values: Array) -> Array:
        return self._texts.encode_decoder_input(values)
