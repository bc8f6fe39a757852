"""Tensor parallelism: products of a batch with a parameter are split over workers, which each read part of the batch.

A parameter may be split by columns: each worker multiplies the full batch, which is gathered, and holds columns of the
result. Or by rows: each worker multiplies columns of the full batch, and the results are reduce-scattered: each worker
receives its own samples. Krizhevsky 2014, "One weird trick", arXiv:1404.5997, section 4; columns before rows: Shoeybi
et al. 2019, "Megatron-LM", arXiv:1909.08053, section 3.

Element-wise ops keep results split by columns, including dropout, which draws the same values as a single worker; for
any other op, each worker receives its own samples back. A penalty on a parameter is summed over the parts; other ops
that read a parameter get the gathered parameter. This module does not build gradients: each exchange op defines its own
gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from netspec.compile.build import NetGraph
from netspec.graph.graph import Graph, rebuild, topological_order
from netspec.graph.op import Op
from netspec.graph.ops.all_reduce import AllReduce
from netspec.graph.ops.collectives import AllGather, AllToAll, AxisPartition, ParameterMatMul, ReduceScatter
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.random import GlobalSampleIndex, RandomUniform
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.shape import Slice
from netspec.graph.ops.source import Fill, Input, State
from netspec.graph.types import TensorType
from netspec.graph.value import Node, Value, in_scope
from netspec.layers.base import LayerSpec
from netspec.layers.states import ShardSpec
from netspec.passes.base import Pass
from netspec.schema.specs.links import resolve_names
from netspec.schema.specs.net import NetSpec


@dataclass(frozen=True)
class ParameterSplit:
    """The axis along which a matrix is split, 0 for rows or 1 for columns, and its parts."""

    axis: int
    parts: AxisPartition


@dataclass
class _ShardedValue:
    """The forms in which the new graph has a value."""

    own: Value | None = None
    """The value for this worker's samples, or for all if it does not depend on samples."""
    columns: Value | None = None
    """Columns of the value for all samples."""
    parts: AxisPartition | None = None
    """Partition of these columns."""
    whole: Value | None = None
    """All columns, for all samples."""
    piece: Value | None = None
    """This worker's part of a parameter, or of a value computed element-wise from a parameter."""
    cut: ParameterSplit | None = None
    of: Node | None = None
    """The node that computes the value from parameters."""
    random: Callable[[AxisPartition], Value] | None = None
    """Returns columns of random values for all samples."""


class SplitMatMuls(Pass):
    """Split the products with certain parameters over workers."""

    name: ClassVar[str] = "cut_products"
    exact: ClassVar[bool] = False

    def __init__(self, cuts: Mapping[str, ParameterSplit], rows: AxisPartition, size: int) -> None:
        """`rows` is the partition of the batch; this worker's part has `size` samples in the graph."""
        self.cuts, self.rows, self.size = cuts, rows, size

    def run(self, graph: Graph) -> Graph:
        """Return the graph with the states of split parameters replaced by their parts, under the same names."""
        return _MatMulSplitter(self).of(graph)


