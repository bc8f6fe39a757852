"""Encodings of a vector's position in its sequence: names and meaning are KerasHub's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.linear import Gather
from netspec.graph.ops.reduce import BroadcastLike, reshape_to
from netspec.graph.ops.shape import Concat, Slice
from netspec.graph.ops.source import constant
from netspec.graph.value import Value, require_precomputable
from netspec.layers.base import Builder, LayerSpec, Sample, StepPosition, StepStates
from netspec.layers.checks import PositiveInt, require, sample_axis
from netspec.layers.initializers.base import Initializer
from netspec.layers.initializers.variance_scaling import GlorotUniform
from netspec.schema.specs.kinds import LAYERS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def _require_sequence(x: Value) -> None:
    require(
        len(x.shape) >= 3,
        "the input is not a sequence of vectors",
        expected="(batch, …, steps, features)",
        got=x.type,
        hint="put an Embedding before it to turn integers into vectors" if len(x.shape) == 2 else None,
    )


class PositionLayer(LayerSpec):
    """Base of layers whose output depends on the position, which `build_step` therefore needs."""

    def step_states(self, steps: int) -> StepStates | None:
        """Return that the position is needed, and nothing else."""
        return StepStates(needs_position=True)


@LAYERS.register
class PositionEmbedding(PositionLayer):
    """A learned vector for each position of a sequence, the same in all samples. Add it to the input.

    Input (N, …, T, C), of which only the shape is used; output the same shape.
    """

    type: Literal["PositionEmbedding"] = "PositionEmbedding"
    sequence_length: PositiveInt
    """Number of positions: the length of the longest sequence."""
    initializer: Initializer = GlorotUniform()
    """First values of `embeddings` (sequence_length, C)."""

    onnx_roundtrip_blocker: ClassVar = "ONNX has no such operator: the vectors are written as a constant"
    passes_mask: ClassVar = True
    samples: ClassVar = (
        Sample.of((2, 3, 4), sequence_length=3),
        Sample.of((2, 2, 3, 4), sequence_length=5),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …, T, C) → (N, …, T, C)."""
        _require_sequence(x)
        positions, features = x.shape[-2:]
        require(
            positions <= self.sequence_length,
            f"the sequence is longer than `sequence_length`: {self.sequence_length}",
            expected=f"at most {self.sequence_length} steps",
            got=x.type,
            hint=f"`sequence_length: {positions}`",
        )
        table = self._table(builder, features)
        return BroadcastLike()(
            table if positions == self.sequence_length else Slice(0, 0, positions)(table), builder.floating(x)
        )

    def build_step(self, builder: Builder, x: Value, states: Sequence[Value], at: StepPosition) -> tuple[Value, ...]:
        """x: (N, 1, C) → (N, 1, C)."""
        return (reshape_to(Gather()(self._table(builder, x.shape[-1]), at.index), x.shape),)

    def _table(self, builder: Builder, features: int) -> Value:
        return builder.parameter("embeddings", (self.sequence_length, features), self.initializer)


