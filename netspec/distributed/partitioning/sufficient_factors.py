"""Sufficient factors: find gradients that are products over the rows of a batch, and compute them from all rows.

The gradient of a matrix that multiplies a batch is xᵀ dy, a sum over all rows. Instead of its partial sums, workers can
send the rows of x and dy, the sufficient factors: Zhang et al. 2017, "Poseidon", section 3.2. Terms of a
gradient that depend only on the parameters, such as the gradient of a penalty, are computed by each worker.
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
    """Return the products over rows whose sum is a gradient; None if the gradient is computed in another way."""
    if _is_product(gradient):
        return [gradient.node]
    if not _is_linear(gradient):
        return [] if _ignores_batch(gradient) else None
    by_input = [products(value) for value in gradient.inputs]
    terms = [node for nodes in by_input if nodes is not None for node in nodes]
    return None if None in by_input else terms


def sum_factors(gradient: Value, product: Callable[[Node], Value], total: Value) -> Value:
    """Return the sum of all workers' gradients. `product` computes its products, `total` is the sum of weights.

    All gradients, also of penalties, are proportional to the weight of the loss.
    """
    if _is_product(gradient):
        return product(gradient.node)
    if _is_linear(gradient):
        return rebuild(gradient.node, [sum_factors(value, product, total) for value in gradient.inputs])[0]
    new: dict[Value, Value] = {}
    for node in topological_order([gradient]):
        inputs = tuple(new[value] for value in node.inputs)
        outputs = (total,) if _is_weight(node) else node.outputs if inputs == node.inputs else rebuild(node, inputs)
        new.update(zip(node.outputs, outputs, strict=True))
    return new[gradient]


def key(factor: Value) -> object:
    """Return a key that is equal for two values of the same matrix."""
    return factor.base, factor.shape


def factor_shapes(gradients: Mapping[str, Value], samples: int) -> dict[str, tuple[FactorPair, ...]]:
    """Return the factors of each gradient that is a sum of products with a fixed number of rows per sample."""
    numbers: dict[object, int] = {}
    shapes = {}
    for name, gradient in gradients.items():
        terms = products(gradient)
        if terms and all(node.inputs[0].shape[0] % samples == 0 for node in terms):
            shapes[name] = tuple(
                FactorPair(
                    node.inputs[0].shape[0] // samples, *node.types[0].shape,
                    *(numbers.setdefault(key(value), len(numbers)) for value in node.inputs),
                )
                for node in terms
            )  # fmt: skip
    return shapes


def choose_factors(
    choice: UsesFactors, workers: int, most: int, gradients: Callable[[int], Mapping[str, Value]]
) -> tuple[SufficientFactorPlan, frozenset[str]]:
    """Choose the gradients that are computed from factors; also return the layers for which that is possible.

    All workers must make the same choice, whatever the size of their batch: the graphs of one and of two samples show
    which dimensions grow with the batch. `gradients` returns the gradients for a number of samples.
    """
    of_one, of_two = (gradients(samples) for samples in (1, 2))
    two_shapes = factor_shapes(of_two, 2)
    possible = {name: terms for name, terms in factor_shapes(of_one, 1).items() if two_shapes.get(name) == terms}
    layers = {name: of_one[name].node.scope.layer for name in possible}
    chosen = {name: terms for name, terms in possible.items() if choice(layers[name], terms)}
    return SufficientFactorPlan(workers, most, chosen), frozenset(layers.values())


def _is_product(value: Value) -> bool:
    return (
        value.op == OVER_ROWS and all(len(operand.shape) == 2 for operand in value.inputs) and not _ignores_batch(value)
    )


def _is_linear(value: Value) -> bool:
    """Return whether the op is linear: applied to sums over workers, it returns the sum of the workers' results."""
    return value.op.traits.view or isinstance(value.op, (Add, Transpose))


def _ignores_batch(value: Value) -> bool:
    """Return whether a value depends only on states and on the worker's weight."""
    return all(_is_weight(node) or not isinstance(node.op, Input) for node in topological_order([value]))


def _is_weight(node: Node) -> bool:
    return isinstance(node.op, Input) and node.op.label == WEIGHT
