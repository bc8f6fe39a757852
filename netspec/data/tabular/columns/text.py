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
class TextColumnSpec(ColumnSpec):
    """A text in each row: its first `length` tokens, int32 `[length]` in a field with the name of the column.

    Shorter texts are padded at the end with the number that the tokenizer reserves for padding, which an Embedding with
    `mask_zero` masks. The vocabulary is that of the training split; it is saved with the weights.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        **ColumnSpec.foreign_fields,
        "output_sequence_length": "use `length`",
        "max_length": "use `length`",
        "max_tokens": "use `size`, in `tokenizer`",
    }

    holds_text: ClassVar[bool] = True

    type: Literal["text"] = "text"
    tokenizer: AnyTokenizer
    """The tokenizer that converts the text to token numbers."""
    length: PositiveInt
    """Number of tokens of a sample; longer texts are truncated."""
    missing: Literal["error", "empty", "drop"] = "error"
    """Handling of missing texts: an error, an `empty` text, or the row is left out."""

    samples: ClassVar = (
        {"tokenizer": {"type": "words", "lowercase": True, "padding": True, "unknown": True}, "length": 100},
    )

    @model_validator(mode="after")
    def _padded(self) -> Self:
        if getattr(self.tokenizer, "padding", True) is False:
            raise problem(
                "texts differ in length, and the tokenizer has no index for padding",
                field="tokenizer",
                expected="`padding: true` in the tokenizer",
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
