"""The published formula of every solver, in plain NumPy: one update of one parameter.

Each takes the weight, its (clipped) gradient, its rate and decay with multipliers, the number of the update, a mapping
for state that persists (and the parameter's name), and the solver's fields; it returns the new weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Slots = dict[str, Any]
Formula = Callable[[Any, Any, float, float, int, Slots, dict[str, Any]], Any]


def decayed(g: Any, w: Any, decay: float, spec: dict[str, Any]) -> Any:
    """Return the gradient plus that of the coupled decay: of ½ · decay · ‖w‖², or for L1 of decay · Σ |w|."""
    return g + decay * (np.sign(w) if spec.get("weight_decay_norm") == "L1" else w)


def root(square: Any, epsilon: float, spec: dict[str, Any]) -> Any:
    """Return the divisor: Keras adds epsilon under the root, Caffe and PyTorch to the root."""
    return np.sqrt(square + epsilon) if spec.get("epsilon_in_root", True) else np.sqrt(square) + epsilon


def sgd(w: Any, g: Any, lr: float, decay: float, t: int, s: Slots, spec: dict[str, Any]) -> Any:
    """Sutskever et al. 2013 in the form of Keras's and Caffe's documentation."""
    momentum = spec.get("momentum", 0.0)
    g = decayed(g, w, decay, spec)
    dampened = g * (1 - spec.get("dampening", 0.0) if t > 1 else 1)
    if not spec.get("rate_in_velocity", True):  # torch.optim.SGD
        s["buffer"] = momentum * s.get("buffer", 0.0) + dampened
        return w - lr * (g + momentum * s["buffer"] if spec.get("nesterov") else s["buffer"])
    s["velocity"] = momentum * s.get("velocity", 0.0) - lr * dampened
    if spec.get("nesterov"):
        return w + momentum * s["velocity"] - lr * g
    return w + s["velocity"]


def moments(g: Any, s: Slots, b1: float, b2: float) -> tuple[Any, Any]:
    """Update the moving averages of the gradient and its square."""
    s["m"] = b1 * s.get("m", 0.0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0.0) + (1 - b2) * g**2
    return s["m"], s["v"]


def adam(w: Any, g: Any, lr: float, decay: float, t: int, s: Slots, spec: dict[str, Any]) -> Any:
    """Kingma and Ba 2015, end of section 2; Reddi et al. 2018 for amsgrad."""
    b1, b2, eps = spec.get("beta_1", 0.9), spec.get("beta_2", 0.999), spec.get("epsilon", 1e-7)
    m, v = moments(g + decay * w, s, b1, b2)
    s["max"] = np.maximum(s.get("max", 0.0), v)
    v = s["max"] if spec.get("amsgrad") else v
    if spec.get("epsilon_mode") == "bias_corrected":  # algorithm 1
        return w - lr * m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps)
    lr_t = lr * np.sqrt(1 - b2**t) / (1 - b1**t)
    return w - lr_t * m / (np.sqrt(v) + eps)


def adamax(w: Any, g: Any, lr: float, decay: float, t: int, s: Slots, spec: dict[str, Any]) -> Any:
    """Kingma and Ba 2015, section 7.1, with Keras's epsilon."""
    b1, b2, eps = spec.get("beta_1", 0.9), spec.get("beta_2", 0.999), spec.get("epsilon", 1e-7)
    g = g + decay * w
    s["m"] = b1 * s.get("m", 0.0) + (1 - b1) * g
    inside = spec.get("epsilon_in_maximum", False)  # torch.optim.Adamax
    s["u"] = np.maximum(b2 * s.get("u", 0.0), abs(g) + eps * inside)
    return w - lr / (1 - b1**t) * s["m"] / (s["u"] + eps * (not inside))


def nadam(w: Any, g: Any, lr: float, decay: float, t: int, s: Slots, spec: dict[str, Any]) -> Any:
    """Dozat 2016, with the schedule of the momentum as in PyTorch's documentation of NAdam."""
    b1, b2, eps = spec.get("beta_1", 0.9), spec.get("beta_2", 0.999), spec.get("epsilon", 1e-7)
    g = g + decay * w
    m, v = moments(g, s, b1, b2)
    mu, next_mu = (b1 * (1 - 0.5 * 0.96 ** (n * spec.get("momentum_decay", 1.0))) for n in (t, t + 1))
    s["product"] = mu * s.get("product", 1.0)
    corrected = next_mu * m / (1 - s["product"] * next_mu) + (1 - mu) * g / (1 - s["product"])
    return w - lr * corrected / (np.sqrt(v / (1 - b2**t)) + eps)


