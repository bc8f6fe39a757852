"""`Value`, `Node` and `Scope`: the nodes and edges of the static graph.

A graph is built by calling ops on values: each call infers the result's type at once and adds a `Node`. Nodes never
change; passes build new ones. A node records the layer it belongs to (`Scope`), so that an error in any later stage can
name the layer and its line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partialmethod
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

from netspec.errors import Location, Problem, SpecError
from netspec.graph.types import DType, TensorType, batch_shape

if TYPE_CHECKING:
    from netspec.graph.op import Op

_serial = count()


@dataclass(frozen=True)
class Scope:
    """The layer that a node belongs to, the layer's location in the spec, and the phase in which the node runs."""

    layer: str = ""
    kind: str = ""
    location: Location | None = None
    phase: str = "forward"
    noun: str = "layer"
    """Name of its kind in messages: layer, loss or metric."""


NO_SCOPE = Scope()
_scope: ContextVar[Scope] = ContextVar("scope", default=NO_SCOPE)
_node_counter: ContextVar[Iterator[int] | None] = ContextVar("node_counter", default=None)
"""Counts the nodes created in the current scope; None outside of all scopes."""


@contextmanager
def in_scope(scope: Scope) -> Iterator[Scope]:
    """Nodes created inside the block belong to `scope`."""
    scope_token, counter_token = _scope.set(scope), _node_counter.set(count())
    try:
        yield scope
    finally:
        _scope.reset(scope_token)
        _node_counter.reset(counter_token)


def current_scope() -> Scope:
    """The scope of nodes that are created now."""
    return _scope.get()


