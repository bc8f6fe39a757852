"""Export a model to a file of any writable format, and compare the file with the model before it is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec import __version__
from netspec.backends.program import Program
from netspec.compile import NEW, Compiler, ProgramKind, make_plan
from netspec.errors import InputError, RunError
from netspec.exchange.files import is_folder_path, staging, sync_folder
from netspec.exchange.formats.native.hdf5 import CHECKPOINT, CheckpointFile, read_checkpoint
from netspec.exchange.formats.native.hdf5_file import read_block
from netspec.exchange.formats.onnx.exporting import ExportReport, export_verified
from netspec.exchange.formats.onnx.metadata import CLASSES, FUNCTIONS, TRANSFORMS
from netspec.exchange.formats.onnx.verify import TOLERANCE
from netspec.exchange.formats.registry import (
    ONNX,
    OWN,
    Exportable,
    ExportOptions,
    Format,
    check_options,
    format_of,
    format_to_write,
)
from netspec.exchange.interface import ImportOptions, notes_of_not_finite
from netspec.exchange.numeric_diff import Gap
from netspec.graph.graph import Graph
from netspec.graph.ops.random import RNG_INPUT
from netspec.schema.language.provenance import canonical_yaml, spec_sha256
from netspec.schema.load import Overrides, Source, load_train
from netspec.schema.plain_json import json_text
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec
from netspec.schema.yaml.reader import parse_yaml
from netspec.tools.checking.check import TRAINING, check_form
from netspec.tools.comparing.diff import compare_models
from netspec.tools.exporting.column_encodings import (
    columns_of,
    describe_encodings,
    describe_restored,
    encodings_as_json,
    restored_outputs,
    tokenizers_of,
)
from netspec.tools.exporting.deployed_model import DeployedModel, deployed_model
from netspec.tools.exporting.model_card import MODEL, check_folder, write_card
from netspec.tools.model_inputs import import_options, open_any, read_npz, spec_and_weights, unapplied_transforms
from netspec.tools.specs import load_spec, net_of, precision_of
from netspec.training.inference.decoding import decoders_of
from netspec.training.inference.inputs import check_inputs
from netspec.training.inference.model import Model, count_elements, load
from netspec.training.preprocessing import PreprocessingRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray


SLOT = "slot"


@dataclass(frozen=True)
class ExportResult:
    """The files of an exported model."""

    files: tuple[Path, ...]
    """The files written; the first is the one asked for."""
    format: str
    """Name of the format, such as `onnx`."""
    parameters: int
    """Number of elements of all parameters."""
    statistics: int
    """Number of elements of all moving statistics."""
    notes: tuple[str, ...] = ()
    """Parts that the file cannot hold, and other remarks."""
    report: ExportReport | None = None
    """Details of an ONNX model."""
    difference: Gap | None = None
    """Difference between the results of the file, read back, and of the model; None if they were not compared."""
    transforms: tuple[str, ...] = ()
    """Transforms of the training that the exported model does not contain, each as a line."""
    deployed: DeployedModel | None = None
    """The model with preprocessing that was written; None if the file contains the net alone."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """Return the steps and checks that a model with preprocessing does not contain, each as a line."""
        return () if self.deployed is None else (*self.deployed.left_out, *self.deployed.remarks)


def export(
    source: Source,
    path: str | Path,
    *,
    weights: str | Path | None = None,
    overrides: Overrides = (),
    batch_size: int | None = None,
    opset: int | None = None,
    form: str = "inference",
    inputs: str | Path | Mapping[str, Any] | None = None,
    tolerance: float | None = None,
    with_preprocessing: bool | None = None,
) -> ExportResult:
    """Export a net with weights to ONNX, Keras, Caffe or another format, chosen by the suffix of `path`.

    If `path` is a folder, or has no suffix, the folder gets `model.onnx`, a description of the model (`README.md`), and
    a script that runs it in ONNX Runtime (`run.py`); for a recurrent language model, also `step.onnx`, which reads one
    token and passes its states on.

    `source` is a run directory, or a net or training file with `weights`, a weights file or a checkpoint. `batch_size`
    fixes the batch size, which is left open by default; `opset` is the operator set and `form="training"` the form with
    losses, both of ONNX. The file is compared with the model: an ONNX file in onnxruntime, on random inputs and on
    `inputs` (arrays by name, or an `.npz` file), any other file by reading it back; the largest relative difference
    allowed is `tolerance` (0.0001).

    `with_preprocessing` adds the transforms of the data and the function that `predict` applies to the outputs to an
    ONNX model, which then takes pixels as stored in image files, and returns probabilities. The model is compared with
    `predict` on samples of the test data. `left_out` of the result lists the steps that have no form in ONNX. By
    default, the model of a training contains the preprocessing if all steps have a form in ONNX; in a folder, it
    always contains as many as possible.

    Raises `InputError` if the format cannot express the net, `RunError` if the results differ. Nothing is written then.

        >>> netspec.export("runs/lenet_mnist", "lenet.onnx").files
    """
    spec_file, weights_file = spec_and_weights(source, weights)
    folder = Path(path) if is_folder_path(Path(path)) else None
    target = Path(path) if folder is None else folder / MODEL
    _check_arguments(folder, target, form, inputs, tolerance, with_preprocessing=bool(with_preprocessing))
    spec = load_spec(spec_file, overrides)
    precision = precision_of(spec).compute_dtype  # a file stores the type of the computation
    model = load(net_of(spec), weights_file, device="cpu", precision=str(precision))
    samples = read_npz(Path(inputs)) if isinstance(inputs, (str, Path)) else inputs
    notes: list[str] = []
    deployed = deployed_model(model, spec, batch_size, opset) if with_preprocessing else None
    is_plain_onnx = format_to_write(target).name == ONNX and form != TRAINING and inputs is None
    if with_preprocessing is None and is_plain_onnx and isinstance(spec, TrainSpec):
        deployed, notes = _deployed_by_default(model, spec, batch_size, opset, in_folder=folder is not None)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    result = write_model(
        model, spec, target, model.preprocessing.or_declared_in(spec), checkpoint=checkpoint_in(weights_file),
        batch=batch_size, opset=opset, form=TRAINING if form == TRAINING else None, inputs=samples, tolerance=tolerance,
        deployed=deployed, notes=notes,
    )  # fmt: skip
    return (
        result
        if folder is None
        else _described(result, folder, model, spec, run=Path(weights_file).parent, tolerance=tolerance)
    )


def _described(
    result: ExportResult, folder: Path, model: Model, spec: NetSpec | TrainSpec, *, run: Path, tolerance: float | None
) -> ExportResult:
    """Write the description and the script of an exported model to its folder; return the result with all files."""
    assert result.report is not None
    deployed = result.deployed
    preparation = model.preprocessing.or_declared_in(spec)
    decoders = deployed.decoders if deployed is not None else decoders_of(spec, preparation)
    left_out = [*result.left_out, *result.transforms]
    described = write_card(
        folder, model, spec, result.report, decoders=decoders, deployed=deployed, left_out=left_out, run=run,
        tolerance=tolerance,
    )  # fmt: skip
    return replace(result, files=(*result.files, *described))


def _deployed_by_default(
    model: Model, spec: TrainSpec, batch: int | None, opset: int | None, *, in_folder: bool
) -> tuple[DeployedModel | None, list[str]]:
    """Return the model with preprocessing if all steps have a form in ONNX, else None; with notes on the reason.

    In a folder, the model contains as many steps as possible, since the script does the others.
    """
    try:
        deployed = deployed_model(model, spec, batch, opset)
    except InputError as error:
        return None, [
            f"the model does not contain the preprocessing, which needs the data: {error.problems[0].message}"
        ]
    if in_folder or not deployed.left_out:
        return deployed, []
    return None, [
        f"the model does not contain the preprocessing: {'; '.join(deployed.left_out)}",
        "`--with-preprocessing` includes the steps that follow",
    ]


def _check_arguments(
    folder: Path | None, target: Path, form: str, inputs: object, tolerance: float | None, *, with_preprocessing: bool
) -> None:
    """Raise `InputError` for wrong arguments of `export`, before anything is compiled."""
    if tolerance is not None and not 0 < tolerance < inf:
        raise InputError("--tolerance must be a finite number above 0", got=str(tolerance))
    check_form(form)
    if folder is not None:
        check_folder(folder)
        if form == TRAINING:
            raise InputError("the training form is written as a file", expected="an output file that ends in .onnx")
    format_name = format_to_write(target).name
    if not with_preprocessing:
        return
    if format_name != ONNX:
        raise InputError("only ONNX models can contain preprocessing", expected="an output file that ends in .onnx")
    if form == TRAINING:
        raise InputError("the training form of a model does not contain preprocessing", expected="--form inference")
    if inputs is not None:
        raise InputError(
            "--inputs are inputs of the net, which a model with preprocessing does not take",
            hint="leave it out: the model is compared with the net on samples of the test data",
        )


def convert(
    source: str | Path,
    path: str | Path,
    *,
    weights: str | Path | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, Sequence[float]] | None = None,
    batch_size: int | None = None,
    opset: int | None = None,
) -> ExportResult:
    """Convert a model file of one format to another, and compare the results of both.

    `source` is a model file of any known format, a run directory, or a spec with `weights`; the suffix of `path`
    selects the format to write. `shapes` and `values` set inputs that the file leaves open.

    Raises `InputError` if either format cannot express the net, `RunError` if the results differ.

        >>> netspec.convert("model.onnx", "model.keras")
    """
    format_to_write(Path(path))
    loaded = open_any(source, weights, import_options(shapes=shapes, values=values))
    if not loaded.has_weights:
        raise InputError(f"{source} has no weights", hint="name a file that has them: `--weights FILE`")
    preparation = loaded.model.preprocessing.or_declared_in(loaded.spec)
    return write_model(
        loaded.model, loaded.spec, Path(path), preparation, checkpoint=checkpoint_in(loaded.weights), batch=batch_size,
        opset=opset, notes=loaded.notes,
    )  # fmt: skip


def write_model(
    model: Model,
    spec: NetSpec | TrainSpec,
    target: Path,
    preparation: PreprocessingRecord,
    *,
    checkpoint: CheckpointFile | None = None,
    batch: int | None = None,
    opset: int | None = None,
    form: str | None = None,
    inputs: Mapping[str, Any] | None = None,
    tolerance: float | None = None,
    notes: Sequence[str] = (),
    deployed: DeployedModel | None = None,
) -> ExportResult:
    """Write a model in the format of the suffix of `target`, and compare it.

    `deployed` is the form of the model with preprocessing, to write in place of the net alone, as ONNX.
    `checkpoint` is the file of the weights, for formats that store the state of a solver; `notes` are returned with
    those of the writer.
    Raises `InputError` if the format cannot express the net, `RunError` if results differ; nothing is written then.
    """
    all_notes = list(dict.fromkeys([*notes, *notes_of_not_finite(model.parameters)]))
    chosen = format_to_write(target)
    check_options(chosen, ExportOptions(batch, opset, form))
    if chosen.name != ONNX and inputs is not None:
        raise InputError(
            "--inputs is only used for a comparison in onnxruntime", expected="an output file that ends in .onnx"
        )
    report, difference = None, None
    if chosen.name == ONNX:
        report = export_deployed(
            deployed, spec, target, preparation, batch=batch, opset=opset, tolerance=tolerance
        ) if deployed is not None else export_model(
            model, spec, target, preparation, batch=batch, opset=opset, training=form == TRAINING, inputs=inputs,
            tolerance=tolerance,
        )  # fmt: skip
        files: tuple[Path, ...] = (target,) if report.data is None else (target, report.data)
        if form == TRAINING and RNG_INPUT in model.compiler.graph(ProgramKind.FORWARD, 1).inputs():
            all_notes.append("the random masks of Dropout are left out of the comparison")
    else:
        files, written_notes, difference = _write_and_compare(
            model, chosen, target, _exportable(model, spec, preparation, checkpoint),
            TOLERANCE if tolerance is None else tolerance,
        )  # fmt: skip
        all_notes += written_notes
    transforms: list[str] = []
    if deployed is None:
        transforms = _encodings_left_out(model, spec, preparation) + unapplied_transforms(model, preparation)
        all_notes += describe_restored(restored_outputs(model, spec, preparation))
    return ExportResult(
        files, chosen.name, count_elements(model.compiler, "parameter"), count_elements(model.compiler, "statistic"),
        tuple(all_notes), report, difference, tuple(transforms), deployed,
    )  # fmt: skip


def _encodings_left_out(model: Model, spec: NetSpec | TrainSpec, preparation: PreprocessingRecord) -> list[str]:
    """Return a line for each column of the table that the inputs of the model were computed from."""
    if not isinstance(spec, TrainSpec):
        return []
    return describe_encodings(columns_of(model, spec.data.deployed, preparation.learned))


def _write_and_compare(
    model: Model, chosen: Format, target: Path, content: Exportable, tolerance: float
) -> tuple[tuple[Path, ...], list[str], Gap | None]:
    """Write a file to a temporary folder, read it back, compare it, and move it to its path; with notes."""
    try:
        with staging(target, named=target.parent) as staged:
            notes = [*chosen.writes(staged / target.name, content)]
            written = sorted(staged.iterdir())
            difference, why_not = _read_back(model, chosen, staged / target.name, tolerance)
            for file in written:
                file.replace(target.with_name(file.name))
            sync_folder(target.absolute().parent)
    except OSError as error:
        raise RunError(f"cannot write {target}", got=error.strerror or str(error)) from error
    if why_not:
        notes.append(f"the results were not compared: {why_not}")
    return tuple(target.with_name(file.name) for file in written), notes, difference


def checkpoint_in(path: str | Path | None) -> CheckpointFile | None:
    """Return the checkpoint in a file; None if the file is something else."""
    if path is None or format_of(path).name != OWN or read_block(path, CHECKPOINT).kind != "checkpoint":
        return None
    return read_checkpoint(path)


def _exportable(
    model: Model, spec: NetSpec | TrainSpec, preparation: PreprocessingRecord, checkpoint: CheckpointFile | None
) -> Exportable:
    slots: dict[str, Any] = {}
    step = 0
    if checkpoint is not None:
        slots = {name: array for name, array in checkpoint.states.items() if checkpoint.roles[name] == SLOT}
        step = int(checkpoint.progress.get("step", 0))
    return Exportable(
        model.spec,
        dict(model.parameters),
        lambda size: model.compiler.graph(ProgramKind.PREDICT, size),
        spec if isinstance(spec, TrainSpec) else _training_in(checkpoint),
        slots,
        step,
        preparation.as_meta(),
    )


def _training_in(checkpoint: CheckpointFile | None) -> TrainSpec | None:
    """The training that a checkpoint belongs to; None if it has none that can be read."""
    if checkpoint is None:
        return None
    try:
        return load_train(parse_yaml(checkpoint.spec, "the training in the checkpoint"))
    except InputError:  # a package or file that the spec names is missing: export only the net and its weights
        return None


def _read_back(model: Model, chosen: Format, path: Path, tolerance: float) -> tuple[Gap | None, str]:
    """Return the difference between the net and the written file, or the reason why it is unknown."""
    if not chosen.read:
        return None, f"{chosen.name} files do not contain the net"
    source, weights = chosen.parts_of(path)
    try:
        again = open_any(source, options=ImportOptions(weights=weights)).model
    except InputError as error:  # the format may have features that netspec cannot import
        message = error.problems[0].message.replace(str(path), path.name)
        return None, f"the written file can't be read back: {message}"
    comparison, why_not = compare_models(model, again)
    if comparison is None:
        return None, why_not
    gap = comparison.whole
    if not gap.scaled <= tolerance:
        raise RunError(
            f"the {chosen.name} file was written and read back, but its results differ from the net's",
            expected=f"at most {tolerance:g} apart", got=gap.relative,
            hint="nothing was written; please report it with the net",
        )  # fmt: skip
    return gap, ""


def export_model(
    model: Model,
    spec: NetSpec | TrainSpec,
    path: Path,
    preparation: PreprocessingRecord,
    *,
    batch: int | None,
    opset: int | None,
    training: bool = False,
    inputs: Mapping[str, Any] | None = None,
    tolerance: float | None = None,
) -> ExportReport:
    """Export a model, and compare onnxruntime's results with the model's, on random inputs and on `inputs`.

    With `training`, writes the training form, which includes losses and new states; it is compared without random
    values. The metadata contain the net, the names of classes, and the transforms of the training, which are not part
    of the model. Raises `InputError` if the net has no ONNX form, `RunError` if the results differ.
    """
    compiler, purpose = model.compiler, ProgramKind.FORWARD if training else ProgramKind.PREDICT

    def undrawn(samples: int) -> Graph:
        return compiler.graph(purpose, samples).deterministic_form()

    if inputs is not None:
        types = undrawn(1).inputs()
        arrays, _ = check_inputs(compiler, inputs, list(types))
        inputs = {name: array.astype(str(types[name].dtype)) for name, array in arrays.items()}

    def computed(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        return Program(make_plan(graph, compiler.device), compiler.device, compiler.states)(inputs)

    def in_training(inputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        return computed(undrawn(len(next(iter(inputs.values())))), inputs)

    def all_values(inputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """The output of every layer, to name the first that differs."""
        samples = len(next(iter(inputs.values())))
        layers = compiler.net_graph(purpose, samples).values
        graph = Graph({name: value for name, value in layers.items() if name not in model.spec.inputs})
        return computed(graph.deterministic_form(), inputs)

    return export_verified(
        lambda size: compiler.graph(purpose, size),
        dict(model.parameters),
        path,
        in_training if training else model.predict,
        domains=compiler.domains,
        user_inputs=inputs,
        all_values=all_values,
        undrawn_for=undrawn if training else None,
        tolerance=TOLERANCE if tolerance is None else tolerance,
        batch=batch,
        opset=opset,
        name=model.spec.name,
        doc=model.spec.description,
        metadata=_metadata(model, spec, preparation)
        | _left_out_metadata(model, spec, preparation)
        | (_of_training(compiler) if training else {}),
    )


def export_deployed(
    deployed: DeployedModel,
    spec: NetSpec | TrainSpec,
    path: Path,
    preparation: PreprocessingRecord,
    *,
    batch: int | None,
    opset: int | None,
    tolerance: float | None = None,
) -> ExportReport:
    """Export a model with preprocessing, compared in onnxruntime with `predict`: on random inputs and on test data.

    Raises `InputError` if the net has no ONNX form, `RunError` if the results differ.
    """
    model, usual = deployed.model, TOLERANCE if tolerance is None else tolerance
    return export_verified(
        deployed.graph_for,
        dict(model.parameters),
        path,
        deployed.predict,
        domains=deployed.domains,
        user_inputs=deployed.samples or None,
        tolerance=usual,
        batch=batch,
        opset=opset,
        name=model.spec.name,
        doc=model.spec.description,
        metadata=_metadata(model, spec, preparation) | deployed.metadata(),
        wrapper=deployed.wrapper,
        inner=deployed.inner(_metadata(model, spec, preparation)),
        raw_samples=deployed.raw_results(),
        raw_tolerance=max(usual, deployed.raw_tolerance or 0.0),
    )


def _metadata(model: Model, spec: NetSpec | TrainSpec, preparation: PreprocessingRecord) -> dict[str, str]:
    """Metadata of an ONNX model: the net, the transforms of its inputs, and the class names of its outputs."""
    decoders = decoders_of(spec, preparation)
    return {
        "netspec_version": __version__,
        "netspec_spec": canonical_yaml(model.spec),
        "netspec_spec_sha256": spec_sha256(model.spec),
        TRANSFORMS: json_text(preparation.of_inputs(model.compiler.graph(ProgramKind.PREDICT, 1).inputs())),
        CLASSES: json_text({name: decoder.classes for name, decoder in decoders.items() if decoder.classes}),
        FUNCTIONS: json_text(
            {
                name: decoder.postprocessing.function
                for name, decoder in decoders.items()
                if decoder.postprocessing is not None and decoder.postprocessing.function != "restore"
            }
        ),
    }


def _left_out_metadata(model: Model, spec: NetSpec | TrainSpec, preparation: PreprocessingRecord) -> dict[str, str]:
    """Metadata of a model without preprocessing: encodings of columns, tokenizers, and the units of outputs."""
    if not isinstance(spec, TrainSpec):
        return {}
    learned = preparation.learned
    left_out = {
        "netspec_columns": encodings_as_json(columns_of(model, spec.data.deployed, learned)),
        "netspec_tokenizers": tokenizers_of(learned),
        "netspec_targets": restored_outputs(model, spec, preparation),
    }
    return {key: json_text(value) for key, value in left_out.items() if value}


def _of_training(compiler: Compiler) -> dict[str, str]:
    """Metadata for training the ONNX model elsewhere: its trainable parameters, and which outputs are new states."""
    graph = compiler.graph(ProgramKind.FORWARD, 1)
    read, ends = graph.states(), {f"{name}/{NEW}": name for name in compiler.info}
    return {
        "netspec_form": "training",
        "netspec_trainable": json_text(
            [name for name, info in compiler.info.items() if info.trainable and name in read]
        ),
        "netspec_updates": json_text({ends[name]: name for name in graph.outputs if name in ends}),
    }
