"""Convert a PyTorch training in a safetensors file to a checkpoint, if optimizer and solver have the same update rule.

Such a file contains `model.state_dict()`; an array `optimizer.state.PARAMETER.ENTRY` for each entry of the optimizer's
state, by the parameter's name in the model; and in its metadata, under `optimizer`, a JSON object with `type` (the
class), `step` (updates so far) and `param_groups` (with parameter names as `params`). The function that writes it is in
docs/formats.md. The rules are those of `torch.optim` in PyTorch 2.13.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from netspec.errors import InputError, Problem, listing
from netspec.exchange.files import HEAD_BYTES, reading
from netspec.exchange.formats.native.hdf5 import CheckpointFile
from netspec.exchange.formats.native.safetensors import WHAT, is_safetensors, read_safetensors
from netspec.exchange.formats.pytorch.pickles import refuse_pytorch_training
from netspec.exchange.formats.pytorch.state_dicts import OPTIMIZER_STATE, from_state_dict
from netspec.exchange.match_weights import match_weights
from netspec.graph.types import TensorType

Arrays: TypeAlias = Mapping[str, NDArray[Any]]

METADATA_KEY = "optimizer"
LAYOUT = "`optimizer` in its metadata: a JSON object with `type`, `step` and `param_groups` (docs/formats.md)"


@dataclass(frozen=True)
class OptimizerRule:
    """An optimizer of PyTorch, and the solvers that can follow the same rule."""

    solvers: tuple[str, ...]
    slots: Mapping[str, str]
    """Slot → entry of the optimizer's state."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the solver that select the rule, with the values that select PyTorch's."""
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Hyperparameter → the equivalent fields of the solver; several for a tuple."""


_DECAY = {"weight_decay": ("weight_decay",)}
_MOMENTS = {"first_moment": "exp_avg", "second_moment": "exp_avg_sq"}
_BETAS = {"betas": ("beta_1", "beta_2"), "eps": ("epsilon",), **_DECAY}
_ADAM = OptimizerRule(
    ("Adam", "AdamW"), {**_MOMENTS, "largest_second_moment": "max_exp_avg_sq"}, {"epsilon_mode": "bias_corrected"},
    {**_BETAS, "amsgrad": ("amsgrad",)},
)  # fmt: skip
RULES: Mapping[str, OptimizerRule] = {
    "SGD": OptimizerRule(
        ("SGD",), {"momentum": "momentum_buffer"}, {"rate_in_velocity": False},
        {name: (name,) for name in ("momentum", "dampening", "nesterov", "weight_decay")},
    ),
    "Adam": _ADAM,
    "AdamW": _ADAM,
    "NAdam": OptimizerRule(
        ("Nadam",), {**_MOMENTS, "momentum_product": "mu_product"}, {},
        {**_BETAS, "momentum_decay": ("momentum_decay",)},
    ),
    "RAdam": OptimizerRule(("RAdam",), _MOMENTS, {}, _BETAS),
    "Adamax": OptimizerRule(
        ("Adamax",), {"first_moment": "exp_avg", "norm": "exp_inf"}, {"epsilon_in_maximum": True}, _BETAS
    ),
    "RMSprop": OptimizerRule(
        ("RMSprop",), {"second_moment": "square_avg", "first_moment": "grad_avg", "momentum": "momentum_buffer"},
        {"epsilon_in_root": False, "rate_in_velocity": False},
        {"alpha": ("rho",), "eps": ("epsilon",), "momentum": ("momentum",), "centered": ("centered",), **_DECAY},
    ),
    "Adagrad": OptimizerRule(
        ("Adagrad",), {"accumulator": "sum"}, {"epsilon_in_root": False}, {"eps": ("epsilon",), **_DECAY}
    ),
    "Adadelta": OptimizerRule(
        ("Adadelta",), {"accumulator": "square_avg", "delta_accumulator": "acc_delta"}, {},
        {"rho": ("rho",), "eps": ("epsilon",), **_DECAY},
    ),
    "Rprop": OptimizerRule(
        ("Rprop",), {"previous_gradient": "prev", "step_size": "step_size"}, {},
        {"etas": ("eta_minus", "eta_plus"), "step_sizes": ("step_size_min", "step_size_max")},
    ),
    "ASGD": OptimizerRule(
        ("ASGD",), {"average": "ax"}, {}, {name: (name,) for name in ("lambd", "alpha", "t0", "weight_decay")}
    ),
}  # fmt: skip
"""Update rules by the class of the optimizer."""


def is_training(path: Path) -> bool:
    """Whether a file has the format of PyTorch trainings. Raises `InputError` if it can't be read."""
    with reading(path, "a checkpoint") as (file, _):
        has_format = is_safetensors(file.read(HEAD_BYTES), path)
    refuse_pytorch_training(path)
    return has_format


