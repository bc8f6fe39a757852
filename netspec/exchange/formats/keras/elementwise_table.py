"""Elementwise operators of ONNX that are a single operation of Keras: one table for importing and exporting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from netspec.exchange.formats.keras.names import keras_snake

UNARY: Mapping[str, str] = {
    "Abs": "Absolute abs fabs", "Acos": "Arccos acos", "Acosh": "Arccosh acosh", "Asin": "Arcsin asin",
    "Asinh": "Arcsinh asinh", "Atan": "Arctan atan", "Atanh": "Arctanh atanh",
    "BitwiseNot": "BitwiseNot bitwise_invert", "Ceil": "Ceil", "Cos": "Cos", "Cosh": "Cosh", "Erf": "Erf",
    "Floor": "Floor", "IsInf": "Isinf", "IsNaN": "Isnan", "Log": "Log", "Neg": "Negative", "Not": "LogicalNot",
    "Reciprocal": "Reciprocal", "Round": "Round", "Sign": "Sign", "Sin": "Sin", "Sinh": "Sinh", "Sqrt": "Sqrt",
    "Tan": "Tan",
}  # fmt: skip
"""Operators of one operand → class of the operation in Keras, and other names that files may use."""
BINARY: Mapping[str, str] = {
    "Add": "Add", "And": "LogicalAnd", "BitwiseAnd": "BitwiseAnd", "BitwiseOr": "BitwiseOr",
    "BitwiseXor": "BitwiseXor", "Equal": "Equal", "Greater": "Greater", "GreaterOrEqual": "GreaterEqual",
    "Less": "Less", "LessOrEqual": "LessEqual", "Mul": "Multiply", "Or": "LogicalOr", "Pow": "Power",
    "Sub": "Subtract", "Xor": "LogicalXor",
}  # fmt: skip
"""Operators of two operands, as in `UNARY`."""
ACTIVATIONS: Mapping[str, str] = {name: name for name in ("Exp", "Relu", "Sigmoid", "Softplus", "Tanh")}
"""Operators that are imported as activation functions."""
CONDITIONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsNaN", "IsInf")
"""Operators that return booleans; others of the table keep the element type."""

BINARY_BY_ATTRIBUTES: Mapping[str, str] = {
    "BitShift": "left_shift right_shift bitwise_left_shift bitwise_right_shift", "Div": "divide true_divide",
    "Max": "maximum fmax", "Min": "minimum fmin", "Mod": "mod floormod fmod",
}  # fmt: skip
"""Operators of two operands that are several operations in Keras → their names."""


def operation_class(op_type: str) -> str:
    """The class of the Keras operation for an operator of `UNARY`, `BINARY` or `ACTIVATIONS`."""
    return next(table[op_type] for table in (UNARY, BINARY, ACTIVATIONS) if op_type in table).partition(" ")[0]


def operators_by_name(*tables: Mapping[str, str]) -> dict[str, str]:
    """Operators by every name of their operations: `multiply` → `Mul`."""

    def pairs() -> Iterator[tuple[str, str]]:
        for table in tables:
            for op_type, names in table.items():
                yield from ((keras_snake(name), op_type) for name in names.split())

    return dict(pairs())
