"""Texts that a net with an encoder and a decoder writes about other texts: translations, or other spellings.

The training has a text column with `decoder_input`: the decoder reads the correct tokens before each position. To
generate a text, it reads the tokens that it has predicted instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.tabular.columns.text import TextColumnSpec
from netspec.data.tabular.source import TableSource
from netspec.data.text.tokenizers.base import TOKENIZER, saved_tokenizer
from netspec.errors import InputError, listing
from netspec.schema.specs.train import TrainSpec
from netspec.training.generation import TokenGenerator, Window, logits_output
from netspec.training.model import Model
from netspec.training.predict_files import FilePreparation, inference_split
from netspec.training.raw_samples import raw_files

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


def decoder_column(training: TrainSpec | None) -> str | None:
    """Return the name of the text column that a decoder learns to write; None if the training has none."""
    split = None if training is None else inference_split(training)
    columns = split.columns if isinstance(split, TableSource) and isinstance(split.columns, dict) else {}
    names = [name for name, spec in columns.items() if isinstance(spec, TextColumnSpec) and spec.decoder_input]
    return names[0] if len(names) == 1 else None


class EncoderDecoder(TokenGenerator):
    """Generates the text of `column`, given that of the one other column that the net reads.

    Each token costs a full prediction of the net. Raises `InputError` if the net reads something else, or does not
    have logits for each token of the decoder.
    """

    def __init__(self, model: Model, training: TrainSpec, column: str) -> None:
        split = inference_split(training)
        assert isinstance(split, TableSource)
        assert isinstance(split.columns, dict)
        written = split.columns[column]
        assert isinstance(written, TextColumnSpec)
        (decoder_field,) = written.added_fields
        fields = {name: split.inputs.get(name, name) for name in FilePreparation(model, training).inputs}
        decoder_inputs = [name for name, field in fields.items() if field == decoder_field]
        sources = [name for name in fields if name not in decoder_inputs]
        texts = {
            spec.field_of(name, is_label=name == str(split.label)): name
            for name, spec in split.columns.items()
            if spec.holds_text
        }
        if len(decoder_inputs) != 1 or len(sources) != 1 or fields[sources[0]] not in texts:
            raise InputError(
                "the net does not turn a text into another one",
                expected=f"two inputs: `{decoder_field}`, and one with the tokens of another text column",
                got=listing([f"`{name}`" for name in fields]),
            )
        (self._decoder_input,), (self._source,) = decoder_inputs, sources
        self._source_column = texts[fields[self._source]]
        self._preparation = FilePreparation(model, training, computed=decoder_inputs)
        self.tokenizer = saved_tokenizer(self._preparation.learned.source[column][TOKENIZER])
        """The tokenizer of the texts that are generated."""
        self.end, self.max_tokens = self.tokenizer.end, written.length
        self._window = Window(model, self._decoder_input, written.length, logits_output(model, written.length))
        self.net = self._window

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text to read, as the training prepares it. Raises `InputError`."""
        if not text:
            raise InputError("the prompt is empty", expected="a text to start from")
        with raw_files([{self._source_column: text}], self._preparation.split) as (paths, split):
            ((_, batch),) = self._preparation.batches(paths, 1, split)
        tokens: list[int] = batch.inputs[self._source][0].tolist()
        return tokens

    def read(self, prompt: Sequence[int]) -> Array:
        """Read the tokens of a text; return the logits (V,) of the first token to generate."""
        assert self.tokenizer.start is not None
        self._window.other_inputs = {self._source: np.array([prompt], np.int32)}
        self.net.restart()
        return self.logits_after(self.tokenizer.start)
