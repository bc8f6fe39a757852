"""Beam search: the most probable sequence of tokens, among the best candidates of each length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from netspec.training.generation import TextGenerator


class _Candidate(NamedTuple):
    """A sequence of tokens after the prompt, and the net after it has read them."""

    score: float
    """Logarithm of the probability of the tokens."""
    tokens: tuple[int, ...]
    logits: NDArray[Any]
    """Logits (V,) of the next token."""
    state: Any


def beam_search(generator: TextGenerator, prompt: Sequence[int], length: int, beams: int) -> tuple[float, list[int]]:
    """Return the best sequence of `length` tokens after a prompt, with the logarithm of its probability.

    After each token, the `beams` most probable sequences are kept; one beam always takes the most probable token. All
    have the same length, so their probabilities are compared as they are, without a length penalty.
    """
    candidates = [_Candidate(0.0, (), generator.read(prompt), generator.net.save_state())]
    for step in range(length):
        candidates = [
            _extended(generator, candidates[parent], token, score, is_last=step == length - 1)
            for parent, token, score in _best(candidates, beams)
        ]
    return candidates[0].score, list(candidates[0].tokens)


def _best(candidates: Sequence[_Candidate], count: int) -> list[tuple[int, int, float]]:
    """Return the best continuations by one token, in order: the index of the candidate, the token and the score."""
    scores = np.stack([candidate.score + _log_softmax(candidate.logits) for candidate in candidates])
    order = np.argsort(-scores, axis=None, kind="stable")[:count]
    parents, tokens = np.unravel_index(order, scores.shape)
    return list(zip(parents.tolist(), tokens.tolist(), scores[parents, tokens].tolist(), strict=True))


def _extended(generator: TextGenerator, parent: _Candidate, token: int, score: float, *, is_last: bool) -> _Candidate:
    tokens = (*parent.tokens, token)
    if is_last:
        return parent._replace(score=score, tokens=tokens)
    generator.net.restore_state(parent.state)
    return _Candidate(score, tokens, generator.logits_after(token), generator.net.save_state())


def _log_softmax(logits: NDArray[Any]) -> NDArray[Any]:
    shifted = logits.astype(np.float64) - logits.max()
    scores: NDArray[Any] = shifted - np.log(np.exp(shifted).sum())
    return scores
