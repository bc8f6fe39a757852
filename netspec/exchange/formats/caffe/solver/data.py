"""Caffe's data layers → the splits of a training file; data without a source comes from a Python program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.solver.context import Diagnostics, FileFinder
from netspec.exchange.net_yaml_writer import clean


def image_transforms(layer: Message, feeding: SplitContext) -> list[dict[str, Any]]:
    """The transforms of a data layer's images; a crop is random in the phase TRAIN, else central."""
    param = layer["transform_param"]
    transforms: list[dict[str, Any]] = []
    values = [float(mean) for mean in param["mean_value"]]
    if param["mean_file"]:
        transforms.append({"type": "MeanImage", "file": feeding.named(param, "mean_file")})
        if values:
            feeding.remarks.problem(
                "a mean is given twice", param, "mean_value", expected="`mean_file` or `mean_value`", got="both"
            )
    if param["crop_size"]:
        kind = "RandomCrop" if feeding.phase == "TRAIN" else "CenterCrop"
        transforms.append({"type": kind, "height": param["crop_size"], "width": param["crop_size"]})
    if param["mirror"]:
        transforms.append({"type": "RandomFlip", "mode": "horizontal"})
    return transforms + _normalization(values, param["scale"])


def _normalization(values: list[float], scale: float) -> list[dict[str, Any]]:
    """(x − mean) · scale, with one mean or one per channel."""
    if len(values) > 1:
        mean: list[dict[str, Any]] = [{"type": "Normalization", "mean": values, "variance": 1.0}]
        return mean + ([{"type": "Rescaling", "scale": scale}] if scale != 1 else [])
    offset = -values[0] * scale if values else 0.0
    if scale == 1 and not offset:
        return []
    return [{"type": "Rescaling", "scale": scale, **({"offset": offset} if offset else {})}]


WRITTEN_BY_CAFFE = "convert it: `convert_imageset -backend lmdb …`"


@dataclass(frozen=True)
class SplitContext:
    """The net's inputs in one phase, and the means to resolve paths and report problems."""

    phase: str
    """TRAIN or TEST."""
    inputs: Mapping[str, Mapping[str, Any]]
    """The inputs as the net file declares them, by the names of their blobs."""
    finder: FileFinder
    remarks: Diagnostics

    def named(self, param: Message, field: str) -> str:
        """A path for the training file: absolute if it exists, else unchanged."""
        name: str = param[field]
        if not name:
            self.remarks.problem("the path of the data is missing", param, field, expected=f'`{field}: "…"`')
            return "nowhere"
        path = self.finder.find(name)
        if path is None:
            self.remarks.notes.add(
                f"{name} does not exist: set its path in train.yaml",
                "{count} files do not exist and need paths in train.yaml", str(name),
            )  # fmt: skip
        return name if path is None else str(path)

    def fed(self, layer: Message) -> list[str]:
        """The tops of a layer that the net reads."""
        return [top for top in layer["top"] if top in self.inputs]

    def renamed(self, layer: Message, *fields: str) -> dict[str, str]:
        """The field of the source for each input of the net whose name differs."""
        tops_and_fields = zip(layer["top"], fields, strict=False)
        return {clean(top): name for top, name in tops_and_fields if top in self.inputs and clean(top) != name}


def split(layers: Sequence[Message], feeding: SplitContext, batches: int | None = None) -> dict[str, Any] | None:
    """Build a split from the data layers of a phase, limited to `batches`. Returns None if no layer feeds an input."""
    layers = [layer for layer in layers if feeding.fed(layer)]
    if not layers:
        return None
    if len(layers) > 1 or layers[0]["type"] not in SOURCES:
        split_fields = _program(layers, feeding)
    else:
        split_fields = SOURCES[layers[0]["type"]](layers[0], feeding)
    if batches:
        split_fields["limit"] = batches * split_fields["batch_size"]
    return split_fields


def _data(layer: Message, feeding: SplitContext) -> dict[str, Any]:
    """`Data`: an LMDB or a LevelDB of Datums, read in order."""
    param = layer["data_param"]
    transform = layer["transform_param"]
    path, size = feeding.named(param, "source"), _batch(param, feeding)
    split_fields = {"source": "lmdb", "path": path, "batch_size": size}
    if param["backend"] == "LEVELDB":
        feeding.remarks.notes.add(f"{param['source']} is a LevelDB, which is not read: {WRITTEN_BY_CAFFE}")
    if param["rand_skip"]:
        feeding.remarks.notes.add(f"rand_skip {param['rand_skip']} of {layer['name']} is left out")
    split_fields["order"] = "bgr"
    if transform["force_gray"]:
        split_fields["channels"] = 1
    return _with(split_fields, feeding.renamed(layer, "image", "label"), image_transforms(layer, feeding))


