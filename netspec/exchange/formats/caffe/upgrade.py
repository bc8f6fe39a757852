"""Upgrade nets of earlier versions of Caffe to the last one: V0 and V1 layers, `input`, old data fields.

The rules are those of upgrade_proto.cpp in BVLC/caffe.
"""

from __future__ import annotations

from netspec.errors import InputError, Problem
from netspec.exchange.formats.caffe.proto.message import Message

V1_TYPES = {
    "ABSVAL": "AbsVal", "ACCURACY": "Accuracy", "ARGMAX": "ArgMax", "BNLL": "BNLL", "CONCAT": "Concat",
    "CONTRASTIVE_LOSS": "ContrastiveLoss", "CONVOLUTION": "Convolution", "DATA": "Data",
    "DECONVOLUTION": "Deconvolution", "DROPOUT": "Dropout", "DUMMY_DATA": "DummyData",
    "EUCLIDEAN_LOSS": "EuclideanLoss", "ELTWISE": "Eltwise", "EXP": "Exp", "FLATTEN": "Flatten",
    "HDF5_DATA": "HDF5Data", "HDF5_OUTPUT": "HDF5Output", "HINGE_LOSS": "HingeLoss", "IM2COL": "Im2col",
    "IMAGE_DATA": "ImageData", "INFOGAIN_LOSS": "InfogainLoss", "INNER_PRODUCT": "InnerProduct", "LRN": "LRN",
    "MEMORY_DATA": "MemoryData", "MULTINOMIAL_LOGISTIC_LOSS": "MultinomialLogisticLoss", "MVN": "MVN",
    "POOLING": "Pooling", "POWER": "Power", "RELU": "ReLU", "SIGMOID": "Sigmoid",
    "SIGMOID_CROSS_ENTROPY_LOSS": "SigmoidCrossEntropyLoss", "SILENCE": "Silence", "SOFTMAX": "Softmax",
    "SOFTMAX_LOSS": "SoftmaxWithLoss", "SPLIT": "Split", "SLICE": "Slice", "TANH": "TanH",
    "WINDOW_DATA": "WindowData", "THRESHOLD": "Threshold",
}  # fmt: skip
"""Names of the types, which were numbers in V1."""

_V0_TYPES = {
    "accuracy": "ACCURACY", "bnll": "BNLL", "concat": "CONCAT", "conv": "CONVOLUTION", "data": "DATA",
    "dropout": "DROPOUT", "euclidean_loss": "EUCLIDEAN_LOSS", "flatten": "FLATTEN", "hdf5_data": "HDF5_DATA",
    "hdf5_output": "HDF5_OUTPUT", "im2col": "IM2COL", "images": "IMAGE_DATA", "infogain_loss": "INFOGAIN_LOSS",
    "innerproduct": "INNER_PRODUCT", "lrn": "LRN", "multinomial_logistic_loss": "MULTINOMIAL_LOGISTIC_LOSS",
    "pool": "POOLING", "relu": "RELU", "sigmoid": "SIGMOID", "softmax": "SOFTMAX", "softmax_loss": "SOFTMAX_LOSS",
    "split": "SPLIT", "tanh": "TANH", "window_data": "WINDOW_DATA",
}  # fmt: skip

_CONV, _POOL, _DENSE, _LRN = "convolution_param", "pooling_param", "inner_product_param", "lrn_param"
_DATA, _IMAGES, _WINDOWS, _CHANGED = "data_param", "image_data_param", "window_data_param", "transform_param"
_WEIGHED = {"conv": _CONV, "innerproduct": _DENSE}
_READ = {"data": _DATA, "images": _IMAGES, "window_data": _WINDOWS, "hdf5_data": "hdf5_data_param"}
_SHOWN = dict.fromkeys(("data", "images", "window_data"), _CHANGED)
_V0_FIELDS: dict[str, tuple[str, dict[str, str]]] = {
    "num_output": ("num_output", _WEIGHED),
    "biasterm": ("bias_term", _WEIGHED),
    "weight_filler": ("weight_filler", _WEIGHED),
    "bias_filler": ("bias_filler", _WEIGHED),
    "pad": ("pad", {"conv": _CONV, "pool": _POOL}),
    "kernelsize": ("kernel_size", {"conv": _CONV, "pool": _POOL}),
    "stride": ("stride", {"conv": _CONV, "pool": _POOL}),
    "group": ("group", {"conv": _CONV}),
    "pool": ("pool", {"pool": _POOL}),
    "dropout_ratio": ("dropout_ratio", {"dropout": "dropout_param"}),
    **{name: (name, {"lrn": _LRN}) for name in ("local_size", "alpha", "beta", "k")},
    "source": ("source", _READ | {"infogain_loss": "infogain_loss_param"}),
    "batchsize": ("batch_size", _READ),
    "scale": ("scale", _SHOWN),
    "meanfile": ("mean_file", _SHOWN),
    "cropsize": ("crop_size", _SHOWN),
    "mirror": ("mirror", _SHOWN),
    "rand_skip": ("rand_skip", {"data": _DATA, "images": _IMAGES}),
    "shuffle_images": ("shuffle", {"images": _IMAGES}),
    "new_height": ("new_height", {"images": _IMAGES}),
    "new_width": ("new_width", {"images": _IMAGES}),
    "concat_dim": ("concat_dim", {"concat": "concat_param"}),
    **{
        f"det_{name}": (name, {"window_data": _WINDOWS})
        for name in ("fg_threshold", "bg_threshold", "fg_fraction", "context_pad", "crop_mode")
    },
}
"""The later name of each field of a V0 layer, and its message by the layer's type."""

