"""Compare two nets, trainings or models: layers, settings, weights and results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from netspec.compile import ProgramKind
from netspec.errors import InputError, Problem, listing
from netspec.exchange.formats.onnx.verify import random_inputs
from netspec.exchange.interface import ImportOptions, WithoutNet, not_finite
from netspec.exchange.numeric_diff import Gap, OutputComparison, compare, gap_of
from netspec.layers.base import LayerSpec
from netspec.schema.specs.comparison import SpecDifference, compare_specs
from netspec.schema.specs.links import resolve_names
from netspec.tools.model_inputs import LoadedModel, import_options, open_any
from netspec.training.model import Model


@dataclass(frozen=True)
class WeightDifference:
    """One array of either side."""

    before: str | None
    after: str | None
    shapes: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    gap: Gap | None = None
    """How far their numbers are apart; None where the shapes differ, or a side has no weights of its own."""

    not_finite: tuple[bool, bool] = (False, False)
    """Whether either side holds NaN or an infinity."""

    @property
    def loadable(self) -> bool:
        """Whether the array of one side could be that of the other."""
        return self.shapes[0] == self.shapes[1]


@dataclass(frozen=True)
class Difference:
    """All that differs."""

    spec: SpecDifference
    weights: tuple[WeightDifference, ...]
    """Of every array, also where it is the same."""
    outputs: OutputComparison | None
    """Differences of outputs, by their names in the first net; None where they were not compared."""
    why_not: str = ""
    """Why outputs were not compared."""
    weighed: tuple[bool, bool] = (True, True)
    """Whether either side has weights of its own."""

    @property
    def same(self) -> bool:
        """Whether nothing at all differs; weights that one side alone has are a difference."""
        return self.alike and len(set(self.weighed)) == 1

    @property
    def alike(self) -> bool:
        """Whether nothing differs of what could be compared."""
        weights = all(one.loadable and not (one.gap and one.gap.max_abs) for one in self.weights)
        return not self.spec and weights and not (self.outputs and self.outputs.whole.max_abs)

    def as_json(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return {
            "same": self.same,
            "layers": [asdict(pair) for pair in self.spec.layers],
            "renamed": {one: two for one, two in self.spec.names.items() if one != two},
            "settings": [asdict(change) for change in self.spec.others],
            "weights": [
                {**asdict(one), "max_abs": one.gap and one.gap.max_abs, "loadable": one.loadable}
                for one in self.weights
            ],
            "outputs": self.outputs.max_abs if self.outputs else None,
            "outputs_gaps": {name: asdict(gap) for name, gap in self.outputs.gaps.items()} if self.outputs else None,
            "outputs_not_compared": self.why_not or None,
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
    weights and the same inputs, both compute the same random samples, drawn by `seed`. A file of weights alone is read
    for the net of the other side. `shapes` and `values` settle inputs that a model file leaves open.

    Raises `InputError` with all that is wrong with either side.

        >>> netspec.diff("runs/lenet-1", "runs/lenet-2").same
    """
    options = import_options(shapes=shapes, values=values)
    one, two = _open_both(Path(before), Path(after), options)
    spec = compare_specs(one.spec, two.spec, (_settled(one), _settled(two)))
    outputs, why_not = _outputs(one, two, spec.names, seed)
    weights = tuple(_weights(one, two, spec.names))
    weighed = one.has_weights or not weights, two.has_weights or not weights
    return Difference(spec, weights, outputs, why_not, weighed)


def _settled(side: LoadedModel) -> dict[str, dict[str, Any]]:
    """What fields of layers come to by the shapes that the layers read."""
    known = side.model.compiler.graph(ProgramKind.PREDICT, 1).named
    return {
        link.name: link.fields.resolved_fields(*(known[source] for source in link.sources))
        for link in resolve_names(side.net).layers
        if isinstance(link.fields, LayerSpec) and all(source in known for source in link.sources)
    }


def _open_both(before: Path, after: Path, options: ImportOptions | None) -> tuple[LoadedModel, LoadedModel]:
    """Both sides; weights alone are laid onto the net of the other one."""
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
    (known, *_) = sides.values()
    one, two = (sides[path] if path in sides else known.with_weights(path) for path in (before, after))
    return one, two


def _weights(one: LoadedModel, two: LoadedModel, names: dict[str, str]) -> Iterator[WeightDifference]:
    import numpy as np

    kinds = [side.model.compiler.types("parameter", "statistic") for side in (one, two)]
    known = one.has_weights and two.has_weights
    wild = [not_finite(side.model.parameters) for side in (one, two)]
    found: set[str] = set()
    for name, kind in kinds[0].items():
        other = _renamed(name, names)
        if other not in kinds[1]:
            yield WeightDifference(name, None, (kind.shape, None), not_finite=(name in wild[0], False))
            continue
        found.add(other)
        shapes = kind.shape, kinds[1][other].shape
        gap = None
        if known and shapes[0] == shapes[1]:
            gap = gap_of(np.asarray(one.model.parameters[name]), np.asarray(two.model.parameters[other]))
        yield WeightDifference(name, other, shapes, gap, (name in wild[0], other in wild[1]))
    yield from (
        WeightDifference(None, name, (None, kind.shape), not_finite=(False, name in wild[1]))
        for name, kind in kinds[1].items() if name not in found
    )  # fmt: skip


def _renamed(name: str, names: dict[str, str]) -> str:
    """What a state is called in the other net: the longest beginning of its name that is a layer's counts."""
    layer = max((one for one in names if name.startswith(f"{one}/")), key=len, default="")
    return f"{names[layer]}{name[len(layer) :]}" if layer else name


def _outputs(
    one: LoadedModel, two: LoadedModel, names: dict[str, str], seed: int
) -> tuple[OutputComparison | None, str]:
    """How far outputs are apart on the same random samples, or why that can't be said."""
    if not (one.has_weights and two.has_weights):
        missing = listing([what for what, side in (("A", one), ("B", two)) if not side.has_weights])
        return None, f"{missing} {'have' if len(missing) > 1 else 'has'} no weights"
    return compare_models(one.model, two.model, names, seed)


SAMPLES = 2
"""Random samples that both compute."""


def compare_models(
    one: Model, two: Model, names: Mapping[str, str] | None = None, seed: int = 0
) -> tuple[OutputComparison | None, str]:
    """How far outputs are apart, by their names in the first model, or why that can't be said.

    Inputs and outputs go by name where both have the same names (`names` says what layers of the first are called in
    the second), else by order.
    """
    names = names or {}
    graphs = [side.compiler.graph(ProgramKind.PREDICT, SAMPLES) for side in (one, two)]
    given, wanted = ({name: value.type for name, value in graph.inputs().items()} for graph in graphs)
    if given != wanted and list(given.values()) != list(wanted.values()):
        return None, "their inputs differ"
    ours, theirs = (list(graph.outputs) for graph in graphs)
    if len(ours) != len(theirs):
        return None, "they have different numbers of outputs"
    inputs = random_inputs(given, one.compiler.domains, seed)
    others = inputs if given == wanted else dict(zip(wanted, inputs.values(), strict=True))
    first, second = one.predict(inputs), two.predict(others)
    pairs = {name: names.get(name, name) for name in ours}
    if set(pairs.values()) != set(theirs):
        pairs = dict(zip(ours, theirs, strict=True))
    return compare(first, {name: second[other] for name, other in pairs.items()}), ""
