"""Walk an ONNX model node by node and write down layers. What each operator becomes is said in `rules/`.

Every layer is built as it is written down (shapes only), so that each rule knows the shapes of what it reads and a
layer that would not fit is found at its node. The batch axis is axis 0 of every value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from pydantic import ValidationError

from netspec.errors import NetspecError, Problem, did_you_mean, listing
from netspec.exchange.onnx_import.folding import fold
from netspec.exchange.onnx_import.model import Model, ModelInput, Node, Unsupported
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import ShapeMismatch, Value, in_scope
from netspec.layers.base import Builder, LayerSpec
from netspec.schema.kinds import LAYERS
from netspec.schema.net import InputDType

if TYPE_CHECKING:
    from numpy.typing import NDArray

OPEN_BATCH = 7919
"""Stands for the size of an open batch axis: a prime that no other axis is likely to have."""

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


def rules() -> Mapping[tuple[str, str], Rule]:
    """All rules by domain and operator; the modules of `rules/` are found by scan."""
    package = import_module("netspec.exchange.onnx_import.rules")
    for module in iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")
    return _rules


@dataclass
class Layer:
    """A layer as it will be written: fields that differ from their defaults, parameters, and the tensors it joins."""

    type: str
    fields: dict[str, Any]
    inputs: tuple[str, ...]
    output: str
    node: Node
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    name: str = ""
    sources: tuple[str, ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()
    """Of a layer with several outputs: the tensor that each is, the first too, and the output's name."""

    @property
    def stem(self) -> str:
        """What a layer with several outputs is called: `split`, which `split/Split` makes, as netspec writes it."""
        name = self.node.name
        return (name.removesuffix(f"/{self.node.op_type}") if name else "") or self.outputs[0][0]

    def has(self, name: str) -> bool:
        """Whether layers of this type have the field."""
        return name in LAYERS[self.type].model_fields


@dataclass(frozen=True)
class Turned:
    """A tensor that is another one with its axes in another order. What reads it takes that up, or has it permuted."""

    source: str
    permutation: tuple[int, ...]
    node: Node


