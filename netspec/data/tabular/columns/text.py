"""`{type: text}`: a column of sentences, as tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

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
    """The tokenizer that converts the text to token indices."""
    length: PositiveInt
    """Number of tokens of a sample; longer texts are truncated."""
    missing: Literal["error", "empty", "drop"] = "error"
    """Handling of missing texts: an error, an `empty` text, or the row is left out."""
    decoder_input: str | None = Field(default=None, min_length=1)
    """Name of a second field, int32 `[length]`, for a decoder that learns to write the text: the start token, followed
    by the tokens. The column's own field then ends with the end token, so that the target of each position is the next
    token (teacher forcing). `length` counts the start or end token; texts of `length` tokens or more have no end
    token. Needs `start_end` in the tokenizer."""

    samples: ClassVar = (
        {"tokenizer": {"type": "words", "lowercase": True, "padding": True, "unknown": True}, "length": 100},
        {
            "tokenizer": {"type": "characters", "padding": True, "start_end": True},
            "length": 100,
            "decoder_input": "previous",
        },
    )

    @model_validator(mode="after")
    def _padded(self) -> Self:
        if getattr(self.tokenizer, "padding", True) is False:
            raise problem(
                "texts differ in length, and the tokenizer has no index for padding",
                field="tokenizer",
                expected="`padding: true` in the tokenizer",
            )
        if self.decoder_input is not None and not getattr(self.tokenizer, "start_end", False):
            raise problem(
                "`decoder_input` begins with a start token, and the tokenizer has none",
                field="tokenizer",
                expected="a tokenizer of characters, words or byte_pairs with `start_end: true`",
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

    @property
    def added_fields(self) -> tuple[str, ...]:
        return () if self.decoder_input is None else (self.decoder_input,)

    def added_readers(self, reader: Column) -> dict[str, Column]:
        from netspec.data.tabular.text_reader import DecoderInput, TextColumn

        assert isinstance(reader, TextColumn)
        return {name: DecoderInput(reader) for name in self.added_fields}
