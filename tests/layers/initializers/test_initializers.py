from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest

import netspec.layers  # noqa: F401  registers the classes
from netspec.layers.initializers.base import fans
from netspec.schema.specs.annotations import fields_by_name
from netspec.schema.specs.docs import field_docs
from netspec.schema.specs.kinds import INITIALIZERS, REGULARIZERS
from tests.layers.apply import layer

SHAPE = (60, 40, 3, 3)
FAN_IN, FAN_OUT = 40 * 9, 60 * 9

# From Keras's documentation: the variance, and the maximum magnitude (None: unlimited).
UNIFORM = {
    "GlorotUniform": sqrt(6 / (FAN_IN + FAN_OUT)),
    "HeUniform": sqrt(6 / FAN_IN),
    "LecunUniform": sqrt(3 / FAN_IN),
    "RandomUniform": 0.05,
}
NORMAL = {
    "GlorotNormal": sqrt(2 / (FAN_IN + FAN_OUT)),
    "HeNormal": sqrt(2 / FAN_IN),
    "LecunNormal": sqrt(1 / FAN_IN),
    "RandomNormal": 0.05,
    "TruncatedNormal": 0.05 * 0.87962566,  # cut at two standard deviations
    "VarianceScaling": sqrt(1 / FAN_IN),
}
REPEATED = {"Zeros": 0.0, "Ones": 1.0, "Constant": 0.0}
OTHERS = {"Orthogonal", "Identity", "Bilinear", "PositiveUnitball", "STFT"}
FIXED = {*REPEATED, "Identity", "Bilinear", "STFT"}
WHOLE = {"STFT": (40, 1, 60)}
"""Shapes for initializers that do not accept arbitrary shapes."""
UNBOUNDED = {"RandomNormal"}


def draw(fields: str | dict[str, Any], shape: tuple[int, ...] = SHAPE, seed: int = 1, name: str = "w") -> np.ndarray:
    spec: Any = INITIALIZERS.parse(fields)
    sample = spec.sample(seed, name, shape, "float64")
    assert isinstance(sample, np.ndarray)
    return sample


def test_every_initializer_is_tested_here():
    assert set(INITIALIZERS.names()) == {*UNIFORM, *NORMAL, *REPEATED, *OTHERS}


@pytest.mark.parametrize("name", INITIALIZERS.names())
def test_initializer_is_documented_and_depends_on_seed_and_name(name):
    cls = INITIALIZERS[name]
    assert cls.__doc__
    assert fields_by_name(cls).keys() - field_docs(cls).keys() <= {"type"}
    shape = WHOLE.get(name, SHAPE)
    first = draw(name, shape)
    np.testing.assert_array_equal(first, draw(name, shape))
    if name not in FIXED:
        assert (first != draw(name, seed=2)).mean() > 0.99
        assert (first != draw(name, name="v")).mean() > 0.99


@pytest.mark.parametrize(("name", "limit"), UNIFORM.items())
def test_uniform_initializers_fill_their_interval(name, limit):
    numbers = draw(name)
    assert abs(numbers).max() <= limit
    # 21600 values: the standard deviation of a uniform sample has an error of 0.3 %; within five of them
    assert numbers.std() == pytest.approx(limit / sqrt(3), rel=0.015)
    assert abs(numbers.mean()) < 5 * limit / sqrt(3 * numbers.size)


@pytest.mark.parametrize(("name", "deviation"), NORMAL.items())
def test_normal_initializers_have_their_deviation(name, deviation):
    numbers = draw(name)
    assert numbers.std() == pytest.approx(deviation, rel=0.025)
    assert abs(numbers.mean()) < 5 * deviation / sqrt(numbers.size)
    if name not in UNBOUNDED:
        assert abs(numbers).max() <= 2 * deviation / 0.87962566 * (1 + 1e-8)


@pytest.mark.parametrize(("name", "value"), REPEATED.items())
def test_constant_initializers(name, value):
    np.testing.assert_array_equal(draw(name), np.full(SHAPE, value))


def test_initializer_fields_have_an_effect():
    np.testing.assert_array_equal(draw({"type": "Constant", "value": 2.5}, (2,)), [2.5, 2.5])
    numbers = draw({"type": "RandomUniform", "minval": 3.0, "maxval": 4.0})
    assert 3 <= numbers.min() < numbers.max() <= 4
    assert draw({"type": "RandomNormal", "mean": 5.0, "stddev": 0.1}).mean() == pytest.approx(5, abs=0.01)
    scaled = draw({"type": "VarianceScaling", "scale": 2.0, "mode": "fan_out", "distribution": "uniform"})
    assert scaled.std() == pytest.approx(sqrt(2 / FAN_OUT), rel=0.015)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((), (1, 1)), ((7,), (7, 7)), ((3, 5), (3, 5)), ((8, 4, 3, 3), (36, 72)), ((8, 4, 3), (12, 24))],
)
def test_fans_of_dense_and_convolution_kernels(shape, expected):
    assert fans(shape) == expected


