"""ONNX's operators of single numbers, and those that make one number of several, as operations of Keras."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from netspec.exchange.keras_export.lowering import (
    Lowering,
    Made,
    Operator,
    known,
    operator,
    tensor,
    whole,
)
from netspec.exchange.keras_export.model import OPS_LINALG, OPS_MATH, OPS_NN, OPS_NUMPY
from netspec.exchange.keras_export.values import Unwritable
from netspec.exchange.keras_names import keras_snake
from netspec.exchange.onnx_emit import OnnxNode

_NAMES: Mapping[str, tuple[str, str]] = {
    "Abs": ("Absolute", OPS_NUMPY), "Acos": ("Arccos", OPS_NUMPY), "Acosh": ("Arccosh", OPS_NUMPY),
    "Add": ("Add", OPS_NUMPY), "And": ("LogicalAnd", OPS_NUMPY), "Asin": ("Arcsin", OPS_NUMPY),
    "Asinh": ("Arcsinh", OPS_NUMPY), "Atan": ("Arctan", OPS_NUMPY), "Atanh": ("Arctanh", OPS_NUMPY),
    "BitwiseAnd": ("BitwiseAnd", OPS_NUMPY), "BitwiseNot": ("BitwiseNot", OPS_NUMPY),
    "BitwiseOr": ("BitwiseOr", OPS_NUMPY), "BitwiseXor": ("BitwiseXor", OPS_NUMPY), "Ceil": ("Ceil", OPS_NUMPY),
    "Cos": ("Cos", OPS_NUMPY), "Cosh": ("Cosh", OPS_NUMPY), "Erf": ("Erf", OPS_MATH), "Exp": ("Exp", OPS_NUMPY),
    "Floor": ("Floor", OPS_NUMPY), "Log": ("Log", OPS_NUMPY), "Mul": ("Multiply", OPS_NUMPY),
    "Neg": ("Negative", OPS_NUMPY), "Not": ("LogicalNot", OPS_NUMPY), "Or": ("LogicalOr", OPS_NUMPY),
    "Pow": ("Power", OPS_NUMPY), "Reciprocal": ("Reciprocal", OPS_NUMPY), "Relu": ("Relu", OPS_NN),
    "Round": ("Round", OPS_NUMPY), "Sigmoid": ("Sigmoid", OPS_NN), "Sign": ("Sign", OPS_NUMPY),
    "Sin": ("Sin", OPS_NUMPY), "Sinh": ("Sinh", OPS_NUMPY), "Softplus": ("Softplus", OPS_NN),
    "Sqrt": ("Sqrt", OPS_NUMPY), "Sub": ("Subtract", OPS_NUMPY), "Tan": ("Tan", OPS_NUMPY),
    "Tanh": ("Tanh", OPS_NUMPY), "Xor": ("LogicalXor", OPS_NUMPY),
}  # fmt: skip
"""Operators that give the type that they read, and the operations that they are."""
_CONDITIONS: Mapping[str, str] = {
    "Equal": "Equal", "Greater": "Greater", "GreaterOrEqual": "GreaterEqual", "Less": "Less",
    "LessOrEqual": "LessEqual", "IsNaN": "Isnan", "IsInf": "Isinf",
}  # fmt: skip


def joined(low: Lowering, kind: str, operands: Sequence[Any], element: str = "", module: str = OPS_NUMPY) -> Any:
    """An operation of single numbers, of operands that are repeated along axes as they need it."""
    import numpy as np

    if not any(isinstance(one, Made) for one in operands):
        return getattr(np, keras_snake(kind))(*map(known, operands))
    shape = np.broadcast_shapes(*(one.shape for one in operands))
    numbers = not kind.startswith("Bitwise")  # which want to know the type of each
    return low.op(kind, [low.broadcast(one, operands, numbers) for one in operands], shape, element, module=module)


def _named(kind: str, module: str) -> Operator:
    def write(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
        return joined(low, kind, operands, module=module)

    return write


def _condition(kind: str) -> Operator:
    def write(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
        return joined(low, kind, operands, "bool")

    return write


for _type, (_kind, _module) in _NAMES.items():
    operator(_type, elements=True)(_named(_kind, _module))
for _type, _kind in _CONDITIONS.items():
    operator(_type, elements=True)(_condition(_kind))


@operator("Identity", elements=True)
def identity(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """What is there already."""
    return operands[0]


@operator("Div", elements=True)
def divide(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Of whole numbers the fraction is cut off, towards 0."""
    x, y = operands
    if "float" in str(x.dtype):
        return joined(low, "TrueDivide", operands)
    left = joined(low, "Subtract", [x, joined(low, "Fmod", operands)])
    return joined(low, "FloorDivide", [left, y])


