"""Elementwise operations of Keras: a layer if there is one, else a formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any

from netspec.exchange.formats.keras.importing.axes import Order, TensorView, identity
from netspec.exchange.formats.keras.importing.config import CallOutput, LayerCall
from netspec.exchange.formats.keras.importing.fields import plain
from netspec.exchange.formats.keras.importing.importer import KerasImporter
from netspec.exchange.formats.keras.importing.operations import argument, keeping, name_of, one, operation
from netspec.exchange.formats.keras.importing.shape_layers import aligned, merged
from netspec.exchange.unsupported import UnsupportedFeature

if TYPE_CHECKING:
    from numpy.typing import NDArray


_CUBE_ROOT = "sign(x) * abs(x) ** (1 / 3)"
FORMULAS: Mapping[str, str] = {
    **{name: f"{name}(x)" for name in (
        "sin", "cos", "tan", "erf", "sign", "expm1", "floor", "ceil", "round", "sinh", "cosh", "isnan", "isinf",
    )},
    "arcsin": "asin(x)", "arccos": "acos(x)", "arctan": "atan(x)", "arcsinh": "asinh(x)", "arccosh": "acosh(x)",
    "arctanh": "atanh(x)", "atan": "atan(x)", "asin": "asin(x)", "acos": "acos(x)", "atanh": "atanh(x)",
    "asinh": "asinh(x)", "acosh": "acosh(x)", "erfc": "1 - erf(x)", "exp2": "2 ** x", "cbrt": _CUBE_ROOT,
    "deg2rad": "x * pi / 180", "rad2deg": "x * 180 / pi", "isfinite": "not isnan(x) and not isinf(x)",
    "isposinf": "isinf(x) and x > 0", "isneginf": "isinf(x) and x < 0", "trunc": "ceil(x) if x < 0 else floor(x)",
    "sinc": "1 if x == 0 else sin(pi * x) / (pi * x)", "signbit": "x < 0",
    "less": "x < y", "less_equal": "x <= y", "greater": "x > y", "greater_equal": "x >= y", "equal": "x == y",
    "not_equal": "x != y", "logical_and": "x and y", "logical_or": "x or y", "logical_not": "not x",
    "logical_xor": "xor(x, y)", "mod": "x % y", "floormod": "x % y", "fmod": "fmod(x, y)", "floor_divide": "x // y",
    "floordiv": "x // y", "power": "x ** y", "true_divide": "x / y", "divide": "x / y",
    "squared_difference": "(x - y) ** 2",
    "divide_no_nan": "0 if y == 0 else x / (1 if y == 0 else y)", "hypot": "sqrt(x * x + y * y)",
    "logaddexp": "max(x, y) + log(1 + exp(-abs(x - y)))",
    "logaddexp2": "max(x, y) + log(1 + 2 ** -abs(x - y)) / log(2)",
    "heaviside": "0 if x < 0 else 1 if x > 0 else y", "ldexp": "x * 2 ** y", "fmax": "max(x, y)", "fmin": "min(x, y)",
    "add": "x + y", "subtract": "x - y", "multiply": "x * y", "maximum": "max(x, y)", "minimum": "min(x, y)",
    "negative": "-x", "absolute": "abs(x)", "abs": "abs(x)", "square": "x * x",
    "bitwise_and": "bit_and(x, y)", "bitwise_or": "bit_or(x, y)", "bitwise_xor": "bit_xor(x, y)",
    "bitwise_not": "bit_not(x)", "bitwise_invert": "bit_not(x)", "bitwise_left_shift": "shift_left(x, y)",
    "left_shift": "shift_left(x, y)", "bitwise_right_shift": "shift_right(x, y)", "right_shift": "shift_right(x, y)",
    "where": "y if x else z", "select": "y if x else z",
}  # fmt: skip
"""Formulas of operations, with operands x, y and z."""
CONDITIONS = frozenset(
    (
        "isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit", "less", "less_equal", "greater",
        "greater_equal", "equal", "not_equal", "logical_and", "logical_or", "logical_not", "logical_xor",
    )
)  # fmt: skip
"""Operations that return booleans."""
DIVISIONS = ("divide", "true_divide")
FLOATS = frozenset(
    (
        *DIVISIONS, "divide_no_nan", "sin", "cos", "tan", "erf", "erfc", "expm1", "sinh", "cosh", "arcsin", "arccos",
        "arctan", "arcsinh", "arccosh", "arctanh", "exp2", "cbrt", "deg2rad", "rad2deg", "sinc", "hypot", "logaddexp",
        "logaddexp2", "heaviside", "ldexp",
    )
)  # fmt: skip
"""Operations that return floats, for integers too."""
_LAYERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "exp": ("Exp", {}), "log": ("Log", {}), "sqrt": ("Power", {"power": 0.5}), "rsqrt": ("Power", {"power": -0.5}),
    "reciprocal": ("Power", {"power": -1.0}), "log1p": ("Log", {"shift": 1.0}), "log2": ("Log", {"base": 2.0}),
    "log10": ("Log", {"base": 10.0}),
}  # fmt: skip
"""Operations of one operand that return floats, and their layers."""
_OF_FLOATS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "abs": ("Abs", {}), "absolute": ("Abs", {}), "fabs": ("Abs", {}), "square": ("Power", {"power": 2.0}),
    "negative": ("Power", {"scale": -1.0}),
}  # fmt: skip
"""The same for floats only: for integers these return integers."""
_SAME = ("identity", "stop_gradient", "copy", "convert_to_tensor", "real", "conjugate", "conj", "positive", "array")
_MERGES = {
    "add": "Add", "subtract": "Subtract", "multiply": "Multiply", "maximum": "Maximum", "minimum": "Minimum",
    "fmax": "Maximum", "fmin": "Minimum",
}  # fmt: skip
"""Operations of two tensors that are layers."""


@operation("clip")
def clip(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Limits."""
    low, high = argument(given, "min", 1), argument(given, "max", 2)
    held = one(importer, given)
    limits = {key: float(each) for key, each in (("min", low), ("max", high)) if each is not None}
    if held.value.dtype.is_float:
        keeping(importer, call, held, "Clip", limits)
    else:
        keeping(importer, call, held, "Expression", {"expr": f"clip(x, {low}, {high})", "keep_types": True})


