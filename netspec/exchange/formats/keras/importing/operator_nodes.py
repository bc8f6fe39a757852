"""Operations of Keras as operator nodes in ONNX's vocabulary, which the rules of `lift` make layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.formats.keras.importing.axes import Order, TensorView
from netspec.exchange.formats.keras.importing.config import CallOutput, LayerCall
from netspec.exchange.formats.keras.importing.fields import plain_value
from netspec.exchange.formats.keras.importing.importer import KerasImporter
from netspec.exchange.lift.context import LiftContext
from netspec.exchange.operator_graph.graph import ImportedGraph, OperatorNode
from netspec.exchange.operator_graph.onnx_protos import defaults
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.names import snake_case

OPSET = 17
"""The version of ONNX's operators: the newest in which reductions take their axes as an attribute."""


class KerasOperation:
    """A call of an operation: its arguments, and the operator nodes that it becomes, each lifted as it is added.

    Tensors are those of the importer, as they are stored in the net: an image that is channels-last in Keras is an
    `AxisView` of a tensor that is channels-first.
    """

    def __init__(self, importer: KerasImporter, call: LayerCall, name: str, arguments: Mapping[str, Any]) -> None:
        self.importer, self.call, self.name, self.arguments = importer, call, name, arguments
        self.layer_name = importer.name_of(call)
        self._ctx = LiftContext(ImportedGraph(self.layer_name, "Keras", OPSET))
        self._stored: dict[str, TensorView] = {}
        """The tensors of the net, by the names that `lift` uses."""

    @property
    def tensor(self) -> TensorView:
        """The tensor that the operation reads."""
        first = self.arguments["args"][0] if self.arguments["args"] else None
        if not isinstance(first, CallOutput):
            raise UnsupportedFeature("its input is not the result of a layer")
        return self.importer.get(first)

    @property
    def tensor_in_keras_order(self) -> TensorView:
        """The tensor that the operation reads, with its axes in Keras's order."""
        return self.importer.in_keras_order(self.tensor)

    def argument(self, name: str, index: int, default: Any = None) -> Any:
        """An argument by its name, or by its position."""
        if name in self.arguments:
            return plain_value(self.arguments[name])
        args = self.arguments["args"]
        return plain_value(args[index]) if index < len(args) else default

    def operand(self, value: Any) -> str:
        """The name of an operand, which is the result of a call, a tensor of the importer, or a constant."""
        if isinstance(value, CallOutput):
            value = self.importer.get(value)
        return self._tensor(value) if isinstance(value, TensorView) else self._constant(value)

    def shape(self, tensor: str) -> tuple[int, ...]:
        """The shape of a tensor in Keras's order, with the batch."""
        return self._ctx.tensors.shape(tensor)

    def node(self, op_type: str, *inputs: Any, domain: str = "", **attributes: Any) -> str:
        """Add a node, and return its result. Operands are names of tensors, or whatever `operand` takes."""
        return self.node_with_results(1, op_type, *inputs, domain=domain, **attributes)[0]

    def node_with_results(
        self, count: int, op_type: str, *inputs: Any, domain: str = "", **attributes: Any
    ) -> tuple[str, ...]:
        """Add a node, and return its first `count` results. Raises `UnsupportedFeature`."""
        operands = tuple(operand if isinstance(operand, str) else self.operand(operand) for operand in inputs)
        results = tuple(self._ctx.tensors.fresh_name(self.layer_name, reads=0) for _ in range(count))
        attributes = {**({} if domain else defaults(op_type, OPSET)), **attributes}
        self._ctx.nodes.lift(OperatorNode(op_type, "", operands, results, attributes, OPSET, domain))
        for problem in (*self._ctx.report.mixed, *self._ctx.report.problems):
            raise UnsupportedFeature(problem.message)
        return results

    def layer(
        self, type_: str, fields: Mapping[str, Any], inputs: Sequence[TensorView], *orders: Order, name: str = ""
    ) -> list[TensorView]:
        """Add a layer that the operation is, or a part of it, and return its results."""
        return self.importer.add(self.call, type_, fields, inputs, *orders, name=name)

    def finish(self, results: Sequence[str] | Sequence[TensorView]) -> None:
        """Set the results of the operation: tensors of layers, or of operator nodes, whose layers are added."""
        views = [result for result in results if isinstance(result, TensorView)]
        self.importer.set_results(
            self.call, *views, *self._written([tensor for tensor in results if isinstance(tensor, str)])
        )

    def _written(self, result_names: Sequence[str]) -> list[TensorView]:
        """Add the layers of the operator nodes to the net, named after the operation, and return the results."""
        tensors, layers = self._ctx.tensors, self._ctx.layers
        views = [layers.permuted_view(tensor) for tensor in result_names]
        sources = [tensors.resolve(view.source) for view in views]
        written: set[str] = set()
        for layer in layers.written:
            results = [tensors.resolve(tensor) for tensor, _ in layer.outputs] or [tensors.resolve(layer.output)]
            fields, inputs = dict(layer.fields), [self._stored[tensors.resolve(tensor)] for tensor in layer.inputs]
            if layer.arrays and "trainable" in LAYERS[layer.type].model_fields:
                fields["trainable"] = False
            name = self._name_of_layer(layer.type, results, sources)
            self._stored |= zip(results, self.layer(layer.type, fields, inputs, name=name), strict=False)
            self.importer.draft.layers[-1].arrays.update(layer.arrays)
            written.update(results)
        finished = []
        for view, source in zip(views, sources, strict=True):
            result = replace(self._stored[source], axes=view.axes)
            finished.append(result if source in written else self.layer("Identity", {}, [result], result.order)[0])
        return finished

    def _name_of_layer(self, type_: str, layer_results: Iterable[str], results: Sequence[str]) -> str:
        """The operation's name for the layer of its result; else with the index of the result, or the type."""
        indices = [results.index(tensor) for tensor in layer_results if tensor in results]
        if len(indices) == len(results):
            return self.layer_name
        return f"{self.layer_name}/{indices[0] if indices else snake_case(type_)}"

    def _tensor(self, view: TensorView) -> str:
        if view.feature_order is not None:
            raise UnsupportedFeature(
                "it needs the features of a flattened image in Keras's order (channels last), unlike netspec's"
            )
        self._stored[view.source] = view
        self._ctx.tensors.values[view.source] = view.value
        if view.is_in_keras_order:
            return view.source
        name = f"{view.source} in the order {view.order}"
        self._ctx.tensors.views[name] = view
        return name

    def _constant(self, value: Any) -> str:
        name = self._ctx.tensors.fresh_name(self.layer_name, reads=0)
        self._ctx.tensors.constants[name] = np.asarray(value, getattr(value, "dtype", None))
        return name


def array_of(value: Any) -> NDArray[Any]:
    """An array in a configuration. Raises `UnsupportedFeature` if the value is something else."""
    if not isinstance(value, list):
        raise UnsupportedFeature(f"one of its operands is {str(value)[:40]}")
    return np.asarray(value, getattr(value, "dtype", None))
