"""What `netspec export` and `netspec convert` tell of the files they wrote."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from netspec.cli.output import count, print_json, size

if TYPE_CHECKING:
    from netspec.cli.writing import Written
    from netspec.exchange.gaps import Gap
    from netspec.exchange.onnx_export import ExportReport
    from netspec.train.model import Model


def tell_written(written: Written, model: Model, *, as_json: bool) -> None:
    """Print what was written: as JSON, or for people."""
    from netspec.train.model import count_of

    counts = {"parameters": count_of(model.compiler, "parameter"), "statistics": count_of(model.compiler, "statistic")}
    if as_json:
        files = [str(file) for file in written.files]
        facts = _facts(written.report) if written.report else _gap_facts(written.difference)
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
        print(_told("read again, it computes", written.difference))


def _told(who: str, gap: Gap) -> str:
    """Whether what was compared is the same: where nothing is finite, that is all that can be said."""
    return f"{who} the same: {gap}" if gap.finite or not gap.size else f"{who} no finite number: {gap}"


def _gap_facts(gap: Gap | None) -> dict[str, Any]:
    if gap is None:
        return {"max_abs_difference": None, "comparison": None}
    return {"max_abs_difference": gap.max_abs if gap.finite else None, "comparison": asdict(gap)}


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
        "comparison": asdict(report.comparison.whole) if report.comparison else None,
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
        print(_told("onnxruntime computes", report.comparison.whole))
    if report.on_given:
        print(_told("on the samples given it computes", report.on_given.whole))
