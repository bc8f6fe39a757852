"""Matrix products: Dense and MatMul."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from netspec.exchange.onnx_import.model import Node, Unsupported
from netspec.exchange.onnx_import.tensors import Axes
from netspec.exchange.onnx_import.translate import Steps, Translator, rule

if TYPE_CHECKING:
    from numpy.typing import NDArray


@rule("MatMul")
def matmul(net: Translator, node: Node) -> None:
    """x · constant matrix → Dense, to which a following Add adds a bias; of two others → MatMul."""
    x, other = node.inputs
    rank = net.rank(other) if other in net.constants and x not in net.constants else 0
    if rank == 2:
        _dense(net, node, x, net.constants[other])
    elif rank == 1:  # a column, which is left out of the result
        made = net.hide(node.outputs[0])
        _dense(net, replace(node, outputs=(made,)), x, net.constants[other][:, None])
        net.reshape(node, made, net.shape(made)[:-1])
    else:
        _of_two(net, node)


def _dense(net: Translator, node: Node, x: str, kernel: NDArray[Any], bias: NDArray[Any] | None = None) -> None:
    """Dense, whatever the order of the axes in front of the last."""
    net.axis(x, -1)
    view = net.lying(x, -1)
    if view.axis(-1) != net.net_rank(x) - 1:
        net.value(x)
        view = net.held(x)
    fields: dict[str, Any] = {"units": kernel.shape[1]} | ({} if bias is not None else {"use_bias": False})
    arrays = {"kernel": kernel} | ({} if bias is None else {"bias": bias})
    net.add(node, "Dense", [view.source], fields, arrays, laid=lambda rank: view.axes)


def _of_two(net: Translator, node: Node) -> None:
    """A product in each sample; operands that were transposed before are left as they were.

    Vectors are made matrices of one row or column, which is left out of the result.
    """
    ranks = [net.rank(name) for name in node.inputs]
    if min(ranks) == 0:
        raise Unsupported("a product with a number")
    names = [_matrix(net, node, name, place) for place, name in enumerate(node.inputs)]
    made = net.hide(node.outputs[0]) if 1 in ranks else node.outputs[0]
    sources, fields, laid = _straight(net, names)
    net.add(node, "MatMul", sources, fields, outputs=[made], laid=laid)
    if 1 in ranks:
        shape = net.shape(made)
        rows, columns = shape[-2:-1] if ranks[0] > 1 else (), shape[-1:] if ranks[1] > 1 else ()
        net.reshape(node, made, (*shape[:-2], *rows, *columns))


def _straight(net: Translator, names: list[str]) -> tuple[list[str], dict[str, Any], Callable[[int], Axes] | None]:
    """What to multiply, with which fields, and how the product lies in that: transposed where the operand is."""
    sources, fields, fronts = [], {}, []
    for name, field in zip(names, ("transpose_a", "transpose_b"), strict=True):
        if not net.is_computed(name):
            return net.operands(names), {}, None
        view, last = net.held(name), net.net_rank(name) - 1
        if view.axes[-2:] == ((last,), (last - 1,)):
            fields[field] = True
        elif view.axes[-2:] != ((last - 1,), (last,)):
            view = net.straight(name)
        sources.append(view.source)
        fronts.append((view.axes[:-2], last))
    if fronts[0] != fronts[1] or 0 in (axis for axes in net.held(names[0]).axes[-2:] for axis in axes):
        return net.operands(names), {}, None
    front, last = fronts[0]
    if [axis for axes in front for axis in axes] != list(range(net.lead, last - 1)):
        return net.operands(names), {}, None
    return sources, fields, lambda rank: (*front, (rank - 2,), (rank - 1,))


def _matrix(net: Translator, node: Node, name: str, place: int) -> str:
    """An operand that is a vector as a row in front of the sign, as a column behind it."""
    shape = net.shape(name)
    if len(shape) != 1:
        return name
    target = (1, *shape) if place == 0 else (*shape, 1)
    made = net.hide(name)
    if name in net.constants:
        net.constants[made] = net.constants[name].reshape(target)
    else:
        net.reshape(node, name, target, made)
    return made


@rule("Gemm")
def gemm(net: Translator, node: Node) -> None:
    """alpha · x · B + beta · C with constant B and C → Dense; with others a product, factors and a sum."""
    import numpy as np

    x, other, third = node.inputs[0], node.inputs[1], node.operand(2)
    bias = net.constants.get(third) if third else np.zeros(())
    plain = bias is not None and bias.size in (1, net.shape(other)[0 if node.attributes["transB"] else 1])
    if bias is not None and bias.ndim == 2 and bias.shape[0] != 1:
        plain = False
    if other not in net.constants or x in net.constants or node.attributes["transA"] or not plain:
        _in_steps(net, node)
        return
    kernel = net.constants[other]
    if kernel.ndim != 2:
        raise Unsupported("its kernel is no matrix")
    kernel = kernel.T if node.attributes["transB"] else kernel
    alpha, beta = node.attributes["alpha"], node.attributes["beta"]
    kernel = kernel if alpha == 1 else kernel * kernel.dtype.type(alpha)
    if third and bias is not None:
        bias = np.broadcast_to(bias.reshape(-1), (kernel.shape[1],))
        bias = bias if beta == 1 else bias * bias.dtype.type(beta)
    _dense(net, node, x, kernel, bias if third else None)


def _in_steps(net: Translator, node: Node) -> None:
    """Gemm as the operators that it is made of."""
    import numpy as np

    steps = Steps(net, node)
    a, b = (
        steps.of("Transpose", name, perm=[1, 0]) if node.attributes[field] else name
        for name, field in zip(node.inputs, ("transA", "transB"), strict=False)
    )
    y = steps.of("MatMul", a, b)
    if node.attributes["alpha"] != 1:
        y = steps.of("Mul", y, steps.constant(np.float32(node.attributes["alpha"])))
    if node.operand(2):
        c = node.operand(2)
        if node.attributes["beta"] != 1:
            c = steps.of("Mul", c, steps.constant(np.float32(node.attributes["beta"])))
        y = steps.of("Add", y, c)
    steps.run()
