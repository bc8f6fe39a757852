"""Record files of Keras (on PyTorch), and what its models answer, for the importer of such files.

    KERAS_BACKEND=torch .venv-peers/bin/python -m tests.peers.record_keras [--output DIRECTORY] [NET …]

Each net becomes NAME.keras and NAME.npz.xz with its inputs and outputs; some become NAME.h5 and NAME.weights.h5 too.
"""

from __future__ import annotations

import argparse
import os
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from tests.peers.keras_nets import NETS, batch
from tests.peers.recordings import RECORDED, save_answers

BATCH = 3
LEGACY = ("images", "means", "nested", "sequences", "trained_adam")
"""Nets that are also written in the older layouts."""
WEIGHTS_ALONE = ("images", "nested", "sequences", "trained_adafactor", "trained_muon")
"""Nets of which a file with only the weights is written too; for trained nets it includes the optimizer's states."""


def keras() -> Any:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    return import_module("keras")


def pack(path: Path) -> None:
    """Rewrite an archive with compression, and without timestamps."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, 9)


def randomize(model: Any, random: np.random.Generator) -> None:
    """Set weights to random values, since many initial ones are 0 or 1; variances are positive."""
    for weight in model.weights:
        if "seed" not in weight.path and np.issubdtype(np.dtype(str(weight.dtype)), np.floating):
            low = 0.2 if "variance" in weight.path else -0.6
            weight.assign(random.uniform(low, 0.8, tuple(weight.shape)).astype(np.float32))
    for layer in model._flatten_layers():
        if hasattr(layer, "finalize_state"):
            layer.finalize_state()


def fed(model: Any, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Return a value for each input, by name."""
    feeds = {}
    for model_input in model.inputs:
        shape = (BATCH, *model_input.shape[1:])
        if str(model_input.dtype).startswith("int"):
            feeds[model_input.name] = random.integers(0, 3, shape).astype(str(model_input.dtype))
        else:
            feeds[model_input.name] = random.uniform(-1, 1, shape).astype(np.float32)
    return feeds


def record(name: str, output: Path) -> None:
    library = keras()
    library.backend.clear_session()
    random = np.random.default_rng(crc32(name.encode()))
    model = NETS[name](library)
    if not name.startswith("trained"):
        randomize(model, random)
    feeds = fed(model, random)
    inputs = list(feeds.values()) if len(feeds) > 1 else next(iter(feeds.values()))
    outputs = library.tree.flatten(model(inputs, training=False))
    answers = {f"in_{key}": feed for key, feed in feeds.items()}
    answers |= {f"out_{index}": np.asarray(array.detach().numpy()) for index, array in enumerate(outputs)}
    model.save(output / f"{name}.keras")
    pack(output / f"{name}.keras")
    if name in LEGACY:
        model.save(output / f"{name}.h5")
    if name in WEIGHTS_ALONE:
        model.save_weights(output / f"{name}.weights.h5")
    if name.startswith("trained"):
        model.train_on_batch(*batch(3))
        answers |= {f"after_{weight.path}": np.asarray(weight.value.detach().numpy()) for weight in model.weights}
    save_answers(output, name, answers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RECORDED / "keras")
    parser.add_argument("nets", nargs="*", help=f"some of {', '.join(NETS)}; default: all")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name in arguments.nets or NETS:
        record(name, arguments.output)


if __name__ == "__main__":
    main()
