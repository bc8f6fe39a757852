"""Operations that are no layers: `x + 1`, `keras.ops.mean(x)` of Keras 3, TFOpLambda of Keras 2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from netspec.exchange.keras_import.axes import Held, axis_here
from netspec.exchange.keras_import.config import Call, Tensor, is_operation
from netspec.exchange.keras_import.fields import Unsupported, plain
from netspec.exchange.keras_import.refused import REFUSED
from netspec.exchange.keras_import.translate import Translator
from netspec.exchange.keras_names import keras_snake
from netspec.schema.kinds import ACTIVATIONS

_OLD = {
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
"""What TensorFlow calls an operation."""
_NAMES = {"dims": "axes", "perm": "axes", "newshape": "shape", "x_min": "min", "x_max": "max", "clip_value_min": "min",
          "clip_value_max": "max", "keep_dims": "keepdims", "indices_or_sections": "sections",
          "num_or_size_splits": "sections", "x1": "x", "x2": "y", "a": "x", "b": "y", "input": "x", "inputs": "x",
          "tensor": "x", "input_tensor": "x", "values": "x", "xs": "x", "features": "x", "logits": "x",
          "multiples": "repeats", "paddings": "pad_width", "begin": "start_indices", "ksize": "pool_size",
          "filter": "kernel", "filters": "kernel", "dilations": "dilation_rate", "method": "interpolation",
          "depth": "num_classes", "bias": "y"}  # fmt: skip
"""What an argument is called in one place or the other."""

_OF_CLASS = ("name", "trainable", "dtype", "function")
"""Keys of a configuration that are no arguments of the operation."""
_WITHOUT_EFFECT = ("args", "sorted", "fill_mode", "fill_value", "use_cudnn_on_gpu", "dtype_hint", "validate_indices")
"""Arguments that change nothing of what is read, or that are read by their place."""
_USUAL: tuple[Any, ...] = ("NHWC", "channels_last", [], "")
"""Values of arguments that ask for what is done anyway."""

Operation: TypeAlias = "Callable[[Translator, Call, dict[str, Any]], None]"
_OPERATIONS: dict[str, Operation] = {}


def operation(*names: str) -> Callable[[Operation], Operation]:
    """Decorator: the function writes down these operations."""

    def register(function: Operation) -> Operation:
        _OPERATIONS.update(dict.fromkeys(names, function))
        return function

    return register


class Given(dict[str, Any]):
    """Arguments of an operation, that remember which of them were asked for."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        super().__init__(told)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return super().__getitem__(name)

    def get(self, name: str, usual: Any = None) -> Any:
        """As of a dict."""
        self.asked.add(name)
        return super().get(name, usual)

    def overlooked(self) -> list[str]:
        """Those that ask for something, and that nobody has read."""
        return [
            name
            for name, value in self.items()
            if name not in self.asked and value is not None and value is not False and value not in _USUAL
        ]


def arguments(call: Call) -> Given:
    """What an operation is given: by the names of Keras 3, and under `args` what has none."""
    config, name = call.layer.config, name_of(call)
    given = {_NAMES.get(key, key): value for key, value in config.items() if key not in _OF_CLASS}
    if name == "cast":
        given["dtype"] = config.get("dtype")
    given |= {_NAMES.get(key, key): value for key, value in call.kwargs.items() if value is not None and key != "name"}
    named = [key for key in ("condition", "x", "y") if key in given]
    found = Given({**given, "args": [*call.args, *(given[key] for key in named)]})
    found.asked.update(named, _WITHOUT_EFFECT)
    return found


def operate(net: Translator, call: Call) -> None:
    """Write down an operation, or raise `Unsupported`."""
    given, name = arguments(call), name_of(call)
    if call.layer.wrapped:
        raise Unsupported("it is within a model that is TimeDistributed")
    found = _OPERATIONS.get(name)
    if found is not None:
        found(net, call, given)
        if overlooked := given.overlooked():
            raise Unsupported(f"the operation {name[:60]!r} has no `{overlooked[0][:40]}` here")
    elif ACTIVATIONS.spelled(name) in ACTIVATIONS:
        _activation(net, call, ACTIVATIONS.spelled(name), given)
    else:
        reason = REFUSED.get(name)
        raise Unsupported(f"there is no layer for the operation {name[:60]!r}{f': {reason}' if reason else ''}")


def is_read(name: str) -> bool:
    """Whether an operation of this name is read."""
    return name in _OPERATIONS or ACTIVATIONS.spelled(name) in ACTIVATIONS


def name_of(call: Call) -> str:
    """What the operation is called, by the name that it has in Keras 3."""
    config = call.layer.config
    if "function" not in config and is_operation(call.layer.module):
        name = keras_snake(call.layer.class_name)
        return "abs" if name == "absolute" else name
    name = str(config.get("function", keras_snake(call.layer.class_name))).rpartition(".")[2]
    return _OLD.get(name, name)


def one(net: Translator, given: Mapping[str, Any]) -> Held:
    """The tensor that the operation reads."""
    first = given["args"][0] if given["args"] else None
    if not isinstance(first, Tensor):
        raise Unsupported("it does not read the result of a layer")
    return net.get(first)


def argument(given: Mapping[str, Any], name: str, index: int, usual: Any = None) -> Any:
    """An argument by its name, or by its place among those without a name."""
    if name in given:
        return plain(given[name])
    args = given["args"]
    return plain(args[index]) if index < len(args) else usual


def _activation(net: Translator, call: Call, name: str, given: Mapping[str, Any]) -> None:
    held = one(net, given)
    declared = ACTIVATIONS[name].model_fields
    named = {**given, **call.layer.config}  # by the function's own names
    told = {key: each for key, each in named.items() if key in declared and key != "axis"}
    found = {key: plain(each) for key, each in told.items() if each is not None}
    fields: dict[str, Any] = {"activation": {"type": name, **found} if found else name}
    if "axis" in declared:
        fields["axis"] = axis_here(int(given.get("axis", -1)), held.order)
    net.put(call, *net.add(call, "Activation", fields, [held], held.order))


def keeping(net: Translator, call: Call, held: Held, type_: str, fields: Mapping[str, Any]) -> None:
    """Write down a layer of single numbers: what it gives lies as what it reads."""
    net.put(call, *net.add(call, type_, fields, [held], held.order))
