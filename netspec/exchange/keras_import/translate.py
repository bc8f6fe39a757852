"""Walk the calls of a Keras model and write down layers. What single layers become is said in `rules` and `operations`.

Every layer is built as it is written down (shapes only), so that each rule knows what it reads, and what would not fit
is found at its layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import ValidationError

from netspec.errors import NetspecError, Problem, did_you_mean, listing
from netspec.exchange.drafting import Draft, DraftLayer, clean
from netspec.exchange.imported import sizes_shown
from netspec.exchange.keras_import.axes import Held, Order, identity, moved
from netspec.exchange.keras_import.config import Call, Graph, KerasLayer, Tensor
from netspec.exchange.keras_import.fields import Reading, Unsupported
from netspec.exchange.keras_import.readers import Readers
from netspec.exchange.keras_names import Variable, layer_type, variables
from netspec.exchange.names import Names
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import ShapeMismatch, Value, in_scope
from netspec.layers.base import Builder, LayerSpec
from netspec.schema.kinds import LAYERS, LayerFields

if TYPE_CHECKING:
    from numpy.typing import NDArray

LONGEST = 180
"""Letters of a name, before a number is added where it is taken."""
BATCH = 7
"""Stands for the open batch size."""
_DTYPES = {"float16": "float32", "bfloat16": "float32", "float64": "float32"}

Convert: TypeAlias = "Callable[[NDArray[Any]], NDArray[Any]]"


@dataclass
class Wanted:
    """The states of a layer, to be filled from the file: variables in Keras's order, and what is done to each."""

    layer: KerasLayer
    draft: DraftLayer
    variables: list[Variable]
    shapes: dict[str, tuple[int, ...]]
    convert: dict[str, Convert] = field(default_factory=dict)
    """By state: what is done beyond the order of a kernel's axes."""
    prefix: str = ""
    """What stands before the names of the variables' states here."""
    stored: dict[str, str] = field(default_factory=dict)
    """By state: what the file calls the weight, where it goes by names."""
    signature: str = ""
    """Equal where two calls of a layer have its weights in the same order."""


