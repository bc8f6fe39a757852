"""Several ops as one: `Fused`, `Anchored` and `Fed` keep what lies between out of memory, `ForEach` saves calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from netspec.graph.graph import topological
from netspec.graph.onnx_map import NoOnnx
from netspec.graph.op import Array, Infer, Op, Traits, Xp
from netspec.graph.types import TensorType
from netspec.graph.value import Node, Scope, Value, current_scope, in_scope

T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """One op of a body; its operands count the inputs first, then the results of earlier steps."""

    op: Op
    operands: tuple[int, ...]
    scope: Scope | None = field(default=None, compare=False, repr=False)
    """What the op stems from, which makes it no other step."""


@dataclass(frozen=True)
class Fused(Op):
    """The elementwise ops of `body`, one after another, element by element; `results` says which of them come out.

    All results have one shape; operands broadcast to it.
    """

    arity: int
    body: tuple[Step, ...]
    results: tuple[int, ...]
    traits = Traits(elementwise=True, inplace=True)
    onnx = NoOnnx("a pass makes it for kernels; export sees the graph before that")

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        known = self.types(*types)
        return tuple(known[index] for index in self.results)

    def types(self, *types: TensorType) -> list[TensorType]:
        """Types of all operands and steps."""
        known = list(types)
        for step in self.body:
            inferred = step.op.infer(*(known[index] for index in step.operands))
            assert isinstance(inferred, TensorType)
            known.append(inferred)
        return known

    def forward(self, xp: Xp, *arrays: Array) -> Any:
        return one_or_all(self.evaluate(xp, arrays))

    def evaluate(self, xp: Xp, operands: Sequence[Any]) -> tuple[Any, ...]:
        """The results from operands of any kind that the ops' `forward` can take: arrays, or symbols of a generator."""
        known = list(operands)
        for step in self.body:
            known.append(step.op.forward(xp, *(known[index] for index in step.operands)))
        return tuple(known[index] for index in self.results)

    def decompose(self, *inputs: Value) -> tuple[Value, ...]:
        known = list(inputs)
        for step in self.body:
            with in_scope(step.scope or current_scope()):
                known.append(step.op(*(known[index] for index in step.operands)))
        return tuple(known[index] for index in self.results)

    def flops(self, *types: TensorType) -> int:
        known = list(types)
        total = 0
        for step in self.body:
            operands = [known[index] for index in step.operands]
            inferred = step.op.infer(*operands)
            assert isinstance(inferred, TensorType)
            known.append(inferred)
            total += step.op.flops(*operands)
        return total


def fused(operands: Sequence[Value], results: Sequence[Value]) -> Fused:
    """The elementwise ops that lie between operands and results, as one op."""
    place = {value: index for index, value in enumerate(operands)}
    body: list[Step] = []
    for node in topological(results, stop=frozenset(operands)):
        place[node.outputs[0]] = len(operands) + len(body)
        body.append(Step(node.op, tuple(place[value] for value in node.inputs), node.scope))
    return Fused(len(operands), tuple(body), tuple(place[value] for value in results))


@dataclass(frozen=True)
class Anchored(Op):
    """A heavy op, its first result passed through elementwise ops: a convolution with its bias, activation, residual.

    Operands are those of the anchor, then what the body reads besides; the body's operand 0 is the anchor's result.
    """

    anchor: Op
    anchor_arity: int
    body: tuple[Step, ...]
    scope: Scope | None = field(default=None, compare=False, repr=False)
    """What the anchor stems from."""
    onnx = NoOnnx("a pass makes it for kernels; export sees the graph before that")

    @property
    def name(self) -> str:
        """The anchor's name and those of the body."""
        return "+".join([self.anchor.name, *(step.op.name for step in self.body)])

    def epilogue(self, extras: int) -> Fused:
        """The body as an op on the anchor's result and `extras` further operands."""
        return Fused(1 + extras, self.body, (len(self.body) + extras,))

    def infer(self, *types: TensorType) -> Infer:
        first, *others = several(self.anchor.infer(*types[: self.anchor_arity]))
        extras = types[self.anchor_arity :]
        results = (*self.epilogue(len(extras)).infer(first, *extras), *others)
        return results if others else results[0]

    def forward(self, xp: Xp, *arrays: Array) -> Any:
        first, *others = several(self.anchor.forward(xp, *arrays[: self.anchor_arity]))
        extras = arrays[self.anchor_arity :]
        return one_or_all((self.epilogue(len(extras)).forward(xp, first, *extras), *others))

    def decompose(self, *inputs: Value) -> tuple[Value, ...]:
        with in_scope(self.scope or current_scope()):
            first, *others = self.anchor.many(*inputs[: self.anchor_arity])
        extras = inputs[self.anchor_arity :]
        return (*self.epilogue(len(extras)).decompose(first, *extras), *others)

    def again(self, inputs: Sequence[Value], results: Sequence[Value]) -> Value | None:
        first = self.anchor.again(inputs[: self.anchor_arity], results)
        if first is None:
            return None
        extras = inputs[self.anchor_arity :]
        (made,) = self.epilogue(len(extras)).decompose(first, *extras)
        return made

    def flops(self, *types: TensorType) -> int:
        own = types[: self.anchor_arity]
        first = several(self.anchor.infer(*own))[0]
        extras = types[self.anchor_arity :]
        return self.anchor.flops(*own) + self.epilogue(len(extras)).flops(first, *extras)


