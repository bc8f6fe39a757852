"""`{type: byte_pairs}` and `{type: tokenizer_json}`: pieces of words, by the library `tokenizers`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from netspec.data.text.tokenizers.base import TokenizerSpec
from netspec.schema.specs.data import TOKENIZERS
from netspec.schema.specs.paths import FilePath, resolve_path
from netspec.schema.specs.spec import problem

if TYPE_CHECKING:
    from netspec.data.text.tokens import Tokenizer

BYTES = 256
"""Number of byte tokens, which can represent any text; they follow the special tokens."""


@TOKENIZERS.register
class BytePairs(TokenizerSpec):
    """Pieces of words: bytes, and the pairs of pieces that were most frequent in training, merged one after another.

    Byte-pair encoding on UTF-8 as in GPT-2 (Sennrich, Haddow and Birch, "Neural machine translation of rare words with
    subword units", 2016), trained on the training split. No text is unknown, and decoding restores it exactly. Needs
    the extra `text`.
    """

    type: Literal["byte_pairs"] = "byte_pairs"
    size: Annotated[int, Field(gt=BYTES, le=2**24)]
    """Size of the vocabulary; smaller if the text is too short."""
    padding: bool = False
    """Whether to reserve the number 0 for padding, as Embedding's `mask_zero` expects."""
    start_end: bool = False
    """Whether to reserve the two numbers after that of padding for a start token and an end token, which a text
    column with `decoder_input` adds to its texts."""
    min_count: PositiveInt = 2
    """Minimum number of occurrences in the training split for a pair to be merged."""

    samples: ClassVar = ({"size": 5000},)

    @model_validator(mode="after")
    def _room(self) -> Self:
        least = BYTES + int(self.padding) + 2 * int(self.start_end)
        if self.size < least:
            raise problem(
                "`size` leaves no room for all bytes", field="size",
                expected=f"{least} or more: {BYTES} bytes, and {least - BYTES} reserved for `padding` and `start_end`",
                got=str(self.size),
            )  # fmt: skip
        return self

    def learn(self, texts: Iterable[str]) -> Any:
        """Return the tokenizer in the format of `tokenizer.json`."""
        from netspec.data.text.subwords import learn_byte_pairs

        return learn_byte_pairs(self, texts)

    def open(self, vocabulary: Any) -> Tokenizer:
        """Return the trained tokenizer."""
        from netspec.data.text.subwords import SubwordTokenizer

        return SubwordTokenizer(self, vocabulary, special_tokens=self.special_tokens)

    @property
    def special_tokens(self) -> list[str]:
        """The first entries of the vocabulary: those for padding, the start token and the end token."""
        from netspec.data.text.subwords import END, PADDING, START

        return [PADDING] * self.padding + [START, END] * self.start_end


@TOKENIZERS.register
class TokenizerJson(TokenizerSpec):
    """A tokenizer file of Hugging Face's library `tokenizers`, `tokenizer.json`, with all its steps.

    Needs the extra `text`. The file is saved with the weights.
    """

    type: Literal["tokenizer_json"] = "tokenizer_json"
    path: FilePath
    """Path of the file, relative to this file."""
    add_special_tokens: bool = False
    """Whether to add the special tokens that the file defines, such as `[CLS]`, to each text."""

    samples: ClassVar = ({"path": "tokenizer.json"},)

    def learn(self, texts: Iterable[str]) -> Any:
        """Return the content of the file; the texts are not read."""
        from netspec.data.text.subwords import read_tokenizer_json

        return read_tokenizer_json(resolve_path(self, "path"))

    def open(self, vocabulary: Any) -> Tokenizer:
        """Return the tokenizer of the file."""
        from netspec.data.text.subwords import SubwordTokenizer

        return SubwordTokenizer(self, vocabulary, add_special_tokens=self.add_special_tokens)
