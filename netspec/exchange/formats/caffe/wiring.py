"""Resolve the blobs that layers read by name, in training and in testing, into one list of layers.

After a layer writes a blob in place, later layers read another value. A layer of both phases is one layer here; a layer
of only one phase drops out of the other by itself, since nothing reads it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from netspec.errors import Problem, did_you_mean, listing
from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.proto.text import to_text
from netspec.exchange.reachability import needed_steps
from netspec.exchange.truncation import lookup

TRAIN, TEST = "TRAIN", "TEST"


@dataclass(frozen=True)
class NetState:
    """The phase, level and stages that a net is built for."""

    phase: str
    level: int = 0
    stages: frozenset[str] = frozenset()

    def joined(self, state: Message) -> NetState:
        """Merge with a NetState as Caffe does: stages are united."""
        return NetState(
            state.get("phase", self.phase),
            state.get("level", self.level),
            self.stages | frozenset(state["stage"]),
        )


def included(layer: Message, state: NetState) -> bool:
    """Whether the layer is in the net in this state: an `include` matches, or there is none and no `exclude` does."""
    if layer["include"]:
        return any(_meets(rule, state) for rule in layer["include"])
    return not any(_meets(rule, state) for rule in layer["exclude"])


def rule_problems(layers: Sequence[Message]) -> list[Problem]:
    """Problems of layers that have rules of both kinds, which Caffe refuses."""
    return [
        Problem("a layer has rules to include it and rules to exclude it", layer.location("exclude"),
                expected="`include` or `exclude`")
        for layer in layers if layer["include"] and layer["exclude"]
    ]  # fmt: skip


def stages_of(layers: Sequence[Message]) -> frozenset[str]:
    """All stages that rules mention."""
    rules = [rule for layer in layers for rule in (*layer["include"], *layer["exclude"])]
    return reduce(or_, (frozenset((*rule["stage"], *rule["not_stage"])) for rule in rules), frozenset())


def unknown_stages(stages: Sequence[str], layers: Sequence[Message]) -> list[Problem]:
    """Problems of requested stages that no layer mentions."""
    known_stages = stages_of(layers)
    expected = listing(sorted(known_stages)) if known_stages else "no stage"
    return [
        Problem(f"no layer mentions the stage `{stage}`", expected=expected)
        for stage in stages if stage not in known_stages
    ]  # fmt: skip


def _meets(rule: Message, state: NetState) -> bool:
    return (
        ("phase" not in rule or rule["phase"] == state.phase)
        and ("min_level" not in rule or state.level >= rule["min_level"])
        and ("max_level" not in rule or state.level <= rule["max_level"])
        and all(stage in state.stages for stage in rule["stage"])
        and not any(stage in state.stages for stage in rule["not_stage"])
    )


DATA_LAYERS = ("Data", "ImageData", "HDF5Data", "MemoryData", "WindowData", "DummyData", "Input")
"""Layers that read nothing and are the inputs of a net."""
ONLY_IN_TRAINING = ("Dropout",)
"""Layers that do nothing in testing, so that a net may omit them there."""

LOSS_LAYERS = (
    "SoftmaxWithLoss", "SigmoidCrossEntropyLoss", "EuclideanLoss", "HingeLoss", "ContrastiveLoss", "InfogainLoss",
    "MultinomialLogisticLoss",
)  # fmt: skip
SINKS = (*LOSS_LAYERS, "Accuracy", "Silence", "HDF5Output")
"""Layers that read a value without computing an output of the net."""
ONE_FORM = "import one form of the net: `--phase train` or `--phase test`"

Key = tuple[str, str, int]
"""Name and type of a layer, and the number of earlier layers with both."""


@dataclass(frozen=True)
class ValueRef:
    """A value: the `index`-th top of a layer, or an input by its name (if the layer is None)."""

    layer: Key | None
    index: int = 0
    blob: str = ""


@dataclass
class CaffeNode:
    """A layer with the values that it reads."""

    layer: Message
    bottoms: tuple[ValueRef, ...]
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
class CaffeGraph:
    """All layers of a net in order, and its data layers."""

    nodes: list[CaffeNode] = field(default_factory=list)
    data: list[CaffeNode] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def wire(layers: Sequence[Message], states: Sequence[NetState]) -> CaffeGraph:
    """The layers of the net in these states (training and testing, or one of them), each with the values it reads."""
    graph, by_key = CaffeGraph(), dict[Key, CaffeNode]()
    for state in states:
        layers_in_state = [layer for layer in layers if included(layer, state) or _may_be_absent(layer, states)]
        _add_state(layers_in_state, state, graph, by_key)
    position = {id(layer): index for index, layer in enumerate(layers)}
    for nodes in (graph.nodes, graph.data):
        nodes.sort(key=lambda node: position[id(node.layer)])
    return graph


def cut(
    wired: CaffeGraph, names: Sequence[str], subject: str
) -> tuple[list[ValueRef], list[tuple[CaffeNode, list[str]]]]:
    """Cut a net at named blobs or layers: keep the layers that these depend on, and losses and metrics of kept layers.

    A blob's name means the value of the last layer that writes it, a layer's name all its outputs. Layers whose weights
    are shared by kept layers stay. Returns the values of the names, and the dropped losses and metrics with the dropped
    blobs that they read.
    """
    making = [node for node in wired.nodes if node.type not in SINKS]
    written = [[ValueRef(node.key, index, top) for index, top in enumerate(node.layer["top"])] for node in making]
    tops = {ref.blob: [ref] for refs in written for ref in refs}
    values_by_name = {node.name: refs for node, refs in zip(making, written, strict=True) if refs} | tops
    kept_values = [ref for refs in lookup(names, values_by_name, subject) for ref in refs]
    needed = {
        node.key
        for node in needed_steps(
            wired.nodes,
            (ref.layer for ref in kept_values),
            lambda node: (*_shared_names(node), *(ref.layer for ref in node.bottoms if ref.layer)),
            lambda node: (*_shared_names(node), node.key),
        )
    }
    dropped_inputs = {
        node.key: [f"`{ref.blob}`" for ref in node.bottoms if ref.layer is not None and ref.layer not in needed]
        for node in wired.nodes
        if node.type in SINKS and node.key not in needed
    }
    without_inputs = [(node, dropped_inputs[node.key]) for node in wired.nodes if dropped_inputs.get(node.key)]
    wired.nodes = [node for node in wired.nodes if node.key in needed or dropped_inputs.get(node.key) == []]
    return kept_values, without_inputs


def _shared_names(node: CaffeNode) -> list[str]:
    """The names under which layers share weights."""
    return [param["name"] for param in node.layer["param"] if param["name"]]


def _may_be_absent(layer: Message, states: Iterable[NetState]) -> bool:
    """Whether a layer may be in the net in any state, since its absence changes nothing."""
    return layer["type"] in ONLY_IN_TRAINING and any(
        state.phase == TRAIN and included(layer, state) for state in states
    )


def _add_state(layers: Sequence[Message], state: NetState, graph: CaffeGraph, by_key: dict[Key, CaffeNode]) -> None:
    """Add the layers of the net in one state."""
    # Tops of data layers of another state exist in this one too, if all of them require stages.
    blobs = {top: ValueRef(None, 0, top) for node in graph.data for top in node.layer["top"]}
    counts: dict[tuple[str, str], int] = {}
    written: set[str] = set()
    for layer in layers:
        name_and_type = layer["name"], layer["type"]
        counts[name_and_type] = counts.get(name_and_type, 0) + 1
        key = (*name_and_type, counts[name_and_type])
        existing = by_key.get(key)
        is_data = layer["type"] in DATA_LAYERS
        bottoms = _bottoms(layer, blobs, graph.problems, reported=existing is not None)
        if is_data:
            same = [data_node for data_node in graph.data if data_node.layer is layer]
            if same:
                same[0].phases.add(state.phase)
            else:
                graph.data.append(CaffeNode(layer, bottoms, {state.phase}, key))
        elif existing is None:
            by_key[key] = CaffeNode(layer, bottoms, {state.phase}, key)
            graph.nodes.append(by_key[key])
        else:
            _merge_layer(existing, layer, bottoms, state, graph.problems)
        for index, top in enumerate(layer["top"]):
            if top in written and top not in layer["bottom"]:
                graph.problems.append(
                    Problem(f"the blob `{top}` is written by two layers", layer.location("top", index),
                            hint="only a layer that reads a blob may write it again, in place")
                )  # fmt: skip
            blobs[top] = ValueRef(None, 0, top) if is_data else ValueRef(key, index, top)
            written.add(top)


def _bottoms(
    layer: Message, blobs: dict[str, ValueRef], problems: list[Problem], *, reported: bool
) -> tuple[ValueRef, ...]:
    refs = []
    for index, name in enumerate(layer["bottom"]):
        if name not in blobs and not reported:
            problems.append(
                Problem(f"no layer before this one writes the blob `{name}`", layer.location("bottom", index),
                        hint=did_you_mean(name, blobs))
            )  # fmt: skip
        refs.append(blobs.get(name, ValueRef(None, 0, "?")))
    return tuple(refs)


def _merge_layer(
    node: CaffeNode, layer: Message, bottoms: tuple[ValueRef, ...], state: NetState, problems: list[Problem]
) -> None:
    """Merge a layer with the same layer of an earlier state. Differences are problems."""
    node.phases.add(state.phase)
    if node.bottoms != bottoms and not (state.phase == TEST and layer["type"] in ONLY_IN_TRAINING):
        problems.append(
            Problem(f"the layer `{layer['name']}` reads other blobs in testing than in training",
                    layer.location("bottom"), hint=ONE_FORM)
        )  # fmt: skip
    elif layer is not node.layer and _comparable_text(layer) != _comparable_text(node.layer):
        problems.append(
            Problem(f"the layer `{layer['name']}` differs between testing and training", layer.location(),
                    hint=ONE_FORM,
                    notes=(f"in training it is at {node.layer.location()}",))
        )  # fmt: skip


def _comparable_text(layer: Message) -> str:
    """The text of a layer to compare with another state, without phases and other fields that may differ."""
    copy = layer.copy()
    for name in ("include", "exclude", "phase", "param", "loss_weight"):
        del copy[name]
    del copy.edit("batch_norm_param")["use_global_stats"]
    return to_text(copy)


RECURRENT = ("LSTM", "RNN")
OF_STEPS = {"LSTM": 2, "RNN": 2, "LSTMUnit": 3}
"""Number of inputs of a recurrent layer that are sequences: its data, and the continuation marks."""


def last_step(node: CaffeNode) -> bool:
    """Whether a layer removes the axis of steps, which has size 1: a Reshape without axis 0."""
    param = node.layer["reshape_param"]
    keeps_steps = param["axis"] or param["num_axes"] != 1 or [*param["shape"]["dim"]]
    return node.type == "Reshape" and "shape" in param and not keeps_steps


def marking(wired: CaffeGraph) -> set[Key]:
    """The layers that compute only continuation marks, the second input of recurrent layers."""
    read: dict[Key | None, bool] = {}
    """For each layer that is read, whether only marks are computed from it."""
    for node in reversed(wired.nodes):
        marks = read.get(node.key, False)
        for index, ref in enumerate(node.bottoms):
            read[ref.layer] = read.get(ref.layer, True) and (marks or (node.type in RECURRENT and index == 1))
    return {key for key, marks in read.items() if marks and key is not None}


@dataclass(frozen=True)
class CaffeSequences:
    """All layers and inputs that are connected with recurrent layers."""

    layers: frozenset[Key] = frozenset()
    inputs: frozenset[str] = frozenset()
    """Blobs of the inputs."""


def sequences(wired: CaffeGraph) -> CaffeSequences:
    """Find the layers that read or write a sequence: all their values are sequences."""
    keys: set[Key] = set()
    values: set[ValueRef] = set()
    unvisited = list(wired.nodes)
    while unvisited:
        remaining = []
        for node in unvisited:
            bottoms = node.bottoms[: OF_STEPS.get(node.type)]
            connected = {*bottoms}
            if not last_step(node):
                connected |= {ValueRef(node.key, index, top) for index, top in enumerate(node.layer["top"])}
            if node.type in OF_STEPS or connected & values:
                keys.add(node.key)
                values |= connected
            else:
                remaining.append(node)
        if len(remaining) == len(unvisited):
            break
        unvisited = remaining
    return CaffeSequences(frozenset(keys), frozenset(ref.blob for ref in values if ref.layer is None))
