"""`PredictionService`: a trained net that answers requests, without HTTP."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.compile import ProgramKind
from netspec.errors import InputError
from netspec.schema.load import Overrides, Source
from netspec.schema.specs.train import TrainSpec
from netspec.tools.inference.predict import answers_of, spec_and_model
from netspec.tools.serving.batching import Arrays, Batcher, batch_sizes
from netspec.tools.serving.errors import RequestError, as_request_error
from netspec.tools.serving.generation import Generation
from netspec.tools.serving.metrics import ServiceMetrics
from netspec.tools.serving.open_inference import NAMES
from netspec.tools.serving.samples import BodyReader, PreparedBody
from netspec.training.generation.encoder_decoder import decoder_columns
from netspec.training.inference.decoding import decoders_of
from netspec.training.inference.inputs import check_inputs
from netspec.training.inference.predict_files import PredictedBatch, describe_unnamed_classes, recall_learned
from netspec.training.required_inputs import input_fields

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = "1"
"""The only version of a model: a run has one."""


class PredictionService:
    """A trained net with its data preparation and answers; computes concurrent requests in common batches.

    `source` and the other arguments are those of `netspec.predict`. Programs for all batch sizes up to `max_batch` are
    compiled and run once. A batch waits at most `max_delay` seconds for more samples. A language model also continues
    prompts, and an encoder-decoder net answers them; prompt and answer may have `max_tokens` tokens
    together. `close` ends the service.
    """

    def __init__(
        self,
        source: Source,
        *,
        weights: str | Path | None = None,
        overrides: Overrides = (),
        name: str | None = None,
        max_batch: int = 32,
        max_delay: float = 0.002,
        max_tokens: int = 4096,
        device: str = "auto",
        autotune: str | None = None,
    ) -> None:
        spec, self._model = spec_and_model(source, weights, overrides, device, autotune)
        if isinstance(spec, TrainSpec):
            recall_learned(self._model, spec)
        self._decoders = decoders_of(spec, self._model.preprocessing)
        self._reader = BodyReader(self._model, spec) if isinstance(spec, TrainSpec) else None
        self._inputs = input_fields(self._model.compiler, [ProgramKind.PREDICT])
        self.name = name or _name_of(source, self._model.spec.name)
        """The model's name in requests."""
        self.remarks: list[str] = []
        """Notes to print when the service starts: why classes have no names, or why a text model takes no prompts."""
        if isinstance(spec, TrainSpec) and (unnamed := describe_unnamed_classes(self._model, spec, self._decoders)):
            self.remarks.append(unnamed)
        self.metrics = ServiceMetrics()
        self._outputs: Arrays = {}
        self._lock = threading.Lock()
        """Held while the net computes."""
        self.generation: Generation | None = None
        """Generates texts from prompts; None if the model does not generate text."""
        self._batcher = Batcher(self._compute, batch_sizes(max_batch), 0.0, self._observe)
        try:
            self._warm_up(batch_sizes(max_batch))
            if decoder_columns(self._model.training) or (self._kind == "arrays" and self._model.tokenizer is not None):
                try:
                    self.generation = Generation(self._model, self._lock, max_tokens)
                except InputError as error:  # a net of tokens that predicts something else
                    self.remarks.append(f"the model takes arrays, not prompts: {as_request_error(error, 422)}")
                    self._reader = None
        except BaseException:
            self.close()
            raise
        self._batcher.max_delay = max_delay
        self.metrics = ServiceMetrics()  # without the batches of the warm-up

    @property
    def waiting(self) -> int:
        """Number of requests that wait to be computed."""
        return self._batcher.waiting + (0 if self.generation is None else self.generation.waiting)

    def close(self) -> None:
        """Compute the requests that wait, and end the service."""
        self._batcher.close()
        if self.generation is not None:
            self.generation.close()

    def _warm_up(self, sizes: Sequence[int]) -> None:
        """Compile and run the program of each batch size, in the thread that runs them later."""
        graph = self._model.compiler.graph(ProgramKind.PREDICT, 1)
        types = {name: (value.shape[1:], str(value.dtype)) for name, value in graph.inputs().items()}
        for size in sizes:
            zeros = {name: np.zeros((size, *shape), dtype) for name, (shape, dtype) in types.items()}
            self._outputs = self._batcher.submit(zeros, size).result()

    def _observe(self, samples: int, seconds: float) -> None:
        self.metrics.batch(samples, seconds)

    def _compute(self, arrays: Arrays) -> Arrays:
        samples = len(next(iter(arrays.values())))
        with self._lock:
            return self._model.compiler.program(ProgramKind.PREDICT, samples)(arrays)

    def submit(self, arrays: Mapping[str, NDArray[Any]]) -> Future[Arrays]:
        """Queue arrays (N, …) by the names of the net's inputs. Raises `RequestError` 400 if they do not fit."""
        try:
            checked, samples = check_inputs(self._model.compiler, arrays, list(self._inputs))
        except InputError as error:
            raise as_request_error(error, 400) from None
        return self._batcher.submit(
            {name: array.astype(self._inputs[name].dtype, copy=False) for name, array in checked.items()}, samples
        )

    def read(self, body: bytes, content_type: str) -> PreparedBody:
        """Return the samples in a body as inputs of the net. Raises `RequestError`."""
        if self._reader is None or self._reader.kind == "arrays":
            reason = "comes without its training and " if self._reader is None else ""
            raise RequestError(422, f"the model {reason}takes arrays: send them to /v2/models/{self.name}/infer")
        return self._reader.read(body, content_type)

    def answers(self, samples: PreparedBody, outputs: Arrays, top: int) -> list[dict[str, Any]]:
        """Return the answers for samples, as plain data; `top` is the number of classes to name."""
        batch = PredictedBatch(samples.ids, outputs, windows=samples.windows or None)
        columns = answers_of(batch, self._decoders, top)
        return [
            {
                name: value.tolist() if isinstance(value, np.ndarray) else value
                for name, value in zip(columns, row, strict=True)
            }
            for row in zip(*columns.values(), strict=True)
        ]

    @property
    def _kind(self) -> str:
        """Kind of the samples that the training reads."""
        return "arrays" if self._reader is None else self._reader.kind

    def description(self) -> dict[str, Any]:
        """Return what `/predict` takes: the kind of the samples, the columns of a table, and the rows of a time series.

        `classes` and `outputs` say what it answers: the classes by the name of the output, and the columns that
        outputs predict, with their units. `example` is a row, a text or a prompt that can be sent as it is.

        For a net that generates text, the kind is `prompt`, with the default settings and the largest number of tokens;
        for an encoder-decoder net, also the column of the source texts and their largest number of tokens.
        """
        kind = self._kind if self.generation is None else "prompt"
        columns = [] if self._reader is None or self.generation is not None else self._reader.columns()
        classes = {name: list(decoder.classes) for name, decoder in self._decoders.items() if decoder.classes}
        description: dict[str, Any] = {"model": self.name, "kind": kind, "columns": columns, "classes": classes}
        targets = {name: dict(decoder.target) for name, decoder in self._decoders.items() if decoder.target}
        description |= {"outputs": targets} if targets else {}
        if self._reader is not None:
            description |= self._reader.describe_time_series()
            description |= {"example": self._reader.example_row()} if columns else {}
        if self.generation is not None:
            description |= self.generation.description
        return description

    def metadata(self) -> dict[str, Any]:
        """Return the model's metadata in the Open Inference Protocol."""
        return {
            "name": self.name,
            "versions": [VERSION],
            "platform": "netspec",
            "inputs": [
                {"name": name, "datatype": NAMES.get(kind.dtype, "FP32"), "shape": [-1, *kind.shape]}
                for name, kind in self._inputs.items()
            ],
            "outputs": [
                {"name": name, "datatype": NAMES.get(array.dtype.name, "FP32"), "shape": [-1, *array.shape[1:]]}
                for name, array in self._outputs.items()
            ],
        }


def _name_of(source: Source, net: str | None) -> str:
    """Return the name of a run directory, of the net, or of the file."""
    if isinstance(source, (str, Path)):
        path = Path(source).resolve()
        return path.name if path.is_dir() else net or path.stem
    return net or "model"
