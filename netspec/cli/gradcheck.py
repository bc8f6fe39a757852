"""`netspec gradcheck`: compare the gradients of a net with finite differences."""

from __future__ import annotations

from typing import Annotated

import typer

from netspec.cli import DONE, FAILED
from netspec.cli.app import CommandApp
from netspec.cli.options import Json, NetModel, Overrides, Threads
from netspec.cli.output import print_json, table
from netspec.errors import counted

app = CommandApp()


@app.add_command(
    "netspec gradcheck net.yaml",
    "netspec gradcheck train.yaml --batch-size 8 --elements 10",
    "netspec gradcheck train.yaml --weights runs/lenet/best.h5 --json",
)
def gradcheck(
    spec: NetModel,
    overrides: Overrides = None,
    weights: Annotated[str | None, typer.Option(metavar="FILE", help="Load weights [default: initial ones].")] = None,
    batch_size: Annotated[int, typer.Option(metavar="N", help="Use N samples.")] = 4,
    elements: Annotated[int, typer.Option(metavar="N", help="Check N elements of each tensor.")] = 4,
    tolerance: Annotated[float, typer.Option(metavar="X", help="Accept relative errors of X.")] = 1e-4,
    threads: Threads = None,
    as_json: Json = False,
) -> int:
    """Compare the gradients of a net with finite differences.

    For each parameter and each floating-point input, compares derivatives of the loss with central differences, in
    float64 on the reference backend: the derivative along a random direction, and those with respect to a few elements.
    The batch is the first of the training data, or random if there is none. A derivative at a kink of the loss, such as
    a ReLU at 0 or a tied maximum, is counted, but not as a failure. In large nets, only some of the elements and
    tensors are checked.

    The exit status is 1 if a gradient is wrong.
    """
    from netspec.tools.checking.gradient_check import gradcheck as check_gradients

    result = check_gradients(
        spec, overrides=overrides or [], weights=weights, batch_size=batch_size, elements=elements, tolerance=tolerance
    )
    status = FAILED if result.failed else DONE
    if as_json:
        print_json(result.as_json())
        return status
    print(f"{result.name}: loss {result.loss:.6g} of {counted(result.batch_size, 'sample')}, {result.data}")
    rows = [
        [tensor.name, str(list(tensor.shape)), str(tensor.checked), f"{tensor.error:.1e}",
         tensor.result + (f" ({counted(tensor.kinks, 'kink')})" if tensor.kinks else ""), tensor.cause]
        for tensor in result.tensors
    ]  # fmt: skip
    table(["tensor", "shape", "checked", "relative error", "result", ""], rows, right=(2, 3))
    if result.sampled:
        print(f"checked: {result.sampled}")
    if result.suspect is not None:
        print(result.suspect)
    wrong = f"{len(result.failed)} of {counted(len(result.tensors), 'gradient')} wrong"
    print(f"{wrong if result.failed else 'all gradients agree'} (tolerance {result.tolerance:g})")
    return status