def sines(positions: int, features: int, max_wavelength: float) -> NDArray[np.float64]:
    """The vectors (positions, features) of a SinePositionEncoding. Vaswani et al. 2017, arXiv:1706.03762."""
    import numpy as np

    require_precomputable(positions * features, "elements in the encoding")
    index = np.arange(features)
    angles = np.arange(positions)[:, None] * max_wavelength ** -(2 * (index // 2) / features)
    return np.where(index % 2, np.cos(angles), np.sin(angles))


@LAYERS.register
class SinePositionEncoding(PositionLayer):
    """A fixed vector for each position of a sequence: sines and cosines of increasing wavelengths. Add it to the input.

    Input (N, …, T, C), of which only the shape is used; output the same shape. At position p, feature 2i is sin(p /
    max_wavelength^(2i/C)) and feature 2i + 1 the cosine of the same angle. Vaswani et al. 2017, arXiv:1706.03762.
    """

    type: Literal["SinePositionEncoding"] = "SinePositionEncoding"
    max_wavelength: float = Field(default=10000, gt=0)
    """The longest wavelength, divided by 2π."""

    onnx_roundtrip_blocker: ClassVar = "ONNX has no such operator: the vectors are written as a constant"
    passes_mask: ClassVar = True
    samples: ClassVar = (Sample.of((2, 5, 4)), Sample.of((2, 2, 3, 5), max_wavelength=50.0))

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …, T, C) → (N, …, T, C)."""
        _require_sequence(x)
        positions, features = x.shape[-2:]
        return BroadcastLike()(self._encoding(builder, positions, features), builder.floating(x))

    def build_step(self, builder: Builder, x: Value, states: Sequence[Value], at: StepPosition) -> tuple[Value, ...]:
        """x: (N, 1, C) → (N, 1, C)."""
        return (reshape_to(Gather()(self._encoding(builder, at.steps, x.shape[-1]), at.index), x.shape),)

    def _encoding(self, builder: Builder, positions: int, features: int) -> Value:
        return constant(sines(positions, features, self.max_wavelength).astype(str(builder.dtype)))


@LAYERS.register
class RotaryEmbedding(PositionLayer):
    """Rotate each vector of a sequence by angles proportional to its position: dot products then depend on distances.

    Input (N, …) with an axis of positions and one of features, output the same. Features i and i + C/2 are rotated
    together, at position p by p / (scaling_factor · max_wavelength^(2i/C)). Su et al. 2021, arXiv:2104.09864.
    """

    type: Literal["RotaryEmbedding"] = "RotaryEmbedding"
    max_wavelength: float = Field(default=10000, gt=0)
    """The longest wavelength, divided by 2π."""
    scaling_factor: float = Field(default=1.0, gt=0)
    """Factor on all wavelengths, for sequences longer than those in the training data."""
    sequence_axis: int = 1
    """The axis of positions."""
    feature_axis: int = -1
    """The axis of features, whose size must be even."""

    onnx_roundtrip_blocker: ClassVar = "it is exported as products and slices"
    passes_mask: ClassVar = True
    samples: ClassVar = (
        Sample.of((2, 3, 4)),
        Sample.of((2, 3, 2, 4), sequence_axis=2, max_wavelength=100.0, scaling_factor=2.0),
        Sample.of((2, 6, 3), sequence_axis=2, feature_axis=1),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x → the same shape."""
        positions = sample_axis(x, self.sequence_axis, "for positions")
        features = sample_axis(x, self.feature_axis, "for features")
        require(
            positions != features,
            "positions and features must be different axes",
            expected="two axes",
            got=f"both {positions}",
        )
        x, size = builder.floating(x), x.shape[features]
        cosine_table, sine_table = self._tables(x.shape[positions], size)

        def to_shape_of_x(table: Any) -> Value:
            """A table (positions, features) in a shape that broadcasts with x."""
            shape = [1] * len(x.shape)
            shape[positions], shape[features] = x.shape[positions], size
            return constant((table if positions < features else table.T).reshape(shape).astype(str(x.dtype)))

        return _rotated(x, features, to_shape_of_x(cosine_table), to_shape_of_x(sine_table))

    def step_states(self, steps: int) -> StepStates | None:
        """Return that the position is needed, for sequences (N, T, C)."""
        return super().step_states(steps) if self.sequence_axis == 1 and self.feature_axis in (-1, 2) else None

    def build_step(self, builder: Builder, x: Value, states: Sequence[Value], at: StepPosition) -> tuple[Value, ...]:
        """x: (N, 1, C) → (N, 1, C)."""
        x, size = builder.floating(x), x.shape[-1]
        rows = [
            reshape_to(Gather()(constant(table.astype(str(x.dtype))), at.index), (x.shape[0], 1, size))
            for table in self._tables(at.steps, size)
        ]
        return (_rotated(x, 2, *rows),)

    def _tables(self, positions: int, size: int) -> tuple[Any, Any]:
        """Cosines and sines of the angles, (positions, size)."""
        import numpy as np

        require(size % 2 == 0, "features are rotated in pairs", expected="an even number of features", got=f"{size}")
        require_precomputable(positions * size, "angles")
        half = size // 2
        slower = self.scaling_factor * self.max_wavelength ** (np.arange(half) / half)
        angles = np.tile(np.arange(positions)[:, None] / slower, 2)
        return np.cos(angles), np.sin(angles)


def _rotated(x: Value, axis: int, cosines: Value, sines: Value) -> Value:
    """Rotate the pairs of features along an axis."""
    size = x.shape[axis]
    turned = Concat(axis)(-Slice(axis, size // 2, size)(x), Slice(axis, 0, size // 2)(x))
    return x * cosines + turned * sines
