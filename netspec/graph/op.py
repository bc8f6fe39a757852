"""`Op`: a computation as the compiler sees it.

An op is an immutable dataclass of its attributes. Attached to it are the shape rule (`infer`), the reference kernel in
plain array code (`forward`, the oracle for all other kernels), the gradient as graph values (`vjp`), its cost in
operations (`flops`), its `traits` and its ONNX form. Passes decide by traits, never by lists of ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

from netspec.graph.onnx_map import OnnxForm
from netspec.graph.types import TensorType
from netspec.graph.value import ShapeMismatch, Value, apply, in_scope

Array: TypeAlias = Any
"""An array of the namespace `xp`: NumPy's or CuPy's."""
Xp: TypeAlias = Any
"""An array namespace: the module `numpy` or `cupy`."""
ResultTypes: TypeAlias = TensorType | tuple[TensorType, ...]
Grads: TypeAlias = Sequence[Value | None]


@dataclass(frozen=True)
class Traits:
    """Properties of an op that passes may rely on."""

    pure: bool = True
    """Same operands, same results: the op may be merged with an equal node, folded, or dropped when unused."""
    elementwise: bool = False
    """Each element of the result depends only on the operands' elements at the same (broadcast) index. `forward` uses
    operators and functions of `xp` only, so that a code generator can trace it."""
    inplace: bool = False
    """The result may overwrite an operand of the same type that is not read afterwards."""
    view: bool = False
    """The result is the first operand's memory with another shape; nothing is computed."""
    anchor: bool = False
    """A heavy op whose first result can pass through an elementwise epilogue before it is written."""
    fusable_inputs: tuple[int, ...] = ()
    """Indices of operands that an elementwise prologue can compute while they are read."""
    is_contraction: bool = False
    """The op sums products of its operands; these may be rounded to fewer bits if the sums are kept in more."""
    narrowable_outputs: tuple[int, ...] = ()
    """Indices of results that may be stored in as few bits as the operands: elements that are moved, compared or
    scaled, or sums of a few. Elementwise ops and views need not list them."""
    wide_inputs: tuple[int, ...] = ()
    """Indices of operands that keep full precision if data is stored in fewer bits: factors and statistics."""
    clamp: bool = False
    """An op of one operand that keeps each element or replaces it by a bound, with gradient 0 beyond the bound."""
    multi_tensor: bool = False
    """Several computations in one op: no operand is needed until all of them are available."""
    source: bool = False
    """The op has no operands: an input, a state or a constant."""
    async_start: bool = False
    """The op starts an asynchronous operation: it runs as soon as its operands exist, and before the guard."""


class ValueFacts(Protocol):
    """Facts about the values of a graph that `fold_into_weights` asks for."""

    def is_invariant(self, value: Value) -> bool:
        """Whether the value depends only on constants and on states that the graph does not write."""

    def has_one_reader(self, value: Value) -> bool:
        """Whether the value has one reader and is not a result: replacing the reader removes it."""


