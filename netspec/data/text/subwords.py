"""Tokenizers of the library `tokenizers`: byte pairs trained by netspec, and its tokenizer files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.base import Array
from netspec.data.files import read_bytes
from netspec.data.text.tokens import Tokenizer, prepared
from netspec.errors import InputError, install_command, kind_of_file
from netspec.files.damage import refuse_damage

if TYPE_CHECKING:
    from types import ModuleType

    from netspec.data.text.tokenizers.base import TokenizerSpec
    from netspec.data.text.tokenizers.subwords import BytePairs

PADDING, START, END = "\0", "\0start", "\0end"
"""Entries of the vocabulary for padding, and for the start and the end of a text."""

PART = 2**15
"""Approximate number of characters in each separately encoded part of a long text; parts are encoded in parallel."""


class SubwordTokenizer(Tokenizer):
    """The tokenizer that `description`, the content of a `tokenizer.json`, describes."""

    def __init__(
        self,
        spec: TokenizerSpec,
        description: Mapping[str, Any],
        *,
        special_tokens: Sequence[str] = (),
        add_special_tokens: bool = False,
    ) -> None:
        self._spec = spec
        self._own = _library(spec).Tokenizer.from_str(json.dumps(description))
        self._own.no_padding()  # transforms in the spec pad and truncate
        self._own.no_truncation()
        self._own.encode_special_tokens = bool(special_tokens)  # names of special tokens in a text are ordinary text
        self._special = add_special_tokens
        self.size = int(self._own.get_vocab_size(with_added_tokens=True))
        numbers = {token: number for number, token in enumerate(special_tokens)}
        self.padding, self.start, self.end = numbers.get(PADDING), numbers.get(START), numbers.get(END)

    def encode(self, text: str) -> Array:
        """Return the tokens of a text."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[Array]:
        """Return the tokens of each text. Texts are encoded in parallel."""
        texts = [prepared(self._spec, text) for text in texts]
        encodings = self._own.encode_batch_fast(texts, add_special_tokens=self._special)
        return [np.array(encoding.ids, np.int32) for encoding in encodings]

    def encode_long(self, text: str) -> Array:
        """Return the tokens of a long text, whose parts are encoded in parallel."""
        return np.concatenate(self.encode_all(list(_parts(text))))

    def decode(self, numbers: Iterable[int]) -> str:
        """Return the text of tokens, without special tokens."""
        return str(self._own.decode([int(number) for number in numbers]))


def _parts(text: str) -> Iterator[str]:
    """Yield the parts of a text, split after line ends, each at least `PART` characters long except the last."""
    start = 0
    while len(text) - start > PART:
        end = text.find("\n", start + PART) + 1 or len(text)
        yield text[start:end]
        start = end
    yield text[start:]


def learn_byte_pairs(spec: BytePairs, texts: Iterable[str]) -> Any:
    """Train byte pairs on texts; return the content of a `tokenizer.json`."""
    library = _library(spec)
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=spec.size,
        min_frequency=spec.min_count,
        special_tokens=spec.special_tokens,
        initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((prepared(spec, text) for text in texts), trainer)
    return json.loads(tokenizer.to_str())


def read_tokenizer_json(path: Path) -> Any:
    """Read a `tokenizer.json`. Raises InputError for any other file, or if the tokenizer would silently drop text."""
    raw = read_bytes(path)
    expected = "a tokenizer.json as the library `tokenizers` writes it"
    with refuse_damage(path, expected, hint="models on the Hugging Face Hub have this file as `tokenizer.json`"):
        try:
            description = json.loads(raw)
        except ValueError as error:
            got = f"{kind_of_file(raw[:64])}: {error}" if raw else "an empty file"
            raise InputError(f"{path} is not JSON", expected=expected, got=got) from None
        _library(None).Tokenizer.from_str(json.dumps(description))
    model = description["model"]
    is_byte_level = model.get("byte_fallback") or "ByteLevel" in json.dumps(description.get("pre_tokenizer"))
    if model.get("type") == "BPE" and not model.get("unk_token") and not is_byte_level:
        raise InputError(
            f"the tokenizer in {path} drops unknown characters",
            expected="one with an `unk_token`, with `byte_fallback`, or of bytes (ByteLevel)",
        )
    return description


def _library(spec: TokenizerSpec | None) -> ModuleType:
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError as error:
        raise InputError(
            "byte pairs and tokenizer.json need the package `tokenizers`",
            location=spec.where() if spec else None,
            path="tokenizer",
            got=str(error),
            hint=install_command("text"),
        ) from None
    return tokenizers
