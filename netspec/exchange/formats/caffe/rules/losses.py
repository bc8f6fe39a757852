"""Losses and Accuracy → the net's losses and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netspec.errors import InputError
from netspec.exchange.formats.caffe.blobs import named_file, read_mean
from netspec.exchange.formats.caffe.importer import CaffeImporter, NetValue, rule
from netspec.exchange.formats.caffe.proto.fields import own_param
from netspec.exchange.formats.caffe.wiring import TEST, TRAIN, CaffeNode, ValueRef
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.schema.specs.kinds import LOSSES, METRICS

REDUCTIONS = {"FULL": "full", "VALID": "sum_over_batch_size", "BATCH_SIZE": "batch_size", "NONE": "sum"}


@rule("SoftmaxWithLoss")
def softmax_loss(importer: CaffeImporter, node: CaffeNode) -> None:
    """SparseCategoricalCrossentropy of scores; a second top is the softmax itself."""
    x, axis = _scores(importer, node, "softmax_param")
    label = importer.read(node, 1, _label_shape(x, axis))
    last = axis == len(x.shape) - 1
    fields = {"from_logits": True} | _ignored(node) | _reduced(node, "VALID")
    _lose(importer, node, "SparseCategoricalCrossentropy", [x, label], fields | ({} if last else {"axis": axis}))
    tops = node.layer["top"]
    if len(tops) > 1 and (importer.is_read(ValueRef(node.key, 1, tops[1])) or TEST in node.phases):
        importer.set_top(node, importer.add(node, "Softmax", [x], {} if last else {"axis": axis}, part="softmax"), 1)


@rule("InfogainLoss")
def infogain(importer: CaffeImporter, node: CaffeNode) -> None:
    """InfoGain of scores, with the matrix in the file `source`."""
    path = "infogain_loss_param"
    x, axis = _scores(importer, node, path)
    label = importer.read(node, 1, _label_shape(x, axis))
    if len(node.bottoms) > 2:
        raise UnsupportedFeature(
            "its infogain matrix is a bottom, but must be read from the file `source`", field="bottom"
        )
    matrix = _matrix(importer, node, x.shape[axis])
    last = axis == len(x.shape) - 1
    fields = {"from_logits": True, "matrix": matrix} | _ignored(node) | _reduced(node, "VALID")
    if "ignore_class" in fields:
        raise UnsupportedFeature("`ignore_label` is not supported for this loss", field="loss_param.ignore_label")
    _lose(importer, node, "InfoGain", [x, label], fields | ({} if last else {"axis": axis}))


def _matrix(importer: CaffeImporter, node: CaffeNode, count: int) -> list[list[float]]:
    path = "infogain_loss_param.source"
    name = node.layer["infogain_loss_param"]["source"]
    file = named_file(name, importer.folder)
    if file is None:
        raise UnsupportedFeature(
            f"the file with its infogain matrix does not exist: {name or '`source` is missing'}", field=path
        )
    try:
        array = read_mean(file)
    except InputError as error:
        raise UnsupportedFeature(error.summary, field=path) from None
    if array.shape != (1, count, count):
        raise UnsupportedFeature(
            f"its infogain matrix must have the shape [{count}, {count}], got {list(array.shape[1:])}", field=path
        )
    return [[float(str(value)) for value in row] for row in array[0]]


@rule("SigmoidCrossEntropyLoss")
def sigmoid_loss(importer: CaffeImporter, node: CaffeNode) -> None:
    """BinaryCrossentropy of scores: a sum over the sample in Caffe, a mean along the last axis here."""
    x = importer.read(node)
    target = importer.read(node, 1, x.shape[1:])
    fields = _reduced(node, "BATCH_SIZE")
    if _ignored(node):
        raise UnsupportedFeature("`ignore_label` is not supported for this loss", field="loss_param.ignore_label")
    factor = x.shape[-1] if fields.get("reduction") in ("batch_size", "sum") and len(x.shape) > 1 else 1
    _lose(importer, node, "BinaryCrossentropy", [x, target], {"from_logits": True} | fields, factor)


SAME_LOSSES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "MultinomialLogisticLoss": ("MultinomialLogistic", {}),
    "HingeLoss": ("OneVsRestHinge", {"norm": "norm"}),
    "EuclideanLoss": ("Euclidean", {}),
    "ContrastiveLoss": ("Contrastive", {"margin": "margin", "legacy_version": "legacy_version"}),
}
"""Losses that are averaged over samples: ours for each of Caffe's, and our field for each of its fields."""


