"""What `netspec export` and `netspec convert` tell of the files they wrote."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from netspec.cli.output import count, print_json, size

if TYPE_CHECKING:
    from netspec.cli.writing import Written
    from netspec.exchange.onnx_export import ExportReport
    from netspec.train.model import Model


def tell_written(written: Written, model: Model, *, as_json: bool) -> None:
    """Print what was written: as JSON, or for people."""
    from netspec.train.model import count_of

    counts = {"parameters": count_of(model.compiler, "parameter"), "statistics": count_of(model.compiler, "statistic")}
    if as_json:
        files = [str(file) for file in written.files]
        facts = _facts(written.report) if written.report else {"max_abs_difference": written.difference}
        print_json({"path": files[0], "files": files, "format": written.format, **counts, **facts,
                    "notes": list(written.notes)})  # fmt: skip
        return
    for note in written.notes:
        print(f"note: {note}", file=sys.stderr)
    statistics = f", {count(counts['statistics'])} moving statistics" if counts["statistics"] else ""
    told = f"{count(counts['parameters'])} parameters{statistics}"
    if written.report:
        _tell_onnx(written.report, told)
        return
    for file in written.files:
        print(f"{file}: {written.format}, {size(file.stat().st_size)}")
    print(told)
    if written.difference is not None:
        print(f"read again, it computes the same: largest difference {written.difference:.2g}")


def _facts(report: ExportReport) -> dict[str, Any]:
    return {
        "opset": report.opset,
        "ir_version": report.ir_version,
        "nodes": report.nodes,
        "bytes": report.nbytes,
        "inputs": {name: list(dims) for name, dims in report.inputs.items()},
        "outputs": {name: list(dims) for name, dims in report.outputs.items()},
        "max_abs_difference": report.comparison.max_abs if report.comparison else None,
        "max_abs_difference_on_inputs": report.on_given.max_abs if report.on_given else None,
    }


def _tell_onnx(report: ExportReport, told: str) -> None:
    def shapes(named: Any) -> str:
        return ", ".join(
            f"{name} [{', '.join('?' if one is None else str(one) for one in dims)}]" for name, dims in named
        )

    print(f"{report.path}: ONNX opset {report.opset} (--opset writes another), {size(report.nbytes)}")
    print(f"{count(report.nodes)} nodes, {told}")
    print(f"{shapes(report.inputs.items())} → {shapes(report.outputs.items())}")
    if report.comparison:
        print(f"onnxruntime computes the same: largest difference {report.comparison.worst:.2g}")
    if report.on_given:
        print(f"on the samples given too: largest difference {report.on_given.worst:.2g}")
