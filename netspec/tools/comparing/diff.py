"""Compare two nets, trainings or models: layers, settings, weights and results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from netspec.compile import ProgramKind
from netspec.errors import InputError, Problem, listing
from netspec.exchange.formats.onnx.verify import random_inputs
from netspec.exchange.interface import ImportOptions, WithoutNet, not_finite
from netspec.exchange.numeric_diff import Gap, OutputComparison, compare, gap_of
from netspec.layers.base import LayerSpec
from netspec.schema.specs.comparison import SpecDifference, compare_specs
from netspec.schema.specs.links import resolve_names
from netspec.schema.specs.monitor import monitor_modes
from netspec.tools.comparing.run_comparison import ValueComparison, compare_runs
from netspec.tools.model_inputs import LoadedModel, import_options, open_any
from netspec.training.inference.model import Model


@dataclass(frozen=True)
class WeightDifference:
    """An array of the first net and its counterpart in the second; None if a net does not have it."""

    before: str | None
    after: str | None
    shapes: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    gap: Gap | None = None
    """Difference of the elements; None if shapes differ or a side has no weights."""

    not_finite: tuple[bool, bool] = (False, False)
    """Whether the array of each side has NaN or infinite elements."""

    @property
    def loadable(self) -> bool:
        """Whether both nets have the array, with the same shape."""
        return self.shapes[0] == self.shapes[1]


@dataclass(frozen=True)
class Difference:
    """All differences between two nets, trainings or models."""

    spec: SpecDifference
    weights: tuple[WeightDifference, ...]
    """All arrays, also those without a difference."""
    outputs: OutputComparison | None
    """Differences of outputs, by their names in the first net; None if they were not compared."""
    why_not: str = ""
    """Reason why outputs were not compared."""
    weighed: tuple[bool, bool] = (True, True)
    """Whether each side has weights."""
    results: tuple[ValueComparison, ...] = ()
    """Losses and metrics, if both sides are run directories."""

    @property
    def same(self) -> bool:
        """Whether there is no difference at all; weights on only one side are a difference."""
        return self.alike and len(set(self.weighed)) == 1 and all(result.same for result in self.results)

    @property
    def alike(self) -> bool:
        """Whether everything that could be compared is equal."""
        weights = all(weight.loadable and not (weight.gap and weight.gap.max_abs) for weight in self.weights)
        return not self.spec and weights and not (self.outputs and self.outputs.whole.max_abs)

    def as_json(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return {
            "same": self.same,
            "layers": [asdict(layer_pair) for layer_pair in self.spec.layers],
            "renamed": {before: other for before, other in self.spec.names.items() if before != other},
            "settings": [asdict(change) for change in self.spec.others],
            "weights": [
                {**asdict(weight), "max_abs": weight.gap and weight.gap.max_abs, "loadable": weight.loadable}
                for weight in self.weights
            ],
            "outputs": self.outputs.max_abs if self.outputs else None,
            "outputs_gaps": {name: asdict(gap) for name, gap in self.outputs.gaps.items()} if self.outputs else None,
            "outputs_not_compared": self.why_not or None,
            "results": [asdict(result) for result in self.results],
        }


def diff(
    before: str | Path,
    after: str | Path,
    *,
    seed: int = 0,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, Sequence[float]] | None = None,
) -> Difference:
    """Compare two nets: specs, run directories, models or weights of any format.

    Layers are compared by meaning: defaults are filled in, and a renamed layer counts as the same. If both sides have
    weights and the same inputs, their outputs for random samples, drawn by `seed`, are compared. A file with weights
    alone takes the net of the other side. For two run directories, losses and metrics are compared too. `shapes` and
    `values` set inputs that a model file leaves open.

    Raises `InputError` with all that is wrong with either side.

        >>> netspec.diff("runs/lenet-1", "runs/lenet-2").same
    """
    options = import_options(shapes=shapes, values=values)
    first, other = _open_both(Path(before), Path(after), options)
    spec = compare_specs(first.spec, other.spec, (_resolved_fields(first), _resolved_fields(other)))
    outputs, why_not = _outputs(first, other, spec.names, seed)
    weights = tuple(_weights(first, other, spec.names))
    weighed = first.has_weights or not weights, other.has_weights or not weights
    results = compare_runs(Path(before), Path(after), {**monitor_modes(other.net), **monitor_modes(first.net)})
    return Difference(spec, weights, outputs, why_not, weighed, results)


def _resolved_fields(side: LoadedModel) -> dict[str, dict[str, Any]]:
    """Values of layer fields that follow from the shapes of the layers' inputs."""
    named_values = side.model.compiler.graph(ProgramKind.PREDICT, 1).named
    return {
        link.name: link.fields.resolved_fields(*(named_values[source] for source in link.sources))
        for link in resolve_names(side.net).layers
        if isinstance(link.fields, LayerSpec) and all(source in named_values for source in link.sources)
    }