def read_training(
    path: Path, states: Mapping[str, TensorType], roles: Mapping[str, str], solvers: Sequence[Any]
) -> tuple[CheckpointFile, tuple[str, ...]]:
    """Read a file as a checkpoint, with notes. Raises `InputError` with every reason why it does not fit.

    `states` and `roles` are those of the resumed training: parameters, statistics and slots. `solvers` are its solver
    and those of its groups.
    """
    arrays, metadata = read_safetensors(path)
    weights = {name: array for name, array in arrays.items() if not name.startswith(OPTIMIZER_STATE)}
    entries = {name.removeprefix(OPTIMIZER_STATE): array for name, array in arrays.items() if name not in weights}
    optimizer = _Optimizer.read(path, metadata.get(METADATA_KEY), entries)
    learned_types = {name: kind for name, kind in states.items() if roles[name] in ("parameter", "statistic")}
    shapes = {name: kind.shape for name, kind in learned_types.items()}
    states_read = match_weights(learned_types, from_state_dict(weights, shapes), source=str(path)).arrays
    problems = list(optimizer.disagreements(solvers))
    if problems:
        raise InputError(problems)
    layout = _Layout(weights, shapes)
    for label in (name for name in roles if name.startswith("solver/")):
        parameter, _, slot = label.removeprefix("solver/").rpartition("/")
        try:
            shared = parameter.startswith("$")
            states_read[label] = optimizer.shared_slot(slot) if shared else optimizer.slot(slot, parameter, layout)
        except ValueError as reason:
            problem = Problem(f"{path}: {reason}")
            problems += [problem] if problem not in problems else []
    if problems:
        raise InputError(problems)
    kept_roles = {name: roles[name] for name in states_read}
    return CheckpointFile(states_read, kept_roles, {"step": optimizer.step}, ""), tuple(optimizer.differences(solvers))


