"""The solver of a training → the optimizer that a Keras model is compiled with, with its states."""

from __future__ import annotations

from typing import Any

from netspec.exchange.formats import Exportable
from netspec.exchange.keras_export.judging import judged
from netspec.exchange.keras_export.orthogonal import excluded
from netspec.exchange.keras_export.states import variables
from netspec.exchange.keras_export.values import plain
from netspec.exchange.keras_export.writer import Writer
from netspec.exchange.keras_names import keras_snake
from netspec.exchange.keras_solvers import CLIPPING, COEFFICIENTS, DECAYS, FIELDS, SCHEDULES
from netspec.schema.train import TrainSpec

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
        net.model.optimizer = variables(made, rate, net)


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
    handled = (*_HANDLED, *FIELDS[type_])
    if type_ == "Muon":
        config |= dict(zip(COEFFICIENTS, solver.ns_coefficients, strict=True)) | excluded(solver, net)
        handled += ("ns_coefficients", "exclude", "flatten")
    if solver.weight_decay and not solver.decouples:
        net.note("`weight_decay` of the solver was left out: Keras's is decoupled")
    for key, field in type(solver).model_fields.items():
        if key not in handled and getattr(solver, key) != field.default:
            more = ": the weights are the averages that evaluation uses" if key == "ema" else ""
            net.note(f"`{key}` of the solver was left out{more}")
    if train.train.accumulate > 1:
        net.note("`accumulate` of the training was left out")
    scale = train.train.scaling
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
