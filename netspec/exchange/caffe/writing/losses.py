"""Losses and metrics → Caffe's layers."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from netspec.exchange.caffe.blobs import array_blob
from netspec.exchange.caffe.writing.writer import NoForm, Writer
from netspec.schema.links import LossLink, MetricLink

NORMALIZATIONS = {
    "sum_over_batch_size": "VALID", "mean": "VALID", "mean_with_sample_weight": "VALID", "full": "FULL",
    "batch_size": "BATCH_SIZE", "sum": "NONE",
}  # fmt: skip


def write_loss(w: Writer, link: LossLink) -> None:
    """Add a loss. Raises `NoForm`."""
    one: Any = link.fields
    made = _LOSSES.get(one.type)
    if made is None:
        raise NoForm(f"Caffe has no layer for {one.type}")
    if one.sample_weight is not None or getattr(one, "class_weight", None) is not None:
        raise NoForm("Caffe's losses have no weights of samples or classes")
    type_, params, factor = made(w, link)
    message = w.layer(link.name, type_, [w.blob(source) for source in link.sources], [link.name], params=params)
    if one.weight * factor != 1:
        message.add("loss_weight", one.weight * factor)


Written = tuple[str, dict[str, dict[str, Any]], float]
"""Type and messages of a layer, and a factor of its loss_weight."""


def _softmax(w: Writer, link: LossLink) -> Written:
    """Of scores, or of probabilities (N, C)."""
    one: Any = link.fields
    rank = len(w.shape(link.sources[0]))
    if one.label_smoothing:
        raise NoForm("Caffe's losses smooth no labels")
    if not one.from_logits:
        if rank != 2 or one.ignore_class is not None:
            raise NoForm("Caffe's loss of probabilities takes (N, classes), and ignores no class")
        return _of_samples("MultinomialLogisticLoss", {})(w, link)
    params = {"loss_param": {"ignore_label": one.ignore_class, "normalization": NORMALIZATIONS[one.reduction]}}
    return "SoftmaxWithLoss", {"softmax_param": {"axis": one.axis % rank}, **params}, 1.0


def _sigmoid(w: Writer, link: LossLink) -> Written:
    """Summed up over a sample, where ours is a mean along the last axis."""
    one: Any = link.fields
    if not one.from_logits or one.label_smoothing:
        raise NoForm("Caffe's SigmoidCrossEntropyLoss takes scores, and smooths no labels")
    shape = w.shape(link.sources[0])
    summed = one.reduction in ("batch_size", "sum") and len(shape) > 1
    normalization = NORMALIZATIONS[one.reduction]
    params = {} if normalization == "BATCH_SIZE" else {"loss_param": {"normalization": normalization}}
    return "SigmoidCrossEntropyLoss", params, 1 / shape[-1] if summed else 1.0


def _squares(w: Writer, link: LossLink) -> Written:
    """1/(2N) Σ d², where ours is the mean over all numbers."""
    return _of_samples("EuclideanLoss", {}, 2 / prod(w.shape(link.sources[0])[1:]))(w, link)


def _infogain(w: Writer, link: LossLink) -> Written:
    """Of scores; the matrix lies in a file beside."""
    one: Any = link.fields
    shape = w.shape(link.sources[0])
    axis = one.axis % len(shape)
    if not one.from_logits:
        raise NoForm("Caffe's InfogainLoss takes scores")
    matrix = w.file(f"{link.name}.binaryproto", array_blob(one.numbers(shape[axis], "float32")[None, None]))
    params = {"infogain_loss_param": {"source": matrix, "axis": axis}}
    return "InfogainLoss", {**params, "loss_param": {"normalization": NORMALIZATIONS[one.reduction]}}, 1.0


def _of_samples(
    type_: str, params: dict[str, dict[str, Any]], factor: float = 1.0
) -> Callable[[Writer, LossLink], Written]:  # fmt: skip
    """A loss that is averaged over the samples, and nothing else."""

    def made(w: Writer, link: LossLink) -> Written:
        reduction = getattr(link.fields, "reduction", "sum_over_batch_size")
        if NORMALIZATIONS[reduction] != "VALID":
            raise NoForm(f"Caffe's {type_} is averaged over the samples")
        return type_, params, factor

    return made


def _hinge(w: Writer, link: LossLink) -> Written:
    norm = getattr(link.fields, "norm", "L1")
    return _of_samples("HingeLoss", {"hinge_loss_param": {"norm": norm}})(w, link)


def _contrastive(w: Writer, link: LossLink) -> Written:
    one: Any = link.fields
    param = {"margin": one.margin, "legacy_version": one.legacy_version}
    return _of_samples("ContrastiveLoss", {"contrastive_loss_param": param})(w, link)


_LOSSES: dict[str, Callable[[Writer, LossLink], Written]] = {
    "SparseCategoricalCrossentropy": _softmax,
    "MultinomialLogistic": _of_samples("MultinomialLogisticLoss", {}),
    "BinaryCrossentropy": _sigmoid,
    "MeanSquaredError": _squares,
    "Euclidean": _of_samples("EuclideanLoss", {}),
    "OneVsRestHinge": _hinge,
    "Contrastive": _contrastive,
    "InfoGain": _infogain,
}


def write_metric(w: Writer, link: MetricLink) -> bool:
    """Add a metric, in the phase TEST; whether Caffe has one."""
    from netspec.exchange.caffe.proto.message import Message

    one: Any = link.fields
    if one.type not in ("SparseCategoricalAccuracy", "SparseTopKCategoricalAccuracy") or one.sample_weight is not None:
        return False
    if getattr(one, "from_sorted_ids", False):
        return False
    param = {
        "axis": one.axis % len(w.shape(link.sources[0])), "top_k": getattr(one, "k", 1),
        "ignore_label": getattr(one, "ignore_class", None),
    }  # fmt: skip
    message = w.layer(
        link.name,
        "Accuracy",
        [w.blob(source) for source in link.sources],
        [link.name],
        params={"accuracy_param": param},
    )
    message.add("include", Message("NetStateRule", phase="TEST"))
    return True
