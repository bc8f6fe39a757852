"""Models from a spec, a run directory, an imported folder, or a model file of any known format."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec.compile import ProgramKind
from netspec.errors import InputError
from netspec.exchange.importing import import_model
from netspec.exchange.interface import Imported, ImportOptions
from netspec.schema.bundled import is_in_zoo, model_path, near_model
from netspec.schema.load import SPECS, Overrides, Source, load_net
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec
from netspec.schema.yaml.reader import parse_yaml, read_yaml
from netspec.schema.yaml.tree import Map
from netspec.tools.comparing.runs import newer_run
from netspec.tools.specs import load_spec, net_of, precision_of
from netspec.training.inference.model import Model, assign_arrays
from netspec.training.inference.model import load as load_model
from netspec.training.preprocessing import PreprocessingRecord
from netspec.training.run_directory import RunDir, run_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

WEIGHTS = ("best.h5", "weights.h5")
"""Weights of a run directory or an imported folder: of a run, those that `restore_best` chooses."""


@dataclass(frozen=True)
class LoadedModel:
    """A model together with the spec and the files that it comes from."""

    spec: NetSpec | TrainSpec
    model: Model
    has_weights: bool
    """Whether the weights were read from a file; otherwise they are freshly initialized."""
    weights: Path | None = None
    """The file of the weights."""
    imported: Imported | None = None
    """The content of a file of another program."""
    notes: tuple[str, ...] = field(default=())

    @property
    def net(self) -> NetSpec:
        """The net; of a training, its net."""
        return net_of(self.spec)

    def with_weights(self, weights: Path) -> LoadedModel:
        """Return the same net with the weights of a file. Raises `InputError` if they do not fit."""
        return _from_spec(self.spec, weights)


def load(
    source: str | Path | Mapping[str, Any] | NetSpec | TrainSpec,
    weights: str | Path | None = None,
    *,
    device: str = "auto",
    precision: str = "float32",
    autotune: str = "off",
    rounding: str = "fast",
    deterministic: bool = True,
    seed: int = 1,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, Sequence[float]] | None = None,
) -> Model:
    """Load a model from a run directory, a net or training file, or a model file of any known format.

    `source` is one of

    - a run directory, or a folder that `import_model` wrote: with its best weights, else its last ones; of a run that
      was stopped before an evaluation, those of the newest checkpoint;
    - a net file, or a training file, of which the net is used: with new weights, drawn by `seed`;
    - a mapping with the content of a net file: likewise;
    - an ONNX, Keras, Caffe or netspec model file, or a checkpoint: with its own weights.

    `weights` names a weights file to load instead. `device` is `"auto"` or a name that `devices()` lists, `precision`
    one of `"float32"`, `"float64"`, `"tf32"`, `"bfloat16"` and `"float16"`, `autotune` one of `"off"`, `"quick"` and
    `"full"`. `rounding` and `deterministic` are those of `compile` in a training file. `shapes` and `values` set inputs
    that a model file leaves open: `{"data": (3, 224, 224)}`.

    Raises `InputError` if the file, the spec or the weights are wrong.

        >>> model = netspec.load("runs/lenet_mnist")
        >>> model.predict({"image": images})["logits"]
    """
    source = model_path(str(source)) if isinstance(source, (str, Path)) else source
    path = Path(source) if isinstance(source, str) else None
    settings: dict[str, Any] = {
        "device": device, "precision": precision, "autotune": autotune, "rounding": rounding,
        "deterministic": deterministic, "seed": seed,
    }  # fmt: skip
    if path is not None and path.is_dir():
        spec, own_weights = find_in_folder(path)
        return load_model(spec, weights if weights is not None else own_weights, **settings)
    if path is None or not is_model_file(path):
        return load_model(source, weights, **settings)
    return _from_model_file(path, weights, import_options(shapes=shapes, values=values), settings).model


def is_model_file(path: Path) -> bool:
    """Whether a path names a file that is not YAML: a model, weights or a checkpoint."""
    return path.suffix not in (".yaml", ".yml") and path.is_file()


def open_any(
    path: str | Path, weights: str | Path | None = None, options: ImportOptions | None = None,
    overrides: Overrides = (),
) -> LoadedModel:  # fmt: skip
    """Open a spec, a run directory or a model file on the CPU, in the precision that a training file asks for.

    Raises `InputError` if `path` describes no net, or the weights do not fit.
    """
    path = Path(model_path(str(path)))
    if path.is_dir():
        spec, own_weights = find_in_folder(path)
        return _from_spec(load_spec(spec, overrides), weights or own_weights)
    if path.suffix in (".yaml", ".yml"):
        return _from_spec(load_spec(path, overrides), weights)
    return _from_model_file(path, weights, options, {"device": "cpu"})


def _from_model_file(
    path: Path, weights: str | Path | None, options: ImportOptions | None, settings: Mapping[str, Any]
) -> LoadedModel:
    imported = import_model(path, options)
    tree = parse_yaml(imported.net, f"{path} (its net)")
    assert isinstance(tree, Map)
    net = load_net(tree)
    model = load_model(net, weights, **settings)
    if weights is None and imported.arrays:
        assign_arrays(model.compiler, imported.arrays, source=str(path))
        model.preprocessing = PreprocessingRecord.from_meta(imported.meta)
    has_weights = bool(imported.arrays) or weights is not None
    return LoadedModel(net, model, has_weights, Path(weights or path), imported, imported.notes)


def _from_spec(spec: NetSpec | TrainSpec, weights: str | Path | None) -> LoadedModel:
    model = load_model(spec, weights, device="cpu", precision=str(precision_of(spec).compute_dtype))
    return LoadedModel(spec, model, weights is not None, None if weights is None else Path(weights))


def find_in_folder(folder: Path) -> tuple[Path, Path | None]:
    """The spec in a folder, and its weights if there are any; those of a stopped run are in its newest checkpoint.

    Raises `InputError` if the folder has no spec, or is a run directory without weights.
    """
    spec = next((folder / name for name in SPECS if (folder / name).is_file()), None)
    if spec is None:
        raise InputError(f"{folder} is a folder without a spec", expected=f"one of {', '.join(SPECS)} in it")
    names = WEIGHTS if _restores_best(spec) else WEIGHTS[::-1]
    weights = next((folder / name for name in names if (folder / name).is_file()), None)
    if weights is None and (run := run_of(spec)) is not None:
        files = RunDir(run)
        step = files.newest_step()
        if step is None:
            raise InputError(
                f"the run {folder} has no weights", expected="a run that has written weights or a checkpoint",
                hint="the run may have just begun, or may have failed: `netspec runs` lists its state",
            )  # fmt: skip
        weights = files.checkpoint(step)
    return spec, weights


def _restores_best(spec: Path) -> bool:
    """Return `train.restore_best` of a spec; a spec that can't be read is reported by those who load it."""
    try:
        loop = read_yaml(str(spec)).get("train")
    except InputError:
        return True
    return not isinstance(loop, Map) or loop.get("restore_best") is not False


