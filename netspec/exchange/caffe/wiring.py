"""Who reads whom: blobs by name, written in place or not, in training and in testing → one list of layers.

A blob that a layer writes in place is another one for all layers after it. What both forms of the net have in common is
one layer here; what only one of them has drops out of the other by itself, since nothing reads it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from netspec.errors import Problem, did_you_mean
from netspec.exchange.caffe.phases import TEST, TRAIN, State, included
from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.proto.printing import to_text

DATA_LAYERS = ("Data", "ImageData", "HDF5Data", "MemoryData", "WindowData", "DummyData", "Input")
"""Layers that read nothing and give a net its inputs."""
ONLY_IN_TRAINING = ("Dropout",)
"""What does nothing in testing, so that a net may leave it out there."""

JUDGES = (
    "SoftmaxWithLoss", "SigmoidCrossEntropyLoss", "EuclideanLoss", "HingeLoss", "ContrastiveLoss", "InfogainLoss",
    "MultinomialLogisticLoss",
)  # fmt: skip
WATCHERS = (*JUDGES, "Accuracy", "Silence", "HDF5Output")
"""What reads a value without making anything of it that the net gives."""
ONE_FORM = "import one form of the net: `--phase train` or `--phase test`"

Key = tuple[str, str, int]
"""The name and the type of a layer, and how many of both came before."""


@dataclass(frozen=True)
class Ref:
    """A value: what a layer writes into its `index`-th top, or an input by its name (where the layer is None)."""

    layer: Key | None
    index: int = 0
    blob: str = ""


@dataclass
class Node:
    """A layer with the values that it reads."""

    layer: Message
    bottoms: tuple[Ref, ...]
    phases: set[str]
    key: Key

    @property
    def name(self) -> str:
        """The layer's name."""
        return str(self.layer["name"])

    @property
    def type(self) -> str:
        """The layer's type."""
        return str(self.layer["type"])


@dataclass
class Wired:
    """All layers of a net in order, and the layers that give it data."""

    nodes: list[Node] = field(default_factory=list)
    data: list[Node] = field(default_factory=list)
    """The layers that give inputs."""
    problems: list[Problem] = field(default_factory=list)


def wire(layers: Sequence[Message], states: Sequence[State]) -> Wired:
    """The layers of the net in these states (training and testing, or one of them), each with what it reads."""
    found, by_key = Wired(), dict[Key, Node]()
    for state in states:
        form = [one for one in layers if included(one, state) or _idle(one, states)]
        _one_form(form, state, found, by_key)
    place = {id(one): index for index, one in enumerate(layers)}
    for nodes in (found.nodes, found.data):
        nodes.sort(key=lambda node: place[id(node.layer)])
    return found


def _idle(layer: Message, states: Iterable[State]) -> bool:
    """Whether a layer may be there in any state, since it does nothing where it is left out."""
    return layer["type"] in ONLY_IN_TRAINING and any(one.phase == TRAIN and included(layer, one) for one in states)


def _one_form(layers: Sequence[Message], state: State, found: Wired, by_key: dict[Key, Node]) -> None:
    """Add what the net is in one state."""
    # What a layer of data gives in another state is there in this one too, where all of them ask for stages.
    blobs = {top: Ref(None, 0, top) for node in found.data for top in node.layer["top"]}
    counts: dict[tuple[str, str], int] = {}
    written: set[str] = set()
    for layer in layers:
        called = layer["name"], layer["type"]
        counts[called] = counts.get(called, 0) + 1
        key = (*called, counts[called])
        known = by_key.get(key)
        given = layer["type"] in DATA_LAYERS
        bottoms = _bottoms(layer, blobs, found.problems, told=known is not None)
        if given:
            same = [one for one in found.data if one.layer is layer]
            if same:
                same[0].phases.add(state.phase)
            else:
                found.data.append(Node(layer, bottoms, {state.phase}, key))
        elif known is None:
            by_key[key] = Node(layer, bottoms, {state.phase}, key)
            found.nodes.append(by_key[key])
        else:
            _join(known, layer, bottoms, state, found.problems)
        for index, top in enumerate(layer["top"]):
            if top in written and top not in layer["bottom"]:
                found.problems.append(
                    Problem(f"the blob `{top}` is written by two layers", layer.location("top", index),
                            hint="only a layer that reads a blob may write it anew, in place")
                )  # fmt: skip
            blobs[top] = Ref(None, 0, top) if given else Ref(key, index, top)
            written.add(top)


def _bottoms(layer: Message, blobs: dict[str, Ref], problems: list[Problem], *, told: bool) -> tuple[Ref, ...]:
    refs = []
    for index, name in enumerate(layer["bottom"]):
        if name not in blobs and not told:
            problems.append(
                Problem(f"no layer before this one writes the blob `{name}`", layer.location("bottom", index),
                        hint=did_you_mean(name, blobs))
            )  # fmt: skip
        refs.append(blobs.get(name, Ref(None, 0, "?")))
    return tuple(refs)


def _join(node: Node, layer: Message, bottoms: tuple[Ref, ...], state: State, problems: list[Problem]) -> None:
    """The layer is there in another state too: it must be the same there."""
    node.phases.add(state.phase)
    if node.bottoms != bottoms and not (state.phase == TEST and layer["type"] in ONLY_IN_TRAINING):
        problems.append(
            Problem(f"the layer `{layer['name']}` reads something else in testing than in training",
                    layer.location("bottom"), hint=ONE_FORM)
        )  # fmt: skip
    elif layer is not node.layer and _plain(layer) != _plain(node.layer):
        problems.append(
            Problem(f"the layer `{layer['name']}` is another one in testing than in training", layer.location(),
                    hint=ONE_FORM,
                    notes=(f"in training it is at {node.layer.location()}",))
        )  # fmt: skip


def _plain(layer: Message) -> str:
    """All that a layer says, but for when it is there, and for statistics, which only training moves."""
    copy = layer.copy()
    for name in ("include", "exclude", "phase", "param", "loss_weight"):
        del copy[name]
    del copy.edit("batch_norm_param")["use_global_stats"]
    return to_text(copy)
