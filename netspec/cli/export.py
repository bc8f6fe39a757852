"""`netspec export`: a net and its weights as a model of another program."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.given import spec_and_weights
from netspec.cli.options import (
    SUFFIXES,
    BatchOrOpen,
    Form,
    Json,
    Opset,
    Overrides,
    SpecOrRun,
    Weights,
    batch_or_open,
    form_of,
    writable,
)
from netspec.errors import InputError

app = command_app()


@app.command(
    cls=Plain,
    epilog=examples(
        "netspec export runs/lenet_mnist --output model.onnx",
        "netspec export net.yaml --weights weights.h5 --output model.onnx",
        "netspec export runs/lenet/spec.yaml --weights runs/lenet/best.h5 --output model.onnx --batch-size 1",
        "netspec export net.yaml --weights weights.h5 --output model.onnx --inputs images.npz --tolerance 1e-5",
        "netspec export net.yaml --weights weights.h5 --output model.onnx --form training",
        "netspec export net.yaml --weights weights.h5 --output model.keras",
        "netspec export train.yaml --weights runs/lenet/checkpoints/step-00001000.h5 --output lenet.caffemodel",
    ),
)
def export(
    spec: SpecOrRun,
    overrides: Overrides = None,
    *,
    weights: Weights = None,
    output_file: Annotated[
        str,
        typer.Option(
            "--output",
            metavar="FILE",
            help=f"The file to write; its suffix says the format: {SUFFIXES}.",
            show_default=False,
        ),
    ],
    batch_size: BatchOrOpen = "symbolic",
    opset: Opset = None,
    form: Form = "inference",
    inputs: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.npz",
            help="Samples to compare the model on, beside random ones: arrays named as the net's inputs.",
            show_default=False,
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Largest difference from the net's own results, relative to the largest magnitude of an output or to "
            "1. Default: 0.0001.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a net with weights for ONNX, Keras, Caffe, others.

    An ONNX model is checked, run in onnxruntime and compared with the net itself, on random inputs and on those of
    --inputs; files of other formats are read again and compared, unless what is read takes other inputs, which is
    said. What gives other results is not written.
    With --form training it is the net as it is in training, which other programs train on from there: Dropout drops,
    BatchNormalization takes mean and variance of the batch, losses and new moving averages are outputs.
    Transforms of the training are not part of it: they are listed, and recorded where the format can.
    """
    spec, weights = spec_and_weights(spec, weights)
    batch, wanted = batch_or_open(batch_size), form_of(form)
    if tolerance is not None and not 0 < tolerance < math.inf:
        raise InputError("--tolerance is no bound", expected="a number above 0", got=str(tolerance))
    target = writable(Path(output_file), "--output")
    from netspec.cli.arrays import read_npz
    from netspec.cli.prepared import note_preparation
    from netspec.cli.specs import load_spec, net_of, precision_of
    from netspec.cli.writing import checkpoint_in, write_model
    from netspec.cli.written import tell_written
    from netspec.exchange.formats import format_to_write
    from netspec.train.model import load

    format_to_write(target)  # before anything is compiled
    found = load_spec(spec, overrides or ())
    precision = precision_of(found).computed  # a file holds numbers of the type they are computed in
    model = load(net_of(found), weights, device="cpu", precision=str(precision))
    preparation = model.preparation.in_training(found)
    given = read_npz(Path(inputs)) if inputs is not None else None
    written = write_model(
        model, found, target, preparation, checkpoint=checkpoint_in(weights), batch=batch, opset=opset, form=wanted,
        given=given, tolerance=tolerance,
    )  # fmt: skip
    tell_written(written, model, as_json=as_json)
    note_preparation(model, preparation)
