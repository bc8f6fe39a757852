"""Where in a sequence a vector stands, told to layers that treat all places alike: names and meaning are KerasHub's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.reduce import BroadcastLike
from netspec.graph.ops.shape import Concat, Slice
from netspec.graph.ops.source import constant
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, need, sample_axis
from netspec.layers.initializers import GlorotUniform, Initializer
from netspec.schema.kinds import LAYERS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def _need_sequence(x: Value) -> None:
    need(
        len(x.shape) >= 3,
        "the input is not a sequence of vectors",
        expected="(batch, …, places, features)",
        got=x.type,
        hint="numbers of words become vectors by an Embedding before it" if len(x.shape) == 2 else None,
    )


@LAYERS.register
class PositionEmbedding(LayerSpec):
    """A learned vector for each place of a sequence, the same in all samples. Add it to the input.

    Input (N, …, T, C), of which only the shape counts; output the same shape.
    """

    type: Literal["PositionEmbedding"] = "PositionEmbedding"
    sequence_length: PositiveInt
    """for how many places there are vectors: the length of the longest sequence"""
    initializer: Initializer = GlorotUniform()
    """first values of `embeddings` (sequence_length, C)"""

    one_way: ClassVar = "ONNX has no such operator: the vectors are written as a constant"
    passes_mask: ClassVar = True
    samples: ClassVar = (
        Sample.of((2, 3, 4), sequence_length=3),
        Sample.of((2, 2, 3, 4), sequence_length=5),
    )

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …, T, C) → (N, …, T, C)."""
        _need_sequence(x)
        places, features = x.shape[-2:]
        need(
            places <= self.sequence_length,
            f"the sequence has {places} places, and there are vectors for {self.sequence_length}",
            expected=f"at most {self.sequence_length} places",
            got=x.type,
            hint=f"`sequence_length: {places}`",
        )
        table = net.parameter("embeddings", (self.sequence_length, features), self.initializer)
        return BroadcastLike()(table if places == self.sequence_length else Slice(0, 0, places)(table), net.floating(x))


def sines(places: int, features: int, max_wavelength: float) -> NDArray[np.float64]:
    """The vectors (places, features) of a SinePositionEncoding. Vaswani et al. 2017, arXiv:1706.03762."""
    import numpy as np

    index = np.arange(features)
    angles = np.arange(places)[:, None] * max_wavelength ** -(2 * (index // 2) / features)
    return np.where(index % 2, np.cos(angles), np.sin(angles))


@LAYERS.register
class SinePositionEncoding(LayerSpec):
    """A fixed vector for each place of a sequence, of sines and cosines of rising wavelengths. Add it to the input.

    Input (N, …, T, C), of which only the shape counts; output the same shape. At place p, feature 2i is
    sin(p / max_wavelength^(2i/C)), feature 2i + 1 the cosine of the same. Vaswani et al. 2017, arXiv:1706.03762.
    """

    type: Literal["SinePositionEncoding"] = "SinePositionEncoding"
    max_wavelength: float = Field(default=10000, gt=0)
    """the longest wavelength, divided by 2π"""

    one_way: ClassVar = "ONNX has no such operator: the vectors are written as a constant"
    passes_mask: ClassVar = True
    samples: ClassVar = (Sample.of((2, 5, 4)), Sample.of((2, 2, 3, 5), max_wavelength=50.0))

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …, T, C) → (N, …, T, C)."""
        _need_sequence(x)
        places, features = x.shape[-2:]
        made = sines(places, features, self.max_wavelength)
        return BroadcastLike()(constant(made.astype(str(net.dtype))), net.floating(x))


@LAYERS.register
class RotaryEmbedding(LayerSpec):
    """Turn each vector of a sequence by angles that grow with its place: products then depend on distances.

    Input (N, …) with an axis of places and one of features, output the same. Features i and i + C/2 are turned
    together, at place p by p / (scaling_factor · max_wavelength^(2i/C)). Su et al. 2021, arXiv:2104.09864.
    """

    type: Literal["RotaryEmbedding"] = "RotaryEmbedding"
    max_wavelength: float = Field(default=10000, gt=0)
    """the longest wavelength, divided by 2π"""
    scaling_factor: float = Field(default=1.0, gt=0)
    """by how much all wavelengths are longer than in training on shorter sequences"""
    sequence_axis: int = 1
    """the axis of places"""
    feature_axis: int = -1
    """the axis of features, of which there must be an even number"""

    one_way: ClassVar = "it is written as products and slices, which are not put together again"
    passes_mask: ClassVar = True
    samples: ClassVar = (
        Sample.of((2, 3, 4)),
        Sample.of((2, 3, 2, 4), sequence_axis=2, max_wavelength=100.0, scaling_factor=2.0),
        Sample.of((2, 6, 3), sequence_axis=2, feature_axis=1),
    )

    def build(self, net: Builder, x: Value) -> Value:
        """x → the same shape."""
        import numpy as np

        places = sample_axis(x, self.sequence_axis, "of places")
        features = sample_axis(x, self.feature_axis, "of features")
        need(places != features, "places and features are one axis", expected="two axes", got=f"both {places}")
        size = x.shape[features]
        need(size % 2 == 0, "features are turned in pairs", expected="an even number of features", got=f"{size}")
        x, half = net.floating(x), size // 2
        slower = self.scaling_factor * self.max_wavelength ** (np.arange(half) / half)
        angles = np.tile(np.arange(x.shape[places])[:, None] / slower, 2)

        def along(table: Any) -> Value:
            """Places by features, to be multiplied by x."""
            shape = [1] * len(x.shape)
            shape[places], shape[features] = x.shape[places], size
            return constant((table if places < features else table.T).reshape(shape).astype(str(x.dtype)))

        turned = Concat(features)(-Slice(features, half, size)(x), Slice(features, 0, half)(x))
        return x * along(np.cos(angles)) + turned * along(np.sin(angles))
