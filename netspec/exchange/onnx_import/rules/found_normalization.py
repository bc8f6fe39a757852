"""Normalizations and softmaxes that were several nodes."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from netspec.exchange.onnx_import.model import Node, Unsupported
from netspec.exchange.onnx_import.patterns.finding import DOMAIN, PARTS
from netspec.exchange.onnx_import.patterns.normalization import LAYER, ROOT_MEAN_SQUARE, UNIT
from netspec.exchange.onnx_import.patterns.sizes import holds
from netspec.exchange.onnx_import.rules.activations import softmax
from netspec.exchange.onnx_import.rules.arithmetic import with_constant
from netspec.exchange.onnx_import.translate import Translator, rule

if TYPE_CHECKING:
    from numpy.typing import NDArray


@rule(ROOT_MEAN_SQUARE)
def root_mean_square(net: Translator, node: Node) -> None:
    """ONNX's own operator, over the last axes from `axis` on."""
    x, scale = node.inputs
    net.constant(scale, "scale")
    rank = net.rank(x)
    axes = tuple(range(node.attributes["axis"] % rank, rank))
    normalization(net, replace(node, attributes={"axes": {axes}, "epsilon": node.attributes["epsilon"]}))


@rule(LAYER, ROOT_MEAN_SQUARE, UNIT, domain=DOMAIN)
def normalization(net: Translator, node: Node) -> None:
    """The layer of that name; a factor and an offset that do not lie along its axes become Scale and Bias behind it."""
    import numpy as np

    source, gamma, beta = (node.operand(index) for index in range(3))
    if not {gamma, beta, ""} <= {*net.constants, ""}:
        raise Unsupported("its factor or offset is no constant")
    shape, axes = net.shape(source), _axes(net, node)
    held = [net.axis(source, axis) for axis in axes]
    fields: dict[str, Any] = {} if axes == [len(shape) - 1] else {"axis": held if len(held) > 1 else held[0]}
    if node.op_type != UNIT:
        fields["epsilon"] = node.attributes["epsilon"]
    arrays = {}
    behind: list[tuple[str, str]] = []
    for name, tensor, operator in (("gamma", gamma, "Mul"), ("beta", beta, "Add")):
        along = _along(net.constants[tensor], shape, axes) if tensor else None
        if tensor and (along is None or behind or node.op_type == UNIT):
            behind.append((operator, tensor))
        elif along is not None:
            arrays[name] = along
    if node.op_type == LAYER:
        fields |= {name: False for name, made in (("scale", "gamma"), ("center", "beta")) if made not in arrays}
    elif node.op_type == ROOT_MEAN_SQUARE:
        arrays["scale"] = arrays.pop("gamma", np.ones([shape[axis] for axis in axes], "float32"))
    made = [*(f"{node.outputs[0]} {operator}" for operator, _ in behind), node.outputs[0]]
    net.add(node, node.op_type, [source], fields, arrays, outputs=made[:1])
    for (operator, tensor), before, after in zip(behind, made, made[1:], strict=False):
        with_constant(net, replace(node, inputs=(before, tensor), outputs=(after,)), before, tensor, operator)


@rule("Softmax", "LogSoftmax", domain=DOMAIN)
def as_softmax(net: Translator, node: Node) -> None:
    """ONNX's operator."""
    (axis,) = _axes(net, node)
    softmax(net, replace(node, attributes={"axis": axis}, opset=13, domain=""))


def _axes(net: Translator, node: Node) -> list[int]:
    """The axes that means and sums of the operand are over, upwards."""
    source = node.inputs[0]
    shape = net.shape(source)
    axes, *others = {tuple(sorted(axis % len(shape) for axis in one)) for one in node.attributes["axes"]}
    count, size = node.attributes.get("count"), prod(shape[axis] for axis in axes)
    parts = node.attributes.get(PARTS, ())
    if (
        not net.dtype(source).is_float
        or others
        or count not in (None, size)
        or not holds(parts, source, shape, axes, net.constants)
    ):
        raise Unsupported("what is summed over axes meets others")
    return list(axes)


def _along(constant: NDArray[Any], shape: tuple[int, ...], axes: list[int]) -> NDArray[Any] | None:
    """The constant as numbers along the axes; None if it varies along others, or does not along these."""
    full = (1,) * (len(shape) - constant.ndim) + constant.shape
    wanted = tuple(size if axis in axes else 1 for axis, size in enumerate(shape))
    return constant.reshape([shape[axis] for axis in axes]) if full == wanted else None
