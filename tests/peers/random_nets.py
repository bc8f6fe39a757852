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
    """This Keras has no such layer, or not for this tensor."""


@dataclass
class Drawing:
    """A model in the making: the Keras that makes it, and the random numbers that decide."""

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
    """A model of one or two inputs, up to ten calls of layers, and one to three outputs."""
    made = Drawing(keras, random)
    inputs = [_input(made, index) for index in range(1 + made.maybe(0.2))]
    made.pool += [_embedded(made, one) if "int" in str(one.dtype) else one for one in inputs]
    for _ in range(made.whole(2, 10)):
        _grow(made)
    ends = [one for place, one in enumerate(made.pool) if place not in made.read]
    outputs = ends[-3:] if made.maybe() else ends[-1:]
    return keras.Model(
        inputs if len(inputs) > 1 else inputs[0], outputs if len(outputs) > 1 else outputs[0], name="net"
    )


def _input(made: Drawing, index: int) -> Any:
    rank = made.one((2, 3, 3, 4, 4, 4, 5))
    if rank == 2 and made.maybe(0.3):
        return made.keras.Input((made.whole(3, 7),), dtype="int32", name=f"words{index}")
    sizes = [made.whole(4, 8) for _ in range(rank - 2)]
    return made.keras.Input((*sizes, made.whole(2, 5)), name=f"x{index}")


def _embedded(made: Drawing, words: Any) -> Any:
    return made.keras.layers.Embedding(9, made.whole(2, 5), mask_zero=made.maybe(0.3))(words)


def _grow(made: Drawing) -> None:
    """Add a tensor: of a layer, a merge, an operation, a nested model, or a layer that is called again."""
    place = max(made.whole(0, len(made.pool) - 1), made.whole(0, len(made.pool) - 1))
    x = made.pool[place]
    kind = made.random.random()
    try:
        if kind < 0.14:
            others = [at for at, one in enumerate(made.pool) if one.shape == x.shape]
            both = [place, made.one(others)]
            y = _merged(made, [made.pool[at] for at in both])
            made.read.update(both)
        elif kind < 0.28:
            y = operated(made, x)
        elif kind < 0.33:
            y = _nested(made, x)
        elif kind < 0.38 and made.layers:
            y = made.one(made.layers)(x)
        else:
            y = _called(made, x)
    except (Absent, ValueError, TypeError, RuntimeError, NotImplementedError, IndexError, AttributeError, KeyError):
        return  # this Keras refuses it
    tensors = list(y) if isinstance(y, (list, tuple)) else [y]
    sizes = [tensor.shape for tensor in tensors]
    if all(None not in shape[1:] and 0 < np.prod(shape[1:]) <= LARGEST and len(shape) > 1 for shape in sizes):
        made.read.add(place)
        made.pool += tensors


def _merged(made: Drawing, tensors: list[Any]) -> Any:
    name = made.one(MERGES)
    if name == "Dot":
        return made.keras.layers.Dot(axes=made.whole(1, len(tensors[0].shape) - 1), normalize=made.maybe())(tensors)
    if name == "Concatenate":
        return made.keras.layers.Concatenate(axis=made.one((-1, 1, -1)))(tensors)
    return getattr(made.keras.layers, name)()(tensors)


def _nested(made: Drawing, x: Any) -> Any:
    inner = inside = made.keras.Input(tuple(x.shape[1:]))
    for _ in range(made.whole(1, 3)):
        inside = _called(made, inside)
    return made.keras.Model(inner, inside)(x)


def _called(made: Drawing, x: Any) -> Any:
    rank = len(x.shape)
    name = made.one(BY_RANK.get(rank, ANY))
    if not hasattr(made.keras.layers, name):
        raise Absent(name)
    layer = layer_of(made, name, x)
    if name in ("Attention", "AdditiveAttention"):
        return layer([x, x])
    if name in ("MultiHeadAttention", "GroupQueryAttention"):
        return layer(x, x, **({"use_causal_mask": True} if made.maybe(0.3) else {}))
    y = layer(x)
    made.layers.append(layer)
    return y


def layer_of(made: Drawing, name: str, x: Any) -> Any:
    """A layer of that class for a tensor, with random fields."""
    layers, shape = made.keras.layers, tuple(x.shape)
    fields = _fields(made, name, shape)
    if name == "TimeDistributed":
        inner = made.keras.Input(shape[2:])
        return layers.TimeDistributed(layer_of(made, _within(made, len(shape) - 1), inner))
    if name == "Bidirectional":
        kind = made.one(("LSTM", "GRU", "SimpleRNN"))
        merge = made.one(("concat", "sum", "mul", "ave"))
        return layers.Bidirectional(layer_of(made, kind, x), merge_mode=merge)
    if name == "SpectralNormalization":
        return layers.SpectralNormalization(layer_of(made, "Dense", x))
    if name == "RNN":
        cells = [
            getattr(layers, made.one(("LSTMCell", "GRUCell", "SimpleRNNCell")))(3) for _ in range(made.whole(1, 2))
        ]
        return layers.RNN(cells if len(cells) > 1 else cells[0], **fields)
    return getattr(layers, name)(**fields)


