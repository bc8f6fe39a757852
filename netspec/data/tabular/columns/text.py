"""`{type: text}`: a column of sentences, as tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import PositiveInt, model_validator

from netspec.data.tabular.columns.base import LABEL, ColumnSetting, ColumnSpec
from netspec.data.text.tokenizers.base import AnyTokenizer
from netspec.schema.specs.data import COLUMNS
from netspec.schema.specs.spec import problem

if TYPE_CHECKING:
    from netspec.data.tabular.column import Column


@COLUMNS.register
class Text(ColumnSpec):
    """A text for each row: the numbers of its first `length` tokens, int32 `[length]` in a field of the column's name.

    Shorter texts are filled up behind with the number that the tokenizer keeps for padding, which an Embedding with
    `mask_zero` passes over. The vocabulary is that of the training split; it is saved with the weights.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        **ColumnSpec.foreign_fields,
        "output_sequence_length": "here it is `length`",
        "max_length": "here it is `length`",
        "max_tokens": "here it is `size`, in `tokenizer`",
    }

    type: Literal["text"] = "text"
    tokenizer: AnyTokenizer
    """the tokenizer that turns the text into numbers"""
    length: PositiveInt
    """number of tokens of a sample; longer texts are cut off"""
    missing: Literal["error", "empty", "drop"] = "error"
    """how missing texts are handled: an error, an `empty` text, or the row is left out"""

    samples: ClassVar = (
        {"tokenizer": {"type": "words", "lowercase": True, "padding": True, "unknown": True}, "length": 100},
    )

    @model_validator(mode="after")
    def _padded(self) -> Self:
        if getattr(self.tokenizer, "padding", True) is False:
            raise problem(
                "texts are of different lengths, and the tokenizer has no number to fill them up with",
                field="tokenizer",
                expected="`padding: true` in it",
            )
        return self

    @property
    def whole(self) -> bool:
        return True

    def field_of(self, name: str, *, is_label: bool) -> str:
        return self.field or (LABEL if is_label else name)

    def reader(self, setting: ColumnSetting) -> Column:
        from netspec.data.tabular.text_reader import TextColumn

        return TextColumn(self, setting)
