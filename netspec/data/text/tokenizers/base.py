"""`TokenizerSpec`: base of the tokenizers in YAML, and functions that learn and restore their vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from netspec.errors import InputError, listing
from netspec.schema.specs.data import TOKENIZERS
from netspec.schema.specs.spec import Member, Spec

if TYPE_CHECKING:
    from netspec.data.text.tokens import Tokenizer

Normalize = Literal["NFC", "NFD", "NFKC", "NFKD"]


class TokenizerSpec(Spec):
    """Base of tokenizers, which convert text to token indices."""

    samples: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Example fields for the reference and its tests."""

    normalize: Normalize | None = None
    """The Unicode form to which text is converted first; NFC writes `é` as one character however it was written."""
    lowercase: bool = False
    """Whether to convert all letters to lower case first."""

    def learn(self, texts: Iterable[str]) -> Any:
        """Return the vocabulary of the training split's texts, as plain JSON data. Raises `InputError`."""
        raise NotImplementedError(f"{type(self).__name__} learns nothing")

    def open(self, vocabulary: Any) -> Tokenizer:
        """Return the tokenizer with a vocabulary that `learn` returned."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it is opened")


AnyTokenizer = Annotated[TokenizerSpec, Member(TOKENIZERS)]


TOKENIZER = "tokenizer"
"""Key of the tokenizer in the `learned` of a dataset of text."""


def tokenizer_of(
    spec: TokenizerSpec, texts: Callable[[], Iterable[str]], learned: Mapping[str, Any] | None
) -> tuple[Tokenizer, dict[str, Any]]:
    """Return the tokenizer of a dataset, and its description for the dataset's `learned`.

    `learned` comes from the training split's dataset; it is None for the training split itself, which reads the texts.
    """
    if learned is None:
        return learned_tokenizer(spec, texts())
    return opened_tokenizer(spec, learned.get(TOKENIZER)), dict(learned.get(TOKENIZER, {}))


def learned_tokenizer(spec: TokenizerSpec, texts: Iterable[str]) -> tuple[Tokenizer, dict[str, Any]]:
    """Return the tokenizer of a training split, and its description for `learned`."""
    vocabulary = spec.learn(texts)
    return spec.open(vocabulary), {**spec.model_dump(exclude_none=True), "vocabulary": vocabulary}


def saved_tokenizer(saved: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer described in a dataset's `learned`, as weights store it: `learned.source["tokenizer"]`."""
    return _saved_spec(saved).open(saved["vocabulary"])


def _saved_spec(saved: Mapping[str, Any]) -> TokenizerSpec:
    spec = TOKENIZERS.parse({name: value for name, value in saved.items() if name != "vocabulary"})
    assert isinstance(spec, TokenizerSpec)
    return spec


def opened_tokenizer(spec: TokenizerSpec, learned: Mapping[str, Any] | None) -> Tokenizer:
    """Return the tokenizer of another split, with the training split's vocabulary. Raises `InputError` on mismatch."""
    # Parsed again, so that fields which did not exist when the weights were written have their default values.
    require_same_tokenizer(spec, _saved_spec(learned) if learned else None)
    assert learned is not None
    return spec.open(learned["vocabulary"])


def require_same_tokenizer(spec: TokenizerSpec, training: TokenizerSpec | None) -> None:
    """Raise `InputError` if the tokenizer of a split differs from that of the training split."""
    fields = spec.model_dump(exclude_none=True)
    values = training.model_dump(exclude_none=True) if training is not None else {}
    if values == fields:
        return
    differing = sorted(name for name in values.keys() | fields.keys() if values.get(name) != fields.get(name))
    raise InputError(
        "the training split has no tokenizer here"
        if training is None
        else "the training split has a different tokenizer",
        location=spec.where(),
        path="tokenizer",
        expected="the same tokenizer as in training: an index must mean the same text in every split",
        got=None if training is None else f"a different {listing([f'`{name}`' for name in differing])}",
    )
