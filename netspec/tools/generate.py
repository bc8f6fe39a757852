"""Generate text with a net that was trained to predict the next token."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from netspec.data.text.tokens import Tokenizer, UnknownText
from netspec.errors import InputError
from netspec.schema.load import Source
from netspec.tools.model_inputs import is_model_file, load, spec_and_weights
from netspec.tools.sampling_defaults import SEED, TEMPERATURE, TOKENS
from netspec.tools.specs import load_spec, net_of
from netspec.training.beam_search import beam_search
from netspec.training.generation import Sampling, TextGenerator
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
    """Return text that continues a prompt, without the prompt.

    `source` is a run directory, or a training file with `weights`, of a net that predicts the next token of a text.
    Each of `tokens` tokens is drawn from the net's probabilities. A lower `temperature` prefers more probable tokens
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
    sampling = Sampling(temperature, top_k, top_p)
    if beams is not None:
        has_sampling_options = (temperature, top_k, top_p, seed) != (TEMPERATURE, None, None, SEED)
        _check_beams(beams, has_sampling_options=has_sampling_options)
    if isinstance(source, (str, Path)) and is_model_file(Path(source)):
        model = load(source, weights, device=device)
    else:
        spec, weights_file = spec_and_weights(source, weights)
        model = load(net_of(load_spec(spec)), weights_file, device=device)
    language_model = LanguageModel(model)
    start = language_model.encode(prompt)
    if beams is not None:
        return language_model.best_continuation(start, tokens, beams)
    return language_model.continuation(start, tokens, sampling, seed)


def _check_beams(beams: int, *, has_sampling_options: bool) -> None:
    if beams < 1:
        raise InputError("the number of beams must be 1 or more", got=str(beams))
    if has_sampling_options:
        raise InputError(
            "`beams` cannot be combined with `temperature`, `top_k`, `top_p` or `seed`: beam search draws no tokens"
        )


class LanguageModel:
    """A net that predicts the next token of a text, with the tokenizer of its training. Raises `InputError`."""

    def __init__(self, model: Model) -> None:
        tokenizer = model.tokenizer
        if tokenizer is None:
            raise InputError(
                "the weights have no tokenizer", expected="weights of a training on text, which has a `tokenizer`"
            )
        self._tokenizer = tokenizer
        self.generator = TextGenerator(model)

    def encode(self, prompt: str) -> list[int]:
        """Return the tokens of a prompt. Raises `InputError` if it has unknown characters or words."""
        try:
            tokens: list[int] = self._tokenizer.encode(prompt).tolist()
        except UnknownText as error:
            raise InputError(f"the prompt cannot be encoded: {error}", got=repr(prompt)[:100]) from None
        return tokens

    def continuation(self, start: list[int], tokens: int, sampling: Sampling, seed: int) -> Iterator[str]:
        """Return an iterator over the text of `tokens` tokens after those of the prompt. Raises `InputError`."""
        _check_count(tokens)
        if seed < 0:
            raise InputError("the seed must be 0 or more", got=str(seed))
        return _texts(self._tokenizer, islice(self.generator.tokens(start, sampling, seed), tokens), start)

    def best_continuation(self, start: list[int], tokens: int, beams: int) -> Iterator[str]:
        """Return an iterator over the most probable text of `tokens` tokens that beam search finds."""
        _check_count(tokens)
        _, best = beam_search(self.generator, start, tokens, beams)
        return _texts(self._tokenizer, iter(best), start)


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
