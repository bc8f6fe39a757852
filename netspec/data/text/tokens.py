"""Tokenizers: their interface, and those of characters and of words.

Text sources and columns of text share these. A tokenizer is a pure function of its vocabulary, which is plain JSON data
learned from the training split (`learn_…`).
"""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from netspec.data.base import Array
from netspec.errors import InputError, Location, Problem, SettingHint

if TYPE_CHECKING:
    from netspec.data.text.tokenizers.base import TokenizerSpec
    from netspec.data.text.tokenizers.vocabulary import Characters, VocabularySpec, Words

_CODES = 0x110000
"""Number of code points in Unicode."""
_WORD = r"\w+(?:['’]\w+)*"
_PATTERNS = {"apart": re.compile(rf"{_WORD}|[^\w\s]"), "drop": re.compile(_WORD), "keep": re.compile(r"\S+")}
_MAX_NAMED = 5
UNKNOWN = "�"
"""Text of a token outside of the vocabulary. Reports show `<unknown>`, since this looks like a wrong encoding."""


def word_pattern(punctuation: str) -> str:
    """Return the regular expression of a word."""
    return _PATTERNS[punctuation].pattern


class UnknownText(ValueError):
    """Text is not in the vocabulary: the `token` at `offset` in the normalized `text`."""

    def __init__(self, kind: str, token: str, text: str, offset: int) -> None:
        super().__init__(f"the {kind} {token[:100]!r} is not in the vocabulary")
        self.kind = kind
        self.token, self.offset = token, offset
        self.line = text.count("\n", 0, offset)
        """The line of the text, from 0."""
        self.column = offset - text.rfind("\n", 0, offset) - 1
        """The character of the line, from 0."""

    def problem(self, location: Location | None = None) -> Problem:
        """The error to report; the caller, who knows the file, adds the location."""
        return Problem(
            str(self),
            location,
            expected="text made of tokens of the training split",
            hint=SettingHint(
                f"`tokenizer: {{type: {self.kind}s, unknown: true}}` in all splits gives one index to all such text"
            ),
        )


class Tokenizer(ABC):
    """Converts text to tokens, numbers from 0 to `size` − 1, and back."""

    size: int
    """Number of tokens: the `input_dim` of an Embedding."""
    padding: int | None = None
    """The number reserved for padding."""
    unknown: int | None = None
    """The number of all text outside of the vocabulary."""
    start: int | None = None
    """The number of the start token, which a decoder reads before the first token of a text."""
    end: int | None = None
    """The number of the end token, which follows the last token of a text."""
    noun: ClassVar[str] = "token"
    """Name of a token in messages."""

    @property
    def reserved(self) -> list[int]:
        """The special tokens: for padding, unknown text, start and end."""
        return [number for number in (self.padding, self.unknown, self.start, self.end) if number is not None]

    @abstractmethod
    def encode(self, text: str) -> Array:
        """Return the tokens of a text, (n,) of int32. Raises `UnknownText`."""

    def unknown_tokens(self, text: str) -> list[str]:
        """Return the distinct tokens of a text that become `unknown`, in their order."""
        return []

    def known_text(self, wanted: str) -> str:
        """Return an example of a text without unknown tokens: `wanted`, or else one letter, number or word."""
        letters = (text for text in (self.decode([number]) for number in range(self.size)) if text.isalnum())
        return wanted if self._knows(wanted) else next(filter(self._knows, letters), wanted)

    def _knows(self, text: str) -> bool:
        try:
            return not self.unknown_tokens(text) and not np.isin(self.encode(text), self.reserved).any()
        except UnknownText:
            return False

    def encode_all(self, texts: Sequence[str]) -> list[Array]:
        """Return the tokens of each text."""
        return [self.encode(text) for text in texts]

    def encode_long(self, text: str) -> Array:
        """Return the tokens of a text of many lines, which may be split at line ends and encoded concurrently."""
        return self.encode(text)

    @abstractmethod
    def decode(self, numbers: Iterable[int]) -> str:
        """Return the text of tokens as far as it is known, without padding, start and end; unknown text is `�`."""

    def before_end(self, numbers: Iterable[int]) -> list[int]:
        """Return the tokens before the first end token."""
        return list(takewhile(lambda number: number != self.end, numbers))

    def mask_impossible(self, logits: Array) -> Array:
        """Return logits (…, V) with -inf for tokens that no text contains: padding, start, and those from `size` on."""
        logits = logits.copy()
        logits[..., [number for number in (self.padding, self.start) if number is not None]] = -np.inf
        logits[..., self.size :] = -np.inf
        return logits


def prepared(spec: TokenizerSpec, text: str) -> str:
    """Return the normalized text. Line ends keep their positions."""
    if spec.lowercase:
        text = text.lower()
    return unicodedata.normalize(spec.normalize, text) if spec.normalize else text


class _Listed(Tokenizer):
    """Base of tokenizers whose vocabulary is a list, which follows the reserved tokens."""

    def __init__(self, spec: VocabularySpec, tokens: Sequence[str]) -> None:
        self._spec = spec
        self._tokens = tokens
        self._first = spec.reserved
        self.size = self._first + len(tokens)
        self.padding = 0 if spec.padding else None
        self.unknown = int(spec.padding) if spec.unknown else None
        if spec.start_end:
            self.start, self.end = self._first - 2, self._first - 1

    def _text_of(self, numbers: Iterable[int]) -> list[str]:
        silent = {self.padding, self.start, self.end}
        indices = (number - self._first for number in map(int, numbers) if number not in silent)
        return [self._tokens[index] if 0 <= index < len(self._tokens) else UNKNOWN for index in indices]


