"""Write layers that Keras does not have as operations of Keras: one or more for each ONNX operator of the layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.formats.keras.elementwise_table import ACTIVATIONS, BINARY, CONDITIONS, UNARY, operation_class
from netspec.exchange.formats.keras.exporting.axes import net_order
from netspec.exchange.formats.keras.exporting.model import (
    OPS_CORE,
    OPS_LINALG,
    OPS_MATH,
    OPS_NN,
    OPS_NUMPY,
    KerasTensor,
)
from netspec.exchange.formats.keras.exporting.writer import KerasWriter
from netspec.exchange.formats.keras.names import keras_snake
from netspec.exchange.lower.emit import differences, emit
from netspec.exchange.operator_graph.constant_folding import fold
from netspec.exchange.operator_graph.graph import LoweredGraph, OperatorNode
from netspec.exchange.rule_table import RuleTable
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.graph.graph import Graph, rebuild, topological_order
from netspec.graph.ops.softmax import Hardmax, LogSoftmax, Softmax
from netspec.graph.ops.source import Input, State, constant
from netspec.graph.value import Node, Value, in_scope
from netspec.schema.specs.links import LayerLink

BATCH_SIZES = (3, 5)
"""Batch sizes for which a layer is lowered: sizes that differ depend on the batch."""
MAX_CONSTANTS = 1_000_000
"""Largest number of elements of a layer's constants, which are stored as text in the configuration."""


@dataclass(frozen=True)
class EmittedTensor:
    """A tensor of the model, and its shape for a batch of the first size in `BATCH_SIZES`."""

    tensor: KerasTensor
    shape: tuple[int, ...]

    @property
    def dtype(self) -> str:
        """The element type."""
        return self.tensor.dtype


@dataclass(frozen=True)
class SymbolicSizes:
    """A list of sizes; `None` is the batch size of a tensor."""

    sizes: tuple[int | None, ...]
    batch_tensor: EmittedTensor


DECOMPOSED = ("Resize", "RoiAlignMax", "ScatterND", "LSTM")
"""Ops that are decomposed before they are written. Keras resizes at other positions, does not have RoI pooling,
scatters by a single index only, and its LSTM lacks some options, so that it is written step by step."""

