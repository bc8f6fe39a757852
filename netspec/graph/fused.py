"""Ops made of other ops: fusion saves memory traffic, `MultiTensor` saves calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from netspec.graph.graph import topological_order
from netspec.graph.onnx_map import NoOnnxForm
from netspec.graph.op import Array, Op, ResultTypes, Traits, Xp, as_tuple, unwrap_single
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
        all_types = self.types(*types)
        return tuple(all_types[index] for index in self.results)

    def types(self, *types: TensorType) -> list[TensorType]:
        """Types of all operands and steps."""
        all_types = list(types)
        for step in self.body:
            inferred = step.op.infer(*(all_types[index] for index in step.operands))
            assert isinstance(inferred, TensorType)
            all_types.append(inferred)
        return all_types

    def forward(self, xp: Xp, *arrays: Array) -> Any:
        return unwrap_single(self.evaluate(xp, arrays))

    def evaluate(self, xp: Xp, operands: Sequence[Any]) -> tuple[Any, ...]:
        """Evaluate the body on operands that `forward` accepts: arrays, or symbols of a code generator."""
        values = list(operands)
        for step in self.body:
            values.append(step.op.forward(xp, *(values[index] for index in step.operands)))
        return tuple(values[index] for index in self.results)

    def decompose(self, *inputs: Value) -> tuple[Value, ...]:
        values = list(inputs)
        for step in self.body:
            with in_scope(step.scope or current_scope()):
                values.append(step.op(*(values[index] for index in step.operands)))
        return tuple(values[index] for index in self.results)

    def flops(self, *types: TensorType) -> int:
        all_types = list(types)
        total = 0
        for step in self.body:
            operands = [all_types[index] for index in step.operands]
            inferred = step.op.infer(*operands)
            assert isinstance(inferred, TensorType)
            all_types.append(inferred)
            total += step.op.flops(*operands)
        return total


def fuse_between(operands: Sequence[Value], results: Sequence[Value]) -> Fused:
    """The elementwise nodes between `operands` and `results` as one op."""
    operand_index = {value: index for index, value in enumerate(operands)}
    body: list[FusedStep] = []
    for node in topological_order(results, stop=frozenset(operands)):
        operand_index[node.outputs[0]] = len(operands) + len(body)
        body.append(FusedStep(node.op, tuple(operand_index[value] for value in node.inputs), node.scope))
    return Fused(len(operands), tuple(body), tuple(operand_index[value] for value in results))


@dataclass(frozen=True)
class EpilogueFused(Op):
    """A heavy op with an epilogue: its first result passes through elementwise ops before it is written.

    An example is a convolution with its bias, activation and residual. Operands: those of the anchor, then those of the
    body except its operand 0, which is the anchor's result.
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
        (result,) = self.epilogue(len(extras)).decompose(first, *extras)
        return result

    def flops(self, *types: TensorType) -> int:
        anchor_types = types[: self.anchor_arity]
        first = as_tuple(self.anchor.infer(*anchor_types))[0]
        extras = types[self.anchor_arity :]
        return self.anchor.flops(*anchor_types) + self.epilogue(len(extras)).flops(first, *extras)


@dataclass(frozen=True)
class PrologueFused(Op):
    """A heavy op with a prologue: elementwise ops compute one of its operands while it is read.

    An example is the gradient of a batch normalization, whose operand dy is masked by the gradient of a ReLU. Operands:
    those of `op` except the one at index `operand`, which the last step of the body computes; then those of the body.
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

    def _split_operands(self, operands: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
        """The stored operands of `op`, and the operands of the body."""
        return operands[: self.arity - 1], operands[self.arity - 1 :]

    def _join_operands(self, stored: Sequence[T], computed: T) -> list[T]:
        """All operands of `op`, in order."""
        return [*stored[: self.operand], computed, *stored[self.operand :]]

    def infer(self, *types: TensorType) -> ResultTypes:
        stored, read = self._split_operands(types)
        (computed,) = self.prologue(len(read)).infer(*read)
        return self.op.infer(*self._join_operands(stored, computed))

    def forward(self, xp: Xp, *arrays: Array) -> Any:
        stored, read = self._split_operands(arrays)
        return self.op.forward(xp, *self._join_operands(stored, self.prologue(len(read)).forward(xp, *read)))

    def decompose(self, *inputs: Value) -> tuple[Value, ...]:
        stored, read = self._split_operands(inputs)
        (computed,) = self.prologue(len(read)).decompose(*read)
        return self.op.call_multi(*self._join_operands(stored, computed))

    def inplace_operands(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        stored, read = self._split_operands(inputs)
        computed: Any = object()  # placeholder for the computed operand, which has no value of the graph
        allowed = self.op.inplace_operands(result, self._join_operands(stored, computed))
        overwritable = [*(value for value in stored if value in allowed), *(read if computed in allowed else ())]
        return [value for value in overwritable if inputs.count(value) == 1]

    def flops(self, *types: TensorType) -> int:
        stored, read = self._split_operands(types)
        prologue = self.prologue(len(read))
        (computed,) = prologue.infer(*read)
        return prologue.flops(*read) + self.op.flops(*self._join_operands(stored, computed))


@dataclass(frozen=True)
class MultiTensor(Op):
    """One elementwise op on `count` sets of operands: a multi-tensor update of many small parameters.

    Operands are ordered by set, and so are results. No set reads what another one writes.
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
        """Split operands or results into their sets."""
        size = len(values) // self.count
        return [values[start : start + size] for start in range(0, len(values), size)]

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        self.check(
            len(types) % self.count == 0,
            "operands do not divide into sets",
            got=f"{len(types)} operands",
        )
        results = [self.op.infer(*set_types) for set_types in self.sets(types)]
        return tuple(kind for set_results in results for kind in as_tuple(set_results))

    def forward(self, xp: Xp, *arrays: Array) -> tuple[Array, ...]:
        results = [self.op.forward(xp, *operands) for operands in self.sets(arrays)]
        return tuple(array for set_results in results for array in as_tuple(set_results))

    def decompose(self, *inputs: Value) -> tuple[Value, ...]:
        return tuple(value for operands in self.sets(inputs) for value in self.op.call_multi(*operands))

    def inplace_operands(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        sets = self.sets(inputs)
        results_per_set = len(as_tuple(self.op.infer(*(value.type for value in sets[0]))))
        operands = sets[result // results_per_set]
        return [value for value in operands if inputs.count(value) == operands.count(value)]

    def flops(self, *types: TensorType) -> int:
        return sum(self.op.flops(*set_types) for set_types in self.sets(types))


def node_scopes(node: Node) -> tuple[Scope, ...]:
    """The layers whose ops a node computes, in execution order."""
    op = node.op
    first = [op.scope] if isinstance(op, EpilogueFused) else []
    scopes = [*first, *(step.scope for step in op.body)] if isinstance(op, (Fused, EpilogueFused)) else []
    return tuple(dict.fromkeys(scope or node.scope for scope in scopes)) or (node.scope,)


def inner_traits(op: Op) -> Traits:
    """The traits of the heavy op inside a fused op, or those of the op itself."""
    return (
        op.anchor.traits
        if isinstance(op, EpilogueFused)
        else op.op.traits
        if isinstance(op, PrologueFused)
        else op.traits
    )
