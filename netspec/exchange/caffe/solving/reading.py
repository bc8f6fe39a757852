"""`netspec import solver.prototxt`: the net that a solver names, and how it is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec.errors import InputError, Problem, command
from netspec.exchange.caffe.blobs import Weights, read_weights
from netspec.exchange.caffe.nets import NetDraft, draft_net
from netspec.exchange.caffe.phases import TEST, TRAIN, State, included
from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.proto.text import read_text
from netspec.exchange.caffe.solving.beside import shapes_beside
from netspec.exchange.caffe.solving.data import Feeding, split
from netspec.exchange.caffe.solving.loop import loop
from netspec.exchange.caffe.solving.places import Finder
from netspec.exchange.caffe.solving.remarks import Remarks
from netspec.exchange.caffe.solving.rules import rule
from netspec.exchange.caffe.solving.states import SolverState, is_state, read_state, slots_of
from netspec.exchange.caffe.upgrade import upgraded
from netspec.exchange.caffe.wiring import DATA_LAYERS
from netspec.exchange.drafting import clean, spec_name
from netspec.exchange.imported import Imported, ImportOptions
from netspec.exchange.training_text import training_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

SOLVER = "a solver of Caffe's (.prototxt)"
NET = "a net of Caffe's (.prototxt)"
TRAINED = ("net", "net_param", "train_net", "train_net_param")
TESTED = ("test_net", "test_net_param")


def read_solver(path: Path, options: ImportOptions) -> Imported:
    """Net, weights and training of a solver file; with its state (`--weights X.solverstate`), what goes on from there.

    Raises `InputError` with everything that there is no counterpart of.
    """
    solver = read_text(path, "SolverParameter", SOLVER)
    remarks, finder = Remarks(), Finder(path)
    states = _states(solver)
    net = _net(solver, finder, remarks, states)
    weights, name, state = _weights(finder, options)
    folder = _file(net, path).parent
    draft: NetDraft | None = None
    if net is not None:
        options = replace(options, shapes=shapes_beside(net, Finder(_file(net, path)), options.shapes, states, remarks))
        try:
            draft = draft_net(net, options, weights=weights, weights_file=name, states=states, folder=folder)
        except InputError as error:
            remarks.problems += error.problems
    trained = rule(solver, remarks)
    data = _data(solver, net, draft, states, finder, remarks) if net is not None and draft is not None else {}
    steps = loop(solver, remarks, tested="test" in data)
    remarks.check()
    assert draft is not None
    slots: dict[str, NDArray[Any]] = {} if state is None else slots_of(state, trained, draft)
    return Imported(
        draft.draft.text(), draft.draft.arrays(), (*draft.notes, *remarks.notes),
        train=training_text(path.name, _name(solver, draft), data, trained, steps),
        slots=slots, step=0 if state is None else state.step, draft=draft.draft,
    )  # fmt: skip


def _file(net: Message | None, path: Path) -> Path:
    """The file that a net stands in; that of the solver, where it does itself."""
    return path if net is None else Path(net.source.file)


def _states(solver: Message) -> list[State]:
    """For what the nets are made: training, and the first of the tests, where there is one."""
    train = State(TRAIN).joined(solver["train_state"])
    tested = bool(solver["test_iter"]) or any(name in solver for name in (*TESTED, "test_state"))
    if not tested:
        return [train]
    first = solver["test_state"][0] if solver["test_state"] else Message("NetState")
    return [train, replace(State(TEST).joined(first), phase=TEST)]


def _net(solver: Message, finder: Finder, remarks: Remarks, states: Sequence[State]) -> Message | None:
    """The net of all states, as the last version of Caffe has it. None, and a problem, where there is none."""
    given = [name for name in TRAINED if name in solver]
    if len(given) != 1:
        remarks.problem(
            "what net to train is said twice" if given else "what net to train is not said", solver,
            given[1] if given else None, expected=f"one of {', '.join(TRAINED)}", got=" and ".join(given) or "none",
        )  # fmt: skip
        return None
    (name,) = given
    net = _loaded(solver[name], finder, remarks)
    if name in ("net", "net_param"):
        _tell_of_more(solver, "test_state", remarks)
        return net
    others = [one for field in TESTED for one in solver[field]]
    if len(others) > 1:
        remarks.note(f"of {len(others)} nets to test the first is taken: a training has one test split")
    if net is None or not others:
        return net
    test = _loaded(others[0], finder, remarks)
    return None if test is None else _together(net, test, states)


def _tell_of_more(solver: Message, name: str, remarks: Remarks) -> None:
    if len(solver[name]) > 1:
        told = ", ".join(" ".join(one["stage"]) or f"state {index}" for index, one in enumerate(solver[name]))
        remarks.note(f"of the tests {told} the first is taken: a training has one test split")


def _loaded(given: Message | str, finder: Finder, remarks: Remarks) -> Message | None:
    """A net that stands in the solver itself, or in the file that it names."""
    try:
        if isinstance(given, Message):
            return upgraded(given)
        return upgraded(read_text(finder.need(given, "a net"), "NetParameter", NET))
    except InputError as error:
        remarks.problems += error.problems
        return None


def _together(train: Message, test: Message, states: Sequence[State]) -> Message:
    """Two nets as one, whose layers are there in training and in testing."""
    net = train.copy()
    net["layer"] = []
    for one, state in zip((train, test), states, strict=True):
        for layer in one["layer"]:
            if included(layer, state):
                layer = layer.copy()
                for name in ("include", "exclude"):
                    del layer[name]
                layer.add("include", Message("NetStateRule", layer.source, layer.place, phase=state.phase))
                net.add("layer", layer)
    return net


def _weights(finder: Finder, options: ImportOptions) -> tuple[Weights | None, str, SolverState | None]:
    """The weights that the options name, or those that a state of the solver goes with."""
    if options.weights is None:
        return None, "", None
    if not is_state(options.weights):
        return read_weights(options.weights)[0], str(options.weights), None
    state = read_state(options.weights)
    beside = Finder(options.weights)
    learned = beside.find(state.learned_net) if state.learned_net else None
    if learned is None and state.learned_net:
        learned = finder.need(state.learned_net, "weights")
    if learned is None:
        raise InputError(f"{options.weights} does not say which weights it goes with", expected="`learned_net`")
    return read_weights(learned)[0], str(learned), state


def _data(
    solver: Message, net: Message, draft: NetDraft, states: Sequence[State], finder: Finder, remarks: Remarks
) -> dict[str, Any]:  # fmt: skip
    """The splits."""
    found: dict[str, Any] = {}
    batches = solver["test_iter"]
    for state in states:
        layers = [one for one in net["layer"] if one["type"] in DATA_LAYERS and included(one, state)]
        tops = [top for one in layers for top in one["top"] if clean(top) in draft.draft.inputs]
        inputs: Mapping[str, Mapping[str, Any]] = {top: draft.draft.inputs[clean(top)] for top in tops}
        feeding = Feeding(state.phase, inputs, finder, remarks)
        limit = batches[0] if state.phase == TEST and batches else None
        made = split(layers, feeding, limit)
        if made is not None:
            found[state.phase.lower()] = made
    if "train" not in found:
        names = list(draft.draft.inputs)
        remarks.note(f"no layer gives {', '.join(names)} in training: give them by `netspec.train(…, samples={{…}})`")
        found = {"train": {"source": "python", "fields": names, "batch_size": 1}, **found}
    return found


def _name(solver: Message, draft: NetDraft) -> str:
    """What the run is called: as snapshots are."""
    prefix = Path(solver["snapshot_prefix"]).name
    name = spec_name(prefix) if prefix else ""
    return "" if name == spec_name(draft.draft.name) else name


def refuse_state(path: Path, options: ImportOptions) -> Imported:
    """The state of a solver alone says no net."""
    raise InputError(
        Problem(
            f"{path} holds the state of a solver, without the solver", expected=SOLVER,
            hint=f"name both: `{command('import', 'solver.prototxt', '--weights', path)}`",
        )
    )  # fmt: skip