def _image_data(layer: Message, feeding: SplitContext) -> dict[str, Any]:
    """`ImageData`: a list of image files with their labels."""
    param = layer["image_data_param"]
    split_fields = {
        "source": "image_folder", "path": feeding.named(param, "root_folder") if param["root_folder"] else ".",
        "list": feeding.named(param, "source"), "batch_size": _batch(param, feeding),
    }  # fmt: skip
    if not param["root_folder"]:
        list_file = feeding.finder.find(param["source"])
        split_fields["path"] = "." if list_file is None else str(list_file.parent)
        base = split_fields["path"]
        feeding.remarks.notes.add(f"the paths in {param['source']} are relative to {base}: `path` is their base")
    if param["new_height"] and param["new_width"]:
        split_fields["size"] = [param["new_height"], param["new_width"]]
    if param["shuffle"]:
        split_fields["shuffle"] = True
    if param["rand_skip"]:
        feeding.remarks.notes.add(f"rand_skip {param['rand_skip']} of {layer['name']} is left out")
    steps = image_transforms(layer, feeding)
    if not param["is_color"]:
        split_fields["channels"] = 1
    else:
        steps.insert(0, {"type": "ReverseChannels"})  # as OpenCV reads them
    return _with(split_fields, feeding.renamed(layer, "image", "label"), steps)


def _hdf5_data(layer: Message, feeding: SplitContext) -> dict[str, Any]:
    """`HDF5Data`: arrays by the names of the tops; labels are floats there."""
    param = layer["hdf5_data_param"]
    fed = feeding.fed(layer)
    split_fields = {
        "source": "hdf5", "path": feeding.named(param, "source"), "arrays": fed,
        "batch_size": _batch(param, feeding),
    }  # fmt: skip
    dtype_of = {name: feeding.inputs[name].get("dtype", "float32") for name in fed}
    dtypes = {name: kind for name, kind in dtype_of.items() if kind != "float32"}
    shapes: dict[str, list[int]] = {name: [] for name in fed if list(feeding.inputs[name].get("shape", [None])) == []}
    if dtypes:
        split_fields["dtypes"] = dtypes
    if shapes:
        split_fields["shapes"] = shapes
    if param["shuffle"]:
        split_fields["shuffle"] = True
    return _with(split_fields, feeding.renamed(layer, *layer["top"]), [])


SOURCES: dict[str, Callable[[Message, SplitContext], dict[str, Any]]] = {
    "Data": _data,
    "ImageData": _image_data,
    "HDF5Data": _hdf5_data,
}


def _program(layers: Sequence[Message], feeding: SplitContext) -> dict[str, Any]:
    """Samples from a Python program: for layers without a source, or for several at once."""
    sizes = [size for layer in layers if (size := batch_size(layer))]
    names = [clean(name) for layer in layers for name in feeding.fed(layer)]
    kinds = ", ".join(dict.fromkeys(layer["type"] for layer in layers))
    feeding.remarks.notes.add(
        f"{feeding.phase}: {kinds} has no source here: give {', '.join(names)} to the training by "
        f"`netspec.train(…, samples={{…}})`, or replace `source: python` in train.yaml"
    )
    return {"source": "python", "fields": names, "batch_size": sizes[0] if sizes else 1}


def batch_size(layer: Message) -> int:
    """Batch size of a data layer; 0 if it does not specify one."""
    match layer["type"]:
        case "DummyData":
            param = layer["dummy_data_param"]
            shapes = [int(shape["dim"][0]) for shape in param["shape"] if len(shape["dim"])]
            return next(iter([*shapes, *map(int, param["num"])]), 0)
        case "Input":
            return next((int(shape["dim"][0]) for shape in layer["input_param"]["shape"] if len(shape["dim"])), 0)
    name = _PARAMS.get(layer["type"])
    return int(layer[name]["batch_size"]) if name else 0


_PARAMS = {
    "Data": "data_param",
    "ImageData": "image_data_param",
    "HDF5Data": "hdf5_data_param",
    "MemoryData": "memory_data_param",
    "WindowData": "window_data_param",
}


def _batch(param: Message, feeding: SplitContext) -> int:
    size: int = param["batch_size"]
    if size < 1:
        feeding.remarks.problem("no samples in a batch", param, "batch_size", expected="above 0", got=size)
    return size


def _with(split_fields: dict[str, Any], renamed: dict[str, str], transforms: list[dict[str, Any]]) -> dict[str, Any]:
    """The split with its inputs and its transforms, if there are any."""
    inputs: dict[str, Any] = {"inputs": renamed} if renamed else {}
    return {**split_fields, **inputs, **({"transforms": transforms} if transforms else {})}