FOLDED = ("Concat", "Expand", "Gather", "MatMul", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that are computed if all operands are constants: they change shapes, or compute parameters of layers."""

Operand: TypeAlias = "EmittedTensor | SymbolicSizes | NDArray[Any]"
Operator: TypeAlias = "Callable[[OperationWriter, OperatorNode, Sequence[Any]], Any]"
"""Returns an operand, or several."""
OPERATORS: RuleTable[Operator] = RuleTable("netspec.exchange.formats.keras.exporting")
"""The functions that write operators of ONNX; missing operands are None."""
ELEMENTWISE: set[str] = set()
"""Elementwise operators."""


def operator(*types: str, elements: bool = False) -> Callable[[Operator], Operator]:
    """Register the function that writes operators of these types; `elements` marks elementwise ones."""
    ELEMENTWISE.update(types if elements else ())
    return OPERATORS.register(*types)


def write_as_operations(writer: KerasWriter, link: LayerLink, inputs: Sequence[KerasTensor]) -> Sequence[KerasTensor]:
    """Write a layer as operations of Keras. Raises `UnsupportedFeature` if Keras lacks one of its operators."""
    graphs = [_lowered_layer(writer, link, size) for size in BATCH_SIZES]
    problems = list(differences(*graphs).values())
    if problems:
        raise UnsupportedFeature(f"{problems[0][1]} depends on the batch size")
    return OperationWriter(writer, link, graphs[0]).write(inputs)


class OperationWriter:
    """Writes one layer, operator by operator."""

    def __init__(self, writer: KerasWriter, link: LayerLink, graph: LoweredGraph) -> None:
        self.writer, self.link, self.graph = writer, link, graph
        self.order: tuple[int, ...] | None = None
        """Order of the axes of all tensors, if all operators are elementwise; None: as in the net."""
        self._flattened_from: KerasTensor | None = None
        self._values: dict[str, Operand] = dict(graph.constants)

    def write(self, inputs: Sequence[KerasTensor]) -> list[KerasTensor]:
        """Write the operators, and return the outputs of the layer."""
        self._set_inputs(inputs)
        if sum(array.size for array in self.graph.constants.values()) > MAX_CONSTANTS:
            raise UnsupportedFeature(
                f"Keras would store its weights as constants, with more than {MAX_CONSTANTS:,} elements"
            )
        for node in self.graph.nodes:
            self._values |= dict(zip(node.outputs, self._write_node(node), strict=False))
        return [self._output(name) for name in self.graph.outputs]

    def _write_node(self, node: OperatorNode) -> Sequence[Operand]:
        """Write an operator, and return its results: constants if all its operands are constants."""
        operands = [self._values[name] if name else None for name in node.inputs]
        is_constant = not any(isinstance(operand, EmittedTensor | SymbolicSizes) for operand in operands)
        if is_constant and node.op_type in FOLDED:
            return fold(node, operands)  # type: ignore[arg-type]  # all are arrays or None
        write = OPERATORS.all().get(node.op_type)
        if write is None:
            raise UnsupportedFeature(f"Keras has no operation like ONNX's {node.op_type}")
        results = write(self, node, operands)
        return results if isinstance(results, tuple) else (results,)

    def _set_inputs(self, inputs: Sequence[KerasTensor]) -> None:
        """Set the inputs, in the net's order unless all operators are elementwise."""
        names = dict(enumerate(dict.fromkeys(self.link.sources)))
        read_indices = [index for index in names if f"source:{index}" in self.graph.inputs]
        tensors = [inputs[self.link.sources.index(names[index])] for index in read_indices]
        ranks = {len(tensor.order) for tensor in tensors} | {
            tensor_type.rank for tensor_type in self.graph.outputs.values()
        }
        if len(ranks) == 1 and all(node.op_type in ELEMENTWISE for node in self.graph.nodes):
            has_arrays = any(array.size > 1 for array in self.graph.constants.values())
            if len(tensors) == 1 and not has_arrays:
                self.order, self._flattened_from = tensors[0].order, tensors[0].flattened_from
            else:
                tensors = [self.writer.with_net_features(tensor) for tensor in tensors]
                self.order = next((tensor.order for tensor in tensors if not tensor.plain), tensors[0].order)
                tensors = [self.writer.permuted(tensor, self.order) for tensor in tensors]
        else:
            tensors = [self.writer.plain(tensor) for tensor in tensors]
        for index, tensor in zip(read_indices, tensors, strict=True):
            tensor_type = self.graph.inputs[f"source:{index}"]
            self._values[f"source:{index}"] = self.cast(
                EmittedTensor(tensor, tensor_type.shape), str(tensor_type.dtype)
            )

    def _output(self, name: str) -> KerasTensor:
        """An output, as a tensor of the model with the net's element type."""
        value, tensor_type = self._values[name], self.graph.outputs[name]
        if isinstance(value, SymbolicSizes) or not isinstance(value, EmittedTensor):
            raise UnsupportedFeature("its output does not depend on its input")
        return self.cast(value, str(tensor_type.dtype)).tensor

    # Used by operators.

    def op(
        self, kind: str, args: Sequence[Any], shape: Sequence[int], element: str = "", *, module: str = OPS_NUMPY,
        kwargs: Mapping[str, Any] | None = None, **config: Any,
    ) -> EmittedTensor:  # fmt: skip
        """Add an operation with these arguments; its element type is by default that of the first tensor."""
        element = element or next(_tensors(args)).dtype
        order = self.order or net_order(len(shape))
        tensor = self.writer.helper(
            f"{self.link.name}_{keras_snake(kind)}", kind, [model_argument(argument) for argument in args],
            tuple(shape[axis] for axis in order[1:]), order, module=module, element=element,
            flattened_from=self._flattened_from,
            kwargs=kwargs, **config,
        )  # fmt: skip
        return EmittedTensor(tensor, tuple(shape))

    def outputs(self, first: EmittedTensor, shapes: Sequence[Sequence[int]], *dtypes: str) -> tuple[EmittedTensor, ...]:
        """All outputs of an operation, given the first output and the shapes of all."""
        all_dtypes = [*dtypes, *[first.dtype] * (len(shapes) - len(dtypes))]
        return tuple(
            EmittedTensor(replace(first.tensor, index=index, shape=tuple(shape[1:]), dtype=dtype), tuple(shape))
            for index, (shape, dtype) in enumerate(zip(shapes, all_dtypes, strict=True))
        )

    def elementwise(self, kind: str, *operands: Any, element: str = "", module: str = OPS_NUMPY) -> Any:
        """Add an elementwise operation with broadcasting; a constant if all operands are constants."""
        if not any(isinstance(operand, EmittedTensor) for operand in operands):
            return getattr(np, keras_snake(kind))(*map(as_constant, operands))
        shape = np.broadcast_shapes(*(operand.shape for operand in operands))
        allow_scalars = not kind.startswith("Bitwise")  # the result depends on the dtype of each operand
        arguments = [self.broadcast(operand, operands, allow_scalars) for operand in operands]
        return self.op(kind, arguments, shape, element, module=module)

    def broadcast(self, operand: Operand, operands: Sequence[Operand], allow_scalar: bool = True) -> Any:
        """An operand of an elementwise operation: a constant with equal elements becomes a scalar."""
        if isinstance(operand, EmittedTensor):
            return operand
        array = as_constant(operand)
        broadcast_shape = _broadcast_shape(
            [
                other_operand.shape
                for other_operand in operands
                if other_operand is not operand and not isinstance(other_operand, SymbolicSizes)
            ]
        )
        if (
            allow_scalar
            and array.size
            and (array == array.flat[0]).all()
            and _broadcast_shape([broadcast_shape, array.shape]) == broadcast_shape
        ):
            return array.flat[0].item()
        if self.order is None:
            return array
        return array.reshape((1,) * (len(self.order) - array.ndim) + array.shape).transpose(self.order)

    def cast(self, x: EmittedTensor, dtype: str) -> EmittedTensor:
        """The tensor with another element type."""
        return x if x.dtype == dtype else self.op("Cast", [x], x.shape, dtype, module=OPS_CORE, dtype=dtype)

    def reshaped(self, x: EmittedTensor, shape: Sequence[int]) -> EmittedTensor:
        """Reshape a tensor; the first size is inferred."""
        if tuple(shape) == x.shape:
            return x
        return self.op("Reshape", [x], shape, newshape=[-1, *shape[1:]])

    def transposed(self, x: EmittedTensor, axes: Sequence[int]) -> EmittedTensor:
        """Transpose a tensor."""
        axes = list(axes)
        return x if axes == sorted(axes) else self.op("Transpose", [x], [x.shape[axis] for axis in axes], axes=axes)

    def cropped(self, x: Any, shape: Sequence[int], axis: int) -> Any:
        """Slice a tensor to these sizes along all axes except one."""
        for other_axis, size in enumerate(shape):
            if other_axis not in (0, axis) and size < x.shape[other_axis]:
                x = (
                    self.sliced(x, other_axis, slice(0, size))
                    if isinstance(x, EmittedTensor)
                    else x.take(range(size), other_axis)
                )
        return x

    def sliced(self, x: EmittedTensor, axis: int, slice_: slice) -> EmittedTensor:
        """Slice a tensor along an axis."""
        size = len(range(*slice_.indices(x.shape[axis])))
        shape = [*x.shape[:axis], size, *x.shape[axis + 1 :]]
        return self.op("GetItem", [x, [*[slice(None)] * axis, slice_]], shape)


def as_constant(operand: Operand | None) -> NDArray[Any]:
    """An operand that is a constant. Raises `UnsupportedFeature` if it is not."""
    if not isinstance(operand, np.ndarray):
        raise UnsupportedFeature("an argument is computed that must be constant in Keras")
    return operand


def as_integers(operand: Operand | None) -> list[int]:
    """An operand that is a list of integers."""
    return [int(element) for element in as_constant(operand).ravel()]


def _tensors(value: Any) -> Iterator[EmittedTensor]:
    if isinstance(value, EmittedTensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def model_argument(value: Any) -> Any:
    """An argument of an operation in the model."""
    if isinstance(value, EmittedTensor):
        return value.tensor
    return [model_argument(item) for item in value] if isinstance(value, (list, tuple)) else value


def _broadcast_shape(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(np.broadcast_shapes(*map(tuple, shapes)))


def _lowered_layer(writer: KerasWriter, link: LayerLink, size: int) -> LoweredGraph:
    """The operators of a layer for a batch of that size; its inputs are called `source:0` and so on."""
    graph = writer.graph_for(size)
    sources = {graph.named[name]: f"source:{index}" for index, name in enumerate(dict.fromkeys(link.sources))}
    lowered_graph, problems = emit(_layer_graph(writer, link, graph, sources))
    if problems:
        raise UnsupportedFeature(problems[0].got or problems[0].message)
    return lowered_graph


def _layer_graph(writer: KerasWriter, link: LayerLink, graph: Graph, sources: Mapping[Value, str]) -> Graph:
    """The graph of one layer, with constants folded."""
    copies: dict[Value, Value] = {value: Input(name, value.type)() for value, name in sources.items()}
    results = [graph.named[name] for name in link.outputs]
    for node in topological_order(results, frozenset(sources)):
        if any(value in copies for value in node.outputs):
            continue
        if isinstance(node.op, State):
            array = writer.arrays.get(node.op.label)
            type_ = node.outputs[0].type
            if array is None:  # distinct values, since equal ones would become a scalar
                array = (np.arange(type_.size) % 2).reshape(type_.shape).astype(str(type_.dtype))
            copies[node.outputs[0]] = constant(array)
        elif isinstance(node.op, Input):
            raise UnsupportedFeature(
                "it uses a mask that an earlier layer computes, and Keras's operations take no masks"
            )
        else:
            with in_scope(node.scope):
                copies |= dict(zip(node.outputs, _folded(node, [copies[value] for value in node.inputs]), strict=True))
    return Graph({f"result:{index}": copies[value] for index, value in enumerate(results)})


def _folded(node: Node, inputs: list[Value]) -> Sequence[Value]:
    """The outputs of a node, computed if all its inputs are constants."""
    if node.op.name in DECOMPOSED:
        results = node.op.decompose(*inputs)
        return results if isinstance(results, tuple) else (results,)
    if not inputs or not all(value.op.traits.source and not isinstance(value.op, Input) for value in inputs):
        return rebuild(node, tuple(inputs)) if inputs else node.outputs
    with np.errstate(all="ignore"):
        results = node.op.forward(np, *(value.op.forward(np) for value in inputs))
    return [constant(array) for array in (results if isinstance(results, tuple) else (results,))]


def as_tensor(operand: Operand | None) -> EmittedTensor:
    """An operand that is a tensor. Raises `UnsupportedFeature` if it is not."""
    if not isinstance(operand, EmittedTensor):
        raise UnsupportedFeature("an operand is a constant that must be a tensor in Keras")
    return operand


def split_indices(sections: Sequence[int]) -> list[int]:
    """The indices at which to split into these sizes."""
    return list(accumulate(sections))[:-1]


_MODULES = {"Erf": OPS_MATH, "Relu": OPS_NN, "Sigmoid": OPS_NN, "Softplus": OPS_NN}
"""Modules of elementwise operations that are not in `OPS_NUMPY`."""


@operator(*UNARY, *BINARY, *ACTIVATIONS, elements=True)
def elementwise(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """An operator that is one operation of Keras."""
    element = "bool" if node.op_type in CONDITIONS else ""
    module = _MODULES.get(node.op_type, OPS_NUMPY)
    return ops.elementwise(operation_class(node.op_type), *operands, element=element, module=module)


@operator("Identity", elements=True)
def identity(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """The operand unchanged."""
    return operands[0]


@operator("Div", elements=True)
def divide(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Division, which truncates towards 0 for integers."""
    x, y = operands
    if "float" in str(x.dtype):
        return ops.elementwise("TrueDivide", *operands)
    multiple = ops.elementwise("Subtract", x, ops.elementwise("Fmod", *operands))
    return ops.elementwise("FloorDivide", multiple, y)


@operator("Mod", elements=True)
def modulo(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Remainder with the sign of the divisor, or with `fmod` of the dividend."""
    return ops.elementwise("Fmod" if node.attributes.get("fmod") else "Mod", *operands)


@operator("BitShift", elements=True)
def bit_shift(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Bit shifts."""
    direction = str(node.attributes["direction"]).capitalize()
    return ops.elementwise(f"Bitwise{direction}Shift", *operands)


@operator("Max", "Min", elements=True)
def maximum_or_minimum(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Maximum or minimum of several operands."""
    result = operands[0]
    for operand in operands[1:]:
        result = ops.elementwise(f"{node.op_type}imum", result, operand)
    return result


@operator("Clip", elements=True)
def clip(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Clip with one or two limits."""
    x, *limits = operands
    for kind, limit in zip(("Maximum", "Minimum"), limits, strict=False):
        if limit is not None:
            x = ops.elementwise(kind, x, limit)
    return x


@operator("Where", elements=True)
def where(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Write ONNX's Where: elements of `a` if the condition is true, else of `b`."""
    condition, a, b = operands
    if isinstance(condition, np.ndarray) and condition.size == 1:
        return a if condition.item() else b
    return ops.elementwise("Where", *operands, element=str(a.dtype))


@operator("Elu", "LeakyRelu", elements=True)
def slope_function(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """ELU and leaky ReLU, which have a slope."""
    (x,), alpha = operands, float(node.attributes.get("alpha", 1.0 if node.op_type == "Elu" else 0.01))
    attribute = "alpha" if node.op_type == "Elu" else "negative_slope"
    slope: dict[str, Any] = {attribute: alpha}
    return ops.op("Elu" if attribute == "alpha" else "LeakyRelu", [x], x.shape, module=OPS_NN, **slope)


@operator("PRelu", elements=True)
def prelu(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """PReLU with a slope per element."""
    x, slope = operands
    positive = ops.elementwise("Maximum", x, np.array(0, x.dtype))
    negative = ops.elementwise("Minimum", x, np.array(0, x.dtype))
    return ops.elementwise("Add", positive, ops.elementwise("Multiply", negative, slope))


@operator("Cast", elements=True)
def cast(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Cast."""
    (x,) = operands
    dtype = str(node.attributes["to"])
    return ops.cast(x, dtype) if isinstance(x, EmittedTensor) else as_constant(x).astype(dtype)


@operator("BitCast")
def bit_cast(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """BitCast."""
    x, dtype = as_tensor(operands[0]), str(node.attributes["to"])
    return ops.op("View", [x], x.shape, dtype, dtype=dtype)


# Reductions


def _axes(node: OperatorNode, operands: Sequence[Any], rank: int) -> list[int]:
    axes = node.attributes.get("axes")
    if axes is None and len(operands) > 1 and operands[1] is not None:
        axes = as_integers(operands[1])
    return sorted(int(axis) % rank for axis in (range(rank) if axes is None else axes))


def reduced_shape(shape: Sequence[int], axes: Sequence[int], keep: bool) -> list[int]:
    """The shape without these axes, or with size 1 there."""
    if keep:
        return [1 if axis in axes else size for axis, size in enumerate(shape)]
    return [size for axis, size in enumerate(shape) if axis not in axes]


def reduced(
    ops: OperationWriter, kind: str, x: EmittedTensor, axes: Sequence[int], keep: bool = True, module: str = OPS_NUMPY
) -> EmittedTensor:
    """A reduction along some axes."""
    shape = reduced_shape(x.shape, axes, keep)
    axis = axes[0] if len(axes) == 1 else list(axes)
    return ops.op(kind, [x], shape, module=module, axis=axis, keepdims=keep)


_REDUCTIONS = {"ReduceSum": "Sum", "ReduceMean": "Mean", "ReduceMax": "Max", "ReduceMin": "Min", "ReduceProd": "Prod"}


@operator(*_REDUCTIONS)
def reduction(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Sum, mean, maximum and others."""
    x = as_tensor(operands[0])
    axes = _axes(node, operands, len(x.shape))
    return reduced(ops, _REDUCTIONS[node.op_type], x, axes, bool(node.attributes.get("keepdims", 1)))


@operator("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
def reduction_function(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Reductions that are a function of a sum."""
    x = as_tensor(operands[0])
    axes, keep = _axes(node, operands, len(x.shape)), bool(node.attributes.get("keepdims", 1))
    if node.op_type == "ReduceLogSumExp":
        return reduced(ops, "Logsumexp", x, axes, keep, OPS_MATH)
    if node.op_type == "ReduceL2":
        squares = reduced(ops, "Sum", ops.elementwise("Square", x), axes, keep)
        return ops.elementwise("Sqrt", squares)
    return ops.elementwise("Log", reduced(ops, "Sum", x, axes, keep))


@operator("ArgMax", "ArgMin")
def arg_extreme(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """ArgMax and ArgMin; the last of equal elements is the first of the reversed tensor."""
    x, axis = as_tensor(operands[0]), int(node.attributes.get("axis", 0)) % len(operands[0].shape)
    keepdims = bool(node.attributes.get("keepdims", 1))
    select_last = bool(node.attributes.get("select_last_index", 0))
    data = ops.op("Flip", [x], x.shape, axis=axis) if select_last else x
    kind = node.op_type.capitalize()
    shape = reduced_shape(x.shape, [axis], keepdims)
    indices = ops.op(kind, [data], shape, "int32", axis=axis, keepdims=keepdims)
    if select_last:
        indices = ops.op("Subtract", [x.shape[axis] - 1, indices], shape)
    return ops.cast(indices, "int64")


@operator("Hardmax")
def hardmax(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Hardmax."""
    x = as_tensor(operands[0])
    axis = node.as_op(Hardmax).axis % len(x.shape)
    indices = ops.op("Argmax", [x], reduced_shape(x.shape, [axis], False), "int32", axis=axis, keepdims=False)
    return one_hot_vectors(ops, indices, x.shape[axis], axis, x.dtype)


def one_hot_vectors(ops: OperationWriter, indices: EmittedTensor, depth: int, axis: int, element: str) -> EmittedTensor:
    """OneHot."""
    rank = len(indices.shape) + 1
    shape = [*indices.shape, depth]
    encoded = ops.op("OneHot", [indices], shape, element, module=OPS_NN, num_classes=depth, axis=-1, dtype=element)
    return ops.transposed(
        encoded,
        [rank - 1 if result_axis == axis else result_axis - (result_axis > axis) for result_axis in range(rank)],
    )


@operator("OneHot")
def one_hot(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """One-hot vectors of any off and on values; Keras's are 0 and 1."""
    x, values = as_tensor(operands[0]), as_constant(operands[2])
    (depth,), element = as_integers(operands[1]), str(values.dtype)
    x = nonnegative_indices(ops, x, depth)
    encoded = one_hot_vectors(ops, x, depth, int(node.attributes.get("axis", -1)) % (len(x.shape) + 1), "float32")
    if values.tolist() == [0, 1]:
        return ops.cast(encoded, element)
    is_on = ops.elementwise("Greater", encoded, np.array(0.5, "float32"), element="bool")
    return ops.elementwise("Where", is_on, values[1:], values[:1], element=element)


def nonnegative_indices(ops: OperationWriter, indices: EmittedTensor, size: Any) -> Any:
    """Indices, with negative ones counted from the end."""
    is_negative = ops.elementwise("Less", indices, np.array(0, indices.dtype), element="bool")
    from_start = ops.elementwise("Add", indices, np.asarray(size, indices.dtype))
    return ops.elementwise("Where", is_negative, from_start, indices, element=indices.dtype)


@operator("Softmax", "LogSoftmax")
def softmax(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Softmax along an axis."""
    x = as_tensor(operands[0])
    axis = node.as_op(Softmax if node.op_type == "Softmax" else LogSoftmax).axis % len(x.shape)
    return ops.op(node.op_type, [x], x.shape, module=OPS_NN, axis=axis)


@operator("CumSum", "CumProd")
def cumulative(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Cumulative sums and products, exclusive or reversed."""
    x, (axis,) = as_tensor(operands[0]), as_integers(operands[1])
    axis %= len(x.shape)
    is_reversed = bool(node.attributes.get("reverse"))
    result = ops.op("Flip", [x], x.shape, axis=axis) if is_reversed else x
    if node.attributes.get("exclusive"):
        pad_width = [[1, 0] if index == axis else [0, 0] for index in range(len(x.shape))]
        all_but_last = ops.sliced(result, axis, slice(0, x.shape[axis] - 1))
        result = ops.op(
            "Pad", [all_but_last], x.shape, pad_width=pad_width, mode="constant", kwargs={"constant_values": 0}
        )
    result = ops.op(node.op_type.capitalize(), [result], x.shape, axis=axis, dtype=None)
    return ops.op("Flip", [result], x.shape, axis=axis) if is_reversed else result


@operator("Det")
def determinant(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """An operation on each matrix."""
    x = as_tensor(operands[0])
    return ops.op("Det", [x], x.shape[:-2], module=OPS_LINALG)


@operator("TopK")
def top_k(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """TopK along the last axis: other axes are transposed, smallest elements are the largest negated ones."""
    x, (k,) = as_tensor(operands[0]), as_integers(operands[1])
    rank = len(x.shape)
    axis = int(node.attributes.get("axis", -1)) % rank
    permutation = [*(index for index in range(rank) if index != axis), axis]
    inverse = sorted(range(rank), key=permutation.__getitem__)
    smallest = not node.attributes.get("largest", 1)
    data = ops.transposed(x, permutation)
    data = ops.op("Negative", [data], data.shape) if smallest else data
    shape = [*data.shape[:-1], k]
    largest = ops.op("TopK", [data], shape, module=OPS_MATH, k=k, sorted=True)
    values, index = ops.outputs(largest, [shape, shape], largest.dtype, "int32")
    values = ops.op("Negative", [values], shape) if smallest else values
    return ops.transposed(values, inverse), ops.cast(ops.transposed(index, inverse), "int64")


@operator("MatMul")
def matmul(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Products of matrices, with broadcasting."""
    a, b = operands
    batch_shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = [*batch_shape, *([a.shape[-2]] if len(a.shape) > 1 else []), *([b.shape[-1]] if len(b.shape) > 1 else [])]
    return ops.op("Matmul", [a, b], shape)


@operator("MatMulInteger")
def integer_matmul(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Products of integers minus their zero points, in floats, which are exact up to 2^24."""
    a, b, *zero_points = [*operands, None, None][:4]
    product = matmul(ops, node, [minus_zero_point(ops, a, zero_points[0]), minus_zero_point(ops, b, zero_points[1])])
    return ops.cast(as_tensor(product), "int32")


def minus_zero_point(ops: OperationWriter, x: Any, zero_point: Any) -> Any:
    """Integers minus their zero point, as floats."""
    x = as_float(ops, x)
    return x if zero_point is None else ops.elementwise("Subtract", x, as_float(ops, zero_point))


def as_float(ops: OperationWriter, x: Any) -> Any:
    """An operand as floats."""
    return ops.cast(x, "float32") if isinstance(x, EmittedTensor) else as_constant(x).astype("float32")


@operator("Einsum")
def einsum(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Einsum."""
    equation = str(node.attributes["equation"]).replace(" ", "")
    operand_axes, _, result_axes = equation.partition("->")
    sizes: dict[str, int] = {}
    for letters, operand in zip(operand_axes.split(","), operands, strict=True):
        if "." in letters:
            raise UnsupportedFeature("its equation has an ellipsis (`...`)")
        sizes |= {
            letter: size
            for letter, size in zip(letters, operand.shape, strict=True)
            if size != 1 or letter not in sizes
        }
    return ops.op("Einsum", list(operands), [sizes[letter] for letter in result_axes], subscripts=equation)