def _open_both(before: Path, after: Path, options: ImportOptions | None) -> tuple[LoadedModel, LoadedModel]:
    """Open both sides; weights without a net are loaded into the net of the other side."""
    sides: dict[Path, LoadedModel] = {}
    alone: list[Problem] = []
    problems: list[Problem] = []
    for path in (before, after):
        try:
            sides[path] = open_any(path, options=options)
        except WithoutNet as error:
            alone += error.problems
        except InputError as error:
            problems += error.problems
    if not sides:
        problems += alone
    if problems:
        raise InputError(problems)
    (open_side, *_) = sides.values()
    first, other = (sides[path] if path in sides else open_side.with_weights(path) for path in (before, after))
    return first, other


def _weights(model: LoadedModel, other: LoadedModel, names: dict[str, str]) -> Iterator[WeightDifference]:
    kinds = [side.model.compiler.types("parameter", "statistic") for side in (model, other)]
    comparable = model.has_weights and other.has_weights
    wild = [not_finite(side.model.parameters) for side in (model, other)]
    compared: set[str] = set()
    for name, kind in kinds[0].items():
        other_name = _renamed(name, names)
        if other_name not in kinds[1]:
            yield WeightDifference(name, None, (kind.shape, None), not_finite=(name in wild[0], False))
            continue
        compared.add(other_name)
        shapes = kind.shape, kinds[1][other_name].shape
        gap = None
        if comparable and shapes[0] == shapes[1]:
            gap = gap_of(np.asarray(model.model.parameters[name]), np.asarray(other.model.parameters[other_name]))
        yield WeightDifference(name, other_name, shapes, gap, (name in wild[0], other_name in wild[1]))
    yield from (
        WeightDifference(None, name, (None, kind.shape), not_finite=(False, name in wild[1]))
        for name, kind in kinds[1].items() if name not in compared
    )  # fmt: skip


def _renamed(name: str, names: dict[str, str]) -> str:
    """Name of a state in the other net, by the longest prefix that is a layer's name."""
    layer = max((candidate for candidate in names if name.startswith(f"{candidate}/")), key=len, default="")
    return f"{names[layer]}{name[len(layer) :]}" if layer else name


def _outputs(
    model: LoadedModel, other: LoadedModel, names: dict[str, str], seed: int
) -> tuple[OutputComparison | None, str]:
    """Compare outputs for the same random samples; if that is impossible, return None and the reason."""
    if not (model.has_weights and other.has_weights):
        missing = listing([side_name for side_name, side in (("A", model), ("B", other)) if not side.has_weights])
        return None, f"{missing} {'have' if len(missing) > 1 else 'has'} no weights"
    return compare_models(model.model, other.model, names, seed)


SAMPLES = 2
"""Number of random samples for which outputs are compared."""


def compare_models(
    model: Model, other: Model, names: Mapping[str, str] | None = None, seed: int = 0
) -> tuple[OutputComparison | None, str]:
    """Compare outputs, by their names in the first model; if that is impossible, return None and the reason.

    Inputs and outputs are matched by name if both models have the same names (`names` maps layers of the first to
    layers of the second), else by position.
    """
    names = names or {}
    graphs = [side.compiler.graph(ProgramKind.PREDICT, SAMPLES) for side in (model, other)]
    first_types, second_types = ({name: value.type for name, value in graph.inputs().items()} for graph in graphs)
    if first_types != second_types and list(first_types.values()) != list(second_types.values()):
        return None, "their inputs differ"
    ours, theirs = (list(graph.outputs) for graph in graphs)
    if len(ours) != len(theirs):
        return None, "they have different numbers of outputs"
    inputs = random_inputs(first_types, model.compiler.domains, seed)
    others = inputs if first_types == second_types else dict(zip(second_types, inputs.values(), strict=True))
    first, second = model.predict(inputs), other.predict(others)
    name_pairs = {name: names.get(name, name) for name in ours}
    if set(name_pairs.values()) != set(theirs):
        name_pairs = dict(zip(ours, theirs, strict=True))
    return compare(first, {name: second[other_name] for name, other_name in name_pairs.items()}), ""
