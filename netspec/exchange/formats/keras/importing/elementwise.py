"""Import elementwise operations of Keras as operators of ONNX, or as formulas if ONNX does not have an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from netspec.exchange.formats.keras.elementwise_table import BINARY, BINARY_BY_ATTRIBUTES, UNARY, operators_by_name
from netspec.exchange.formats.keras.importing.axes import TensorView
from netspec.exchange.formats.keras.importing.config import CallOutput
from netspec.exchange.formats.keras.importing.fields import plain_value
from netspec.exchange.formats.keras.importing.operations import operation
from netspec.exchange.formats.keras.importing.operator_nodes import KerasOperation
from netspec.exchange.formats.keras.importing.shape_layers import aligned
from netspec.exchange.lift.patterns.activations import ACTIVATION
from netspec.exchange.lift.patterns.finding import DOMAIN
from netspec.exchange.lift.rules.functions import FORMULA
from netspec.exchange.unsupported import UnsupportedFeature

_UNARY, _BINARY = operators_by_name(UNARY), operators_by_name(BINARY, BINARY_BY_ATTRIBUTES)
_ATTRIBUTES: Mapping[str, Mapping[str, Any]] = {
    "fmod": {"fmod": 1},
    **{
        f"{prefix}{side}_shift": {"direction": side.upper()}
        for prefix in ("", "bitwise_")
        for side in ("left", "right")
    },
}
FORMULAS: Mapping[str, str] = {
    "expm1": "expm1({0})", "erfc": "1 - erf({0})", "exp2": "2 ** {0}", "cbrt": "sign({0}) * abs({0}) ** (1 / 3)",
    "log1p": "log(1 + {0})", "log2": "log({0}) / log(2)", "log10": "log({0}) / log(10)", "square": "{0} * {0}",
    "deg2rad": "{0} * pi / 180", "rad2deg": "{0} * 180 / pi", "isfinite": "not isnan({0}) and not isinf({0})",
    "isposinf": "isinf({0}) and {0} > 0", "isneginf": "isinf({0}) and {0} < 0", "signbit": "{0} < 0",
    "trunc": "ceil({0}) if {0} < 0 else floor({0})", "sinc": "1 if {0} == 0 else sin(pi * {0}) / (pi * {0})",
    "not_equal": "{0} != {1}", "floor_divide": "{0} // {1}", "floordiv": "{0} // {1}",
    "squared_difference": "({0} - {1}) ** 2", "hypot": "sqrt({0} * {0} + {1} * {1})",
    "divide_no_nan": "0 if {1} == 0 else {0} / (1 if {1} == 0 else {1})",
    "logaddexp": "max({0}, {1}) + log(1 + exp(-abs({0} - {1})))",
    "logaddexp2": "max({0}, {1}) + log(1 + 2 ** -abs({0} - {1})) / log(2)",
    "heaviside": "0 if {0} < 0 else 1 if {0} > 0 else {1}", "ldexp": "{0} * 2 ** {1}",
}  # fmt: skip
"""Formulas of operations for which ONNX does not have an operator."""
_POWERS = {"square": 2.0, "rsqrt": -0.5}
"""Operations on floats that are powers."""
_CONDITIONS = ("isfinite", "isposinf", "isneginf", "signbit", "not_equal")
"""Formulas that return booleans."""
_DIVISION = ("divide", "true_divide")
_TRIGONOMETRY = [name for name, op_type in _UNARY.items() if op_type.lstrip("A")[:3].lower() in ("sin", "cos", "tan")]
_FLOATS = frozenset(
    (
        *_TRIGONOMETRY, *_DIVISION, "divide_no_nan",
        "erf", "erfc", "exp", "expm1", "exp2", "cbrt", "deg2rad", "rad2deg", "sinc", "hypot", "logaddexp", "logaddexp2",
        "heaviside", "ldexp", "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "reciprocal",
    )
)  # fmt: skip
"""Operations that return floats, for integers too."""


@operation("identity", "stop_gradient", "copy", "convert_to_tensor", "real", "conjugate", "conj", "positive", "array")
def identity(op: KerasOperation) -> str:
    """Return the operand unchanged."""
    return op.node("Identity", op.tensor)


@operation("clip")
def clip(op: KerasOperation) -> str:
    """Clip to one or two limits."""
    kind = float if op.tensor.value.dtype.is_float else int
    bounds = (("min", op.argument("min", 1)), ("max", op.argument("max", 2)))
    limits: dict[str, Any] = {key: kind(limit) for key, limit in bounds if limit is not None}
    return op.node("Clip", op.tensor, **limits)


@operation("cast")
def cast(op: KerasOperation) -> str:
    """Cast."""
    return cast_to(op, op.tensor, str(op.argument("dtype", 1)))


def cast_to(op: KerasOperation, operand: Any, dtype: str) -> str:
    """Add a cast to an element type."""
    return op.node("CastLike", operand, np.zeros((), "float32" if dtype == "bfloat16" else dtype))


@operation("view")
def bit_cast(op: KerasOperation) -> str:
    """Reinterpret the bits as another element type."""
    from onnx.helper import np_dtype_to_tensor_dtype

    return op.node("BitCast", op.tensor, to=np_dtype_to_tensor_dtype(np.dtype(str(op.call.layer.config.get("dtype")))))


@operation("zeros_like", "ones_like", "full_like")
def full_like(op: KerasOperation) -> str:
    """Return a constant tensor of the operand's shape."""
    value = op.argument("fill_value", 1) if op.name == "full_like" else int(op.name == "ones_like")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UnsupportedFeature(f"its fill value is {str(value)[:40]}, not a number")
    dtype = str(op.call.layer.config.get("dtype") or op.tensor.value.dtype)
    if dtype == "bool":
        raise UnsupportedFeature("it fills a tensor with booleans")
    literal = repr(float(value) if "float" in dtype else int(value))
    return op.node(FORMULA, cast_to(op, op.tensor, dtype), domain=DOMAIN, text=f"{literal} if {{0}} < 0 else {literal}")


