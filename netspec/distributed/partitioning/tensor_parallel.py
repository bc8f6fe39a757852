"""Tensor parallelism: products of a batch with a parameter are split over workers that read a part of the batch each.

A parameter may be split by columns: each worker multiplies the full batch, which is gathered, and holds columns of the
result. Or by rows: each worker multiplies columns of the full batch, and the results are reduce-scattered: each worker
receives its own samples. Krizhevsky 2014, "One weird trick", arXiv:1404.5997, section 4; columns before rows: Shoeybi
et al. 2019, "Megatron-LM", arXiv:1909.08053, section 3.

Element-wise ops keep results split by columns, including dropout, which draws the same values as a single worker; for
any other op, each worker receives its own samples back. A penalty on a parameter is summed over the parts; other
readers of a parameter get it gathered. This module builds no gradients: each exchange defines its own.
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
    """How a parameter that is a matrix is cut: along 1, its columns, or 0, its rows."""

    axis: int
    parts: AxisPartition


@dataclass
class _ShardedValue:
    """What there is of a value in the new graph."""

    own: Value | None = None
    """The value for this worker's samples; of what depends on none, the value."""
    columns: Value | None = None
    """Columns of it for all samples."""
    parts: AxisPartition | None = None
    """Which."""
    whole: Value | None = None
    """All of it, for all samples."""
    piece: Value | None = None
    """Of a parameter, or of what is made of it element by element, this worker's part."""
    cut: ParameterSplit | None = None
    of: Node | None = None
    """Where it is made of parameters: by which node."""
    drawn: Callable[[AxisPartition], Value] | None = None
    """Of random numbers, what makes columns of them for all samples."""


class SplitMatMuls(Pass):
    """Cut the products with certain parameters among workers."""

    name: ClassVar[str] = "cut_products"
    exact: ClassVar[bool] = False

    def __init__(self, cuts: Mapping[str, ParameterSplit], rows: AxisPartition, size: int) -> None:
        """`rows` are the parts of the batch, of which this worker's has `size` samples in the graph."""
        self.cuts, self.rows, self.size = cuts, rows, size

    def run(self, graph: Graph) -> Graph:
        """The graph in which the states are parts, under the same names."""
        return _MatMulSplitter(self).of(graph)


class _MatMulSplitter:
    """One run of the pass."""

    def __init__(self, how: SplitMatMuls) -> None:
        self.cuts, self.rows, self.size = how.cuts, how.rows, how.size
        self.images: dict[Value, _ShardedValue] = {}
        self.turned: dict[tuple[Value, AxisPartition], Value] = {}
        """Columns of what a worker has for its own samples."""
        self.reading = _ValueFacts()

    def of(self, graph: Graph) -> Graph:
        """The new graph."""
        for node in graph.nodes():
            with in_scope(node.scope):
                self._make(node)
        new = {}
        for value in graph.roots():
            with in_scope(value.node.scope):
                new[value] = self._own(value)
        return replace(graph, named={}).remap(new)

    def _make(self, node: Node) -> None:
        """Give the results of a node their images."""
        self.reading.read(node)
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
        if not self.reading.divisible(node):
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
        """What is made of a parameter's part, or the sum of all parts."""
        images = [self.images[value] for value in node.inputs]
        cuts = [one.cut for one in images if one.cut is not None]
        if not cuts:
            return None
        if isinstance(node.op, ReduceSum) and len(node.op.reduced_axes(node.inputs[0].type)) == len(
            node.inputs[0].shape
        ):
            return _ShardedValue(own=AllReduce()(node.op(_there(images[0].piece))))
        alike = all(one.cut == cuts[0] or not value.shape for one, value in zip(images, node.inputs, strict=True))
        if not node.op.traits.elementwise or not alike:
            return None
        pairs = zip(images, node.inputs, strict=True)
        made = [self._own(value) if one.piece is None else one.piece for one, value in pairs]
        return _ShardedValue(piece=node.op(*made), cut=cuts[0], of=node)

    def _of_columns(self, node: Node) -> _ShardedValue | None:
        """What is done with columns element by element."""
        found = [self.images[value].parts for value in node.inputs]
        parts = next((one for one in found if one is not None), None)
        if parts is None:
            return None
        if self.reading.draws(node) and found[0] is not None:
            made = node.op.decompose(*node.inputs)
            assert isinstance(made, Value)
            for one in topological_order([made], stop=frozenset(node.inputs)):
                self._make(one)
            return self.images[made]
        having = {value for value, one in zip(node.inputs, found, strict=True) if one == parts}
        if not self.reading.keeps_columns(node, having):
            return None
        return _ShardedValue(columns=node.op(*(self._columns(value, parts) for value in node.inputs)), parts=parts)

    def _drawn(self, node: Node) -> _ShardedValue | None:
        """Random numbers, and what is made of them alone element by element: other workers' are drawn when wanted."""
        if node.outputs[0] not in self.reading.drawn:
            return None
        inputs = tuple(map(self._own, node.inputs))
        own = node.op(*inputs)

        def columns(parts: AxisPartition) -> Value:
            if not isinstance(node.op, RandomUniform):
                return node.op(*(self._columns(value, parts) for value in node.inputs))
            first = GlobalSampleIndex(self.rows.bounds[self.rows.rank])(inputs[0])
            kind = node.op.type
            whole = replace(node.op, type=kind.with_shape(self.rows.total, *kind.shape[1:]))
            return _sliced(whole(first), parts)

        return _ShardedValue(own=own, drawn=columns)

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
                image.own = AllGather(image.cut.parts, image.cut.axis)(_there(image.piece))
        return image.own

    def _columns(self, value: Value, parts: AxisPartition) -> Value:
        image = self.images[value]
        if image.columns is not None and image.parts == parts:
            return image.columns
        if image.drawn is not None:
            return image.drawn(parts)
        if value not in self.reading.varying:
            return _of_all_samples(self._own(value), parts)
        if (value, parts) not in self.turned:
            self.turned[value, parts] = AllToAll(self.rows, parts, self.size)(self._own(value))
        return self.turned[value, parts]

    def _whole(self, value: Value) -> Value:
        image = self.images[value]
        if image.whole is None:
            if image.columns is not None:
                assert image.parts is not None
                image.whole = AllGather(image.parts, len(value.shape) - 1)(image.columns)
            else:
                image.whole = AllGather(self.rows, 0)(self._own(value))
        return image.whole


