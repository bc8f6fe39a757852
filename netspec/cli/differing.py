"""How two nets differ: what `netspec diff` tells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import compress
from pathlib import Path
from typing import Any

from netspec.cli.comparing import SAMPLES, compare_models
from netspec.cli.opened import Opened, open_any
from netspec.cli.output import count
from netspec.compile import Purpose
from netspec.errors import InputError, Problem, listing
from netspec.exchange.gaps import Comparison, Gap, gap_of
from netspec.exchange.imported import ImportOptions, WithoutNet, not_finite
from netspec.layers.base import LayerSpec
from netspec.schema.comparing import SpecDifference, compare_specs
from netspec.schema.links import resolve_names


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
    outputs: Comparison | None
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

    def sections(self) -> Iterator[tuple[str, list[str]]]:
        """Titles, and the lines below each."""
        layers = [
            f"- {pair.before} ({pair.type})" if pair.after is None
            else f"+ {pair.after} ({pair.type})" if pair.before is None
            else f"~ {_both(pair.before, pair.after)} ({pair.type}): {'; '.join(map(str, pair.changes))}"
            for pair in self.spec.layers
        ]  # fmt: skip
        renamed = [f"{one} → {two}" for one, two in self.spec.names.items() if one != two]
        apart = sorted(
            ((one.gap, one) for one in self.weights if one.gap and one.gap.max_abs),
            key=lambda pair: (pair[0].max_abs, pair[0].finite_abs), reverse=True,
        )  # fmt: skip
        unlike = [
            f"{_both(one.before, one.after)}: {_shape(one.shapes[0])} → {_shape(one.shapes[1])}"
            for one in self.weights if not one.loadable
        ]  # fmt: skip
        wild = [
            f"{_both(one.before, one.after)}: in {' and '.join(compress('AB', one.not_finite))}"
            for one in self.weights if any(one.not_finite)
        ]  # fmt: skip
        parts = (
            ("layers", layers),
            ("the same under another name", renamed),
            ("settings", list(map(str, self.spec.others))),
            ("weights that do not fit", unlike),
            ("weights that differ", [f"{_both(one.before, one.after)}: {gap}" for gap, one in apart]),
            ("weights that are not finite", wild),
        )
        yield from ((title, lines) for title, lines in parts if lines)

    def summary(self) -> Iterator[str]:
        """What it comes to."""
        fitting = sum(one.loadable for one in self.weights)
        if self.weights:
            yield f"{count(fitting)} of {count(len(self.weights))} weights can be loaded from one into the other"
        if self.outputs is not None:
            for name, gap in self.outputs.gaps.items():
                yield f"output {name}: {gap}, on {SAMPLES} random samples"
        elif self.why_not:
            yield f"outputs were not compared: {self.why_not}"
        if self.same:
            yield "no difference" if all(self.weighed) else "no difference between the nets"
        elif self.alike:
            yield f"no difference between the nets; {'A' if self.weighed[0] else 'B'} alone has weights"

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


def find_differences(before: Path, after: Path, seed: int = 0, options: ImportOptions | None = None) -> Difference:
    """Compare what two paths hold. Raises `InputError` with all that is wrong with either."""
    one, two = _open_both(before, after, options)
    spec = compare_specs(one.spec, two.spec, (_settled(one), _settled(two)))
    outputs, why_not = _outputs(one, two, spec.names, seed)
    weights = tuple(_weights(one, two, spec.names))
    weighed = one.has_weights or not weights, two.has_weights or not weights
    return Difference(spec, weights, outputs, why_not, weighed)


def _settled(side: Opened) -> dict[str, dict[str, Any]]:
    """What fields of layers come to by the shapes that the layers read."""
    known = side.model.compiler.graph(Purpose.PREDICT, 1).named
    return {
        link.name: link.fields.settled(*(known[source] for source in link.sources))
        for link in resolve_names(side.net).layers
        if isinstance(link.fields, LayerSpec) and all(source in known for source in link.sources)
    }


def _open_both(before: Path, after: Path, options: ImportOptions | None) -> tuple[Opened, Opened]:
    """Both sides; weights alone are laid onto the net of the other one."""
    sides: dict[Path, Opened] = {}
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


def _weights(one: Opened, two: Opened, names: dict[str, str]) -> Iterator[WeightDifference]:
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


def _outputs(one: Opened, two: Opened, names: dict[str, str], seed: int) -> tuple[Comparison | None, str]:
    """How far outputs are apart on the same random samples, or why that can't be said."""
    if not (one.has_weights and two.has_weights):
        missing = listing([what for what, side in (("A", one), ("B", two)) if not side.has_weights])
        return None, f"{missing} {'have' if len(missing) > 1 else 'has'} no weights"
    return compare_models(one.model, two.model, names, seed)


def _both(one: str | None, two: str | None) -> str:
    return f"{one} → {two}" if one and two and one != two else str(one or two)


def _shape(shape: tuple[int, ...] | None) -> str:
    return "-" if shape is None else str(list(shape))
