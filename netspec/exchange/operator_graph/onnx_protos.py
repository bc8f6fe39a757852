"""Read nodes and graphs of an ONNX file as plain data. Functions, the file's or ONNX's, are inlined."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.operator_graph.arrays import Arrays, text
from netspec.exchange.operator_graph.graph import OperatorNode, Subgraph
from netspec.graph.types import TensorType

if TYPE_CHECKING:
    import onnx


DOMAINS = ("", "ai.onnx")
"""Names of the domain of ONNX's own operators."""
MAX_NODES = 100_000
"""Largest number of nodes after functions are inlined and loops unrolled: a larger model is refused."""
SCOPES = "pkg.torch.onnx.name_scopes"
"""Key of the scopes that PyTorch's exporter writes since version 2.5."""
SCOPE = re.compile(r"'([^']*)'")


@dataclass
class Nodes:
    """Reads nodes; `functions` are the model's own, by domain and name."""

    arrays: Arrays = field(default_factory=Arrays)
    functions: Mapping[tuple[str, str], onnx.FunctionProto] = field(default_factory=dict)
    node_count: int = 0

    def graph(
        self, graph: onnx.GraphProto, opsets: Mapping[str, int], caller_attributes: Mapping[str, Any] | None
    ) -> Subgraph:
        """A graph within a node."""
        constants = [self.arrays.named(tensor) for tensor in graph.initializer]
        constants += [self.arrays.sparse(tensor) for tensor in graph.sparse_initializer]
        inputs = tuple(text(info.name) for info in graph.input)
        wrong = twice([name for name, _ in constants], "initializer") + twice(inputs, "input")
        if wrong:
            raise ValueError("; ".join(f"in a graph within a node {problem}" for problem in wrong))
        return Subgraph(
            inputs,
            tuple(text(info.name) for info in graph.output),
            dict(constants),
            tuple(self.several(graph.node, opsets, caller_attributes)),
        )

    def several(
        self,
        nodes: Iterable[onnx.NodeProto],
        opsets: Mapping[str, int],
        caller_attributes: Mapping[str, Any] | None = None,
        within: Sequence[tuple[str, str]] = (),
    ) -> list[OperatorNode]:
        """The nodes, with calls of the model's functions inlined. Raises `ValueError`."""
        inlined = []
        for proto in nodes:
            node = self.node(proto, opsets, caller_attributes)
            function = self.functions.get((node.domain, node.op_type))
            if function is None:
                inlined.append(node)
            elif (node.domain, node.op_type) in within:
                raise ValueError(f"the function {node.op_type} calls itself")
            else:
                inlined += self.inline_call(node, function, within)
            self.node_count += 1
            if self.node_count > MAX_NODES:
                raise ValueError(f"it has more than {MAX_NODES:,} nodes with those of its functions")
        return inlined

    def inline_call(
        self, node: OperatorNode, function: onnx.FunctionProto, within: Sequence[tuple[str, str]] = ()
    ) -> list[OperatorNode]:
        """The nodes of a function, with the operands, results and attributes of a node that calls it."""
        opsets = {_domain(text(entry.domain)): entry.version for entry in function.opset_import}
        attributes = {
            text(attribute.name): self.attribute(attribute, opsets, None) for attribute in function.attribute_proto
        }
        attributes |= node.attributes
        formal = dict(zip(map(text, function.input), (*node.inputs, *[""] * len(function.input)), strict=False))
        formal |= dict(zip(map(text, function.output), node.outputs, strict=False))
        inner = self.several(function.node, opsets, attributes, (*within, (node.domain, node.op_type)))
        prefix = node.outputs[0] if node.outputs else node.label

        def renamed(name: str) -> str:
            return formal[name] if formal.get(name) or name in formal else f"{prefix}/{name}" if name else ""

        return [
            rename(replace(body_node, name=node.name, path=body_node.path or node.path), renamed) for body_node in inner
        ]

    def node(
        self, node: onnx.NodeProto, opsets: Mapping[str, int], caller_attributes: Mapping[str, Any] | None = None
    ) -> OperatorNode:
        """One node; attributes that refer to an attribute of the enclosing function get its value from the caller."""
        op_type, domain = text(node.op_type), _domain(text(node.domain))
        version = opsets.get(domain, 0)
        attributes = dict(defaults(op_type, version, domain))
        for proto in node.attribute:
            if not proto.ref_attr_name:
                attributes[text(proto.name)] = self.attribute(proto, opsets, caller_attributes)
            elif caller_attributes is not None and text(proto.ref_attr_name) in caller_attributes:
                attributes[text(proto.name)] = caller_attributes[text(proto.ref_attr_name)]
        inputs, outputs = tuple(map(text, node.input)), tuple(map(text, node.output))
        return OperatorNode(op_type, text(node.name), inputs, outputs, attributes, version, domain, _path(node))

    def attribute(self, attribute: onnx.AttributeProto, opsets: Mapping[str, int], caller_attributes: Any) -> Any:
        """An attribute's value; floats as the shortest decimal that is the same float32, so that 0.1 stays 0.1."""
        import onnx

        kinds = onnx.AttributeProto
        match attribute.type:
            case kinds.FLOAT:
                return float(str(np.float32(attribute.f)))
            case kinds.FLOATS:
                return [float(str(np.float32(value))) for value in attribute.floats]
            case kinds.INT:
                return attribute.i
            case kinds.INTS:
                return list(attribute.ints)
            case kinds.STRING:
                return text(attribute.s)
            case kinds.STRINGS:
                return [text(string) for string in attribute.strings]
            case kinds.TENSOR:
                return self.arrays.numbers(attribute.t)
            case kinds.SPARSE_TENSOR:
                return self.arrays.sparse(attribute.sparse_tensor)[1]
            case kinds.GRAPH:
                return self.graph(attribute.g, opsets, caller_attributes)
        return attribute  # of a type that no rule supports


