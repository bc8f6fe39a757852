"""Operators around an exported model: raw samples become inputs of the net, and outputs of the net become answers.

They process texts, images and sounds of any size, and a varying number of boxes, for which the graph of a net has no
types.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.errors import InputError
from netspec.exchange.formats.onnx.messages import Dims, check_model, element_number
from netspec.exchange.formats.onnx.metadata import INCLUDED, TRANSFORMS
from netspec.graph.types import TensorType
from netspec.schema.plain_json import json_text

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    Array = NDArray[Any]

ML = "ai.onnx.ml"
"""Domain of ONNX's operators for texts."""
ML_OPSET = 2
INNER_NET = "netspec_net"
"""Key of the metadata with the tensors that are inputs and outputs of the net, as JSON."""
SIDES = ("inputs", "outputs")


@dataclass(frozen=True)
class RawTensor:
    """An input or output of the operators."""

    dtype: str
    """Element type: NumPy's name, or `string`."""
    shape: tuple[int | str, ...] = ()
    """Shape of a sample; a string names an axis of any size."""


@dataclass(frozen=True)
class WrapperNode:
    """An ONNX operator."""

    op_type: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, Any]
    domain: str


@dataclass
class Wrapper:
    """Operators that replace inputs and outputs of a model."""

    inputs: dict[str, RawTensor] = field(default_factory=dict)
    outputs: dict[str, RawTensor] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    before: list[WrapperNode] = field(default_factory=list)
    """Operators from `inputs` to inputs of the model."""
    after: list[WrapperNode] = field(default_factory=list)
    """Operators from outputs of the model to `outputs`."""
    computed: list[str] = field(default_factory=list)
    """The inputs of the model that operators compute, and that are no longer inputs."""
    consumed: list[str] = field(default_factory=list)
    """The outputs of the model that operators read, and that are no longer outputs."""

    def prune(self) -> None:
        """Remove operators and constants that nothing needs."""
        needed = {*self.computed, *self.outputs}
        for nodes in (self.after, self.before):
            for node in reversed(nodes[:]):
                if needed.isdisjoint(node.outputs):
                    nodes.remove(node)
                else:
                    needed.update(node.inputs)
        self.constants = {name: array for name, array in self.constants.items() if name in needed}

    @property
    def op_types(self) -> set[str]:
        """Types of the operators of ONNX's own domain."""
        return {node.op_type for node in (*self.before, *self.after) if not node.domain}

    def attach(self, model: onnx.ModelProto, batch: int | str) -> None:
        """Add the operators to a model. Raises `InputError` if an input has the name of an output."""
        import onnx
        from onnx import numpy_helper

        graph = model.graph
        outputs = {output.name for output in graph.output} - set(self.consumed) | self.outputs.keys()
        clashes = sorted(outputs & self.inputs.keys())
        if clashes:
            raise InputError(f"an input and an output of the model are both called `{clashes[0]}`",
                             hint="rename the layer, or export with --without-preprocessing")  # fmt: skip
        for node in graph.node:
            node.input[:], node.output[:] = map(self.unique_name, node.input), map(self.unique_name, node.output)
        for value in (*graph.initializer, *graph.input, *graph.output):
            value.name = self.unique_name(value.name)
        inside = {self.unique_name(name) for name in (*self.computed, *self.consumed)}
        graph.value_info.extend(info for info in (*graph.input, *graph.output) if info.name in inside)
        outer = [[info for info in infos if info.name not in inside] for infos in (graph.input, graph.output)]
        added = [[_info(name, raw, batch) for name, raw in raws.items()] for raws in (self.inputs, self.outputs)]
        nodes = [
            *(_node(node, node.inputs, map(self.unique_name, node.outputs)) for node in self.before),
            *graph.node,
            *(_node(node, map(self.unique_name, node.inputs), node.outputs) for node in self.after),
        ]
        del graph.input[:], graph.output[:], graph.node[:]
        graph.input.extend([*added[0], *outer[0]])
        graph.output.extend([*added[1], *outer[1]])
        graph.node.extend(nodes)
        graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in self.constants.items())
        if any(node.domain == ML for node in self.before):
            model.opset_import.append(onnx.OperatorSetIdProto(domain=ML, version=ML_OPSET))
        check_model(model)

    def unique_name(self, tensor: str) -> str:
        """Return a name for a tensor of the model that no tensor of the operators has."""
        clashes = tensor in self.inputs or tensor in self.computed or tensor in self.outputs or tensor in self.consumed
        return f"net/{tensor}" if clashes else tensor

    def input_dims(self, dims: Mapping[str, Dims], batch: int | str) -> dict[str, Dims]:
        """Return the sizes of the inputs of the model with the operators, from the inputs' sizes without them."""
        others = {name: sizes for name, sizes in dims.items() if name not in self.computed}
        return {**{name: (batch, *raw.shape) for name, raw in self.inputs.items()}, **others}

    def output_dims(self, dims: Mapping[str, Dims], batch: int | str) -> dict[str, Dims]:
        """Return the sizes of the outputs of the model with the operators, from the outputs' sizes without them."""
        others = {name: sizes for name, sizes in dims.items() if name not in self.consumed}
        return {**{name: (batch, *raw.shape) for name, raw in self.outputs.items()}, **others}


