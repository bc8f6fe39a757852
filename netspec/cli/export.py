"""`netspec export`: a net and its weights as an ONNX model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import BatchOrOpen, Json, Opset, Overrides, Spec, Weights, batch_or_open, writable
from netspec.cli.output import count, print_json, size
from netspec.errors import InputError

if TYPE_CHECKING:
    from netspec.exchange.onnx_export import ExportReport

app = command_app()


@app.command(
    cls=Plain,
    epilog=examples(
        "netspec export net.yaml --weights weights.h5 --output model.onnx",
        "netspec export runs/lenet/spec.yaml --weights runs/lenet/best.h5 --output model.onnx --batch-size 1",
        "netspec export net.yaml --weights weights.h5 --output model.onnx --inputs images.npz --tolerance 1e-5",
    ),
)
def export(
    spec: Spec,
    overrides: Overrides = None,
    *,
    weights: Weights,
    output_file: Annotated[
        str, typer.Option("--output", metavar="FILE.onnx", help="The model to write.", show_default=False)
    ],
    batch_size: BatchOrOpen = "symbolic",
    opset: Opset = None,
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
    """Write a net with its weights as an ONNX model.

    The model is checked, run in onnxruntime and compared with the net itself, on random inputs and on those of
    --inputs; only a model that gives the same results is written. Transforms of the training are not part of it: they
    are listed, and recorded in its metadata.
    """
    batch = batch_or_open(batch_size)
    if tolerance is not None and not 0 < tolerance < math.inf:
        raise InputError("--tolerance is no bound", expected="a number above 0", got=str(tolerance))
    target = writable(Path(output_file), "--output")
    from netspec.cli.arrays import read_npz
    from netspec.cli.prepared import note_preparation
    from netspec.cli.specs import load_spec, net_of, precision_of
    from netspec.cli.verified import export_model
    from netspec.train.model import count_of, load

    found = load_spec(spec, overrides or ())
    precision = precision_of(found).computed  # a file holds numbers of the type they are computed in
    model = load(net_of(found), weights, precision=str(precision))
    preparation = model.preparation.in_training(found)
    given = read_npz(Path(inputs)) if inputs is not None else None
    report = export_model(model, target, preparation, batch=batch, opset=opset, given=given, tolerance=tolerance)
    counts = {"parameters": count_of(model.compiler, "parameter"), "statistics": count_of(model.compiler, "statistic")}
    if as_json:
        print_json(_facts(report, counts))
    else:
        _print(report, counts)
    note_preparation(model, preparation)


def _facts(report: ExportReport, counts: dict[str, int]) -> dict[str, Any]:
    return {
        "path": str(report.path),
        "opset": report.opset,
        "ir_version": report.ir_version,
        "nodes": report.nodes,
        **counts,
        "bytes": report.nbytes,
        "inputs": {name: list(dims) for name, dims in report.inputs.items()},
        "outputs": {name: list(dims) for name, dims in report.outputs.items()},
        "max_abs_difference": report.comparison.max_abs if report.comparison else None,
        "max_abs_difference_on_inputs": report.on_given.max_abs if report.on_given else None,
    }


def _print(report: ExportReport, counts: dict[str, int]) -> None:
    def shapes(named: Any) -> str:
        return ", ".join(
            f"{name} [{', '.join('?' if one is None else str(one) for one in dims)}]" for name, dims in named
        )

    print(f"{report.path}: ONNX opset {report.opset} (--opset writes another), {size(report.nbytes)}")
    statistics = f", {count(counts['statistics'])} moving statistics" if counts["statistics"] else ""
    print(f"{count(report.nodes)} nodes, {count(counts['parameters'])} parameters{statistics}")
    print(f"{shapes(report.inputs.items())} → {shapes(report.outputs.items())}")
    if report.comparison:
        print(f"onnxruntime computes the same: largest difference {report.comparison.worst:.2g}")
    if report.on_given:
        print(f"on the samples given too: largest difference {report.on_given.worst:.2g}")
