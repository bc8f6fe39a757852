"""Generate text with a net that was trained to predict the next token."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from netspec.data.text.tokens import Tokenizer, UnknownText
from netspec.errors import InputError
from netspec.schema.load import Source
from netspec.tools.model_inputs import is_model_file, load, spec_and_weights
from netspec.tools.specs import load_spec, net_of
from netspec.training.generation import Sampling, TextGenerator

UNDECODED = "�"
"""Replacement character, to which a tokenizer decodes an incomplete character."""


def generate(
    source: Source,
    prompt: str,
    *,
    tokens: int = 200,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 1,
    weights: str | Path | None = None,
    device: str = "auto",
) -> str:
    """Return text that continues a prompt, without the prompt.

    `source` is a run directory, or a training file with `weights`, of a net that predicts the next token of a text.
    Each of `tokens` tokens is drawn from the net's probabilities. A lower `temperature` prefers more probable tokens
    (0: always the most probable one); `top_k` draws from the k most probable ones, `top_p` from the most probable ones
    that together have that probability. The same `seed` generates the same text.

    Raises `InputError` if the net does not predict tokens, or the prompt has characters or words that it does not know.

        >>> netspec.generate("runs/char_shakespeare", "ROMEO:", temperature=0.8)
    """
    stream = generate_stream(
        source, prompt, tokens=tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, weights=weights,
        device=device,
    )  # fmt: skip
    return "".join(stream)


def generate_stream(
    source: Source,
    prompt: str,
    *,
    tokens: int = 200,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 1,
    weights: str | Path | None = None,
    device: str = "auto",
) -> Iterator[str]:
    """Yield the text of `generate` piece by piece, as soon as it is generated.

    >>> for text in netspec.generate_stream("runs/char_shakespeare", "ROMEO:"):
    ...     print(text, end="", flush=True)
    """
    if tokens < 1:
        raise InputError("the number of tokens must be 1 or more", got=str(tokens))
    sampling = Sampling(temperature, top_k, top_p)
    if isinstance(source, (str, Path)) and is_model_file(Path(source)):
        model = load(source, weights, device=device)
    else:
        spec, weights_file = spec_and_weights(source, weights)
        model = load(net_of(load_spec(spec)), weights_file, device=device)
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise InputError(
            "the weights have no tokenizer", expected="weights of a training on text, which has a `tokenizer`",
            got=str(source),
        )  # fmt: skip
    try:
        start = tokenizer.encode(prompt).tolist()
    except UnknownText as error:
        raise InputError(f"the prompt cannot be encoded: {error}", got=repr(prompt)) from None
    generator = TextGenerator(model)
    return _texts(tokenizer, islice(generator.tokens(start, sampling, seed), tokens), start)


def _texts(tokenizer: Tokenizer, tokens: Iterator[int], start: list[int]) -> Iterator[str]:
    """Yield the text of tokens after `start`. A character of several tokens is yielded when it is complete."""
    sequence, printed = list(start), tokenizer.decode(start)
    for token in tokens:
        sequence.append(token)
        text = tokenizer.decode(sequence)
        if not text.endswith(UNDECODED) and len(text) > len(printed):
            yield text[len(printed) :]
            printed = text
