"""Compare imported random Keras models with Keras: outputs, losses and metrics, and the next training step."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from netspec.compile import LEARNING_RATE, STEP, Compiler, ProgramKind
from netspec.errors import NetspecError
from netspec.exchange.formats.keras.names import to_keras, variables
from netspec.exchange.importing import import_model, import_weights
from netspec.exchange.interface import Imported, Target
from netspec.exchange.match_weights import match_weights, renamed
from netspec.schema.load import load_net, load_train
from netspec.schema.yaml.reader import parse_yaml
from netspec.tools.import_model import with_valid_training
from netspec.training.inference.model import Model, assign_arrays, load
from tests.peers.random_training import ACCURACIES, batch

TOLERANCE = {"rtol": 2e-3, "atol": 2e-4}
"""float32 on both sides, sums in another order, exponentials of exponentials."""
UNKNOWABLE = ("MeanSquaredError", "Huber", "Poisson", "AUC", "Recall")
"""Classes that HDF5 files do not distinguish from a user's: a function `mse` or class `Huber` of a user is read as
Keras's."""
CONSTANTS = ("Scale", "Bias")
"""Layers whose values are in the model's configuration, not among its weights, if they are not trained."""


@dataclass(frozen=True)
class Verdict:
    """Outcome for one file: `agree`, `refused` by netspec, `unwritten` by Keras, or `wrong`, and the reason."""

    number: int
    file: str
    kind: str
    reason: str = ""


def verdicts(folder: Path, number: int) -> Iterator[Verdict]:
    """Yield the verdict on each file of a model."""
    record = json.loads((folder / f"{number}.json").read_text(encoding="utf-8"))
    if "refused" in record:
        yield Verdict(number, "", "unwritten", _shortened(record["refused"]))
        return
    imported: Imported | None = None
    for file, refused in record["files"].items():
        verdict = partial(Verdict, number, file)
        if refused:
            yield verdict("unwritten", _shortened(refused))
            continue
        try:
            if file == "weights.h5":
                if imported is None:
                    continue
                reason = _weights(folder / f"{number}.{file}", imported)
            else:
                with_training = with_valid_training(import_model(folder / f"{number}.{file}"))
                imported = with_training
                with np.load(folder / f"{number}.npz") as answers:
                    reason = _difference(with_training, dict(answers), record, file)
        except NetspecError as error:
            yield verdict("refused", _shortened(re.sub(r"[^ ]*/[^ ]*: ", "", error.summary)))
        except Exception as error:  # no message for users should contain these
            yield verdict("wrong", f"{type(error).__name__}: {error}"[:300])
        else:
            yield verdict("wrong" if reason else "agree", reason)


def _shortened(text: str) -> str:
    """A message without the names and numbers that differ from model to model."""
    return " ".join(re.sub(r"`[^`]*`|'[^']*'|<.*?>|\d+", "…", text).split())[:110]


def _model(imported: Imported) -> Model:
    net = parse_yaml(imported.net, "net.yaml")
    model = load(load_net(net), device="reference")
    assign_arrays(model.compiler, imported.arrays, source="the file")
    return model


def _weights(path: Path, imported: Imported) -> str:
    """Return how a weights file, loaded into the net, differs from the model file; empty if it does not."""
    model = _model(imported)
    target = Target(model.spec, model.compiler.types("parameter", "statistic"), partial(renamed, {}))
    arrays = import_weights(path, target)
    types = {layer.name: getattr(layer, "type", "") for layer in model.spec.layers}
    constants = {name for name in imported.arrays if types.get(name.rpartition("/")[0]) in CONSTANTS}
    arrays |= {name: imported.arrays[name] for name in constants - arrays.keys()}
    arrays = match_weights(target.states, arrays, source="the file").arrays
    for name, array in imported.arrays.items():
        if not np.array_equal(arrays[name], array, equal_nan=True):
            return f"the weights `{name}` differ"
    return ""


def _difference(imported: Imported, answers: Mapping[str, np.ndarray], record: Mapping[str, Any], file: str) -> str:
    """Return how the net differs from the model; empty if it does not."""
    reason = _outputs(_model(imported), imported, answers) or _judged(imported, record["types"], file)
    if reason:
        return reason
    # Keras 2 writes no states of a `legacy` optimizer into a `.keras` file.
    if file in record.get("stateless", ()):
        return ""
    if any(key.startswith("after_") for key in answers):
        return _next_step(imported, answers)
    if imported.train:
        _training(imported).program(ProgramKind.TRAIN, 2)
    return ""


