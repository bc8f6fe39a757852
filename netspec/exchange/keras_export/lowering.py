"""Layers that Keras has not, as its operations: what a layer computes, as ONNX's operators, each of which is one there.

Operations of Keras (`keras.ops`) stand in a file beside its layers and are loaded without anybody's code. They hold no
variables: numbers that a layer has learned become constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

from netspec.exchange.keras_export.laying import in_order
from netspec.exchange.keras_export.model import OPS_CORE, OPS_NUMPY, Tensor
from netspec.exchange.keras_export.values import Unwritable
from netspec.exchange.keras_export.writer import Writer
from netspec.exchange.keras_names import keras_snake
from netspec.exchange.onnx_emit import OnnxGraph, OnnxNode, differences, emit
from netspec.graph.graph import Graph, rebuild, topological
from netspec.graph.ops.source import Input, State, constant
from netspec.graph.value import Node, Value, in_scope
from netspec.schema.links import LayerLink

if TYPE_CHECKING:
    from numpy.typing import NDArray

PROBES = (3, 5)
"""Batch sizes for which a layer is looked at: what is not the same for both is tied to the batch."""
MOST_NUMBERS = 1_000_000
"""Numbers of a layer's constants: they stand in the configuration, which is text."""


@dataclass(frozen=True)
class Made:
    """A tensor of the model, and its shape for a batch of the first of `PROBES`."""

    tensor: Tensor
    shape: tuple[int, ...]

    @property
    def dtype(self) -> str:
        """The element type."""
        return self.tensor.dtype


@dataclass(frozen=True)
class Sizes:
    """Whole numbers of which some are the batch size, `None`, that of a tensor."""

    sizes: tuple[int | None, ...]
    of: Made


SIMPLER = ("Resize", "RoiMaxima", "ScatterND")
"""Ops that are written as what they decompose into: Keras looks at other places when it resizes, it cuts nothing out of
images, and numbers that are put by several places are written as such that are put by one."""

Operand: TypeAlias = "Made | Sizes | NDArray[Any]"
Operator: TypeAlias = "Callable[[Lowering, OnnxNode, Sequence[Any]], Any]"
"""Gives an operand, or several."""
OPERATORS: dict[str, Operator] = {}
"""How an operator of ONNX is written; operands that are left out are None."""
OF_ELEMENTS: set[str] = set()
"""Those that treat each number by itself."""


def operator(*types: str, elements: bool = False) -> Callable[[Operator], Operator]:
    """Register how operators of these types are written; `elements` for those of single numbers."""

    def register(write: Operator) -> Operator:
        OPERATORS.update(dict.fromkeys(types, write))
        OF_ELEMENTS.update(types if elements else ())
        return write

    return register


