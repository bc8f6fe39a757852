"""Read a solver for `netspec import solver.prototxt`: the net that it names, and how it is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from netspec.errors import InputError, Problem, command
from netspec.exchange.formats.caffe.blobs import Weights, read_weights
from netspec.exchange.formats.caffe.inputs import known_inputs
from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.proto.text import read_text
from netspec.exchange.formats.caffe.reading import NET, NetDraft, draft_net
from netspec.exchange.formats.caffe.solver.context import Diagnostics, FileFinder
from netspec.exchange.formats.caffe.solver.data import SplitContext, split
from netspec.exchange.formats.caffe.solver.rules import loop, update_rule
from netspec.exchange.formats.caffe.solver.states import SolverState, is_state, read_state, slots_of
from netspec.exchange.formats.caffe.upgrade import upgraded
from netspec.exchange.formats.caffe.wiring import DATA_LAYERS, TEST, TRAIN, NetState, included, wire
from netspec.exchange.interface import Imported, ImportOptions
from netspec.exchange.net_yaml_writer import clean, spec_name, training_text
from netspec.files.hdf5 import Hdf5File

MAX_FILES = 50
MAX_BYTES = 1 << 24
"""Largest size in bytes of a file that lists other files."""
LEARNED = ("Convolution", "InnerProduct", "Deconvolution", "Embed")
"""Types of layers by which two forms of a net are matched."""


def input_shapes(
    net: Message,
    finder: FileFinder,
    option_shapes: Mapping[str, tuple[int, ...]],
    states: Sequence[NetState],
    remarks: Diagnostics,
) -> dict[str, tuple[int, ...]]:
    """Input shapes: from the options, from existing data, else from another net in the folder with the same layers."""
    folder = finder.path.parent
    stored = {name: shape for layer in net["layer"] for name, shape in _stored(layer, finder).items()}
    shapes = {**stored, **option_shapes}
    missing = [
        name for name, known_input in known_inputs(wire(net["layer"], states), shapes, folder).items()
        if known_input.shape is None and name not in shapes
    ]  # fmt: skip
    types_of_net = _layers(net)
    if not missing or not types_of_net:
        return shapes
    for path in sorted(folder.glob("*.prototxt"))[:MAX_FILES]:
        declared = _declared(path, types_of_net)
        for name in missing:
            if name in declared and name not in shapes:
                shapes[name] = declared[name]
                sizes = ", ".join(map(str, declared[name]))
                remarks.notes.add(f"the shape of `{name}`, [{sizes}], is that of {path.name} next to the net")
    return shapes


def _stored(layer: Message, finder: FileFinder) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays in the first file of an HDF5Data layer, if it exists."""
    source = layer["hdf5_data_param"]["source"]
    list_file = finder.find(source) if layer["type"] == "HDF5Data" and source else None
    if list_file is None or not list_file.is_file() or list_file.stat().st_size > MAX_BYTES:
        return {}
    first = list_file.read_text(encoding="utf-8", errors="replace").split("\n", 1)[0].strip()
    first_file = FileFinder(list_file).find(first) if first else None
    if first_file is None or not first_file.is_file():
        return {}
    with suppress(InputError):
        stored = {entry.path: entry.array for entry in Hdf5File(str(first_file), first_file, "an HDF5 file").walk()}
        tops = [(top, stored.get(top)) for top in layer["top"]]
        return {top: array.shape[1:] for top, array in tops if array is not None and array.shape and array.shape[1:]}
    return {}


def _declared(path: Path, types_of_net: dict[str, str]) -> dict[str, tuple[int, ...]]:
    """The inputs that another form of the same net declares: one with all its layers, or nearly all."""
    try:
        net = upgraded(read_text(path, "NetParameter", "a net of Caffe's"))
    except InputError:  # solvers and damaged files
        return {}
    other_layers = _layers(net)
    same = sum(types_of_net.get(name) == kind for name, kind in other_layers.items())
    if not other_layers or same < len(other_layers) or 2 * same < len(types_of_net):
        return {}
    return {
        top: tuple(map(int, shape["dim"][1:]))
        for layer in net["layer"]
        if layer["type"] == "Input"
        for top, shape in zip(layer["top"], layer["input_param"]["shape"], strict=False)
    }


def _layers(net: Message) -> dict[str, str]:
    """Layers that have weights, by name."""
    return {layer["name"]: layer["type"] for layer in net["layer"] if layer["type"] in LEARNED}


SOLVER = "a solver of Caffe's (.prototxt)"
TRAINED = ("net", "net_param", "train_net", "train_net_param")
TESTED = ("test_net", "test_net_param")


def read_solver(path: Path, options: ImportOptions) -> Imported:
    """Import the net, the weights and the training of a solver file; with the solver's state, a checkpoint to resume.

    Raises `InputError` with everything that has no counterpart.
    """
    solver = read_text(path, "SolverParameter", SOLVER)
    remarks, finder = Diagnostics(), FileFinder(path)
    states = _states(solver)
    net = _net(solver, finder, remarks, states)
    weights, name, state = _weights(finder, options)
    folder = _file(net, path).parent
    draft: NetDraft | None = None
    if net is not None:
        options = replace(
            options, shapes=input_shapes(net, FileFinder(_file(net, path)), options.shapes, states, remarks)
        )
        try:
            draft = draft_net(net, options, weights=weights, weights_file=name, states=states, folder=folder)
        except InputError as error:
            remarks.problems += error.problems
    trained = update_rule(solver, remarks)
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
    """The file that contains the net: the solver's own file if the net is inline."""
    return path if net is None else Path(net.source.file)


