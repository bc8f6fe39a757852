"""Outputs for the samples of another file, prepared as the training's own: read, looked up, normalized alike."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec.compile import ProgramKind
from netspec.data.base import Source
from netspec.data.loader import open_loader
from netspec.data.sources.image_folder import images_like
from netspec.errors import InputError
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.train import TrainSpec
from netspec.training.evaluation import learned_of, wanted_inputs
from netspec.training.model import DEFAULT_BATCH, Model

if TYPE_CHECKING:
    from numpy.typing import NDArray


def predict_file(model: Model, spec: TrainSpec, path: Path, batch_size: int | None = None) -> dict[str, NDArray[Any]]:
    """The net's outputs for every sample of a file of the kind that the test (else the training) data is read from.

    Its transforms are applied, with what the training learned; the file needs nothing that only the loss looks at.
    Raises `InputError` where the data is of a kind that has no such files, or with all that is wrong in the file.
    """
    split = spec.data.test or spec.data.train
    assert isinstance(split, Source)
    wanted = wanted_inputs(model.compiler, [ProgramKind.PREDICT])
    source = split.of_file(path, {split.inputs.get(name, name) for name in wanted}) or images_like(split, path)
    if source is None:
        raise InputError(
            f"{path} cannot take the place of the training's data, whose source is `{getattr(split, SOURCES.tag)}`",
            expected="an .npz file with the net's inputs; images, where the data is images; or rows of a table",
        )
    source = source.model_copy(update={"batch_size": batch_size or DEFAULT_BATCH})
    learned = learned_of(spec, model.compiler, model.preprocessing.learned)
    known = model.compiler.spec.inputs
    with open_loader(source, seed=spec.train.seed, wanted=wanted, known=known, learned=learned) as loader:
        return model.predict(loader)
