"""`{type: characters}` and `{type: words}`: tokens that are found by looking at the text."""

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
    """A tokenizer whose vocabulary is a list of what was seen in training."""

    size: PositiveInt | None = None
    """largest size of the vocabulary; the rarest tokens beyond that are unknown. Default: no bound"""
    padding: bool = False
    """reserve the number 0 for padding, as Embedding's `mask_zero` expects"""
    unknown: bool = False
    """give tokens outside of the vocabulary a number (1 after padding, else 0); otherwise they are an error"""

    @model_validator(mode="after")
    def _room(self) -> Self:
        if self.size is not None and self.size <= self.reserved:
            raise problem(
                "`size` leaves no room for a vocabulary",
                field="size",
                expected=f"more than the {self.reserved} that `padding` and `unknown` take",
                got=str(self.size),
            )
        return self

    @property
    def reserved(self) -> int:
        """How many numbers stand before the vocabulary."""
        return int(self.padding) + int(self.unknown)


@TOKENIZERS.register
class Characters(VocabularySpec):
    """Each character (Unicode code point) has a number; the vocabulary is sorted by code point."""

    type: Literal["characters"] = "characters"

    samples: ClassVar = ({}, {"lowercase": True, "unknown": True})

    def learn(self, texts: Iterable[str]) -> Any:
        """The characters that occur, as one string."""
        from netspec.data.text.tokens import learn_characters

        return learn_characters(self, texts)

    def open(self, vocabulary: Any) -> Tokenizer:
        """A table lookup."""
        from netspec.data.text.tokens import CharacterTokenizer

        return CharacterTokenizer(self, vocabulary)


@TOKENIZERS.register
class Words(VocabularySpec):
    """Each word has a number; the vocabulary begins with the most frequent ones (where equal, sorted).

    A word is a run of letters, digits and underscores, with apostrophes inside (`don't`). How text was spaced is lost.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "max_tokens": "`max_tokens` is Keras's name: here it is `size`",
        "standardize": "`standardize` is Keras's name: here it is `lowercase: true` and `punctuation: drop`",
    }

    type: Literal["words"] = "words"
    punctuation: Literal["apart", "drop", "keep"] = "apart"
    """`apart`: every other character is a word of its own; `drop`: it is left out; `keep`: words are what stands
    between blanks"""
    min_count: PositiveInt = 1
    """words that occur less often in the training split are unknown"""

    samples: ClassVar = ({"lowercase": True, "size": 10000, "padding": True, "unknown": True},)

    @model_validator(mode="after")
    def _rare_ones_are_unknown(self) -> Self:
        if self.min_count > 1 and not self.unknown:
            raise problem(
                "rare words need a number",
                field="min_count",
                expected="`unknown: true` in addition",
                got=str(self.min_count),
            )
        return self

    def learn(self, texts: Iterable[str]) -> Any:
        """The words that occur, as a list."""
        from netspec.data.text.tokens import learn_words

        return learn_words(self, texts)

    def open(self, vocabulary: Any) -> Tokenizer:
        """Words looked up in a dictionary."""
        from netspec.data.text.tokens import WordTokenizer

        return WordTokenizer(self, vocabulary)
