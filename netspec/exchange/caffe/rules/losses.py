"""Losses and Accuracy → the net's losses and metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from netspec.errors import InputError
from netspec.exchange.caffe.blobs import read_mean
from netspec.exchange.caffe.phases import TEST, TRAIN
from netspec.exchange.caffe.registry import Unsupported, rule
from netspec.exchange.caffe.translate import Translator
from netspec.exchange.caffe.values import Made
from netspec.exchange.caffe.wiring import Node, Ref
from netspec.schema.kinds import LOSSES, METRICS

REDUCTIONS = {"FULL": "full", "VALID": "sum_over_batch_size", "BATCH_SIZE": "batch_size", "NONE": "sum"}


@rule("SoftmaxWithLoss")
def softmax_loss(net: Translator, node: Node) -> None:
    """SparseCategoricalCrossentropy of scores; a second top is the softmax itself."""
    x, axis = _scores(net, node, "softmax_param")
    label = net.read(node, 1, _places(x, axis))
    last = axis == len(x.shape) - 1
    fields = {"from_logits": True} | _ignored(node) | _reduced(node, "VALID")
    _lose(net, node, "SparseCategoricalCrossentropy", [x, label], fields | ({} if last else {"axis": axis}))
    tops = node.layer["top"]
    if len(tops) > 1 and (net.is_read(Ref(node.key, 1, tops[1])) or TEST in node.phases):
        net.give(node, net.one(node, "Softmax", [x], {} if last else {"axis": axis}, part="softmax"), 1)


@rule("InfogainLoss")
def infogain(net: Translator, node: Node) -> None:
    """InfoGain of scores, with the matrix that the file of `source` holds."""
    path = "infogain_loss_param"
    x, axis = _scores(net, node, path)
    label = net.read(node, 1, _places(x, axis))
    if len(node.bottoms) > 2:
        raise Unsupported("its matrix is computed", "bottom")
    matrix = _matrix(net, node, x.shape[axis])
    last = axis == len(x.shape) - 1
    fields = {"from_logits": True, "matrix": matrix} | _ignored(node) | _reduced(node, "VALID")
    if "ignore_class" in fields:
        raise Unsupported("`ignore_label` of this loss", "loss_param.ignore_label")
    _lose(net, node, "InfoGain", [x, label], fields | ({} if last else {"axis": axis}))


def _matrix(net: Translator, node: Node, count: int) -> list[list[float]]:
    path = "infogain_loss_param.source"
    name = node.layer["infogain_loss_param"]["source"]
    found = next((one for one in (Path(name), net.folder / name, net.folder / Path(name).name) if one.is_file()), None)
    if not name or found is None:
        raise Unsupported(f"the file with its matrix is not there: {name or 'none is given'}", path)
    try:
        array = read_mean(found)
    except InputError as error:
        raise Unsupported(error.summary, path) from None
    if array.shape != (1, count, count):
        raise Unsupported(f"its matrix is {list(array.shape[1:])}, not [{count}, {count}]", path)
    return [[float(str(one)) for one in row] for row in array[0]]


@rule("MultinomialLogisticLoss")
def multinomial(net: Translator, node: Node) -> None:
    """MultinomialLogistic of probabilities."""
    x = net.read(node)
    _lose(net, node, "MultinomialLogistic", [x, net.read(node, 1, ())], {})


@rule("HingeLoss")
def hinge(net: Translator, node: Node) -> None:
    """OneVsRestHinge."""
    x = net.read(node)
    _lose(net, node, "OneVsRestHinge", [x, net.read(node, 1, ())], {"norm": node.layer["hinge_loss_param"]["norm"]})


@rule("SigmoidCrossEntropyLoss")
def sigmoid_loss(net: Translator, node: Node) -> None:
    """BinaryCrossentropy of scores; summed up over a sample, where ours is a mean along the last axis."""
    x = net.read(node)
    target = net.read(node, 1, x.shape[1:])
    fields = _reduced(node, "BATCH_SIZE")
    if _ignored(node):
        raise Unsupported("`ignore_label` of this loss", "loss_param.ignore_label")
    factor = x.shape[-1] if fields.get("reduction") in ("batch_size", "sum") and len(x.shape) > 1 else 1
    _lose(net, node, "BinaryCrossentropy", [x, target], {"from_logits": True} | fields, factor)


@rule("EuclideanLoss")
def euclidean(net: Translator, node: Node) -> None:
    """Euclidean. Either input may be the target; both get gradients."""
    x = net.read(node)
    _lose(net, node, "Euclidean", [x, net.read(node, 1, x.shape[1:])], {})


@rule("ContrastiveLoss")
def contrastive(net: Translator, node: Node) -> None:
    """Contrastive."""
    given = node.layer["contrastive_loss_param"]
    sources = [net.read(node), net.read(node, 1), net.read(node, 2, ())]
    _lose(net, node, "Contrastive", sources, {"margin": given["margin"], "legacy_version": given["legacy_version"]})


@rule("Accuracy")
def accuracy(net: Translator, node: Node) -> None:
    """SparseCategoricalAccuracy, or SparseTopKCategoricalAccuracy."""
    path = "accuracy_param"
    given, (x, axis) = node.layer[path], _scores(net, node, path)
    label = net.read(node, 1, _places(x, axis))
    fields: dict[str, Any] = {} if axis == len(x.shape) - 1 else {"axis": axis}
    top_k = given["top_k"]
    if top_k > 1 and "ignore_label" in given:
        raise Unsupported("`ignore_label` of the first several", f"{path}.ignore_label")
    if "ignore_label" in given:
        fields["ignore_class"] = given["ignore_label"]
    kind = "SparseCategoricalAccuracy"
    if top_k > 1:
        kind, fields = "SparseTopKCategoricalAccuracy", fields | {"k": top_k}
    if len(node.layer["top"]) > 1:
        net.note(f"`{node.name}`: the accuracy of each class is that of the metric ClassificationReport")
    name = node.layer["top"][0] if node.layer["top"] else node.name
    net.draft.metrics.append(net.judge(METRICS, name, kind, [x, label], fields))


def _scores(net: Translator, node: Node, path: str) -> tuple[Made, int]:
    """What is judged, and the axis of its classes."""
    x = net.read(node)
    return x, net.axis(node, f"{path}.axis", len(x.shape), node.layer[path]["axis"])


def _places(x: Made, axis: int) -> tuple[int, ...]:
    """The sizes of a label with a number for each place that has scores."""
    return tuple(size for place, size in enumerate(x.shape) if place not in (0, axis))


def _ignored(node: Node) -> dict[str, Any]:
    given = node.layer["loss_param"]
    return {"ignore_class": given["ignore_label"]} if "ignore_label" in given else {}


def _reduced(node: Node, default: str) -> dict[str, Any]:
    """What is made of the losses of all places; `normalize` is older than `normalization`."""
    given = node.layer["loss_param"]
    kind = default
    if "normalization" in given:
        kind = given["normalization"]
    elif "normalize" in given:
        kind = "VALID" if given["normalize"] else "BATCH_SIZE"
    return {"reduction": REDUCTIONS[kind]}


def _lose(
    net: Translator, node: Node, type_: str, sources: list[Made], fields: dict[str, Any], factor: int = 1
) -> None:
    """Write a loss, if training has it."""
    weights = node.layer["loss_weight"]
    weight = (weights[0] if len(weights) else 1.0) * factor
    if weight == 0:
        net.note(f"`{node.name}` is left out: its loss_weight is 0, so that it is only watched")
    elif TRAIN not in node.phases and net.trained:
        net.note(f"`{node.name}` is left out: it is a loss of testing alone")
    else:
        given = {**fields, "weight": float(str(weight))}
        net.draft.losses.append(net.judge(LOSSES, node.name, type_, sources, given))