def radam(w: Any, g: Any, lr: float, decay: float, t: int, s: Slots, spec: dict[str, Any]) -> Any:
    """Liu et al. 2020, algorithm 2, with the epsilon and the threshold of PyTorch's documentation."""
    b1, b2, eps = spec.get("beta_1", 0.9), spec.get("beta_2", 0.999), spec.get("epsilon", 1e-8)
    m, v = moments(g + decay * w, s, b1, b2)
    max_length = 2 / (1 - b2) - 1
    length = max_length - 2 * t * b2**t / (1 - b2**t)
    step = lr * m / (1 - b1**t)
    if length > 5:
        r = np.sqrt((length - 4) * (length - 2) * max_length / ((max_length - 4) * (max_length - 2) * length))
        step = step * r * np.sqrt(1 - b2**t) / (np.sqrt(v) + eps)
    return w - step


def rmsprop(w: Any, g: Any, lr: float, decay: float, t: int, s: Slots, spec: dict[str, Any]) -> Any:
    """Tieleman and Hinton 2012, Graves 2013 if centered, with Keras's epsilon."""
    rho, eps, momentum = spec.get("rho", 0.9), spec.get("epsilon", 1e-7), spec.get("momentum", 0.0)
    g = decayed(g, w, decay, spec)
    m, v = moments(g, s, rho, rho)
    scale = root((v - m**2 if spec.get("centered") else v), eps, spec)
    if not spec.get("rate_in_velocity", True):  # torch.optim.RMSprop
        s["buffer"] = momentum * s.get("buffer", 0.0) + g / scale
        return w - lr * s["buffer"]
    s["velocity"] = momentum * s.get("velocity", 0.0) - lr * g / scale
    return w + s["velocity"]


def adagrad(w: Any, g: Any, lr: float, decay: float, t: int, s: Slots, spec: dict[str, Any]) -> Any:
    """Duchi et al. 2011, with Keras's initial value and epsilon."""
    g = g + decay * w
    s["sum"] = s.get("sum", spec.get("initial_accumulator_value", 0.1)) + g**2
    return w - lr * g / root(s["sum"], spec.get("epsilon", 1e-7), spec)


def adadelta(w: Any, g: Any, lr: float, decay: float, t: int, s: Slots, spec: dict[str, Any]) -> Any:
    """Zeiler 2012, algorithm 1."""
    rho, eps = spec.get("rho", 0.95), spec.get("epsilon", 1e-7)
    g = g + decay * w
    s["g2"] = rho * s.get("g2", 0.0) + (1 - rho) * g**2
    delta = np.sqrt(s.get("d2", 0.0) + eps) / np.sqrt(s["g2"] + eps) * g
    s["d2"] = rho * s.get("d2", 0.0) + (1 - rho) * delta**2
    return w - lr * delta


def ftrl(w: Any, g: Any, lr: float, decay: float, t: int, s: Slots, spec: dict[str, Any]) -> Any:
    """McMahan et al. 2013 in the form of Keras's documentation."""
    power, l1 = -spec.get("learning_rate_power", -0.5), spec.get("l1_regularization_strength", 0.0)
    l2 = spec.get("l2_regularization_strength", 0.0) + spec.get("beta", 0.0) / (2 * lr)
    g = g + decay * w
    before = s.get("n", spec.get("initial_accumulator_value", 0.1))
    s["n"] = before + g**2
    sigma = (s["n"] ** power - before**power) / lr
    shrinkage = 2 * spec.get("l2_shrinkage_regularization_strength", 0.0) * w
    s["z"] = s.get("z", 0.0) + g + shrinkage - sigma * w
    return (np.clip(s["z"], -l1, l1) - s["z"]) / (s["n"] ** power / lr + 2 * l2)


