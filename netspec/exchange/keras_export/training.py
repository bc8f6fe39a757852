"""The solver of a training → the optimizer that a Keras model is compiled with, and its states as variables.

A slot has the shape of its parameter, and Keras has it as it has that: slots are written as if they were the weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from netspec.exchange.formats import Exportable
from netspec.exchange.keras_export.judging import judged
from netspec.exchange.keras_export.model import KerasModel
from netspec.exchange.keras_export.values import plain
from netspec.exchange.keras_export.writer import Writer
from netspec.exchange.keras_names import keras_snake
from netspec.exchange.keras_solvers import (
    CLIPPING,
    DECAYS,
    FIELDS,
    MOMENTUM_PRODUCT,
    SCHEDULES,
    is_turned,
    slot_groups,
)
from netspec.schema.train import TrainSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_NAMED = 6
"""Layers that a note names."""
_HANDLED = ("type", "learning_rate", "weight_decay", "weight_decay_norm", "decoupled_weight_decay", *CLIPPING)
"""Fields of solvers that are no fields of one optimizer, or said by others."""


def write_training(made: Exportable, net: Writer) -> None:
    """Compile the model as the net is trained; what has no counterpart is noted and left out."""
    for key in ("learning_rate_multiplier", "weight_decay_multiplier"):
        named = [f"`{link.name}`" for link in net.links if getattr(link.fields, key) != 1.0]
        if named:
            net.note(f"`{key}` of {', '.join(named[:MOST_NAMED])}{' …' if named[MOST_NAMED:] else ''} was left out")
    if made.train is None:
        return
    solver: Any = made.train.solver
    if solver.type not in FIELDS:
        net.note(f"the training was left out: {solver.type} is not written as an optimizer of Keras")
        return
    compared = judged(net)
    if not compared:
        net.note("the training was left out: there is no loss that a Keras model can be compiled with")
        return
    rate = _rate(made.train, made.step, net)
    net.model.compiled = {"optimizer": _optimizer(made.train, rate, net), **compared}
    if made.step:
        net.model.optimizer = _variables(made, rate, net)


def _optimizer(train: TrainSpec, rate: Any, net: Writer) -> dict[str, Any]:
    """The optimizer as files have it."""
    solver: Any = train.solver
    type_ = str(solver.type)
    config: dict[str, Any] = {"name": keras_snake(type_), "learning_rate": rate}
    config |= {key: plain(getattr(solver, key)) for key in FIELDS[type_]}
    config |= {key: getattr(solver, key) for key in CLIPPING}
    config["weight_decay"] = (
        solver.weight_decay if solver.decouples and (solver.weight_decay or type_ in DECAYS) else None
    )
    if solver.weight_decay and not solver.decouples:
        net.note("`weight_decay` of the solver was left out: Keras's is decoupled")
    for key, field in type(solver).model_fields.items():
        if key not in (*_HANDLED, *FIELDS[type_]) and getattr(solver, key) != field.default:
            more = ": the weights are the averages that evaluation uses" if key == "ema" else ""
            net.note(f"`{key}` of the solver was left out{more}")
    if train.train.accumulate > 1:
        net.note("`accumulate` of the training was left out")
    scale = train.train.loss_scale
    if scale is not None and scale.growth_steps is None:
        config["loss_scale_factor"] = scale.initial
    elif scale is not None:
        net.note("a `loss_scale` that adapts was left out")
    return {"module": "keras.optimizers", "class_name": type_, "config": config, "registered_name": None}


def _rate(train: TrainSpec, step: int, net: Writer) -> Any:
    """The learning rate: a number, or a schedule as files have it; that of the step where Keras has no such one."""
    rate: Any = train.solver.learning_rate  # type: ignore[attr-defined]  # of every solver
    total = train.train.max_steps
    if rate.type == "Constant":
        return rate.initial
    then, more = rate, {}
    if rate.type == "Warmup" and rate.then.type == "CosineDecay":
        then = rate.then
        more = {"initial_learning_rate": rate.initial, "warmup_target": then.initial, "warmup_steps": rate.steps}
        total = None if total is None else total - rate.steps
    fields = SCHEDULES.get(then.type)
    if fields is not None and getattr(then, "decay_steps", 0) is None and total is not None:
        then = then.model_copy(update={"decay_steps": total})
    told = {} if fields is None else {old: plain(getattr(then, new)) for old, new in fields.items()}
    odd = then.type == "InverseTimeDecay" and then.power != 1
    if fields is None or None in told.values() or odd:
        now = float(rate.value(*((0, 1) if train.train.max_steps is None else (step, train.train.max_steps))))
        net.note(f"the learning rate is the number {now:g}: Keras has no {rate.type} like that")
        return now
    config = {**told, **more, "name": then.type}
    return {"module": "keras.optimizers.schedules", "class_name": then.type, "config": config, "registered_name": None}


def _variables(made: Exportable, rate: Any, net: Writer) -> list[NDArray[Any]]:
    """The optimizer's variables in Keras's order; none, with a note, where the states are not those that it wants."""
    import numpy as np

    solver: Any = made.train.solver if made.train is not None else None
    found = [np.array(made.step, np.int32)]
    if not isinstance(rate, dict):
        found.append(np.array(rate, np.float32))
    wanted = net.trained()
    for group in slot_groups(solver.type, {key: getattr(solver, key) for key in FIELDS[solver.type]}):
        kinds = []
        for name in group:
            end = f"/{name}"
            own = {
                key.removeprefix("solver/").removesuffix(end): -array if is_turned(solver.type, name) else array
                for key, array in made.slots.items()
                if key.endswith(end)
            }
            if not own.keys() >= wanted:
                net.note("the states of the solver were left out: they are not those of all weights that Keras trains")
                return []
            alike = replace(
                net, arrays={key: own[key] for key in net.arrays if key in wanted}, problems=[], notes={}
            ).write()
            kinds.append(_in_order(alike))
        found += [array.astype(np.float32) for several in zip(*kinds, strict=True) for array in several]
    if solver.type == "Nadam":
        if MOMENTUM_PRODUCT not in made.slots:
            net.note("the states of the solver were left out: their product of momenta is not in the checkpoint")
            return []
        found.append(np.asarray(made.slots[MOMENTUM_PRODUCT], np.float32))
    return found


def _in_order(model: KerasModel) -> list[NDArray[Any]]:
    """The arrays of a model, each once, in the order of Keras's trainable variables."""
    found: dict[int, NDArray[Any]] = {}
    for layer in model.ordered():
        for array in layer.arrays.values():
            found.setdefault(id(array), array)
    return list(found.values())
