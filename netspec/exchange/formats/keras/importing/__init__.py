"""Import files of Keras as a net file and weights.

`archive` opens the file, `config` parses the model, `importer` imports the calls of its layers by the rules of `layers`
and `operations`, `axes` has the order of axes, `fields` the keys of configurations, `weights` the arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from netspec.errors import InputError, Problem
from netspec.exchange.formats.keras.importing.archive import open_keras
from netspec.exchange.formats.keras.importing.config import keep_outputs, parse_model
from netspec.exchange.formats.keras.importing.fields import ReadContext
from netspec.exchange.formats.keras.importing.importer import KerasImporter
from netspec.exchange.formats.keras.importing.layers import apply, check
from netspec.exchange.formats.keras.importing.losses_and_metrics import LossImporter
from netspec.exchange.formats.keras.importing.optimizer import slots_of, train_file, training_of
from netspec.exchange.formats.keras.importing.weights import load_weights, missing_model_error
from netspec.exchange.interface import Imported, ImportOptions, notes_of_not_finite
from netspec.exchange.truncation import DROPPED_TRAINING, CutFailed

__all__ = ["import_keras"]


def import_keras(path: str | Path, options: ImportOptions | None = None) -> Imported:
    """Import the net and the weights in a file of Keras. Raises `InputError` with everything that is unsupported."""
    options = options or ImportOptions()
    file = open_keras(Path(path))
    if file.config is None:
        raise missing_model_error(file)
    reading = ReadContext(file.major, file.version)
    try:
        graph = parse_model(file.config, options.shapes)
        if options.until:
            keep_outputs(graph, options.until, "the model")
    except InputError as error:
        raise type(error)(_named(error.problems, path)) from None
    origin = f"{Path(path).name} (Keras {file.version or 'of unknown version'})"
    net = KerasImporter(graph, options.shapes, reading, origin)
    net.run(apply, check)
    if net.problems:
        raise InputError(_named(net.problems, path))
    mismatches = load_weights(file, net.layer_weights)
    if mismatches:
        raise (CutFailed if options.until else InputError)(mismatches)
    judging = LossImporter(net, graph.output_names)
    judging.write(file.training or {})
    targets, is_cut = list(judging.targets.values()), bool(options.until or options.drop_head)
    solver, loop = training_of(file, net, targets if net.draft.losses and not is_cut else [])
    slots, step = slots_of(file, net, solver) if solver else ({}, 0)
    if is_cut and file.training:
        reading.notes.add(DROPPED_TRAINING)
    train = train_file(net, solver, loop, step) if solver else ""
    arrays = net.draft.arrays()
    notes = (*reading.notes, *notes_of_not_finite(arrays))
    return Imported(net.draft.text(), arrays, notes, train=train, slots=slots, step=step, draft=net.draft)


def _named(problems: Iterable[Problem], path: str | Path) -> Iterator[Problem]:
    return (replace(problem, message=f"{path}: {problem.message}") for problem in problems)
