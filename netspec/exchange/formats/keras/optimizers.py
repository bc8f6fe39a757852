"""Keras's optimizers and schedules: their fields, slots and the order of their variables, in both directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
"""Optimizers with a solver of the same name, and their fields with the common defaults."""
DECOUPLED_DECAYS = {"AdamW": 0.004, "Lion": 0.0, "Adafactor": 0.0, "Muon": 0.004}
"""Solvers whose decay is always decoupled, and its default."""
MUON_COEFFICIENTS: Mapping[str, float] = {"muon_a": 3.4445, "muon_b": -4.775, "muon_c": 2.0315}
"""Keras's fields for the elements of Muon's `ns_coefficients`."""
NONE_VALUES = {"rms_rate": None, "adam_weight_decay": 0.0}
"""Values for fields that are None in Keras, if None does not mean netspec's default."""
CLIPPING = ("clipnorm", "clipvalue", "global_clipnorm")
"""Fields that all of them have."""

OLD_KEYS = frozenset(("lr", "decay", "schedule_decay"))
"""Keys of optimizers of Keras 1 to 2.3 and of TensorFlow up to 2.10 (later `legacy`), which newer ones do not have."""
OLD_MOMENTUM_DECAY = 0.004
"""Default `momentum_decay` of an old Nadam; newer versions have 1."""

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
"""Schedules with the same names in netspec, and their fields: Keras's name → netspec's name."""

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
"""Slots by solver, see `slot_groups`. Adafactor's rows and columns of a vector are zeros; for Muon see `has_slot`."""
MOMENTUM_PRODUCT = "solver/$all/momentum_product"
"""The slot of Nadam that all parameters share; Keras has it after all others."""


def is_old(config: Mapping[str, Any]) -> bool:
    """Whether the configuration is that of an optimizer before TensorFlow 2.11."""
    return not OLD_KEYS.isdisjoint(config)


def old_fields(type_: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the solver that differ between an old optimizer and the current one."""
    if type_ == "Nadam":  # TensorFlow 2.0 to 2.10 write the schedule's decay as `decay`
        return {"momentum_decay": config.get("schedule_decay", config.get("decay", OLD_MOMENTUM_DECAY))}
    if type_ == "Adagrad":
        zeros = {} if "initial_accumulator_value" in config else {"initial_accumulator_value": 0.0}
        return {"epsilon_in_root": False, **zeros}
    if type_ == "RMSprop" and not config.get("momentum"):
        return {"epsilon_in_root": False}
    return {}


def slot_groups(type_: str, solver: Mapping[str, Any]) -> list[list[str]]:
    """Slots in the order of Keras's variables: the slots of an inner list alternate, parameter by parameter."""
    groups = [list(group) for group in _SLOTS.get(type_, [])]
    if type_ == "SGD":
        groups = [["velocity"]] if solver.get("momentum") else []
    if type_ == "RMSprop":
        groups = [["second_moment"]] + ([["velocity"]] if solver.get("momentum") else [])
        groups += [["first_moment"]] if solver.get("centered") else []
    if solver.get("amsgrad"):
        groups.append(["largest_second_moment"])
    return groups


def stored_slot_groups(type_: str, solver: Mapping[str, Any], *, old: bool) -> list[list[str]]:
    """Groups of slots as in `slot_groups`, in file order: old optimizers store each slot for all parameters."""
    groups = slot_groups(type_, solver)
    if solver.get("ema"):
        groups.insert(0, ["average"])
    return [[name] for group in groups for name in group] if old and type_ != "Ftrl" else groups


def has_slot(type_: str, slot: str, *, matrix: bool) -> bool:
    """Whether a parameter has a slot: matrices have Muon's momentum, other parameters AdamW's two moments."""
    return type_ != "Muon" or slot not in _SLOTS[type_][0] or (slot == "momentum") == matrix


def is_negated(type_: str, slot: str) -> bool:
    """Whether Keras stores a slot with the opposite sign: it subtracts RMSprop's momentum, netspec adds a velocity."""
    return type_ == "RMSprop" and slot == "velocity"


def second_moment(rows: NDArray[Any], columns: NDArray[Any], row: int) -> NDArray[Any]:
    """The second moment that rows and columns approximate: rows · columns / mean(rows along `row`)."""
    mean = rows.mean(axis=row, keepdims=True)
    return np.asarray(rows * columns / np.where(mean == 0, 1, mean), np.float32)


def averages_along(
    factors: Sequence[NDArray[Any]], second: NDArray[Any], indices: Sequence[NDArray[Any]], axes: tuple[int, int]
) -> tuple[NDArray[Any], NDArray[Any], bool]:
    """Averages of rows and columns along these axes (kept with size 1), and whether they equal the given factors.

    All arguments have the parameter's shape: `factors`, and the `indices` of the averages, repeat along the axis that
    is averaged. Both factors of a vector are its second moments.
    """
    row, column = axes
    for first, second_factor in ((0, 1), (1, 0)):
        if _repeats(indices[first], column) and _repeats(indices[second_factor], row):
            return factors[first].take([0], column), factors[second_factor].take([0], row), True
    is_exact = 1 in (second.shape[row], second.shape[column]) and bool((indices[0] == indices[1]).all())
    return second.mean(axis=column, keepdims=True), second.mean(axis=row, keepdims=True), is_exact


def distinct_elements(array: NDArray[Any]) -> NDArray[Any]:
    """An array of this shape with distinct elements."""
    return np.arange(array.size, dtype=np.float64).reshape(array.shape)


def _repeats(array: NDArray[Any], axis: int) -> bool:
    return bool((array == array.take([0], axis)).all())
