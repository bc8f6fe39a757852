"""Layers of netspec that a layer of Caffe computes: one rule for each kind; an `activation` becomes a second layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.writing.writer import HINTS, CaffeWriter, Weight, writes
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.graph.ops.window import Window
from netspec.layers.initializers.base import Ones

if TYPE_CHECKING:
    from netspec.schema.specs.links import LayerLink

LARGEST = 3.4028234663852886e38
"""The largest float32, for the missing limit of a Clip."""
HINTS |= {
    "SeparableConv2D": "use DepthwiseConv2D and Conv2D", "UpSampling2D": "use Conv2DTranspose", "Slice": "use Split",
    "ZeroPadding2D": "use the `padding` of the next layer", "Cropping2D": "use Crop", "CenterCrop": "use Crop",
    "GlobalAveragePooling1D": "use Reduction", "GlobalAveragePooling3D": "use Reduction", "Normalization": "use Scale",
}  # fmt: skip


@writes("Conv1D", "Conv2D", "Conv3D", "DepthwiseConv1D", "DepthwiseConv2D")
def convolution(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Convolution; a depthwise one has one group per channel."""
    shape, depthwise = writer.shape(link.sources[0]), fields.type.startswith("Depthwise")
    window = Window.of(shape[2:], fields.kernel_size, fields.strides, fields.padding, fields.dilation_rate)
    pads = []
    for axis, wanted in enumerate(window.out(tuple(shape[2:]))):
        before, after = window.pads[axis]
        reach = (window.size[axis] - 1) * window.dilation[axis] + 1
        if (shape[2 + axis] + 2 * before - reach) // window.strides[axis] + 1 != wanted:
            raise _uneven(before, after)
        pads.append(before)
    initializer = fields.depthwise_initializer if depthwise else fields.kernel_initializer
    param = (
        {"num_output": shape[1] * fields.depth_multiplier, "group": shape[1]}
        if depthwise
        else ({"num_output": fields.filters, "group": fields.groups})
    )
    _convolution(writer, link, fields, "Convolution", initializer, param | _sizes(window, pads))


