"""Match formulas with the nodes of a model.

The search follows the formula: a sum may be computed by Add, Sub, Neg, and Mul or Div by a number; a product by Mul,
Div, Reciprocal, Neg, Sqrt and Pow; limits by Clip, Max, Min and Relu. If terms can be distributed over operands in
several ways, all are tried. Reshape, Unsqueeze and Expand may expand reduced axes again at any point: `holds` checks
that they expand to the right sizes, once sizes are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from itertools import product
from math import inf, isclose, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.lift.patterns.formula import (
    Limits,
    NumberTerm,
    OperatorTerm,
    ProductTerm,
    Real,
    Reduced,
    SumTerm,
    Term,
    VariableTerm,
    WeightsTerm,
)
from netspec.exchange.operator_graph.graph import ImportedGraph, OperatorNode

COMMUTATIVE = ("Add", "Mul", "Max", "Min")
BINARY = ("Add", "Sub", "Mul", "Div", "Pow")
CASTS, FLOAT = ("Cast", "CastLike"), 1
"""Operators that return a float32 constant unchanged, and ONNX's number of float32."""
EXPANDING = ("Reshape", "Unsqueeze", "Expand")
MAX_NODES, MAX_STEPS = 32, 600
"""Largest number of nodes of a match, and of nodes visited in the search at one tensor: x, x · x, the square of that
and so on can be split in exponentially many ways."""
TOLERANCE = 1e-3
"""Constants such as 0.7071 or 1.702 are written with four digits or more."""


