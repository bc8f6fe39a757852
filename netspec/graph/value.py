"""`Value`, `Node` and `Scope`: the static graph itself.

A graph is made by calling ops on values: each call infers the result's type at once and adds a `Node`. Nodes never
change; passes build new ones. A node remembers the layer it stems from (`Scope`), so that an error in any later stage
can name the layer and its line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

from netspec.errors import Location, Problem, SpecError
from netspec.graph.types import DType, TensorType

if TYPE_CHECKING:
    from netspec.graph.op import Op

_serial = count()


@dataclass(frozen=True)
class Scope:
    """Where in the user's spec a node stems from, and in which phase of the step it runs."""

    layer: str = ""
    kind: str = ""
    location: Location | None = None
    phase: str = "forward"
    what: str = "layer"
    """What a message calls it: a layer, a loss, a metric."""


NOWHERE = Scope()
_scope: ContextVar[Scope] = ContextVar("scope", default=NOWHERE)


@contextmanager
def in_scope(scope: Scope) -> Iterator[Scope]:
    """Nodes made inside the block belong to `scope`."""
    token = _scope.set(scope)
    try:
        yield scope
    finally:
        _scope.reset(token)


def current_scope() -> Scope:
    """The scope that a node made now belongs to."""
    return _scope.get()


class ShapeMismatch(Exception):
    """An op cannot take operands of these types; `Op.check` raises it and `apply` adds where and what led there."""

    def __init__(
        self, message: str, expected: str | None = None, got: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.expected, self.got, self.hint = message, expected, got, hint


class Node:
    """One call of an op: its operands, its results' types, and the layer it belongs to."""

    __slots__ = ("inputs", "op", "outputs", "scope", "serial", "types")

    def __init__(self, op: Op, inputs: tuple[Value, ...], types: tuple[TensorType, ...], scope: Scope) -> None:
        self.op = op
        self.inputs = inputs
        self.types = types
        self.scope = scope
        self.serial = next(_serial)
        """Rises with every node made: the order of construction, which is a valid order of execution."""
        self.outputs = tuple(Value(self, index, type_) for index, type_ in enumerate(types))

    def __repr__(self) -> str:
        return f"{self.op.name}#{self.serial}({self.scope.layer or '-'})"


class Value:
    """One result of a node. Compared by identity; arithmetic operators make new nodes."""

    __slots__ = ("index", "node", "type")

    def __init__(self, node: Node, index: int, type_: TensorType) -> None:
        self.node = node
        self.index = index
        self.type = type_

    @property
    def op(self) -> Op:
        """The op that makes this value."""
        return self.node.op

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The operands of the op that makes this value."""
        return self.node.inputs

    @property
    def base(self) -> Value:
        """What the value is a view of, by however many views: itself if it is none."""
        value = self
        while value.op.traits.view:
            value = value.inputs[0]
        return value

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of all axes, the batch first."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.type.dtype

    def __repr__(self) -> str:
        return f"{self.node!r}.{self.index}: {self.type}"

    def __add__(self, other: Operand) -> Value:
        return _binary("Add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return _binary("Add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return _binary("Sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return _binary("Sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return _binary("Mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return _binary("Mul", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return _binary("Div", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return _binary("Div", other, self)

    def __neg__(self) -> Value:
        from netspec.graph.ops import elementwise

        return elementwise.Neg()(self)


Operand: TypeAlias = Value | float


def _binary(name: str, left: Operand, right: Operand) -> Value:
    from netspec.graph.ops import elementwise

    return elementwise.binary(name, left, right)


def apply(op: Op, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Call `op`: infer the types of its results and make the node. A mismatch becomes a `SpecError` with its place."""
    types = [value.type for value in inputs]
    try:
        inferred = op.infer(*types)
    except ShapeMismatch as mismatch:
        raise SpecError(explain(inputs, mismatch)) from None
    return Node(op, tuple(inputs), inferred if isinstance(inferred, tuple) else (inferred,), current_scope()).outputs


def explain(inputs: Sequence[Value], mismatch: ShapeMismatch) -> Problem:
    """The mismatch as a user reads it: the layer and its line, the operands, and the layers that led to them."""
    scope = current_scope()
    where = f"{scope.what} `{scope.layer}` ({scope.kind}): " if scope.layer else ""
    notes = [f"operands: {', '.join(str(value.type) for value in inputs)}"] if inputs else []
    chains = dict.fromkeys(chain(value) for value in inputs)
    notes += [f"came from: {text}" for text in chains if text]
    got = mismatch.got or (", ".join(str(value.type) for value in inputs) or None)
    return Problem(
        message=where + mismatch.message,
        location=scope.location,
        path=scope.layer and f"layers.{scope.layer}",
        expected=mismatch.expected,
        got=got,
        hint=mismatch.hint,
        notes=tuple(notes),
    )


def chain(value: Value, most: int = 8) -> str:
    """The layers that led to a value, oldest first: `image [64, 1, 28, 28] → conv1 [64, 20, 24, 24]`."""
    here = current_scope().layer
    steps: list[str] = []
    layer = None
    while True:
        scope = value.node.scope
        if scope.layer not in (here, layer):
            layer = scope.layer
            steps.append(f"{layer or value.op.name} {list(value.shape)}")
        operands = [operand for operand in value.inputs if not _is_weight(operand)]
        if not operands:
            break
        value = max(operands, key=lambda operand: operand.node.serial)
    if len(steps) > most:
        steps = [*steps[: most - 1], "…", steps[-1]]
    return " → ".join(reversed(steps))


def _is_weight(value: Value) -> bool:
    """True for a parameter, a constant, or one of them reshaped: not what the layers before have made."""
    while len(value.inputs) == 1:
        (value,) = value.inputs
    return not value.inputs and value.node.scope.kind != "input"
