"""Names in Keras 1 to 3, and the paths of a layer's variables: one table for importing and exporting.

Layers, fields, initializers and the rest have Keras's names in netspec, so that only differences are listed. A name
outside these tables is user-defined: its code is not in the file, and no built-in type replaces it. Names are
case-sensitive, as in Keras. Sources: `ALL_OBJECTS`, `saving_lib`, `legacy_h5_format` and the layers' `build` of Keras
3.15, and the modules `losses`, `metrics`, … of Keras 1.2 to 2.15.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from numpy.typing import NDArray

from netspec.schema.specs.kinds import LayerFields
from netspec.schema.specs.names import snake_case

RENAMED_CLASSES: Mapping[str, str] = {
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
"""Current and former names of Keras's classes → type of layer in netspec."""

CLASSES: Mapping[str, str] = {"GroupQueryAttention": "GroupedQueryAttention"}
"""Layers whose class has another name in Keras and its files."""

IGNORED_KEYS = frozenset(
    (
        "name", "dtype", "batch_input_shape", "batch_shape", "input_shape", "input_dtype", "input_dim", "input_length",
        "build_config", "seed", "unroll", "implementation", "use_cudnn", "flash_attention", "time_major",
        "autocast",
        "renorm_momentum", "sparse", "ragged", "optional", "dynamic", "virtual_batch_size", "consume_less",
        "build_input_shape", "fused", "experimental_autocast", "zero_state", "query_shape", "key_shape", "value_shape",
    )
)  # fmt: skip
"""Keys of a layer's configuration that do not affect its result, or are redundant."""

SPATIAL_WITHOUT_FORMAT = ("ZeroPadding1D", "Cropping1D", "UpSampling1D", "SpatialDropout1D")
"""Layers of sequences (batch, length, channels) without a `data_format`."""

DATA_FORMAT = re.compile(
    r"(Depthwise|Separable)?Conv\dD(Transpose)?|ConvLSTM\dD|(Global|Adaptive)?(Max|Average)Pooling\dD|UpSampling[23]D"
    r"|ZeroPadding\dD|Cropping[23]D|SpatialDropout[23]D|Resizing|CenterCrop|Flatten"
)
"""Layers that have a `data_format` in Keras, whose default is channels-last."""

Kind = Literal["plain", "kernel", "depthwise", "sample", "axes"]


@dataclass(frozen=True)
class KerasVariable:
    """A variable of a layer: its state in netspec, and its path in Keras's files."""

    state: str
    """Name of the state within netspec's layer: `kernel`, `query/kernel`."""
    group: str
    """Group within that of the layer in a `.weights.h5`: `cell`, `query_dense`; empty for its own variables."""
    index: int
    """Index among the variables of its group: the dataset `GROUP/vars/INDEX`."""
    name: str
    """Keras's name: `kernel`."""
    trainable: bool
    """Whether it is trained, unless the layer is frozen. Old files have the others after all trained ones."""
    kind: Kind
    """The order of its axes: a `kernel` is (window…, in, out) in Keras and (out, in, window…) in netspec, a `depthwise`
    kernel (window…, channels, multiplier) and (channels · multiplier, 1, window…). A `sample` has the axes of the
    layer's input, `axes` has some of them; others are the same."""
    multiplier: int = 1
    """The channel multiplier of a depthwise kernel."""

    @property
    def path(self) -> str:
        """The dataset within the layer's group."""
        return f"{self.group}/vars/{self.index}".lstrip("/")


UNTRAINED = ("moving_mean", "moving_variance", "mean", "variance", "vector_u")
"""Variables without gradients."""
STATES_WITHOUT_VARIABLE = ("num_batches_tracked",)
"""States without a variable in Keras."""

EXTRA_VARIABLES: Mapping[str, tuple[str, ...]] = {"Normalization": ("count",)}
"""Variables that Keras stores after those that netspec has too."""

