"""The layer Expression: elementwise arithmetic written in the spec, as values of the graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.errors import listing
from netspec.graph.ops.elementwise import cast
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import ShapeMismatch, Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import require
from netspec.layers.constraints import Constraint
from netspec.layers.expression.formula import CONSTANTS, FUNCTIONS, GraphFormula
from netspec.layers.initializers.base import Initializer, Ones
from netspec.layers.regularizers import Regularizer
from netspec.schema.language.formula import ExpressionError
from netspec.schema.specs.field_types import Names
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.spec import Spec, problem

DEFAULT_NAMES = ("x", "y", "z")
_ANY = Input("any", TensorType((), DType.FLOAT32))()
"""Placeholder for each input while a formula is only checked."""


class ParameterSpec(Spec):
    """A learned array in an Expression."""

    shape: tuple[int, ...] = Field(default=(), strict=False)
    """Its shape, which broadcasts with the inputs: [] is a single number, [C, 1, 1] one per channel of images."""
    initializer: Initializer = Ones()
    """First values."""
    regularizer: Regularizer | None = None
    """Penalty on it, added to the loss."""
    constraint: Constraint | None = None
    """Constraint on it, applied after each step."""


@LAYERS.register
class Expression(LayerSpec):
    """Compute a formula of the inputs, element by element: `expr: "x * sigmoid(1.7 * x)"`.

    Inputs (N, …) of shapes that broadcast, output of their common shape. The formula has numbers, `+ - * / **`, `//`
    (rounded down) and `%` (with the divisor's sign), `a if x > y and not x > 3 else b`, the constants pi and e, and
    functions: abs, exp, expm1, log, sqrt, sign, floor, ceil, round (halves to even), sin, cos, tan, asin, acos, atan,
    sinh, cosh, asinh, acosh, atanh, erf, min, max, fmod(x, y), clip(x, low, high), where(condition, a, b), and every
    elementwise activation function; conditions also by isnan, isinf, xor(p, q). The formula is differentiated and fused
    like any layer.

    Integers are converted to floats, unless `keep_types` is set: then there are also quotient(x, y), which truncates,
    bit_and, bit_or, bit_xor, bit_not, shift_left and shift_right.
    """

    onnx_roundtrip_blocker: ClassVar = "it is written as the operators that its formula is made of"
    type: Literal["Expression"] = "Expression"
    expr: str
    """The formula."""
    inputs: Names | None = None
    """Names of the inputs in the formula, in the order of `from`; default: x, y, z."""
    parameters: dict[str, ParameterSpec] = Field(default_factory=dict)
    """Learned arrays by their names in the formula: `{beta: {shape: [], initializer: ones}}`."""
    keep_types: bool = False
    """Compute with integers as integers, and take bool inputs as conditions; the output has the resulting type, bool
    for a condition. Default: all are floats."""

    samples: ClassVar[Any] = (
        Sample.of((2, 3, 4), expr="x * sigmoid(1.7 * x)"),
        Sample.of((2, 3, 4), expr="sin(x) * log(3) if -1 < x < 1 and x != 0 else cos(x) if not x > 2 or x > 4 else -x"),
        Sample.of((2, 3), (2, 1), expr="(x - y) ** 2 / (1 + abs(y)) + max(x, y, 0.1) - pi * atan(x)"),
        Sample.of(
            (2, 3, 2), (2, 3, 2), inputs=["a", "gate"], expr="a * gate if a > 0.1 else where(gate <= a, -a, tanh(gate))"
        ),
        Sample.of(
            (2, 3, 2),
            expr="gain * x + shift",
            parameters={"gain": {"shape": [3, 1]}, "shift": {"initializer": "zeros"}},
        ),
        Sample.of((2, 5), expr="asin(x) + acos(x / 2) * atanh(x) + sinh(x) - cosh(2 * x)", ranges=((-0.9, 0.9),)),
        Sample.of((2, 5), expr="acosh(x) * asinh(-x)", ranges=((1.2, 3.0),)),
        Sample.of((2, 3), (2, 3), expr="fmod(x, 0.7) + x % y + x // y", ranges=((-3.0, 3.0), (0.6, 2.0))),
        Sample.of((2, 3), (2, 1), expr="x ** y + 2 ** x + floor(x) - ceil(y) + round(x)", ranges=((0.5, 2.0), None)),
        Sample.of((2, 3), expr="0 if isnan(x) or isinf(x) else x"),
        Sample.of((2, 3), (2, 3), expr="x <= y and x != 0.5", keep_types=True),
        Sample.of((2, 3), (2, 3), expr="not xor(x, y)", keep_types=True, dtypes=("bool", "bool")),
        Sample.of(
            (2, 6),
            (2, 1),
            expr="quotient(x - 2, y - 1) + (x - 2) // (y - 1) * 16 + (x - 2) % (y - 1) * 64 + fmod(x - 2, y - 1) * 256",
            keep_types=True,
            dtypes=("int32", "int32"),
        ),
        Sample.of(
            (2, 3),
            (2, 3),
            expr="bit_and(x, y) + bit_or(x, 4) * bit_xor(x, y) + bit_not(x) + (x + 1) ** 2 ** y",
            keep_types=True,
            dtypes=("int64", "int64"),
        ),
        Sample.of(
            (2, 3),
            (2, 3),
            expr="shift_left(x, y) + shift_right(x, 1)",
            keep_types=True,
            dtypes=("uint8", "uint8"),
        ),
    )

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        names = self.inputs or DEFAULT_NAMES
        for field, field_names in (("inputs", self.inputs or ()), ("parameters", tuple(self.parameters))):
            for index, name in enumerate(field_names):
                is_reserved = name in FUNCTIONS or name in CONSTANTS
                if (
                    not name.isidentifier()
                    or is_reserved
                    or (field == "parameters" and name in names)
                    or name in field_names[:index]
                ):
                    raise problem(
                        f"{'an input' if field == 'inputs' else 'a parameter'} of a formula cannot be named `{name}`",
                        field=f"{field}.{index if field == 'inputs' else name}",
                        expected="a unique name of letters, digits and _",
                        got=f"the name of {'a function' if name in FUNCTIONS else 'a number'}"
                        if is_reserved
                        else repr(name),
                    )
        try:
            formula = GraphFormula(self.expr)
            constant_result = None if self.keep_types else formula.walk(dict.fromkeys((*names, *self.parameters), _ANY))
        except ExpressionError as error:
            raise problem(
                error.message, field="expr", expected=error.expected, hint=error.hint, inside=(self.expr, error.offset)
            ) from None
        if isinstance(constant_result, float) or not formula.names() - CONSTANTS.keys():
            raise problem(
                "the formula is constant: it uses no input", field="expr", expected="a formula that uses an input"
            )
        return self

    def build(self, builder: Builder, x: Value, *others: Value) -> Value:
        """x, others: (N, …), which broadcast → (N, …)."""
        values = [value if self.keep_types else builder.floating(value) for value in (x, *others)]
        names = self.inputs or DEFAULT_NAMES[: len(values)]
        require(
            len(names) == len(values), "the number of `inputs` differs from the number of layers in `from`",
            expected=f"{len(names)} inputs: {', '.join(names)}", got=f"{len(values)} in `from`",
        )  # fmt: skip
        scope = dict(zip(names, values, strict=True))
        missing = sorted(GraphFormula(self.expr).names() - {*scope, *self.parameters, *CONSTANTS})
        require(
            not missing,
            f"the formula uses `{', '.join(missing)}`, which is not an input",
            expected=f"one of {listing([*scope, *self.parameters, *CONSTANTS])}",
            got=f"{len(values)} input{'s' * (len(values) != 1)}: {', '.join(scope)}",
        )
        for name, spec in self.parameters.items():
            scope[name] = builder.parameter(name, spec.shape, spec.initializer, spec.regularizer, spec.constraint)
        y = self._evaluate(scope, builder.dtype)
        fits = len(y.shape) == max(len(value.shape) for value in values) and y.shape[:1] == x.shape[:1]
        require(
            fits,
            "the parameters have more axes than the inputs",
            expected=f"as many as {x.type.describe()}",
            got=y.type,
        )
        return y if self.keep_types else cast(y, values[0].dtype)

    def _evaluate(self, scope: Mapping[str, Value], dtype: DType) -> Value:
        """Evaluate the formula; unsupported operand types raise a located error."""
        try:
            y = GraphFormula(self.expr, dtype).walk(scope)
        except ExpressionError as error:
            raise ShapeMismatch(
                f"the formula can't be computed: {error.message}", error.expected, self.expr, error.hint
            ) from None
        assert isinstance(y, Value), "it uses an input"
        return y