def test_layers_use_their_initializers():
    applied = layer(
        {"type": "Dense", "units": 3, "kernel_initializer": "ones", "bias_initializer": "ones"}, np.ones((1, 2))
    )
    np.testing.assert_array_equal(applied.y, [[3, 3, 3]])


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"type": "L1", "l1": 0.5}, 3.0),
        ({"type": "L2", "l2": 0.5}, 7.0),
        ({"type": "L1L2", "l1": 1.0, "l2": 2.0}, 34.0),
    ],
)
def test_regularizers_match_their_formulas(fields, expected):
    spec = {"type": "Dense", "units": 1, "use_bias": False, "kernel_regularizer": fields}
    applied = layer(spec, np.zeros((1, 3)), training=True, kernel=[[1], [-2], [3]])
    applied.outputs = tuple(applied.net.penalties)
    assert applied.y == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("name", REGULARIZERS.names())
def test_regularizers_are_documented(name):
    cls = REGULARIZERS[name]
    assert cls.__doc__
    assert fields_by_name(cls).keys() - field_docs(cls).keys() <= {"type"}


@pytest.mark.parametrize("shape", [(5, 5), (4, 12), (12, 4), (6, 2, 3, 3), (18, 2, 2, 2)])
def test_orthogonal_rows_or_columns(shape):
    matrix = draw({"type": "Orthogonal", "gain": 0.5}, shape).reshape(shape[0], -1)
    product = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(product, 0.25 * np.eye(len(product)), atol=1e-14)


def test_orthogonal_matrices_are_unbiased_in_sign():
    """LAPACK's QR has diagonals of R of one sign, which must not affect the signs of Q."""
    diagonals = np.concatenate([np.diagonal(draw("Orthogonal", (8, 8), seed=seed)) for seed in range(50)])
    # the mean of 400 signs has a standard error of 0.05; within five of them
    assert abs(np.sign(diagonals).mean()) < 0.25


@pytest.mark.parametrize(("shape", "inputs"), [((300, 40), 300), ((40, 30, 5, 5), 30 * 25), ((70,), 70)])
def test_positive_weights_of_an_output_sum_to_one(shape, inputs):
    """Caffe's positive_unitball: uniform values divided by their sum; mean 1 / inputs, maximum about twice that."""
    numbers = draw("PositiveUnitball", shape)
    by_output = numbers.T if len(shape) == 2 else numbers.reshape(-1, inputs)
    np.testing.assert_allclose(by_output.sum(axis=1), 1, rtol=1e-12)
    assert numbers.min() >= 0
    # Uniform values have the standard deviation 1/√12 and mean ½; sums of 70 or more differ by a few percent.
    assert numbers.std() * inputs == pytest.approx(1 / sqrt(3), rel=0.2)


def test_sparse_gaussian_keeps_the_given_number_of_outputs():
    numbers = draw({"type": "RandomNormal", "stddev": 0.5, "sparse": 8}, (2000, 40))
    nonzero = numbers != 0
    # 80000 draws with probability 1/5: the share has a standard error of 0.0014; within five of them
    assert nonzero.mean() == pytest.approx(8 / 40, abs=0.007)
    assert numbers[nonzero].std() == pytest.approx(0.5, rel=0.03)
    assert (draw({"type": "RandomNormal", "sparse": 3}, (40, 200, 3, 3)) != 0).mean() == pytest.approx(
        3 / 40, abs=0.007
    )


def test_identity_initializer_makes_layers_the_identity():
    np.testing.assert_array_equal(draw({"type": "Identity", "gain": 2.0}, (3, 5)), 2 * np.eye(3, 5))
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 6))
    conv = {"type": "Conv2D", "filters": 3, "kernel_size": [3, 5], "padding": "same"}
    applied = layer({**conv, "kernel_initializer": "identity"}, x)
    np.testing.assert_allclose(applied.y, x, rtol=1e-12)


