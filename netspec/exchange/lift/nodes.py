"""Lift the nodes of a graph one by one: fold constants, apply the rule of the operator, or decompose the node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from netspec.errors import Problem, listing
from netspec.exchange.lift.inputs import INPUT_TYPES, OPEN_BATCH
from netspec.exchange.lift.patterns import PARTS, find_patterns
from netspec.exchange.lift.registry import SHAPE_OPERATORS, LiftRule, rules
from netspec.exchange.operator_graph.constant_folding import fold, stored_size
from netspec.exchange.operator_graph.evaluate import NotEvaluated, TooLargeToEvaluate
from netspec.exchange.operator_graph.graph import OperatorNode, needed, reads
from netspec.exchange.operator_graph.onnx_protos import body, defaults, known_since, rename
from netspec.exchange.unsupported import MixesSamples, UnsupportedFeature
from netspec.graph.types import DType, TensorType

if TYPE_CHECKING:
    from netspec.exchange.lift.context import LiftContext

MAX_FOLDED = 2**29
"""Largest number of elements that are computed from constants in one model."""
OPSET_OF_EXPANSIONS = 17
"""The newest opset in which reductions take their axes as an attribute."""
MAX_HINTED_ELEMENTS = 16
"""Largest number of elements of an input whose value a hint asks for."""
QUANTIZED = (DType.UINT8, DType.INT8, DType.UINT16, DType.INT16)
"""Element types of quantized values."""


class NodeLifter:
    """Lifts nodes into the layers of an import, and reports those that cannot be lifted."""

    def __init__(self, ctx: LiftContext) -> None:
        self._ctx = ctx
        self._folded_elements = 0
        self._lost: set[str] = set()
        """Tensors that do not exist because a node could not be lifted."""
        self._unknown: dict[tuple[str, str, int], list[str]] = {}
        """Labels of the nodes of each operator without a rule."""

    def lift_graph(self) -> None:
        """Lift every node of the model, and report all that cannot be lifted."""
        for node in self._ctx.model.nodes:
            self.lift_or_report(node)
        for (domain, op_type, opset), names in self._unknown.items():
            operator = f"{domain}.{op_type}" if domain else op_type
            count = f"{len(names)} nodes: " if len(names) > 1 else "node "
            message = f"netspec has no layer for the operator {operator} (opset {opset})"
            self._ctx.report.problems.append(Problem(message, got=count + listing(names, 6)))

    def lift_or_report(self, node: OperatorNode) -> None:
        """Lift a node, or report why it cannot be lifted; nodes that depend on a node that failed are not reported."""
        if not self._lost.isdisjoint((*node.inputs, *node.captured)):
            self._lose(node)
            return
        tensors, report = self._ctx.tensors, self._ctx.report
        try:
            _call_checked(self.lift, node)
            missing = [name for name in node.outputs if name and tensors.is_read(name) and not self.is_known(name)]
            if missing:
                raise UnsupportedFeature(f"the operator does not define the output `{missing[0]}`")
        except UnsupportedFeature as reason:
            text = str(reason).replace(str(OPEN_BATCH), "N")
            problems = report.mixed if isinstance(reason, MixesSamples) else report.problems
            hint = self._hint_of_values(reason.needs_constant) or reason.hint or None
            problems.append(Problem(f"{node.describe()} can't be imported: {text}", hint=hint))
            self._lose(node)

    def lift(self, node: OperatorNode) -> None:
        """Lift a node whose operands are known. Raises `UnsupportedFeature`."""
        ctx, registered = self._ctx, rules().get((node.domain, node.op_type))
        inputs = [name for name in (*node.inputs, *node.captured) if name]
        if node.op_type in SHAPE_OPERATORS and not node.domain and ctx.tensors.is_computed(node.inputs[0]):
            self._evaluate_shape(node)
        elif all(name in ctx.tensors.constants for name in inputs) and self._fold(node, registered is not None):
            pass
        elif registered is not None:
            try:
                if not registered.uses_all_results:
                    self.require_one_result(node)
                _call_checked(self._apply, registered, node)
            except MixesSamples:
                raise
            except UnsupportedFeature:
                parts = self._decomposition(node)
                if not parts:
                    raise
                self.replace(node, parts)
        elif parts := self._decomposition(node):
            self.replace(node, parts)
        else:
            self._lose(node)

    def replace(self, node: OperatorNode, nodes: Sequence[OperatorNode]) -> None:
        """Lift nodes in place of one node; they make its results."""
        tensors = self._ctx.tensors
        read_outputs = [name for name in node.outputs if tensors.reads.get(name)]
        tensors.count_reads({name: -count for name, count in (reads([node]) + Counter(read_outputs)).items()})
        self.insert(nodes, read_outputs, node.outputs[0] if PARTS in node.attributes else "")

    def insert(self, nodes: Sequence[OperatorNode], outputs: Sequence[str], tried: str = "") -> None:
        """Lift further nodes: those that `outputs` depend on, which are tensors that other nodes will read.

        No pattern that ends in the tensor `tried` is matched again.
        """
        ctx = self._ctx
        part = replace(ctx.model, nodes=needed(nodes, outputs), outputs=list(outputs), constants=ctx.tensors.constants)
        ctx.tensors.count_reads(part.reads())
        for node in find_patterns(part, tried).nodes:
            self.lift_or_report(node)

    def expect(self, tensor: str) -> None:
        """Mark a tensor as not available, until `provide`."""
        self._lost.add(tensor)

    def provide(self, tensor: str) -> None:
        """Mark a tensor as available."""
        self._lost.discard(tensor)

    def is_lost(self, tensor: str) -> bool:
        """Whether the tensor does not exist because a node could not be lifted."""
        return tensor in self._lost

    def is_known(self, tensor: str) -> bool:
        """Whether the tensor exists, or is known to be lost."""
        tensors = self._ctx.tensors
        registries = (tensors.constants, tensors.views, tensors.sequences, self._lost)
        return any(tensor in names for names in registries) or tensors.resolve(tensor) in tensors.values

    def require_one_result(self, node: OperatorNode) -> None:
        """Raise `UnsupportedFeature` if another result than the first is read."""
        for name in node.outputs[1:]:
            if name and self._ctx.tensors.reads.get(name):
                raise UnsupportedFeature(f"its second output, `{name}`, is used")

    def _apply(self, registered: LiftRule, node: OperatorNode) -> None:
        """Apply a rule; if a layer turns quantized values into floats, cast the result back."""
        ctx = self._ctx
        computed = [name for name in node.inputs if ctx.tensors.is_computed(name)] if registered.keeps_type else []
        dtype = ctx.tensors.dtype(computed[0]) if computed else None
        if dtype not in QUANTIZED:
            registered.apply(ctx, node)
            return
        result = ctx.tensors.fresh_name(node.outputs[0])
        registered.apply(ctx, replace(node, outputs=(result, *node.outputs[1:])))
        if result in ctx.tensors.constants or ctx.tensors.dtype(result) == dtype:
            ctx.reshaping.alias(node, result)
        else:
            ctx.layers.add_elementwise(node, "Cast", [result], {"dtype": str(dtype)})

    def _hint_of_values(self, tensor: str) -> str | None:
        """Return a hint for a tensor that must be a constant, if it is computed from small inputs; else None."""
        if not tensor:
            return None
        inner = needed(self._ctx.model.nodes, [tensor])
        read = {tensor, *(name for node in inner if node.op_type not in SHAPE_OPERATORS for name in node.inputs)}
        small = [
            feed.name
            for feed in self._ctx.inputs.values()
            if feed.name in read and prod(feed.shape) <= MAX_HINTED_ELEMENTS
        ]
        return "`" + " ".join(f"--value {name}=…" for name in small) + "` makes it a constant" if small else None

    def _lose(self, node: OperatorNode) -> None:
        """Mark the results of a node as lost."""
        has_rule = (node.domain, node.op_type) in rules() or (not node.domain and node.op_type in SHAPE_OPERATORS)
        if not has_rule and not self._decomposition(node):
            self._unknown.setdefault((node.domain, node.op_type, node.opset), []).append(node.label)
        self._lost.update(node.outputs)

    def _decomposition(self, node: OperatorNode) -> Sequence[OperatorNode]:
        """The nodes that a pattern replaced, or those that ONNX defines the operator by; empty if there are none."""
        if PARTS in node.attributes:
            return node.attributes[PARTS]  # type: ignore[no-any-return]  # attributes are of any type
        types = [self._type(name) for name in node.inputs]
        try:
            return body(node, types) or []
        except (ValueError, RuntimeError, TypeError):  # raised by the onnx library for a node that breaks its schema
            return []

    def _type(self, tensor: str) -> TensorType | None:
        tensors = self._ctx.tensors
        if not tensor or tensor in self._lost or tensor in tensors.sequences:
            return None
        if tensor in tensors.constants:
            name = INPUT_TYPES.get(str(tensors.constants[tensor].dtype))
            return None if name is None else TensorType(tensors.shape(tensor), DType(name))
        return TensorType(tensors.shape(tensor), tensors.dtype(tensor))

    def _evaluate_shape(self, node: OperatorNode) -> None:
        """Evaluate Shape or Size of a computed tensor."""
        ctx, shape = self._ctx, self._ctx.tensors.shape(node.inputs[0])
        part = shape[node.attributes.get("start", 0) : node.attributes.get("end")]
        if not ctx.tensors.single_sample and (node.op_type == "Size" or ctx.tensors.batch_size in part):
            ctx.counts_batch = True
        ctx.tensors.constants[node.outputs[0]] = np.asarray(part if node.op_type == "Shape" else prod(shape), "int64")

    def _fold(self, node: OperatorNode, has_rule: bool) -> bool:
        """Evaluate a node of constants. False if it cannot be evaluated, but has a rule or a decomposition.

        Raises `UnsupportedFeature` if it has neither.
        """
        constants = self._ctx.tensors.constants
        try:
            results = fold(node, [constants.get(name) for name in node.inputs], self._ctx.batch_size)
            self._folded_elements += sum(map(stored_size, results))
            if self._folded_elements > MAX_FOLDED:
                raise UnsupportedFeature(f"constant folding would compute more than {MAX_FOLDED:,} elements")
        except TooLargeToEvaluate as reason:
            if self._ctx.tensors.single_sample:
                raise
            raise MixesSamples(str(reason)) from reason  # the size of the batch may be among the sizes
        except NotEvaluated:
            if has_rule or self._decomposition(node):
                return False
            raise
        constants.update(zip(filter(None, node.outputs), results, strict=False))
        return True


class Expansion:
    """Nodes that a rule puts in place of one node. By default, the last one computes the node's first result."""

    def __init__(self, ctx: LiftContext, node: OperatorNode) -> None:
        self.ctx, self._replaced = ctx, node
        self.nodes: list[OperatorNode] = []

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of this operator, in the newest opset with attributes, and return its result."""
        (result,) = self.node_with_results(1, op_type, *inputs, **attributes)
        return result

    def node_with_results(self, count: int, op_type: str, *inputs: str, **attributes: Any) -> tuple[str, ...]:
        """Add a node, and return its first `count` results."""
        replaced = self._replaced
        results = tuple(self.ctx.tensors.fresh_name(replaced.outputs[0], reads=0) for _ in range(count))
        opset = known_since(op_type, OPSET_OF_EXPANSIONS) if replaced.domain else replaced.opset
        attributes = {**defaults(op_type, opset), **attributes}
        self.nodes.append(
            replace(
                replaced, op_type=op_type, inputs=inputs, outputs=results, attributes=attributes, domain="", opset=opset
            )
        )
        return results

    def constant(self, value: Any) -> str:
        """Add a constant operand, and return its name."""
        name = self.ctx.tensors.fresh_name(self._replaced.outputs[0], reads=0)
        self.ctx.tensors.constants[name] = value
        return name

    def number(self, value: float) -> str:
        """Add a scalar operand."""
        return self.constant(np.float32(value))

    def integers(self, values: ArrayLike) -> str:
        """Add an operand of integers: sizes, axes or indices."""
        return self.constant(np.asarray(values, "int64"))

    def lift(self, *results: str) -> None:
        """Lift the nodes; `results` are the tensors that become the results of the replaced node, if several."""
        names = dict(zip(results or self.nodes[-1].outputs, self._replaced.outputs, strict=False))
        nodes = [rename(node, lambda name: names.get(name) or name) for node in self.nodes]
        self.ctx.nodes.replace(self._replaced, nodes)


def _call_checked(function: Callable[..., None], *arguments: Any) -> None:
    """Call a function that relies on ONNX's schema. Raises `UnsupportedFeature` if the file breaks it."""
    try:
        function(*arguments)
    except (IndexError, KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise UnsupportedFeature(f"its inputs or attributes are not valid for this operator ({error})") from error
