"""Ops made of other ops: fusion saves memory traffic, `MultiTensor` saves calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from netspec.graph.graph import topological_order
from netspec.graph.onnx_map import NoOnnxForm
from netspec.graph.op import Array, Op, ResultTypes, Traits, Xp
from netspec.graph.types import TensorType
from netspec.graph.value import Node, Scope, Value, current_scope, in_scope

T = TypeVar("T")


@dataclass(frozen=True)
class FusedStep:
    """One op of a fused body; `operands` index the inputs first, then the results of earlier steps."""

    op: Op
    operands: tuple[int, ...]
    scope: Scope | None = field(default=None, compare=False, repr=False)
    """The layer that the op belongs to; it does not take part in comparisons."""


@dataclass(frozen=True)
class Fused(Op):
    """The elementwise ops of `body`, evaluated one after another; `results` are the indices of those that are returned.

    All results have one shape, to which the operands broadcast.
    """

    arity: int
    body: tuple[FusedStep, ...]
    results: tuple[int, ...]
    traits = Traits(elementwise=True, inplace=True)
    onnx = NoOnnxForm("only optimization passes create it; export uses the graph before them")

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
        return unwrap_single(self.evaluate(xp, arrays))

    def evaluate(self, xp: Xp, operands: Sequence[Any]) -> tuple[Any, ...]:
        """Evaluate the body on operands that `forward` accepts: arrays, or symbols of a code generator."""
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


def fuse_between(operands: Sequence[Value], results: Sequence[Value]) -> Fused:
    """The elementwise nodes between `operands` and `results` as one op."""
    place = {value: index for index, value in enumerate(operands)}
    body: list[FusedStep] = []
    for node in topological_order(results, stop=frozenset(operands)):
        place[node.outputs[0]] = len(operands) + len(body)
        body.append(FusedStep(node.op, tuple(place[value] for value in node.inputs), node.scope))
    return Fused(len(operands), tuple(body), tuple(place[value] for value in results))


@dataclass(frozen=True)
class EpilogueFused(Op):
    """A heavy op with an epilogue: its first result passes through elementwise ops before it is written.

    An example is a convolution with its bias, activation and residual. Operands are those of the anchor, then the
    further operands of the body; the body's operand 0 is the anchor's result.
    """

    anchor: Op
    anchor_arity: int
    body: tuple[FusedStep, ...]
    scope: Scope | None = field(default=None, compare=False, repr=False)
    """The layer that the anchor belongs to."""
    onnx = NoOnnxForm("only optimization passes create it; export uses the graph before them")

    @property
    def name(self) -> str:
        """Name of the anchor and names of the body's ops, joined by `+`."""
        return "+".join([self.anchor.name, *(step.op.name for step in self.body)])

    def epilogue(self, extras: int) -> Fused:
        """The body as an op on the anchor's result and `extras` further operands."""
        return Fused(1 + extras, self.body, (len(self.body) + extras,))

    def infer(self, *types: TensorType) -> ResultTypes:
        first, *others = as_tuple(self.anchor.infer(*types[: self.anchor_arity]))
        extras = types[self.anchor_arity :]
        results = (*self.epilogue(len(extras)).infer(first, *extras), *others)
        return results if others else results[0]

    def forward(self, xp: Xp, *arrays: Array) -> Any:
        first, *others = as_tuple(self.anchor.forward(xp, *arrays[: self.anchor_arity]))
        extras = arrays[self.anchor_arity :]
        return unwrap_single((self.epilogue(len(extras)).forward(xp, first, *extras), *others))

    def decompose(self, *inputs: Value) -> tuple[Value, ...]:
        with in_scope(self.scope or current_scope()):
            first, *others = self.anchor.call_multi(*inputs[: self.anchor_arity])
        extras = inputs[self.anchor_arity :]
        return (*self.epilogue(len(extras)).decompose(first, *extras), *others)

    def recompute(self, inputs: Sequence[Value], results: Sequence[Value]) -> Value | None:
        first = self.anchor.recompute(inputs[: self.anchor_arity], results)
        if first is None:
            return None
        extras = inputs[self.anchor_arity :]
        (made,) = self.epilogue(len(extras)).decompose(first, *extras)
        return made

    def flops(self, *types: TensorType) -> int:
        own = types[: self.anchor_arity]
        first = as_tuple(self.anchor.infer(*own))[0]
        extras = types[self.anchor_arity :]
        return self.anchor.flops(*own) + self.epilogue(len(extras)).flops(first, *extras)


