"""`netspec export`: write a net and its weights as a model of another program."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netspec.cli.app import CommandApp
from netspec.cli.options import (
    DYNAMIC,
    BatchOrDynamic,
    Form,
    Json,
    NetModel,
    Opset,
    Overrides,
    Weights,
    batch_or_dynamic,
    find_weights,
    writable,
)
from netspec.cli.output import count, note_transforms, print_json, size

if TYPE_CHECKING:
    from netspec.exchange.formats.onnx.exporting import ExportReport
    from netspec.exchange.numeric_diff import Gap
    from netspec.tools.exporting.export import ExportResult

app = CommandApp()


@app.add_command(
    "netspec export runs/lenet_mnist --output deployed/",
    "netspec export runs/lenet_mnist --output model.onnx",
    "netspec export net.yaml --weights weights.h5 --output model.onnx",
    "netspec export runs/lenet_mnist --output model.onnx --without-preprocessing",
    "netspec export runs/lenet_mnist --output model.keras",
    "netspec export net.yaml --weights weights.h5 --output model.onnx --form training",
)
def export(
    spec: NetModel,
    overrides: Overrides = None,
    *,
    weights: Weights = None,
    output_file: Annotated[str, typer.Option("--output", metavar="PATH", help="Write this file or folder.")],
    batch_size: BatchOrDynamic = DYNAMIC,
    opset: Opset = None,
    form: Form = "inference",
    inputs: Annotated[
        str | None, typer.Option(metavar="FILE.npz", help="Compare results on these samples too.")
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(metavar="X", help="Accept relative errors of X [default: 1e-4].")
    ] = None,
    with_preprocessing: Annotated[
        bool | None,
        typer.Option(
            "--with-preprocessing/--without-preprocessing", help="Include transforms and probabilities (ONNX)."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Export a model as ONNX, Keras, Caffe, safetensors or npz.

    Formats by suffix: .onnx; .keras and .weights.h5 (Keras); .prototxt, .caffemodel and .caffemodel.h5 (Caffe);
    .safetensors; .npz (NumPy); .h5 (netspec's own). A folder gets model.onnx, a description of the model (README.md),
    and a script that runs it in ONNX Runtime (run.py).

    Runs the exported model, or imports it again, and compares its results with those of the net on random inputs, and
    on the arrays in --inputs, which have the names of the net's inputs. Does not write a model whose results differ by
    more than --tolerance, relative to an output's largest magnitude. With a dynamic batch size, an ONNX model accepts
    any number of samples.

    By default, the ONNX model of a run contains the preprocessing if ONNX can express every step: it takes raw samples,
    such as images of any size or columns of a table, and returns probabilities, values or boxes. It is compared with
    `netspec predict` on samples of the test data. In a folder, or with --with-preprocessing, it contains as many steps
    as possible, and the others are listed. Other formats, and models that are written with --without-preprocessing,
    take transformed inputs: the transforms are listed, and recorded if the format allows it.

    With --form training, the ONNX model has training behavior: Dropout is active, BatchNormalization uses the mean and
    variance of the batch, and losses and new moving averages are outputs.
    """
    batch, target = batch_or_dynamic(batch_size), Path(output_file)
    from netspec.exchange.files import is_folder_path
    from netspec.tools.exporting.export import export as export_net

    if not is_folder_path(target):
        writable(target, "--output")

    spec, weights = find_weights(spec, weights)
    result = export_net(
        spec, target, weights=weights, overrides=overrides or (), batch_size=batch, opset=opset, form=form,
        inputs=inputs, tolerance=tolerance, with_preprocessing=with_preprocessing,
    )  # fmt: skip
    print_export(result, as_json=as_json)


def print_export(result: ExportResult, *, as_json: bool) -> None:
    """Print the files written by `netspec export` or `netspec convert`, and how their results compare."""
    counts = {"parameters": result.parameters, "statistics": result.statistics}
    if as_json:
        files = [str(file) for file in result.files]
        facts = _onnx_facts(result.report) if result.report else _comparison(result.difference)
        print_json({"path": files[0], "files": files, "format": result.format, **counts, **facts,
                    "notes": list(result.notes), "left_out": list(result.left_out)})  # fmt: skip
    else:
        _print_files(result)
    note_transforms(result.transforms)
    if result.left_out:
        print("note: the model does not contain:", file=sys.stderr)
        print("".join(f"  {line}\n" for line in result.left_out), end="", file=sys.stderr)


def _print_files(result: ExportResult) -> None:
    from netspec.exchange.notes import summarized

    for note in summarized(result.notes):
        print(f"note: {note}", file=sys.stderr)
    statistics = f", {count(result.statistics)} moving statistics" if result.statistics else ""
    counts = f"{count(result.parameters)} parameters{statistics}"
    if result.report:
        _print_onnx(result, result.report, counts)
        return
    for file in result.files:
        print(f"{file}: {result.format}, {size(file.stat().st_size)}")
    print(counts)
    if result.difference is not None:
        print(_agreement("the file, read back,", result.difference))


def _agreement(subject: str, gap: Gap) -> str:
    """Report whether results agree; without finite elements nothing else can be reported."""
    results = "the same results" if gap.finite or not gap.size else "no finite value"
    return f"{subject} gives {results}: {gap}"


def _comparison(gap: Gap | None) -> dict[str, Any]:
    if gap is None:
        return {"max_abs_difference": None, "comparison": None}
    return {"max_abs_difference": gap.max_abs if gap.finite else None, "comparison": asdict(gap)}


def _onnx_facts(report: ExportReport) -> dict[str, Any]:
    return {
        "opset": report.opset,
        "ir_version": report.ir_version,
        "nodes": report.nodes,
        "bytes": report.nbytes,
        "inputs": {name: list(dims) for name, dims in report.inputs.items()},
        "outputs": {name: list(dims) for name, dims in report.outputs.items()},
        "max_abs_difference": report.comparison.max_abs if report.comparison else None,
        "max_abs_difference_on_inputs": report.on_user_inputs.max_abs if report.on_user_inputs else None,
        "comparison": asdict(report.comparison.whole) if report.comparison else None,
    }


def _print_onnx(result: ExportResult, report: ExportReport, counts: str) -> None:
    def shapes(named: Any) -> str:
        return ", ".join(
            f"{name} [{', '.join('?' if dim is None else str(dim) for dim in dims)}]" for name, dims in named
        )

    print(f"{report.path}: ONNX opset {report.opset} (--opset selects a different one), {size(report.nbytes)}")
    print(f"{count(report.nodes)} nodes, {counts}")
    print(f"{shapes(report.inputs.items())} → {shapes(report.outputs.items())}")
    if result.deployed is not None:
        print(f"in the model: {', '.join(result.deployed.steps) or 'no transforms'}")
    if report.comparison:
        print(_agreement("on random inputs, onnxruntime", report.comparison.whole))
    if report.on_user_inputs:
        samples = "your samples"
        if result.deployed is not None:
            samples = f"{count(result.deployed.sample_count)} samples of the data"
        print(_agreement(f"on {samples}, onnxruntime", report.on_user_inputs.whole))
    written = [str(file) for file in result.files if file.suffix in (".md", ".py")]
    if written:
        print(f"{' and '.join(written)} describe and run the model")
