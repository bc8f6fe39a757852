"""The order of axes in which the net stores Keras's tensors, and the order that the readers of a tensor prefer.

Each tensor has an order: axis k in Keras is axis `order[k]` in the net. Images are channels-last in Keras and
channels-first in the net; sequences have the same order. Elementwise layers, and layers along given axes, take any
order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.axis_view import AxisView
from netspec.exchange.formats.keras.importing.config import ConfiguredLayer, LayerCall, ModelGraph, is_operation
from netspec.exchange.formats.keras.names import DATA_FORMAT, SPATIAL_WITHOUT_FORMAT, layer_type
from netspec.exchange.reachability import needed_steps
from netspec.graph.value import Value

Order = tuple[int, ...]


@dataclass(frozen=True)
class SampleIndices:
    """How a tensor combines all samples of a batch; layers of netspec cannot read such a tensor."""

    rows_per_sample: int = 0
    """Number of rows per sample, if axis 0 in Keras has the rows of all samples (axis 1 in the net), else 0."""
    first: int | None = None
    """The first index, if the elements are indices of samples, which are not part of the net."""
    has_sample_index: bool = False
    """Whether each row in Keras begins with the index of its sample, which the net leaves out."""


@dataclass(frozen=True, kw_only=True)
class TensorView(AxisView):
    """A tensor of Keras as the net stores it. `source` is its name in the field `from` of layers."""

    value: Value
    feature_order: Any = None
    """Feature i of an image that was flattened in Keras is feature `feature_order[i]` in the net. Only layers whose
    weights can be reordered, and elementwise ones, read such a tensor."""
    is_input: bool = False
    across_samples: SampleIndices | None = None
    """Set if the tensor combines all samples."""

    @property
    def order(self) -> Order:
        """The axis of the net for each axis in Keras."""
        return tuple(self.flat)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in Keras's order, with the batch."""
        return tuple(self.value.shape[axis] for axis in self.order)

    @property
    def is_in_keras_order(self) -> bool:
        """Whether its elements are in Keras's order."""
        return self.order == keras_order(len(self.order)) and self.feature_order is None


def keras_order(rank: int) -> Order:
    """Keras's order of axes."""
    return tuple(range(rank))


def channels_first(rank: int, lead: int = 1) -> Order:
    """The order of an image that is channels-last in Keras; `lead` axes precede those of each image."""
    if rank < lead + 2:
        return keras_order(rank)
    return (*range(lead), *range(lead + 1, rank), lead)


def permutation_to(order: Order, target_order: Order) -> tuple[int, ...]:
    """The permutation for Transpose that changes one order of axes to another."""
    permutation = [0] * len(order)
    for old_axis, new_axis in zip(order, target_order, strict=True):
        permutation[new_axis] = old_axis
    return tuple(permutation)


def axis_in_net(axis: int, order: Order) -> int:
    """The net's axis for an axis of Keras, which may be negative."""
    rank = len(order)
    return order[axis] if -rank <= axis < rank else axis


def keeps_element_order(shape: tuple[int, ...], order: tuple[int, ...]) -> bool:
    """Whether transposing an array of that shape leaves the order of its elements unchanged."""
    large = [axis for axis in order if shape[axis] != 1]
    return large == sorted(large)


def feature_indices(shape: tuple[int, ...], order: tuple[int, ...]) -> NDArray[Any]:
    """For each feature of a sample flattened in Keras, its index in the net, where a sample has this shape."""
    indices = np.arange(int(np.prod(shape, dtype=np.int64)))
    return indices.reshape(shape).transpose(order).ravel()


KEEPS_FEATURE_ORDER = frozenset(
    (
        "Activation", "ReLU", "LeakyReLU", "ELU", "ThresholdedReLU", "Dropout", "AlphaDropout", "GaussianDropout",
        "GaussianNoise", "Identity", "ActivityRegularization", "BatchNormalization",
    )
)  # fmt: skip
"""Layers that take a flattened image with its features in another order."""
KEEPS_ORDER = KEEPS_FEATURE_ORDER | {
    "Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Rescaling", "LayerNormalization",
    "GroupNormalization", "Normalization", "RMSNormalization", "UnitNormalization", "Softmax", "Concatenate", "PReLU",
    "Merge", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D",
}  # fmt: skip
"""Layers that take their input in any order of axes, and keep that order."""
ELEMENTWISE_OPERATIONS = frozenset(
    (
        "Add", "Subtract", "Multiply", "Divide", "TrueDivide", "Power", "Maximum", "Minimum", "Clip", "Exp", "Log",
        "Sqrt", "Square", "Abs", "Absolute", "Negative", "Relu", "Relu6", "Sigmoid", "Tanh", "Silu", "Gelu", "Elu",
        "LeakyRelu", "HardSigmoid", "HardSilu", "Softplus", "Softsign", "Selu", "Cast", "Concatenate", "Pad",
    )
)  # fmt: skip
"""Operations that take any order of axes, too: the readers of their result decide which one is best."""


@dataclass(frozen=True)
class LayoutPreference:
    """The order of axes that a layer needs for its input."""

    kind: Literal["first", "plain", "any", "none"]
    """`first`: images channels-first; `plain`: Keras's order; `any`: any order, the readers of the result decide;
    `none`: any order."""
    lead: int = 1
    """For channels-first: the number of axes before those of an image."""


