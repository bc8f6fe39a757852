"""Spec files for the tests of loading."""

from __future__ import annotations

from pathlib import Path

NET = """\
netspec: 1
name: lenet
vars: {width: 20}
inputs:
  image: {shape: [1, 28, 28]}
  label: {shape: [], dtype: int32}
layers:
  - {name: conv1, type: Conv2D, filters: "${width}", kernel_size: 5}
  - {type: Conv2D, filters: 50, kernel_size: [5, 5], kernel_initializer: glorot_uniform}
  - {name: flat, type: Flatten}
  - {name: fc.1, type: Dense, units: "${width * 25}", activation: relu}
  - {name: logits, type: Dense, units: 10}
losses: [{type: SparseCategoricalCrossentropy, from_logits: true}]
metrics: [{type: SparseCategoricalAccuracy, from: [logits, label]}]
"""
TRAIN = """\
netspec: 1
net: net.yaml
data:
  train: {source: mnist, split: train, batch_size: 64, transforms: [{type: Rescaling, scale: "${1/256}"}]}
  test: {source: csv, path: data/test.csv, batch_size: 100}
solver: {type: SGD, learning_rate: {type: ExponentialDecay, initial: 1e-2}, momentum: 0.9}
train: {max_steps: 1000}
"""


def write(folder: Path, **files: str) -> None:
    """Write `name="text"` as name.yaml; by default also net.yaml and train.yaml."""
    for name, text in {"net": NET, "train": TRAIN, **files}.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