_SUBLAYER_GROUPS: Mapping[str, Mapping[str, str]] = {
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

_LAYERS_WITH_CELL = ("SimpleRNN", "LSTM", "GRU", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D")
"""Layers whose variables are those of a cell."""


def layer_type(class_name: str) -> str:
    """The type that a netspec layer for this class of Keras has, whether or not there is one."""
    return RENAMED_CLASSES.get(class_name, class_name)


def class_name(type_: str) -> str:
    """The class that a Keras layer for this type of netspec has, whether or not there is one."""
    return CLASSES.get(type_, type_)


def keras_snake(name: str) -> str:
    """A class's name as Keras writes it in paths: `Conv2D` is conv2d, `PReLU` p_re_lu."""
    text = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", name))
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", text).lower()


def unique_names(names: Iterable[str]) -> Iterator[str]:
    """Make names unique as Keras does in a container: `dense`, `dense_1`, …"""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, -1) + 1
        yield f"{name}_{counts[name]}" if counts[name] else name


def variables(layer: LayerFields, states: Iterable[str]) -> list[KerasVariable]:
    """The variables of a layer with these states, in the order of Keras's `weights`."""
    by_state = [_variable(layer, state) for state in states if state.rpartition("/")[2] not in STATES_WITHOUT_VARIABLE]
    sublayers = list(_SUBLAYER_GROUPS.get(_type(layer), {}))
    if sublayers:  # states that Keras does not have are last
        by_state.sort(key=lambda variable: [*sublayers, variable.state].index(variable.state.partition("/")[0]))
    counts: dict[str, int] = {}
    numbered_variables: dict[str, KerasVariable] = {}
    for variable in sorted(by_state, key=lambda variable: not variable.trainable):
        # Index 0 is the variable of the other direction, which the net does not use.
        follows_other_direction = variable.name == "reverse_embeddings" and not counts
        first = follows_other_direction or variable.name == "vector_u"  # after a second reference to its kernel
        counts[variable.group] = counts.get(variable.group, -1) + 1
        numbered_variables[variable.state] = replace(variable, index=counts[variable.group] + first)
    return [numbered_variables[variable.state] for variable in by_state]


def trained_first(layer_variables: Iterable[KerasVariable], *, frozen: bool = False) -> list[KerasVariable]:
    """Variables in the order of old files: trained ones first. All variables of a frozen layer are untrained."""
    return list(layer_variables) if frozen else sorted(layer_variables, key=lambda variable: not variable.trainable)


def _type(layer: object) -> str:
    return str(getattr(layer, "type", ""))


def _variable(layer: LayerFields, state: str) -> KerasVariable:
    owner, group, name = _state_owner(layer, state)
    multiplier = getattr(owner, "depth_multiplier", 1)
    kind: Kind = "plain"
    if "Conv" in _type(owner) and name.endswith("kernel"):
        kind = "depthwise" if _type(owner).startswith("Depthwise") or name.startswith("depthwise_") else "kernel"
    elif _type(owner) == "PReLU":
        kind = "sample"
    elif _type(owner) in ("LayerNormalization", "RMSNormalization", "Normalization"):
        kind = "axes"
    return KerasVariable(state, group, 0, name, name not in UNTRAINED, kind, multiplier)


def _state_owner(layer: Any, state: str) -> tuple[Any, str, str]:
    """The innermost layer or cell with the state, its group, and the state's name within it."""
    type_, (first, _, inner_state) = _type(layer), state.partition("/")
    if type_ == "Bidirectional" and inner_state:
        direction = first.partition("_")[0]
        inner = layer.backward_layer if direction == "backward" and layer.backward_layer is not None else layer.layer
        return _nested_owner(f"{direction}_layer", inner, inner_state)
    if type_ in ("TimeDistributed", "SpectralNormalization") and inner_state:
        return _nested_owner("layer", layer.layer, inner_state)
    if type_ == "RNN" and inner_state:
        return _nested_owner("cell", layer.cell, inner_state)
    if type_ == "StackedRNNCells" and inner_state:
        names = list(unique_names(snake_case(_type(cell)) for cell in layer.cells))
        return _nested_owner(f"cells/{first}", layer.cells[names.index(first)], inner_state)
    if type_ in _SUBLAYER_GROUPS and inner_state:
        return layer, _SUBLAYER_GROUPS[type_][first], inner_state
    return layer, "cell" if type_ in _LAYERS_WITH_CELL else "", state


def _nested_owner(group: str, inner: Any, state: str) -> tuple[Any, str, str]:
    owner, inner_group, name = _state_owner(inner, state)
    return owner, f"{group}/{inner_group}".rstrip("/"), name


def from_keras(array: NDArray[Any], variable: KerasVariable) -> NDArray[Any]:
    """A kernel with its axes in the order of netspec; other arrays unchanged."""
    if variable.kind not in ("kernel", "depthwise"):
        return array
    window = tuple(range(array.ndim - 2))
    if variable.kind == "kernel":
        return array.transpose(array.ndim - 1, array.ndim - 2, *window)
    transposed = array.transpose(array.ndim - 2, array.ndim - 1, *window)
    return transposed.reshape(-1, 1, *array.shape[:-2])


def to_keras(array: NDArray[Any], variable: KerasVariable) -> NDArray[Any]:
    """A kernel with its axes in the order of Keras; other arrays unchanged."""
    if variable.kind not in ("kernel", "depthwise"):
        return array
    window = tuple(range(2, array.ndim))
    if variable.kind == "kernel":
        return array.transpose(*window, 1, 0)
    by_channel = array.reshape(-1, variable.multiplier, *array.shape[2:])
    return by_channel.transpose(*window, 0, 1)


Form = Literal["class", "function", "text"]
"""Form of a reference to a loss or metric in a file: a class, a function, or the string passed to `compile`."""

LOSSES = frozenset(
    (
        "SparseCategoricalCrossentropy", "CategoricalCrossentropy", "BinaryCrossentropy", "Circle", "Hinge",
        "SquaredHinge", "CategoricalHinge", "Dice", "Tversky", "KLDivergence", "Poisson",
        "CategoricalFocalCrossentropy", "BinaryFocalCrossentropy", "CategoricalGeneralizedCrossEntropy",
        "MeanSquaredError", "MeanAbsoluteError", "MeanAbsolutePercentageError", "MeanSquaredLogarithmicError",
        "LogCosh", "Huber", "CosineSimilarity", "CTC",
    )
)  # fmt: skip
"""Losses that Keras has too, with the same fields."""
METRICS = frozenset(
    (
        "Accuracy", "SparseCategoricalAccuracy", "CategoricalAccuracy", "BinaryAccuracy",
        "SparseTopKCategoricalAccuracy", "TopKCategoricalAccuracy", "TruePositives", "FalsePositives", "TrueNegatives",
        "FalseNegatives", "Precision", "Recall", "SensitivityAtSpecificity", "SpecificityAtSensitivity",
        "PrecisionAtRecall", "RecallAtPrecision", "IoU", "BinaryIoU", "MeanIoU", "OneHotIoU", "OneHotMeanIoU",
        "PearsonCorrelation", "ConcordanceCorrelation", "R2Score", "AUC", "F1Score", "FBetaScore", "Hinge",
        "SquaredHinge", "CategoricalHinge", "BinaryCrossentropy", "CategoricalCrossentropy",
        "SparseCategoricalCrossentropy", "KLDivergence", "Poisson", "MeanSquaredError", "RootMeanSquaredError",
        "MeanAbsoluteError", "MeanAbsolutePercentageError", "MeanSquaredLogarithmicError", "LogCoshError",
        "CosineSimilarity",
    )
)  # fmt: skip
"""Metrics that Keras has too, with the same fields."""
REDUCES_LAST_AXIS = ("CategoricalHinge", "KLDivergence", "Circle", "CTC", "R2Score", "F1Score", "FBetaScore")
"""Losses and metrics without a field `axis` that reduce the last axis, in Keras the channels."""

_SHARED_FUNCTIONS: Mapping[str, str] = {
    **{keras_snake(name): name for name in (
        "MeanSquaredError", "MeanAbsoluteError", "MeanAbsolutePercentageError", "MeanSquaredLogarithmicError", "Hinge",
        "SquaredHinge", "CategoricalHinge", "Poisson", "BinaryCrossentropy", "CategoricalCrossentropy",
        "SparseCategoricalCrossentropy",
    )},
    "kl_divergence": "KLDivergence", "kullback_leibler_divergence": "KLDivergence",
}  # fmt: skip
"""Functions that are both losses and metrics."""
LOSS_FUNCTIONS: Mapping[str, str] = {
    **_SHARED_FUNCTIONS,
    "binary_focal_crossentropy": "BinaryFocalCrossentropy", "categorical_focal_crossentropy":
    "CategoricalFocalCrossentropy", "categorical_generalized_cross_entropy": "CategoricalGeneralizedCrossEntropy",
    "circle": "Circle", "cosine_similarity": "CosineSimilarity", "ctc": "CTC", "dice": "Dice", "huber": "Huber",
    "huber_loss": "Huber", "log_cosh": "LogCosh", "logcosh": "LogCosh", "tversky": "Tversky",
}  # fmt: skip
"""Functions of Keras's `losses` by their own names."""
METRIC_FUNCTIONS: Mapping[str, str] = {
    **_SHARED_FUNCTIONS,
    **{keras_snake(name): name for name in (
        "Accuracy", "BinaryAccuracy", "CategoricalAccuracy", "SparseCategoricalAccuracy", "TopKCategoricalAccuracy",
        "SparseTopKCategoricalAccuracy", "PearsonCorrelation", "ConcordanceCorrelation",
    )},
    "log_cosh": "LogCoshError", "logcosh": "LogCoshError",
}  # fmt: skip
"""Functions of Keras's `metrics` by their own names. `cosine_similarity` is missing: its sign depends on the module."""
_ABBREVIATIONS: Mapping[str, str] = {
    "mse": "MeanSquaredError", "mae": "MeanAbsoluteError", "mape": "MeanAbsolutePercentageError",
    "msle": "MeanSquaredLogarithmicError", "bce": "BinaryCrossentropy", "kld": "KLDivergence",
}  # fmt: skip
_ALIASES: Mapping[str, str] = {**_ABBREVIATIONS, **{name.upper(): type_ for name, type_ in _ABBREVIATIONS.items()}}
"""Strings that stand for a function; no function has such a name."""

_LAYERS = frozenset(
    (
        "Activation", "ReLU", "LeakyReLU", "ELU", "PReLU", "Softmax", "Identity", "ActivityRegularization", "Masking",
        "AdaptiveMaxPooling1D", "AdaptiveMaxPooling2D", "AdaptiveMaxPooling3D", "AdaptiveAveragePooling1D",
        "AdaptiveAveragePooling2D", "AdaptiveAveragePooling3D", "AveragePooling1D", "AveragePooling2D",
        "AveragePooling3D", "MaxPooling1D", "MaxPooling2D", "MaxPooling3D", "GlobalAveragePooling1D",
        "GlobalAveragePooling2D", "GlobalAveragePooling3D", "GlobalMaxPooling1D", "GlobalMaxPooling2D",
        "GlobalMaxPooling3D", "Attention", "AdditiveAttention", "MultiHeadAttention", "GroupQueryAttention",
        "Conv1D", "Conv2D", "Conv3D", "Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose", "DepthwiseConv1D",
        "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D",
        "Dense", "EinsumDense", "Embedding", "ReversibleEmbedding", "Dropout", "SpatialDropout1D", "SpatialDropout2D",
        "SpatialDropout3D", "AlphaDropout", "GaussianDropout", "GaussianNoise", "Normalization", "BatchNormalization",
        "LayerNormalization", "GroupNormalization", "RMSNormalization", "UnitNormalization", "SpectralNormalization",
        "Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate", "Dot", "ZeroPadding1D",
        "ZeroPadding2D", "ZeroPadding3D", "Cropping1D", "Cropping2D", "Cropping3D", "UpSampling1D", "UpSampling2D",
        "UpSampling3D", "Resizing", "CenterCrop", "Flatten", "Reshape", "Permute", "RepeatVector", "SimpleRNN", "LSTM",
        "GRU", "RNN", "Bidirectional", "TimeDistributed",
    )
)  # fmt: skip
"""Layers that have the same name in netspec."""
_CELLS = ("SimpleRNNCell", "LSTMCell", "GRUCell", "StackedRNNCells")
_ACTIVATIONS = (
    "celu", "elu", "exponential", "gelu", "glu", "hard_shrink", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh",
    "leaky_relu", "linear", "log_sigmoid", "log_softmax", "mish", "relu", "relu6", "selu", "sigmoid", "silu",
    "soft_shrink", "softmax", "softplus", "softsign", "sparse_plus", "sparse_sigmoid", "sparsemax", "squareplus",
    "swish", "tanh", "tanh_shrink", "threshold",
)  # fmt: skip
_INITIALIZERS = (
    "Constant", "GlorotNormal", "GlorotUniform", "HeNormal", "HeUniform", "Identity", "LecunNormal", "LecunUniform",
    "Ones", "Orthogonal", "RandomNormal", "RandomUniform", "STFT", "TruncatedNormal", "VarianceScaling", "Zeros",
)  # fmt: skip


def _with_aliases(classes: Iterable[str], aliases: Mapping[str, str]) -> Mapping[str, str]:
    """Map names to types: class names, class names in snake case, and aliases."""
    names = list(classes)
    return {**{keras_snake(name): name for name in names}, **{name: name for name in names}, **aliases}


_NAMES: Mapping[str, Mapping[str, str]] = {
    "layer": {**{name: name for name in _LAYERS}, **RENAMED_CLASSES},
    "cell": {name: name for name in _CELLS},
    "activation": {
        **{name: name for name in _ACTIVATIONS},
        "ReLU": "relu", "LeakyReLU": "leaky_relu", "ELU": "elu", "Softmax": "softmax",  # layers as activations
    },
    "initializer": _with_aliases(_INITIALIZERS, {
        "normal": "RandomNormal", "uniform": "RandomUniform", "zero": "Zeros", "one": "Ones",
        "gaussian": "RandomNormal", "IdentityInitializer": "Identity", "OrthogonalInitializer": "Orthogonal",
        "STFTInitializer": "STFT",
    }),
    "regularizer": _with_aliases(("L1", "L2", "L1L2", "OrthogonalRegularizer"), {"l1_l2": "L1L2"}),
    "constraint": _with_aliases(("MaxNorm", "MinMaxNorm", "NonNeg", "UnitNorm"), {
        "maxnorm": "MaxNorm", "nonneg": "NonNeg", "unitnorm": "UnitNorm",
    }),
}  # fmt: skip


def builtin(kind: str, name: str) -> str | None:
    """netspec's type for the layer, cell, activation, … that Keras defines by that name; None if Keras does not."""
    return _NAMES[kind].get(name)


def types(kind: str) -> list[str]:
    """netspec's types for everything of that kind that Keras defines."""
    return list(dict.fromkeys(_NAMES[kind].values()))


def names(kind: str) -> Set[str]:
    """The names of that kind that Keras defines."""
    return _NAMES[kind].keys()


def loss_or_metric_names(kind: str, form: Form, major: int) -> Set[str]:
    """The names that Keras of that major version defines for a `loss` or `metric`."""
    return _losses_or_metrics(kind, form, major).keys()


def builtin_loss_or_metric(kind: str, name: str, form: Form, major: int) -> str | None:
    """netspec's type for a `loss` or `metric` that Keras of that major version defines; None if it does not."""
    return _losses_or_metrics(kind, form, major).get(name)


@cache
def _losses_or_metrics(kind: str, form: Form, major: int) -> Mapping[str, str]:
    classes, functions = (LOSSES, LOSS_FUNCTIONS) if kind == "loss" else (METRICS, METRIC_FUNCTIONS)
    by_class = {class_: class_ for class_ in classes}
    if form != "text":
        return by_class if form == "class" else functions
    snakes = {keras_snake(class_name): class_name for class_name in classes} if kind == "metric" and major > 2 else {}
    return {**by_class, **_ALIASES, **functions, **snakes}