@dataclass(frozen=True)
class Fed(Op):
    """A heavy op, one operand of which elementwise ops make while it is read: a gradient past an activation.

    Operands are those of `op` but for number `operand`, then what the body reads; its last step makes that operand.
    """

    op: Op
    operand: int
    arity: int
    """How many operands `op` has."""
    body: tuple[Step, ...]
    onnx = NoOnnx("a pass makes it for kernels; export sees the graph before that")

    @property
    def name(self) -> str:
        """The names of the body and that of the op."""
        return "+".join([*(step.op.name for step in self.body), self.op.name])

    def prologue(self, count: int) -> Fused:
        """The body as an op on its `count` operands."""
        return Fused(count, self.body, (count + len(self.body) - 1,))

    def _apart(self, operands: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
        return operands[: self.arity - 1], operands[self.arity - 1 :]

    def _whole(self, own: Sequence[T], made: T) -> list[T]:
        return [*own[: self.operand], made, *own[self.operand :]]

    def infer(self, *types: TensorType) -> Infer:
        own, read = self._apart(types)
        (made,) = self.prologue(len(read)).infer(*read)
        return self.op.infer(*self._whole(own, made))

    def forward(self, xp: Xp, *arrays: Array) -> Any:
        own, read = self._apart(arrays)
        return self.op.forward(xp, *self._whole(own, self.prologue(len(read)).forward(xp, *read)))

    def decompose(self, *inputs: Value) -> tuple[Value, ...]:
        own, read = self._apart(inputs)
        (made,) = self.prologue(len(read)).decompose(*read)
        return self.op.many(*self._whole(own, made))

    def overwritable(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        own, read = self._apart(inputs)
        made: Any = object()  # in the place of the operand that is never written down
        allowed = self.op.overwritable(result, self._whole(own, made))
        found = [*(value for value in own if value in allowed), *(read if made in allowed else ())]
        return [value for value in found if inputs.count(value) == 1]

    def flops(self, *types: TensorType) -> int:
        own, read = self._apart(types)
        prologue = self.prologue(len(read))
        (made,) = prologue.infer(*read)
        return prologue.flops(*read) + self.op.flops(*self._whole(own, made))


@dataclass(frozen=True)
class ForEach(Op):
    """One elementwise op on `count` sets of operands, one set after another: the update of many small parameters.

    Operands are those of the first set, then of the second, …; so are the results. No set reads what another writes.
    """

    op: Op
    count: int
    traits = Traits(inplace=True, group=True)
    onnx = NoOnnx("a pass makes it for kernels; export sees the graph before that")

    @property
    def name(self) -> str:
        """The op's name, and how often."""
        return f"{self.count}x {self.op.name}"

    def sets(self, values: Sequence[T]) -> list[Sequence[T]]:
        """Operands or results, by set."""
        size = len(values) // self.count
        return [values[start : start + size] for start in range(0, len(values), size)]

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        self.check(len(types) % self.count == 0, "not so many sets of operands", got=f"{len(types)} operands")
        made = [self.op.infer(*own) for own in self.sets(types)]
        return tuple(one for own in made for one in several(own))

    def forward(self, xp: Xp, *arrays: Array) -> tuple[Array, ...]:
        made = [self.op.forward(xp, *own) for own in self.sets(arrays)]
        return tuple(one for own in made for one in several(own))

    def decompose(self, *inputs: Value) -> tuple[Value, ...]:
        return tuple(one for own in self.sets(inputs) for one in self.op.many(*own))

    def overwritable(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        sets = self.sets(inputs)
        made = self.op.infer(*(value.type for value in sets[0]))
        own = sets[result // len(several(made))]
        return [value for value in own if inputs.count(value) == own.count(value)]

    def flops(self, *types: TensorType) -> int:
        return sum(self.op.flops(*own) for own in self.sets(types))


def several(results: Any) -> tuple[Any, ...]:
    """The results of an op, be they one or more."""
    return results if isinstance(results, tuple) else (results,)


def one_or_all(results: tuple[Any, ...]) -> Any:
    """Results as an op gives them."""
    return results if len(results) > 1 else results[0]


def scopes(node: Node) -> tuple[Scope, ...]:
    """What a node stems from: all that it computes at once, in turn."""
    op = node.op
    first = [op.scope] if isinstance(op, Anchored) else []
    found = [*first, *(step.scope for step in op.body)] if isinstance(op, (Fused, Anchored)) else []
    return tuple(dict.fromkeys(one or node.scope for one in found)) or (node.scope,)


def inner_traits(op: Op) -> Traits:
    """The traits of what an op computes, beside the elementwise ops around it."""
    return op.anchor.traits if isinstance(op, Anchored) else op.op.traits if isinstance(op, Fed) else op.traits
