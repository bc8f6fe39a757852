"""The cell of a recurrence as data: how it passes steps over, and how gradients run through it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from netspec.graph.autodiff import pullback
from netspec.graph.fused import Fused, fused
from netspec.graph.graph import topological
from netspec.graph.ops.elementwise import Where
from netspec.graph.ops.source import Fill, Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value


@dataclass(frozen=True)
class Derivative:
    """How gradients run through a cell, as an elementwise op of its own."""

    saved: tuple[int, ...]
    """What the cell must give besides its states; numbers of its operands and steps, as in `Fused.results`."""
    kept: tuple[int, ...]
    """The results of the recurrence that the body reads."""
    carried: tuple[int, ...]
    """The states through which a gradient reaches the step before without passing the product."""
    body: Fused
    """kept…, with a mask whether the step counts, dy, gradient of h by way of the next product, carried… → gradients
    of gates…, products…, carried…"""
    shared: bool
    """The gradients of the products are those of the gates, and no results of their own."""
    masked: bool
    """Whether there is a mask."""
    places: tuple[tuple[int, ...], ...]
    """For each state where its gradient lies between steps: 0 is by way of the next product, from 1 on carried."""

    def operands(self, dtype: DType) -> tuple[DType, ...]:
        """Element types of the body's operands."""
        return (dtype,) * len(self.kept) + (DType.BOOL,) * self.masked + (dtype,) * (2 + len(self.carried))


@cache
def holding(cell: Fused, before: int, dtype: DType) -> Fused:
    """The cell with one operand more, a bool: where it is False the states stay as they are.

    `before` is how many operands of the cell come before the states.
    """
    kind = TensorType((1,), dtype)
    operands, counts = [Input("", kind)() for _ in range(cell.arity)], Input("", kind.with_dtype(DType.BOOL))()
    states = operands[before:]
    new = cell.decompose(*operands)
    return fused([*operands, counts], [Where()(counts, one, state) for one, state in zip(new, states, strict=True)])


@cache
def derivative_of(cell: Fused, gates: int, products: int, fed: int, masked: bool, dtype: DType) -> Derivative:
    """The derivative of a cell; with `masked` its last operand is whether the step counts."""
    kind, own = TensorType((1,), dtype), gates + products
    operands = [Input(f"{index}", kind)() for index in range(cell.arity - masked)]
    counts = [Input("counts", kind.with_dtype(DType.BOOL))()] * masked
    known = [*operands, *counts]
    for step in cell.body:
        known.append(step.op(*(known[index] for index in step.operands)))
    new, states = [known[index] for index in cell.results], operands[own:]
    seeds = [Input(f"carried {index}", kind)() for index in range(len(new))]
    reached = pullback(new, seeds, states)
    carried = tuple(index for index, gradient in enumerate(reached) if gradient is not None)
    dy, flow = Input("dy", kind)(), Input("flow", kind)()
    flows: list[Value | None] = [seeds[index] if index in carried else None for index in range(len(new))]
    for index, gradient in ((0, dy), (fed, flow)):
        known_flow = flows[index]
        flows[index] = gradient if known_flow is None else known_flow + gradient
    by = pullback(new, flows, operands)
    shared = gates == products and all(by[index] is by[gates + index] for index in range(gates))
    wanted = [*by[: gates if shared else own], *(by[own + index] for index in carried)]
    results = [value for value in wanted if value is not None]
    assert len(results) == len(wanted), "the cell does not depend on one of its operands"

    number = {value: index for index, value in reversed(list(enumerate(known))) if not isinstance(value.op, Fill)}
    for value in counts:
        del number[value]
    given = [*counts, dy, flow, *(seeds[index] for index in carried)]
    nodes = topological(results, stop=frozenset([*number, *given]))
    read = [value for node in nodes for value in node.inputs if value in number]
    read = list(dict.fromkeys([*read, *(value for value in results if value in number)]))
    saved: list[int] = []
    kept: list[int] = []
    for value in read:
        place = number[value]
        if place == cell.results[0]:
            kept.append(0)
        elif own <= place < len(operands):
            kept.append(1 + place - own)
        else:
            kept.append(1 + len(new) + len(saved))
            saved.append(place)
    places = tuple(
        (*((1 + carried.index(state),) if state in carried else ()), *((0,) if state == fed else ()))
        for state in range(len(new))
    )
    return Derivative(tuple(saved), tuple(kept), carried, fused([*read, *given], results), shared, masked, places)
