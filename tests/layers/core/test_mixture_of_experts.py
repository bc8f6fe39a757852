"""MixtureOfExperts against its formula written out for each vector and expert."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.interpret import evaluate
from tests.layers.apply import layer

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(2, 3, 4))
FIELDS = {"type": "MixtureOfExperts", "num_experts": 5, "hidden_units": 3, "activation": "tanh"}
WEIGHTS: dict[str, Any] = {
    "router": RANDOM.normal(size=(4, 5)),
    "hidden/kernel": RANDOM.normal(size=(4, 5, 3)),
    "hidden/bias": RANDOM.normal(size=(5, 3)),
    "output/kernel": RANDOM.normal(size=(5, 3, 4)),
    "output/bias": RANDOM.normal(size=(5, 4)),
}


def expert(k: int, x: np.ndarray) -> np.ndarray:
    hidden = np.tanh(x @ WEIGHTS["hidden/kernel"][:, k] + WEIGHTS["hidden/bias"][k])
    y: np.ndarray = hidden @ WEIGHTS["output/kernel"][k] + WEIGHTS["output/bias"][k]
    return y


def probabilities(x: np.ndarray) -> np.ndarray:
    e = np.exp(x @ WEIGHTS["router"])
    p: np.ndarray = e / e.sum(-1, keepdims=True)
    return p


@pytest.mark.parametrize("top_k", [1, 2, 5])
def test_each_vector_gets_the_weighted_outputs_of_its_experts(top_k: int) -> None:
    expected = np.zeros_like(X)
    for at in np.ndindex(X.shape[:-1]):
        p = probabilities(X[at])
        best = np.argsort(-p)[:top_k]
        share = 1 if top_k == 1 else p[best].sum()
        expected[at] = sum(p[k] / share * expert(k, X[at]) for k in best)
    np.testing.assert_allclose(layer({**FIELDS, "top_k": top_k}, X, **WEIGHTS).y, expected, rtol=1e-12)


def test_training_adds_the_loss_of_the_load() -> None:
    p = probabilities(X.reshape(6, 4))
    chosen = np.argsort(-p)[:, :2]
    share = np.bincount(chosen.ravel(), minlength=5) / chosen.size
    result = layer({**FIELDS, "load_balancing": 0.3}, X, training=True, **WEIGHTS)
    (penalty,) = evaluate(result.net.penalties, result.feeds)
    assert penalty == pytest.approx(0.3 * 5 * (share * p.mean(axis=0)).sum())
    for off in ({"load_balancing": 0}, {"trainable": False}):
        assert not layer({**FIELDS, **off}, X, training=True, **WEIGHTS).net.penalties
    assert not layer(FIELDS, X, **WEIGHTS).net.penalties


def test_experts_start_from_values_of_their_own_matrices() -> None:
    fields = {**FIELDS, "hidden_units": 64, "num_experts": 8}
    kernel = layer(fields, RANDOM.normal(size=(1, 32))).feeds["it/hidden/kernel"]
    # Glorot's limit for (32, 64), not for (32, 512).
    assert kernel.std() == pytest.approx(np.sqrt(2 / (32 + 64)), rel=0.03)
    assert not np.allclose(kernel[:, 0], kernel[:, 1])
