"""The imported ONNX operators, as `docs/formats.md` lists them."""

from __future__ import annotations

from typing import Any

from onnx import defs

from netspec.exchange.lift.registry import BLOCKED, becomes_layers, rules

MICROSOFT = "com.microsoft"
BY_FORMULA = ("Exp", "Relu", "Sigmoid", "Softplus", "Tanh")
"""Operators that are recognized as an activation function."""
OF_SHAPES = ("Constant", "OptionalHasElement", "Shape", "Size")
"""Operators whose results are known at import for any tensor."""


def operators() -> dict[str, list[str]]:
    """The operators by the line that introduces them."""
    keys = sorted(rules())
    functions = {schema.name for schema in defs.get_all_schemas() if not schema.domain and _has_function(schema)}
    by_rule = [op_type for domain, op_type in keys if not domain and becomes_layers(domain, op_type)]
    constants = [op_type for domain, op_type in keys if not domain and not becomes_layers(domain, op_type)]
    parts = functions - {op_type for domain, op_type in keys if not domain}
    names = {schema.name for schema in defs.get_all_schemas() if not schema.domain}
    return {
        "Operators that become layers:": by_rule,
        "Operators that become an activation function, or the operators that ONNX defines them by:": sorted(
            {*BY_FORMULA, *parts}
        ),
        "Operators that are only computed from constants and shapes:": sorted({*OF_SHAPES, *constants}),
        "Operators of `com.microsoft`, which onnxruntime's optimizers and its quantization write:": [
            op_type for domain, op_type in keys if domain == MICROSOFT
        ],
        "Operators of `com.microsoft.nchwc`, on blocks of channels:": [
            op_type for domain, op_type in keys if domain == BLOCKED
        ],
        "Operators of ONNX that cannot be imported:": sorted(
            names.difference(by_rule, BY_FORMULA, parts, OF_SHAPES, constants)
        ),
    }


def _has_function(schema: Any) -> bool:
    return bool(schema.has_function or schema.has_context_dependent_function)
