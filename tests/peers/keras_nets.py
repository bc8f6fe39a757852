"""Keras models that test the import of Keras files: combinations of layers, operations, and trained nets.

The functions use only Keras, nothing of netspec. `keras_catalogue` has models of every layer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.peers.keras_catalogue import catalogue


def images(keras: Any) -> Any:
    """A small residual net with squeeze-and-excitation, a flattened head, two outputs and operations."""
    L = keras.layers
    x = image = keras.Input((8, 6, 3), name="image")
    x = (x - 0.5) * 2.0
    x = L.Conv2D(6, 3, padding="same", use_bias=False, kernel_constraint=keras.constraints.MaxNorm(3, axis=[0, 1, 2]))(
        x
    )
    x = L.BatchNormalization(name="norm")(x)
    x = left = L.ReLU(max_value=6.0)(x)
    x = L.SeparableConv2D(6, 3, padding="same", depthwise_regularizer="l2")(x)
    x = L.LayerNormalization(axis=[2, 3])(x)
    x = L.PReLU(shared_axes=[1])(x)
    gate = keras.ops.mean(x, axis=[1, 2], keepdims=True)
    gate = L.Conv2D(6, 1, activation="sigmoid")(gate)
    x = L.Add()([L.Multiply()([x, gate]), left])
    x = L.Concatenate()([x, L.SpatialDropout2D(0.2)(left)])
    x = L.MaxPooling2D()(x)
    masks = L.Conv2D(4, 1, activation="softmax", name="masks")(L.UpSampling2D(interpolation="bilinear")(x))
    x = L.Flatten()(x)
    x = L.Dropout(0.3)(L.BatchNormalization()(x))
    classes = L.Dense(5, activation="softmax", name="classes")(x)
    return keras.Model(image, [classes, masks], name="images")


def decoder(keras: Any) -> Any:
    """Vectors to images, by Reshape and transposed convolutions; and a flattened image without a Dense after it."""
    L = keras.layers
    code = keras.Input((5,), name="code")
    x = L.Reshape((3, 2, 4))(L.Dense(24)(code))
    x = L.Conv2DTranspose(3, 3, strides=2, padding="same", activation="tanh")(x)
    x = L.ZeroPadding2D(((1, 0), (0, 2)))(x)
    flat = L.Flatten()(x)
    other = L.Permute((3, 1, 2))(x)
    features = L.GlobalMaxPooling2D(keepdims=True)(x)
    features = L.Dense(3)(L.Flatten()(features))
    return keras.Model(code, [x, L.LayerNormalization()(flat), other, features], name="decoder")


def sequences(keras: Any) -> Any:
    """Words with masks, states passed on, attention, a convolution along a sequence."""
    L = keras.layers
    words = keras.Input((7,), dtype="int32", name="words")
    x = L.Embedding(11, 6, mask_zero=True)(words)
    encoded, h, c = L.LSTM(4, return_sequences=True, return_state=True)(x)
    bidirectional = L.Bidirectional(L.GRU(3, return_sequences=True))(encoded)
    decoded = L.LSTM(4, name="last")(bidirectional, initial_state=[h, c])
    attended = L.MultiHeadAttention(2, 3)(bidirectional, encoded, use_causal_mask=True)
    y = L.Conv1D(5, 3, padding="causal", activation="gelu")(L.Embedding(11, 4)(words))
    y = L.GlobalAveragePooling1D()(L.SpatialDropout1D(0.1)(y))
    steps = L.LSTM(2)(L.TimeDistributed(L.Dense(2, activation="relu"))(attended))
    return keras.Model(words, [decoded, steps, y], name="sequences")


def means(keras: Any) -> Any:
    """Means over unmasked steps, of words and of vectors; cumulative sums."""
    L = keras.layers
    words, vectors = keras.Input((6,), dtype="int32", name="words"), keras.Input((5, 3), name="vectors")
    x = L.Embedding(9, 4, mask_zero=True)(words)
    x = L.GlobalAveragePooling1D()(L.Dropout(0.2)(L.Dense(3)(x)))
    masked = L.Masking(0.5)(L.ReLU()(vectors) + 0.5)
    sums = keras.ops.cumsum(vectors, axis=1)
    return keras.Model([words, vectors], [x, L.GlobalAveragePooling1D()(masked), sums], name="means")


def backwards(keras: Any) -> Any:
    """Layers that read sequences backwards and return all steps, with masks passed on."""
    L = keras.layers
    words = keras.Input((6,), dtype="int32", name="words")
    x = L.Embedding(9, 4, mask_zero=True)(words)
    end = {"go_backwards": True, "return_sequences": True}
    layers = [L.LSTM(3, **end), L.GRU(3, **end), L.SimpleRNN(3, **end), L.GRU(3, zero_output_for_mask=True, **end),
            L.RNN([L.GRUCell(2), L.LSTMCell(3)], **end), L.Bidirectional(L.LSTM(3, return_sequences=True))]  # fmt: skip
    outputs = [layer(way(x)) for way in layers for layer in (L.LSTM(2), L.GlobalAveragePooling1D())]
    return keras.Model(words, outputs, name="backwards")


def nested(keras: Any) -> Any:
    """Models in models, one of them called twice, shared layers, several inputs and outputs."""
    L = keras.layers
    x = keras.Input((5,))
    shared = L.Dense(4, activation="tanh", name="shared")
    tower = keras.Model(x, [shared(L.Dense(5)(x)), shared(x)], name="tower")
    head = keras.Sequential([keras.Input((4,)), L.Dense(3), L.BatchNormalization()], name="head")
    a, b = keras.Input((5,), name="a"), keras.Input((5,), name="b")
    a1, a2 = tower(a)
    b1, _ = tower(b)
    frozen = L.Dense(2, trainable=False, name="frozen")(a2)
    return keras.Model([a, b], [head(keras.ops.abs(a1 - b1)), frozen, 1.0 / (head(a2) + 3.0)], name="nested")


def films(keras: Any) -> Any:
    """A model applied to each frame of a video, followed by ConvLSTM2D."""
    L = keras.layers
    film = keras.Input((3, 6, 4, 2), name="film")
    inner = keras.Sequential([keras.Input((6, 4, 2)), L.Conv2D(3, 3, padding="same"), L.BatchNormalization(),
                              L.MaxPooling2D(), L.Flatten(), L.Dense(4)], name="inner")  # fmt: skip
    x = L.TimeDistributed(inner, name="each")(film)
    y = L.ConvLSTM2D(2, 2, padding="same", return_sequences=True)(film)
    return keras.Model(film, [L.LSTM(3)(x), L.ConvLSTM2D(2, 2)(y)], name="films")


def first(keras: Any) -> Any:
    """A model that is channels-first in Keras, too."""
    L, kind = keras.layers, "channels_first"
    image = keras.Input((3, 6, 4), name="image")
    x = L.Conv2D(4, 3, padding="same", data_format=kind)(image)
    x = L.BatchNormalization(axis=1)(x)
    x = L.MaxPooling2D(data_format=kind)(x)
    return keras.Model(image, L.Dense(3)(L.Flatten(data_format=kind)(x)), name="first")


def operations(keras: Any) -> Any:
    """Operations instead of layers."""
    ops, L = keras.ops, keras.layers
    x, image = keras.Input((5, 4), name="x"), keras.Input((4, 6, 3), name="image")
    parts = ops.split(x, 2, axis=-1)
    outputs = [
        2.0 - x, x / 4.0, x**2, ops.exp(x) + ops.sin(x), ops.maximum(x, 0.1), ops.clip(x, -0.5, 0.5),
        ops.matmul(x, ops.transpose(x, (0, 2, 1))), ops.softmax(x, axis=1), ops.sum(x, axis=1), ops.max(x, axis=-1),
        parts[0] * parts[1], x[:, 1:3], x[:, 0], x[..., ::2], ops.stack([x, x], axis=2), ops.leaky_relu(x, 0.1),
        ops.reshape(image, (-1, 24, 3)), ops.normalize(image), ops.mean(image, axis=(1, 2)), ops.gelu(x),
        ops.concatenate([image, ops.relu(image)], axis=-1), ops.squeeze(ops.expand_dims(x, 1), 1), ops.sqrt(ops.abs(x)),
        L.Rescaling([1.0, 2.0, 3.0], offset=[0.0, 1.0, -1.0])(image), ops.mean(image, axis=-1, keepdims=True),
    ]  # fmt: skip
    return keras.Model([x, image], outputs, name="operations")


def elements(keras: Any) -> Any:
    """Elementwise operations on floats, integers and booleans."""
    ops = keras.ops
    x, y, n = keras.Input((5, 4), name="x"), keras.Input((5, 4), name="y"), keras.Input((5, 4), name="n", dtype="int32")
    grid = np.linspace(-1.0, 2.0, 20, dtype="float32").reshape(1, 5, 4)
    floats = [
        ops.where(x > y, x, 0.0),
        ops.where(x > 0.2, y, grid),
        x * grid,
        ops.subtract(grid, x),
        x / y,
        ops.mod(x, 0.3),
        ops.fmod(x, y),
        x // 0.3,
        ops.abs(y) ** x,
        ops.divide_no_nan(x, ops.relu(y)),
        ops.hypot(x, y),
        ops.logaddexp(x, y),
        ops.expm1(x),
        ops.heaviside(x, y),
        ops.trunc(3.0 * x),
        ops.round(3.0 * x),
        ops.sinc(x),
        ops.arctanh(x / 2.0),
        ops.exp2(x),
        ops.cbrt(x),
        ops.erfc(x),
        ops.deg2rad(x),
        ops.log1p(ops.abs(x)),
        ops.rsqrt(ops.abs(x) + 1.0),
        ops.sign(x),
        ops.divide(x, 3.0),
        ops.fabs(x),
        ops.full_like(x, 2.5),
        ops.ones_like(x),
        x * 0.0,
        ops.copy(x),
        2.0**x,
        ops.nan_to_num(ops.log(x), nan=-2.0),
        ops.nan_to_num(x / n),
        ops.nan_to_num(x / n, posinf=3.0, neginf=-4.0),
    ]
    others = [
        n + 2,
        n // 2,
        n % 2,
        -n,
        ops.abs(n - 1),
        n * n,
        ops.bitwise_or(n, n + 4),
        ops.left_shift(n, n),
        n / 2,
        n * 1.5 + x,
        ops.maximum(n, 1),
        ops.clip(n, 1, 2),
        ops.cast(x > y, "int32"),
        ops.cast(n, "float32"),
        ops.zeros_like(n),
        ops.cast(ops.logical_and(x > 0.0, ops.logical_not(ops.equal(n, 1))), "float32"),
        ops.cast(ops.isfinite(x), "int32"),
        ops.cast(ops.logical_xor(x > 0.0, y > 0.0), "float32"),
        ops.where(n > 0, n, -1),
        ops.where(n > 1, 1.5, x),
        ops.nan_to_num(n),
    ]
    return keras.Model([x, y, n], [*floats, *others], name="elements")


def movements(keras: Any) -> Any:
    """Operations that move elements, and reductions."""
    ops = keras.ops
    x, index = keras.Input((5, 4), name="x"), keras.Input((3, 4), name="index", dtype="int32")
    square, table = keras.Input((3, 3), name="square"), np.arange(12, dtype="float32").reshape(4, 3)
    image = keras.Input((4, 6, 4), name="image")
    kernel = np.linspace(-1, 1, 2 * 3 * 4 * 2, dtype="float32").reshape(2, 3, 4, 2)
    outputs = [
        ops.take(x, np.array([1, 0, 1]), axis=1),
        ops.take(x, 2, axis=-1),
        ops.take(table, index, axis=0),
        ops.take(x, np.array([[0, 1], [3, 2]]), axis=2),
        ops.take_along_axis(x, index, axis=1),
        ops.flip(x, axis=1),
        ops.flip(x, axis=[1, 2]),
        ops.tile(x, [1, 2, 3]),
        ops.repeat(x, 2, axis=2),
        ops.roll(x, 2, axis=1),
        ops.moveaxis(image, 3, 1),
        ops.swapaxes(image, 1, 2),
        ops.tril(square),
        ops.triu(square, k=1),
        ops.diff(x),
        ops.cumsum(x, axis=1),
        ops.cumprod(x, axis=2),
        ops.one_hot(index, 5),
        *ops.top_k(x, 2),
        ops.sort(x, axis=1),
        ops.argsort(x),
        ops.argmax(x, axis=1),
        ops.argmin(x, axis=-1, keepdims=True),
        ops.einsum("bij,bkj->bik", x, x),
        ops.matmul(x, table),
        ops.matmul(np.ones((1, 2, 5), "float32"), x),
        ops.diagonal(square, axis1=1, axis2=2),
        ops.trace(square, axis1=1, axis2=2),
        ops.det(square),
        ops.var(x, axis=1),
        ops.std(x, axis=-1, keepdims=True),
        ops.logsumexp(x, axis=2),
        ops.ptp(x, axis=1),
        ops.norm(x, axis=-1),
        ops.sum(x, axis=[1, 2]),
        ops.average(x, axis=1),
        ops.cast(ops.any(x > 0.7, axis=1), "int32"),
        ops.cast(ops.all(x > -0.9, axis=2), "int32"),
        x[:, None, 1],
        x[:, 1:3, ::2],
        x[:, ..., -1],
        *ops.unstack(square, axis=1),
        *ops.array_split(x, 3, axis=1),
        ops.append(x, index, axis=1)[:, 4:],
        ops.conv(image, kernel, strides=(1, 2), padding="same"),
        ops.depth_to_space(image, 2),
        ops.space_to_depth(image, 2),
        ops.image.resize(image, (8, 3)),
        ops.image.crop_images(image, 1, 2, target_height=2, target_width=3),
        ops.image.pad_images(image, 1, 0, 2, 1),
        ops.adaptive_average_pool(image, (2, 3)),
        ops.pad(x, [[0, 0], [1, 2], [0, 1]]),
        ops.max_pool(image, 2),
        ops.fold(x[:, :4, :2], output_size=(2, 3), kernel_size=(2, 2)),
    ]
    return keras.Model([x, index, square, image], outputs, name="movements")


def trained(keras: Any, optimizer: Callable[[Any], Any]) -> Any:
    """A small net that was trained for three steps."""
    L = keras.layers
    image = keras.Input((5, 4, 2), name="image")
    x = L.Conv2D(3, 3, activation="tanh")(image)
    x = L.BatchNormalization()(x)
    x = L.Dense(4, activation="softmax", name="classes")(L.Flatten()(x))
    model = keras.Model(image, x, name="trained")
    model.compile(optimizer(keras.optimizers), "sparse_categorical_crossentropy", metrics=["accuracy"])
    random = np.random.default_rng(5)
    for weight in model.weights:
        if not weight.path.endswith(("variance", "mean", "gamma")):
            weight.assign(random.uniform(-0.5, 0.5, tuple(weight.shape)))
    for step in range(3):
        model.train_on_batch(*batch(step))
    return model


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples of a step: images and classes."""
    random = np.random.default_rng(100 + step)
    return random.uniform(-1, 1, (4, 5, 4, 2)).astype(np.float32), random.integers(0, 4, 4).astype(np.int32)


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "adam": lambda kinds: kinds.Adam(0.01, amsgrad=True),
    "sgd": lambda kinds: kinds.SGD(kinds.schedules.CosineDecay(0.1, 20), momentum=0.9, nesterov=True, clipnorm=1.0),
    "rmsprop": lambda kinds: kinds.RMSprop(0.01, momentum=0.5, centered=True),
    "nadam": lambda kinds: kinds.Nadam(0.01, weight_decay=0.02),
    "adagrad": lambda kinds: kinds.Adagrad(0.05),
    "adafactor": lambda kinds: kinds.Adafactor(0.05, weight_decay=0.1),
    "muon": lambda kinds: kinds.Muon(0.05, momentum=0.8),
    "muon_but_classes": lambda kinds: kinds.Muon(0.05, exclude_layers=["class"], rms_rate=None),
}

NETS: dict[str, Callable[[Any], Any]] = {
    **{f"catalogue_{part}": partial(catalogue, part=part, parts=3) for part in range(3)},
    "images": images,
    "decoder": decoder,
    "sequences": sequences,
    "nested": nested,
    "means": means,
    "backwards": backwards,
    "films": films,
    "first": first,
    "operations": operations,
    "elements": elements,
    "movements": movements,
    **{f"trained_{name}": partial(trained, optimizer=optimizer) for name, optimizer in OPTIMIZERS.items()},
}  # fmt: skip
