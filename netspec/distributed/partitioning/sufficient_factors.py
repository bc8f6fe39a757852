"""Sufficient factors: find gradients that are products over the rows of a batch, and compute them from all rows.

The gradient of a matrix that multiplies a batch is xᵀ dy, a sum over all rows. Instead of its partial sums, workers can
send the rows of x and dy, the sufficient factors: Zhang et al. 2017, "Poseidon", section 3.2. Each worker computes
terms of a gradient that depend on the parameters alone, such as the gradient of a penalty, by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from netspec.graph.graph import rebuild, topological_order
from netspec.graph.ops.all_gather import FactorPair, SufficientFactorPlan, UsesFactors
from netspec.graph.ops.all_reduce import WEIGHT
from netspec.graph.ops.elementwise import Add
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.shape import Transpose
from netspec.graph.ops.source import Input
from netspec.graph.value import Node, Value

OVER_ROWS = MatMul(transpose_a=True)


def products(gradient: Value) -> list[Node] | None:
    """The products over rows that a gradient is the sum of; None where it is made in another way."""
    if _is_product(gradient):
        return [gradient.node]
    if not _passes(gradient):
        return [] if _of_parameters(gradient) else None
    found = [products(value) for value in gradient.inputs]
    terms = [node for one in found if one is not None for node in one]
    return None if None in found else terms


def sum_factors(gradient: Value, product: Callable[[Node], Value], total: Value) -> Value:
    """The sum of all workers' gradients, of which `product` makes the products, and `total` is that of the weights.

    Gradients rise in proportion to the weight of the loss, those of penalties too.
    """
    if _is_product(gradient):
        return product(gradient.node)
    if _passes(gradient):
        return rebuild(gradient.node, [sum_factors(value, product, total) for value in gradient.inputs])[0]
    new: dict[Value, Value] = {}
    for node in topological_order([gradient]):
        inputs = tuple(new[value] for value in node.inputs)
        made = (total,) if _is_weight(node) else node.outputs if inputs == node.inputs else rebuild(node, inputs)
        new.update(zip(node.outputs, made, strict=True))
    return new[gradient]


def key(factor: Value) -> object:
    """Return a key that is equal for two values of the same matrix."""
    return factor.base, factor.shape


def factor_shapes(gradients: Mapping[str, Value], samples: int) -> dict[str, tuple[FactorPair, ...]]:
    """Return the factors of each gradient that is a sum of products with an equal number of rows for each sample."""
    numbers: dict[object, int] = {}
    found = {}
    for name, gradient in gradients.items():
        terms = products(gradient)
        if terms and all(node.inputs[0].shape[0] % samples == 0 for node in terms):
            found[name] = tuple(
                FactorPair(
                    node.inputs[0].shape[0] // samples, *node.types[0].shape,
                    *(numbers.setdefault(key(value), len(numbers)) for value in node.inputs),
                )
                for node in terms
            )  # fmt: skip
    return found


def choose_factors(
    choice: UsesFactors, workers: int, most: int, gradients: Callable[[int], Mapping[str, Value]]
) -> tuple[SufficientFactorPlan, frozenset[str]]:
    """What is made of factors, by the gradients of a number of samples; and the layers for which that is possible.

    All workers must find the same, whatever the size of their batch: the graphs of one sample and of two tell what
    rises with their number.
    """
    one, two = (gradients(samples) for samples in (1, 2))
    alike = factor_shapes(two, 2)
    possible = {name: terms for name, terms in factor_shapes(one, 1).items() if alike.get(name) == terms}
    layers = {name: one[name].node.scope.layer for name in possible}
    chosen = {name: terms for name, terms in possible.items() if choice(layers[name], terms)}
    return SufficientFactorPlan(workers, most, chosen), frozenset(layers.values())


def _is_product(value: Value) -> bool:
    return value.op == OVER_ROWS and all(len(one.shape) == 2 for one in value.inputs) and not _of_parameters(value)


def _passes(value: Value) -> bool:
    """Whether the sum of all workers' values is the same of the sums of their operands."""
    return value.op.traits.view or isinstance(value.op, (Add, Transpose))


def _of_parameters(value: Value) -> bool:
    """Whether it is computed from states alone, times the weight of what a worker has."""
    return all(_is_weight(node) or not isinstance(node.op, Input) for node in topological_order([value]))


def _is_weight(node: Node) -> bool:
    return isinstance(node.op, Input) and node.op.label == WEIGHT
