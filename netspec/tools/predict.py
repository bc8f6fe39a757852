"""Use a trained net: predict outputs for samples, evaluate weights on test data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.errors import InputError
from netspec.exchange.formats.native.npz import write_npz
from netspec.schema.load import Overrides, Source
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec
from netspec.tools.model_inputs import is_model_file, load, read_npz, spec_and_weights, unapplied_transforms
from netspec.tools.specs import autotune_of, deterministic_of, load_spec, net_of, precision_of, rounding_of
from netspec.training.evaluation import Evaluation
from netspec.training.evaluation import test as evaluate_weights
from netspec.training.predict_file import predict_file

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Prediction:
    """The outputs of a net."""

    outputs: dict[str, NDArray[Any]]
    """Arrays (N, …) by the names of the outputs."""
    unapplied_transforms: tuple[str, ...]
    """Transforms of the training that were not applied, each as a line."""
    remark: str | None
    """Why the device is this one, if that needs an explanation."""

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(next(iter(self.outputs.values())))

    def non_finite(self) -> dict[str, list[int]]:
        """Indices of the samples that have NaN or infinite elements, by output."""
        indices_by_output = {
            name: np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1)).tolist()
            for name, array in self.outputs.items()
        }
        return {name: indices for name, indices in indices_by_output.items() if indices}


def predict(
    source: Source,
    inputs: str | Path | Mapping[str, Any],
    *,
    weights: str | Path | None = None,
    output: str | Path | None = None,
    overrides: Overrides = (),
    batch_size: int | None = None,
    device: str = "auto",
    autotune: str | None = None,
) -> Prediction:
    """Compute the outputs of a net for the samples in a file or in arrays.

    `source` is a run directory, a net file, a training file or a model file of any known format. A net or training file
    needs `weights`, a weights file or a checkpoint; the others bring their own.

    `inputs` are arrays by the names of the net's inputs, or an `.npz` file with them; no transform is applied to these.
    If `source` describes a training, `inputs` may also be a file of the kind that its data has: a table, an image, a
    folder of images; these are prepared as in the training. `batch_size` samples are computed at a time. `output`
    names an `.npz` file to write the outputs to.

    Raises `InputError` if the samples do not fit the net.

        >>> netspec.predict("runs/lenet_mnist", "digit.png").outputs["logits"]
    """
    spec: NetSpec | TrainSpec
    if isinstance(source, (str, Path)) and is_model_file(Path(source)):
        if overrides:
            raise InputError("a model file takes no changes", got=" ".join(map(str, overrides)))
        model = load(source, weights, device=device, autotune=autotune or "off")
        spec = model.spec
    else:
        spec_file, weights_file = spec_and_weights(source, weights)
        spec = load_spec(spec_file, overrides)
        model = load(
            net_of(spec), weights_file, device=device, precision=str(precision_of(spec)),
            autotune=autotune or autotune_of(spec), rounding=rounding_of(spec), deterministic=deterministic_of(spec),
        )  # fmt: skip
    path = Path(inputs) if isinstance(inputs, (str, Path)) else None
    if path is not None and isinstance(spec, TrainSpec) and path.suffix != ".npz":
        outputs, unapplied = predict_file(model, spec, path, batch_size), list[str]()
    else:
        outputs = model.predict(inputs if path is None else read_npz(path), batch_size)
        unapplied = unapplied_transforms(model, model.preprocessing.or_declared_in(spec))
    if output is not None:
        write_npz(Path(output), outputs)
    return Prediction(outputs, tuple(unapplied), model.compiler.device.remark)


def test(
    source: Source,
    *,
    weights: str | Path | None = None,
    overrides: Overrides = (),
    device: str = "auto",
    samples: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Evaluate weights on the test data of a training; each sample counts exactly once.

    `source` is a run directory or a training file; `weights` names a weights file or a checkpoint, and a run directory
    brings its own. `samples` are those of splits of `source: python`: `{"test": arrays}`.

    Raises `InputError` if there is no test data, or the weights do not fit.

        >>> netspec.test("runs/lenet_mnist").metrics
    """
    spec_file, weights_file = spec_and_weights(source, weights)
    return evaluate_weights(spec_file, weights_file, overrides, device=device, samples=samples)