class _MatMulSplitter:
    """A single run of the pass."""

    def __init__(self, split: SplitMatMuls) -> None:
        self.cuts, self.rows, self.size = split.cuts, split.rows, split.size
        self.images: dict[Value, _ShardedValue] = {}
        self.own_columns: dict[tuple[Value, AxisPartition], Value] = {}
        """Columns, for all samples, of values that each worker has for its own samples."""
        self.analysis = _ValueAnalysis()

    def of(self, graph: Graph) -> Graph:
        """Return the new graph."""
        for node in graph.nodes():
            with in_scope(node.scope):
                self._make(node)
        new = {}
        for value in graph.roots():
            with in_scope(value.node.scope):
                new[value] = self._own(value)
        return replace(graph, named={}).remap(new)

    def _make(self, node: Node) -> None:
        """Build the new forms of a node's results."""
        self.analysis.read(node)
        image = (
            self._state(node) or self._product(node) or self._of_a_piece(node) or self._of_columns(node)
            or self._drawn(node)
        )  # fmt: skip
        if image is not None:
            (y,) = node.outputs
            self.images[y] = image
            return
        inputs = tuple(map(self._own, node.inputs))
        outputs = node.outputs if inputs == node.inputs else rebuild(node, inputs)
        self.images.update(zip(node.outputs, map(_ShardedValue, outputs), strict=True))

    def _state(self, node: Node) -> _ShardedValue | None:
        if not isinstance(node.op, State) or node.op.label not in self.cuts:
            return None
        cut, shape = self.cuts[node.op.label], list(node.op.type.shape)
        shape[cut.axis] = cut.parts.own_size
        return _ShardedValue(piece=State(node.op.label, node.op.type.with_shape(*shape))(), cut=cut)

    def _product(self, node: Node) -> _ShardedValue | None:
        if not self.analysis.is_splittable(node):
            return None
        x, kernel = node.inputs
        image = self.images[kernel]
        if image.cut is None or not isinstance(kernel.op, State):
            return None
        assert image.piece is not None
        parts = image.cut.parts
        if image.cut.axis == 1:
            return _ShardedValue(columns=node.op(self._whole(x), image.piece), parts=parts)
        part = node.op(self._columns(x, parts), image.piece)
        return _ShardedValue(own=ReduceScatter(self.rows, 0, self.size)(part))

    def _of_a_piece(self, node: Node) -> _ShardedValue | None:
        """Return an element-wise function of a parameter's part, or the sum over all parts."""
        images = [self.images[value] for value in node.inputs]
        cuts = [image.cut for image in images if image.cut is not None]
        if not cuts:
            return None
        if isinstance(node.op, ReduceSum) and len(node.op.reduced_axes(node.inputs[0].type)) == len(
            node.inputs[0].shape
        ):
            return _ShardedValue(own=AllReduce()(node.op(_present(images[0].piece))))
        alike = all(image.cut == cuts[0] or not value.shape for image, value in zip(images, node.inputs, strict=True))
        if not node.op.traits.elementwise or not alike:
            return None
        images_and_values = zip(images, node.inputs, strict=True)
        operands = [self._own(value) if image.piece is None else image.piece for image, value in images_and_values]
        return _ShardedValue(piece=node.op(*operands), cut=cuts[0], of=node)

    def _of_columns(self, node: Node) -> _ShardedValue | None:
        """Return an element-wise function of columns."""
        partitions = [self.images[value].parts for value in node.inputs]
        parts = next((partition for partition in partitions if partition is not None), None)
        if parts is None:
            return None
        if self.analysis.draws_random(node) and partitions[0] is not None:
            decomposed = node.op.decompose(*node.inputs)
            assert isinstance(decomposed, Value)
            for inner in topological_order([decomposed], stop=frozenset(node.inputs)):
                self._make(inner)
            return self.images[decomposed]
        split_operands = {value for value, partition in zip(node.inputs, partitions, strict=True) if partition == parts}
        if not self.analysis.keeps_columns(node, split_operands):
            return None
        return _ShardedValue(columns=node.op(*(self._columns(value, parts) for value in node.inputs)), parts=parts)

    def _drawn(self, node: Node) -> _ShardedValue | None:
        """Return random values or an element-wise function of them; columns of other workers are drawn when needed."""
        if node.outputs[0] not in self.analysis.random:
            return None
        inputs = tuple(map(self._own, node.inputs))
        own_values = node.op(*inputs)

        def columns(parts: AxisPartition) -> Value:
            if not isinstance(node.op, RandomUniform):
                return node.op(*(self._columns(value, parts) for value in node.inputs))
            first = GlobalSampleIndex(self.rows.bounds[self.rows.rank])(inputs[0])
            kind = node.op.type
            full = replace(node.op, type=kind.with_shape(self.rows.total, *kind.shape[1:]))
            return _sliced(full(first), parts)

        return _ShardedValue(own=own_values, random=columns)

    def _own(self, value: Value) -> Value:
        image = self.images[value]
        if image.own is None:
            if image.columns is not None:
                assert image.parts is not None
                image.own = AllToAll(self.rows, image.parts, self.size, inverse=True)(image.columns)
            elif image.of is not None:
                image.own = image.of.op(*map(self._own, image.of.inputs))
            else:
                assert image.cut is not None
                image.own = AllGather(image.cut.parts, image.cut.axis)(_present(image.piece))
        return image.own

    def _columns(self, value: Value, parts: AxisPartition) -> Value:
        image = self.images[value]
        if image.columns is not None and image.parts == parts:
            return image.columns
        if image.random is not None:
            return image.random(parts)
        if value not in self.analysis.varying:
            return _of_all_samples(self._own(value), parts)
        if (value, parts) not in self.own_columns:
            self.own_columns[value, parts] = AllToAll(self.rows, parts, self.size)(self._own(value))
        return self.own_columns[value, parts]

    def _whole(self, value: Value) -> Value:
        image = self.images[value]
        if image.whole is None:
            if image.columns is not None:
                assert image.parts is not None
                image.whole = AllGather(image.parts, len(value.shape) - 1)(image.columns)
            else:
                image.whole = AllGather(self.rows, 0)(self._own(value))
        return image.whole


