"""The layers of one import, which rules add, and which later nodes may become part of.

Every layer is built as it is added (shapes only), so that each rule knows the shapes of its operands, and a layer that
does not fit is reported at its node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.axis_view import Axes, AxisView
from netspec.exchange.layer_builder import BuiltLayer, build_layer
from netspec.exchange.lift.inputs import INPUT_TYPES
from netspec.exchange.lift.tensors import Tensors
from netspec.exchange.net_yaml_writer import non_defaults
from netspec.exchange.notes import Notes
from netspec.exchange.operator_graph.graph import ImportedGraph, OperatorNode
from netspec.exchange.unsupported import MixesSamples, UnsupportedFeature
from netspec.graph.value import Value
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.names import snake_case


@dataclass
class LiftedLayer:
    """A layer: fields that differ from their defaults, weights, and the tensors that it connects."""

    type: str
    fields: dict[str, Any]
    inputs: tuple[str, ...]
    output: str
    node: OperatorNode
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    name: str = ""
    sources: tuple[str, ...] = ()
    """Names of the layers and inputs that it reads, once layers have names."""
    outputs: tuple[tuple[str, str], ...] = ()
    """Tensor and name of each output, including the first, of layers with several outputs."""
    renamed: bool = False
    """Whether the first output of such a layer is an output of the model, which takes the tensor's name."""

    @property
    def stem(self) -> str:
        """The name of a layer with several outputs: `split` for the node `split/Split`, as netspec exports it.

        If the node has no name: the name of its first tensor, or the layer's type if an output takes that name.
        """
        name = self.node.layer_name
        stem = name.removesuffix(f"/{self.node.op_type}") if name else ""
        return stem or (snake_case(self.type) if self.renamed else self.outputs[0][0])

    def same_as(self, other: LiftedLayer) -> bool:
        """Whether another layer computes the same: type, fields, inputs and weights."""
        return (
            (self.type, self.fields, self.inputs) == (other.type, other.fields, other.inputs)
            and self.arrays.keys() == other.arrays.keys()
            and all(
                array is other.arrays[name]
                or np.array_equal(array, other.arrays[name], equal_nan=array.dtype.kind == "f")
                for name, array in self.arrays.items()
            )
        )

    @property
    def applies_activation(self) -> bool:
        """Whether layers of this type apply their field `activation` to their output, by default none.

        A recurrent layer applies it within its steps.
        """
        activation = LAYERS[self.type].model_fields.get("activation")
        return activation is not None and activation.default is None


