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
    Overrides,
    SpecOrRun,
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
        "netspec predict net.yaml --weights weights.h5 --input images.npz --output logits.npz",
        "netspec predict train.yaml --weights weights.h5 --input rows.csv --output logits.npz",
        "netspec predict runs/lenet_mnist --input digit.png --output logits.npz",
    ),
)
def predict(
    spec: SpecOrRun,
    overrides: Overrides = None,
    *,
    weights: Weights = None,
    input_file: Annotated[
        str,
        typer.Option(
            "--input",
            metavar="PATH",
            help=(
                "Read arrays (.npz) named like the net's inputs, with samples along the first axis; or, for "
                "a training file, data of its kind: a table, an image, a folder of images."
            ),
            show_default=False,
        ),
    ],
    output_file: Annotated[
        str,
        typer.Option(
            "--output",
            metavar="FILE.npz",
            help="Write the outputs to this file, as arrays named like the net's outputs.",
            show_default=False,
        ),
    ],
    batch_size: Annotated[
        int | None, typer.Option(metavar="N", help="Compute N samples at a time; the results don't depend on it.")
    ] = None,
    device: Device = "auto",
    autotune: Autotune = None,
    threads: Threads = None,
) -> None:
    """Compute a net's outputs for the samples in a file.

    Arrays (.npz) are passed to the net directly: no transform is applied, and those of the training are listed. Rows of
    a table and images are prepared as in the training, with the vocabularies and figures that are saved with the
    weights; images of a folder are the samples in the order of their paths.
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
        which = f"{count(len(indices))} of {count(result.samples)} samples, the first at index {indices[0]}"
        print(f"warning: `{name}` is not finite (nan or inf) in {which}", file=sys.stderr)
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in result.outputs.items())
    kind = "" if target.suffix == ".npz" else " (in NumPy's .npz format)"
    print(f"{counted(result.samples, 'sample')}: {shapes} in {target}{kind}")
