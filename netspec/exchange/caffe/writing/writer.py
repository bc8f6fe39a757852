"""`Writer`: a net in the making, layer by layer, as Caffe has it; and the table of rules."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from netspec.errors import Problem
from netspec.exchange.caffe.proto.fields import Field, kinds
from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.writing.fillers import filler
from netspec.exchange.names import Names

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from netspec.graph.types import TensorType

    Array: TypeAlias = NDArray[Any]


class NoForm(Exception):  # not an error: why a layer is not written
    """A layer has no form in Caffe; the text says why, the hint what has one."""

    def __init__(self, why: str, hint: str | None = None) -> None:
        super().__init__(why)
        self.hint = hint


@dataclass(frozen=True)
class Layer:
    """A layer of the net, as rules are given it."""

    name: str
    fields: Any
    """Those of its class."""
    sources: tuple[str, ...]
    outputs: tuple[str, ...]
    """By what names others read what it gives."""


@dataclass(frozen=True)
class Blob:
    """One of a layer's arrays: its numbers, the state that they are, and what fills it before training."""

    values: Array
    state: str = ""
    """Empty for numbers that are no state: they are not trained."""
    initializer: Any = None


@dataclass
class Made:
    """A layer of Caffe with its arrays."""

    message: Message
    blobs: tuple[Blob, ...] = ()


