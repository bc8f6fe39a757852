"""`Model`: a net with weights, for use from Python and by the commands that do not train."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.backends.device_registry import open_device
from netspec.compile import LOSS, Compiler, ProgramKind
from netspec.errors import MAX_SHOWN, InputError, did_you_mean, listing
from netspec.exchange.formats.native.hdf5 import WeightsFile, read_weights, write_weights
from netspec.exchange.formats.registry import OWN, format_of
from netspec.exchange.importing import import_weights
from netspec.exchange.interface import Target
from netspec.exchange.match_weights import match_weights
from netspec.graph.ops.random import RNG_INPUT
from netspec.schema.load import load_spec
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec
from netspec.training.arguments import (
    autotune_argument,
    bool_argument,
    device_argument,
    int_argument,
    path_argument,
    precision_argument,
    rounding_argument,
    state_value,
)
from netspec.training.inference.changed_net import changed_net_hint
from netspec.training.inference.inputs import check_inputs
from netspec.training.preprocessing import PreprocessingRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from netspec.data.text.tokens import Tokenizer
    from netspec.training.evaluation import Evaluation

DEFAULT_BATCH = 256
"""Samples computed at a time by default."""


class Parameters(MutableMapping[str, "NDArray[Any]"]):
    """The parameters and moving statistics of a model, by name (`conv1/kernel`). Reading and assigning copies."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._names = compiler.names("parameter", "statistic")

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._names:
            raise self._unknown(name)
        array: NDArray[Any] = self._compiler.states[name]
        return array

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self._names:
            raise self._unknown(name)
        self._compiler.states.assign(name, state_value(name, value, self._compiler.info[name].value.type))

    def __delitem__(self, name: str) -> None:
        raise TypeError("the layers of a net define its parameters: none can be removed")

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        shapes = (f"{name} {list(self._compiler.info[name].value.shape)}" for name in self._names)
        return f"<Parameters: {', '.join(shapes)}>"

    def _unknown(self, name: object) -> KeyError:
        hint = did_you_mean(str(name), self._names) or f"there are {listing(self._names)}"
        return KeyError(f"the net has no parameter `{name}`: {hint}")