@dataclass(frozen=True)
class Match:
    """A match of a formula: what its variables stand for."""

    tensors: Mapping[str, str] = field(default_factory=dict)
    """Variables and weights."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """Numbers, and captured attributes."""
    used: frozenset[str] = frozenset()
    """Results of the nodes that the formula is made of."""

    def number(self, expected: Real, number: float) -> Match | None:
        """The match with a number; None if it contradicts the match."""
        if isinstance(expected, NumberTerm):
            return self.attribute(expected.name, number)
        return self if isclose(expected, number, rel_tol=TOLERANCE, abs_tol=1e-9) else None

    def attribute(self, name: str, value: Any) -> Match | None:
        """The match with an attribute; None if it contradicts the match."""
        if name in self.numbers:
            return self if self.numbers[name] == value else None
        return replace(self, numbers={**self.numbers, name: value})

    def over(self, name: str, axes: tuple[int, ...]) -> Match:
        """Add the axes of a reduction under a name. All are kept: axes may be equal in another notation (-1 and 2)."""
        return replace(self, numbers={**self.numbers, name: self.numbers.get(name, frozenset()) | {axes}})

    def tensor(self, name: str, tensor: str) -> Match | None:
        """The match with a tensor; None if it contradicts the match."""
        if name in self.tensors:
            return self if self.tensors[name] == tensor else None
        return replace(self, tensors={**self.tensors, name: tensor})

    def through(self, node: OperatorNode) -> Match:
        """Add a node to the match."""
        return replace(self, used=self.used | {node.outputs[0]})


class _SearchLimitError(Exception):
    """A search takes more than `MAX_STEPS` steps."""


class PatternSearch:
    """Finds formulas in a model."""

    def __init__(self, model: ImportedGraph) -> None:
        self.makers = {name: node for node in model.nodes for name in node.outputs if name}
        constants = {
            node.outputs[0]: node.attributes["value"]
            for node in model.nodes
            if node.op_type == "Constant" and not node.domain and hasattr(node.attributes.get("value"), "shape")
        }
        self.constants: dict[str, NDArray[Any]] = {**constants, **model.constants}
        for node in model.nodes:  # JAX casts constants to the type of the other operand
            if node.op_type in CASTS and not node.domain and node.operand(0) in self.constants:
                array = self.constants[node.operand(0)]
                if array.dtype.kind == "f" and node.attributes.get("to", FLOAT) == FLOAT:
                    self.constants[node.outputs[0]] = array
        self.fixed = _fixed(model)
        """Tensors computed from constants and shapes alone: arithmetic on them is not matched as a formula."""
        self.reads = model.reads()
        self._steps = 0

    def find(self, term: Term, tensor: str) -> Match | None:
        """The match of the formula that ends in the tensor, if nothing else reads the tensors in between."""
        self._steps = 0
        try:
            return next((match for match in self.match(term, tensor, Match()) if self._alone(match, tensor)), None)
        except _SearchLimitError:
            return None

    def _alone(self, so_far: Match, tensor: str) -> bool:
        inside = Counter(name for tensor in so_far.used for name in self.makers[tensor].inputs)
        return all(name == tensor or self.reads[name] == inside[name] for name in so_far.used)

    def match(self, term: Term, tensor: str, so_far: Match) -> Iterator[Match]:
        """All matches of the term with the tensor that extend the match `so_far`."""
        extended: Match | None = None
        tensor, so_far = self._before_expanding([term], tensor, so_far)
        match term:
            case VariableTerm():
                extended = so_far.tensor(term.name, tensor) if tensor not in self.fixed else None
            case WeightsTerm():
                extended = so_far.tensor(term.name, tensor) if tensor in self.fixed and tensor else None
            case NumberTerm():
                value = self._number(tensor)
                extended = so_far.number(term, value) if value is not None else None
            case SumTerm():
                for match, number in self._sum(term.terms, 1.0, tensor, so_far):
                    yield from _if_matched(match.number(term.number, number))
            case ProductTerm():
                for match, number in self._product(term.powers, 1.0, tensor, so_far):
                    yield from _if_matched(match.number(term.factor, number))
            case Limits():
                yield from self._limits(term, tensor, so_far, -inf, inf)
            case Reduced():
                yield from self._reduced(term, tensor, so_far)
            case OperatorTerm():
                yield from self._call(term, tensor, so_far)
        yield from _if_matched(extended)

    def _before_expanding(self, terms: Sequence[Term], tensor: str, so_far: Match) -> tuple[str, Match]:
        """The tensor before its reduced axes are expanded, if all terms are reduced."""
        while terms and all(term.reduced for term in terms):
            node = self._maker(tensor, so_far)
            if node is None or node.op_type not in EXPANDING or not self.fixed.issuperset(node.inputs[1:]):
                break
            tensor, so_far = node.inputs[0], so_far.through(node)
        return tensor, so_far

    def _sum(
        self, terms: Sequence[tuple[float, Term]], scale: float, tensor: str, so_far: Match
    ) -> Iterator[tuple[Match, float]]:
        """Matches of scale · tensor = number + Σ terms, with the number."""
        tensor, so_far = self._before_expanding([term for _, term in terms], tensor, so_far)
        value = self._number(tensor)
        if value is not None:
            if not terms:
                yield so_far, scale * value
            return
        if not terms:
            return
        if len(terms) == 1:
            ((coefficient, term),) = terms
            for match in self.match(_times(coefficient / scale, term), tensor, so_far):
                yield match, 0.0
        node = self._maker(tensor, so_far)
        if node is None:
            return
        within = so_far.through(node)
        match node.op_type:
            case "Add" | "Sub":
                second = -scale if node.op_type == "Sub" else scale
                for chosen in _splits(len(terms)):
                    first_terms = [term for term, is_first in zip(terms, chosen, strict=True) if is_first]
                    right = [term for term, is_first in zip(terms, chosen, strict=True) if not is_first]
                    for match, first in self._sum(first_terms, scale, node.inputs[0], within):
                        for both, added in self._sum(right, second, node.inputs[1], match):
                            yield both, first + added
            case "Neg":
                yield from self._sum(terms, -scale, node.inputs[0], within)
            case "Mul" | "Div":
                for inner, factor in self._scaled(node):
                    yield from self._sum(terms, scale * factor, inner, within)

    def _product(
        self, powers: Sequence[tuple[Term, float]], exponent: float, tensor: str, so_far: Match
    ) -> Iterator[tuple[Match, float]]:
        """Matches of tensor ^ exponent = factor · Π powers, with the factor."""
        tensor, so_far = self._before_expanding([term for term, _ in powers], tensor, so_far)
        value = self._number(tensor)
        if value is not None and not powers and (value > 0 or (value and exponent == round(exponent))):
            yield so_far, value**exponent
        if len(powers) == 1 and isclose(powers[0][1], exponent):
            for match in self.match(powers[0][0], tensor, so_far):
                yield match, 1.0
        node = self._maker(tensor, so_far)
        if node is not None and powers and tensor not in self.constants:
            yield from self._product_in(node, powers, exponent, so_far.through(node))

    def _product_in(
        self, node: OperatorNode, powers: Sequence[tuple[Term, float]], exponent: float, within: Match
    ) -> Iterator[tuple[Match, float]]:
        match node.op_type:
            case "Mul" | "Div":
                second = -exponent if node.op_type == "Div" else exponent
                for left, right in _distributions(powers, exponent, second):
                    for match, first in self._product(left, exponent, node.inputs[0], within):
                        for both, other in self._product(right, second, node.inputs[1], match):
                            yield both, first * other
            case "Neg" if exponent == round(exponent):
                for match, factor in self._product(powers, exponent, node.inputs[0], within):
                    yield match, factor * (-1) ** round(exponent)
            case "Reciprocal" | "Sqrt":
                power = -1.0 if node.op_type == "Reciprocal" else 0.5
                yield from self._product(powers, exponent * power, node.inputs[0], within)
            case "Pow":
                power = self._number(node.inputs[1]) or 0.0
                if power:
                    yield from self._product(powers, exponent * power, node.inputs[0], within)

    def _limits(self, term: Limits, tensor: str, so_far: Match, low: float, high: float) -> Iterator[Match]:
        """Matches of the term with the tensor, which is then clipped to [low, high] by the nodes found so far."""
        if (low, high) == (term.low, term.high):
            yield from self.match(term.term, tensor, so_far)
        node = self._maker(tensor, so_far)
        if node is None:
            return
        bounds: tuple[float | None, float | None] = None, None
        inner = node.inputs[0]
        match node.op_type:
            case "Relu":
                bounds = 0.0, inf
            case "Clip":
                bounds = self._bound(node, 1, "min", -inf), self._bound(node, 2, "max", inf)
            case "Max" | "Min" if len(node.inputs) == 2:
                first, second = node.inputs
                inner, other = (second, first) if first in self.constants else (first, second)
                limit = self._number(other)
                bounds = (limit, inf) if node.op_type == "Max" else (-inf, limit)
        if bounds[0] is not None and bounds[1] is not None and bounds[0] < high and bounds[1] > low:
            limited = max(low, bounds[0]), min(high, bounds[1])
            yield from self._limits(term, inner, so_far.through(node), *limited)

    def _bound(self, node: OperatorNode, operand: int, attribute: str, absent: float) -> float | None:
        if node.operand(operand):
            return self._number(node.operand(operand))
        return float(node.attributes.get(attribute, absent))

    def _reduced(self, term: Reduced, tensor: str, so_far: Match) -> Iterator[Match]:
        """Matches of a reduction; a mean may also be a sum that is divided by the number of its terms, `count`."""
        node = self._maker(tensor, so_far)
        if node is None:
            return
        if node.op_type == term.op_type:
            axes = self._attribute(node, "axes")
            if axes:
                yield from self.match(term.term, node.inputs[0], so_far.through(node).over(term.axes, axes))
        elif term.op_type == "ReduceMean" and node.op_type in ("Mul", "Div"):
            total = Reduced("ReduceSum", term.term, term.axes)
            for inner, factor in self._scaled(node):
                if 0 < factor <= 1 and isclose(factor * round(1 / factor), 1, rel_tol=1e-6):
                    for match in _if_matched(so_far.through(node).attribute("count", round(1 / factor))):
                        yield from self.match(total, inner, match)

    def _call(self, term: OperatorTerm, tensor: str, so_far: Match) -> Iterator[Match]:
        node = self._maker(tensor, so_far)
        if node is None or node.op_type != term.op_type or node.outputs[0] != tensor:
            return
        match: Match | None = so_far.through(node)
        for name, value in term.required.items():
            if not _same_value(value, node.attributes.get(name, value)):
                return
        for name, attribute in term.captured:
            match = None if match is None else match.attribute(attribute, self._attribute(node, name))
        count = len(term.operands)
        if match is None or (any(node.inputs[count:]) and not term.captured):
            return
        orders = [node.inputs[:count]]
        if node.op_type in COMMUTATIVE:
            orders.append(node.inputs[:count][::-1])
        for order in orders:
            if len(order) == count:
                yield from self._match_each(term.operands, order, match)

    def _match_each(self, terms: Sequence[Term], tensors: Sequence[str], so_far: Match) -> Iterator[Match]:
        if not terms:
            yield so_far
            return
        for match in self.match(terms[0], tensors[0], so_far):
            yield from self._match_each(terms[1:], tensors[1:], match)

    def _attribute(self, node: OperatorNode, name: str) -> Any:
        """An attribute, or the constant second operand that replaces it in newer opsets; None without either."""
        array = self.constants.get(node.operand(1))
        value = node.attributes.get(name, None if array is None else array.reshape(-1).tolist())
        return tuple(value) if isinstance(value, list) else value

    def _maker(self, tensor: str, so_far: Match) -> OperatorNode | None:
        """The ONNX node that computes a tensor; None if it lacks operands, or the match has `MAX_NODES` nodes."""
        node = self.makers.get(tensor)
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise _SearchLimitError
        if node is None or node.domain or len(so_far.used) > MAX_NODES:
            return None
        return node if len(node.inputs) >= (2 if node.op_type in BINARY else 1) else None

    def _number(self, tensor: str) -> float | None:
        """The only element of a constant, as the shortest decimal that is equal to it; None for other tensors."""
        array = self.constants.get(tensor)
        return float(str(array.reshape(-1)[0])) if array is not None and array.size == 1 else None

    def _scaled(self, node: OperatorNode) -> Iterator[tuple[str, float]]:
        """The other operand of a product with a number or of a division by a number, and the factor."""
        first, second = map(self._number, node.inputs)
        if second:
            yield node.inputs[0], 1 / second if node.op_type == "Div" else second
        if first and node.op_type == "Mul":
            yield node.inputs[1], first


def _fixed(model: ImportedGraph) -> set[str]:
    fixed = {*model.constants, ""}
    for node in model.nodes:
        if node.op_type == "Shape" or fixed.issuperset((*node.inputs, *node.captured)):
            fixed.update(node.outputs)
    return fixed


def _if_matched(match: Match | None) -> Iterator[Match]:
    if match is not None:
        yield match


def _times(factor: float, term: Term) -> Term:
    return term if isclose(factor, 1.0) and not isinstance(term, ProductTerm) else factor * term


@cache
def _splits(count: int) -> list[tuple[bool, ...]]:
    """Splits of `count` terms between two operands, even splits first, which are the most likely."""
    return sorted(product((True, False), repeat=count), key=lambda chosen: abs(2 * sum(chosen) - count))


def _distributions(
    powers: Sequence[tuple[Term, float]], first: float, second: float
) -> Iterator[tuple[list[tuple[Term, float]], list[tuple[Term, float]]]]:
    """The ways to distribute factors over two operands, whose exponents are `first` and `second`.

    A factor goes to one operand as a whole, or one operand gets it once and the other the rest (x³ = x · x²).
    """
    choices = []
    for term, exponent in powers:
        ways = [((term, exponent), None), (None, (term, exponent))]
        rests = {(first, exponent - first), (exponent - second, second)}
        ways += [((term, left), (term, right)) for left, right in rests if left * right * first * second > 0]
        choices.append(ways)
    every = list(product(*choices))
    for chosen in sorted(
        every, key=lambda ways: abs(sum((left is not None) - (right is not None) for left, right in ways))
    ):
        yield [left for left, _ in chosen if left], [right for _, right in chosen if right]


def _same_value(want: Any, have: Any) -> bool:
    both = isinstance(want, (int, float)) and isinstance(have, (int, float))
    return isclose(want, have, rel_tol=TOLERANCE) if both else bool(want == have)


class Form(Enum):
    """The axes of a tensor in a pattern, compared with the axes of its input."""

    FULL = "the same axes"
    KEPT = "those that were reduced have size 1"
    DROPPED = "those that were reduced are gone"


def holds(
    parts: Sequence[OperatorNode],
    about: str,
    shape: Sequence[int],
    axes: Sequence[int],
    constants: Mapping[str, NDArray[Any]],
) -> bool:
    """Whether the nodes, in order, compute their pattern on `about`, of this shape, with reductions over `axes`."""
    sizes = {
        Form.FULL: list(shape),
        Form.KEPT: [1 if axis in axes else size for axis, size in enumerate(shape)],
        Form.DROPPED: [size for axis, size in enumerate(shape) if axis not in axes],
    }
    forms = {about: Form.FULL}
    for node in parts:
        read = [forms[name] for name in node.inputs if name in forms]
        if node.op_type.startswith("Reduce"):
            form = Form.KEPT if node.attributes["keepdims"] else Form.DROPPED
        elif node.op_type in EXPANDING:
            reshaped_sizes = _expanded_shape(node, sizes[read[0]], constants)
            expanded = node.op_type == "Expand" and read == [Form.KEPT] and reshaped_sizes == sizes[Form.FULL]
            if not expanded and (reshaped_sizes != sizes[Form.KEPT] or Form.FULL in read):
                return False
            form = Form.FULL if expanded else Form.KEPT
        else:
            weights = any(name in constants and constants[name].size > 1 for name in node.inputs)
            if Form.DROPPED in read and (weights or {*read} != {Form.DROPPED}):
                return False
            form = Form.FULL if Form.FULL in read else read[0]
        forms[node.outputs[0]] = form
    return forms[parts[-1].outputs[0]] is not Form.DROPPED if parts else True


def _expanded_shape(node: OperatorNode, sizes: list[int], constants: Mapping[str, NDArray[Any]]) -> list[int]:
    """The sizes of the result of Reshape, Unsqueeze or Expand; empty if they are unknown."""
    shape = constants.get(node.operand(1))
    target = list(node.attributes.get("axes", ())) if shape is None else shape.reshape(-1).tolist()
    match node.op_type:
        case "Unsqueeze":
            rank = len(sizes) + len(target)
            added, remaining = {axis % rank for axis in target}, iter(sizes)
            return [1 if axis in added else next(remaining) for axis in range(rank)]
        case "Expand":
            return list(np.broadcast_shapes(tuple(sizes), tuple(target)))
    reshaped = [sizes[index] if size == 0 and index < len(sizes) else size for index, size in enumerate(target)]
    fixed_size = prod(size for size in reshaped if size != -1)
    return [prod(sizes) // fixed_size if size == -1 and fixed_size else size for size in reshaped]