class NodeWriter:
    """Adds operators to a wrapper, with names that begin with a prefix."""

    def __init__(self, wrapper: Wrapper, nodes: list[WrapperNode], prefix: str) -> None:
        self._wrapper, self._nodes, self._prefix = wrapper, nodes, prefix

    def constant(self, value: Any, dtype: str = "int64") -> str:
        """Add a constant, and return its name."""
        array = np.array(value, dtype)
        name = f"{self._prefix}/constant{len(self._wrapper.constants)}"
        self._wrapper.constants[name] = array
        return name

    def node(self, op_type: str, *inputs: str, output: str = "", domain: str = "", **attributes: Any) -> str:
        """Add an operator with one output, and return the output's name."""
        name = output or f"{self._prefix}/{op_type}{len(self._nodes)}"
        self._nodes.append(WrapperNode(op_type, inputs, [name], attributes, domain))
        return name

    def top(self, x: str, count: int) -> tuple[str, str]:
        """Return the largest elements along axis 1, in descending order, and their indices."""
        names = [f"{self._prefix}/{part}{len(self._nodes)}" for part in ("largest", "indices")]
        inputs = [x, self.constant([count])]
        self._nodes.append(WrapperNode("TopK", inputs, names, {"axis": 1}, ""))
        return names[0], names[1]

    def cast(self, tensor: str, dtype: str, output: str = "") -> str:
        """Add a conversion to another element type."""
        return self.node("Cast", tensor, to=element_number(dtype), output=output)


@dataclass(frozen=True)
class InnerNet:
    """Description of the net in a model that also contains preprocessing, so that an import finds the net."""

    inputs: Mapping[str, TensorType]
    """Types of its inputs for one sample."""
    outputs: Mapping[str, TensorType]
    metadata: Mapping[str, str]
    """Metadata of the net that differ from those of the model."""

    def record(self, model: onnx.ModelProto, tensors: Mapping[str, str], batch: int | str) -> None:
        """Write the names of the tensors that are inputs and outputs of the net to the metadata of a model."""
        from onnx import helper

        types = {**self.inputs, **self.outputs}
        listed = {info.name for info in (*model.graph.value_info, *model.graph.input, *model.graph.output)}
        infos = {
            tensors[name]: RawTensor(str(kind.dtype), kind.shape[1:])
            for name, kind in types.items()
            if tensors[name] not in listed
        }
        model.graph.value_info.extend(_info(tensor, raw, batch) for tensor, raw in infos.items())
        sides = {
            side: {name: tensors[name] for name in names}
            for side, names in zip(SIDES, (self.inputs, self.outputs), strict=True)
        }
        metadata = {entry.key: entry.value for entry in model.metadata_props}
        helper.set_model_props(model, {**metadata, INNER_NET: json_text({**sides, "metadata": dict(self.metadata)})})


def reduce_to_net(model: onnx.ModelProto) -> bool:
    """Reduce a model that contains preprocessing to the net. Return whether the model contained any.

    If the metadata does not match the tensors, another program has changed the model, which is then left unchanged.
    """
    from onnx import helper

    graph = model.graph
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    infos = {info.name: info for info in (*graph.value_info, *graph.input, *graph.output)}
    try:
        inner = json.loads(metadata.pop(INNER_NET))
        names = {str(tensor): str(name) for side in SIDES for name, tensor in inner[side].items()}
        inputs, ends = ([infos[tensor] for tensor in inner[side].values()] for side in SIDES)
        steps = [*json.loads(metadata[TRANSFORMS]), *json.loads(metadata.pop(INCLUDED))]
        metadata |= {str(key): str(text) for key, text in inner["metadata"].items()}
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        return False
    makers = {name: node for node in graph.node for name in node.output}
    needed, waiting = {info.name for info in inputs}, [info.name for info in ends]
    computed: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            if name in makers:
                computed.update(makers[name].output)
                waiting += makers[name].input
    nodes = [node for node in graph.node if computed.intersection(node.output)]
    constants = [tensor for tensor in graph.initializer if tensor.name in needed]
    for part, remaining in (
        (graph.input, inputs),
        (graph.output, ends),
        (graph.node, nodes),
        (graph.initializer, constants),
    ):
        copies = [type(message).FromString(message.SerializeToString()) for message in remaining]
        del part[:]
        part.extend(copies)
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    helper.set_model_props(model, {**metadata, TRANSFORMS: json_text(steps)})
    return True


def _info(name: str, raw: RawTensor, batch: int | str) -> onnx.ValueInfoProto:
    from onnx import TensorProto, helper

    element = TensorProto.STRING if raw.dtype == "string" else element_number(raw.dtype)
    return helper.make_tensor_value_info(name, element, [batch, *raw.shape])


def _node(node: WrapperNode, inputs: Iterable[str], outputs: Iterable[str]) -> onnx.NodeProto:
    from onnx import helper

    return helper.make_node(
        node.op_type, list(inputs), list(outputs), name=node.outputs[0], domain=node.domain, **dict(node.attributes)
    )