def _within(made: Drawing, rank: int) -> str:
    choices = {2: ("Dense", "Activation", "LayerNormalization"), 3: ("Conv1D", "LSTM", "MaxPooling1D", "Flatten"),
               4: ("Conv2D", "MaxPooling2D", "GlobalAveragePooling2D", "Flatten")}  # fmt: skip
    return str(made.one(choices.get(rank, ("Flatten",))))


Fields: TypeAlias = "dict[str, Any]"


def _fields(made: Drawing, name: str, shape: tuple[int, ...]) -> Fields:
    """Random fields of a layer: of its family, or its own."""
    rank, last = len(shape), shape[-1]
    window = int(next((one for one in name if one.isdigit()), 0))
    for part, found in _FAMILIES:
        if part(name):
            return found(made, rank, last, window)
    special: dict[str, Callable[[], Fields]] = {
        "Dense": lambda: {"units": made.whole(1, 5), **_weights(made)},
        "EinsumDense": lambda: {"equation": "ab,bc->ac", "output_shape": made.whole(1, 4), "bias_axes": "c"},
        "Activation": lambda: {"activation": made.one(FUNCTIONS)},
        "LeakyReLU": lambda: {} if made.maybe() else {"negative_slope" if made.is_new else "alpha": 0.2},
        "ELU": lambda: {"alpha": made.one((0.5, 1.0))},
        "ReLU": lambda: {"max_value": made.one((None, 0.5)), "negative_slope": made.one((0.0, 0.25)),
                         "threshold": made.one((0.0, 0.125))},
        "PReLU": lambda: {"shared_axes": [*range(1, rank - 1)] or None} if made.maybe() else {},
        "ThresholdedReLU": lambda: {"theta": 0.25},
        "Softmax": lambda: {"axis": made.one((-1, 1))},
        "Rescaling": lambda: {"scale": made.one((0.5, [*np.linspace(0.5, 1.5, last)])), "offset": 0.25},
        "BatchNormalization": lambda: {
            "axis": made.one((-1, -1, 1)), "scale": made.maybe(0.8), "center": made.maybe(0.8)},
        "LayerNormalization": lambda: {"axis": made.one((-1, 1, [*range(1, rank)])), "epsilon": 0.01},
        "RMSNormalization": lambda: {"axis": -1},
        "UnitNormalization": lambda: {"axis": made.one((-1, 1))},
        "GroupNormalization": lambda: {"groups": made.one([n for n in (1, 2, 3, -1) if n < 0 or last % n == 0])},
        "Normalization": lambda: {"mean": [0.25] * last, "variance": [0.5] * last},
        **dict.fromkeys(("Dropout", "GaussianDropout", "AlphaDropout"), lambda: {"rate": 0.25}),
        "GaussianNoise": lambda: {"stddev": 0.25}, "ActivityRegularization": lambda: {"l2": 0.25},
        "RepeatVector": lambda: {"n": made.whole(1, 4)}, "Masking": lambda: {"mask_value": 0.5},
        "Reshape": lambda: {"target_shape": _reshaped(made, shape[1:])},
        "Permute": lambda: {"dims": tuple(int(one) + 1 for one in made.random.permutation(rank - 1))},
        "Attention": lambda: {"use_scale": made.maybe(), "score_mode": made.one(("dot", "concat"))},
        "AdditiveAttention": lambda: {"use_scale": made.maybe()},
        "MultiHeadAttention": lambda: {"num_heads": 2, "key_dim": made.whole(1, 3), "use_bias": made.maybe()},
        "GroupQueryAttention": lambda: {"head_dim": 2, "num_query_heads": 4, "num_key_value_heads": 2},
        "Resizing": lambda: {"height": made.whole(2, 9), "width": made.whole(2, 9),
                             "interpolation": made.one(("bilinear", "nearest"))},
        "CenterCrop": lambda: {"height": made.whole(1, 4), "width": made.whole(1, 4)},
    }  # fmt: skip
    return special.get(name, dict)()


def _weights(made: Drawing) -> Fields:
    """Fields of layers with a kernel."""
    found: Fields = {"activation": made.one((None, *FUNCTIONS)), "use_bias": made.maybe(0.7)}
    if made.maybe(0.3):
        found["kernel_initializer"] = made.one(INITIALIZERS)
    if made.maybe(0.2):
        found["kernel_regularizer"] = made.one(("l2", "l1"))
    if made.maybe(0.2):
        found["bias_constraint"] = made.one(("non_neg", "max_norm"))
    return found


