"""Trained nets for tables, images, texts and prompts."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

import netspec

TABLE = """
netspec: 1
net:
  netspec: 1
  name: fruit_net
  inputs: {features: {shape: [4]}, label: {shape: [], dtype: int32}}
  layers: [{name: logits, type: Dense, units: 2}]
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
data:
  train:
    source: csv
    path: fruit.csv
    header: true
    columns:
      size: {type: numeric, missing: mean}
      color: {type: categorical, missing: unknown, unknown: index}
      fruit: categorical
    label: fruit
    batch_size: 8
solver: {type: SGD, learning_rate: 0.5}
train: {max_steps: 30, seed: 1}
"""
IMAGES = """
netspec: 1
net:
  netspec: 1
  inputs: {image: {shape: [3, 4, 4]}, label: {shape: [], dtype: int32}}
  layers: [{type: Flatten}, {name: logits, type: Dense, units: 2}]
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
data:
  train:
    source: image_folder
    path: photos
    size: [4, 4]
    batch_size: 4
    transforms: [{type: Rescaling, scale: "${1 / 255}"}]
solver: {type: SGD, learning_rate: 0.5}
train: {max_steps: 10, seed: 1}
"""
TEXTS = """
netspec: 1
net:
  netspec: 1
  inputs: {text: {shape: [4], dtype: int32}, label: {shape: [], dtype: int32}}
  layers:
    - {type: Embedding, input_dim: 20, output_dim: 4}
    - {type: Flatten}
    - {name: logits, type: Dense, units: 2}
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
data:
  train:
    source: documents
    path: reviews
    tokenizer: {type: words, padding: true, unknown: true, size: 20}
    transforms: [{type: Padding, length: 4}]
    batch_size: 4
solver: {type: SGD, learning_rate: 0.5}
train: {max_steps: 30, seed: 1}
"""
TEXT_TABLE = """
data:
  train:
    source: csv
    path: reviews.csv
    header: true
    columns:
      review: {type: text, tokenizer: {type: words, padding: true, unknown: true, size: 20}, length: 4, missing: empty}
      opinion: categorical
    label: opinion
    batch_size: 4
solver: {type: SGD, learning_rate: 0.5}
train: {max_steps: 30, seed: 1}
"""
LETTERS = """
netspec: 1
net:
  netspec: 1
  inputs: {text: {shape: [8], dtype: int32}, target: {shape: [8], dtype: int32}}
  layers:
    - {type: Embedding, input_dim: 4, output_dim: 4}
    - {type: LSTM, units: 4, return_sequences: true}
    - {name: logits, type: Dense, units: 4}
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, target], from_logits: true}]
data: {train: {source: text, path: text.txt, tokenizer: characters, length: 8, batch_size: 4}}
solver: {type: Adam, learning_rate: 0.05}
train: {max_steps: 20, seed: 1}
"""


@pytest.fixture(scope="session")
def language_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run named `letters` that predicts the next of four letters."""
    folder = tmp_path_factory.mktemp("language")
    (folder / "train.yaml").write_text(LETTERS)
    (folder / "text.txt").write_text("abcd" * 100)
    netspec.train(folder / "train.yaml", run_dir=folder / "letters", device="reference")
    return folder / "letters"


@pytest.fixture(scope="session")
def text_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run named `reviews` that tells good words from bad ones."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "train.yaml").write_text(TEXTS)
    for name, text in (("bad", "awful poor"), ("good", "nice great")):
        (folder / "reviews" / name).mkdir(parents=True)
        for number in range(4):
            (folder / "reviews" / name / f"{number}.txt").write_text(text)
    netspec.train(folder / "train.yaml", run_dir=folder / "run" / "reviews", device="reference")
    return folder / "run" / "reviews"


@pytest.fixture(scope="session")
def text_table_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run named `opinions` that tells good words from bad ones in the column `review` of a table."""
    folder = tmp_path_factory.mktemp("text_table")
    (folder / "train.yaml").write_text(TEXTS[: TEXTS.index("data:")].replace("text:", "review:") + TEXT_TABLE)
    (folder / "reviews.csv").write_text("review,opinion\n" + "awful poor,bad\nnice great,good\n" * 8)
    netspec.train(folder / "train.yaml", run_dir=folder / "opinions", device="reference")
    return folder / "opinions"


@pytest.fixture(scope="session")
def table_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run named `fruit` that tells fruits by size and color."""
    folder = tmp_path_factory.mktemp("table")
    (folder / "train.yaml").write_text(TABLE)
    rows = [f"{1 + number / 100},green,grape\n{9 + number / 100},red,apple\n" for number in range(16)]
    (folder / "fruit.csv").write_text("size,color,fruit\n" + "".join(rows))
    netspec.train(folder / "train.yaml", run_dir=folder / "fruit", device="reference")
    return folder / "fruit"


@pytest.fixture(scope="session")
def image_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run named `brightness` that tells dark images from light ones."""
    folder = tmp_path_factory.mktemp("images")
    (folder / "train.yaml").write_text(IMAGES)
    for name, gray in (("dark", 20), ("light", 230)):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (6, 6), (gray + number,) * 3).save(folder / "photos" / name / f"{number}.png")
    netspec.train(folder / "train.yaml", run_dir=folder / "brightness", device="reference")
    return folder / "brightness"
