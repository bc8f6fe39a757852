"""Random models of Keras 2 and 3: random topologies of its layers, compiled with random losses, and trained models.

Each function makes models with the Keras that it is passed, and uses only NumPy and Keras, nothing of netspec.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

Random: TypeAlias = np.random.Generator
BATCH = 3
LARGEST = 4000
"""Largest number of elements of a sample; layers with larger results are left out."""

FUNCTIONS = ("relu", "tanh", "sigmoid", "elu", "selu", "softplus", "softsign", "swish", "gelu", "exponential", "linear",
             "hard_sigmoid", "softmax")  # fmt: skip
INITIALIZERS = ("glorot_uniform", "HeNormal", "orthogonal", "lecun_uniform", "random_normal", "zeros")
VECTORS = ("Dense", "Dropout", "BatchNormalization", "LayerNormalization", "Activation", "LeakyReLU", "ELU", "PReLU",
           "ReLU", "Softmax", "Reshape", "RepeatVector", "GaussianNoise", "GaussianDropout", "AlphaDropout",
           "UnitNormalization", "ActivityRegularization", "Rescaling", "EinsumDense", "SpectralNormalization",
           "RMSNormalization", "Identity", "Masking", "GroupNormalization", "Flatten", "Normalization",
           "ThresholdedReLU")  # fmt: skip
SEQUENCES = ("Conv1D", "SeparableConv1D", "DepthwiseConv1D", "Conv1DTranspose", "MaxPooling1D", "AveragePooling1D",
             "GlobalMaxPooling1D", "GlobalAveragePooling1D", "LSTM", "GRU", "SimpleRNN", "Bidirectional", "RNN",
             "TimeDistributed", "MultiHeadAttention", "Attention", "AdditiveAttention", "ZeroPadding1D", "Cropping1D",
             "UpSampling1D", "SpatialDropout1D", "Permute", "GroupQueryAttention", "AdaptiveAveragePooling1D",
             "AdaptiveMaxPooling1D", "LocallyConnected1D")  # fmt: skip
IMAGES = ("Conv2D", "SeparableConv2D", "DepthwiseConv2D", "Conv2DTranspose", "MaxPooling2D", "AveragePooling2D",
          "GlobalMaxPooling2D", "GlobalAveragePooling2D", "ZeroPadding2D", "Cropping2D", "UpSampling2D",
          "SpatialDropout2D", "Resizing", "CenterCrop", "ConvLSTM1D", "TimeDistributed", "Permute",
          "AdaptiveAveragePooling2D", "AdaptiveMaxPooling2D")  # fmt: skip
VOLUMES = ("Conv3D", "Conv3DTranspose", "MaxPooling3D", "AveragePooling3D", "GlobalMaxPooling3D",
           "GlobalAveragePooling3D", "ZeroPadding3D", "Cropping3D", "UpSampling3D", "SpatialDropout3D", "ConvLSTM2D",
           "TimeDistributed", "AdaptiveAveragePooling3D", "AdaptiveMaxPooling3D")  # fmt: skip
ANY = ("Dense", "BatchNormalization", "LayerNormalization", "Activation", "LeakyReLU", "PReLU", "ReLU", "Dropout",
       "Flatten", "Reshape", "UnitNormalization", "GroupNormalization", "Softmax", "Rescaling")  # fmt: skip
BY_RANK = {2: VECTORS, 3: (*SEQUENCES, *ANY), 4: (*IMAGES, *ANY), 5: (*VOLUMES, *ANY)}
MERGES = ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate", "Dot")


class Absent(Exception):
    """This version of Keras has no such layer, or it does not fit the tensor."""


@dataclass
class Drawing:
    """A model under construction: the Keras that builds it, and a random generator."""

    keras: Any
    random: Random
    pool: list[Any] = field(default_factory=list)
    read: set[int] = field(default_factory=set)
    """Indices in `pool` of the tensors that are read."""
    layers: list[Any] = field(default_factory=list)

    def one(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def whole(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def maybe(self, chance: float = 0.5) -> bool:
        return bool(self.random.random() < chance)

    @property
    def is_new(self) -> bool:
        return int(self.keras.__version__.partition(".")[0]) > 2


def drawn(keras: Any, random: Random) -> Any:
    """Return a model with one or two inputs, up to ten layer calls, and one to three outputs."""
    drawing = Drawing(keras, random)
    inputs = [_input(drawing, index) for index in range(1 + drawing.maybe(0.2))]
    drawing.pool += [
        _embedded(drawing, model_input) if "int" in str(model_input.dtype) else model_input for model_input in inputs
    ]
    for _ in range(drawing.whole(2, 10)):
        _grow(drawing)
    ends = [tensor for position, tensor in enumerate(drawing.pool) if position not in drawing.read]
    outputs = ends[-3:] if drawing.maybe() else ends[-1:]
    return keras.Model(
        inputs if len(inputs) > 1 else inputs[0], outputs if len(outputs) > 1 else outputs[0], name="net"
    )


def _input(drawing: Drawing, index: int) -> Any:
    rank = drawing.one((2, 3, 3, 4, 4, 4, 5))
    if rank == 2 and drawing.maybe(0.3):
        return drawing.keras.Input((drawing.whole(3, 7),), dtype="int32", name=f"words{index}")
    sizes = [drawing.whole(4, 8) for _ in range(rank - 2)]
    return drawing.keras.Input((*sizes, drawing.whole(2, 5)), name=f"x{index}")


def _embedded(drawing: Drawing, words: Any) -> Any:
    return drawing.keras.layers.Embedding(9, drawing.whole(2, 5), mask_zero=drawing.maybe(0.3))(words)


def _grow(drawing: Drawing) -> None:
    """Add the output of a layer, a merge, an operation, a nested model, or a layer that is called again."""
    position = max(drawing.whole(0, len(drawing.pool) - 1), drawing.whole(0, len(drawing.pool) - 1))
    x = drawing.pool[position]
    kind = drawing.random.random()
    try:
        if kind < 0.14:
            others = [at for at, tensor in enumerate(drawing.pool) if tensor.shape == x.shape]
            indices = [position, drawing.one(others)]
            y = _merged(drawing, [drawing.pool[at] for at in indices])
            drawing.read.update(indices)
        elif kind < 0.28:
            y = operated(drawing, x)
        elif kind < 0.33:
            y = _nested(drawing, x)
        elif kind < 0.38 and drawing.layers:
            y = drawing.one(drawing.layers)(x)
        else:
            y = _called(drawing, x)
    except (Absent, ValueError, TypeError, RuntimeError, NotImplementedError, IndexError, AttributeError, KeyError):
        return  # this version of Keras refuses it
    tensors = list(y) if isinstance(y, (list, tuple)) else [y]
    sizes = [tensor.shape for tensor in tensors]
    if all(None not in shape[1:] and 0 < np.prod(shape[1:]) <= LARGEST and len(shape) > 1 for shape in sizes):
        drawing.read.add(position)
        drawing.pool += tensors


def _merged(drawing: Drawing, tensors: list[Any]) -> Any:
    name = drawing.one(MERGES)
    if name == "Dot":
        return drawing.keras.layers.Dot(axes=drawing.whole(1, len(tensors[0].shape) - 1), normalize=drawing.maybe())(
            tensors
        )
    if name == "Concatenate":
        return drawing.keras.layers.Concatenate(axis=drawing.one((-1, 1, -1)))(tensors)
    return getattr(drawing.keras.layers, name)()(tensors)


def _nested(drawing: Drawing, x: Any) -> Any:
    inner = inside = drawing.keras.Input(tuple(x.shape[1:]))
    for _ in range(drawing.whole(1, 3)):
        inside = _called(drawing, inside)
    return drawing.keras.Model(inner, inside)(x)


def _called(drawing: Drawing, x: Any) -> Any:
    rank = len(x.shape)
    name = drawing.one(BY_RANK.get(rank, ANY))
    if not hasattr(drawing.keras.layers, name):
        raise Absent(name)
    layer = layer_of(drawing, name, x)
    if name in ("Attention", "AdditiveAttention"):
        return layer([x, x])
    if name in ("MultiHeadAttention", "GroupQueryAttention"):
        return layer(x, x, **({"use_causal_mask": True} if drawing.maybe(0.3) else {}))
    y = layer(x)
    drawing.layers.append(layer)
    return y


def layer_of(drawing: Drawing, name: str, x: Any) -> Any:
    """Return a layer of a class for a tensor, with random fields."""
    layers, shape = drawing.keras.layers, tuple(x.shape)
    fields = _fields(drawing, name, shape)
    if name == "TimeDistributed":
        inner = drawing.keras.Input(shape[2:])
        return layers.TimeDistributed(layer_of(drawing, _within(drawing, len(shape) - 1), inner))
    if name == "Bidirectional":
        kind = drawing.one(("LSTM", "GRU", "SimpleRNN"))
        merge = drawing.one(("concat", "sum", "mul", "ave"))
        return layers.Bidirectional(layer_of(drawing, kind, x), merge_mode=merge)
    if name == "SpectralNormalization":
        return layers.SpectralNormalization(layer_of(drawing, "Dense", x))
    if name == "RNN":
        cells = [
            getattr(layers, drawing.one(("LSTMCell", "GRUCell", "SimpleRNNCell")))(3)
            for _ in range(drawing.whole(1, 2))
        ]
        return layers.RNN(cells if len(cells) > 1 else cells[0], **fields)
    return getattr(layers, name)(**fields)


def _within(drawing: Drawing, rank: int) -> str:
    choices = {2: ("Dense", "Activation", "LayerNormalization"), 3: ("Conv1D", "LSTM", "MaxPooling1D", "Flatten"),
               4: ("Conv2D", "MaxPooling2D", "GlobalAveragePooling2D", "Flatten")}  # fmt: skip
    return str(drawing.one(choices.get(rank, ("Flatten",))))


Fields: TypeAlias = "dict[str, Any]"


def _fields(drawing: Drawing, name: str, shape: tuple[int, ...]) -> Fields:
    """Return random fields of a layer: those of its family, and its own."""
    rank, last = len(shape), shape[-1]
    window = int(next((character for character in name if character.isdigit()), 0))
    for part, fields_of in _FAMILIES:
        if part(name):
            return fields_of(drawing, rank, last, window)
    special: dict[str, Callable[[], Fields]] = {
        "Dense": lambda: {"units": drawing.whole(1, 5), **_weights(drawing)},
        "EinsumDense": lambda: {"equation": "ab,bc->ac", "output_shape": drawing.whole(1, 4), "bias_axes": "c"},
        "Activation": lambda: {"activation": drawing.one(FUNCTIONS)},
        "LeakyReLU": lambda: {} if drawing.maybe() else {"negative_slope" if drawing.is_new else "alpha": 0.2},
        "ELU": lambda: {"alpha": drawing.one((0.5, 1.0))},
        "ReLU": lambda: {"max_value": drawing.one((None, 0.5)), "negative_slope": drawing.one((0.0, 0.25)),
                         "threshold": drawing.one((0.0, 0.125))},
        "PReLU": lambda: {"shared_axes": [*range(1, rank - 1)] or None} if drawing.maybe() else {},
        "ThresholdedReLU": lambda: {"theta": 0.25},
        "Softmax": lambda: {"axis": drawing.one((-1, 1))},
        "Rescaling": lambda: {"scale": drawing.one((0.5, [*np.linspace(0.5, 1.5, last)])), "offset": 0.25},
        "BatchNormalization": lambda: {
            "axis": drawing.one((-1, -1, 1)), "scale": drawing.maybe(0.8), "center": drawing.maybe(0.8)},
        "LayerNormalization": lambda: {"axis": drawing.one((-1, 1, [*range(1, rank)])), "epsilon": 0.01},
        "RMSNormalization": lambda: {"axis": -1},
        "UnitNormalization": lambda: {"axis": drawing.one((-1, 1))},
        "GroupNormalization": lambda: {"groups": drawing.one([n for n in (1, 2, 3, -1) if n < 0 or last % n == 0])},
        "Normalization": lambda: {"mean": [0.25] * last, "variance": [0.5] * last},
        **dict.fromkeys(("Dropout", "GaussianDropout", "AlphaDropout"), lambda: {"rate": 0.25}),
        "GaussianNoise": lambda: {"stddev": 0.25}, "ActivityRegularization": lambda: {"l2": 0.25},
        "RepeatVector": lambda: {"n": drawing.whole(1, 4)}, "Masking": lambda: {"mask_value": 0.5},
        "Reshape": lambda: {"target_shape": _reshaped(drawing, shape[1:])},
        "Permute": lambda: {"dims": tuple(int(axis) + 1 for axis in drawing.random.permutation(rank - 1))},
        "Attention": lambda: {"use_scale": drawing.maybe(), "score_mode": drawing.one(("dot", "concat"))},
        "AdditiveAttention": lambda: {"use_scale": drawing.maybe()},
        "MultiHeadAttention": lambda: {"num_heads": 2, "key_dim": drawing.whole(1, 3), "use_bias": drawing.maybe()},
        "GroupQueryAttention": lambda: {"head_dim": 2, "num_query_heads": 4, "num_key_value_heads": 2},
        "Resizing": lambda: {"height": drawing.whole(2, 9), "width": drawing.whole(2, 9),
                             "interpolation": drawing.one(("bilinear", "nearest"))},
        "CenterCrop": lambda: {"height": drawing.whole(1, 4), "width": drawing.whole(1, 4)},
    }  # fmt: skip
    return special.get(name, dict)()


def _weights(drawing: Drawing) -> Fields:
    """Return fields of layers with a kernel."""
    fields: Fields = {"activation": drawing.one((None, *FUNCTIONS)), "use_bias": drawing.maybe(0.7)}
    if drawing.maybe(0.3):
        fields["kernel_initializer"] = drawing.one(INITIALIZERS)
    if drawing.maybe(0.2):
        fields["kernel_regularizer"] = drawing.one(("l2", "l1"))
    if drawing.maybe(0.2):
        fields["bias_constraint"] = drawing.one(("non_neg", "max_norm"))
    return fields


def _convolution(drawing: Drawing, rank: int, last: int, window: int) -> Fields:
    strides, dilation = drawing.one((1, 1, 2)), drawing.one((1, 1, 2))
    fields = {"kernel_size": tuple(drawing.whole(1, 3) for _ in range(window)), "strides": strides,
             "padding": drawing.one(("valid", "same")), "dilation_rate": 1 if strides > 1 else dilation}  # fmt: skip
    return fields | {"activation": drawing.one((None, *FUNCTIONS)), "use_bias": drawing.maybe(0.7)}


def _plain_convolution(drawing: Drawing, rank: int, last: int, window: int) -> Fields:
    groups = drawing.one([n for n in (1, 1, 2) if last % n == 0])
    fields = {
        **_convolution(drawing, rank, last, window),
        **_weights(drawing),
        "filters": 2 * drawing.whole(1, 3),
        "groups": groups,
    }
    return fields | ({"padding": "causal"} if window == 1 and drawing.maybe(0.2) else {})


def _transposed(drawing: Drawing, rank: int, last: int, window: int) -> Fields:
    return {**_convolution(drawing, rank, last, window), "filters": drawing.whole(1, 4), "dilation_rate": 1}


def _separable(drawing: Drawing, rank: int, last: int, window: int) -> Fields:
    return {
        **_convolution(drawing, rank, last, window),
        "filters": drawing.whole(1, 4),
        "depth_multiplier": drawing.whole(1, 2),
    }


def _depthwise(drawing: Drawing, rank: int, last: int, window: int) -> Fields:
    return {**_convolution(drawing, rank, last, window), "depth_multiplier": drawing.whole(1, 2)}


def _convolving_memory(drawing: Drawing, rank: int, last: int, window: int) -> Fields:
    return {"filters": drawing.whole(1, 3), "kernel_size": drawing.whole(1, 3),
            "padding": drawing.one(("valid", "same")), "return_sequences": drawing.maybe(),
            "go_backwards": drawing.maybe(0.2)}  # fmt: skip


def _recurrent(drawing: Drawing, rank: int, last: int, window: int) -> Fields:
    return {"units": drawing.whole(1, 4), "return_sequences": drawing.maybe(0.6), "go_backwards": drawing.maybe(0.2),
            "activation": drawing.one(("tanh", "relu", "sigmoid")), "use_bias": drawing.maybe(0.8)}  # fmt: skip


_FAMILIES: tuple[tuple[Callable[[str], bool], Callable[..., Fields]], ...] = (
    (lambda name: name.startswith("ConvLSTM"), _convolving_memory),
    (lambda name: name.startswith("Separable"), _separable),
    (lambda name: name.startswith("Depthwise"), _depthwise),
    (lambda name: name.endswith("Transpose"), _transposed),
    (lambda name: name.startswith("LocallyConnected"), lambda draw, *_: {"filters": 2, "kernel_size": 2}),
    (lambda name: name.startswith("Conv"), _plain_convolution),
    (lambda name: name in ("LSTM", "GRU", "SimpleRNN"), _recurrent),
    (lambda name: name == "RNN", lambda draw, *_: {"return_sequences": draw.maybe()}),
    (lambda name: "Global" in name and "Pooling" in name, lambda draw, *_: {"keepdims": draw.maybe(0.3)}),
    (lambda name: name.startswith("Adaptive"), lambda draw, *_: {"output_size": draw.whole(1, 3)}),
    (lambda name: name.startswith("AveragePooling"), lambda draw, *_: {  # PyTorch counts the padding of `same`
        "pool_size": draw.whole(2, 3), "strides": draw.one((None, 1, 2)),
        "padding": "valid" if draw.is_new else draw.one(("valid", "same"))}),
    (lambda name: "Pooling" in name, lambda draw, *_: {
        "pool_size": draw.whole(2, 3), "strides": draw.one((None, 1, 2)), "padding": draw.one(("valid", "same"))}),
    (lambda name: name.startswith("ZeroPadding"), lambda draw, rank, last, window: {
        "padding": draw.whole(1, 2) if draw.maybe() or window > 1 else (0, 2)}),
    (lambda name: name.startswith("UpSampling"), lambda draw, rank, last, window: {
        "size": 2, **({"interpolation": draw.one(("nearest", "bilinear"))} if window == 2 else {})}),
    (lambda name: name.startswith("SpatialDropout"), lambda draw, *_: {"rate": 0.25}),
)  # fmt: skip


def _reshaped(drawing: Drawing, sizes: tuple[int, ...]) -> tuple[int, ...]:
    total = int(np.prod(sizes))
    first = drawing.one([n for n in range(1, total + 1) if total % n == 0])
    return (first, total // first) if drawing.maybe(0.8) else (total,)


def operated(drawing: Drawing, x: Any) -> Any:
    """Apply a random operation, as users write them between layers."""
    operations: list[Callable[[Any], Any]] = [
        lambda x: x * 2.0 + 1.0, lambda x: 1.0 - x, lambda x: x / 4.0, lambda x: -x, lambda x: x * x,
        lambda x: x[:, 1:], lambda x: x[..., :1], lambda x: x[:, ::2],
    ]  # fmt: skip
    if drawing.is_new:
        ops = drawing.keras.ops
        operations += [
            lambda x: ops.mean(x, axis=-1), lambda x: ops.max(x, axis=1), lambda x: ops.sum(x, axis=1, keepdims=True),
            ops.relu, ops.tanh, ops.abs, ops.sigmoid, lambda x: ops.clip(x, -0.5, 0.5), ops.square,
            lambda x: ops.concatenate([x, x], axis=-1), lambda x: ops.expand_dims(x, 1), lambda x: ops.flip(x, axis=1),
            lambda x: ops.softmax(x, axis=-1), lambda x: ops.where(x > 0.0, x, 0.1), lambda x: ops.repeat(x, 2, axis=1),
            lambda x: ops.swapaxes(x, 1, -1), lambda x: ops.cumsum(x, axis=1), lambda x: ops.pad(
                x, [[0, 0]] + [[1, 0]] * (len(x.shape) - 1)), lambda x: ops.maximum(x, 0.1), ops.exp,
        ]  # fmt: skip
    else:
        tf = __import__("tensorflow")
        operations += [
            lambda x: tf.reduce_mean(x, axis=-1), lambda x: tf.reduce_max(x, axis=1), tf.nn.relu, tf.abs, tf.square,
            lambda x: tf.reduce_sum(x, axis=1, keepdims=True), lambda x: tf.clip_by_value(x, -0.5, 0.5), tf.tanh,
            lambda x: tf.concat([x, x], axis=-1), lambda x: tf.expand_dims(x, 1), lambda x: tf.reverse(x, [1]),
            lambda x: tf.maximum(x, 0.1), tf.exp, tf.sigmoid, lambda x: tf.nn.softmax(x, axis=-1),
        ]  # fmt: skip
    return drawing.one(operations)(x)
