"""Read Caffe's files for `netspec import`: nets in text, weights with or without their net."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from netspec.errors import InputError, Problem, by_location, command
from netspec.exchange.formats.caffe.blobs import WEIGHTS, Weights, read_mean, read_weights, weights_of
from netspec.exchange.formats.caffe.importer import CaffeImporter, ImportedParameter
from netspec.exchange.formats.caffe.inputs import known_inputs
from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.proto.text import read_text
from netspec.exchange.formats.caffe.upgrade import upgraded
from netspec.exchange.formats.caffe.wiring import (
    LOSS_LAYERS,
    SINKS,
    TEST,
    TRAIN,
    CaffeGraph,
    CaffeNode,
    NetState,
    cut,
    marking,
    rule_problems,
    sequences,
    unknown_stages,
    wire,
)
from netspec.exchange.interface import Imported, ImportOptions, WithoutNet, notes_of_not_finite
from netspec.exchange.net_yaml_writer import Draft
from netspec.exchange.truncation import dropped


@dataclass
class NetDraft:
    """The draft of a net, with notes and the facts about its origin that a solver needs."""

    draft: Draft
    notes: list[str]
    data: list[CaffeNode]
    """The data layers, with their phases."""
    learned: list[ImportedParameter] = field(default_factory=list)
    """Caffe's parameters, in the order of the states of its solvers."""


def draft_net(
    net: Message,
    options: ImportOptions,
    *,
    weights: Weights | None = None,
    weights_file: str = "",
    states: Sequence[NetState] | None = None,
    folder: Path = Path(),
) -> NetDraft:
    """Draft a net of any version. Raises `InputError` with everything that netspec does not support.

    `states` are those of a solver, for training and testing; by default both, as the net and the options specify.
    """
    net = upgraded(net)
    layers = [layer for layer in net["layer"] if layer["type"] or layer["name"]]
    problems = rule_problems(layers) + unknown_stages(options.stages, layers)
    if problems:
        raise InputError(problems)
    if states is None:
        states = [_state(net, phase, options) for phase in _phases(options.phase)]
    wired = wire(layers, states)
    outputs, without_inputs = cut(wired, options.until, net.source.file) if options.until else ([], [])
    if not wired.nodes and not wired.problems:
        raise InputError(Problem(f"{net.source.file} has no layers", net.location()))
    trained = any(node.type in LOSS_LAYERS and TRAIN in node.phases for node in wired.nodes)
    shapes = {name: tuple(sizes) for name, sizes in options.shapes.items()}
    sequence_layers = sequences(wired)
    importer = CaffeImporter(
        wired, known_inputs(wired, shapes, folder, sequence_layers.inputs), weights, trained=trained,
        weights_file=weights_file, folder=folder, sequences=sequence_layers, done=marking(wired),
        outputs=frozenset(outputs),
    )  # fmt: skip
    importer.problems += wired.problems
    for name in net.unknown:
        where = net.source.location(name.offset)
        if where is not None:
            importer.problems.append(Problem(f"NetParameter of Caffe has no `{name.name}`", where))
    importer.run()
    if importer.problems:
        problems_of_file = [_of_file(problem, net.source.file) for problem in dict.fromkeys(importer.problems)]
        raise InputError(sorted(problems_of_file, key=by_location))
    draft = importer.draft
    draft.name = net["name"] or Path(net.source.file).stem
    draft.origin = Path(net.source.file).name
    draft.outputs = (
        list(dict.fromkeys(importer.values[ref].name for ref in outputs))
        if options.until
        else _outputs(importer, wired, states)
    )
    for node, blobs in without_inputs:
        importer.notes.add(*dropped(f"`{node.name}` ({node.type})", blobs, f"`{node.name}`"))
    if len(draft.losses) == 1:
        draft.losses[0].pop("name", None)
    importer.notes += notes_of_not_finite(draft.arrays())
    extra = importer.unused_weights()
    if extra and not options.until:
        importer.notes.add(f"weights of layers that the net does not have are left out: {', '.join(extra[:20])}")
    return NetDraft(draft, importer.notes, wired.data, importer.learned)


def _of_file(problem: Problem, file: str) -> Problem:
    """The problem with the name of a binary file, which has no lines."""
    return problem if problem.location or not file else replace(problem, message=f"{file}: {problem.message}")


def _phases(phase: str) -> tuple[str, ...]:
    return (phase.upper(),) if phase else (TRAIN, TEST)


def _state(net: Message, phase: str, options: ImportOptions) -> NetState:
    """The state of one phase, from the net and the options."""
    state_message = net["state"].copy()
    del state_message["phase"]
    state = NetState(phase).joined(state_message)
    return NetState(phase, options.level or state.level, state.stages | frozenset(options.stages))


def _outputs(importer: CaffeImporter, wired: CaffeGraph, states: Sequence[NetState]) -> list[str]:
    """The outputs of the last phase: values that only losses and metrics read, or nothing does.

    Targets of losses are not outputs. Without any other, the last layer's value is the output.
    """
    phase = states[-1].phase
    nodes = [node for node in wired.nodes if phase in node.phases] or wired.nodes
    used = {ref for node in nodes for index, ref in enumerate(node.bottoms) if _uses(node, index)}
    unread: dict[str, None] = {}
    for node in nodes:
        for ref, value in importer.values.items():
            if ref.layer == node.key and ref not in used and value.layer is not None:
                unread[value.name] = None
    names = list(unread)
    last = importer.draft.layers[-1].name if importer.draft.layers else ""
    return [] if names == [last] else names or [last]


def _uses(node: CaffeNode, index: int) -> bool:
    """Whether a layer computes something from its input, or reads it as the target."""
    if node.type == "Silence":
        return True
    return node.type not in SINKS or index == len(node.bottoms) - 1 > 0


NET = "a net of Caffe's (.prototxt)"


def read_prototxt(path: Path, options: ImportOptions) -> Imported:
    """Read a net in text, with the weights that the options name."""
    net = read_text(path, "NetParameter", NET)
    weights: Weights | None
    if options.weights is not None:
        weights, name = read_weights(options.weights)[0], str(options.weights)
    else:  # a text may hold them too
        weights, name = weights_of(upgraded(net), path) or None, str(path)
    return imported(draft_net(net, options, weights=weights, weights_file=name, folder=path.parent))


def read_caffemodel(path: Path, options: ImportOptions) -> Imported:
    """Read weights with the net that they were trained in."""
    if options.weights is not None:
        raise InputError(f"{path} has weights itself", expected=NET, got=f"also --weights {options.weights}")
    weights, net = read_weights(path)
    if net is None:
        raise WithoutNet(
            f"{path} has weights without their net", expected=NET, got=WEIGHTS,
            hint=f"name both: `{command('import', 'deploy.prototxt', '--weights', path)}`",
        )  # fmt: skip
    return imported(draft_net(net, options, weights=weights, weights_file=str(path), folder=path.parent))


def refuse_mean(path: Path, options: ImportOptions) -> Imported:
    """Refuse a mean image, which has no net, with a hint on its use."""
    shape = read_mean(path).shape
    raise InputError(
        f"{path} is a mean image, not a net", expected=NET, got=f"{' × '.join(map(str, shape))} values",
        hint=f"a training subtracts it: `transforms: [{{type: MeanImage, file: {path.name}}}]`",
    )  # fmt: skip


def imported(net_draft: NetDraft) -> Imported:
    """A draft as importers return it."""
    return Imported(net_draft.draft.text(), net_draft.draft.arrays(), tuple(net_draft.notes), draft=net_draft.draft)
