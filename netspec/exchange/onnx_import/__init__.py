"""ONNX → net YAML and weights.

`reading` turns the file into plain data, `patterns` finds activation functions that are several nodes, `translate`
walks the nodes with one rule for each operator (`rules/`), `writing` writes the YAML.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from netspec.errors import InputError, Problem
from netspec.exchange.imported import Imported
from netspec.exchange.onnx_import.naming import name_layers, notes, output_names
from netspec.exchange.onnx_import.patterns import find_activations
from netspec.exchange.onnx_import.reading import read_model
from netspec.exchange.onnx_import.translate import Translator
from netspec.exchange.onnx_import.writing import write_net

__all__ = ["import_onnx"]


def import_onnx(path: str | Path, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Imported:
    """The net and the weights in an ONNX model. `shapes` gives sizes (without the batch) that the model leaves open.

    Raises `InputError`: with what is wrong with the file, or with every node that netspec has no layer for.
    """
    model = find_activations(read_model(path))
    translator = Translator(model, shapes or {})
    translator.run()
    if translator.problems:
        raise InputError(_located(problem, path) for problem in translator.problems)
    layers, outputs = name_layers(translator), output_names(translator)
    arrays = {f"{layer.name}/{key}": array for layer in layers for key, array in layer.arrays.items()}
    net = write_net(model, translator.inputs, layers, outputs, Path(path).name)
    return Imported(net, arrays, notes(translator, arrays, outputs))


def _located(problem: Problem, path: str | Path) -> Problem:
    return replace(problem, message=f"{path}: {problem.message}")