class Translator:
    """The state of one import, and the vocabulary of the rules."""

    def __init__(self, model: Model, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.model = model
        self.problems: list[Problem] = []
        self.layers: list[Layer] = []
        self.inputs: dict[str, ModelInput] = {}
        self.constants: dict[str, NDArray[Any]] = dict(model.constants)
        self.turned: dict[str, Turned] = {}
        self.remarks: list[str] = []
        self.wanted: set[str] = set()
        """Computed tensors that rules wanted to be constants."""
        self.batch = OPEN_BATCH
        self._values: dict[str, Value] = {}
        self._aliases: dict[str, str] = {}
        self._lost: set[str] = set()
        self._unknown: dict[tuple[str, str, int], list[str]] = {}
        self._reads = Counter(name for node in model.nodes for name in node.inputs)
        self._reads.update(model.outputs)
        self._take_inputs(shapes)

    def _take_inputs(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        fixed = {one.dims[0] for one in self.model.inputs if one.dims and one.dims[0] and self._reads[one.name]}
        if len(fixed) > 1:
            self.problems.append(Problem(f"the inputs have different batch sizes: {sorted(fixed)}"))
        elif fixed:
            (self.batch,) = fixed
        known = [one.name for one in self.model.inputs]
        for name in sorted(shapes.keys() - set(known)):
            hint = did_you_mean(name, known)
            self.problems.append(
                Problem(f"a shape is given for `{name}`, which is no input", expected=listing(known), hint=hint)
            )
        for one in self.model.inputs:
            if not self._reads[one.name]:
                self.remarks.append(f"the input `{one.name}` is read by nothing and was left out")
                continue
            self._lost.add(one.name)
            given = shapes.get(one.name)
            dims = one.dims if given is None else (None, *given)
            dtype = _INPUT_TYPES.get(one.dtype)
            if dtype is None:
                self.problems.append(Problem(f"the input `{one.name}` holds {one.dtype}, which no net takes"))
            elif not dims or any(size is None for size in dims[1:]):
                got = "unknown" if dims is None else str([size or "?" for size in dims])
                self.problems.append(
                    Problem(
                        f"the input `{one.name}` has no fixed size",
                        expected="a batch axis, then sizes that are numbers",
                        got=got,
                        hint=f"give the sizes for which the net shall be made: `--shape {one.name}=…`",
                    )
                )
            else:
                sizes = tuple(size for size in dims[1:] if size is not None)
                self._lost.discard(one.name)
                self.inputs[one.name] = ModelInput(one.name, dtype, sizes)
                self._values[one.name] = Input(one.name, TensorType((self.batch, *sizes), DType(dtype)))()

    def run(self) -> None:
        """Write down every node; what cannot be is collected in `problems`."""
        table = rules()
        for node in self.model.nodes:
            found = table.get((node.domain, node.op_type))
            inputs = [name for name in node.inputs if name]
            constant = all(name in self.constants for name in inputs)
            try:
                if constant or node.op_type == "Shape":
                    self._fold(node)
                elif found is None:
                    self._unknown.setdefault((node.domain, node.op_type, node.opset), []).append(node.label)
                    self._lost.update(node.outputs)
                elif self._lost.isdisjoint(inputs):
                    if found not in _of_several:
                        self._need_one_result(node)
                    _apply(found, self, node)
                else:
                    self._lost.update(node.outputs)
            except Unsupported as reason:
                text = str(reason).replace(str(OPEN_BATCH), "N")
                self.problems.append(Problem(f"{node.describe()} can't be imported: {text}"))
                self._lost.update(node.outputs)
        for (domain, op_type, opset), names in self._unknown.items():
            operator = f"{domain}.{op_type}" if domain else op_type
            count = f"{len(names)} nodes: " if len(names) > 1 else "node "
            message = f"netspec has no layer for the operator {operator} (opset {opset})"
            self.problems.append(Problem(message, got=count + listing(names, 6)))
        if not self.problems:
            self._check_outputs()

    def _fold(self, node: Node) -> None:
        if node.op_type == "Shape" and node.inputs[0] not in self.constants:
            if node.inputs[0] in self._lost:
                self._lost.update(node.outputs)
                return
            import numpy as np

            shape = self.shape(node.inputs[0])
            end = node.attributes.get("end")
            self.constants[node.outputs[0]] = np.asarray(shape[node.attributes.get("start", 0) : end], "int64")
            return
        self.constants[node.outputs[0]] = fold(node, [self.constants.get(name) for name in node.inputs])

    def _need_one_result(self, node: Node) -> None:
        for name in node.outputs[1:]:
            if name and self._reads[name]:
                raise Unsupported(f"its second result, `{name}`, is used")

    def _check_outputs(self) -> None:
        for name in self.model.outputs:
            try:
                if name in self.turned:
                    self.value(name)
            except Unsupported as reason:
                self.problems.append(Problem(f"the output `{name}` can't be imported: {reason}"))
                continue
            held = self.resolve(name)
            if self._maker(held) is None and not any(held in dict(layer.outputs) for layer in self.layers):
                what = "a constant" if name in self.constants else "an input"
                self.problems.append(Problem(f"the output `{name}` is {what}", expected="the result of a layer"))

    # What rules say.

    def resolve(self, tensor: str) -> str:
        """The tensor that holds the same numbers under the name its layer knows."""
        while tensor in self._aliases:
            tensor = self._aliases[tensor]
        return tensor

    def value(self, tensor: str) -> Value:
        """A computed tensor with its shape. Raises `Unsupported` for a constant, or where samples are mixed."""
        if tensor in self.turned:
            self._permute(self.turned.pop(tensor))
        if tensor in self.constants:
            raise Unsupported(f"its operand `{tensor}` is a constant")
        return self._values[self.resolve(tensor)]

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Sizes of a computed tensor, the batch first."""
        return self.value(tensor).shape

    def constant(self, tensor: str, what: str) -> NDArray[Any]:
        """A constant operand; `what` names it in the message where it is not one."""
        if tensor not in self.constants:
            self.wanted.add(tensor)
            raise Unsupported(f"its {what} is computed, not a constant" if tensor else f"it has no {what}")
        return self.constants[tensor]

    def same(self, node: Node, source: str) -> None:
        """The node's result holds the numbers of `source`."""
        output = node.outputs[0]
        if source in self.constants:
            self.constants[output] = self.constants[source]
            return
        self.value(source)
        held = self.resolve(source)
        layer = self._maker(held)
        if layer is not None and self._reads[source] == 1 and held not in self.model.outputs:
            self.absorb(layer, node)
            self._aliases[held] = output
        elif output in self.model.outputs:
            self.add(node, "Activation", [source], {"activation": "linear"})
        else:
            self._aliases[output] = source

    def turn(self, node: Node, source: str, permutation: Sequence[int]) -> None:
        """The node's result is `source` with its axes in another order."""
        before = self.turned.get(source)
        order = tuple(permutation if before is None else (before.permutation[axis] for axis in permutation))
        origin = source if before is None else before.source
        if order == tuple(range(len(order))):
            self.same(node, origin)
        else:
            self.turned[node.outputs[0]] = Turned(origin, order, node)

    def _permute(self, turned: Turned) -> None:
        """Write down a layer that turns the axes."""
        first, *others = turned.permutation
        if first != 0:
            raise Unsupported("its operand has another axis than that of the samples in front")
        self.add(turned.node, "Permute", [turned.source], {"dims": others})

    def _maker(self, tensor: str) -> Layer | None:
        """The layer that makes this tensor alone."""
        found = (layer for layer in reversed(self.layers) if layer.output == tensor and not layer.outputs)
        return next(found, None)

    def host(self, tensor: str, node: Node) -> Layer | None:
        """The layer that makes `tensor`, if `node` may become part of it: nothing else reads the tensor.

        Where `conv1/Conv` makes `conv1`, as netspec writes it, the layer is complete: only `conv1/…` belongs to it.
        """
        layer = self._maker(tensor) if self._reads[tensor] == 1 else None
        if layer is not None and layer.node.name.startswith(f"{tensor}/") and not node.name.startswith(f"{tensor}/"):
            return None
        return layer

    def set_aside(self, layer: Layer, node: Node, permutation: tuple[int, ...]) -> None:
        """`layer` makes the node's result, but in another order of axes: the result is that, turned."""
        output = node.outputs[0]
        layer.output = f"{output} in the layer's own order"
        self._values[layer.output] = self._values.pop(output)
        self._reads[layer.output] = self._reads[output]
        self.turned[output] = Turned(layer.output, permutation, node)

    def absorb(self, layer: Layer, node: Node) -> None:
        """The node has become part of `layer`, which now makes its result."""
        self._values[node.outputs[0]] = self._values[layer.output]
        layer.output = node.outputs[0]

    def add(
        self,
        node: Node,
        type_: str,
        inputs: Sequence[str],
        fields: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]] | None = None,
        outputs: Sequence[str] | None = None,
    ) -> Layer:
        """Write down a layer that makes the node's result. Raises `Unsupported` where it would not fit.

        The outputs of a layer that has several are the tensors `outputs`, by default the node's results; an empty name
        is one that nothing reads.
        """
        values = [self.value(tensor) for tensor in inputs]
        weights = {name: self._weight(array) for name, array in (arrays or {}).items()}
        names, made = self._built(type_, values, fields, weights)
        tensors = node.outputs if outputs is None else outputs
        layer = Layer(type_, dict(fields), tuple(map(self.resolve, inputs)), tensors[0], node, weights)
        self.layers.append(layer)
        self._values.update(zip(tensors, made, strict=False))
        if names:
            layer.outputs = tuple((tensor, name) for tensor, name in zip(tensors, names, strict=False) if tensor)
            self._keep_names(layer)
        return layer

    def chain(self, node: Node, source: str, layers: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Write down layers of these types and fields, each behind the one before: the last makes the result."""
        if not layers:
            self.same(node, source)
        for count, (type_, fields) in enumerate(layers, 1):
            tensor = node.outputs[0] if count == len(layers) else f"{node.outputs[0]} {count} of {len(layers)}"
            self.add(node, type_, [source], fields, outputs=[tensor])
            source = tensor

    def _keep_names(self, layer: Layer) -> None:
        """Have outputs of the model that are outputs of a layer with several called as in the model."""
        for index, (tensor, name) in enumerate(layer.outputs):
            if tensor in self.model.outputs and tensor != f"{layer.stem}.{name}":
                held = f"{tensor} in the layer"
                self._values[held] = self._values[tensor]
                layer.outputs = (*layer.outputs[:index], (held, name), *layer.outputs[index + 1 :])
                self.add(layer.node, "Activation", [held], {"activation": "linear"}, outputs=[tensor])

    def _built(
        self, type_: str, values: list[Value], fields: Mapping[str, Any], weights: Mapping[str, NDArray[Any]]
    ) -> tuple[tuple[str, ...], tuple[Value, ...]]:
        """Names of the layer's outputs, as `output_names` gives them, and their values."""
        try:
            spec = LAYERS[type_].model_validate({"type": type_, **fields})
            assert isinstance(spec, LayerSpec)
            builder = Builder(training=False, dtype=DType.FLOAT32)
            with in_scope(builder.enter(spec, "layer")):
                made = spec.build(builder, *values)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise Unsupported(f"{type_} does not take it: {place}: {first['msg']}") from None
        except ShapeMismatch as error:
            raise Unsupported(f"{type_} does not fit: {error.message} (got {error.got})") from None
        except NetspecError as error:
            raise Unsupported(f"{type_} does not fit: {error.summary}") from None
        wanted = {name.removeprefix("layer/"): info.value.shape for name, info in builder.states.items()}
        given = {name: array.shape for name, array in weights.items()}
        if wanted != given:
            raise Unsupported(f"{type_} needs weights of shapes {wanted}, these are {given}")
        return spec.output_names(), made if isinstance(made, tuple) else (made,)

    def _weight(self, array: NDArray[Any]) -> NDArray[Any]:
        import numpy as np

        if array.dtype.kind != "f":
            raise Unsupported(f"its weights are {array.dtype}, not floating-point numbers")
        if array.dtype != np.float32:
            self.remarks.append(f"weights of {array.dtype} became float32")
        return np.ascontiguousarray(array, np.float32)


def _apply(found: Rule, net: Translator, node: Node) -> None:
    """Call a rule. Rules rely on what ONNX says of an operator; a file may not keep to it."""
    try:
        found(net, node)
    except (IndexError, KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise Unsupported(f"its operands or attributes are not what the operator takes ({error})") from error


_INPUT_TYPES = {one: one for one in get_args(InputDType)} | {"float64": "float32", "float16": "float32"}
