"""ONNX → net YAML and weights.

`reading` turns the file into plain data, `patterns` finds activation functions that are several nodes, `translate`
walks the nodes with one rule for each operator (`rules/`), `writing` makes a draft of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from netspec.errors import InputError, Problem
from netspec.exchange.drafting import clean
from netspec.exchange.imported import Imported, ImportOptions
from netspec.exchange.onnx_import.model import Model
from netspec.exchange.onnx_import.naming import name_layers, notes, output_names, tensor_names
from netspec.exchange.onnx_import.patterns import find_patterns
from netspec.exchange.onnx_import.reading import read_model
from netspec.exchange.onnx_import.translate import Translator
from netspec.exchange.onnx_import.writing import drafted

__all__ = ["Translation", "Untranslatable", "import_onnx", "translate"]


class Untranslatable(InputError):
    """A model has nodes that netspec has no layer for."""

    def __init__(self, problems: Iterable[Problem], wanted: frozenset[str]) -> None:
        super().__init__(problems)
        self.wanted = wanted
        """The computed tensors that rules wanted to be constants."""


@dataclass(frozen=True)
class Translation:
    """A model as a net, and what the net calls the model's inputs and outputs."""

    imported: Imported
    inputs: Mapping[str, str]
    """Those that the net reads."""
    outputs: Mapping[str, str]


def import_onnx(path: str | Path, options: ImportOptions | None = None) -> Imported:
    """The net and the weights in an ONNX model; the sizes in `options` are without the batch.

    Raises `InputError`: with what is wrong with the file, or with every node that netspec has no layer for.
    """
    return translate(read_model(path), options or ImportOptions(), str(path)).imported


def translate(model: Model, options: ImportOptions, origin: str) -> Translation:
    """A model that was read, as a net; messages call it `origin`. Raises `Untranslatable`."""
    model = find_patterns(model)
    translator = Translator(model, options.shapes)
    translator.run()
    if translator.problems:
        problems = [replace(problem, message=f"{origin}: {problem.message}") for problem in translator.problems]
        raise Untranslatable(problems, frozenset(translator.wanted))
    layers, outputs = name_layers(translator), output_names(translator)
    draft = drafted(model, translator.inputs, layers, outputs, Path(origin).name)
    arrays = draft.arrays()
    made = {tensor: name for layer in layers for tensor, name in tensor_names(layer).items()}
    return Translation(
        Imported(draft.text(), arrays, notes(translator, arrays, outputs)),
        {name: clean(name) for name in translator.inputs},
        {name: made[translator.resolve(name)] for name in model.outputs},
    )
