"""`Op`: what the compiler sees of a computation.

An op is an immutable dataclass of its attributes. To it are attached the shape rule (`infer`), the reference kernel in
plain array code (`forward`, the oracle for all other kernels), the gradient as graph values (`vjp`), the arithmetic it
costs (`flops`), its `traits` and its ONNX form. Passes decide by traits, never by lists of ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

from netspec.graph.onnx_map import OnnxForm
from netspec.graph.types import TensorType
from netspec.graph.value import ShapeMismatch, Value, apply, in_scope

Array: TypeAlias = Any
"""An array of whatever namespace `xp` is: NumPy or CuPy."""
Xp: TypeAlias = Any
"""An array namespace: the module `numpy` or `cupy`."""
Infer: TypeAlias = TensorType | tuple[TensorType, ...]
Grads: TypeAlias = Sequence[Value | None]


@dataclass(frozen=True)
class Traits:
    """What passes may assume of an op."""

    pure: bool = True
    """Same operands, same results: may be merged with an equal node, folded, or dropped when unused."""
    elementwise: bool = False
    """Each element of the result depends on the elements at the same (broadcast) place alone; `forward` is written
    with operators and functions of `xp` only, so that a code generator can trace it."""
    inplace: bool = False
    """The result may be written over a dead operand of the same type."""
    view: bool = False
    """The result is the first operand's memory under another shape; nothing is computed."""
    anchor: bool = False
    """A heavy op whose first result kernels can pass through elementwise ops before it goes to memory."""
    feeds: tuple[int, ...] = ()
    """Operands that kernels can make by elementwise ops while they read them."""
    contracts: bool = False
    """Sums of products of its operands: these may be rounded to fewer bits where the sums are kept in more."""
    rounds: tuple[int, ...] = ()
    """Results that may be kept in as few bits as operands are: what is moved, compared or scaled element by element, or
    sums of a few. (Those of elementwise ops and views may, without saying it.)"""
    clamp: bool = False
    """Of one operand: each element comes out unchanged or, beyond a bound, as that bound, with a gradient of 0."""
    group: bool = False
    """Several computations in one: no operand is needed before all of them are."""
    source: bool = False
    """Has no operands to be computed from: an input, a state, a constant."""
    starts: bool = False
    """Sets something going that takes its time: it runs as soon as its operands are there, and before the guard."""


class Known(Protocol):
    """What is known of the values of a graph."""

    def steady(self, value: Value) -> bool:
        """Whether it depends on constants alone, and on states that the graph does not write."""

    def alone(self, value: Value) -> bool:
        """Whether it has one reader and is no result: who replaces its reader replaces it too."""


