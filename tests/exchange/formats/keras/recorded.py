"""Keras files and the results of their models, recorded by `tests/peers/record_keras.py`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from netspec.exchange.formats.native.hdf5 import write_weights
from netspec.exchange.interface import Imported
from netspec.training.inference.model import Model, load
from tests.peers.recordings import ANSWERS

FILES = ANSWERS / "keras"
_TURNED = re.compile(r"the (?:input|output) `(.+)` is (\[.*\]), channels first; in Keras it was (\[.*\])")


def opened(imported: Imported, folder: Path, device: str = "reference") -> Model:
    """Open an imported net with its weights, through files as `netspec import` writes them.

    By default, runs on the reference kernels, since compiling kernels does not pay off for a net that runs once.
    """
    (folder / "net.yaml").write_text(imported.net, encoding="utf-8")
    write_weights(folder / "weights.h5", imported.arrays, net=imported.net, name="imported", **imported.meta)
    return load(folder / "net.yaml", folder / "weights.h5", device=device)


def turned(name: str, array: np.ndarray, notes: tuple[str, ...]) -> np.ndarray:
    """Transpose an array of Keras to the net's axes, as the notes of the import state."""
    for note in notes:
        match = _TURNED.fullmatch(note)
        if match and match[1] == name:
            assert sizes_in(match[3]) == list(array.shape[1:])
            channel_axes = [
                axis for axis in (2, 1) if list(np.moveaxis(array, -1, axis).shape[1:]) == sizes_in(match[2])
            ]
            lead = (
                channel_axes[0]
                if re.match("ConvLSTM|TimeDistributed|film", name) and array.ndim > 3
                else channel_axes[-1]
            )
            return np.moveaxis(array, -1, lead)
    return array


def sizes_in(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def answers(
    model: Model, imported: Imported, recorded: Mapping[str, np.ndarray]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the prediction of the net and that of Keras, for each output."""
    feeds = {}
    for key in recorded:
        if key.startswith("in_") and key[3:] in model.spec.inputs:
            feeds[key[3:]] = turned(key[3:], recorded[key], imported.notes)
    actual = model.predict(feeds)
    named: dict[str, np.ndarray] = dict(actual)
    assert len(named) == sum(key.startswith("out_") for key in recorded)
    return {
        name: (array, turned(name, recorded[f"out_{index}"], imported.notes))
        for index, (name, array) in enumerate(named.items())
    }
