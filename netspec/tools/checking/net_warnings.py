"""Warnings about nets that are valid, but are probably not what their author means.

Each rule is a function that yields problems with a location and a fix. `netspec check` prints them; with `--strict`
they are errors. `training_warnings` has the rules for the rest of a training file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from netspec.backends.memory import machine_memory
from netspec.compile import NetGraph, build
from netspec.errors import Problem
from netspec.graph.types import DType
from netspec.layers.losses_and_metrics import LossSpec
from netspec.schema.specs.kinds import LayerFields
from netspec.schema.specs.links import LayerLink, Links, LossLink, resolve_names
from netspec.schema.specs.net import NetSpec

RESHAPING = frozenset({"Reshape", "Flatten", "Permute"})
"""Layers that keep the values of their input."""
FEWER_PARAMETERS = "narrower layers have fewer parameters"
FUNCTIONS = {"softmax": "a softmax", "sigmoid": "a sigmoid"}


@dataclass(frozen=True)
class NetFacts:
    """A net and what rules ask about it."""

    net: NetSpec
    dtype: DType

    @cached_property
    def links(self) -> Links:
        """The layers, losses and metrics with the names that each reads."""
        return resolve_names(self.net)

    @cached_property
    def layers(self) -> dict[str, LayerLink]:
        """The layer of each value that layers compute."""
        return {name: layer for layer in self.links.layers for name in layer.outputs}

    @cached_property
    def graph(self) -> NetGraph:
        """The net for one sample, with losses."""
        return build(self.net, 1, training=False, dtype=self.dtype)

    @cached_property
    def machine_memory(self) -> int | None:
        """Bytes of memory of this machine, if they are known."""
        return machine_memory()

    @property
    def parameter_bytes(self) -> int:
        """Memory of all parameters."""
        states = self.graph.builder.states.values()
        return sum(state.value.type.nbytes for state in states if state.role == "parameter")

    def losses(self, *kinds: str) -> Iterator[tuple[LossLink, LossSpec]]:
        """Yield the losses whose predictions have one of these meanings."""
        for link in self.links.losses:
            assert isinstance(link.fields, LossSpec)
            if link.fields.prediction_kind in kinds:
                yield link, link.fields


def net_warnings(net: NetSpec, dtype: DType) -> list[Problem]:
    """Return what is suspicious in a net file without mistakes."""
    facts = NetFacts(net, dtype)
    return [*layer_warnings(facts), *too_much_memory(facts, facts.parameter_bytes, "the parameters", FEWER_PARAMETERS)]


def layer_warnings(facts: NetFacts) -> list[Problem]:
    """Return what is suspicious in the layers and losses, in the order of the rules."""
    return [problem for rule in RULES for problem in rule(facts)]


def too_much_memory(facts: NetFacts, needed: int, content: str, less: str) -> Iterator[Problem]:
    """Yield a problem if this machine has less memory than the bytes `needed` for `content`."""
    available = facts.machine_memory
    if available is not None and needed > available:
        yield Problem(
            f"{content} do not fit into the memory of this machine", facts.net.where("layers"), "layers",
            expected=f"at most {available / 2**30:.1f} GiB", got=f"{needed / 2**30:.1f} GiB",
            hint=f"{less}; `netspec plan` lists what is needed",
        )  # fmt: skip


def _activation(layer: LayerFields) -> str | None:
    """Return the name of the function that a layer ends with; `linear` for a layer without one."""
    if type(layer).__name__ in ("Softmax", "Sigmoid"):
        return type(layer).__name__.lower()
    if "activation" not in type(layer).model_fields:
        return None
    function = getattr(layer, "activation", None)
    return "linear" if function is None else str(getattr(function, "type", function))


def _mismatched_logits(facts: NetFacts) -> Iterator[Problem]:
    """Probabilities for a loss that applies a softmax or sigmoid itself, and the reverse."""
    for link, loss in facts.losses("classes", "binary"):
        from_logits, layer = getattr(loss, "from_logits", None), source_of_values(facts, link.sources[0])
        if from_logits is None or layer is None:
            continue
        function = _activation(layer.fields)
        right = "softmax" if loss.prediction_kind == "classes" else "sigmoid"
        if from_logits and function in FUNCTIONS:
            yield Problem(
                f"`{layer.name}` ends with {FUNCTIONS[function]}, and the loss applies another one",
                loss.where("from_logits"), f"losses.{link.name}.from_logits",
                expected="logits, the scores before a softmax or sigmoid", got=f"the output of {FUNCTIONS[function]}",
                hint=f"remove the {function} from `{layer.name}`, or set `from_logits: false`",
            )  # fmt: skip
        elif not from_logits and function == "linear":
            yield Problem(
                f"the loss expects probabilities, and `{layer.name}` has no {right}",
                loss.where("from_logits") or loss.where(), f"losses.{link.name}",
                expected="values between 0 and 1, or `from_logits: true`", got="scores of any size",
                hint=f"set `from_logits: true`, which is also more precise than a {right} in `{layer.name}`",
            )  # fmt: skip


def _binary_loss_of_classes(facts: NetFacts) -> Iterator[Problem]:
    """A binary loss on classes that exclude each other."""
    for link, loss in facts.losses("binary"):
        layer = facts.layers.get(link.sources[0])
        if layer is not None and _activation(layer.fields) == "softmax":
            classes = facts.graph.values[link.sources[0]].shape[-1]
            yield Problem(
                f"{type(loss).__name__} treats each of the {classes} values of `{layer.name}` as a separate yes or no",
                loss.where("type"), f"losses.{link.name}.type", expected="a loss over classes after a softmax",
                got=type(loss).__name__,
                hint="use CategoricalCrossentropy, or SparseCategoricalCrossentropy for class indices",
            )  # fmt: skip


def source_of_values(facts: NetFacts, name: str) -> LayerLink | None:
    """Return the layer that computes the values of `name`, skipping layers that only change the shape."""
    layer = facts.layers.get(name)
    while layer is not None and type(layer.fields).__name__ in RESHAPING and len(layer.sources) == 1:
        layer = facts.layers.get(layer.sources[0])
    return layer


def _unused_layers(facts: NetFacts) -> Iterator[Problem]:
    """Layers that no output, loss or metric depends on."""
    needed = {*facts.links.outputs, *(name for loss in facts.links.losses for name in loss.sources)}
    needed |= {name for metric in facts.links.metrics for name in metric.sources}
    used = {layer.name for layer in facts.links.computing(needed)}
    for layer in facts.links.layers:
        if layer.name not in used:
            yield Problem(
                f"nothing reads `{layer.name}`", layer.fields.where(), f"layers.{layer.name}",
                expected="a layer that an output, a loss or a metric depends on",
                hint="remove it, name it in `from` of another layer, or in `outputs`",
            )  # fmt: skip


RULES: tuple[Callable[[NetFacts], Iterator[Problem]], ...] = (
    _mismatched_logits,
    _binary_loss_of_classes,
    _unused_layers,
)
