"""Patterns of activation functions that are several ONNX nodes, such as mish = x · tanh(softplus(x)).

Most formulas are derived from the nodes that the exporter writes for a function of the registry. So an activation that
is added there is imported too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, pi, sqrt
from typing import Any

from netspec.exchange.lift.patterns.finding import OperatorPattern, patterns
from netspec.exchange.lift.patterns.formula import NumberTerm, SumTerm, Term, VariableTerm, call, clip
from netspec.exchange.lift.patterns.matching import Match
from netspec.exchange.lower.emit import emit
from netspec.exchange.operator_graph.graph import OperatorGraph
from netspec.graph.graph import Graph
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.layers.activation.base import ActivationSpec, OverAxis
from netspec.schema.specs.kinds import ACTIVATIONS

ACTIVATION = "Activation"
x = VariableTerm()


@patterns
def activations() -> Sequence[OperatorPattern]:
    """Each function of the registry with its default fields, then other formulas for some."""
    relu6 = clip(x + 3.0, 0.0, 6.0)
    tanh = call("Tanh", sqrt(2 / pi) * (x + 0.044715 * x**3))
    factored = call("Tanh", sqrt(2 / pi) * x * (1.0 + 0.044715 * x**2))
    softplus = call("Log", 1.0 + call("Exp", x))
    zero, slope = SumTerm(0.0, ()), NumberTerm("slope") * x
    return [
        *_registered(),
        _activation("hard_sigmoid", relu6 / 6.0),
        _activation("hard_silu", x * relu6 / 6.0),
        _activation("hard_silu", x * call("HardSigmoid", x, alpha=1 / 6, beta=0.5)),
        _activation("gelu", 0.5 * x * (1.0 + tanh), approximate=True),
        _activation("gelu", 0.5 * x * (1.0 + factored), approximate=True),
        _activation("softplus", softplus),
        _activation("mish", x * call("Tanh", softplus)),
        _activation("log_sigmoid", call("Log", call("Sigmoid", x))),
        *(
            OperatorPattern(ACTIVATION, call("Where", call(above, x, zero), x, slope), attributes=_leaky)
            for above in ("Greater", "GreaterOrEqual")
        ),
        _activation("silu", x / (1.0 + call("Exp", -1.0 * x))),
        _activation("sigmoid", 1.0 / (1.0 + call("Exp", -1.0 * x))),
        OperatorPattern(ACTIVATION, x * call("Sigmoid", NumberTerm("beta") * x), attributes=_swish),
    ]  # fmt: skip


def _activation(function: str, formula: Term, **fields: Any) -> OperatorPattern:
    spec = {"type": function, **fields} if fields else function
    return OperatorPattern(ACTIVATION, formula, attributes=lambda match: {"function": spec})


def _swish(match: Match) -> dict[str, Any]:
    return {"function": {"type": "swish", "beta": round(match.numbers["beta"], 6)}}


def _leaky(match: Match) -> dict[str, Any]:
    return {"function": {"type": "leaky_relu", "negative_slope": round(match.numbers["slope"], 6)}}


def _registered() -> list[OperatorPattern]:
    activation_patterns = []
    for name in ACTIVATIONS.names():
        cls = ACTIVATIONS[name]
        if issubclass(cls, OverAxis):
            continue
        function, operand = ACTIVATIONS.parse(name), Input("x", TensorType((3, 5), DType.FLOAT32))()
        assert isinstance(function, ActivationSpec)
        graph, problems = emit(Graph({"y": function.apply(operand)}))
        formula = None if problems else _formula(graph, "y")
        if isinstance(formula, Term) and formula != x:
            activation_patterns.append(_activation(name, formula))
    return activation_patterns


def _formula(graph: OperatorGraph, tensor: str) -> Term | float:
    """The formula of a tensor in a graph."""
    if tensor == "x":
        return x
    if tensor in graph.constants:
        return float(graph.constants[tensor].reshape(-1)[0])
    node = next(node for node in graph.nodes if tensor in node.outputs)
    operands = [_formula(graph, name) for name in node.inputs]
    arithmetic = _ARITHMETIC.get(node.op_type)
    if arithmetic is not None:
        return arithmetic(*operands)
    return call(
        node.op_type,
        *(operand if isinstance(operand, Term) else SumTerm(operand, ()) for operand in operands),
        **node.attributes,
    )


_ARITHMETIC: dict[str, Callable[..., Term | float]] = {
    "Identity": lambda a: a,
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: a / b,
    "Neg": lambda a: -1.0 * a,
    "Sqrt": lambda a: a**0.5,
    "Relu": lambda a: clip(a, 0.0, inf),
    "Max": lambda a, b: clip(a, b, inf) if isinstance(b, float) else call("Max", a, b),
    "Min": lambda a, b: clip(a, -inf, b) if isinstance(b, float) else call("Min", a, b),
}
"""The term of a formula for each operator that is not a `call`."""
