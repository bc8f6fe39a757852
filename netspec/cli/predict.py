"""`netspec predict`: the outputs of a net for arrays in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import Device, Overrides, Spec, Weights, check_batch, writable
from netspec.cli.output import count

app = command_app()


@app.command(
    cls=Plain,
    epilog=examples("netspec predict net.yaml --weights weights.h5 --input images.npz --output logits.npz"),
)
def predict(
    spec: Spec,
    overrides: Overrides = None,
    *,
    weights: Weights,
    input_file: Annotated[
        str,
        typer.Option(
            "--input",
            metavar="FILE.npz",
            help="Arrays named as the net's inputs, the samples along their first axis.",
            show_default=False,
        ),
    ],
    output_file: Annotated[
        str,
        typer.Option("--output", metavar="FILE.npz", help="Arrays named as the net's outputs.", show_default=False),
    ],
    batch_size: Annotated[
        int | None, typer.Option(metavar="N", help="Samples computed at a time; the results don't depend on it.")
    ] = None,
    device: Device = "auto",
) -> None:
    """Compute a net's outputs for the arrays in an .npz file.

    No transform is applied: the arrays are what the net itself takes.
    """
    check_batch(batch_size)
    target = writable(Path(output_file), "--output")
    from netspec.cli.arrays import read_npz, write_npz
    from netspec.cli.specs import read_net
    from netspec.train.model import load

    net, dtype = read_net(spec, overrides or ())
    model = load(net, weights, device=device, precision=str(dtype))
    outputs = model.predict(read_npz(Path(input_file)), batch_size)
    write_npz(target, outputs)
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in outputs.items())
    samples = len(next(iter(outputs.values())))
    print(f"{count(samples)} samples: {shapes} in {target}")