class CharacterTokenizer(_Listed):
    """Tokenizes characters with a lookup table of all code points up to the last known one."""

    noun = "character"

    def __init__(self, spec: Characters, vocabulary: str) -> None:
        super().__init__(spec, vocabulary)
        codes = _code_points(vocabulary)
        self._table = np.full(int(codes.max(initial=0)) + 2, -1, np.int32)
        self._table[codes] = np.arange(len(codes), dtype=np.int32) + self._first
        if self.unknown is not None:
            self._table[self._table < 0] = self.unknown

    def encode(self, text: str) -> Array:
        """Return the tokens of the characters."""
        text = prepared(self._spec, text)
        codes = _code_points(text)
        numbers: Array = self._table[np.minimum(codes, len(self._table) - 1)]  # the last entry is for all others
        if self.unknown is None and numbers.size and numbers.min() < 0:
            first = int(np.argmin(numbers >= 0))
            raise UnknownText("character", text[first], text, first)
        return numbers

    def unknown_tokens(self, text: str) -> list[str]:
        """Return the distinct characters of a text that are not in the vocabulary."""
        known = set(self._tokens)
        return [character for character in dict.fromkeys(prepared(self._spec, text)) if character not in known]

    def decode(self, numbers: Iterable[int]) -> str:
        """Return the characters."""
        return "".join(self._text_of(numbers))


class WordTokenizer(_Listed):
    """Tokenizes words with a dictionary."""

    noun = "word"

    def __init__(self, spec: Words, vocabulary: Sequence[str]) -> None:
        super().__init__(spec, vocabulary)
        self._find = _PATTERNS[spec.punctuation]
        self._numbers = {word: number for number, word in enumerate(vocabulary, self._first)}

    def encode(self, text: str) -> Array:
        """Return the tokens of the words."""
        text = prepared(self._spec, text)
        words = self._find.findall(text)
        unknown = -1 if self.unknown is None else self.unknown
        token_numbers = self._numbers
        numbers = np.fromiter((token_numbers.get(word, unknown) for word in words), np.int32, len(words))
        if unknown < 0 and numbers.size and numbers.min() < 0:
            first_unknown = int(np.argmin(numbers >= 0))
            offset = next(match.start() for at, match in enumerate(self._find.finditer(text)) if at == first_unknown)
            raise UnknownText("word", words[first_unknown], text, offset)
        return numbers

    def unknown_tokens(self, text: str) -> list[str]:
        """Return the distinct words of a text that are not in the vocabulary."""
        words = dict.fromkeys(self._find.findall(prepared(self._spec, text)))
        return [word for word in words if word not in self._numbers]

    def decode(self, numbers: Iterable[int]) -> str:
        """Return the words, separated by blanks."""
        return " ".join(self._text_of(numbers))


def learn_characters(spec: Characters, texts: Iterable[str]) -> str:
    """Return the characters of the texts that fit into `size`, sorted by code point."""
    counts = np.zeros(_CODES, np.int64)
    for text in texts:
        codes = _code_points(prepared(spec, text))
        counts[: int(codes.max(initial=0)) + 1] += np.bincount(codes)
    used = np.flatnonzero(counts)
    room = _room(spec, [chr(code) for code in used[np.argsort(counts[used], kind="stable")]], "characters")
    frequent = used[np.argsort(-counts[used], kind="stable")[:room]]
    return "".join(map(chr, np.sort(frequent)))


def learn_words(spec: Words, texts: Iterable[str]) -> list[str]:
    """Return the words of the texts that fit into `size`, the most frequent first."""
    counts: Counter[str] = Counter()
    find = _PATTERNS[spec.punctuation]
    for text in texts:
        counts.update(find.findall(prepared(spec, text)))
    words = sorted((word for word, count in counts.items() if count >= spec.min_count), key=lambda w: (-counts[w], w))
    return words[: _room(spec, words[::-1], "words")]


def _room(spec: VocabularySpec, rarest_first: Sequence[str], tokens: str) -> int | None:
    """Return how many tokens to keep; None: all. Raises `InputError` for none, or too many without `unknown`."""
    if not rarest_first:
        raise InputError(f"the training split holds no {tokens} to learn", location=spec.where(), path="tokenizer")
    if spec.size is None:
        return None
    room = spec.size - spec.reserved
    if len(rarest_first) > room and not spec.unknown:
        raise InputError(
            f"the vocabulary is too large: the training split holds {len(rarest_first):,} {tokens}",
            location=spec.where("size"),
            path="tokenizer.size",
            expected=f"at most {room:,}, or `unknown: true`, which gives one index to the rarest ones",
            got=f"among the rarest: {', '.join(map(repr, rarest_first[:_MAX_NAMED]))}",
        )
    return room


def _code_points(text: str) -> Array:
    """Return the code points of a text. Surrogates, which UTF-8 files cannot contain, are accepted."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.int64)