@dataclass
class Writer:
    """What is written of a net so far."""

    types: Mapping[str, TensorType]
    """Of each value by its name, for a batch of one."""
    arrays: Mapping[str, Array]
    readers: Mapping[str, Sequence[str]]
    """Types of the layers that read each value; `output` for what the net gives."""
    training: bool = False
    """Whether fillers and the rates of parameters are written."""
    rates: Callable[[str], tuple[float, float]] = lambda _: (1.0, 1.0)
    """Factors of the rate and of the decay of a parameter that its solver says."""
    layers: list[Made] = field(default_factory=list)
    blobs: dict[str, str] = field(default_factory=dict)
    """Blob of each value; a value that is not here has its own name."""
    sequences: frozenset[str] = frozenset()
    """Values that are (T, N, …) in Caffe."""
    held: dict[str, Layer] = field(default_factory=dict)
    """Layers that the one that reads them writes too, by name."""
    sharing: frozenset[str] = frozenset()
    """Layers whose states others use too."""
    unique: Names = field(default_factory=partial(Names, first=2))
    """Names for layers."""
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    prefix: str = ""
    """What the names of further files begin with."""
    files: dict[str, Message] = field(default_factory=dict)
    """Further files that layers name."""

    def write(self, link: Layer) -> None:
        """Add a layer of the net; a problem where there is no form of it."""
        kind = str(getattr(link.fields, "type", ""))
        rule = rules().get(kind)
        try:
            if rule is None:
                raise NoForm(f"Caffe has no layer for {kind}")
            if kind not in _OF_STEPS and self.is_sequence(link):
                raise NoForm("beside recurrent layers, of sequences (T, N, …), Caffe needs layers of single steps")
            rule(self, link)
        except NoForm as reason:
            self.problems.append(
                Problem(
                    f"`{link.name}` ({kind}) has no form in Caffe: {reason}", link.fields.where("type"),
                    hint=reason.hint,
                )
            )  # fmt: skip

    def file(self, name: str, message: Message) -> str:
        """Have a message written to a file beside the net; what the file is called."""
        name = f"{self.prefix}_{name}"
        self.files[name] = message
        return name

    def note(self, text: str) -> None:
        """Tell the user, once."""
        if text not in self.notes:
            self.notes.append(text)

    def blob(self, value: str) -> str:
        """The name of the blob that holds a value."""
        return self.blobs.get(value, value)

    def bottoms(self, link: Layer) -> list[str]:
        """The blobs that a layer reads."""
        return [self.blob(source) for source in link.sources]

    def shape(self, value: str) -> tuple[int, ...]:
        """The shape of a value as Caffe has it, with a batch of one."""
        shape = self.types[value].shape
        return (shape[1], shape[0], *shape[2:]) if value in self.sequences else shape

    def is_sequence(self, link: Layer) -> bool:
        """Whether a layer reads or gives sequences."""
        return not self.sequences.isdisjoint((*link.sources, link.name, *link.outputs))

    def axis(self, link: Layer, value: int) -> int:
        """An axis of what a layer reads, counted from the front as Caffe does."""
        axis = value % len(self.shape(link.sources[0]))
        return 1 - axis if axis < 2 and self.is_sequence(link) else axis

    def array(self, link: Layer, name: str, as_: Callable[[Array], Array] | None = None, first: Any = None) -> Blob:
        """A state of a layer, changed by `as_`; `first` is its initializer."""
        state = f"{link.fields.share or link.name}/{name}"
        values = self.arrays[state]
        return Blob(values if as_ is None else as_(values), state, first)

    def layer(
        self,
        name: str,
        type_: str,
        bottoms: Sequence[str],
        tops: Sequence[str],
        *blobs: Blob,
        of: Layer | None = None,
        params: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Message:
        """Add a layer of Caffe's; `params` are its messages by name, `of` the layer whose states the blobs are."""
        message = Message("LayerParameter", name=self.unique(name), type=type_)
        for one in bottoms:
            message.add("bottom", one)
        for one in tops:
            message.add("top", one)
        self._parameters(message, blobs, of)
        for key, fields in (params or {}).items():
            kind = kinds()[message.field(key).type]
            for inner, value in fields.items():
                if _says(kind.fields[inner], value):
                    message.edit(key)[inner] = value
        self.layers.append(Made(message, blobs))
        return message

    def filler(self, blob: Blob) -> Message | None:
        """What fills an array before training; None where that is not written."""
        if not self.training:
            return None
        return filler(blob.initializer, blob, self.note)

    def _parameters(self, message: Message, blobs: Sequence[Blob], of: Layer | None) -> None:
        """`param`: names of arrays that are shared with other layers, and in training rates and decays other than 1."""
        found = []
        for blob in blobs:
            rate, decay, spec = 0.0, 0.0, Message("ParamSpec")
            if blob.state and of is not None:
                name = blob.state.split("/")[-1]
                rate, decay = (_multiplier(of, which, name) for which in ("learning_rate", "weight_decay"))
                more = self.rates(blob.state)
                rate, decay = rate * more[0] if of.fields.trainable else 0.0, decay * more[1]
                if self.is_shared(blob.state):
                    spec["name"] = blob.state
            if self.training:
                spec["lr_mult"] = rate
                if decay != 1:
                    spec["decay_mult"] = decay
            found.append(spec)
        if any(dict.fromkeys(spec) != {"lr_mult": None} or spec["lr_mult"] != 1 for spec in found if [*spec]):
            message["param"] = found

    def is_shared(self, state: str) -> bool:
        """Whether several layers have this state."""
        return state.rpartition("/")[0] in self.sharing


TOLD = ("pool", "pad_h", "pad_w", "norm_region", "local_size", "alpha", "beta", "k")
"""Fields that are written whatever they say: OpenCV's reader knows no default of theirs."""


def _says(field: Field, value: Any) -> bool:
    """Whether a value says more than the field's default."""
    if field.name in TOLD:
        return True
    if value is None or (field.repeated and not len(value)):
        return False
    return field.repeated or field.is_message or value != field.default


def _multiplier(link: Layer, which: str, name: str) -> float:
    given = getattr(link.fields, f"{which}_multiplier")
    return float(given.get(name, 1.0)) if isinstance(given, Mapping) else float(given)


Rule: TypeAlias = Callable[[Writer, Layer], None]
_RULES: dict[str, Rule] = {}
_OF_STEPS: set[str] = set()


def writes(*types: str, steps: bool = False) -> Callable[[Rule], Rule]:
    """Decorator: the function writes layers of these types; with `steps` such that work on each step by itself, too."""

    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(types, rule))
        if steps:
            _OF_STEPS.update(types)
        return rule

    return register


def of_steps(kind: str) -> bool:
    """Whether layers of a type work on each step of a sequence by itself."""
    return kind in rules() and kind in _OF_STEPS


@cache
def rules() -> Mapping[str, Rule]:
    """All rules, of the modules in `rules/`."""
    from netspec.exchange.caffe.writing import rules as package

    for module in pkgutil.iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")
    return _RULES