def _outputs(model: Model, imported: Imported, answers: Mapping[str, np.ndarray]) -> str:
    turned = dict(
        re.findall(r"the (?:input|output) `(.+?)` is .*?; in Keras it was (\[.*?\])", "\n".join(imported.notes))
    )
    inputs = {key[3:]: answer for key, answer in answers.items() if key.startswith("in_")}
    inputs = {name: array for name, array in inputs.items() if name in model.spec.inputs}
    shapes = {name: tuple(model.spec.inputs[name].shape) for name in inputs}
    orders = [[candidate for candidate in _orders(array, name in turned) if candidate.shape[1:] == shapes[name]]
            for name, array in inputs.items()]  # fmt: skip
    differences = []
    for feeds in product(*orders):
        actual = [np.asarray(array) for array in dict(model.predict(dict(zip(inputs, feeds, strict=True)))).values()]
        expected = [answers[f"out_{index}"] for index in range(len(actual))]
        if f"out_{len(actual)}" in answers:
            return "there are fewer outputs"
        worst = max(_distance(array, other) for array, other in zip(actual, expected, strict=True))
        if worst <= 1:
            return ""
        differences.append(worst)
    return f"outputs differ by {min(differences, default=np.inf):.3g} times the tolerance"


def _orders(array: np.ndarray, turned: bool) -> list[np.ndarray]:
    """Yield the axis orders that an array of Keras may have in netspec."""
    axes = [axis for axis in (1, 2) if axis < array.ndim - 1]
    return [array, *(np.moveaxis(array, -1, axis) for axis in axes if turned)] if array.ndim > 2 else [array]


def _distance(actual: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference in units of the tolerance, in the best order of axes."""
    distances = []
    for candidate in _orders(expected, True):
        if candidate.shape == actual.shape:
            same = (actual == candidate) | (np.isnan(actual) & np.isnan(candidate))
            with np.errstate(invalid="ignore"):
                distance = np.abs(actual - candidate) / (TOLERANCE["atol"] + TOLERANCE["rtol"] * np.abs(candidate))
            distances.append(float(np.where(same, 0, np.nan_to_num(distance, nan=np.inf)).max(initial=0)))
    return min(distances, default=np.inf)


def _judged(imported: Imported, types: list[str] | None, file: str) -> str:
    """Return which losses and metrics differ from those of the compiled model without a note."""
    assert imported.draft is not None
    type_counts = Counter(types or ())
    for metric in (*imported.draft.losses, *imported.draft.metrics):
        name = "accuracy" if metric["type"] in ACCURACIES and not type_counts[metric["type"]] else metric["type"]
        if not type_counts[name] and not (file == "h5" and name in UNKNOWABLE):
            return f"{name} is none of {types}"
        type_counts[name] -= 1
    left = sum(bool(re.match(r"the (loss|metric) .* is left out", note)) for note in imported.notes)
    return "" if not +type_counts or left else f"{list(+type_counts)} are missing without a note"


def _training(imported: Imported) -> Compiler:
    tree = parse_yaml(imported.train, "train.yaml")
    tree["net"] = parse_yaml(imported.net, "net.yaml")
    spec = load_train(tree)
    solver: Any = spec.solver
    return Compiler(spec.net, solver=solver, device="reference", loop=spec.train)


def _next_step(imported: Imported, answers: Mapping[str, np.ndarray]) -> str:
    """Return how the weights differ after the next step."""
    if not imported.train:
        is_noted = any("since netspec does not support it" in note for note in imported.notes)
        return "" if is_noted else f"no training: {imported.notes}"
    compiler = _training(imported)
    states = imported.arrays | imported.slots
    if imported.step and set(compiler.names("parameter", "statistic", "slot")) != set(states):
        return f"the states of the optimizer are missing: {imported.notes}"
    for key, array in states.items():
        compiler.states.assign(key, array)
    images, labels = batch(9)
    tree = parse_yaml(imported.train, "train.yaml")
    tree["net"] = parse_yaml(imported.net, "net.yaml")
    solver: Any = load_train(tree).solver
    rate = np.array(solver.learning_rate.value(imported.step, 1000), np.float32)
    feeds = {"image": np.moveaxis(images, -1, 1), "target": labels, LEARNING_RATE: rate}
    compiler.program(ProgramKind.TRAIN, len(images))({**feeds, STEP: np.array(imported.step + 1.0)})
    for layer in compiler.spec.layers:
        keys = [key.partition("/")[2] for key in imported.arrays if key.startswith(f"{layer.name}/")]
        for variable in variables(layer, keys):
            expected = answers[f"after_{layer.name}/{variable.name}"]
            actual = to_keras(np.asarray(compiler.states[f"{layer.name}/{variable.state}"]), variable)
            if layer.name == "classes" and variable.state == "kernel":  # (C, H, W) rows here, (H, W, C) there
                actual = actual.reshape(3, 3, 2, 4).transpose(1, 2, 0, 3).reshape(18, 4)
            if not np.allclose(actual, expected, rtol=1e-3, atol=2e-5):
                state, distance = f"{layer.name}/{variable.state}", np.abs(actual - expected).max()
                return f"`{state}` differs by {distance:.3g} after step {imported.step + 1} of {solver!r}"
    return ""