def lowered(net: Writer, link: LayerLink, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """The layer as operations of Keras. Raises `Unwritable` where it is made of what Keras has not."""
    graphs = [_emitted(net, link, size) for size in PROBES]
    told = list(differences(*graphs).values())
    if told:
        raise Unwritable(f"{told[0][1]} depends on the batch size")
    return Lowering(net, link, graphs[0]).written(inputs)


class Lowering:
    """Writes one layer, operator by operator."""

    def __init__(self, net: Writer, link: LayerLink, graph: OnnxGraph) -> None:
        self.net, self.link, self.graph = net, link, graph
        self.order: tuple[int, ...] | None = None
        """How the axes lie of all that is made, where each number is treated by itself; None: as in the net."""
        self._rows: Tensor | None = None
        self._held: dict[str, Operand] = dict(graph.constants)

    def written(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The outputs of the layer."""
        self._lay(inputs)
        if sum(array.size for array in self.graph.constants.values()) > MOST_NUMBERS:
            raise Unwritable(f"Keras has it as constants alone, and they are more than {MOST_NUMBERS:,} numbers")
        for node in self.graph.nodes:
            write = OPERATORS.get(node.op_type)
            if write is None:
                raise Unwritable(f"Keras has no operation like ONNX's {node.op_type}")
            made = write(self, node, [self._held[name] if name else None for name in node.inputs])
            several = made if isinstance(made, tuple) else (made,)
            self._held |= dict(zip(node.outputs, several, strict=False))
        return [self._output(name) for name in self.graph.outputs]

    def _lay(self, inputs: Sequence[Tensor]) -> None:
        """The inputs, as their numbers are wanted: as they come where each is treated by itself."""
        names = dict(enumerate(dict.fromkeys(self.link.sources)))
        read = [index for index in names if f"source:{index}" in self.graph.inputs]
        given = [inputs[self.link.sources.index(names[index])] for index in read]
        ranks = {len(one.order) for one in given} | {kind.rank for kind in self.graph.outputs.values()}
        if len(ranks) == 1 and all(node.op_type in OF_ELEMENTS for node in self.graph.nodes):
            arrays = any(array.size > 1 for array in self.graph.constants.values())
            if len(given) == 1 and not arrays:
                self.order, self._rows = given[0].order, given[0].rows
            else:
                given = [self.net.straight(one) for one in given]
                self.order = next((one.order for one in given if not one.plain), given[0].order)
                given = [self.net.ordered(one, self.order) for one in given]
        else:
            given = [self.net.plain(one) for one in given]
        for index, one in zip(read, given, strict=True):
            kind = self.graph.inputs[f"source:{index}"]
            self._held[f"source:{index}"] = self.cast(Made(one, kind.shape), str(kind.dtype))

    def _output(self, name: str) -> Tensor:
        """An output, which is a tensor of the model and of the type that the net has it in."""
        found, kind = self._held[name], self.graph.outputs[name]
        if isinstance(found, Sizes) or not isinstance(found, Made):
            raise Unwritable("it gives what does not depend on its input")
        return self.cast(found, str(kind.dtype)).tensor

    # What operators use.

    def op(
        self, kind: str, args: Sequence[Any], shape: Sequence[int], element: str = "", *, module: str = OPS_NUMPY,
        kwargs: Mapping[str, Any] | None = None, **config: Any,
    ) -> Made:  # fmt: skip
        """An operation, called with these arguments; without `element` its type is that of the first tensor."""
        element = element or next(_tensors(args)).dtype
        order = self.order or in_order(len(shape))
        tensor = self.net.helper(
            f"{self.link.name}_{keras_snake(kind)}", kind, [plainly(one) for one in args],
            tuple(shape[axis] for axis in order[1:]), order, module=module, element=element, rows=self._rows,
            kwargs=kwargs, **config,
        )  # fmt: skip
        return Made(tensor, tuple(shape))

    def others(self, made: Made, shapes: Sequence[Sequence[int]], *dtypes: str) -> tuple[Made, ...]:
        """The outputs of an operation of which `made` is the first; `shapes` are of all."""
        kinds = [*dtypes, *[made.dtype] * (len(shapes) - len(dtypes))]
        return tuple(
            Made(replace(made.tensor, index=index, shape=tuple(shape[1:]), dtype=kind), tuple(shape))
            for index, (shape, kind) in enumerate(zip(shapes, kinds, strict=True))
        )

    def broadcast(self, operand: Operand, others: Sequence[Operand], numbers: bool = True) -> Any:
        """An operand of an operation of single numbers: a constant is one number where it is the same everywhere."""
        if isinstance(operand, Made):
            return operand
        array = known(operand)
        wide = _joined([one.shape for one in others if one is not operand and not isinstance(one, Sizes)])
        if numbers and array.size and (array == array.flat[0]).all() and _joined([wide, array.shape]) == wide:
            return array.flat[0].item()
        if self.order is None:
            return array
        return array.reshape((1,) * (len(self.order) - array.ndim) + array.shape).transpose(self.order)

    def cast(self, x: Made, dtype: str) -> Made:
        """The tensor with another element type."""
        return x if x.dtype == dtype else self.op("Cast", [x], x.shape, dtype, module=OPS_CORE, dtype=dtype)

    def reshaped(self, x: Made, shape: Sequence[int]) -> Made:
        """The tensor in another shape, whose first size is what is left of the others."""
        if tuple(shape) == x.shape:
            return x
        return self.op("Reshape", [x], shape, newshape=[-1, *shape[1:]])

    def turned(self, x: Made, axes: Sequence[int]) -> Made:
        """The tensor with its axes in another order."""
        axes = list(axes)
        return x if axes == sorted(axes) else self.op("Transpose", [x], [x.shape[axis] for axis in axes], axes=axes)

    def within(self, x: Any, shape: Sequence[int], axis: int) -> Any:
        """Of a tensor what lies within these sizes, along all axes but one."""
        for at, size in enumerate(shape):
            if at not in (0, axis) and size < x.shape[at]:
                x = self.part(x, at, slice(0, size)) if isinstance(x, Made) else x.take(range(size), at)
        return x

    def part(self, x: Made, axis: int, part: slice) -> Made:
        """Part of the tensor along an axis."""
        size = len(range(*part.indices(x.shape[axis])))
        shape = [*x.shape[:axis], size, *x.shape[axis + 1 :]]
        return self.op("GetItem", [x, [*[slice(None)] * axis, part]], shape)


def known(operand: Operand | None) -> NDArray[Any]:
    """An operand that is a constant. Raises `Unwritable` where it is not."""
    import numpy as np

    if not isinstance(operand, np.ndarray):
        raise Unwritable("Keras wants to know a number that is computed")
    return operand


def whole(operand: Operand | None) -> list[int]:
    """An operand that is a list of whole numbers."""
    return [int(one) for one in known(operand).ravel()]


def _tensors(value: Any) -> Iterator[Made]:
    if isinstance(value, Made):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)


def plainly(value: Any) -> Any:
    """An argument of an operation, as the model has it."""
    if isinstance(value, Made):
        return value.tensor
    return [plainly(one) for one in value] if isinstance(value, (list, tuple)) else value


def _joined(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    import numpy as np

    return tuple(np.broadcast_shapes(*map(tuple, shapes)))


def _emitted(net: Writer, link: LayerLink, size: int) -> OnnxGraph:
    """What the layer computes of its inputs, called `source:0` and so on, for a batch of that size, in operators."""
    graph = net.graph_for(size)
    sources = {graph.named[name]: f"source:{index}" for index, name in enumerate(dict.fromkeys(link.sources))}
    made, problems = emit(_alone(net, link, graph, sources))
    if problems:
        raise Unwritable(problems[0].got or problems[0].message)
    return made


def _alone(net: Writer, link: LayerLink, graph: Graph, sources: Mapping[Value, str]) -> Graph:
    """The graph of one layer, in which all that is known is computed."""
    import numpy as np

    new: dict[Value, Value] = {value: Input(name, value.type)() for value, name in sources.items()}
    wanted = [graph.named[name] for name in link.outputs]
    for node in topological(wanted, frozenset(sources)):
        if any(value in new for value in node.outputs):
            continue
        if isinstance(node.op, State):
            array = net.arrays.get(node.op.label)
            kind = node.outputs[0].type
            if array is None:  # numbers that are not all the same, which would be one
                array = (np.arange(kind.size) % 2).reshape(kind.shape).astype(str(kind.dtype))
            new[node.outputs[0]] = constant(array)
        elif isinstance(node.op, Input):
            raise Unwritable("it reads a mask that an earlier layer makes, and Keras's operations have none")
        else:
            with in_scope(node.scope):
                new |= dict(zip(node.outputs, _known(node, [new[value] for value in node.inputs]), strict=True))
    return Graph({f"result:{index}": new[value] for index, value in enumerate(wanted)})


def _known(node: Node, inputs: list[Value]) -> Sequence[Value]:
    """The results of a node: computed where all that it reads are constants."""
    import numpy as np

    if node.op.name in SIMPLER:
        made = node.op.decompose(*inputs)
        return made if isinstance(made, tuple) else (made,)
    if not inputs or not all(value.op.traits.source and not isinstance(value.op, Input) for value in inputs):
        return rebuild(node, tuple(inputs)) if inputs else node.outputs
    with np.errstate(all="ignore"):
        made = node.op.forward(np, *(value.op.forward(np) for value in inputs))
    return [constant(array) for array in (made if isinstance(made, tuple) else (made,))]


def tensor(operand: Operand | None) -> Made:
    """An operand that is a tensor. Raises `Unwritable` where it is not."""
    if not isinstance(operand, Made):
        raise Unwritable("Keras computes with constants where there is a tensor")
    return operand


def ends_of(sections: Sequence[int]) -> list[int]:
    """Where parts of these sizes end, without the last."""
    return list(accumulate(sections))[:-1]
