"""Splits of a training → Caffe's data layers, and their transforms → `transform_param`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.writing.writer import NoForm, Writer

WHOLE = {"height": "crop_size", "width": "crop_size"}


def write_data(w: Writer, split: Any, phase: str, inputs: Sequence[str]) -> None:
    """Add the layer that gives a split's samples in a phase.

    What Caffe has no source for is read from HDF5 files, which the user is to write; a note says so.
    """
    fed = {name: split.inputs.get(name, name) for name in inputs}
    made = _SOURCES.get(split.source)
    try:
        if made is None:
            raise NoForm(f"Caffe does not read `source: {split.source}`")
        type_, field, param, fields = made(split)
        transform = _transform(split)
    except NoForm as reason:
        type_, field, fields, transform = "HDF5Data", "hdf5_data_param", inputs, {}
        param = {"source": f"{phase.lower()}.txt", "batch_size": split.batch_size, "shuffle": bool(split.shuffle)}
        w.note(
            f"{phase}: {reason}: write {', '.join(inputs)} as the net takes them into HDF5 files, "
            f"and their names into {phase.lower()}.txt"
        )
        fed = {name: name for name in inputs}
    places = {source: name for name, source in fed.items()}
    tops = [places.get(one, f"{phase.lower()}_{one}") for one in fields]
    params = {field: param, **({"transform_param": transform} if transform else {})}
    message = w.layer(f"{phase.lower()}_data", type_, [], tops, params=params)
    message.add("include", Message("NetStateRule", phase=phase))


Layer = tuple[str, str, dict[str, Any], Sequence[str]]
"""Type, name and fields of its message, and what its tops are in the source."""


def _lmdb(split: Any) -> Layer:
    if split.shuffle:
        raise NoForm("Caffe reads an LMDB in its order, not shuffled")
    if split.size is not None:
        raise NoForm("Caffe's Data resizes no images")
    param = {"source": str(split.path), "batch_size": split.batch_size, "backend": "LMDB"}
    return "Data", "data_param", param, ("image", "label")


def _images(split: Any) -> Layer:
    if split.list is None:
        raise NoForm("Caffe reads images by a list, not by folders of classes")
    height, width = split.size or (0, 0)
    param = {
        "source": str(split.list), "root_folder": f"{str(split.path).rstrip('/')}/", "batch_size": split.batch_size,
        "new_height": height, "new_width": width, "is_color": split.channels == 3, "shuffle": bool(split.shuffle),
    }  # fmt: skip
    return "ImageData", "image_data_param", param, ("image", "label")


def _hdf5(split: Any) -> Layer:
    if isinstance(split.path, list) or not str(split.path).endswith(".txt"):
        raise NoForm("Caffe's HDF5Data reads a list of files, a name in each line")
    if split.transforms:
        raise NoForm("Caffe's HDF5Data changes no samples")
    param = {"source": str(split.path), "batch_size": split.batch_size, "shuffle": bool(split.shuffle)}
    return "HDF5Data", "hdf5_data_param", param, split.arrays or tuple(split.inputs.values())


_SOURCES: dict[str, Callable[[Any], Layer]] = {"lmdb": _lmdb, "image_folder": _images, "hdf5": _hdf5}


def _transform(split: Any) -> Mapping[str, Any]:
    """`transform_param`: (x − mean) · scale of a part, mirrored or not. Raises `NoForm` for anything else."""
    made: dict[str, Any] = {}
    means, scale = [0.0], 1.0
    colours = split.source == "image_folder" and split.channels == 3
    reversed_ = False
    for one in split.transforms:
        if one.apply_to is not None:
            raise NoForm("Caffe changes images alone")
        match one.type:
            case "ReverseChannels" if colours and not reversed_:
                reversed_ = True
            case "Rescaling":
                # scale · ((x - mean) · before) + offset
                means = [mean - one.offset / (one.scale * scale) for mean in means]
                scale *= one.scale
            case "Normalization" if one.mean is not None and one.variance is not None:
                deviation, own = _numbers(one.variance), _numbers(one.mean)
                if len(set(deviation)) != 1 or deviation[0] <= 0:
                    raise NoForm("Caffe has one scale for all channels")
                means = [a + b / scale for a, b in _paired(means, own)]
                scale /= deviation[0] ** 0.5
            case "MeanImage" if one.file is not None and str(one.file).endswith(".binaryproto") and scale == 1:
                made["mean_file"] = str(one.file)
            case "RandomCrop" | "CenterCrop" if one.height == one.width and not getattr(one, "padding", 0):
                made["crop_size"] = one.height
            case "RandomFlip" if one.mode == "horizontal":
                made["mirror"] = True
            case kind:
                raise NoForm(f"Caffe does not change images as {kind} does here")
    if colours and not reversed_:
        raise NoForm("Caffe reads images as blue, green, red: without ReverseChannels the net was trained otherwise")
    if any(means):
        if "mean_file" in made:
            raise NoForm("Caffe takes a mean image or numbers, not both")
        made["mean_value"] = means
    return made | ({"scale": scale} if scale != 1 else {})


def _numbers(value: Any) -> list[float]:
    return [float(one) for one in value] if isinstance(value, (list, tuple)) else [float(value)]


def _paired(first: list[float], second: list[float]) -> list[tuple[float, float]]:
    count = max(len(first), len(second))
    both = [one * count if len(one) == 1 else one for one in (first, second)]
    return list(zip(*both, strict=True))
