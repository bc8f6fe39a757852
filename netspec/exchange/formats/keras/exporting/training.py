"""The training of a net: the losses, metrics and optimizer that a Keras model is compiled with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from netspec.errors import and_more
from netspec.exchange.formats.keras.exporting.config import to_json
from netspec.exchange.formats.keras.exporting.model import object_json
from netspec.exchange.formats.keras.exporting.optimizer import muon_fields, variables
from netspec.exchange.formats.keras.exporting.writer import KerasWriter
from netspec.exchange.formats.keras.names import LOSSES, METRICS, REDUCES_LAST_AXIS, keras_snake
from netspec.exchange.formats.keras.optimizers import CLIPPING, DECOUPLED_DECAYS, FIELDS, MUON_COEFFICIENTS, SCHEDULES
from netspec.exchange.formats.registry import Exportable
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.schema.specs.kinds import LossOrMetricFields
from netspec.schema.specs.links import LossLink, MetricLink, resolve_names
from netspec.schema.specs.train import TrainSpec

_FIELDS_WITHOUT_COUNTERPART: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("losses", "SparseCategoricalCrossentropy"): ("label_smoothing",),
    ("losses", "CategoricalGeneralizedCrossEntropy"): ("axis",),
    ("losses", "CTC"): ("mask_index",),
    ("losses", "Poisson"): ("log_input", "full", "epsilon"),
    ("metrics", "SparseCategoricalAccuracy"): ("axis", "ignore_class"),
    ("metrics", "CategoricalAccuracy"): ("axis",),
    ("metrics", "SparseTopKCategoricalAccuracy"): ("axis",),
    ("metrics", "TopKCategoricalAccuracy"): ("axis",),
}
"""Fields that Keras's class does not have: it reduces the last axis, and has the defaults of the others."""
_REDUCTIONS = ("sum_over_batch_size", "mean", "sum", "mean_with_sample_weight")
_NOT_IN_CONFIG = frozenset(LossOrMetricFields.model_fields) | {"type", "weight"}
"""Fields that are not part of a configuration."""


def losses_and_metrics(writer: KerasWriter) -> dict[str, Any]:
    """`loss`, `loss_weights` and `metrics` by output; empty without a loss."""
    links = resolve_names(writer.net)
    outputs = links.outputs
    losses: list[Any] = [None] * len(outputs)
    weights = [1.0] * len(outputs)
    metrics: list[list[Any]] = [[] for _ in outputs]
    for loss in links.losses:
        entry = _loss_or_metric(writer, "loss", loss, outputs)
        if entry is None:
            continue
        output_index = outputs.index(loss.sources[0])
        if losses[output_index] is not None:
            writer.notes.add(
                f"the loss `{loss.name}` is left out: Keras supports one loss per output",
                "{count} losses are left out, since Keras supports one loss per output", f"`{loss.name}`",
            )  # fmt: skip
            continue
        losses[output_index], weights[output_index] = entry, loss.fields.weight
    for metric in links.metrics:
        entry = _loss_or_metric(writer, "metric", metric, outputs)
        if entry is not None:
            metrics[outputs.index(metric.sources[0])].append(entry)
    if not any(losses):
        return {}
    has_one_output = len(outputs) == 1
    weighted = any(weight != 1.0 for weight in weights)
    return {
        "loss": losses[0] if has_one_output and not weighted else losses,
        "loss_weights": weights if weighted else None,
        "metrics": (metrics[0] if has_one_output else [of_output or None for of_output in metrics])
        if any(metrics)
        else None,
    }


def _loss_or_metric(
    writer: KerasWriter, kind: str, link: LossLink | MetricLink, outputs: Sequence[str]
) -> dict[str, Any] | None:
    """The JSON of a loss or metric; None, with a note, if Keras does not have it."""
    try:
        entry = _loss_or_metric_entry(writer, f"{kind}es" if kind == "loss" else f"{kind}s", link, outputs)
    except UnsupportedFeature as reason:
        writer.notes.add(
            f"the {kind} `{link.name}` is left out: {reason}", "{count} losses and metrics are left out",
            f"`{link.name}` ({reason})",
        )  # fmt: skip
        return None
    if link.fields.sample_weight is not None:
        writer.notes.add(
            f"`sample_weight` of the {kind} `{link.name}` is left out: in Keras it is an argument of `fit`",
            "`sample_weight` of {count} losses and metrics is left out, since in Keras it is an argument of `fit`",
            f"`{link.name}`",
        )
    return entry


