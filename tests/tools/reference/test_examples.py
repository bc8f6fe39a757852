"""The reference shows an example of every class, and each one is valid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netspec.data.base import Survey
from netspec.data.pipeline import TransformPipeline
from netspec.schema.bundled import zoo_root
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.kinds import REGISTRIES
from netspec.schema.yaml.flow_style import flow
from netspec.schema.yaml.reader import parse_yaml
from netspec.tools.checking.check import check
from netspec.tools.checking.check_training import DeclaredDataset
from netspec.tools.reference.examples import example

CLASSES = [(kind, name) for kind, registry in REGISTRIES.items() for name in registry.names()]
LENET = zoo_root() / "lenet_mnist" / "net.yaml"
TRAINING = {
    "data": """data:
  train: {source: mnist, split: train, batch_size: 64}
  test: {source: mnist, split: test, batch_size: 100}""",
    "solver": "solver: SGD",
    "train": "train: {max_epochs: 1}",
}


def reader_of(text: str) -> Any:
    """A net that reads the first field of the split in `text`; LeNet if it is an image with one label."""
    split: Any = SOURCES.parse(parse_yaml(text, "example.yaml")["data"]["train"])
    fields_of_source = split.known_fields()
    if fields_of_source is None or any(step.needs_data for step in split.transforms):
        return LENET
    fields = TransformPipeline(DeclaredDataset(Survey(fields_of_source)), split, seed=0).fields
    if "image" in fields and fields["image"].shape == (1, 28, 28) and not fields["label"].shape:
        return LENET
    name, (shape, dtype) = next(iter(fields.items()))
    layers = [{"type": "Cast", "dtype": "float32"}, {"type": "Flatten"}, {"type": "Dense", "units": 1, "name": "y"}]
    inputs = {name: {"shape": [8 if size is None else size for size in shape], "dtype": dtype}}
    return flow(
        {"netspec": 1, "inputs": inputs, "layers": layers, "losses": [{"type": "MeanSquaredError", "from": ["y", "y"]}]}
    )


@pytest.mark.parametrize(("kind", "name"), CLASSES)
def test_the_example_of_every_class_is_valid(kind: str, name: str, tmp_path: Path):
    registry: Any = REGISTRIES[kind]
    text = example(kind, registry[name])
    assert text, "no sample shows how it is written"
    assert name in text
    if not text.startswith("netspec:"):
        section_name = text.partition(":")[0]
        net = reader_of(text) if section_name == "data" and "${" not in text else LENET
        tree: Any = parse_yaml(text, "example.yaml")
        other_sections = [line for section, line in TRAINING.items() if section not in tree]
        text = "\n".join(["netspec: 1", f"net: {net}", *other_sections, text])
    file = tmp_path / "example.yaml"
    file.write_text(text, encoding="utf-8")
    check(file, data=False)
