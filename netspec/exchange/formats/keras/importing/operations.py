"""Operations that are not layers: `x + 1`, `keras.ops.mean(x)` of Keras 3, TFOpLambda of Keras 2.

An operation becomes operator nodes, which the rules of `lift` make layers; one that is a layer of Keras by another name
(`reshape`, `relu`) becomes that layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from netspec.exchange.formats.keras.importing.axes import TensorView, axis_in_net
from netspec.exchange.formats.keras.importing.config import LayerCall, is_operation
from netspec.exchange.formats.keras.importing.fields import plain_value
from netspec.exchange.formats.keras.importing.importer import KerasImporter
from netspec.exchange.formats.keras.importing.operator_nodes import KerasOperation
from netspec.exchange.formats.keras.names import builtin, keras_snake
from netspec.exchange.rule_table import RuleTable
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.schema.specs.kinds import ACTIVATIONS

_REASONS: Mapping[str, str] = {
    "it combines samples of the batch, or its result has no batch axis": (
        "all_close corrcoef correlate cross flipud diag diagflat dot histogram in_top_k inner kron outer segment_max "
        "segment_min segment_prod segment_sum segment_reduction tensordot vdot bincount "
        "search_sorted c_dist trapezoid vander ravel broadcast_to size ndim unravel_index"
    ),
    "its code is not in the file": "associative_scan cond fori_loop jvp map scan switch vectorized_map while_loop",
    "the size of its result depends on values": "nonzero unique ctc_decode",
    "it computes with complex numbers": (
        "angle fft fft2 ifft2 imag irfft isreal istft polar rfft stft view_as_complex view_as_real eig"
    ),
    "it decomposes matrices by an iterative procedure": (
        "cholesky cholesky_inverse eigh inv logdet lstsq lu_factor matrix_rank pinv qr slogdet solve "
        "solve_triangular svd"
    ),
    "it is a loss": "binary_crossentropy categorical_crossentropy ctc_loss psnr sparse_categorical_crossentropy ssim",
    "it creates a tensor without reading one": "arange empty_like full geomspace linspace logspace meshgrid",
    "it selects values by rank or quantile": (
        "argpartition median percentile quantile nanmedian nanpercentile nanquantile digitize"
    ),
    "it ignores or replaces NaN": (
        "nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmin nanprod nanstd nansum nanvar"
    ),
    "no layer computes this transformation of images": (
        "affine_transform elastic_transform extract_patches gaussian_blur hsv_to_rgb map_coordinates "
        "perspective_transform rgb_to_hsv scale_and_translate sobel_edges rgb_to_grayscale"
    ),
    "it reads weights that belong to no layer": (
        "batch_norm conv_transpose dot_product_attention layer_norm rms_norm separable_conv depthwise_conv"
    ),
    "it scatters to computed indices": "scatter slice_update",
    "no layer computes this function": "arctan2 erfinv gcd i0 isclose is_in lcm nextafter rot90 saturate_cast",
    "einops patterns are not supported": "rearrange",
    "it extracts overlapping windows": "extract_sequences unfold",
    "it has several results: use one operation for each": ("moments dstack dsplit vsplit vstack"),
    "its computed indices apply to all samples of the batch": "multi_hot",
}
REFUSED: Mapping[str, str] = {name: reason for reason, names in _REASONS.items() for name in names.split()}
"""Reasons by the name of the operation."""


_OTHER_NAMES = {
    "truediv": "true_divide", "realdiv": "true_divide", "div": "true_divide", "divide": "true_divide",
    "div_no_nan": "divide_no_nan", "reduce_mean": "mean", "reduce_sum": "sum", "reduce_max": "max", "reduce_min": "min",
    "reduce_prod": "prod", "concat": "concatenate", "pow": "power", "sub": "subtract", "mul": "multiply",
    "neg": "negative", "absolute": "abs", "clip_by_value": "clip", "getitem": "get_item",
    "rsub": "subtract", "expand_dims_v2": "expand_dims", "transpose_v2": "transpose", "squeeze_v2": "squeeze",
    "exponential": "exp", "bias_add": "add", "gather": "take", "reverse": "flip", "floor_div": "floor_divide",
    "ne": "not_equal", "eq": "equal", "conv1d": "conv", "conv2d": "conv", "conv3d": "conv",
    **{f"{short}_pool{rank}": f"{kind}_pool"
       for short, kind in (("max", "max"), ("avg", "average")) for rank in ("", "1d", "2d", "3d")},
}  # fmt: skip
"""TensorFlow's names of operations."""
_ARGUMENT_NAMES = {
    "dims": "axes", "perm": "axes", "newshape": "shape", "x_min": "min", "x_max": "max", "clip_value_min": "min",
    "clip_value_max": "max", "keep_dims": "keepdims", "indices_or_sections": "sections",
    "num_or_size_splits": "sections", "x1": "x", "x2": "y", "a": "x", "b": "y", "input": "x", "inputs": "x",
    "tensor": "x", "input_tensor": "x", "values": "x", "xs": "x", "features": "x", "logits": "x",
    "multiples": "repeats", "paddings": "pad_width", "begin": "start_indices", "ksize": "pool_size",
    "filter": "kernel", "filters": "kernel", "dilations": "dilation_rate", "method": "interpolation",
    "depth": "num_classes", "bias": "y",
}  # fmt: skip
"""Other names of arguments."""

