"""`netspec predict`: the outputs of a net for arrays in a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.given import spec_and_weights
from netspec.cli.options import Autotune, Device, Overrides, SpecOrRun, Threads, Weights, check_batch, writable
from netspec.cli.output import count
from netspec.errors import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
            help="Arrays (.npz) named as the net's inputs, the samples along their first axis; or, where the spec is a "
            "training, data of its kind: a table, an image, a folder of images.",
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
    autotune: Autotune = None,
    threads: Threads = None,
) -> None:
    """Compute a net's outputs for the samples in a file.

    Arrays (.npz) are what the net itself takes: no transform is applied, and those of the training are listed. Rows of
    a table and images are prepared as in the training, with the vocabularies and figures that are saved with the
    weights; images of a folder are the samples in the order of their paths.
    """
    check_batch(batch_size)
    spec, weights = spec_and_weights(spec, weights)
    target = writable(Path(output_file), "--output")
    from netspec.cli.arrays import read_npz
    from netspec.cli.prepared import note_preparation
    from netspec.cli.specs import autotune_of, deterministic_of, load_spec, net_of, precision_of, rounding_of
    from netspec.exchange.npz import write_npz
    from netspec.schema.train import TrainSpec
    from netspec.train.model import load
    from netspec.train.rows import predict_file

    found = load_spec(spec, overrides or ())
    model = load(
        net_of(found),
        weights,
        device=device,
        precision=str(precision_of(found)),
        autotune=autotune or autotune_of(found),
        rounding=rounding_of(found),
        deterministic=deterministic_of(found),
    )
    if model.compiler.device.remark is not None:
        print(f"note: {model.compiler.device.remark}", file=sys.stderr)
    given = Path(input_file)
    if isinstance(found, TrainSpec) and given.suffix != ".npz":
        outputs = predict_file(model, found, given, batch_size)
        write_npz(target, outputs)
    else:
        outputs = model.predict(read_npz(given), batch_size)
        write_npz(target, outputs)
        note_preparation(model, model.preparation.in_training(found))
    for name, array in outputs.items():
        _warn_of_not_finite(name, array)
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in outputs.items())
    samples = len(next(iter(outputs.values())))
    kind = "" if target.suffix == ".npz" else " (in NumPy's .npz format)"
    print(f"{counted(samples, 'sample')}: {shapes} in {target}{kind}")


def _warn_of_not_finite(name: str, array: NDArray[Any]) -> None:
    import numpy as np

    bad = ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
    if bad.any():
        which = f"{count(int(bad.sum()))} of {count(len(bad))} samples, the first at index {int(bad.argmax())}"
        print(f"warning: `{name}` is not finite (nan or inf) in {which}", file=sys.stderr)
