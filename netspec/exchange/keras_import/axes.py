"""How the axes of Keras's tensors lie here.

Of every tensor an order is kept: axis k in Keras is axis `order[k]` here. Images are channels-last there and
channels-first here, sequences are the same; layers that read single numbers, or along given axes, take what comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from netspec.exchange.keras_import.config import Call, is_operation
from netspec.exchange.keras_names import DATA_FORMAT, SPATIAL_WITHOUT_FORMAT, layer_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from netspec.graph.value import Value

Order = tuple[int, ...]


@dataclass(frozen=True)
class Through:
    """What of a tensor goes through all samples of a batch, which no layer here can read."""

    rows: int = 0
    """Axis 0 in Keras is all samples' rows, so many each, which are axis 1 here; 0: it is the batch."""
    first: int | None = None
    """They are the numbers of the samples, of which the first has this one. They stand nowhere in the net."""
    numbered: bool = False
    """In Keras each row begins with the number of its sample, which is left out here."""


@dataclass(frozen=True)
class Held:
    """A tensor of Keras as it is here."""

    source: str
    """What layers call it in `from`."""
    value: Value
    order: Order
    rows: Any = None
    """Of a flattened image: feature i in Keras is feature `rows[i]` here. Only layers whose weights can be put in
    that order, and those of single numbers, read such a tensor."""
    is_input: bool = False
    through: Through | None = None
    """Of what goes through all samples, how."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes in Keras's order, the batch first."""
        return tuple(self.value.shape[axis] for axis in self.order)

    @property
    def is_plain(self) -> bool:
        """Whether all is as in Keras."""
        return self.order == identity(len(self.order)) and self.rows is None


def identity(rank: int) -> Order:
    """Axes as in Keras."""
    return tuple(range(rank))


def channels_first(rank: int, lead: int = 1) -> Order:
    """The order of an image that is channels-last in Keras; `lead` axes stand before those of each image."""
    if rank < lead + 2:
        return identity(rank)
    return (*range(lead), *range(lead + 1, rank), lead)


def moved(order: Order, wanted: Order) -> tuple[int, ...]:
    """The axes of a tensor in the order in which it comes to lie as wanted: a permutation for Transpose."""
    found = [0] * len(order)
    for have, want in zip(order, wanted, strict=True):
        found[want] = have
    return tuple(found)


def axis_here(axis: int, order: Order) -> int:
    """An axis of Keras, counted from the end where negative, as it is counted here."""
    rank = len(order)
    return order[axis] if -rank <= axis < rank else axis


def moves_nothing(shape: tuple[int, ...], order: tuple[int, ...]) -> bool:
    """Whether the numbers of an array of that shape stay where they are when its axes are taken in that order."""
    large = [axis for axis in order if shape[axis] != 1]
    return large == sorted(large)


def turned_rows(shape: tuple[int, ...], order: tuple[int, ...]) -> NDArray[Any]:
    """For each place of the flattened sample in Keras the place here; `shape` without batch, here; axes in Keras's."""
    import numpy as np

    places = np.arange(int(np.prod(shape, dtype=np.int64)))
    return places.reshape(shape).transpose(order).ravel()


KEEPS = frozenset(
    (
        "Activation", "ReLU", "LeakyReLU", "ELU", "ThresholdedReLU", "Dropout", "AlphaDropout", "GaussianDropout",
        "GaussianNoise", "Identity", "ActivityRegularization", "Add", "Subtract", "Multiply", "Average", "Maximum",
        "Minimum", "Rescaling", "BatchNormalization", "LayerNormalization", "GroupNormalization", "Normalization",
        "RMSNormalization", "UnitNormalization", "Softmax", "Concatenate", "PReLU", "Merge", "SpatialDropout1D",
        "SpatialDropout2D", "SpatialDropout3D",
    )
)  # fmt: skip
"""Layers that take their input in any order of axes, and make their output in that order."""
PASSES_ROWS = frozenset(
    (
        "Activation", "ReLU", "LeakyReLU", "ELU", "ThresholdedReLU", "Dropout", "AlphaDropout", "GaussianDropout",
        "GaussianNoise", "Identity", "ActivityRegularization", "BatchNormalization",
    )
)  # fmt: skip
"""Of those: the ones that a flattened image may pass in another order of features."""
OF_ELEMENTS = frozenset(
    (
        "Add", "Subtract", "Multiply", "Divide", "TrueDivide", "Power", "Maximum", "Minimum", "Clip", "Exp", "Log",
        "Sqrt", "Square", "Abs", "Absolute", "Negative", "Relu", "Relu6", "Sigmoid", "Tanh", "Silu", "Gelu", "Elu",
        "LeakyRelu", "HardSigmoid", "HardSilu", "Softplus", "Softsign", "Selu", "Cast", "Concatenate", "Pad",
    )
)  # fmt: skip
"""Operations, not layers, of which the same is true: what reads their result says how the axes are best laid."""


@dataclass(frozen=True)
class Wish:
    """How a layer wants its input."""

    kind: Literal["first", "plain", "any", "none"]
    """Images channels-first; axes as in Keras; as they come; or so, while it says nothing of them."""
    lead: int = 1
    """For channels-first: how many axes stand before those of an image."""


def wish_of(class_name: str, config: Mapping[str, Any], module: str = "", wrapped: int = 0) -> Wish:
    """The wish of a layer; `wrapped` is how many TimeDistributed there are around its model."""
    type_ = layer_type(class_name)
    if type_ in ("TimeDistributed", "SpectralNormalization", "Bidirectional"):
        inner = config.get("layer") or config.get("forward_layer")
        if isinstance(inner, dict) and isinstance(inner.get("config"), dict):
            more = int(type_ == "TimeDistributed")
            return wish_of(str(inner.get("class_name")), inner["config"], "", wrapped + more)
        return Wish("plain")
    if is_operation(module) or type_ in ("TFOpLambda", "SlicingOpLambda"):
        return Wish("any" if type_ in OF_ELEMENTS else "none")
    if type_ in KEEPS:
        return Wish("any")
    if type_ in ("Flatten", "Reshape"):
        return Wish("none")
    if type_ in SPATIAL_WITHOUT_FORMAT or DATA_FORMAT.fullmatch(type_):
        lead = 1 + wrapped + type_.startswith("ConvLSTM")
        first = data_format(config) == "channels_first" and type_ not in SPATIAL_WITHOUT_FORMAT
        return Wish("plain") if first else Wish("first", lead)
    return Wish("plain")


def data_format(config: Mapping[str, Any]) -> str:
    """Where a layer has the channels. Keras 1 called it `dim_ordering`, with `th` for channels-first."""
    old = {"th": "channels_first", "tf": "channels_last"}.get(str(config.get("dim_ordering")))
    return str(config.get("data_format") or old or "channels_last")


def wish_of_call(call: Call) -> Wish:
    """The wish of the layer that is called."""
    layer = call.layer
    return wish_of(layer.class_name, layer.config, layer.module, layer.wrapped)
