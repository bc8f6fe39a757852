"""ONNX model of the single-step net: takes a token and the states of a recurrent language model, returns new states."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec import __version__
from netspec.compile import ProgramKind
from netspec.exchange.formats.onnx.exporting import ExportReport, export_verified
from netspec.exchange.formats.onnx.verify import TOLERANCE
from netspec.training.generation.language_model import StepNet

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEP_MODEL = "step.onnx"
"""Name of the file in the folder of an exported model."""


def write_step_model(
    net: StepNet, path: Path, *, batch: int | None, opset: int | None, tolerance: float | None
) -> ExportReport:
    """Write the single-step net as an ONNX model, compared with the net in onnxruntime.

    Raises `InputError` if the net has no ONNX form, `RunError` if the results differ.
    """
    compiler = net.compiler

    def predict(inputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        return compiler.program(ProgramKind.PREDICT, len(next(iter(inputs.values()))))(inputs)

    return export_verified(
        lambda size: compiler.graph(ProgramKind.PREDICT, size),
        compiler.weights(),
        path,
        predict,
        domains=compiler.domains,
        tolerance=TOLERANCE if tolerance is None else tolerance,
        batch=batch,
        opset=opset,
        name=compiler.spec.name,
        metadata={"netspec_version": __version__},
    )
