"""Layers that Keras does not have, as its operations: the ONNX operators of a layer, each of which is one there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

from netspec.exchange.formats.keras.exporting.axes import in_order
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
from netspec.exchange.operator_graph.graph import LoweredGraph, OperatorNode
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.graph.graph import Graph, rebuild, topological_order
from netspec.graph.ops.softmax import Hardmax, LogSoftmax, Softmax
from netspec.graph.ops.source import Input, State, constant
from netspec.graph.value import Node, Value, in_scope
from netspec.schema.specs.links import LayerLink

if TYPE_CHECKING:
    from numpy.typing import NDArray


PROBES = (3, 5)
"""Batch sizes for which a layer is lowered: sizes that differ depend on the batch."""
MOST_NUMBERS = 1_000_000
"""Largest number of elements of a layer's constants, which are text in the configuration."""


@dataclass(frozen=True)
class EmittedTensor:
    """A tensor of the model, and its shape for a batch of the first of `PROBES`."""

    tensor: KerasTensor
    shape: tuple[int, ...]

    @property
    def dtype(self) -> str:
        """The element type."""
        return self.tensor.dtype


@dataclass(frozen=True)
class SymbolicSizes:
    """Integers, some of which are the batch size of a tensor (`None`)."""

    sizes: tuple[int | None, ...]
    of: EmittedTensor


SIMPLER = ("Resize", "RoiAlignMax", "ScatterND", "LSTM")
"""Ops that are decomposed before they are written: Keras resizes at other positions, has no RoI pooling, scatters by a
single index only, and has no LSTM with some options, which is written step by step."""

Operand: TypeAlias = "EmittedTensor | SymbolicSizes | NDArray[Any]"
Operator: TypeAlias = "Callable[[OperationWriter, OperatorNode, Sequence[Any]], Any]"
"""Returns an operand, or several."""
OPERATORS: dict[str, Operator] = {}
"""The functions that write operators of ONNX; missing operands are None."""
OF_ELEMENTS: set[str] = set()
"""Elementwise operators."""


def operator(*types: str, elements: bool = False) -> Callable[[Operator], Operator]:
    """Register the function that writes operators of these types; `elements` for elementwise ones."""

    def register(write: Operator) -> Operator:
        OPERATORS.update(dict.fromkeys(types, write))
        OF_ELEMENTS.update(types if elements else ())
        return write

    return register


def lowered(writer: KerasWriter, link: LayerLink, inputs: Sequence[KerasTensor]) -> Sequence[KerasTensor]:
    """Write a layer as operations of Keras. Raises `UnsupportedFeature` if Keras lacks one of its operators."""
    graphs = [_emitted(writer, link, size) for size in PROBES]
    told = list(differences(*graphs).values())
    if told:
        raise UnsupportedFeature(f"{told[0][1]} depends on the batch size")
    return OperationWriter(writer, link, graphs[0]).written(inputs)


