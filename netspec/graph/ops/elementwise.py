"""Elementwise arithmetic, comparisons and selection, with NumPy's broadcasting.

`forward` of each op uses operators and functions of `xp` only, so that a code generator can trace it (`Traits`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from netspec.graph.onnx_map import OnnxExpansion, OnnxMap
from netspec.graph.op import Array, Grads, NoGradient, Op, Traits, ValueFacts, Xp
from netspec.graph.ops.reduce import sum_to
from netspec.graph.ops.source import Fill
from netspec.graph.types import DType, TensorType, broadcast_shapes
from netspec.graph.value import Operand, Value, in_scope

ELEMENTWISE = Traits(elementwise=True, inplace=True)


def binary(name: str, left: Operand, right: Operand) -> Value:
    """Apply the binary op `name`; a Python number becomes a constant of the other operand's type."""
    op: Op = {"Add": Add, "Sub": Sub, "Mul": Mul, "Div": Div}[name]()
    return op(*_as_values(left, right))


def _as_values(left: Operand, right: Operand) -> tuple[Value, Value]:
    if isinstance(left, Value):
        return left, right if isinstance(right, Value) else scalar(right, left.dtype)
    if isinstance(right, Value):
        return scalar(left, right.dtype), right
    raise TypeError("one operand must be a value of the graph")


def is_constant(x: Value, number: float) -> bool:
    """Whether all elements of `x` are the constant `number`; -0.0 equals 0.0 here."""
    return isinstance(x.op, Fill) and x.op.value == number


def if_shape_kept(x: Value, other: Value) -> Value | None:
    """`x` if broadcasting it with `other` keeps its shape, else None."""
    return x if broadcast_shapes(x.shape, other.shape) == x.shape else None


def shrink_constants(op: Op, *inputs: Value) -> Value | None:
    """The op with constant tensors (`Fill`) replaced by scalars; None if there are none or the shape would change."""
    small = [scalar(x.op.value, x.dtype) if isinstance(x.op, Fill) and x.shape != () else x for x in inputs]
    if all(new is old for new, old in zip(small, inputs, strict=True)):
        return None
    same = broadcast_shapes(*(x.shape for x in small)) == broadcast_shapes(*(x.shape for x in inputs))
    return op(*small) if same else None


def scalar(value: float, dtype: DType) -> Value:
    """Create a constant of rank 0."""
    return Fill(value if dtype.is_float else int(value), TensorType((), dtype))()


SIGNS = {"Add": "`+`", "Sub": "`-`", "Mul": "`*`", "Div": "`/`"}
"""Ops as formulas write them, for messages."""


class Binary(Op):
    """Base of ops on two broadcast operands of one element type."""

    traits = ELEMENTWISE

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        self.check(a.dtype == b.dtype, f"{self.name} of different element types", expected="one element type")
        shape = broadcast_shapes(a.shape, b.shape)
        self.check(
            shape is not None,
            f"the shapes of the operands of {SIGNS.get(self.name, self.name)} do not broadcast",
            expected="equal sizes, or 1",
        )
        assert shape is not None
        return TensorType(shape, a.dtype)


class Add(Binary):
    """a + b"""

    onnx = OnnxMap("Add")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return a + b

    def simplify(self, a: Value, b: Value) -> Value | None:
        if is_constant(b, 0.0):
            return if_shape_kept(a, b)
        if is_constant(a, 0.0):
            return if_shape_kept(b, a)
        from netspec.graph.ops.linear import apply_before_gather

        return shrink_constants(self, a, b) or apply_before_gather(self, a, b)

    def fold_into_weights(self, facts: ValueFacts, a: Value, b: Value) -> Value | None:
        for y, addend in ((a, b), (b, a)):
            if not (facts.is_invariant(addend) and isinstance(y.op, Add) and facts.has_one_reader(y)):
                continue
            for product, bias in (y.inputs, y.inputs[::-1]):
                if product.op.traits.anchor and facts.is_invariant(bias) and not facts.is_invariant(product):
                    both = bias + addend
                    return product + both if if_shape_kept(product, both) is not None else None
        return None

    def vjp(self, y: Value, dy: Value) -> Grads:
        a, b = y.inputs
        return sum_to(dy, a.shape), sum_to(dy, b.shape)


