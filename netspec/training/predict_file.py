"""Prediction on the samples of another file, preprocessed like the data of the training."""

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
    """Return the net's outputs for every sample of a file in the format of the test data, or of the training data.

    The transforms of that data are applied, with the values learned in training. The file does not need fields that
    only the loss reads. Raises `InputError` if the data has no such format, or with all problems of the file.
    """
    split = spec.data.test or spec.data.train
    assert isinstance(split, Source)
    inputs = wanted_inputs(model.compiler, [ProgramKind.PREDICT])
    source = split.with_file(path, {split.inputs.get(name, name) for name in inputs}) or images_like(split, path)
    if source is None:
        raise InputError(
            f"{path} cannot replace the data of the training, whose source is `{getattr(split, SOURCES.tag)}`",
            expected="an .npz file with the net's inputs; or images or a table, if the training reads images or tables",
        )
    source = source.model_copy(update={"batch_size": batch_size or DEFAULT_BATCH})
    learned = learned_of(spec, model.compiler, model.preprocessing.learned)
    known = model.compiler.spec.inputs
    with open_loader(source, seed=spec.train.seed, wanted=inputs, known=known, learned=learned) as loader:
        return model.predict(loader)
