"""`netspec diff`: differences between two nets, trainings or models: layers, settings, weights and results."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Annotated

import typer

from netspec.cli import DONE, FAILED
from netspec.cli.app import CommandApp
from netspec.cli.options import Json, Shapes, Values, shapes_of, values_of
from netspec.cli.output import count, print_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from netspec.tools.comparing.diff import Difference
    from netspec.tools.comparing.run_comparison import ValueComparison

app = CommandApp()
SHOWN = 30
"""Maximum number of lines of a part that are printed."""
STEPS = 8
"""Maximum number of steps at which the values of curves are printed."""


@app.add_command(
    "netspec diff net.yaml new_net.yaml",
    "netspec diff runs/lenet_mnist runs/lenet_mnist-2",
    "netspec diff runs/lenet_mnist model.onnx",
    "netspec diff train.yaml other/train.yaml --exit-code",
)
def diff(
    before: Annotated[
        str, typer.Argument(metavar="A", help="Read a net, training, model or weights file, run or zoo model.")
    ],
    after: Annotated[str, typer.Argument(metavar="B", help="Compare A with this one.")],
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with status 1 if anything differs.")] = False,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed the random inputs.")] = 0,
    shapes: Shapes = None,
    values: Values = None,
    as_json: Json = False,
) -> int:
    """Compare two nets: layers, settings, weights and results.

    Layers are compared with defaults filled in and blocks expanded; a renamed layer counts as the same. For weights,
    shows how many could be loaded from one into the other, and how far they differ. If both have weights and the same
    inputs, compares their outputs on random samples. For two runs, compares losses and metrics: at the end, at their
    best, and at the same steps. A weights file without a net takes the net of the other side.
    """
    sizes, constants = shapes_of(shapes), values_of(values)
    from netspec.tools.comparing.diff import diff as compare

    difference = compare(before, after, seed=seed, shapes=sizes, values=constants)
    if as_json:
        print_json(difference.as_json())
    else:
        _print(difference)
    return FAILED if exit_code and not difference.same else DONE


def _print(difference: Difference) -> None:
    for title, lines in _sections(difference):
        print(f"{title}:")
        for line in lines[:SHOWN]:
            print(f"  {line}")
        if len(lines) > SHOWN:
            print(f"  … ({len(lines) - SHOWN} more; --json has them all)")
    for line in _summary(difference):
        print(line)


def _sections(difference: Difference) -> Iterator[tuple[str, list[str]]]:
    """Titles with the lines below each."""
    layers = [
        f"- {link.before} ({link.type})" if link.after is None
        else f"+ {link.after} ({link.type})" if link.before is None
        else f"~ {_both(link.before, link.after)} ({link.type}): {'; '.join(map(str, link.changes))}"
        for link in difference.spec.layers
    ]  # fmt: skip
    renamed = [f"{before} → {after}" for before, after in difference.spec.names.items() if before != after]
    apart = sorted(
        ((weight.gap, weight) for weight in difference.weights if weight.gap and weight.gap.max_abs),
        key=lambda row: (row[0].max_abs, row[0].finite_abs), reverse=True,
    )  # fmt: skip
    unlike = [
        f"{_both(weight.before, weight.after)}: {_shape(weight.shapes[0])} → {_shape(weight.shapes[1])}"
        for weight in difference.weights if not weight.loadable
    ]  # fmt: skip
    wild = [
        f"{_both(weight.before, weight.after)}: in {' and '.join(compress('AB', weight.not_finite))}"
        for weight in difference.weights if any(weight.not_finite)
    ]  # fmt: skip
    parts = (
        ("results", [_result(result) for result in difference.results if not result.same]),
        ("curves", _curves(difference.results)),
        ("layers", layers),
        ("the same under another name", renamed),
        ("settings", list(map(str, difference.spec.others))),
        ("weights that do not fit", unlike),
        ("weights that differ", [f"{_both(weight.before, weight.after)}: {gap}" for gap, weight in apart]),
        ("weights that are not finite", wild),
    )
    yield from ((title, lines) for title, lines in parts if lines)


def _result(result: ValueComparison) -> str:
    """One line: a loss or metric at the end, at its best, and at the last step that both runs have."""
    words = [_change(*result.last)]
    if result.best != (None, None):
        steps = " → ".join("-" if step is None else count(step) for step in result.best_steps)
        words.append(f"best {_change(*result.best)} at step {steps}")
    if result.at_equal_step is not None and result.at_equal_step[1:] != result.last:
        step, before, after = result.at_equal_step
        words.append(f"{_change(before, after)} at step {count(step)} of both")
    return f"{result.name}: {'; '.join(words)}"


def _curves(results: Sequence[ValueComparison]) -> list[str]:
    """A table of values at steps that both runs have: those of the loss or metric with the fewest values."""
    drawn = [result for result in results if len(result.curve) > 1 and not result.same]
    steps = [step for step, *_ in min((result.curve for result in drawn), key=len, default=())]
    if len(steps) > STEPS:
        steps = [steps[round(index * (len(steps) - 1) / (STEPS - 1))] for index in range(STEPS)]
    columns = [["step", *map(count, steps)]]
    for result in drawn:
        values = {step: _change(before, after) for step, before, after in result.curve}
        columns.append([result.name, *(values.get(step, "") for step in steps)])
    widths = [max(map(len, column)) for column in columns]
    rows = zip(*columns, strict=True) if drawn else ()
    return ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _change(before: float | None, after: float | None) -> str:
    return " → ".join("-" if value is None else f"{value:.5g}" for value in (before, after))


def _summary(difference: Difference) -> Iterator[str]:
    """Yield lines with counts, differences of outputs, and whether anything differs."""
    from netspec.tools.comparing.diff import SAMPLES

    fitting = sum(weight.loadable for weight in difference.weights)
    if difference.weights:
        yield f"{count(fitting)} of {count(len(difference.weights))} weights can be loaded from one into the other"
    if difference.outputs is not None:
        for name, gap in difference.outputs.gaps.items():
            yield f"output {name}: {gap}, on {SAMPLES} random samples"
    elif difference.why_not:
        yield f"outputs were not compared: {difference.why_not}"
    if difference.same:
        yield "no difference" if all(difference.weighed) else "no difference between the nets"
    elif difference.alike:
        yield f"no difference between the nets; {'A' if difference.weighed[0] else 'B'} alone has weights"


def _both(before: str | None, after: str | None) -> str:
    return f"{before} → {after}" if before and after and before != after else str(before or after)


def _shape(shape: tuple[int, ...] | None) -> str:
    return "-" if shape is None else str(list(shape))