@rule(*SAME_LOSSES)
def same_losses(importer: CaffeImporter, node: CaffeNode) -> None:
    """The losses of the table. Either input of a Euclidean one may be the target: both get gradients."""
    type_, names = SAME_LOSSES[node.type]
    inputs = [importer.read(node, index) for index in range(2 if node.type == "ContrastiveLoss" else 1)]
    like = inputs[0].shape[1:] if node.type == "EuclideanLoss" else ()
    inputs.append(importer.read(node, len(inputs), like))
    fields = {ours: node.layer[own_param(node.type)][theirs] for theirs, ours in names.items()}
    _lose(importer, node, type_, inputs, fields)


@rule("Accuracy")
def accuracy(importer: CaffeImporter, node: CaffeNode) -> None:
    """SparseCategoricalAccuracy, or SparseTopKCategoricalAccuracy."""
    path = "accuracy_param"
    param, (x, axis) = node.layer[path], _scores(importer, node, path)
    label = importer.read(node, 1, _label_shape(x, axis))
    fields: dict[str, Any] = {} if axis == len(x.shape) - 1 else {"axis": axis}
    top_k = param["top_k"]
    if top_k > 1 and "ignore_label" in param:
        raise UnsupportedFeature("`ignore_label` is not supported if `top_k` is above 1", field=f"{path}.ignore_label")
    if "ignore_label" in param:
        fields["ignore_class"] = param["ignore_label"]
    kind = "SparseCategoricalAccuracy"
    if top_k > 1:
        kind, fields = "SparseTopKCategoricalAccuracy", fields | {"k": top_k}
    if len(node.layer["top"]) > 1:
        importer.notes.add(f"`{node.name}`: the metric ClassificationReport has the accuracy of each class")
    name = node.layer["top"][0] if node.layer["top"] else node.name
    importer.draft.metrics.append(importer.checked_entry(METRICS, name, kind, [x, label], fields))


def _scores(importer: CaffeImporter, node: CaffeNode, path: str) -> tuple[NetValue, int]:
    """The scores, and the axis of their classes."""
    x = importer.read(node)
    return x, importer.axis(node, f"{path}.axis", len(x.shape), node.layer[path]["axis"])


def _label_shape(x: NetValue, axis: int) -> tuple[int, ...]:
    """Shape of a label with one class for each position that has scores, without the batch."""
    return tuple(size for index, size in enumerate(x.shape) if index not in (0, axis))


def _ignored(node: CaffeNode) -> dict[str, Any]:
    param = node.layer["loss_param"]
    return {"ignore_class": param["ignore_label"]} if "ignore_label" in param else {}


def _reduced(node: CaffeNode, default: str) -> dict[str, Any]:
    """The reduction of the losses of all positions; `normalize` is older than `normalization`."""
    param = node.layer["loss_param"]
    kind = default
    if "normalization" in param:
        kind = param["normalization"]
    elif "normalize" in param:
        kind = "VALID" if param["normalize"] else "BATCH_SIZE"
    return {"reduction": REDUCTIONS[kind]}


def _lose(
    importer: CaffeImporter,
    node: CaffeNode,
    type_: str,
    sources: list[NetValue],
    fields: dict[str, Any],
    factor: int = 1,
) -> None:
    """Add a loss if it is part of the training."""
    weights = node.layer["loss_weight"]
    weight = (weights[0] if len(weights) else 1.0) * factor
    if weight == 0:
        importer.notes.add(
            f"`{node.name}` is left out: its loss_weight is 0, so that it is only reported",
            "{count} losses are left out, since their loss_weight is 0", f"`{node.name}`",
        )  # fmt: skip
    elif TRAIN not in node.phases and importer.trained:
        importer.notes.add(
            f"`{node.name}` is left out: it is a loss of the test phase only",
            "{count} losses of the test phase only are left out", f"`{node.name}`",
        )  # fmt: skip
    else:
        loss_fields = {**fields, "weight": float(str(weight))}
        importer.draft.losses.append(importer.checked_entry(LOSSES, node.name, type_, sources, loss_fields))
