"""Matrix products: Dense and MatMul."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.axis_view import Axes
from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.nodes import Expansion
from netspec.exchange.lift.registry import rule
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import UnsupportedFeature


@rule("MatMul")
def matmul(ctx: LiftContext, node: OperatorNode) -> None:
    """x · constant matrix → Dense, whose bias may come from a following Add; other products → MatMul."""
    x, other = node.inputs
    rank = ctx.tensors.rank(other) if other in ctx.tensors.constants and x not in ctx.tensors.constants else 0
    if rank == 2:
        _dense(ctx, node, x, ctx.tensors.constants[other])
    elif rank == 1:  # a column, whose axis is then removed from the result
        product_name = ctx.tensors.fresh_name(node.outputs[0])
        _dense(ctx, replace(node, outputs=(product_name,)), x, ctx.tensors.constants[other][:, None])
        ctx.reshaping.reshape(node, product_name, ctx.tensors.shape(product_name)[:-1])
    else:
        _add_matmul(ctx, node)


def _dense(
    ctx: LiftContext, node: OperatorNode, x: str, kernel: NDArray[Any], bias: NDArray[Any] | None = None
) -> None:
    """Add a Dense; the axes before the last may be stored in any order."""
    ctx.tensors.axis(x, -1)
    view = ctx.layers.view_with_single_axes(x, -1)
    if view.axis(-1) != ctx.tensors.rank_in_net(x) - 1:
        ctx.layers.value(x)
        view = ctx.tensors.view(x)
    fields = {"units": kernel.shape[1], "use_bias": bias is not None}
    arrays = {"kernel": kernel} | ({} if bias is None else {"bias": bias})
    ctx.layers.add(node, "Dense", [view.source], fields, arrays, result_axes=lambda rank: view.axes)


def _add_matmul(ctx: LiftContext, node: OperatorNode) -> None:
    """Add a MatMul; a Transpose of an operand becomes `transpose_a` or `transpose_b`.

    A vector becomes a matrix of one row or column, which is then removed from the result.
    """
    ranks = [ctx.tensors.rank(name) for name in node.inputs]
    if min(ranks) == 0:
        raise UnsupportedFeature("one of its operands is a scalar")
    names = [_matrix(ctx, node, name, index) for index, name in enumerate(node.inputs)]
    product_name = ctx.tensors.fresh_name(node.outputs[0]) if 1 in ranks else node.outputs[0]
    sources, fields, result_axes = _product_operands(ctx, names)
    ctx.layers.add(node, "MatMul", sources, fields, outputs=[product_name], result_axes=result_axes)
    if 1 in ranks:
        shape = ctx.tensors.shape(product_name)
        rows, columns = shape[-2:-1] if ranks[0] > 1 else (), shape[-1:] if ranks[1] > 1 else ()
        ctx.reshaping.reshape(node, product_name, (*shape[:-2], *rows, *columns))


def _product_operands(
    ctx: LiftContext, names: list[str]
) -> tuple[list[str], dict[str, Any], Callable[[int], Axes] | None]:
    """The operands, fields and result axes of a product; transposed operands are read as they are stored."""
    sources, fields, fronts = [], {}, []
    for name, field in zip(names, ("transpose_a", "transpose_b"), strict=True):
        if not ctx.tensors.is_computed(name):
            return ctx.layers.broadcast_operands(names), {}, None
        view, last = ctx.tensors.view(name), ctx.tensors.rank_in_net(name) - 1
        if view.axes[-2:] == ((last,), (last - 1,)):
            fields[field] = True
        elif view.axes[-2:] != ((last - 1,), (last,)):
            view = ctx.reshaping.ordered_view(name)
        sources.append(view.source)
        fronts.append((view.axes[:-2], last))
    if fronts[0] != fronts[1] or 0 in (axis for axes in ctx.tensors.view(names[0]).axes[-2:] for axis in axes):
        return ctx.layers.broadcast_operands(names), {}, None
    front, last = fronts[0]
    if [axis for axes in front for axis in axes] != list(range(ctx.tensors.axis_offset, last - 1)):
        return ctx.layers.broadcast_operands(names), {}, None
    return sources, fields, lambda rank: (*front, (rank - 2,), (rank - 1,))


def _matrix(ctx: LiftContext, node: OperatorNode, name: str, index: int) -> str:
    """The operand as a matrix: a vector becomes a row if it is the first operand, else a column."""
    shape = ctx.tensors.shape(name)
    if len(shape) != 1:
        return name
    target = (1, *shape) if index == 0 else (*shape, 1)
    matrix = ctx.tensors.fresh_name(name)
    if name in ctx.tensors.constants:
        ctx.tensors.constants[matrix] = ctx.tensors.constants[name].reshape(target)
    else:
        ctx.reshaping.reshape(node, name, target, matrix)
    return matrix


@rule("Gemm")
def gemm(ctx: LiftContext, node: OperatorNode) -> None:
    """alpha · x · B + beta · C with constant B and C → Dense; others are decomposed."""
    x, other, third = node.inputs[0], node.inputs[1], node.operand(2)
    bias = ctx.tensors.constants.get(third) if third else np.zeros(())
    plain = bias is not None and bias.size in (1, ctx.tensors.shape(other)[0 if node.attributes["transB"] else 1])
    if bias is not None and bias.ndim == 2 and bias.shape[0] != 1:
        plain = False
    if other not in ctx.tensors.constants or x in ctx.tensors.constants or node.attributes["transA"] or not plain:
        _decomposed(ctx, node)
        return
    kernel = ctx.tensors.constants[other]
    if kernel.ndim != 2:
        raise UnsupportedFeature("its kernel is not a matrix")
    kernel = kernel.T if node.attributes["transB"] else kernel
    alpha, beta = node.attributes["alpha"], node.attributes["beta"]
    kernel = kernel if alpha == 1 else kernel * kernel.dtype.type(alpha)
    if third and bias is not None:
        bias = np.broadcast_to(bias.reshape(-1), (kernel.shape[1],))
        bias = bias if beta == 1 else bias * bias.dtype.type(beta)
    _dense(ctx, node, x, kernel, bias if third else None)


def _decomposed(ctx: LiftContext, node: OperatorNode) -> None:
    """Decompose Gemm into Transpose, MatMul, Mul and Add."""
    steps = Expansion(ctx, node)
    a, b = (
        steps.node("Transpose", name, perm=[1, 0]) if node.attributes[field] else name
        for name, field in zip(node.inputs, ("transA", "transB"), strict=False)
    )
    y = steps.node("MatMul", a, b)
    if node.attributes["alpha"] != 1:
        y = steps.node("Mul", y, steps.number(node.attributes["alpha"]))
    if node.operand(2):
        c = node.operand(2)
        if node.attributes["beta"] != 1:
            c = steps.node("Mul", c, steps.number(node.attributes["beta"]))
        y = steps.node("Add", y, c)
    steps.lift()
