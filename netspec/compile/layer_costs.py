"""Shapes, parameters, arithmetic and memory of each layer of a net."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from netspec.compile.build import NetGraph
from netspec.compile.compiler import Compiler
from netspec.graph.graph import topological_order
from netspec.graph.ops.rnn import RecurrentOp
from netspec.graph.value import Node
from netspec.passes.mixed_precision import is_contraction
from netspec.schema.specs.links import resolve_names


@dataclass(frozen=True)
class LayerCost:
    """Shapes and costs of one layer, for the forward pass of one batch."""

    name: str
    type: str
    output_shape: tuple[int, ...]
    """Shape of the first output."""
    output_dtype: str
    parameters: int
    """Number of elements of the layer's own parameters; 0 if it shares those of another layer."""
    flops: int
    """Floating-point operations; a multiplication and an addition are two."""
    contraction_flops: int
    """Floating-point operations of its convolutions, matrix products and recurrent cells for the outputs of the net."""
    memory_bytes: int
    """Bytes of all values that the layer computes, without reuse of memory."""
    outputs: dict[str, tuple[int, ...]]
    """Shape of each output, by the name that other layers use in `from`."""


def layer_costs(compiler: Compiler, built: NetGraph) -> Iterator[LayerCost]:
    """Yield each layer of a net, as built for a batch."""
    flops: Counter[str] = Counter()
    contraction_flops: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    for_outputs = set(topological_order(built.outputs.values()))
    for node in topological_order(built.values.values()):
        if not node.op.traits.source and not node.op.traits.view:
            flops[node.scope.layer] += flops_of(node)
            counts = node in for_outputs and _is_contraction_or_recurrence(node)  # auxiliary outputs of training do not
            contraction_flops[node.scope.layer] += flops_of(node) if counts else 0
            memory[node.scope.layer] += sum(value.type.nbytes for value in node.outputs)
    own_parameters: Counter[str] = Counter()
    for state in compiler.info.values():
        if state.role == "parameter":
            own_parameters[state.value.node.scope.layer] += state.value.type.size
    for link in resolve_names(compiler.spec).layers:
        value = built.values[link.name]
        kind = str(getattr(link.fields, "type", ""))
        yield LayerCost(
            name=link.name,
            type=kind,
            output_shape=value.shape,
            output_dtype=str(value.dtype),
            parameters=own_parameters[link.name],
            flops=flops[link.name],
            contraction_flops=contraction_flops[link.name],
            memory_bytes=memory[link.name],
            outputs={name: built.values[name].shape for name in link.outputs},
        )


def flops_of(node: Node) -> int:
    """Return the floating-point operations of a node."""
    return node.op.flops(*(value.type for value in node.inputs))


def _is_contraction_or_recurrence(node: Node) -> bool:
    return is_contraction(node) or isinstance(node.op, RecurrentOp)
