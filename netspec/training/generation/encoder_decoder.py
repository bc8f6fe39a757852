"""Generate text with an encoder-decoder net, such as the translation of a source text.

The training has a text column with `decoder_input`: the decoder reads the correct tokens before each position. To
generate a text, it reads the tokens that it has predicted instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.compile import ProgramKind
from netspec.data.tabular.columns.text import TextColumnSpec
from netspec.data.tabular.source import TableSource
from netspec.data.text.tokenizers.base import TOKENIZER, saved_tokenizer
from netspec.data.text.tokens import Tokenizer
from netspec.errors import InputError, listing
from netspec.schema.specs.train import TrainSpec
from netspec.training.evaluation import learned_of
from netspec.training.generation.language_model import (
    CAUSAL_HINT,
    TokenGenerator,
    TokenWindow,
    logits_output,
    reads_later_tokens,
)
from netspec.training.inference.model import Model
from netspec.training.required_inputs import input_fields

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


def decoder_columns(training: TrainSpec | None) -> dict[str, TextColumnSpec]:
    """Return the text columns of a training that a decoder learns to write, by name."""
    split = None if training is None else training.data.deployed
    columns = split.columns if isinstance(split, TableSource) and isinstance(split.columns, dict) else {}
    return {name: spec for name, spec in columns.items() if isinstance(spec, TextColumnSpec) and spec.decoder_input}


class EncoderDecoderGenerator(TokenGenerator):
    """Generates the text of the column with `decoder_input` from the text of the other column that the net reads.

    Each token costs a full prediction of the net. Raises `InputError` if the net reads something else, does not have
    logits for each token of the decoder, or has a decoder that reads later tokens.
    """

    def __init__(self, model: Model, training: TrainSpec) -> None:
        columns = decoder_columns(training)
        if len(columns) != 1:
            raise InputError(
                "the training data has several columns with `decoder_input`", expected="one such column",
                got=listing([f"`{name}`" for name in columns]),
            )  # fmt: skip
        ((target, target_spec),) = columns.items()
        split = training.data.deployed
        assert isinstance(split, TableSource)
        self._model, self.target_column = model, target
        self.decoder_input, self.source, self.source_column, self.source_length = _input_roles(
            model, split, target_spec
        )
        learned = learned_of(training, model.compiler, model.preprocessing.learned).source
        self.tokenizer = _tokenizer_of(target, learned)
        """The tokenizer of the texts that are generated."""
        self.source_tokenizer = _tokenizer_of(self.source_column, learned)
        """The tokenizer of the texts that the encoder reads."""
        self.end, self.max_tokens = self.tokenizer.end, target_spec.length
        output = logits_output(model, target_spec.length, "the net is not an encoder-decoder net")
        self._window = TokenWindow(model, self.decoder_input, target_spec.length, output)
        self.net = self._window  # a service replaces it by one that can be interrupted
        if reads_later_tokens(model.compiler, self.decoder_input, output):
            raise InputError(
                f"the decoder reads later tokens of `{self.decoder_input}`, which are unknown when it writes a text",
                hint=CAUSAL_HINT,
            )

    def read(self, prompt: Sequence[int]) -> Array:
        """Read the tokens of a source text; return the logits (V,) of the first token to generate."""
        self._check_prompt(prompt)
        assert self.tokenizer.start is not None
        padded = np.full((1, self.source_length), self.source_tokenizer.padding, np.int32)
        padded[0, : len(prompt)] = prompt
        self._window.other_inputs = {self.source: padded}
        self.net.restart()
        return self.logits_after(self.tokenizer.start)

    def logits_after(self, token: int) -> Array:
        """Read a token; return the logits (V,) of the one after it, -inf for those that no text has."""
        return self.tokenizer.mask_impossible(super().logits_after(token))

    def greedy_outputs(self, inputs: Mapping[str, Array], samples: int) -> dict[str, Array]:
        """Return the outputs of the net for a batch of source texts, if the decoder reads the most probable tokens."""
        assert self.tokenizer.start is not None
        steps = self._window.steps
        tokens = np.zeros((samples, steps), np.int32)
        tokens[:, 0] = self.tokenizer.start
        has_ended = np.zeros(samples, bool)
        for step in range(steps):
            outputs = self._model.predict({**inputs, self.decoder_input: tokens}, samples)
            best = self.tokenizer.mask_impossible(outputs[self._window.output][:, step]).argmax(axis=1)
            has_ended |= best == self.end
            if has_ended.all() or step + 1 == steps:
                break
            tokens[:, step + 1] = np.where(has_ended, 0, best)
        return outputs

    def partly_unknown(self, inputs: Mapping[str, Array], samples: int) -> list[int]:
        """Return the indices of the source texts of a batch that have tokens in the vocabulary, and others outside."""
        tokenizer, tokens = self.source_tokenizer, inputs[self.source][:samples]
        if tokenizer.unknown is None:
            return []
        has_unknown = (tokens == tokenizer.unknown).any(axis=1)
        indices: list[int] = np.flatnonzero(has_unknown & ~np.isin(tokens, tokenizer.reserved).all(axis=1)).tolist()
        return indices

    def _check_prompt(self, prompt: Sequence[int]) -> None:
        """Raise `InputError` if a prompt is not a text that the encoder can read."""
        if not len(prompt):
            raise InputError("the prompt is empty", expected="a source text")
        if len(prompt) > self.source_length:
            raise InputError(
                "the prompt is too long", expected=f"at most {self.source_length} tokens", got=f"{len(prompt):,}"
            )
        if set(prompt) <= set(self.source_tokenizer.reserved):
            raise InputError(
                "the vocabulary has no token of the prompt", expected="a text like those of the training data"
            )


def _tokenizer_of(column: str, learned: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer of a column. Raises `InputError` if the weights are those of other columns."""
    if TOKENIZER not in learned.get(column, {}):
        raise InputError(
            f"the weights have no vocabulary of the column `{column}`", expected="weights of this training file",
            got=f"those of {listing([f'`{name}`' for name in learned])}",
            hint="train again after a change of the columns",
        )  # fmt: skip
    return saved_tokenizer(learned[column][TOKENIZER])


def _input_roles(model: Model, split: TableSource, target: TextColumnSpec) -> tuple[str, str, str, int]:
    """Return the inputs of the decoder and of the encoder, and the column of the source text with its length.

    Raises `InputError` if the net has other inputs, or transforms change them.
    """
    assert isinstance(split.columns, dict)
    fields = {name: split.inputs.get(name, name) for name in input_fields(model.compiler, [ProgramKind.PREDICT])}
    decoder_inputs = [name for name, field in fields.items() if field == target.decoder_input]
    sources = [name for name in fields if name not in decoder_inputs]
    texts = {
        spec.field_of(name, is_label=name == str(split.label)): (name, spec.length)
        for name, spec in split.columns.items()
        if isinstance(spec, TextColumnSpec) and spec is not target
    }
    if len(decoder_inputs) != 1 or len(sources) != 1 or fields[sources[0]] not in texts:
        raise InputError(
            f"only nets that read one source text and `{target.decoder_input}` generate texts",
            expected="these two inputs",
            got=listing([f"`{name}`" for name in fields]),
        )
    if split.transforms:
        raise InputError(
            "texts with `transforms` cannot be generated", expected="data without them", got=f"{len(split.transforms)}"
        )
    return decoder_inputs[0], sources[0], *texts[fields[sources[0]]]