class Model:
    """A net with weights, compiled for a device. `netspec.load` returns one.

    `parameters` maps names to arrays, which can be assigned; `spec` is the net's spec; `preprocessing` lists the
    transforms that samples passed through in training.

        >>> model = netspec.load("runs/lenet_mnist")
        >>> model.predict({"image": images})["logits"]
        >>> model.evaluate("train.yaml").metrics
        >>> model.parameters["conv1/bias"] = np.zeros(20)
    """

    def __init__(
        self,
        spec: NetSpec,
        compiler: Compiler,
        preprocessing: PreprocessingRecord | None = None,
        training: TrainSpec | None = None,
    ) -> None:
        self.spec = spec
        self.training = training
        """The spec of the training that the net comes from, which says how samples are prepared."""
        self.compiler = compiler
        self.parameters = Parameters(compiler)
        self.preprocessing = preprocessing or PreprocessingRecord()
        """Preprocessing of the samples in the training that produced the weights."""

    def __repr__(self) -> str:
        compiler = self.compiler
        return (
            f"<Model {self.spec.name}: {count_elements(compiler, 'parameter'):,} parameters on {compiler.device.name}>"
        )

    def _repr_html_(self) -> str:
        from netspec.training.notebook import model_html

        return model_html(repr(self)[1:-1], self.compiler)

    def predict(self, inputs: object, batch_size: int | None = None) -> dict[str, NDArray[Any]]:
        """Compute the net's outputs: arrays (N, …) by name.

        `inputs` is one of

        - arrays (N, …) by the names of the net's inputs;
        - samples, as `source: python` takes them;
        - a source: a mapping such as `{"source": "image_folder", "path": "photos"}`;
        - a loader;
        - of a model that comes with its training: a path or a list of paths; a Pillow image or a list of these;
          a row, `{"age": 39, "job": "clerk"}`, a list of rows, or a data frame; texts as rows,
          `[{"text": "…"}]`.

        The last ones are prepared as in the training. Arrays and samples go to the net as they are; the transforms of
        the training (`preprocessing` lists them) are not applied. Those of a source are. `batch_size` samples are
        computed at a time, 256 by default; results do not depend on it beyond rounding. Raises `InputError` if the
        inputs do not fit the net.

            >>> model.predict("digit.png")["logits"].argmax()
        """
        return concatenated([*self.predict_batches(inputs, batch_size)])

    def predict_batches(self, inputs: object, batch_size: int | None = None) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield the outputs that `predict` returns batch by batch."""
        from netspec.training.inference.data_arguments import is_split, open_data
        from netspec.training.inference.raw_samples import is_raw

        size = None if batch_size is None else int_argument("batch_size", batch_size, least=1)
        if is_raw(inputs, self.spec.inputs):
            yield from self._predict_raw(inputs, size)
            return
        if is_split(inputs) or not isinstance(inputs, (Mapping, np.ndarray)):
            learned = self.preprocessing.learned
            with open_data(inputs, self.compiler, ProgramKind.PREDICT, batch_size=size, learned=learned) as loader:
                for batch in loader.one_pass():
                    yield self._outputs(batch.inputs, len(batch))
            return
        arrays, samples = check_inputs(
            self.compiler, inputs, list(self.compiler.graph(ProgramKind.PREDICT, 1).inputs())
        )
        size = min(size or DEFAULT_BATCH, samples)
        for start in range(0, samples, size):
            part = {name: array[start : start + size] for name, array in arrays.items()}
            yield self._outputs(part, min(size, samples - start))

    def _predict_raw(self, samples: object, size: int | None) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield the outputs for files, images, rows or texts, prepared as in the training."""
        from netspec.training.inference.predict_files import inference_split, predict_files
        from netspec.training.inference.raw_samples import raw_files

        if self.training is None:
            raise InputError(
                "a net without its training takes arrays only", expected="arrays by the names of the net's inputs",
                hint="a model loaded from a run directory prepares files, images, rows and texts",
            )  # fmt: skip
        with raw_files(samples, inference_split(self.training)) as (paths, split):
            for batch in predict_files(self, self.training, paths, size, split):
                if batch.notes.missing:
                    raise InputError(batch.notes.missing, expected="a value in each row")
                if batch.notes.missing_key_notes:
                    warnings.warn(batch.notes.missing_key_notes, stacklevel=4)  # at the caller of `predict`
                yield batch.outputs

    def _outputs(self, batch: Mapping[str, NDArray[Any]], samples: int) -> dict[str, NDArray[Any]]:
        return self.compiler.program(ProgramKind.PREDICT, samples)(batch)

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the texts that the net was trained on: `encode` and `decode`. None if there is none."""
        from netspec.data.text.tokenizers.base import TOKENIZER, saved_tokenizer

        saved = None if self.preprocessing.learned is None else self.preprocessing.learned.source.get(TOKENIZER)
        return saved_tokenizer(saved) if isinstance(saved, Mapping) else None

    def loss_and_gradients(
        self, inputs: Mapping[str, Any], *, seed: int = 1, step: int = 0
    ) -> tuple[dict[str, float], dict[str, NDArray[Any]]]:
        """Compute the losses of one batch, and the gradient of their sum by each trainable parameter.

        Layers act as in training: `seed` and `step` determine what dropout drops. No parameter or statistic changes.
        Losses are weighted, by name; penalties of layers are in `regularization`.
        """
        names = [name for name in self.compiler.graph(ProgramKind.GRADIENTS, 1).inputs() if name != RNG_INPUT]
        arrays, samples = check_inputs(self.compiler, inputs, names)
        program = self.compiler.program(ProgramKind.GRADIENTS, samples)
        key = [int_argument("seed", seed, least=0), int_argument("step", step, least=0), 0]
        results = program({**arrays, RNG_INPUT: np.array(key)})
        losses, gradients = {}, {}
        for name, array in results.items():
            if name.startswith(f"{LOSS}/"):
                losses[name.removeprefix(f"{LOSS}/")] = float(array)
            elif name.startswith("gradient/"):
                gradients[name.removeprefix("gradient/")] = array
        return losses, gradients

    def evaluate(
        self, data: object, *, samples: Mapping[str, Any] | None = None, batch_size: int | None = None
    ) -> Evaluation:
        """Compute losses and metrics; each sample counts exactly once.

        `data` is a training file, or a mapping with the same content: then its test data is read and transformed, and
        `samples` are those of splits with `source: python`, `{"test": …}`. Or it is what `predict` takes: arrays by the
        names of the inputs, samples, a source, or a loader, computed `batch_size` samples at a time. Raises
        `InputError` if there is no test data, or it does not fit the net.
        """
        from netspec.training.evaluation import evaluate, evaluate_on, with_split
        from netspec.training.inference.data_arguments import open_data
        from netspec.training.samples import with_samples

        if isinstance(data, (str, PathLike)) or (isinstance(data, Mapping) and data.keys() & {"netspec", "net"}):
            return evaluate_on(with_samples(with_split(data), samples), self.compiler, self.preprocessing)
        size = None if batch_size is None else int_argument("batch_size", batch_size, least=1)
        learned = self.preprocessing.learned
        with open_data(data, self.compiler, ProgramKind.TEST, batch_size=size, learned=learned) as loader:
            return evaluate(self.compiler, loader)

    def save_weights(self, path: str | Path) -> None:
        """Write parameters and moving statistics, with the net's spec, to an HDF5 file."""
        save_weights(self.compiler, path_argument("path", path), self.preprocessing)

    def load_weights(self, path: str | Path, *, partial: bool = False) -> None:
        """Load parameters and moving statistics from a weights file or a checkpoint.

        Names and shapes must match; with `partial`, arrays that do are loaded, and the others stay as they are.
        """
        self.preprocessing = PreprocessingRecord.from_meta(load_weights(self.compiler, path, partial=partial).meta)


