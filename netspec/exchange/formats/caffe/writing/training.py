"""A training → Caffe's net for training: data, fillers, losses and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from netspec.errors import Problem
from netspec.exchange.formats.caffe.blobs import array_blob
from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.rules.losses import REDUCTIONS, SAME_LOSSES
from netspec.exchange.formats.caffe.solver.data import data_layer, transform_param
from netspec.exchange.formats.caffe.writing.writer import CaffeWriter, needed_inputs, writer_for
from netspec.exchange.formats.registry import Exportable
from netspec.exchange.unsupported import UnsupportedFeature, require
from netspec.schema.specs.links import LossLink, MetricLink, resolve_names


def trained(exported: Exportable, prefix: str) -> CaffeWriter:
    """The net for training; further files are called `prefix_…`.

    Raises `InputError` with everything in it that Caffe does not have.
    """
    links, train = resolve_names(exported.net), exported.train
    assert train is not None
    ends = [source for loss in links.losses for source in loss.sources]
    writer = writer_for(exported, links, ends, solver=train.solver, prefix=prefix)
    inputs = needed_inputs(exported, links, [*ends, *(name for metric in links.metrics for name in metric.sources)])
    evaluated = train.data.splits().get(train.data.monitored)
    for phase, split in (("TRAIN", train.data.train), ("TEST", evaluated)):
        if split is not None:
            _write_data(writer, split, phase, inputs)
    layers = links.computing(ends)
    for link in layers:
        writer.write(link)
        for name in type(link.fields).model_fields:
            if name.endswith(("_regularizer", "_constraint")) and getattr(link.fields, name) is not None:
                what = f"`{name}` of `{link.name}` cannot be written for Caffe, which has none"
                writer.problems.append(Problem(what, link.fields.where(name)))
    computed = {name for link in layers for name in (link.name, *link.outputs)} | set(inputs)
    for metric in links.metrics:
        if evaluated is None or not (set(metric.sources) <= computed and _write_metric(writer, metric)):
            writer.notes.add(
                f"the metric `{metric.name}` is left out of the net for training",
                "{count} metrics are left out of the net for training", f"`{metric.name}`",
            )  # fmt: skip
    if not links.losses:
        writer.problems.append(Problem("a net without losses is not trained", exported.net.where()))
    for loss in links.losses:
        try:
            _write_loss(writer, loss)
        except UnsupportedFeature as reason:
            what = f"the loss `{loss.name}` cannot be written for Caffe: {reason}"
            writer.problems.append(Problem(what, loss.fields.where()))
    writer.check()
    return writer


def _write_data(writer: CaffeWriter, split: Any, phase: str, inputs: Sequence[str]) -> None:
    """Add the layer that reads the samples of a phase: HDF5 files, and a note, if Caffe cannot read the source."""
    name = phase.lower()
    try:
        type_, param, fields = data_layer(split)
        others = {"transform_param": transform} if (transform := transform_param(split)) else {}
        value_of = {split.inputs.get(value, value): value for value in inputs}
    except UnsupportedFeature as reason:
        type_, fields, others, value_of = "HDF5Data", inputs, {}, {value: value for value in inputs}
        param = {"source": f"{name}.txt", "batch_size": split.batch_size, "shuffle": bool(split.shuffle)}
        writer.notes.add(
            f"{phase}: {reason}: write {', '.join(inputs)} as the net takes them into HDF5 files, "
            f"and their names into {name}.txt"
        )
    tops = [value_of.get(field, f"{name}_{field}") for field in fields]
    message = writer.layer(f"{name}_data", type_, [], tops, param, others=others)
    message.add("include", Message("NetStateRule", phase=phase))


NORMALIZATIONS = {ours: theirs for theirs, ours in REDUCTIONS.items()} | dict.fromkeys(
    ("mean", "mean_with_sample_weight"), "VALID"
)
PER_SAMPLE = {
    **{ours: (theirs, names) for theirs, (ours, names) in SAME_LOSSES.items()},
    "SparseCategoricalCrossentropy": ("MultinomialLogisticLoss", {}), "MeanSquaredError": ("EuclideanLoss", {}),
}  # fmt: skip
"""Losses that Caffe averages over the samples: its layer, and our field for each of its fields."""


def _write_loss(writer: CaffeWriter, link: LossLink) -> None:
    """Add a loss. Raises `UnsupportedFeature`."""
    fields: Any = link.fields
    shape, kind = writer.shape(link.sources[0]), fields.type
    require(fields.sample_weight is None and getattr(fields, "class_weight", None) is None,
            "Caffe's losses have no weights of samples or classes")  # fmt: skip
    require(not getattr(fields, "label_smoothing", 0), "Caffe's losses do not smooth labels")
    normalization = NORMALIZATIONS[getattr(fields, "reduction", "sum_over_batch_size")]
    ignored, factor = getattr(fields, "ignore_class", None), 1.0
    param: Mapping[str, Any] = {}
    others: dict[str, Mapping[str, Any]] = {"loss_param": {"ignore_label": ignored, "normalization": normalization}}
    match kind, getattr(fields, "from_logits", False):
        case "SparseCategoricalCrossentropy", True:
            type_ = "SoftmaxWithLoss"
            others = {"softmax_param": {"axis": fields.axis % len(shape)}, **others}
        case "BinaryCrossentropy", True:  # a sum over a sample in Caffe, a mean over the last axis here
            type_, factor = "SigmoidCrossEntropyLoss", 1.0 if normalization == "VALID" else 1 / shape[-1]
        case "InfoGain", True:
            axis, type_ = fields.axis % len(shape), "InfogainLoss"
            source = f"{writer.prefix}_{link.name}.binaryproto"
            writer.files[source] = array_blob(fields.numbers(shape[axis], "float32")[None, None])
            param = {"source": source, "axis": axis}
        case _ if kind in PER_SAMPLE:
            type_, names = PER_SAMPLE[kind]
            require(normalization == "VALID" and ignored is None, f"Caffe's {type_} is averaged over all samples")
            require(kind != "SparseCategoricalCrossentropy" or len(shape) == 2,
                    "Caffe's loss of probabilities takes (N, classes)")  # fmt: skip
            param, others = {theirs: getattr(fields, ours) for theirs, ours in names.items()}, {}
            factor = 2 / prod(shape[1:]) if kind == "MeanSquaredError" else 1.0  # 1/(2N) Σ d² in Caffe
        case _:
            raise UnsupportedFeature(
                f"Caffe has no layer for {kind}{' of probabilities' if hasattr(fields, 'from_logits') else ''}"
            )
    message = writer.layer(link.name, type_, writer.bottoms(link), [link.name], param, others=others)
    if fields.weight * factor != 1:
        message.add("loss_weight", fields.weight * factor)


def _write_metric(writer: CaffeWriter, link: MetricLink) -> bool:
    """Add a metric to the phase TEST; whether Caffe has it."""
    fields: Any = link.fields
    if fields.type not in ("SparseCategoricalAccuracy", "SparseTopKCategoricalAccuracy"):
        return False
    if fields.sample_weight is not None or getattr(fields, "from_sorted_ids", False):
        return False
    axis = fields.axis % len(writer.shape(link.sources[0]))
    param = {"axis": axis, "top_k": getattr(fields, "k", 1), "ignore_label": getattr(fields, "ignore_class", None)}
    message = writer.layer(link.name, "Accuracy", writer.bottoms(link), [link.name], param)
    message.add("include", Message("NetStateRule", phase="TEST"))
    return True