class _ValueAnalysis:
    """Finds values that depend on samples or are random, node by node in the order of execution."""

    def __init__(self) -> None:
        self.varying: set[Value] = set()
        """Values that differ between samples, or between workers."""
        self.random: set[Value] = set()
        """Varying values that are random, or element-wise functions of random values alone."""

    def read(self, node: Node) -> None:
        """Analyze a node."""
        if isinstance(node.op, Input) or self.varying.intersection(node.inputs):
            self.varying.update(node.outputs)
        if isinstance(node.op, RandomUniform) or (
            node.op.traits.elementwise
            and self.random.intersection(node.inputs)
            and all(operand in self.random or self._same_for_all(operand, node.outputs[0]) for operand in node.inputs)
        ):
            self.random.update(node.outputs)

    def _same_for_all(self, value: Value, y: Value) -> bool:
        """Return whether a value is the same for all samples of y, so that its columns need no communication.

        The answer must not depend on the number of samples: a value of a single sample looks like one that all share.
        """
        if isinstance(value.op, Fill):
            return True
        return value not in self.varying and len(value.shape) < len(y.shape)

    def is_splittable(self, node: Node) -> bool:
        """Return whether a node multiplies samples by a parameter that is a matrix."""
        if not isinstance(node.op, MatMul) or node.op != MatMul():
            return False
        x, kernel = node.inputs
        return x in self.varying and isinstance(kernel.op, State) and len(kernel.shape) == 2

    def draws_random(self, node: Node) -> bool:
        """Return whether an op draws random values, and decomposes into ops that take them as an operand."""
        made_of_others = type(node.op).decompose is not Op.decompose
        return made_of_others and node.op.deterministic_form(node.inputs) is not None

    def keeps_columns(self, node: Node, split_operands: set[Value]) -> bool:
        """Return whether columns of the result can be computed from columns of `split_operands`."""
        if len(node.outputs) > 1 or not node.op.traits.elementwise or not split_operands.intersection(node.inputs):
            return False
        y = node.outputs[0]
        return all(
            operand.shape == y.shape
            if operand in split_operands
            else operand in self.random or self._same_for_all(operand, y)
            for operand in node.inputs
        )