@writes("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")
def transposed_convolution(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Deconvolution: its output has (size - 1) · stride + reach - 2 · pad elements along an axis."""
    sizes, wanted, pads = writer.shape(link.sources[0])[2:], writer.shape(link.name)[2:], []
    for axis, size in enumerate(sizes):
        before = fields.axis_of(axis, size)[0][0]
        reach = (fields.kernel_size[axis] - 1) * fields.dilation_rate[axis] + 1
        after = (size - 1) * fields.strides[axis] + reach - before - wanted[axis]
        if after != before:
            raise _uneven(before, after)
        pads.append(before)
    window = Window(fields.kernel_size, fields.strides, (), fields.dilation_rate)
    param = {"num_output": fields.filters, "group": fields.groups, **_sizes(window, pads)}
    _convolution(writer, link, fields, "Deconvolution", fields.kernel_initializer, param)


def _uneven(before: int, after: int) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"Caffe pads both sides of an axis by the same amount, got {before} and {after}",
        hint="give `padding` as a number, or choose sizes for which both sides are equal",
    )


def _convolution(
    writer: CaffeWriter, link: LayerLink, fields: Any, type_: str, initializer: Any, param: dict[str, Any]
) -> None:
    weights = [writer.weight(link, "kernel", initializer), *_bias(writer, link, fields)]
    param |= {"bias_term": fields.use_bias, **writer.fillers(weights, "weight_filler", "bias_filler")}
    writer.layer(link.name, type_, writer.bottoms(link), [link.name], param, weights, link)
    _activation(writer, link, fields.activation, 1)


def _bias(writer: CaffeWriter, link: LayerLink, fields: Any) -> list[Weight]:
    return [writer.weight(link, "bias", fields.bias_initializer)] if fields.use_bias else []


def _sizes(window: Window, pads: Sequence[int]) -> dict[str, Any]:
    """The fields of a window: one value if it is that of all axes, else by axis, `_h` and `_w` for images."""
    sizes: dict[str, Any] = {}
    for name, short, values, default in (
        ("kernel_size", "kernel", window.size, None), ("stride", "stride", window.strides, 1),
        ("pad", "pad", pads, 0), ("dilation", "", window.dilation, 1),
    ):  # fmt: skip
        if all(value == default for value in values):
            continue
        if short and len(values) == 2 and values[0] != values[1]:
            sizes |= {f"{short}_h": values[0], f"{short}_w": values[1]}
        else:
            sizes[name] = list(values[:1] if len(set(values)) == 1 else values)
    return sizes


@writes("MaxPooling2D", "StochasticPooling2D", "AveragePooling2D")
def pooling(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Pooling: Caffe rounds the number of windows up, or down with `round_mode` (Caffe of 2018 or later)."""
    if any(rate != 1 for rate in getattr(fields, "dilation_rate", ())):
        raise UnsupportedFeature("Caffe's Pooling has no dilation")
    sizes, wanted = writer.shape(link.sources[0])[2:], writer.shape(link.name)[2:]
    window = Window.of(sizes, fields.pool_size, fields.strides or fields.pool_size, fields.padding)
    pads, roundings = [before for before, _ in window.pads], {"CEIL", "FLOOR"}
    for axis, count in enumerate(wanted):
        size, pad, kernel, stride = sizes[axis], pads[axis], window.size[axis], window.strides[axis]
        if pad >= kernel:
            raise UnsupportedFeature(f"Caffe's padding is smaller than the window, got {pad} for {kernel}")
        counts = {"CEIL": -((size + 2 * pad - kernel) // -stride) + 1, "FLOOR": (size + 2 * pad - kernel) // stride + 1}
        counts = {name: n - (pad > 0 and (n - 1) * stride >= size + pad) for name, n in counts.items()}
        if count not in counts.values():
            raise _uneven(*window.pads[axis])
        roundings &= {name for name, windows in counts.items() if windows == count}
        if fields.type == "AveragePooling2D":
            before, after = window.pads[axis] if fields.count_include_pad else (0, 0)
            starts = [index * stride - pad for index in range(count)]
            ours = [min(start + kernel, size + after) - max(start, -before) for start in starts]
            if ours != [min(start + kernel, size + pad) - start for start in starts]:
                raise UnsupportedFeature("Caffe's averages include the padding", hint="set `count_include_pad: true`")
    if not roundings:
        raise UnsupportedFeature("its sizes are rounded up along one axis and down along the other")
    kind = {"Max": "MAX", "Sto": "STOCHASTIC", "Ave": "AVE"}[fields.type[:3]]
    fixed = {name: value[0] if isinstance(value, list) else value for name, value in _sizes(window, pads).items()}
    if "CEIL" not in roundings:
        fixed["round_mode"] = "FLOOR"
        writer.notes.add(
            f"`{link.name}` has `round_mode: FLOOR`, which needs Caffe of 2018 or later",
            "{count} layers have `round_mode: FLOOR`, which needs Caffe of 2018 or later", f"`{link.name}`",
        )  # fmt: skip
    _plain(writer, link, "Pooling", {"pool": kind, **fixed})


@writes("GlobalMaxPooling2D", "GlobalAveragePooling2D")
def global_pooling(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Pooling of all positions, (N, C, 1, 1) in Caffe; a Flatten removes the axes if they are not kept."""
    top = link.name if fields.keepdims else f"{link.name}_pooled"
    param = {"pool": "AVE" if fields.type == "GlobalAveragePooling2D" else "MAX", "global_pooling": True}
    writer.layer(top, "Pooling", writer.bottoms(link), [top], param)
    if not fields.keepdims:
        writer.layer(link.name, "Flatten", [top], [link.name])


@writes("SpatialPyramidPooling")
def pyramid(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """SPP: levels of 1, 2, 4, … bins."""
    levels = fields.levels
    count = levels if isinstance(levels, int) else len(levels)
    if not isinstance(levels, int) and list(levels) != [2**level for level in range(count)]:
        raise UnsupportedFeature("Caffe's SPP has levels of 1, 2, 4, … bins")
    kind = "MAX" if fields.pool == "max" else "AVE"
    _plain(writer, link, "SPP", {"pyramid_height": count, "pool": kind})


@writes("Dense")
def dense(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """InnerProduct over the last axis; its matrix is (out, in)."""
    weights = [writer.weight(link, "kernel", fields.kernel_initializer, np.transpose), *_bias(writer, link, fields)]
    param = {"num_output": fields.units, "bias_term": fields.use_bias, "axis": len(writer.shape(link.name)) - 1}
    param |= writer.fillers(weights, "weight_filler", "bias_filler")
    writer.layer(link.name, "InnerProduct", writer.bottoms(link), [link.name], param, weights, link)
    _activation(writer, link, fields.activation, -1)


@writes("Embedding")
def embedding(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Embed."""
    table = writer.weight(link, "embeddings", fields.embeddings_initializer)
    param = {"input_dim": fields.input_dim, "num_output": fields.output_dim, "bias_term": False}
    param |= writer.fillers([table], "weight_filler")
    writer.layer(link.name, "Embed", writer.bottoms(link), [link.name], param, [table], link)


@writes("BatchNormalization")
def batch_normalization(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """BatchNorm with mean, variance and their factor, then Scale in place."""
    if not fields.track_running_stats:
        raise UnsupportedFeature(
            "Caffe's BatchNorm uses moving averages in inference", hint="set `track_running_stats: true`"
        )
    if fields.axis % len(writer.shape(link.name)) != 1:
        raise UnsupportedFeature("Caffe's BatchNorm normalizes the channels, axis 1")
    factor = np.float32(1)
    if fields.momentum is None:  # Caffe stores sums over batches, and the number of batches
        factor = np.float32(max(int(writer.weight(link, "num_batches_tracked").values), 1))
    statistics = [writer.weight(link, name).values * factor for name in ("moving_mean", "moving_variance")]
    param = {"eps": fields.epsilon, "moving_average_fraction": 1.0 if fields.momentum is None else fields.momentum}
    if writer.training and not fields.trainable:
        param["use_global_stats"] = True
    weights = [Weight(values) for values in (*statistics, np.full(1, factor, np.float32))]
    writer.layer(link.name, "BatchNorm", writer.bottoms(link), [link.name], param, weights)
    if fields.scale or fields.center:
        ones = Weight(np.ones(statistics[0].shape, np.float32), initializer=Ones())
        scales = [writer.weight(link, "gamma", fields.gamma_initializer) if fields.scale else ones]
        if fields.center:
            scales.append(writer.weight(link, "beta", fields.beta_initializer))
        _scale(writer, link, [link.name], scales, "Scale", {"bias_term": fields.center}, part="_scale")


@writes("Scale", "Bias")
def scale_and_bias(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Scale or Bias, by learned arrays or by a second input; of the latter the bias is a second layer."""
    axis, names = fields.axis % len(writer.shape(link.name)), []
    names += ["scale"] if fields.type == "Scale" and len(link.sources) == 1 else []
    names += ["bias"] if getattr(fields, "use_bias", len(link.sources) == 1) else []
    weights = [writer.weight(link, name, getattr(fields, f"{name}_initializer")) for name in names]
    common = {"axis": axis, "num_axes": fields.num_axes}
    if len(link.sources) == 1:
        bias = {"bias_term": "bias" in names} if fields.type == "Scale" else {}
        _scale(writer, link, writer.bottoms(link), weights, fields.type, common | bias)
        return
    if axis != 1 and len(writer.shape(link.sources[1])) > 1:
        raise UnsupportedFeature("the axes of Caffe's second input are consecutive, starting with the batch")
    _scale(writer, link, writer.bottoms(link), [], fields.type, {"axis": 0})
    if weights:
        _scale(writer, link, [link.name], weights, "Bias", common, part="_bias")


def _scale(
    writer: CaffeWriter, link: LayerLink, bottoms: list[str], weights: list[Weight], type_: str, param: dict[str, Any],
    part: str = "",
) -> None:  # fmt: skip
    param |= writer.fillers(weights, "filler", "bias_filler")
    writer.layer(link.name + part, type_, bottoms, [link.name], param, weights, link)


@writes("PReLU")
def prelu(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """PReLU, with a slope per channel, or one for all."""
    slopes, channels = writer.weight(link, "alpha", fields.alpha_initializer), writer.shape(link.name)[1]
    count, rest = slopes.values.shape[0], slopes.values.shape[1:]
    if any(size != 1 for size in rest) or count not in (1, channels):
        raise UnsupportedFeature("Caffe's PReLU has a slope per channel, or one for all")
    shared = count == 1 and channels != 1
    weight = Weight(slopes.values.reshape(() if shared else (count,)), slopes.state, slopes.initializer)
    param = {"channel_shared": shared, **writer.fillers([weight], "filler")}
    writer.layer(link.name, "PReLU", writer.bottoms(link), [link.name], param, [weight], link)


@writes("LocalResponseNormalization")
def local_response(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """LRN."""
    within = fields.region == "within_channel"
    if fields.size % 2 == 0:
        raise UnsupportedFeature(f"the size of Caffe's LRN is odd, got {fields.size}")
    if within and fields.k != 1:
        raise UnsupportedFeature(f"the k of Caffe's LRN within a channel is 1, got {fields.k:g}")
    if not within and len(writer.shape(link.name)) != 4:
        raise UnsupportedFeature("Caffe's LRN normalizes images, (N, C, H, W)")
    region = "WITHIN_CHANNEL" if within else "ACROSS_CHANNELS"
    _plain(writer, link, "LRN", {
        "local_size": fields.size, "alpha": fields.alpha, "beta": fields.beta, "k": fields.k, "norm_region": region,
    })  # fmt: skip


def _plain(writer: CaffeWriter, link: LayerLink, type_: str, param: Mapping[str, Any] = MappingProxyType({})) -> None:
    """A layer without weights."""
    writer.layer(link.name, type_, writer.bottoms(link), [link.name], param)


def _alias(writer: CaffeWriter, link: LayerLink) -> None:
    """A layer that computes nothing: its value is the blob that it reads."""
    writer.blobs[link.name] = writer.bottoms(link)[0]


@writes("Identity", "ActivityRegularization")
def identity(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """No layer."""
    _alias(writer, link)


@writes("Dropout", "AlphaDropout", "GaussianDropout", "GaussianNoise")
@writes("SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D")
def dropout(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Dropout; other noise is left out, since it changes nothing in inference."""
    if fields.type == "Dropout" and fields.noise_shape is None and fields.rate:
        _plain(writer, link, "Dropout", {"dropout_ratio": fields.rate})
    elif writer.training and (fields.type != "Dropout" or fields.rate):
        raise UnsupportedFeature("Caffe's Dropout drops single elements, and it has no other noise", hint="use Dropout")
    else:
        _alias(writer, link)


KEEPS_INPUT = ("BNLL", "Softmax")
"""Layers whose gradients need their input: they do not run in place."""
_SWISH, _SLOPE = ("Swish", {"beta": "beta"}), ("ReLU", {"negative_slope": "negative_slope"})
_BASE = {"base": "base", "scale": "scale", "shift": "shift"}
SAME: dict[str, tuple[str, Mapping[str, str]]] = {
    "leaky_relu": _SLOPE, "LeakyReLU": _SLOPE, "swish": _SWISH, "Swish": _SWISH, "silu": ("Swish", {}),
    "elu": ("ELU", {"alpha": "alpha"}), "ELU": ("ELU", {"alpha": "alpha"}), "sigmoid": ("Sigmoid", {}),
    "tanh": ("TanH", {}), "softplus": ("BNLL", {}), "BNLL": ("BNLL", {}), "exponential": ("Exp", {}),
    "Abs": ("AbsVal", {}), "Power": ("Power", {"power": "power", "scale": "scale", "shift": "shift"}),
    "Exp": ("Exp", _BASE), "Log": ("Log", _BASE), "Threshold": ("Threshold", {"threshold": "threshold"}),
    "MVN": ("MVN", {name: name for name in ("normalize_variance", "across_channels")} | {"eps": "epsilon"}),
    "Concatenate": ("Concat", {"axis": "axis"}), "Tile": ("Tile", {"axis": "axis", "tiles": "tiles"}),
    "Crop": ("Crop", {"axis": "axis", "offset": "offset"}), "BatchReindex": ("BatchReindex", {}),
}  # fmt: skip
"""Layers and activation functions that Caffe has with the same fields: its layer, and our field for each of Caffe's."""


@writes(*(kind for kind in SAME if kind[0].isupper()))
def same_fields(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """The layers of the table."""
    _plain(writer, link, *_same(writer, link, fields))


def _same(writer: CaffeWriter, link: LayerLink, fields: Any) -> tuple[str, dict[str, Any]]:
    type_, names = SAME[fields.type]
    param = {name: getattr(fields, ours) for name, ours in names.items()}
    if "axis" in param:
        param["axis"] = writer.axis(link, param["axis"])
    return type_, param


def _function(writer: CaffeWriter, link: LayerLink, function: Any, axis: int) -> tuple[str, dict[str, Any]]:
    """The layer that computes an activation function of a layer's value, and its parameters."""
    if function.type in SAME:
        return _same(writer, link, function)
    match function.type:
        case "softmax":
            own = axis if function.axis is None else function.axis
            return "Softmax", {"axis": own % len(writer.shape(link.name))}
        case "relu":
            return _rectifier(function)
        case "relu6":
            return "Clip", {"min": 0.0, "max": 6.0}
        case "hard_tanh":
            return "Clip", {"min": -1.0, "max": 1.0}
    raise UnsupportedFeature(f"Caffe has no layer for the function {function.type}")


def _rectifier(fields: Any) -> tuple[str, dict[str, Any]]:
    if fields.threshold or (fields.max_value is not None and fields.negative_slope):
        raise UnsupportedFeature("Caffe's ReLU has a negative slope, or with Clip a largest value, but no threshold")
    if fields.max_value is not None:
        return "Clip", {"min": 0.0, "max": fields.max_value}
    return "ReLU", {"negative_slope": fields.negative_slope}


def _activation(writer: CaffeWriter, link: LayerLink, function: Any, axis: int) -> None:
    """Add the function in a layer's field `activation`, in place if possible."""
    if function is None or function.type == "linear":
        return
    type_, param = _function(writer, link, function, axis)
    bottom = link.name
    if type_ in KEEPS_INPUT:
        bottom = f"{link.name}_before"
        writer.layers[-1].message["top"] = [bottom]
    writer.layer(f"{link.name}_{function.type}", type_, [bottom], [link.name], param)


@writes("Activation")
def activation(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """The layer of the function."""
    if fields.activation.type == "linear":
        _alias(writer, link)
    else:
        _plain(writer, link, *_function(writer, link, fields.activation, fields.axis))


@writes("ReLU")
def relu(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """ReLU, or Clip if there is a largest value."""
    _plain(writer, link, *_rectifier(fields))


@writes("Clip")
def clip(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Clip; a missing limit is the largest float32."""
    low, high = fields.min, fields.max
    _plain(writer, link, "Clip", {"min": -LARGEST if low is None else low, "max": LARGEST if high is None else high})


@writes("Softmax")
def softmax(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Softmax over one axis."""
    if len(link.sources) > 1 or len(fields.axis) != 1:
        raise UnsupportedFeature("Caffe's Softmax is over one axis, without a mask")
    _plain(writer, link, "Softmax", {"axis": writer.axis(link, fields.axis[0])})


@writes("Add", "Subtract", "Average", "Multiply", "Maximum", "WeightedSum")
def merge(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Eltwise: sums with coefficients, products and maxima of inputs of one shape."""
    count, shapes = len(link.sources), {writer.shape(source) for source in link.sources}
    if len(shapes) > 1:
        found = " and ".join(str(list(shape[1:])) for shape in sorted(shapes))
        raise UnsupportedFeature(
            f"the inputs of Caffe's Eltwise have one shape, got {found}", hint="use Scale, Bias or Tile"
        )
    if count < 2:
        raise UnsupportedFeature("Caffe's Eltwise has two inputs or more")
    coefficients = {
        "Subtract": [1.0, -1.0], "Average": [1 / count] * count, "WeightedSum": getattr(fields, "coefficients", None),
    }.get(fields.type)  # fmt: skip
    operation = {"Multiply": "PROD", "Maximum": "MAX"}.get(fields.type, "SUM")
    _plain(writer, link, "Eltwise", {"operation": operation, "coeff": coefficients})


@writes("Split")
def split(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Slice; a Silence reads the parts that nothing reads, which would be outputs."""
    axis = writer.axis(link, fields.axis)
    writer.blobs[link.name] = link.outputs[0]
    points = list(accumulate(writer.shape(name)[axis] for name in link.outputs))[:-1]
    if not points:
        raise UnsupportedFeature("Caffe's Slice has two parts or more")
    writer.layer(link.name, "Slice", writer.bottoms(link), link.outputs,
                 {"axis": axis, "slice_point": points})  # fmt: skip
    read = {writer.blob(name) for name in writer.readers}
    if unread := [name for name in link.outputs if name not in read]:
        writer.layer(f"{link.name}_rest", "Silence", unread, [])


@writes("Flatten", "Reshape", "ExpandDims", "Squeeze")
def reshape(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Flatten or Reshape; a Flatten is left out if only Dense layers read it, since InnerProduct flattens."""
    flattens = fields.type == "Flatten" and len(writer.shape(link.sources[0])) > 1
    if flattens and set(writer.readers.get(link.name, ())) == {"Dense"}:
        _alias(writer, link)
    elif flattens:
        _plain(writer, link, "Flatten")
    else:
        _plain(writer, link, "Reshape", {"shape": Message("BlobShape", dim=[0, *writer.shape(link.name)[1:]])})


@writes("Reduction")
def reduction(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Reduction of all axes from one on, which are removed."""
    rank = len(writer.shape(link.sources[0]))
    axes = sorted(range(1, rank) if fields.axes is None else (axis % rank for axis in fields.axes))
    if fields.operation not in ("sum", "asum", "sumsq", "mean"):
        raise UnsupportedFeature(f"Caffe's Reduction has no operation {fields.operation}")
    if axes != list(range(axes[0], rank)) or len(writer.shape(link.name)) != axes[0]:
        raise UnsupportedFeature(
            "Caffe's Reduction is over all axes from one on, and removes them", hint="set `keepdims: false`"
        )
    _plain(writer, link, "Reduction", {"operation": fields.operation.upper(), "axis": axes[0]})


@writes("ArgMax")
def argmax(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """ArgMax along an axis, which stays; the indices are floats in Caffe."""
    if fields.out_max_val or fields.select_last_index or not (fields.keepdims or fields.top_k > 1):
        raise UnsupportedFeature("Caffe's ArgMax returns the first index of the largest value, and keeps its axis",
                     hint="set `keepdims: true`")  # fmt: skip
    axis = fields.axis % len(writer.shape(link.sources[0]))
    _plain(writer, link, "ArgMax", {"axis": axis, "top_k": fields.top_k})