def lion(w: Any, g: Any, lr: float, decay: float, t: int, s: Slots, spec: dict[str, Any]) -> Any:
    """Chen et al. 2023, algorithm 2."""
    b1, b2 = spec.get("beta_1", 0.9), spec.get("beta_2", 0.99)
    c = b1 * s.get("m", 0.0) + (1 - b1) * g
    s["m"] = b2 * s.get("m", 0.0) + (1 - b2) * g
    return w - lr * np.sign(c)


def trust(numerator: Any, denominator: Any) -> Any:
    """Return the quotient of two norms, or 1 if either is 0."""
    return numerator / denominator if numerator and denominator else 1.0


def excluded(s: Slots, spec: dict[str, Any]) -> bool:
    """Whether the pattern `exclude`, with an optional star at either end, matches the parameter."""
    pattern = spec.get("exclude", "")
    return bool(pattern) and (
        s["name"].endswith(pattern[1:]) if pattern[0] == "*" else s["name"].startswith(pattern[:-1])
    )


def lars(w: Any, g: Any, lr: float, decay: float, t: int, s: Slots, spec: dict[str, Any]) -> Any:
    """You, Gitman and Ginsburg 2017, algorithm 1, the velocity in Caffe's form."""
    length = np.linalg.norm(w)
    factor = trust(spec.get("trust_coefficient", 0.001) * length, np.linalg.norm(g) + decay * length)
    step = (1.0 if excluded(s, spec) else factor) * (g + decay * w)
    return sgd(w, step, lr, 0.0, t, s, {"momentum": spec.get("momentum", 0.9), "nesterov": spec.get("nesterov")})


def lamb(w: Any, g: Any, lr: float, decay: float, t: int, s: Slots, spec: dict[str, Any]) -> Any:
    """You et al. 2020, algorithm 2."""
    b1, b2, eps = spec.get("beta_1", 0.9), spec.get("beta_2", 0.999), spec.get("epsilon", 1e-7)
    m, v = moments(g, s, b1, b2)
    u = m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps) + decay * w
    return w - lr * (1.0 if excluded(s, spec) else trust(np.linalg.norm(w), np.linalg.norm(u))) * u


def adafactor(w: Any, g: Any, lr: float, decay: float, t: int, s: Slots, spec: dict[str, Any]) -> Any:
    """Shazeer and Stern 2018, algorithms 4 and 5; the two largest of several axes form the matrix."""

    def rms(x: Any) -> Any:
        return np.sqrt(np.mean(x**2))

    beta = 1 - t ** spec.get("beta_2_decay", -0.8)
    square = g**2 + spec.get("epsilon_1", 1e-30)
    if g.ndim == 1:
        v = s["v"] = beta * s.get("v", 0.0) + (1 - beta) * square
    else:
        row, column = sorted(np.argsort(g.shape, kind="stable")[-2:])
        r = s["r"] = beta * s.get("r", 0.0) + (1 - beta) * square.mean(axis=column, keepdims=True)
        c = s["c"] = beta * s.get("c", 0.0) + (1 - beta) * square.mean(axis=row, keepdims=True)
        v = r * c / r.mean(axis=row, keepdims=True)
    u = g / np.sqrt(v)
    u = u / max(1.0, rms(u) / spec.get("clip_threshold", 1.0))
    return w - max(spec.get("epsilon_2", 1e-3), rms(w)) * min(lr, t**-0.5) * u


def muon(w: Any, g: Any, lr: float, decay: float, t: int, s: Slots, spec: dict[str, Any]) -> Any:
    """Jordan et al. 2024 with the factor of Liu et al. 2025; AdamW if the weight is not a matrix."""
    if (w.ndim != 2 and not (spec.get("flatten") and w.ndim > 2)) or excluded(s, spec):
        betas = {"beta_1": spec.get("adam_beta_1", 0.9), "beta_2": spec.get("adam_beta_2", 0.999)}
        return adam(w, g, lr * spec.get("adam_lr_ratio", 1.0), 0.0, t, s, betas)
    momentum, (a, b, c) = spec.get("momentum", 0.95), spec.get("ns_coefficients", (3.4445, -4.775, 2.0315))
    s["m"] = momentum * s.get("m", 0.0) + g
    x = (g + momentum * s["m"] if spec.get("nesterov", True) else s["m"]).reshape(len(g), -1)
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(spec.get("ns_steps", 5)):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    rate = spec.get("rms_rate", 0.2)
    return w - lr * (1.0 if rate is None else rate * np.sqrt(max(x.shape))) * x.reshape(w.shape)


