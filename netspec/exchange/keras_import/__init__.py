"""Files of Keras → net YAML and weights; weights of Keras onto a net.

`archive` opens the file, `config` takes the model apart, `translate` walks the calls of its layers with `rules` and
`operations`, `axes` knows how axes lie, `fields` what the keys of a configuration are here, `weights` gives the arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from netspec.errors import InputError, Problem
from netspec.exchange.imported import Imported, ImportOptions, notes_of_not_finite
from netspec.exchange.keras_import.archive import open_keras
from netspec.exchange.keras_import.config import graph_of
from netspec.exchange.keras_import.fields import Reading
from netspec.exchange.keras_import.judging import Judging
from netspec.exchange.keras_import.rules import apply, check
from netspec.exchange.keras_import.solving import text_of, training_of
from netspec.exchange.keras_import.states import slots_of
from netspec.exchange.keras_import.translate import Translator
from netspec.exchange.keras_import.weights import give, without_model

__all__ = ["import_keras"]


def import_keras(path: str | Path, options: ImportOptions | None = None) -> Imported:
    """The net and the weights in a file of Keras. Raises `InputError` with all that is wrong or has no counterpart."""
    options = options or ImportOptions()
    with open_keras(Path(path)) as file:
        if file.config is None:
            raise without_model(file)
        reading = Reading(file.major)
        try:
            graph = graph_of(file.config, options.shapes)
        except InputError as error:
            raise InputError(_named(error.problems, path)) from None
        origin = f"{Path(path).name} (Keras {file.version or 'of unknown version'})"
        net = Translator(graph, options.shapes, reading, origin)
        net.run(apply, check)
        _raise(net.problems, path)
        _raise(give(file, net.wanted), "")
        judging = Judging(net, graph.output_names)
        judging.write(file.training or {})
        targets = list(judging.targets.values())
        solver, loop = training_of(file, net, targets if net.draft.losses else [])
        slots, step = slots_of(file, net, solver) if solver else ({}, 0)
        train = text_of(net, solver, loop, step) if solver else ""
    arrays = net.draft.arrays()
    notes = (*reading.notes, *notes_of_not_finite(arrays))
    return Imported(net.draft.text(), arrays, notes, train=train, slots=slots, step=step, draft=net.draft)


def _raise(problems: list[Problem], path: str | Path) -> None:
    if problems:
        raise InputError(_named(problems, path) if path else problems)


def _named(problems: Iterable[Problem], path: str | Path) -> Iterator[Problem]:
    return (replace(one, message=f"{path}: {one.message}") for one in problems)
