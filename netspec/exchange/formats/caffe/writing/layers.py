"""Write layers of netspec as layers of Caffe: one rule for each type; an `activation` becomes a second layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np

from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.rules.pooling import GLOBAL, SLIDING
from netspec.exchange.formats.caffe.rules.same_fields import SAME_FIELDS
from netspec.exchange.formats.caffe.rules.shape_ops import OPERATIONS
from netspec.exchange.formats.caffe.rules.weighted import window_fields
from netspec.exchange.formats.caffe.writing.writer import HINTS, CaffeWriter, Weight, writes
from netspec.exchange.unsupported import UnsupportedFeature, require
from netspec.graph.ops.window import Window
from netspec.schema.specs.links import LayerLink

MAX_FLOAT32 = 3.4028234663852886e38
"""The limit of Caffe's Clip if netspec's has none."""
HINTS |= {
    "SeparableConv2D": "use DepthwiseConv2D and Conv2D", "UpSampling2D": "use Conv2DTranspose", "Slice": "use Split",
    "ZeroPadding2D": "use the `padding` of the next layer", "Cropping2D": "use Crop", "CenterCrop": "use Crop",
    "GlobalAveragePooling1D": "use Reduction", "GlobalAveragePooling3D": "use Reduction", "Normalization": "use Scale",
}  # fmt: skip


@writes("Conv1D", "Conv2D", "Conv3D", "DepthwiseConv1D", "DepthwiseConv2D")
@writes("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")
def convolution(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Convolution or Deconvolution; a depthwise one has one group per channel."""
    channels, *sizes = writer.shape(link.sources[0])[1:]
    depthwise, transposed = fields.type.startswith("Depthwise"), fields.type.endswith("Transpose")
    window = Window(fields.kernel_size, fields.strides, (), fields.dilation_rate)
    if not transposed:
        window = Window.of(tuple(sizes), fields.kernel_size, fields.strides, fields.padding, fields.dilation_rate)
    padding = []
    for axis, (size, output_size) in enumerate(zip(sizes, writer.shape(link.name)[2:], strict=True)):
        stride, reach = window.strides[axis], (window.size[axis] - 1) * window.dilation[axis] + 1
        if transposed:
            before = fields.axis_of(axis, size)[0][0]
            after = (size - 1) * stride + reach - before - output_size
            fits = before == after
        else:
            before, after = window.pads[axis]
            fits = (size + 2 * before - reach) // stride + 1 == output_size
        if not fits:
            raise _uneven(before, after)
        padding.append(before)
    param = {"num_output": channels * fields.depth_multiplier, "group": channels} if depthwise else {
        "num_output": fields.filters, "group": fields.groups}  # fmt: skip
    param |= {**window_fields(window.size, window.strides, padding, window.dilation), "bias_term": fields.use_bias}
    _with_bias(writer, link, "Deconvolution" if transposed else "Convolution", writer.weight(link, "kernel"), param)
    _activation(writer, link, fields.activation, 1)


@writes("Dense")
def dense(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """InnerProduct over the last axis; its matrix is (out, in)."""
    kernel = writer.weight(link, "kernel")
    param = {"num_output": fields.units, "bias_term": fields.use_bias, "axis": len(writer.shape(link.name)) - 1}
    _with_bias(writer, link, "InnerProduct", replace(kernel, values=np.ascontiguousarray(kernel.values.T)), param)
    _activation(writer, link, fields.activation, -1)


def _with_bias(writer: CaffeWriter, link: LayerLink, type_: str, kernel: Weight, param: dict[str, Any]) -> None:
    """Add a layer that has a kernel, and a bias if it has a `bias_term`."""
    biases = [writer.weight(link, "bias")] if param["bias_term"] else []
    writer.add(link, type_, param, [kernel, *biases])


def _uneven(before: int, after: int) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"Caffe pads both sides of an axis by the same amount, got {before} and {after}",
        hint="give `padding` as a number, or choose sizes for which both sides are equal",
    )