def schedule_free(w: Any, g: Any, lr: float, decay: float, t: int, s: Slots, spec: dict[str, Any]) -> Any:
    """Defazio et al. 2024 as the authors' package `schedulefree` updates y and z; x is for evaluation."""
    b1, b2, eps = spec.get("beta_1", 0.9), spec.get("beta_2", 0.999), spec.get("epsilon", 1e-8)
    s["v"] = b2 * s.get("v", 0.0) + (1 - b2) * g**2
    step = g / (np.sqrt(s["v"] / (1 - b2**t)) + eps) + decay * w
    s["largest"] = max(s.get("largest", 0.0), s["scheduled"])
    weight = t ** spec.get("r", 0.0) * s["largest"] ** spec.get("weight_lr_power", 2.0)
    s["sum"] = s.get("sum", 0.0) + weight
    share = weight / s["sum"]
    z = s.get("z", w)
    y = w + share * (z - w) + lr * (b1 * (1 - share) - 1) * step
    s["z"] = z - lr * step
    s["average"] = (y - (1 - b1) * s["z"]) / b1
    return y


def rprop(w: Any, g: Any, lr: float, decay: float, t: int, s: Slots, spec: dict[str, Any]) -> Any:
    """Riedmiller and Braun 1993, in the form of PyTorch's documentation of Rprop."""
    g = g + decay * w
    agreement = g * s.get("previous", np.zeros_like(w))
    factor = np.where(agreement > 0, spec.get("eta_plus", 1.2), np.where(agreement < 0, spec.get("eta_minus", 0.5), 1))
    smallest, largest = spec.get("step_size_min", 1e-6), spec.get("step_size_max", 50.0)
    s["size"] = np.clip(s.get("size", lr) * factor, smallest, largest)
    s["previous"] = np.where(agreement < 0, 0.0, g)
    return w - s["size"] * np.sign(s["previous"])


def asgd(w: Any, g: Any, lr: float, decay: float, t: int, s: Slots, spec: dict[str, Any]) -> Any:
    """Polyak and Juditsky 1992 with the rate and the average of PyTorch's ASGD."""
    lambd = spec.get("lambd", 1e-4)
    eta = lr / (1 + lambd * lr * (t - 1)) ** spec.get("alpha", 0.75)
    new = w * (1 - lambd * eta) - eta * (g + decay * w)
    s["average"] = s.get("average", w) + (new - s.get("average", w)) / max(1, t - 1 - spec.get("t0", 1e6))
    return new


def decoupled(rule: Formula) -> Formula:
    """Return the rule after decoupled weight decay: Loshchilov and Hutter 2019."""

    def formula(w: Any, g: Any, lr: float, decay: float, t: int, s: Slots, spec: dict[str, Any]) -> Any:
        return rule(w - lr * decay * w, g, lr, 0.0, t, s, spec)

    return formula


FORMULAS: dict[str, Formula] = {
    "SGD": sgd,
    "Adam": adam,
    "AdamW": decoupled(adam),
    "Adamax": adamax,
    "Nadam": nadam,
    "RAdam": radam,
    "RMSprop": rmsprop,
    "Adagrad": adagrad,
    "Adadelta": adadelta,
    "Ftrl": ftrl,
    "Lion": decoupled(lion),
    "LARS": lars,
    "Lamb": lamb,
    "Adafactor": decoupled(adafactor),
    "Muon": decoupled(muon),
    "ScheduleFreeAdamW": schedule_free,
    "Rprop": rprop,
    "ASGD": asgd,
}


def usual_decay(type_: str, spec: dict[str, Any], s: Slots, w: Any) -> float:
    """Return the weight decay of a parameter."""
    if type_ == "Muon" and ((w.ndim != 2 and not (spec.get("flatten") and w.ndim > 2)) or excluded(s, spec)):
        return float(spec.get("adam_weight_decay", 0.004))
    return float(spec.get("weight_decay", {"AdamW": 0.004, "Muon": 0.004}.get(type_, 0.0)))
