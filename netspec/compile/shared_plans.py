"""`SharedPlans`: one plan for the programs of several nets that differ only in constants.

A constant in which the programs differ, such as a weight decay or the rate of a dropout, becomes a state that the
program reads. The plan, its kernels and its memory are then the same for all nets, and results are the same as with
separate plans.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from netspec.graph.execution_plan import ExecutionPlan
from netspec.graph.graph import Graph
from netspec.graph.ops.reduce import Broadcast
from netspec.graph.ops.source import Fill, State
from netspec.graph.types import TensorType
from netspec.graph.value import Node, Value, in_scope
from netspec.passes.base import run_passes
from netspec.passes.constant_folding import FoldConstants
from netspec.passes.cse import exact_key
from netspec.passes.simplify import Simplify

if TYPE_CHECKING:
    from netspec.compile.compiler import Compiler

NORMALIZING_PASSES = (FoldConstants(), Simplify())
"""Passes that run before graphs are compared: numbers that are attributes of ops, such as rates, become constants."""
CONSTANT_PREFIX = "constant"
"""Beginning of the names of states that hold constants."""


@dataclass(frozen=True)
class SharedPlan:
    """A plan that several nets take turns to run."""

    plan: ExecutionPlan
    compilers: Sequence[Compiler]
    """The nets."""
    constants: Mapping[str, Sequence[float]]
    """The value of a constant in each net, by the name of the state that holds it."""
    arena: Any
    """Memory for the values of one run, which all nets use."""

    def write_constants(self, compiler: Compiler) -> None:
        """Create the states of a net that hold its constants."""
        index = self.compilers.index(compiler)
        types = {name: value.type for name, value in self.plan.graph.states().items() if name in self.constants}
        compiler.states.add_constants(types, {name: self.constants[name][index] for name in types})


@dataclass
class SharedPlans:
    """The plans of nets that take turns to run on one device. All nets are added before the first plan is made."""

    compilers: list[Compiler] = field(default_factory=list, init=False)
    _plans: dict[Hashable, dict[Compiler, SharedPlan]] = field(default_factory=dict, init=False)

    def add(self, compiler: Compiler) -> None:
        """Let a net share its plans, unless its device runs ahead: then the memory of a run cannot be shared."""
        if not compiler.device.runs_ahead:
            self.compilers.append(compiler)
            compiler.shared_plans = self

    def get(
        self, compiler: Compiler, key: tuple[Hashable, ...], graph_of: Callable[[Compiler], Graph],
        make_plan: Callable[[Graph], ExecutionPlan],
    ) -> SharedPlan:  # fmt: skip
        """Return a program's plan for a net and all others that can share it; `key` has its purpose and sizes."""
        plans = self._plans.setdefault(key, {})
        if compiler not in plans:
            settings = _planner_settings(compiler)
            candidates = [
                other for other in self.compilers if other not in plans and _planner_settings(other) == settings
            ]
            graphs = {other: run_passes(graph_of(other), NORMALIZING_PASSES) for other in candidates}
            structure = _structure_key(graphs[compiler])
            graphs = {
                other: graph
                for other, graph in graphs.items()
                if other is compiler or _structure_key(graph) == structure
            }
            graph, constants = _constants_as_states(list(graphs.values()), "/".join(map(str, (CONSTANT_PREFIX, *key))))
            plan = make_plan(graph)
            arena = compiler.device.allocate(plan.memory.arena_bytes)
            plans.update(dict.fromkeys(graphs, SharedPlan(plan, list(graphs), constants, arena)))
        return plans[compiler]

    def compilers_sharing_with(self, compiler: Compiler) -> Sequence[Compiler]:
        """Return the nets that share the first plan of a net, including the net itself."""
        plans = next((plans for plans in self._plans.values() if compiler in plans), None)
        return [compiler] if plans is None else plans[compiler].compilers


def _planner_settings(compiler: Compiler) -> tuple[object, ...]:
    """The settings that plans depend on, apart from the graph."""
    device, loop = compiler.device, compiler.loop
    of_device = device.name, device.no_fast_rounding, device.deterministic, device.has_tuner
    return compiler.precision, of_device, None if loop is None else (loop.memory_budget, loop.recompute)


def _structure_key(graph: Graph) -> Hashable:
    """A key that is equal for graphs that differ only in the values of constants."""
    nodes = graph.nodes()
    indices = {value: index for index, value in enumerate(value for node in nodes for value in node.outputs)}
    results = {**graph.outputs, **{f"new {name}": value for name, value in graph.updates.items()}}
    guard = None if graph.guard is None else indices[graph.guard]
    return (
        tuple((_op_key(node), tuple(indices[value] for value in node.inputs)) for node in nodes),
        tuple((name, indices[value]) for name, value in results.items()), guard,
    )  # fmt: skip


def _op_key(node: Node) -> Hashable:
    return exact_key(replace(node.op, value=0.0) if isinstance(node.op, Fill) and _is_float_constant(node) else node.op)


def _is_float_constant(node: Node) -> bool:
    return isinstance(node.op, Fill) and node.op.type.dtype.is_float


def _constants_as_states(graphs: Sequence[Graph], prefix: str) -> tuple[Graph, dict[str, list[float]]]:
    """Replace the constants in which graphs of equal structure differ by states; return one graph and the values.

    Constants that are equal in each graph have one state.
    """
    constants: dict[str, list[float]] = {}
    states: dict[tuple[Hashable, ...], Value] = {}
    constants_of: dict[Node, tuple[list[float], tuple[Hashable, ...]]] = {}
    for nodes in zip(*(graph.nodes() for graph in graphs), strict=True):
        values = [node.op.value for node in nodes if isinstance(node.op, Fill) and _is_float_constant(node)]
        exact = tuple(map(exact_key, map(float, values)))
        if len(set(exact)) > 1:
            constants_of[nodes[0]] = values, (*exact, nodes[0].types[0].dtype)

    def change(node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...] | None:
        if node not in constants_of:
            return None
        (values, key), kind = constants_of[node], node.types[0]
        with in_scope(node.scope):
            if key not in states:
                name = f"{prefix}/{len(constants)}"
                constants[name], states[key] = values, State(name, TensorType((), kind.dtype))()
            return (Broadcast(kind.shape)(states[key]) if kind.shape else states[key],)

    return graphs[0].rewrite(change), constants
