"""What Keras calls optimizers and schedules, and in which order it keeps their variables: one table for both ways.

Facts are those of Keras 3.15's `optimizers` and their `build`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_MOMENTS = {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}
FIELDS: Mapping[str, Mapping[str, Any]] = {
    "SGD": {"momentum": 0.0, "nesterov": False},
    "RMSprop": {"rho": 0.9, "momentum": 0.0, "epsilon": 1e-7, "centered": False},
    "Adam": {**_MOMENTS, "amsgrad": False},
    "AdamW": {**_MOMENTS, "amsgrad": False},
    "Adamax": _MOMENTS,
    "Nadam": _MOMENTS,
    "Adadelta": {"rho": 0.95, "epsilon": 1e-7},
    "Adagrad": {"initial_accumulator_value": 0.1, "epsilon": 1e-7},
    "Ftrl": {
        "learning_rate_power": -0.5, "initial_accumulator_value": 0.1, "l1_regularization_strength": 0.0,
        "l2_regularization_strength": 0.0, "l2_shrinkage_regularization_strength": 0.0, "beta": 0.0,
    },
    "Lion": {"beta_1": 0.9, "beta_2": 0.99},
    "Lamb": _MOMENTS,
    "Adafactor": {"beta_2_decay": -0.8, "epsilon_1": 1e-30, "epsilon_2": 1e-3, "clip_threshold": 1.0},
    "Muon": {
        "momentum": 0.95, "nesterov": True, "ns_steps": 5, "rms_rate": 0.2, "adam_weight_decay": 0.004,
        "adam_lr_ratio": 1.0, "adam_beta_1": 0.9, "adam_beta_2": 0.999, "epsilon": 1e-7,
    },
}  # fmt: skip
"""Optimizers that are solvers here by the same name, and their fields with defaults, which are the same too."""
DECAYS = {"AdamW": 0.004, "Lion": 0.0, "Adafactor": 0.0, "Muon": 0.004}
"""Solvers whose decay is decoupled without being told, and what it is where nothing is said."""
COEFFICIENTS: Mapping[str, float] = {"muon_a": 3.4445, "muon_b": -4.775, "muon_c": 2.0315}
"""Muon's `ns_coefficients`, one by one."""
NONE = {"rms_rate": None, "adam_weight_decay": 0.0}
"""What a field is here that Keras says None of, where that is not what it is by default."""
CLIPPING = ("clipnorm", "clipvalue", "global_clipnorm")
"""Fields that are the same for all of them."""

SCHEDULES: Mapping[str, Mapping[str, str]] = {
    "ExponentialDecay": {"initial_learning_rate": "initial", "decay_steps": "decay_steps", "decay_rate": "decay_rate",
                         "staircase": "staircase"},
    "InverseTimeDecay": {"initial_learning_rate": "initial", "decay_steps": "decay_steps", "decay_rate": "decay_rate",
                         "staircase": "staircase"},
    "PolynomialDecay": {"initial_learning_rate": "initial", "decay_steps": "decay_steps",
                        "end_learning_rate": "end", "power": "power", "cycle": "cycle"},
    "PiecewiseConstantDecay": {"boundaries": "boundaries", "values": "values"},
    "CosineDecay": {"initial_learning_rate": "initial", "decay_steps": "decay_steps", "alpha": "alpha"},
    "CosineDecayRestarts": {"initial_learning_rate": "initial", "first_decay_steps": "first_decay_steps",
                            "t_mul": "t_mul", "m_mul": "m_mul", "alpha": "alpha"},
}  # fmt: skip
"""Schedules by the same name here, and what their fields are called."""

_SLOTS: Mapping[str, Sequence[Sequence[str]]] = {
    "Adam": [["first_moment", "second_moment"]],
    "AdamW": [["first_moment", "second_moment"]],
    "Adamax": [["first_moment", "norm"]],
    "Nadam": [["first_moment", "second_moment"]],
    "Adadelta": [["accumulator", "delta_accumulator"]],
    "Adagrad": [["accumulator"]],
    "Ftrl": [["accumulator", "linear"]],
    "Lion": [["first_moment"]],
    "Lamb": [["first_moment", "second_moment"]],
    "Adafactor": [["rows", "columns", "second_moment"]],
    "Muon": [["momentum", "first_moment", "second_moment"]],
}
"""Of Adafactor, a vector has two zeros for its rows and columns; of Muon, see `is_kept`."""
MOMENTUM_PRODUCT = "solver/$all/momentum_product"
"""The slot of Nadam that all parameters share; Keras has it behind all others."""


def slot_groups(type_: str, solver: Mapping[str, Any]) -> list[list[str]]:
    """Slots in the order of Keras's variables: those of one inner list for one parameter after the other."""
    groups = [list(group) for group in _SLOTS.get(type_, [])]
    if type_ == "SGD":
        groups = [["velocity"]] if solver.get("momentum") else []
    if type_ == "RMSprop":
        groups = [["second_moment"]] + ([["velocity"]] if solver.get("momentum") else [])
        groups += [["first_moment"]] if solver.get("centered") else []
    if solver.get("amsgrad"):
        groups.append(["largest_second_moment"])
    return groups


def is_kept(type_: str, slot: str, *, matrix: bool) -> bool:
    """Whether a parameter has a slot: Muon's matrices have their momentum, what AdamW moves there has its two."""
    return type_ != "Muon" or slot not in _SLOTS[type_][0] or (slot == "momentum") == matrix


def is_turned(type_: str, slot: str) -> bool:
    """Whether Keras keeps a slot with the other sign: it takes RMSprop's momentum off, a velocity is added here."""
    return type_ == "RMSprop" and slot == "velocity"
