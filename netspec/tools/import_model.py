"""Import a model of another program as a net file, its weights and its training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from netspec.compile import ProgramKind
from netspec.errors import InputError, RunError, counted, listing
from netspec.exchange.files import new_folder
from netspec.exchange.fold_batch_norm import fold_batch_norm
from netspec.exchange.formats.native.hdf5 import write_checkpoint, write_weights
from netspec.exchange.formats.onnx.verify import TOLERANCE
from netspec.exchange.importing import import_model as import_file
from netspec.exchange.importing import import_weights
from netspec.exchange.interface import CUT, Imported, ImportOptions, Target, check_import_options
from netspec.exchange.match_weights import match_weights, renamed
from netspec.exchange.truncation import truncated
from netspec.schema.bundled import model_path
from netspec.schema.language.provenance import canonical_yaml
from netspec.schema.load import load_net
from netspec.schema.yaml.reader import parse_yaml
from netspec.schema.yaml.tree import Map
from netspec.tools.bounds import require_at_least
from netspec.tools.comparing.diff import compare_models
from netspec.tools.model_inputs import import_options, open_any
from netspec.tools.specs import load_spec, load_train
from netspec.training.inference.model import Model, assign_arrays, count_elements, load

NET, WEIGHTS, TRAIN, CHECKPOINT = "net.yaml", "weights.h5", "train.yaml", "checkpoint.h5"
"""Files of the folder that an import writes."""


@dataclass(frozen=True)
class ImportResult:
    """The files of an imported model."""

    folder: Path
    layers: int
    parameters: int
    """Number of elements of all parameters."""
    notes: tuple[str, ...]
    """Parts that could not be imported, and other remarks."""
    weights: Path | None
    """The weights; None if no file has any."""
    train: Path | None
    """The training file; None if the model does not describe a training that netspec supports."""
    checkpoint: Path | None
    """The state of the solver, for a training that continues; None if the model has none."""
    needs_data: bool
    """Whether the training file waits for a source of data, since its samples came from Python."""

    @property
    def net(self) -> Path:
        """The net file."""
        return self.folder / NET

    @property
    def files(self) -> list[Path]:
        """All files, by name."""
        return sorted(self.folder.iterdir())


def import_model(
    source: str | Path,
    folder: str | Path,
    *,
    net: str | Path | None = None,
    weights: str | Path | None = None,
    names: Mapping[str, str | None] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, Sequence[float]] | None = None,
    phase: str = "",
    stages: Sequence[str] = (),
    level: int = 0,
    until: Sequence[str] = (),
    drop_head: int = 0,
    fold_batch_norm: bool = False,
) -> ImportResult:
    """Import a model file of any known format into a new folder with `net.yaml`, `weights.h5` and maybe `train.yaml`.

    The content of `source` decides its format; a net file, a run directory or a model of the zoo is accepted, too.
    `weights` names the file of the weights if they are not in `source`; `net` a net file for weights that come without
    a net, and `names` maps their names to those of the net (`*` stands for any characters, None drops an array).
    `shapes` and `values` set inputs that the file leaves open. `phase`, `stages` and `level` select one form of a Caffe
    net. `until` cuts the net at layers or tensors, `drop_head` drops its last layers with parameters, and
    `fold_batch_norm` makes BatchNormalization part of the layers before it.

    Raises `InputError` with all parts that have no counterpart; nothing is written then.

        >>> netspec.import_model("resnet.onnx", "resnet", shapes={"data": (3, 224, 224)})
    """
    if phase not in ("", "train", "test"):
        raise InputError(f"there is no phase `{phase}`", expected="`--phase train` or `--phase test`")
    require_at_least(0, {"--drop-head": drop_head})
    path, target = Path(model_path(str(source))), Path(folder)
    options = import_options(
        shapes=shapes, values=values, weights=Path(weights) if weights is not None else None, phase=phase, level=level,
        stages=tuple(stages), until=tuple(until), drop_head=drop_head,
    )  # fmt: skip
    with new_folder(target) as staged:
        imported = with_valid_training(_read(path, net, names or {}, options))
        if fold_batch_norm:
            imported = _fold(imported, path)
        model = _write(staged, imported, path.stem)
        needs_data = bool(imported.train) and _needs_data(staged / TRAIN)
    has_weights = (target / WEIGHTS).exists()
    return ImportResult(
        target, len(model.spec.layers), count_elements(model.compiler, "parameter"), tuple(imported.notes),
        target / WEIGHTS if has_weights else None, target / TRAIN if imported.train else None,
        target / CHECKPOINT if imported.slots else None, needs_data,
    )  # fmt: skip


def _needs_data(path: Path) -> bool:
    """Whether the samples of a training come from Python, which a file cannot name."""
    return getattr(load_train(path).data.train, "source", "") == "python"


def _read(source: Path, net: str | Path | None, names: Mapping[str, str | None], options: ImportOptions) -> Imported:
    """Read a file; if a net is given, match the weights in the file with it."""
    if net is None:
        if names:
            raise InputError("--map has no effect without --net", hint="name the net: `--net NET`")
        if source.is_dir() or source.suffix in (".yaml", ".yml"):
            check_import_options(options, ("weights", *CUT), source, "a net of netspec")
            return truncated(_read_own(source, options.weights), options, str(source))
        return import_file(source, options)
    check_import_options(options, CUT, source, "read for a net (--net)")
    model = load(Path(net), device="cpu")
    target = Target(model.spec, model.compiler.types("parameter", "statistic"), partial(renamed, dict(names)))
    arrays = match_weights(target.states, import_weights(source, target), source=str(source)).arrays
    return truncated(Imported(canonical_yaml(model.spec), arrays), options, str(net))


def _read_own(source: Path, weights: Path | None) -> Imported:
    """Read a net file, or the net and the weights of a run."""
    loaded = open_any(source, weights)
    arrays = loaded.model.compiler.weights() if loaded.has_weights else {}
    return Imported(canonical_yaml(loaded.net), dict(arrays), meta=loaded.model.preprocessing.as_meta())


def with_valid_training(imported: Imported) -> Imported:
    """Replace a training file that netspec refuses by a note; the net is kept."""
    if not imported.train:
        return imported
    tree = parse_yaml(imported.train, "train.yaml")
    tree["net"] = parse_yaml(imported.net, "net.yaml")
    try:
        load_train(tree)
    except InputError as error:
        reasons = listing([problem.brief for problem in error.problems], 3)
        note = f"no training file is written, since netspec does not support it: {reasons}"
        return replace(imported, notes=(*imported.notes, note), train="", slots={}, step=0)
    return imported


def _write(folder: Path, imported: Imported, name: str) -> Model:
    """Write the imported files, and read them as netspec itself does. Weights are not written if no file has any."""
    (folder / "net.yaml").write_text(imported.net, encoding="utf-8")
    model = load(folder / "net.yaml", device="cpu")
    if imported.arrays or not model.parameters:
        write_weights(folder / "weights.h5", imported.arrays, net=imported.net, name=name, **imported.meta)
        model.load_weights(folder / "weights.h5")
    if imported.train:
        (folder / "train.yaml").write_text(imported.train, encoding="utf-8")
        spec = load_spec(folder / "train.yaml")  # it must be what netspec itself reads
        if imported.slots:
            _write_checkpoint(folder / "checkpoint.h5", imported, model, canonical_yaml(spec))
    return model


def _write_checkpoint(path: Path, imported: Imported, model: Model, spec: str) -> None:
    """All states, those of the solver too, for a training that goes on from there."""
    roles = {name: model.compiler.info[name].role for name in imported.arrays} | dict.fromkeys(imported.slots, "slot")
    write_checkpoint(path, {**imported.arrays, **imported.slots}, roles, {"step": imported.step, **imported.meta}, spec)


def _fold(imported: Imported, source: Path) -> Imported:
    """Fold BatchNormalization into the layers before, and compare the results. The training is left out.

    Raises `InputError` if the file has no net with weights that could be folded.
    """
    if imported.draft is None or not imported.arrays:
        raise InputError(
            f"{source} is not a model of another program with weights",
            expected="a model of ONNX, Keras or Caffe for --fold-batch-norm",
            got="weights for a net of netspec, or a net without weights" if imported.draft is None else "no weights",
        )
    before = _model(imported, source)
    graph = before.compiler.graph(ProgramKind.PREDICT, 1)
    result = fold_batch_norm(imported.draft, {name: value.shape for name, value in graph.named.items()})
    notes = [f"{counted(result.folded, 'BatchNormalization')} folded into the layer before"]
    if result.unfolded:
        notes.append(f"not folded, since the layer before does not allow it: {listing(result.unfolded)}")
    if imported.train:
        notes.append("no training file is written: the folded net would train differently")
    new = replace(
        imported, net=result.draft.text(), arrays=result.draft.arrays(), notes=(*imported.notes, *notes), train="",
        slots={}, step=0, draft=result.draft,
    )  # fmt: skip
    comparison, why_not = compare_models(before, _model(new, source))
    gap = comparison.whole if comparison is not None else None
    if gap is None or not gap.scaled <= TOLERANCE:
        raise RunError(
            f"{source}: folding changed the results of the net", expected=f"at most {TOLERANCE:g} apart",
            got=gap.relative if gap is not None else why_not, hint="import it without --fold-batch-norm",
        )  # fmt: skip
    return new


def _model(imported: Imported, source: Path) -> Model:
    tree = parse_yaml(imported.net, f"{source} (its net)")
    assert isinstance(tree, Map)
    model = load(load_net(tree), device="cpu")
    assign_arrays(model.compiler, imported.arrays, source=str(source))
    return model
