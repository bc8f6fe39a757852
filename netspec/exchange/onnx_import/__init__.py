"""ONNX → net YAML and weights.

`reading` turns the file into plain data, `patterns` finds activation functions that are several nodes, `translate`
walks the nodes with one rule for each operator (`rules/`), `writing` makes a draft of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec.errors import InputError, Problem
from netspec.exchange.drafting import clean
from netspec.exchange.imported import Imported, ImportOptions
from netspec.exchange.onnx_import.inputs import OPEN_BATCH, OTHER_BATCH, pinned
from netspec.exchange.onnx_import.joining import join
from netspec.exchange.onnx_import.model import Model, needed
from netspec.exchange.onnx_import.naming import name_layers, notes, output_names, tensor_names
from netspec.exchange.onnx_import.patterns import find_patterns
from netspec.exchange.onnx_import.reading import read_model
from netspec.exchange.onnx_import.training_form import as_net, freeze
from netspec.exchange.onnx_import.translate import Translator
from netspec.exchange.onnx_import.writing import drafted

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Place", "Translation", "Untranslatable", "import_onnx", "translate"]


class Untranslatable(InputError):
    """A model has nodes that netspec has no layer for."""

    def __init__(self, problems: Iterable[Problem], wanted: frozenset[str]) -> None:
        super().__init__(problems)
        self.wanted = wanted
        """The computed tensors that rules wanted to be constants."""


@dataclass(frozen=True)
class Place:
    """An input or output of a model in the net: its name there, and the model's axis that the net has in front.

    Without such an axis the whole model is one sample, and the net has a batch in front of what the model has.
    """

    name: str
    batch: int | None

    def to_net(self, array: NDArray[Any]) -> NDArray[Any]:
        """An array of the model as the net takes it."""
        import numpy as np

        return array[np.newaxis] if self.batch is None else np.moveaxis(array, self.batch, 0)

    def from_net(self, array: NDArray[Any]) -> NDArray[Any]:
        """An array of the net as the model has it: where that is a sample, the first one."""
        import numpy as np

        return np.asarray(array[0]) if self.batch is None else np.moveaxis(array, 0, self.batch)


@dataclass(frozen=True)
class Translation:
    """A model as a net, and where the net has the model's inputs and outputs."""

    imported: Imported
    inputs: Mapping[str, Place]
    """Those that the net reads."""
    outputs: Mapping[str, Place]


def import_onnx(path: str | Path, options: ImportOptions | None = None) -> Imported:
    """The net and the weights in an ONNX model; sizes in `options` are with the batch or without it.

    Raises `InputError`: with what is wrong with the file, or with every node that netspec has no layer for.
    """
    return translate(read_model(path), options or ImportOptions(), str(path)).imported


def translate(model: Model, options: ImportOptions, origin: str) -> Translation:
    """A model that was read, as a net; messages call it `origin`. Raises `Untranslatable`."""
    values, wrong = pinned(model.inputs, options.values)
    if wrong:
        raise InputError(replace(problem, message=f"{origin}: {problem.message}") for problem in wrong)
    model = replace(
        model,
        nodes=needed(model.nodes, model.outputs),
        inputs=[one for one in model.inputs if one.name not in values],
        constants={**model.constants, **values},
    )
    model = find_patterns(as_net(model))
    translator = _translated(model, options)
    problems = [*translator.missing, *translator.problems, *translator.mixed]
    if problems:
        located = [replace(problem, message=f"{origin}: {problem.message}") for problem in problems]
        raise Untranslatable(located, frozenset(translator.wanted))
    layers, outputs = name_layers(translator), output_names(translator)
    draft = drafted(model, translator.inputs.values(), layers, outputs.values(), Path(origin).name)
    types = translator.types()
    join(draft, {name: types[tensor].shape for layer in layers for tensor, name in tensor_names(layer).items()})
    freeze(model, draft.layers)
    arrays = draft.arrays()
    return Translation(
        Imported(draft.text(), arrays, notes(translator, arrays, outputs.values()), draft=draft),
        {feed.name: Place(clean(feed.name), feed.batch) for feed in translator.inputs.values()},
        {name: Place(outputs[name], output.batch) for name, output in translator.outputs.items()},
    )


def _translated(model: Model, options: ImportOptions) -> Translator:
    """The model read in batches, or as one sample where its samples are mixed; with problems where neither is possible.

    What keeps the model from being read in batches counts for nothing where it can be read as a sample, which is tried
    whenever something about the batch is among it. Of a model that cannot be read either way, both are told, but not
    that samples are mixed.
    """
    in_batches = Translator(model, options.shapes)
    in_batches.run()
    if in_batches.counts_batch and not in_batches.stopped and in_batches.size_of_batch != 1:
        other = Translator(model, options.shapes, batch=OTHER_BATCH)
        other.run()
        size = in_batches.size_of_batch
        if size == OPEN_BATCH or not other.stopped:
            in_batches.mixed += _depending_on_batch(in_batches, other)
        else:
            in_batches.remarks.append(f"the size of the batch, {size}, is a number that the model may compute with")
    if not in_batches.mixed:
        return in_batches
    as_whole = Translator(model, options.shapes, as_whole=True)
    as_whole.run()
    as_whole.wanted |= in_batches.wanted
    if as_whole.stopped:
        known = {problem.message for problem in as_whole.problems}
        as_whole.problems += [problem for problem in in_batches.problems if problem.message not in known]
        hint = "; ".join(as_whole.assumed) or None
        as_whole.problems = [replace(problem, hint=problem.hint or hint) for problem in as_whole.problems]
    else:
        as_whole.remarks.insert(0, _why_whole(in_batches))
    return as_whole


def _depending_on_batch(first: Translator, second: Translator) -> list[Problem]:
    """Layers that are not the same for two sizes of the batch: what they compute with is a number that it became."""
    pairs = zip_longest(first.layers, second.layers)
    return [
        Problem(f"{(one or other).node.describe()}: what it computes depends on the size of the batch")
        for one, other in pairs
        if one is None or other is None or not one.same_as(other)
    ]


def _why_whole(in_batches: Translator) -> str:
    first, *others = (problem.message.replace(" can't be imported", "") for problem in in_batches.mixed)
    more = f", and {len(others)} more" if others else ""
    read = "the whole model is read as one sample, all inputs and outputs with a batch in front of them"
    return f"{read}: {first}{more}"