def _loss_or_metric_entry(
    writer: KerasWriter, module: str, link: LossLink | MetricLink, outputs: Sequence[str]
) -> dict[str, Any]:
    """The JSON of a loss or metric. Raises `UnsupportedFeature`."""
    fields = link.fields
    type_ = str(getattr(fields, "type", ""))
    types_of_keras = LOSSES if module == "losses" else METRICS
    if type_ not in types_of_keras:
        raise UnsupportedFeature(f"Keras has no {type_}")
    if link.sources[0] not in outputs:
        raise UnsupportedFeature(f"`{link.sources[0]}` is not an output of the net")
    if len(link.sources) != 2 or link.sources[1] not in writer.net.inputs:
        raise UnsupportedFeature("Keras's losses and metrics compare one output with one array of data")
    tensor = writer.model.outputs[outputs.index(link.sources[0])]
    if type_ in REDUCES_LAST_AXIS and not tensor.plain:
        raise UnsupportedFeature("Keras reduces the last axis, which has the channels there")
    config: dict[str, Any] = {"name": link.name}
    for key, field in type(fields).model_fields.items():
        value = getattr(fields, key)
        if key in _NOT_IN_CONFIG:
            continue
        if key == "axis" and value is not None and tensor.flattened_from is None:
            axes = [tensor.axis(axis) for axis in (value if isinstance(value, (list, tuple)) else [value])]
            last = axes == [len(tensor.order) - 1]
            value = -1 if last else axes if isinstance(value, (list, tuple)) else axes[0]
            if key in _FIELDS_WITHOUT_COUNTERPART.get((module, type_), ()) and not last:
                raise UnsupportedFeature("Keras only supports the last axis")
        elif key in _FIELDS_WITHOUT_COUNTERPART.get((module, type_), ()) or key == "class_weight":
            if value != field.default:
                raise UnsupportedFeature(f"Keras's {type_} has no `{key}`")
            continue
        if key == "reduction" and value not in _REDUCTIONS:
            raise UnsupportedFeature(f"Keras has no reduction `{value}`")
        if key not in _FIELDS_WITHOUT_COUNTERPART.get((module, type_), ()):
            config[key] = to_json(value)
    return object_json(f"keras.{module}", type_, config)


MAX_NAMED_LAYERS = 6
"""Largest number of layers that a note names."""
_NOT_IN_OPTIMIZER = ("type", "learning_rate", "weight_decay", "weight_decay_norm", "decoupled_weight_decay", *CLIPPING)
"""Fields of solvers that are not fields of an optimizer, or are written by other code."""


def write_training(exportable: Exportable, writer: KerasWriter) -> None:
    """Compile the model like the training; settings without a counterpart are noted and left out."""
    for key in ("learning_rate_multiplier", "weight_decay_multiplier"):
        layers = [f"`{link.name}`" for link in writer.links if getattr(link.fields, key) != 1.0]
        if layers:
            more = and_more(len(layers) - MAX_NAMED_LAYERS)
            writer.notes.add(f"`{key}` of {', '.join(layers[:MAX_NAMED_LAYERS])}{more} is left out")
    if exportable.train is None:
        return
    solver: Any = exportable.train.solver
    if solver.type not in FIELDS:
        writer.notes.add(f"the training configuration is left out: Keras has no optimizer like {solver.type}")
        return
    compared = losses_and_metrics(writer)
    if not compared:
        writer.notes.add(
            "the training configuration is left out: a Keras model cannot be compiled with any of its losses"
        )
        return
    rate = _learning_rate(exportable.train, exportable.step, writer)
    writer.model.compiled = {
        "optimizer": _optimizer(exportable.train, rate, exportable.step, writer),
        **compared,
    }
    if exportable.step:
        writer.model.optimizer = variables(exportable, rate, writer)


