"""`netspec train --overfit N`: train on a few samples until the net has memorized them."""

from __future__ import annotations

from netspec.cli import DONE, FAILED
from netspec.cli.output import count, print_json, table
from netspec.errors import command, counted

ROWS = 10
"""Number of rows of the table."""


def overfit(spec: str, overrides: list[str], samples: int, *, weights: str | None, device: str, as_json: bool) -> int:
    """Run the test, and print the losses and the result; return the exit status."""
    from netspec.tools.checking.overfit import overfit as memorize

    result = memorize(spec, samples, overrides=overrides, weights=weights, device=device)
    status = DONE if result.learned else FAILED
    if as_json:
        print_json(result.as_json())
        return status
    passes = len(result.losses)
    shown = sorted({round(index * (passes - 1) / (ROWS - 1)) for index in range(ROWS)})
    table(["epoch", "loss"], [[count(index + 1), f"{result.losses[index]:.5f}"] for index in shown], right=(0, 1))
    accuracy = "" if result.accuracy is None else f", accuracy {result.accuracy:.3f}"
    verdict = "learned" if result.learned else "did not learn"
    print(f"\n{result.name} {verdict} {counted(result.samples, 'sample')} in {counted(passes, 'epoch')}{accuracy}")
    if result.learned:
        print(f"nothing was written\n\nnext:\n  {command('train', spec, *overrides)}")
    else:
        print("likely reasons:\n" + "\n".join(f"  - {cause}" for cause in result.causes))
        print("nothing was written")
    return status