class ShapeMismatch(Exception):
    """An op cannot take operands of these types. Raised by `Op.check`; `apply` adds the location and the layers."""

    def __init__(
        self, message: str, expected: str | None = None, got: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.expected, self.got, self.hint = message, expected, got, hint


class Node:
    """One call of an op: its operands, the types of its results, and the layer it belongs to."""

    __slots__ = ("inputs", "op", "outputs", "scope", "serial", "types")

    def __init__(self, op: Op, inputs: tuple[Value, ...], types: tuple[TensorType, ...], scope: Scope) -> None:
        self.op = op
        self.inputs = inputs
        self.types = types
        self.scope = scope
        self.serial = next(_serial)
        """Creation order, which is a valid execution order."""
        self.outputs = tuple([Value(self, index, type_) for index, type_ in enumerate(types)])

    def __repr__(self) -> str:
        return f"{self.op.name}#{self.serial}({self.scope.layer or '-'})"


class Value:
    """One result of a node. Compared by identity; arithmetic operators create new nodes."""

    __slots__ = ("index", "node", "type")

    def __init__(self, node: Node, index: int, type_: TensorType) -> None:
        self.node = node
        self.index = index
        self.type = type_

    @property
    def op(self) -> Op:
        """The op that computes this value."""
        return self.node.op

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The operands of the op that computes this value."""
        return self.node.inputs

    @property
    def base(self) -> Value:
        """The value that this one is a view of, through any number of views; the value itself if it is not a view."""
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

    def _binary(self, name: str, other: Operand, swapped: bool = False) -> Value:
        from netspec.graph.ops import elementwise

        return elementwise.binary(name, other, self) if swapped else elementwise.binary(name, self, other)

    __add__, __radd__ = partialmethod(_binary, "Add"), partialmethod(_binary, "Add", swapped=True)
    __sub__, __rsub__ = partialmethod(_binary, "Sub"), partialmethod(_binary, "Sub", swapped=True)
    __mul__, __rmul__ = partialmethod(_binary, "Mul"), partialmethod(_binary, "Mul", swapped=True)
    __truediv__, __rtruediv__ = partialmethod(_binary, "Div"), partialmethod(_binary, "Div", swapped=True)

    def __neg__(self) -> Value:
        from netspec.graph.ops import elementwise

        return elementwise.Neg()(self)


Operand: TypeAlias = Value | float


MAX_TENSOR_BYTES = 2**40
"""Largest size of a tensor: no machine has as much memory, so a larger one is reported as a mistake."""
MAX_PRECOMPUTED_ELEMENTS = 2**26
"""Largest number of elements of an array that is computed while a net is built."""
MAX_LISTED_INDICES = 2**24
"""Largest number of indices that are listed while a net is built."""
MAX_LAYER_NODES = 2**18
"""Largest number of operations that one layer expands to; a recurrent convolution expands to every time step."""


def require_precomputable(count: int, noun: str) -> None:
    """Raise `ShapeMismatch` if an array of `count` elements is too large to compute; `noun` names the elements."""
    _require_at_most(count, noun, MAX_PRECOMPUTED_ELEMENTS)


def require_listable(count: int, noun: str) -> None:
    """Raise `ShapeMismatch` if `count` indices are too many to list; `noun` names them."""
    _require_at_most(count, noun, MAX_LISTED_INDICES)


def require_unrollable(count: int, noun: str) -> None:
    """Raise `ShapeMismatch` if a layer cannot unroll `count` steps into operations; `noun` names the steps.

    To be called before unrolling: reaching the limit step by step takes seconds.
    """
    _require_at_most(count, noun, MAX_LAYER_NODES)


def _require_at_most(count: int, noun: str, limit: int) -> None:
    if count > limit:
        raise ShapeMismatch(f"there are too many {noun}", f"up to {limit:,}", f"{count:,}")


def _check_sizes(results: Sequence[TensorType]) -> None:
    """Raise `ShapeMismatch` if a tensor is too large, or if a layer has expanded to too many nodes."""
    for result in results:
        if result.nbytes > MAX_TENSOR_BYTES:
            expected, got = f"at most {MAX_TENSOR_BYTES:,} bytes", f"{result}: {result.nbytes:,} bytes"
            raise ShapeMismatch("a tensor is too large for any machine", expected, got)
    counter = _node_counter.get()
    if counter is not None and next(counter) >= MAX_LAYER_NODES:
        raise ShapeMismatch(
            "the layer expands to too many operations", f"at most {MAX_LAYER_NODES:,}",
            hint="a shorter sequence needs fewer operations",
        )  # fmt: skip


def apply(op: Op, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Call `op`: infer the types of its results and create the node.

    Raises `SpecError` with its location on a mismatch.
    """
    types = [value.type for value in inputs]
    try:
        inferred = op.infer(*types)
        results = inferred if isinstance(inferred, tuple) else (inferred,)
        _check_sizes(results)
    except ShapeMismatch as mismatch:
        raise SpecError(mismatch_problem(inputs, mismatch)) from None
    return Node(op, tuple(inputs), results, current_scope()).outputs


def mismatch_problem(inputs: Sequence[Value], mismatch: ShapeMismatch) -> Problem:
    """The mismatch as a user reads it: the layer and its line, the operands, and the layers that led to them."""
    scope = current_scope()
    where = f"{scope.noun} `{scope.layer}` ({scope.kind}): " if scope.layer else ""
    types = ", ".join(value.type.describe(batch=value.shape != () and not _is_weight(value)) for value in inputs)
    notes = [f"operands: {types}"] if types else []
    chains = dict.fromkeys(layer_chain(value) for value in inputs)
    notes += [f"came from: {text}" for text in chains if text]
    return Problem(
        message=where + mismatch.message,
        location=scope.location,
        path=scope.layer and f"layers.{scope.layer}",
        expected=mismatch.expected,
        got=mismatch.got or types or None,
        hint=mismatch.hint,
        notes=tuple(notes),
    )


def layer_chain(value: Value, max_steps: int = 8) -> str:
    """The layers that led to a value, in order: `image (batch, 1, 28, 28) → conv1 (batch, 20, 24, 24)`."""
    own_layer = current_scope().layer
    steps: list[str] = []
    layer = None
    while True:
        scope = value.node.scope
        if scope.layer not in (own_layer, layer):
            layer = scope.layer
            steps.append(f"{layer or value.op.name} {batch_shape(value.shape)}")
        operands = [operand for operand in value.inputs if not _is_weight(operand)]
        if not operands:
            break
        value = max(operands, key=lambda operand: operand.node.serial)
    if len(steps) > max_steps:
        steps = [*steps[: max_steps - 1], "…", steps[-1]]
    return " → ".join(reversed(steps))


def _is_weight(value: Value) -> bool:
    """Whether a value is a parameter or a constant, or a reshaped one: not computed by preceding layers."""
    while len(value.inputs) == 1:
        (value,) = value.inputs
    return not value.inputs and value.node.scope.kind != "input"
