"""`netspec predict`: the outputs of a net for arrays in a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import (
    Autotune,
    Device,
    ModelFile,
    Overrides,
    Threads,
    Weights,
    check_batch,
    find_weights,
    writable,
)
from netspec.cli.output import count, note_transforms
from netspec.errors import counted

app = command_app()


@app.command(
    cls=Plain,
    epilog=examples(
        "netspec predict runs/lenet_mnist --input digit.png --output logits.npz",
        "netspec predict train.yaml --weights weights.h5 --input rows.csv --output logits.npz",
        "netspec predict model.onnx --input images.npz --output logits.npz",
    ),
)
def predict(
    spec: ModelFile,
    overrides: Overrides = None,
    *,
    weights: Weights = None,
    input_file: Annotated[
        str,
        typer.Option(
            "--input",
            metavar="PATH",
            help="Read samples: .npz, table, image or folder.",
            show_default=False,
        ),
    ],
    output_file: Annotated[
        str,
        typer.Option(
            "--output",
            metavar="FILE.npz",
            help="Write the outputs to this file.",
            show_default=False,
        ),
    ],
    batch_size: Annotated[
        int | None, typer.Option(metavar="N", help="Compute N samples at a time [default: 256].")
    ] = None,
    device: Device = "auto",
    autotune: Autotune = None,
    threads: Threads = None,
) -> None:
    """Compute a net's outputs for the samples in a file.

    Arrays in an .npz file have the names of the net's inputs, and samples along the first axis. They go to the net as
    they are: the transforms of the training are not applied, but listed. With a training file or run directory, the
    input may also be a table, an image or a folder of images (in the order of their paths): these are prepared as in
    the training. Outputs are written as arrays by name.
    """
    check_batch(batch_size)
    target = writable(Path(output_file), "--output")
    from netspec.tools.model_inputs import is_model_file
    from netspec.tools.predict import predict as predict_samples

    if not is_model_file(Path(spec)):
        spec, weights = find_weights(spec, weights)

    result = predict_samples(
        spec, input_file, weights=weights, output=target, overrides=overrides or (), batch_size=batch_size,
        device=device, autotune=autotune,
    )  # fmt: skip
    if result.remark is not None:
        print(f"note: {result.remark}", file=sys.stderr)
    note_transforms(result.unapplied_transforms)
    for name, indices in result.non_finite().items():
        samples = f"{count(len(indices))} of {count(result.samples)} samples, the first at index {indices[0]}"
        print(f"warning: `{name}` is not finite (nan or inf) in {samples}", file=sys.stderr)
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in result.outputs.items())
    kind = "" if target.suffix == ".npz" else " (in NumPy's .npz format)"
    print(f"{counted(result.samples, 'sample')}: {shapes} in {target}{kind}")