@pytest.mark.parametrize("size", [3, 4, 5])
def test_bilinear_matches_caffe(size):
    """BilinearFiller of filler.hpp, element by element."""
    f = -(-size // 2)
    c = (2 * f - 1 - f % 2) / (2.0 * f)
    expected = [[(1 - abs(x / f - c)) * (1 - abs(y / f - c)) for x in range(size)] for y in range(size)]
    np.testing.assert_allclose(draw("Bilinear", (2, 1, size, size)), np.broadcast_to(expected, (2, 1, size, size)))


def test_bilinear_upsampling_preserves_planes():
    """Except at its border, a transposed convolution with these weights upsamples a linear function exactly."""
    factor = 2
    fields = {"type": "Conv2DTranspose", "filters": 2, "groups": 2, "kernel_size": 4, "strides": 2, "padding": 1}
    plane = np.add.outer(np.arange(5.0), 3 * np.arange(6.0))
    y = layer({**fields, "kernel_initializer": "bilinear", "use_bias": False}, np.stack([plane, -plane])[None]).y[0]
    inner = y[0, 2:-2, 2:-2]
    np.testing.assert_allclose(np.diff(inner, axis=0), 1 / factor, rtol=1e-12)
    np.testing.assert_allclose(np.diff(inner, axis=1), 3 / factor, rtol=1e-12)


def test_caffe_xavier_and_msra_match_variance_scaling():
    xavier = draw({"type": "VarianceScaling", "distribution": "uniform"})
    assert abs(xavier).max() <= sqrt(3 / FAN_IN)
    assert xavier.std() == pytest.approx(sqrt(1 / FAN_IN), rel=0.015)
    msra = draw({"type": "VarianceScaling", "scale": 2.0, "distribution": "untruncated_normal", "mode": "fan_avg"})
    assert msra.std() == pytest.approx(sqrt(2 / ((FAN_IN + FAN_OUT) / 2)), rel=0.025)
    assert abs(msra).max() > 2.5 * msra.std()


@pytest.mark.parametrize("mode", ["rows", "columns"])
def test_orthogonal_regularizer_is_the_mean_absolute_cosine(mode):
    matrix = np.random.default_rng(1).normal(size=(4, 3))
    penalty = {"type": "OrthogonalRegularizer", "factor": 0.5, "mode": mode}
    applied = layer(
        {"type": "Dense", "units": 3, "kernel_regularizer": penalty}, np.zeros((1, 4)), training=True, kernel=matrix
    )
    applied.outputs = tuple(applied.net.penalties)
    vectors = matrix if mode == "rows" else matrix.T
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = abs(unit @ unit.T)[np.triu_indices(len(unit), 1)]
    assert applied.y == pytest.approx(0.5 * cosines.mean(), rel=1e-12)


# Results of keras.initializers.STFT (3.15), one column for each frequency. Windows are NumPy's `hanning`, `hamming` and
# `blackman` (periodic ones without the last of one more value), since Keras takes arrays, too.
KERAS_STFT = [
    (
        {},
        [[0, 0.252311319356, 0.66055960982, 0.66055960982, 0.252311319356, 0],
         [0, 0.126155659678, -0.33027980491, -0.66055960982, -0.126155659678, 0],
         [0, -0.126155659678, -0.33027980491, 0.66055960982, -0.126155659678, 0],
         [0, -0.252311319356, 0.66055960982, -0.66055960982, 0.252311319356, 0]],
    ),
    (
        {"side": "imag", "window": "hamming", "scaling": "spectrum", "periodic": True},
        [[0, 0, 0, 0, 0], [0, -0.1473526602176, 0, 0.3378325249676, 0], [0, 0, 0, 0, 0]],
    ),
    ({"window": None}, [[1, 1, 1, 1], [1, 0, -1, 0], [1, -1, 1, -1]]),
    (
        {"side": "imag", "window": "blackman", "scaling": None},
        [[0, 0, 0, 0, 0], [0, -0.2944486372867, -0.8660254037844, 0, 0],
         [0, -0.2944486372867, 0.8660254037844, 0, 0], [0, 0, 0, 0, 0]],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "expected"), KERAS_STFT)
def test_stft_matches_keras(fields, expected):
    kernel = np.array(expected)[:, None]
    actual = draw({"type": "STFT", **fields}, kernel.shape)
    np.testing.assert_allclose(actual, kernel, rtol=1e-11, atol=1e-15)  # recorded to 12 digits


def test_stft_convolution_is_a_fourier_transform():
    x = np.random.default_rng(4).normal(size=(2, 1, 16))
    parts = []
    for side in ("real", "imag"):
        initial = {"type": "STFT", "side": side, "window": "hann", "scaling": None, "periodic": True}
        fields = {"type": "Conv1D", "filters": 5, "kernel_size": 8, "strides": 4, "use_bias": False}
        parts.append(layer(fields, x, kernel=draw(initial, (5, 1, 8))).y)
    frames = np.stack([x[:, 0, start : start + 8] for start in (0, 4, 8)], -1)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(8) / 8)
    expected = np.fft.rfft(frames * window[:, None], axis=1)
    np.testing.assert_allclose(parts[0] + 1j * parts[1], expected, atol=1e-12)
