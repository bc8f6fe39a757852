"""Generate text with a net that was trained to predict the next token."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from netspec.data.text.tokens import Tokenizer, UnknownText
from netspec.errors import InputError, and_more, counted
from netspec.schema.load import Source
from netspec.tools.bounds import require_at_least
from netspec.tools.inference.predict import spec_and_model
from netspec.tools.inference.sampling_defaults import SEED, TEMPERATURE, TOKENS
from netspec.training.generation.beam_search import beam_search
from netspec.training.generation.encoder_decoder import EncoderDecoderGenerator, decoder_columns
from netspec.training.generation.language_model import LanguageModelGenerator, Sampling, TokenGenerator
from netspec.training.inference.model import Model

UNDECODED = "�"
"""Replacement character, to which a tokenizer decodes an incomplete character."""
EXAMPLE_PROMPT = "To be"
MAX_SHOWN = 5
"""Number of unknown characters or words of a prompt that a note shows."""


def generate(
    source: Source,
    prompt: str,
    *,
    tokens: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    beams: int | None = None,
    weights: str | Path | None = None,
    device: str = "auto",
) -> str:
    """Return the text after a prompt, or the text that an encoder-decoder net generates for it.

    `source` is a run directory, or a training file with `weights`, of a language model; or of an encoder-decoder net
    trained with `decoder_input`, which stops at its end token. A language model draws each of up to `tokens` tokens, by
    default 200, from the net's probabilities; an encoder-decoder net takes the most probable ones. A lower
    `temperature` prefers more probable tokens (0: always the most probable one); `top_k` draws from the k most probable
    ones, `top_p` from the most probable ones that together have that probability. If one of these or `seed` is set, an
    encoder-decoder net draws its tokens too. The same `seed` generates the same text. With `beams`, no token is drawn:
    the text is the most probable one that beam search finds, which keeps that many candidates.

    Raises `InputError` if the net does not predict tokens, or the prompt is empty, or has characters or words that the
    net does not know. If the vocabulary has an index for such text, a `UserWarning` names them.

        >>> netspec.generate("runs/char_lstm", "ROMEO:", temperature=0.8)
    """
    stream = text_stream(
        source, prompt, tokens=tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, beams=beams,
        weights=weights, device=device,
    )  # fmt: skip
    text = "".join(stream.pieces)
    _warn(stream)
    return text


def generate_stream(
    source: Source,
    prompt: str,
    *,
    tokens: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    beams: int | None = None,
    weights: str | Path | None = None,
    device: str = "auto",
) -> Iterator[str]:
    """Yield the text of `generate` piece by piece, as soon as it is generated; with `beams`, all at the end.

    >>> for text in netspec.generate_stream("runs/char_lstm", "ROMEO:"):
    ...     print(text, end="", flush=True)
    """
    stream = text_stream(
        source, prompt, tokens=tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, beams=beams,
        weights=weights, device=device,
    )  # fmt: skip
    _warn(stream)
    return stream.pieces


@dataclass(frozen=True)
class TextStream:
    """A text that is being generated."""

    continues_prompt: bool
    """Whether the text continues the prompt; that of an encoder-decoder net replaces it."""
    pieces: Iterator[str]
    """The pieces of the text, without the prompt."""
    note: str | None = None
    """The characters or words of the prompt that the vocabulary does not have, as a sentence."""


def _warn(stream: TextStream) -> None:
    """Warn the caller of the calling function about unknown parts of the prompt."""
    if stream.note is not None:
        warnings.warn(stream.note, stacklevel=3)


def text_stream(
    source: Source,
    prompt: str,
    *,
    tokens: int | None,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    seed: int | None,
    beams: int | None,
    weights: str | Path | None,
    device: str,
) -> TextStream:
    """Return the generated text as a stream; see `generate` for the arguments."""
    if beams is not None:
        has_sampling_options = (temperature, top_k, top_p, seed) != (None,) * 4
        _check_beams(beams, has_sampling_options=has_sampling_options)
    _, model = spec_and_model(source, weights, overrides=(), device=device, autotune=None)
    text_model = TextModel(model)
    prompt_tokens = text_model.encode(prompt)
    if beams is not None:
        pieces = text_model.beam_search_text(prompt_tokens, tokens, beams)
    else:
        sampling = text_model.sampling(temperature, top_k, top_p, seed)
        pieces = text_model.sample_text(prompt_tokens, tokens, sampling, SEED if seed is None else seed)
    return TextStream(text_model.continues_prompt, pieces, text_model.describe_unknown(prompt))


def _check_beams(beams: int, *, has_sampling_options: bool) -> None:
    require_at_least(1, {"the number of beams": beams})
    if has_sampling_options:
        raise InputError(
            "`beams` cannot be combined with `temperature`, `top_k`, `top_p` or `seed`: beam search draws no tokens"
        )


class TextModel:
    """A net that generates text from a prompt: a language model, or an encoder-decoder net. Raises `InputError`."""

    def __init__(self, model: Model) -> None:
        self.continues_prompt = not decoder_columns(model.training)
        """Whether the text continues the prompt; that of an encoder-decoder net replaces it."""
        self.source: tuple[str, int] | None = None
        """Column of the source texts of an encoder-decoder net, and the largest number of their tokens."""
        self.generator: TokenGenerator
        if not self.continues_prompt:
            assert model.training is not None
            decoder = EncoderDecoderGenerator(model, model.training)
            self.source = decoder.source_column, decoder.source_length
            self.generator, self._prompt_tokenizer, self._tokenizer = (
                decoder,
                decoder.source_tokenizer,
                decoder.tokenizer,
            )
            return
        tokenizer = model.tokenizer
        if tokenizer is None:
            raise InputError(
                "the weights have no tokenizer", expected="weights of a net trained on text, which has a `tokenizer`"
            )
        self.generator, self._prompt_tokenizer, self._tokenizer = LanguageModelGenerator(model), tokenizer, tokenizer

    def encode(self, prompt: str) -> list[int]:
        """Return the tokens of a prompt. Raises `InputError` if it has unknown characters or words."""
        try:
            tokens: list[int] = self._prompt_tokenizer.encode(self._text_of(prompt)).tolist()
        except UnknownText as error:
            raise InputError(f"the prompt cannot be encoded: {error}", got=repr(prompt)[:100]) from None
        return tokens

    def _text_of(self, prompt: str) -> str:
        """Return the text that is encoded: a source text as cells of a table are read, without surrounding blanks."""
        return prompt if self.continues_prompt else prompt.strip()

    def example_prompt(self) -> str:
        """Return a prompt whose characters or words are in the vocabulary."""
        return self._prompt_tokenizer.known_text(EXAMPLE_PROMPT)

    def describe_unknown(self, prompt: str) -> str | None:
        """Return which characters or words of a prompt the vocabulary does not have, as a sentence; None if none."""
        unknown = self._prompt_tokenizer.unknown_tokens(self._text_of(prompt))
        if not unknown:
            return None
        kind = self._prompt_tokenizer.noun
        shown = ", ".join(map(repr, unknown[:MAX_SHOWN])) + and_more(len(unknown) - MAX_SHOWN)
        return f"the prompt has {counted(len(unknown), kind)} outside the vocabulary: {shown}"

    def sampling(self, temperature: float | None, top_k: int | None, top_p: float | None, seed: int | None) -> Sampling:
        """Return the settings for drawing tokens. By default, an encoder-decoder net takes the most probable ones."""
        is_greedy = not self.continues_prompt and (temperature, top_k, top_p, seed) == (None,) * 4
        return Sampling(0.0 if is_greedy else TEMPERATURE if temperature is None else temperature, top_k, top_p)

    def max_tokens(self, tokens: int | None) -> int:
        """Return the largest number of tokens to generate if `tokens` are requested. Raises `InputError`."""
        require_at_least(1, {"the number of tokens": tokens})
        most = self.generator.max_tokens
        if most is None:
            return TOKENS if tokens is None else tokens
        return most if tokens is None else min(tokens, most)

    def sample_text(self, prompt: list[int], tokens: int | None, sampling: Sampling, seed: int) -> Iterator[str]:
        """Return an iterator over a text of up to `tokens` tokens. `prompt` are its tokens. Raises `InputError`."""
        most = self.max_tokens(tokens)
        require_at_least(0, {"the seed": seed})
        return self._decoded(islice(self.generator.tokens(prompt, sampling, seed), most), prompt)

    def beam_search_text(self, prompt: list[int], tokens: int | None, beams: int) -> Iterator[str]:
        """Return an iterator over the most probable text of up to `tokens` tokens that beam search finds."""
        _, best = beam_search(self.generator, prompt, self.max_tokens(tokens), beams)
        return self._decoded(iter(best), prompt)

    def _decoded(self, tokens: Iterator[int], prompt: list[int]) -> Iterator[str]:
        return decoded_pieces(self._tokenizer, tokens, prompt if self.continues_prompt else [])


def decoded_pieces(tokenizer: Tokenizer, tokens: Iterator[int], start: list[int]) -> Iterator[str]:
    """Yield the text of tokens after `start`. A character of several tokens is yielded when it is complete."""
    window, count, printed = list(start), len(start), tokenizer.decode(start)
    for token in tokens:
        window.append(token)
        text = tokenizer.decode(window)
        if not text.endswith(UNDECODED) and len(text) > len(printed):
            yield text[len(printed) :]
            window = window[count:]  # the tokens just printed: the blank before the next one may depend on them
            count, printed = len(window), tokenizer.decode(window)
    if rest := tokenizer.decode(window)[len(printed) :]:
        yield rest  # unknown text, or an incomplete character