def concatenated(parts: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Concatenate the outputs of batches."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def load(
    net: str | Path | Mapping[str, Any] | NetSpec | TrainSpec,
    weights: str | Path | None = None,
    *,
    device: str = "auto",
    precision: str = "float32",
    autotune: str = "off",
    rounding: str = "fast",
    deterministic: bool = True,
    seed: int = 1,
) -> Model:
    """Load a model from a net file, or from the net of a training file, with weights from a file or initial ones.

    `net` may also be a mapping with the content of the file. Raises `InputError` if the spec or the weights are wrong.
    """
    loaded = net if isinstance(net, (NetSpec, TrainSpec)) else load_spec(net)
    spec = net_of(loaded)
    dtype, first = precision_argument(precision), int_argument("seed", seed, least=0)
    opened = open_device(
        device_argument(device), autotune_argument(autotune), rounding_argument(rounding),
        deterministic=bool_argument("deterministic", deterministic),
    )  # fmt: skip
    compiler = Compiler(spec, dtype=dtype, device=opened, seed=first)
    model = Model(spec, compiler, training=loaded if isinstance(loaded, TrainSpec) else None)
    if weights is not None:
        model.load_weights(weights)
    return model


def net_of(spec: NetSpec | TrainSpec) -> NetSpec:
    """Return the net of a training, or the net itself."""
    return spec.net if isinstance(spec, TrainSpec) else spec


def count_elements(compiler: Compiler, role: str) -> int:
    """Return the number of elements of all states with a role: `parameter` or `statistic`."""
    return sum(kind.size for kind in compiler.types(role).values())


def save_weights(compiler: Compiler, path: Path, preprocessing: PreprocessingRecord, **meta: Any) -> None:
    """Write parameters and statistics, the net's spec and the preprocessing of the samples to an HDF5 file."""
    meta = {**preprocessing.as_meta(), **meta}
    write_weights(path, compiler.weights(), net=compiler.net_yaml, name=compiler.spec.name, **meta)


@dataclass(frozen=True)
class LoadedWeights:
    """Result of loading a weights file."""

    loaded: list[str]
    """Names of the arrays."""
    meta: Mapping[str, Any]
    """Metadata of the file; `PreprocessingRecord.from_meta` reads it."""


def load_weights(compiler: Compiler, path: str | Path, *, partial: bool = False) -> LoadedWeights:
    """Read parameters and statistics from a weights file or a checkpoint.

    All names and shapes must match, unless `partial`: then the arrays that match are loaded. Raises `InputError` with
    what does not match, and a hint about changes of the net since the weights were written.
    """
    file = path_argument("weights", path)
    if format_of(file).name == OWN:
        weights = read_weights(file)
    else:
        weights = WeightsFile(import_weights(file, Target(compiler.spec, compiler.types("parameter", "statistic"))))
    try:
        loaded = assign_arrays(compiler, weights.arrays, partial=partial, source=str(path))
    except InputError as error:
        if partial:
            raise
        problems = list(error.problems)
        last = min(len(problems), MAX_SHOWN) - 1  # the last printed problem
        hints = filter(None, [problems[last].hint, changed_net_hint(compiler.spec, weights.net, str(path))])
        problems[last] = replace(problems[last], hint="; ".join(hints))
        raise InputError(problems) from None
    return LoadedWeights(loaded, weights.meta)


def assign_arrays(
    compiler: Compiler, arrays: Mapping[str, NDArray[Any]], *, partial: bool = False, source: str
) -> list[str]:
    """Assign parameters and statistics; return their names. Raises the errors of `match_weights`."""
    types = compiler.types("parameter", "statistic")
    matched = match_weights(types, arrays, partial=partial, source=source).arrays
    for name, array in matched.items():
        compiler.assign(name, array)
    return list(matched)
