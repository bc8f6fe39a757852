"""Nodes that only compute on constants (a reshaped kernel, a target shape) are computed while importing."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

from netspec.exchange.onnx_import.computing import compute
from netspec.exchange.onnx_import.model import Node, Unsupported

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_ELEMENTS = 2**27
"""A constant that grows beyond this while it is computed is taken for malice."""


def fold(node: Node, operands: list[NDArray[Any] | None]) -> list[NDArray[Any]]:
    """The results of a node whose operands are all constant (None: left out). Raises `Unsupported`."""
    import numpy as np

    function = _FOLDS.get(node.op_type) if not node.domain else None
    if function is None:
        return compute(node, operands)
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(function(node, *operands))
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, AttributeError) as error:
        raise Unsupported(f"its constant operands do not fit: {error}") from error
    return [result]


def _constant(node: Node) -> Any:
    import numpy as np

    for key, dtype in (("value", None), ("value_float", "float32"), ("value_floats", "float32"),
                       ("value_int", "int64"), ("value_ints", "int64")):  # fmt: skip
        if key in node.attributes:
            return np.asarray(node.attributes[key], dtype)
    raise ValueError("a constant of another kind than numbers")


def target_shape(target: list[int], shape: tuple[int, ...], allow_zero: bool = False) -> tuple[int, ...]:
    """The shape that ONNX's Reshape gives: 0 keeps an axis, one -1 becomes what remains. Raises `ValueError`."""
    sizes = [shape[axis] if size == 0 and not allow_zero else size for axis, size in enumerate(target)]
    known = prod(size for size in sizes if size != -1)
    if -1 in sizes:
        if known == 0 or prod(shape) % known:
            raise ValueError(f"{list(shape)} cannot take the shape {target}")
        sizes[sizes.index(-1)] = prod(shape) // known
    if prod(sizes) != prod(shape) or min(sizes, default=1) < 0:
        raise ValueError(f"{list(shape)} cannot take the shape {target}")
    return tuple(sizes)


def squeezed(shape: tuple[int, ...], axes: list[int] | None) -> tuple[int, ...]:
    """`shape` without its axes of size 1, or without those in `axes`."""
    dropped = (
        {axis % len(shape) for axis in axes} if axes is not None else {i for i, size in enumerate(shape) if size == 1}
    )
    if any(shape[axis] != 1 for axis in dropped):
        raise ValueError(f"axes {sorted(dropped)} of {list(shape)} cannot be squeezed")
    return tuple(size for axis, size in enumerate(shape) if axis not in dropped)


def unsqueezed(shape: tuple[int, ...], axes: list[int]) -> tuple[int, ...]:
    """`shape` with axes of size 1 put in so that they are at `axes` of the result."""
    rank = len(shape) + len(axes)
    places, rest = {axis % rank for axis in axes}, iter(shape)
    if len(places) != len(axes):
        raise ValueError(f"axes {axes} are given twice")
    return tuple(1 if axis in places else next(rest) for axis in range(rank))


def _axes(node: Node, operand: Any) -> list[int] | None:
    """Axes as newer opsets give them, in an operand, or as older ones do, in an attribute."""
    given = operand.tolist() if operand is not None else node.attributes.get("axes")
    return None if given is None else list(given)


def _cast(node: Node, x: Any) -> Any:
    return x.astype(element_type(node.attributes["to"]))


def element_type(code: int) -> str:
    """NumPy's name of an ONNX element type. Raises `ValueError` for one that is no number."""
    names = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool",
             10: "float16", 11: "float64", 12: "uint32", 13: "uint64"}  # fmt: skip
    if code not in names:
        raise ValueError(f"element type {code} is not read")
    return names[code]


def _slice(node: Node, x: Any, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None) -> Any:
    begin = starts.tolist() if starts is not None else node.attributes["starts"]
    end = ends.tolist() if ends is not None else node.attributes["ends"]
    over = _axes(node, axes) or list(range(len(begin)))
    step = steps.tolist() if steps is not None else [1] * len(begin)
    cut = [slice(None)] * x.ndim
    for axis, *bounds in zip(over, begin, end, step, strict=True):
        cut[axis] = slice(*bounds)
    return x[tuple(cut)]


def _expand(x: Any, shape: tuple[int, ...]) -> Any:
    import numpy as np

    full = np.broadcast_shapes(x.shape, shape)
    _bounded(prod(full))
    return np.broadcast_to(x, full)


def _constant_of_shape(node: Node, shape: Any) -> Any:
    import numpy as np

    value = node.attributes.get("value")
    return _expand(np.zeros((), "float32") if value is None else value.reshape(()), tuple(shape.tolist()))


def _binary(operator: str) -> Callable[..., Any]:
    def compute(node: Node, a: Any, b: Any) -> Any:
        import numpy as np

        shape = np.broadcast_shapes(a.shape, b.shape)
        _bounded(prod(shape))
        if operator == "divide" and a.dtype.kind in "iu":
            return np.trunc(a / b).astype(a.dtype)
        return getattr(np, operator)(a, b)

    return compute


def _concat(node: Node, *parts: Any) -> Any:
    import numpy as np

    _bounded(sum(part.size for part in parts))
    return np.concatenate(parts, node.attributes["axis"])


def _gather(node: Node, x: Any, index: Any) -> Any:
    axis = node.attributes["axis"]
    _bounded(x.size // max(1, x.shape[axis]) * index.size)
    return x.take(index, axis=axis)


def _bounded(elements: int) -> None:
    if elements > MAX_ELEMENTS:
        raise ValueError(f"{elements:,} elements are too many")


# What nearly every model has; others are computed by the reference of the onnx package, which is slow to load.
_FOLDS: dict[str, Callable[..., Any]] = {
    "Constant": _constant,
    "Identity": lambda node, x: x,
    "Reshape": lambda node, x, shape: x.reshape(
        target_shape(shape.tolist(), x.shape, bool(node.attributes.get("allowzero")))
    ),
    "Transpose": lambda node, x: x.transpose(node.attributes.get("perm")),
    "Squeeze": lambda node, x, axes=None: x.reshape(squeezed(x.shape, _axes(node, axes))),
    "Unsqueeze": lambda node, x, axes=None: x.reshape(unsqueezed(x.shape, _axes(node, axes) or [])),
    "Flatten": lambda node, x: x.reshape(prod(x.shape[: node.attributes["axis"]]), -1),
    "Cast": _cast,
    "Concat": _concat,
    "Gather": _gather,
    "Slice": _slice,
    "Expand": lambda node, x, shape: _expand(x, tuple(shape.tolist())),
    "ConstantOfShape": _constant_of_shape,
    "Shape": lambda node, x: list(x.shape),
    "Add": _binary("add"),
    "Sub": _binary("subtract"),
    "Mul": _binary("multiply"),
    "Div": _binary("divide"),
    "Neg": lambda node, x: -x,
    "Sqrt": lambda node, x: x**0.5,
}
