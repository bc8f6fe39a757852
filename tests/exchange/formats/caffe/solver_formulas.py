"""Caffe's solvers in plain NumPy, after its documentation and `src/caffe/solvers`: one update of all parameters.

A solver is given by the fields of its file; `rate` has the policies of the learning rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from typing import Any

import numpy as np

Arrays = dict[str, Any]


class Caffe:
    """A solver with its history and iteration."""

    def __init__(self, fields: Mapping[str, Any], multipliers: Mapping[str, tuple[float, float]]) -> None:
        self.fields = {
            "type": "SGD", "momentum": 0.0, "momentum2": 0.999, "rms_decay": 0.99, "delta": 1e-8, "weight_decay": 0.0,
            "regularization_type": "L2", "clip_gradients": -1.0, "iter_size": 1, "gamma": 0.0, "power": 0.0,
            "stepsize": 0, "stepvalue": (), **fields,
        }  # fmt: skip
        self.multipliers = multipliers
        self.history: Arrays = {}
        self.second: Arrays = {}
        self.iteration = 0
        self.current_step = 0

    def rate(self) -> float:
        """SGDSolver::GetLearningRate for the next iteration."""
        f, t = self.fields, self.iteration
        base, gamma = f["base_lr"], f["gamma"]
        match f["lr_policy"]:
            case "fixed":
                return float(base)
            case "step":
                return float(base * gamma ** (t // f["stepsize"]))
            case "exp":
                return float(base * gamma**t)
            case "inv":
                return float(base * (1 + gamma * t) ** -f["power"])
            case "multistep":
                if self.current_step < len(f["stepvalue"]) and t >= f["stepvalue"][self.current_step]:
                    self.current_step += 1
                return float(base * gamma**self.current_step)
            case "poly":
                return float(base * (1 - t / f["max_iter"]) ** f["power"])
            case "sigmoid":
                return float(base / (1 + exp(-gamma * (t - f["stepsize"]))))
        raise AssertionError(f["lr_policy"])

    def step(self, weights: Arrays, gradients: Arrays) -> Arrays:
        """Return the weights after an iteration; gradients are the sums over `iter_size` batches."""
        f, rate = self.fields, self.rate()
        limit = f["clip_gradients"]
        norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        factor = limit / norm if 0 <= limit < norm else 1.0
        following = {}
        for name, w in weights.items():
            lr_mult, decay_mult = self.multipliers[name]
            decay = f["weight_decay"] * decay_mult
            g = gradients[name] * factor / f["iter_size"]
            g = g + decay * (np.sign(w) if f["regularization_type"] == "L1" else w)
            following[name] = w - self.update(name, g, rate * lr_mult)
        self.iteration += 1
        return following

    def update(self, name: str, g: Any, rate: float) -> Any:
        """ComputeUpdateValue: return what is subtracted from a parameter."""
        f = self.fields
        momentum, delta = f["momentum"], f["delta"]
        h, second = self.history.get(name, 0.0), self.second.get(name, 0.0)
        match f["type"]:
            case "SGD":
                self.history[name] = new_history = rate * g + momentum * h
                return new_history
            case "Nesterov":
                self.history[name] = new_history = rate * g + momentum * h
                return (1 + momentum) * new_history - momentum * h
            case "AdaGrad":
                self.history[name] = new_history = h + g**2
                return rate * g / (np.sqrt(new_history) + delta)
            case "RMSProp":
                self.history[name] = new_history = f["rms_decay"] * h + (1 - f["rms_decay"]) * g**2
                return rate * g / (np.sqrt(new_history) + delta)
            case "AdaDelta":
                self.history[name] = new_history = momentum * h + (1 - momentum) * g**2
                change = g * np.sqrt((second + delta) / (new_history + delta))
                self.second[name] = momentum * second + (1 - momentum) * change**2
                return rate * change
            case "Adam":
                t, beta_2 = self.iteration + 1, f["momentum2"]
                self.history[name] = m = momentum * h + (1 - momentum) * g
                self.second[name] = v = beta_2 * second + (1 - beta_2) * g**2
                return rate * np.sqrt(1 - beta_2**t) / (1 - momentum**t) * m / (np.sqrt(v) + delta)
        raise AssertionError(f["type"])