def _states(solver: Message) -> list[NetState]:
    """The states of the nets: training, and the first test if there is one."""
    train = NetState(TRAIN).joined(solver["train_state"])
    tested = bool(solver["test_iter"]) or any(name in solver for name in (*TESTED, "test_state"))
    if not tested:
        return [train]
    first = solver["test_state"][0] if solver["test_state"] else Message("NetState")
    return [train, replace(NetState(TEST).joined(first), phase=TEST)]


def _net(solver: Message, finder: FileFinder, remarks: Diagnostics, states: Sequence[NetState]) -> Message | None:
    """The net of all states, in the form of the last version of Caffe. None, with a problem, if it is missing."""
    names = [name for name in TRAINED if name in solver]
    if len(names) != 1:
        remarks.problem(
            "the solver names two nets to train" if names else "the solver names no net to train", solver,
            names[1] if names else None, expected=f"one of {', '.join(TRAINED)}", got=" and ".join(names) or "none",
        )  # fmt: skip
        return None
    (name,) = names
    net = _loaded(solver[name], finder, remarks)
    if name in ("net", "net_param"):
        _note_further_tests(solver, "test_state", remarks)
        return net
    others = [value for field in TESTED for value in solver[field]]
    if len(others) > 1:
        remarks.notes.add(f"of {len(others)} nets to test the first is taken: a training file has one test split")
    if net is None or not others:
        return net
    test = _loaded(others[0], finder, remarks)
    return None if test is None else _merged(net, test, states)


def _note_further_tests(solver: Message, name: str, remarks: Diagnostics) -> None:
    if len(solver[name]) > 1:
        states = ", ".join(" ".join(value["stage"]) or f"state {index}" for index, value in enumerate(solver[name]))
        remarks.notes.add(f"only the first of the tests {states} is imported: a training file has one test split")


def _loaded(net: Message | str, finder: FileFinder, remarks: Diagnostics) -> Message | None:
    """A net that is inline in the solver, or in the file that the solver names."""
    try:
        if isinstance(net, Message):
            return upgraded(net)
        return upgraded(read_text(finder.need(net, "a net"), "NetParameter", NET))
    except InputError as error:
        remarks.problems += error.problems
        return None


def _merged(train: Message, test: Message, states: Sequence[NetState]) -> Message:
    """Merge the nets for training and testing: each layer is included in its phase only."""
    net = train.copy()
    net["layer"] = []
    for spec, state in zip((train, test), states, strict=True):
        for layer in spec["layer"]:
            if included(layer, state):
                layer = layer.copy()
                for name in ("include", "exclude"):
                    del layer[name]
                layer.add("include", Message("NetStateRule", layer.source, layer.offset, phase=state.phase))
                net.add("layer", layer)
    return net


def _weights(finder: FileFinder, options: ImportOptions) -> tuple[Weights | None, str, SolverState | None]:
    """The weights that the options name, or those that the solver state names."""
    if options.weights is None:
        return None, "", None
    if not is_state(options.weights):
        return read_weights(options.weights)[0], str(options.weights), None
    state = read_state(options.weights)
    state_finder = FileFinder(options.weights)
    learned = state_finder.find(state.learned_net) if state.learned_net else None
    if learned is None and state.learned_net:
        learned = finder.need(state.learned_net, "weights")
    if learned is None:
        raise InputError(f"{options.weights} does not name its weights", expected="`learned_net`")
    return read_weights(learned)[0], str(learned), state


def _data(
    solver: Message, net: Message, draft: NetDraft, states: Sequence[NetState], finder: FileFinder, remarks: Diagnostics
) -> dict[str, Any]:  # fmt: skip
    """The splits of the training file."""
    splits: dict[str, Any] = {}
    batches = solver["test_iter"]
    for state in states:
        layers = [layer for layer in net["layer"] if layer["type"] in DATA_LAYERS and included(layer, state)]
        tops = [top for layer in layers for top in layer["top"] if clean(top) in draft.draft.inputs]
        inputs: Mapping[str, Mapping[str, Any]] = {top: draft.draft.inputs[clean(top)] for top in tops}
        feeding = SplitContext(state.phase, inputs, finder, remarks)
        limit = batches[0] if state.phase == TEST and batches else None
        split_fields = split(layers, feeding, limit)
        if split_fields is not None:
            splits[state.phase.lower()] = split_fields
    if "train" not in splits:
        names = list(draft.draft.inputs)
        remarks.notes.add(
            f"no layer gives {', '.join(names)} in training: give them by `netspec.train(…, samples={{…}})`"
        )
        splits = {"train": {"source": "python", "fields": names, "batch_size": 1}, **splits}
    return splits


def _name(solver: Message, draft: NetDraft) -> str:
    """Name of the run, from the prefix of the snapshots."""
    prefix = Path(solver["snapshot_prefix"]).name
    name = spec_name(prefix) if prefix else ""
    return "" if name == spec_name(draft.draft.name) else name


def refuse_state(path: Path, options: ImportOptions) -> Imported:
    """Refuse the state of a solver without the solver, which names the net."""
    raise InputError(
        Problem(
            f"{path} holds the state of a solver, without the solver", expected=SOLVER,
            hint=f"name both: `{command('import', 'solver.prototxt', '--weights', path)}`",
        )
    )  # fmt: skip
