"""A net of Caffe's, as text or with its weights → a draft of a net file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from netspec.errors import InputError, Problem, by_place
from netspec.exchange.caffe.blobs import Weights
from netspec.exchange.caffe.inputs import known_inputs
from netspec.exchange.caffe.phases import TEST, TRAIN, State, rule_problems, unknown_stages
from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.sequences import marking, sequences
from netspec.exchange.caffe.translate import Translator
from netspec.exchange.caffe.upgrade import upgraded
from netspec.exchange.caffe.values import Learned
from netspec.exchange.caffe.wiring import JUDGES, WATCHERS, Node, Wired, wire
from netspec.exchange.drafting import Draft
from netspec.exchange.imported import ImportOptions, notes_of_not_finite
from netspec.schema.kinds import LOSSES, METRICS


@dataclass
class NetDraft:
    """A net as netspec would have it, and what else is to be known of where it came from."""

    draft: Draft
    notes: list[str]
    data: list[Node]
    """The layers that give the net its data, with the phases that they are there in."""
    learned: list[Learned] = field(default_factory=list)
    """Caffe's parameters, in the order of its solvers' states."""


def draft_net(
    net: Message,
    options: ImportOptions,
    *,
    weights: Weights | None = None,
    weights_file: str = "",
    states: Sequence[State] | None = None,
    folder: Path = Path(),
) -> NetDraft:
    """A net of any version. Raises `InputError` with everything in it that netspec cannot have.

    `states` are those that a solver asks for, training and testing; without, both, as the net and the options say.
    """
    net = upgraded(net)
    layers = [one for one in net["layer"] if one["type"] or one["name"]]
    problems = rule_problems(layers) + unknown_stages(options.stages, layers)
    if problems:
        raise InputError(problems)
    if states is None:
        states = [_state(net, phase, options) for phase in _phases(options.phase)]
    wired = wire(layers, states)
    if not wired.nodes and not wired.problems:
        raise InputError(Problem(f"{net.source.file} has no layers", net.location()))
    trained = any(node.type in JUDGES and TRAIN in node.phases for node in wired.nodes)
    given = {name: tuple(sizes) for name, sizes in options.shapes.items()}
    timed = sequences(wired)
    translator = Translator(
        wired, known_inputs(wired, given, folder, timed.inputs), weights, trained=trained, weights_file=weights_file,
        folder=folder, sequences=timed, done=marking(wired),
    )  # fmt: skip
    translator.problems += wired.problems
    for name in net.unknown:
        where = net.source.location(name.place)
        if where is not None:
            translator.problems.append(Problem(f"NetParameter of Caffe has no `{name.name}`", where))
    translator.run()
    if translator.problems:
        told = [_of_file(problem, net.source.file) for problem in dict.fromkeys(translator.problems)]
        raise InputError(sorted(told, key=by_place))
    draft = translator.draft
    draft.name = net["name"] or Path(net.source.file).stem
    draft.origin = Path(net.source.file).name
    draft.outputs = _outputs(translator, wired, states)
    _tidy(draft)
    translator.notes += notes_of_not_finite(draft.arrays())
    extra = translator.unused_weights()
    if extra:
        translator.note(f"weights of layers that the net does not have were left out: {', '.join(extra[:20])}")
    return NetDraft(draft, translator.notes, wired.data, translator.learned)


def _of_file(problem: Problem, file: str) -> Problem:
    """A problem of a binary file, which has no lines, with the file's name."""
    return problem if problem.location or not file else replace(problem, message=f"{file}: {problem.message}")


def _phases(phase: str) -> tuple[str, ...]:
    return (phase.upper(),) if phase else (TRAIN, TEST)


def _state(net: Message, phase: str, options: ImportOptions) -> State:
    """The state of one phase: what the net says of itself beside what the user says."""
    said = net["state"].copy()
    del said["phase"]
    state = State(phase).joined(said)
    return State(phase, options.level or state.level, state.stages | frozenset(options.stages))


def _outputs(translator: Translator, wired: Wired, states: Sequence[State]) -> list[str]:
    """What the last form of the net gives: values that nothing makes anything of; losses judge them, at most.

    What a loss compares with is none. Where there is nothing else, it is what the last layer gives.
    """
    phase = states[-1].phase
    there = [node for node in wired.nodes if phase in node.phases] or wired.nodes
    used = {ref for node in there for place, ref in enumerate(node.bottoms) if _uses(node, place)}
    found: dict[str, None] = {}
    for node in there:
        for ref, made in translator.values.items():
            if ref.layer == node.key and ref not in used and made.layer is not None:
                found[made.name] = None
    names = list(found)
    last = translator.draft.layers[-1].name if translator.draft.layers else ""
    return [] if names == [last] else names or [last]


def _uses(node: Node, place: int) -> bool:
    """Whether a layer makes something of its input, or takes it as what is right."""
    if node.type == "Silence":
        return True
    return node.type not in WATCHERS or place == len(node.bottoms) - 1 > 0


def _tidy(draft: Draft) -> None:
    """Leave out of losses and metrics what says nothing."""
    for entries, registry in ((draft.losses, LOSSES), (draft.metrics, METRICS)):
        for entry in entries:
            fields: Any = registry[entry["type"]].model_fields
            for name in [*entry]:
                if (
                    name in fields
                    and name != "type"
                    and not fields[name].is_required()
                    and entry[name] == fields[name].default
                ):
                    del entry[name]
    if len(draft.losses) == 1:
        draft.losses[0].pop("name", None)