class OperationWriter:
    """Writes one layer, operator by operator."""

    def __init__(self, writer: KerasWriter, link: LayerLink, graph: LoweredGraph) -> None:
        self.writer, self.link, self.graph = writer, link, graph
        self.order: tuple[int, ...] | None = None
        """Order of the axes of all tensors, if all operators are elementwise; None: as in the net."""
        self._rows: KerasTensor | None = None
        self._held: dict[str, Operand] = dict(graph.constants)

    def written(self, inputs: Sequence[KerasTensor]) -> list[KerasTensor]:
        """Write the operators, and return the outputs of the layer."""
        self._lay(inputs)
        if sum(array.size for array in self.graph.constants.values()) > MOST_NUMBERS:
            raise UnsupportedFeature(
                f"Keras stores it only as constants, which have more than {MOST_NUMBERS:,} elements"
            )
        for node in self.graph.nodes:
            write = OPERATORS.get(node.op_type)
            if write is None:
                raise UnsupportedFeature(f"Keras has no operation like ONNX's {node.op_type}")
            made = write(self, node, [self._held[name] if name else None for name in node.inputs])
            several = made if isinstance(made, tuple) else (made,)
            self._held |= dict(zip(node.outputs, several, strict=False))
        return [self._output(name) for name in self.graph.outputs]

    def _lay(self, inputs: Sequence[KerasTensor]) -> None:
        """Set the inputs, in the net's order unless all operators are elementwise."""
        names = dict(enumerate(dict.fromkeys(self.link.sources)))
        read = [index for index in names if f"source:{index}" in self.graph.inputs]
        given = [inputs[self.link.sources.index(names[index])] for index in read]
        ranks = {len(tensor_.order) for tensor_ in given} | {kind.rank for kind in self.graph.outputs.values()}
        if len(ranks) == 1 and all(node.op_type in OF_ELEMENTS for node in self.graph.nodes):
            arrays = any(array.size > 1 for array in self.graph.constants.values())
            if len(given) == 1 and not arrays:
                self.order, self._rows = given[0].order, given[0].rows
            else:
                given = [self.writer.straight(tensor_) for tensor_ in given]
                self.order = next((tensor_.order for tensor_ in given if not tensor_.plain), given[0].order)
                given = [self.writer.ordered(tensor_, self.order) for tensor_ in given]
        else:
            given = [self.writer.plain(tensor_) for tensor_ in given]
        for index, tensor_ in zip(read, given, strict=True):
            kind = self.graph.inputs[f"source:{index}"]
            self._held[f"source:{index}"] = self.cast(EmittedTensor(tensor_, kind.shape), str(kind.dtype))

    def _output(self, name: str) -> KerasTensor:
        """An output, as a tensor of the model with the net's element type."""
        found, kind = self._held[name], self.graph.outputs[name]
        if isinstance(found, SymbolicSizes) or not isinstance(found, EmittedTensor):
            raise UnsupportedFeature("it gives what does not depend on its input")
        return self.cast(found, str(kind.dtype)).tensor

    # Used by operators.

    def op(
        self, kind: str, args: Sequence[Any], shape: Sequence[int], element: str = "", *, module: str = OPS_NUMPY,
        kwargs: Mapping[str, Any] | None = None, **config: Any,
    ) -> EmittedTensor:  # fmt: skip
        """Add an operation with these arguments; its element type is by default that of the first tensor."""
        element = element or next(_tensors(args)).dtype
        order = self.order or in_order(len(shape))
        tensor = self.writer.helper(
            f"{self.link.name}_{keras_snake(kind)}", kind, [plainly(argument) for argument in args],
            tuple(shape[axis] for axis in order[1:]), order, module=module, element=element, rows=self._rows,
            kwargs=kwargs, **config,
        )  # fmt: skip
        return EmittedTensor(tensor, tuple(shape))

    def others(self, made: EmittedTensor, shapes: Sequence[Sequence[int]], *dtypes: str) -> tuple[EmittedTensor, ...]:
        """The outputs of an operation, the first of which is `made`, with the shapes of all."""
        kinds = [*dtypes, *[made.dtype] * (len(shapes) - len(dtypes))]
        return tuple(
            EmittedTensor(replace(made.tensor, index=index, shape=tuple(shape[1:]), dtype=kind), tuple(shape))
            for index, (shape, kind) in enumerate(zip(shapes, kinds, strict=True))
        )

    def broadcast(self, operand: Operand, others: Sequence[Operand], numbers: bool = True) -> Any:
        """An operand of an elementwise operation: a constant with equal elements becomes a scalar."""
        if isinstance(operand, EmittedTensor):
            return operand
        array = known(operand)
        wide = _joined(
            [other.shape for other in others if other is not operand and not isinstance(other, SymbolicSizes)]
        )
        if numbers and array.size and (array == array.flat[0]).all() and _joined([wide, array.shape]) == wide:
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

    def turned(self, x: EmittedTensor, axes: Sequence[int]) -> EmittedTensor:
        """Transpose a tensor."""
        axes = list(axes)
        return x if axes == sorted(axes) else self.op("Transpose", [x], [x.shape[axis] for axis in axes], axes=axes)

    def within(self, x: Any, shape: Sequence[int], axis: int) -> Any:
        """Slice a tensor to these sizes along all axes except one."""
        for at, size in enumerate(shape):
            if at not in (0, axis) and size < x.shape[at]:
                x = self.part(x, at, slice(0, size)) if isinstance(x, EmittedTensor) else x.take(range(size), at)
        return x

    def part(self, x: EmittedTensor, axis: int, part: slice) -> EmittedTensor:
        """Slice a tensor along an axis."""
        size = len(range(*part.indices(x.shape[axis])))
        shape = [*x.shape[:axis], size, *x.shape[axis + 1 :]]
        return self.op("GetItem", [x, [*[slice(None)] * axis, part]], shape)