class _Layout:
    """Maps the elements of a net's states to those of a state dict."""

    def __init__(self, weights: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._shapes = [(name, array.shape) for name, array in weights.items()]
        self._ends = np.cumsum([array.size for array in weights.values()])
        numbered = {
            name: np.arange(end - array.size, end).reshape(array.shape)
            for (name, array), end in zip(weights.items(), self._ends, strict=True)
        }
        self._indices = from_state_dict(numbered, shapes)
        self._counts = from_state_dict({name: np.ones_like(array) for name, array in numbered.items()}, shapes)

    def arranged(self, parameter: str, entry: Callable[[str, tuple[int, ...]], NDArray[Any]]) -> NDArray[Any]:
        """A parameter's slot in netspec's layout; `entry` returns PyTorch's state of an array by its name and shape.

        Raises `ValueError` if an element of the parameter does not correspond to exactly one of PyTorch's.
        """
        if (self._counts[parameter] != 1).any():
            raise ValueError(
                f"`{parameter}` is the sum of several parameters that PyTorch trains one by one, so its optimizer's "
                f"state does not fit the sum"
            )
        indices = self._indices[parameter]
        owners = np.searchsorted(self._ends, indices, side="right")
        values_by_owner = {owner: entry(*self._shapes[owner]).ravel() for owner in np.unique(owners)}
        arranged = np.empty(indices.shape, next(iter(values_by_owner.values())).dtype)
        for owner, values in values_by_owner.items():
            is_owned = owners == owner
            arranged[is_owned] = values[indices[is_owned] - (self._ends[owner] - values.size)]
        return arranged


@dataclass(frozen=True)
class _Optimizer:
    """The optimizer that a file describes."""

    type: str
    step: int
    groups: Sequence[Mapping[str, Any]]
    entries: Mapping[str, NDArray[Any]]
    """Arrays of the state by `PARAMETER.ENTRY`."""

    @classmethod
    def read(cls, path: Path, text: str | None, entries: Arrays) -> _Optimizer:
        """Parse the metadata. Raises `InputError`."""
        if text is None:
            raise InputError(
                f"{path} has no optimizer state", expected=f"a netspec checkpoint, or {WHAT} with {LAYOUT}",
                got="weights only", hint="to start a new run from these weights, pass them as `--weights`",
            )  # fmt: skip
        try:
            data = json.loads(text)
            optimizer = cls(str(data["type"]), data["step"], [dict(group) for group in data["param_groups"]], entries)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InputError(
                f"{path}: the metadata `{METADATA_KEY}` can't be read", expected=LAYOUT, got=str(error)
            ) from error
        if type(optimizer.step) is not int or optimizer.step < 0:
            raise InputError(
                f"{path}: `step` is not a count", expected="the number of updates so far", got=optimizer.step
            )
        if optimizer.type not in RULES:
            raise InputError(
                f"{path} has the state of {optimizer.type}, which no solver implements",
                expected=listing(sorted(RULES), len(RULES)), got=optimizer.type,
                hint="start a new run from the weights: `--weights`",
            )  # fmt: skip
        optimizer._check_steps(path)
        return optimizer

    def _check_steps(self, path: Path) -> None:
        """Raise `InputError` if parameters were updated a different number of times than the file says."""
        for name, array in self.entries.items():
            if name.endswith(".step") and (array.shape != () or array != self.step):
                raise InputError(
                    f"{path}: `{name.removesuffix('.step')}` was updated {array} times",
                    expected=f"{self.step} updates of every parameter, as in `step`: a solver has one count for all",
                    hint="start a new run from the weights: `--weights`",
                )

    def slot(self, slot: str, parameter: str, layout: _Layout) -> NDArray[Any]:
        """The slot of a parameter. Raises `ValueError` with the reason if the file does not have it."""
        entry = self._entry(slot)

        def stored(name: str, shape: tuple[int, ...]) -> NDArray[Any]:
            array = self.entries.get(f"{name}.{entry}")
            if array is None and not any(key.startswith(f"{name}.") for key in self.entries):
                raise ValueError(
                    f"the optimizer has no state of `{name}`, which it has not trained: set `trainable: false` for "
                    f"`{parameter.rpartition('/')[0]}`, or start a new run with `--weights`"
                )
            if array is None or array.shape != shape:
                fault = "is missing" if array is None else f"has the shape {list(array.shape)}, not {list(shape)}"
                raise ValueError(
                    f"`{OPTIMIZER_STATE}{name}.{entry}` {fault}: the slot `{slot}` of `{parameter}` is taken from it"
                )
            return array

        return layout.arranged(parameter, stored)

    def shared_slot(self, slot: str) -> NDArray[Any]:
        """A slot that all parameters share. Raises `ValueError` with the reason if the file does not have it."""
        entry = self._entry(slot)
        values = [array for name, array in self.entries.items() if name.endswith(f".{entry}")]
        if not values or any(array.shape != () or array != values[0] for array in values):
            raise ValueError(f"`{slot}` needs the same value of `{entry}` for every parameter")
        return values[0]

    def _entry(self, slot: str) -> str:
        if slot not in RULES[self.type].slots:
            raise ValueError(f"PyTorch's {self.type} has no state that the solver's `{slot}` can be taken from")
        return RULES[self.type].slots[slot]

    def disagreements(self, solvers: Iterable[Any]) -> Iterator[Problem]:
        """Report the differences between the rules of the solvers and of the optimizer."""
        rule = RULES[self.type]
        for solver in {id(solver): solver for solver in solvers}.values():
            if solver.type not in rule.solvers:
                yield _differs(
                    solver, "type", self.type, listing([f"`{solver}`" for solver in rule.solvers]), solver.type
                )
                continue
            for name, value in rule.options.items():
                has_effect = name != "rate_in_velocity" or solver.momentum
                if has_effect and getattr(solver, name) != value:
                    yield _differs(solver, name, self.type, f"`{name}: {_shown(value)}`", getattr(solver, name))
            for group in self.groups:
                yield from self._group_disagreements(solver, group)

    def _group_disagreements(self, solver: Any, group: Mapping[str, Any]) -> Iterator[Problem]:
        """Report options of a parameter group that the solver does not share."""
        if group.get("maximize"):
            yield Problem("the optimizer maximizes the loss (`maximize`); solvers minimize it", solver.where())
        decoupled = group.get("decoupled_weight_decay", self.type == "AdamW")
        if group.get("weight_decay") and decoupled != solver.decouples:
            descriptions = "a decoupled weight decay, as in AdamW", "a weight decay that is added to the gradient"
            expected, got = descriptions if decoupled else reversed(descriptions)
            yield _differs(solver, "weight_decay", self.type, expected, got)
        decay, rate = group.get("lr_decay"), solver.learning_rate
        if decay and (rate.type, getattr(rate, "decay_rate", None)) != ("InverseTimeDecay", decay):
            expected = f"`learning_rate: {{type: InverseTimeDecay, initial: {group.get('lr')}, decay_rate: {decay}}}`"
            yield _differs(solver, "learning_rate", f"{self.type} with `lr_decay`", expected, rate.type)

    def differences(self, solvers: Iterable[Any]) -> Iterator[str]:
        """Report hyperparameters that differ from those in the file, which may be intended."""
        for solver in {id(solver): solver for solver in solvers}.values():
            for group in self.groups if len(self.groups) == 1 else ():
                pytorch_values = {
                    name: value
                    for key, names in RULES[self.type].fields.items() if key in group
                    for name, value in zip(names, _several(group[key]), strict=False)
                }  # fmt: skip
                if solver.learning_rate.type == "Constant" and "lr_decay" not in group:
                    pytorch_values["learning_rate"] = group.get("lr")
                for name, value in pytorch_values.items():
                    solver_value = getattr(solver, name)
                    solver_value = solver_value.initial if name == "learning_rate" else solver_value
                    if solver_value != value and name not in solver.scheduled_momenta():
                        yield f"`{name}` is {_shown(solver_value)} now and {_shown(value)} in PyTorch's optimizer"


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _differs(solver: Any, name: str, optimizer: str, expected: str, got: Any) -> Problem:
    """The problem that a field selects a different rule than PyTorch's."""
    return Problem(
        f"the solver's rule differs from PyTorch's {optimizer}", solver.where(name), f"solver.{name}",
        expected=expected, got=_shown(got),
    )  # fmt: skip
