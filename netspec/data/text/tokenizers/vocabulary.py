"""`{type: characters}` and `{type: words}`: tokenizers with a vocabulary of characters or words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import PositiveInt, model_validator

from netspec.data.text.tokenizers.base import TokenizerSpec
from netspec.schema.specs.data import TOKENIZERS
from netspec.schema.specs.spec import problem

if TYPE_CHECKING:
    from netspec.data.text.tokens import Tokenizer


class VocabularySpec(TokenizerSpec):
    """Base of tokenizers whose vocabulary is a list of tokens seen in training."""

    size: PositiveInt | None = None
    """Maximum size of the vocabulary; rarer tokens are unknown. By default unlimited."""
    padding: bool = False
    """Whether to reserve the number 0 for padding, as Embedding's `mask_zero` expects."""
    unknown: bool = False
    """Whether tokens outside of the vocabulary have a number (1 with padding, else 0); otherwise they are an error."""
    start_end: bool = False
    """Whether to reserve the two numbers after those of padding and unknown for a start token and an end token, which a
    text column with `decoder_input` adds to its texts."""

    @model_validator(mode="after")
    def _room(self) -> Self:
        if self.size is not None and self.size <= self.reserved:
            raise problem(
                "`size` leaves no room for a vocabulary",
                field="size",
                expected=f"more than {self.reserved}: {', '.join(self._reserving())}",
                got=str(self.size),
            )
        return self

    def _reserving(self) -> list[str]:
        """Describe the numbers that each field reserves, for messages."""
        counts = {"padding": int(self.padding), "unknown": int(self.unknown), "start_end": 2 * int(self.start_end)}
        return [f"`{name}` reserves {count}" for name, count in counts.items() if count]

    @property
    def reserved(self) -> int:
        """Number of reserved numbers before the vocabulary."""
        return int(self.padding) + int(self.unknown) + 2 * int(self.start_end)


@TOKENIZERS.register
class Characters(VocabularySpec):
    """Each character (Unicode code point) is a token; the vocabulary is sorted by code point."""

    type: Literal["characters"] = "characters"

    samples: ClassVar = ({}, {"lowercase": True, "unknown": True})

    def learn(self, texts: Iterable[str]) -> Any:
        """Return the characters that occur, as one string."""
        from netspec.data.text.tokens import learn_characters

        return learn_characters(self, texts)

    def open(self, vocabulary: Any) -> Tokenizer:
        """Return a tokenizer with a lookup table."""
        from netspec.data.text.tokens import CharacterTokenizer

        return CharacterTokenizer(self, vocabulary)


@TOKENIZERS.register
class Words(VocabularySpec):
    """Each word is a token; the vocabulary begins with the most frequent ones (ties are sorted).

    A word is a run of letters, digits and underscores, with apostrophes inside (`don't`). Spacing is lost.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "max_tokens": "`max_tokens` is Keras's name: use `size`",
        "standardize": "`standardize` is Keras's name: use `lowercase: true` and `punctuation: drop`",
    }

    type: Literal["words"] = "words"
    punctuation: Literal["apart", "drop", "keep"] = "apart"
    """`apart`: every other character is a separate word; `drop`: it is left out; `keep`: words are separated by blanks
    only."""
    min_count: PositiveInt = 1
    """Minimum number of occurrences in the training split for a word to be known."""

    samples: ClassVar = ({"lowercase": True, "size": 10000, "padding": True, "unknown": True},)

    @model_validator(mode="after")
    def _rare_ones_are_unknown(self) -> Self:
        if self.min_count > 1 and not self.unknown:
            raise problem(
                "`min_count` drops rare words, and without `unknown` they have no token",
                field="min_count",
                expected="`unknown: true`",
                got=str(self.min_count),
            )
        return self

    def learn(self, texts: Iterable[str]) -> Any:
        """Return the words that occur, as a list."""
        from netspec.data.text.tokens import learn_words

        return learn_words(self, texts)

    def open(self, vocabulary: Any) -> Tokenizer:
        """Return a tokenizer with a dictionary of words."""
        from netspec.data.text.tokens import WordTokenizer

        return WordTokenizer(self, vocabulary)
