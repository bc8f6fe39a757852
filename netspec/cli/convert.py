"""`netspec convert`: convert a model file to another format in one step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netspec.cli.app import CommandApp
from netspec.cli.options import (
    DYNAMIC,
    BatchOrDynamic,
    Json,
    Opset,
    Shapes,
    Values,
    batch_or_dynamic,
    shapes_of,
    values_of,
    writable,
)

app = CommandApp()


@app.add_command(
    "netspec convert model.onnx model.safetensors",
    "netspec convert runs/lenet_mnist lenet.onnx",
    "netspec convert model.onnx weights.h5 --shape data=3,224,224",
)
def convert(
    source: Annotated[str, typer.Argument(metavar="A", help="Read a net, training or model file, run or zoo model.")],
    target: Annotated[str, typer.Argument(metavar="B", help="Write this file; see the formats above.")],
    weights: Annotated[
        str | None, typer.Option("--weights", metavar="FILE", help="Load weights [default: those of A].")
    ] = None,
    shapes: Shapes = None,
    values: Values = None,
    batch_size: BatchOrDynamic = DYNAMIC,
    opset: Opset = None,
    as_json: Json = False,
) -> None:
    """Convert a model to another format, and compare both.

    Reads A like `netspec import` and writes B like `netspec export`. Lists everything that the import or the export
    does not support, and writes B only if it computes the same results as A.

    Formats by suffix: .onnx; .keras and .weights.h5 (Keras); .prototxt, .caffemodel and .caffemodel.h5 (Caffe);
    .safetensors; .npz (NumPy); .h5 (netspec's own).
    """
    batch, given_shapes, given_values = batch_or_dynamic(batch_size), shapes_of(shapes), values_of(values)
    path = writable(Path(target), "B")
    from netspec.cli.export import print_export
    from netspec.tools.exporting.export import convert as convert_model

    result = convert_model(
        source, path, weights=weights, shapes=given_shapes, values=given_values, batch_size=batch, opset=opset
    )
    print_export(result, as_json=as_json)