class Sub(Binary):
    """a - b"""

    onnx = OnnxMap("Sub")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return a - b

    def simplify(self, a: Value, b: Value) -> Value | None:
        if is_constant(b, 0.0):
            return if_shape_kept(a, b)
        if is_constant(a, 0.0) and if_shape_kept(b, a) is not None:
            return -b
        return shrink_constants(self, a, b)

    def vjp(self, y: Value, dy: Value) -> Grads:
        a, b = y.inputs
        return sum_to(dy, a.shape), -sum_to(dy, b.shape)


class Mul(Binary):
    """a · b"""

    onnx = OnnxMap("Mul")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return a * b

    def simplify(self, a: Value, b: Value) -> Value | None:
        if is_constant(b, 1.0):
            return if_shape_kept(a, b)
        if is_constant(a, 1.0):
            return if_shape_kept(b, a)
        return shrink_constants(self, a, b)

    def fold_into_weights(self, facts: ValueFacts, a: Value, b: Value) -> Value | None:
        for y, factor in ((a, b), (b, a)):
            if facts.is_invariant(factor) and not facts.is_invariant(y) and if_shape_kept(y, factor) is not None:
                return _fold_factor(facts, y, factor)
        return None

    def vjp(self, y: Value, dy: Value) -> Grads:
        a, b = y.inputs
        return sum_to(dy * b, a.shape), sum_to(dy * a, b.shape)


def _fold_factor(facts: ValueFacts, y: Value, factor: Value) -> Value | None:
    """y · factor, with `factor` folded into the weights and bias from which y is computed; None if impossible."""
    if not facts.has_one_reader(y):
        return None
    if isinstance(y.op, Add):
        for product, bias in (y.inputs, y.inputs[::-1]):
            if facts.is_invariant(bias) and product.shape == y.shape:
                folded = _fold_factor(facts, product, factor)
                return None if folded is None else folded + bias * factor
        return None
    operands = y.op.fold_scale(factor, *y.inputs)
    if operands is None:
        return None
    changed = [old for old, new in zip(y.inputs, operands, strict=True) if new is not old]
    if not all(map(facts.is_invariant, changed)):
        return None
    with in_scope(y.node.scope):
        return y.op(*operands)


class Div(Binary):
    """a / b, for floats"""

    onnx = OnnxMap("Div")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return a / b

    def simplify(self, a: Value, b: Value) -> Value | None:
        return if_shape_kept(a, b) if is_constant(b, 1.0) else shrink_constants(self, a, b)

    def vjp(self, y: Value, dy: Value) -> Grads:
        a, b = y.inputs
        da = dy / b
        return sum_to(da, a.shape), -sum_to(da * y, b.shape)


class Maximum(Binary):
    """max(a, b); the gradient goes to the larger operand, or to `a` if both are equal."""

    onnx = OnnxMap("Max")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return xp.maximum(a, b)

    def vjp(self, y: Value, dy: Value) -> Grads:
        a, b = y.inputs
        to_a = Cast(dy.dtype)(GreaterOrEqual()(a, b))
        return sum_to(dy * to_a, a.shape), sum_to(dy * (1.0 - to_a), b.shape)


class Minimum(Binary):
    """min(a, b); the gradient goes to the smaller operand, or to `a` if both are equal."""

    onnx = OnnxMap("Min")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return xp.minimum(a, b)

    def vjp(self, y: Value, dy: Value) -> Grads:
        a, b = y.inputs
        to_a = Cast(dy.dtype)(LessOrEqual()(a, b))
        return sum_to(dy * to_a, a.shape), sum_to(dy * (1.0 - to_a), b.shape)


