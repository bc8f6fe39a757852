"""What moves numbers and computes nothing, and layers that need their samples in front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from netspec.exchange.onnx_import.layer import Layer
from netspec.exchange.onnx_import.model import Mixed, Node, Unsupported
from netspec.exchange.onnx_import.tensors import Axes, View, one_sample, several_samples
from netspec.exchange.onnx_import.written import Writing
from netspec.schema.names import snake_case

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Moving(Writing):
    """The tensors and layers of one import: the same numbers in other shapes."""

    def same(self, node: Node, source: str) -> None:
        """The node's result holds the numbers of `source`."""
        output = node.outputs[0]
        if source in self.constants:
            self.constants[output] = self.constants[source]
            return
        if source in self.views:
            self.views[output] = self.views[source]
            return
        self.value(source)
        held = self.resolve(source)
        layer = self.maker(held)
        if layer is not None and self._reads.get(source) == 1 and held not in self.model.outputs:
            layer.output = output
            self._values[output] = self._values[held]
            self._aliases[held] = output
        elif output in self.model.outputs:
            self.add(node, "Activation", [source], {"activation": "linear"})
        else:
            self._aliases[output] = source

    def chain(self, node: Node, source: str, layers: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Write down layers of these types and fields, each behind the one before: the last makes the result."""
        if not layers:
            self.same(node, source)
        for count, (type_, fields) in enumerate(layers, 1):
            tensor = node.outputs[0] if count == len(layers) else f"{node.outputs[0]} {count} of {len(layers)}"
            self.add(node, type_, [source], fields, outputs=[tensor])
            source = tensor

    def turn(self, node: Node, source: str, permutation: Sequence[int]) -> None:
        """The node's result is `source` with its axes in another order."""
        view = self.held(source)
        if sorted(permutation) != list(range(len(view.axes))):
            raise Unsupported(f"{list(permutation)} is not an order of axes")
        axes = tuple(view.axes[axis] for axis in permutation)
        if axes == self.in_order(len(axes)):
            self.same(node, view.source)
        else:
            output = node.outputs[0]
            self.views[output] = View(view.source, axes, node)
            if node.name.startswith(f"{output}/") and self._can_be_turned(self.views[output]):
                self.value(output)  # as netspec writes a layer Permute

    def reshape(self, node: Node, source: str, target: tuple[int, ...], output: str | None = None) -> None:
        """The node's result, or `output`, is `source` in another shape, both as the model has them."""
        output, shape = node.outputs[0] if output is None else output, self.shape(source)
        if target == shape:
            self.same(replace(node, outputs=(output,)), source)
        elif self.whole:
            self._reshape_whole(node, source, target, output)
        elif (axes := self._but_for_ones(source, target)) is not None:
            view = View(self.held(source).source, axes, node)
            if axes == self.in_order(self.net_rank(source)):
                self.same(replace(node, outputs=(output,)), view.source)
            else:
                self.views[output] = view
        else:
            self._reshape_batch(node, source, target, output)

    def straight(self, tensor: str) -> View:
        """How a computed tensor lies in the net once its axes but the batch follow each other as in the model."""
        view = self.held(tensor)
        order = [axis for axis in view.flat if self.whole or axis]
        if order != sorted(order):
            source = self.hide(tensor)
            node = view.node or Node("Transpose", "", (tensor,), (source,), {}, self.model.opset)
            self.add(node, "Permute", [view.source], {"dims": order}, outputs=[source])
            place = {0: 0, **{axis: index for index, axis in enumerate(order, 1)}}
            axes = tuple(tuple(place[axis] for axis in lies) for lies in view.axes)
            self.views[tensor] = View(source, axes, view.node)
        return self.held(tensor)

    def sampled(
        self,
        node: Node,
        type_: str,
        inputs: Sequence[str],
        fields: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]] | None = None,
        outputs: Sequence[str] | None = None,
    ) -> Layer:
        """`add` for layers that need the model's axis 0 as their samples: images (N, C, H, W), say.

        Fields count axes as the operator does. Where the whole model is a sample, one image is taken without axis 0,
        and several are as the steps of TimeDistributed.
        """
        merged = len(inputs) == 1 and self._is_several(self.held(inputs[0])) if not self.whole else False
        if not self.whole and not merged:
            return self.add(node, type_, inputs, fields, arrays, outputs)
        counts = {self.shape(tensor)[:1] for tensor in inputs}
        if self.whole and counts == {(1,)}:
            sources = [self.samples_first(tensor) for tensor in inputs]
            return self.add(node, type_, sources, fields, arrays, outputs, laid=one_sample)
        if len(inputs) > 1 or counts == {()}:
            raise Unsupported(f"several operands of {sorted(counts)} samples each")
        inside = {"layer": {"type": type_, **fields}}
        named = {f"{snake_case(type_)}/{name}": array for name, array in (arrays or {}).items()}
        if merged:
            return self.add(
                node, "TimeDistributed", [self.held(inputs[0]).source], inside, named, outputs, laid=several_samples
            )
        return self.add(node, "TimeDistributed", inputs, inside, named, outputs)

    def samples_first(self, tensor: str, axis: int = 0) -> str:
        """A tensor of the net that has the samples, which are the model's `axis`, in front and then the other axes.

        Where the whole model is a sample, `axis` must be of size 1.
        """
        rank = self.rank(tensor)
        others = [place for place in range(rank) if place != axis]
        if self.whole and self.shape(tensor)[axis] != 1:
            raise Unsupported(f"axis {axis} has {self.shape(tensor)[axis]} samples")
        if tensor in self.constants:
            array = self.constants[tensor]
            turned = f"{tensor} with axis {axis} in front"
            self.constants[turned] = array.transpose([axis, *others])
            if self.whole:
                self.constants[turned] = self.constants[turned][0]
            name = self._held_constant(turned, self.rank(turned))
            self.hidden[name] = tensor
            return name
        view = self.held(tensor)
        wanted: Axes = tuple(view.axes[place] for place in (others if self.whole else [axis, *others]))
        if (((0,),) * self.lead + wanted) == tuple((place,) for place in range(self.net_rank(tensor))):
            return view.source
        name = self.hide(tensor)
        if self.whole:
            target = [self.shape(tensor)[place] for place in others]
            node = Node("Reshape", "", (tensor,), (name,), {}, self.model.opset)
            self._reshape_samples(node, tensor, tuple(target), name)
        else:
            node = view.node or Node("Transpose", "", (tensor,), (name,), {}, self.model.opset)
            self.views[name] = View(view.source, wanted, node)
            self._put_in_order(name)
        return name

    def _is_several(self, view: View) -> bool:
        """Whether axis 0 is the batch times the steps of each sample, in which the other axes are in order."""
        return view.axes == several_samples(len(view.axes) + 1)

    def _but_for_ones(self, source: str, target: Sequence[int]) -> Axes | None:
        """How a tensor with its samples not in front lies where only axes of size 1 come or go; None of any other."""
        view = self.held(source)
        lies = [axes for axes in view.axes if axes]
        shape = self.shape(source)
        if view.axes[:1] == ((0,),) or [shape[view.axes.index(axes)] for axes in lies] != [n for n in target if n != 1]:
            return None
        return tuple(lies.pop(0) if size != 1 else () for size in target)

    def _reshape_whole(self, node: Node, source: str, target: tuple[int, ...], output: str) -> None:
        view, shape = self.held(source), self.shape(source)
        start = view.source if view.flat == sorted(view.flat) else source
        if target[:1] == (1,) == shape[:1] and not view.axes[0] and len(target) > 1:
            held = self.hide(output)
            self._reshape_samples(node, start, target[1:], held)
            self.views[output] = View(held, one_sample(len(target)), node)
        else:
            self._reshape_samples(node, start, target, output)

    def _reshape_batch(self, node: Node, source: str, target: tuple[int, ...], output: str) -> None:
        """The batch stays an axis, or a part of one, wherever it is; what is beside it stays on its side."""
        view, shape, batch = self.held(source), self.shape(source), self.batch
        sizes = self._values[self.resolve(view.source)].shape
        place = next((axis for axis, axes in enumerate(view.axes) if 0 in axes), None)
        beside = view.axes[place][: view.axes[place].index(0)] if place is not None else ()
        before = prod(shape[:place]) * prod(sizes[axis] for axis in beside)
        parts = {
            axis: before // prod(target[:axis])
            for axis, size in enumerate(target)
            if prod(target[: axis + 1]) and before % prod(target[:axis]) == 0
            and size % (before // prod(target[:axis]) * batch) == 0
        }  # fmt: skip
        if place is None or not parts:
            raise Mixed(f"it mixes the samples of a batch: {list(shape)} → {list(target)}")
        axis = min(parts, key=lambda axis: (parts[axis] != 1, target[axis] != batch))
        part, steps = parts[axis], target[axis] // (parts[axis] * batch)
        front = () if set(target[:axis]) == {1} else target[:axis]  # axes of size 1 before the batch need not be there
        own = [size for size in (part, steps) if size > 1]
        sample = (*front, *own, *target[axis + 1 :])
        start = self.straight(source).source
        have = self._values[self.resolve(start)].shape[1:]
        if axis == 0 and not own:
            if have == sample:
                self.same(replace(node, outputs=(output,)), start)
            else:
                self._reshape_samples(node, start, sample, output)
            return
        held = self.hide(output)
        if have == sample:
            held = start
        else:
            self._reshape_samples(node, start, sample, held)
        places = list(range(1, len(sample) + 1))
        first, inner, rest = places[: len(front)], places[len(front) :][: len(own)], places[len(front) + len(own) :]
        along = (*inner[: part > 1], 0, *inner[part > 1 :])
        before_it: Axes = tuple((one,) for one in first) if front else ((),) * axis
        self.views[output] = View(held, (*before_it, along, *((one,) for one in rest)), node)
