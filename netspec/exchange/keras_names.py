"""What Keras calls things and where it stores a layer's variables: one table for reading and writing its files.

Layers, fields, initializers and the rest go by Keras's own names here, so only what differs is listed. Facts are those
of Keras 3.15's `saving_lib` and `legacy_h5_format`, and of the layers' `build`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from netspec.schema.kinds import LayerFields
from netspec.schema.names import snake_case

if TYPE_CHECKING:
    from numpy.typing import NDArray

OLD_NAMES: Mapping[str, str] = {
    **{f"Convolution{rank}D": f"Conv{rank}D" for rank in (1, 2, 3)},
    **{f"Convolution{rank}DTranspose": f"Conv{rank}DTranspose" for rank in (1, 2, 3)},
    **{f"SeparableConvolution{rank}D": f"SeparableConv{rank}D" for rank in (1, 2)},
    **{f"{kind}Pool{rank}D": f"{kind}Pooling{rank}D" for kind in ("Max", "GlobalMax") for rank in (1, 2, 3)},
    **{f"AvgPool{rank}D": f"AveragePooling{rank}D" for rank in (1, 2, 3)},
    **{f"GlobalAvgPool{rank}D": f"GlobalAveragePooling{rank}D" for rank in (1, 2, 3)},
    "Deconvolution2D": "Conv2DTranspose",
    "GroupedQueryAttention": "GroupQueryAttention",  # the class behind the name that Keras exports
    "BatchNormalizationV1": "BatchNormalization",
    "BatchNormalizationV2": "BatchNormalization",
    "LSTMV2": "LSTM",
    "GRUV2": "GRU",
    "CuDNNLSTM": "LSTM",
    "CuDNNGRU": "GRU",
}
"""Names that classes of Keras have, or had, and the layer here."""

CLASSES: Mapping[str, str] = {"GroupQueryAttention": "GroupedQueryAttention"}
"""Layers whose class in Keras has another name, which is what its files say."""

WITHOUT_MEANING = frozenset(
    (
        "name", "dtype", "batch_input_shape", "batch_shape", "input_shape", "input_dtype", "input_dim", "input_length",
        "build_config", "seed", "unroll", "implementation", "use_cudnn", "flash_attention", "time_major",
        "autocast",
        "renorm_momentum", "sparse", "ragged", "optional", "dynamic", "virtual_batch_size", "consume_less",
        "build_input_shape", "fused", "experimental_autocast", "zero_state", "query_shape", "key_shape", "value_shape",
    )
)  # fmt: skip
"""Keys of a layer's configuration that say nothing of what it computes, or say it a second time."""

SPATIAL_WITHOUT_FORMAT = ("ZeroPadding1D", "Cropping1D", "UpSampling1D", "SpatialDropout1D")
"""Layers that know sequences as (batch, length, channels) alone, and have no `data_format`."""

DATA_FORMAT = re.compile(
    r"(Depthwise|Separable)?Conv\dD(Transpose)?|ConvLSTM\dD|(Global|Adaptive)?(Max|Average)Pooling\dD|UpSampling[23]D"
    r"|ZeroPadding\dD|Cropping[23]D|SpatialDropout[23]D|Resizing|CenterCrop|Flatten"
)
"""Layers that have a `data_format` in Keras, whose default is channels-last."""

Kind = Literal["plain", "kernel", "depthwise", "sample", "axes"]


@dataclass(frozen=True)
class Variable:
    """A variable of a layer: the state that it is here, and where Keras stores it."""

    state: str
    """Name within the layer here: `kernel`, `query/kernel`."""
    group: str
    """Group within that of the layer in a `.weights.h5`: `cell`, `query_dense`; empty for its own variables."""
    index: int
    """Number among the variables of its group: the dataset `GROUP/vars/INDEX`."""
    name: str
    """Keras's name: `kernel`."""
    trainable: bool
    """Whether training moves it, unless the layer is frozen. Old files have those that are not behind all others."""
    kind: Kind
    """How its axes lie: a `kernel` is (window…, in, out) in Keras and (out, in, window…) here, a `depthwise` one
    (window…, channels, number) and (channels · number, 1, window…), a `sample` has the axes of what the layer reads,
    `axes` some of those; others are the same."""
    multiplier: int = 1
    """Of a depthwise kernel: how many for each channel."""

    @property
    def path(self) -> str:
        """The dataset within the layer's group."""
        return f"{self.group}/vars/{self.index}".lstrip("/")


UNTRAINED = ("moving_mean", "moving_variance", "mean", "variance", "vector_u")
"""Variables that no gradient changes."""

MORE: Mapping[str, tuple[str, ...]] = {"Normalization": ("count",)}
"""Variables that Keras has behind those of the layer here."""

_PARTS: Mapping[str, Mapping[str, str]] = {
    "MultiHeadAttention": {
        "query": "query_dense", "key": "key_dense", "gate": "_gate_dense", "value": "value_dense",
        "attention_output": "output_dense",
    },
    "GroupQueryAttention": {
        "query": "_query_dense", "key": "_key_dense", "value": "_value_dense", "gate": "_gate_dense",
        "attention_output": "_output_dense",
    },
}  # fmt: skip
"""Layers of layers: the first part of a state's name → the group of that part, in Keras's order."""

