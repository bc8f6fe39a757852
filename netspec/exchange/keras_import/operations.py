"""Operations that are no layers: `x + 1`, `keras.ops.mean(x)` of Keras 3, TFOpLambda of Keras 2."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from netspec.exchange.keras_import.axes import Held, Order, axis_here, channels_first, identity
from netspec.exchange.keras_import.config import Call, Tensor, tensors_in
from netspec.exchange.keras_import.fields import Unsupported, plain
from netspec.exchange.keras_import.shaping import aligned, merged, permuted, reshaped
from netspec.exchange.keras_import.translate import Translator
from netspec.exchange.keras_names import keras_snake
from netspec.schema.kinds import ACTIVATIONS

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OLD = {
    "truediv": "true_divide", "realdiv": "true_divide", "div": "true_divide", "divide": "true_divide",
    "div_no_nan": "true_divide", "reduce_mean": "mean", "reduce_sum": "sum", "reduce_max": "max", "reduce_min": "min",
    "reduce_prod": "prod", "concat": "concatenate", "pow": "power", "sub": "subtract", "mul": "multiply",
    "neg": "negative", "absolute": "abs", "clip_by_value": "clip", "getitem": "get_item", "slice": "get_item",
    "rsub": "subtract", "expand_dims_v2": "expand_dims", "transpose_v2": "transpose", "squeeze_v2": "squeeze",
    "exponential": "exp",
}  # fmt: skip
"""What TensorFlow calls an operation."""
_NAMES = {"dims": "axes", "perm": "axes", "newshape": "shape", "x_min": "min", "x_max": "max", "clip_value_min": "min",
          "clip_value_max": "max", "keep_dims": "keepdims", "indices_or_sections": "sections",
          "num_or_size_splits": "sections", "x1": "x", "x2": "y", "a": "x", "b": "y", "input": "x", "inputs": "x",
          "tensor": "x", "input_tensor": "x", "values": "x", "xs": "x", "features": "x", "logits": "x",
          "multiples": "repeats"}  # fmt: skip
"""What an argument is called in one place or the other."""

Operation: TypeAlias = "Callable[[Translator, Call, dict[str, Any]], None]"
_OPERATIONS: dict[str, Operation] = {}


def operation(*names: str) -> Callable[[Operation], Operation]:
    """Decorator: the function writes down these operations."""

    def register(function: Operation) -> Operation:
        _OPERATIONS.update(dict.fromkeys(names, function))
        return function

    return register


def operate(net: Translator, call: Call) -> None:
    """Write down an operation, or raise `Unsupported`."""
    config = call.layer.config
    name = str(config.get("function", call.layer.class_name))
    name = keras_snake(call.layer.class_name) if "function" not in config else name.rpartition(".")[2]
    name = _OLD.get(name, name)
    given = {_NAMES.get(key, key): value for key, value in config.items() if key not in ("name", "trainable", "dtype")}
    if name == "cast":
        given["dtype"] = config.get("dtype")
    given |= {_NAMES.get(key, key): value for key, value in call.kwargs.items() if value is not None and key != "name"}
    given["args"] = list(call.args) + ([given["x"]] if "x" in given else []) + ([given["y"]] if "y" in given else [])
    if call.layer.wrapped:
        raise Unsupported("it is within a model that is TimeDistributed")
    found = _OPERATIONS.get(name)
    if found is not None:
        found(net, call, given)
    elif ACTIVATIONS.spelled(name) in ACTIVATIONS:
        _activation(net, call, ACTIVATIONS.spelled(name), given)
    else:
        raise Unsupported(f"there is no layer for the operation {name[:60]!r}")


def _one(net: Translator, given: Mapping[str, Any]) -> Held:
    first = given["args"][0] if given["args"] else None
    if not isinstance(first, Tensor):
        raise Unsupported("it does not read the result of a layer")
    return net.get(first)


def _argument(given: Mapping[str, Any], name: str, index: int, usual: Any = None) -> Any:
    """An argument by its name, or by its place among those without a name."""
    if name in given:
        return plain(given[name])
    args = given["args"]
    return plain(args[index]) if index < len(args) else usual


def _activation(net: Translator, call: Call, name: str, given: Mapping[str, Any]) -> None:
    held = _one(net, given)
    declared = ACTIVATIONS[name].model_fields
    named = {**given, **call.layer.config}  # by the function's own names
    found = {key: plain(one) for key, one in named.items() if key in declared and key != "axis" and one is not None}
    fields: dict[str, Any] = {"activation": {"type": name, **found} if found else name}
    if "axis" in declared:
        fields["axis"] = axis_here(int(given.get("axis", -1)), held.order)
    net.put(call, *net.add(call, "Activation", fields, [held], held.order))


def _keeping(net: Translator, call: Call, held: Held, type_: str, fields: Mapping[str, Any]) -> None:
    net.put(call, *net.add(call, type_, fields, [held], held.order))


def _of_elements(type_: str, **fields: Any) -> Operation:
    def write(net: Translator, call: Call, given: dict[str, Any]) -> None:
        _keeping(net, call, _one(net, given), type_, fields)

    return write


_OPERATIONS.update(
    {
        "exp": _of_elements("Exp"), "log": _of_elements("Log"), "sqrt": _of_elements("Power", power=0.5),
        "rsqrt": _of_elements("Power", power=-0.5), "square": _of_elements("Power", power=2.0),
        "reciprocal": _of_elements("Power", power=-1.0), "abs": _of_elements("Abs"),
        "negative": _of_elements("Power", scale=-1.0), "identity": _of_elements("Identity"),
        "stop_gradient": _of_elements("Identity"),
        **{
            name: _of_elements("Expression", expr=f"{function}(x)")
            for name, function in {
                "sin": "sin", "cos": "cos", "tan": "tan", "arctan": "atan", "atan": "atan", "erf": "erf",
                "sign": "sign", "expm1": "expm1",
            }.items()
        },
        "log1p": _of_elements("Log", shift=1.0), "log2": _of_elements("Log", base=2.0),
        "log10": _of_elements("Log", base=10.0),
    }
)  # fmt: skip


_LAYERS = {
    "add": "Add", "subtract": "Subtract", "multiply": "Multiply", "maximum": "Maximum", "minimum": "Minimum",
}  # fmt: skip


@operation("add", "subtract", "multiply", "true_divide", "maximum", "minimum", "power", "squared_difference")
def binary(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """Of two tensors a layer that merges; with a number one of single elements."""
    name = _OLD.get(keras_snake(call.layer.class_name), keras_snake(call.layer.class_name))
    if "function" in call.layer.config:
        name = _OLD.get(name := str(call.layer.config["function"]).rpartition(".")[2], name)
    a, b = (*(one for one in given["args"] if one is not None), None, None)[:2]
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if name in _LAYERS:
            merged(net, call, _LAYERS[name], {}, [a, b])
            return
        formula = {"true_divide": "x / y", "squared_difference": "(x - y) ** 2"}.get(name)
        if formula is None:
            raise Unsupported("its exponent is computed")
        both = aligned(net, [net.get(a), net.get(b)], call)
        net.put(call, *net.add(call, "Expression", {"expr": formula}, both, both[0].order))
        return
    tensor, number, turned = (b, plain(a), True) if isinstance(b, Tensor) else (a, plain(b), False)
    if not isinstance(tensor, Tensor):
        raise Unsupported("it does not read the result of a layer")
    held = net.get(tensor)
    if isinstance(number, list):
        _with_list(net, call, held, name, number, turned)
        return
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise Unsupported(f"one of its operands is {str(number)[:40]}")
    type_, fields = _with_number(name, float(number), turned)
    _keeping(net, call, held, type_, fields)


def _with_number(name: str, number: float, turned: bool) -> tuple[str, dict[str, Any]]:
    """The layer for an operation with a number, which stands first where it is `turned`."""
    if name in ("maximum", "minimum"):
        return "Clip", {"min" if name == "maximum" else "max": number}
    if name == "power" and turned:
        return "Exp", {"base": number}
    if name == "true_divide" and turned:
        return "Power", {"scale": 1 / number, "power": -1.0} if number else {"scale": 0.0}
    if name == "true_divide" and not number:
        raise Unsupported("it divides by 0")
    fields = {
        "add": {"shift": number}, "multiply": {"scale": number}, "power": {"power": number},
        "subtract": {"scale": -1.0, "shift": number} if turned else {"shift": -number},
        "true_divide": {"scale": 1 / number if number else 0.0},
    }.get(name)  # fmt: skip
    if fields is None or (name == "power" and not number):
        raise Unsupported("with a number it has no counterpart")
    return "Power", fields


def _with_list(net: Translator, call: Call, held: Held, name: str, numbers: Any, turned: bool) -> None:
    """With a number for each channel: a Scale or Bias that is not trained."""
    import numpy as np

    array: NDArray[Any] = np.asarray(numbers, np.float32)
    if array.size != held.shape[-1] or array.shape[-1:] != (array.size,) or turned or held.rows is not None:
        raise Unsupported("one of its operands is an array, not a number for each channel")
    array = array.ravel()
    if name in ("multiply", "true_divide"):
        array = array if name == "multiply" else 1 / array
        type_, state = "Scale", "scale"
    elif name in ("add", "subtract"):
        array = array if name == "add" else -array
        type_, state = "Bias", "bias"
    else:
        raise Unsupported("one of its operands is an array")
    _keeping(net, call, held, type_, {"axis": held.order[-1], "trainable": False})
    net.draft.layers[-1].arrays[state] = np.ascontiguousarray(array, np.float32)


@operation("clip")
def clip(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """Limits."""
    low, high = _argument(given, "min", 1), _argument(given, "max", 2)
    limits = {key: float(one) for key, one in (("min", low), ("max", high)) if one is not None}
    _keeping(net, call, _one(net, given), "Clip", limits)


@operation("mean", "sum", "max", "min", "prod")
def reduction(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """Along axes of each sample."""
    held = _one(net, given)
    name = keras_snake(call.layer.class_name)
    if "function" in call.layer.config:
        name = str(call.layer.config["function"]).rpartition(".")[2].removeprefix("reduce_")
    axes, keep = _argument(given, "axis", 1), bool(given.get("keepdims", False))
    rank = len(held.order)
    listed = [axis % rank for axis in (axes if isinstance(axes, list) else [axes])] if axes is not None else []
    if not listed or 0 in listed:
        raise Unsupported("it makes one number of several samples")
    if held.rows is not None:
        raise Unsupported("the features of a flattened image come in another order")
    here = sorted(held.order[axis] for axis in listed)
    fields = {"operation": name, "axes": here} | ({"keepdims": True} if keep else {})
    left = [held.order[axis] for axis in range(rank) if axis not in listed]
    order: Order = held.order if keep else tuple(sorted(left).index(axis) for axis in left)
    if len(left) == 1 and not keep:
        raise Unsupported("nothing but the batch is left")
    net.put(call, *net.add(call, "Reduction", fields, [held], order))


@operation("pad")
def pad(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """A constant, or the data mirrored, around each sample."""
    held, sides = _one(net, given), _argument(given, "pad_width", 1)
    mode, value = _argument(given, "mode", 2, "constant"), _argument(given, "constant_values", 3, 0.0)
    pairs = [side for side in sides if isinstance(side, list) and len(side) == 2] if isinstance(sides, list) else []
    if held.rows is not None or len(pairs) != len(held.order) or any(pairs[0]):
        raise Unsupported("it pads something else than the axes of each sample")
    if mode not in ("constant", "reflect") or isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Unsupported(f"it pads in the mode {str(mode)[:60]!r}")
    here = [pairs[held.order.index(axis)] for axis in range(1, len(held.order))]
    _keeping(net, call, held, "Pad", {"padding": here, "mode": mode, "value": float(value)})


@operation("reshape")
def reshape(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """The batch must stay as it is."""
    held, shape = net.plain(_one(net, given)), _argument(given, "shape", 1)
    sizes = shape if isinstance(shape, list) else []
    if not sizes or sizes[0] not in (-1, None) or sizes.count(-1) > 1 or any(type(one) is not int for one in sizes[1:]):
        raise Unsupported(f"it makes the shape {str(shape)[:60]}, whose first size is not the batch alone")
    reshaped(net, call, held, sizes[1:])


@operation("transpose")
def transpose(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """All axes behind the batch."""
    held, axes = _one(net, given), _argument(given, "axes", 1)
    permuted(net, call, held, axes if isinstance(axes, list) else list(range(len(held.order)))[::-1])


@operation("concatenate")
def concatenate(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """Tensors one behind another."""
    first = given["args"][0] if given["args"] else None
    merged(net, call, "Concatenate", {"axis": int(_argument(given, "axis", 1, -1))}, list(tensors_in(first)))


@operation("stack")
def stack(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """As Concatenate of tensors with one more axis."""
    tensors = list(tensors_in(given["args"][0] if given["args"] else None))
    axis = int(_argument(given, "axis", 1, 0))
    made = []
    for tensor in tensors:
        held = net.plain(tensor)
        axis = axis % (len(held.order) + 1)
        made += net.add(call, "ExpandDims", {"axis": axis}, [held], name=f"{net.name_of(call)}/expand")
    net.put(call, *net.add(call, "Concatenate", {"axis": axis}, made))


@operation("expand_dims", "squeeze")
def axes_of_one(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """An axis of size 1 more, or less."""
    held = net.plain(_one(net, given))
    name = (
        "ExpandDims" if "expand" in str(call.layer.config.get("function", call.layer.class_name)).lower() else "Squeeze"
    )
    axis = _argument(given, "axis", 1, None)
    fields = {} if axis is None else {"axis": axis[0] if isinstance(axis, list) and name == "ExpandDims" else axis}
    net.put(call, *net.add(call, name, fields, [held]))


@operation("matmul")
def matmul(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """Matrices of two tensors."""
    tensors = [one for one in given["args"] if isinstance(one, Tensor)]
    if len(tensors) != 2:
        raise Unsupported("one of its operands is no result of a layer")
    fields = {name: True for name in ("transpose_a", "transpose_b") if given.get(name)}
    net.put(call, *net.add(call, "MatMul", fields, [net.plain(one) for one in tensors]))


@operation("cast")
def cast(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """Another element type."""
    dtype = _argument(given, "dtype", 1)
    dtype = {"float16": "float32", "bfloat16": "float32", "float64": "float32"}.get(str(dtype), dtype)
    _keeping(net, call, _one(net, given), "Cast", {"dtype": dtype})


@operation("split")
def split(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """Equal parts, or parts that end at given places."""
    held, sections, axis = net.get(given["args"][0]), _argument(given, "sections", 1), _argument(given, "axis", 2, 0)
    here = axis_here(int(axis), held.order)
    if isinstance(sections, list) and "function" not in call.layer.config:  # NumPy's: where they end
        ends = [0, *sections, held.value.shape[here]]
        sections = [end - start for start, end in pairwise(ends)]
    count = sections if isinstance(sections, int) else len(sections)
    fields = {"sections": sections, "axis": here}
    net.put(call, *net.add(call, "Split", fields, [held], *[held.order] * count))


@operation("normalize", "l2_normalize")
def normalize(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """Length 1 along axes."""
    held, axis = _one(net, given), _argument(given, "axis", 1, -1)
    if given.get("order", 2) != 2:
        raise Unsupported(f"it divides by the norm of order {given['order']}")
    axes = [axis_here(int(one), held.order) for one in (axis if isinstance(axis, list) else [axis])]
    _keeping(net, call, held, "UnitNormalization", {"axis": sorted(axes)})


@operation("argmax")
def argmax(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """The place of the greatest number."""
    held, axis = net.plain(_one(net, given)), _argument(given, "axis", 1, -1)
    fields = {"axis": int(axis)} | ({"keepdims": True} if given.get("keepdims") else {})
    net.put(call, *net.add(call, "ArgMax", fields, [held]))


@operation("get_item")
def get_item(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """Parts along axes, and single places of them."""
    held = net.plain(_one(net, given))
    key: Any = call.layer.config.get(
        "slice_spec", given.get("key", given["args"][1] if len(given["args"]) > 1 else None)
    )
    parts = _spread(key if isinstance(key, list) else [key], len(held.order))
    gone, steps = [], []
    for axis, part in enumerate(parts):
        if type(part) is int and axis:
            size = held.value.shape[axis]
            start = part % size if -size <= part < size else size
            steps.append({"axis": axis, "start": start, "stop": start + 1})
            gone.append(axis)
        elif not isinstance(part, slice):
            raise Unsupported("it takes other things of a tensor than parts along its axes")
        elif part != slice(None):
            if axis == 0:
                raise Unsupported("it takes samples out of the batch")
            fields = {"axis": axis, "start": part.start or 0, "stop": part.stop, "step": part.step or 1}
            steps.append({name: one for name, one in fields.items() if one is not None})
    name = net.name_of(call)
    for index, fields in enumerate(steps):
        last = index == len(steps) - 1 and not gone
        (held,) = net.add(call, "Slice", fields, [held], name=name if last else f"{name}/slice")
    if gone or not steps:
        kind, fields = ("Squeeze", {"axis": gone}) if gone else ("Identity", {})
        (held,) = net.add(call, kind, fields, [held])
    net.put(call, held)


def _spread(key: Sequence[Any], rank: int) -> list[Any]:
    """One entry for each axis."""
    before = next((index for index, one in enumerate(key) if one is Ellipsis), len(key))
    behind = key[before + 1 :]
    more = rank - before - len(behind)
    if more < 0:
        raise Unsupported("it takes parts along more axes than there are")
    return [*key[:before], *[slice(None)] * more, *behind]


@operation("max_pool", "average_pool")
def pool(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """As the layers."""
    held = _one(net, given)
    rank = len(held.order)
    last = given.get("data_format") != "channels_first"
    order = channels_first(rank) if last else identity(rank)
    kind = "Max" if "Max" in call.layer.class_name else "Average"
    fields = {name: plain(given[name]) for name in ("pool_size", "strides", "padding") if given.get(name) is not None}
    net.put(call, *net.add(call, f"{kind}Pooling{rank - 2}D", fields, [net.turned(held, order)], order))