def layout_preference(
    class_name: str, config: Mapping[str, Any], module: str | None = "", wrapped: int = 0
) -> LayoutPreference:
    """The preference of a layer; `wrapped` is the number of TimeDistributed wrappers around its model."""
    type_ = layer_type(class_name)
    if type_ in ("TimeDistributed", "SpectralNormalization", "Bidirectional"):
        inner = config.get("layer") or config.get("forward_layer")
        if isinstance(inner, dict) and isinstance(inner.get("config"), dict):
            added_axes = int(type_ == "TimeDistributed")
            return layout_preference(str(inner.get("class_name")), inner["config"], "", wrapped + added_axes)
        return LayoutPreference("plain")
    if is_operation(module) or type_ in ("TFOpLambda", "SlicingOpLambda"):
        return LayoutPreference("any" if type_ in ELEMENTWISE_OPERATIONS else "none")
    if type_ in KEEPS_ORDER:
        return LayoutPreference("any")
    if type_ in ("Flatten", "Reshape"):
        return LayoutPreference("none")
    if type_ in SPATIAL_WITHOUT_FORMAT or DATA_FORMAT.fullmatch(type_):
        lead = 1 + wrapped + type_.startswith("ConvLSTM")
        first = data_format(config) == "channels_first" and type_ not in SPATIAL_WITHOUT_FORMAT
        return LayoutPreference("plain") if first else LayoutPreference("first", lead)
    return LayoutPreference("plain")


def data_format(config: Mapping[str, Any]) -> str:
    """The `data_format` of a layer. Keras 1 called it `dim_ordering`, with `th` for channels-first."""
    old = {"th": "channels_first", "tf": "channels_last"}.get(str(config.get("dim_ordering")))
    return str(config.get("data_format") or old or "channels_last")


def order_of_input(preferences: Sequence[LayoutPreference], rank: int) -> Order:
    """The axis order that the layers reading an input expect; channels-first for images if none has a preference."""
    leading_axes = [preference.lead for preference in preferences if preference.kind == "first"]
    if leading_axes:
        return channels_first(rank, leading_axes[0])
    return (
        keras_order(rank)
        if rank < 4 or any(preference.kind == "plain" for preference in preferences)
        else channels_first(rank)
    )


def preference_of_call(call: LayerCall) -> LayoutPreference:
    """The preference of the layer that is called."""
    layer = call.layer
    return layout_preference(layer.class_name, layer.config, layer.module, layer.wrapped)


Tensor = TypeVar("Tensor", bound=Hashable)


def preferences_of_readers(
    tensor: Tensor, readers: Callable[[Tensor], Iterable[tuple[LayoutPreference, Sequence[Tensor]]]]
) -> list[LayoutPreference]:
    """The preferences of a tensor's readers; a reader that takes any order passes on those of its results' readers.

    `readers` returns the preference and the results of each reader of a tensor.
    """
    preferences: list[LayoutPreference] = []
    pending, visited = [tensor], {tensor}
    while pending:
        for preference, results in readers(pending.pop(0)):
            if preference.kind == "any":
                pending += [result for result in results if result not in visited]
                visited.update(results)
            elif preference.kind != "none":
                preferences.append(preference)
    return preferences


class TensorReaders:
    """The calls that the outputs of a model need, and the readers of each tensor."""

    def __init__(self, graph: ModelGraph) -> None:
        self.calls = needed_steps(
            graph.calls,
            (output.call for output in graph.outputs),
            lambda call: (tensor.call for tensor in call.tensors()),
            lambda call: (call,),
        )
        self._results = {(output.call, output.index) for output in graph.outputs}
        self._readers: dict[tuple[LayerCall, int], list[LayerCall]] = {}
        for call in self.calls:
            for tensor in call.tensors():
                self._readers.setdefault((tensor.call, tensor.index), []).append(call)

    def readers_of(self, tensor: tuple[LayerCall, int]) -> list[LayerCall]:
        """The calls that read a tensor."""
        return self._readers.get(tensor, [])

    def needs(self, tensor: tuple[LayerCall, int]) -> bool:
        """Whether a tensor is read, or is an output of the model."""
        return tensor in self._readers or tensor in self._results

    def order_of_input(self, call: LayerCall, rank: int) -> Order:
        """The order that the readers of an input need; channels-first for images if none needs one."""
        return order_of_input(self._preferences(call), rank)

    def _preferences(self, call: LayerCall) -> list[LayoutPreference]:
        """The preferences of the readers of a call's first result."""
        return preferences_of_readers((call, 0), self._preferences_and_results)

    def _preferences_and_results(
        self, tensor: tuple[LayerCall, int]
    ) -> Iterator[tuple[LayoutPreference, list[tuple[LayerCall, int]]]]:
        yield from ((preference_of_call(call), [(call, 0)]) for call in self.readers_of(tensor))

    def leading_axes_of_images(self, call: LayerCall) -> int | None:
        """The number of axes before those of an image, if the readers of a call's result need images channels-first."""
        return next((preference.lead for preference in self._preferences(call) if preference.kind == "first"), None)

    def takes_feature_order(self, call: LayerCall) -> bool:
        """Whether all readers of the call's result can take its features in another order than Keras's."""
        tensor = (call, 0)
        if tensor in self._results:
            return False
        for reader in self.readers_of(tensor):
            layer, type_ = reader.layer, layer_type(reader.layer.class_name)
            if layer.calls != 1 or layer.wrapped or len(reader.tensors()) != 1:
                return False
            if type_ != "Dense" and not (
                type_ in KEEPS_FEATURE_ORDER and _is_elementwise(layer) and self.takes_feature_order(reader)
            ):
                return False
        return True


def _is_elementwise(layer: ConfiguredLayer) -> bool:
    """Whether an elementwise layer is still elementwise with this configuration."""
    function = layer.config.get("activation")
    along = ("softmax", "log_softmax", "sparsemax", "glu")
    return function not in along and not isinstance(function, dict) and not layer.config.get("noise_shape")
