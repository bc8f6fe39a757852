"""A model into a file of any format that is written: by its name's suffix, compared with the net before it is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netspec.cli.comparing import compare_models
from netspec.cli.opened import open_any
from netspec.cli.options import TRAINING
from netspec.cli.verified import export_model
from netspec.compile import Purpose
from netspec.errors import InputError, RunError
from netspec.exchange.files import staging, sync_folder
from netspec.exchange.formats import (
    ONNX,
    OWN,
    Exportable,
    ExportOptions,
    Format,
    check_options,
    format_of,
    format_to_write,
)
from netspec.exchange.gaps import Gap
from netspec.exchange.hdf5 import CHECKPOINT, CheckpointFile, read_checkpoint
from netspec.exchange.hdf5_read import read_block
from netspec.exchange.imported import ImportOptions, notes_of_not_finite
from netspec.exchange.onnx_export import ExportReport
from netspec.exchange.onnx_verify import TOLERANCE
from netspec.graph.ops.random import RNG_INPUT
from netspec.schema.load import load_train
from netspec.schema.net import NetSpec
from netspec.schema.reader import parse_yaml
from netspec.schema.train import TrainSpec
from netspec.train.model import Model
from netspec.train.preparation import Preparation

SLOT = "slot"


@dataclass(frozen=True)
class Written:
    """What was written."""

    files: tuple[Path, ...]
    format: str
    notes: tuple[str, ...] = ()
    report: ExportReport | None = None
    """Of an ONNX model."""
    difference: Gap | None = None
    """How far the results of the file, read again, are from the net's own; None where they were not compared."""


def write_model(
    model: Model,
    spec: NetSpec | TrainSpec,
    target: Path,
    preparation: Preparation,
    *,
    checkpoint: CheckpointFile | None = None,
    batch: int | None = None,
    opset: int | None = None,
    form: str | None = None,
    given: Mapping[str, Any] | None = None,
    tolerance: float | None = None,
    notes: Sequence[str] = (),
) -> Written:
    """Write a model as `target` says by its suffix.

    An ONNX model is compared in onnxruntime, others are read back and computed by netspec. `checkpoint` is what the
    weights come from, for formats that hold a solver's state; `notes` are told with those of the writer.
    Raises `InputError` where the format can't say the net, `RunError` where results differ; then nothing is written.
    """
    notes = tuple(dict.fromkeys([*notes, *notes_of_not_finite(model.parameters)]))  # results are as little comparable
    chosen = format_to_write(target)
    check_options(chosen, ExportOptions(batch, opset, form))
    if chosen.name != ONNX and given is not None:
        raise InputError("--inputs is of the comparison in onnxruntime", expected="a name that ends in .onnx")
    if chosen.name == ONNX:
        report = export_model(
            model, target, preparation, batch=batch, opset=opset, training=form == TRAINING, given=given,
            tolerance=tolerance,
        )  # fmt: skip
        files = (target,) if report.data is None else (target, report.data)
        drawn = form == TRAINING and RNG_INPUT in model.compiler.graph(Purpose.FORWARD, 1).inputs()
        told = [*notes, *(["what Dropout draws was left out where results were compared"] if drawn else [])]
        return Written(files, chosen.name, tuple(told), report)
    made = _exportable(model, spec, preparation, checkpoint)
    try:
        with staging(target) as staged:
            told = [*notes, *chosen.writes(staged / target.name, made)]
            written = sorted(staged.iterdir())
            difference, why_not = _read_back(
                model, chosen, staged / target.name, TOLERANCE if tolerance is None else tolerance
            )
            for file in written:
                file.replace(target.with_name(file.name))
            sync_folder(target.absolute().parent)
    except OSError as error:
        raise RunError(f"cannot write {target}", got=error.strerror or str(error)) from error
    if why_not:
        told.append(f"the results were not compared: {why_not}")
    return Written(
        tuple(target.with_name(one.name) for one in written), chosen.name, tuple(told), difference=difference
    )


def checkpoint_in(path: str | Path | None) -> CheckpointFile | None:
    """The checkpoint in a file; None where it is something else."""
    if path is None or format_of(path).name != OWN or read_block(path, CHECKPOINT).kind != "checkpoint":
        return None
    return read_checkpoint(path)


def _exportable(
    model: Model, spec: NetSpec | TrainSpec, preparation: Preparation, checkpoint: CheckpointFile | None
) -> Exportable:
    slots: dict[str, Any] = {}
    step = 0
    if checkpoint is not None:
        slots = {name: array for name, array in checkpoint.states.items() if checkpoint.roles[name] == SLOT}
        step = int(checkpoint.progress.get("step", 0))
    return Exportable(
        model.spec,
        dict(model.parameters),
        lambda size: model.compiler.graph(Purpose.PREDICT, size),
        spec if isinstance(spec, TrainSpec) else _training_in(checkpoint),
        slots,
        step,
        preparation.as_meta(),
    )


def _training_in(checkpoint: CheckpointFile | None) -> TrainSpec | None:
    """The training that a checkpoint is of; None where it says none that can be read here."""
    if checkpoint is None:
        return None
    try:
        return load_train(parse_yaml(checkpoint.spec, "the training in the checkpoint"))
    except InputError:  # of parts that are not here: the net and its weights go all the same
        return None


def _read_back(model: Model, chosen: Format, path: Path, tolerance: float) -> tuple[Gap | None, str]:
    """How far the net is from what the file says, or why that can't be known."""
    if not chosen.read:
        return None, f"{chosen.name} files do not say the net"
    source, weights = chosen.parts_of(path)
    try:
        again = open_any(source, options=ImportOptions(weights=weights)).model
    except InputError as error:  # what the other program has may have no counterpart here
        return None, f"it can't be read again: {error.problems[0].message}"
    found, why_not = compare_models(model, again)
    if found is None:
        return None, why_not
    gap = found.whole
    if not gap.scaled <= tolerance:
        raise RunError(
            f"the {chosen.name} file, read again, does not compute what the net computes",
            expected=f"at most {tolerance:g} apart", got=gap.relative,
            hint="nothing was written; please report it with the net",
        )  # fmt: skip
    return gap, ""