@operation("nan_to_num")
def nan_to_num(op: KerasOperation) -> str:
    """Replace NaN by 0 and infinite elements by the limits of float32, unless the arguments name other numbers."""
    limit = float(np.finfo("float32").max)
    replacements = []
    for index, (name, default) in enumerate({"nan": 0.0, "posinf": limit, "neginf": -limit}.items(), start=1):
        argument = op.argument(name, index)
        number = default if argument is None else argument
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not isfinite(number):
            raise UnsupportedFeature(f"its replacement for NaN or infinity is {str(number)[:40]}, not a finite number")
        replacements.append(repr(float(number)))
    if not op.tensor.value.dtype.is_float:
        return op.node("Identity", op.tensor)
    nan, posinf, neginf = replacements
    formula = f"{nan} if isnan({{0}}) else ({posinf} if {{0}} > 0 else {neginf}) if isinf({{0}}) else {{0}}"
    return op.node(FORMULA, op.tensor, domain=DOMAIN, text=formula)


@operation("exp", *_UNARY, *_BINARY, *FORMULAS, "rsqrt", "where", "select")
def elementwise(op: KerasOperation) -> str:
    """An operator of ONNX with operands of one type, or a formula."""
    name, operands = op.name, _operands(op)
    condition_count = int(name in ("where", "select"))
    floats = name in _FLOATS or any(_is_float(op, operand) for operand in operands[condition_count:])
    dtype = "bool" if name.startswith("logical") else "float32" if floats else None
    dtypes = ["bool"] * condition_count + [dtype] * (len(operands) - condition_count)
    tensors = aligned(
        op.importer, [op.importer.get(operand) for operand in operands if isinstance(operand, CallOutput)], op.call
    )
    remaining, rank = iter(tensors), len(tensors[0].order)
    converted = [
        _tensor(op, next(remaining), dtype) if isinstance(operand, CallOutput) else _constant(operand, dtype, rank)
        for operand, dtype in zip(operands, dtypes, strict=True)
    ]
    if condition_count:
        return op.node("Where", *converted)
    if floats and name in _POWERS:
        return op.node("Pow", *converted, _POWERS[name])
    if name == "exp":
        return op.node(ACTIVATION, *converted, domain=DOMAIN, function="exponential")
    if name in FORMULAS:
        return op.node(FORMULA, *converted, domain=DOMAIN, text=FORMULAS[name], truth=name in _CONDITIONS)
    return op.node(_UNARY.get(name) or _BINARY[name], *converted, **_ATTRIBUTES.get(name, {}))


def _operands(op: KerasOperation) -> Sequence[Any]:
    """The operands. Raises `UnsupportedFeature` if some are missing, or combine the samples."""
    name, operands = op.name, [operand for operand in op.arguments["args"] if operand is not None]
    if name == "select":
        conditions, choices = operands[:2]
        if len(conditions) != 1 or len(choices) != 1:
            raise UnsupportedFeature("`select` is only supported with one condition")
        operands = [conditions[0], choices[0], op.argument("default", 2, 0)]
    if name == "round" and op.argument("decimals", 1, 0):
        raise UnsupportedFeature(f"it rounds to {op.arguments['decimals']} decimals")
    count = 3 if name in ("where", "select") else 2 if name in _BINARY or "{1}" in FORMULAS.get(name, "") else 1
    if len(operands) < count:
        problem = (
            "the size of its result depends on values" if count == 3 else "the file does not contain its second operand"
        )
        raise UnsupportedFeature(problem)
    operands = operands[:count]
    ranks = {len(op.importer.get(operand).order) for operand in operands if isinstance(operand, CallOutput)}
    if not ranks:
        raise UnsupportedFeature("its input is not the result of a layer")
    if len(ranks) > 1:
        raise UnsupportedFeature(
            "its operands have different ranks, so that the batch axis of one would be combined with another axis"
        )
    if name in _DIVISION and operands[1] in (0, 0.0):
        raise UnsupportedFeature("it divides by 0")
    return operands


def _is_float(op: KerasOperation, operand: Any) -> bool:
    if isinstance(operand, CallOutput):
        return op.importer.get(operand).value.dtype.is_float
    return isinstance(operand, float) or "float" in getattr(operand, "dtype", "")


def _tensor(op: KerasOperation, view: TensorView, dtype: str | None) -> Any:
    """A tensor as an operand of this element type."""
    if dtype == "bool":
        return as_boolean(op, view)
    return cast_to(op, view, dtype) if dtype and not view.value.dtype.is_float else view


def as_boolean(op: KerasOperation, view: TensorView) -> Any:
    """A tensor as an operand that is boolean: whether each element is not 0."""
    if str(view.value.dtype) == "bool":
        return view
    return op.node(FORMULA, view, domain=DOMAIN, text="{0} != 0", truth=True)


def _constant(value: Any, dtype: str | None, rank: int) -> Any:
    """A number or an array as an operand of this element type; an array is the same for each sample."""
    if not isinstance(value, list):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
            raise UnsupportedFeature(f"one of its operands is {str(value)[:40]}")
        return np.asarray(plain_value(value), "float64" if dtype == "float32" else None)
    array = np.asarray(value, getattr(value, "dtype", None))
    if array.ndim > rank or (array.ndim == rank and array.shape[0] != 1):
        raise UnsupportedFeature("one of its operands is an array with different values per sample")
    return array != 0 if dtype == "bool" else array if dtype is None else array.astype(dtype)
