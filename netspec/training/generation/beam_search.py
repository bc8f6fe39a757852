"""Beam search: the most probable sequence of tokens, among the best candidates of each length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from netspec.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from netspec.training.generation.language_model import TokenGenerator


class _Candidate(NamedTuple):
    """A sequence of tokens after the prompt, and the net after it has read them."""

    score: float
    """Logarithm of the probability of the tokens."""
    tokens: tuple[int, ...]
    logits: NDArray[Any]
    """Logits (V,) of the next token."""
    state: Any


def beam_search(generator: TokenGenerator, prompt: Sequence[int], length: int, beams: int) -> tuple[float, list[int]]:
    """Return the best sequence of up to `length` tokens after a prompt, with the logarithm of its probability.

    After each token, the `beams` most probable sequences are kept, finished ones included; one beam is greedy decoding.
    Scores are logarithms of probabilities, without a length penalty.
    """
    length = min(length, generator.max_tokens or length)
    candidates = [_Candidate(0.0, (), generator.read(prompt), generator.net.save_state())]
    for step in range(length):
        if _has_ended(candidates[0], generator.end):
            break  # longer sequences are less probable still
        candidates = [
            _extended(generator, candidates[parent], token, score, is_last=step == length - 1)
            for parent, token, score in _best(candidates, beams, generator.end)
        ]
    score, tokens = candidates[0][:2]
    return score, [token for token in tokens if token != generator.end]


def _has_ended(candidate: _Candidate, end: int | None) -> bool:
    return end is not None and candidate.tokens[-1:] == (end,)


def _best(candidates: Sequence[_Candidate], count: int, end: int | None) -> list[tuple[int, int, float]]:
    """Return the best continuations by one token, in order: the index of the candidate, the token and the score.

    A candidate that has ended has one continuation: `end`, with the same score.
    """
    scores = np.stack([_scores_after(candidate, end) for candidate in candidates])
    possible = int((scores > -np.inf).sum())
    if not possible:
        raise InputError("the net computes logits that are not finite", hint="`netspec test` shows its loss")
    order = np.argsort(-scores, axis=None, kind="stable")[: min(count, possible)]
    parents, tokens = np.unravel_index(order, scores.shape)
    return list(zip(parents.tolist(), tokens.tolist(), scores[parents, tokens].tolist(), strict=True))


def _scores_after(candidate: _Candidate, end: int | None) -> NDArray[Any]:
    """Return the score of each continuation by one token, (V,)."""
    if not _has_ended(candidate, end):
        return candidate.score + _log_softmax(candidate.logits)
    scores = np.full(candidate.logits.shape, -np.inf)
    scores[end] = candidate.score
    return scores


def _extended(generator: TokenGenerator, parent: _Candidate, token: int, score: float, *, is_last: bool) -> _Candidate:
    if _has_ended(parent, generator.end):
        return parent
    tokens = (*parent.tokens, token)
    if is_last or token == generator.end:
        return parent._replace(score=score, tokens=tokens)
    generator.net.restore_state(parent.state)
    return _Candidate(score, tokens, generator.logits_after(token), generator.net.save_state())


def _log_softmax(logits: NDArray[Any]) -> NDArray[Any]:
    shifted = logits.astype(np.float64) - logits.max()
    scores: NDArray[Any] = shifted - np.log(np.exp(shifted).sum())
    return scores
