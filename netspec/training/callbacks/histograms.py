"""Record the distribution of each parameter during a training."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from netspec.errors import Problem
from netspec.schema.plain_json import json_text
from netspec.schema.specs.kinds import CALLBACKS
from netspec.schema.specs.monitor import without_evaluations
from netspec.training.callbacks.base import Callback, CallbackSpec
from netspec.training.events import append_line
from netspec.training.run_directory import RunDir

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from netspec.training.evaluation import Evaluation
    from netspec.training.loop import TrainingLoop

MAX_ELEMENTS = 2**18
"""Number of elements of a parameter that are counted; of a larger one, they are evenly spread."""
SHARES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
"""Shares of the elements that are below the recorded quantiles."""


@CALLBACKS.register
class Histograms(CallbackSpec):
    """Records a histogram of each parameter after every evaluation, which `netspec report` shows over time.

    Writes `histograms.jsonl` in the run directory, a line for each evaluation: the elements of each parameter in `bins`
    equal intervals between the lowest and the highest. Of a larger parameter, at most 262,144
    evenly spaced elements are counted. The weights are those that are evaluated, such as averages.
    """

    type: Literal["Histograms"] = "Histograms"
    bins: int = Field(default=30, ge=2, le=1000)
    """Number of intervals of a histogram."""
    samples: ClassVar = ({}, {"bins": 10})

    def conflicts(self, training: Any) -> Iterator[Problem]:
        yield from without_evaluations(training, "Histograms", self)

    def build(self) -> Callback:
        return _Histograms(self.bins)


class _Histograms(Callback):
    reads_loss = False

    def __init__(self, bins: int) -> None:
        self._bins = bins

    def on_evaluation_end(self, training: TrainingLoop, evaluation: Evaluation) -> None:
        if not training.is_root:
            return
        weights = training.compiler.weights()
        parameters = {name: histogram(weights[name], self._bins) for name in training.compiler.names("parameter")}
        training.mend_folder()
        append_line(training.folder.histograms, json_text({"step": training.step, "parameters": parameters}))


def histogram(array: NDArray[Any], bins: int) -> dict[str, Any]:
    """Return quantiles of the finite elements, and their number in equal intervals from the lowest to the highest."""
    flat = np.asarray(array).reshape(-1)
    values = flat[:: -(-flat.size // MAX_ELEMENTS)].astype(np.float64)
    finite = values[np.isfinite(values)]
    result: dict[str, Any] = {"elements": flat.size, "not_finite": values.size - finite.size}
    if finite.size:
        counts, _ = np.histogram(finite, bins)
        quantiles = [float(f"{value:.6g}") for value in np.quantile(finite, SHARES)]
        result |= {"quantiles": quantiles, "counts": counts.tolist()}
    return result


def read_histograms(run: Path) -> dict[int, Mapping[str, Any]]:
    """Return the histograms of a run by step, each by parameter; a later line of a step replaces an earlier one."""
    path, by_step = RunDir(run).histograms, dict[int, Mapping[str, Any]]()
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                entry = json.loads(line)
                by_step[int(entry["step"])] = {str(name): dict(value) for name, value in entry["parameters"].items()}
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue  # the process was killed while it wrote the line
    return dict(sorted(by_step.items()))
