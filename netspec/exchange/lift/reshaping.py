"""Transpose and reshape tensors, and add layers that need the samples in front.

Transposing and reshaping only change a tensor's `AxisView` as long as they can. A layer is added when another layer
needs the axes in order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from numpy.typing import NDArray

from netspec.exchange.axis_view import Axes, AxisView, axes_of_merged_steps, axes_of_single_sample, axes_without
from netspec.exchange.lift.layers import LayerWriter, LiftedLayer
from netspec.exchange.lift.tensors import Tensors
from netspec.exchange.operator_graph.graph import ImportedGraph, OperatorNode
from netspec.exchange.unsupported import MixesSamples, UnsupportedFeature
from netspec.schema.specs.names import snake_case


class Reshaper:
    """Transposes and reshapes tensors of one import."""

    def __init__(self, model: ImportedGraph, tensors: Tensors, layers: LayerWriter) -> None:
        self._model = model
        self._tensors = tensors
        self._layers = layers

    def alias(self, node: OperatorNode, source: str) -> None:
        """Make the node's result equal to `source`."""
        tensors, output = self._tensors, node.outputs[0]
        tables: tuple[dict[str, Any], ...] = (tensors.sequences, tensors.constants, tensors.views)
        for table in tables:
            if source in table:
                table[output] = table[source]
                return
        self._layers.value(source)
        stored = tensors.resolve(source)
        layer = self._layers.producer(stored)
        if layer is not None and tensors.reads.get(source) == 1 and stored not in self._model.outputs:
            layer.output = output
            tensors.values[output] = tensors.values[stored]
            tensors.aliases[stored] = output
        elif output in self._model.outputs:
            self._layers.add(node, "Activation", [source], {"activation": "linear"})
        else:
            tensors.aliases[output] = source

    def add_chain(
        self,
        node: OperatorNode,
        source: str,
        layers: Sequence[tuple[str, Mapping[str, Any]]],
        dropped: Collection[int] = (),
    ) -> None:
        """Add layers of these types and fields one after another; the last makes the node's result.

        The layers read the tensor that its `permuted_view` refers to, and keep the order of axes, without `dropped`.
        """
        if not layers:
            self.alias(node, source)
            return
        view = self._layers.permuted_view(source)
        source, axes = view.source, axes_without(view.axes, dropped)
        output, stands_for = node.outputs[0], self._tensors.stands_for
        for count, (type_, fields) in enumerate(layers, 1):
            last = count == len(layers)
            part = "" if last else f" {count} of {len(layers)}"
            tensor = f"{output}{part}"
            if part and output in stands_for:
                stands_for[tensor] = f"{stands_for[output]}{part}"
            self._layers.add(
                node, type_, [source], fields, outputs=[tensor], result_axes=(lambda rank: axes) if last else None
            )
            source = tensor

    def transpose(self, node: OperatorNode, source: str, permutation: Sequence[int]) -> None:
        """Make the node's result `source` with permuted axes."""
        view = self._tensors.view(source)
        if sorted(permutation) != list(range(len(view.axes))):
            raise UnsupportedFeature(f"{list(permutation)} is not a permutation of the axes")
        axes = tuple(view.axes[axis] for axis in permutation)
        if axes == self._tensors.axes_in_order(len(axes)):
            self.alias(node, view.source)
            return
        output = node.outputs[0]
        self._tensors.views[output] = AxisView(view.source, axes, node)
        if node.name.startswith(f"{output}/") and self._layers.needs_only_permute(self._tensors.views[output]):
            self._layers.value(output)  # as netspec exports a layer Permute

    def reshape(self, node: OperatorNode, source: str, target: tuple[int, ...], output: str | None = None) -> None:
        """Make the node's result, or `output`, `source` reshaped to `target`, the shape in the model."""
        output, shape = node.outputs[0] if output is None else output, self._tensors.shape(source)
        if target == shape:
            self.alias(replace(node, outputs=(output,)), source)
        elif self._tensors.single_sample:
            self._reshape_single_sample(node, source, target, output)
        elif (axes := self._axes_without_ones(source, target)) is not None:
            view = AxisView(self._tensors.view(source).source, axes, node)
            if axes == self._tensors.axes_in_order(self._tensors.rank_in_net(source)):
                self.alias(replace(node, outputs=(output,)), view.source)
            else:
                self._tensors.views[output] = view
        else:
            self._reshape_batch(node, source, target, output)

    def ordered_view(self, tensor: str) -> AxisView:
        """The view of a computed tensor, permuted so that its axes except the batch are stored in the model's order."""
        view = self._tensors.view(tensor)
        order = [axis for axis in view.flat if self._tensors.single_sample or axis]
        if order != sorted(order):
            source = self._tensors.fresh_name(tensor)
            node = view.node or OperatorNode("Transpose", "", (tensor,), (source,), {}, self._model.opset)
            self._layers.add(node, "Permute", [view.source], {"dims": order}, outputs=[source])
            moved = {0: 0, **{axis: index for index, axis in enumerate(order, 1)}}
            axes = tuple(tuple(moved[axis] for axis in group) for group in view.axes)
            self._tensors.views[tensor] = AxisView(source, axes, view.node)
        return self._tensors.view(tensor)

    def add_per_sample(
        self,
        node: OperatorNode,
        type_: str,
        inputs: Sequence[str],
        fields: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]] | None = None,
        outputs: Sequence[str] | None = None,
    ) -> LiftedLayer:
        """Like `LayerWriter.add`, for layers whose samples are the model's axis 0, such as images (N, C, H, W).

        Fields count axes as the operator does. If the whole model is one sample, the layer reads a single image without
        axis 0, and several images as the steps of a TimeDistributed.
        """
        tensors, layers = self._tensors, self._layers
        merged = not tensors.single_sample and len(inputs) == 1 and self._has_merged_steps(tensors.view(inputs[0]))
        if not tensors.single_sample and not merged:
            return layers.add(node, type_, inputs, fields, arrays, outputs)
        counts = {tensors.shape(tensor)[:1] for tensor in inputs}
        if tensors.single_sample and counts == {(1,)}:
            sources = [self.samples_first(tensor) for tensor in inputs]
            return layers.add(node, type_, sources, fields, arrays, outputs, result_axes=axes_of_single_sample)
        if len(inputs) > 1 or counts == {()}:
            shapes = [list(tensors.shape(tensor)) for tensor in inputs]
            raise UnsupportedFeature(f"its operands must have size 1 along axis 0, got the shapes {shapes}")
        inner = {"layer": {"type": type_, **fields}}
        weights = {f"{snake_case(type_)}/{name}": array for name, array in (arrays or {}).items()}
        source = tensors.view(inputs[0]).source if merged else inputs[0]
        axes = axes_of_merged_steps if merged else None
        return layers.add(node, "TimeDistributed", [source], inner, weights, outputs, result_axes=axes)

    def samples_first(self, tensor: str, axis: int = 0) -> str:
        """The tensor of the net with the model's `axis` as samples in front of the other axes, which keep their order.

        If the whole model is one sample, `axis` must be of size 1.
        """
        tensors = self._tensors
        others = [index for index in range(tensors.rank(tensor)) if index != axis]
        if tensors.single_sample and tensors.shape(tensor)[axis] != 1:
            raise UnsupportedFeature(
                f"axis {axis} has {tensors.shape(tensor)[axis]} samples, and only 1 is supported here"
            )
        if tensor in tensors.constants:
            return self._constant_samples_first(tensor, axis, others)
        view = tensors.view(tensor)
        axes: Axes = tuple(view.axes[index] for index in (others if tensors.single_sample else [axis, *others]))
        if ((0,),) * tensors.axis_offset + axes == tuple((index,) for index in range(tensors.rank_in_net(tensor))):
            return view.source
        name = tensors.fresh_name(tensor)
        if tensors.single_sample:
            target = tuple(tensors.shape(tensor)[index] for index in others)
            node = OperatorNode("Reshape", "", (tensor,), (name,), {}, self._model.opset)
            self._layers.reshape_samples(node, tensor, target, name)
        else:
            node = view.node or OperatorNode("Transpose", "", (tensor,), (name,), {}, self._model.opset)
            tensors.views[name] = AxisView(view.source, axes, node)
            self._layers.value(name)
        return name

    def _constant_samples_first(self, tensor: str, axis: int, others: Sequence[int]) -> str:
        tensors = self._tensors
        moved = f"{tensor} with axis {axis} in front"
        array = tensors.constants[tensor].transpose([axis, *others])
        tensors.constants[moved] = array[0] if tensors.single_sample else array
        name = self._layers.parameter(moved, tensors.rank(moved))
        tensors.stands_for[name] = tensor
        return name

    def _has_merged_steps(self, view: AxisView) -> bool:
        """Whether axis 0 is the batch times the steps of each sample, with the other axes in order."""
        return view.axes == axes_of_merged_steps(len(view.axes) + 1)

    def _axes_without_ones(self, source: str, target: Sequence[int]) -> Axes | None:
        """The axes after a reshape that only adds or drops axes of size 1, if the samples are not in front."""
        view, shape = self._tensors.view(source), self._tensors.shape(source)
        groups = [axes for axes in view.axes if axes]
        sizes = [shape[view.axes.index(axes)] for axes in groups]
        if view.axes[:1] == ((0,),) or sizes != [size for size in target if size != 1]:
            return None
        return tuple(groups.pop(0) if size != 1 else () for size in target)

    def _reshape_single_sample(self, node: OperatorNode, source: str, target: tuple[int, ...], output: str) -> None:
        view, shape = self._tensors.view(source), self._tensors.shape(source)
        start = view.source if view.flat == sorted(view.flat) else source
        if target[:1] == (1,) == shape[:1] and not view.axes[0] and len(target) > 1:
            stored = self._tensors.fresh_name(output)
            self._layers.reshape_samples(node, start, target[1:], stored)
            self._tensors.views[output] = AxisView(stored, axes_of_single_sample(len(target)), node)
        else:
            self._layers.reshape_samples(node, start, target, output)

    def _reshape_batch(self, node: OperatorNode, source: str, target: tuple[int, ...], output: str) -> None:
        """Reshape in batches: the batch stays an axis or part of one; elements stay on their side of it."""
        tensors = self._tensors
        view, shape, batch = tensors.view(source), tensors.shape(source), tensors.batch_size
        sizes = tensors.values[tensors.resolve(view.source)].shape
        batch_axis = next((axis for axis, axes in enumerate(view.axes) if 0 in axes), None)
        outer = view.axes[batch_axis][: view.axes[batch_axis].index(0)] if batch_axis is not None else ()
        before = prod(shape[:batch_axis]) * prod(sizes[axis] for axis in outer)
        parts = {
            axis: before // prod(target[:axis])
            for axis, size in enumerate(target)
            if prod(target[: axis + 1]) and before % prod(target[:axis]) == 0
            and size % (before // prod(target[:axis]) * batch) == 0
        }  # fmt: skip
        if batch_axis is None or not parts:
            raise MixesSamples(f"it mixes the samples of a batch: {list(shape)} → {list(target)}")
        axis = min(parts, key=lambda axis: (parts[axis] != 1, target[axis] != batch))
        part, steps = parts[axis], target[axis] // (parts[axis] * batch)
        front = () if set(target[:axis]) == {1} else target[:axis]  # axes of size 1 before the batch are left out
        merged_sizes = [size for size in (part, steps) if size > 1]
        sample = (*front, *merged_sizes, *target[axis + 1 :])
        stored = self.ordered_view(source).source
        fits = tensors.values[tensors.resolve(stored)].shape[1:] == sample
        if axis == 0 and not merged_sizes:
            if fits:
                self.alias(replace(node, outputs=(output,)), stored)
            else:
                self._layers.reshape_samples(node, stored, sample, output)
            return
        if not fits:
            start, stored = stored, tensors.fresh_name(output)
            self._layers.reshape_samples(node, start, sample, stored)
        axes = list(range(1, len(sample) + 1))
        first, inner, rest = (
            axes[: len(front)],
            axes[len(front) :][: len(merged_sizes)],
            axes[len(front) + len(merged_sizes) :],
        )
        merged = (*inner[: part > 1], 0, *inner[part > 1 :])
        in_front: Axes = tuple((index,) for index in first) if front else ((),) * axis
        tensors.views[output] = AxisView(stored, (*in_front, merged, *((index,) for index in rest)), node)