_NOT_ARGUMENTS = ("name", "trainable", "dtype", "function")
"""Keys of a configuration that are not arguments of the operation."""
_WITHOUT_EFFECT = ("args", "sorted", "fill_mode", "fill_value", "use_cudnn_on_gpu", "dtype_hint", "validate_indices")
"""Arguments without effect, or that are read by position."""
_DEFAULT_VALUES: tuple[Any, ...] = ("NHWC", "channels_last", [], "")
"""Values of arguments that equal the default behavior."""

Operation: TypeAlias = "Callable[[KerasOperation], str | Sequence[str] | Sequence[TensorView]]"
_OPERATIONS: RuleTable[Operation] = RuleTable("netspec.exchange.formats.keras.importing")
operation, operations = _OPERATIONS.register, _OPERATIONS.all
"""`@operation(*names)` registers a function that imports these operations.

It returns the results of operator nodes that it adds, or the tensors of layers that the operations are by another name.
"""


class OperationArguments(dict[str, Any]):
    """Arguments of an operation, which record the names that were read."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__(arguments)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return an item or `default`, and record the name as read."""
        self.read.add(name)
        return super().get(name, default)

    def unread_arguments(self) -> list[str]:
        """Arguments with an effect that were not read."""
        return [
            name
            for name, value in self.items()
            if name not in self.read and value is not None and value is not False and value not in _DEFAULT_VALUES
        ]


def arguments(call: LayerCall) -> OperationArguments:
    """The arguments of an operation by the names in Keras 3; positional ones are in `args`."""
    config, name = call.layer.config, name_of(call)
    named_arguments = {
        _ARGUMENT_NAMES.get(key, key): value for key, value in config.items() if key not in _NOT_ARGUMENTS
    }
    if name == "cast":
        named_arguments["dtype"] = config.get("dtype")
    named_arguments |= {
        _ARGUMENT_NAMES.get(key, key): value
        for key, value in call.kwargs.items()
        if value is not None and key != "name"
    }
    named = [key for key in ("condition", "x", "y") if key in named_arguments]
    result = OperationArguments({**named_arguments, "args": [*call.args, *(named_arguments[key] for key in named)]})
    result.read.update(named, _WITHOUT_EFFECT)
    return result


def import_operation(importer: KerasImporter, call: LayerCall) -> None:
    """Import an operation, or raise `UnsupportedFeature`."""
    call_arguments, name = arguments(call), name_of(call)
    if call.layer.wrapped:
        raise UnsupportedFeature("it is in a model wrapped by TimeDistributed")
    rule = operations().get(name)
    if rule is not None:
        op = KerasOperation(importer, call, name, call_arguments)
        results = rule(op)
        op.finish([results] if isinstance(results, str) else results)
        if overlooked := call_arguments.unread_arguments():
            raise UnsupportedFeature(
                f"the argument `{overlooked[0][:40]}` of the operation {name[:60]!r} is not supported"
            )
    elif name in ACTIVATIONS and builtin("activation", name):
        importer.set_results(call, *_activation(KerasOperation(importer, call, name, call_arguments)))
    else:
        reason = REFUSED.get(name)
        raise UnsupportedFeature(f"there is no layer for the operation {name[:60]!r}{f': {reason}' if reason else ''}")


def is_imported(name: str) -> bool:
    """Whether an operation of this name is imported."""
    return name in operations() or (name in ACTIVATIONS and builtin("activation", name) is not None)


def name_of(call: LayerCall) -> str:
    """The name of the operation in Keras 3."""
    config = call.layer.config
    if "function" not in config and is_operation(call.layer.module):
        name = keras_snake(call.layer.class_name)
        return "abs" if name == "absolute" else name
    name = str(config.get("function", keras_snake(call.layer.class_name))).rpartition(".")[2]
    return _OTHER_NAMES.get(name, name)


def _activation(op: KerasOperation) -> Sequence[TensorView]:
    view, declared = op.tensor, ACTIVATIONS[op.name].model_fields
    named = {**op.arguments, **op.call.layer.config}  # by the function's own names
    fields_given = {key: plain_value(value) for key, value in named.items() if key in declared and key != "axis"}
    fields_given = {key: value for key, value in fields_given.items() if value is not None}
    fields: dict[str, Any] = {"activation": {"type": op.name, **fields_given} if fields_given else op.name}
    if "axis" in declared:
        fields["axis"] = axis_in_net(int(op.arguments.get("axis", -1)), view.order)
    return op.layer("Activation", fields, [view], view.order)