def splittable_matmuls(graph: Graph, kernels: Mapping[str, str]) -> list[ParameterMatMul]:
    """Return the products of the batch with parameters that are matrices; `kernels` maps parameters to layers."""
    analysis, products = _ValueAnalysis(), dict[str, ParameterMatMul]()
    origin = dict[Value, str]()
    for node in graph.nodes():
        analysis.read(node)
        if analysis.is_splittable(node):
            x, kernel = node.inputs
            assert isinstance(kernel.op, State)
            name = kernel.op.label
            if name in kernels:
                positions = x.type.size // (x.shape[0] * x.shape[-1])
                inputs, units = kernel.shape
                products.setdefault(name, ParameterMatMul(name, kernels[name], inputs, units, positions, origin.get(x)))
                origin[node.outputs[0]] = name
        elif analysis.draws_random(node):
            if node.inputs[0] in origin:
                origin[node.outputs[0]] = origin[node.inputs[0]]
        else:
            before = {origin[operand] for operand in node.inputs if operand in origin}
            split_operands = {operand for operand in node.inputs if operand in origin}
            if len(before) == 1 and analysis.keeps_columns(node, split_operands):
                origin[node.outputs[0]] = before.pop()
    return list(products.values())


def _present(value: Value | None) -> Value:
    assert value is not None
    return value


def _sliced(x: Value, parts: AxisPartition) -> Value:
    """Return the columns of a part; a value with a single column for all is returned as it is."""
    if not x.shape or x.shape[-1] == 1 != parts.total:
        return x
    return Slice(len(x.shape) - 1, parts.bounds[parts.rank], parts.bounds[parts.rank + 1])(x)


def _of_all_samples(x: Value, parts: AxisPartition) -> Value:
    """Return columns of a value that is the same for all samples."""
    if isinstance(x.op, Fill):
        return Fill(x.op.value, TensorType((), x.dtype))()
    return _sliced(x, parts)


SplitChoice = Callable[[Sequence[ParameterMatMul]], Mapping[str, int]]
"""Maps the products whose parameters can be split to the axes along which they are split, by the parameters' names."""


def split_parameters(
    spec: NetSpec, net: NetGraph, choose: SplitChoice, workers: int, rank: int
) -> dict[str, ParameterSplit]:
    """Split the parameters that `choose` selects evenly over the workers."""
    candidates = splittable_layers(spec, net)
    shapes = {product.kernel: (product.inputs, product.units) for product in candidates}
    return {
        name: ParameterSplit(axis, AxisPartition.even(shapes[name][axis], workers, rank))
        for name, axis in choose(candidates).items()
    }


def split_net(
    net: NetGraph, splits: Mapping[str, ParameterSplit], workers: int, rank: int, batch_size: int, global_batch: int
) -> NetGraph:
    """Return the net for this worker's `batch_size` samples of a global batch, with its products split."""
    rows = AxisPartition.even(global_batch, workers, rank)
    graph = SplitMatMuls(splits, rows, batch_size).run(_graph(net))
    states = dict(net.builder.states)
    for name, value in graph.states().items():
        if name in splits:
            split, shape = splits[name], states[name].value.shape
            piece = ShardSpec(shape, split.axis, split.parts.bounds, rank)
            states[name] = replace(states[name], value=value, shard=piece)
    builder = replace(net.builder, states=states, updates=graph.updates)
    return replace(net, builder=builder, losses=graph.outputs)


def splittable_layers(spec: NetSpec, built: NetGraph) -> list[ParameterMatMul]:
    """Return the products with parameters that can be split, in the order of the net."""
    return splittable_matmuls(_graph(built), _kernels(spec, built))


def _graph(built: NetGraph) -> Graph:
    return Graph(built.losses, built.builder.updates)


def _kernels(spec: NetSpec, built: NetGraph) -> dict[str, str]:
    """Return the layers of splittable parameters by parameter name: trained, and not updated by a layer."""
    layers = dict[str, str]()
    for link in resolve_names(spec).layers:
        layer = link.fields
        assert isinstance(layer, LayerSpec)
        name = f"{layer.share or link.name}/{layer.shardable_parameter}"
        info = built.builder.states.get(name)
        if (
            layer.shardable_parameter is not None
            and info is not None
            and info.trainable
            and name not in built.builder.updates
        ):
            layers.setdefault(name, layer.share or link.name)
    return layers