@dataclass(frozen=True)
class Op:
    """Base of all ops, compared and hashed by class and attributes.

    A subclass with attributes of its own is a frozen dataclass too; one without needs no decorator.
    """

    traits: ClassVar[Traits] = Traits()
    onnx: ClassVar[OnnxForm | None] = None

    @property
    def name(self) -> str:
        """The op's name: its class."""
        return type(self).__name__

    def __call__(self, *inputs: Value) -> Value:
        """Apply the op and return its only result."""
        (result,) = apply(self, inputs)
        return result

    def many(self, *inputs: Value) -> tuple[Value, ...]:
        """Apply the op and return all of its results."""
        return apply(self, inputs)

    def infer(self, *types: Any, **_: Any) -> Infer:
        """Types of the results from the types of the operands; `check` raises what does not fit."""
        raise NotImplementedError(f"{self.name} has no shape rule")

    def forward(self, xp: Xp, *arrays: Any, **_: Any) -> Any:
        """The results from the operands' arrays, in plain array code: an array, or a tuple of them."""
        raise NotImplementedError(f"{self.name} has no reference kernel")

    def vjp(self, y: Value, dy: Value) -> Grads:
        """Gradients of the operands from the gradient `dy` of the result `y`; None where none flows."""
        return self.vjp_outputs(y.node.outputs, (dy,))

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        """As `vjp`, for ops with several results. An op that has `decompose` needs neither."""
        if type(self).vjp is not Op.vjp:
            if any(dy is not None for dy in dys[1:]):
                raise NotImplementedError(f"{self.name} has a gradient for its first result only")
            return self.vjp(ys[0], dys[0]) if dys[0] is not None else [None] * len(ys[0].inputs)
        if type(self).decompose is Op.decompose:
            raise NoGradientError(f"{self.name} has no gradient")
        from netspec.graph.autodiff import pullback

        inputs = ys[0].inputs
        with in_scope(ys[0].node.scope):  # where it is the form that the op is simplified to, it is computed once
            made = self.decompose(*inputs)
        return pullback(made if isinstance(made, tuple) else (made,), dys, inputs)

    def decompose(self, *inputs: Any, **_: Any) -> Value | tuple[Value, ...]:
        """The same computation by simpler ops: the gradient of an op without `vjp` goes through it."""
        raise NotImplementedError(f"{self.name} is not made of others")

    def simplified(self, *inputs: Any, **_: Any) -> Value | tuple[Value, ...] | None:
        """A value of the same type that is cheaper and equal, or None: x + 0 is x. The pass `simplify` asks for it.

        Of an op with several results, a tuple of them.
        """
        return None

    def undrawn(self, inputs: Sequence[Value]) -> Value | None:
        """Of an op that draws random numbers, the result as if it drew none; None for all others."""
        return None

    def overwritable(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        """The operands that a result may be written over if they are of its type and nobody reads them afterwards."""
        return inputs if self.traits.inplace else ()

    def row(self, inputs: Sequence[Value]) -> Sequence[Value]:
        """The operands that best lie side by side in memory, in this order, so that they can be taken as one."""
        return ()

    def again(self, inputs: Sequence[Value], results: Sequence[Value]) -> Value | None:
        """The first result made anew by elementwise ops on `inputs` and the other results, to the last bit; or None."""
        return None

    def selects(self, x: TensorType) -> bool:
        """Whether each element of the first result is the largest of some of the only operand's, one or more.

        Further results are places, which the gradient needs and nothing else tells of.
        """
        return False

    def absorbed(self, known: Known, *inputs: Any) -> Value | None:
        """A value of the same type, equal but for rounding, of which more is steady; the pass `absorb` asks for it."""
        return None

    def scaled(self, factor: Value, *inputs: Any) -> Sequence[Value] | None:
        """Operands of which the result is `factor` times that of `inputs`, where weights can take up the factor."""
        return None

    def flops(self, *types: Any, **_: Any) -> int:
        """Floating-point operations of one call; by default one for each element of the first result."""
        inferred = self.infer(*types)
        return (inferred[0] if isinstance(inferred, tuple) else inferred).size

    def check(
        self, fits: bool, message: str, *, expected: str | None = None, got: object = None, hint: str | None = None
    ) -> None:
        """Raise a located error unless the operands fit."""
        if not fits:
            raise ShapeMismatch(message, expected, None if got is None else str(got), hint)


class NoGradientError(Exception):
    """A gradient was asked through an op that has none. A defect of a layer, or an integer used as a weight."""


def simplest(op: Op, *inputs: Value) -> Value:
    """The op, which has one result, applied, or what its result equals, as the pass `simplify` would have it."""
    return simpler(op(*inputs))


def simpler(value: Value) -> Value:
    """What a value equals, down to what no rule simplifies."""
    while len(value.node.outputs) == 1 and (made := value.op.simplified(*value.inputs)) is not None:
        assert isinstance(made, Value), "one result is one value"
        value = made
    return value


Accepts: TypeAlias = Callable[[Op, Sequence[TensorType]], bool]
"""Whether a fast kernel takes an op on operands of these types."""


def nothing(op: Op, types: Sequence[TensorType]) -> bool:
    """There is none."""
    return False


@dataclass(frozen=True)
class NoGradient(Op):
    """Base of ops whose gradient is zero or undefined everywhere (comparisons, arg-max, random bits)."""

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        """No gradient flows to any operand."""
        return [None] * len(ys[0].inputs)