class _ValueFacts:
    """What is known of a graph's values, node by node in the order of execution."""

    def __init__(self) -> None:
        self.varying: set[Value] = set()
        """Those that differ from sample to sample, or from worker to worker."""
        self.drawn: set[Value] = set()
        """Of these, random numbers, and what is made of them alone element by element."""

    def read(self, node: Node) -> None:
        """Learn of a node."""
        if isinstance(node.op, Input) or self.varying.intersection(node.inputs):
            self.varying.update(node.outputs)
        if isinstance(node.op, RandomUniform) or (
            node.op.traits.elementwise
            and self.drawn.intersection(node.inputs)
            and all(one in self.drawn or self._same_for_all(one, node.outputs[0]) for one in node.inputs)
        ):
            self.drawn.update(node.outputs)

    def _same_for_all(self, value: Value, y: Value) -> bool:
        """Whether it is the same for all samples of y, so that columns of it can be had without asking anybody.

        Decided in the same way for any number of samples: one that is alone looks like what all have in common.
        """
        if isinstance(value.op, Fill):
            return True
        return value not in self.varying and len(value.shape) < len(y.shape)

    def divisible(self, node: Node) -> bool:
        """Whether it is a product of samples with a matrix."""
        if not isinstance(node.op, MatMul) or node.op != MatMul():
            return False
        x, kernel = node.inputs
        return x in self.varying and isinstance(kernel.op, State) and len(kernel.shape) == 2

    def draws(self, node: Node) -> bool:
        """Whether an op draws random numbers that it can be rid of by simpler ops."""
        made_of_others = type(node.op).decompose is not Op.decompose
        return made_of_others and node.op.deterministic_form(node.inputs) is not None

    def keeps_columns(self, node: Node, having: set[Value]) -> bool:
        """Whether columns of the result can be made where only columns are there of some operands."""
        if len(node.outputs) > 1 or not node.op.traits.elementwise or not having.intersection(node.inputs):
            return False
        y = node.outputs[0]
        return all(
            one.shape == y.shape if one in having else one in self.drawn or self._same_for_all(one, y)
            for one in node.inputs
        )


def splittable_matmuls(graph: Graph, kernels: Mapping[str, str]) -> list[ParameterMatMul]:
    """The products of the batch with parameters that are matrices; `kernels` are their layers by their names."""
    reading, found = _ValueFacts(), dict[str, ParameterMatMul]()
    origin = dict[Value, str]()
    for node in graph.nodes():
        reading.read(node)
        if reading.divisible(node):
            x, kernel = node.inputs
            assert isinstance(kernel.op, State)
            name = kernel.op.label
            if name in kernels:
                positions = x.type.size // (x.shape[0] * x.shape[-1])
                inputs, units = kernel.shape
                found.setdefault(name, ParameterMatMul(name, kernels[name], inputs, units, positions, origin.get(x)))
                origin[node.outputs[0]] = name
        elif reading.draws(node):
            if node.inputs[0] in origin:
                origin[node.outputs[0]] = origin[node.inputs[0]]
        else:
            before = {origin[one] for one in node.inputs if one in origin}
            having = {one for one in node.inputs if one in origin}
            if len(before) == 1 and reading.keeps_columns(node, having):
                origin[node.outputs[0]] = before.pop()
    return list(found.values())


def _there(value: Value | None) -> Value:
    assert value is not None
    return value


def _sliced(x: Value, parts: AxisPartition) -> Value:
    """Columns of what has all of them; of what has one for all, that."""
    if not x.shape or x.shape[-1] == 1 != parts.total:
        return x
    return Slice(len(x.shape) - 1, parts.bounds[parts.rank], parts.bounds[parts.rank + 1])(x)


def _of_all_samples(x: Value, parts: AxisPartition) -> Value:
    """Columns of what is the same for all samples."""
    if isinstance(x.op, Fill):
        return Fill(x.op.value, TensorType((), x.dtype))()
    return _sliced(x, parts)


Choice = Callable[[Sequence[ParameterMatMul]], Mapping[str, int]]
"""From the products with parameters that can be divided to the axes along which they are, by the parameters' names."""


def split_parameters(
    spec: NetSpec, net: NetGraph, choose: Choice, workers: int, rank: int
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
    """Return the losses and new states of this worker's `batch_size` samples of a global batch."""
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
    """The products with parameters that could be cut, in the order of the net."""
    return splittable_matmuls(_graph(built), _kernels(spec, built))


def _graph(built: NetGraph) -> Graph:
    return Graph(built.losses, built.builder.updates)


def _kernels(spec: NetSpec, built: NetGraph) -> dict[str, str]:
    """The layers whose parameters can be divided, by their names: those that are trained, and that no layer changes."""
    found = dict[str, str]()
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
            found.setdefault(name, layer.share or link.name)
    return found