@cache
def defaults(op_type: str, opset: int, domain: str = "") -> Mapping[str, Any]:
    """Default values of an operator's attributes, by name; empty for an operator that onnx does not know."""
    schema = _schema(op_type, opset, domain)
    default_values = {name: attribute.default_value for name, attribute in schema.attributes.items()} if schema else {}
    return {name: Nodes().attribute(value, {}, None) for name, value in default_values.items() if value.type}


@cache
def known_since(op_type: str, opset: int) -> int:
    """`opset`, or the first opset that has this ONNX operator if that is newer."""
    import onnx

    versions = (schema.since_version for schema in onnx.defs.get_all_schemas_with_history() if schema.name == op_type)
    return max(opset, min(versions, default=opset))


def _schema(op_type: str, opset: int, domain: str) -> Any:
    """onnx's schema of an operator, or None; onnxruntime writes some newer operators into models of older opsets."""
    import onnx

    try:
        return onnx.defs.get_schema(op_type, opset if domain else known_since(op_type, opset), domain)
    except onnx.defs.SchemaError:
        return None


def twice(names: Iterable[str], kind: str) -> list[str]:
    """Problems of a graph with several tensors of one name."""
    return [f"the {kind} `{name}` is there {count} times" for name, count in Counter(names).items() if count > 1]


def rename(node: OperatorNode, renamed: Callable[[str], str]) -> OperatorNode:
    """Rename the tensors of a node, also in graphs within it."""
    attributes = {
        name: _graph_renamed(value, renamed) if isinstance(value, Subgraph) else value
        for name, value in node.attributes.items()
    }
    inputs, outputs = tuple(map(renamed, node.inputs)), tuple(map(renamed, node.outputs))
    return replace(node, inputs=inputs, outputs=outputs, attributes=attributes)


def _graph_renamed(graph: Subgraph, renamed: Callable[[str], str]) -> Subgraph:
    return Subgraph(
        tuple(map(renamed, graph.inputs)),
        tuple(map(renamed, graph.outputs)),
        {renamed(name): array for name, array in graph.constants.items()},
        tuple(rename(node, renamed) for node in graph.nodes),
    )


