"""Generate text with a net that was trained to predict the next token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from netspec.data.text.tokens import Tokenizer, UnknownText
from netspec.errors import InputError
from netspec.schema.load import Source
from netspec.tools.model_inputs import is_model_file, load, spec_and_weights
from netspec.tools.sampling_defaults import SEED, TEMPERATURE, TOKENS
from netspec.tools.specs import load_spec
from netspec.training.beam_search import beam_search
from netspec.training.encoder_decoder import EncoderDecoder, decoder_column
from netspec.training.generation import Sampling, TextGenerator, TokenGenerator
from netspec.training.model import Model

UNDECODED = "�"
"""Replacement character, to which a tokenizer decodes an incomplete character."""


def generate(
    source: Source,
    prompt: str,
    *,
    tokens: int = TOKENS,
    temperature: float = TEMPERATURE,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = SEED,
    beams: int | None = None,
    weights: str | Path | None = None,
    device: str = "auto",
) -> str:
    """Return text that continues a prompt, without the prompt; or the text that an encoder and a decoder write from it.

    `source` is a run directory, or a training file with `weights`, of a net that predicts the next token of a text. A
    net with an encoder and a decoder was trained on a text column with `decoder_input`, and its texts have an end. Each
    of up to `tokens` tokens is drawn from the net's probabilities. A lower `temperature` prefers more probable tokens
    (0: always the most probable one); `top_k` draws from the k most probable ones, `top_p` from the most probable ones
    that together have that probability. The same `seed` generates the same text. With `beams`, no token is drawn: the
    text is the most probable one that beam search finds, which keeps that many candidates.

    Raises `InputError` if the net does not predict tokens, or the prompt has characters or words that it does not know.

        >>> netspec.generate("runs/char_lstm", "ROMEO:", temperature=0.8)
    """
    stream = generate_stream(
        source, prompt, tokens=tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, beams=beams,
        weights=weights, device=device,
    )  # fmt: skip
    return "".join(stream)


def generate_stream(
    source: Source,
    prompt: str,
    *,
    tokens: int = TOKENS,
    temperature: float = TEMPERATURE,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = SEED,
    beams: int | None = None,
    weights: str | Path | None = None,
    device: str = "auto",
) -> Iterator[str]:
    """Yield the text of `generate` piece by piece, as soon as it is generated; with `beams`, all at the end.

    >>> for text in netspec.generate_stream("runs/char_lstm", "ROMEO:"):
    ...     print(text, end="", flush=True)
    """
    return text_stream(
        source, prompt, tokens=tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, beams=beams,
        weights=weights, device=device,
    ).pieces  # fmt: skip


@dataclass(frozen=True)
class TextStream:
    """A text that is being generated."""

    continues_prompt: bool
    """Whether the text continues the prompt; otherwise it is a text of its own."""
    pieces: Iterator[str]
    """The pieces of the text, without the prompt."""


def text_stream(
    source: Source,
    prompt: str,
    *,
    tokens: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int,
    beams: int | None,
    weights: str | Path | None,
    device: str,
) -> TextStream:
    """Return the text of `generate`, whose arguments these are, as it is generated."""
    sampling = Sampling(temperature, top_k, top_p)
    if beams is not None:
        has_sampling_options = (temperature, top_k, top_p, seed) != (TEMPERATURE, None, None, SEED)
        _check_beams(beams, has_sampling_options=has_sampling_options)
    if isinstance(source, (str, Path)) and is_model_file(Path(source)):
        model = load(source, weights, device=device)
    else:
        spec, weights_file = spec_and_weights(source, weights)
        model = load(load_spec(spec), weights_file, device=device)
    text_model = TextModel(model)
    start = text_model.encode(prompt)
    if beams is not None:
        pieces = text_model.best_text(start, tokens, beams)
    else:
        pieces = text_model.text(start, tokens, sampling, seed)
    return TextStream(text_model.continues_prompt, pieces)


def _check_beams(beams: int, *, has_sampling_options: bool) -> None:
    if beams < 1:
        raise InputError("the number of beams must be 1 or more", got=str(beams))
    if has_sampling_options:
        raise InputError(
            "`beams` cannot be combined with `temperature`, `top_k`, `top_p` or `seed`: beam search draws no tokens"
        )


class TextModel:
    """A net that generates text from a prompt: a language model, or an encoder and a decoder. Raises `InputError`."""

    def __init__(self, model: Model) -> None:
        column = decoder_column(model.training)
        self.continues_prompt = column is None
        """Whether the text continues the prompt, as that of a language model; otherwise it is a text of its own."""
        self.generator: TokenGenerator
        self.encode: Callable[[str], list[int]]
        """Returns the tokens of a prompt. Raises `InputError` if it has unknown characters or words."""
        if column is not None:
            assert model.training is not None
            decoder = EncoderDecoder(model, model.training, column)
            self.generator, self._tokenizer, self.encode = decoder, decoder.tokenizer, decoder.encode
            return
        tokenizer = model.tokenizer
        if tokenizer is None:
            raise InputError(
                "the weights have no tokenizer", expected="weights of a training on text, which has a `tokenizer`"
            )
        self.generator, self._tokenizer, self.encode = TextGenerator(model), tokenizer, self._encode

    def _encode(self, prompt: str) -> list[int]:
        try:
            tokens: list[int] = self._tokenizer.encode(prompt).tolist()
        except UnknownText as error:
            raise InputError(f"the prompt cannot be encoded: {error}", got=repr(prompt)[:100]) from None
        return tokens

    def text(self, start: list[int], tokens: int, sampling: Sampling, seed: int) -> Iterator[str]:
        """Return an iterator over a text of up to `tokens` tokens, given those of the prompt. Raises `InputError`."""
        _check_count(tokens)
        if seed < 0:
            raise InputError("the seed must be 0 or more", got=str(seed))
        return self._texts(islice(self.generator.tokens(start, sampling, seed), tokens), start)

    def best_text(self, start: list[int], tokens: int, beams: int) -> Iterator[str]:
        """Return an iterator over the most probable text of up to `tokens` tokens that beam search finds."""
        _check_count(tokens)
        _, best = beam_search(self.generator, start, tokens, beams)
        return self._texts(iter(best), start)

    def _texts(self, tokens: Iterator[int], start: list[int]) -> Iterator[str]:
        return _texts(self._tokenizer, tokens, start if self.continues_prompt else [])


def _check_count(tokens: int) -> None:
    if tokens < 1:
        raise InputError("the number of tokens must be 1 or more", got=str(tokens))


def _texts(tokenizer: Tokenizer, tokens: Iterator[int], start: list[int]) -> Iterator[str]:
    """Yield the text of tokens after `start`. A character of several tokens is yielded when it is complete."""
    window, count, printed = list(start), len(start), tokenizer.decode(start)
    for token in tokens:
        window.append(token)
        text = tokenizer.decode(window)
        if not text.endswith(UNDECODED) and len(text) > len(printed):
            yield text[len(printed) :]
            window = window[count:]  # the tokens just printed: the blank before the next one may depend on them
            count, printed = len(window), tokenizer.decode(window)
