"""Several ops as one: `Fused` and `Anchored`, so that what lies between never goes to memory; `ForEach` saves calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from netspec.graph.onnx_map import NoOnnx
from netspec.graph.op import Array, Op, Traits, Xp
from netspec.graph.types import TensorType
from netspec.graph.value import Value

T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """One op of a body; its operands count the inputs first, then the results of earlier steps."""

    op: Op
    operands: tuple[int, ...]


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
        results = self.evaluate(xp, arrays)
        return results if len(results) > 1 else results[0]

    def evaluate(self, xp: Xp, operands: Sequence[Any]) -> tuple[Any, ...]:
        """The results from operands of any kind that the ops' `forward` can take: arrays, or symbols of a generator."""
        known = list(operands)
        for step in self.body:
            known.append(step.op.forward(xp, *(known[index] for index in step.operands)))
        return tuple(known[index] for index in self.results)

    def decompose(self, *inputs: Value) -> tuple[Value, ...]:
        known = list(inputs)
        for step in self.body:
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


@dataclass(frozen=True)
class Anchored(Op):
    """A heavy op, its result passed through elementwise ops: a convolution with its bias, activation, residual.

    Operands are those of the anchor, then what the body reads besides; the body's operand 0 is the anchor's result.
    """

    anchor: Op
    anchor_arity: int
    body: tuple[Step, ...]
    onnx = NoOnnx("a pass makes it for kernels; export sees the graph before that")

    @property
    def name(self) -> str:
        """The anchor's name and those of the body."""
        return "+".join([self.anchor.name, *(step.op.name for step in self.body)])

    def epilogue(self, extras: int) -> Fused:
        """The body as an op on the anchor's result and `extras` further operands."""
        return Fused(1 + extras, self.body, (len(self.body) + extras,))

    def infer(self, *types: TensorType) -> TensorType:
        made = self.anchor.infer(*types[: self.anchor_arity])
        assert isinstance(made, TensorType)
        extras = types[self.anchor_arity :]
        (result,) = self.epilogue(len(extras)).infer(made, *extras)
        return result

    def forward(self, xp: Xp, *arrays: Array) -> Array:
        made = self.anchor.forward(xp, *arrays[: self.anchor_arity])
        extras = arrays[self.anchor_arity :]
        return self.epilogue(len(extras)).forward(xp, made, *extras)

    def decompose(self, *inputs: Value) -> Value:
        extras = inputs[self.anchor_arity :]
        made = self.anchor(*inputs[: self.anchor_arity])
        (result,) = self.epilogue(len(extras)).decompose(made, *extras)
        return result

    def flops(self, *types: TensorType) -> int:
        own = types[: self.anchor_arity]
        made = self.anchor.infer(*own)
        assert isinstance(made, TensorType)
        extras = types[self.anchor_arity :]
        return self.anchor.flops(*own) + self.epilogue(len(extras)).flops(made, *extras)


@dataclass(frozen=True)
class ForEach(Op):
    """One elementwise op on `count` sets of operands, one set after another: the update of many small parameters.

    Operands are those of the first set, then of the second, …; so are the results. No set reads what another writes.
    """

    op: Op
    count: int
    traits = Traits(inplace=True)
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
        return tuple(one for own in made for one in (own if isinstance(own, tuple) else (own,)))

    def forward(self, xp: Xp, *arrays: Array) -> tuple[Array, ...]:
        made = [self.op.forward(xp, *own) for own in self.sets(arrays)]
        return tuple(one for own in made for one in (own if isinstance(own, tuple) else (own,)))

    def decompose(self, *inputs: Value) -> tuple[Value, ...]:
        return tuple(one for own in self.sets(inputs) for one in self.op.many(*own))

    def overwritable(self, result: int, inputs: Sequence[Value]) -> Sequence[Value]:
        sets = self.sets(inputs)
        made = self.op.infer(*(value.type for value in sets[0]))
        own = sets[result // (len(made) if isinstance(made, tuple) else 1)]
        return [value for value in own if inputs.count(value) == own.count(value)]

    def flops(self, *types: TensorType) -> int:
        return sum(self.op.flops(*own) for own in self.sets(types))
