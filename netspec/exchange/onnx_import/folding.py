"""Nodes that only compute on constants (a reshaped kernel, a target shape) are computed while importing.

Most by ONNX's reference implementation; what only moves numbers about, or makes one number many, by NumPy: that is
quick for the largest of weights, and repeated numbers take no room. How large a result becomes is known before it is
computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from netspec.exchange.onnx_import.model import Node, Unsupported

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

MAX_ELEMENTS = 2**27
"""A constant that grows beyond this while it is computed is taken for malice."""
MAX_COMPUTED = 2**22
"""Numbers that the reference implementation is given or makes: of some operators it loops over them in Python."""
MAX_KNOWN = 2**12
"""Numbers of an operand that are looked at to tell the shape of the result: shapes, ranges, axes."""


def fold(node: Node, operands: Sequence[NDArray[Any] | None]) -> tuple[NDArray[Any], ...]:
    """The results of a node whose operands are all constant (None: left out). Raises `Unsupported`."""
    import numpy as np

    try:
        with np.errstate(all="ignore"):
            function = _FOLDS.get(node.op_type) if not node.domain else None
            if function is not None:
                return (np.asarray(function(node, *operands)),)
            return _computed(node, operands)
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, AttributeError) as error:
        raise Unsupported(f"its constant operands do not fit: {error}") from error


def _computed(node: Node, operands: Sequence[NDArray[Any] | None]) -> tuple[NDArray[Any], ...]:
    """By ONNX's reference implementation."""
    import numpy as np
    from onnx.reference import ReferenceEvaluator

    model = _model_of(node, operands)
    large = _inferred(node, model)
    if large > MAX_COMPUTED:
        raise ValueError(f"{large:,} elements are too many")
    given = {name: array for name, array in zip(node.inputs, operands, strict=True) if array is not None}
    try:
        found = ReferenceEvaluator(model).run(None, given)
    except Exception as error:  # whatever an operator's own code meets in operands that it was not made for
        raise ValueError(str(error).partition("\n")[0] or type(error).__name__) from error
    arrays = tuple(np.asarray(one) for one in found)
    if len(arrays) != len([name for name in node.outputs if name]) or any(one.dtype.kind not in "fiub" for one in arrays):
        raise ValueError("the results are not numbers")
    filled = iter(arrays)
    return tuple(next(filled) if name else np.zeros(0) for name in node.outputs)


def _model_of(node: Node, operands: Sequence[NDArray[Any] | None]) -> onnx.ModelProto:
    """A model of the node alone; small operands are initializers as well, so that shapes can follow from them."""
    import onnx
    from onnx import helper, numpy_helper

    try:
        schema = onnx.defs.get_schema(node.op_type, node.opset, node.domain)
    except onnx.defs.SchemaError:
        raise Unsupported("this operator is not computed on constants") from None
    if node.domain or schema.non_deterministic:
        raise Unsupported("this operator is not computed on constants")
    attributes = {
        name: numpy_helper.from_array(value) if hasattr(value, "dtype") else value
        for name, value in node.attributes.items()
        if value not in ([], ()) or hasattr(value, "dtype")
    }
    made = helper.make_node(node.op_type, node.inputs, node.outputs, **attributes)
    given = {name: array for name, array in zip(node.inputs, operands, strict=True) if array is not None}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
    ]
    known = [numpy_helper.from_array(array, name) for name, array in given.items() if array.size <= MAX_KNOWN]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.outputs if name]
    graph = helper.make_graph([made], "node", inputs, outputs, known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", node.opset)])


def _inferred(node: Node, model: onnx.ModelProto) -> int:
    """How many numbers are read and made. Where that depends on them, no more can be made than a few for each."""
    import onnx

    try:
        told = onnx.shape_inference.infer_shapes(model, data_prop=True, strict_mode=True)
    except onnx.shape_inference.InferenceError as error:
        raise ValueError(str(error).rpartition("] ")[2].strip()) from error
    read = [[size.dim_value for size in one.type.tensor_type.shape.dim] for one in told.graph.input]
    total = sum(map(prod, read))
    for one in told.graph.output:
        kind = one.type.tensor_type
        sizes = kind.shape.dim
        if one.type.WhichOneof("value") != "tensor_type":
            raise ValueError("the result is no tensor")
        if kind.HasField("shape") and all(size.HasField("dim_value") for size in sizes):
            total += prod(size.dim_value for size in sizes)
        elif total > MAX_KNOWN:
            raise ValueError(f"how large its result is cannot be told from {total:,} elements")
    return total


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


def element_type(code: int) -> str:
    """NumPy's name of an ONNX element type. Raises `ValueError` for one that is no number."""
    names = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool",
             10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 16: "float32"}  # fmt: skip
    if code not in names:
        raise ValueError(f"element type {code} is not read")
    return names[code]


def _constant(node: Node) -> Any:
    import numpy as np

    for key, dtype in (("value", None), ("value_float", "float32"), ("value_floats", "float32"),
                       ("value_int", "int64"), ("value_ints", "int64"), ("sparse_value", None)):  # fmt: skip
        if key in node.attributes:
            return np.asarray(node.attributes[key], dtype)
    raise ValueError("a constant of another kind than numbers")


def _axes(node: Node, operand: Any) -> list[int] | None:
    """Axes as newer opsets give them, in an operand, or as older ones do, in an attribute."""
    given = operand.tolist() if operand is not None else node.attributes.get("axes")
    return None if given is None else list(given)


def _flat(node: Node, x: Any) -> Any:
    axis = node.attributes["axis"]
    return x.reshape(prod(x.shape[: axis if axis >= 0 else axis + x.ndim]), -1)


def _expand(x: Any, shape: tuple[int, ...]) -> Any:
    import numpy as np

    full = np.broadcast_shapes(x.shape, shape)
    if prod(full) > MAX_ELEMENTS:
        raise ValueError(f"{prod(full):,} elements are too many")
    return np.broadcast_to(x, full)


def _constant_of_shape(node: Node, shape: Any) -> Any:
    import numpy as np

    value = node.attributes.get("value")
    return _expand(np.zeros((), "float32") if value is None else value.reshape(()), tuple(shape.tolist()))


_FOLDS: dict[str, Callable[..., Any]] = {
    "Constant": _constant,
    "Identity": lambda node, x: x,
    "Reshape": lambda node, x, shape: x.reshape(
        target_shape(shape.tolist(), x.shape, bool(node.attributes.get("allowzero")))
    ),
    "Transpose": lambda node, x: x.transpose(node.attributes.get("perm")),
    "Squeeze": lambda node, x, axes=None: x.reshape(squeezed(x.shape, _axes(node, axes))),
    "Unsqueeze": lambda node, x, axes=None: x.reshape(unsqueezed(x.shape, _axes(node, axes) or [])),
    "Flatten": _flat,
    "Cast": lambda node, x: x.astype(element_type(node.attributes["to"])),
    "Expand": lambda node, x, shape: _expand(x, tuple(shape.tolist())),
    "ConstantOfShape": _constant_of_shape,
    "Shape": lambda node, x: list(x.shape)[node.attributes.get("start", 0) : node.attributes.get("end")],
    "Size": lambda node, x: x.size,
}
"""What only moves numbers about or repeats them, and shapes."""