def _origin(weights: Path) -> str:
    """Describe the evaluation that the weights of a run were chosen by; empty if the file does not say so."""
    from netspec.exchange.formats.native.hdf5 import read_weights
    from netspec.training.events import describe_best

    meta = read_weights(weights).meta
    if "best" in meta:
        return f", {describe_best({'weights_step': meta['step'], 'best': meta['best']})}"
    return f", after step {meta['step']:,}" if "step" in meta else ""


def spec_and_weights(
    source: Source, weights: str | Path | None, note: Callable[[str], object] | None = None
) -> tuple[Source, str | Path]:
    """The spec and the weights file of `source`; a run directory brings both.

    `note` is called with the weights of a run directory, and with a newer run of the same name. Raises `InputError` if
    a folder has no spec, or no weights are known.
    """
    if isinstance(source, Mapping):
        if weights is not None:
            return source, weights
    else:
        path = Path(model_path(str(source)))
        if path.is_dir():
            spec, own_weights = find_in_folder(path)
            if weights is None and own_weights is not None:
                if note is not None:
                    note(f"using the weights in {own_weights}{_origin(own_weights)}")
                    if (newer := newer_run(path)) is not None:
                        shown = newer if path.is_absolute() else os.path.relpath(newer)
                        note(f"{shown} is a newer run of the same name")
                return str(spec), own_weights
            source = str(spec)
        if weights is not None:
            return source, weights
        if is_model_file(Path(source)):
            raise InputError(
                f"{source} is a model file, without a training", expected="a run directory, or a spec with --weights",
                hint="`netspec convert` writes it in other formats, and `netspec predict` takes it",
            )  # fmt: skip
        if not Path(source).exists():
            raise InputError(
                f"no such file or folder: {source}", expected="a run directory, a spec or a model of the zoo",
                hint=near_model(str(source)),
            )  # fmt: skip
    if isinstance(source, (str, Path)) and is_in_zoo(str(source)):
        raise InputError(
            f"netspec has no trained weights of {Path(source).parent.name}", expected="--weights FILE",
            hint="`netspec zoo list` shows which models have weights",
        )  # fmt: skip
    raise InputError(
        "--weights is missing", expected="a weights file, or a checkpoint",
        hint=f"a run directory, or a folder with a spec and {' or '.join(WEIGHTS)}, needs none",
    )  # fmt: skip


def unapplied_transforms(model: Model, preparation: PreprocessingRecord) -> list[str]:
    """The transforms that the inputs of the model had in its training, each as a line."""
    return list(preparation.describe(model.compiler.graph(ProgramKind.PREDICT, 1).inputs()))


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of an `.npz` file. Raises `InputError` if the file is not one, or the arrays differ in length."""
    from netspec.data.readers.npz import open_npz

    dataset = open_npz(path)
    return {name: dataset.values_of(name) for name in dataset.fields}


def import_options(
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, Sequence[float]] | None = None,
    **others: Any,
) -> ImportOptions:
    """`ImportOptions` from arguments as Python callers give them."""
    return ImportOptions(
        shapes={name: tuple(sizes) for name, sizes in (shapes or {}).items()},
        values={name: tuple(numbers) for name, numbers in (values or {}).items()},
        **others,
    )
