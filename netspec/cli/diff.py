"""`netspec diff`: what differs between two nets, trainings or models, in meaning and in numbers."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Annotated

import typer

from netspec.cli import DONE, FAILED
from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import Json, Shapes, Values, shapes_of, values_of
from netspec.cli.output import count, print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from netspec.tools.diff import Difference

app = command_app()
SHOWN = 30
"""Lines of a part, where there are more."""


@app.command(
    cls=Plain,
    epilog=examples(
        "netspec diff net.yaml new_net.yaml",
        "netspec diff runs/lenet_mnist model.onnx",
        "netspec diff train.yaml other/train.yaml --exit-code",
    ),
)
def diff(
    before: Annotated[
        str,
        typer.Argument(metavar="A", help="Read this spec, run directory, model or weights file.", show_default=False),
    ],
    after: Annotated[str, typer.Argument(metavar="B", help="Compare A with this one.", show_default=False)],
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with status 1 if anything differs.")] = False,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed the random inputs.")] = 0,
    shapes: Shapes = None,
    values: Values = None,
    as_json: Json = False,
) -> int:
    """Compare two nets: layers, settings, weights and results.

    Layers are compared by meaning: with defaults filled in and blocks expanded; a layer that was only renamed is the
    same. For weights, shows how many could be loaded from one into the other, and how far they differ. If both have
    weights and the same inputs, compares their outputs on random samples. A weights file without a net takes the net of
    the other side.
    """
    given, constants = shapes_of(shapes), values_of(values)
    from netspec.tools.diff import diff as compare

    found = compare(before, after, seed=seed, shapes=given, values=constants)
    if as_json:
        print_json(found.as_json())
    else:
        _print(found)
    return FAILED if exit_code and not found.same else DONE


def _print(found: Difference) -> None:
    for title, lines in _sections(found):
        print(f"{title}:")
        for line in lines[:SHOWN]:
            print(f"  {line}")
        if len(lines) > SHOWN:
            print(f"  … ({len(lines) - SHOWN} more; --json has them all)")
    for line in _summary(found):
        print(line)


def _sections(found: Difference) -> Iterator[tuple[str, list[str]]]:
    """Titles with the lines below each."""
    layers = [
        f"- {pair.before} ({pair.type})" if pair.after is None
        else f"+ {pair.after} ({pair.type})" if pair.before is None
        else f"~ {_both(pair.before, pair.after)} ({pair.type}): {'; '.join(map(str, pair.changes))}"
        for pair in found.spec.layers
    ]  # fmt: skip
    renamed = [f"{one} → {two}" for one, two in found.spec.names.items() if one != two]
    apart = sorted(
        ((one.gap, one) for one in found.weights if one.gap and one.gap.max_abs),
        key=lambda pair: (pair[0].max_abs, pair[0].finite_abs), reverse=True,
    )  # fmt: skip
    unlike = [
        f"{_both(one.before, one.after)}: {_shape(one.shapes[0])} → {_shape(one.shapes[1])}"
        for one in found.weights if not one.loadable
    ]  # fmt: skip
    wild = [
        f"{_both(one.before, one.after)}: in {' and '.join(compress('AB', one.not_finite))}"
        for one in found.weights if any(one.not_finite)
    ]  # fmt: skip
    parts = (
        ("layers", layers),
        ("the same under another name", renamed),
        ("settings", list(map(str, found.spec.others))),
        ("weights that do not fit", unlike),
        ("weights that differ", [f"{_both(one.before, one.after)}: {gap}" for gap, one in apart]),
        ("weights that are not finite", wild),
    )
    yield from ((title, lines) for title, lines in parts if lines)


def _summary(found: Difference) -> Iterator[str]:
    """Counts, differences of outputs, and whether anything differs."""
    from netspec.tools.diff import SAMPLES

    fitting = sum(one.loadable for one in found.weights)
    if found.weights:
        yield f"{count(fitting)} of {count(len(found.weights))} weights can be loaded from one into the other"
    if found.outputs is not None:
        for name, gap in found.outputs.gaps.items():
            yield f"output {name}: {gap}, on {SAMPLES} random samples"
    elif found.why_not:
        yield f"outputs were not compared: {found.why_not}"
    if found.same:
        yield "no difference" if all(found.weighed) else "no difference between the nets"
    elif found.alike:
        yield f"no difference between the nets; {'A' if found.weighed[0] else 'B'} alone has weights"


def _both(one: str | None, two: str | None) -> str:
    return f"{one} → {two}" if one and two and one != two else str(one or two)


def _shape(shape: tuple[int, ...] | None) -> str:
    return "-" if shape is None else str(list(shape))
