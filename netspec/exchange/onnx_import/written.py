"""Writing layers down: what rules say of a node that becomes a layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from netspec.exchange.onnx_import.layer import Layer, built, held_as
from netspec.exchange.onnx_import.model import Mixed, Node, Unsupported
from netspec.exchange.onnx_import.tensors import Axes, Tensors, View
from netspec.graph.value import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Writing(Tensors):
    """The tensors and layers of one import: what is added to them."""

    def value(self, tensor: str) -> Value:
        """The tensor in the net, its axes in order. A constant becomes a layer that holds it."""
        if tensor in self.views:
            self._put_in_order(tensor)
        if tensor in self.constants:
            return self._values[self._held_constant(tensor, self.rank(tensor))]
        return self._values[self.resolve(tensor)]

    def lying(self, tensor: str, *axes: int) -> View:
        """How a computed tensor lies in the net, these axes of it as one of the net's each."""
        if any(len(self.held(tensor).axes[axis]) != 1 for axis in axes):
            self.value(tensor)
        return self.held(tensor)

    def operands(self, tensors: Sequence[str]) -> list[str]:
        """The tensors with as many axes each, so that layers broadcast them as the model does; constants as layers."""
        rank = max(map(self.rank, tensors))
        return [self._with_rank(tensor, rank) for tensor in tensors]

    def add(
        self,
        node: Node,
        type_: str,
        inputs: Sequence[str],
        fields: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]] | None = None,
        outputs: Sequence[str] | None = None,
        laid: Callable[[int], Axes] | None = None,
    ) -> Layer:
        """Write down a layer that makes the node's result. Raises `Unsupported` where it would not fit.

        Fields count axes as the net does: see `axis`. Outputs of a layer that has several are the tensors `outputs`, by
        default the node's results; an empty name is one that nothing reads. `laid` says how the results lie in what the
        layer makes, where their axes are not in order: the axes, for a tensor of the net of so many.
        """
        values = [self.value(tensor) for tensor in inputs]
        names_of_inputs = [self._parameter_or_itself(tensor) for tensor in inputs]
        weights = {name: self._weight(array) for name, array in (arrays or {}).items()}
        names, made = built(type_, values, fields, weights)
        for value in made:
            self.need_room(value.shape[self.lead :])
        tensors = list(node.outputs if outputs is None else outputs)
        for place, value in enumerate(made[: len(tensors)]):
            tensor = tensors[place]
            axes = laid(len(value.shape)) if laid is not None and tensor else None
            if axes is not None and axes != self.in_order(len(value.shape) - self.lead):
                tensors[place] = self.hide(tensor)
                self.views[tensor] = View(tensors[place], axes, node)
        layer = Layer(type_, dict(fields), tuple(map(self.resolve, names_of_inputs)), tensors[0], node, weights)
        self.layers.append(layer)
        self._values.update(zip(tensors, made, strict=False))
        if names:
            layer.outputs = tuple((tensor, name) for tensor, name in zip(tensors, names, strict=False) if tensor)
            self._keep_names(layer)
        return layer

    def each(
        self,
        node: Node,
        type_: str,
        inputs: Sequence[str],
        fields: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]] | None = None,
    ) -> Layer:
        """`add` for layers that do the same at every place, whatever the axes: of equal operands the order is kept."""
        computed = all(map(self.is_computed, inputs))
        views = [self.held(tensor) for tensor in inputs] if computed else []
        alike = len({view.axes for view in views}) == 1 and len({self.shape(tensor) for tensor in inputs}) == 1
        if alike:
            axes = views[0].axes
            return self.add(node, type_, [view.source for view in views], fields, arrays, laid=lambda rank: axes)
        return self.add(node, type_, self.operands(inputs), fields, arrays)

    def absorb(self, layer: Layer, node: Node) -> None:
        """The node has become part of `layer`, which now makes its result, as it made what the node reads."""
        output = node.outputs[0]
        read = next((name for name in node.inputs if self.held_in(name) == layer.output), "")
        value = self._values[layer.output]
        if read:
            view = self.views.pop(read)
            layer.output = self.hide(output)
            self.views[output] = View(layer.output, view.axes, view.node)
        else:
            layer.output = output
        self._values[layer.output] = value

    def _with_rank(self, tensor: str, rank: int) -> str:
        if tensor in self.constants:
            return self._held_constant(tensor, rank)
        have = self.rank(tensor)
        if have == rank:
            return tensor
        if not self.whole:
            raise Mixed("its operands have not the same number of axes: one of them has no batch")
        shape = (*(1,) * (rank - have), *self.shape(tensor))
        self.value(tensor)
        name = self.hide(tensor)
        node = Node("Reshape", "", (tensor,), (name,), {}, self.model.opset)
        self.add(node, "Reshape", [tensor], {"target_shape": list(shape)})
        return name

    def _held_constant(self, tensor: str, rank: int) -> str:
        """The tensor of a layer Parameter that holds the constant, which gets axes in front up to `rank`."""
        array = self.constants[tensor]
        if not array.size:
            raise Unsupported(f"`{self.hidden.get(tensor, tensor)}` has no elements")
        shape = (*(1,) * (rank - array.ndim), *array.shape)
        if not self.whole:
            if not shape or (shape[0] != 1 and not self.same_for_all(array)):
                raise Mixed(f"its operand `{tensor}` is a constant that has no batch, or another value for each sample")
            array = array[:1] if len(shape) == array.ndim else array
            shape = shape[1:]
        if (tensor, shape) not in self._parameters:
            name = self.hide(tensor)
            self._parameters[tensor, shape] = name
            dtype, values = held_as(array)
            node = Node("Constant", "", (), (name,), {}, self.model.opset)
            fields = {"shape": list(shape), **({} if dtype == "float32" else {"dtype": dtype})}
            like = next(iter(self._values), None)
            if like is None:
                raise Unsupported("the model reads no input that its constants could go with")
            self.add(node, "Parameter", [like], fields, {"value": values.reshape(shape)})
        return self._parameters[tensor, shape]

    def same_for_all(self, array: NDArray[Any]) -> bool:
        """Whether a constant is as long as the batch and the same for every sample of it."""
        return (
            not self.whole
            and array.shape[0] == self.batch
            and (array.strides[0] == 0 or bool((array == array[:1]).all()))
        )

    def _parameter_or_itself(self, tensor: str) -> str:
        return self._held_constant(tensor, self.rank(tensor)) if tensor in self.constants else tensor

    def _can_be_turned(self, view: View) -> bool:
        """Whether a Permute, if anything, is all that it takes to put the axes in order."""
        return all(len(axes) == 1 for axes in view.axes) and (self.whole or view.axes[:1] == ((0,),))

    def _put_in_order(self, tensor: str) -> None:
        """Write down the layers that give a tensor's axes the usual order."""
        view = self.views[tensor]
        if not self.whole and view.axes[:1] != ((0,),):
            raise Mixed("its operand has another axis than that of the samples in front")
        shape, order = self.shape(tensor), [axis for axis in view.flat if axis]
        del self.views[tensor]
        source, node = view.source, view.node or Node("Transpose", "", (), (tensor,), {}, self.model.opset)
        if order != sorted(order):
            target = tensor if self._can_be_turned(view) else self.hide(tensor)
            self.add(node, "Permute", [source], {"dims": order}, outputs=[target])
            source = target
        if source != tensor:
            self._reshape_samples(node, source, shape[1 - self.lead :], tensor)

    def _keep_names(self, layer: Layer) -> None:
        """Have outputs of the model that are outputs of a layer with several called as in the model."""
        stem = layer.stem
        for index, (tensor, name) in enumerate(layer.outputs):
            if tensor in self.model.outputs and tensor != f"{stem}.{name}":
                layer.renamed |= index == 0
                held = f"{tensor} in the layer"
                self._values[held] = self._values[tensor]
                layer.outputs = (*layer.outputs[:index], (held, name), *layer.outputs[index + 1 :])
                self.add(layer.node, "Activation", [held], {"activation": "linear"}, outputs=[tensor])

    def _reshape_samples(self, node: Node, source: str, target: tuple[int, ...], output: str) -> None:
        """Samples of another shape: Flatten, Squeeze or Reshape, whichever says it best."""
        if len(target) == 1:
            self.add(node, "Flatten", [source], {}, outputs=[output])
        elif target:
            self.add(node, "Reshape", [source], {"target_shape": list(target)}, outputs=[output])
        else:
            self.add(node, "Squeeze", [source], {}, outputs=[output])

    def _weight(self, array: NDArray[Any]) -> NDArray[Any]:
        import numpy as np

        if array.dtype.kind != "f":
            return np.asarray(array, order="C")
        if array.dtype != np.float32:
            self.remarks.append(f"weights of {array.dtype} became float32")
        return np.asarray(array, np.float32, order="C")