@operator("Mod", elements=True)
def modulo(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Of the sign of the divisor, or with `fmod` of what is divided."""
    return joined(low, "Fmod" if node.attributes.get("fmod") else "Mod", operands)


@operator("BitShift", elements=True)
def shifted(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """By so many bits."""
    way = str(node.attributes["direction"]).capitalize()
    return joined(low, f"Bitwise{way}Shift", operands)


@operator("Max", "Min", elements=True)
def extreme(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Of as many operands as there are."""
    found = operands[0]
    for one in operands[1:]:
        found = joined(low, f"{node.op_type}imum", [found, one])
    return found


@operator("Clip", elements=True)
def clip(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Limits, of which one may be missing."""
    x, *limits = operands
    for kind, limit in zip(("Maximum", "Minimum"), limits, strict=False):
        if limit is not None:
            x = joined(low, kind, [x, limit])
    return x


@operator("Where", elements=True)
def where(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """One or the other."""
    import numpy as np

    condition, a, b = operands
    if isinstance(condition, np.ndarray) and condition.size == 1:
        return a if condition.item() else b
    return joined(low, "Where", operands, str(a.dtype))


@operator("Elu", "LeakyRelu", elements=True)
def of_number(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Functions with a number of their own."""
    (x,), alpha = operands, float(node.attributes.get("alpha", 1.0 if node.op_type == "Elu" else 0.01))
    name = "alpha" if node.op_type == "Elu" else "negative_slope"
    told: dict[str, Any] = {name: alpha}
    return low.op("Elu" if name == "alpha" else "LeakyRelu", [x], x.shape, module=OPS_NN, **told)


@operator("PRelu", elements=True)
def slopes(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Numbers below 0 times a slope of each place."""
    import numpy as np

    x, slope = operands
    above = joined(low, "Maximum", [x, np.array(0, x.dtype)])
    below = joined(low, "Minimum", [x, np.array(0, x.dtype)])
    return joined(low, "Add", [above, joined(low, "Multiply", [below, slope])])


@operator("Cast", elements=True)
def cast(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Another element type."""
    (x,) = operands
    dtype = str(node.attributes["to"])
    return low.cast(x, dtype) if isinstance(x, Made) else known(x).astype(dtype)


@operator("BitCast")
def bits(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """The same bits as another type."""
    x, dtype = tensor(operands[0]), str(node.attributes["to"])
    return low.op("View", [x], x.shape, dtype, dtype=dtype)


# Several numbers made one


def _axes(node: OnnxNode, operands: Sequence[Any], rank: int) -> list[int]:
    given = node.attributes.get("axes")
    if given is None and len(operands) > 1 and operands[1] is not None:
        given = whole(operands[1])
    return sorted(int(axis) % rank for axis in (range(rank) if given is None else given))


def without(shape: Sequence[int], axes: Sequence[int], keep: bool) -> list[int]:
    """The shape without these axes; or with 1 in their places."""
    if keep:
        return [1 if axis in axes else size for axis, size in enumerate(shape)]
    return [size for axis, size in enumerate(shape) if axis not in axes]


def reduced(low: Lowering, kind: str, x: Made, axes: Sequence[int], keep: bool = True, module: str = OPS_NUMPY) -> Made:
    """One number along some axes."""
    shape = without(x.shape, axes, keep)
    given = axes[0] if len(axes) == 1 else list(axes)
    return low.op(kind, [x], shape, module=module, axis=given, keepdims=keep)


_REDUCTIONS = {"ReduceSum": "Sum", "ReduceMean": "Mean", "ReduceMax": "Max", "ReduceMin": "Min", "ReduceProd": "Prod"}


@operator(*_REDUCTIONS)
def reduction(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Their sum, mean, maximum …"""
    x = tensor(operands[0])
    axes = _axes(node, operands, len(x.shape))
    return reduced(low, _REDUCTIONS[node.op_type], x, axes, bool(node.attributes.get("keepdims", 1)))


@operator("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
def of_sums(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """A function of a sum."""
    x = tensor(operands[0])
    axes, keep = _axes(node, operands, len(x.shape)), bool(node.attributes.get("keepdims", 1))
    if node.op_type == "ReduceLogSumExp":
        return reduced(low, "Logsumexp", x, axes, keep, OPS_MATH)
    if node.op_type == "ReduceL2":
        squares = reduced(low, "Sum", joined(low, "Square", [x]), axes, keep)
        return joined(low, "Sqrt", [squares])
    return joined(low, "Log", [reduced(low, "Sum", x, axes, keep)])


@operator("ArgMax", "ArgMin")
def place(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """The place of the greatest number, or the least; the last of equal ones is the first from the other end."""
    x, axis = tensor(operands[0]), int(node.attributes.get("axis", 0)) % len(operands[0].shape)
    keep = bool(node.attributes.get("keepdims", 1))
    last = bool(node.attributes.get("select_last_index", 0))
    read = low.op("Flip", [x], x.shape, axis=axis) if last else x
    kind = node.op_type.capitalize()
    shape = without(x.shape, [axis], keep)
    found = low.op(kind, [read], shape, "int32", axis=axis, keepdims=keep)
    if last:
        found = low.op("Subtract", [x.shape[axis] - 1, found], shape)
    return low.cast(found, "int64")


@operator("Hardmax")
def hardmax(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """1 at the place of the greatest number."""
    x = tensor(operands[0])
    axis = int(node.attributes.get("axis", -1)) % len(x.shape)
    found = low.op("Argmax", [x], without(x.shape, [axis], False), "int32", axis=axis, keepdims=False)
    return told(low, found, x.shape[axis], axis, x.dtype)


def told(low: Lowering, places: Made, depth: int, axis: int, element: str) -> Made:
    """1 at these places of a new axis, 0 at all others."""
    rank = len(places.shape) + 1
    shape = [*places.shape, depth]
    made = low.op("OneHot", [places], shape, element, module=OPS_NN, num_classes=depth, axis=-1, dtype=element)
    return low.turned(made, [rank - 1 if at == axis else at - (at > axis) for at in range(rank)])


@operator("OneHot")
def one_hot(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Two numbers: Keras has 1 and 0."""
    import numpy as np

    x, values = tensor(operands[0]), known(operands[2])
    (depth,), element = whole(operands[1]), str(values.dtype)
    x = counted(low, x, depth)
    made = told(low, x, depth, int(node.attributes.get("axis", -1)) % (len(x.shape) + 1), "float32")
    if values.tolist() == [0, 1]:
        return low.cast(made, element)
    above = joined(low, "Greater", [made, np.array(0.5, "float32")], "bool")
    return joined(low, "Where", [above, values[1:], values[:1]], element)


def counted(low: Lowering, places: Made, size: Any) -> Any:
    """Places of which those below 0 are counted from the end."""
    import numpy as np

    below = joined(low, "Less", [places, np.array(0, places.dtype)], "bool")
    turned = joined(low, "Add", [places, np.asarray(size, places.dtype)])
    return joined(low, "Where", [below, turned, places], places.dtype)


@operator("Softmax", "LogSoftmax")
def softmax(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Along an axis."""
    x = tensor(operands[0])
    axis = int(node.attributes.get("axis", -1)) % len(x.shape)
    return low.op(node.op_type, [x], x.shape, module=OPS_NN, axis=axis)


@operator("CumSum", "CumProd")
def cumulative(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Up to each number, or without it; from the start, or from the end."""
    x, (axis,) = tensor(operands[0]), whole(operands[1])
    axis %= len(x.shape)
    backwards = bool(node.attributes.get("reverse"))
    found = low.op("Flip", [x], x.shape, axis=axis) if backwards else x
    if node.attributes.get("exclusive"):
        width = [[1, 0] if one == axis else [0, 0] for one in range(len(x.shape))]
        kept = low.part(found, axis, slice(0, x.shape[axis] - 1))
        found = low.op("Pad", [kept], x.shape, pad_width=width, mode="constant", kwargs={"constant_values": 0})
    found = low.op(node.op_type.capitalize(), [found], x.shape, axis=axis, dtype=None)
    return low.op("Flip", [found], x.shape, axis=axis) if backwards else found


@operator("Det")
def determinant(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Of each matrix."""
    x = tensor(operands[0])
    return low.op("Det", [x], x.shape[:-2], module=OPS_LINALG)


@operator("TopK")
def top(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Along the last axis, the greatest: other axes are turned, the least are the greatest of the negative."""
    x, (k,) = tensor(operands[0]), whole(operands[1])
    rank = len(x.shape)
    axis = int(node.attributes.get("axis", -1)) % rank
    turn = [*(one for one in range(rank) if one != axis), axis]
    back = sorted(range(rank), key=turn.__getitem__)
    least = not node.attributes.get("largest", 1)
    read = low.turned(x, turn)
    read = low.op("Negative", [read], read.shape) if least else read
    shape = [*read.shape[:-1], k]
    made = low.op("TopK", [read], shape, module=OPS_MATH, k=k, sorted=True)
    found, index = low.others(made, [shape, shape], made.dtype, "int32")
    found = low.op("Negative", [found], shape) if least else found
    return low.turned(found, back), low.cast(low.turned(index, back), "int64")


@operator("MatMul")
def matmul(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Of matrices, of which there may be several."""
    import numpy as np

    a, b = operands
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = [*lead, *([a.shape[-2]] if len(a.shape) > 1 else []), *([b.shape[-1]] if len(b.shape) > 1 else [])]
    return low.op("Matmul", [a, b], shape)


@operator("MatMulInteger")
def whole_matmul(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Of whole numbers less those that stand for 0: in floats, which tell them apart up to 2^24."""
    a, b, *zeros = [*operands, None, None][:4]
    made = matmul(low, node, [less(low, a, zeros[0]), less(low, b, zeros[1])])
    return low.cast(tensor(made), "int32")


def less(low: Lowering, x: Any, zero: Any) -> Any:
    """Whole numbers as floats, less the one that stands for 0."""
    x = as_float(low, x)
    return x if zero is None else joined(low, "Subtract", [x, as_float(low, zero)])


def as_float(low: Lowering, x: Any) -> Any:
    """An operand as floats."""
    return low.cast(x, "float32") if isinstance(x, Made) else known(x).astype("float32")


@operator("Einsum")
def einsum(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """As an equation says."""
    equation = str(node.attributes["equation"]).replace(" ", "")
    reads, _, gives = equation.partition("->")
    sizes: dict[str, int] = {}
    for letters, one in zip(reads.split(","), operands, strict=True):
        if "." in letters:
            raise Unwritable("its equation has axes without letters")
        sizes |= {
            letter: size for letter, size in zip(letters, one.shape, strict=True) if size != 1 or letter not in sizes
        }
    return low.op("Einsum", list(operands), [sizes[letter] for letter in gives], subscripts=equation)