def inlined(
    graph: Subgraph, inputs: Sequence[str], prefix: str
) -> tuple[dict[str, NDArray[Any]], list[OperatorNode], tuple[str, ...]]:
    """The constants, nodes and outputs of a graph within a node, with unique names of tensors."""
    names = {name: f"{prefix}/{name}" for name in graph.own if name} | dict(zip(graph.inputs, inputs, strict=True))
    renamed_graph = _graph_renamed(graph, lambda name: names.get(name, name))
    return dict(renamed_graph.constants), list(renamed_graph.nodes), renamed_graph.outputs


def as_proto(node: OperatorNode) -> onnx.NodeProto:
    """Convert a node to an ONNX message."""
    from onnx import helper, numpy_helper

    attributes = {}
    for name, value in node.attributes.items():
        if isinstance(value, Subgraph):
            attributes[name] = _graph_as_proto(value)
        elif hasattr(value, "dtype"):
            attributes[name] = numpy_helper.from_array(value)
        elif value not in ([], ()):
            attributes[name] = value
    return helper.make_node(node.op_type, node.inputs, node.outputs, domain=node.domain, **attributes)


def _graph_as_proto(graph: Subgraph) -> onnx.GraphProto:
    """Convert a graph within a node to an ONNX message, without types."""
    from onnx import ValueInfoProto, helper, numpy_helper

    inputs, outputs = ([ValueInfoProto(name=name) for name in names] for names in (graph.inputs, graph.outputs))
    constants = [numpy_helper.from_array(array, name) for name, array in graph.constants.items()]
    return helper.make_graph([as_proto(node) for node in graph.nodes], "inner", inputs, outputs, constants)


def body(node: OperatorNode, types: Sequence[TensorType | None]) -> list[OperatorNode] | None:
    """The nodes by which ONNX defines an operator, for operands of these types; None if it is a primitive."""
    schema = _schema(node.op_type, node.opset, node.domain)
    if schema is None:
        return None
    if any(kind.startswith("seq") for formal in schema.inputs[:1] for kind in formal.types):
        return None  # onnx aborts the process for a sequence without an element type, which `types` lack
    function = _function_of(schema, node, types)
    return None if function is None else Nodes().inline_call(node, function)


def _function_of(schema: Any, node: OperatorNode, types: Sequence[TensorType | None]) -> onnx.FunctionProto | None:
    import onnx

    def nearest(versions: Sequence[int]) -> int:
        """The newest version up to the node's opset, else the oldest one; 0 without any."""
        return max((version for version in versions if version <= node.opset), default=min(versions, default=0))

    def type_bytes(kind: TensorType | None) -> bytes:
        if kind is None:
            return b""
        code = onnx.helper.np_dtype_to_tensor_dtype(_numpy(kind))
        message: bytes = onnx.helper.make_tensor_type_proto(code, kind.shape).SerializeToString()
        return message

    version = nearest(schema.function_opset_versions)
    function = onnx.FunctionProto()
    if version:
        function.ParseFromString(schema.get_function_with_opset_version(version))
        return function
    version = nearest(schema.context_dependent_function_opset_versions)
    if not version:
        return None
    proto = as_proto(node).SerializeToString()
    content = schema.get_context_dependent_function_with_opset_version(version, proto, list(map(type_bytes, types)))
    function.ParseFromString(content)
    return function


def _numpy(kind: TensorType) -> Any:
    return np.dtype(str(kind.dtype))


def _domain(name: str) -> str:
    return "" if name in DOMAINS else name


def _path(node: onnx.NodeProto) -> str:
    """The module in a node's metadata, as PyTorch's exporter writes it, and the operator; empty without one.

    The scopes are a list from the model to the operation, `['', 'encoder', 'encoder.layers.0', 'linear']`, in which
    each module has its full name.
    """
    scopes = next((text(entry.value) for entry in node.metadata_props if entry.key == SCOPES), "")
    path, before = [], ""
    for scope in SCOPE.findall(scopes)[:-1]:
        if scope:
            path.append(scope.removeprefix(f"{before}."))
            before = scope
    return "/".join([*path, text(node.op_type)]) if path else ""
