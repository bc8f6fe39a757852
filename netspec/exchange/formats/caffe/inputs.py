"""Data layers → the inputs of a net, with their shapes as far as the files specify them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netspec.errors import InputError
from netspec.exchange.formats.caffe.blobs import named_file, read_mean
from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.wiring import SINKS, CaffeGraph, CaffeNode, ValueRef

COLORS = 3
CLASSES = {
    "SoftmaxWithLoss": (1,), "Accuracy": (1,), "HingeLoss": (1,), "InfogainLoss": (1,),
    "MultinomialLogisticLoss": (1,), "Embed": (0,), "BatchReindex": (1,),
}  # fmt: skip
"""The inputs of layers that are integers: classes, indices."""
LABELLED = ("Data", "ImageData", "WindowData", "MemoryData")
"""Layers whose second top is a class index."""
PASSING = ("Slice", "Split", "Flatten", "Reshape")
"""Layers that pass integers on unchanged."""
DEEPEST = 20
"""Number of such layers in a row that are followed."""


@dataclass(frozen=True)
class KnownInput:
    """An input as the files specify it."""

    shape: tuple[int, ...] | None
    """Shape of a sample; None if it is not specified."""
    layer: Message
    is_integer: bool
    """Whether it has integer values."""
    note: str = ""


def known_inputs(
    wired: CaffeGraph, shapes: Mapping[str, tuple[int, ...]], folder: Path, timed: Collection[str] = ()
) -> dict[str, KnownInput]:
    """All inputs by the names of their blobs. `shapes` are the user's, `folder` is that of the net.

    `timed` are sequences, whose samples are along the second axis.
    """
    integer_inputs = _integer_inputs(wired)
    inputs: dict[str, KnownInput] = {}
    for node in wired.data:
        for index, top in enumerate(node.layer["top"]):
            shape, note = _shape(node.layer, index, folder, 1 if top in timed else 0)
            numbered = integer_inputs.get(top, False) or (shape == () and node.type in LABELLED)
            if numbered and shape is not None and set(shape) == {1}:
                shape = ()  # a scalar, which has four axes in old files
            known_input = KnownInput(shapes.get(top, shape), node.layer, numbered, "" if top in shapes else note)
            if top not in inputs or inputs[top].shape is None:
                inputs[top] = known_input
    return inputs


def _shape(layer: Message, index: int, folder: Path, batch: int) -> tuple[tuple[int, ...] | None, str]:
    """Shape of a sample of a layer's top, and a note on its origin; `batch` is the axis of samples."""
    kind = layer["type"]
    if kind in ("Input", "DummyData"):
        shapes = _declared(layer)
        shape = shapes[index] if index < len(shapes) else shapes[0] if len(shapes) == 1 else None
        return (None if shape is None else (*shape[:batch], *shape[batch + 1 :])), ""
    if kind == "HDF5Data":
        return None, ""
    if index > 0:
        return (), ""  # the label
    if kind == "MemoryData":
        return tuple(layer["memory_data_param"][name] for name in ("channels", "height", "width")), ""
    return _image(layer, folder)


def _declared(layer: Message) -> Sequence[Sequence[int]]:
    if layer["type"] == "Input":
        return [shape["dim"] for shape in layer["input_param"]["shape"]]
    param = layer["dummy_data_param"]
    if param["shape"]:
        return [shape["dim"] for shape in param["shape"]]
    sizes = [param[name] for name in ("num", "channels", "height", "width")]
    most = max(map(len, sizes))
    rows = [size * most if len(size) == 1 else size for size in sizes]  # one value for all tops, or one for each
    return list(zip(*rows, strict=False))


def _image(layer: Message, folder: Path) -> tuple[tuple[int, ...] | None, str]:
    """Shape of images: from their mean image, else from the sizes that they are resized to."""
    changed, images = layer["transform_param"], layer["image_data_param"]
    crop = changed["crop_size"]
    mean = _mean_shape(changed["mean_file"], folder)
    channels = mean[0] if mean else _channels(layer)
    note = ""
    if not channels and (crop or images["new_height"]):
        channels, note = COLORS, "is assumed to be color images, since the file does not specify it: see --shape"
    sizes: tuple[int, ...] | None = None
    if crop:
        sizes = (crop, crop)
    elif images["new_height"] and images["new_width"]:
        sizes = (images["new_height"], images["new_width"])
    elif mean:
        sizes = mean[1:]
    return (None, "") if sizes is None else ((channels, *sizes), note)


def _channels(layer: Message) -> int:
    """Number of channels that the layer specifies; 0 if it does not."""
    changed = layer["transform_param"]
    if changed["force_gray"] or (layer["type"] == "ImageData" and not layer["image_data_param"]["is_color"]):
        return 1
    is_color = changed["force_color"] or layer["type"] in ("ImageData", "WindowData") or len(changed["mean_value"]) > 1
    return COLORS if is_color else 0


def _mean_shape(name: str, folder: Path) -> tuple[int, ...] | None:
    """Shape of the mean image, if it exists."""
    path = named_file(name, folder)
    with suppress(InputError):  # the net does not depend on the preprocessing of images
        return tuple(read_mean(path).shape) if path else None
    return None


def _integer_inputs(wired: CaffeGraph) -> dict[str, bool]:
    """For each input that is read, whether layers use it only as class indices."""
    readers: dict[ValueRef, list[tuple[CaffeNode, int]]] = {}
    for node in wired.nodes:
        for index, ref in enumerate(node.bottoms):
            readers.setdefault(ref, []).append((node, index))

    def uses(ref: ValueRef, depth: int = 0) -> set[str]:
        """Return how a value is used by its readers and the readers of its parts: as a class, or as a number."""
        kinds: set[str] = set()
        for node, index in readers.get(ref, ()):
            if index in CLASSES.get(node.type, ()):
                kinds.add("class")
            elif node.type in PASSING and depth < DEEPEST:
                tops = enumerate(node.layer["top"])
                kinds = kinds.union(*(uses(ValueRef(node.key, index, name), depth + 1) for index, name in tops))
            elif node.type not in SINKS:
                kinds.add("number")
        return kinds

    inputs = {ref for ref in readers if ref.layer is None}
    return {ref.blob: uses(ref) == {"class"} for ref in inputs}


def as_field(known_input: KnownInput, shape: tuple[int, ...]) -> dict[str, Any]:
    """The input as a net file declares it."""
    return {"shape": list(shape)} | ({"dtype": "int32"} if known_input.is_integer else {})


def likely_net_file(weights: str) -> Path:
    """The net that weights may belong to: the one with their name, the only one in the folder, or the usual name."""
    path = Path(weights)
    texts = sorted(path.parent.glob("*.prototxt"))
    nets = [text for text in texts if "solver" not in text.stem and "train" not in text.stem]
    alike = [net for net in nets if net.stem == path.stem]
    return next(iter(alike or nets[: len(nets) == 1]), Path("deploy.prototxt"))