_OF_PARAMETERS = {"param": "name", "blob_share_mode": "share_mode", "blobs_lr": "lr_mult", "weight_decay": "decay_mult"}
"""Lists of V1 layers with a value per parameter, and the field of the later message per parameter."""
_KEPT = ("blobs", "blobs_lr", "weight_decay", "hdf5_output_param")
"""Fields of V0 layers that V1 layers have too."""


def upgraded(net: Message) -> Message:
    """A net in the form of the last version of Caffe. Raises `InputError` with all problems of old fields."""
    problems: list[Problem] = []
    net = net.copy()
    if "layer" in net and "layers" in net:
        message = "the net has layers of two versions, `layer` and `layers`, which Caffe refuses too"
        problems.append(Problem(message, net["layers"][0].location(), expected="one of both"))
    elif "layers" in net:
        old = _without_padding(net["layers"], problems)
        net["layer"] = [_from_v1(_from_v0(layer, problems) if "layer" in layer else layer, problems) for layer in old]
        del net["layers"]
    for layer in net["layer"]:
        _move_transforms(layer)
    _make_input(net, problems)
    if problems:
        raise InputError(problems)
    return net


def _without_padding(layers: list[Message], problems: list[Problem]) -> list[Message]:
    """The layers without V0 layers of type `padding`, which become a field of the layers after them."""
    padded = {
        top: layer
        for layer in layers
        if "layer" in layer and layer["layer"]["type"] == "padding"
        for top in layer["top"]
    }
    for layer in layers:
        for index, bottom in enumerate(layer["bottom"]):
            before = padded.get(bottom)
            if before is None or layer is before:
                continue
            if layer["layer"]["type"] not in ("conv", "pool") or len(before["bottom"]) != 1:
                problems.append(
                    Problem(f"a layer of type `{layer['layer']['type']}` after a padding", layer.location(),
                            expected="a layer of type `conv` or `pool`")
                )  # fmt: skip
                continue
            before["layer"].hand_over("pad", layer["layer"], "pad")
            layer["bottom"][index] = before["bottom"][0]
    return [layer for layer in layers if layer["layer"]["type"] != "padding"]


def _from_v0(old: Message, problems: list[Problem]) -> Message:
    """Convert a V0 layer, which is stored in a field of a V1 layer, to V1."""
    inner, new = old["layer"], Message("V1LayerParameter", old.source, old.offset)
    for name in ("bottom", "top"):
        old.hand_over(name, new, name)
    kind = inner["type"]
    for name in inner:
        if name == "name":
            inner.hand_over(name, new, name)
        elif name == "type":
            if kind not in _V0_TYPES:
                problems.append(Problem(f"`{kind}` is not a type of layers", inner.location("type")))
            else:
                inner.hand_over(name, new, name)
                new.put("type", _V0_TYPES[kind])
        elif name in _KEPT:
            inner.hand_over(name, new, name)
        else:
            new_name, holders = _V0_FIELDS[name]
            if kind in holders:
                inner.hand_over(name, new.edit(holders[kind]), new_name)
            elif kind in _V0_TYPES:
                problems.append(Problem(f"a layer of type `{kind}` has no `{name}`", inner.location(name)))
    return new


def _from_v1(old: Message, problems: list[Problem]) -> Message:
    """Convert a V1 layer to the last version."""
    new = Message("LayerParameter", old.source, old.offset)
    for name in old:
        if name == "type":
            if old["type"] not in V1_TYPES:
                problems.append(Problem("the layer has no type", old.location("type")))
            old.hand_over("type", new, "type")
            new.put("type", V1_TYPES.get(old["type"], ""))
        elif name not in _OF_PARAMETERS:
            old.hand_over(name, new, name)
    for name, new_name in _OF_PARAMETERS.items():
        for index, value in enumerate(old[name]):
            while len(new["param"]) <= index:
                new.add("param", Message("ParamSpec", old.source, old.offset), old.offset)
            new["param"][index][new_name] = value
    new.unknown = list(old.unknown)
    return new


def _move_transforms(layer: Message) -> None:
    """Move transforms of samples from the data layer's own message to `transform_param`."""
    for holder in (_DATA, _IMAGES, _WINDOWS):
        if holder in layer:
            for name in ("scale", "mean_file", "crop_size", "mirror"):
                if name in layer[holder] and name not in layer[_CHANGED]:
                    layer[holder].hand_over(name, layer.edit(_CHANGED), name)


def _make_input(net: Message, problems: list[Problem]) -> None:
    """Replace `input` with `input_dim` or `input_shape` by a layer of type Input, the first one."""
    names = net["input"]
    if not names:
        return
    new = Message("LayerParameter", net.source, net.offset, name="input", type="Input")
    for index, name in enumerate(names):
        new.add("top", name)
        sizes = net["input_dim"][4 * index : 4 * index + 4]
        if net["input_shape"]:
            shapes = net["input_shape"]
            shape = shapes[index] if index < len(shapes) else None
        else:
            shape = Message("BlobShape", net.source, net.offset, dim=sizes) if len(sizes) == 4 else None
        if shape is not None:
            new.edit("input_param").add("shape", shape)
        elif net["input_shape"] or net["input_dim"]:
            problems.append(
                Problem(f"the input `{name}` has no shape", net.location("input", index),
                        expected="four `input_dim`, or one `input_shape`, for each `input`")
            )  # fmt: skip
    net["layer"] = [new, *net["layer"]]
    for name in ("input", "input_dim", "input_shape"):
        del net[name]
