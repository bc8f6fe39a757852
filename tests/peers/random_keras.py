"""Import random Keras models in each of its file formats, and compare results: a repeatable search for disagreements.

    .venv/bin/python -m tests.peers.random_keras --count 200 --seed 1
    .venv/bin/python -m tests.peers.random_keras --count 200 --seed 1 --python keras215/bin/python

The first uses the Keras of `make test-peers` (3, on PyTorch) in `.venv-peers`. Files as Keras 2 writes them need an
environment of their own: `python3.11 -m venv keras215; keras215/bin/pip install tensorflow-cpu==2.15.1`. A model
depends only on its number and the seed. The exit status is 1 if an imported model gives other results, or the import
raises an error that is not netspec's own; the numbers of these models are printed, to repeat with `--only NUMBER`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

PEERS = Path(".venv-peers/bin/python")
TRAINED = 4
"""Every TRAINED-th model is a small net that was trained; its next step is compared."""


def make(folder: Path, numbers: list[int], seed: int) -> None:
    """Write models with their outputs, losses and metrics. Runs in the environment of Keras."""
    keras = import_module("keras")
    for number in numbers:
        keras.backend.clear_session()
        record: dict[str, Any] = {"types": None}
        try:
            _make(keras, folder, number, np.random.default_rng([seed, number]), record)
        except Exception as refused:  # Keras can't run or train what it has built
            record["refused"] = f"{type(refused).__name__}: {refused}"
        (folder / f"{number}.json").write_text(json.dumps(record), encoding="utf-8")


def _make(keras: Any, folder: Path, number: int, random: np.random.Generator, record: dict[str, Any]) -> None:
    from tests.peers.random_nets import Drawing, drawn
    from tests.peers.random_training import batch, compiled, trained

    steps = number % TRAINED == 0
    model = trained(keras, random) if steps else drawn(keras, random)
    if not steps:
        _randomize(model, random)
        try:
            record["types"] = compiled(Drawing(keras, random), model)
        # The model is saved without them.
        except (ValueError, TypeError, AttributeError) as refused:
            record["uncompiled"] = str(refused)
    answers = _answers(model, random)
    record["files"] = _saved(model, folder, number)
    if steps:
        record["types"] = ["SparseCategoricalCrossentropy", "accuracy"]
        record["stateless"] = ["keras"] if "legacy" in type(model.optimizer).__module__ else []
        answers |= _after(model, *batch(9))
    np.savez(folder / f"{number}.npz", **answers)  # type: ignore[arg-type]  # its keywords are arrays


def _randomize(model: Any, random: np.random.Generator) -> None:
    for weight in model.weights:
        if "float" in str(weight.dtype):
            low = 0.2 if "variance" in str(getattr(weight, "path", weight.name)) else -0.6
            weight.assign(random.uniform(low, 0.8, tuple(weight.shape)).astype(np.float32))


def _saved(model: Any, folder: Path, number: int) -> dict[str, str]:
    """File → Keras's error if it can't write it, otherwise an empty string."""
    arrays = {}
    for name, save in (("keras", model.save), ("h5", model.save), ("weights.h5", model.save_weights)):
        path = folder / f"{number}.{name}"
        try:
            save(str(path))
            arrays[name] = ""
        except (ValueError, TypeError, NotImplementedError, RuntimeError, AttributeError) as refused:
            path.unlink(missing_ok=True)
            arrays[name] = f"{type(refused).__name__}: {refused}"
    return arrays


def _answers(model: Any, random: np.random.Generator) -> dict[str, np.ndarray]:
    feeds = {}
    for model_input in model.inputs:
        shape = (3, *model_input.shape[1:])
        is_integer = "int" in str(model_input.dtype)
        feeds[model_input.name] = (
            random.integers(0, 9, shape).astype(np.int32)
            if is_integer
            else random.uniform(-1, 1, shape).astype(np.float32)
        )
    values = list(feeds.values())
    results = model(values if len(values) > 1 else values[0], training=False)
    outputs = [np.asarray(item.detach() if hasattr(item, "detach") else item) for item in _flat(results)]
    return {f"in_{name}": feed for name, feed in feeds.items()} | {
        f"out_{k}": output for k, output in enumerate(outputs)
    }


def _flat(nested: Any) -> list[Any]:
    return [each for item in nested for each in _flat(item)] if isinstance(nested, (list, tuple)) else [nested]


def _after(model: Any, images: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """The weights after one more step."""
    model.train_on_batch(images, labels)
    arrays = {}
    for weight in model.weights:
        value = weight.value.detach() if hasattr(weight, "path") else weight.numpy()
        arrays[f"after_{getattr(weight, 'path', weight.name)}".partition(":")[0]] = np.asarray(value)
    return arrays


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="make this many models [100]")
    parser.add_argument("--seed", type=int, default=0, help="seed the random models [0]")
    parser.add_argument("--only", type=int, nargs="*", help="make only the models with these numbers [all]")
    parser.add_argument("--python", type=Path, default=PEERS, help=f"run Keras with this interpreter [{PEERS}]")
    parser.add_argument("--output", type=Path, help="keep the files in this folder [a temporary one]")
    parser.add_argument("--make", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    numbers = arguments.only or list(range(arguments.count))
    if arguments.make:
        make(arguments.output, numbers, arguments.seed)
        return 0
    if not arguments.python.exists():
        print(f"skipped: there is no {arguments.python}; `make test-peers` makes {PEERS}, --help describes Keras 2")
        return 0
    with TemporaryDirectory() as temporary:
        folder = arguments.output or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "KERAS_BACKEND": "torch", "TF_CPP_MIN_LOG_LEVEL": "3"}
        subprocess.run(
            [arguments.python, "-W", "ignore", "-m", "tests.peers.random_keras", "--make", "--output", folder,
             "--seed", str(arguments.seed), "--only", *map(str, numbers)],
            env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        return checked(folder, numbers)


def checked(folder: Path, numbers: list[int]) -> int:
    """Import every file, compare, and print counts. Returns 1 if something is wrong, otherwise 0."""
    from tests.peers.random_imports import Verdict, verdicts

    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    wrong: list[Verdict] = []
    for number in numbers:
        for verdict in verdicts(folder, number):
            counts[verdict.kind] += 1
            if verdict.kind == "wrong":
                wrong.append(verdict)
            elif verdict.kind != "agree":
                reasons[f"{verdict.kind}: {verdict.reason}"] += 1
    for reason, count in reasons.most_common():
        print(f"{count:5} {reason}")
    for verdict in wrong:
        print(f"WRONG {verdict.number}.{verdict.file}: {verdict.reason}")
    print(", ".join(f"{kind} {count}" for kind, count in sorted(counts.items())))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