@operation("cast")
def cast(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Cast."""
    dtype = argument(given, "dtype", 1)
    dtype = {"float16": "float32", "bfloat16": "float32", "float64": "float32"}.get(str(dtype), dtype)
    keeping(importer, call, one(importer, given), "Cast", {"dtype": dtype})


@operation("view")
def bits(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """View: the same bits as another type."""
    keeping(importer, call, one(importer, given), "BitCast", {"dtype": str(call.layer.config.get("dtype"))})


@operation("zeros_like", "ones_like", "full_like")
def repeated(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """A constant tensor."""
    held, name = one(importer, given), name_of(call)
    value = argument(given, "fill_value", 1) if name == "full_like" else int(name == "ones_like")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UnsupportedFeature(f"it repeats {str(value)[:40]}")
    dtype = str(call.layer.config.get("dtype") or held.value.dtype)
    kind = "float32" if "float" in dtype else dtype
    if kind == "bool":
        raise UnsupportedFeature("it makes truth values of no comparison")
    if str(held.value.dtype) != kind:
        (held,) = importer.add(call, "Cast", {"dtype": kind}, [held], held.order, name=f"{importer.name_of(call)}/cast")
    number = repr(float(value) if kind == "float32" else int(value))
    fields = {"expr": f"{number} if x < 0 else {number}"} | ({} if kind == "float32" else {"keep_types": True})
    keeping(importer, call, held, "Expression", fields)


@operation(*_LAYERS)
def layer_of_one(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Operations with a layer of their own."""
    type_, fields = _LAYERS[name_of(call)]
    keeping(importer, call, one(importer, given), type_, fields)


@operation(*_SAME)
def same(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Operations that change nothing."""
    keeping(importer, call, one(importer, given), "Identity", {})


@operation(*FORMULAS, "fabs")
def formula(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Write a layer if there is one for these operands, else a formula."""
    name = name_of(call)
    operands = [*given["args"]] if name != "select" else _selected(given)
    if name in ("where", "select") and len([each for each in operands if each is not None]) != 3:
        raise UnsupportedFeature("the size of its result depends on values")
    if name == "round" and argument(given, "decimals", 1, 0):
        raise UnsupportedFeature(f"it rounds to {given['decimals']} decimals")
    operands = [each for each in operands if each is not None][
        : 1 + ("y" in FORMULAS.get(name, "")) + name.startswith(("where", "select"))
    ]
    if not any(isinstance(each, CallOutput) for each in operands):
        raise UnsupportedFeature("its input is not the result of a layer")
    if "y" in FORMULAS.get(name, "") and len(operands) < 2:
        raise UnsupportedFeature("the file does not contain its second operand")
    if not _as_layer(importer, call, name, operands):
        FormulaBuilder(importer, call, name, operands).write()


def _selected(given: Mapping[str, Any]) -> list[Any]:
    conditions, choices = given["args"][:2]
    if len(conditions) != 1 or len(choices) != 1:
        raise UnsupportedFeature("it chooses among more than two")
    return [conditions[0], choices[0], argument(given, "default", 2, 0)]


def _as_layer(importer: KerasImporter, call: LayerCall, name: str, operands: Sequence[Any]) -> bool:
    """Write the operation as a layer, if there is one for such operands."""
    tensors = [importer.get(each) for each in operands if isinstance(each, CallOutput)]
    floats = all(held.value.dtype.is_float for held in tensors)
    if len(operands) == 1 and floats and name in _OF_FLOATS:
        type_, fields = _OF_FLOATS[name]
        keeping(importer, call, tensors[0], type_, fields)
        return True
    if len(operands) != 2:
        return False
    if len(tensors) == 2:
        if name in _MERGES and _alike(tensors):
            merged(importer, call, _MERGES[name], {}, tensors)
            return True
        return False
    (held,), turned = tensors, isinstance(operands[1], CallOutput)
    other = operands[0] if turned else operands[1]
    if isinstance(other, list):
        return floats and not turned and _of_channels(importer, call, held, name, other)
    if isinstance(other, bool) or not isinstance(other, (int, float)):
        raise UnsupportedFeature(f"one of its operands is {str(other)[:40]}")
    made = _with_number(name, float(plain(other)), turned) if floats else None
    if made is not None:
        keeping(importer, call, held, *made)
    return made is not None


def _alike(tensors: Sequence[TensorView]) -> bool:
    return len({held.value.dtype for held in tensors}) == 1


def _with_number(name: str, number: float, turned: bool) -> tuple[str, dict[str, Any]] | None:
    """The layer for an operation with a number, the first operand if `turned`; None if there is none."""
    if not isfinite(number):
        raise UnsupportedFeature(f"one of its operands is {number}")
    if name in ("maximum", "minimum", "fmax", "fmin"):
        return "Clip", {"min" if "max" in name else "max": number}
    if name == "power" and turned:
        return ("Exp", {"base": number}) if number > 0 else None
    if name in DIVISIONS and turned:
        return ("Power", {"scale": 1 / number, "power": -1.0}) if number else None
    if name in DIVISIONS and not number:
        raise UnsupportedFeature("it divides by 0")
    fields = {
        "add": {"shift": number}, "multiply": {"scale": number}, "power": {"power": number},
        "subtract": {"scale": -1.0, "shift": number} if turned else {"shift": -number},
        **{key: {"scale": 1 / number if number else 0.0} for key in DIVISIONS},
    }.get(name)  # fmt: skip
    none = fields is None or 0.0 in (fields.get("scale"), fields.get("power"))
    return None if none or fields is None else ("Power", fields)


def _of_channels(importer: KerasImporter, call: LayerCall, held: TensorView, name: str, numbers: Any) -> bool:
    """The Scale or Bias, not trained, for an operation with a vector of the channels; None if it is not one."""
    import numpy as np

    array: NDArray[Any] = np.asarray(numbers, np.float32)
    if array.ndim > len(held.order) or array.size != held.shape[-1] or array.shape[-1:] != (array.size,):
        return False
    if name not in ("multiply", *DIVISIONS, "add", "subtract") or len(held.order) < 2:
        return False
    type_, state = ("Scale", "scale") if name in ("multiply", *DIVISIONS) else ("Bias", "bias")
    array = 1 / array if name in DIVISIONS else -array if name == "subtract" else array
    keeping(importer, call, held, type_, {"axis": held.order[-1], "trainable": False})
    importer.draft.layers[-1].arrays[state] = np.ascontiguousarray(array.ravel(), np.float32)
    return True


@dataclass
class FormulaBuilder:
    """Writes an operation of tensors, numbers and arrays as a formula."""

    importer: KerasImporter
    call: LayerCall
    name: str
    operands: Sequence[Any]
    held: list[TensorView] = field(default_factory=list)
    arrays: dict[str, Any] = field(default_factory=dict)

    def write(self) -> None:
        """Write the layer Expression; arrays become Parameters that are not trained."""
        importer, call = self.importer, self.call
        tensors = [importer.get(each) for each in self.operands if isinstance(each, CallOutput)]
        if len({len(held.order) for held in tensors}) > 1:
            raise UnsupportedFeature(
                "its operands have different ranks, so that samples of one would be combined with parts of the other"
            )
        tensors = aligned(importer, tensors, call)
        order = tensors[0].order
        floats = self.name in FLOATS or any(map(self._is_float, self._compared()))
        choosing = self.name in ("where", "select")
        names: list[str] = []
        left = iter(tensors)
        for index, each in enumerate(self.operands):
            condition = choosing and index == 0
            logical = self.name.startswith("logical") or condition
            if isinstance(each, CallOutput):
                names.append(self._tensor(next(left), floats and not condition, logical))
            elif isinstance(each, list):
                names.append(self._array(each, order, floats, logical))
            else:
                names.append(_number(each, floats))
        text = FORMULAS[self.name] if floats or "abs" not in self.name else "max(x, -x)"  # of integers
        text = _filled(text, names)
        keep = not all(held.value.dtype.is_float for held in self.held) or self.name in CONDITIONS
        fields: dict[str, Any] = {"expr": text} | ({"keep_types": True} if keep else {})
        if len(self.held) > 3:
            fields["inputs"] = [f"x{index}" for index in range(len(self.held))]
        if self.arrays:
            fields |= {
                "parameters": {name: {"shape": list(array.shape)} for name, array in self.arrays.items()},
                "trainable": False,
            }
        importer.put(call, *importer.add(call, "Expression", fields, self.held, order))
        importer.draft.layers[-1].arrays.update(self.arrays)

    def _compared(self) -> list[Any]:
        """The operands that determine the type of the result."""
        return list(self.operands[1:] if self.name in ("where", "select") else self.operands)

    def _is_float(self, operand: Any) -> bool:
        if isinstance(operand, CallOutput):
            return self.importer.get(operand).value.dtype.is_float
        return isinstance(operand, float) or "float" in getattr(operand, "dtype", "")

    def _tensor(self, held: TensorView, floats: bool, logical: bool) -> str:
        kind = held.value.dtype
        if floats and not kind.is_float:
            name = f"{self.importer.name_of(self.call)}/cast"
            (held,) = self.importer.add(self.call, "Cast", {"dtype": "float32"}, [held], held.order, name=name)
        self.held.append(held)
        name = "xyz"[len(self.held) - 1]
        return f"({name} != 0)" if logical and str(held.value.dtype) != "bool" else name

    def _array(self, numbers: list[Any], order: Order, floats: bool, logical: bool) -> str:
        import numpy as np

        array = laid(np.asarray(numbers, getattr(numbers, "dtype", None)), order)
        if not floats or logical:
            self.held.append(constant(self.importer, self.call, array, self._like(), order))
            name = "xyz"[len(self.held) - 1]
            return f"({name} != 0)" if logical and array.dtype != bool else name
        name = "abc"[len(self.arrays)]
        self.arrays[name] = np.ascontiguousarray(array[0], np.float32)
        return name

    def _like(self) -> TensorView:
        return self.importer.get(next(each for each in self.operands if isinstance(each, CallOutput)))


def _number(value: Any, floats: bool) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise UnsupportedFeature(f"one of its operands is {str(value)[:40]}")
    text = repr(float(plain(value))) if floats else repr(value)
    return f"({text})" if text.startswith("-") else text


def _filled(text: str, names: Sequence[str]) -> str:
    """The formula with the names of its operands."""
    import re

    by = dict(zip("xyz", names, strict=False))
    return re.sub(r"\b[xyz]\b", lambda match: by[match[0]], text)


def laid(array: NDArray[Any], order: Order) -> NDArray[Any]:
    """An array that broadcasts with a tensor of Keras, with its axes in the tensor's order; the first is the batch."""
    import numpy as np

    rank = len(order)
    wide = array.reshape((1,) * (rank - array.ndim) + array.shape)
    if wide.ndim != rank or wide.shape[0] != 1:
        raise UnsupportedFeature("one of its operands is an array that differs from sample to sample")
    return wide.transpose(np.argsort(order))


def constant(
    importer: KerasImporter, call: LayerCall, array: NDArray[Any], like: TensorView, order: Order | None = None
) -> TensorView:
    """An array (1, …) as a tensor that repeats for each sample of another tensor."""
    import numpy as np

    kind = str(array.dtype)
    dtype = kind if kind in ("bool", "int32", "int64", "uint8", "int8", "int16", "uint16") else "float32"
    fields: dict[str, Any] = {"shape": list(array.shape[1:]), "dtype": dtype, "trainable": False}
    if dtype == "float32":
        del fields["dtype"]
    (made,) = importer.add(
        call, "Parameter", fields, [like], order or identity(array.ndim), name=f"{importer.name_of(call)}/constant"
    )
    importer.draft.layers[-1].arrays["value"] = np.ascontiguousarray(array[0], dtype)
    return made
