"""Walk an ONNX model node by node and write down layers. What each operator becomes is said in `rules/`.

Every layer is built as it is written down (shapes only), so that each rule knows the shapes of what it reads and a
layer that would not fit is found at its node. What rules say to the translator is in `tensors`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from math import prod
from pkgutil import iter_modules
from typing import Any, TypeAlias

from netspec.errors import Problem, listing
from netspec.exchange.onnx_import.computing import NotComputed, TooMuch
from netspec.exchange.onnx_import.folding import fold
from netspec.exchange.onnx_import.inputs import INPUT_TYPES, OPEN_BATCH, OTHER_BATCH, Feed, batched, sized, whole
from netspec.exchange.onnx_import.layer import Layer
from netspec.exchange.onnx_import.model import Mixed, Model, Node, Unsupported, needed, reads
from netspec.exchange.onnx_import.moved import Moving
from netspec.exchange.onnx_import.nodes import body
from netspec.exchange.onnx_import.patterns import PARTS, find_patterns
from netspec.exchange.onnx_import.tensors import MAX_SIZE, Axes, View
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType

__all__ = ["OPEN_BATCH", "Layer", "Steps", "Translator", "View", "rule", "rules"]

MAX_FOLDED = 2**29
"""Numbers that are computed of constants in one model at most."""

FEW = 16
"""Numbers that a user may give for an input."""
MEASURES = ("Shape", "Size")
"""Operators that ask for what is known of any tensor."""

Rule: TypeAlias = "Callable[[Translator, Node], None]"
_rules: dict[tuple[str, str], Rule] = {}
_of_several: set[Rule] = set()


def rule(*op_types: str, domain: str = "", several: bool = False) -> Callable[[Rule], Rule]:
    """Decorator: the function writes down nodes of these operators, or raises `Unsupported` with the reason.

    With `several` it is for nodes of which further results than the first are read.
    """

    def register(function: Rule) -> Rule:
        for op_type in op_types:
            _rules[domain, op_type] = function
        if several:
            _of_several.add(function)
        return function

    return register


@cache
def rules() -> Mapping[tuple[str, str], Rule]:
    """All rules by domain and operator; the modules of `rules/` are found by scan."""
    package = import_module("netspec.exchange.onnx_import.rules")
    for module in iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")
    return _rules


@dataclass(frozen=True)
class Output:
    """An output of the model: the tensor of the net that it is, and which axis of it the net has in front."""

    tensor: str
    batch: int | None


class Translator(Moving):
    """The state of one import, and the vocabulary of the rules."""

    def __init__(
        self,
        model: Model,
        shapes: Mapping[str, tuple[int, ...]],
        as_whole: bool = False,
        batch: int = 0,
    ) -> None:
        """With `batch`, samples come in batches of that size whatever the model says."""
        super().__init__(model, as_whole, model.reads())
        self.problems: list[Problem] = []
        self.mixed: list[Problem] = []
        """What cannot be done to a batch, but perhaps where the whole model is one sample."""
        self.missing: list[Problem] = []
        """Sizes that the user has to give."""
        self.inputs: dict[str, Feed] = {}
        """By the tensor of the net that each is."""
        self.outputs: dict[str, Output] = {}
        self.counts_batch = False
        """Whether the size of the batch has become a number that something is computed with."""
        self._folded = 0
        self._lost: set[str] = set()
        self._unknown: dict[tuple[str, str, int], list[str]] = {}
        self._take_inputs(shapes, batch)

    def _take_inputs(self, shapes: Mapping[str, tuple[int, ...]], batch: int) -> None:
        read = [one for one in self.model.inputs if self._reads.get(one.name)]
        for one in self.model.inputs:
            if one not in read:
                self.remarks.append(f"the input `{one.name}` is read by nothing and was left out")
            elif one.dtype not in INPUT_TYPES:
                held = "text" if one.dtype == "object" else one.dtype
                self.problems.append(Problem(f"the input `{one.name}` holds {held}, which no net takes"))
            elif INPUT_TYPES[one.dtype] != one.dtype:
                self.remarks.append(f"the input `{one.name}` of {one.dtype} became {INPUT_TYPES[one.dtype]}")
        self._lost.update(one.name for one in read)
        known, wrong = sized(self.model.inputs, shapes)
        self.problems += wrong
        taken = [one for one in known if self._reads.get(one.name) and one.dtype in INPUT_TYPES]
        found = whole(taken) if self.whole else batched(taken)
        found.batch = batch or found.batch
        self.size_of_batch = found.batch
        self.mixed, self.missing = found.mixed, found.missing
        self.remarks += [*self.model.remarks, *found.remarks, *found.assumed]
        self.assumed = found.assumed
        for feed in found.feeds:
            if prod(feed.shape) > MAX_SIZE:
                self.problems.append(
                    Problem(
                        f"the input `{feed.name}` is too large",
                        expected=f"at most {MAX_SIZE:,} numbers in a sample", got=f"{list(feed.shape)}",
                    )
                )  # fmt: skip
                continue
            self._lost.discard(feed.name)
            held = self.hide(feed.name) if feed.batch else feed.name
            self.inputs[held] = feed
            self._values[held] = Input(feed.name, TensorType((found.batch, *feed.shape), DType(feed.dtype)))()
            if feed.batch:
                self.views[feed.name] = View(held, _batch_at(feed.batch, len(feed.shape) + 1))
        if not read:
            self.problems.append(Problem("the model reads no input", expected="something to compute with"))

    def run(self) -> None:
        """Write down every node; what cannot be is collected in `problems`, `mixed` and `missing`."""
        for node in self.model.nodes:
            self.translate(node)
        for (domain, op_type, opset), names in self._unknown.items():
            operator = f"{domain}.{op_type}" if domain else op_type
            count = f"{len(names)} nodes: " if len(names) > 1 else "node "
            message = f"netspec has no layer for the operator {operator} (opset {opset})"
            self.problems.append(Problem(message, got=count + listing(names, 6)))
        if not self.stopped:
            self._finish_outputs()

    @property
    def stopped(self) -> bool:
        """Whether there is something that keeps the model from being imported so."""
        return bool(self.problems or self.mixed or self.missing)

    def translate(self, node: Node) -> None:
        """Write down one node; what keeps it from that is noted."""
        if not self._lost.isdisjoint((*node.inputs, *node.captured)):
            self._lose(node)
            return
        try:
            _trusting(self.write, node)
        except Unsupported as reason:
            text = str(reason).replace(str(OPEN_BATCH), "N")
            where = self.mixed if isinstance(reason, Mixed) else self.problems
            hint = self._pinning(reason.wanted) if reason.wanted else None
            where.append(Problem(f"{node.describe()} can't be imported: {text}", hint=hint))
            self._lose(node)

    def _pinning(self, tensor: str) -> str | None:
        """What makes a tensor constant that is computed of inputs of few numbers."""
        inner = needed(self.model.nodes, [tensor])
        read = {tensor, *(name for node in inner if node.op_type not in MEASURES for name in node.inputs)}
        few = [feed.name for feed in self.inputs.values() if feed.name in read and prod(feed.shape) <= FEW]
        return "`" + " ".join(f"--value {name}=…" for name in few) + "` makes it one" if few else None

    def _lose(self, node: Node) -> None:
        """What the node makes will not be there, nor what is made of that."""
        known = (node.domain, node.op_type) in rules() or (not node.domain and node.op_type in MEASURES)
        if not known and not self._made_of(node):
            self._say_unknown(node)
        self._lost.update(node.outputs)

    def _say_unknown(self, node: Node) -> None:
        self._unknown.setdefault((node.domain, node.op_type, node.opset), []).append(node.label)

    def write(self, node: Node) -> None:
        """Write down a node whose operands are there, or other nodes that it is made of. Raises `Unsupported`."""
        found = rules().get((node.domain, node.op_type))
        inputs = [name for name in (*node.inputs, *node.captured) if name]
        if node.op_type in MEASURES and not node.domain and self.is_computed(node.inputs[0]):
            self._measure(node)
        elif all(name in self.constants for name in inputs) and self._fold(node, found is not None):
            pass
        elif found is not None:
            try:
                if found not in _of_several:
                    self.need_one_result(node)
                _trusting(found, self, node)
            except Mixed:
                raise
            except Unsupported:
                made_of = self._made_of(node)
                if not made_of:
                    raise
                self.instead(node, made_of)
        else:
            made_of = self._made_of(node)
            if made_of:
                self.instead(node, made_of)
            else:
                self._lose(node)

    def instead(self, node: Node, nodes: Sequence[Node]) -> None:
        """Write down nodes that say what one node does."""
        kept = [name for name in node.outputs if self._reads.get(name)]
        self.count_reads({name: -count for name, count in (reads([node]) + Counter(kept)).items()})
        self.put(nodes, kept, node.outputs[0] if PARTS in node.attributes else "")

    def put(self, nodes: Sequence[Node], kept: Sequence[str], apart: str = "") -> None:
        """Write down more nodes, as far as `kept` need them: tensors that something else will read.

        What makes `apart` was taken for several nodes together, which it is not.
        """
        part = replace(self.model, nodes=needed(nodes, kept), outputs=list(kept), constants=self.constants)
        self.count_reads(part.reads())
        for one in find_patterns(part, apart).nodes:
            self.translate(one)

    def is_lost(self, tensor: str) -> bool:
        """Whether the tensor is not there because something could not be written down."""
        return tensor in self._lost

    def _made_of(self, node: Node) -> Sequence[Node]:
        """The nodes that one was put in the place of, or those that ONNX says that an operator stands for."""
        if PARTS in node.attributes:
            return node.attributes[PARTS]  # type: ignore[no-any-return]  # attributes are of any type
        types = [self._type(name) for name in node.inputs]
        try:
            return body(node, types) or []
        except (ValueError, RuntimeError, TypeError):  # ONNX's own code, for a node that is not as it should be
            return []

    def _type(self, tensor: str) -> TensorType | None:
        if not tensor or tensor in self._lost:
            return None
        if tensor in self.constants:
            name = INPUT_TYPES.get(str(self.constants[tensor].dtype))
            return None if name is None else TensorType(self.shape(tensor), DType(name))
        return TensorType(self.shape(tensor), self.dtype(tensor))

    def _measure(self, node: Node) -> None:
        """The shape of a computed tensor, which is known."""
        import numpy as np

        shape = self.shape(node.inputs[0])
        part = shape[node.attributes.get("start", 0) : node.attributes.get("end")]
        self.counts_batch |= not self.whole and (node.op_type == "Size" or self.batch in part)
        self.constants[node.outputs[0]] = np.asarray(part if node.op_type == "Shape" else prod(shape), "int64")

    def _fold(self, node: Node, otherwise: bool) -> bool:
        """Whether the node was computed. Raises `Unsupported` where it was not, unless there is another way."""
        try:
            results = fold(node, [self.constants.get(name) for name in node.inputs])
            self._folded += sum(one.size for one in results if any(one.strides))
            if self._folded > MAX_FOLDED:
                raise Unsupported(f"more than {MAX_FOLDED:,} elements are computed of constants")
        except TooMuch as reason:
            if self.whole:
                raise
            raise Mixed(str(reason)) from reason  # as many as there are samples, perhaps
        except NotComputed:
            if otherwise or self._made_of(node):
                return False
            raise
        self.constants.update(zip(filter(None, node.outputs), results, strict=False))
        return True

    def need_one_result(self, node: Node) -> None:
        """Raise if a further result than the first is read."""
        for name in node.outputs[1:]:
            if name and self._reads.get(name):
                raise Unsupported(f"its second result, `{name}`, is used")

    def _finish_outputs(self) -> None:
        """Have every output of the model made by a layer of its name."""
        taken: set[str] = set()
        for name in self.model.outputs:
            node = Node("Identity", "", (name,), (name,), {}, self.model.opset)
            try:
                held, batch = self._output(name)
                if held in taken or (self.maker(held) is None and not self._is_part(held)):
                    alone = self.hide(name)
                    self.add(node, "Activation", [held], {"activation": "linear"}, outputs=[alone])
                    held = alone
            except Unsupported as reason:
                where = self.mixed if isinstance(reason, Mixed) else self.problems
                where.append(Problem(f"the output `{name}` can't be imported: {reason}"))
                continue
            taken.add(held)
            self.outputs[name] = Output(held, batch)

    def _output(self, name: str) -> tuple[str, int | None]:
        """The tensor of the net that an output is, and which axis of it is in front there: that of the samples."""
        front = None if self.whole else 0
        if name in self.constants:
            self.value(name)
            if not self.whole and self.batch != 1 and self.shape(name)[0] == 1:
                if self.batch not in (OPEN_BATCH, OTHER_BATCH):
                    raise Mixed("a constant that the model gives once, not for each sample")
                self.remarks.append(f"the output `{name}` is a constant, which the net gives for each sample")
            return self._held_constant(name, self.rank(name)), front
        view = self.held(name)
        if not self.whole and (0,) in view.axes[1:]:
            axis = view.axes.index((0,))
            self.remarks.append(f"the output `{name}` has its samples in front here, not as axis {axis}")
            return self.resolve(self.samples_first(name, axis)), axis
        self.value(name)
        return self.resolve(name), front

    def _is_part(self, tensor: str) -> bool:
        """Whether a layer with several outputs makes the tensor."""
        return any(tensor in dict(layer.outputs) for layer in self.layers)


class Steps:
    """A node said in other operators: nodes put in its place, of which the last makes its first result, or some all."""

    def __init__(self, net: Translator, node: Node) -> None:
        self.net, self.node = net, node
        self.nodes: list[Node] = []

    def of(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """The result of one more node of this operator, as the newest opset with attributes has it."""
        made = self.net.hide(self.node.outputs[0], reads=0)
        self.nodes.append(
            replace(self.node, op_type=op_type, inputs=inputs, outputs=(made,), attributes=attributes, domain="")
        )
        return made

    def constant(self, value: Any) -> str:
        """A constant operand."""
        made = self.net.hide(self.node.outputs[0], reads=0)
        self.net.constants[made] = value
        return made

    def run(self, *results: str) -> None:
        """Write them down; `results` are those of the node, where there are several."""
        names = dict(zip(results or self.nodes[-1].outputs, self.node.outputs, strict=False))
        self.nodes = [
            replace(one, outputs=tuple(names.get(made) or made for made in one.outputs)) for one in self.nodes
        ]
        self.net.instead(self.node, self.nodes)


def _trusting(function: Callable[..., None], *given: Any) -> None:
    """Call what relies on what ONNX says of an operator; a file may not keep to it. Raises `Unsupported` then."""
    try:
        function(*given)
    except (IndexError, KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise Unsupported(f"its operands or attributes are not what the operator takes ({error})") from error


def _batch_at(axis: int, rank: int) -> Axes:
    """How a tensor whose samples are along `axis` lies in one that has them in front."""
    return tuple((0 if place == axis else place + 1 if place < axis else place,) for place in range(rank))
