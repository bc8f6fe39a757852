"""Vocabularies of an exported model as JSON files, and the lines of the script that apply them to texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from netspec.data.loader import Loader
from netspec.data.tabular.columns.base import texts_for_missing
from netspec.data.tabular.columns.text import TextColumnSpec
from netspec.data.tabular.source import TableSource
from netspec.data.text.tokenizers.base import TOKENIZER, saved_tokenizer
from netspec.data.text.tokens import UNKNOWN, word_pattern
from netspec.data.transforms.padding import Padding
from netspec.schema.plain_json import json_text

if TYPE_CHECKING:
    from netspec.tools.exporting.deployed_model import DeployedInput

VOCABULARY = "vocabulary.json"
"""Name of the file in the folder of an exported model."""


@dataclass(frozen=True)
class TextInput:
    """An input of a model that takes the tokens of a text: (N, length) of int32."""

    name: str
    """Name of the input."""
    column: str
    """The column of the table that has the texts; empty if each sample is a text."""
    tokenizer: Mapping[str, Any]
    """The tokenizer with its vocabulary, as weights files store it."""
    length: int
    """Number of tokens."""
    padding: int
    """The token that pads short texts."""
    pads_start: bool = False
    """Whether short texts are padded at the start."""
    keeps_end: bool = False
    """Whether the end of long texts is kept, in place of the start."""
    is_prompt: bool = False
    """Whether the tokens of a text are neither padded nor truncated, since others follow."""
    missing: str = "error"
    """Handling of missing texts in a column: `error`, `drop` (the row is left out), or `empty`."""
    missing_values: tuple[str, ...] = ()
    """Cells of the column that mean a missing text, in lower case, in addition to the empty text."""

    @property
    def reserved_tokens(self) -> list[int]:
        """The reserved tokens, which say nothing about a text: padding, unknown text, start and end."""
        return saved_tokenizer(self.tokenizer).reserved

    @property
    def tokenizer_file(self) -> str:
        """Name of the file for the library `tokenizers`; empty for a list of tokens."""
        return "" if self.tokenizer["type"] in ("words", "characters") else f"{self.name}_tokenizer.json"

    def files(self) -> dict[str, Any]:
        """Return the content of the tokenizer file, if there is one, by its name."""
        return {self.tokenizer_file: self.tokenizer["vocabulary"]} if self.tokenizer_file else {}

    def entry(self) -> dict[str, Any]:
        """Return what `vocabulary.json` contains for the input."""
        kind, spec = self.tokenizer["type"], self.tokenizer
        tokenizer = saved_tokenizer(spec)
        entry = {
            "type": kind,
            "lowercase": spec.get("lowercase", False),
            "normalize": spec.get("normalize"),
            "length": self.length,
            "padding": self.padding,
        }
        if tokenizer.start is not None:
            entry |= {"start": tokenizer.start, "end": tokenizer.end}
        if self.tokenizer_file:
            return {**entry, "file": self.tokenizer_file}
        first = tokenizer.size - len(spec["vocabulary"])
        pattern = "(?s)." if kind == "characters" else word_pattern(spec["punctuation"])
        tokens = {token: index for index, token in enumerate(spec["vocabulary"], first)}
        return {**entry, "pattern": pattern, "unknown": tokenizer.unknown, "tokens": tokens}

    def lines(self) -> Iterator[str]:
        """Yield the lines of a function of the script that returns the tokens of a text."""
        entry = f'vocabulary["{self.name}"]'
        yield f"def {self.function}(text):"
        if self.tokenizer.get("lowercase"):
            yield "    text = text.lower()"
        if self.tokenizer.get("normalize"):
            yield f'    text = unicodedata.normalize("{self.tokenizer["normalize"]}", text)'
        if self.tokenizer_file:
            special = bool(self.tokenizer.get("add_special_tokens"))
            yield f"    tokens = {self.function}_tokenizer.encode(text, add_special_tokens={special}).ids"
        else:
            yield f'    words = re.findall({entry}["pattern"], text)'
            yield f'    tokens = [{entry}["tokens"].get(word, {entry}["unknown"]) for word in words]'
            if not self.tokenizer.get("unknown"):
                yield "    if None in tokens:"
                yield '        raise ValueError(f"{words[tokens.index(None)]!r} is not in the vocabulary")'
        if self.is_prompt:
            yield from self._note_unknown()
            yield "    return tokens"
            return
        part = f"tokens[-{self.length}:]" if self.keeps_end else f"tokens[:{self.length}]"
        pads = f"[{self.padding}] * ({self.length} - len(tokens))"
        yield f"    return {f'{pads} + {part}' if self.pads_start else f'{part} + {pads}'}"

    def _note_unknown(self) -> Iterator[str]:
        """Yield the lines that report the characters or words of a prompt that are not in the vocabulary."""
        if self.tokenizer_file or not self.tokenizer.get("unknown"):
            return
        noun = f"{saved_tokenizer(self.tokenizer).noun}{{'s' * (len(unknown) > 1)}}"
        tokens = f'vocabulary["{self.name}"]["tokens"]'
        yield f"    unknown = [word for word in dict.fromkeys(words) if word not in {tokens}]"
        yield "    if unknown:"
        yield f'        have = f"the prompt has {{len(unknown)}} {noun} outside the vocabulary"'
        yield """        print(f"note: {have}: {', '.join(map(repr, unknown))}", file=sys.stderr)"""

    def decoding_lines(self) -> Iterator[str]:
        """Yield the lines of a function of the script that returns the text of tokens, as `Tokenizer.decode` does."""
        yield f"def {self.text_function}(tokens):"
        if self.tokenizer_file:
            yield f"    return {self.function}_tokenizer.decode(tokens)"
            return
        yield f'    words = {{index: word for word, index in vocabulary["{self.name}"]["tokens"].items()}}'
        tokenizer = saved_tokenizer(self.tokenizer)
        silent = [index for index in (tokenizer.padding, tokenizer.start, tokenizer.end) if index is not None]
        kept = f" if index not in {silent}" if silent else ""
        separator = "" if self.tokenizer["type"] == "characters" else " "
        yield f'    return "{separator}".join(words.get(index, "{UNKNOWN}") for index in tokens{kept})'

    @property
    def function(self) -> str:
        """Name of the function of the script that returns the tokens of a text."""
        return f"tokens_of_{self.identifier}"

    @property
    def text_function(self) -> str:
        """Name of the function of the script that returns the text of tokens."""
        return f"text_of_{self.identifier}"

    @property
    def identifier(self) -> str:
        """The name of the input, as a part of names in the script."""
        return "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in self.name)


def text_inputs(loader: Loader, inputs: Mapping[str, DeployedInput], split: object) -> tuple[TextInput, ...]:
    """Return the inputs of a model that take the tokens of texts which begin a sample, or are a column of a table."""
    learned = loader.learned.source
    if isinstance(split, TableSource):
        columns = split.columns if isinstance(split.columns, dict) else {}
        ranges = loader.column_ranges
        return tuple(
            TextInput(ranges[name][0], name, learned[name][TOKENIZER], spec.length,
                      saved_tokenizer(learned[name][TOKENIZER]).padding or 0, missing=spec.missing,
                      missing_values=tuple(sorted(texts_for_missing(split.missing_values, spec))))
            for name, spec in columns.items()
            if isinstance(spec, TextColumnSpec) and name in ranges and split.windows is None
        )  # fmt: skip
    padded = [
        (name, deployed.before[0])
        for name, deployed in inputs.items()
        if len(deployed.before) == 1 and deployed.raw.dtype == "int32"
    ]
    if TOKENIZER not in learned or len(padded) != 1 or len(inputs) != 1:
        return ()
    ((name, step),) = padded
    if not isinstance(step, Padding):
        return ()
    return (
        TextInput(name, "", learned[TOKENIZER], step.length, int(step.value), step.padding == "pre",
                  step.truncating == "pre"),
    )  # fmt: skip


def vocabulary_files(texts: Sequence[TextInput]) -> dict[str, str]:
    """Return the texts of the files with vocabularies, by their names."""
    if not texts:
        return {}
    files = {name: content for text in texts for name, content in text.files().items()}
    files[VOCABULARY] = {text.name: text.entry() for text in texts}
    return {name: json_text(content, indent=1) + "\n" for name, content in files.items()}
