"""A training → Caffe's net for training: data, fillers, losses and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from netspec.errors import InputError, Problem, by_place
from netspec.exchange.formats.caffe.blobs import array_blob
from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.writing.writer import (
    CaffeNet,
    CaffeWriter,
    finished,
    needed_inputs,
    writer_for,
)
from netspec.exchange.formats.registry import Exportable
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.schema.specs.links import LossLink, MetricLink, resolve_names
from netspec.schema.specs.patterns import matches


def trained(exported: Exportable, prefix: str) -> CaffeNet:
    """The net for training; further files are called `prefix_…`.

    Raises `InputError` with everything in it that Caffe does not have.
    """
    links, train = resolve_names(exported.net), exported.train
    assert train is not None
    ends = [source for loss in links.losses for source in loss.sources]
    writer = writer_for(exported, links, ends, training=True, rates=_rates(train.solver), prefix=prefix)
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
    problems = [] if links.losses else [Problem("a net without losses is not trained", exported.net.where())]
    for loss in links.losses:
        try:
            _write_loss(writer, loss)
        except UnsupportedFeature as reason:
            what = f"the loss `{loss.name}` cannot be written for Caffe: {reason}"
            problems.append(Problem(what, loss.fields.where()))
    if problems:
        raise InputError(sorted([*writer.problems, *problems], key=by_place))
    return finished(exported, writer)


def _rates(solver: Any) -> Callable[[str], tuple[float, float]]:
    """Multipliers of the learning rate and the weight decay of each parameter, by the groups of a solver."""

    def of(state: str) -> tuple[float, float]:
        group = next((group for group in solver.groups if matches(group.match, state)), None)
        if group is None:
            return 1.0, 1.0
        decay = 1.0 if group.weight_decay is None else group.weight_decay / (solver.weight_decay or 1.0)
        return group.learning_rate_multiplier, decay

    return of


def _write_data(writer: CaffeWriter, split: Any, phase: str, inputs: Sequence[str]) -> None:
    """Add the layer that reads the samples of a phase: HDF5 files, and a note, if Caffe cannot read the source."""
    name = phase.lower()
    try:
        type_, param, fields = _source(split)
        others = {"transform_param": transform} if (transform := _transform(split)) else {}
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


def _source(split: Any) -> tuple[str, dict[str, Any], Sequence[str]]:
    """Type and parameters of the data layer of a split, and what its tops are in the source."""
    param = {"source": str(split.path) if hasattr(split, "path") else "", "batch_size": split.batch_size}
    match split.source:
        case "lmdb":
            if split.shuffle or split.size is not None:
                raise UnsupportedFeature("Caffe reads an LMDB in its order, not shuffled" if split.shuffle
                             else "Caffe's Data does not resize images")  # fmt: skip
            return "Data", {**param, "backend": "LMDB"}, ("image", "label")
        case "image_folder":
            if split.list is None:
                raise UnsupportedFeature("Caffe reads images from a list, not from folders of classes")
            height, width = split.size or (0, 0)
            return "ImageData", {
                **param, "source": str(split.list), "root_folder": f"{str(split.path).rstrip('/')}/",
                "new_height": height, "new_width": width, "is_color": split.channels == 3,
                "shuffle": bool(split.shuffle),
            }, ("image", "label")  # fmt: skip
        case "hdf5":
            if isinstance(split.path, list) or not str(split.path).endswith(".txt") or split.transforms:
                raise UnsupportedFeature("Caffe's HDF5Data reads a list of files (.txt), without transforms")
            fields = split.arrays or tuple(split.inputs.values())
            return "HDF5Data", {**param, "shuffle": bool(split.shuffle)}, fields
    raise UnsupportedFeature(f"Caffe does not read `source: {split.source}`")


def _transform(split: Any) -> Mapping[str, Any]:
    """`transform_param`: (x - mean) · scale of a crop, flipped or not. Raises `UnsupportedFeature` for others."""
    param: dict[str, Any] = {}
    means, scale = [0.0], 1.0
    color = split.source == "image_folder" and split.channels == 3
    for transform in split.transforms:
        if transform.apply_to is not None:
            raise UnsupportedFeature("Caffe transforms images only")
        match transform.type:
            case "ReverseChannels" if color:
                color = False
            case "Rescaling":  # scale · ((x - mean) · before) + offset
                means = [mean - transform.offset / (transform.scale * scale) for mean in means]
                scale *= transform.scale
            case "Normalization" if transform.mean is not None and transform.variance is not None:
                variances, own = _floats(transform.variance), _floats(transform.mean)
                if len(set(variances)) != 1 or variances[0] <= 0:
                    raise UnsupportedFeature("Caffe has one scale for all channels")
                count = max(len(means), len(own))
                means = [
                    mean + own_mean / scale
                    for mean, own_mean in zip(means * (count // len(means)), own * (count // len(own)), strict=True)
                ]
                scale /= variances[0] ** 0.5
            case "MeanImage" if str(transform.file).endswith(".binaryproto") and scale == 1:
                param["mean_file"] = str(transform.file)
            case "RandomCrop" | "CenterCrop" if transform.height == transform.width and not getattr(
                transform, "padding", 0
            ):
                param["crop_size"] = transform.height
            case "RandomFlip" if transform.mode == "horizontal":
                param["mirror"] = True
            case kind:
                raise UnsupportedFeature(f"Caffe does not transform images as {kind} does here")
    if color:
        raise UnsupportedFeature(
            "Caffe reads images as blue, green, red: without ReverseChannels the net was trained otherwise"
        )
    if any(means):
        if "mean_file" in param:
            raise UnsupportedFeature("Caffe subtracts a mean image or numbers, not both")
        param["mean_value"] = means
    return param | ({"scale": scale} if scale != 1 else {})


def _floats(value: Any) -> list[float]:
    return [float(each) for each in value] if isinstance(value, (list, tuple)) else [float(value)]


NORMALIZATIONS = {
    "sum_over_batch_size": "VALID", "mean": "VALID", "mean_with_sample_weight": "VALID", "full": "FULL",
    "batch_size": "BATCH_SIZE", "sum": "NONE",
}  # fmt: skip
PER_SAMPLE = {
    "MultinomialLogistic": ("MultinomialLogisticLoss", {}),
    "SparseCategoricalCrossentropy": ("MultinomialLogisticLoss", {}),
    "MeanSquaredError": ("EuclideanLoss", {}), "Euclidean": ("EuclideanLoss", {}),
    "OneVsRestHinge": ("HingeLoss", {"norm": "norm"}),
    "Contrastive": ("ContrastiveLoss", {"margin": "margin", "legacy_version": "legacy_version"}),
}  # fmt: skip
"""Losses that Caffe averages over the samples: its layer, and our field for each of its fields."""


def _write_loss(writer: CaffeWriter, link: LossLink) -> None:
    """Add a loss. Raises `UnsupportedFeature`."""
    fields: Any = link.fields
    shape, kind = writer.shape(link.sources[0]), fields.type
    if fields.sample_weight is not None or getattr(fields, "class_weight", None) is not None:
        raise UnsupportedFeature("Caffe's losses have no weights of samples or classes")
    if getattr(fields, "label_smoothing", 0):
        raise UnsupportedFeature("Caffe's losses do not smooth labels")
    normalization = NORMALIZATIONS[getattr(fields, "reduction", "sum_over_batch_size")]
    others: dict[str, Mapping[str, Any]] = {}
    factor, scores = 1.0, getattr(fields, "from_logits", False)
    if scores and kind == "SparseCategoricalCrossentropy":
        type_, others["softmax_param"] = "SoftmaxWithLoss", {"axis": fields.axis % len(shape)}
        others["loss_param"] = {"ignore_label": fields.ignore_class, "normalization": normalization}
    elif scores and kind == "BinaryCrossentropy":  # a sum over a sample in Caffe, a mean over the last axis here
        type_, factor = "SigmoidCrossEntropyLoss", 1.0 if normalization == "VALID" else 1 / shape[-1]
        others["loss_param"] = {"normalization": normalization}
    elif scores and kind == "InfoGain":
        axis, type_ = fields.axis % len(shape), "InfogainLoss"
        source = f"{writer.prefix}_{link.name}.binaryproto"
        writer.files[source] = array_blob(fields.numbers(shape[axis], "float32")[None, None])
        others["infogain_loss_param"] = {"source": source, "axis": axis}
        others["loss_param"] = {"normalization": normalization}
    elif kind in PER_SAMPLE:
        type_, names = PER_SAMPLE[kind]
        if normalization != "VALID" or getattr(fields, "ignore_class", None) is not None:
            raise UnsupportedFeature(f"Caffe's {type_} is averaged over all samples")
        if kind == "SparseCategoricalCrossentropy" and len(shape) != 2:
            raise UnsupportedFeature("Caffe's loss of probabilities takes (N, classes)")
        if names:
            field = {"HingeLoss": "hinge_loss_param"}.get(type_, "contrastive_loss_param")
            others[field] = {name: getattr(fields, ours, "L1") for name, ours in names.items()}
        factor = 2 / prod(shape[1:]) if kind == "MeanSquaredError" else 1.0  # 1/(2N) Σ d² in Caffe
    else:
        raise UnsupportedFeature(
            f"Caffe has no layer for {kind}{' of probabilities' if hasattr(fields, 'from_logits') else ''}"
        )
    bottoms = [writer.blob(source) for source in link.sources]
    message = writer.layer(link.name, type_, bottoms, [link.name], others=others)
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
    bottoms = [writer.blob(source) for source in link.sources]
    message = writer.layer(link.name, "Accuracy", bottoms, [link.name], param)
    message.add("include", Message("NetStateRule", phase="TEST"))
    return True