@writes(*SLIDING.values())
def pooling(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Pooling: Caffe rounds the number of windows up, or down with `round_mode` (Caffe of 2018 or later)."""
    require(all(rate == 1 for rate in getattr(fields, "dilation_rate", ())), "Caffe's Pooling has no dilation")
    sizes = writer.shape(link.sources[0])[2:]
    window = Window.of(sizes, fields.pool_size, fields.strides or fields.pool_size, fields.padding)
    padding, roundings = [before for before, _ in window.pads], {"CEIL", "FLOOR"}
    for axis, count in enumerate(writer.shape(link.name)[2:]):
        size, pad, kernel, stride = sizes[axis], padding[axis], window.size[axis], window.strides[axis]
        require(pad < kernel, f"Caffe's padding is smaller than the window, got {pad} for {kernel}")
        counts = {"CEIL": -((size + 2 * pad - kernel) // -stride) + 1, "FLOOR": (size + 2 * pad - kernel) // stride + 1}
        counts = {name: n - (pad > 0 and (n - 1) * stride >= size + pad) for name, n in counts.items()}
        if count not in counts.values():
            raise _uneven(*window.pads[axis])
        roundings &= {name for name, windows in counts.items() if windows == count}
        if fields.type == "AveragePooling2D":
            before, after = window.pads[axis] if fields.count_include_pad else (0, 0)
            starts = [index * stride - pad for index in range(count)]
            divisors = [min(start + kernel, size + after) - max(start, -before) for start in starts]
            require(divisors == [min(start + kernel, size + pad) - start for start in starts],
                    "Caffe's averages include the padding", hint="set `count_include_pad: true`")  # fmt: skip
    require(bool(roundings), "it would have to round sizes up along one axis and down along the other")
    fields_of_window = window_fields(window.size, window.strides, padding, window.dilation)
    param = {name: value[0] if isinstance(value, list) else value for name, value in fields_of_window.items()}
    if "CEIL" not in roundings:
        param["round_mode"] = "FLOOR"
        writer.notes.add(
            f"`{link.name}` has `round_mode: FLOOR`, which needs Caffe of 2018 or later",
            "{count} layers have `round_mode: FLOOR`, which needs Caffe of 2018 or later", f"`{link.name}`",
        )  # fmt: skip
    writer.add(link, "Pooling", {"pool": _key(SLIDING, fields.type), **param})


def _key(names: Mapping[str, str], type_: str, default: str = "") -> str:
    """Caffe's name of a type, from a table of the import rules, which maps Caffe's names to netspec's."""
    return next((name for name, ours in names.items() if ours == type_), default)


@writes(*GLOBAL.values())
def global_pooling(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Pooling of all positions, (N, C, 1, 1) in Caffe; a Flatten removes the axes if they are not kept."""
    top = link.name if fields.keepdims else f"{link.name}_pooled"
    param = {"pool": _key(GLOBAL, fields.type), "global_pooling": True}
    writer.layer(top, "Pooling", writer.bottoms(link), [top], param)
    if not fields.keepdims:
        writer.layer(link.name, "Flatten", [top], [link.name])


@writes("SpatialPyramidPooling")
def pyramid(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """SPP: levels of 1, 2, 4, … bins."""
    levels = 2 ** np.arange(fields.levels) if isinstance(fields.levels, int) else fields.levels
    require(list(levels) == [2**level for level in range(len(levels))], "Caffe's SPP has levels of 1, 2, 4, … bins")
    writer.add(link, "SPP", {"pyramid_height": len(levels), "pool": "MAX" if fields.pool == "max" else "AVE"})


@writes("Embedding")
def embedding(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Embed."""
    param = {"input_dim": fields.input_dim, "num_output": fields.output_dim, "bias_term": False}
    writer.add(link, "Embed", param, [writer.weight(link, "embeddings")])


@writes("BatchNormalization")
def batch_normalization(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """BatchNorm with mean, variance and their factor, then Scale in place."""
    require(fields.track_running_stats, "Caffe's BatchNorm uses moving averages in inference",
            hint="set `track_running_stats: true`")  # fmt: skip
    require(writer.axis(link, fields.axis) == 1, "Caffe's BatchNorm normalizes the channels, axis 1")
    factor = np.float32(1)
    if fields.momentum is None:  # Caffe stores sums over batches, and the number of batches
        factor = np.float32(max(int(writer.weight(link, "num_batches_tracked").values), 1))
    statistics = [writer.weight(link, name).values * factor for name in ("moving_mean", "moving_variance")]
    param = {"eps": fields.epsilon, "moving_average_fraction": 1.0 if fields.momentum is None else fields.momentum}
    writer.add(link, "BatchNorm", param, [Weight(values) for values in (*statistics, np.full(1, factor, np.float32))])
    if fields.scale or fields.center:
        ones = Weight(np.ones(statistics[0].shape, np.float32))
        weights = [writer.weight(link, "gamma") if fields.scale else ones]
        weights += [writer.weight(link, "beta")] if fields.center else []
        param = {"bias_term": fields.center}
        writer.layer(f"{link.name}_scale", "Scale", [link.name], [link.name], param, weights)


@writes("Scale", "Bias")
def scale_and_bias(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Scale or Bias, by learned arrays or by a second input."""
    axis, scales = writer.axis(link, fields.axis), fields.type == "Scale"
    if len(link.sources) > 1:
        require(axis == 1 or len(writer.shape(link.sources[1])) == 1,
                "the axes of Caffe's second input are consecutive, starting with the batch")  # fmt: skip
        require(not (scales and fields.use_bias), "Caffe's Scale by a second input has no bias", hint="use Bias for it")
        writer.add(link, fields.type, {"axis": 0})
        return
    names = [*(["scale"] if scales else []), *(["bias"] if getattr(fields, "use_bias", True) else [])]
    param = {"axis": axis, "num_axes": fields.num_axes, **({"bias_term": fields.use_bias} if scales else {})}
    writer.add(link, fields.type, param, [writer.weight(link, name) for name in names])


@writes("PReLU")
def prelu(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """PReLU, with a slope per channel, or one for all."""
    slopes, channels = writer.weight(link, "alpha"), writer.shape(link.name)[1]
    count, *rest = slopes.values.shape
    require(all(size == 1 for size in rest) and count in (1, channels),
            "Caffe's PReLU has a slope per channel, or one for all")  # fmt: skip
    shared = count == 1 and channels != 1
    weight = replace(slopes, values=slopes.values.reshape(() if shared else (count,)))
    writer.add(link, "PReLU", {"channel_shared": shared}, [weight])


@writes("LocalResponseNormalization")
def local_response(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """LRN."""
    within = fields.region == "within_channel"
    require(fields.size % 2, f"the size of Caffe's LRN is odd, got {fields.size}")
    require(not within or fields.k == 1, f"the k of Caffe's LRN within a channel is 1, got {fields.k:g}")
    require(within or len(writer.shape(link.name)) == 4, "Caffe's LRN normalizes images, (N, C, H, W)")
    param = {"local_size": fields.size, "alpha": fields.alpha, "beta": fields.beta, "k": fields.k}
    writer.add(link, "LRN", {**param, "norm_region": "WITHIN_CHANNEL" if within else "ACROSS_CHANNELS"})


@writes("Identity", "ActivityRegularization")
def identity(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Write no layer: the value is the blob that the layer reads."""
    writer.blobs[link.name] = writer.bottoms(link)[0]


@writes("Dropout", "AlphaDropout", "GaussianDropout", "GaussianNoise")
@writes("SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D")
def dropout(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Dropout; other noise is left out, since it changes nothing in inference."""
    if fields.type == "Dropout" and fields.noise_shape is None and fields.rate:
        writer.add(link, "Dropout", {"dropout_ratio": fields.rate})
    else:
        identity(writer, link, fields)


NOT_IN_PLACE = ("BNLL", "Softmax")
"""Layers whose gradients need their input: they do not run in place."""
_SLOPE = ("ReLU", {"negative_slope": "negative_slope"})
_SAME = {ours: (theirs, names) for theirs, (ours, names) in SAME_FIELDS.items() if ours not in ("Clip", "Dropout")}
SAME: Mapping[str, tuple[str, Mapping[str, str]]] = {
    **_SAME, "LeakyReLU": _SLOPE, "leaky_relu": _SLOPE, "elu": _SAME["ELU"], "swish": _SAME["Swish"],
    "silu": ("Swish", {}), "sigmoid": ("Sigmoid", {}), "tanh": ("TanH", {}), "softplus": ("BNLL", {}),
    "BNLL": ("BNLL", {}), "exponential": ("Exp", {}),
    "Power": ("Power", {"power": "power", "scale": "scale", "shift": "shift"}),
    "Concatenate": ("Concat", {"axis": "axis"}), "Crop": ("Crop", {"axis": "axis", "offset": "offset"}),
}  # fmt: skip
"""Layers and functions with the fields of a Caffe layer: its type, and our field for each of Caffe's."""


@writes(*(kind for kind in SAME if kind[0].isupper()), "ReLU", "Clip")
def function(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """The layers of the table, ReLU and Clip."""
    writer.add(link, *_function(writer, link, fields, 1))


def _function(writer: CaffeWriter, link: LayerLink, function: Any, axis: int) -> tuple[str, dict[str, Any]]:
    """Type and parameters of the Caffe layer for a function or a layer of the table; `axis` is that of a softmax."""
    if function.type in SAME:
        type_, names = SAME[function.type]
        param = {theirs: getattr(function, ours) for theirs, ours in names.items()}
        return type_, param | ({"axis": writer.axis(link, param["axis"])} if "axis" in param else {})
    match function.type:
        case "softmax":
            axis = axis if function.axis is None else function.axis
            return "Softmax", {"axis": axis % len(writer.shape(link.name))}
        case "relu" | "ReLU":
            require(not function.threshold and (function.max_value is None or not function.negative_slope),
                    "Caffe's ReLU has a negative slope, or with Clip a largest value, but no threshold")  # fmt: skip
            if function.max_value is not None:
                return "Clip", {"min": 0.0, "max": function.max_value}
            return "ReLU", {"negative_slope": function.negative_slope}
        case "Clip":
            limits = ((function.min, -MAX_FLOAT32), (function.max, MAX_FLOAT32))
            low, high = (default if limit is None else limit for limit, default in limits)
            return "Clip", {"min": low, "max": high}
        case "relu6" | "hard_tanh":
            low, high = (0.0, 6.0) if function.type == "relu6" else (-1.0, 1.0)
            return "Clip", {"min": low, "max": high}
    raise UnsupportedFeature(f"Caffe has no layer for the function {function.type}")


def _activation(writer: CaffeWriter, link: LayerLink, function: Any, axis: int) -> None:
    """Add the function in a layer's field `activation`, in place if possible."""
    if function is None or function.type == "linear":
        return
    type_, param = _function(writer, link, function, axis)
    bottom = link.name
    if type_ in NOT_IN_PLACE:
        bottom = f"{link.name}_before"
        writer.layers[-1].message["top"] = [bottom]
    writer.layer(f"{link.name}_{function.type}", type_, [bottom], [link.name], param)


@writes("Activation")
def activation(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """The layer for the function."""
    if fields.activation.type == "linear":
        identity(writer, link, fields)
    else:
        writer.add(link, *_function(writer, link, fields.activation, fields.axis))


@writes("Softmax")
def softmax(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Softmax over one axis."""
    require(len(link.sources) == 1 and len(fields.axis) == 1, "Caffe's Softmax is over one axis, without a mask")
    writer.add(link, "Softmax", {"axis": writer.axis(link, fields.axis[0])})


@writes("Add", "Subtract", "Average", "Multiply", "Maximum", "WeightedSum")
def merge(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Eltwise: sums with coefficients, products and maxima of inputs of one shape."""
    count, shapes = len(link.sources), {writer.shape(source) for source in link.sources}
    sizes = " and ".join(str(list(shape[1:])) for shape in sorted(shapes))
    require(len(shapes) == 1, f"the inputs of Caffe's Eltwise have one shape, got {sizes}",
            hint="use Scale, Bias or Tile")  # fmt: skip
    require(count > 1, "Caffe's Eltwise has two inputs or more")
    coefficients = {"Subtract": [1.0, -1.0], "Average": [1 / count] * count}.get(fields.type)
    param = {"operation": _key(OPERATIONS, fields.type, "SUM")}
    writer.add(link, "Eltwise", param | {"coeff": getattr(fields, "coefficients", coefficients)})


@writes("Split")
def split(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Slice; a Silence reads the parts that nothing reads, which would be outputs."""
    axis = writer.axis(link, fields.axis)
    writer.blobs[link.name] = link.outputs[0]
    points = list(accumulate(writer.shape(name)[axis] for name in link.outputs))[:-1]
    require(bool(points), "Caffe's Slice has two parts or more")
    writer.layer(link.name, "Slice", writer.bottoms(link), link.outputs, {"axis": axis, "slice_point": points})
    read = {writer.blob(name) for name in writer.readers}
    if unread := [name for name in link.outputs if name not in read]:
        writer.layer(f"{link.name}_rest", "Silence", unread, [])


@writes("Flatten", "Reshape", "ExpandDims", "Squeeze")
def reshape(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Flatten or Reshape; a Flatten is left out if only Dense layers read it, since InnerProduct flattens."""
    if fields.type != "Flatten" or len(writer.shape(link.sources[0])) == 1:
        writer.add(link, "Reshape", {"shape": Message("BlobShape", dim=[0, *writer.shape(link.name)[1:]])})
    elif set(writer.readers.get(link.name, ())) == {"Dense"}:
        identity(writer, link, fields)
    else:
        writer.add(link, "Flatten")


@writes("Reduction")
def reduction(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """Reduction over all axes from one on, which are removed."""
    rank = len(writer.shape(link.sources[0]))
    axes = sorted(range(1, rank) if fields.axes is None else (axis % rank for axis in fields.axes))
    require(fields.operation in ("sum", "asum", "sumsq", "mean"),
            f"Caffe's Reduction has no operation {fields.operation}")  # fmt: skip
    removes_last = axes == list(range(axes[0], rank)) and len(writer.shape(link.name)) == axes[0]
    require(removes_last, "Caffe's Reduction is over all axes from one on, and removes them",
            hint="set `keepdims: false`")  # fmt: skip
    writer.add(link, "Reduction", {"operation": fields.operation.upper(), "axis": axes[0]})


@writes("ArgMax")
def argmax(writer: CaffeWriter, link: LayerLink, fields: Any) -> None:
    """ArgMax along an axis, which stays; the indices are floats in Caffe."""
    keeps_axis = fields.keepdims or fields.top_k > 1
    require(keeps_axis and not fields.out_max_val and not fields.select_last_index,
            "Caffe's ArgMax returns the first index of the largest value, and keeps its axis",
            hint="set `keepdims: true`")  # fmt: skip
    writer.add(link, "ArgMax", {"axis": writer.axis(link, fields.axis), "top_k": fields.top_k})
