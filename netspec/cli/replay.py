"""`netspec replay`: repeat a training step that failed."""

from __future__ import annotations

from typing import Annotated

import typer

from netspec.cli import DONE, FAILED
from netspec.cli.app import CommandApp
from netspec.cli.options import Json, threads_option
from netspec.cli.output import count, print_json
from netspec.errors import counted

app = CommandApp()


@app.add_command(
    "netspec replay runs/lenet/capsule-00000012.h5",
    "netspec replay runs/lenet/capsule-00000012.h5 --device reference --json",
)
def replay(
    capsule: Annotated[
        str, typer.Argument(metavar="CAPSULE", help="Repeat the step in this file from a run directory.")
    ],
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Use one of `netspec devices` [default: the run's].")
    ] = None,
    threads: Annotated[int | None, threads_option("the run's")] = None,
    as_json: Json = False,
) -> int:
    """Repeat a failed training step, and find its cause.

    A run whose loss or gradient becomes NaN or infinite writes a capsule to its run directory: a file with the spec,
    the batch, all weights before the step, the random number key, and the environment. This command repeats the step
    with the device and the number of threads of the run, reports whether all results are bit-identical to those of
    the run, and names the first operation whose result is not finite, with the ranges of its operands.

    The exit status is 1 if results differ although machine, versions, threads and device are those of the run, and the
    kernels are deterministic.
    """
    from netspec.tools.reproducibility.replay import replay as replay_step

    result = replay_step(capsule, device=device)
    status = DONE if result.identical or result.differences or not result.deterministic else FAILED
    if as_json:
        print_json(result.as_json())
        return status
    loss = "" if result.loss is None else f", loss {result.loss:.6g}"
    same = "bit-identical to the run" if result.identical else "not bit-identical to the run"
    print(f"step {count(result.step)} with {counted(len(result.samples), 'sample')}{loss}")
    print(f"{counted(result.results, 'result')} compared: {same}")
    for name, (then, now) in result.differences.items():
        print(f"  {name}: {now} instead of {then}")
    if not result.identical and not result.deterministic:
        print("  `compile: {deterministic: false}` allows kernels that add in another order each time")
    print(f"\n{result.message}")
    if result.origin is not None:
        print(f"  at {result.origin}")
    if result.bad is not None:
        print(f"  operation: {result.bad.node.op.name} ({result.bad.scope.phase})")
        for title, tensors in (("operand", result.bad.operands), ("result", result.bad.results)):
            for tensor in tensors:
                print(f"  {title}: {tensor}")
    print(f"  hint: {result.hint}")
    return status