@dataclass(frozen=True)
class Op:
    """Base of all ops, compared and hashed by class and attributes.

    A subclass with attributes is a frozen dataclass too; a subclass without needs no decorator.
    """

    traits: ClassVar[Traits] = Traits()
    onnx: ClassVar[OnnxForm | None] = None

    @property
    def name(self) -> str:
        """Name of the op, which is the name of its class."""
        return type(self).__name__

    def __call__(self, *inputs: Value) -> Value:
        """Apply the op and return its only result."""
        (result,) = apply(self, inputs)
        return result

    def call_multi(self, *inputs: Value) -> tuple[Value, ...]:
        """Apply the op and return all of its results."""
        return apply(self, inputs)

    def infer(self, *types: Any, **_: Any) -> ResultTypes:
        """Types of the results for operands of these types. Raises `ShapeMismatch` if the op does not accept them."""
        raise NotImplementedError(f"{self.name} has no shape rule")

    def forward(self, xp: Xp, *arrays: Any, **_: Any) -> Any:
        """Compute the results from arrays of the operands, in plain array code: an array, or a tuple of several."""
        raise NotImplementedError(f"{self.name} has no reference kernel")

    def vjp(self, y: Value, dy: Value) -> Grads:
        """Gradients of the operands given the gradient `dy` of the result `y`; None for an operand that has none."""
        return self.vjp_outputs(y.node.outputs, (dy,))

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        """As `vjp`, for an op with several results. An op with `decompose` needs neither `vjp` nor `vjp_outputs`."""
        if type(self).vjp is not Op.vjp:
            if any(dy is not None for dy in dys[1:]):
                raise NotImplementedError(f"{self.name} has a gradient for its first result only")
            return self.vjp(ys[0], dys[0]) if dys[0] is not None else [None] * len(ys[0].inputs)
        if type(self).decompose is Op.decompose:
            raise NoGradientError(f"{self.name} has no gradient")
        from netspec.graph.autodiff import pullback

        inputs = ys[0].inputs
        with in_scope(ys[0].node.scope):  # in the op's scope, so that a node equal to a simplified one is computed once
            results = self.decompose(*inputs)
        return pullback(results if isinstance(results, tuple) else (results,), dys, inputs)

    def decompose(self, *inputs: Any, **_: Any) -> Value | tuple[Value, ...]:
        """Compute the results by simpler ops. The gradient of an op without `vjp` is derived from these."""
        raise NotImplementedError(f"{self.name} has no decomposition")

    def simplify(self, *inputs: Any, **_: Any) -> Value | tuple[Value, ...] | None:
        """An equal value of the same type that is cheaper to compute (x for x + 0), or None.

        Called by the pass `simplify`. An op with several results returns a tuple.
        """
        return None

    def deterministic_form(self, inputs: Sequence[Value]) -> Value | None:
        """The result without randomness, for an op that draws random numbers; None for all other ops."""
        return None

    def inplace_operands(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        """The operands that a result may overwrite if they have its type and nobody reads them afterwards."""
        return inputs if self.traits.inplace else ()

    def contiguous_operands(self, inputs: Sequence[Value]) -> Sequence[Value]:
        """The operands that should be stored next to each other in memory, in this order."""
        return ()

    def recompute(self, inputs: Sequence[Value], results: Sequence[Value]) -> Value | None:
        """The bit-identical first result, by elementwise ops on `inputs` and the other results; None if impossible."""
        return None

    def is_window_max(self, x: TensorType) -> bool:
        """Whether each element of the first result is the maximum of one or more elements of the only operand.

        Further results are indices of the maxima, which only the gradient reads.
        """
        return False

    def fold_into_weights(self, facts: ValueFacts, *inputs: Any) -> Value | None:
        """A value equal up to rounding, with more of its computation loop-invariant; None if there is none.

        Called by the pass `weight_folding`.
        """
        return None

    def fold_scale(self, factor: Value, *inputs: Any) -> Sequence[Value] | None:
        """The operands with `factor` folded into one, which scales the result; None if no operand allows it."""
        return None

    def flops(self, *types: Any, **_: Any) -> int:
        """Floating-point operations of one call; by default one per element of the first result."""
        inferred = self.infer(*types)
        return (inferred[0] if isinstance(inferred, tuple) else inferred).size

    def check(
        self, valid: bool, message: str, *, expected: str | None = None, got: object = None, hint: str | None = None
    ) -> None:
        """Raise `ShapeMismatch`, which becomes a located error, unless `valid`."""
        if not valid:
            raise ShapeMismatch(message, expected, None if got is None else str(got), hint)

    def check_types(self, **operands: tuple[TensorType, TensorType]) -> None:
        """Raise `ShapeMismatch` unless all types match; `operands` maps names to (actual, required)."""
        for name, (actual, required) in operands.items():
            self.check(actual == required, f"`{name}` has the wrong type", expected=str(required), got=actual)


class NoGradientError(Exception):
    """A gradient was requested through an op that has none: a defect of a layer, or an integer used as a weight."""


def call_simplified(op: Op, *inputs: Value) -> Value:
    """Apply an op that has one result, and simplify the result as the pass `simplify` does."""
    return simplify_value(op(*inputs))


def simplify_value(value: Value) -> Value:
    """An equal value that no rule simplifies further."""
    while len(value.node.outputs) == 1 and (simpler := value.op.simplify(*value.inputs)) is not None:
        assert isinstance(simpler, Value), "an op with one result simplifies to one value"
        value = simpler
    return value


AcceptsOp: TypeAlias = Callable[[Op, Sequence[TensorType]], bool]
"""Whether a fast kernel accepts an op with operands of these types."""


def accepts_nothing(op: Op, types: Sequence[TensorType]) -> bool:
    """Accept no op."""
    return False


@dataclass(frozen=True)
class NoGradient(Op):
    """Base of ops whose gradient is zero or undefined everywhere: comparisons, arg-max, random bits."""

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        """Return None for each operand."""
        return [None] * len(ys[0].inputs)


def as_tuple(results: Any) -> tuple[Any, ...]:
    """The results of `infer` or `forward` as a tuple, even if there is only one."""
    return results if isinstance(results, tuple) else (results,)


def unwrap_single(results: tuple[Any, ...]) -> Any:
    """The inverse of `as_tuple`: the only element, or the tuple if it has several."""
    return results if len(results) > 1 else results[0]