@dataclass(frozen=True)
class Pow(Op):
    """x to a constant power; the base must be positive if the exponent is not an integer."""

    exponent: float
    traits = ELEMENTWISE
    onnx = OnnxExpansion(lambda g, y, x: g.node("Pow", x, g.constant(y.op.exponent, str(y.dtype))))

    def infer(self, x: TensorType) -> TensorType:
        return x

    def forward(self, xp: Xp, x: Array) -> Array:
        return x**self.exponent

    def simplify(self, x: Value) -> Value | None:
        return x if self.exponent == 1 else x * x if self.exponent == 2 else None

    def vjp(self, y: Value, dy: Value) -> Grads:
        (x,) = y.inputs
        return (dy * self.exponent * Pow(self.exponent - 1)(x),)


class Comparison(NoGradient, Binary):
    """Base of comparisons: two broadcast operands of one element type → bool."""

    traits = Traits(elementwise=True)

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        return super().infer(a, b).with_dtype(DType.BOOL)


class Equal(Comparison):
    """a = b"""

    onnx = OnnxMap("Equal")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return a == b


class GreaterOrEqual(Comparison):
    """a ≥ b"""

    onnx = OnnxMap("GreaterOrEqual")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return a >= b


class Greater(Comparison):
    """a > b"""

    onnx = OnnxMap("Greater")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return a > b


class LessOrEqual(Comparison):
    """a ≤ b"""

    onnx = OnnxMap("LessOrEqual")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return a <= b


class Where(Op):
    """a if the condition is true, else b"""

    traits = Traits(elementwise=True)
    onnx = OnnxMap("Where")

    def infer(self, condition: TensorType, a: TensorType, b: TensorType) -> TensorType:
        self.check(condition.dtype == DType.BOOL, "the condition of Where is not bool", got=condition)
        self.check(a.dtype == b.dtype, "Where of different element types", expected="one element type")
        shape = broadcast_shapes(condition.shape, a.shape, b.shape)
        self.check(
            shape is not None, "the shapes of the operands of Where do not broadcast", expected="equal sizes, or 1"
        )
        assert shape is not None
        return TensorType(shape, a.dtype)

    def forward(self, xp: Xp, condition: Array, a: Array, b: Array) -> Array:
        return xp.where(condition, a, b)

    def simplify(self, condition: Value, a: Value, b: Value) -> Value | None:
        return shrink_constants(self, condition, a, b)

    def vjp(self, y: Value, dy: Value) -> Grads:
        condition, a, b = y.inputs
        zero = scalar(0.0, dy.dtype)
        return None, sum_to(Where()(condition, dy, zero), a.shape), sum_to(Where()(condition, zero, dy), b.shape)


@dataclass(frozen=True)
class Cast(Op):
    """Convert to another element type."""

    dtype: DType
    traits = Traits(elementwise=True)
    onnx = OnnxExpansion(lambda g, y, x: g.node("Cast", x, to=y.op.dtype))

    def infer(self, x: TensorType) -> TensorType:
        return x.with_dtype(self.dtype)

    def forward(self, xp: Xp, x: Array) -> Array:
        return x.astype(str(self.dtype))

    def simplify(self, x: Value) -> Value | None:
        return x if x.dtype == self.dtype else None

    def vjp(self, y: Value, dy: Value) -> Grads:
        (x,) = y.inputs
        return (cast(dy, x.dtype) if x.dtype.is_float and self.dtype.is_float else None,)


def cast(x: Value, dtype: DType) -> Value:
    """Convert `x` to the element type `dtype`; returns `x` itself if it has that type."""
    return x if x.dtype == dtype else Cast(dtype)(x)


class Neg(Op):
    """-x"""

    traits = ELEMENTWISE
    onnx = OnnxMap("Neg")

    def infer(self, x: TensorType) -> TensorType:
        return x

    def forward(self, xp: Xp, x: Array) -> Array:
        return -x

    def simplify(self, x: Value) -> Value | None:
        return x.inputs[0] if isinstance(x.op, Neg) else None

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (-dy,)


def call_elementwise(function: Callable[..., Value], *operands: Operand) -> Value:
    """Call an op; operands that are Python numbers become constants of the last value's type."""
    dtype = next(operand.dtype for operand in reversed(operands) if isinstance(operand, Value))
    return function(*(operand if isinstance(operand, Value) else scalar(operand, dtype) for operand in operands))