@dataclass(frozen=True)
class PrologueFused(Op):
    """A heavy op with a prologue: elementwise ops compute one of its operands while it is read.

    An example is a gradient that passes an activation first. Operands are those of `op` except the one at index
    `operand`, then those of the body, whose last step computes the missing operand.
    """

    op: Op
    operand: int
    arity: int
    """Number of operands of `op`."""
    body: tuple[FusedStep, ...]
    onnx = NoOnnxForm("only optimization passes create it; export uses the graph before them")

    @property
    def name(self) -> str:
        """Names of the body's ops and name of the op, joined by `+`."""
        return "+".join([*(step.op.name for step in self.body), self.op.name])

    def prologue(self, count: int) -> Fused:
        """The body as an op on its `count` operands."""
        return Fused(count, self.body, (count + len(self.body) - 1,))

    def _apart(self, operands: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
        return operands[: self.arity - 1], operands[self.arity - 1 :]

    def _whole(self, own: Sequence[T], made: T) -> list[T]:
        return [*own[: self.operand], made, *own[self.operand :]]

    def infer(self, *types: TensorType) -> ResultTypes:
        own, read = self._apart(types)
        (made,) = self.prologue(len(read)).infer(*read)
        return self.op.infer(*self._whole(own, made))

    def forward(self, xp: Xp, *arrays: Array) -> Any:
        own, read = self._apart(arrays)
        return self.op.forward(xp, *self._whole(own, self.prologue(len(read)).forward(xp, *read)))

    def decompose(self, *inputs: Value) -> tuple[Value, ...]:
        own, read = self._apart(inputs)
        (made,) = self.prologue(len(read)).decompose(*read)
        return self.op.call_multi(*self._whole(own, made))

    def inplace_operands(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        own, read = self._apart(inputs)
        made: Any = object()  # stands for the operand that is never stored
        allowed = self.op.inplace_operands(result, self._whole(own, made))
        found = [*(value for value in own if value in allowed), *(read if made in allowed else ())]
        return [value for value in found if inputs.count(value) == 1]

    def flops(self, *types: TensorType) -> int:
        own, read = self._apart(types)
        prologue = self.prologue(len(read))
        (made,) = prologue.infer(*read)
        return prologue.flops(*read) + self.op.flops(*self._whole(own, made))


@dataclass(frozen=True)
class MultiTensor(Op):
    """One elementwise op on `count` sets of operands: a multi-tensor update of many small parameters.

    Operands are those of the first set, then of the second, and so on; so are the results. No set reads what another
    one writes.
    """

    op: Op
    count: int
    traits = Traits(inplace=True, multi_tensor=True)
    onnx = NoOnnxForm("only optimization passes create it; export uses the graph before them")

    @property
    def name(self) -> str:
        """The op's name with the number of sets."""
        return f"{self.count}x {self.op.name}"

    def sets(self, values: Sequence[T]) -> list[Sequence[T]]:
        """Operands or results, split by set."""
        size = len(values) // self.count
        return [values[start : start + size] for start in range(0, len(values), size)]

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        self.check(
            len(types) % self.count == 0,
            "operands do not divide into sets",
            got=f"{len(types)} operands",
        )
        made = [self.op.infer(*own) for own in self.sets(types)]
        return tuple(one for own in made for one in as_tuple(own))

    def forward(self, xp: Xp, *arrays: Array) -> tuple[Array, ...]:
        made = [self.op.forward(xp, *own) for own in self.sets(arrays)]
        return tuple(one for own in made for one in as_tuple(own))

    def decompose(self, *inputs: Value) -> tuple[Value, ...]:
        return tuple(one for own in self.sets(inputs) for one in self.op.call_multi(*own))

    def inplace_operands(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        sets = self.sets(inputs)
        made = self.op.infer(*(value.type for value in sets[0]))
        own = sets[result // len(as_tuple(made))]
        return [value for value in own if inputs.count(value) == own.count(value)]

    def flops(self, *types: TensorType) -> int:
        return sum(self.op.flops(*own) for own in self.sets(types))


def as_tuple(results: Any) -> tuple[Any, ...]:
    """The results of `infer` or `forward` as a tuple, for one result too."""
    return results if isinstance(results, tuple) else (results,)


def unwrap_single(results: tuple[Any, ...]) -> Any:
    """A tuple of results as `infer` and `forward` return it: the only result, or the tuple."""
    return results if len(results) > 1 else results[0]


def node_scopes(node: Node) -> tuple[Scope, ...]:
    """The layers that a node computes for, in the order of its steps."""
    op = node.op
    first = [op.scope] if isinstance(op, EpilogueFused) else []
    found = [*first, *(step.scope for step in op.body)] if isinstance(op, (Fused, EpilogueFused)) else []
    return tuple(dict.fromkeys(one or node.scope for one in found)) or (node.scope,)


def inner_traits(op: Op) -> Traits:
    """The traits of the heavy op inside a fused op, or those of the op itself."""
    return (
        op.anchor.traits
        if isinstance(op, EpilogueFused)
        else op.op.traits
        if isinstance(op, PrologueFused)
        else op.traits
    )