def _optimizer(train: TrainSpec, rate: Any, step: int, writer: KerasWriter) -> dict[str, Any]:
    """The JSON of the optimizer."""
    solver: Any = train.solver
    type_ = str(solver.type)
    config: dict[str, Any] = {"name": keras_snake(type_), "learning_rate": rate}
    momenta = _momenta(train, step, writer)
    config |= {key: to_json(momenta.get(key, getattr(solver, key))) for key in FIELDS[type_]}
    config |= {key: getattr(solver, key) for key in CLIPPING}
    config["weight_decay"] = (
        solver.weight_decay if solver.decouples and (solver.weight_decay or type_ in DECOUPLED_DECAYS) else None
    )
    handled = (*_NOT_IN_OPTIMIZER, *FIELDS[type_])
    if type_ == "Muon":
        config |= dict(zip(MUON_COEFFICIENTS, solver.ns_coefficients, strict=True)) | muon_fields(solver, writer)
        handled += ("ns_coefficients", "exclude", "flatten")
    if solver.weight_decay and not solver.decouples:
        writer.notes.add("`weight_decay` of the solver is left out: Keras's is decoupled")
    for key, field in type(solver).model_fields.items():
        if key not in handled and getattr(solver, key) != field.default:
            remark = ": the weights are the averages that evaluation uses" if key in ("ema", "swa") else ""
            writer.notes.add(f"`{key}` of the solver is left out{remark}")
    if train.train.accumulate > 1:
        writer.notes.add("`accumulate` of the training is left out")
    scale = train.train.scaling
    if scale is not None and scale.growth_steps is None:
        config["loss_scale_factor"] = scale.initial
    elif scale is not None:
        writer.notes.add("a `loss_scale` that adapts is left out")
    return object_json("keras.optimizers", type_, config)


def _momenta(train: TrainSpec, step: int, writer: KerasWriter) -> dict[str, float]:
    """The values of scheduled momenta at the step, since Keras's momenta are numbers."""
    solver: Any = train.solver
    momenta = {name: _value_at(schedule, train, step) for name, schedule in solver.scheduled_momenta().items()}
    for name, value in momenta.items():
        writer.notes.add(f"`{name}` of the solver is the number {value:g}: Keras does not support a schedule for it")
    return momenta


def _value_at(schedule: Any, train: TrainSpec, step: int) -> float:
    """The value of a schedule at a step, or at its start if the number of training steps is not known."""
    return float(schedule.value(*((0, 1) if train.train.max_steps is None else (step, train.train.max_steps))))


def _learning_rate(train: TrainSpec, step: int, writer: KerasWriter) -> Any:
    """The learning rate: a number, or the JSON of a schedule; if Keras lacks the schedule, its value at the step."""
    rate: Any = train.solver.learning_rate  # type: ignore[attr-defined]  # of every solver
    total = train.train.max_steps
    if rate.type == "Constant":
        return rate.initial
    schedule, warmup = rate, {}
    if rate.type == "Warmup" and rate.then.type == "CosineDecay":
        schedule = rate.then
        warmup = {"initial_learning_rate": rate.initial, "warmup_target": schedule.initial, "warmup_steps": rate.steps}
        total = None if total is None else total - rate.steps
    fields = SCHEDULES.get(schedule.type)
    if fields is not None and getattr(schedule, "decay_steps", 0) is None and total is not None:
        schedule = schedule.model_copy(update={"decay_steps": total})
    config = {} if fields is None else {old: to_json(getattr(schedule, new)) for old, new in fields.items()}
    has_power = schedule.type == "InverseTimeDecay" and schedule.power != 1
    if fields is None or None in config.values() or has_power:
        value = _value_at(rate, train, step)
        writer.notes.add(f"the learning rate is the number {value:g}: Keras has no {rate.type} like that")
        return value
    config = {**config, **warmup, "name": schedule.type}
    return object_json("keras.optimizers.schedules", schedule.type, config)
