"""Operators in front of an exported model, which compute its inputs from others: texts and numbers of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from netspec.errors import InputError
from netspec.exchange.formats.onnx.messages import Dims, check_model

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

ML = "ai.onnx.ml"
"""Domain of ONNX's operators for texts."""
ML_OPSET = 2


@dataclass(frozen=True)
class PrologueNode:
    """An operator."""

    op_type: str
    inputs: Sequence[str]
    output: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""


@dataclass
class Prologue:
    """Operators that replace inputs of a model."""

    inputs: dict[str, str] = field(default_factory=dict)
    """Element type of each new input (N): `float64` or `string`."""
    nodes: list[PrologueNode] = field(default_factory=list)
    constants: dict[str, NDArray[Any]] = field(default_factory=dict)
    computed: list[str] = field(default_factory=list)
    """The inputs of the model that the nodes compute."""

    def attach(self, model: onnx.ModelProto, batch: int | str) -> None:
        """Put the operators in front of a model. Raises `InputError` if an input has the name of an output."""
        import onnx
        from onnx import TensorProto, helper, numpy_helper

        graph = model.graph
        duplicates = sorted({output.name for output in graph.output} & self.inputs.keys())
        if duplicates:
            raise InputError(f"a column and an output of the model are both called `{duplicates[0]}`",
                             hint="rename the layer, or export with --without-preprocessing")  # fmt: skip
        for node in graph.node:
            node.input[:], node.output[:] = map(self._renamed, node.input), map(self._renamed, node.output)
        for tensor in graph.initializer:
            tensor.name = self._renamed(tensor.name)
        remaining = [info for info in graph.input if info.name not in self.computed]
        elements = {"float64": TensorProto.DOUBLE, "string": TensorProto.STRING}
        added = [helper.make_tensor_value_info(name, elements[kind], [batch]) for name, kind in self.inputs.items()]
        nodes = [
            helper.make_node(
                node.op_type, list(node.inputs), [self._renamed(node.output)], name=node.output, domain=node.domain,
                **dict(node.attributes),
            )
            for node in self.nodes
        ]  # fmt: skip
        model_nodes = list(graph.node)
        del graph.input[:], graph.node[:]
        graph.input.extend([*added, *remaining])
        graph.node.extend([*nodes, *model_nodes])
        graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in self.constants.items())
        if any(node.domain == ML for node in self.nodes):
            model.opset_import.append(onnx.OperatorSetIdProto(domain=ML, version=ML_OPSET))
        check_model(model)

    def _renamed(self, tensor: str) -> str:
        """Return a name of a tensor that differs from those of the new inputs."""
        return f"net/{tensor}" if tensor in self.inputs or tensor in self.computed else tensor

    def dims(self, batch: int | str) -> dict[str, Dims]:
        """Return the sizes of the new inputs."""
        return dict.fromkeys(self.inputs, (batch,))