class Translator:
    """The state of one import, and the vocabulary of the rules."""

    def __init__(self, graph: Graph, shapes: Mapping[str, tuple[int, ...]], reading: Reading, origin: str) -> None:
        self.graph, self.shapes, self.reading = graph, shapes, reading
        self.draft = Draft(graph.name, origin)
        self.wanted: list[Wanted] = []
        self.problems: list[Problem] = []
        self.held: dict[tuple[Call, int], Held] = {}
        self._masks: dict[str, Value | None] = {}
        self._counted: list[tuple[Value, str, Held]] = []
        self._lost: set[Call] = set()
        self._unique = Names()
        self._turned: dict[tuple[str, tuple[int, ...]], Held] = {}
        self._first: dict[KerasLayer, Wanted] = {}
        self.readers = Readers(graph)
        self._take_inputs()

    # The inputs.

    def _take_inputs(self) -> None:
        known = [clean(call.layer.path[-1]) for call in self.graph.inputs]
        for name in sorted(self.shapes.keys() - set(known)):
            self.problems.append(
                Problem(f"a shape is given for `{name}`, which is no input", expected=listing(known),
                        hint=did_you_mean(name, known))
            )  # fmt: skip
        for call in self.graph.inputs:
            if not self.readers.needs((call, 0)):
                self.reading.note(f"the input `{call.layer.name}` is read by nothing and was left out")
                continue
            self._input(call)

    def _input(self, call: Call) -> None:
        config, name = call.layer.config, clean(call.layer.path[-1])
        declared = config.get("batch_shape") or config.get("batch_input_shape")
        sizes: Any = list(declared[1:]) if isinstance(declared, (list, tuple)) and declared else None
        if name in self.shapes:
            sizes = list(self.shapes[name])
        dtype = config.get("dtype") or "float32"
        dtype = dtype if isinstance(dtype, str) else "float32"
        dtype = _DTYPES.get(dtype, dtype)
        looked_up = [one for one in self.readers.of((call, 0)) if not one.kwargs.get("reverse")]
        if dtype == "float32" and any(_innermost(one.layer).endswith("Embedding") for one in looked_up):
            dtype = "int32"
        if sizes is None or any(type(size) is not int or size < 1 for size in sizes):
            known = [size if type(size) is int and size > 0 else None for size in sizes or ()]
            along = " and ".join(f"axis {place}" for place, size in enumerate(known, 1) if size is None)
            option = ",".join(str(size or "…") for size in known) or "…"
            self.problems.append(
                Problem(f"the input `{name}` has no fixed size" + (f" along {along}" if along else ""),
                        expected="sizes that are numbers",
                        got="unknown" if sizes is None else sizes_shown((None, *known), ("batch",)),
                        hint=f"give the sizes for which the net is made, in Keras's order: `--shape {name}={option}`")
            )  # fmt: skip
            self._lost.add(call)
            return
        if dtype not in [one.value for one in DType]:
            self.problems.append(Problem(f"the input `{name}` holds {dtype[:40]}, which no net takes"))
            self._lost.add(call)
            return
        if isinstance(declared, (list, tuple)) and declared[0] not in (None, -1):
            self.reading.note(f"the model is for batches of {declared[0]}; the net takes any batch size")
        rank = len(sizes) + 1
        order = self.readers.order_of_input(call, rank)
        shape = [0] * rank
        for axis, size in zip(order, (BATCH, *sizes), strict=True):
            shape[axis] = size
        name = self._unique(name[:LONGEST])
        fields: dict[str, Any] = {"shape": shape[1:]} | ({"dtype": dtype} if dtype != "float32" else {})
        self.draft.inputs[name] = fields
        value = Input(name, TensorType(tuple(shape), DType(dtype)))()
        if order != identity(rank):
            self.reading.note(f"the input `{name}` is {shape[1:]}, channels first; in Keras it was {sizes}")
        self.held[call, 0] = Held(name, value, order, is_input=True)

    # Walking.

    def run(self, apply: Callable[[Translator, Call], None], check: Callable[[Translator, Call], None]) -> None:
        """Write down every call; what cannot be is collected in `problems`.

        Of a layer that reads one which is not there, `check` says what is wrong with the layer itself.
        """
        for call in self.readers.calls:
            lost = any(one.call in self._lost for one in call.tensors())
            try:
                (check if lost else apply)(self, call)
            except Unsupported as reason:
                lost = True
                what = f"the layer `{call.layer.name}` ({call.layer.class_name})"
                problem = Problem(f"{what} can't be imported: {reason}")
                if problem not in self.problems:
                    self.problems.append(problem)
            if lost:
                self._lost.add(call)
        if not self.problems:
            self._finish()

    def _finish(self) -> None:
        for tensor in self.graph.outputs:
            held = self.held.get((tensor.call, tensor.index))
            if held is None or held.through is not None:
                what = "is not there" if held is None else "goes through all samples of the batch"
                self.problems.append(Problem(f"the output of `{tensor.call.layer.name}` {what}"))
                continue
            if held.is_input or held.source in self.draft.outputs:
                (held,) = self.add(tensor.call, "Identity", {}, [held], held.order)
            if held.order != identity(len(held.order)):
                have = list(held.value.shape[1:])
                self.reading.note(f"the output `{held.source}` is {have}, channels first; in Keras it was "
                                  f"{list(held.shape[1:])}")  # fmt: skip
            self.draft.outputs.append(held.source)
        self._leave_out_unread()

    def _leave_out_unread(self) -> None:
        """Layers that nothing was made of: they told a shape, or a mask that follows from other layers here."""
        outputs = self.draft.outputs
        kept, read = [], {*outputs, *(name.rpartition(".")[0] for name in outputs)}
        for layer in reversed(self.draft.layers):
            if layer.name in read:
                kept.append(layer)
                whole = [name.rpartition(".")[0] for name in layer.sources]  # of one among several outputs
                read.update((*layer.sources, *whole, layer.fields.get("share", "")))
        self.draft.layers = kept[::-1]

    # What rules say.

    def get(self, tensor: Tensor) -> Held:
        """A tensor, as it comes. Raises `Unsupported` where its layer has no such output."""
        found = self.held.get((tensor.call, tensor.index))
        if found is None:
            raise Unsupported(f"`{tensor.call.layer.name}` has no output {tensor.index}")
        if found.through is not None:
            raise Unsupported(f"`{tensor.call.layer.name}` goes through all samples of the batch")
        return found

    def plain(self, tensor: Tensor | Held, name: str = "") -> Held:
        """A tensor with its axes as in Keras."""
        held = tensor if isinstance(tensor, Held) else self.get(tensor)
        return self.turned(held, identity(len(held.order)), name)

    def turned(self, held: Held, order: Order, name: str = "") -> Held:
        """The tensor with its axes in that order: permuted unless it is so already."""
        if held.order == order:
            return held
        if held.rows is not None:
            raise Unsupported("the features of a flattened image come in another order")
        permutation = moved(held.order, order)
        known = self._turned.get((held.source, permutation))
        if known is None:
            (known,) = self._write(
                name or f"{held.source}/permute", "Permute", {"dims": list(permutation[1:])}, [held], [order]
            )
            self._turned[held.source, permutation] = known
        return known

    def put(self, call: Call, *made: Held) -> None:
        """The results of a call."""
        for index, held in enumerate(made):
            self.held[call, index] = held

    def add(
        self, call: Call, type_: str, fields: Mapping[str, Any], inputs: Sequence[Held], *orders: Order, name: str = "",
        rows: Any = None,
    ) -> list[Held]:  # fmt: skip
        """Write down a layer without weights, and give its outputs; without `orders` they are as in Keras."""
        return self._write(name or self.name_of(call), type_, fields, inputs, list(orders), rows=rows)

    def name_of(self, call: Call) -> str:
        """What the layer of a call is called here."""
        return "/".join(clean(part) for part in call.layer.path)

    def weighted(
        self, call: Call, type_: str, fields: Mapping[str, Any], inputs: Sequence[Held],
        orders: Callable[[Sequence[Value]], list[Order]], convert: Callable[[Variable], tuple[str, Convert] | None],
        rows: Any = None,
    ) -> list[Held]:  # fmt: skip
        """Write down a layer that may have weights; `convert` says what is done to one, and a text that tells it apart.

        Of a layer that is called again, the second call shares the weights of the first.
        """
        spec, builder, made = self._build(type_, fields, inputs)
        states = {name.removeprefix("layer/"): info.value.shape for name, info in builder.states.items()}
        first = self._first.get(call.layer)
        given = dict(fields)
        if first is not None and states:
            given["share"] = first.draft.name
        if call.layer.frozen and states and "trainable" in type(spec).model_fields:
            given["trainable"] = False
        held = self._register(self.name_of(call), type_, given, inputs, spec, builder, made, orders(made), rows)
        if states:
            wanted = self._want(call.layer, spec, states, convert)
            if first is None:
                self.wanted.append(wanted)
                self._first[call.layer] = wanted
            elif first.signature != wanted.signature or first.shapes != wanted.shapes:
                raise Unsupported("it is called twice, with inputs whose axes lie in different orders")
        return held

    def _want(
        self, layer: KerasLayer, spec: LayerSpec, states: dict[str, tuple[int, ...]],
        convert: Callable[[Variable], tuple[str, Convert] | None],
    ) -> Wanted:  # fmt: skip
        inner: Any = spec
        prefix = ""
        for _ in range(layer.wrapped):  # the file has the layers of a model within, without what is around each
            from netspec.layers.wrappers import called

            inner = inner.layer
            prefix += f"{called(inner)}/"
        names = [name.removeprefix(prefix) for name in states]
        listed = variables(inner, names) if isinstance(inner, LayerFields) else []
        found = Wanted(layer, self.draft.layers[-1], listed, states, prefix=prefix)
        for one in listed:
            told = convert(one)
            if told is not None:
                found.signature += f"{one.state}: {told[0]}; "
                found.convert[one.state] = told[1]
        return found

    def _write(
        self, name: str, type_: str, fields: Mapping[str, Any], inputs: Sequence[Held], orders: list[Order],
        rows: Any = None,
    ) -> list[Held]:  # fmt: skip
        spec, builder, made = self._build(type_, fields, inputs)
        return self._register(name, type_, fields, inputs, spec, builder, made, orders, rows)

    def _register(
        self, name: str, type_: str, fields: Mapping[str, Any], inputs: Sequence[Held], spec: LayerSpec,
        builder: Builder, made: tuple[Value, ...], orders: list[Order], rows: Any,
    ) -> list[Held]:  # fmt: skip
        name = self._unique(name[:LONGEST])
        self.draft.layers.append(DraftLayer(name, type_, dict(fields), tuple(one.source for one in inputs)))
        outputs = spec.output_names()
        found = []
        for index, value in enumerate(made):
            source = name if index == 0 else f"{name}.{outputs[index]}"
            order = orders[index] if index < len(orders) else identity(len(value.shape))
            found.append(Held(source, value, order, rows))
        masks = spec.mask(builder, *(one.value for one in inputs))
        for one, mask in zip(found, masks if isinstance(masks, tuple) else (masks,), strict=False):
            self._masks[one.source] = mask
        return found

    def mask(self, held: Held) -> Value | None:
        """Which places of a tensor count, where not all do."""
        return self._masks.get(held.source)

    def remember(self, held: Held, formula: str, source: Held) -> None:
        """The layer makes a mask, which the formula of `source` says too: 1 where a place counts."""
        mask = self.mask(held)
        if mask is not None:
            self._counted.append((mask, formula, source))

    def counts(self, held: Held) -> tuple[str, Held] | None:
        """The formula that says which places of a tensor count, and of what it is one; None where none is known."""
        mask = self.mask(held)
        return next(((formula, source) for one, formula, source in self._counted if one is mask), None)

    def _build(
        self, type_: str, fields: Mapping[str, Any], inputs: Sequence[Held]
    ) -> tuple[LayerSpec, Builder, tuple[Value, ...]]:
        builder = Builder(training=False, dtype=DType.FLOAT32)
        try:
            spec = LAYERS[type_].model_validate({"type": type_, **fields})
            assert isinstance(spec, LayerSpec)
            with in_scope(builder.enter(spec, "layer", [self.mask(one) for one in inputs])):
                made = spec.build(builder, *(one.value for one in inputs))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise Unsupported(f"{type_} does not take it: {place}: {first['msg']}"[:300]) from None
        except ShapeMismatch as error:
            raise Unsupported(f"{type_} does not fit: {error.message} (got {error.got})"[:300]) from None
        except NetspecError as error:
            raise Unsupported(f"{type_} does not fit: {error.summary}"[:300]) from None
        except TypeError as error:  # more or fewer inputs than it takes
            raise Unsupported(f"{type_} does not fit: {error}"[:300]) from None
        return spec, builder, made if isinstance(made, tuple) else (made,)


def _innermost(layer: KerasLayer) -> str:
    """The type of a layer, or of the one that it is around."""
    name, config = layer.class_name, layer.config
    while isinstance(inner := config.get("layer"), dict) and isinstance(inner.get("config"), dict):
        name, config = str(inner.get("class_name")), inner["config"]
    return layer_type(name)
