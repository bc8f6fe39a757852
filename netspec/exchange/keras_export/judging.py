"""Losses and metrics of a net → those that a Keras model is compiled with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from netspec.exchange.keras_export.values import Unwritable, plain
from netspec.exchange.keras_export.writer import Writer
from netspec.schema.kinds import JudgeFields
from netspec.schema.links import LossLink, MetricLink, resolve_names

LOSSES = frozenset(
    (
        "SparseCategoricalCrossentropy", "CategoricalCrossentropy", "BinaryCrossentropy", "Circle", "Hinge",
        "SquaredHinge", "CategoricalHinge", "Dice", "Tversky", "KLDivergence", "Poisson",
        "CategoricalFocalCrossentropy", "BinaryFocalCrossentropy", "CategoricalGeneralizedCrossEntropy",
        "MeanSquaredError", "MeanAbsoluteError", "MeanAbsolutePercentageError", "MeanSquaredLogarithmicError",
        "LogCosh", "Huber", "CosineSimilarity", "CTC",
    )
)  # fmt: skip
"""Losses that Keras has too, with the same fields."""
METRICS = frozenset(
    (
        "Accuracy", "SparseCategoricalAccuracy", "CategoricalAccuracy", "BinaryAccuracy",
        "SparseTopKCategoricalAccuracy", "TopKCategoricalAccuracy", "TruePositives", "FalsePositives", "TrueNegatives",
        "FalseNegatives", "Precision", "Recall", "SensitivityAtSpecificity", "SpecificityAtSensitivity",
        "PrecisionAtRecall", "RecallAtPrecision", "IoU", "BinaryIoU", "MeanIoU", "OneHotIoU", "OneHotMeanIoU",
        "PearsonCorrelation", "ConcordanceCorrelation", "R2Score", "AUC", "F1Score", "FBetaScore", "Hinge",
        "SquaredHinge", "CategoricalHinge", "BinaryCrossentropy", "CategoricalCrossentropy",
        "SparseCategoricalCrossentropy", "KLDivergence", "Poisson", "MeanSquaredError", "RootMeanSquaredError",
        "MeanAbsoluteError", "MeanAbsolutePercentageError", "MeanSquaredLogarithmicError", "LogCoshError",
        "CosineSimilarity",
    )
)  # fmt: skip
"""Metrics that Keras has too, with the same fields."""
_ABSENT: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("losses", "SparseCategoricalCrossentropy"): ("label_smoothing",),
    ("losses", "CategoricalGeneralizedCrossEntropy"): ("axis",),
    ("losses", "CTC"): ("mask_index",),
    ("metrics", "SparseCategoricalAccuracy"): ("axis", "ignore_class"),
    ("metrics", "CategoricalAccuracy"): ("axis",),
    ("metrics", "SparseTopKCategoricalAccuracy"): ("axis",),
    ("metrics", "TopKCategoricalAccuracy"): ("axis",),
}
"""Fields that Keras's class has not: an axis is its last one, others are their defaults."""
_ALONG_LAST = ("CategoricalHinge", "KLDivergence", "Circle", "CTC", "R2Score", "F1Score", "FBetaScore")
"""Losses and metrics without a field for the axis along which they look: the last one, which are channels in Keras."""
_REDUCTIONS = ("sum_over_batch_size", "mean", "sum", "mean_with_sample_weight")
_APART = frozenset(JudgeFields.model_fields) | {"type", "weight"}
"""Fields that are said elsewhere, or have no word in a configuration."""


def judged(net: Writer) -> dict[str, Any]:
    """What is compared, and how, by output: `loss`, `loss_weights` and `metrics`; nothing where there is no loss."""
    links = resolve_names(net.net)
    outputs = links.outputs
    losses: list[Any] = [None] * len(outputs)
    weights = [1.0] * len(outputs)
    metrics: list[list[Any]] = [[] for _ in outputs]
    for loss in links.losses:
        made = _one(net, "loss", loss, outputs)
        if made is None:
            continue
        place = outputs.index(loss.sources[0])
        if losses[place] is not None:
            net.note(f"the loss `{loss.name}` was left out: Keras has one for each output")
            continue
        losses[place], weights[place] = made, loss.fields.weight
    for metric in links.metrics:
        made = _one(net, "metric", metric, outputs)
        if made is not None:
            metrics[outputs.index(metric.sources[0])].append(made)
    if not any(losses):
        return {}
    alone = len(outputs) == 1
    weighted = any(one != 1.0 for one in weights)
    return {
        "loss": losses[0] if alone and not weighted else losses,
        "loss_weights": weights if weighted else None,
        "metrics": (metrics[0] if alone else [several or None for several in metrics]) if any(metrics) else None,
    }


def _one(net: Writer, what: str, link: LossLink | MetricLink, outputs: Sequence[str]) -> dict[str, Any] | None:
    """A loss or a metric as files have it; None, with a note, where Keras has no word for it."""
    try:
        made = _described(net, f"{what}es" if what == "loss" else f"{what}s", link, outputs)
    except Unwritable as reason:
        net.note(f"the {what} `{link.name}` was left out: {reason}")
        return None
    if link.fields.sample_weight is not None:
        net.note(f"`sample_weight` of the {what} `{link.name}` was left out: Keras is given it by `fit`")
    return made


def _described(net: Writer, module: str, link: LossLink | MetricLink, outputs: Sequence[str]) -> dict[str, Any]:
    """A loss or a metric as files have it. Raises `Unwritable`."""
    fields = link.fields
    type_ = str(getattr(fields, "type", ""))
    known = LOSSES if module == "losses" else METRICS
    if type_ not in known:
        raise Unwritable(f"Keras has no {type_}")
    if link.sources[0] not in outputs:
        raise Unwritable(f"`{link.sources[0]}` is no output of the net")
    if len(link.sources) != 2 or link.sources[1] not in net.net.inputs:
        raise Unwritable("Keras compares an output with data alone")
    tensor = net.model.outputs[outputs.index(link.sources[0])]
    if type_ in _ALONG_LAST and not tensor.plain:
        raise Unwritable("Keras looks along the channels, which are last there")
    config: dict[str, Any] = {"name": link.name}
    for key, field in type(fields).model_fields.items():
        value = getattr(fields, key)
        if key in _APART:
            continue
        if key == "axis" and value is not None and tensor.rows is None:
            axes = [tensor.axis(axis) for axis in (value if isinstance(value, (list, tuple)) else [value])]
            last = axes == [len(tensor.order) - 1]
            value = -1 if last else axes if isinstance(value, (list, tuple)) else axes[0]
            if key in _ABSENT.get((module, type_), ()) and not last:
                raise Unwritable("Keras looks along the last axis")
        elif key in _ABSENT.get((module, type_), ()) or key == "class_weight":
            if value != field.default:
                raise Unwritable(f"Keras's {type_} has no `{key}`")
            continue
        if key == "reduction" and value not in _REDUCTIONS:
            raise Unwritable(f"Keras has no reduction `{value}`")
        if key not in _ABSENT.get((module, type_), ()):
            config[key] = plain(value)
    return {"module": f"keras.{module}", "class_name": type_, "config": config, "registered_name": None}