_RECURRENT = ("SimpleRNN", "LSTM", "GRU", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D")
"""Layers whose variables are those of a cell."""


def layer_type(class_name: str) -> str:
    """The layer here that a class of Keras is, if there is one."""
    return OLD_NAMES.get(class_name, class_name)


def class_name(type_: str) -> str:
    """The class of Keras that a layer here is, if there is one."""
    return CLASSES.get(type_, type_)


def keras_snake(name: str) -> str:
    """A class's name as Keras writes it in paths: `Conv2D` is conv2d, `PReLU` p_re_lu."""
    text = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", name))
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", text).lower()


def numbered(names: Iterable[str]) -> Iterator[str]:
    """Names as Keras makes them unique in a container: `dense`, `dense_1`, …"""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, -1) + 1
        yield f"{name}_{seen[name]}" if seen[name] else name


def variables(layer: LayerFields, states: Iterable[str]) -> list[Variable]:
    """The variables of a layer of which `states` are the names within it, in the order of Keras's `weights`."""
    found = [_variable(layer, state) for state in states]
    parts = list(_PARTS.get(_type(layer), {}))
    if parts:
        found.sort(key=lambda one: parts.index(one.state.partition("/")[0]))
    counts: dict[str, int] = {}
    made: dict[str, Variable] = {}
    for one in sorted(found, key=lambda one: not one.trainable):
        alone = one.name == "reverse_embeddings" and not counts  # those of the way that the net does not go are first
        first = alone or one.name == "vector_u"  # the kernel that it belongs to comes before it, a second time
        counts[one.group] = counts.get(one.group, -1) + 1
        made[one.state] = replace(one, index=counts[one.group] + first)
    return [made[one.state] for one in found]


def flat(those: Iterable[Variable], *, frozen: bool = False) -> list[Variable]:
    """Variables as old files have them: those that are trained first. Of a frozen layer none is."""
    return list(those) if frozen else sorted(those, key=lambda one: not one.trainable)


def _type(layer: object) -> str:
    return str(getattr(layer, "type", ""))


def _variable(layer: LayerFields, state: str) -> Variable:
    owner, group, name = _place(layer, state)
    multiplier = getattr(owner, "depth_multiplier", 1)
    kind: Kind = "plain"
    if "Conv" in _type(owner) and name.endswith("kernel"):
        kind = "depthwise" if _type(owner).startswith("Depthwise") or name.startswith("depthwise_") else "kernel"
    elif _type(owner) == "PReLU":
        kind = "sample"
    elif _type(owner) in ("LayerNormalization", "RMSNormalization", "Normalization"):
        kind = "axes"
    return Variable(state, group, 0, name, name not in UNTRAINED, kind, multiplier)


def _place(layer: Any, state: str) -> tuple[Any, str, str]:
    """The innermost layer or cell that has the state, the group of it, and its name there."""
    type_, (first, _, rest) = _type(layer), state.partition("/")
    if type_ == "Bidirectional" and rest:
        way = first.partition("_")[0]
        inner = layer.backward_layer if way == "backward" and layer.backward_layer is not None else layer.layer
        return _below(f"{way}_layer", inner, rest)
    if type_ in ("TimeDistributed", "SpectralNormalization") and rest:
        return _below("layer", layer.layer, rest)
    if type_ == "RNN" and rest:
        return _below("cell", layer.cell, rest)
    if type_ == "StackedRNNCells" and rest:
        names = list(numbered(snake_case(_type(cell)) for cell in layer.cells))
        return _below(f"cells/{first}", layer.cells[names.index(first)], rest)
    if type_ in _PARTS and rest:
        return layer, _PARTS[type_][first], rest
    return layer, "cell" if type_ in _RECURRENT else "", state


def _below(group: str, inner: Any, state: str) -> tuple[Any, str, str]:
    owner, more, name = _place(inner, state)
    return owner, f"{group}/{more}".rstrip("/"), name


def from_keras(array: NDArray[Any], variable: Variable) -> NDArray[Any]:
    """A kernel in the order of axes that it has here; anything else as it is."""
    if variable.kind not in ("kernel", "depthwise"):
        return array
    window = tuple(range(array.ndim - 2))
    if variable.kind == "kernel":
        return array.transpose(array.ndim - 1, array.ndim - 2, *window)
    turned = array.transpose(array.ndim - 2, array.ndim - 1, *window)
    return turned.reshape(-1, 1, *array.shape[:-2])


def to_keras(array: NDArray[Any], variable: Variable) -> NDArray[Any]:
    """A kernel in the order of axes that it has in Keras; anything else as it is."""
    if variable.kind not in ("kernel", "depthwise"):
        return array
    window = tuple(range(2, array.ndim))
    if variable.kind == "kernel":
        return array.transpose(*window, 1, 0)
    apart = array.reshape(-1, variable.multiplier, *array.shape[2:])
    return apart.transpose(*window, 0, 1)
