"""ONNX → net YAML and weights.

`reading` turns the file into plain data, `patterns` finds activation functions that are several nodes, `translate`
walks the nodes with one rule for each operator (`rules/`), `writing` makes a draft of them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from netspec.errors import InputError, Problem
from netspec.exchange.imported import Imported, ImportOptions
from netspec.exchange.onnx_import.naming import name_layers, notes, output_names
from netspec.exchange.onnx_import.patterns import find_activations
from netspec.exchange.onnx_import.reading import read_model
from netspec.exchange.onnx_import.translate import Translator
from netspec.exchange.onnx_import.writing import drafted

__all__ = ["import_onnx"]


def import_onnx(path: str | Path, options: ImportOptions | None = None) -> Imported:
    """The net and the weights in an ONNX model; the sizes in `options` are without the batch.

    Raises `InputError`: with what is wrong with the file, or with every node that netspec has no layer for.
    """
    model = find_activations(read_model(path))
    translator = Translator(model, options.shapes if options else {})
    translator.run()
    if translator.problems:
        raise InputError(_located(problem, path) for problem in translator.problems)
    layers, outputs = name_layers(translator), output_names(translator)
    draft = drafted(model, translator.inputs, layers, outputs, Path(path).name)
    arrays = draft.arrays()
    return Imported(draft.text(), arrays, notes(translator, arrays, outputs))


def _located(problem: Problem, path: str | Path) -> Problem:
    return replace(problem, message=f"{path}: {problem.message}")