class LayerWriter:
    """Adds layers to an import."""

    def __init__(self, model: ImportedGraph, tensors: Tensors, remarks: Notes) -> None:
        self.written: list[LiftedLayer] = []
        self._model = model
        self._tensors = tensors
        self._remarks = remarks
        self._parameters: dict[tuple[str, tuple[int, ...]], str] = {}
        """The tensor of the Parameter for each constant and shape."""

    def value(self, tensor: str) -> Value:
        """The tensor in the net, with its axes in order. A constant becomes a layer Parameter."""
        if tensor in self._tensors.views:
            self._put_in_order(tensor)
        if tensor in self._tensors.constants:
            return self._tensors.values[self.parameter(tensor, self._tensors.rank(tensor))]
        return self._tensors.values[self._tensors.resolve(tensor)]

    def view_with_single_axes(self, tensor: str, *axes: int) -> AxisView:
        """The view of a computed tensor in which each of `axes` is a single axis of the net.

        Raises `MixesSamples` if one of them is the batch.
        """
        if any(len(self._tensors.view(tensor).axes[axis]) != 1 for axis in axes):
            self.value(tensor)
        view = self._tensors.view(tensor)
        if any(view.axis(axis) == 0 for axis in axes):
            raise MixesSamples("its parameters vary along the batch axis")
        return view

    def is_permuted(self, tensor: str) -> bool:
        """Whether a computed tensor has its samples in front, but its other axes in another order."""
        return tensor in self._tensors.views and self.needs_only_permute(self._tensors.views[tensor])

    def permuted_view(self, tensor: str) -> AxisView:
        """The view of a tensor in which each axis is a single axis of the net; other views are put in order first."""
        if tensor in self._tensors.constants:
            rank = self._tensors.rank(tensor)
            return AxisView(self.parameter(tensor, rank), self._tensors.axes_in_order(rank))
        if not self.needs_only_permute(self._tensors.view(tensor)):
            self.value(tensor)
        return self._tensors.view(tensor)

    def stored_axis(self, tensor: str, axis: int, why_not: str = "it operates along the batch axis") -> int:
        """Like `Tensors.axis`, but the axis of the stored tensor, of which `permuted_view` is a view."""
        self._tensors.axis(tensor, axis, why_not)
        return self.permuted_view(tensor).axis(axis)

    def broadcast_operands(self, tensors: Sequence[str]) -> list[str]:
        """The tensors with an equal number of axes, so that layers broadcast them as ONNX does; constants as layers."""
        rank = max(map(self._tensors.rank, tensors))
        return [self._with_rank(tensor, rank) for tensor in tensors]

    def add(
        self,
        node: OperatorNode,
        type_: str,
        inputs: Sequence[str],
        fields: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]] | None = None,
        outputs: Sequence[str] | None = None,
        result_axes: Callable[[int], Axes] | None = None,
    ) -> LiftedLayer:
        """Add a layer that makes the node's result. Raises `UnsupportedFeature` if it does not fit.

        Fields count axes as the net does: see `Tensors.axis`. `outputs` are the tensors of a layer with several
        outputs, by default the node's results; an output with an empty name is not read. `result_axes` maps the rank of
        a result in the net to its axes, if these are not in order.
        """
        tensors = self._tensors
        values = [self.value(tensor) for tensor in inputs]
        sources = [
            self.parameter(tensor, tensors.rank(tensor)) if tensor in tensors.constants else tensor for tensor in inputs
        ]
        weights = {name: self._weight(array) for name, array in (arrays or {}).items()}
        built = build_layer(type_, fields, values)
        _check_weights(type_, built, weights)
        names, results = built.spec.output_names(), built.outputs
        for value in results:
            tensors.require_room(value.shape[tensors.axis_offset :])
        output_names = list(node.outputs if outputs is None else outputs)
        for index, value in enumerate(results[: len(output_names)]):
            tensor = output_names[index]
            axes = result_axes(len(value.shape)) if result_axes is not None and tensor else None
            if axes is not None and axes != tensors.axes_in_order(len(value.shape) - tensors.axis_offset):
                output_names[index] = tensors.fresh_name(tensor)
                tensors.views[tensor] = AxisView(output_names[index], axes, node)
        kept_fields, read = non_defaults(built.spec, fields), tuple(map(tensors.resolve, sources))
        layer = LiftedLayer(type_, kept_fields, read, output_names[0], node, weights)
        self.written.append(layer)
        tensors.values.update(zip(output_names, results, strict=False))
        if names:
            layer.outputs = tuple((tensor, name) for tensor, name in zip(output_names, names, strict=False) if tensor)
            self._keep_names(layer)
        return layer

    def add_elementwise(
        self,
        node: OperatorNode,
        type_: str,
        inputs: Sequence[str],
        fields: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]] | None = None,
    ) -> LiftedLayer:
        """Like `add`, for elementwise layers: operands with the same layout in the net keep it."""
        views = [self._tensors.view(tensor) for tensor in inputs if self._tensors.is_computed(tensor)]
        if len({view.axes for view in views}) == 1 and self._can_stay(inputs, views[0].axes):
            axes = views[0].axes
            sources = [self._stored_as(tensor, axes) for tensor in inputs]
            return self.add(node, type_, sources, fields, arrays, result_axes=lambda rank: axes)
        return self.add(node, type_, self.broadcast_operands(inputs), fields, arrays)

    def absorb(self, layer: LiftedLayer, node: OperatorNode) -> None:
        """Change `layer`, which computes an operand of the node, to compute the node's result instead."""
        output = node.outputs[0]
        views = self._tensors.views
        read = next((name for name in node.inputs if name in views and views[name].source == layer.output), "")
        value = self._tensors.values[layer.output]
        if read:
            view = views.pop(read)
            layer.output = self._tensors.fresh_name(output)
            views[output] = AxisView(layer.output, view.axes, view.node)
        else:
            layer.output = output
        self._tensors.values[layer.output] = value

    def producer(self, tensor: str) -> LiftedLayer | None:
        """The layer that makes this tensor as its only output."""
        layers = (layer for layer in reversed(self.written) if layer.output == tensor and not layer.outputs)
        return next(layers, None)

    def is_made_by_layer(self, tensor: str) -> bool:
        """Whether a layer makes the tensor, as its only output or as one of several."""
        return self.producer(tensor) is not None or any(tensor in dict(layer.outputs) for layer in self.written)

    def fusable_producer(self, tensor: str, node: OperatorNode) -> LiftedLayer | None:
        """The layer that makes `tensor`, if `node` may become part of it: nothing else reads the tensor.

        The layer may store the tensor in another order: see `Tensors.view`. If the node `conv1/Conv` makes `conv1`, as
        netspec exports layers, the layer is complete: only nodes `conv1/…` belong to it.
        """
        reads = self._tensors.reads
        if reads.get(tensor) != 1 or tensor in self._tensors.constants:
            return None
        source = self._tensors.view(tensor).source
        layer = self.producer(source) if reads.get(source) == 1 else None
        origin = self._tensors.stands_for.get(source, source)
        if layer is not None and layer.node.name.startswith(f"{origin}/") and not node.name.startswith(f"{origin}/"):
            return None
        return layer

    def parameter(self, tensor: str, rank: int) -> str:
        """The tensor of a layer Parameter that holds a constant, with axes of size 1 in front up to `rank` axes."""
        array = self._tensors.constants[tensor]
        if not array.size:
            raise UnsupportedFeature(f"`{self._tensors.stands_for.get(tensor, tensor)}` has no elements")
        shape = (*(1,) * (rank - array.ndim), *array.shape)
        if not self._tensors.single_sample:
            if not shape or (shape[0] != 1 and not self._tensors.is_same_for_all_samples(array)):
                raise MixesSamples(
                    f"its operand `{tensor}` is a constant without a batch axis, or with different values per sample"
                )
            array = array[:1] if len(shape) == array.ndim else array
            shape = shape[1:]
        if (tensor, shape) not in self._parameters:
            name = self._tensors.fresh_name(tensor)
            self._parameters[tensor, shape] = name
            dtype, values = as_parameter_array(array)
            node = OperatorNode("Constant", "", (), (name,), {}, self._model.opset)
            fields = {"shape": list(shape), "dtype": dtype}
            like = next(iter(self._tensors.values), None)
            if like is None:
                raise UnsupportedFeature("the model has only constants: none of its inputs is read")
            self.add(node, "Parameter", [like], fields, {"value": values.reshape(shape)})
        return self._parameters[tensor, shape]

    def needs_only_permute(self, view: AxisView) -> bool:
        """Whether a Permute is enough to put the axes in order."""
        in_front = self._tensors.single_sample or view.axes[:1] == ((0,),)
        return in_front and all(len(axes) == 1 for axes in view.axes)

    def reshape_samples(self, node: OperatorNode, source: str, target: tuple[int, ...], output: str) -> None:
        """Give samples another shape: by Flatten, Squeeze or Reshape, the simplest that does it."""
        if len(target) == 1:
            self.add(node, "Flatten", [source], {}, outputs=[output])
        elif target:
            self.add(node, "Reshape", [source], {"target_shape": list(target)}, outputs=[output])
        else:
            self.add(node, "Squeeze", [source], {}, outputs=[output])

    def _put_in_order(self, tensor: str) -> None:
        """Add the layers that put a tensor's axes in order."""
        view = self._tensors.views[tensor]
        if not self._tensors.single_sample and view.axes[:1] != ((0,),):
            raise MixesSamples("axis 0 of its operand is not the batch axis")
        shape, order = self._tensors.shape(tensor), [axis for axis in view.flat if axis]
        del self._tensors.views[tensor]
        source, node = view.source, view.node or OperatorNode("Transpose", "", (), (tensor,), {}, self._model.opset)
        if order != sorted(order):
            target = tensor if self.needs_only_permute(view) else self._tensors.fresh_name(tensor)
            self.add(node, "Permute", [source], {"dims": order}, outputs=[target])
            source = target
        if source != tensor:
            self.reshape_samples(node, source, shape[1 - self._tensors.axis_offset :], tensor)

    def _can_stay(self, tensors: Sequence[str], axes: Axes) -> bool:
        """Whether an elementwise layer can take the tensors as they are stored: the computed ones with `axes`."""
        if len({self._tensors.shape(tensor) for tensor in tensors}) == 1 and all(
            map(self._tensors.is_computed, tensors)
        ):
            return True
        permuted = axes != self._tensors.axes_in_order(len(axes)) and all(len(group) == 1 for group in axes)
        return permuted and max(map(self._tensors.rank, tensors)) == len(axes)

    def _stored_as(self, tensor: str, axes: Axes) -> str:
        """The stored tensor of a view, or a constant whose axes are permuted to the layout `axes`."""
        if self._tensors.is_computed(tensor):
            return self._tensors.view(tensor).source
        name, array = self._tensors.fresh_name(tensor), self._tensors.constants[tensor]
        order = sorted(range(len(axes)), key=lambda axis: axes[axis])
        self._tensors.constants[name] = array.reshape((1,) * (len(axes) - array.ndim) + array.shape).transpose(order)
        return name

    def _with_rank(self, tensor: str, rank: int) -> str:
        if tensor in self._tensors.constants:
            return self.parameter(tensor, rank)
        have = self._tensors.rank(tensor)
        if have == rank:
            return tensor
        if not self._tensors.single_sample:
            raise MixesSamples("its operands differ in rank: one of them has no batch axis")
        shape = (*(1,) * (rank - have), *self._tensors.shape(tensor))
        self.value(tensor)
        name = self._tensors.fresh_name(tensor)
        node = OperatorNode("Reshape", "", (tensor,), (name,), {}, self._model.opset)
        self.add(node, "Reshape", [tensor], {"target_shape": list(shape)})
        return name

    def _keep_names(self, layer: LiftedLayer) -> None:
        """Add layers that name outputs of the model, if they are outputs of a layer with several outputs."""
        stem = layer.stem
        for index, (tensor, name) in enumerate(layer.outputs):
            if tensor in self._model.outputs and tensor != f"{stem}.{name}":
                layer.renamed |= index == 0
                parameter = f"{tensor} in the layer"
                self._tensors.values[parameter] = self._tensors.values[tensor]
                layer.outputs = (*layer.outputs[:index], (parameter, name), *layer.outputs[index + 1 :])
                self.add(layer.node, "Activation", [parameter], {"activation": "linear"}, outputs=[tensor])

    def _weight(self, array: NDArray[Any]) -> NDArray[Any]:
        if array.dtype.kind != "f":
            return np.asarray(array, order="C")
        if array.dtype != np.float32:
            self._remarks.add(f"weights of {array.dtype} become float32")
        return np.asarray(array, np.float32, order="C")


def _check_weights(type_: str, built: BuiltLayer, weights: Mapping[str, NDArray[Any]]) -> None:
    """Raise `UnsupportedFeature` if shapes or types of the weights are not those of the layer's states."""
    expected_shapes = {name: kind.shape for name, kind in built.states.items()}
    shapes = {name: array.shape for name, array in weights.items()}
    if expected_shapes != shapes:
        raise UnsupportedFeature(f"{type_} needs weights of shapes {expected_shapes}, got {shapes}")
    for name, kind in built.states.items():
        have, wanted = weights[name].dtype, kind.dtype
        if have != str(wanted):
            raise UnsupportedFeature(
                f"its weights are {have}, not {'floating-point numbers' if wanted.is_float else wanted}"
            )


def as_parameter_array(array: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    """The element type of a Parameter for a constant, and the constant in that type. Raises `UnsupportedFeature`."""
    name = INPUT_TYPES.get(str(array.dtype))
    if name is None:
        raise UnsupportedFeature(f"constants of type {array.dtype} are not supported")
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo("int64").max:
        raise UnsupportedFeature("a constant has integers beyond the range of int64")
    return name, np.asarray(array, name, order="C")