def known(operand: Operand | None) -> NDArray[Any]:
    """An operand that is a constant. Raises `UnsupportedFeature` if it is not."""
    import numpy as np

    if not isinstance(operand, np.ndarray):
        raise UnsupportedFeature("Keras needs a constant, and the value is computed")
    return operand


def whole(operand: Operand | None) -> list[int]:
    """An operand that is a list of integers."""
    return [int(number) for number in known(operand).ravel()]


def _tensors(value: Any) -> Iterator[EmittedTensor]:
    if isinstance(value, EmittedTensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def plainly(value: Any) -> Any:
    """An argument of an operation in the model."""
    if isinstance(value, EmittedTensor):
        return value.tensor
    return [plainly(item) for item in value] if isinstance(value, (list, tuple)) else value


def _joined(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    import numpy as np

    return tuple(np.broadcast_shapes(*map(tuple, shapes)))


def _emitted(writer: KerasWriter, link: LayerLink, size: int) -> LoweredGraph:
    """The operators of a layer for a batch of that size; its inputs are called `source:0` and so on."""
    graph = writer.graph_for(size)
    sources = {graph.named[name]: f"source:{index}" for index, name in enumerate(dict.fromkeys(link.sources))}
    made, problems = emit(_alone(writer, link, graph, sources))
    if problems:
        raise UnsupportedFeature(problems[0].got or problems[0].message)
    return made


def _alone(writer: KerasWriter, link: LayerLink, graph: Graph, sources: Mapping[Value, str]) -> Graph:
    """The graph of one layer, with constants folded."""
    import numpy as np

    new: dict[Value, Value] = {value: Input(name, value.type)() for value, name in sources.items()}
    wanted = [graph.named[name] for name in link.outputs]
    for node in topological_order(wanted, frozenset(sources)):
        if any(value in new for value in node.outputs):
            continue
        if isinstance(node.op, State):
            array = writer.arrays.get(node.op.label)
            kind = node.outputs[0].type
            if array is None:  # distinct values, since equal ones would become a scalar
                array = (np.arange(kind.size) % 2).reshape(kind.shape).astype(str(kind.dtype))
            new[node.outputs[0]] = constant(array)
        elif isinstance(node.op, Input):
            raise UnsupportedFeature("it reads a mask that an earlier layer makes, and Keras's operations have none")
        else:
            with in_scope(node.scope):
                new |= dict(zip(node.outputs, _known(node, [new[value] for value in node.inputs]), strict=True))
    return Graph({f"result:{index}": new[value] for index, value in enumerate(wanted)})


def _known(node: Node, inputs: list[Value]) -> Sequence[Value]:
    """The outputs of a node, computed if all its inputs are constants."""
    import numpy as np

    if node.op.name in SIMPLER:
        made = node.op.decompose(*inputs)
        return made if isinstance(made, tuple) else (made,)
    if not inputs or not all(value.op.traits.source and not isinstance(value.op, Input) for value in inputs):
        return rebuild(node, tuple(inputs)) if inputs else node.outputs
    with np.errstate(all="ignore"):
        made = node.op.forward(np, *(value.op.forward(np) for value in inputs))
    return [constant(array) for array in (made if isinstance(made, tuple) else (made,))]


def tensor(operand: Operand | None) -> EmittedTensor:
    """An operand that is a tensor. Raises `UnsupportedFeature` if it is not."""
    if not isinstance(operand, EmittedTensor):
        raise UnsupportedFeature("it has no input that is a tensor")
    return operand


def ends_of(sections: Sequence[int]) -> list[int]:
    """The indices at which to split into these sizes."""
    return list(accumulate(sections))[:-1]


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
"""Operators that keep the element type, and their operations."""
_CONDITIONS: Mapping[str, str] = {
    "Equal": "Equal", "Greater": "Greater", "GreaterOrEqual": "GreaterEqual", "Less": "Less",
    "LessOrEqual": "LessEqual", "IsNaN": "Isnan", "IsInf": "Isinf",
}  # fmt: skip


def joined(low: OperationWriter, kind: str, operands: Sequence[Any], element: str = "", module: str = OPS_NUMPY) -> Any:
    """An elementwise operation with broadcasting."""
    import numpy as np

    if not any(isinstance(operand, EmittedTensor) for operand in operands):
        return getattr(np, keras_snake(kind))(*map(known, operands))
    shape = np.broadcast_shapes(*(operand.shape for operand in operands))
    numbers = not kind.startswith("Bitwise")  # which depend on the type of each
    return low.op(
        kind, [low.broadcast(operand, operands, numbers) for operand in operands], shape, element, module=module
    )


def _named(kind: str, module: str) -> Operator:
    def write(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
        return joined(low, kind, operands, module=module)

    return write


def _condition(kind: str) -> Operator:
    def write(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
        return joined(low, kind, operands, "bool")

    return write


for _type, (_kind, _module) in _NAMES.items():
    operator(_type, elements=True)(_named(_kind, _module))
for _type, _kind in _CONDITIONS.items():
    operator(_type, elements=True)(_condition(_kind))


@operator("Identity", elements=True)
def identity(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """The operand unchanged."""
    return operands[0]


@operator("Div", elements=True)
def divide(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Division; of integers it truncates towards 0."""
    x, y = operands
    if "float" in str(x.dtype):
        return joined(low, "TrueDivide", operands)
    left = joined(low, "Subtract", [x, joined(low, "Fmod", operands)])
    return joined(low, "FloorDivide", [left, y])


@operator("Mod", elements=True)
def modulo(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Remainder with the sign of the divisor, or with `fmod` of the dividend."""
    return joined(low, "Fmod" if node.attributes.get("fmod") else "Mod", operands)


@operator("BitShift", elements=True)
def shifted(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Bit shifts."""
    way = str(node.attributes["direction"]).capitalize()
    return joined(low, f"Bitwise{way}Shift", operands)


@operator("Max", "Min", elements=True)
def extreme(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Sums, means and extremes of several operands."""
    found = operands[0]
    for operand in operands[1:]:
        found = joined(low, f"{node.op_type}imum", [found, operand])
    return found


@operator("Clip", elements=True)
def clip(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Clip with one or two limits."""
    x, *limits = operands
    for kind, limit in zip(("Maximum", "Minimum"), limits, strict=False):
        if limit is not None:
            x = joined(low, kind, [x, limit])
    return x


@operator("Where", elements=True)
def where(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Where."""
    import numpy as np

    condition, a, b = operands
    if isinstance(condition, np.ndarray) and condition.size == 1:
        return a if condition.item() else b
    return joined(low, "Where", operands, str(a.dtype))


@operator("Elu", "LeakyRelu", elements=True)
def of_number(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Functions with an attribute."""
    (x,), alpha = operands, float(node.attributes.get("alpha", 1.0 if node.op_type == "Elu" else 0.01))
    name = "alpha" if node.op_type == "Elu" else "negative_slope"
    told: dict[str, Any] = {name: alpha}
    return low.op("Elu" if name == "alpha" else "LeakyRelu", [x], x.shape, module=OPS_NN, **told)


@operator("PRelu", elements=True)
def slopes(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """PReLU with a slope per element."""
    import numpy as np

    x, slope = operands
    above = joined(low, "Maximum", [x, np.array(0, x.dtype)])
    below = joined(low, "Minimum", [x, np.array(0, x.dtype)])
    return joined(low, "Add", [above, joined(low, "Multiply", [below, slope])])


@operator("Cast", elements=True)
def cast(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Cast."""
    (x,) = operands
    dtype = str(node.attributes["to"])
    return low.cast(x, dtype) if isinstance(x, EmittedTensor) else known(x).astype(dtype)


@operator("BitCast")
def bits(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """BitCast."""
    x, dtype = tensor(operands[0]), str(node.attributes["to"])
    return low.op("View", [x], x.shape, dtype, dtype=dtype)


# Reductions


def _axes(node: OperatorNode, operands: Sequence[Any], rank: int) -> list[int]:
    given = node.attributes.get("axes")
    if given is None and len(operands) > 1 and operands[1] is not None:
        given = whole(operands[1])
    return sorted(int(axis) % rank for axis in (range(rank) if given is None else given))


def without(shape: Sequence[int], axes: Sequence[int], keep: bool) -> list[int]:
    """The shape without these axes, or with size 1 there."""
    if keep:
        return [1 if axis in axes else size for axis, size in enumerate(shape)]
    return [size for axis, size in enumerate(shape) if axis not in axes]


def reduced(
    low: OperationWriter, kind: str, x: EmittedTensor, axes: Sequence[int], keep: bool = True, module: str = OPS_NUMPY
) -> EmittedTensor:
    """A reduction along some axes."""
    shape = without(x.shape, axes, keep)
    given = axes[0] if len(axes) == 1 else list(axes)
    return low.op(kind, [x], shape, module=module, axis=given, keepdims=keep)


_REDUCTIONS = {"ReduceSum": "Sum", "ReduceMean": "Mean", "ReduceMax": "Max", "ReduceMin": "Min", "ReduceProd": "Prod"}


@operator(*_REDUCTIONS)
def reduction(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Sum, mean, maximum and others."""
    x = tensor(operands[0])
    axes = _axes(node, operands, len(x.shape))
    return reduced(low, _REDUCTIONS[node.op_type], x, axes, bool(node.attributes.get("keepdims", 1)))


@operator("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
def of_sums(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
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
def place(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """ArgMax and ArgMin; the last of equal elements is the first of the reversed tensor."""
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
def hardmax(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Hardmax."""
    x = tensor(operands[0])
    axis = node.as_op(Hardmax).axis % len(x.shape)
    found = low.op("Argmax", [x], without(x.shape, [axis], False), "int32", axis=axis, keepdims=False)
    return told(low, found, x.shape[axis], axis, x.dtype)


def told(low: OperationWriter, places: EmittedTensor, depth: int, axis: int, element: str) -> EmittedTensor:
    """OneHot."""
    rank = len(places.shape) + 1
    shape = [*places.shape, depth]
    made = low.op("OneHot", [places], shape, element, module=OPS_NN, num_classes=depth, axis=-1, dtype=element)
    return low.turned(made, [rank - 1 if at == axis else at - (at > axis) for at in range(rank)])


@operator("OneHot")
def one_hot(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """The off and on values; Keras's are 0 and 1."""
    import numpy as np

    x, values = tensor(operands[0]), known(operands[2])
    (depth,), element = whole(operands[1]), str(values.dtype)
    x = counted(low, x, depth)
    made = told(low, x, depth, int(node.attributes.get("axis", -1)) % (len(x.shape) + 1), "float32")
    if values.tolist() == [0, 1]:
        return low.cast(made, element)
    above = joined(low, "Greater", [made, np.array(0.5, "float32")], "bool")
    return joined(low, "Where", [above, values[1:], values[:1]], element)


def counted(low: OperationWriter, places: EmittedTensor, size: Any) -> Any:
    """Indices, with negative ones counted from the end."""
    import numpy as np

    below = joined(low, "Less", [places, np.array(0, places.dtype)], "bool")
    turned = joined(low, "Add", [places, np.asarray(size, places.dtype)])
    return joined(low, "Where", [below, turned, places], places.dtype)


@operator("Softmax", "LogSoftmax")
def softmax(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Along an axis."""
    x = tensor(operands[0])
    axis = node.as_op(Softmax if node.op_type == "Softmax" else LogSoftmax).axis % len(x.shape)
    return low.op(node.op_type, [x], x.shape, module=OPS_NN, axis=axis)


@operator("CumSum", "CumProd")
def cumulative(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Cumulative sums and products, exclusive or reversed."""
    x, (axis,) = tensor(operands[0]), whole(operands[1])
    axis %= len(x.shape)
    backwards = bool(node.attributes.get("reverse"))
    found = low.op("Flip", [x], x.shape, axis=axis) if backwards else x
    if node.attributes.get("exclusive"):
        width = [[1, 0] if index == axis else [0, 0] for index in range(len(x.shape))]
        kept = low.part(found, axis, slice(0, x.shape[axis] - 1))
        found = low.op("Pad", [kept], x.shape, pad_width=width, mode="constant", kwargs={"constant_values": 0})
    found = low.op(node.op_type.capitalize(), [found], x.shape, axis=axis, dtype=None)
    return low.op("Flip", [found], x.shape, axis=axis) if backwards else found


@operator("Det")
def determinant(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """An operation on each matrix."""
    x = tensor(operands[0])
    return low.op("Det", [x], x.shape[:-2], module=OPS_LINALG)


@operator("TopK")
def top(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """TopK along the last axis: other axes are transposed, smallest elements are the largest negated ones."""
    x, (k,) = tensor(operands[0]), whole(operands[1])
    rank = len(x.shape)
    axis = int(node.attributes.get("axis", -1)) % rank
    turn = [*(index for index in range(rank) if index != axis), axis]
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
def matmul(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Products of matrices, with broadcasting."""
    import numpy as np

    a, b = operands
    if not isinstance(a, EmittedTensor) and not isinstance(b, EmittedTensor):
        return np.matmul(known(a), known(b))
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = [*lead, *([a.shape[-2]] if len(a.shape) > 1 else []), *([b.shape[-1]] if len(b.shape) > 1 else [])]
    return low.op("Matmul", [a, b], shape)


@operator("MatMulInteger")
def whole_matmul(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Products of integers minus their zero points, in floats, which are exact up to 2^24."""
    a, b, *zeros = [*operands, None, None][:4]
    made = matmul(low, node, [less(low, a, zeros[0]), less(low, b, zeros[1])])
    return low.cast(tensor(made), "int32")


def less(low: OperationWriter, x: Any, zero: Any) -> Any:
    """Integers minus their zero point, as floats."""
    x = as_float(low, x)
    return x if zero is None else joined(low, "Subtract", [x, as_float(low, zero)])


def as_float(low: OperationWriter, x: Any) -> Any:
    """An operand as floats."""
    return low.cast(x, "float32") if isinstance(x, EmittedTensor) else known(x).astype("float32")


@operator("Einsum")
def einsum(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Einsum."""
    equation = str(node.attributes["equation"]).replace(" ", "")
    reads, _, gives = equation.partition("->")
    sizes: dict[str, int] = {}
    for letters, operand in zip(reads.split(","), operands, strict=True):
        if "." in letters:
            raise UnsupportedFeature("its equation has axes without letters")
        sizes |= {
            letter: size
            for letter, size in zip(letters, operand.shape, strict=True)
            if size != 1 or letter not in sizes
        }
    return low.op("Einsum", list(operands), [sizes[letter] for letter in gives], subscripts=equation)