def _convolution(made: Drawing, rank: int, last: int, window: int) -> Fields:
    strides, dilation = made.one((1, 1, 2)), made.one((1, 1, 2))
    found = {"kernel_size": tuple(made.whole(1, 3) for _ in range(window)), "strides": strides,
             "padding": made.one(("valid", "same")), "dilation_rate": 1 if strides > 1 else dilation}  # fmt: skip
    return found | {"activation": made.one((None, *FUNCTIONS)), "use_bias": made.maybe(0.7)}


def _plain_convolution(made: Drawing, rank: int, last: int, window: int) -> Fields:
    groups = made.one([n for n in (1, 1, 2) if last % n == 0])
    found = {
        **_convolution(made, rank, last, window),
        **_weights(made),
        "filters": 2 * made.whole(1, 3),
        "groups": groups,
    }
    return found | ({"padding": "causal"} if window == 1 and made.maybe(0.2) else {})


def _transposed(made: Drawing, rank: int, last: int, window: int) -> Fields:
    return {**_convolution(made, rank, last, window), "filters": made.whole(1, 4), "dilation_rate": 1}


def _separable(made: Drawing, rank: int, last: int, window: int) -> Fields:
    return {**_convolution(made, rank, last, window), "filters": made.whole(1, 4), "depth_multiplier": made.whole(1, 2)}


def _depthwise(made: Drawing, rank: int, last: int, window: int) -> Fields:
    return {**_convolution(made, rank, last, window), "depth_multiplier": made.whole(1, 2)}


def _convolving_memory(made: Drawing, rank: int, last: int, window: int) -> Fields:
    return {"filters": made.whole(1, 3), "kernel_size": made.whole(1, 3), "padding": made.one(("valid", "same")),
            "return_sequences": made.maybe(), "go_backwards": made.maybe(0.2)}  # fmt: skip


def _recurrent(made: Drawing, rank: int, last: int, window: int) -> Fields:
    return {"units": made.whole(1, 4), "return_sequences": made.maybe(0.6), "go_backwards": made.maybe(0.2),
            "activation": made.one(("tanh", "relu", "sigmoid")), "use_bias": made.maybe(0.8)}  # fmt: skip


_FAMILIES: tuple[tuple[Callable[[str], bool], Callable[..., Fields]], ...] = (
    (lambda name: name.startswith("ConvLSTM"), _convolving_memory),
    (lambda name: name.startswith("Separable"), _separable),
    (lambda name: name.startswith("Depthwise"), _depthwise),
    (lambda name: name.endswith("Transpose"), _transposed),
    (lambda name: name.startswith("LocallyConnected"), lambda made, *_: {"filters": 2, "kernel_size": 2}),
    (lambda name: name.startswith("Conv"), _plain_convolution),
    (lambda name: name in ("LSTM", "GRU", "SimpleRNN"), _recurrent),
    (lambda name: name == "RNN", lambda made, *_: {"return_sequences": made.maybe()}),
    (lambda name: "Global" in name and "Pooling" in name, lambda made, *_: {"keepdims": made.maybe(0.3)}),
    (lambda name: name.startswith("Adaptive"), lambda made, *_: {"output_size": made.whole(1, 3)}),
    (lambda name: name.startswith("AveragePooling"), lambda made, *_: {  # PyTorch counts the padding of `same`
        "pool_size": made.whole(2, 3), "strides": made.one((None, 1, 2)),
        "padding": "valid" if made.is_new else made.one(("valid", "same"))}),
    (lambda name: "Pooling" in name, lambda made, *_: {
        "pool_size": made.whole(2, 3), "strides": made.one((None, 1, 2)), "padding": made.one(("valid", "same"))}),
    (lambda name: name.startswith("ZeroPadding"), lambda made, rank, last, window: {
        "padding": made.whole(1, 2) if made.maybe() or window > 1 else (0, 2)}),
    (lambda name: name.startswith("UpSampling"), lambda made, rank, last, window: {
        "size": 2, **({"interpolation": made.one(("nearest", "bilinear"))} if window == 2 else {})}),
    (lambda name: name.startswith("SpatialDropout"), lambda made, *_: {"rate": 0.25}),
)  # fmt: skip


def _reshaped(made: Drawing, sizes: tuple[int, ...]) -> tuple[int, ...]:
    total = int(np.prod(sizes))
    first = made.one([n for n in range(1, total + 1) if total % n == 0])
    return (first, total // first) if made.maybe(0.8) else (total,)


def operated(made: Drawing, x: Any) -> Any:
    """Apply a random operation, as users write them between layers."""
    operations: list[Callable[[Any], Any]] = [
        lambda x: x * 2.0 + 1.0, lambda x: 1.0 - x, lambda x: x / 4.0, lambda x: -x, lambda x: x * x,
        lambda x: x[:, 1:], lambda x: x[..., :1], lambda x: x[:, ::2],
    ]  # fmt: skip
    if made.is_new:
        ops = made.keras.ops
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
    return made.one(operations)(x)
