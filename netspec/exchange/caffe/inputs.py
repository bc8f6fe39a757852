"""The layers that give a net its data → its inputs: what their shapes are, as far as the files say."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netspec.errors import InputError
from netspec.exchange.caffe.blobs import read_mean
from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.wiring import WATCHERS, Node, Ref, Wired

COLOURS = 3
CLASSES = {
    "SoftmaxWithLoss": (1,), "Accuracy": (1,), "HingeLoss": (1,), "InfogainLoss": (1,),
    "MultinomialLogisticLoss": (1,), "Embed": (0,), "BatchReindex": (1,),
}  # fmt: skip
"""Which of a layer's inputs are whole numbers: classes, places."""
LABELLED = ("Data", "ImageData", "WindowData", "MemoryData")
"""Layers whose second top is the number of a class."""
PASSING = ("Slice", "Split", "Flatten", "Reshape")
"""Layers that give on whole numbers as they are."""
DEEPEST = 20
"""So many of them behind one another are followed."""


@dataclass(frozen=True)
class Known:
    """What the files say of an input."""

    shape: tuple[int, ...] | None
    """Sizes of a sample; None where they don't say."""
    layer: Message
    whole: bool
    """Whether it holds whole numbers."""
    note: str = ""


def known_inputs(
    wired: Wired, given: Mapping[str, tuple[int, ...]], folder: Path, timed: Collection[str] = ()
) -> dict[str, Known]:
    """All inputs by the names of their blobs. `given` are shapes that the user says, `folder` is where the net lies.

    `timed` are sequences, whose samples are along the second axis.
    """
    whole = _whole(wired)
    found: dict[str, Known] = {}
    for node in wired.data:
        for index, top in enumerate(node.layer["top"]):
            shape, note = _shape(node.layer, index, folder, 1 if top in timed else 0)
            numbered = whole.get(top, False) or (shape == () and node.type in LABELLED)
            if numbered and shape is not None and set(shape) == {1}:
                shape = ()  # a number that old files give four axes
            known = Known(given.get(top, shape), node.layer, numbered, "" if top in given else note)
            if top not in found or found[top].shape is None:
                found[top] = known
    return found


def _shape(layer: Message, index: int, folder: Path, batch: int) -> tuple[tuple[int, ...] | None, str]:
    """Sizes of a sample of a layer's top, and what to tell of how they were found; `batch` is the axis of samples."""
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
        return [one["dim"] for one in layer["input_param"]["shape"]]
    given = layer["dummy_data_param"]
    if given["shape"]:
        return [one["dim"] for one in given["shape"]]
    sizes = [given[name] for name in ("num", "channels", "height", "width")]
    most = max(map(len, sizes))
    rows = [one * most if len(one) == 1 else one for one in sizes]  # one number for all tops, or one for each
    return list(zip(*rows, strict=False))


def _image(layer: Message, folder: Path) -> tuple[tuple[int, ...] | None, str]:
    """Of a layer that reads images: by its mean image, else by the sizes that images are made."""
    changed, images = layer["transform_param"], layer["image_data_param"]
    crop = changed["crop_size"]
    mean = _mean_shape(changed["mean_file"], folder)
    channels = mean[0] if mean else _channels(layer)
    note = ""
    if not channels and (crop or images["new_height"]):
        channels, note = COLOURS, "is taken for colour images, since the file does not say it: see --shape"
    sizes: tuple[int, ...] | None = None
    if crop:
        sizes = (crop, crop)
    elif images["new_height"] and images["new_width"]:
        sizes = (images["new_height"], images["new_width"])
    elif mean:
        sizes = mean[1:]
    return (None, "") if sizes is None else ((channels, *sizes), note)


def _channels(layer: Message) -> int:
    """How many channels the layer says that images have; 0 where it doesn't."""
    changed = layer["transform_param"]
    if changed["force_gray"] or (layer["type"] == "ImageData" and not layer["image_data_param"]["is_color"]):
        return 1
    told = changed["force_color"] or layer["type"] in ("ImageData", "WindowData") or len(changed["mean_value"]) > 1
    return COLOURS if told else 0


def _mean_shape(name: str, folder: Path) -> tuple[int, ...] | None:
    """The shape of the mean image, where it is still there: paths are from Caffe's folder, or from the net's."""
    if not name:
        return None
    for path in (Path(name), folder / name, folder / Path(name).name):
        if path.is_file():
            with suppress(InputError):  # what is done to images is no matter of the net
                return tuple(read_mean(path).shape)
    return None


def _whole(wired: Wired) -> dict[str, bool]:
    """For each input that is read at all, whether it is read as whole numbers, and computed with nowhere."""
    readers: dict[Ref, list[tuple[Node, int]]] = {}
    for node in wired.nodes:
        for index, ref in enumerate(node.bottoms):
            readers.setdefault(ref, []).append((node, index))

    def uses(ref: Ref, depth: int = 0) -> set[str]:
        """What a value is to its readers, and to those of its parts: a class, what a loss compares with, a number."""
        found: set[str] = set()
        for node, index in readers.get(ref, ()):
            if index in CLASSES.get(node.type, ()):
                found.add("class")
            elif node.type in PASSING and depth < DEEPEST:
                tops = enumerate(node.layer["top"])
                found = found.union(*(uses(Ref(node.key, place, name), depth + 1) for place, name in tops))
            elif node.type not in WATCHERS:
                found.add("number")
        return found

    inputs = {ref for ref in readers if ref.layer is None}
    return {ref.blob: uses(ref) == {"class"} for ref in inputs}


def as_field(known: Known, shape: tuple[int, ...]) -> dict[str, Any]:
    """The input as a net file declares it."""
    return {"shape": list(shape)} | ({"dtype": "int32"} if known.whole else {})


def net_beside(weights: str) -> Path:
    """The net that weights may be used with: the one of their name, the only one there, or what it is mostly called."""
    path = Path(weights)
    texts = sorted(path.parent.glob("*.prototxt"))
    nets = [one for one in texts if "solver" not in one.stem and "train" not in one.stem]
    alike = [one for one in nets if one.stem == path.stem]
    return next(iter(alike or nets[: len(nets) == 1]), Path("deploy.prototxt"))
